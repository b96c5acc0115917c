"""Exact search beside Chroma's index: time at several sizes, and recall@10 of the index.

    python validation/search.py --work DIR --out validation/results/search.json

Real embeddings of `sentences.py`, the vectors kept in DIR by `latency.py` if it ran before.
Queries are other sentences of the same generator. The time of the index includes fetching the
candidates' vectors from memory.db and ranking by them, as the product does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

# Before numpy, as the product does.
from subconscious_mcp.heavy_imports import calm_numpy

calm_numpy()

import numpy as np
from conditions import spread, write
from latency import NAMESPACE, fill, vectors_of
from sentences import sentences

from subconscious_mcp.config import resolve
from subconscious_mcp.exact_search import ExactVectors
from subconscious_mcp.opening import load_embedder, open_store

K = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,20000,50000,100000")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    texts = sentences(max(sizes))
    vectors = vectors_of(texts, arguments.work)
    embedder = load_embedder(resolve().config)
    known = set(texts)
    fresh = [s for s in sentences(max(sizes) + 4 * arguments.queries, seed=99) if s not in known]
    queries = embedder.embed(fresh[: arguments.queries])
    rows = [one_size(arguments.work, texts[:size], vectors[:size], queries) for size in sizes]
    write(arguments.out, {"what": "exact search and Chroma's index", "k": K, "queries": len(queries), "sizes": rows})


def one_size(work: Path, texts: list[str], vectors: np.ndarray, queries: np.ndarray) -> dict[str, Any]:
    size = len(texts)
    exact = ExactVectors(vectors.shape[1])
    exact.extend(np.arange(size), vectors, np.zeros(size), np.full(size, np.inf))
    truth, exact_ms = timed(queries, lambda query: exact.search(query, K, now=1.0))
    storage = work / f"store-{size}"
    fill(storage, texts, vectors)
    store = open_store(resolve().config, "benchmark", folder=storage)
    # So that the index is asked at every size.
    store._exact_limit = 1
    embedder = load_embedder(resolve().config)
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    started = time.perf_counter()
    store.bring_index_up_to_date()
    opened = time.perf_counter() - started
    namespace = store.namespace(NAMESPACE, None)
    now = time.time() + 10
    found, index_ms = timed(
        queries, lambda query: store.nearest(namespace, ("memory",), embedder.fingerprint, query, K, now=now)
    )
    store.close()
    place = {text: number for number, text in enumerate(texts)}
    shares = [
        len({place.get(near.entry.task, -1) for near in got} & {key for key, _ in want}) / K
        for got, want in zip(found, truth, strict=True)
    ]
    # The same places, ties aside: what counts is whether as near a neighbour was found.
    near_enough = [
        sum(near.similarity >= want[-1][1] for near in got) / K for got, want in zip(found, truth, strict=True)
    ]
    row = {
        "entries": size,
        "exact_ms": spread(exact_ms),
        "index_ms": spread(index_ms),
        "index_open_and_check_s": round(opened, 2),
        "recall_at_10": round(float(np.mean(shares)), 5),
        "recall_at_10_by_similarity": round(float(np.mean(near_enough)), 5),
    }
    print(row, file=sys.stderr)
    return row


def timed(queries: np.ndarray, search: Any) -> tuple[list[Any], list[float]]:
    found, took = [], []
    for query in queries:
        started = time.perf_counter()
        found.append(search(query))
        took.append((time.perf_counter() - started) * 1000)
    return found, took


if __name__ == "__main__":
    main()
