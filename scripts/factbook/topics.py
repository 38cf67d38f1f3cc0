"""Which fields go together into a passage, and under what title."""

from dataclasses import dataclass

Field = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Topic:
    """Fields that belong in one passage; the later ones only fill a short passage up."""

    key: str
    title: str
    fields: tuple[Field, ...]
    fillers: tuple[Field, ...] = ()


_GOV, _GEO, _PEOPLE, _ECO = "Government", "Geography", "People and Society", "Economy"
_NAME, _EXEC = (_GOV, "Country name"), (_GOV, "Executive branch")

FACT_TOPICS: tuple[Topic, ...] = (
    Topic(
        "capital",
        "Capital",
        (("Capital", (_GOV, "Capital", "name")),),
        (
            ("Country name: conventional long form", (*_NAME, "conventional long form")),
            ("local short form", (*_NAME, "local short form")),
            ("Government type", (_GOV, "Government type")),
            ("Major urban areas - population", (_PEOPLE, "Major urban areas - population")),
            ("Administrative divisions", (_GOV, "Administrative divisions")),
        ),
    ),
    Topic(
        "name",
        "Country name and former name",
        (
            ("Conventional long form", (*_NAME, "conventional long form")),
            ("Conventional short form", (*_NAME, "conventional short form")),
            ("former name", (*_NAME, "former")),
            ("local short form", (*_NAME, "local short form")),
        ),
        (
            ("local long form", (*_NAME, "local long form")),
            ("Country name: note", (*_NAME, "note")),
            ("Government type", (_GOV, "Government type")),
        ),
    ),
    Topic(
        "currency",
        "Currency and exchange rates",
        (("Currency", (_ECO, "Exchange rates")),),
        (
            ("Inflation rate (consumer prices)", (_ECO, "Inflation rate (consumer prices)")),
            ("Fiscal year", (_ECO, "Fiscal year")),
            ("Commercial bank prime lending rate", (_ECO, "Commercial bank prime lending rate")),
        ),
    ),
    Topic(
        "elevation",
        "Highest point and lowest point",
        (
            ("Highest point", (_GEO, "Elevation extremes", "highest point")),
            ("Lowest point", (_GEO, "Elevation extremes", "lowest point")),
        ),
        (
            ("Terrain", (_GEO, "Terrain")),
            ("Location", (_GEO, "Location")),
            ("Natural hazards", (_GEO, "Natural hazards")),
        ),
    ),
    Topic(
        "anthem",
        "National anthem",
        (
            ("National anthem", (_GOV, "National anthem", "name")),
            ("by (lyrics/music)", (_GOV, "National anthem", "lyrics/music")),
        ),
        (("note", (_GOV, "National anthem", "note")),),
    ),
    Topic(
        "symbol",
        "National symbol and flag",
        (("National symbol", (_GOV, "National symbol(s)")),),
        (("Flag description", (_GOV, "Flag description")),),
    ),
    Topic(
        "codes",
        "Internet country code and telephone country code",
        (
            ("Internet country code", (_COMM := "Communications", "Internet country code")),
            ("Telephone system: international", (_COMM, "Telephone system", "international")),
        ),
        (
            ("Internet users", (_COMM, "Internet users", "total")),
            ("Telephone system: general assessment", (_COMM, "Telephone system", "general assessment")),
        ),
    ),
    Topic(
        "borders",
        "Land boundaries and border countries",
        (
            ("Border countries", (_GEO, "Land boundaries", "border countries")),
            ("Land boundaries: total", (_GEO, "Land boundaries", "total")),
        ),
        (
            ("Location", (_GEO, "Location")),
            ("Coastline", (_GEO, "Coastline")),
            ("Geography - note", (_GEO, "Geography - note")),
        ),
    ),
    Topic(
        "exports",
        "Export partners",
        (("Exports - partners", (_ECO, "Exports - partners")),),
        (
            ("Exports - commodities", (_ECO, "Exports - commodities")),
            ("Exports", (_ECO, "Exports")),
        ),
    ),
    Topic(
        "imports",
        "Import partners",
        (("Imports - partners", (_ECO, "Imports - partners")),),
        (
            ("Imports - commodities", (_ECO, "Imports - commodities")),
            ("Imports", (_ECO, "Imports")),
        ),
    ),
    Topic(
        "chief",
        "Chief of state",
        (("Chief of state", (*_EXEC, "chief of state")),),
        (
            ("Elections and appointments", (*_EXEC, "elections/appointments")),
            ("Election results", (*_EXEC, "election results")),
        ),
    ),
    Topic(
        "head",
        "Head of government",
        (("Head of government", (*_EXEC, "head of government")),),
        (
            ("Cabinet", (*_EXEC, "cabinet")),
            ("Legislative branch", (_GOV, "Legislative branch", "description")),
        ),
    ),
    Topic(
        "independence",
        "Independence and national holiday",
        (
            ("Independence", (_GOV, "Independence")),
            ("National holiday", (_GOV, "National holiday")),
        ),
        (
            ("Constitution", (_GOV, "Constitution")),
            ("Legal system", (_GOV, "Legal system")),
            ("Suffrage", (_GOV, "Suffrage")),
        ),
    ),
    Topic(
        "population",
        "Population and area",
        (
            ("Population", (_PEOPLE, "Population")),
            ("Area: total", (_GEO, "Area", "total")),
            ("Median age: total", (_PEOPLE, "Median age", "total")),
            ("Life expectancy at birth: total population", (_PEOPLE, "Life expectancy at birth", "total population")),
        ),
        (
            ("Area - comparative", (_GEO, "Area - comparative")),
            ("Population growth rate", (_PEOPLE, "Population growth rate")),
            ("Urban population", (_PEOPLE, "Urbanization", "urban population")),
        ),
    ),
    Topic(
        "languages",
        "Nationality and languages",
        (
            ("Nationality adjective", (_PEOPLE, "Nationality", "adjective")),
            ("Languages", (_PEOPLE, "Languages")),
        ),
        (
            ("Ethnic groups", (_PEOPLE, "Ethnic groups")),
            ("Religions", (_PEOPLE, "Religions")),
        ),
    ),
)

COUNTRIES_ONLY = frozenset({"name", "anthem", "symbol", "independence", "chief", "exports", "imports"})
"""Topics in which a dependency mostly repeats its mother country, and would be found for it."""

STORY_TOPICS: tuple[Topic, ...] = (
    Topic("background", "Background", (("Background", ("Introduction", "Background")),)),
    Topic("economy", "Economy overview", (("Economy - overview", (_ECO, "Economy - overview")),)),
    Topic(
        "climate",
        "Climate and natural resources",
        (
            ("Climate", (_GEO, "Climate")),
            ("Natural resources", (_GEO, "Natural resources")),
            ("Environment - current issues", (_GEO, "Environment - current issues")),
            ("Agriculture - products", (_ECO, "Agriculture - products")),
            ("Industries", (_ECO, "Industries")),
        ),
    ),
)
