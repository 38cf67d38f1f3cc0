"""Which countries are to be found in which split.

A chain needs all its found countries in one split, and a deal by chance would leave dev and test
almost without chains of 3 and 4 hops. So neighbors and trading partners were put together: by hill
climbing over swaps, for the most links within a split, from the first build's facts. The outcome
is written down here and not computed, so that a mended fact does not move a country into test
that an agent has been trained on.
"""

from .profiles import Profile

_TEST = """
    ae af aj am ao as ba bm bo bp bx cb cf ch ei en fi gg gh gv id ir iv iz jo kg kn ks ku kz la le lg lh li mg
    mu my nh no pk pp rs sa sl sn sw sy th ti to tt tu tx uk up uv uz vm ym
"""
_DEV = "ac bu cn cy dj do er et fj fm gr ja kr mk mv nz ps qa rm rp so tn tv tw ws"
TEST = frozenset(_TEST.split())
DEV = frozenset(_DEV.split())


def deal(profiles: list[Profile]) -> dict[str, str]:
    """The split of every country, by code."""
    return {
        profile.code: "test" if profile.code in TEST else "dev" if profile.code in DEV else "train"
        for profile in profiles
        if profile.is_country
    }
