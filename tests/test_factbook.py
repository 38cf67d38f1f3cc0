"""The built-in world: the committed files, and the cleaning that made them."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from scripts.factbook import values
from scripts.factbook.__main__ import build
from scripts.factbook.checks import holds, normalize, pair, question_faults, set_faults
from scripts.factbook.files import read_world
from scripts.factbook.passages import cut
from scripts.factbook.profiles import FactbookError, Profile, clean, load_profiles
from scripts.factbook.questions import HELD_OUT_PAIRS
from scripts.factbook.splits import DEV, TEST
from scripts.factbook.world import build_world

DATA = Path(__file__).parents[1] / "data" / "factbook"
PACKAGE = Path(os.environ.get("FACTBOOK_PACKAGE", "/tmp/npm/package"))
STEP_FIELDS = {"id", "ask", "relation", "subject", "answer", "answers", "passage_id", "fact"}
AREA_UNITS = ("square kilometers", "square kilometres", "km²", "km2")
META_FIELDS = {"shape", "hops", "relations", "supporting_ids", "countries", "steps", "held_out_pair"}


@pytest.fixture(scope="module")
def world():
    return read_world(DATA)


@pytest.fixture(scope="module")
def splits(world):
    return world[1]


def test_corpus_is_in_search_r1_schema(world):
    passages, _ = world
    assert len(passages) >= 1500
    for passage_id, contents in passages.items():
        title, text = contents.split("\n")
        country = title.strip('"').split(": ")[0]
        assert title == f'"{title[1:-1]}"' and ": " in title, passage_id
        assert text.startswith(f"{country} - "), passage_id
        assert 3 <= len(text.split()) <= 120 and "<" not in text and "&" not in text.replace(" & ", ""), passage_id


def test_rows_are_in_flashrag_schema(splits):
    for rows in splits.values():
        for row in rows:
            assert set(row) == {"id", "question", "golden_answers", "metadata"}
            assert set(row["metadata"]) == META_FIELDS
            assert all(set(step) == STEP_FIELDS for step in row["metadata"]["steps"])


def test_every_question_is_without_faults(world):
    passages, splits = world
    faults = [
        (row["id"], fault) for rows in splits.values() for row in rows for fault in question_faults(row, passages)
    ]
    assert faults == []


def test_splits_share_neither_countries_nor_held_out_pairs(splits):
    assert set_faults(splits) == []
    trained = {pair(row) for row in splits["train"]}
    assert not trained & HELD_OUT_PAIRS
    tested = {pair(row) for row in splits["test"] if row["metadata"]["held_out_pair"]}
    assert len(tested) >= 10 and tested <= HELD_OUT_PAIRS


def test_sizes(splits):
    kinds = {
        split: Counter((row["metadata"]["shape"], row["metadata"]["hops"]) for row in rows)
        for split, rows in splits.items()
    }
    assert len(splits["train"]) >= 3000 and len(splits["dev"]) >= 500
    assert [kinds["train"]["chain", hops] >= n for hops, n in ((2, 1200), (3, 800), (4, 400))] == [True] * 3
    assert [kinds["test"]["chain", hops] >= n for hops, n in ((2, 400), (3, 320), (4, 320))] == [True] * 3
    assert kinds["test"]["comparison", 4] >= 100
    assert kinds["test"]["intersection", 2] + kinds["test"]["intersection", 3] >= 100
    assert sum(path.stat().st_size for path in DATA.iterdir()) <= 5_000_000


@pytest.mark.parametrize("split", ["train", "test"])
def test_no_country_and_no_answer_dominates(splits, split):
    rows = splits[split]
    ends = Counter(row["metadata"]["countries"][-1] for row in rows)
    golds = Counter(normalize(row["golden_answers"][0]) for row in rows)
    assert ends.most_common(1)[0][1] <= 0.06 * len(rows)
    assert golds.most_common(1)[0][1] <= 0.03 * len(rows)


def test_the_question_of_the_readme_stands_in_test(splits):
    row = next(row for row in splits["test"] if "Vientiane" in row["question"])
    assert row["question"] == "What is the currency of the country whose capital is Vientiane?"
    assert row["golden_answers"][0] == "kip"
    assert {"Lao kip", "kips", "LAK"} <= set(row["golden_answers"])


@pytest.mark.skipif(not PACKAGE.is_dir(), reason=f"no npm package at {PACKAGE}; set FACTBOOK_PACKAGE")
def test_a_rebuild_is_identical(tmp_path):
    build(PACKAGE, tmp_path)
    for path in sorted(tmp_path.iterdir()):
        assert path.read_bytes() == (DATA / path.name).read_bytes(), path.name


def test_a_fault_of_each_kind_is_found(world):
    passages, splits = world
    good = splits["test"][0]

    def faults(**changes):
        row = json.loads(json.dumps(good))
        for key, value in changes.items():
            (row if key in row else row["metadata"])[key] = value
        return " ".join(question_faults(row, passages))

    assert faults() == ""
    assert "normalizes to nothing" in faults(golden_answers=["The"])
    assert "holds its gold" in faults(golden_answers=["Vientiane"])
    assert "names the bridge" in faults(question=good["question"] + " It is Laos.")
    assert "shape" in faults(shape="circle")
    assert "disagree" in faults(hops=3)
    assert "supporting ids" in faults(supporting_ids=["la-capital-0"])
    assert "first subject" in faults(question="What is the currency of the country whose capital is Hanoi?")
    wrong = [{**good["metadata"]["steps"][0], "answer": "Laos", "answers": ["Laos"], "passage_id": "gm-capital-0"}]
    assert "does not stand" in faults(steps=wrong + good["metadata"]["steps"][1:])
    assert "does not answer" in faults(golden_answers=["baht"])


def test_an_ambiguous_inverse_and_a_shared_country_are_found(splits):
    row = json.loads(json.dumps(splits["test"][0]))
    row["metadata"]["steps"][0]["answer"] = "Elsewhere"
    assert any("leads to" in fault for fault in set_faults({"test": [splits["test"][0], row]}))
    assert any("is to be found in" in fault for fault in set_faults({"train": [row], "test": [row]}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Vientiane (Viangchan)", ("Vientiane", "Viangchan")),
        ("Suva (on Viti Levu)", ("Suva",)),
        ("Yaounde", ("Yaounde", "Yaoundé")),
        ("Pretoria (administrative capital); Cape Town (legislative capital)", None),
        ("Amsterdam; note - The Hague is the seat of government", None),
    ],
)
def test_capital(text, expected):
    assert values.capital(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mont Blanc 4,807 m; note - situated on the border", ("Mont Blanc", "Mount Blanc")),
        ("Denali (Mount McKinley) 6,190 m (highest point in North America)", ("Denali", "Mount McKinley")),
        ("Noshak 7,485 m", ("Noshak",)),
        ("Monts Nimba 1,752 m", ("Monts Nimba", "Mont Nimba", "Mount Nimba")),
        ("Turpan Pendi -154 m", ("Turpan Pendi",)),
        ("K2 (Mt. Godwin-Austen) 8,611 m", ("K2", "Mt. Godwin-Austen")),
        ("unnamed elevation 306 m", None),
        ("Pico de Teide (Tenerife) on Canary Islands 3,718 m", None),
        ("junction of Rio Paraguay and Rio Parana 46 m", None),
        ("NA", None),
    ],
)
def test_elevation_point(text, expected):
    assert values.elevation_point(text) == expected


@pytest.mark.parametrize(
    ("text", "adjectives", "expected"),
    [
        ("kips (LAK) per US dollar; 8,052", ("Lao", "Laotian"), ("kip", "Lao kip", "Laotian kip", "kips", "LAK")),
        ("euros (EUR) per US dollar; 0.75", ("French",), ("euro", "the euro", "euros", "EUR")),
        ("leva (BGN) per US dollar", (), ("lev", "leva", "BGN")),
        ("Belarusian rubles (BYB/BYR) per US dollar", (), ("Belarusian ruble", "Belarusian rubles", "BYB")),
        ("baht per US dollar; 32.484", ("Thai",), ("baht", "Thai baht")),
        ("Tuvaluan dollars or Australian dollars (AUD) per US dollar", (), None),
        ("see entry for West Bank", (), None),
    ],
)
def test_currency(text, adjectives, expected):
    assert values.currency(text, adjectives) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("President Emmanuel MACRON (since 14 May 2017)", ("Emmanuel Macron", "Macron")),
        ("President XI Jinping (since 14 March 2013); Vice President LI Yuanchao", ("Xi Jinping",)),
        ("King LETSIE III (since 7 February 1996)", ("Letsie III", "King Letsie III")),
        ("Queen of Australia ELIZABETH II (since 6 February 1952)", ("Elizabeth II", "Queen Elizabeth II")),
        (
            "President Umar Hassan Ahmad al-BASHIR (since 1993)",
            ("Umar Hassan Ahmad al-Bashir", "Umar al-Bashir", "al-Bashir"),
        ),
        ("President Maj. Gen. (ret.) Muhammadu BUHARI (since 29 May 2015)", ("Muhammadu Buhari", "Buhari")),
        ("Taoiseach (Prime Minister) Enda KENNY (since 9 March 2011)", ("Enda Kenny", "Kenny")),
        (
            "Prime Minister Peter Paire O'NEILL (since 2 August 2011)",
            ("Peter Paire O'Neill", "Peter O'Neill", "O'Neill"),
        ),
        (
            "President Ashraf GHANI Ahmadzai (since 29 September 2014)",
            ("Ashraf Ghani Ahmadzai", "Ashraf Ghani", "Ghani"),
        ),
        ("President Seretse Khama Ian KHAMA (since 1 April 2008)", ("Seretse Khama Ian Khama", "Khama")),
        ("President Tony TAN Keng Yam (since 1 September 2011)", ("Tony Tan Keng Yam", "Tony Tan")),
        ("President Maj.Gen. (ret.) Muhammadu BUHARI (since 29 May 2015)", ("Muhammadu Buhari", "Buhari")),
        ("Prime Minister Lt. Col. Yacouba ZIDA (since 19 November 2014)", ("Yacouba Zida", "Zida")),
        ("Interim Prime Gheorghe BREGA (since 30 October 2015)", ("Gheorghe Brega", "Brega")),
        ("President Idriss DEBY Itno, Lt. Gen. (since 4 December 1990)", None),
        ("President (vacant); note - term expired on 25 May 2014", None),
        ("Captain Regent Lorella STEFANELLI and Captain Regent Nicola RENZI (since 2015)", None),
    ],
)
def test_person(text, expected):
    assert values.person(text) == expected


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (values.anthem, '"Pheng Xat Lao" (Hymn of the Lao People)', ("Pheng Xat Lao", "Hymn of the Lao People")),
        (values.anthem, '"Milli Surood" (National Anthem)', ("Milli Surood",)),
        (values.anthem, '"Kalibusiswe" [Ndebele] "Simudzai" [Shona]', None),
        (values.independence, "19 July 1949 (from France)", ("19 July 1949", "July 19, 1949")),
        (values.independence, "4 May 1990 (declared); 6 September 1991 (recognized)", None),
        (values.holiday, "Republic Day, 2 December (1975)", (("Republic Day",), ("2 December", "December 2"))),
        (values.holiday, "Independence Day, 12 December (1963); Madaraka Day, 1 June (1963)", None),
        (values.symbol, "elephant; national colors: red, white, blue", ("elephant",)),
        (values.symbol, "thunder dragon known as Druk Gyalpo; national colors: x", ("thunder dragon", "Druk Gyalpo")),
        (values.symbol, "a 24-rayed star; national colors: blue", ("24-rayed star",)),
        (values.symbol, "llama, Andean condor; national colors: red", None),
        (values.official_language, "Lao (official), French", ("Lao",)),
        (values.official_language, "French (official), Arabic (official)", None),
        (values.internet_code, ".la", (".la", "la")),
        (values.internet_code, ".ps; note - same as Gaza Strip", None),
        (values.calling_code, "country code - 856; satellite earth station - 1", ("856", "+856")),
        (values.calling_code, "country code - 1-684; satellite", None),
        (values.count, "6,911,544 (July 2015 est.)", ("6,911,544",)),
        (values.area, "1.284 million sq km", None),
        (
            values.area,
            "18,274 sq km",
            ("18,274 sq km", "18,274", *(f"18,274 {unit}" for unit in AREA_UNITS)),
        ),
        (values.former_name, "Dahomey", ("Dahomey",)),
        (values.former_name, "Serendib, Ceylon", None),
        (values.adjectives, "Lao or Laotian", ("Lao", "Laotian")),
        (values.nationality, "Lao or Laotian", ("Lao", "Laotian", "Lao or Laotian")),
        (values.nationality, "French", ("French",)),
        (values.adjectives, "Motswana (singular), Batswana (plural)", None),
    ],
)
def test_small_values(read, text, expected):
    assert read(text) == expected


def test_borders_add_up_stretches_with_one_country():
    text = "China (southeast) 4,133 km, China (south) 46 km, North Korea 18 km"
    assert values.borders(text) == [("China", 4179.0), ("North Korea", 18.0)]


def test_borders_that_do_not_add_up_are_no_facts():
    def country(code, total, borders):
        lengths = {"total": {"text": total}, "border countries": {"text": borders}}
        fields = {"Government": {"Capital": {"name": {"text": "x"}}}, "Geography": {"Land boundaries": lengths}}
        return Profile(code, code.upper(), (), "x", fields)

    pair_of = [country("xa", "30 km", "XB 10 km, XC 20 km"), country("xb", "10 km", "XA 10 km")]
    world = build_world([*pair_of, country("xc", "99 km", "XA 20 km")])
    assert world.links["longest_border"] == {"xa": "xc"}
    assert world.links["only_neighbor"] == {"xb": "xa"}
    assert world.neighbors == {"xa": ("xb", "xc"), "xb": ("xa",), "xc": ()}


def test_every_country_has_one_split():
    assert not TEST & DEV and len(TEST) == 60 and len(DEV) == 25


def test_shares_keep_their_order():
    assert values.shares("China 34.2%, US 9% (2014)") == [("China", 34.2), ("US", 9.0)]


def test_clean_removes_markup():
    assert clean(" ++ <b>a</b> &amp;amp; b - ++ c  d ++ ") == "a & b; c d"


def test_cut_ends_at_a_sentence_or_says_that_it_does_not():
    assert cut("One two. Three four five six", 4) == "One two"
    assert cut("one two three four five", 3) == "one two three ..."


def test_normalization_is_squads():
    assert normalize("The  Côte d'Ivoire, a U.S. ally") == "côte divoire us ally"
    assert holds("exports to the US 5%", "US") and not holds("Austria", "US")


def test_a_profile_knows_its_name_and_rank():
    fields = {"Government": {"Capital": {"name": {"text": "Banjul"}}}}
    gambia = Profile("ga", "Gambia", (), "africa", fields)
    assert gambia.in_text == "the Gambia" and gambia.is_country
    ruled = Profile("aa", "Aruba", (), "x", {"Government": {**fields["Government"], "Dependency status": {}}})
    assert not ruled.is_country and ruled.text("Government", "Capital", "name") == "Banjul"


def test_bad_input_is_named_in_one_line(tmp_path):
    with pytest.raises(FactbookError, match="no such folder"):
        load_profiles(tmp_path / "nowhere")
    with pytest.raises(FactbookError, match="0 profiles, not the 261"):
        load_profiles(tmp_path)
    with pytest.raises(FactbookError, match="run python -m"):
        read_world(tmp_path)
