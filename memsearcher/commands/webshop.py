"""`memsearcher webshop`: what the shop holds and what shoppers earn in it, or the shop in a browser."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from memsearcher.commands.common import one_clear_error, out, progress_bar
from memsearcher.statistics import bootstrap_mean

if TYPE_CHECKING:
    from memsearcher.environments.webshop.shop import Shop

GOALS = 500
"""Of a split that are played; there are 12,087 of people's."""


def webshop(
    serve: Annotated[bool, typer.Option("--serve", help="Open the shop for a browser on this machine.")] = False,
    host: Annotated[
        str, typer.Option(help="Where to listen; by default other machines do not reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="The goals to play.")] = "test",
    mode: Annotated[
        Literal["original", "strict"], typer.Option(help="The reward as published, or with its quirks mended.")
    ] = "original",
    seed: Annotated[int, typer.Option(help="Of prices and price limits.")] = 0,
    items: Annotated[Path | None, typer.Option(help="Your items_shuffle*.json, in place of the built-in shop.")] = None,
    attributes: Annotated[Path | None, typer.Option(help="Its items_ins_v2*.json.")] = None,
    human: Annotated[
        Path | None, typer.Option(help="Its items_human_ins*.json, for the goals that people wrote.")
    ] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Only the first so many products of your file.")] = None,
) -> None:
    """Say what the shop holds and what a scripted and a random shopper earn, or serve it for people to play."""
    from memsearcher.environments.webshop.files import choose_catalogue
    from memsearcher.environments.webshop.shop import Shop

    with one_clear_error():
        shop = Shop(choose_catalogue(items, attributes, human, n), seed, mode)
        if serve:
            import uvicorn

            from memsearcher.environments.webshop.site import create_app

            app = create_app(shop, split)
            out.print(f"the shop is open at http://{host}:{port}/ (Ctrl-C closes it)", soft_wrap=True)
            uvicorn.run(app, host=host, port=port, log_level="warning")
        else:
            out.print(_earnings(shop, seed))


def _earnings(shop: Shop, seed: int) -> Table:
    """Mean reward × 100 of both shoppers on each split, with 95% intervals for the random one."""
    from memsearcher.environments.webshop.shoppers import ShopperError, scripted_reward, wander

    title = f"{len(shop.products):,} products, reward × 100 ({shop.mode}), at most {GOALS} goals of a split"
    table = Table("split", "goals", "scripted shopper", "not found", "random shopper (95%)", title=title)
    rng = random.Random(seed)
    with progress_bar() as progress:
        for split in ("test", "dev", "train"):
            goals = [goal.id for goal in shop.goals.values() if goal.split == split]
            if not goals:
                continue
            scripted, wandered = [], []
            for goal in progress.track(goals[:GOALS], description=f"{split} goals"):
                try:
                    scripted.append(scripted_reward(shop, goal))
                except ShopperError:
                    continue
                finally:
                    wandered.append(wander(shop, goal, rng)[0])
            mean, low, high = (100 * value for value in bootstrap_mean(wandered, seed))
            earned = f"{100 * fmean(scripted):.1f}" if scripted else "–"
            lost = len(wandered) - len(scripted)
            table.add_row(split, f"{len(goals):,}", earned, str(lost), f"{mean:.1f} ({low:.1f} to {high:.1f})")
    return table
