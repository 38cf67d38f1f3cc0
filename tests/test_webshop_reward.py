from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsearcher.environments.webshop.catalogue import Goal
from memsearcher.environments.webshop.matching import (
    COLORS,
    NO_NOUNS,
    base_color,
    common_subsequence,
    holds,
    nouns,
    token_set_ratio,
    words,
)
from memsearcher.environments.webshop.reward import match_type, score
from tests.webshop_world import product

TEA = product(
    "TEA",
    "Tilbury Green Tea Leaves",
    query="green tea",
    product_category="Grocery › Drinks › Tea",
    attributes=["loose leaf", "essential oil"],
    full_description="Grown on hills. Foil bag.",
    small_description=["Caffeine free at last.", "Keeps fresh"],
)


def goal(attributes=(), options=(), limit=None):
    return Goal("g", "test", "TEA", "tea", tuple(attributes), tuple(options), limit)


# The product bought is TEA itself, so its type is right: what was chosen, the price, the goal, and the reward by
# hand in both modes: (attributes met + options met + price met) / (attributes + options + 1).
PURCHASES = {
    "nothing asked, no limit": ((), 20.0, goal(), 1, 1),
    "price at the limit": ((), 20.0, goal(limit=20.0), 1, 1),
    "price above the limit": ((), 20.01, goal(limit=20.0), 0, 0),
    "attribute of the product": ((), 20.0, goal(["loose leaf"]), 1, 1),
    "attribute in a bullet": ((), 20.0, goal(["caffeine free"]), 1, 1),
    "attribute in the title": ((), 20.0, goal(["green tea"]), 1, 1),
    "attribute in the description": ((), 20.0, goal(["grown on hills"]), 1, 1),
    "attribute in capitals": ((), 20.0, goal(["Loose Leaf"]), 1, 1),
    "attribute that is not there": ((), 20.0, goal(["gluten free"]), Fraction(1, 2), Fraction(1, 2)),
    "plural, 96 of 100": ((), 20.0, goal(["essential oils"]), 1, Fraction(1, 2)),
    "one word of two is enough": ((), 20.0, goal(["leaf"]), 1, Fraction(1, 2)),
    "oil is in foil": ((), 20.0, goal(["oil bag"]), 1, Fraction(1, 2)),
    "a text across two bullets": ((), 20.0, goal(["at last. keeps"]), 1, 1),
    "no option chosen": ((), 20.0, goal(options=["large"]), Fraction(1, 2), Fraction(1, 2)),
    "the option chosen": (("large",), 20.0, goal(options=["large"]), 1, 1),
    "an option that nobody asked for": (("large",), 20.0, goal(), 1, 1),
    "large is x-large": (("x-large",), 20.0, goal(options=["large"]), 1, Fraction(1, 2)),
    "8 is 8.5": (("8.5",), 20.0, goal(options=["8"]), 1, Fraction(1, 2)),
    "sky blue is navy blue": (("navy blue",), 20.0, goal(options=["sky blue"]), 1, Fraction(1, 2)),
    "two colors without a common base": (("navy",), 20.0, goal(options=["sky blue"]), Fraction(1, 2), Fraction(1, 2)),
    "pack of 12 is pack of 6, 88 of 100": (("pack of 12",), 20.0, goal(options=["pack of 6"]), 1, Fraction(1, 2)),
    "hyphen or space": (("x large",), 20.0, goal(options=["X-Large"]), 1, 1),
    "one choice for two options": (("blue",), 20.0, goal(options=["navy blue", "sky blue"]), 1, Fraction(1, 3)),
    "three of five": (
        ("red",),
        99.0,
        goal(["loose leaf", "caffeine free"], ["red", "small"], 50.0),
        *[Fraction(3, 5)] * 2,
    ),
    "four of five": (
        ("red",),
        9.0,
        goal(["loose leaf", "caffeine free"], ["red", "small"], 50.0),
        *[Fraction(4, 5)] * 2,
    ),
    "an empty attribute": ((), 20.0, goal([""]), 1, Fraction(1, 2)),
    "an empty option": (("red",), 20.0, goal(options=[""]), Fraction(1, 2), Fraction(1, 2)),
}


@pytest.mark.parametrize("name", PURCHASES)
@pytest.mark.parametrize("mode", ["original", "strict"])
def test_purchases(name, mode):
    chosen, price, wish, original, strict = PURCHASES[name]
    assert score(TEA, price, chosen, wish, TEA, mode).value == pytest.approx(
        float(original if mode == "original" else strict)
    )


# What was bought in place of TEA (nouns: tilbury, tea, leaves), and r_type by hand.
CUP, CHAIR = {"name": "Tea", "query": "cup"}, {"query": "chair", "product_category": "x"}
KINDS = {
    "itself": ({}, 1.0, True, True, 1.0),
    "another of the kind": ({"name": "Harrow Tea"}, 1.0, True, True, 1 / 3),
    "same query, one noun of three": ({"name": "Harrow Tea", "product_category": "a › b"}, 1.0, True, False, 1 / 3),
    "two categories shared": ({"name": "Harrow Tea", "query": "cup"}, 1.0, False, True, 1 / 3),
    "categories in another order": ({**CUP, "product_category": "Tea › Drinks"}, 1.0, False, True, 1 / 3),
    "one category shared twice": ({**CUP, "product_category": "Tea › Tea"}, 1.0, False, False, 1 / 3),
    "nouns alone": ({**CUP, "product_category": "x"}, 1.0, False, False, 1 / 3),
    "same query, no noun": ({"name": "Harrow Oolong"}, 0.0, True, True, 0.0),
    "nothing in common": ({"name": "Chair", **CHAIR}, 0.0, False, False, 0.0),
    "only an adjective in common": ({"name": "Green Chair", **CHAIR}, 0.0, False, False, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    fields, factor, query, category, title = KINDS[name]
    base = {"query": "green tea", "product_category": "Grocery › Drinks › Tea", "name": "Tilbury Green Tea Leaves"}
    found = match_type(product("B", **{**base, **fields}), TEA)
    assert (found.factor, found.query, found.category, found.title) == (factor, query, category, pytest.approx(title))
    assert score(product("B", **{**base, **fields}), 1.0, (), goal(), TEA, "original").value == factor


LONG = product("L", "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda", query="q", product_category="c")


@pytest.mark.parametrize(
    ("name", "query", "factor"),
    [
        ("alpha", "q", 0.1),  # 1 of 11 is below 0.1, the same query or not
        ("alpha", "other", 0.1),
        ("alpha beta", "other", 0.5),  # 2 of 11 is neither above 0.2 nor below 0.1
        ("alpha beta", "q", 1.0),
        ("alpha beta gamma", "other", 1.0),
    ],
)
def test_few_nouns_in_common(name, query, factor):
    assert match_type(product("B", name, query=query, product_category="d"), LONG).factor == factor


def test_a_title_without_nouns_counts_as_a_fifth():
    bare = product("B", "The Big Black 3 X", query="q", product_category="c")
    assert match_type(TEA, bare).title == 0.2
    assert match_type(TEA, bare).factor == 0.5
    assert match_type(replace(TEA, query="q"), bare).factor == 1.0


def test_nouns_that_come_twice_count_twice_below():
    assert match_type(product("B", "tea"), product("C", "tea tea cup")).title == pytest.approx(1 / 3)


def test_parts_are_reported():
    reward = score(TEA, 30.0, ["red"], goal(["loose leaf", "salty"], ["red", "small"], 20.0), TEA, "strict")
    assert reward.value == pytest.approx(2 / 5)
    assert reward.parts == {
        "value": reward.value,
        "mode": "strict",
        "type": {"factor": 1.0, "query": True, "category": True, "title": 1.0},
        "attributes": {"loose leaf": True, "salty": False},
        "options": {"red": True, "small": False},
        "price": 30.0,
        "limit": 20.0,
        "in_budget": False,
    }


# Against rapidfuzz 3.14.6: token_set_ratio over the lower-cased words, rounded.
RATIOS = [
    ("large", "x-large", 100), ("essential oils", "essential oil", 96), ("cool powder snow", "powder snow", 100),
    ("xl", "x-large", 22), ("8", "8.5", 100), ("water resistant", "water proof", 62), ("pack of 12", "pack of 6", 88),
    ("noise cancelling", "noise canceling", 97), ("machine wash", "machine washable", 86),
    ("tea tree oil", "coconut oil", 43), ("non slip", "slip resistant", 67), ("café", "cafe", 75), ("", "", 0),
    ("12 ounce (pack of 1)", "12 ounce (pack of 2)", 94), ("!!", "a", 0), ("A b", "B a", 100),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "ratio"), RATIOS)
def test_token_set_ratio(one, other, ratio):
    assert token_set_ratio(one, other) == token_set_ratio(other, one) == ratio


def slow_subsequence(one, other):
    """The textbook table."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.text("ab c", max_size=30), st.text("abcd ", max_size=30))
def test_common_subsequence_is_that_of_the_table(one, other):
    assert common_subsequence(one, other) == slow_subsequence(one, other)


@given(st.text(max_size=30), st.text(max_size=30))
def test_token_set_ratio_is_a_symmetric_percentage(one, other):
    ratio = token_set_ratio(one, other)
    assert 0 <= ratio <= 100
    assert ratio == token_set_ratio(other, one)
    if words(one) and set(words(one)) <= set(words(other)):
        assert ratio == 100


def test_very_long_texts_are_compared_by_their_beginnings():
    assert token_set_ratio("x" * 10**6, "x" * 10**6 + "y") == 100


def test_colors():
    assert base_color("navy blue") == base_color("sky blue") == "blue"
    assert base_color("charcoal grey") == "charcoal"
    assert base_color("scented") == "scented"
    assert base_color("covered") == "red"
    assert list(COLORS) == sorted(set(COLORS))


def test_nouns():
    assert nouns("Women's Waterproof Hiking Boots, 2 Pack - 10mm Soles for the Trail X") == [
        "women", "hiking", "boots", "pack", "mm", "soles", "trail"
    ]  # fmt: skip
    assert nouns("") == nouns("4 x 6") == []
    assert all(word == word.lower() for word in NO_NOUNS)


def test_whole_words_in_a_row():
    assert holds("Made of 100% merino wool.", "Merino-wool")
    assert not holds("Made of 100% merino wool.", "wool merino")
    assert not holds("foil", "oil")
    assert not holds("anything", "")
