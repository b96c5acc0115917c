"""Latency of the notes' tools over real stdio at several store sizes.

    python validation/notes_latency.py --sizes 100,10000,100000 --work DIR --out validation/results/notes_latency.json

The notes are the sentences of `sentences.py`, fifty of a source, embedded by the real model; the vectors are those of
`latency.py` in the same DIR. Their vocabulary is small, so words are common: the hard case for a search by words.
Queries are stored sentences with a number, each another one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

# Before numpy, as the product does.
from subconscious_mcp.heavy_imports import calm_numpy

calm_numpy()

import numpy as np
from conditions import spread, write
from latency import NAMESPACE, Client, vectors_of
from sentences import sentences

from subconscious_mcp.config import resolve
from subconscious_mcp.opening import load_embedder, open_store
from subconscious_mcp.records import NewEntry

OF_A_SOURCE = 50


def fill(storage: Path, texts: list[str], vectors: np.ndarray) -> None:
    if (storage / "filled").exists():
        return
    embedder = load_embedder(resolve().config)
    store = open_store(resolve().config, "benchmark", folder=storage)
    namespace = store.namespace(NAMESPACE, None)
    now = time.time() - len(texts)
    for start in range(0, len(texts), 5000):
        entries = [
            NewEntry(uuid.uuid4().hex, "note", text, "", now + start + i, source=f"log {(start + i) // OF_A_SOURCE}")
            for i, text in enumerate(texts[start : start + 5000])
        ]
        store.add_many(namespace, entries, embedder.fingerprint, vectors[start : start + 5000].astype(np.float32))
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    store.bring_index_up_to_date()
    store.close()
    (storage / "filled").touch()


def measure(storage: Path, texts: list[str], searches: int, writes: int) -> dict[str, Any]:
    client = Client(storage, "notes")
    client.initialize()
    client.call("recall", query=texts[1])
    # Let the background work of a start pass: what is measured here is the warm state.
    settled = time.perf_counter() + (40 if len(texts) > 20_000 else 8)
    while time.perf_counter() < settled:
        client.call("list_recent", limit=1)
        time.sleep(0.5)
    chance = random.Random(11)
    queries = [f"{chance.choice(texts)} {i}" for i in range(searches)]
    took = [client.call("recall", query=query)[1] for query in queries]
    filtered = [
        client.call("recall", query=f"{query} again", source=f"log {len(texts) // OF_A_SOURCE // 2}")[1]
        for query in queries[: searches // 3]
    ]
    recent = [client.call("list_recent")[1] for _ in range(50)]
    wrote = [client.call("remember", content=f"{chance.choice(texts)} number {i}")[1] for i in range(writes)]
    client.close()
    return {
        "notes": len(texts),
        "recall_ms": spread(took),
        "recall_of_one_source_ms": spread(filtered),
        "list_recent_ms": spread(recent),
        "remember_ms": spread(wrote),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,10000,100000")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--searches", type=int, default=300)
    parser.add_argument("--writes", type=int, default=100)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    texts = sentences(max(sizes))
    vectors = vectors_of(texts, arguments.work)
    rows = []
    for size in sizes:
        storage = arguments.work / f"notes-{size}"
        fill(storage, texts[:size], vectors[:size])
        rows.append(measure(storage, texts[:size], arguments.searches, arguments.writes))
        print(json.dumps(rows[-1]), file=sys.stderr)
    write(arguments.out, {"what": "stdio latency of the notes' tools of the installed command", "sizes": rows})


if __name__ == "__main__":
    main()
