"""A visit to the web shop in the inspector: pages, actions, and what the reward is made of."""

from memsearcher.agents.memsearcher import MemSearcher
from memsearcher.engines.chat import ChatFormat
from memsearcher.environments.webshop.environment import WebShopEnvironment
from memsearcher.inspect.collection import Collection
from memsearcher.inspect.export import write_page
from memsearcher.training.expert import demonstrate
from memsearcher.training.shop_expert import ShopExpert
from memsearcher.trajectory import Limits
from tests.browser import chromium, tab
from tests.tiny import tiny_tokenizer
from tests.webshop_world import make_shop


def test_a_visit_is_shown_page_by_page_and_its_reward_part_by_part(tmp_path):
    environment = WebShopEnvironment(make_shop())
    agent = MemSearcher(Limits(turns=7, passage_tokens=3000), "webshop-memsearcher", tool="shop")
    chat = ChatFormat.from_tokenizer(tiny_tokenizer())
    played = list(demonstrate(agent, environment, ShopExpert(environment.shop), chat, environment.tasks("test")))
    write_page(tmp_path / "visit.html", Collection(played))
    with chromium() as browser, tab(browser) as page:
        page.goto((tmp_path / "visit.html").as_uri())
        page.wait_for_selector(".ms-header")
        shown = page.locator(".ms-inspector")
        assert "search[floor lamp dimmable sky blue large]" in shown.inner_text()
        assert "You can search, or click: [Back to Search] [LAMP000001]" in shown.inner_text()
        assert "outcome 1" in page.locator(".ms-header").inner_text()
        for _ in played[0].turns:
            page.keyboard.press("ArrowRight")
        assert "click[Buy Now]" in shown.inner_text()
        rows = [row.inner_text().split("\t") for row in page.locator(".ms-parts tr").all()]
        assert dict(rows) == {
            "value": "1.0",
            "mode": "original",
            "type: factor": "1.0",
            "type: query": "yes",
            "type: category": "yes",
            "type: title": "1.0",
            "attributes: dimmable": "yes",
            "options: sky blue": "yes",
            "options: large": "yes",
            "price": "30.0",
            "limit": rows[-2][1],
            "in_budget": "yes",
        }
        page.screenshot(path=tmp_path / "visit.png", full_page=True)
        assert page.faults == []
