"""The relations questions are made of, and the facts they hold in this world."""

import re
from dataclasses import dataclass
from typing import Callable

from . import values
from .checks import normalize
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
        Relation("capital", "capital", ("Government", "Capital", "name"), _plain(values.capital),
                 "capital of {c}", "The capital of {c} is {v}.",
                 "country whose capital is {v}", "{v} is the capital of {c}."),
        Relation("currency", "currency", ("Economy", "Exchange rates"), _currency,
                 "currency of {c}", "The currency of {c} is the {v}.",
                 "country whose currency is the {v}", "The {v} is the currency of {c}."),
        Relation("highest_point", "elevation",
                 ("Geography", "Elevation extremes", "highest point"),
                 _plain(values.elevation_point),
                 "highest point of {c}", "The highest point of {c} is {v}.",
                 "country whose highest point is {v}", "{v} is the highest point of {c}."),
        Relation("lowest_point", "elevation", ("Geography", "Elevation extremes", "lowest point"),
                 _sea_free,
                 "lowest point of {c}", "The lowest point of {c} is {v}.",
                 "country whose lowest point is {v}", "{v} is the lowest point of {c}."),
        Relation("anthem", "anthem", ("Government", "National anthem", "name"),
                 _plain(values.anthem),
                 "national anthem of {c}", 'The national anthem of {c} is "{v}".',
                 'country whose national anthem is "{v}"',
                 '"{v}" is the national anthem of {c}.'),
        Relation("internet_code", "codes", ("Communications", "Internet country code"),
                 _plain(values.internet_code),
                 "internet country code of {c}", "The internet country code of {c} is {v}.",
                 "country whose internet country code is {v}",
                 "{v} is the internet country code of {c}."),
        Relation("calling_code", "codes",
                 ("Communications", "Telephone system", "international"),
                 _plain(values.calling_code),
                 "telephone country code of {c}", "The telephone country code of {c} is {v}.",
                 "country whose telephone country code is {v}",
                 "{v} is the telephone country code of {c}."),
        Relation("chief_of_state", "chief", (*_EXECUTIVE, "chief of state"),
                 _plain(values.person),
                 "chief of state of {c}", "The chief of state of {c} is {v}.",
                 "country whose chief of state is {v}", "{v} is the chief of state of {c}."),
        Relation("head_of_government", "head", (*_EXECUTIVE, "head of government"),
                 _plain(values.person),
                 "head of government of {c}", "The head of government of {c} is {v}.",
                 "country whose head of government is {v}",
                 "{v} is the head of government of {c}."),
        Relation("independence", "independence", ("Government", "Independence"),
                 _plain(values.independence),
                 "independence date of {c}", "{c} became independent on {v}.",
                 "country whose independence dates from {v}", "{c} became independent on {v}."),
        Relation("national_holiday", "independence", ("Government", "National holiday"), _holiday,
                 "national holiday of {c}", "The national holiday of {c} falls on {v}."),
        Relation("national_symbol", "symbol", ("Government", "National symbol(s)"),
                 _plain(values.symbol),
                 "national symbol of {c}", "The national symbol of {c} is the {v}."),
        Relation("official_language", "languages", ("People and Society", "Languages"),
                 _plain(values.official_language),
                 "official language of {c}", "The official language of {c} is {v}."),
        Relation("nationality", "languages", ("People and Society", "Nationality", "adjective"),
                 _plain(values.adjectives),
                 "nationality adjective of {c}", "The nationality adjective of {c} is {v}."),
        Relation("former_name", "name", (*_NAME, "former"), _plain(values.former_name),
                 "former name of {c}", "The former name of {c} is {v}.",
                 "country formerly called {v}", "{c} was formerly called {v}."),
        Relation("local_name", "name", (*_NAME, "local short form"), _local_name,
                 "local short name of {c}", "The local name of {c} is {v}.",
                 "country whose local short name is {v}", "{v} is the local name of {c}."),
        Relation("population", "population", ("People and Society", "Population"),
                 _plain(values.count),
                 "population of {c}", "The population of {c} is {v}."),
        Relation("area", "population", ("Geography", "Area", "total"), _plain(values.area),
                 "total area of {c}", "The total area of {c} is {v}."),
    )
}

LINKS: dict[str, tuple[str, str, str]] = {
    "export_partner": ("exports", "main export partner of {c}",
                       "The main export partner of {c} is {v}."),
    "import_partner": ("imports", "main import partner of {c}",
                       "The main import partner of {c} is {v}."),
    "longest_border": ("borders", "border countries of {c} and lengths",
                       "The longest land border of {c} is with {v}."),
    "shortest_border": ("borders", "border countries of {c} and lengths",
                        "The shortest land border of {c} is with {v}."),
    "only_neighbor": ("borders", "border countries of {c}", "The only neighbor of {c} is {v}."),
}
"""Relations from a country to a country: topic, ask, fact."""


@dataclass
class World:
    """Every fact, by relation and country code."""

    profiles: dict[str, Profile]
    attributes: dict[str, dict[str, Values]]
    inverses: dict[str, dict[str, Values]]
    links: dict[str, dict[str, str]]
    neighbors: dict[str, tuple[str, ...]]


def build_world(profiles: list[Profile]) -> World:
    """Reads all facts and keeps an inverse only where it points to one country of the world."""
    by_code = {profile.code: profile for profile in profiles}
    attributes = {key: _read(relation, profiles) for key, relation in ATTRIBUTES.items()}
    inverses = {
        key: {
            code: found for code, found in attributes[key].items()
            if by_code[code].is_country and _points_to_one(relation, code, found, attributes[key], profiles)
        }
        for key, relation in ATTRIBUTES.items() if relation.inverse_ask
    }
    codes = _codes_by_name(profiles)
    links: dict[str, dict[str, str]] = {key: {} for key in LINKS}
    neighbors: dict[str, tuple[str, ...]] = {}
    for profile in profiles:
        if not profile.is_country:
            continue
        for key, field in (("export_partner", "Exports - partners"),
                           ("import_partner", "Imports - partners")):
            target = _top(values.shares(profile.text("Economy", field)), codes)
            _link(links[key], profile, target, by_code)
        stretches = values.borders(profile.text("Geography", "Land boundaries", "border countries"))
        neighbors[profile.code] = tuple(codes.get(name, "?" + name) for name, _ in stretches)
        if len(stretches) == 1:
            _link(links["only_neighbor"], profile, codes.get(stretches[0][0]), by_code)
        elif stretches:
            _link(links["longest_border"], profile, _top(stretches, codes), by_code)
            turned = [(name, -length) for name, length in stretches]
            _link(links["shortest_border"], profile, _top(turned, codes), by_code)
    return World(by_code, attributes, inverses, links, neighbors)


def _read(relation: Relation, profiles: list[Profile]) -> dict[str, Values]:
    found = {}
    for profile in profiles:
        text = profile.text(*relation.path)
        value = relation.read(profile, text) if text else None
        if value:
            found[profile.code] = value
    return found


def _points_to_one(
    relation: Relation, code: str, found: Values, all_found: dict[str, Values],
    profiles: list[Profile],
) -> bool:
    subject = normalize(found[0])
    for profile in profiles:
        if profile.code == code:
            if _gives_away(found[0], profile):
                return False
            continue
        if subject in {normalize(value) for value in all_found.get(profile.code, ())}:
            return False
        text = normalize(profile.text(*relation.path))
        if len(subject) > 3 and f" {subject} " in f" {text} ":
            return False
    if relation.key == "internet_code":
        # Two-letter words of English ("is", "to") are lost on every lexical index.
        return subject not in _STOPWORDS
    return True


_STOPWORDS = frozenset("am as at be by do in is it me my no so to us".split())


def _gives_away(value: str, profile: Profile) -> bool:
    """Whether a value names its country: "Djiboutian franc", "Himno Nacional Argentino"."""
    if value.startswith("."):
        return False
    names = normalize(" ".join((profile.name, *profile.aliases))).split()
    stems = {name[:4] for name in names if len(name) > 3} - {"repu", "stat", "king", "demo"}
    return any(word[:4] in stems for word in normalize(value).split())


def _codes_by_name(profiles: list[Profile]) -> dict[str, str]:
    return {name: p.code for p in profiles for name in (p.name, *p.aliases)}


def _top(ranked: list[tuple[str, float]], codes: dict[str, str]) -> str | None:
    """The code of the one largest entry; None on a tie or an unknown name."""
    if not ranked:
        return None
    name, most = max(ranked, key=lambda entry: entry[1])
    if sum(number == most for _, number in ranked) > 1:
        return None
    return codes.get(name)


def _link(
    found: dict[str, str], profile: Profile, target: str | None, by_code: dict[str, Profile]
) -> None:
    if target and target != profile.code and by_code[target].is_country:
        found[profile.code] = target
