"""Turns field texts into short values; None where a text holds no single clear one.

Every function takes a cleaned text and returns the value with its aliases, canonical first.
"""

import re

from .names import ACCENTED

Values = tuple[str, ...]

_TITLES = (
    "president of the islamic republic of afghanistan|president of the government or prime minister|"
    "president of the council of state and president of the council of ministers|"
    "president of the swiss confederation|president of the government|president of the republic|"
    "head of government \\(or cap de govern\\)|taoiseach \\(prime minister\\)|"
    "executive president|interim president|acting president|transitional president|"
    "interim prime minister|interim prime|acting prime minister|sultan and prime minister|"
    "king and prime minister|prime minister vice president|chairman of the council of ministers|"
    "state president|federal president|president|prime minister|premier|chancellor|king|queen|"
    "emperor|sultan|amir|emir|grand duke|prince|pope|minister of state|secretary of state|"
    "archbishop|cardinal|chief executive|chief minister|captain regent|governor|sheikh|shaykh|"
    "sir|dame|dr\\.|ratu|lt\\. gen\\.|lt\\. col\\.|maj\\. ?gen\\.|brig\\. gen\\.|gen\\.|col\\.|field marshal|"
    "cdre\\.|\\(ret\\.?\\)|marshal|the right honourable"
)
_TITLE = re.compile(rf"^(?:{_TITLES})\s+", re.IGNORECASE)
_ROMAN = re.compile(r"[IVX]+")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"(\d{{1,2}}) ({_MONTHS})(?: (\d{{4}}))?")
_PLURALS = {
    "kroner": "krone",
    "kronor": "krona",
    "kronur": "krona",
    "koruny": "koruna",
    "leva": "lev",
    "lei": "leu",
    "leke": "lek",
    "zlotych": "zloty",
    "emalangeni": "lilangeni",
    "maloti": "loti",
    "meticais": "metical",
    "quetzales": "quetzal",
    "colones": "colon",
    "reals": "real",
    "cedis": "cedi",
    "leones": "leone",
    "markas": "marka",
}
_CURRENCIES: dict[str, Values] = {
    # The passage's own words come first: a reader can copy them.
    "Communaute Financiere Africaine franc": (
        "Communaute Financiere Africaine franc",
        "West African CFA franc",
        "CFA franc",
        "West African CFA francs",
        "CFA francs",
    ),
    "Cooperation Financiere en Afrique Centrale franc": (
        "Cooperation Financiere en Afrique Centrale franc",
        "Central African CFA franc",
        "CFA franc",
        "Central African CFA francs",
        "CFA francs",
    ),
    "Renminbi yuan": ("yuan", "renminbi", "Chinese yuan"),
    "NZ dollar": ("New Zealand dollar",),
    "British pound": ("British pound", "pound sterling", "pound", "sterling"),
    "euro": ("euro", "the euro"),
    "new Israeli shekel": ("new Israeli shekel", "Israeli shekel", "shekel", "new shekel"),
    "konvertibilna marka": ("konvertibilna marka", "convertible mark"),
    "togrog/tugrik": ("togrog", "tugrik"),
}


def with_accents(values: Values) -> Values:
    """Adds the accented spelling after each value that has one."""
    spelled = [form for value in values for form in (value, ACCENTED.get(value))]
    return tuple(dict.fromkeys(form for form in spelled if form))


def capital(text: str) -> Values | None:
    """The capital where there is one and only one, as in "Vientiane (Viangchan)"."""
    if re.search(r"capital|seat of|administrative|legislative|judicial", text):
        return None
    return _name(text.split(";")[0])


def elevation_point(text: str) -> Values | None:
    """The name in "Mont Blanc 4,807 m", also as "Mount Blanc"; None for unnamed places and descriptions."""
    name = re.split(r"\s-?\d[\d,.]* m\b", text)[0]
    if name == text or not name[0].isupper() or re.search(r"\b(on|in|near|at|and|of the)\b", name):
        return None
    if re.search(r"\b(unnamed|location|sea level)\b", name):
        return None
    forms = _name(name)
    mount = re.fullmatch(r"Monts? (.+)", forms[0]) if forms else None
    if forms and mount:
        forms += (f"Mont {mount.group(1)}", f"Mount {mount.group(1)}")
    return tuple(dict.fromkeys(forms)) if forms else None


def anthem(text: str) -> Values | None:
    """The one quoted title with its translation: "Pheng Xat Lao" (Hymn of the Lao People)."""
    match = re.fullmatch(r'"([^"]+?)[,"]*"*\s*(?:\(([^()]+)\))?(?:;.*)?', text)
    if match is None or re.search(r"\bofficial\b|territory|local", text):
        return None
    title, translation = match.group(1), (match.group(2) or "").strip('" ').replace('"s ', "'s ")
    if re.search(r"also|;|known", translation) or translation.lower() == "national anthem":
        translation = ""
    return (title, translation) if translation else (title,)


def currency(text: str, adjectives: Values = ()) -> Values | None:
    """The currency in the singular: "kips (LAK) per US dollar" is kip, Lao kip, kips, LAK."""
    if re.match(r"the US dollar (is used$|became)", text):
        return ("US dollar", "United States dollar", "American dollar", "dollar", "USD")
    match = re.match(r"(.+?)\s*(?:\(([A-Z]{2,3})[^)]*\))? per US dollar", text)
    if match is None or " or " in match.group(1):
        return None
    plural, code = match.group(1), match.group(2)
    words = plural.split()
    last = words[-1]
    words[-1] = _PLURALS.get(last, last[:-1] if last.endswith("s") and last != "soms" else last)
    if last == "soms":
        words[-1] = "som"
    singular = " ".join(words)
    values = [*_CURRENCIES.get(singular, (singular,))]
    if len(words) == 1 and "euro" not in values:
        values += [f"{adjective} {singular}" for adjective in adjectives]
    values += [plural, *([code] if code else [])]
    return tuple(dict.fromkeys(values))


def person(text: str) -> Values | None:
    """The first office holder: "President Emmanuel MACRON (since ...)" is Emmanuel Macron, Macron.

    "Juan Manuel SANTOS Calderon" is Juan Manuel Santos and Juan Santos too.
    """
    match = re.match(r"([^(;,]+?(?:\((?:ret\.?|Prime Minister|or Cap de Govern)\)[^(;,]+?)?) \(since", text, re.I)
    if match is None or re.search(r"\band [A-Z]", match.group(1).replace("and Prime", "")):
        return None
    name = match.group(1)
    regal = bool(re.match(r"(king|queen|emperor|sultan|amir|emir|grand duke|prince) ", name, re.I))
    title = name.split()[0]
    while _TITLE.match(name):
        name = _TITLE.sub("", name)
    name = re.sub(r'^of [A-Z]\w+ |"[^"]*" | of the Netherlands$', "", name)
    words = name.split()
    shouted = [word for word in words if _is_shouted(word)]
    if not shouted or len(words) > 5 or not words[0][0].isalpha() or "Co-prince" in words:
        return None
    full = " ".join(_calm(word, first=not place) for place, word in enumerate(words))
    surname = " ".join(_calm(word) for word in shouted)
    values = [full]
    if regal and not title.lower().startswith("prince"):
        values.append(f"{'Grand Duke' if title == 'Grand' else title} {full}")
    given = words[: words.index(shouted[0])]
    if given:
        last = max(place for place, word in enumerate(words) if word in shouted)
        values.append(" ".join([*given, *(_calm(word) for word in words[len(given) : last + 1])]))
    # No short form that names someone else: "Seretse Khama Ian KHAMA" is not his father Seretse Khama.
    if given and not regal and surname not in given:
        values.append(f"{given[0]} {surname}")
    if len(surname) > 3 and surname != full and not _ROMAN.fullmatch(shouted[-1]):
        values.append(surname)
    return tuple(dict.fromkeys(values))


def date(text: str) -> Values | None:
    """A day with or without a year, and its American order: "19 July 1949", "July 19, 1949"."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    day, month, year = match.groups()
    return (text, f"{month} {day}, {year}") if year else (text, f"{month} {day}")


def independence(text: str) -> Values | None:
    """The date in "19 July 1949 (from France)"; None where several dates or doubts follow."""
    match = re.fullmatch(rf"(\d{{1,2}} (?:{_MONTHS}) \d{{4}}) \(from [^()]*\)", text)
    return date(match.group(1)) if match else None


def holiday(text: str) -> tuple[Values, Values] | None:
    """Name and day of the one national holiday: "Republic Day, 2 December (1975)"."""
    match = re.fullmatch(rf"([A-Z][^,;()]+?)(?: \([^()]*\))?, (\d{{1,2}} (?:{_MONTHS})) \(\d{{4}}\)", text)
    day = date(match.group(2)) if match else None
    return ((match.group(1),), day) if match and day else None


def symbol(text: str) -> Values | None:
    """The national symbol where there is one: "elephant; national colors: ..." is elephant."""
    first = re.sub(r"\s*\([^()]*\)", "", text.split(";")[0]).strip()
    known_as = first.split(" known as ")
    if not first or "," in first or "national color" in first or len(known_as[0].split()) > 4:
        return None
    if re.search(r"\b(no|and|field|with|England|defined)\b", first):
        return None
    return tuple(re.sub(r"^(the|an?) ", "", part) for part in known_as)


def official_language(text: str) -> Values | None:
    """The one language marked official: "Lao (official), French" is Lao."""
    text = re.split(r"; note|;", text)[0]
    if len(re.findall("official", text)) != 1:
        return None
    match = re.search(r"(?:^|, )([A-Z][A-Za-z]+(?: [A-Z][a-z]+)?)(?: [\d.]+%)? \(official\)", text)
    return (match.group(1),) if match else None


def adjectives(text: str) -> Values | None:
    """Each form in "Lao or Laotian"."""
    forms = tuple(form.strip() for form in re.split(r" or |, ", text))
    clear = all(re.fullmatch(r"[A-Z][A-Za-z\-]+(?: [A-Z][A-Za-z\-]+)*", form) for form in forms)
    return forms if text and clear else None


def nationality(text: str) -> Values | None:
    """Each form in "Lao or Laotian", and the text as it stands."""
    forms = adjectives(text)
    return tuple(dict.fromkeys((*forms, text))) if forms else None


def internet_code(text: str) -> Values | None:
    """The top-level domain: ".la", "la"."""
    match = re.match(r"(\.[a-z]{2})(?:; note - (?!same|.*assigned \.).*)?$", text)
    return (match.group(1), match.group(1)[1:]) if match else None


def calling_code(text: str) -> Values | None:
    """The international dialling code in "country code - 856; ...": "856", "+856"."""
    match = re.match(r"country code - (\d{1,3})(?=;|$| \()", text)
    return (match.group(1), f"+{match.group(1)}") if match else None


def count(text: str) -> Values | None:
    """The number of people in "6,911,544 (July 2015 est.)"."""
    match = re.match(r"(\d[\d,]*\d)(?=$| \()", text)
    return (match.group(1),) if match else None


def area(text: str) -> Values | None:
    """ "236,800 sq km", with the unit's other spellings and without it."""
    match = re.match(r"((\d[\d,.]*) sq km)(?=$|;| \()", text)
    if match is None:
        return None
    units = ("square kilometers", "square kilometres", "km²", "km2")
    return (match.group(1), match.group(2), *(f"{match.group(2)} {unit}" for unit in units))


def former_name(text: str) -> Values | None:
    """A single earlier name: "Dahomey"."""
    return (text,) if re.fullmatch(r"[A-Z][A-Za-z'\- ]+", text) and len(text.split()) < 5 else None


def shares(text: str) -> list[tuple[str, float]]:
    """Partners with percentages, in order: "China 34.2%, Thailand 27.4% (2014)"."""
    return [(name.strip(), float(share)) for name, share in re.findall(r"([A-Z][^,%;]*?) ([\d.]+)%", text)]


def borders(text: str) -> list[tuple[str, float]]:
    """Neighbors with border lengths in km, in order, several stretches with one country added up."""
    if re.search(r"metropolitan| - ", text):
        return []
    text = re.sub(r"\([^()]*\)", "", text)
    lengths: dict[str, float] = {}
    for name, length in re.findall(r"([A-Z][A-Za-z'\-. ]*?)\s+(\d[\d,.]*) km", text):
        lengths[name] = lengths.get(name, 0.0) + float(length.replace(",", ""))
    return list(lengths.items())


def _name(text: str) -> Values | None:
    """A proper name with the other forms it gives: "A (B)", "A/B"."""
    match = re.fullmatch(r"([^()]+?)\s*(?:\(([^()]*)\))?", text.strip())
    if match is None:
        return None
    forms = match.group(1).split("/")
    other = match.group(2) or ""
    if re.fullmatch(r"[A-Z][\w'\-.]*(?: (?:[A-Z][\w'\-.]*|e|i|de|da|of))*", other):
        forms.append(other)
    elif other and not re.match(r"on|located|highest|lowest|alternatively|also", other):
        return None
    return with_accents(tuple(form.strip() for form in forms))


def _is_shouted(word: str) -> bool:
    letters = re.sub(r"^(al|el|ad|as|ar)-|[^A-Za-z]", "", word)
    return (len(letters) > 1 and letters.isupper()) or bool(re.match(r"[A-Z]{3,}-", word))


def _calm(word: str, first: bool = False) -> str:
    if (_ROMAN.fullmatch(word) and not first) or not _is_shouted(word):
        return word
    if word in ("BIN", "BINT") and not first:
        return word.lower()
    return re.sub(r"[A-Z]{2,}", lambda run: run.group().capitalize(), word)
