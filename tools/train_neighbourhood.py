"""Fits the weights of `subconscious_mcp/neighbourhood.json`: logistic regression in numpy.

    python tools/train_neighbourhood.py --banking77 DIR --clinc150 DIR [--work DIR]

What the data are, `confidence_data.py` says. Entries of an intent share their answer. Stores with few and with many
wordings of an intent count alike; queries and entries are of intents that are not held out.
"""

from __future__ import annotations

import argparse
import datetime
import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from confidence_data import Embedded, Intents, entries, held_out, read_banking77, read_clinc150

from subconscious_mcp.neighbourhood import FEATURES, NEIGHBOURS, evidence, features, terms
from subconscious_mcp.records import Entry, Near

OUT = Path(__file__).parent.parent / "subconscious_mcp" / "neighbourhood.json"
FEW = 4
"""Wordings of an intent in the smaller of the stores that are learnt from; the larger is the benchmark's."""
LEAST = 0.6
"""Similarity from which a candidate is learnt from."""
PENALTY = 5e-4
"""Of the squared weights, beside the mean loss."""
LIMIT = 0.955
"""Confidence below which an answer is kept back. Source: of 0.92 to 0.97, where the intents of training keep the hit
rate that cosine has at 0.85 when the threshold is 0.65, and at most 1.5 % of their hits are wrong."""


def surroundings(queries: list[tuple[str, str]], store: list[tuple[str, str]], embedded: Embedded) -> list[list[Near]]:
    """Returns the entries near to each query, nearest first, with the intent as their answer."""
    similar = embedded.vectors([text for text, _ in queries]) @ embedded.vectors([text for text, _ in store]).T
    kept = [Entry(key, str(key), "memory", task, intent, 0.0, None, ()) for key, (task, intent) in enumerate(store)]
    order = np.argsort(-similar, axis=1, kind="stable")[:, :NEIGHBOURS]
    return [
        [Near(kept[place], float(np.clip(row[place], 0.0, 1.0))) for place in places]
        for row, places in zip(similar, order, strict=True)
    ]


def samples(intents: Intents, embedded: Embedded, seed: int) -> tuple[Any, Any, Any]:
    """Returns features, shape (n, features), whether each is right, shape (n,), and mass, shape (n,)."""
    queries = [one for one in intents.test if not held_out(one[1])]
    values, right, mass = [], [], []
    for stored in (FEW, intents.stored):
        store = [one for one in entries(replace(intents, stored=stored), seed) if not held_out(one[1])]
        found = []
        for (_, intent), near in zip(queries, surroundings(queries, store, embedded), strict=True):
            told = evidence(near[0], near) if near[0].similarity >= LEAST else None
            if told is not None:
                found.append((features(told), near[0].entry.answer == intent))
        values += [row for row, _ in found]
        right += [float(same) for _, same in found]
        mass += [1.0 / len(found)] * len(found)
    return np.array(values), np.array(right), np.array(mass) / 2


def fit(rows: Any, right: Any, mass: Any) -> tuple[Any, float]:
    """Returns weights and intercept, by Newton's method."""
    rows = np.column_stack([rows, np.ones(len(rows))])
    mass = mass / mass.sum()
    found = np.zeros(rows.shape[1])
    damp = np.diag([PENALTY] * (len(found) - 1) + [0.0])
    for _ in range(50):
        sure = 1 / (1 + np.exp(-(rows @ found)))
        slope = rows.T @ ((sure - right) * mass) + damp @ found
        step = np.linalg.solve((rows * (sure * (1 - sure) * mass)[:, None]).T @ rows + damp, slope)
        found = found - step
        if np.abs(step).max() < 1e-9:
            break
    return found[:-1], float(found[-1])


def main() -> None:
    """Trains and writes the weights file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking77", type=Path, required=True, help="folder with train.csv and test.csv")
    parser.add_argument("--clinc150", type=Path, required=True, help="folder with data_full.json")
    parser.add_argument("--work", type=Path, help="folder where vectors are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    embedded = Embedded(arguments.work)
    sets = [read_banking77(arguments.banking77), read_clinc150(arguments.clinc150)]
    parts = [samples(one, embedded, arguments.seed) for one in sets]
    values, right, mass = (np.concatenate(part) for part in zip(*parts, strict=True))
    middle = np.round(np.average(values, axis=0, weights=mass), 4)
    spread = np.round(np.sqrt(np.average((values - middle) ** 2, axis=0, weights=mass)), 4)
    weights, intercept = fit(np.array([terms(row) for row in (values - middle) / spread]), right, mass)
    held = {
        "about": {
            "model": "logistic regression on the features and their products",
            "trained_by": "tools/train_neighbourhood.py",
            "data": {one.name: len(part[0]) for one, part in zip(sets, parts, strict=True)},
            "held_out": "two fifths of the intents",
            "seed": arguments.seed,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "version": metadata.version("subconscious-mcp"),
        },
        "limit": LIMIT,
        "intercept": round(intercept, 4),
        "weights": [round(float(weight), 4) for weight in weights],
    }
    # A feature a line.
    lines = ",\n".join(
        "  " + json.dumps({"name": name, "middle": float(one), "spread": float(other)})
        for name, one, other in zip(FEATURES, middle, spread, strict=True)
    )
    text = json.dumps(held, indent=1).removesuffix("\n}") + f',\n "features": [\n{lines}\n ]\n}}'
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
