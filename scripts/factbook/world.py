"""The facts themselves: what holds of which country, and which way back is the only one."""

import re
from dataclasses import dataclass

from . import values
from .checks import normalize
from .profiles import Profile
from .relations import ATTRIBUTES, LINKS, Relation, Values


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
        key: _inverses(relation, attributes[key], profiles)
        for key, relation in ATTRIBUTES.items()
        if relation.inverse_ask
    }
    codes = _codes_by_name(profiles)
    links: dict[str, dict[str, str]] = {key: {} for key in LINKS}
    neighbors: dict[str, tuple[str, ...]] = {}
    for profile in profiles:
        if not profile.is_country:
            continue
        for key, field in (("export_partner", "Exports - partners"), ("import_partner", "Imports - partners")):
            target = _top(values.shares(profile.text("Economy", field)), codes)
            _link(links[key], profile, target, by_code)
        stretches = _stretches(profile)
        neighbors[profile.code] = tuple(codes.get(name, "?" + name) for name, _ in stretches)
        if len(stretches) == 1:
            _link(links["only_neighbor"], profile, codes.get(stretches[0][0]), by_code)
        elif stretches:
            _link(links["longest_border"], profile, _top(stretches, codes), by_code)
            turned = [(name, -length) for name, length in stretches]
            _link(links["shortest_border"], profile, _top(turned, codes), by_code)
    return World(by_code, attributes, inverses, links, neighbors)


def _stretches(profile: Profile) -> list[tuple[str, float]]:
    """The borders of a country, where they add up: France's list holds only those of French Guiana."""
    found = values.borders(profile.text("Geography", "Land boundaries", "border countries"))
    total = re.match(r"[\d,.]+(?= km)", profile.text("Geography", "Land boundaries", "total"))
    length = float(total.group().replace(",", "")) if total else 0.0
    return found if abs(sum(km for _, km in found) - length) <= 0.01 * length else []


def _read(relation: Relation, profiles: list[Profile]) -> dict[str, Values]:
    found = {}
    for profile in profiles:
        text = profile.text(*relation.path)
        value = relation.read(profile, text) if text else None
        # "Singapore" as the capital or the adjective of Singapore asks for nothing.
        if value and normalize(value[0]) != normalize(profile.name):
            found[profile.code] = value
    return found


def _inverses(relation: Relation, found: dict[str, Values], profiles: list[Profile]) -> dict[str, Values]:
    """The values that lead back to one country only, whatever spelling the others use for theirs."""
    texts = {p.code: f" {_core(normalize(p.text(*relation.path)))} " for p in profiles}
    forms = {code: {normalize(value) for value in values} for code, values in found.items()}
    kept = {}
    for profile in profiles:
        code = profile.code
        if not profile.is_country or code not in found or _gives_away(found[code][0], profile, relation):
            continue
        subject = normalize(found[code][0])
        if not _survives_an_index(relation, subject) or any(
            subject in forms.get(other, ()) or (len(subject) > 3 and f" {_core(subject)} " in text)
            for other, text in texts.items()
            if other != code
        ):
            continue
        kept[code] = found[code]
    return kept


def _survives_an_index(relation: Relation, subject: str) -> bool:
    """Whether a lexical index keeps what tells a subject apart."""
    if relation.key == "independence":
        # One-digit days are dropped, and then a month of 1960 is that of many countries.
        return subject[1].isdigit()
    return relation.key != "internet_code" or subject not in _STOPWORDS


_STOPWORDS = frozenset(("am", "as", "at", "be", "by", "do", "in", "is", "it", "me", "my", "no", "so", "to", "us"))


def _core(text: str) -> str:
    """Without the words that change with the language: Mont Nimba and Monts Nimba are one."""
    words = [word for word in text.split() if word not in ("mont", "monts", "mount", "monte", "mt")]
    return " ".join(words)


def _gives_away(value: str, profile: Profile, relation: Relation) -> bool:
    """Whether a value names its country: "Djiboutian franc", "Himno Nacional Argentino"."""
    if value.startswith("."):
        return False
    local = "" if relation.key == "local_name" else profile.text("Government", "Country name", "local short form")
    names = normalize(" ".join((profile.name, *profile.aliases, local))).split()
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


def _link(found: dict[str, str], profile: Profile, target: str | None, by_code: dict[str, Profile]) -> None:
    if target and target != profile.code and by_code[target].is_country:
        found[profile.code] = target
