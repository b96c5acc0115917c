"""Kills a process that remembers and forgets, and looks at what it left: for a test and for a measurement.

Run as a program it is the process that is killed: it prints a line for each acknowledged call.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from fakes import FakeEmbedder

from subconscious_mcp.config import resolve
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.records import NewEntry

NAMESPACE = "kills"
NOW = 1_800_000_000.0
WORDS = tuple(f"{verb}{noun}" for verb in ("parse", "merge", "split") for noun in ("queue", "token", "cache", "table"))
SEGMENT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Damage = Callable[[Path, random.Random], None]


def text_of(number: int) -> str:
    """Returns a text that no other number has; its first word is in no other text."""
    rnd = random.Random(number)
    return " ".join([f"mark{number:08d}x", *rnd.choices(WORDS, k=6)])


def fill(folder: Path, count: int, exact_limit: int) -> dict[str, str]:
    """Stores the texts 0 to `count` and brings the index up to date; returns the texts by id."""
    embedder = FakeEmbedder()
    store = LocalStore(folder, command="fill", exact_limit=exact_limit)
    namespace = store.namespace(NAMESPACE, None)
    filled: dict[str, str] = {}
    for start in range(0, count, 500):
        texts = [text_of(number) for number in range(start, min(count, start + 500))]
        entries = [
            NewEntry(id=f"filled-{start + i}", kind="memory", task=text, answer=f"answer {text}", created_at=NOW)
            for i, text in enumerate(texts)
        ]
        store.add_many(namespace, entries, embedder.fingerprint, embedder.embed(texts))
        filled.update((entry.id, entry.task) for entry in entries)
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    store.bring_index_up_to_date()
    store.close()
    return filled


def child(folder: Path, first: int, exact_limit: int, indexed_first: bool, ids: list[str]) -> None:
    """Remembers new texts from number `first`, forgets some of `ids` and of its own, until it is killed."""
    rnd = random.Random(first)
    embedder = FakeEmbedder()
    store = LocalStore(folder, command="to be killed", exact_limit=exact_limit)
    memory = Memory(store, folder, lambda: embedder)
    scope = memory.scope(replace(resolve().config, storage_dir=folder), NAMESPACE, None)
    if indexed_first:
        store.prepare_index(embedder.fingerprint, embedder.dimension)
        store.bring_index_up_to_date()
    store.start_indexing(embedder.fingerprint, embedder.dimension)
    say({"ready": True})
    number = first
    while True:
        if ids and rnd.random() < 0.25:
            gone = ids.pop(rnd.randrange(len(ids)))
            say({"forgetting": gone})
            memory.forget(scope, gone)
            say({"forgotten": gone})
        else:
            text = text_of(number)
            if rnd.random() < 0.3:
                memory.recall(scope, text)
            remembered = memory.remember(scope, text, f"answer {text}")
            say({"remembered": remembered.entry_id, "text": text})
            ids.append(str(remembered.entry_id))
            number += 1


def say(message: dict[str, object]) -> None:
    """Acknowledges on standard output, at once."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


@dataclass
class Expected:
    """What must be there: texts by id, and the texts that must not."""

    live: dict[str, str] = field(default_factory=dict)
    forgotten: dict[str, str] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    acknowledged: int = 0


def run_and_kill(
    folder: Path,
    expected: Expected,
    first: int,
    lines: int,
    *,
    exact_limit: int,
    indexed_first: bool,
    pause: float = 0.0,
) -> list[str]:
    """Starts the process and kills it after so many lines; returns the ids that it remembered.

    Args:
        pause: Seconds between the last line and the kill.
    """
    forgettable = sorted(expected.live)[-200:]
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(first), str(exact_limit), str(int(indexed_first)), *forgettable],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    texts = dict(expected.live)
    new: list[str] = []
    try:
        for seen, line in enumerate(process.stdout, 1):
            take(json.loads(line), expected, texts, new)
            if seen == lines:
                if pause:
                    time.sleep(pause)
                process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.wait()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the process ended by itself: {process.returncode}")
    return new


def take(message: dict[str, str], expected: Expected, texts: dict[str, str], new: list[str]) -> None:
    """Notes an acknowledgement."""
    if "remembered" in message:
        expected.acknowledged += 1
        expected.live[message["remembered"]] = texts[message["remembered"]] = message["text"]
        new.append(message["remembered"])
    elif "forgetting" in message:
        expected.uncertain.add(message["forgetting"])
        expected.live.pop(message["forgetting"], None)
    elif "forgotten" in message:
        expected.acknowledged += 1
        expected.uncertain.discard(message["forgotten"])
        expected.forgotten[message["forgotten"]] = texts[message["forgotten"]]


@dataclass(frozen=True)
class Found:
    """What was found after a kill. All but `checked` must be empty or zero."""

    lost: list[str]
    still_there: list[str]
    words_in_files: list[str]
    not_searched: list[str]
    differences: tuple[int, int]
    checked: int


def look(folder: Path, expected: Expected, ids: list[str], exact_limit: int) -> Found:
    """Opens the store after a kill, lets the index catch up, and searches for `ids` by their texts."""
    raw = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "chroma.sqlite3")
    words = [text.split()[0] for text in expected.forgotten.values()]
    words_in_files = [word for word in words if word.encode() in raw]
    embedder = FakeEmbedder()
    store = LocalStore(folder, command="look", exact_limit=exact_limit)
    try:
        namespace = store.namespace(NAMESPACE, None)
        there = store.database.ids(namespace.key, "memory", embedder.fingerprint)
        lost = [entry_id for entry_id in expected.live if entry_id not in there]
        still_there = [entry_id for entry_id in expected.forgotten if entry_id in there]
        for entry_id in expected.uncertain & there.keys():
            entry = store.entry(namespace, entry_id)
            assert entry is not None
            expected.live[entry_id] = entry.task
        expected.uncertain.clear()
        wrong = []
        checked = [entry_id for entry_id in ids if entry_id in expected.live]
        vectors = embedder.embed([expected.live[entry_id] for entry_id in checked])
        store.prepare_index(embedder.fingerprint, embedder.dimension)

        def search() -> None:
            for entry_id, vector in zip(checked, vectors, strict=True):
                near = store.nearest(namespace, ["memory"], embedder.fingerprint, vector, 1, now=NOW)
                if not near or near[0].entry.id != entry_id or near[0].similarity != 1.0:
                    wrong.append(entry_id)

        search()  # Before the index is there.
        store.bring_index_up_to_date()
        search()
        return Found(lost, still_there, words_in_files, wrong, store.index_differences(), len(checked))
    finally:
        store.close()


def delete_index(folder: Path, rnd: random.Random) -> None:
    """Removes all that Chroma has."""
    for path in folder.iterdir():
        if SEGMENT.fullmatch(path.name):
            shutil.rmtree(path)
        elif path.name.startswith("chroma.sqlite3"):
            path.unlink()


def delete_segments(folder: Path, rnd: random.Random) -> None:
    """Removes the folders with the vectors."""
    for path in folder.iterdir():
        if SEGMENT.fullmatch(path.name):
            shutil.rmtree(path)


def cut_database(folder: Path, rnd: random.Random) -> None:
    """Cuts Chroma's database somewhere."""
    path = folder / "chroma.sqlite3"
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(rnd.randrange(path.stat().st_size))


def cut_segment(folder: Path, rnd: random.Random) -> None:
    """Cuts one file of the vectors somewhere."""
    files = sorted(path for path in folder.glob("*/*.bin") if path.stat().st_size)
    if files:
        path = rnd.choice(files)
        with path.open("r+b") as file:
            file.truncate(rnd.randrange(path.stat().st_size))


DAMAGES: tuple[Damage, ...] = (delete_index, cut_database, delete_segments, cut_segment)


if __name__ == "__main__":
    np.seterr(all="ignore")
    child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1", sys.argv[5:])
