"""Feedback in memory.db: one observation a query, bounded, and gone with its entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeEmbedder

from subconscious_mcp.database import Database
from subconscious_mcp.feedback_rows import FEEDBACK_WINDOW
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.records import Namespace, NewEntry, Observation
from subconscious_mcp.salvage import salvage
from subconscious_mcp.schema import MIGRATIONS

MODEL = "fa4efa4efa4e"


def said(entry_id: str, similarity: float = 0.9, correct: bool = True, at: float = 1.0) -> Observation:
    return Observation(entry_id, similarity, correct, at, MODEL)


def add(db: Database, space: Namespace, *ids: str, expires_at: float | None = None) -> None:
    entries = [NewEntry(entry_id, "memory", "a task", "an answer", 1.0, expires_at) for entry_id in ids]
    db.add_many(space, entries, MODEL, np.ones((len(ids), 8), dtype=np.float32))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def space(db: Database) -> Namespace:
    return db.namespace("project", None)


def test_observations_come_back_in_order_and_of_the_namespace_only(db: Database, space: Namespace) -> None:
    other = db.namespace("other", None)
    add(db, space, "a", "b")
    add(db, other, "c")
    given = [said("a", 0.9), said("b", 0.8, False), replace(said("a", 1.0, at=2.5), kept_back=True)]
    assert all(db.note_feedback(space, f"q{number}", one) for number, one in enumerate(given))
    assert db.note_feedback(other, "q", said("c"))
    assert db.feedback(space) == given
    assert db.feedback(space, "a") == [given[0], given[2]]
    assert db.feedback(space, "c") == db.feedback(other, "a") == []


def test_an_entry_of_another_namespace_takes_none(db: Database, space: Namespace) -> None:
    add(db, db.namespace("other", None), "c")
    assert not db.note_feedback(space, "q", said("c"))
    assert not db.note_feedback(space, "q", said("no such"))
    assert db.feedback(space) == []


def test_the_same_query_again_takes_the_place_of_what_was_said_before(db: Database, space: Namespace) -> None:
    add(db, space, "a", "b")
    db.note_feedback(space, "q", said("a", 0.9, True))
    db.note_feedback(space, "other", said("a", 0.95, True))
    db.note_feedback(space, "q", said("b", 0.9, True))
    db.note_feedback(space, "q", said("a", 0.91, False))
    assert db.feedback(space, "a") == [said("a", 0.95, True), said("a", 0.91, False)]
    assert len(db.feedback(space, "b")) == 1


def test_the_newest_are_kept(db: Database, space: Namespace) -> None:
    add(db, space, "a", "b")
    db.note_feedback(space, "first", said("b"))
    for number in range(FEEDBACK_WINDOW + 5):
        db.note_feedback(space, f"q{number}", said("a", at=float(number)))
    assert [one.at for one in db.feedback(space, "a")] == [float(n) for n in range(5, FEEDBACK_WINDOW + 5)]
    assert len(db.feedback(space, "b")) == 1


def test_it_goes_with_its_entry(db: Database, space: Namespace) -> None:
    add(db, space, "a", "b")
    for entry_id in ("a", "b"):
        db.note_feedback(space, "q", said(entry_id))
    db.delete(list(db.keys_of(["a"]).values()))
    assert db.feedback(space) == [said("b")]
    assert db._read("SELECT count(*) FROM feedback")[0][0] == 1


def test_it_follows_its_entry_into_another_namespace(db: Database, space: Namespace) -> None:
    other = db.namespace("other", None)
    add(db, space, "a")
    db.note_feedback(space, "q", said("a"))
    db.merge_namespaces(space, other)
    assert db.feedback(other, "a") == [said("a")]
    db.rename_namespace(other, "renamed")
    assert db.feedback(db.namespace("renamed", None), "a") == [said("a")]


def test_a_file_of_the_third_step_is_migrated(tmp_path: Path) -> None:
    old = Database(tmp_path, migrations=MIGRATIONS[:3])
    add(old, old.namespace("project", None), "a")
    old.close()
    db = Database(tmp_path)
    space = db.namespace("project", None)
    assert db.entry(space, "a") is not None and db.feedback(space) == []
    assert db.note_feedback(space, "q", said("a"))
    assert db.problems() == []
    db.close()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_what_can_be_read_of_a_damaged_file_keeps_its_feedback(db: Database, space: Namespace, tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    fresh = Database(tmp_path / "fresh")
    # So that the keys are others than in the damaged file.
    add(fresh, fresh.namespace("project", None), "own")
    add(db, space, "gone", "a", "b")
    for number, entry_id in enumerate(("gone", "b", "a")):
        db.note_feedback(space, "q", said(entry_id, (0.80, 0.81, 0.82)[number]))
    db.delete(list(db.keys_of(["gone"]).values()))
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        file.execute("PRAGMA foreign_keys = OFF")
        file.executemany(
            "INSERT INTO feedback (entry, query, fingerprint, similarity, correct, at, kept_back)"
            " VALUES (?, ?, ?, ?, ?, ?, 0)",
            [(2, "x", MODEL, "no number", 1, 1.0), (2, "y", MODEL, 7.0, 1, 1.0), (99, "z", MODEL, 0.9, 1, 1.0)],
        )
    assert salvage(tmp_path / "memory.db", fresh) == (2, 0)
    assert fresh.feedback(fresh.namespace("project", None)) == [said("b", 0.81), said("a", 0.82)]
    fresh.close()


def test_a_damaged_file_of_before_has_none(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "fresh").mkdir()
    old, fresh = Database(tmp_path / "old", migrations=MIGRATIONS[:3]), Database(tmp_path / "fresh")
    add(old, old.namespace("project", None), "a")
    old.close()
    assert salvage(tmp_path / "old" / "memory.db", fresh) == (1, 0)
    fresh.close()


def test_the_store_measures_purges_and_forgets(tmp_path: Path) -> None:
    store, embedder = LocalStore(tmp_path / "data", command="tests"), FakeEmbedder()
    space = store.namespace("project", None)
    vector = embedder.embed_query("a task")
    for entry_id, expires_at in (("a", None), ("b", 5.0)):
        store.add(space, NewEntry(entry_id, "memory", "a task", "x", 1.0, expires_at), embedder.fingerprint, vector)
        assert store.note_feedback(space, "q", said(entry_id))
    embedder.place("near", 0.9, "a task")
    entry = store.entry(space, "b")
    assert entry is not None
    near = store.similarity(space, entry, embedder.fingerprint, embedder.embed_query("near"))
    assert near == pytest.approx(0.9, abs=1e-4)
    assert store.similarity(space, entry, embedder.fingerprint, vector) == 1.0
    # Another model's vectors are never compared with it.
    assert store.similarity(space, entry, "0123456789ab", vector) is None
    assert store.purge_expired(10.0) == 1
    assert [one.entry_id for one in store.feedback(space)] == ["a"]
    assert store.forget(space, "a") is not None
    assert store.feedback(space) == []
    store.close()
