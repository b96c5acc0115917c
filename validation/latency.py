"""Latency over real stdio at several store sizes, start-up included.

    python validation/latency.py --sizes 100,10000,100000 --work DIR --out validation/results/latency.json

The stores are filled with sentences of `sentences.py`, embedded by the real model, and kept in
DIR for the next run. Each size is then measured in a process of its own: start to handshake,
start to first recall, warm recall, remember. Wall times depend on the load of the machine, so
the processor time of the server is shown beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

# Before numpy, as the product does.
from subconscious_mcp.heavy_imports import calm_numpy

calm_numpy()

import numpy as np
from conditions import spread, write
from sentences import sentences

from subconscious_mcp.config import resolve
from subconscious_mcp.opening import load_embedder, open_store
from subconscious_mcp.records import NewEntry

NAMESPACE = "benchmark"


class Client:
    """A client of the installed command: sends a line, waits for the reply with its id."""

    def __init__(self, storage: Path, toolset: str = "cache") -> None:
        env = {
            **os.environ,
            "SUBCONSCIOUS_STORAGE_DIR": str(storage),
            "SUBCONSCIOUS_NAMESPACE": NAMESPACE,
            "SUBCONSCIOUS_TOOLSET": toolset,
        }
        self.started = time.perf_counter()
        command = [str(Path(sys.executable).parent / "subconscious-mcp")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.replies: queue.Queue[dict[str, Any]] = queue.Queue()
        self.number = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.replies.put(json.loads(line))

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        self._send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            reply = self.replies.get(timeout=300)
            if reply.get("id") == self.number:
                return reply["result"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def initialize(self) -> None:
        info = {"name": "latency", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, name: str, **arguments: Any) -> tuple[dict[str, Any], float]:
        started = time.perf_counter()
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        took = (time.perf_counter() - started) * 1000
        assert not result["isError"], result
        return result["structuredContent"], took

    def since_start(self) -> float:
        return (time.perf_counter() - self.started) * 1000

    def cpu_ms(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(status.split("VmHWM:")[1].split()[0]) / 1024, 1)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def vectors_of(texts: list[str], work: Path) -> np.ndarray:
    """Embeds the texts with the real model; kept for the next run."""
    kept = work / f"vectors-{len(texts)}.npy"
    if kept.exists():
        return np.load(kept)
    embedder = load_embedder(resolve().config)
    parts = []
    for start in range(0, len(texts), 2000):
        parts.append(embedder.embed(texts[start : start + 2000]).astype(np.float16))
        print(f"embedded {start + len(parts[-1])} of {len(texts)}", file=sys.stderr)
    whole = np.concatenate(parts)
    np.save(kept, whole)
    return whole


def fill(storage: Path, texts: list[str], vectors: np.ndarray) -> None:
    """Fills a store as remember does, many entries a transaction, and brings its index up to date."""
    if (storage / "filled").exists():
        return
    embedder = load_embedder(resolve().config)
    # As the product opens it: under the embedding function that the collections are registered with.
    store = open_store(resolve().config, "benchmark", folder=storage)
    namespace = store.namespace(NAMESPACE, None)
    now = time.time() - len(texts)
    for start in range(0, len(texts), 5000):
        some = texts[start : start + 5000]
        entries = [
            NewEntry(
                str(uuid.uuid4()),
                "memory",
                text,
                f"Answer {start + i}. " + "Run the documented steps. " * 8,
                now + start + i,
            )
            for i, text in enumerate(some)
        ]
        store.add_many(namespace, entries, embedder.fingerprint, vectors[start : start + 5000].astype(np.float32))
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    started = time.perf_counter()
    store.bring_index_up_to_date()
    print(f"indexed {len(texts)} in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    store.close()
    (storage / "filled").touch()


def measure(storage: Path, texts: list[str], recalls: int, remembers: int, starts: int) -> dict[str, Any]:
    handshakes, firsts = [], []
    for _ in range(starts):
        client = Client(storage)
        client.initialize()
        handshakes.append(client.since_start())
        client.call("recall", task=texts[0])
        firsts.append(client.since_start())
        client.close()
    client = Client(storage)
    client.initialize()
    chance = random.Random(11)
    client.call("recall", task=texts[1])
    # Let the background work of a start pass: what is measured here is the warm state.
    settled = time.perf_counter() + (20 if len(texts) > 20_000 else 8)
    while time.perf_counter() < settled:
        client.call("stats")
        time.sleep(0.5)
    before = client.cpu_ms()
    # Each query another one: the vector of a query that was asked before is kept.
    took = [client.call("recall", task=f"{chance.choice(texts)} {i}")[1] for i in range(recalls)]
    recall_cpu = (client.cpu_ms() - before) / recalls
    before = client.cpu_ms()
    wrote = [
        client.call("remember", task=f"{chance.choice(texts)} number {i}", answer="x")[1] for i in range(remembers)
    ]
    remember_cpu = (client.cpu_ms() - before) / remembers
    peak = client.peak_mb()
    client.close()
    return {
        "entries": len(texts),
        "initialize_ms": spread(handshakes, 0),
        "start_to_first_recall_ms": spread(firsts, 0),
        "recall_ms": spread(took),
        "recall_cpu_ms": round(recall_cpu, 2),
        "remember_ms": spread(wrote),
        "remember_cpu_ms": round(remember_cpu, 2),
        "peak_rss_mb": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100,10000,100000")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recalls", type=int, default=300)
    parser.add_argument("--remembers", type=int, default=100)
    parser.add_argument("--starts", type=int, default=7)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    texts = sentences(max(sizes))
    vectors = vectors_of(texts, arguments.work)
    rows = []
    for size in sizes:
        storage = arguments.work / f"store-{size}"
        fill(storage, texts[:size], vectors[:size])
        rows.append(measure(storage, texts[:size], arguments.recalls, arguments.remembers, arguments.starts))
        print(json.dumps(rows[-1]), file=sys.stderr)
    write(arguments.out, {"what": "stdio latency of the installed command", "sizes": rows})


if __name__ == "__main__":
    main()
