"""The server of this project over an index that is there, as a process for retrieval_server.py.

What `memsearcher serve` does, without a cache and with a fixed number of threads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import faiss
import torch
import uvicorn

from memsearcher.retrieval.batcher import Batching
from memsearcher.retrieval.corpus import Corpus
from memsearcher.retrieval.encoder import load_encoder
from memsearcher.retrieval.index import DenseIndex
from memsearcher.retrieval.server import create_app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    retriever = DenseIndex.open(options.index, Corpus(options.corpus), load_encoder())
    app = create_app(retriever, {}, batching=Batching(cache=0))
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
