"""The error that learned thresholds leave: on simulated entries, and on a stream of real queries.

    python validation/learned_thresholds.py --data DIR --out validation/results/learned_thresholds.json

DIR holds `banking77/` (train.csv, test.csv; PolyAI, CC BY 4.0) and `clinc150/` (data_full.json; CC BY 3.0) as they
are published. 12 and 8 queries of each intent are stored, those of the test set come in five random orders; an answer
is right if its intent is. Feedback is given on each answer that is served, or on one in three.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from conditions import write

from subconscious_mcp.config import resolve
from subconscious_mcp.feedback import WIDTHS, learned, prior_weight
from subconscious_mcp.opening import load_embedder

LEAST = 0.85
ORDERS = 5
QUERIES = 60
SHAPES = {
    "a step at 0.93": lambda s: float(s >= 0.93),
    "right in 4 of 5, everywhere": lambda s: 0.8,
    "a slope from 0.80 to 0.92": lambda s: min(1.0, max(0.0, (s - 0.8) / 0.12)),
    "half below 0.95, 99 % above": lambda s: 0.5 if s < 0.95 else 0.99,
    "never right": lambda s: 0.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    write(
        arguments.out,
        {
            "what": "learned thresholds",
            "simulated": [*as_believed(), *of_other_shapes()],
            "replayed": [row for name in ("banking77", "clinc150") for row in replayed(arguments.data, name)],
        },
    )


# --- simulated entries: similarities are uniform from the caller's threshold to 1


def serve(right: Any, rng: np.random.Generator, max_error: float, told: float) -> list[tuple[bool, int]]:
    said: list[tuple[float, bool]] = []
    served = []
    for similarity in map(float, rng.uniform(LEAST, 1.0, QUERIES)):
        if similarity >= learned(said, LEAST, max_error).threshold:
            correct = bool(rng.random() < right(similarity))
            served.append((not correct, len(said)))
            if rng.random() < told:
                said.append((similarity, correct))
    return served


def as_believed() -> list[dict[str, Any]]:
    rows = []
    grid = np.arange(-0.35, 1.5, 0.01)
    for max_error in (0.02, 0.05, 0.1):
        for width in WIDTHS:
            for told in (1.0, 0.3):
                rng = np.random.default_rng(1)
                weights = np.array([prior_weight(float(m), LEAST, max_error, width) for m in grid])
                outcomes = []
                for midpoint in rng.choice(grid, 400, p=weights / weights.sum()):
                    right = lambda s, m=float(midpoint), w=width: 1 / (1 + math.exp(-(s - m) / w))  # noqa: E731
                    outcomes += serve(right, rng, max_error, told)
                rows.append({"entries": f"as believed, width {width}", **figures(outcomes, 400, max_error, told)})
    return rows


def of_other_shapes() -> list[dict[str, Any]]:
    rows = []
    for name, right in SHAPES.items():
        rng = np.random.default_rng(2)
        outcomes = [outcome for _ in range(100) for outcome in serve(right, rng, 0.05, 1.0)]
        rows.append({"entries": name, **figures(outcomes, 100, 0.05, 1.0)})
    return rows


def figures(outcomes: list[tuple[bool, int]], entries: int, max_error: float, told: float) -> dict[str, Any]:
    wrong = sum(wrong for wrong, _ in outcomes)
    return {
        "max_error": max_error,
        "feedback_on": told,
        "served_of_queries": round(len(outcomes) / entries / QUERIES, 4),
        "error": round(wrong / max(1, len(outcomes)), 4),
        "wrong_an_entry": round(wrong / entries, 3),
    }


# --- real queries


def read(data: Path, name: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]], int]:
    if name == "banking77":
        train, test = (
            [(row["text"], row["category"]) for row in csv.DictReader((data / name / file).open(encoding="utf-8"))]
            for file in ("train.csv", "test.csv")
        )
        return train, test, 12
    whole = json.loads((data / name / "data_full.json").read_text(encoding="utf-8"))
    return whole["train"], whole["test"], 8


def replayed(data: Path, name: str) -> list[dict[str, Any]]:
    train, test, an_intent = read(data, name)
    seen: Counter[str] = Counter()
    stored = []
    for text, intent in train:
        seen[intent] += 1
        if seen[intent] <= an_intent:
            stored.append((text, intent))
    embedder = load_embedder(resolve().config)
    near = embedder.embed([text for text, _ in test]) @ embedder.embed([text for text, _ in stored]).T
    best = near.argmax(axis=1)
    similarity = np.clip(near[np.arange(len(test)), best], 0, 1).round(6)
    right = [intent == stored[index][1] for (_, intent), index in zip(test, best, strict=True)]
    return [
        replay(name, similarity.tolist(), right, best.tolist(), least, max_error, told)
        for least in (0.8, 0.85)
        for max_error in (0.03, 0.05, 0.1)
        for told in (1.0, 1 / 3)
    ]


def replay(
    name: str, similarity: list[float], right: list[bool], best: list[int], least: float, max_error: float, told: float
) -> dict[str, Any]:
    near = [index for index, value in enumerate(similarity) if value >= least]
    served = wrong = later = wrong_later = 0
    for order in range(ORDERS):
        rng = np.random.default_rng(order)
        said: dict[int, list[tuple[float, bool]]] = {}
        for query in map(int, rng.permutation(near)):
            before = said.setdefault(best[query], [])
            if similarity[query] < learned(before, least, max_error).threshold:
                continue
            served += 1
            wrong += not right[query]
            if before:
                later += 1
                wrong_later += not right[query]
            if rng.random() < told:
                before.append((similarity[query], right[query]))
    return {
        "data": name,
        "threshold": least,
        "max_error": max_error,
        "feedback_on": round(told, 2),
        "hits_without": len(near),
        "error_without": round(sum(not right[query] for query in near) / len(near), 4),
        "hits_kept": round(served / ORDERS / len(near), 4),
        "error": round(wrong / served, 4),
        "error_after_feedback": round(wrong_later / max(1, later), 4),
    }


if __name__ == "__main__":
    main()
