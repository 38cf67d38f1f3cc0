"""The inspector as one HTML file: nothing is asked of a server, and nothing in it can be made to run.

The file holds the same script and the same JSON as the widget. The index is JSON with `<` escaped; each
trajectory is packed (zlib, base64) and unpacked when it is opened. The script stands behind the first of
them, so that it draws while the browser still reads the others. The file's own policy forbids every
request, and every script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memsearcher import jsonl
from memsearcher.inspect.collection import Collection
from memsearcher.inspect.summary import searchable
from memsearcher.inspect.widget import PAGE, SCRIPT, STYLE

Track = Callable[[Iterable[int]], Iterable[int]]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>These trajectories are shown by a script, which this browser does not run.</noscript>
<script type="application/json" id="index">{index}</script>
{first}
<script>{script}</script>
{rest}
</body>
</html>
"""


def write_page(path: Path, collection: Collection, track: Track = lambda places: places) -> None:
    """Write the page; `track` may show how far it is. An older file stays until the new one is whole."""
    index = collection.index
    blocks = [_block(collection, place) for place in track(range(len(collection)))]
    page_script = (PAGE / "page.js").read_text(encoding="utf-8")
    script = f'(() => {{ "use strict";\n{SCRIPT.replace("export default", "const widget =")}\n{page_script}}})();'
    style = f"{STYLE}\n{(PAGE / 'page.css').read_text(encoding='utf-8')}"
    page = _PAGE.format(
        title=f"memsearcher: {len(collection)} trajectories",
        policy=f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'",
        style=style,
        index=_json(index).replace("<", "\\u003c"),
        first=blocks[0],
        rest="\n".join(blocks[1:]),
        script=script,
    )
    jsonl.replace(path, page.encode())


def _block(collection: Collection, place: int) -> str:
    content = {"view": collection.view(place), "texts": searchable(collection.trajectories[place])}
    packed = base64.b64encode(zlib.compress(_json(content).encode())).decode()
    return f'<script type="application/x-trajectory" class="trajectory">{packed}</script>'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
