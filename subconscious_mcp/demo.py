"""`subconscious-mcp demo`: real input on a store of its own, with the figures it measured."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from subconscious_mcp import render, verification
from subconscious_mcp.config import Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.model_files import Progress
from subconscious_mcp.opening import load_embedder, open_store
from subconscious_mcp.records import Recall
from subconscious_mcp.tables import one_line

PAIRS = (
    (
        "How do I renew the TLS certificate of the staging server?",
        "Run certbot renew on the bastion host, then reload nginx: systemctl reload nginx.",
    ),
    (
        "Why does the nightly backup job fail with exit code 137?",
        "137 is an out-of-memory kill: raise the container's memory limit to 2 GB.",
    ),
    (
        "Convert the CSV export to Parquet",
        "duckdb -c \"COPY (FROM 'export.csv') TO 'export.parquet'\"",
    ),
)
PARAPHRASE = "How can I renew the staging server's TLS certificate?"
NEAR_MISS = "How do I renew the TLS certificate of the production server?"
UNKNOWN = "What is the capital of Mongolia?"
ROUNDS = 20
"""Recalls of which the median is shown: enough for it to settle, done in a moment."""

_Result = TypeVar("_Result")
Say = Callable[..., object]


def _silent(*_: object) -> None:
    """Says nothing."""


def run(config: Config, console: Console, progress: Progress | None, as_json: bool) -> Any:
    """Remembers, recalls a paraphrase, meets a near-miss and misses, on a temporary store that is removed again.

    Args:
        progress: Told of the model's download, where it is not installed yet.
        as_json: Say nothing; the figures are only returned.

    Returns:
        What was seen and measured, JSON values only.

    Raises:
        ModelError: The model could not be installed.
    """
    say: Say = _silent if as_json else console.print
    with tempfile.TemporaryDirectory(prefix="subconscious-demo-") as folder:
        config = replace(config, storage_dir=Path(folder), namespace="demo", echo_log_enabled=True)
        started = time.perf_counter()
        embedder = load_embedder(config, progress)
        verification.warm()
        loaded_ms = _ms(started)
        say(f"model {config.embedding_model}: {embedder.dimension} dimensions, loaded in {loaded_ms:.0f} ms")
        memory = Memory(open_store(config, "subconscious-mcp demo"), config.storage_dir, lambda: embedder)
        try:
            scope = memory.scope(config, "demo", None)
            seen = _session(memory, scope, say)
        finally:
            memory.close()
    return {"model": config.embedding_model, "dimension": embedder.dimension, "model_load_ms": loaded_ms, **seen}


def _session(memory: Memory, scope: Scope, say: Say) -> dict[str, Any]:
    remembered = []
    for task, answer in PAIRS:
        _, took = _timed(partial(memory.remember, scope, task, answer))
        remembered.append(took)
        say(Text.assemble(("remember  ", "bold"), one_line(task), (f"  {took:.1f} ms", "dim")))
    hit, hit_ms = _timed(lambda: memory.recall(scope, PARAPHRASE))
    _say_recall(say, PARAPHRASE, hit, hit_ms)
    blocked, blocked_ms = _timed(lambda: memory.recall(scope, NEAR_MISS))
    _say_recall(say, NEAR_MISS, blocked, blocked_ms)
    miss, miss_ms = _timed(lambda: memory.recall(scope, UNKNOWN))
    _say_recall(say, UNKNOWN, miss, miss_ms)
    # Each another text: the vector of one that was asked before is kept.
    rounds = [_timed(partial(memory.recall, scope, f"{PARAPHRASE} {n}"))[1] for n in range(ROUNDS)]
    median = statistics.median(rounds)
    stats = memory.stats(scope)
    say(f"{stats.total_entries} entries, median recall {median:.1f} ms over {ROUNDS}; the demo's store is removed")
    return {
        "remember_ms": [round(took, 2) for took in remembered],
        "hit": {"query": PARAPHRASE, **render.recall_payload(hit), "ms": round(hit_ms, 2)},
        "near_miss": {"query": NEAR_MISS, **render.recall_payload(blocked), "ms": round(blocked_ms, 2)},
        "miss": {"query": UNKNOWN, **render.recall_payload(miss), "ms": round(miss_ms, 2)},
        "recall_p50_ms": round(median, 2),
        "stats": render.stats_payload(stats),
    }


def _say_recall(say: Say, query: str, found: Recall, took: float) -> None:
    verdict = ("hit", "bold green") if found.hit else ("blocked" if found.blocked else "miss", "bold yellow")
    say(Text.assemble(("recall    ", "bold"), one_line(query), (f"  {took:.1f} ms", "dim")))
    distance = f"distance {1 - found.similarity:.3f}"
    say(
        Text.assemble(
            "          ", verdict, f"  similarity {found.similarity:.3f}, {distance}, needed {found.threshold:.2f}"
        )
    )
    if found.blocked:
        apart = "; ".join(f"{contrast.kind}: {contrast}" for contrast in found.contrasts)
        say(Text.assemble("          ", "another task than the stored one. ", one_line(apart)))
    if found.hit and found.best is not None:
        say(Text.assemble("          ", one_line(found.best.entry.answer)))


def _timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    started = time.perf_counter()
    result = call()
    return result, _ms(started)


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
