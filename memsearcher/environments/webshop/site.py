"""The shop in a browser: a person plays a goal by hand and sees the reward explained.

The same engine as for agents; the browser holds nothing but the address of its visit. Plain
HTML from `site.html`, which escapes all text it is given; no script and no request to any
other place, which the content security policy holds the browser to.
"""

from __future__ import annotations

import random
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jinja2
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from memsearcher.environments.webshop.actions import FAULTS, write_action
from memsearcher.environments.webshop.catalogue import Split
from memsearcher.environments.webshop.shop import BUY, Shop, State
from memsearcher.trajectory import Action, Event

VISITS = 1000
"""Visits kept; the ones that rested longest are forgotten beyond that."""

MOST_BYTES = 16_384
"""Of a form that is sent."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Visit:
    """One person at one goal: the state, the actions so far, and what was odd about the last one."""

    state: State
    actions: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


def create_app(shop: Shop, split: Split = "test") -> FastAPI:
    """The site; goals are those of `split`.

    Raises:
        ValueError: the split has no goals.
    """
    goals = [goal.id for goal in shop.goals.values() if goal.split == split]
    if not goals:
        raise ValueError(f"there are no {split} goals in this catalogue")
    visits: OrderedDict[str, Visit] = OrderedDict()
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        Path(__file__).with_name("site.html").read_text(encoding="utf-8")
    )
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def answer(status: int = 200, **given: Any) -> Response:
        text = template.render({"visit": None, "note": "", "goals": goals, "split": split, **given})
        # A browser shows neither; a lone surrogate could not even be sent.
        body = text.replace("\0", "\ufffd").encode("utf-8", "replace")
        return Response(body, status, HEADERS, "text/html; charset=utf-8")

    @app.get("/")
    async def front() -> Response:
        return answer()

    @app.post("/play")
    async def begin(request: Request) -> Response:
        form = await _form(request)
        goal = form.get("goal") or random.choice(goals)
        if goal not in shop.goals:
            return answer(404, note="There is no such goal. Choose one of the list, or leave it to chance.")
        name = secrets.token_urlsafe(16)
        visits[name] = Visit(shop.start(goal))
        if len(visits) > VISITS:
            visits.popitem(last=False)
        return RedirectResponse(f"/play/{name}", 303, HEADERS)

    @app.get("/play/{name}")
    async def look(name: str) -> Response:
        if name not in visits:
            return answer(404, note="This visit is over or was never begun. Start a new one.")
        return answer(name=name, **_view(shop, visits[name]))

    @app.post("/play/{name}")
    async def act(name: str, request: Request) -> Response:
        if name not in visits:
            return answer(404, note="This visit is over or was never begun. Start a new one.")
        visit = visits[name]
        visits.move_to_end(name)
        form = await _form(request)
        if form.get("step") != str(len(visit.actions)):
            return answer(
                409, name=name, **_view(shop, visit), note="That page was out of date. This is where you are."
            )
        action = _action(shop, visit.state, form)
        if action is not None:
            state, events = shop.act(visit.state, action)
            visits[name] = Visit(state, (*visit.actions, write_action(action)), events)
        return RedirectResponse(f"/play/{name}", 303, HEADERS)

    return app


async def _form(request: Request) -> dict[str, str]:
    """The first value of each field of a form; nothing of one that is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return {}
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[0] for key, values in fields.items()}


def _action(shop: Shop, state: State, form: dict[str, str]) -> Action | None:
    """The action of a form: the query, or the button by its place among the labels."""
    pressed = form.get("press", "")
    labels = shop.labels(state)
    if pressed.isdecimal() and len(pressed) < 6 and int(pressed) < len(labels):
        return Action("click", {"button": labels[int(pressed)]})
    return Action("search", {"query": form["query"]}) if "query" in form else None


def _view(shop: Shop, visit: Visit) -> dict[str, Any]:
    """All that the template shows of a visit."""
    state = visit.state
    page = shop.page(state)
    places = {label: place for place, label in enumerate(shop.labels(state))}
    listed = [
        (places[product.asin], product.asin, product.title, shop.prices[shop.rows[product.asin]])
        for product in (shop.products[row] for row in shop.shown(state))
    ]
    asins = {asin for _, asin, _, _ in listed}
    return {
        "visit": visit,
        "page": page,
        "buy": BUY,
        "buttons": [(places[label], label) for label in page.buttons if label not in asins],
        "options": {
            name: [(places[label], label, shop.choices(state)[label][1] == page.chosen.get(name)) for label in labels]
            for name, labels in page.options.items()
        },
        "listed": listed,
        "bought": None if state.reward is None or state.row is None else shop.products[state.row],
        "wanted": shop.products[shop.rows[state.goal.asin]],
        "wanted_price": shop.prices[shop.rows[state.goal.asin]],
        "told": [FAULTS[event.name] for event in visit.events],
        "observation": page.text(shop.cuts),
    }
