import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memsearcher.assemble import make_shop, make_tasks
from memsearcher.cli import app
from memsearcher.commands import webshop as command
from memsearcher.recipe import RecipeError, load_recipe
from tests.webshop_world import row

ITEMS = [
    row("B000000001", "Acme Lamp", options={"size": ["s", "l"]}),
    row("B000000002", "!!!", query="???", full_description="", small_description=[]),
]
ABOUT = {"attributes": ["tall"], "instruction": "find me a tall lamp", "instruction_attributes": ["tall"]}


@pytest.fixture
def given(tmp_path):
    """The options that name the user's own files: a lamp with two goals, and a product that cannot be found."""
    files = {"--items": ITEMS, "--attributes": {each["asin"]: ABOUT for each in ITEMS}}
    options = []
    for name, content in files.items():
        path = tmp_path / f"{name[2:]}.json"
        path.write_text(json.dumps(content))
        options += [name, str(path)]
    return options


def run(*options):
    return CliRunner().invoke(app, ["webshop", *options])


def test_it_says_what_shoppers_earn(given):
    result = run(*given)
    assert result.exit_code == 0, result.output
    line = next(line for line in result.output.splitlines() if "test" in line and "│" in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[:4] == ["test", "3", "100.0", "1"]


def test_only_the_first_products(given):
    assert "1 products" in run(*given, "--n", "1").output


def test_a_shop_in_which_nothing_can_be_found(given):
    """The scripted shopper then has no mean."""
    Path(given[1]).write_text(json.dumps(ITEMS[1:]))
    line = next(line for line in run(*given).output.splitlines() if "test" in line and "│" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")][:4] == ["test", "1", "–", "1"]


def test_the_built_in_shop(monkeypatch):
    monkeypatch.setattr(command, "GOALS", 3)
    result = run("--mode", "strict")
    assert result.exit_code == 0, result.output
    assert "1,000 products, reward × 100 (strict)" in result.output
    assert result.output.count("100.0") == 3


def test_serve_opens_the_shop_on_the_loopback(monkeypatch, given):
    served = {}
    monkeypatch.setattr("uvicorn.run", lambda app, **options: served.update(options, routes=len(app.routes)))
    result = run("--serve", "--port", "0", *given)
    assert result.exit_code == 0, result.output
    assert (served["host"], served["port"], served["routes"]) == ("127.0.0.1", 0, 4)
    assert "http://127.0.0.1:0/" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attributes", "a.json"], "attributes, human and n go with items"),
        (["--items", "a.json"], "items needs attributes"),
        (["--items", "no.json", "--attributes", "no.json"], "no.json"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    result = run(*options)
    assert result.exit_code == 1
    assert message in result.output


def test_a_recipe_names_the_files_too(given):
    files = dict(zip(given[::2], given[1::2], strict=True))
    recipe = load_recipe("webshop", [f"webshop.{name[2:]}={path}" for name, path in files.items()])
    tasks = make_tasks(recipe, "webshop-test")
    assert len(tasks) == 3 and all("lamp" in task.question for task in tasks)
    assert len(make_shop(load_recipe("webshop", [*settings(recipe), "webshop.n=1"])).shop.products) == 1
    with pytest.raises(RecipeError, match="webshop: items needs attributes"):
        make_shop(load_recipe("webshop", ["webshop.items=a.json"]))


def settings(recipe):
    return [f"webshop.items={recipe.webshop.items}", f"webshop.attributes={recipe.webshop.attributes}"]


def test_a_split_without_goals_cannot_be_served(given):
    result = run("--serve", "--split", "train", *given)
    assert result.exit_code == 1
    assert "there are no train goals in this catalogue" in result.output
