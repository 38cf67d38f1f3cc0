"""What people call the countries: names, articles and aliases the profiles lack or get wrong."""

NAMES: dict[str, str] = {
    "bf": "Bahamas",
    "cc": "Curacao",
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "ct": "Central African Republic",
    "dr": "Dominican Republic",
    "ae": "United Arab Emirates",
    "ee": "European Union",
    "fk": "Falkland Islands",
    "fm": "Micronesia",
    "ga": "Gambia",
    "io": "British Indian Ocean Territory",
    "oo": "Southern Ocean",
    "sh": "Saint Helena",
    "sk": "Sint Maarten",
    "sv": "Svalbard",
    "um": "United States Pacific Island Wildlife Refuges",
    "vt": "Vatican City",
    "xo": "Indian Ocean",
    "xq": "Arctic Ocean",
    "xx": "World",
    "zh": "Atlantic Ocean",
    "zn": "Pacific Ocean",
    "vq": "United States Virgin Islands",
    "ck": "Cocos Islands",
}
"""By profile code, where the conventional short form is missing, cut off or not what people write."""

_WITH_ARTICLE = """
    ae bf bp cf cg cj ck cn cq cr ct cw dr ee fk fo ga gz im io mv nl oo pc pf pg rm rp tk uk um us vi vq we xo xq
    xx zh zn
"""
ARTICLES: frozenset[str] = frozenset(_WITH_ARTICLE.split())
"""Codes of the countries that take "the" in a sentence."""

ALIASES: dict[str, tuple[str, ...]] = {
    "ac": ("Antigua & Barbuda",),
    "ae": ("UAE", "Emirates"),
    "bk": ("Bosnia", "Bosnia & Herzegovina", "BiH"),
    "bm": ("Myanmar",),
    "bx": ("Brunei Darussalam",),
    "cf": ("Congo", "Congo (Brazzaville)", "Congo-Brazzaville", "Congo Republic"),
    "cg": ("DRC", "DR Congo", "Congo (Kinshasa)", "Congo-Kinshasa"),
    "ch": ("People's Republic of China", "PRC"),
    "ct": ("CAR",),
    "cv": ("Cape Verde",),
    "ez": ("Czechia",),
    "fm": ("Federated States of Micronesia", "FSM"),
    "ga": ("The Gambia",),
    "gm": ("Federal Republic of Germany",),
    "iv": ("Ivory Coast", "Côte d'Ivoire"),
    "kn": ("DPRK",),
    "ks": ("Republic of Korea", "ROK"),
    "ls": ("Principality of Liechtenstein",),
    "mk": (
        "North Macedonia",
        "Former Yugoslav Republic of Macedonia",
        "The Former Yugoslav Republic of Macedonia",
        "The Former Yugo Rep of Macedonia",
    ),
    "nl": ("Holland",),
    "nz": ("NZ",),
    "pp": ("PNG",),
    "rs": ("Russian Federation",),
    "sc": ("St. Kitts and Nevis", "St Kitts and Nevis"),
    "st": ("St. Lucia", "St Lucia"),
    "tp": ("São Tomé and Príncipe",),
    "tt": ("East Timor",),
    "tu": ("Türkiye",),
    "tw": ("Republic of China",),
    "uk": ("UK", "U.K.", "Great Britain", "Britain"),
    "us": ("US", "USA", "U.S.", "U.S.A.", "United States of America", "America"),
    "vc": ("St. Vincent and the Grenadines", "St Vincent and the Grenadines"),
    "vt": ("Holy See", "Holy See (Vatican City)", "Vatican"),
    "wz": ("Eswatini",),
    "bf": ("The Bahamas",),
}
"""Other names, besides the conventional long form, under which an answer is right."""

ACCENTED: dict[str, str] = {
    "Asuncion": "Asunción",
    "Bogota": "Bogotá",
    "Brasilia": "Brasília",
    "Chisinau": "Chișinău",
    "Lome": "Lomé",
    "Male": "Malé",
    "Noumea": "Nouméa",
    "Nuku'alofa": "Nukuʻalofa",
    "Reykjavik": "Reykjavík",
    "San Jose": "San José",
    "Yaounde": "Yaoundé",
    "Galdhopiggen": "Galdhøpiggen",
    "Mollehoj": "Møllehøj",
    "Hvannadalshnukur": "Hvannadalshnúkur",
    "Snezka": "Sněžka",
    "Suur Munamagi": "Suur Munamägi",
}
"""The Factbook writes without diacritics; the accented form is right too."""

CONTESTED_CURRENCIES: dict[str, str] = {
    "en": "kroon, though the euro came in 2011",
    "lg": "lats, though the euro came in 2014",
    "lh": "litas, though the euro came in 2015",
    "zi": "Zimbabwean dollar, though out of use since 2009",
    "tv": "two currencies",
}
"""Profiles whose exchange rates name a currency that was not, or not alone, in use in 2015."""
