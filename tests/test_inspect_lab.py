"""The inspector in a real JupyterLab: mouse and keys in the page, traits in Python, and no key for the notebook."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import NEAR, chromium, screenshot, tab, until

ROOT = Path(__file__).parent.parent
SHOW = """from memsearcher.inspect import inspect
from tests.traces import stories
inspector = inspect(stories())
inspector"""
ASK = "print('now', inspector.trajectory, inspector.turn)"
DRIVE = "inspector.trajectory = 7\ninspector.turn = 2"


def cell(source):
    return {
        "cell_type": "code",
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "id": source[:4].strip() or "x",
    }


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with one notebook, on loopback, with a home of its own."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [cell(each) for each in (SHOW, ASK, DRIVE)],
    }
    (tmp_path / "look.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    home = {
        name: str(tmp_path / "home")
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        "--port=0",
        "--port-retries=50",
    ]
    command += [
        "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    log = tmp_path / "lab.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **home, "PYTHONPATH": path}, stdout=out, stderr=out
        )
    try:
        address = re.compile(r"http://127\.0\.0\.1:\d+/")
        until(lambda: address.search(log.read_text(encoding="utf-8")) or server.poll() is not None, 90)
        found = address.search(log.read_text(encoding="utf-8"))
        assert found, log.read_text(encoding="utf-8")
        yield found.group()
    finally:
        server.terminate()
        server.wait(20)


def test_the_widget_and_python_follow_each_other(lab):
    with chromium() as browser, tab(browser, near=(*NEAR, lab, lab.replace("http", "ws"))) as page:
        page.set_default_timeout(120_000)
        page.goto(f"{lab}lab/tree/look.ipynb")
        cells = page.locator(".jp-Notebook .jp-Cell")
        cells.first.wait_for()
        until(lambda: "| Idle" in page.locator("#jp-main-statusbar").inner_text(), 120)  # what is run before is dropped
        page.locator(".jp-Notebook .jp-InputArea-editor").first.click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".ms-inspector .ms-header")

        def python_says():
            cells.nth(1).locator(".jp-InputArea-editor").click()
            page.keyboard.press("Control+Enter")
            output = cells.nth(1).locator(".jp-OutputArea-output")
            output.wait_for()
            return output.inner_text().strip()

        until(lambda: python_says() == "now 0 1", 60)
        page.click('.ms-inspector [role="option"] >> nth=1')
        until(lambda: "Kumasi" in page.locator(".ms-about").inner_text())
        before = cells.count()
        for key in ("ArrowRight", "ArrowRight", "b", "a", "d", "d", "x", "Escape", "m", "y"):
            page.keyboard.press(key)
        assert cells.count() == before
        assert page.locator(".jp-MarkdownCell").count() == 0
        screenshot(page, "lab")
        until(lambda: python_says() == "now 1 3", 60)
        cells.nth(2).locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
        until(lambda: "react #0" in page.locator(".ms-about").inner_text(), 60)
        assert page.get_attribute(".ms-strip input", "aria-valuetext") == "turn 2 of 3"
        page.focus(".ms-find input")
        page.keyboard.type("niamey")
        until(lambda: " hit" in page.locator(".ms-count").inner_text(), 60)
        assert cells.count() == before
