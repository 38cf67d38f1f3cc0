"""The peers' way to serve a retriever, as a baseline: one process, a synchronous endpoint, one encoder call a request.

    python benchmarks/peer_server.py --corpus c.jsonl --index index.faiss --port 8001

Written after the behaviour of Search-R1's retrieval server, not from its code: FastAPI with a plain
`def` endpoint (which FastAPI runs in its pool of threads), transformers' model with mean pooling,
a FAISS index whose rows are the lines of the corpus, and the documents in memory. It differs in the
model (MiniLM on a CPU for e5 on a GPU) and in a list where theirs has a table of `datasets`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import faiss
import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModel, AutoTokenizer

from memsearcher.retrieval.encoder import CONVENTIONS, weights_folder

MAX_TOKENS = 256


class Query(BaseModel):
    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    app = create(options.corpus, faiss.read_index(str(options.index)))
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning")


def create(corpus: Path, index: Any) -> FastAPI:
    documents = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    folder = str(weights_folder(CONVENTIONS["minilm"]))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    app = FastAPI()

    @torch.no_grad()
    def encode(texts: list[str]) -> Any:
        inputs = tokenizer(texts, max_length=MAX_TOKENS, padding=True, truncation=True, return_tensors="pt")
        hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(pooled, dim=-1).numpy()

    @app.post("/retrieve")
    def retrieve(request: Query) -> dict[str, Any]:
        scores, rows = index.search(encode(request.queries), request.topk or 3)
        found = [[documents[row] for row in some] for some in rows]
        if not request.return_scores:
            return {"result": found}
        pairs = [
            [{"document": document, "score": float(score)} for document, score in zip(*each, strict=True)]
            for each in zip(found, scores, strict=True)
        ]
        return {"result": pairs}

    return app


if __name__ == "__main__":
    main()
