"""Packs the fields of a profile into passages a small reader can use.

A fact topic is a passage that opens with the field a question asks for, under the country's name;
a story topic is the beginning of a longer text.
"""

import re
from dataclasses import dataclass

from .profiles import Profile
from .topics import COUNTRIES_ONLY, FACT_TOPICS, STORY_TOPICS, Field, Topic

MOST_WORDS = 75
FEWEST_WORDS = 38


@dataclass(frozen=True)
class Passage:
    """One line of the corpus."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title and text, as Search-R1 joins them."""
        return f'"{self.title}"\n{self.text}'

    def row(self) -> dict[str, str]:
        """The line, in the Search-R1 schema."""
        return {"id": self.id, "contents": self.contents}


def build_corpus(profiles: list[Profile]) -> list[Passage]:
    """All passages, profile by profile."""
    return [passage for profile in profiles for passage in profile_passages(profile)]


def profile_passages(profile: Profile) -> list[Passage]:
    """The passages of one profile. Only countries get their story told: it keeps the data small."""
    passages = []
    for topic in FACT_TOPICS:
        if topic.key in COUNTRIES_ONLY and not profile.is_country:
            continue
        text = _fact_text(profile, topic)
        if text:
            passages.append(_passage(profile, topic, 0, text))
    for topic in STORY_TOPICS if profile.is_country else ():
        # Only the beginning of each: the rest of the stories would double the corpus.
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
    return Passage(f"{profile.code}-{topic.key}-{number}", f"{profile.name}: {topic.title}", text)


def _fact_text(profile: Profile, topic: Topic) -> str:
    parts = _labelled(profile, topic.fields)
    if not parts:
        return ""
    # The name stands in the title, at the start and in the first labels, so that on a lexical
    # index the passages of a neighbor, which name the country once, come after its own.
    parts[:2] = [part.replace(":", f" of {profile.in_text}:", 1) if part[0].isupper() else part for part in parts[:2]]
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
