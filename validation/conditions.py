"""Under which conditions a figure was measured, and where it is written down."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any


def conditions() -> dict[str, Any]:
    """Returns date, versions, processor and load of this run."""
    versions = {}
    for name in (
        "subconscious-mcp",
        "mcp",
        "onnxruntime",
        "tokenizers",
        "chromadb",
        "numpy",
        "torch",
        "sentence-transformers",
        "fastembed",
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "memory_gb_per_s": _memory_speed(),
        "versions": versions,
    }


def _memory_speed() -> float | None:
    """Returns how fast one thread reads memory just now, GB/s.

    A query reads all 43 MB of the model's weights and a search all vectors, so on a machine that
    shares its memory with others, times go up and down with this figure.
    """
    try:
        import numpy as np
    except ImportError:
        return None
    block = np.ones(11_000_000, dtype=np.float32)
    took = []
    for _ in range(20):
        started = time.perf_counter()
        block.sum()
        took.append(time.perf_counter() - started)
    return round(block.nbytes / statistics.median(took) / 1e9, 1)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip()


def write(out: Path, result: dict[str, Any]) -> None:
    """Writes a result with its conditions as JSON, and prints it."""
    whole = {"conditions": conditions(), **result}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(whole, indent=1, ensure_ascii=False))


def spread(values: list[float], digits: int = 2) -> dict[str, float]:
    """Returns median, 95th percentile and maximum."""
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), digits),
        "p95": round(ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))], digits),
        "max": round(ordered[-1], digits),
    }
