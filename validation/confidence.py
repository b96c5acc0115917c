"""The confidence on what it was not trained on: calibration, wrong hits, drift of a stream, time.

    python validation/confidence.py --banking77 DIR --clinc150 DIR --paraphrase FILE \
        [--work DIR] --out validation/results/confidence.json

What the data are, `tools/confidence_data.py` says. `contrast_pairs.jsonl` beside this script are pairs of our
own for this measurement alone; queries of intents are those that training held out, or all where it says so.

A checked recall serves the nearest of at most four entries at or above the threshold that is not blocked, as
the product does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before numpy, as the product does.
from subconscious_mcp.heavy_imports import calm_numpy

calm_numpy()

import numpy as np
from conditions import spread, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from confidence_data import (
    Embedded,
    Intents,
    Sample,
    entries,
    held_out,
    neighbours,
    own_pairs,
    paraphrased,
    read_banking77,
    read_clinc150,
    read_paraphrases,
)

from subconscious_mcp.confidence import judge
from subconscious_mcp.records import Entry, Near
from subconscious_mcp.verification import CANDIDATES, NEIGHBOURS, judge_among, warm

PAIRS = Path(__file__).parent / "contrast_pairs.jsonl"
THRESHOLDS = [round(0.60 + 0.01 * step, 2) for step in range(40)]
DEFAULT = 0.85
SEEDS = (0, 1, 2)
BINS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking77", type=Path, required=True)
    parser.add_argument("--clinc150", type=Path, required=True)
    parser.add_argument("--paraphrase", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warm()
    embedded = Embedded(arguments.work)
    sets = [read_banking77(arguments.banking77), read_clinc150(arguments.clinc150)]
    near = {"seed": 0, "nearest": 8, "least": 0.7}
    sources = {
        **own_pairs(embedded, 0),
        "banking77": neighbours(sets[0], embedded, most=4000, **near),
        "clinc150": neighbours(sets[1], embedded, most=5000, **near),
        "paraphrase": paraphrased(read_paraphrases(arguments.paraphrase), embedded),
    }
    held = {name: [row for row in rows if row.held] for name, rows in sources.items()}
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    similar = embedded.similarities([(row["query"], row["stored"]) for row in rows])
    own = [
        Sample(row["query"], row["stored"], float(similarity), row["same"], True)
        for row, similarity in zip(rows, similar, strict=True)
    ]
    write(
        arguments.out,
        {
            "what": "confidence of hits: calibration, hits and wrong hits, drift, time",
            "calibration": calibration({**held, "own_pairs": own}),
            "own_pairs": {"pairs": len(own), **pair_curve(own), "kinds": by_kind(own, [row["kind"] for row in rows])},
            "intents": {one.name: benchmark(one, embedded) for one in sets},
            "drift": {name: drift(stream, embedded) for name, stream in streams(sets, rows).items()},
            "latency_ms": {
                **latency(own, held["banking77"] + held["clinc150"]),
                **{f"recalls_of_{one.name}": recall_latency(one, embedded) for one in sets},
            },
        },
    )


# --- calibration ----------------------------------------------------------------------------------


def calibration(held: dict[str, list[Sample]]) -> dict[str, Any]:
    """Returns expected calibration error and reliability of each source, and of all with equal weight."""
    result, weighed = {}, []
    for name, rows in held.items():
        sure = np.array([judge(row.query, row.stored, row.similarity).confidence for row in rows])
        same = np.array([float(row.same) for row in rows])
        result[name] = {"pairs": len(rows), **reliability(sure, same, np.ones(len(rows)))}
        weighed.append((sure, same, np.full(len(rows), 1 / len(rows))))
    whole = [np.concatenate(part) for part in zip(*weighed, strict=True)]
    result["all_with_equal_weight"] = {"pairs": len(whole[0]), **reliability(*whole)}
    return result


def reliability(sure: Any, same: Any, mass: Any) -> dict[str, Any]:
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins, error = [], 0.0
    for place in range(BINS):
        inside = places == place
        if not inside.any():
            continue
        told = float(np.average(sure[inside], weights=mass[inside]))
        true = float(np.average(same[inside], weights=mass[inside]))
        share = float(mass[inside].sum() / mass.sum())
        error += share * abs(told - true)
        bins.append({"confidence": round(told, 4), "same": round(true, 4), "share": round(share, 4)})
    return {"expected_calibration_error": round(error, 4), "bins": bins}


# --- pairs ----------------------------------------------------------------------------------------


def pair_curve(rows: list[Sample]) -> dict[str, Any]:
    """Returns true and wrong hits of pairs over thresholds, of cosine alone and with the check."""
    blocked = np.array([judge(row.query, row.stored, row.similarity).blocked for row in rows])
    similar = np.array([row.similarity for row in rows])
    same = np.array([row.same for row in rows])
    curve = []
    for threshold in THRESHOLDS:
        reached = similar >= threshold
        true, wrong = reached & same, reached & ~same
        curve.append(
            {
                "threshold": threshold,
                "true_hits": int(true.sum()),
                "true_hits_checked": int((true & ~blocked).sum()),
                "wrong_hits": int(wrong.sum()),
                "wrong_hits_checked": int((wrong & ~blocked).sum()),
            }
        )
    at = next(row for row in curve if row["threshold"] == DEFAULT)
    return {
        "one_task": int(same.sum()),
        "other_task": int((~same).sum()),
        "at_default": {
            **at,
            "wrong_hit_rate": round(at["wrong_hits_checked"] / max(int((~same).sum()), 1), 4),
            "wrong_hit_rate_cosine": round(at["wrong_hits"] / max(int((~same).sum()), 1), 4),
            "wrong_hits_left": round(at["wrong_hits_checked"] / max(at["wrong_hits"], 1), 4),
            "true_hits_lost": round(1 - at["true_hits_checked"] / max(at["true_hits"], 1), 4),
        },
        "curve": curve,
    }


def by_kind(rows: list[Sample], kinds: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row, kind in zip(rows, kinds, strict=True):
        if row.similarity < DEFAULT:
            continue
        blocked = judge(row.query, row.stored, row.similarity).blocked
        counts = found.setdefault(kind, {"wrong": 0, "wrong_checked": 0, "true": 0, "true_checked": 0})
        name = "true" if row.same else "wrong"
        counts[name] += 1
        counts[f"{name}_checked"] += not blocked
    return found


# --- intents --------------------------------------------------------------------------------------


class Recalled:
    """The nearest entries of many queries, with what the check says of them.

    Args:
        shared: The entries of an intent have one answer; else each has its own.
    """

    def __init__(
        self, queries: list[tuple[str, str]], store: list[tuple[str, str]], embedded: Embedded, shared: bool
    ) -> None:
        similar = embedded.vectors([text for text, _ in queries]) @ embedded.vectors([text for text, _ in store]).T
        order = np.argsort(-similar, axis=1, kind="stable")[:, :NEIGHBOURS]
        kept = [
            Entry(key, str(key), "memory", task, intent if shared else f"answer {key}", 0.0, None, ())
            for key, (task, intent) in enumerate(store)
        ]
        self.similar = np.clip(np.take_along_axis(similar, order, 1), 0.0, 1.0)[:, :CANDIDATES]
        self.same = np.array(
            [[store[place][1] == queries[number][1] for place in row[:CANDIDATES]] for number, row in enumerate(order)]
        )
        self.sure = np.zeros_like(self.similar)
        self.blocked = np.ones_like(self.same)
        for number, row in enumerate(order):
            near = [Near(kept[place], float(min(max(similar[number, place], 0.0), 1.0))) for place in row]
            besides: list[Near] = []
            for rank, candidate in enumerate(near[:CANDIDATES]):
                if candidate.similarity < THRESHOLDS[0]:
                    break
                judged = judge_among(queries[number][0], candidate, near, besides)
                self.sure[number, rank], self.blocked[number, rank] = judged.confidence, judged.blocked
                if judged.blocked and judged.rival is None:
                    besides.append(candidate)

    def figures(self, served: Any) -> tuple[float, float]:
        """Returns hit rate and share of hits of the same intent; `served` is a rank for each query, or -1."""
        hit = served >= 0
        right = self.same[np.arange(len(served)), np.maximum(served, 0)] & hit
        return float(hit.mean()), float(right.sum() / max(hit.sum(), 1))

    def cosine(self, threshold: float) -> Any:
        return np.where(self.similar[:, 0] >= threshold, 0, -1)

    def checked(self, threshold: float, candidates: int = CANDIDATES) -> Any:
        passed = (self.similar >= threshold) & ~self.blocked
        passed[:, candidates:] = False
        return np.where(passed.any(1), passed.argmax(1), -1)

    def trusted(self, threshold: float) -> Any:
        """Serves the entry of the greatest confidence, not the nearest."""
        sure = np.where((self.similar >= threshold) & ~self.blocked, self.sure, -1.0)
        return np.where(sure.max(1) >= 0, sure.argmax(1), -1)


def benchmark(intents: Intents, embedded: Embedded) -> dict[str, Any]:
    result: dict[str, Any] = {"stored_of_each_intent": intents.stored, "seeds": len(SEEDS)}
    for name, only_held, shared in (
        ("held_out_intents", True, False),
        ("all_intents", False, False),
        ("held_out_intents_sharing_answers", True, True),
        ("all_intents_sharing_answers", False, True),
    ):
        queries = [one for one in intents.test if not only_held or held_out(one[1])]
        runs = [Recalled(queries, entries(intents, seed), embedded, shared) for seed in SEEDS]

        def mean(serve: Callable[[Recalled], Any], runs: list[Recalled] = runs) -> tuple[float, float]:
            found = np.mean([run.figures(serve(run)) for run in runs], axis=0)
            return round(float(found[0]), 4), round(float(found[1]), 4)

        cosine = mean(lambda run: run.cosine(DEFAULT))
        curve = []
        for threshold in THRESHOLDS:
            plain, checked = mean(lambda run, t=threshold: run.cosine(t)), mean(lambda run, t=threshold: run.checked(t))
            curve.append(
                {
                    "threshold": threshold,
                    "hit_rate": plain[0],
                    "precision": plain[1],
                    "hit_rate_checked": checked[0],
                    "precision_checked": checked[1],
                }
            )
        equal = next((row for row in reversed(curve) if row["hit_rate_checked"] >= cosine[0]), None)
        result[name] = {
            "queries": len(queries),
            "cosine_at_default": cosine,
            "checked_at_default": mean(lambda run: run.checked(DEFAULT)),
            "only_the_nearest_checked_at_default": mean(lambda run: run.checked(DEFAULT, 1)),
            "most_trusted_at_default": mean(lambda run: run.trusted(DEFAULT)),
            "checked_at_the_hit_rate_of_cosine": equal,
            "curve": curve,
        }
    if intents.outside:
        strangers = [(text, "") for text in intents.outside]
        alone, sharing = (Recalled(strangers, entries(intents, 0), embedded, shared) for shared in (False, True))
        result["outside"] = {
            "queries": len(intents.outside),
            "hits_cosine": int((alone.cosine(DEFAULT) >= 0).sum()),
            "hits_checked": int((alone.checked(DEFAULT) >= 0).sum()),
            "hits_checked_sharing_answers": int((sharing.checked(DEFAULT) >= 0).sum()),
        }
    return result


# --- drift ----------------------------------------------------------------------------------------


def streams(sets: list[Intents], rows: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Returns streams of (text, what it asks for): all test queries of each set, and our own pairs."""
    found = {one.name: list(one.test) for one in sets}
    task: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: not row["same"]):
        one, other = row["query"], row["stored"]
        if row["same"]:
            task[other] = task.setdefault(one, task.get(other, one))
        else:
            task.setdefault(one, one)
            task.setdefault(other, other)
    found["own_pairs"] = sorted(task.items())
    for name, stream in found.items():
        found[name] = [stream[place] for place in np.random.default_rng(0).permutation(len(stream))[:4000]]
    return found


def drift(stream: list[tuple[str, str]], embedded: Embedded) -> list[dict[str, Any]]:
    """Replays a stream of queries: a miss is stored, a hit is served by what is stored.

    A wrong first fill answers every later query near to it, so wrong answers grow with the stream.
    """
    vectors = embedded.vectors([text for text, _ in stream])
    rows = []
    for threshold in (0.8, 0.85, 0.9):
        row: dict[str, Any] = {"threshold": threshold, "queries": len(stream)}
        for name in ("cosine", "checked"):
            stored: list[int] = []
            hits = wrong = 0
            for number, (text, intent) in enumerate(stream):
                similar = vectors[stored] @ vectors[number]
                near = [place for place in np.argsort(-similar)[:CANDIDATES] if similar[place] >= threshold]
                if name == "checked":
                    judged = ((place, judge(text, stream[stored[place]][0], float(similar[place]))) for place in near)
                    near = [next((place for place, one in judged if not one.blocked), -1)]
                    near = [] if near == [-1] else near
                if near:
                    hits += 1
                    wrong += stream[stored[near[0]]][1] != intent
                else:
                    stored.append(number)
            row[name] = {"hits": hits, "wrong": wrong, "wrong_share": round(wrong / max(hits, 1), 4)}
        rows.append(row)
    return rows


# --- time -----------------------------------------------------------------------------------------


def recall_latency(intents: Intents, embedded: Embedded) -> dict[str, float]:
    """Returns processor time, ms, that the check adds to a recall that reached the threshold: one judgement or more."""
    store = entries(intents, 0)
    queries = intents.test
    similar = embedded.vectors([text for text, _ in queries]) @ embedded.vectors([text for text, _ in store]).T
    took = []
    for (text, _), row in zip(queries, similar, strict=True):
        near = [place for place in np.argsort(-row)[:CANDIDATES] if row[place] >= DEFAULT]
        if not near:
            continue
        started = time.thread_time()
        for place in near:
            if not judge(text, store[place][0], float(row[place])).blocked:
                break
        took.append((time.thread_time() - started) * 1000)
    return spread(took, 3)


def latency(*sets: list[Sample]) -> dict[str, Any]:
    """Returns milliseconds of one judgement: of processor time, and by the clock, which other work lengthens."""
    result = {}
    for name, rows in zip(("own_pairs", "intents"), sets, strict=True):
        took, walls = [], []
        for row in rows[:3000]:
            started, clock = time.thread_time(), time.perf_counter()
            judge(row.query, row.stored, row.similarity)
            took.append((time.thread_time() - started) * 1000)
            walls.append((time.perf_counter() - clock) * 1000)
        result[name] = {**spread(took, 3), "wall": spread(walls, 3)}
    text = "Restart the payment service of the third cluster after 30 seconds. " * 15_000
    started = time.perf_counter()
    judge(text, "Stop it. " + text, 0.9)
    result["texts_of_1_mb"] = round((time.perf_counter() - started) * 1000, 2)
    return result


if __name__ == "__main__":
    main()
