"""Draws the questions: chains, comparisons, intersections; balanced, every one checked."""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Iterable

from . import phrases
from .checks import normalize, question_faults
from .relations import ATTRIBUTES, LINKS, World

Row = dict[str, Any]
Step = dict[str, Any]

HELD_OUT_PAIRS: frozenset[tuple[str, str]] = frozenset({
    ("capital^-1", "anthem"), ("capital^-1", "national_symbol"),
    ("highest_point^-1", "currency"), ("highest_point^-1", "head_of_government"),
    ("anthem^-1", "capital"), ("anthem^-1", "population"),
    ("internet_code^-1", "highest_point"), ("internet_code^-1", "chief_of_state"),
    ("calling_code^-1", "official_language"), ("chief_of_state^-1", "internet_code"),
    ("head_of_government^-1", "area"), ("independence^-1", "currency"),
})
"""First and last relations that train never combines: what is asked there is new as a whole."""

COUNTS: dict[str, dict[str, int]] = {
    "train": {"2": 1500, "3": 820, "4": 420, "comparison": 140, "intersection": 140},
    "dev": {"2": 220, "3": 120, "4": 80, "comparison": 40, "intersection": 40},
    "test": {"2": 420, "3": 340, "4": 330, "comparison": 110, "intersection": 110},
}
_TRIES = 40
_CHAIN_CAP = {2: 60, 3: 40, 4: 40}


@dataclass
class Draft:
    """A question before it is worded: what it passes through."""

    relations: tuple[str, ...]
    countries: tuple[str, ...]
    subjects: tuple[str, ...] = ()


@dataclass
class Balance:
    """How often each relation and country was used, so that the next draft can be a rare one."""

    relations: Counter[str] = field(default_factory=Counter)
    countries: Counter[str] = field(default_factory=Counter)

    def cost(self, draft: Draft) -> float:
        """High for what was drawn often."""
        first, *middle, last = draft.relations
        return (
            self.relations[first] + self.relations[last]
            + sum(self.relations[key] for key in middle) / 2
            + 4 * sum(self.countries[code] for code in draft.countries) / len(draft.countries)
        )

    def add(self, draft: Draft) -> None:
        """Counts a draft in."""
        self.relations.update(draft.relations)
        self.countries.update(draft.countries)


class Writer:
    """Words drafts as rows and keeps those without faults."""

    def __init__(self, world: World, passages: dict[str, str], seed: int) -> None:
        self.world, self.passages = world, passages
        self.rng = random.Random(seed)
        self.asked: set[str] = set()

    def split_rows(self, split: str, homes: dict[str, str]) -> list[Row]:
        """All questions of a split."""
        codes = [code for code, home in homes.items() if home == split]
        codes.sort()
        rows: list[Row] = []
        for kind, count in COUNTS[split].items():
            drafts = [draft for draft in self._drafts(kind, codes) if self._allowed(draft, split)]
            rows += self._draw(kind, split, drafts, count)
        for number, row in enumerate(rows):
            row["id"] = f"{split}-{number:04d}"
        return rows

    def _allowed(self, draft: Draft, split: str) -> bool:
        pair = (draft.relations[0], draft.relations[-1])
        return split != "train" or pair not in HELD_OUT_PAIRS

    def _drafts(self, kind: str, codes: list[str]) -> Iterable[Draft]:
        if kind == "comparison":
            return self._comparisons(codes)
        if kind == "intersection":
            return self._intersections(codes)
        return self._chains(int(kind), codes)

    def _chains(self, hops: int, codes: list[str]) -> Iterable[Draft]:
        inside = set(codes)
        paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (code,)) for code in codes]
        for _ in range(hops - 2):
            paths = [
                ((*keys, key), (*path, target))
                for keys, path in paths
                for key, links in self.world.links.items()
                for target in (links.get(path[-1]),)
                if target in inside and target not in path
            ]
        for keys, path in paths:
            for first, subjects in self.world.inverses.items():
                if path[0] not in subjects:
                    continue
                for last in phrases.LAST:
                    if last != first and path[-1] in self.world.attributes[last]:
                        yield Draft((f"{first}^-1", *keys, last), path)

    def _comparisons(self, codes: list[str]) -> Iterable[Draft]:
        for key in phrases.COMPARISON:
            sizes = {code: _size(found[0]) for code, found in self.world.attributes[key].items()}
            known = [code for code in codes if code in sizes]
            for one, other in combinations(known, 2):
                if not 1.2 < max(sizes[one], sizes[other]) / min(sizes[one], sizes[other]) < 30:
                    continue
                # One way to describe both keeps the drafts few; the balance picks among the ways.
                for first, subjects in self.world.inverses.items():
                    if one in subjects and other in subjects:
                        yield Draft((f"{first}^-1", f"{first}^-1", key, key), (one, other))

    def _intersections(self, codes: list[str]) -> Iterable[Draft]:
        near = self.world.neighbors
        for code in codes:
            for one, other in combinations(near.get(code, ()), 2):
                lists = near.get(one, ()), near.get(other, ())
                common = {c for c in near if one in near[c] and other in near[c]}
                common |= set(lists[0]) & set(lists[1])
                short = all(2 <= len(found) <= 8 for found in lists)
                mutual = all(code in found for found in lists)
                if common == {code} and short and mutual:
                    yield Draft(("borders", "borders"), (code,), (one, other))
                    for last in phrases.LAST:
                        if code in self.world.attributes[last]:
                            yield Draft(("borders", "borders", last), (code,), (one, other))

    def _draw(self, kind: str, split: str, drafts: list[Draft], count: int) -> list[Row]:
        rows: list[Row] = []
        balance = Balance()
        self.rng.shuffle(drafts)
        first = [draft for draft in drafts if _is_showcase(kind, draft)]
        while len(rows) < count and drafts:
            if first:
                draft = first.pop()
                drafts.remove(draft)
            else:
                tries = [self.rng.randrange(len(drafts)) for _ in range(_TRIES)]
                best = min(tries, key=lambda place: (balance.cost(drafts[place]), place))
                drafts[best], drafts[-1] = drafts[-1], drafts[best]
                draft = drafts.pop()
            row = self._row(kind, draft)
            asked = normalize(row["question"])
            if asked in self.asked or question_faults(row, self.passages):
                continue
            self.asked.add(asked)
            balance.add(draft)
            rows.append(row)
        return rows

    def _row(self, kind: str, draft: Draft) -> Row:
        if kind == "comparison":
            question, golds, steps = self._comparison(draft)
        elif kind == "intersection":
            question, golds, steps = self._intersection(draft)
        else:
            question, golds, steps = self._chain(kind, draft)
        pair = (draft.relations[0], draft.relations[-1])
        return {
            "id": "",
            "question": question,
            "golden_answers": golds,
            "metadata": {
                "shape": kind if kind in ("comparison", "intersection") else "chain",
                "hops": len(steps),
                "relations": list(draft.relations),
                "supporting_ids": list(dict.fromkeys(step["passage_id"] for step in steps)),
                "countries": [self.world.profiles[code].name for code in draft.countries],
                "steps": steps,
                "held_out_pair": pair in HELD_OUT_PAIRS,
            },
        }

    def _chain(self, kind: str, draft: Draft) -> tuple[str, list[str], list[Step]]:
        first, *links, last = draft.relations
        phrase, step = self._found(first, draft.countries[0])
        steps = [step]
        for key, source, target in zip(links, draft.countries, draft.countries[1:]):
            phrase = self.rng.choice(phrases.LINK[key]).format(c=phrase)
            steps.append(self._link_step(key, source, target))
        step = self._attribute_step(last, draft.countries[-1])
        plain = _is_showcase(kind, draft)
        wording = phrases.LAST[last][0] if plain else self.rng.choice(phrases.LAST[last])
        if plain:
            phrase = phrases.INVERSE["capital"][0].format(v=steps[0]["subject"])
        return wording.format(c=phrase), step["answers"], [*steps, step]

    def _comparison(self, draft: Draft) -> tuple[str, list[str], list[Step]]:
        key = draft.relations[-1]
        order = list(draft.countries)
        self.rng.shuffle(order)
        draft.countries = tuple(order)
        found = [self._found(draft.relations[0], code) for code in order]
        sizes = [_size(self.world.attributes[key][code][0]) for code in order]
        question = self.rng.choice(phrases.COMPARISON[key]).format(a=found[0][0], b=found[1][0])
        winner = found[sizes.index(max(sizes))][1]
        steps = [step for _, step in found] + [self._attribute_step(key, code) for code in order]
        return question[0].upper() + question[1:], winner["answers"], steps

    def _intersection(self, draft: Draft) -> tuple[str, list[str], list[Step]]:
        profiles = self.world.profiles
        names = [profiles[code].in_text for code in draft.subjects]
        self.rng.shuffle(names)
        subjects = sorted(draft.subjects, key=lambda code: names.index(profiles[code].in_text))
        steps = [self._border_step(code, draft.countries[0]) for code in subjects]
        if draft.relations[-1] == "borders":
            wording = self.rng.choice(phrases.INTERSECTION_ITSELF)
            return wording.format(a=names[0], b=names[1]), steps[-1]["answers"], steps
        phrase = self.rng.choice(phrases.INTERSECTION).format(a=names[0], b=names[1])
        step = self._attribute_step(draft.relations[-1], draft.countries[0])
        wording = self.rng.choice(phrases.LAST[draft.relations[-1]])
        return wording.format(c=phrase), step["answers"], [*steps, step]

    def _found(self, relation: str, code: str) -> tuple[str, Step]:
        """A description of a country, and the step that finds it."""
        key = relation.removesuffix("^-1")
        attribute = ATTRIBUTES[key]
        value = self.world.inverses[key][code][0]
        country = self.world.profiles[code].in_text
        step = self._step(
            attribute.inverse_ask.format(v=value), relation, value, self._names(code),
            f"{code}-{attribute.topic}-0", attribute.inverse_fact.format(v=value, c=country),
        )
        return self.rng.choice(phrases.INVERSE[key]).format(v=value), step

    def _link_step(self, key: str, source: str, target: str) -> Step:
        topic, ask, fact = LINKS[key]
        here, there = self.world.profiles[source], self.world.profiles[target]
        return self._step(
            ask.format(c=here.in_text), key, here.name, self._names(target),
            f"{source}-{topic}-0", fact.format(c=here.in_text, v=there.in_text),
        )

    def _attribute_step(self, key: str, code: str) -> Step:
        attribute = ATTRIBUTES[key]
        profile = self.world.profiles[code]
        found = list(self.world.attributes[key][code])
        return self._step(
            attribute.ask.format(c=profile.in_text), key, profile.name, found,
            f"{code}-{attribute.topic}-0",
            attribute.fact.format(c=profile.in_text, v=found[0]),
        )

    def _border_step(self, code: str, common: str) -> Step:
        profile = self.world.profiles[code]
        names = [
            self.world.profiles[other].in_text if other in self.world.profiles else other[1:]
            for other in self.world.neighbors[code]
        ]
        listed = ", ".join(names[:-1]) + " and " + names[-1]
        return self._step(
            f"border countries of {profile.in_text}", "borders", profile.name,
            self._names(common), f"{code}-borders-0", f"{profile.in_text} borders {listed}.",
        )

    def _names(self, code: str) -> list[str]:
        profile = self.world.profiles[code]
        return [profile.name, *profile.aliases]

    @staticmethod
    def _step(
        ask: str, relation: str, subject: str, answers: list[str], passage_id: str, fact: str
    ) -> Step:
        return {
            "ask": ask, "relation": relation, "subject": subject, "answer": answers[0],
            "answers": answers, "passage_id": passage_id, "fact": fact[0].upper() + fact[1:],
        }


def _is_showcase(kind: str, draft: Draft) -> bool:
    return kind == "2" and draft.relations == ("capital^-1", "currency") and draft.countries == ("la",)


def _size(text: str) -> float:
    return float(text.split()[0].replace(",", ""))
