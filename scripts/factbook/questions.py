"""Draws the questions: chains, comparisons, intersections; balanced, every one checked."""

import random
from collections.abc import Iterable
from typing import Any

from . import phrases
from .checks import normalize, question_faults
from .drafts import Balance, Draft, Paths, size
from .steps import Step, Steps
from .world import World

Row = dict[str, Any]

HELD_OUT_PAIRS: frozenset[tuple[str, str]] = frozenset(
    {
        ("capital^-1", "anthem"),
        ("capital^-1", "national_symbol"),
        ("highest_point^-1", "currency"),
        ("highest_point^-1", "head_of_government"),
        ("anthem^-1", "capital"),
        ("anthem^-1", "population"),
        ("internet_code^-1", "highest_point"),
        ("internet_code^-1", "chief_of_state"),
        ("calling_code^-1", "official_language"),
        ("chief_of_state^-1", "internet_code"),
        ("head_of_government^-1", "area"),
        ("independence^-1", "currency"),
    }
)
"""First and last relations that train never combines: what is asked there is new as a whole."""

COUNTS: dict[str, dict[str, int]] = {
    "train": {"2": 1500, "3": 820, "4": 420, "comparison": 140, "common": 50, "beyond": 90},
    "dev": {"2": 220, "3": 120, "4": 80, "comparison": 40, "common": 14, "beyond": 26},
    "test": {"2": 420, "3": 340, "4": 330, "comparison": 110, "common": 40, "beyond": 70},
}
"""How many of each kind: hops of a chain; comparisons; the neighbor common to two countries, and
what is asked beyond it."""

SHAPES = {"comparison": "comparison", "common": "intersection", "beyond": "intersection"}
_TRIES = 40


class Writer:
    """Words drafts as rows and keeps those without faults."""

    def __init__(self, world: World, passages: dict[str, str], seed: int) -> None:
        self.world, self.passages = world, passages
        self.paths, self.steps = Paths(world), Steps(world)
        self.seed, self.rng = seed, random.Random(seed)
        self.asked: set[str] = set()

    def split_rows(self, split: str, homes: dict[str, str]) -> list[Row]:
        """All questions of a split."""
        codes = [code for code, home in homes.items() if home == split]
        codes.sort()
        # A seed of its own, so that a mended fact of one split leaves the others as they are.
        self.rng = random.Random(f"{self.seed} {split}")
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
            return self.paths.comparisons(codes)
        if kind in ("common", "beyond"):
            return self.paths.intersections(codes, beyond=kind == "beyond")
        return self.paths.chains(int(kind), codes)

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
        elif kind in ("common", "beyond"):
            question, golds, steps = self._intersection(draft)
        else:
            question, golds, steps = self._chain(kind, draft)
        pair = (draft.relations[0], draft.relations[-1])
        return {
            "id": "",
            "question": question,
            "golden_answers": golds,
            "metadata": {
                "shape": SHAPES.get(kind, "chain"),
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
        for key, source, target in zip(links, draft.countries[:-1], draft.countries[1:], strict=True):
            phrase = self.rng.choice(phrases.LINK[key]).format(c=phrase)
            steps.append(self.steps.link(key, source, target))
        step = self.steps.attribute(last, draft.countries[-1])
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
        sizes = [size(self.world.attributes[key][code][0]) for code in order]
        question = self.rng.choice(phrases.COMPARISON[key]).format(a=found[0][0], b=found[1][0])
        winner = found[sizes.index(max(sizes))][1]
        steps = [step for _, step in found] + [self.steps.attribute(key, code) for code in order]
        return question[0].upper() + question[1:], winner["answers"], steps

    def _intersection(self, draft: Draft) -> tuple[str, list[str], list[Step]]:
        profiles = self.world.profiles
        names = [profiles[code].in_text for code in draft.subjects]
        self.rng.shuffle(names)
        subjects = sorted(draft.subjects, key=lambda code: names.index(profiles[code].in_text))
        steps = [self.steps.border(code, draft.countries[0]) for code in subjects]
        if draft.relations[-1] == "borders":
            wording = self.rng.choice(phrases.INTERSECTION_ITSELF)
            return wording.format(a=names[0], b=names[1]), steps[-1]["answers"], steps
        phrase = self.rng.choice(phrases.INTERSECTION).format(a=names[0], b=names[1])
        step = self.steps.attribute(draft.relations[-1], draft.countries[0])
        wording = self.rng.choice(phrases.LAST[draft.relations[-1]])
        return wording.format(c=phrase), step["answers"], [*steps, step]

    def _found(self, relation: str, code: str) -> tuple[str, Step]:
        """A description of a country, and the step that finds it."""
        step = self.steps.inverse(relation, code)
        wording = self.rng.choice(phrases.INVERSE[relation.removesuffix("^-1")])
        value = step["subject"]
        return wording.format(v=f"the {value}" if " River" in value else value), step


def _is_showcase(kind: str, draft: Draft) -> bool:
    return kind == "2" and draft.relations == ("capital^-1", "currency") and draft.countries == ("la",)
