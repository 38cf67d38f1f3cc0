"""The inspector as an HTML file, in Chromium: keys, views, search, permalinks, hostile text, accessibility."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from memsearcher.inspect.collection import Collection
from memsearcher.inspect.export import write_page
from memsearcher.inspect.view import first_divergence
from memsearcher.inspect.widget import SCRIPT
from memsearcher.trajectory import Passage, Task
from tests.browser import chromium, screenshot, tab, until
from tests.traces import CAPITAL, GOOD_TURNS, attempt, stories, turn

HOSTILE = (
    "</script><script>window.harmed = 1</script><img src=https://example.org/x.png onerror='window.harmed = 1'>"
    "<style>*{display:none}</style>\u202egnp.exe\u2066 \x00\x1b[31m \ud800 ]]> <!-- \u2028 end"
)
SEEN = (
    HOSTILE.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066").replace("\x00", "\\x00").replace("\x1b", "\\x1b")
)
SEEN = SEEN.replace("\ud800", "\\ud800").replace("\u2028", "\\u2028")


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def collection():
    return Collection(stories())


@pytest.fixture(scope="module")
def address(collection, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "traces.html"
    write_page(path, collection)
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    with tab(browser) as opened:
        opened.goto(address)
        opened.wait_for_selector(".ms-header")
        yield opened
        assert opened.faults == []


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def turn_of(page):
    return int(page.get_attribute(".ms-strip input", "aria-valuetext").split()[1])


def chosen(page):
    return int(page.get_attribute('[role="option"][aria-selected="true"]', "data-place"))


def listed(page):
    return [int(each.get_attribute("data-place")) for each in page.query_selector_all('[role="option"]')]


def hash_of(page):
    return page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def part(page, label):
    return page.locator(".ms-part", has=page.locator("h3", has_text=re.compile(f"^{label}$"))).inner_text()


def test_arrows_change_the_turn_and_stop_at_the_ends(page):
    press(page, "ArrowLeft")
    assert turn_of(page) == 1
    press(page, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
    assert turn_of(page) == 3
    assert part(page, "answer").endswith("Accra ✓ right")
    press(page, "ArrowLeft")
    assert part(page, "search").endswith("capital of Ghana")


def test_the_slider_and_the_strip_change_the_turn(page):
    page.focus(".ms-strip input")
    press(page, "ArrowRight")
    assert turn_of(page) == 2
    press(page, "ArrowRight")
    assert turn_of(page) == 3
    page.click(".ms-column >> nth=0")
    assert turn_of(page) == 1
    press(page, "j")
    assert chosen(page) == 1


def test_j_and_k_change_the_trajectory(page):
    press(page, "j", "j", "k")
    assert chosen(page) == 1
    until(lambda: "Kumasi" in page.locator(".ms-about").inner_text())
    press(page, *"kkk")
    assert chosen(page) == 0


def test_the_list_is_a_listbox(page):
    page.focus('[role="listbox"]')
    press(page, "ArrowDown", "ArrowDown", "ArrowUp")
    assert chosen(page) == 1
    active = page.get_attribute('[role="listbox"]', "aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    page.click('[role="option"] >> nth=4')
    assert chosen(page) == 4


def test_the_memory_is_shown_as_a_difference_or_as_it_is(page):
    press(page, "j", "ArrowRight", "ArrowRight")
    page.wait_for_selector(".ms-edited")
    assert page.locator(".ms-edited del").all_inner_texts() == ["capital", "Accra", "export"]
    assert page.locator(".ms-edited ins").all_inner_texts() == ["largest city", "Kumasi", "trade"]
    assert page.locator(".ms-sign .ms-aside").all_text_contents() == ["edited", "edited"]
    assert "gold answer LOST" in part(page, "events")
    press(page, "d")
    assert page.locator(".ms-memory del, .ms-memory ins, .ms-sign").count() == 0
    assert page.locator(".ms-says").all_inner_texts()[0] == "The largest city of Ghana is Kumasi."


def test_the_strip_says_where_the_gold_answer_entered_and_was_lost(page):
    press(page, "j")
    page.wait_for_selector(".ms-column >> nth=3")
    names = [each.get_attribute("aria-label") for each in page.query_selector_all(".ms-column")]
    assert names[1:3] == [
        "turn 2: memory of 81 characters, gold answer found, gold answer entered",
        "turn 3: memory of 86 characters, gold answer LOST, memory cut",
    ]


def test_a_source_opens_its_passage(page):
    press(page, "ArrowRight")
    button = page.locator(".ms-from button", has_text="turn 1")
    button.click()
    assert page.locator(".ms-quote .ms-source").inner_text() == "Exports - partners of Cote d'Ivoire: Ghana"
    assert page.evaluate("document.activeElement.getAttribute('data-key')") == "source-0"
    page.click(".ms-quote button")
    assert turn_of(page) == 1


def test_raw_shows_what_the_model_saw(page):
    press(page, "r")
    parts = page.locator(".ms-segment .ms-origin b").all_inner_texts()
    assert parts == ["system", "question", "memory", "reply", "observation", "reply"]
    press(page, "Escape")
    assert page.locator(".ms-raw").count() == 0


def test_the_history_of_a_conversation_that_grows_is_folded(page):
    page.click('[role="option"] >> nth=7')
    press(page, "r", "ArrowRight")
    page.wait_for_selector(".ms-raw details")
    assert page.locator(".ms-raw details summary").inner_text() == "what earlier turns had: 3 segments"
    assert page.locator(".ms-raw > .ms-segment b").all_inner_texts() == ["observation", "reply"]


def test_tokens_beside_the_counterfactual_or_a_measured_run(page, collection):
    press(page, "t")
    heads = page.locator("thead th").all_inner_texts()
    assert heads[-2:] == ["total", "counterfactual ReAct"]
    rows = [each.split("\t") for each in page.locator("tbody tr").all_inner_texts()]
    expected = collection.view(0)["turns"]
    assert [[row[-2], row[-1]] for row in rows] == [
        [str(each["tokens"]["total"]), str(each["tokens"]["react"])] for each in expected
    ]
    page.select_option('[data-key="beside"]', label="measured: react #0")
    until(lambda: page.locator("thead th").last.inner_text() == "react #0")
    last = [each.split("\t")[-1] for each in page.locator("tbody tr").all_inner_texts()]
    assert last == [str(each["tokens"]["total"]) for each in collection.view(7)["turns"]]


def test_a_group_shows_rewards_advantages_and_what_is_missing(page):
    press(page, "g")
    rows = [each.split("\t") for each in page.locator("table >> nth=0").locator("tbody tr").all_inner_texts()]
    assert [row[2:4] for row in rows] == [["1.000", "+1.210"], ["0.000", "−0.570"], ["0.100", "−0.440"], ["–", "–"]]
    assert page.locator(".ms-panel").inner_text().startswith("4 attempts")
    assert page.locator("text=no gradient").count() == 0
    page.click('[role="option"] >> nth=4')
    page.wait_for_selector("text=no gradient")
    rows = [each.split("\t") for each in page.locator("tbody tr").all_inner_texts()]
    assert [row[2:4] for row in rows] == [["0.000", "+0.000"]] * 3


def test_two_trajectories_are_compared_turn_by_turn(page, collection):
    press(page, "c")
    page.wait_for_selector(".ms-compare")
    assert page.locator(".ms-name").all_inner_texts() == ["memsearcher #0", "react #0"]
    marked = page.locator(".ms-parts th").inner_text()
    assert marked.split() == [str(first_divergence(collection.view(0), collection.view(7))), "differs"]
    press(page, "r")
    assert (
        page.locator(".ms-written").all_inner_texts()[2].endswith("<search>export partners of Cote d'Ivoire</search>")
    )
    page.select_option(
        '[data-key="partner"]',
        label="memsearcher #2 · What is the capital of the main export partner of Cote d'Ivoire?",
    )
    until(lambda: page.locator(".ms-name").last.inner_text() == "memsearcher #2")
    assert page.locator(".ms-parts th").inner_text().split()[0] == "2"
    assert hash_of(page) == {"trajectory": "capital#0", "turn": "1", "view": "compare", "with": "capital#2"}


def test_a_group_row_leads_to_the_comparison(page):
    press(page, "g")
    page.click('[aria-label="compare with attempt 1 of memsearcher"]')
    page.wait_for_selector(".ms-compare")
    assert page.locator(".ms-name").all_inner_texts() == ["memsearcher #0", "memsearcher #1"]


@pytest.mark.parametrize("query", ["accra", "Niamey", "a detail", "EngineFailure"])
def test_a_search_counts_the_same_hits_as_python(page, collection, query):
    press(page, "/")
    page.keyboard.type(query)
    found = dict(collection.search(query))
    total = sum(sum(counts) for counts in found.values())
    until(lambda: page.locator(".ms-count").inner_text().startswith(f"{total} hit"))
    assert listed(page) == sorted(found)
    hits = [each.inner_text() for each in page.query_selector_all(".ms-line .ms-hits")]
    assert hits == [f"{sum(found[place])} hit{'s' if sum(found[place]) > 1 else ''}" for place in sorted(found)]


def test_hits_are_marked_and_lead_to_their_turn(page):
    press(page, "/")
    page.keyboard.type("largest city")
    until(lambda: page.locator(".ms-count").inner_text().startswith("4 hits"))
    press(page, "Enter", "j")
    page.wait_for_selector(".ms-hit")
    assert turn_of(page) == 3
    assert "largest city" in page.locator(".ms-hit").all_inner_texts()
    press(page, "/", "Escape")
    until(lambda: len(listed(page)) == 9)


def test_filters_and_order(page):
    page.click("summary")
    page.select_option('[name="agent"]', "memsearcher")
    assert listed(page) == [0, 1, 2, 3, 4, 5, 6]
    page.select_option('[name="event"]', label="gold answer LOST")
    assert listed(page) == [1]
    page.click("text=clear")
    page.fill('[name="rewardFrom"]', "0.05")
    assert listed(page) == [0, 2, 7]
    page.fill('[name="turnsFrom"]', "3")
    assert listed(page) == [0, 7]
    assert page.locator("summary").inner_text() == "Filters (2)"
    page.click("text=clear")
    page.select_option('[name="outcome"]', "failed")
    assert listed(page) == [3]
    page.click("text=clear")
    page.select_option('[name="sort"]', "reward")
    assert listed(page) == [1, 4, 5, 6, 2, 0, 7, 3, 8]
    page.click('[aria-label="falling order"]')
    assert listed(page)[:3] == [0, 7, 2]
    assert listed(page)[-2:] == [3, 8]


def test_the_address_leads_back(page, browser, address):
    press(page, "j", "ArrowRight", "ArrowRight", "g")
    assert hash_of(page) == {"trajectory": "capital#1", "turn": "3", "view": "group"}
    link = page.evaluate("location.href")
    with tab(browser) as other:
        other.goto(link)
        other.wait_for_selector(".ms-header")
        assert (chosen(other), other.get_attribute('[aria-selected="true"][role="tab"]', "data-key")) == (
            1,
            "tab-group",
        )
        other.evaluate("location.hash = '#trajectory=capital%232&turn=2'")
        other.wait_for_selector(".ms-strip")
        assert (chosen(other), turn_of(other)) == (2, 2)
        other.evaluate("location.hash = '#trajectory=nobody'")
        assert chosen(other) == 2


def test_help_lists_the_keys(page):
    press(page, "?")
    assert "trajectory before, after" in page.locator(".ms-help").inner_text()
    press(page, "Escape")
    assert page.locator(".ms-help").count() == 0


def test_tabs_follow_the_arrows(page):
    page.focus('[role="tab"][aria-selected="true"]')
    press(page, "ArrowRight", "ArrowRight")
    assert page.evaluate("document.activeElement.innerText") == "Group"
    press(page, "ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert page.evaluate("document.activeElement.innerText") == "Compare"


def test_every_control_can_be_reached_and_used_by_keys_alone(page):
    reached = set()
    name = "(e => e.getAttribute('data-key') ?? e.getAttribute('name') ?? e.getAttribute('role') ?? e.tagName)"
    for _ in range(30):
        press(page, "Tab")
        reached.add(page.evaluate(f"{name}(document.activeElement)"))
    assert {"search", "SUMMARY", "sort", "falling", "listbox", "tab-turn", "diff", "raw", "help", "slider"} <= reached
    page.focus('[data-key="raw"]')
    press(page, "Enter")
    assert page.locator(".ms-raw").count() == 1
    assert page.evaluate("document.activeElement.getAttribute('data-key')") == "raw"


def test_other_keys_and_modifiers_are_left_alone(page):
    press(page, "Control+d", "b", "Alt+j")
    assert chosen(page) == 0
    assert page.get_attribute('[data-key="diff"]', "aria-pressed") == "true"


def test_hostile_text_is_only_text(browser, tmp_path):
    task = Task(HOSTILE, HOSTILE, (HOSTILE, "Accra"))
    passages = [Passage(HOSTILE, HOSTILE, HOSTILE, 1.0, 1)]
    made = [turn(HOSTILE, passages, HOSTILE, HOSTILE, [HOSTILE]), turn("x", [], "A" * 100_000, "y" * 100_000)]
    hostile = attempt(made, HOSTILE, task=task, agent=HOSTILE)
    hostile.provenance = {HOSTILE: HOSTILE}
    path = tmp_path / "hostile.html"
    write_page(path, Collection([hostile], [hostile, attempt([], None, error=HOSTILE)]))
    with tab(browser) as page:
        page.goto(path.as_uri())
        page.wait_for_selector(".ms-header")
        for keys in (("ArrowRight",), ("r",), ("Escape", "t"), ("g",), ("c",), ("r",), ("?",)):
            press(page, *keys)
            page.wait_for_timeout(50)
        press(page, "Escape", "Escape", "ArrowLeft", "ArrowLeft")
        assert page.locator("h2").inner_text() == SEEN
        assert SEEN in part(page, "memory out")
        press(page, "/")
        page.keyboard.insert_text("onerror='window")
        page.wait_for_selector(".ms-hit")
        assert page.evaluate("window.harmed") is None
        assert page.locator("img").count() == 0
        assert page.faults == []


def test_a_memory_of_100_000_characters_can_be_read(browser, tmp_path):
    path = tmp_path / "long.html"
    write_page(path, Collection([attempt([turn("x", [], "word " * 20_000), *GOOD_TURNS], "Accra")]))
    with tab(browser) as page:
        page.goto(path.as_uri())
        page.wait_for_selector(".ms-says")
        assert page.locator(".ms-says").inner_text().count("word") == 20_000
        press(page, "ArrowRight")
        assert page.locator(".ms-dropped").count() == 1
        assert page.locator(".ms-long").first.get_attribute("tabindex") == "0"


def test_a_trajectory_without_turns_and_a_run_without_counts(browser, tmp_path):
    empty = attempt([], None, task=CAPITAL, error="EngineFailure: gone")
    uncounted = attempt(GOOD_TURNS, "Accra", sample=1)
    for talk in uncounted.conversations:
        for each in talk.segments:
            each.token_ids = None
    for each in uncounted.turns:
        each.calls.clear()
    path = tmp_path / "bare.html"
    write_page(path, Collection([empty, uncounted]))
    with tab(browser) as page:
        page.goto(path.as_uri())
        page.wait_for_selector("text=It failed before its first turn.")
        press(page, "t", "g", "c", "Escape", "j")
        page.wait_for_selector("text=The engine did not count its tokens.")
        press(page, "t")
        assert page.locator("tbody tr td").last.inner_text() == "–"
        press(page, "Escape", "r")
        page.wait_for_selector("text=No model call is on the record of this turn.")
        assert page.faults == []


def test_no_request_leaves_and_the_policy_forbids_it(page):
    press(page, *"jtgcr")
    assert [url for url in page.asked if not url.startswith("file:")] == []
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'left', () => 'forbidden')") == "forbidden"
    page.faults.clear()  # the browser reports the refusal


def test_the_script_never_makes_markup_of_text():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|</script", SCRIPT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible(browser, address, scheme):
    """No serious and no critical violation by axe-core; a screenshot of each view is kept."""
    views = {"turn": "jjk", "raw": "r", "tokens": "rt", "group": "g", "compare": "c", "compare-raw": "r", "help": "?"}
    with tab(browser, color_scheme=scheme) as page:
        page.goto(address)
        page.wait_for_selector(".ms-header")
        page.click("summary")
        for name, keys in views.items():
            press(page, *keys)
            if name == "turn":
                press(page, "ArrowRight")
                page.locator(".ms-from button").first.click()
            page.wait_for_timeout(200)
            screenshot(page, f"page-{name}-{scheme}")
            found = Axe().run(page).response["violations"]
            bad = [
                (each["id"], each["nodes"][0]["html"][:200])
                for each in found
                if each["impact"] in ("serious", "critical")
            ]
            assert bad == [], name
