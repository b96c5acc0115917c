"""memory.db: what it keeps, what it lets go, and what its failures look like."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from subconscious_mcp import database as module
from subconscious_mcp.database import Database
from subconscious_mcp.errors import StorageBusy, StorageDamaged, StorageError, StorageFull
from subconscious_mcp.feedback_rows import RECALL_WINDOW
from subconscious_mcp.namespaces import short_hash
from subconscious_mcp.records import Consolidated, Namespace, NewEntry
from subconscious_mcp.salvage import salvage
from subconscious_mcp.schema import MIGRATIONS

MODEL = "fa4efa4efa4e"
OTHER_MODEL = "0123456789ab"
DIMENSION = 8
NOW = 1_800_000_000.0


def vector(seed: int = 0, dimension: int = DIMENSION) -> NDArray[np.float32]:
    row = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return row / np.linalg.norm(row)


def new(entry_id: str, **values: object) -> NewEntry:
    entry = NewEntry(id=entry_id, kind="memory", task=f"task {entry_id}", answer=f"answer {entry_id}", created_at=NOW)
    return replace(entry, **values)  # type: ignore[arg-type]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path, busy_seconds=0.05)
    yield opened
    opened.close()


@pytest.fixture
def project(db: Database) -> Namespace:
    return db.namespace("project", None)


# --- entries


def test_an_entry_comes_back_as_it_was(db: Database, project: Namespace) -> None:
    entry = new(
        "a", kind="note", task='Aufgabe ★ 日本\n"x"', answer="", expires_at=NOW + 5, tags=("b", "a"), source="s"
    )
    key = db.add(project, entry, MODEL, vector())
    found = db.entry(project, "a")
    assert found is not None
    assert (found.key, found.id, found.kind, found.task, found.answer) == (key, "a", "note", entry.task, "")
    assert (found.created_at, found.expires_at, found.tags, found.source) == (NOW, NOW + 5, ("b", "a"), "s")
    assert db.entries([key, 99]) == {key: found}


def test_an_entry_of_another_namespace_is_not_there(db: Database, project: Namespace) -> None:
    other = db.namespace("other", None)
    db.add(project, new("a"), MODEL, vector())
    assert db.entry(other, "a") is None
    assert db.tasks_by_id(other, ["a"]) == {}
    assert db.tasks_by_id(project, ["a", "gone"]) == {"a": "task a"}


def test_all_of_many_are_stored_or_none(db: Database, project: Namespace) -> None:
    db.add(project, new("a"), MODEL, vector())
    with pytest.raises(StorageError):
        db.add_many(project, [new("b", tags=("t",)), new("a")], MODEL, np.stack([vector(), vector()]))
    with pytest.raises(ValueError):
        db.add_many(project, [new("b"), new("c")], MODEL, vector().reshape(1, -1))
    assert db.count(project, ["memory"], NOW) == 1
    assert list(db.tagged(project, "memory", ["t"])) == []
    assert db.add_many(project, [], MODEL, np.zeros((0, DIMENSION), np.float32)) == []
    keys = db.add_many(project, [new("b"), new("c")], MODEL, np.stack([vector(1), vector(2)]))
    assert keys == sorted(keys)


def test_keys_are_never_used_again(db: Database, project: Namespace) -> None:
    key = db.add(project, new("a"), MODEL, vector())
    db.delete([key])
    assert db.add(project, new("b"), MODEL, vector()) > key


def test_deleting_takes_tags_and_vectors_of_all_models_along(db: Database, project: Namespace) -> None:
    key = db.add(project, new("a", tags=("t",)), MODEL, vector())
    db.set_vectors(OTHER_MODEL, [key], vector().reshape(1, -1))
    db.delete([key, 12345])
    assert db.entry(project, "a") is None
    assert db.keys_of(["a"]) == {}
    assert list(db.tagged(project, "memory", ["t"])) == []
    assert db.fingerprints() == {MODEL: 0, OTHER_MODEL: 0}


def test_more_entries_than_a_statement_has_variables(db: Database, project: Namespace) -> None:
    count = 1234
    vectors = np.stack([vector(n) for n in range(count)])
    entries = [new(str(n), tags=(f"t{n % 700}",)) for n in range(count)]
    keys = db.add_many(project, entries, MODEL, vectors)
    assert len(db.entries(keys)) == count
    assert len(db.keys_of([str(n) for n in range(count)])) == count
    assert len(db.tasks_by_id(project, [str(n) for n in range(count)])) == count
    assert db.tagged(project, "memory", [f"t{n}" for n in range(700)]).tolist() == keys
    assert len(db.vector_set(project.key, "memory", MODEL, DIMENSION, keys=np.array(keys)).keys) == count
    db.delete(keys)
    assert db.count(project, ["memory"], NOW) == 0


def test_count_leaves_out_what_is_expired_or_of_another_kind(db: Database, project: Namespace) -> None:
    db.add(project, new("forever"), MODEL, vector())
    db.add(project, new("over", expires_at=NOW), MODEL, vector())
    db.add(project, new("soon", expires_at=NOW + 1), MODEL, vector())
    db.add(project, new("episode", kind="episode"), MODEL, vector())
    assert db.count(project, ["memory"], NOW) == 2
    assert db.count(project, ["memory", "episode"], NOW) == 3
    assert db.count(project, [], NOW) == 0


def test_expired_gives_the_earliest_first_of_all_namespaces(db: Database, project: Namespace) -> None:
    other = db.namespace("other", None)
    late = db.add(project, new("late", expires_at=NOW), MODEL, vector())
    early = db.add(other, new("early", expires_at=NOW - 9, kind="note"), MODEL, vector())
    db.add(project, new("forever"), MODEL, vector())
    assert db.expired(NOW, 10) == [(early, "early", other.key, "note"), (late, "late", project.key, "memory")]
    assert db.expired(NOW, 1) == [(early, "early", other.key, "note")]
    assert db.expired(NOW - 10, 10) == []


def test_tags_are_looked_up_by_namespace_and_kind(db: Database, project: Namespace) -> None:
    other = db.namespace("other", None)
    a = db.add(project, new("a", tags=("x", "y", "x")), MODEL, vector())
    b = db.add(project, new("b", tags=("y",)), MODEL, vector())
    db.add(project, new("c", tags=("y",), kind="episode"), MODEL, vector())
    db.add(other, new("d", tags=("y",)), MODEL, vector())
    assert db.tagged(project, "memory", ["x", "y", "z"]).tolist() == [a, b]
    assert db.tagged(project, "memory", ["Y"]).tolist() == []
    assert db.tagged(project, "memory", []).tolist() == []


# --- namespaces


def test_a_namespace_is_registered_once(db: Database) -> None:
    first = db.namespace("p", "/a/p")
    assert db.namespace("p", "/a/p") == first
    assert first.name == "p"
    assert first.root == "/a/p"


def test_the_same_name_of_another_root_gets_its_own(db: Database) -> None:
    first, second = db.namespace("p", "/a/p"), db.namespace("p", "/b/p")
    assert first.key != second.key
    assert second.name == f"p-{short_hash('/b/p')}"
    assert db.namespace("p", "/b/p") == second


def test_a_root_does_not_join_a_name_that_was_asked_for(db: Database) -> None:
    asked = db.namespace("p", None)
    derived = db.namespace("p", "/a/p")
    assert asked.key != derived.key
    assert db.namespace(derived.name, None) == derived


def test_a_name_with_the_very_hash_may_be_taken(db: Database) -> None:
    taken = [db.namespace("p", None), db.namespace(f"p-{short_hash('/a/p')}", None)]
    derived = db.namespace("p", "/a/p")
    assert derived.key not in [namespace.key for namespace in taken]
    assert db.namespace("p", "/a/p") == derived


@pytest.mark.parametrize(
    "name", ["p", "a b", "проект", "プロジェクト", "..", "127.0.0.1", "x" * 600, "A", "a", "a/b", "a\x00b", "%", "'"]
)
def test_any_name_is_its_own(db: Database, name: str) -> None:
    others = [db.namespace(other, None) for other in ("a  b", "Проект", ".", "x" * 599, "aa", "a/B", "a_b")]
    own = db.namespace(name, None)
    assert own.name == name
    assert own.key not in [other.key for other in others]
    assert [namespace for namespace, _ in db.namespaces()] == sorted([*others, own], key=lambda n: n.name)


def test_a_root_whose_name_is_not_unicode(db: Database) -> None:
    roots = ["/a/\udcff", "/a/\udcfe", "/a/\\udcff"]
    spaces = [db.namespace("p", root) for root in roots]
    assert len({space.key for space in spaces}) == 3
    assert [space.root for space in spaces] == roots
    assert [db.namespace("p", root) for root in roots] == spaces
    assert {space.root for space, _ in db.namespaces()} == set(roots)


def test_two_threads_register_one_namespace(db: Database) -> None:
    barrier = threading.Barrier(8)
    found: list[Namespace] = []

    def register() -> None:
        barrier.wait()
        found.append(db.namespace("p", "/a/p"))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


# --- vectors


def test_vectors_of_two_models_are_kept_apart(db: Database, project: Namespace) -> None:
    key = db.add(project, new("a"), MODEL, vector(1))
    other_vector = vector(2, 5)
    assert db.unembedded(OTHER_MODEL, 10) == [(key, "task a")]
    assert db.count_unembedded(OTHER_MODEL) == 1
    assert db.set_vectors(OTHER_MODEL, [key, 99], np.stack([other_vector] * 2)) == [(key, project.key, "memory")]
    assert db.count_unembedded(OTHER_MODEL) == 0
    first = db.vector_set(project.key, "memory", MODEL, DIMENSION)
    second = db.vector_set(project.key, "memory", OTHER_MODEL, 5)
    np.testing.assert_array_equal(first.vectors, vector(1).astype(np.float16)[np.newaxis])
    np.testing.assert_array_equal(second.vectors, other_vector.astype(np.float16)[np.newaxis])
    assert db.fingerprints() == {MODEL: 1, OTHER_MODEL: 1}
    assert db.ids(project.key, "memory", OTHER_MODEL) == {"a": key}


def test_a_model_that_never_embedded_has_nothing(db: Database, project: Namespace) -> None:
    db.add(project, new("a"), MODEL, vector())
    assert db.vector_set(project.key, "memory", OTHER_MODEL, DIMENSION).vectors.shape == (0, DIMENSION)
    assert db.ids(project.key, "memory", OTHER_MODEL) == {}
    assert db.sets(OTHER_MODEL) == []
    assert db.count_damaged_vectors(OTHER_MODEL, DIMENSION) == 0


def test_unembedded_goes_on_behind_a_key_and_counts_by_namespace(db: Database, project: Namespace) -> None:
    other = db.namespace("other", None)
    keys = db.add_many(project, [new(str(n)) for n in range(5)], MODEL, np.stack([vector()] * 5))
    db.add(other, new("other"), MODEL, vector())
    assert [key for key, _ in db.unembedded(OTHER_MODEL, 2)] == keys[:2]
    assert [key for key, _ in db.unembedded(OTHER_MODEL, 2, after=keys[1])] == keys[2:4]
    assert db.count_unembedded(OTHER_MODEL, project) == 5
    assert db.count_unembedded(OTHER_MODEL) == 6


def test_a_vector_set_is_read_in_pages_and_by_keys(db: Database, project: Namespace) -> None:
    vectors = np.stack([vector(n) for n in range(5)])
    entries = [new(str(n), expires_at=NOW + n if n % 2 else None) for n in range(5)]
    keys = db.add_many(project, entries, MODEL, vectors)
    page = db.vector_set(project.key, "memory", MODEL, DIMENSION, after=keys[0], limit=2)
    assert page.keys.tolist() == keys[1:3]
    assert page.expires_at.tolist() == [NOW + 1, np.inf]
    assert page.created_at.tolist() == [NOW, NOW]
    few = db.vector_set(project.key, "memory", MODEL, DIMENSION, keys=np.array([keys[4], 99]))
    assert few.keys.tolist() == [keys[4]]
    assert db.sets(MODEL) == [(project, "memory", 5)]


def test_vectors_of_a_wrong_length_are_told_and_dropped(db: Database, project: Namespace, tmp_path: Path) -> None:
    keys = db.add_many(project, [new("a"), new("b"), new("c")], MODEL, np.stack([vector(n) for n in range(3)]))
    with sqlite3.connect(tmp_path / "memory.db") as other:
        # Together they are as long as two sound ones.
        other.execute("UPDATE vectors SET vector = ? WHERE entry = ?", (b"x" * (2 * DIMENSION - 2), keys[0]))
        other.execute("UPDATE vectors SET vector = ? WHERE entry = ?", (b"x" * (2 * DIMENSION + 2), keys[1]))
    other.close()
    with pytest.raises(StorageDamaged):
        db.vector_set(project.key, "memory", MODEL, DIMENSION)
    assert db.count_damaged_vectors(MODEL, DIMENSION) == 2
    assert db.drop_damaged_vectors(MODEL, DIMENSION) == 2
    assert [key for key, _ in db.unembedded(MODEL, 9)] == keys[:2]


# --- recall outcomes


def test_the_last_hundred_recalls_of_each_namespace_are_kept(db: Database, project: Namespace, tmp_path: Path) -> None:
    other = db.namespace("other", None)
    assert db.recall_outcomes(project) == (None, [])
    db.record_recalls([(project.key, NOW + n, n < 3) for n in range(RECALL_WINDOW + 2)])
    db.record_recalls([(other.key, NOW, True)])
    last_hit_at, outcomes = db.recall_outcomes(project)
    assert last_hit_at == NOW + 2
    assert outcomes == [False] * (RECALL_WINDOW - 1) + [True]
    assert db.recall_outcomes(other) == (NOW, [True])
    with sqlite3.connect(tmp_path / "memory.db") as reader:
        assert reader.execute("SELECT count(*) FROM recalls").fetchone() == (RECALL_WINDOW + 1,)
    reader.close()


# --- opening and migrating


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        db = Database(tmp_path)
        db.namespace("p", None)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        db.close()
    finally:
        os.umask(before)
    assert modes == {"memory.db": 0o600, "memory.db-wal": 0o600, "memory.db-shm": 0o600}


NEXT_STEP = ("CREATE TABLE later (x)", "ALTER TABLE entries ADD COLUMN later TEXT NOT NULL DEFAULT 'l'")


def test_an_older_file_is_migrated_and_keeps_its_entries(tmp_path: Path) -> None:
    old = Database(tmp_path)
    project = old.namespace("p", None)
    old.add(project, new("a"), MODEL, vector())
    old.close()
    newer = Database(tmp_path, migrations=(*MIGRATIONS, NEXT_STEP))
    assert newer.entry(project, "a") is not None
    newer.close()
    again = Database(tmp_path, migrations=(*MIGRATIONS, NEXT_STEP))
    again.close()


def test_a_migration_that_stops_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    old = Database(tmp_path)
    project = old.namespace("p", None)
    old.add(project, new("a"), MODEL, vector())
    old.close()
    with pytest.raises(StorageError):
        Database(tmp_path, migrations=(*MIGRATIONS, (*NEXT_STEP, "INSERT INTO nowhere VALUES (1)")))
    same = Database(tmp_path)
    assert same.entry(project, "a") is not None
    same.close()
    Database(tmp_path, migrations=(*MIGRATIONS, NEXT_STEP)).close()


def test_a_kill_in_the_middle_of_a_migration_changes_nothing(tmp_path: Path) -> None:
    Database(tmp_path).close()
    code = """
import os, sys
from pathlib import Path
from subconscious_mcp import database
from subconscious_mcp.salvage import salvage
from subconscious_mcp.schema import MIGRATIONS

class Step(tuple):
    def __iter__(self):
        yield from super().__iter__()
        os.kill(os.getpid(), 9)

database.Database(Path(sys.argv[1]), migrations=(*MIGRATIONS, Step(("CREATE TABLE later (x)",))))
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    Database(tmp_path, migrations=(*MIGRATIONS, NEXT_STEP)).close()


def test_a_newer_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "memory.db") as file:
        file.execute("CREATE TABLE of_the_future (x)")
        file.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    file.close()
    before = (tmp_path / "memory.db").read_bytes()
    with pytest.raises(StorageError, match="newer version"):
        Database(tmp_path)
    assert (tmp_path / "memory.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]


# --- failures


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"not a database at all " * 500)
    with pytest.raises(StorageDamaged) as caught:
        Database(tmp_path)
    assert "doctor --repair" in caught.value.hint
    assert (tmp_path / "memory.db").read_bytes() == b"not a database at all " * 500


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "memory.db").mkdir()
    with pytest.raises(StorageError, match=r"memory\.db"):
        Database(tmp_path)


@pytest.mark.parametrize("keep", [1, 99, 100, 4096, 8192, 20_000])
def test_a_truncated_file_is_told(tmp_path: Path, keep: int) -> None:
    db = Database(tmp_path)
    project = db.namespace("p", None)
    db.add_many(project, [new(str(n), answer="x" * 3000) for n in range(50)], MODEL, np.stack([vector()] * 50))
    db.close()
    with (tmp_path / "memory.db").open("r+b") as file:
        file.truncate(keep)
    with pytest.raises(StorageDamaged):
        opened = Database(tmp_path)
        try:
            assert opened.problems()
            opened.entries(list(range(1, 51)))
        finally:
            opened.close()


def test_a_file_that_may_not_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    # Nothing is forbidden to root, which tests may run as.
    monkeypatch.setattr(module.os, "open", refuse)
    with pytest.raises(StorageError, match="Permission denied") as caught:
        Database(tmp_path)
    assert "SUBCONSCIOUS_STORAGE_DIR" in caught.value.hint


def test_a_read_only_file_is_told(db: Database, project: Namespace) -> None:
    db._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="cannot be written"):
        db.add(project, new("a"), MODEL, vector())
    db._writer.execute("PRAGMA query_only = OFF")
    db.add(project, new("a"), MODEL, vector())


def test_a_full_disk_stores_nothing_and_the_next_write_works(db: Database, project: Namespace) -> None:
    db.add(project, new("a"), MODEL, vector())
    pages = db._writer.execute("PRAGMA page_count").fetchone()[0]
    db._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFull, match="full"):
        db.add_many(project, [new("b"), new("c", answer="x" * 100_000)], MODEL, np.stack([vector()] * 2))
    assert db.count(project, ["memory"], NOW) == 1
    db._writer.execute("PRAGMA max_page_count = 1000000")
    db.add(project, new("b"), MODEL, vector())
    assert db.problems() == []


class _Failing:
    """A connection that fails at one statement, as SQLite does where the disk is full."""

    def __init__(self, connection: sqlite3.Connection, at: str, *, rolled_back: bool) -> None:
        self._connection, self._at, self._rolled_back = connection, at, rolled_back

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: object) -> object:
        if sql.startswith(self._at):
            if self._rolled_back:
                self._connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(sql, *arguments)


@pytest.mark.parametrize("rolled_back", [False, True])
@pytest.mark.parametrize("at", ["INSERT INTO entries", "COMMIT"])
def test_a_disk_that_fills_up_is_told_as_such(
    db: Database, project: Namespace, monkeypatch: pytest.MonkeyPatch, at: str, rolled_back: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(db, "_writer", _Failing(db._writer, at, rolled_back=rolled_back))
        with pytest.raises(StorageFull):
            db.add(project, new("a"), MODEL, vector())
    assert db.count(project, ["memory"], NOW) == 0
    db.add(project, new("a"), MODEL, vector())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, or the plain folder where none can be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    made = (
        mount is not None
        and sys.platform == "linux"
        and (
            subprocess.run(
                [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
            ).returncode
            == 0
        )
    )
    yield folder
    if made:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    db = Database(small_disk)
    project = db.namespace("p", None)
    if not os.path.ismount(small_disk):
        db._writer.execute("PRAGMA max_page_count = 100")
    stored = []
    with pytest.raises(StorageFull):
        for number in range(200):
            db.add(project, new(str(number), answer="x" * 20_000), MODEL, vector())
            stored.append(str(number))
    assert stored
    assert sorted(db.keys_of([str(n) for n in range(200)])) == sorted(stored)
    db.close()
    again = Database(small_disk)
    assert sorted(again.keys_of([str(n) for n in range(200)])) == sorted(stored)
    again.close()


def test_a_lock_that_stays_is_told_and_nothing_is_stored(db: Database, project: Namespace, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy, match="locked by another program"):
        db.add(project, new("a"), MODEL, vector())
    # Reading goes on.
    assert db.count(project, ["memory"], NOW) == 0
    other.execute("ROLLBACK")
    other.close()
    db.add(project, new("a"), MODEL, vector())


def test_a_lock_that_goes_is_waited_for(tmp_path: Path) -> None:
    db = Database(tmp_path)
    project = db.namespace("p", None)
    other = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=db.add, args=(project, new("a"), MODEL, vector()))
    writer.start()
    other.execute("COMMIT")
    other.close()
    writer.join()
    assert db.entry(project, "a") is not None
    db.close()


def test_opening_a_locked_file_is_told(tmp_path: Path) -> None:
    Database(tmp_path).close()
    other = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageBusy):
        Database(tmp_path, busy_seconds=0.05)
    other.close()
    Database(tmp_path).close()


def test_a_damaged_text_is_told_without_the_text(db: Database, project: Namespace, tmp_path: Path) -> None:
    key = db.add(project, new("a", task="a secret"), MODEL, vector())
    with sqlite3.connect(tmp_path / "memory.db") as other:
        other.execute("UPDATE entries SET task = CAST(x'6120736563726574ff' AS TEXT)")
    other.close()
    with pytest.raises(StorageDamaged) as caught:
        db.entries([key])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("database or disk is full", StorageFull),
        ("database table is locked", StorageBusy),
        ("attempt to write a readonly database", StorageError),
        ("unable to open database file", StorageError),
        ("disk I/O error", StorageError),
        ("database disk image is malformed", StorageDamaged),
        ("something new", StorageError),
    ],
)
def test_each_failure_of_sqlite_has_its_error(message: str, kind: type[StorageError]) -> None:
    error = module._as_storage_error(sqlite3.OperationalError(message), Path("/x/memory.db"), 10)
    assert type(error) is kind
    assert error.message
    assert error.hint


@pytest.mark.parametrize("tags", ["not json", "7", '{"a": 1}', "[" * 100_000, '["a", 1]'])
def test_damaged_tags_do_not_hide_the_entry(db: Database, project: Namespace, tmp_path: Path, tags: str) -> None:
    db.add(project, new("a", tags=("a",)), MODEL, vector())
    with sqlite3.connect(tmp_path / "memory.db") as other:
        other.execute("UPDATE entries SET tags = ?", (tags,))
    other.close()
    found = db.entry(project, "a")
    assert found is not None
    assert found.tags in ((), ("a",))


# --- forgetting


def raw_files(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


@pytest.mark.parametrize("length", [1, 50, 2000, 5000, 100_000])
def test_a_deleted_text_is_in_no_file(db: Database, project: Namespace, tmp_path: Path, length: int) -> None:
    words = ("forgetme" + str(length)) * length
    for number in range(5):
        db.add(project, new(f"before{number}"), MODEL, vector())
    key = db.add(project, new("a", task=words[:5000], answer=words, tags=("forgetmetag",)), MODEL, vector())
    for number in range(5):
        db.add(project, new(f"after{number}"), MODEL, vector())
    assert b"forgetme" in raw_files(tmp_path)
    db.delete([key])
    assert db.scrub([words, words[:5000], "forgetmetag"])
    assert b"forgetme" not in raw_files(tmp_path)
    assert db.count(project, ["memory"], NOW) == 10


@pytest.mark.parametrize("seed", range(4))
def test_no_trace_stays_where_rows_moved_between_pages(tmp_path: Path, seed: int) -> None:
    """SQLite leaves copies in the free part of pages when it balances its trees."""
    db = Database(tmp_path)
    db._writer.execute("PRAGMA synchronous = OFF")
    project = db.namespace("p", None)
    rnd = random.Random(seed)
    live: dict[int, str] = {}
    gone: list[str] = []
    for number in range(500):
        if live and rnd.random() < 0.45:
            key = rnd.choice(sorted(live))
            gone.append(live.pop(key))
            db.delete([key])
            assert db.scrub([f"{gone[-1]} " * 10])
        else:
            mark = f"mark{number:06d}x"
            entry = new(str(number), task=f"{mark} " * rnd.choice([1, 2, 10]), answer=f"{mark} " * rnd.choice([1, 10]))
            live[db.add(project, replace(entry, tags=(mark,)), MODEL, vector(0, 384))] = mark
    raw = raw_files(tmp_path)
    assert [mark for mark in gone if mark.encode() in raw] == []
    assert db.problems() == []
    db.close()


def test_a_trace_in_a_page_is_found_and_goes(db: Database, project: Namespace, tmp_path: Path) -> None:
    db.add(project, new("a"), MODEL, vector())
    assert db.scrub()
    page_size = db._writer.execute("PRAGMA page_size").fetchone()[0]
    root = db._writer.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries'").fetchone()[0]
    db.close()
    with (tmp_path / "memory.db").open("r+b") as file:
        file.seek((root - 1) * page_size + 100)
        file.write(b"the trace of a forgotten text")
    again = Database(tmp_path)
    assert b"forgotten" in raw_files(tmp_path)
    assert again.scrub(["something else of this length"])
    assert b"forgotten" in raw_files(tmp_path)
    assert again.scrub(["this was the trace of a forgotten text once"])
    assert b"forgotten" not in raw_files(tmp_path)
    again.close()


def test_scrub_tells_when_a_reader_prevents_it(db: Database, project: Namespace, tmp_path: Path) -> None:
    key = db.add(project, new("a", task="forgetme"), MODEL, vector())
    other = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM entries").fetchall()
    db.delete([key])
    assert not db.scrub(["forgetme"])
    assert not db.scrub(["forgetme"], wait=False)
    other.execute("COMMIT")
    other.close()
    assert db.scrub(["forgetme"], wait=False)
    assert b"forgetme" not in raw_files(tmp_path)


def test_compacting_gives_pages_back(db: Database, project: Namespace, tmp_path: Path) -> None:
    keys = db.add_many(project, [new(str(n), answer="x" * 9000) for n in range(50)], MODEL, np.stack([vector()] * 50))
    db.scrub()
    before = (tmp_path / "memory.db").stat().st_size
    db.delete(keys[1:])
    db.compact()
    assert (tmp_path / "memory.db").stat().st_size < before / 2
    assert db.entry(project, "0") is not None


# --- salvage


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A database of 300 entries in two namespaces."""
    folder = tmp_path / "damaged"
    folder.mkdir()
    db = Database(folder)
    for name, root in (("one", None), ("two", "/a/two")):
        space = db.namespace(name, root)
        entries = [new(f"{name}{n}", answer=f"{n} " * 100, tags=("t", f"{n}")) for n in range(150)]
        db.add_many(space, entries, MODEL, np.stack([vector()] * 150))
    db.close()
    return folder / "memory.db"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Database]:
    folder = tmp_path / "fresh"
    folder.mkdir()
    db = Database(folder)
    yield db
    db.close()


def test_salvage_copies_all_of_a_sound_file(damaged: Path, fresh: Database) -> None:
    assert salvage(damaged, fresh) == (300, 0)
    two = fresh.namespace("two", "/a/two")
    found = fresh.entry(two, "two7")
    assert found is not None
    assert found.tags == ("t", "7")
    assert len(fresh.tagged(two, "memory", ["7"])) == 1
    assert fresh.count_unembedded(MODEL) == 300
    assert fresh.problems() == []


def test_salvage_copies_where_merged_namespaces_lead(tmp_path: Path, fresh: Database) -> None:
    db = Database(tmp_path)
    into, source = db.namespace("into", "/a/into"), db.namespace("source", "/a/source")
    db.merge_namespaces(source, into)
    db.close()
    assert salvage(tmp_path / "memory.db", fresh) == (0, 0)
    for found in (fresh.find_namespace("source", None), fresh.find_namespace("source", "/a/source")):
        assert found is not None
        assert (found.name, found.root) == ("into", "/a/into")


def test_salvage_copies_what_consolidations_did_so_that_it_can_be_undone(tmp_path: Path, fresh: Database) -> None:
    db = Database(tmp_path)
    space = db.namespace("notes", None)
    ids = ("gone", "a", "b", "c", "d", "e", "f")
    entries = [new(entry_id, kind="note") for entry_id in ids]
    db.add_many(space, entries, MODEL, np.stack([vector()] * len(ids)))
    # So that keys are others than in the fresh file.
    db.delete(list(db.keys_of(["gone"]).values()))
    assert db.consolidate(space, ["a"], "b", run="one", at=NOW) is not None
    summary = new("summary", kind="note")
    made = db.consolidate(space, ["c", "d"], summary, run="two", fingerprint=MODEL, vector=vector(), at=NOW)
    assert made is not None
    assert db.archive(space, "e", superseded_by="f", at=NOW) is not None
    done = [Consolidated("two", "summary", True, ("c", "d")), Consolidated("one", "b", False, ("a",))]
    assert db.consolidations(space) == done
    db.close()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        file.execute("PRAGMA foreign_keys = OFF")
        file.executemany(
            "INSERT INTO consolidated (entry, survivor, made, run) VALUES (?, ?, 0, ?)",
            [(99, "b", "three"), (3, b"b", "three"), (6, "f", b"three")],
        )
    assert salvage(tmp_path / "memory.db", fresh) == (7, 0)
    space = fresh.namespace("notes", None)
    assert fresh.consolidations(space) == done
    archived = {
        entry.id: entry.superseded_by for entry in fresh.entries(list(range(1, 9))).values() if entry.archived_at
    }
    assert archived == {"a": "b", "c": "summary", "d": "summary", "e": "f"}
    back, gone, left = fresh.separate(space, done)
    assert {entry.id for entry in fresh.entries(back).values()} == {"a", "c", "d"}
    assert ([entry.id for entry in gone], left) == (["summary"], [])
    assert fresh.count(space, ["note"], NOW) == 5
    assert fresh.problems() == []


@pytest.mark.parametrize("seed", range(6))
def test_salvage_copies_what_can_be_read(damaged: Path, fresh: Database, seed: int) -> None:
    rnd = random.Random(seed)
    raw = bytearray(damaged.read_bytes())
    for page in rnd.sample(range(1, len(raw) // 4096), 3):
        raw[page * 4096 : page * 4096 + 4096] = rnd.randbytes(4096) if seed % 2 else bytes(4096)
    damaged.write_bytes(raw)
    copied, lost = salvage(damaged, fresh)
    assert copied <= 300
    assert lost <= 300
    spaces = [space for space, _ in fresh.namespaces()]
    assert sum(fresh.count(space, ["memory"], NOW) for space in spaces) == copied
    assert fresh.problems() == []


def test_salvage_where_the_end_of_the_table_cannot_be_read(damaged: Path, fresh: Database) -> None:
    """The highest key is then known from another table only, or not at all."""
    raw = bytearray(damaged.read_bytes())
    leaves = [at for at in range(4096, len(raw), 4096) if raw[at] == 13 and b"two149" in raw[at : at + 4096]]
    for at in leaves:
        raw[at : at + 4096] = b"\xff" * 4096
    damaged.write_bytes(raw)
    copied, lost = salvage(damaged, fresh)
    assert copied + lost == 300
    assert 0 < lost < 20
    fresh.delete(list(fresh.keys_of([f"{name}{n}" for name in ("one", "two") for n in range(150)]).values()))
    root = _root_page(damaged, "sqlite_sequence")
    raw[root : root + 4096] = b"\xff" * 4096
    damaged.write_bytes(raw)
    assert salvage(damaged, fresh) == (copied, 0)


def _root_page(path: Path, table: str) -> int:
    with sqlite3.connect(path) as file:
        page = file.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    file.close()
    return int(page - 1) * 4096


def test_salvage_passes_over_rows_that_hold_no_entry(damaged: Path, fresh: Database) -> None:
    with sqlite3.connect(damaged) as file:
        file.execute("UPDATE entries SET created_at = 'x' WHERE key = 1")
        file.execute("UPDATE entries SET kind = 'x' WHERE key = 2")
        file.execute("UPDATE entries SET task = x'00' WHERE key = 3")
        file.execute("UPDATE entries SET expires_at = 'x' WHERE key = 4")
        file.execute("UPDATE entries SET task = CAST(x'ff' AS TEXT) WHERE key = 5")
        file.execute("UPDATE namespaces SET name = x'00' WHERE name = 'two'")
    file.close()
    assert salvage(damaged, fresh) == (295, 5)
    assert [(space.name, count) for space, count in fresh.namespaces()] == [("one", 145), ("salvaged-2", 150)]


def test_salvage_of_what_is_no_database_finds_nothing(tmp_path: Path, fresh: Database) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(b"no database " * 1000)
    assert salvage(path, fresh) == (0, 0)


def test_salvage_of_a_file_without_the_tables_finds_nothing(tmp_path: Path, fresh: Database) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE x (y)")
    file.close()
    assert salvage(path, fresh) == (0, 0)
