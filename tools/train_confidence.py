"""Fits the weights of `subconscious_mcp/confidence.json`: logistic regression in numpy.

    python tools/train_confidence.py --banking77 DIR --clinc150 DIR --paraphrase FILE [--work DIR]

What the data are, `confidence_data.py` says; with --work the vectors are kept there between runs. The same
data, seed and model give the same file.

Each source counts by `MASS`, however many pairs it has. Questions of one intent that contrast strongly are
left out: an intent is wider than a task ("send 20 dollars" and "send 50 dollars" are one), and the answer
to the one is none to the other.
"""

from __future__ import annotations

import argparse
import datetime
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from confidence_data import (
    Embedded,
    Sample,
    neighbours,
    own_pairs,
    paraphrased,
    read_banking77,
    read_clinc150,
    read_paraphrases,
)

from subconscious_mcp.confidence import FEATURES, SIMILARITY, features

OUT = Path(__file__).parent.parent / "subconscious_mcp" / "confidence.json"
MASS = {"frames": 1.0, "written": 0.6, "banking77": 0.4, "clinc150": 0.3, "paraphrase": 0.2}
"""How much each source counts. Source: tried on the part of the data that is held out from training; the
pairs of `validation/contrast_pairs.jsonl` took no part in it."""
PENALTY = 20.0
"""Of the squared weights, for 10,000 pairs."""
LOSS = 0.006
"""Share of true hits at a similarity of 0.85 that the limit may cost among our own pairs of training. Source:
of 0.02, 0.007, 0.006 and 0.005 one in the flat part (limits of 0.5 to 0.75 give the same figures within a pair or
two), with the totals of `validation/contrast_pairs.jsonl` in sight."""
RISES = (*SIMILARITY, "covered", "covered_least")
FREE = ("small_alone", "shared", "brief", "not_english", "cut")
"""Features whose weight may have either sign. Any other speaks against the stored answer or not at all, so
that a contrast that is rare in the data cannot come out as a recommendation."""


def samples(arguments: argparse.Namespace, embedded: Embedded) -> dict[str, list[Sample]]:
    """Returns the pairs of all sources."""
    near = {"seed": arguments.seed, "nearest": 8, "least": 0.7}
    return {
        **own_pairs(embedded, arguments.seed),
        "banking77": neighbours(read_banking77(arguments.banking77), embedded, most=4000, **near),
        "clinc150": neighbours(read_clinc150(arguments.clinc150), embedded, most=5000, **near),
        "paraphrase": paraphrased(read_paraphrases(arguments.paraphrase), embedded),
    }


def matrix(rows: list[Sample]) -> tuple[Any, Any]:
    """Returns features, shape (n, features), and whether each pair is one task, shape (n,)."""
    held = np.array([features(row.query, row.stored, row.similarity) for row in rows])
    return held, np.array([float(row.same) for row in rows])


def fit(values: Any, same: Any, mass: Any, steps: int = 4000) -> tuple[Any, float]:
    """Returns weights and intercept: accelerated projected gradient, with signs as `RISES` and `FREE` say."""
    signs = np.array([0.0 if name in FREE else 1.0 if name in RISES else -1.0 for name in FEATURES])
    middle = np.average(values, axis=0, weights=mass)
    # The floor keeps a rare feature from a weight that a handful of pairs decided.
    spread = np.maximum(np.sqrt(np.average((values - middle) ** 2, axis=0, weights=mass)), 0.2)
    scaled = (values - middle) / spread
    total = mass.sum()
    steepest = 0.25 * np.linalg.eigvalsh((scaled * mass[:, None]).T @ scaled / total)[-1] + 0.25
    weights, intercept, pace = np.zeros(len(FEATURES)), 0.0, 1.0
    ahead, ahead_intercept = weights, intercept
    for _ in range(steps):
        wrong = (1 / (1 + np.exp(-(scaled @ ahead + ahead_intercept))) - same) * mass / total
        stepped = ahead - (scaled.T @ wrong + PENALTY / total * ahead) / steepest
        stepped = np.where(stepped * signs < 0, 0.0, stepped)
        stepped_intercept = ahead_intercept - wrong.sum() / steepest
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        ahead = stepped + (pace - 1) / faster * (stepped - weights)
        ahead_intercept = stepped_intercept + (pace - 1) / faster * (stepped_intercept - intercept)
        weights, intercept, pace = stepped, stepped_intercept, faster
    return weights / spread, float(intercept - (weights / spread) @ middle)


def train(sources: dict[str, list[Sample]]) -> tuple[Any, float, float, dict[str, int]]:
    """Returns weights, intercept, limit, and how many pairs of each source were learnt from."""
    strongest = FEATURES.index("strongest")
    parts, counts, own = [], {}, []
    for name, rows in sources.items():
        learnt = [row for row in rows if not row.held]
        values, same = matrix(learnt)
        if name in ("banking77", "clinc150"):
            told = (same == 0) | (values[:, strongest] < 0.5)
            values, same = values[told], same[told]
        counts[name] = len(same)
        parts.append((values, same, np.full(len(same), 10_000 * MASS[name] / sum(MASS.values()) / len(same))))
        if name in ("frames", "written"):
            near = np.array([row.similarity >= 0.85 and row.same for row in learnt])
            own.append(values[near])
    values, same, mass = (np.concatenate(part) for part in zip(*parts, strict=True))
    weights, intercept = fit(values, same, mass)
    true_hits = 1 / (1 + np.exp(-(np.concatenate(own) @ weights + intercept)))
    return weights, intercept, round(float(np.quantile(true_hits, LOSS)), 3), counts


def main() -> None:
    """Trains and writes the weights file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking77", type=Path, required=True, help="folder with train.csv and test.csv")
    parser.add_argument("--clinc150", type=Path, required=True, help="folder with data_full.json")
    parser.add_argument("--paraphrase", type=Path, required=True, help="JSON list of origin and similar")
    parser.add_argument("--work", type=Path, help="folder where vectors are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    weights, intercept, limit, counts = train(samples(arguments, Embedded(arguments.work)))
    held: dict[str, Any] = {
        "about": {
            "model": "logistic regression",
            "trained_by": "tools/train_confidence.py",
            "data": counts,
            "mass": MASS,
            "held_out": "two fifths of the intents, frames and paraphrases",
            "seed": arguments.seed,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "version": metadata.version("subconscious-mcp"),
        },
        "limit": limit,
        "intercept": round(intercept, 4),
        "features": [
            {"name": name, "weight": round(float(weight), 4) + 0.0}
            for name, weight in zip(FEATURES, weights, strict=True)
        ],
    }
    rows = held.pop("features")
    # A feature a line.
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = json.dumps(held, indent=1).removesuffix("\n}") + f',\n "features": [\n{lines}\n ]\n}}'
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
