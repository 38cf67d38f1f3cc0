"""Deals the countries out to train, dev and test so that linked countries stay together."""

import random

from .relations import World

SHARES = {"train": 0.56, "dev": 0.13, "test": 0.31}
PINNED = {"la": "test", "th": "test", "fr": "train", "us": "train", "ch": "test"}
_WEIGHTS = {"train": 1.0, "dev": 1.2, "test": 1.3}
_SWAPS = 60_000


def deal(world: World, seed: int) -> dict[str, str]:
    """A split for every country: hill climbing over swaps, for links within one split.

    A chain needs all its found countries in one split, so a random deal would leave dev and test
    almost without 3- and 4-hop questions.
    """
    rng = random.Random(seed)
    countries = [code for code, profile in world.profiles.items() if profile.is_country]
    edges: dict[str, list[str]] = {code: [] for code in countries}
    for targets in world.links.values():
        for source, target in targets.items():
            edges[source].append(target)
            edges[target].append(source)
    free = [code for code in countries if code not in PINNED]
    rng.shuffle(free)
    split = dict(PINNED)
    room = {name: round(share * len(countries)) for name, share in SHARES.items()}
    for name in PINNED.values():
        room[name] -= 1
    names = [name for name in SHARES for _ in range(room[name])]
    names += ["train"] * (len(free) - len(names))
    split.update(zip(free, names))

    def gain(code: str, name: str) -> float:
        return _WEIGHTS[name] * sum(split[other] == name for other in edges[code])

    for _ in range(_SWAPS):
        one, other = rng.sample(free, 2)
        here, there = split[one], split[other]
        if here == there:
            continue
        before = gain(one, here) + gain(other, there)
        split[one], split[other] = there, here
        if gain(one, there) + gain(other, here) < before:
            split[one], split[other] = here, there
    return split
