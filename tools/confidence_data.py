"""Reads what the confidence is trained and measured on, and splits it by what a task is about.

The data are not in the repository; the scripts take their paths:

- banking77: 13,083 questions to a bank, 77 close intents (PolyAI-LDN/task-specific-datasets, CC BY 4.0);
- clinc150: 150 intents and questions outside of them (clinc/oos-eval, CC BY 3.0);
- paraphrase: pairs `origin` and `similar`, a JSON list (zilliztech/GPTCache, MIT).

The tasks of an intent, and the wordings of a frame, are on one side of the split as a whole.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confidence_pairs import generate, written

from subconscious_mcp.config import resolve
from subconscious_mcp.opening import load_embedder

HELD_OUT = 0.4
"""Share of intents and frames that training never sees."""


@dataclass(frozen=True, slots=True)
class Intents:
    """Questions with their intents.

    Attributes:
        name: Of the data set.
        train: (text, intent) of the part that entries are taken from.
        test: (text, intent) of the part that queries are taken from.
        stored: Entries of an intent in the benchmark.
        outside: Queries of no intent.
    """

    name: str
    train: list[tuple[str, str]]
    test: list[tuple[str, str]]
    stored: int
    outside: list[str]


def read_banking77(folder: Path) -> Intents:
    """Reads train.csv and test.csv."""
    parts = []
    for name in ("train.csv", "test.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            parts.append([(row["text"], row["category"]) for row in csv.DictReader(file)])
    return Intents("banking77", parts[0], parts[1], 12, [])


def read_clinc150(folder: Path) -> Intents:
    """Reads data_full.json."""
    held = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    train, test = ([(text, intent) for text, intent in held[part]] for part in ("train", "test"))
    return Intents("clinc150", train, test, 8, [text for text, _ in held["oos_test"]][:300])


def read_paraphrases(file: Path) -> list[tuple[str, str]]:
    """Reads a JSON list of objects with `origin` and `similar`, or the folder that holds it."""
    path = file / "mock_data.json" if file.is_dir() else file
    return [(row["origin"], row["similar"]) for row in json.loads(path.read_text(encoding="utf-8"))]


def held_out(group: str) -> bool:
    """Tells whether a group (an intent, a frame) is for measuring only; the same on every machine."""
    digest = hashlib.sha256(group.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < HELD_OUT


def entries(intents: Intents, seed: int) -> list[tuple[str, str]]:
    """Returns the entries of a store: as many of each intent as the benchmark has."""
    by_intent: dict[str, list[str]] = {}
    for text, intent in intents.train:
        by_intent.setdefault(intent, []).append(text)
    chance = np.random.default_rng(seed)
    return [
        (texts[place], intent)
        for intent, texts in sorted(by_intent.items())
        for place in chance.permutation(len(texts))[: intents.stored]
    ]


class Embedded:
    """Vectors of texts, kept in a folder between runs.

    Args:
        folder: Where the vectors are kept, or None.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = folder / "confidence_vectors.npz" if folder else None
        self._place: dict[str, int] = {}
        self._vectors: Any = np.zeros((0, 384), np.float32)
        if self._file is not None and self._file.exists():
            with np.load(self._file) as held:
                self._vectors = held["vectors"]
                self._place = {text: place for place, text in enumerate(json.loads(str(held["texts"])))}

    def vectors(self, texts: Sequence[str]) -> Any:
        """Returns the vectors of texts, shape (n, 384) float32, rows L2-normalised."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._place]
        if missing:
            found = np.asarray(load_embedder(resolve().config).embed(missing), np.float32)
            self._place |= {text: len(self._place) + number for number, text in enumerate(missing)}
            self._vectors = np.concatenate([self._vectors, found])
            if self._file is not None:
                np.savez(self._file, vectors=self._vectors, texts=json.dumps(list(self._place)))
        return self._vectors[[self._place[text] for text in texts]]

    def similarities(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Returns the cosine of each pair, shape (n,), clamped to 0..1."""
        one, other = self.vectors([pair[0] for pair in pairs]), self.vectors([pair[1] for pair in pairs])
        return np.clip(np.sum(one * other, axis=1), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """A query and a stored task whose similarity and sameness are known.

    Attributes:
        held: It is for measuring only.
    """

    query: str
    stored: str
    similarity: float
    same: bool
    held: bool


def neighbours(
    intents: Intents, embedded: Embedded, *, seed: int, nearest: int, least: float, most: int
) -> list[Sample]:
    """Returns queries with their nearest entries: one task where the intent is the same.

    A pair is held out if its query's intent is; of the others both intents are for training.

    Args:
        seed: Of the choice of entries and queries.
        nearest: Entries for each query.
        least: Smallest similarity.
        most: Queries of training, and as many to measure.
    """
    stored = entries(intents, seed)
    known = {text for text, _ in stored}
    found: list[Sample] = []
    for held in (False, True):
        queries = [one for one in intents.test + intents.train if held_out(one[1]) == held and one[0] not in known]
        queries = [queries[place] for place in np.random.default_rng(seed).permutation(len(queries))[:most]]
        store = [one for one in stored if held or not held_out(one[1])]
        similar = embedded.vectors([text for text, _ in queries]) @ embedded.vectors([text for text, _ in store]).T
        for (text, intent), row in zip(queries, similar, strict=True):
            for place in np.argsort(-row, kind="stable")[:nearest]:
                if row[place] >= least:
                    task, other = store[place]
                    found.append(Sample(text, task, float(min(row[place], 1.0)), intent == other, held))
    return found


def own_pairs(embedded: Embedded, seed: int) -> dict[str, list[Sample]]:
    """Returns the pairs of frames and those that were written one by one."""
    found = {}
    for name, pairs in (("frames", generate(seed)), ("written", written())):
        near = embedded.similarities([(pair.query, pair.stored) for pair in pairs])
        found[name] = [
            Sample(pair.query, pair.stored, float(similarity), pair.same, held_out(pair.group))
            for pair, similarity in zip(pairs, near, strict=True)
        ]
    return found


def paraphrased(pairs: list[tuple[str, str]], embedded: Embedded) -> list[Sample]:
    """Returns the pairs of a list of paraphrases, and each text with the paraphrases of its nearest others."""
    texts = [one for one, _ in pairs]
    vectors = embedded.vectors(texts)
    labelled = [(one, other, True, number) for number, (one, other) in enumerate(pairs)]
    for number, row in enumerate(vectors @ vectors.T):
        for place in np.argsort(-row, kind="stable")[:6]:
            if 0.6 < row[place] < 0.93:  # Above it the list has duplicates.
                labelled.append((texts[number], pairs[place][1], False, number))
    near = embedded.similarities([(one, other) for one, other, _, _ in labelled])
    return [
        Sample(one, other, float(similarity), same, held_out(f"paraphrase {number}"))
        for (one, other, same, number), similarity in zip(labelled, near, strict=True)
    ]
