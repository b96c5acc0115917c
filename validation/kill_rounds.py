"""Kills a process that writes to a large store, many times, and looks for what was lost.

    python validation/kill_rounds.py --out validation/results/kill_rounds.json

Two rounds of five also delete or cut files of Chroma between the kill and the next opening. The
vectors are those of the tests' hashed bag of words, not of the model: what is measured is the
storage, which does not know the difference.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kills import DAMAGES, Expected, fill, look, run_and_kill

EXACT_LIMIT = 1000
SAMPLE = 100


def processor() -> str:
    """Returns the name of the processor as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rnd = random.Random(options.seed)
    damaged: Counter[str] = Counter()
    lost = still_there = words = wrong = opened = searched = checked = 0
    failures: list[str] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "data"
        expected = Expected(fill(folder, options.entries, EXACT_LIMIT))
        filled_seconds = time.monotonic() - started
        for number in range(options.rounds):
            new = run_and_kill(
                folder,
                expected,
                first=options.entries + 100_000 * (number + 1),
                lines=rnd.randrange(1, 150),
                exact_limit=EXACT_LIMIT,
                indexed_first=number % 2 == 0,
                pause=rnd.random() * 0.3,
            )
            if number % 5 in (2, 4):
                damage = DAMAGES[(number // 5 + number % 5 // 4 * 2) % len(DAMAGES)]
                damage(folder, rnd)
                damaged[damage.__name__] += 1
            try:
                found = look(folder, expected, new + rnd.sample(sorted(expected.live), SAMPLE), EXACT_LIMIT)
            except Exception as error:
                failures.append(f"round {number}: {type(error).__name__}: {error}")
                continue
            opened += 1
            lost += len(found.lost)
            still_there += len(found.still_there)
            words += len(found.words_in_files)
            wrong += len(found.not_searched)
            checked += found.checked
            searched += not found.not_searched and found.differences == (0, 0)
            print(f"round {number}: {found}"[:300], f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": {name: metadata.version(name) for name in ("subconscious-mcp", "chromadb", "numpy")}
        | {"python": platform.python_version()},
        "processor": processor(),
        "vectors": "hashed bag of words, 384 dimensions (the tests' fake embedder)",
        "entries_at_start": options.entries,
        "searched_by": f"the index (exact search only up to {EXACT_LIMIT} entries)",
        "rounds": options.rounds,
        "acknowledged": expected.acknowledged,
        "lost": lost,
        "forgotten_but_there": still_there,
        "forgotten_words_in_files": words,
        "opened": opened,
        "searched_correctly": searched,
        "searches": checked * 2,
        "searches_wrong": wrong,
        "rounds_with_damaged_chroma": dict(damaged),
        "failures": failures,
        "seconds_to_fill": round(filled_seconds, 1),
        "seconds": round(time.monotonic() - started, 1),
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    if lost or still_there or wrong or failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
