"""Search for notes: recall of what answers, for vectors alone, bm25, both fused by rank, and the product's order.

    python validation/retrieval.py --conversations DIR --devbench FILE --docs DIR --unrelated FILE \
        --work DIR --out validation/results/retrieval.json

Conversations: `turns.jsonl` and `questions.jsonl` of LoCoMo (snap-research/locomo; measured only, none of it is
here). Each turn is a note "speaker: text", its source is the session. Recall of a question is the share of its
evidence turns among the first k; category 5 asks of the wrong person and has no answer. devbench: 30 notes and 20
questions of doobidoo/mcp-memory-service. Docs: Markdown pages, cut at headings and paragraphs into notes of at most
`--characters`, the page as their source; the first note of a page counts. Unrelated: a CSV of questions about
something else (banking77's test.csv).

All collections are namespaces of one storage directory, as they would be; notes and candidates go through the store.

Leave one out: each constant is chosen among half, one and twice its value on the other conversations, one after the
other, and measured on the one left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# Before numpy, as the product does.
from subconscious_mcp.heavy_imports import calm_numpy

calm_numpy()

import numpy as np
from conditions import spread, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from confidence_data import Embedded

from subconscious_mcp import full_text, hybrid
from subconscious_mcp.config import resolve
from subconscious_mcp.opening import load_embedder, open_store
from subconscious_mcp.records import NewEntry

KS = (1, 5, 10, 20)
NOW = 4e9
RRF = 60
CONSTANTS = (
    "BEFORE",
    "AFTER",
    "FURTHER",
    "PHRASE",
    "LEAST_WEIGHT",
    "COMPLETE",
    "ANSWER",
    "SPEAKER",
    "TIME",
)
WEIGHTS = ((0.4, 0.6), (0.55, 0.45), (0.7, 0.3))
WITHOUT = {
    "passages": {"BEFORE": 0.0, "AFTER": 0.0, "FURTHER": 0.0},
    "two away": {"FURTHER": 0.0},
    "phrases": {"PHRASE": 0.0},
    "answers to questions": {"ANSWER": 0.0},
    "speakers": {"SPEAKER": 0.0},
    "times": {"TIME": 0.0},
    "all of these": {"BEFORE": 0.0, "AFTER": 0.0, "FURTHER": 0.0, "PHRASE": 0.0, "ANSWER": 0.0, "SPEAKER": 0.0}
    | {"TIME": 0.0},
}


@dataclass(frozen=True, slots=True)
class Text:
    """A note before it is stored; `created_at` in seconds since the epoch."""

    text: str
    source: str = ""
    created_at: float = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the places of the notes that answer; of pages, any note of one of the sources does."""

    text: str
    category: str = ""
    answers: frozenset[int] = frozenset()
    sources: frozenset[str] = frozenset()

    @property
    def answerable(self) -> bool:
        return bool(self.answers or self.sources)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the store says to a question; keys are places in the collection. `ms` of processor time."""

    question: Question
    terms: tuple[str, ...]
    holders: tuple[Sequence[int] | None, ...]
    notes: int
    similarities: dict[int, float]
    beside: dict[int, tuple[int | None, int | None]]
    ms: float


class Collection:
    """Notes in a namespace of their own, and questions about them."""

    def __init__(self, name: str, texts: list[Text], questions: list[Question], embedded: Embedded, store: Any) -> None:
        self.name, self.texts, self.questions, self.store = name, texts, questions, store
        self.vectors = embedded.vectors([one.text for one in texts])
        self.fingerprint = load_embedder(resolve().config).fingerprint
        self.namespace = store.namespace(name, None)
        for number, (one, vector) in enumerate(zip(texts, self.vectors, strict=True)):
            entry = NewEntry(f"{name}-{number}", "note", one.text, "", one.created_at, source=one.source)
            store.add(self.namespace, entry, self.fingerprint, vector)
        entries = store.recent(self.namespace, ("note",), len(texts), now=NOW)
        self.place = {entry.key: int(entry.id.rpartition("-")[2]) for entry in entries}
        self.words = sqlite3.connect(":memory:")
        self.words.execute("CREATE VIRTUAL TABLE notes USING fts5(text, tokenize = 'porter unicode61')")
        rows = [(key, texts[place].text) for key, place in self.place.items()]
        self.words.executemany("INSERT INTO notes (rowid, text) VALUES (?, ?)", rows)

    def bm25(self, expression: str) -> dict[int, float]:
        """Returns FTS5's own scores by key in this collection alone, higher is better."""
        found = self.words.execute("SELECT rowid, -bm25(notes) FROM notes WHERE notes MATCH ?", (expression,))
        return dict(found.fetchall())

    def held(self, query: str) -> tuple[tuple[str, ...], tuple[Sequence[int] | None, ...], int]:
        """Returns the terms of a query, the keys of who holds each, and how many notes there are."""
        terms = hybrid.keyword_terms(query, full_text.words(query))
        found = self.store.holders(self.namespace, ("note",), terms, query, now=NOW)
        keys = [[int(key) for key in one] for one in found.keys]
        return (*found.terms, *found.common), (*keys, *(None for _ in found.common)), found.count

    def gather(self, question: Question, vector: np.ndarray) -> Gathered:
        """Asks the store as the product does; the time is that of all but the search for the nearest."""
        store, which = self.store, (self.namespace, ("note",))
        similarities = store.nearest_keys(*which, self.fingerprint, vector, hybrid.CANDIDATES, now=NOW)
        started = time.process_time()
        terms, holders, notes = self.held(question.text)
        best = hybrid.best_by_words(hybrid.weigh(terms, holders, notes), hybrid.CANDIDATES)
        candidates = set(similarities).union(best)
        beside = store.beside(sorted(candidates), now=NOW)
        around = {key for pair in beside.values() for key in pair if key is not None} - candidates
        beside |= store.beside(sorted(around), now=NOW)
        lacking = sorted((candidates | around) - set(similarities))
        similarities |= store.similarities(*which, self.fingerprint, vector, lacking)
        ms = (time.process_time() - started) * 1000
        at = self.place
        return Gathered(
            question,
            terms,
            tuple(None if one is None else [at[key] for key in one] for one in holders),
            notes,
            {at[key]: similarity for key, similarity in similarities.items()},
            {
                at[key]: (None if one is None else at[one], None if other is None else at[other])
                for key, (one, other) in beside.items()
            },
            ms,
        )

    def ordered(self, gathered: Gathered, limit: int | None = None) -> list[int]:
        """Returns the places of the notes in the product's order."""
        words = hybrid.weigh(gathered.terms, gathered.holders, gathered.notes)
        found = hybrid.combine(gathered.similarities, words, gathered.beside)
        texts = {place: self.texts[place].text for place in hybrid.to_read(found)}
        born = {place: self.texts[place].created_at for place in texts}
        ranked = hybrid.rank(gathered.question.text, found, texts, born, limit=limit or len(found.keys))
        return [one.key for one in ranked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=Path, required=True)
    parser.add_argument("--devbench", type=Path, required=True)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--unrelated", type=Path, required=True)
    parser.add_argument("--characters", type=int, default=900)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    embedded = Embedded(arguments.work)
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        store = open_store(resolve().config, "benchmark", folder=Path(folder))
        try:
            write(arguments.out, measure(arguments, embedded, store))
        finally:
            store.close()


def measure(arguments: argparse.Namespace, embedded: Embedded, store: Any) -> dict[str, Any]:
    read = [*conversations(arguments.conversations), devbench(arguments.devbench)]
    read.append(docs(arguments.docs, arguments.characters))
    collections = [Collection(name, texts, questions, embedded, store) for name, texts, questions in read]
    *talks, notes, pages = collections
    gathered = {
        one.name: [
            one.gather(question, vector)
            for question, vector in zip(
                one.questions, embedded.vectors([question.text for question in one.questions]), strict=True
            )
        ]
        for one in collections
    }
    asked = {name: [one for one in rows if one.question.answerable] for name, rows in gathered.items()}
    ordering = []
    for one in collections:
        for row in gathered[one.name]:
            started = time.process_time()
            one.ordered(row, 10)
            ordering.append((time.process_time() - started) * 1000)
    return {
        "what": "search for notes",
        "notes": {one.name: len(one.texts) for one in collections},
        "questions": {name: len(rows) for name, rows in asked.items()},
        "conversations": of_conversations(talks, asked, embedded),
        "leave_one_out": leave_one_out(talks, asked),
        "without": {name: short(talks, asked, changes) for name, changes in WITHOUT.items()},
        "sensitivity": sensitivity(talks, asked),
        "devbench": {
            name: {f"@{k}": mean([recall(row.question, rank(row), k) for row in asked[notes.name]]) for k in (1, 5)}
            for name, rank in ways(notes, embedded).items()
        },
        "docs": {
            name: {
                f"@{k}": mean([page_found(pages, row.question, rank(row), k) for row in asked[pages.name]])
                for k in (1, 5)
            }
            for name, rank in ways(pages, embedded).items()
        },
        "floor": floor(collections, gathered, embedded, arguments.unrelated),
        "ms": {
            "asking the store, without the nearest": spread([row.ms for rows in gathered.values() for row in rows]),
            "ordering": spread(ordering),
        },
    }


def ways(one: Collection, embedded: Embedded) -> dict[str, Callable[[Gathered], list[int]]]:
    """Returns what is compared: from a question to places, the best first."""

    def cosines(row: Gathered) -> np.ndarray:
        return np.asarray(one.vectors @ embedded.vectors([row.question.text])[0])

    def by_words(row: Gathered) -> np.ndarray:
        scores = np.zeros(len(one.texts))
        for key, score in one.bm25(full_text.words_query(row.question.text)).items():
            scores[one.place[key]] = score
        return scores

    def best(scores: np.ndarray) -> list[int]:
        return np.argsort(-scores, kind="stable").tolist()

    def fused(row: Gathered) -> list[int]:
        scores = np.zeros(len(one.texts))
        for sides in (cosines(row), by_words(row)):
            for number, place in enumerate(best(sides)):
                if sides[place] > 0:
                    scores[place] += 1 / (RRF + number + 1)
        return best(scores)

    return {
        "vectors": lambda row: best(cosines(row)),
        "bm25": lambda row: best(by_words(row)),
        "reciprocal ranks": fused,
        "hybrid": one.ordered,
    }


def recall(question: Question, places: Sequence[int], k: int) -> float:
    return len(question.answers.intersection(places[:k])) / len(question.answers)


def page_found(pages: Collection, question: Question, places: Sequence[int], k: int) -> float:
    sources = list(dict.fromkeys(pages.texts[place].source for place in places))
    return float(not question.sources.isdisjoint(sources[:k]))


def mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 3)


def of_conversations(
    talks: Sequence[Collection], asked: Mapping[str, Sequence[Gathered]], embedded: Embedded
) -> dict[str, Any]:
    """Returns recall by way, of all, of each category and of each conversation."""
    result: dict[str, Any] = {}
    for name in ways(talks[0], embedded):
        rows = []
        for talk in talks:
            rank = ways(talk, embedded)[name]
            for row in asked[talk.name]:
                places = rank(row)
                rows.append((talk.name, row.question.category, [recall(row.question, places, k) for k in KS]))
        groups = {"all": rows}
        for category in sorted({row[1] for row in rows}):
            groups[f"category {category}"] = [row for row in rows if row[1] == category]
        for talk in talks:
            groups[talk.name] = [row for row in rows if row[0] == talk.name]
        result[name] = {
            group: {f"@{k}": mean([row[2][place] for row in members]) for place, k in enumerate(KS)}
            for group, members in groups.items()
        }
    return result


@contextmanager
def changed(constants: Mapping[str, float]) -> Iterator[None]:
    before = {name: getattr(hybrid, name) for name in constants}
    for name, value in constants.items():
        setattr(hybrid, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(hybrid, name, value)


def short(
    talks: Sequence[Collection], asked: Mapping[str, Sequence[Gathered]], constants: Mapping[str, float]
) -> dict[str, float]:
    """Returns recall@5 and @10 with other constants; the candidates stay those of the present ones."""
    rows = []
    with changed(constants):
        for talk in talks:
            for row in asked[talk.name]:
                places = talk.ordered(row, max(KS))
                rows.append([recall(row.question, places, k) for k in (5, 10)])
    return {f"@{k}": mean([row[place] for row in rows]) for place, k in enumerate((5, 10))}


def sensitivity(talks: Sequence[Collection], asked: Mapping[str, Sequence[Gathered]]) -> dict[str, Any]:
    result: dict[str, Any] = {
        f"cosine {one} words {other}": short(talks, asked, {"VECTOR": one, "KEYWORD": other}) for one, other in WEIGHTS
    }
    for name in CONSTANTS:
        value = getattr(hybrid, name)
        for times in (0.5, 2.0):
            changes = {name: min(1.0, value * times)}
            result[f"{name} {changes[name]:g}"] = short(talks, asked, changes)
    return result


def leave_one_out(talks: Sequence[Collection], asked: Mapping[str, Sequence[Gathered]]) -> dict[str, Any]:
    """Returns for each conversation its recall with the constants that are best on the others."""
    result: dict[str, Any] = {}
    for left_out in talks:
        others = [talk for talk in talks if talk is not left_out]
        chosen: dict[str, float] = {}

        def worth(changes: Mapping[str, float], on: Sequence[Collection] = others) -> float:
            return sum(short(on, asked, changes).values())

        best = worth(chosen)
        tries: list[list[dict[str, float]]] = [[{"VECTOR": one, "KEYWORD": other} for one, other in WEIGHTS]]
        tries += [[{name: min(1.0, getattr(hybrid, name) * times)} for times in (0.5, 2.0)] for name in CONSTANTS]
        for some in tries:
            for changes in some:
                if (value := worth(chosen | changes)) > best:
                    best, chosen = value, chosen | changes
        result[left_out.name] = {
            "chosen on the others": chosen,
            "recall": short([left_out], asked, chosen),
            "recall with the product's constants": short([left_out], asked, {}),
        }
    return result


def floor(
    collections: Sequence[Collection], gathered: Mapping[str, Sequence[Gathered]], embedded: Embedded, unrelated: Path
) -> dict[str, Any]:
    """Returns how many questions find nothing: of those with an answer, without one, and about something else."""
    with unrelated.open(encoding="utf-8", newline="") as file:
        lines = [row[0] for row in csv.reader(file)][1:]
    others = [Question(text) for text in random.Random(0).sample(lines, 300)]
    vectors = embedded.vectors([one.text for one in others])
    result: dict[str, Any] = {}
    for one in collections:
        rows = {"with an answer": [row for row in gathered[one.name] if row.question.answerable]}
        for row in gathered[one.name]:
            if not row.question.answerable:
                rows.setdefault("without an answer" + f" {row.question.category}".rstrip(), []).append(row)
        rows["unrelated"] = [one.gather(question, vector) for question, vector in zip(others, vectors, strict=True)]
        result[one.name] = {
            name: {"questions": len(some), "find nothing": sum(not one.ordered(row, 1) for row in some)}
            for name, some in rows.items()
        }
    return result


def conversations(folder: Path) -> list[tuple[str, list[Text], list[Question]]]:
    turns, questions = lines_of(folder / "turns.jsonl"), lines_of(folder / "questions.jsonl")
    result = []
    for name in sorted({turn["conv"] for turn in turns}):
        mine = [turn for turn in turns if turn["conv"] == name]
        place = {turn["dia_id"]: number for number, turn in enumerate(mine)}
        texts = [
            Text(f"{turn['speaker']}: {turn['text']}", f"session {turn['session']}", seconds(turn["date"]) + number)
            for number, turn in enumerate(mine)
        ]
        asked = []
        for row in questions:
            if row["conv"] == name:
                evidence = frozenset(place[one] for one in row["evidence"] if one in place)
                category = str(row["category"])
                asked.append(Question(row["question"], category, frozenset() if category == "5" else evidence))
        result.append((f"conversation {name}", texts, asked))
    return result


def seconds(date: str) -> float:
    """Returns seconds since the epoch of "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=timezone.utc).timestamp()


def devbench(file: Path) -> tuple[str, list[Text], list[Question]]:
    data = json.loads(file.read_text(encoding="utf-8"))
    place = {row["id"]: number for number, row in enumerate(data["memories"])}
    return (
        "devbench",
        [Text(row["content"]) for row in data["memories"]],
        [
            Question(row["question"], answers=frozenset(place[one] for one in row["expected_tags"]))
            for row in data["queries"]
        ],
    )


def docs(folder: Path, characters: int) -> tuple[str, list[Text], list[Question]]:
    texts = []
    for file in sorted(folder.rglob("*.md")):
        source = file.relative_to(folder).as_posix()
        texts += [Text(text, source) for text in cut(file.read_text(encoding="utf-8"), characters)]
    return (
        "docs",
        texts,
        [
            Question(row["question"], sources=frozenset([row["file"], *row["also_ok"]] if row["file"] else []))
            for row in lines_of(folder / "questions.jsonl")
        ],
    )


def cut(page: str, characters: int) -> list[str]:
    """Cuts a page at headings, and at paragraphs before it gets too long; each part begins with its headings."""
    parts: list[str] = []
    path: list[tuple[int, str]] = []
    gathered = ""
    fenced = False

    def close() -> None:
        nonlocal gathered
        if gathered.strip():
            parts.append(" > ".join(heading for _, heading in path) + "\n" + gathered.strip())
        gathered = ""

    for paragraph in re.split(r"\n\s*\n", page):
        heading = None if fenced else re.match(r"(#{1,6})\s+(.*)", paragraph)
        if heading:
            close()
            path = [one for one in path if one[0] < len(heading[1])]
            path.append((len(heading[1]), heading[2].strip("# ")))
        if paragraph.count("```") % 2:
            fenced = not fenced
        if len(gathered) + len(paragraph) > characters:
            close()
        gathered += paragraph + "\n\n"
    close()
    return parts


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
