"""Packs the fields of a profile into passages a small reader can use.

A fact topic is one passage that opens with the field a question asks for. A story topic is as
many passages as its text needs.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from .profiles import Profile

Field = tuple[str, tuple[str, ...]]

MOST_WORDS = 75
FEWEST_WORDS = 38


@dataclass(frozen=True)
class Topic:
    """Fields that belong in one passage; the later ones only fill a short passage up."""

    key: str
    title: str
    fields: tuple[Field, ...]
    fillers: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Passage:
    """One line of the corpus."""

    id: str
    title: str
    text: str

    def json(self) -> str:
        """The line, in the Search-R1 schema."""
        contents = f'"{self.title}"\n{self.text}'
        return json.dumps({"id": self.id, "contents": contents}, ensure_ascii=False)


_GOV, _GEO, _PEOPLE, _ECO = "Government", "Geography", "People and Society", "Economy"
_NAME, _EXEC = (_GOV, "Country name"), (_GOV, "Executive branch")

FACT_TOPICS: tuple[Topic, ...] = (
    Topic("capital", "Capital", (
        ("Capital: name", (_GOV, "Capital", "name")),
    ), (
        ("Country name: conventional long form", (*_NAME, "conventional long form")),
        ("local short form", (*_NAME, "local short form")),
        ("Government type", (_GOV, "Government type")),
        ("Major urban areas - population", (_PEOPLE, "Major urban areas - population")),
        ("Capital: time difference", (_GOV, "Capital", "time difference")),
        ("Administrative divisions", (_GOV, "Administrative divisions")),
    )),
    Topic("name", "Country name and former name", (
        ("Country name: conventional long form", (*_NAME, "conventional long form")),
        ("conventional short form", (*_NAME, "conventional short form")),
        ("former name", (*_NAME, "former")),
        ("local short form", (*_NAME, "local short form")),
    ), (
        ("local long form", (*_NAME, "local long form")),
        ("Country name: note", (*_NAME, "note")),
        ("Nationality: adjective", (_PEOPLE, "Nationality", "adjective")),
        ("Government type", (_GOV, "Government type")),
    )),
    Topic("currency", "Currency and exchange rates", (
        ("Currency - exchange rates", (_ECO, "Exchange rates")),
    ), (
        ("Inflation rate (consumer prices)", (_ECO, "Inflation rate (consumer prices)")),
        ("Fiscal year", (_ECO, "Fiscal year")),
        ("Commercial bank prime lending rate", (_ECO, "Commercial bank prime lending rate")),
    )),
    Topic("elevation", "Highest point and lowest point", (
        ("Elevation extremes: highest point", (_GEO, "Elevation extremes", "highest point")),
        ("lowest point", (_GEO, "Elevation extremes", "lowest point")),
    ), (
        ("Terrain", (_GEO, "Terrain")),
        ("Location", (_GEO, "Location")),
        ("Natural hazards", (_GEO, "Natural hazards")),
    )),
    Topic("anthem", "National anthem", (
        ("National anthem: name", (_GOV, "National anthem", "name")),
        ("lyrics/music", (_GOV, "National anthem", "lyrics/music")),
    ), (
        ("note", (_GOV, "National anthem", "note")),
    )),
    Topic("symbol", "National symbol and flag", (
        ("National symbol", (_GOV, "National symbol(s)")),
    ), (
        ("Flag description", (_GOV, "Flag description")),
    )),
    Topic("codes", "Internet country code and telephone country code", (
        ("Internet country code", (_COMM := "Communications", "Internet country code")),
        ("Telephone system: international", (_COMM, "Telephone system", "international")),
    ), (
        ("Internet users", (_COMM, "Internet users", "total")),
        ("Telephone system: general assessment",
         (_COMM, "Telephone system", "general assessment")),
    )),
    Topic("borders", "Land boundaries and border countries", (
        ("Border countries", (_GEO, "Land boundaries", "border countries")),
        ("Land boundaries: total", (_GEO, "Land boundaries", "total")),
    ), (
        ("Location", (_GEO, "Location")),
        ("Coastline", (_GEO, "Coastline")),
        ("Geography - note", (_GEO, "Geography - note")),
    )),
    Topic("exports", "Export partners", (
        ("Exports - partners", (_ECO, "Exports - partners")),
    ), (
        ("Exports - commodities", (_ECO, "Exports - commodities")),
        ("Exports", (_ECO, "Exports")),
    )),
    Topic("imports", "Import partners", (
        ("Imports - partners", (_ECO, "Imports - partners")),
    ), (
        ("Imports - commodities", (_ECO, "Imports - commodities")),
        ("Imports", (_ECO, "Imports")),
    )),
    Topic("chief", "Chief of state", (
        ("Chief of state", (*_EXEC, "chief of state")),
    ), (
        ("Elections and appointments", (*_EXEC, "elections/appointments")),
        ("Election results", (*_EXEC, "election results")),
    )),
    Topic("head", "Head of government", (
        ("Head of government", (*_EXEC, "head of government")),
    ), (
        ("Cabinet", (*_EXEC, "cabinet")),
        ("Legislative branch", (_GOV, "Legislative branch", "description")),
    )),
    Topic("independence", "Independence and national holiday", (
        ("Independence", (_GOV, "Independence")),
        ("National holiday", (_GOV, "National holiday")),
    ), (
        ("Constitution", (_GOV, "Constitution")),
        ("Legal system", (_GOV, "Legal system")),
        ("Suffrage", (_GOV, "Suffrage")),
    )),
    Topic("population", "Population and area", (
        ("Population", (_PEOPLE, "Population")),
        ("Area: total", (_GEO, "Area", "total")),
        ("Median age: total", (_PEOPLE, "Median age", "total")),
        ("Life expectancy at birth: total population",
         (_PEOPLE, "Life expectancy at birth", "total population")),
    ), (
        ("Area - comparative", (_GEO, "Area - comparative")),
        ("Population growth rate", (_PEOPLE, "Population growth rate")),
        ("Urban population", (_PEOPLE, "Urbanization", "urban population")),
    )),
    Topic("languages", "Nationality and languages", (
        ("Nationality: adjective", (_PEOPLE, "Nationality", "adjective")),
        ("Languages", (_PEOPLE, "Languages")),
    ), (
        ("Ethnic groups", (_PEOPLE, "Ethnic groups")),
        ("Religions", (_PEOPLE, "Religions")),
    )),
)

STORY_TOPICS: tuple[Topic, ...] = (
    Topic("background", "Background", (("Background", ("Introduction", "Background")),)),
    Topic("economy", "Economy overview", (("Economy - overview", (_ECO, "Economy - overview")),)),
    Topic("climate", "Climate and natural resources", (
        ("Climate", (_GEO, "Climate")),
        ("Natural resources", (_GEO, "Natural resources")),
        ("Environment - current issues", (_GEO, "Environment - current issues")),
        ("Agriculture - products", (_ECO, "Agriculture - products")),
        ("Industries", (_ECO, "Industries")),
    )),
)


def build_corpus(profiles: list[Profile]) -> list[Passage]:
    """All passages, profile by profile."""
    return [passage for profile in profiles for passage in profile_passages(profile)]


def profile_passages(profile: Profile) -> list[Passage]:
    """The passages of one profile. Only countries get their story told: it keeps the data small."""
    passages = []
    for topic in FACT_TOPICS:
        text = _fact_text(profile, topic)
        if text:
            passages.append(_passage(profile, topic, 0, text))
    for topic in STORY_TOPICS if profile.is_country else ():
        # One passage of each: the rest of the stories would double the corpus.
        text = _story_text(profile, topic)
        if text:
            passages.append(_passage(profile, topic, 0, text))
    return passages


def cut(text: str, words: int) -> str:
    """The text up to the last sentence or semicolon that ends within so many words."""
    if len(text.split()) <= words:
        return text
    kept = " ".join(text.split()[:words])
    ends = [match.start() for match in re.finditer(r"[.;](?= )|;$|\.$", kept)]
    if ends and len(kept[: ends[-1]].split()) >= words // 2:
        return kept[: ends[-1]]
    return kept.rstrip(",;:(") + " ..."


def _passage(profile: Profile, topic: Topic, number: int, text: str) -> Passage:
    return Passage(
        f"{profile.code}-{topic.key}-{number}", f"{profile.name}: {topic.title}", text
    )


def _fact_text(profile: Profile, topic: Topic) -> str:
    parts = _labelled(profile, topic.fields)
    if not parts:
        return ""
    text = f"{profile.name} - " + cut("; ".join(parts), MOST_WORDS)
    for part in _labelled(profile, topic.fillers):
        room = MOST_WORDS - len(text.split())
        if len(text.split()) >= FEWEST_WORDS or room < 8:
            break
        text += "; " + cut(part, room)
    return _ended(text)


def _story_text(profile: Profile, topic: Topic) -> str:
    parts = _labelled(profile, topic.fields)
    return _ended(f"{profile.name} - " + cut("; ".join(parts), MOST_WORDS)) if parts else ""


def _labelled(profile: Profile, fields: tuple[Field, ...]) -> list[str]:
    texts = [(label, profile.text(*path) or profile.spelled(*path)) for label, path in fields]
    return [f"{label}: {text.rstrip('; ')}" for label, text in texts if text not in ("", "none")]


def _ended(text: str) -> str:
    return text if text.endswith((".", "...")) else text.rstrip(";, ") + "."


def write_corpus(passages: list[Passage], path: Path) -> None:
    """Writes the corpus, one passage a line."""
    path.write_text("".join(passage.json() + "\n" for passage in passages), "utf-8")
