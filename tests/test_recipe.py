"""Recipes: what is given counts, the rest is the default, and what is wrong is named in one error."""

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.recipe import (
    FOLDER,
    AgentName,
    Model,
    Recipe,
    RecipeError,
    Retrieval,
    Training,
    WarmStart,
    WebShop,
    load_recipe,
)
from memsearcher.trajectory import BadMemoryPolicy, Limits


def file(folder, text):
    path = folder / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_pocket_recipe():
    recipe = load_recipe()
    assert recipe == load_recipe("pocket")
    assert recipe.model == Model("transformers", "smollm2", "shipped", batch_size=32)
    assert recipe.retrieval == Retrieval("factbook", "bm25")
    assert (recipe.limits.turns, recipe.limits.on_bad_memory, recipe.width, recipe.seed) == (6, "keep", 32, 0)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_built_in_recipe_loads_by_name_and_by_path(path):
    assert load_recipe(path.stem) == load_recipe(str(path))


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n", "null"])
def test_an_empty_file_leaves_the_defaults(tmp_path, text):
    assert load_recipe(str(file(tmp_path, text))) == Recipe()


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path):
    path = file(tmp_path, "limits: {turns: 3}\nmodel:\n  name: a/b\n  adapter: null\n")
    assert load_recipe(str(path)) == Recipe(model=Model(name="a/b", adapter=None), limits=Limits(turns=3))


def test_overrides_reach_inside_and_the_last_one_counts(tmp_path):
    path = file(tmp_path, "limits: {turns: 3, passages: 2}\n")
    overrides = [
        "limits.turns=8",
        "limits.turns=9",
        "retrieval.index=/tmp/a=b",
        "model.adapter=null",
        "warmstart.learning_rate=1e-4",  # text to YAML 1.1
        "warmstart.questions={2-hop: 1}",
        "warmstart.questions.3-hop=2",
        "seed=-1",
    ]
    assert load_recipe(str(path), overrides) == Recipe(
        model=Model(adapter=None),
        limits=Limits(turns=9, passages=2),
        retrieval=Retrieval(index="/tmp/a=b"),
        warmstart=WarmStart(questions={"2-hop": 1, "3-hop": 2}, learning_rate=1e-4),
        seed=-1,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: red", "field colour: "),
        ("limits: {turn: 3}", "field limits.turn: "),
        ("model: {api_key: secret}", "field model.api_key: "),
        ("1: 2", "field 1: "),
        ("limits: {turns: many}", "field limits.turns: Input should be a valid integer"),
        ("limits: {turns: 1.5}", "field limits.turns: Input should be a valid integer"),
        ("limits: {turns: 0}", "field limits: Value error, Limits.turns must be at least 1, not 0"),
        ("limits: {on_bad_memory: forget}", "field limits.on_bad_memory: Input should be 'keep', 'wipe' or 'end'"),
        ("limits: null", "field limits: "),
        ("limits: [turns]", "field limits: "),
        ("model: {name: 3}", "field model.name: Input should be a valid string"),
        ("model: {engine: llama}", "field model.engine: Input should be 'transformers', 'vllm' or 'openai'"),
        ("model: {dtype: int8}", "field model.dtype: Input should be 'auto', 'float32' or 'bfloat16'"),
        ("retrieval: {kind: google}", "field retrieval.kind: "),
        ("environment: mall", "field environment: Input should be 'search' or 'webshop'"),
        ("webshop: {mode: fair}", "field webshop.mode: Input should be 'original' or 'strict'"),
        ("webshop: {size: 3}", "field webshop.size: "),
        ("warmstart: {questions: {2-hop: few}}", "field warmstart.questions.2-hop: "),
        ("warmstart: {learning_rate: fast}", "field warmstart.learning_rate: "),
        ("just text", "fields were expected"),
        ("- a\n- b", "fields were expected"),
        ("[]", "fields were expected"),
        ("0", "fields were expected"),
        ("a: [", "not YAML: "),
        ("a: b: c", "not YAML: "),
        ("!!python/object/apply:os.getcwd []", "not YAML: "),
        ("seed: 2024-99-99", "not YAML: month must be in 1..12"),
        ("seed: 0x_", "not YAML: "),
        ("[" * 5_000, "not YAML: "),
        (b"name: \xff\xfe", "not YAML: "),
        (b"name: \x00", "not YAML: "),
    ],
)
def test_a_bad_file_is_one_error_that_names_file_and_field(tmp_path, text, message):
    path = file(tmp_path, text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize("name", ["pockets", "no/such.yaml", "", "."])
def test_a_missing_recipe_lists_the_built_in_ones(name):
    with pytest.raises(RecipeError) as caught:
        load_recipe(name)
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    assert str(caught.value) == f"{name}: no such recipe or file; built-in recipes are: {names}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("limits.turns", "'limits.turns': an override looks like limits.turns=8"),
        ("", "'': an override looks like limits.turns=8"),
        ("=8", "'=8': an override looks like limits.turns=8"),
        ("seed.deep=8", "'seed.deep=8': seed has no fields inside"),
        ("model.name.deep=8", "'model.name.deep=8': name has no fields inside"),
        ("seed=[", "'seed=[': "),
        ("seed=2024-99-99", "'seed=2024-99-99': month must be in 1..12"),
        ("model.name=\ud800", "'model.name=\\ud800': "),
    ],
)
def test_a_bad_override_is_one_error_that_names_it(tmp_path, override, message):
    path = file(tmp_path, "seed: 1\nmodel: {name: x}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(str(path), [override])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("limits.turn=8", "field limits.turn: "),
        ("limits.turns=many", "field limits.turns: "),
        ("seed=", "field seed: Input should be a valid integer"),
        ("limits..turns=8", "field limits.: "),
    ],
)
def test_an_override_of_no_field_or_of_the_wrong_kind_names_the_field(override, message):
    with pytest.raises(RecipeError) as caught:
        load_recipe("pocket", [override])
    assert str(caught.value).startswith(f"{FOLDER / 'pocket.yaml'}: {message}")


TEXT = st.text(st.characters(exclude_categories=[]), max_size=12) | st.sampled_from(
    ["null", "1e-3", "no", "2024-99-99", "\x85", "\u2028", "", "- a", "&a", "0x_"]
)
NUMBERS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False)
POSITIVE = st.integers(1, 2**70)


def one_of(kind, name):
    return st.sampled_from(typing.get_args(typing.get_type_hints(kind)[name]))


MODELS = st.builds(
    Model,
    one_of(Model, "engine"),
    TEXT,
    st.none() | TEXT,
    NUMBERS,
    st.dictionaries(TEXT, NUMBERS | TEXT | st.booleans(), max_size=2),
    st.none() | TEXT,
    st.none() | TEXT,
    TEXT,
    one_of(Model, "dtype"),
)
LIMITS = st.builds(Limits, *[POSITIVE] * 6, st.sampled_from(typing.get_args(BadMemoryPolicy)))
RETRIEVALS = st.builds(Retrieval, TEXT, one_of(Retrieval, "kind"), TEXT, st.none() | TEXT)
WARMSTARTS = st.builds(
    WarmStart,
    st.dictionaries(st.text(max_size=6), NUMBERS, max_size=2),
    learning_rate=FLOATS,
    exact_turns=FLOATS,
    careless=FLOATS,
)
TRAININGS = st.builds(
    Training,
    st.dictionaries(st.text(max_size=6), NUMBERS, max_size=2) | TEXT,
    learning_rate=FLOATS,
    average=TEXT,
    options=st.dictionaries(st.text(max_size=6), NUMBERS | TEXT | st.booleans(), max_size=2),
)
AGENTS = st.sampled_from(typing.get_args(AgentName))
PROMPTS = st.none() | TEXT
RECIPES = st.builds(
    Recipe,
    MODELS,
    AGENTS,
    LIMITS,
    PROMPTS,
    TEXT,
    one_of(Recipe, "environment"),
    RETRIEVALS,
    st.builds(WebShop, one_of(WebShop, "mode"), NUMBERS),
    WARMSTARTS,
    TRAININGS,
    NUMBERS,
    NUMBERS,
)


@given(RECIPES)
def test_a_recipe_survives_the_way_to_yaml_and_back(tmp_path_factory, recipe):
    path = file(tmp_path_factory.mktemp("recipe"), recipe.to_yaml())
    assert load_recipe(str(path)) == recipe


def test_the_saved_recipe_names_every_field():
    saved = Recipe().to_json()
    for kind, part in ((Recipe, saved), *((type(each), saved[name]) for name, each in parts(Recipe()))):
        assert set(part) == {field.name for field in dataclasses.fields(kind)}


def parts(recipe):
    """The settings that have fields inside, by name."""
    values = ((field.name, getattr(recipe, field.name)) for field in dataclasses.fields(recipe))
    return [(name, value) for name, value in values if dataclasses.is_dataclass(value)]
