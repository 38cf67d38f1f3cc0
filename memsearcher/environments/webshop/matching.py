"""When two texts of the shop mean the same: the published fuzzy rules, and strict ones.

Departures from the published code: the colours and the nouns follow the written lists below
instead of a list of scraped colours and of a language model's parts of speech.
"""

from __future__ import annotations

import re
from functools import lru_cache

FUZZY_ABOVE = 85
LONGEST = 500
"""Characters of a text that are compared: what is longer is no attribute and no option."""

COLORS = (
    "amber", "apricot", "aqua", "azure", "beige", "black", "blue", "bronze", "brown", "burgundy", "camel", "charcoal",
    "cherry", "chocolate", "copper", "coral", "cream", "emerald", "gold", "gray", "green", "grey", "indigo", "ivory",
    "khaki", "lavender", "lilac", "magenta", "maroon", "mint", "navy", "olive", "orange", "peach", "pink", "plum",
    "purple", "red", "rose", "rust", "sand", "silver", "tan", "teal", "turquoise", "violet", "white", "yellow",
)  # fmt: skip

GRAMMAR = """
    a an and as at be but by can comes each every for from has have her his if in into is it its made more most
    new no non not of off on one only or our out over per so than that the their them this to two up use used very
    via was we with without you your
"""
ADJECTIVES = """
    absorbent active adjustable all antique auto automatic basic best big black blue braided breathable bright
    brown casual classic clean clear cold comfortable compact compatible cool cordless cozy cruelty cut cute daily
    dark deep dry durable easy elastic electric elegant energy expandable extra facial fast fine flat flexible
    foldable free fresh full funny fuzzy gentle genuine gold gray green grey ground handmade hanging hard healthy
    heavy high hooded hot hydrating indoor insulated large lightweight little long low magnetic matte medium mild
    mini modern moisturizing multiple natural organic original outdoor oversized padded perfect pink plus portable
    powerful premium professional pure purple quick rechargeable red removable replacement resealable resistant
    retro reusable rich round safe scented sharp short silver simple single slim small smart smooth soft solid
    sturdy stylish super sweet tall thick thin tight tiny true ultra unique universal unscented upgraded useful
    vegan vintage warm washable waterproof white whole wide wild wireless wooden woven yellow
"""
NO_NOUNS = frozenset((GRAMMAR + ADJECTIVES).split())
"""What a title has besides nouns. Numbers, units with a number and single letters are none either."""

_WORDS = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def token_set_ratio(one: str, other: str) -> int:
    """How much two texts agree as sets of words, from 0 to 100.

    What they share is set against each of them and both against each other, the words in
    alphabetical order; the best of the three ratios counts. A text whose words are all in the
    other therefore gets 100: "large" and "x-large" do. 0 where one has no words.

    Source: the token set ratio of thefuzz 0.20 and later, over lower-cased words.
    """
    return _token_set_ratio(one[:LONGEST], other[:LONGEST])


@lru_cache(maxsize=1 << 16)
def _token_set_ratio(one: str, other: str) -> int:
    first, second = set(words(one)), set(words(other))
    if not first or not second:
        return 0
    shared = " ".join(sorted(first & second))
    whole = [" ".join([shared, *sorted(rest)]).strip() for rest in (first - second, second - first)]
    pairs = [(shared, whole[0]), (shared, whole[1]), (whole[0], whole[1])]
    return round(max(_ratio(*pair) for pair in pairs))


def _ratio(one: str, other: str) -> float:
    """Twice the longest common subsequence over both lengths, times 100."""
    return 200 * common_subsequence(one, other) / (len(one) + len(other)) if one and other else 0.0


def common_subsequence(one: str, other: str) -> int:
    """The length of the longest common subsequence.

    One bit for each character of `one` that is not yet matched, all moved at once
    (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    every = (1 << len(one)) - 1
    free = every
    for character in other:
        matched = free & places.get(character, 0)
        free = (free + matched | free - matched) & every
    return len(one) - free.bit_count()


def words(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters, digits and underscores."""
    return _WORDS.findall(text.lower())


def base_color(text: str) -> str:
    """The first of `COLORS` that occurs in a text, be it inside a word; the text itself where none does."""
    return next((color for color in COLORS if color in text), text)


def nouns(title: str) -> list[str]:
    """The words of a title that count as nouns, in lower case and as often as they occur.

    A rule in place of a tagger: every run of at least two letters that is not in `NO_NOUNS`.
    Taggers call most capitalized words of a title nouns as well.
    """
    return [word for word in _LETTERS.findall(title.lower()) if word not in NO_NOUNS]


def holds(text: str, phrase: str) -> bool:
    """Whether the words of `phrase` stand in `text`, whole and in a row."""
    wanted = " ".join(words(phrase))
    return bool(wanted) and f" {wanted} " in f" {' '.join(words(text))} "
