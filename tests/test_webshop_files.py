import json
import random
from dataclasses import astuple

import pytest

from memsearcher.environments.webshop import files
from memsearcher.environments.webshop.catalogue import CatalogueError
from memsearcher.environments.webshop.files import read_original
from memsearcher.environments.webshop.shop import Shop
from memsearcher.environments.webshop.shoppers import scripted_reward
from tests.webshop_world import row

ITEMS = [
    row("B000000001", "Acme Lamp", options={"Size": ["S", "L"], "Color": ["Red", "Blue"]}),
    row("B000000002", "Acme Chair", query="chair"),
    row("nan", "Nobody"),
    row("B0000000031", "Eleven Characters"),
    row("B000000001", "Acme Lamp Again"),
    row("B000000004", "Acme Rug", query="rug"),
]
ATTRIBUTES = {
    "B000000001": {
        "attributes": ["dimmable", "tall"],
        "instruction": "find me a lamp.",
        "instruction_attributes": ["tall"],
    },
    "B000000002": {"attributes": ["soft"], "instruction": None, "instruction_attributes": None},
}
HUMAN = {
    "B000000001": [
        {
            "asin": "B000000001", "instruction": "i want a tall lamp, size s", "instruction_attributes": ["tall"],
            "instruction_options": ["s"], "worker_id": "A2SECRET", "assignment_id": "X9",
        },
        {"asin": "B000000001", "instruction": "a lamp", "instruction_attributes": [], "instruction_options": []},
    ],
    "B000000002": [
        {"asin": "B000000002", "instruction": "a soft chair", "instruction_attributes": ["soft"],
         "instruction_options": {"color": "red"}, "worker_id": "A3SECRET"},
    ],
    "B999999999": "of no product, so it is not looked at",
}  # fmt: skip


def write(folder, items=ITEMS, attributes=ATTRIBUTES, human=HUMAN):
    paths = [folder / name for name in ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")]
    for path, content in zip(paths, (items, attributes, human), strict=True):
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return paths


def test_products_get_their_attributes_and_odd_ones_are_left_out(tmp_path, caplog):
    read = read_original(*write(tmp_path))
    assert [each.asin for each in read.products] == ["B000000001", "B000000002", "B000000004"]
    assert read.products[0].title == "Acme Lamp"
    assert [each.attributes for each in read.products] == [("dimmable", "tall"), ("soft",), ()]
    assert "items_shuffle.json: 3 products left out (asin 'nan', too long or repeated)" in caplog.text
    assert "items_human_ins.json: 1 goals left out (no attributes)" in caplog.text


def test_human_goals_have_no_trace_of_their_workers(tmp_path):
    read = read_original(*write(tmp_path))
    assert {(goal.asin, goal.instruction, goal.attributes, goal.options) for goal in read.goals} == {
        ("B000000001", "i want a tall lamp, size s", ("tall",), ("s",)),
        ("B000000002", "a soft chair", ("soft",), ("red",)),
    }
    assert "SECRET" not in repr(read)
    assert "X9" not in repr(astuple(read))


def test_synthetic_goals_are_all_combinations_of_options(tmp_path):
    items, attributes, _ = write(tmp_path)
    read = read_original(items, attributes)
    assert sorted(goal.instruction for goal in read.goals) == [
        "find me a lamp with color: blue, and size: l",
        "find me a lamp with color: blue, and size: s",
        "find me a lamp with color: red, and size: l",
        "find me a lamp with color: red, and size: s",
    ]
    shop = Shop(read)
    assert [scripted_reward(shop, goal) for goal in shop.goals] == [1.0] * 4


def test_a_product_without_options_has_one_synthetic_goal(tmp_path):
    about = {"B000000002": {"attributes": ["soft"], "instruction": "a chair", "instruction_attributes": ["soft"]}}
    items, attributes, _ = write(tmp_path, attributes=about)
    assert [goal.instruction for goal in read_original(items, attributes).goals] == ["a chair"]


def test_goals_are_shuffled_and_split_as_published(tmp_path):
    many = [row(f"B{n:09d}", f"Thing {n}") for n in range(1600)]
    about = {each["asin"]: {"attributes": ["a"], "instruction": "x", "instruction_attributes": ["a"]} for each in many}
    items, attributes, _ = write(tmp_path, many, about)
    goals = read_original(items, attributes).goals
    order = [each["asin"] for each in many]
    random.Random(233).shuffle(order)
    assert [goal.asin for goal in goals] == order
    assert [goal.split for goal in goals] == ["test"] * 500 + ["dev"] * 1000 + ["train"] * 100
    assert [goals[place].id for place in (0, 1599)] == ["webshop-0", "webshop-1599"]
    assert len(read_original(items, attributes, n=7).products) == 7


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"items": "[{"}, r"items_shuffle.json: not JSON \(.*\); give the file as it was downloaded"),
        ({"items": "[" * 100_000}, r"items_shuffle.json: not JSON"),
        ({"items": {"a": 1}}, "items_shuffle.json: a list of products was expected, not dict"),
        ({"items": [ITEMS[0], 7]}, "items_shuffle.json: product 2: an object was expected, not 7"),
        (
            {"items": [{**ITEMS[0], "name": None}]},
            r"items_shuffle.json: product 1 \(B000000001\): field 'name' must be text",
        ),
        ({"items": [{**ITEMS[0], "asin": 5}]}, "items_shuffle.json: product 1: field 'asin' must be text, not 5"),
        ({"attributes": []}, "items_ins_v2.json: an object by asin was expected, not list"),
        ({"attributes": {"B000000001": [1]}}, r"items_ins_v2.json: B000000001: an object was expected, not \[1\]"),
        (
            {"attributes": {"B000000001": {"attributes": "x"}}},
            "items_ins_v2.json: B000000001: field 'attributes' must be a list",
        ),
        ({"human": []}, "items_human_ins.json: an object by asin was expected, not list"),
        ({"human": {"B000000001": {}}}, "items_human_ins.json: B000000001: a list of instructions was expected"),
        (
            {"human": {"B000000001": [HUMAN["B000000001"][0], "x"]}},
            "B000000001, instruction 2: an object was expected, not 'x'",
        ),
        (
            {"human": {"B000000001": [{"instruction_attributes": ["a"]}]}},
            "instruction 1: field 'instruction' must be text",
        ),
        (
            {
                "human": {
                    "B000000001": [{"instruction": "x", "instruction_attributes": ["a"], "instruction_options": 3}]
                }
            },
            "instruction 1: field 'instruction_options' must be a list of texts",
        ),
    ],
)
def test_what_is_not_of_the_schema_is_named(tmp_path, content, message):
    with pytest.raises(CatalogueError, match=message):
        read_original(*write(tmp_path, **content))


def test_a_synthetic_goal_needs_attributes(tmp_path):
    items, attributes, _ = write(
        tmp_path, attributes={"B000000001": {"instruction": "x", "instruction_attributes": []}}
    )
    with pytest.raises(CatalogueError, match="B000000001: field 'instruction_attributes' is empty"):
        read_original(items, attributes)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_original(tmp_path / "no.json", tmp_path / "no.json")
    assert files.ASIN_LENGTH == 10
