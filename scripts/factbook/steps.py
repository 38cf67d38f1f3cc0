"""The steps of a question: what to search for, what is found, and how to note it."""

from typing import Any

from .relations import ATTRIBUTES, LINKS
from .world import World

Step = dict[str, Any]


class Steps:
    """Makes steps out of the facts of a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def inverse(self, relation: str, code: str) -> Step:
        """From an attribute to its country."""
        key = relation.removesuffix("^-1")
        attribute = ATTRIBUTES[key]
        value = self.world.inverses[key][code][0]
        return self._step(
            f"{relation}:{code}",
            attribute.inverse_ask.format(v=value),
            relation,
            value,
            self._names(code),
            f"{code}-{attribute.topic}-0",
            attribute.inverse_fact.format(v=value, c=self.world.profiles[code].in_text),
        )

    def link(self, key: str, source: str, target: str) -> Step:
        """From a country to another."""
        topic, ask, fact = LINKS[key]
        here, there = self.world.profiles[source], self.world.profiles[target]
        return self._step(
            f"{key}:{source}",
            ask.format(c=here.in_text),
            key,
            here.name,
            self._names(target),
            f"{source}-{topic}-0",
            fact.format(c=here.in_text, v=there.in_text),
        )

    def attribute(self, key: str, code: str) -> Step:
        """From a country to a value."""
        attribute = ATTRIBUTES[key]
        profile = self.world.profiles[code]
        found = list(self.world.attributes[key][code])
        return self._step(
            f"{key}:{code}",
            attribute.ask.format(c=profile.in_text),
            key,
            profile.name,
            found,
            f"{code}-{attribute.topic}-0",
            attribute.fact.format(c=profile.in_text, v=found[0]),
        )

    def border(self, code: str, common: str) -> Step:
        """From a country to that one of its neighbors which the question is about."""
        profile = self.world.profiles[code]
        names = [
            self.world.profiles[other].in_text if other in self.world.profiles else other[1:]
            for other in self.world.neighbors[code]
        ]
        listed = ", ".join(names[:-1]) + " and " + names[-1]
        return self._step(
            f"borders:{code}>{common}",
            f"border countries of {profile.in_text}",
            "borders",
            profile.name,
            self._names(common),
            f"{code}-borders-0",
            f"{profile.in_text} borders {listed}.",
        )

    def _names(self, code: str) -> list[str]:
        profile = self.world.profiles[code]
        return [profile.name, *profile.aliases]

    @staticmethod
    def _step(
        id: str,
        ask: str,
        relation: str,
        subject: str,
        answers: list[str],
        passage_id: str,
        fact: str,
    ) -> Step:
        return {
            "id": id,
            "ask": ask,
            "relation": relation,
            "subject": subject,
            "answer": answers[0],
            "answers": answers,
            "passage_id": passage_id,
            "fact": fact[0].upper() + fact[1:],
        }
