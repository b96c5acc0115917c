"""What is forgotten is in no file, whatever happened to it before."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import OpenMemory
from fakes import Clock, FakeEmbedder
from word_search import keys_in_store

from subconscious_mcp.config import Config
from subconscious_mcp.echo_log import log_file
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import NOTES, Filters, NewEntry

MARK = "zanzibar"
"""A word that is in every text that is forgotten here, and in no other."""

TASK = f"rotate the {MARK} signing key of the billing service"
ANSWER = f"run {MARK}-rotate with the password hunter2 and then restart the workers"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    """The server's log, at its most talkative."""
    root = logging.getLogger()
    before, level, raising = list(root.handlers), root.level, logging.raiseExceptions
    own = logging.getLogger("subconscious_mcp")
    own_level = own.level
    log_to_file(tmp_path / "logs" / "server.log", "DEBUG")
    yield tmp_path / "logs"
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    own.setLevel(own_level)
    logging.raiseExceptions = raising


def needles(*texts: str) -> set[bytes]:
    """Returns the texts and every three words of them, as they may stand in a file."""
    found: set[bytes] = set()
    for text in texts:
        words = text.split()
        pieces = {text, *(" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2)))}
        for piece in pieces:
            found |= {piece.encode(), piece.encode("utf-16-le"), piece.encode("utf-16-be")}
            found.add(piece.replace('"', '\\"').replace("\n", "\\n").encode())
    return found


def files_with(folders: list[Path], wanted: set[bytes]) -> list[str]:
    return [
        f"{path.name}: {piece!r}"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for raw in [path.read_bytes()]
        for piece in wanted
        if piece in raw
    ]


def store_of(memory: Memory) -> LocalStore:
    assert isinstance(memory.store, LocalStore)
    return memory.store


@pytest.fixture(params=[10_000, 5], ids=["exactly", "by the index"])
def memory(request: pytest.FixtureRequest, open_memory: OpenMemory, embedder: FakeEmbedder, config: Config) -> Memory:
    memory = open_memory(exact_limit=request.param)
    scope = memory.scope(config, "tests", None)
    for number in range(20):
        memory.remember(scope, f"another task {number}", f"another answer {number}")
    store_of(memory).prepare_index(embedder.fingerprint, embedder.dimension)
    store_of(memory).bring_index_up_to_date()
    return memory


def remember_and_ask(memory: Memory, scope: Scope, task: str, answer: str, *, known: bool = False) -> str:
    if not known:
        assert not memory.recall(scope, task, threshold=1.0).hit
    entry_id = memory.remember(scope, task, answer, tags=["tag", f"{MARK}-tag"]).entry_id
    assert entry_id is not None
    store_of(memory).bring_index_up_to_date()
    assert memory.recall(scope, task, threshold=1.0).hit
    memory.recall(scope, f"how do I {task}?", threshold=0.1)
    memory.recall(scope, f"{task} please", threshold=1.0)
    memory.echo(scope, task)
    memory.drift_report(scope)
    return entry_id


def test_forgotten_words_are_in_no_file(memory: Memory, config: Config, tmp_path: Path, logs: Path) -> None:
    scope = memory.scope(config, "tests", None)
    wanted = needles(TASK, ANSWER, MARK)
    folders = [tmp_path / "data", logs]
    for _ in range(2):
        entry_id = remember_and_ask(memory, scope, TASK, ANSWER)
        memory.settle()
        assert files_with(folders, wanted)
        assert memory.forget(scope, entry_id)
        assert files_with(folders, wanted) == []
        assert not memory.forget(scope, entry_id)
        store_of(memory).bring_index_up_to_date()
        assert files_with(folders, wanted) == []
    assert memory.recall(scope, "another task 3").hit
    memory.close()
    assert files_with(folders, wanted) == []


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        (f"{MARK} " * 5000, f"the {MARK} answer " * 20_000),
        (f'say "{MARK}"\nand\t"{MARK}\\n" then {{"query": "{MARK}"}}', f'"{MARK}"\r\n' * 50),
        (f"★ {MARK} 日本 \u2028 {MARK}", f"{MARK}\x00{MARK}"),
        (f"n {MARK}" * 1100, "short"),
    ],
    ids=["long", "quotes and newlines", "marks", "one word"],
)
def test_forgotten_texts_of_any_form_are_in_no_file(
    memory: Memory, config: Config, tmp_path: Path, logs: Path, task: str, answer: str
) -> None:
    scope = memory.scope(config, "tests", None)
    entry_id = remember_and_ask(memory, scope, task, answer)
    assert memory.forget(scope, entry_id)
    assert files_with([tmp_path / "data", logs], needles(MARK)) == []


def test_of_two_that_are_equal_only_one_goes(memory: Memory, config: Config) -> None:
    scope = memory.scope(config, "tests", None)
    first = remember_and_ask(memory, scope, TASK, "the first")
    second = remember_and_ask(memory, scope, TASK, "the second", known=True)
    assert memory.forget(scope, second)
    best = memory.recall(scope, TASK, threshold=1.0).best
    assert best is not None
    assert best.entry.id == first
    assert best.entry.answer == "the first"


def test_a_reader_delays_it_and_a_later_write_makes_up_for_it(
    open_memory: OpenMemory, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory()
    store_of(memory).database._busy_seconds = 0.05
    store_of(memory).database._writer.execute("PRAGMA busy_timeout = 50")
    scope = memory.scope(config, "tests", None)
    entry_id = remember_and_ask(memory, scope, TASK, ANSWER)
    memory.settle()
    reader = sqlite3.connect(tmp_path / "data" / "memory.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    assert memory.forget(scope, entry_id)
    assert not memory.recall(scope, TASK, threshold=0.1).hit
    memory.settle()
    memory.remember(scope, "while somebody reads", "an answer")
    reader.execute("COMMIT")
    reader.close()
    memory.remember(scope, "another task", "another answer")
    # The query after forgetting is the user's own and is in the log.
    log_file(tmp_path / "data", "tests").unlink()
    assert files_with([tmp_path / "data"], needles(TASK, ANSWER, MARK)) == []


def test_a_kill_between_deleting_and_emptying_the_log(open_memory: OpenMemory, config: Config, tmp_path: Path) -> None:
    memory = open_memory()
    entry_id = memory.remember(memory.scope(config, "tests", None), TASK, ANSWER).entry_id
    assert entry_id is not None
    memory.settle()
    store = store_of(memory)
    store.database.delete(list(store.database.keys_of([entry_id]).values()))
    # As a kill leaves it: with its write-ahead log, and a lock file that still names the holder.
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    assert files_with([tmp_path / "killed"], needles(MARK))
    open_memory(folder=tmp_path / "killed")
    assert files_with([tmp_path / "killed"], needles(MARK)) == []


def test_the_log_is_cleaned_where_it_is_switched_off_now(
    open_memory: OpenMemory, config: Config, tmp_path: Path
) -> None:
    memory = open_memory()
    entry_id = remember_and_ask(memory, memory.scope(config, "tests", None), TASK, ANSWER)
    silent = memory.scope(replace(config, echo_log_enabled=False), "tests", None)
    assert silent.echo_log is None
    assert memory.forget(silent, entry_id)
    assert files_with([tmp_path / "data"], needles(TASK, ANSWER, MARK)) == []


def test_another_namespace_cannot_forget_it(memory: Memory, config: Config) -> None:
    scope, other = memory.scope(config, "tests", None), memory.scope(config, "other", None)
    entry_id = remember_and_ask(memory, scope, TASK, ANSWER)
    assert not memory.forget(other, entry_id)
    assert memory.recall(scope, TASK, threshold=1.0).hit


def test_what_expired_leaves_the_database(memory: Memory, config: Config, clock: Clock, tmp_path: Path) -> None:
    scope = memory.scope(config, "tests", None)
    memory.remember(scope, TASK, ANSWER, ttl_seconds=10)
    clock.advance(11)
    assert store_of(memory).purge_expired(clock()) == 1
    assert files_with([tmp_path / "data"], needles(TASK, ANSWER, MARK)) == []


def test_compacting_takes_the_vector_out_of_the_files_of_the_index(
    open_memory: OpenMemory, config: Config, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    memory = open_memory(exact_limit=5)
    store = store_of(memory)
    scope = memory.scope(config, "tests", None)
    entry_id = memory.remember(scope, TASK, ANSWER).entry_id
    assert entry_id is not None
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    store.bring_index_up_to_date()
    vector = embedder.embed_query(TASK).astype("float16").astype("float32").tobytes()
    assert files_with([tmp_path / "data"], {vector[:64]})
    assert memory.forget(scope, entry_id)
    store.bring_index_up_to_date()
    store.index.compact()
    assert files_with([tmp_path / "data"], {vector[:64], entry_id.encode()}) == []


NOTE = f"The {MARK} deploy key ѪѮѰ lies in vqzx/{MARK}_xkjq_v7w.tzqk since QXZJ-90210, 龘靐齉爩"
NOTE_PIECES = {
    # As the indexes may keep them: without case, and without a beginning that others share.
    piece.encode()
    for word in (MARK, "龘靐齉爩", "ѫѯѱ", "ѪѮѰ", "qxzj", "QXZJ", "_xkjq_v7w.", "vqzx", "tzqk")
    for piece in (word, *(word[at : at + 4] for at in range(max(1, len(word) - 3))), word[-3:])
    if len(piece.encode()) >= 4
}


def put_note(memory: Memory, scope: Scope, embedder: FakeEmbedder, entry_id: str, text: str, **values: Any) -> None:
    entry = NewEntry(entry_id, "note", text, "", memory.now(), **values)
    memory.store.add(scope.namespace, entry, embedder.fingerprint, embedder.embed_query(text))


def found_by(memory: Memory, scope: Scope, query: str) -> int:
    keys = keys_in_store(memory.store, scope.namespace, NOTES, query, 50, now=memory.now(), filters=Filters())
    return len(keys)


@pytest.mark.parametrize("way", ["forgotten", "archived before", "superseded before", "restored before", "expired"])
def test_words_of_a_forgotten_note_are_in_no_file(
    memory: Memory, config: Config, embedder: FakeEmbedder, clock: Clock, tmp_path: Path, logs: Path, way: str
) -> None:
    scope, store = memory.scope(config, "tests", None), store_of(memory)
    for number in range(30):
        put_note(memory, scope, embedder, f"before{number}", f"another note number {number} about the deploy keys")
    folders = [tmp_path / "data", logs]
    for turn in range(3):
        entry_id = f"note{turn}"
        lifetime = memory.now() + 10 if way == "expired" else None
        put_note(memory, scope, embedder, entry_id, NOTE, tags=(f"{MARK}-tag",), expires_at=lifetime)
        store.bring_index_up_to_date()
        for query in (MARK, "kjq_v7w.t", "靐齉爩", "ѫѯѱ"):
            assert found_by(memory, scope, query)
        assert files_with(folders, {b"qxzj"})
        if way in ("archived before", "restored before"):
            assert store.archive(scope.namespace, entry_id, at=memory.now())
            put_note(memory, scope, embedder, f"between{turn}", "another note in between")
        if way == "restored before":
            assert store.restore(scope.namespace, entry_id)
        if way == "superseded before":
            new = NewEntry(f"new{turn}", "note", "what holds now", "", memory.now())
            vector = embedder.embed_query(new.task)
            assert store.supersede(scope.namespace, entry_id, new, embedder.fingerprint, vector, at=memory.now())
        if way == "expired":
            clock.advance(11)
            assert store.purge_expired(memory.now()) == 1
        else:
            assert memory.forget(scope, entry_id)
        assert files_with(folders, NOTE_PIECES) == []
        assert found_by(memory, scope, MARK) == 0
    assert found_by(memory, scope, "another note about deploy keys") >= 30
    assert store.database.full_text_problems() == []
    store.bring_index_up_to_date()
    memory.close()
    assert files_with(folders, NOTE_PIECES) == []


def test_words_that_other_notes_hold_too_stay_theirs(memory: Memory, config: Config, embedder: FakeEmbedder) -> None:
    scope = memory.scope(config, "tests", None)
    put_note(memory, scope, embedder, "a", NOTE)
    put_note(memory, scope, embedder, "b", NOTE)
    assert memory.forget(scope, "a")
    for query in (MARK, "kjq_v7w.t", "靐齉爩", "deploy"):
        assert found_by(memory, scope, query) == 1


def test_a_namespace_that_was_merged_or_renamed_forgets_words(
    memory: Memory, config: Config, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    source, into = memory.scope(config, "source", None), memory.scope(config, "into", None)
    put_note(memory, source, embedder, "a", NOTE)
    memory.store.merge_namespaces(source.namespace, into.namespace)
    memory.store.rename_namespace(into.namespace, "renamed")
    assert found_by(memory, into, MARK) == 1
    store_of(memory).database.compact()
    assert memory.forget(into, "a")
    assert files_with([tmp_path / "data"], NOTE_PIECES) == []
