"""How the questions are worded. Every phrase branches to the right, so that phrases nest."""

INVERSE: dict[str, tuple[str, ...]] = {
    "capital": (
        "the country whose capital is {v}",
        "the country that has {v} as its capital",
        "the country with {v} as its capital city",
    ),
    "currency": (
        "the country whose currency is the {v}",
        "the country that uses the {v} as its currency",
        "the country with the {v} as its currency",
    ),
    "highest_point": (
        "the country whose highest point is {v}",
        "the country that has {v} as its highest point",
        "the country with {v} as its highest point",
    ),
    "lowest_point": (
        "the country whose lowest point is {v}",
        "the country that has {v} as its lowest point",
        "the country with {v} as its lowest point",
    ),
    "anthem": (
        'the country whose national anthem is "{v}"',
        'the country that has "{v}" as its national anthem',
        'the country with the national anthem "{v}"',
    ),
    "internet_code": (
        "the country whose internet country code is {v}",
        "the country that has the internet country code {v}",
        "the country with {v} as its internet country code",
    ),
    "calling_code": (
        "the country whose telephone country code is {v}",
        "the country that has the telephone country code {v}",
        "the country with {v} as its telephone country code",
    ),
    "chief_of_state": (
        "the country whose chief of state is {v}",
        "the country that has {v} as its chief of state",
        "the country with {v} as chief of state",
    ),
    "head_of_government": (
        "the country whose head of government is {v}",
        "the country that has {v} as its head of government",
        "the country with {v} as head of government",
    ),
    "independence": (
        "the country whose independence dates from {v}",
        "the country that became independent on {v}",
        "the country that gained independence on {v}",
    ),
    "former_name": (
        "the country formerly called {v}",
        "the country whose former name is {v}",
        "the country once known as {v}",
    ),
    "local_name": (
        "the country whose local short name is {v}",
        "the country that has the local short name {v}",
        "the country locally called {v}",
    ),
}
"""Descriptions of a country by an attribute."""

LINK: dict[str, tuple[str, ...]] = {
    "export_partner": (
        "the main export partner of {c}",
        "the top export partner of {c}",
        "the country that takes the largest share of exports from {c}",
    ),
    "import_partner": (
        "the main import partner of {c}",
        "the top import partner of {c}",
        "the country that supplies the largest share of imports to {c}",
    ),
    "longest_border": (
        "the country with the longest land border with {c}",
        "the neighbor that has the longest border with {c}",
        "the country that shares the longest land boundary with {c}",
    ),
    "shortest_border": (
        "the country with the shortest land border with {c}",
        "the neighbor that has the shortest border with {c}",
        "the country that shares the shortest land boundary with {c}",
    ),
    "only_neighbor": (
        "the only country that borders {c}",
        "the only neighbor of {c}",
        "the one country with a land border with {c}",
    ),
}
"""Descriptions of a country by another country."""

_NOUNS: dict[str, tuple[str, str]] = {
    "capital": ("What is the capital of {c}?", "capital"),
    "currency": ("What is the currency of {c}?", "currency"),
    "highest_point": ("What is the highest point of {c}?", "highest point"),
    "anthem": ("What is the national anthem of {c}?", "national anthem"),
    "internet_code": ("What is the internet country code of {c}?", "internet country code"),
    "calling_code": ("What is the telephone country code of {c}?", "telephone country code"),
    "chief_of_state": ("Who is the chief of state of {c}?", "chief of state"),
    "head_of_government": ("Who is the head of government of {c}?", "head of government"),
    "independence": ("What is the independence date of {c}?", "date of independence"),
    "national_holiday": ("On what day is the national holiday of {c}?", "national holiday date"),
    "national_symbol": ("What is the national symbol of {c}?", "national symbol"),
    "official_language": ("What is the official language of {c}?", "official language"),
    "nationality": ("What is the nationality adjective for {c}?", "nationality adjective"),
    "population": ("What is the population of {c}?", "population"),
    "area": ("What is the total area of {c}?", "total area"),
}

_OTHERS: dict[str, tuple[str, ...]] = {
    "capital": ("Which city is the capital of {c}?",),
    "currency": ("Which currency is used in {c}?",),
    "highest_point": ("Which place is the highest point of {c}?",),
    "anthem": ("What is the name of the national anthem of {c}?",),
    "internet_code": ("Which internet country code belongs to {c}?",),
    "calling_code": ("Which telephone country code belongs to {c}?",),
    "chief_of_state": ("Who serves as chief of state of {c}?",),
    "head_of_government": ("Who serves as head of government of {c}?",),
    "independence": ("What date marks the independence of {c}?",),
    "national_holiday": ("Which day of the year is the national holiday of {c}?",),
    "national_symbol": ("What serves as the national symbol of {c}?",),
    "official_language": ("Which language is the official language of {c}?",),
    "nationality": ("Which adjective describes the nationality of people from {c}?",),
    "population": ("How many people live in {c}?",),
    "area": ("How large is the total area of {c}?",),
}

LAST: dict[str, tuple[str, ...]] = {
    key: (
        question,
        *_OTHERS[key],
        f"Name the {noun} of {{c}}.",
        f"Find {{c}}: {'who' if question.startswith('Who') else 'what'} is its {noun}?",
    )
    for key, (question, noun) in _NOUNS.items()
}
"""Whole questions about an attribute of a country; the first one is the plainest."""

COMPARISON: dict[str, tuple[str, ...]] = {
    "population": (
        "Which country has the larger population: {a} or {b}?",
        "Which has more people, {a} or {b}?",
        "Between {a} and {b}, which country has the larger population?",
    ),
    "area": (
        "Which country has the larger total area: {a} or {b}?",
        "Which is larger by total area, {a} or {b}?",
        "Between {a} and {b}, which country has the larger total area?",
    ),
}

INTERSECTION: tuple[str, ...] = (
    "the country that borders both {a} and {b}",
    "the country that shares a land border with both {a} and {b}",
    "the common neighbor of {a} and {b}",
)

INTERSECTION_ITSELF: tuple[str, ...] = (
    "Which country borders both {a} and {b}?",
    "Which country shares a land border with both {a} and {b}?",
    "What is the common neighbor of {a} and {b}?",
)
