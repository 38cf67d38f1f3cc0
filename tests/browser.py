"""Debian's Chromium under Playwright: found, started, and watched for requests that leave."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

SCREENSHOTS = Path(__file__).parent.parent / "build" / "screenshots"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NEAR = ("file:", "data:", "blob:", "about:")


@contextmanager
def chromium():
    """A running browser with an empty profile."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("these tests need Chromium: apt-get install -y chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def tab(browser, near=NEAR, **options):
    """A page of its own context that fails on script errors, and on requests to anywhere but `near`."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, **options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    faults, asked = [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.faults, page.asked = faults, asked
    yield page
    context.close()
    assert not [url for url in asked if not url.startswith(near)]


def until(check, seconds=20.0):
    """Wait for `check()`; the page's own policy forbids to wait for an expression within it."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


def screenshot(page, name):
    """Keep what the page looks like, for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
