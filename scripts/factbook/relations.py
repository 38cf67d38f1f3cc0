"""The relations questions are made of: where each stands in a profile and how it is spoken of."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import values
from .names import CONTESTED_CURRENCIES
from .profiles import Profile

Values = tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """An attribute of a country: where it stands, how it is read, how it is spoken of."""

    key: str
    topic: str
    path: tuple[str, ...]
    read: Callable[[Profile, str], Values | None]
    ask: str
    fact: str
    inverse_ask: str = ""
    inverse_fact: str = ""


def _plain(reader: Callable[[str], Values | None]) -> Callable[[Profile, str], Values | None]:
    return lambda _, text: reader(text)


def _currency(profile: Profile, text: str) -> Values | None:
    if profile.code in CONTESTED_CURRENCIES:
        return None
    adjectives = values.adjectives(profile.text("People and Society", "Nationality", "adjective"))
    return values.currency(text, adjectives or ())


def _holiday(_: Profile, text: str) -> Values | None:
    found = values.holiday(text)
    return found[1] if found else None


def _local_name(profile: Profile, text: str) -> Values | None:
    return (text,) if re.fullmatch(r"[A-Z][\w']+(?: [A-Z][\w']+)?", text) else None


def _sea_free(_: Profile, text: str) -> Values | None:
    return None if re.search(r"Sea|Ocean|Gulf|Bay|Channel|Lake", text) else values.elevation_point(text)


_NAME = ("Government", "Country name")
_EXECUTIVE = ("Government", "Executive branch")

ATTRIBUTES: dict[str, Relation] = {
    relation.key: relation
    for relation in (
        Relation(
            "capital",
            "capital",
            ("Government", "Capital", "name"),
            _plain(values.capital),
            "capital of {c}",
            "The capital of {c} is {v}.",
            "country whose capital is {v}",
            "{v} is the capital of {c}.",
        ),
        Relation(
            "currency",
            "currency",
            ("Economy", "Exchange rates"),
            _currency,
            "currency of {c}",
            "The currency of {c} is the {v}.",
            "country whose currency is the {v}",
            "The {v} is the currency of {c}.",
        ),
        Relation(
            "highest_point",
            "elevation",
            ("Geography", "Elevation extremes", "highest point"),
            _plain(values.elevation_point),
            "highest point of {c}",
            "The highest point of {c} is {v}.",
            "country whose highest point is {v}",
            "{v} is the highest point of {c}.",
        ),
        Relation(
            "lowest_point",
            "elevation",
            ("Geography", "Elevation extremes", "lowest point"),
            _sea_free,
            "lowest point of {c}",
            "The lowest point of {c} is {v}.",
            "country whose lowest point is {v}",
            "{v} is the lowest point of {c}.",
        ),
        Relation(
            "anthem",
            "anthem",
            ("Government", "National anthem", "name"),
            _plain(values.anthem),
            "national anthem of {c}",
            'The national anthem of {c} is "{v}".',
            'country whose national anthem is "{v}"',
            '"{v}" is the national anthem of {c}.',
        ),
        Relation(
            "internet_code",
            "codes",
            ("Communications", "Internet country code"),
            _plain(values.internet_code),
            "internet country code of {c}",
            "The internet country code of {c} is {v}.",
            "country whose internet country code is {v}",
            "{v} is the internet country code of {c}.",
        ),
        Relation(
            "calling_code",
            "codes",
            ("Communications", "Telephone system", "international"),
            _plain(values.calling_code),
            "telephone country code of {c}",
            "The telephone country code of {c} is {v}.",
            "country whose telephone country code is {v}",
            "{v} is the telephone country code of {c}.",
        ),
        Relation(
            "chief_of_state",
            "chief",
            (*_EXECUTIVE, "chief of state"),
            _plain(values.person),
            "chief of state of {c}",
            "The chief of state of {c} is {v}.",
            "country whose chief of state is {v}",
            "{v} is the chief of state of {c}.",
        ),
        Relation(
            "head_of_government",
            "head",
            (*_EXECUTIVE, "head of government"),
            _plain(values.person),
            "head of government of {c}",
            "The head of government of {c} is {v}.",
            "country whose head of government is {v}",
            "{v} is the head of government of {c}.",
        ),
        Relation(
            "independence",
            "independence",
            ("Government", "Independence"),
            _plain(values.independence),
            "independence of {c}",
            "{c} became independent on {v}.",
            "country with independence on {v}",
            "{c} became independent on {v}.",
        ),
        Relation(
            "national_holiday",
            "independence",
            ("Government", "National holiday"),
            _holiday,
            "national holiday of {c}",
            "The national holiday of {c} falls on {v}.",
        ),
        Relation(
            "national_symbol",
            "symbol",
            ("Government", "National symbol(s)"),
            _plain(values.symbol),
            "national symbol of {c}",
            "The national symbol of {c} is the {v}.",
        ),
        Relation(
            "official_language",
            "languages",
            ("People and Society", "Languages"),
            _plain(values.official_language),
            "official languages of {c}",
            "The official language of {c} is {v}.",
        ),
        Relation(
            "nationality",
            "languages",
            ("People and Society", "Nationality", "adjective"),
            _plain(values.nationality),
            "nationality adjective of {c}",
            "The nationality adjective of {c} is {v}.",
        ),
        Relation(
            "former_name",
            "name",
            (*_NAME, "former"),
            _plain(values.former_name),
            "former name of {c}",
            "The former name of {c} is {v}.",
            "country with former name {v}",
            "{c} was formerly called {v}.",
        ),
        Relation(
            "local_name",
            "name",
            (*_NAME, "local short form"),
            _local_name,
            "local short name of {c}",
            "The local name of {c} is {v}.",
            "country whose local short name is {v}",
            "{v} is the local name of {c}.",
        ),
        Relation(
            "population",
            "population",
            ("People and Society", "Population"),
            _plain(values.count),
            "population of {c}",
            "The population of {c} is {v}.",
        ),
        Relation(
            "area",
            "population",
            ("Geography", "Area", "total"),
            _plain(values.area),
            "total area of {c}",
            "The total area of {c} is {v}.",
        ),
    )
}

LINKS: dict[str, tuple[str, str, str]] = {
    "export_partner": ("exports", "export partners of {c}", "The main export partner of {c} is {v}."),
    "import_partner": ("imports", "import partners of {c}", "The main import partner of {c} is {v}."),
    "longest_border": ("borders", "border countries of {c}", "The longest land border of {c} is with {v}."),
    "shortest_border": ("borders", "border countries of {c}", "The shortest land border of {c} is with {v}."),
    "only_neighbor": ("borders", "border countries of {c}", "The only neighbor of {c} is {v}."),
}
"""Relations from a country to a country: topic, ask, fact."""
