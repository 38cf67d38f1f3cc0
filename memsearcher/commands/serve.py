"""`memsearcher serve`: the recipe's retriever for other programs."""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Annotated

import typer

from memsearcher import __version__
from memsearcher.assemble import TOKEN_ENV, make_retriever
from memsearcher.commands.common import Overrides, RecipeName, err, one_clear_error
from memsearcher.recipe import load_recipe

GRACE_SECONDS = 30
IDLE_SECONDS = 75
"""An idle connection is kept that long; the clients' pools are surprised less often."""


def serve(
    host: Annotated[
        str, typer.Option(help="Where to listen; by default other machines do not reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    topk: Annotated[int, typer.Option(min=1, help="Passages where a request does not say.")] = 3,
    most: Annotated[int, typer.Option(min=1, help="Passages for one query, at most.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Queries encoded at once, at most.")] = 64,
    wait: Annotated[float, typer.Option(min=0, help="Milliseconds a query waits for company.")] = 5.0,
    queue: Annotated[int, typer.Option(min=1, help="Queries that may wait; more are refused with 429.")] = 8192,
    cache: Annotated[int, typer.Option(min=0, help="Answers that are kept.")] = 4096,
    log_queries: Annotated[bool, typer.Option("--log-queries", help="Put the text of queries into the log.")] = False,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Serve the retriever over HTTP: /retrieve, /search, /batch_search, /health, /metrics.

    A token in the environment variable MEMSEARCHER_TOKEN is asked for of every request.
    """
    import uvicorn

    from memsearcher.retrieval.batcher import Batching
    from memsearcher.retrieval.server import QUERIES, Limits, create_app

    with one_clear_error():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
        for name in ("memsearcher", "uvicorn"):
            logging.getLogger(name).setLevel(logging.INFO)
        retriever = make_retriever(load_recipe(recipe, overrides or ()).retrieval)
        token = os.environ.get(TOKEN_ENV)
        if token is None and not _is_near(host):
            err.print(f"warning: {host} may be reached by others, and {TOKEN_ENV} is not set", style="yellow")
        app = create_app(
            retriever,
            {"version": __version__},
            Limits(topk, most, min(QUERIES, queue)),  # More would never find room.
            Batching(batch, wait / 1000, queue, cache),
            token=token,
            log_queries=log_queries,
        )
        uvicorn.run(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=IDLE_SECONDS,
        )


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
