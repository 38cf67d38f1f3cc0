"""What questions could be asked: every path through the facts, before it is worded."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from . import phrases
from .relations import LINKS
from .world import World

_MOST_BORDERS = 8


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
            self.relations[first]
            + self.relations[last]
            + sum(self.relations[key] for key in middle) / 2
            + 4 * sum(self.countries[code] for code in draft.countries) / len(draft.countries)
        )

    def add(self, draft: Draft) -> None:
        """Counts a draft in."""
        self.relations.update(draft.relations)
        self.countries.update(draft.countries)


class Paths:
    """Enumerates the drafts of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world

    def chains(self, hops: int, codes: list[str]) -> Iterator[Draft]:
        """An attribute, its country, from country to country, an attribute of the last."""
        inside = set(codes)
        paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (code,)) for code in codes]
        for _ in range(hops - 2):
            paths = [
                ((*keys, key), (*path, target))
                for keys, path in paths
                for key, links in self.world.links.items()
                for target in (links.get(path[-1]),)
                if target in inside and target not in path and self._short(key, path[-1])
            ]
        for keys, path in paths:
            for first, subjects in self.world.inverses.items():
                if path[0] not in subjects:
                    continue
                for last in phrases.LAST:
                    if last != first and path[-1] in self.world.attributes[last]:
                        yield Draft((f"{first}^-1", *keys, last), path)

    def _short(self, key: str, code: str) -> bool:
        """Whether what is to be read fits a reader's view: long lists of borders do not."""
        return LINKS[key][0] != "borders" or len(self.world.neighbors[code]) <= _MOST_BORDERS

    def comparisons(self, codes: list[str]) -> Iterator[Draft]:
        """Two described countries and a size that is clearly not the same."""
        for key in phrases.COMPARISON:
            sizes = {code: size(found[0]) for code, found in self.world.attributes[key].items()}
            known = [code for code in codes if code in sizes]
            for one, other in combinations(known, 2):
                if not 1.2 < max(sizes[one], sizes[other]) / min(sizes[one], sizes[other]) < 30:
                    continue
                # One way to describe both keeps the drafts few; the balance picks among the ways.
                for first, subjects in self.world.inverses.items():
                    if one in subjects and other in subjects:
                        yield Draft((f"{first}^-1", f"{first}^-1", key, key), (one, other))

    def intersections(self, codes: list[str], beyond: bool) -> Iterator[Draft]:
        """The one neighbor common to two named countries, or an attribute of it."""
        near = self.world.neighbors
        for code in codes:
            for one, other in combinations(near.get(code, ()), 2):
                lists = near.get(one, ()), near.get(other, ())
                common = {c for c in near if one in near[c] and other in near[c]}
                common |= set(lists[0]) & set(lists[1])
                short = all(2 <= len(found) <= _MOST_BORDERS for found in lists)
                mutual = all(code in found for found in lists)
                if common != {code} or not short or not mutual:
                    continue
                if not beyond:
                    yield Draft(("borders", "borders"), (code,), (one, other))
                else:
                    for last in phrases.LAST:
                        if code in self.world.attributes[last]:
                            yield Draft(("borders", "borders", last), (code,), (one, other))


def size(text: str) -> float:
    """The number in "236,800 sq km"."""
    return float(text.split()[0].replace(",", ""))
