"""`memsearcher index build`, `push`, `info`: what is searched, made or looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table

from memsearcher.assemble import cluster_module, index_paths, qdrant_module
from memsearcher.commands.common import Overrides, RecipeName, err, one_clear_error, out
from memsearcher.recipe import load_recipe
from memsearcher.retrieval.build import build_retriever, index_info
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_named
from memsearcher.retrieval.plan import choose, human, parse_size, plans
from memsearcher.retrieval.recall import TARGET
from memsearcher.retrieval.types import INDEX_TYPES

index_app = typer.Typer(help="Build an index, or look at one.", no_args_is_help=True)


@index_app.command("build")
def build(
    index_type: Annotated[str | None, typer.Option("--type", help=f"One of {', '.join(INDEX_TYPES)}.")] = None,
    memory: Annotated[str | None, typer.Option(help="Take the type that fits, as 16GB; instead of --type.")] = None,
    recall: Annotated[
        float, typer.Option(min=0, max=1, help="Of exact search, to reach at the least effort.")
    ] = TARGET,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
    rebuild: Annotated[bool, typer.Option(help="Also where there is an index already.")] = False,
    ray: Annotated[
        int | None,
        typer.Option(min=1, metavar="WORKERS", help="Encode on a Ray cluster (RAY_ADDRESS, else this machine)."),
    ] = None,
) -> None:
    """Encode a corpus and save its index; a build that was stopped goes on where it was."""
    with one_clear_error():
        if index_type and memory:
            raise ValueError("--type and --memory exclude each other: --memory picks the type")
        chosen = [f"retrieval.type={index_type}"] if index_type else []
        retrieval = load_recipe(recipe, [*(overrides or ()), *chosen]).retrieval
        corpus = Corpus(index_paths(retrieval)[0])
        encoder = load_named(retrieval.encoder, retrieval.device)
        if memory:
            found, why = choose(len(corpus), encoder.dimension, parse_size(memory), recall)
            err.print(why, markup=False)
            retrieval = replace(retrieval, type=found.index_type)
            err.print(f"search it with: -s retrieval.kind={retrieval.kind} -s retrieval.type={found.index_type}")
        folder = index_paths(retrieval)[1]
        build_retriever(
            corpus,
            folder,
            "dense",
            encoder,
            rebuild,
            index_type=retrieval.type,
            recall=recall,
            mapped=retrieval.mapped,
            encode=cluster_module().RayEncoding(retrieval.encoder, retrieval.device, ray) if ray else None,
        )
        out.print_json(data=index_info(folder))


@index_app.command("push")
def push(
    place: Annotated[str, typer.Argument(help="The URL of a Qdrant server, or a folder.")],
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """Encode a corpus into Qdrant; a push that was stopped goes on where it was."""
    with one_clear_error():
        retrieval = load_recipe(recipe, overrides or ()).retrieval
        corpus = Corpus(index_paths(retrieval)[0])
        qdrant = qdrant_module()
        name = qdrant.push(corpus, load_named(retrieval.encoder, retrieval.device), qdrant.connect(place))
        out.print(f"collection: {name}, {len(corpus)} passages", soft_wrap=True)
        out.print(f"search it with: -s retrieval.kind=qdrant -s retrieval.url={place}", soft_wrap=True)


@index_app.command("info")
def info(
    plan: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="PASSAGES DIMENSION", help="What each type would need, before anything is loaded."),
    ] = None,
    recipe: RecipeName = "pocket",
    overrides: Overrides = None,
) -> None:
    """What the index is: type, recall, encoder, dimension, count, corpus; its file is checked."""
    with one_clear_error():
        if plan:
            out.print(_needs(*plan))
            return
        _, folder = index_paths(load_recipe(recipe, overrides or ()).retrieval)
        out.print_json(data={"folder": str(folder), **index_info(folder)})


def _needs(count: int, dimension: int) -> Table:
    table = Table("type", title=f"{count} passages of dimension {dimension}")
    for name in ("memory", "disk", "memory to build", "disk to build"):
        table.add_column(name, justify="right")
    for each in plans(count, dimension):
        sizes = (each.memory, each.disk, each.building, each.building_disk)
        table.add_row(each.index_type, *map(human, sizes))
    return table
