import json
from collections import Counter

import pytest

from memsearcher.data import data_folder
from memsearcher.environments.webshop import catalogue
from memsearcher.environments.webshop.catalogue import CatalogueError, make_product
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.environments.webshop.shop import Shop
from memsearcher.environments.webshop.shoppers import scripted
from scripts.webshop.__main__ import build, write
from tests.webshop_world import product, row

FOLDER = data_folder() / "webshop"


@pytest.fixture(scope="module")
def built_in():
    return catalogue.load()


def test_it_is_what_the_script_makes(tmp_path):
    products, goals = build()
    write(tmp_path / "products.jsonl", products)
    write(tmp_path / "goals.jsonl", goals)
    for name in ("products.jsonl", "goals.jsonl"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_it_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 3_000_000


def test_a_thousand_products_in_five_categories(built_in):
    assert Counter(each.category for each in built_in.products) == dict.fromkeys(
        ("beauty", "electronics", "fashion", "garden", "grocery"), 200
    )
    assert len({each.query for each in built_in.products}) == 50
    assert all(len(each.asin) == 10 and each.attributes and each.options and each.prices for each in built_in.products)


def test_rows_have_the_original_schema():
    keys = (
        "asin name category query product_category full_description small_description pricing customization_options "
        "images attributes instruction instruction_attributes"
    )
    with (FOLDER / "products.jsonl").open(encoding="utf-8") as file:
        assert {tuple(json.loads(line)) for line in file} == {tuple(keys.split())}


def test_goals_are_split_and_no_product_and_no_family_crosses(built_in):
    assert Counter(goal.split for goal in built_in.goals) == {"train": 600, "dev": 200, "test": 200}
    assert len({goal.asin for goal in built_in.goals}) == 1000
    by_asin = {each.asin: each for each in built_in.products}
    families = {}
    for goal in built_in.goals:
        bought = by_asin[goal.asin]
        families.setdefault((bought.query, bought.description), set()).add(goal.split)
    assert len(families) == 250
    assert all(len(splits) == 1 for splits in families.values())


def test_relatives_differ_in_one_attribute(built_in):
    families = {}
    for each in built_in.products:
        families.setdefault((each.query, each.description), []).append(set(each.attributes))
    for members in families.values():
        assert len(members) == 4
        # One of them is what the others were made from: a trait exchanged, added or left out.
        assert any(all(len(one ^ other) in (1, 2) for other in members if other is not one) for one in members)


def test_goals_ask_for_what_their_product_has_and_say_so(built_in):
    by_asin = {each.asin: each for each in built_in.products}
    for goal in built_in.goals:
        bought = by_asin[goal.asin]
        assert 1 <= len(goal.attributes) <= 3
        assert set(goal.attributes) <= set(bought.attributes)
        assert set(goal.options) <= {value for values in bought.options.values() for value in values}
        assert all(each in goal.instruction for each in (*goal.attributes, *goal.options))
        assert bought.asin not in goal.instruction
        assert not goal.instruction.endswith((".", "?"))


def test_instructions_come_in_several_phrasings(built_in):
    starts = Counter(" ".join(goal.instruction.split()[:2]) for goal in built_in.goals)
    assert sum(count >= 40 for count in starts.values()) >= 7


@pytest.mark.parametrize("mode", ["original", "strict"])
def test_the_scripted_shopper_earns_everything_on_every_goal(built_in, mode):
    shop = Shop(built_in, seed=1, mode=mode)
    for goal in shop.goals:
        for state, action in scripted(shop, goal):
            last, events = shop.act(state, action)
            assert events == ()
        assert last.reward.value == 1.0


def test_every_page_of_the_catalogue_is_short(built_in):
    shop = Shop(built_in)
    longest = max(
        len(shop.page(state).text(shop.cuts)) for goal in list(shop.goals)[::10] for state, _ in scripted(shop, goal)
    )
    assert longest <= 2000


def test_the_test_tasks_are_there(built_in):
    tasks = WebShopEnvironment(Shop(built_in)).tasks("test", 100)
    assert len({task.id for task in tasks}) == 100


def files(folder, products, goals):
    for name, rows in (("products", products), ("goals", goals)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return folder


GOAL = {
    "id": "g1", "split": "dev", "asin": "A1", "instruction": "a lamp",
    "instruction_attributes": ["dimmable"], "instruction_options": {"size": "large"},
}  # fmt: skip


def test_a_catalogue_of_ones_own(tmp_path):
    read = catalogue.read(files(tmp_path, [row("A1", "Lamp")], [GOAL]))
    assert read.goals == (catalogue.Goal("g1", "dev", "A1", "a lamp", ("dimmable",), ("large",)),)
    other = catalogue.read(files(tmp_path, [row("A1", "Lamp 2")], [GOAL]))
    assert read.sha256 != other.sha256


@pytest.mark.parametrize(
    ("products", "goals", "message"),
    [
        (
            [row("A1", "x"), row("A1", "x")],
            [],
            r"products.jsonl:2: field 'asin' is that of another product already, 'A1'",
        ),
        ([row("A1", "x")], [GOAL, GOAL], r"goals.jsonl:2: field 'id' is that of another goal already, 'g1'"),
        ([row("A2", "x")], [GOAL], r"goals.jsonl:1: field 'asin' is that of no product, 'A1'"),
        ([], [["g1"]], r"goals.jsonl:1: an object was expected, not \['g1'\]"),
        ([], [{**GOAL, "split": "all"}], r"goals.jsonl:1: field 'split' must be train, dev or test, not 'all'"),
        ([], [{**GOAL, "id": ""}], r"goals.jsonl:1: field 'id' must be text, not ''"),
        ([], [{**GOAL, "instruction": None}], r"field 'instruction' must be text, not None"),
        ([], [{**GOAL, "instruction_attributes": "dim"}], r"field 'instruction_attributes' must be a list of texts"),
        ([], [{**GOAL, "instruction_options": {"size": 3}}], r"field 'instruction_options' must be a list of texts"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, products, goals, message):
    with pytest.raises(CatalogueError, match=message):
        catalogue.read(files(tmp_path, products, goals))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"asin": None}, "here: field 'asin' must be text, not None"),
        ({"name": 3}, r"here \(A1\): field 'name' must be text, not 3"),
        ({"name": " "}, r"here \(A1\): field 'name' must be text, not ' '"),
        ({"query": None}, "field 'query' must be text"),
        ({"full_description": 5}, "field 'full_description' must be text, not 5"),
        ({"small_description": {}}, "field 'small_description' must be a list of texts"),
        ({"small_description": [1]}, "field 'small_description' must be a list of texts"),
        ({"attributes": "x"}, "field 'attributes' must be a list of texts"),
        ({"pricing": "cheap"}, r"field 'pricing' must be like '\$9.99' or '\$9.99 - \$14.99', not 'cheap'"),
        ({"pricing": 9.99}, "field 'pricing' must be like"),
        ({"pricing": "$" + "9" * 400}, "field 'pricing' must be like"),
        ({"customization_options": ["red"]}, "field 'customization_options' must be an object of lists"),
        ({"customization_options": {"color": ["red"]}}, "must give 'color' a list of objects with a text as 'value'"),
        ({"customization_options": {"color": [{"value": 3}]}}, "must give 'color' a list"),
    ],
)
def test_a_field_that_is_not_of_the_schema_is_named(fields, message):
    with pytest.raises(CatalogueError, match=message):
        make_product({**row("A1", "Lamp"), **fields}, "here")


def test_a_row_that_is_no_object_is_named():
    with pytest.raises(CatalogueError, match="here: an object was expected, not 'lamp'"):
        make_product("lamp", "here")


def test_what_may_be_missing():
    bare = product(
        full_description=None, small_description=None, pricing=None, customization_options=None, attributes=None
    )
    assert (bare.description, bare.bullets, bare.prices, bare.options, bare.attributes) == ("", (), (), {}, ())
    assert product(small_description="One.").bullets == ("One.",)
    assert product(customization_options={"color": None}).options == {}
    assert product(customization_options="").options == {}


def test_prices_and_options_are_read_as_published():
    assert product(pricing="$1,234.50").prices == (1234.5,)
    assert product(pricing="$12.99$18.00").prices == product(pricing="$12.99 - $18").prices == (12.99, 18.0)
    assert product(options={"Color": [" Navy/White ", "navy/white", "RED", " "]}).options == {
        "color": ("navy | white", "red")
    }
    assert product(query=" Floor Lamp ").query == "floor lamp"
