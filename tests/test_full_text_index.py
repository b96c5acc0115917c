"""The full-text index: what it finds, that it follows the entries, and that no deleted word stays in it."""

from __future__ import annotations

import logging
import random
import sqlite3
import string
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from word_search import keys_in_database

from subconscious_mcp import full_text
from subconscious_mcp import full_text_index as module
from subconscious_mcp.database import Database
from subconscious_mcp.full_text_index import GRAMS, WORDS, Features
from subconscious_mcp.records import Filters, Kind, Namespace, NewEntry
from subconscious_mcp.salvage import salvage
from subconscious_mcp.schema import MIGRATIONS

MODEL = "fa4efa4efa4e"
NOW = 1_800_000_000.0
KINDS: tuple[Kind, ...] = ("note", "fact", "chunk")
VECTOR: NDArray[np.float32] = np.ones(4, np.float32)

pytestmark = pytest.mark.skipif(
    sqlite3.sqlite_version_info < (3, 34)
    or not sqlite3.connect(":memory:").execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0],
    reason="this SQLite has no FTS5 or no trigrams",
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path, busy_seconds=0.05)
    yield opened
    opened.close()


@pytest.fixture
def project(db: Database) -> Namespace:
    return db.namespace("project", None)


def new(entry_id: str, task: str, **values: object) -> NewEntry:
    entry = NewEntry(id=entry_id, kind="note", task=task, answer="", created_at=NOW)
    return replace(entry, **values)  # type: ignore[arg-type]


def put(db: Database, space: Namespace, entry_id: str, task: str, **values: object) -> int:
    return db.add(space, new(entry_id, task, **values), MODEL, VECTOR)


def search(db: Database, space: Namespace, query: str, k: int = 10, **filters: object) -> list[str]:
    asked = Filters(**filters)  # type: ignore[arg-type]
    keys = keys_in_database(db, space, KINDS, query, k, now=NOW, filters=asked)
    entries = db.entries(keys)
    return [entries[key].id for key in keys]


def raw_files(folder: Path) -> bytes:
    return b"\0".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


# --- finding


def test_words_are_found_by_their_stems_whatever_their_marks_and_case(db: Database, project: Namespace) -> None:
    put(db, project, "a", "We were running late to the Café")
    put(db, project, "b", "something else", answer="the answer runs too")
    assert search(db, project, "RUN") == ["a", "b"] or search(db, project, "RUN") == ["b", "a"]
    assert search(db, project, "cafe") == ["a"]
    assert search(db, project, "late cafe answer")[0] == "a"
    assert search(db, project, "nothing of it") == []


@pytest.mark.parametrize(
    "query",
    [
        "config_v2.py",
        "app/config",
        "where is onfig_v2?",
        "RateThrottle",
        "JIRA-1234",
        "ticket IRA-123",
        "3.14.2",
        "E0425",
    ],
)
def test_an_identifier_is_found_as_it_is_written_and_inside_others(
    db: Database, project: Namespace, query: str
) -> None:
    put(db, project, "wanted", "JIRA-1234: set AnonRateThrottle in src/app/config_v2.py, broken since 3.14.2 (E0425)")
    for number in range(50):
        put(db, project, f"other{number}", f"a note about ticket number {number} and where the rate is set in a file")
    assert search(db, project, query)[0] == "wanted"


@pytest.mark.parametrize(
    ("task", "query"),
    [
        ("データベースの設定を変更する方法", "設定を変更したい"),
        ("生产环境的数据库每天凌晨备份", "数据库什么时候备份"),
        ("東京の天気は晴れ", "天気"),
        ("我的配置文件在这里", "配置"),
        ("데이터베이스를 백업한다", "데이터베이스"),
        ("настройка базы данных", "БАЗЫ"),
        ("ตั้งค่าฐานข้อมูล", "ฐานข้อมูล"),
    ],
)
def test_other_scripts_are_found(db: Database, project: Namespace, task: str, query: str) -> None:
    put(db, project, "wanted", task)
    put(db, project, "other", "すべて他のこと 其他的事情 другое")
    assert search(db, project, query) == ["wanted"]


def test_what_holds_the_rare_word_is_found_among_many_that_hold_the_common_one(
    db: Database, project: Namespace
) -> None:
    for number in range(20):
        put(db, project, f"common{number}", f"deploy the service number {number}")
    put(db, project, "rare", "the zeppelin is a balloon")
    put(db, project, "long", "zeppelin " + "and many other words about all kinds of things " * 20)
    assert search(db, project, "deploy the zeppelin", k=2) == ["long", "rare"]
    assert len(search(db, project, "deploy the zeppelin", k=50)) == 22


def test_of_equal_ones_the_newest_comes_first(db: Database, project: Namespace) -> None:
    for number in range(5):
        put(db, project, str(number), "the same words")
    assert search(db, project, "same words", k=3) == ["4", "3", "2"]


def test_only_live_entries_of_the_namespace_and_the_kinds_are_found(db: Database, project: Namespace) -> None:
    other = db.namespace("other", None)
    put(db, project, "wanted", "a word")
    put(db, project, "expired", "a word", expires_at=NOW)
    put(db, other, "elsewhere", "a word")
    put(db, project, "archived", "a word")
    assert db.archive(project, "archived", at=NOW) is not None
    for kind in ("memory", "episode"):
        put(db, project, kind, "a word", kind=kind)
    put(db, project, "chunk", "a word", kind="chunk")
    assert set(search(db, project, "word")) == {"wanted", "chunk"}
    assert keys_in_database(db, project, ["fact"], "word", 9, now=NOW, filters=Filters()) == []
    assert set(search(db, other, "word")) == {"elsewhere"}


@pytest.mark.parametrize("limit", [3, 4000])
def test_filters_make_results_no_fewer(
    db: Database, project: Namespace, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HOLDERS", limit)
    other = db.namespace("other", None)
    for number in range(3):
        put(db, project, f"wanted{number}", "a common word", tags=("t",), source="s", created_at=NOW - 100)
    put(db, other, "elsewhere", "a common word")
    for number in range(300):
        put(db, project, f"other{number}", "a common word")
    wanted = {f"wanted{number}" for number in range(3)}
    for filters in (
        {"tags": ("t", "u")},
        {"until": NOW - 50},
        {"source": "s"},
        {"until": NOW - 100, "since": NOW - 100},
    ):
        assert set(search(db, project, "the common word", **filters)) == wanted
    assert search(db, project, "word", since=NOW + 1) == []
    assert search(db, project, "word", source="") == [f"other{number}" for number in range(299, 289, -1)]
    assert search(db, other, "common word") == ["elsewhere"]
    assert len(search(db, project, "common word", k=1000)) == 303


def test_a_word_that_many_hold_gives_way_to_one_that_few_hold(
    db: Database, project: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HOLDERS", 5)
    for number in range(20):
        put(db, project, f"common{number}", "deploy services")
    put(db, project, "rare", "zeppelin")
    assert search(db, project, "deploy zeppelin", k=1) == ["rare"]
    # All terms are held by many: the newest of them are looked at.
    assert search(db, project, "deploy services", k=2) == ["common19", "common18"]
    assert len(search(db, project, "deploy zeppelin", k=30)) == 21


@pytest.mark.parametrize(
    "query", ["", "\x00", "\ud800", '"', "***", "AND", "(", "a" * 100_000, "-- DROP TABLE entries"]
)
def test_any_query_is_answered(db: Database, project: Namespace, query: str) -> None:
    put(db, project, "a", "something")
    assert search(db, project, query) == []


# --- following the entries


def test_it_agrees_with_the_entries_after_whatever_happened(db: Database, project: Namespace, tmp_path: Path) -> None:
    other = db.namespace("other", None)
    keys = [
        put(db, project, str(number), f"word{number} and\x00more ★ 日本", answer=f"x{number}") for number in range(9)
    ]
    assert db.add_many(project, [new("m", "a memory", kind="memory")], MODEL, VECTOR.reshape(1, -1)) == [keys[-1] + 1]
    assert db.archive(project, "1", at=NOW) == keys[1]
    assert db.archive(project, "2", at=NOW) == keys[2]
    assert db.restore(project, "2") == keys[2]
    assert db.supersede(project, "3", new("3b", "word3b"), MODEL, VECTOR, at=NOW) is not None
    db.delete([keys[0], keys[1], keys[4]])
    db.merge_namespaces(project, other)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        file.execute("UPDATE entries SET kind = 'memory' WHERE key = ?", (keys[5],))
        file.execute("UPDATE entries SET kind = 'fact', task = 'changed' WHERE id = 'm'")
        file.execute("DELETE FROM entries WHERE key = ?", (keys[6],))
    assert db.full_text_problems() == []
    assert db.problems() == []
    for word, ids in (("word2", ["2"]), ("word3b", ["3b"]), ("changed", ["m"]), ("word7", ["7"])):
        assert search(db, other, word) == ids
    for gone in ("word0", "word1", "word4", "word5", "word6"):
        assert search(db, other, gone) == []
    db.compact()
    assert db.full_text_problems() == []


def test_a_write_that_fails_leaves_no_words(db: Database, project: Namespace) -> None:
    put(db, project, "a", "first")
    with pytest.raises(Exception, match="UNIQUE"):
        db.add_many(project, [new("b", "zeppelin"), new("a", "again")], MODEL, np.stack([VECTOR, VECTOR]))
    assert search(db, project, "zeppelin") == []
    assert db.full_text_problems() == []


def test_entries_of_a_file_of_before_are_indexed_where_it_is_opened(tmp_path: Path) -> None:
    with closing(Database(tmp_path, migrations=MIGRATIONS[:4])) as old:
        space = old.namespace("project", None)
        put(old, space, "a", "the zeppelin of old")
        put(old, space, "m", "a zeppelin", kind="memory")
    with closing(Database(tmp_path)) as db:
        assert search(db, space, "zeppelin") == ["a"]
        assert db.entry(space, "a") is not None
        assert db.full_text_problems() == []
    with closing(Database(tmp_path)) as db:
        assert search(db, space, "zeppelin") == ["a"]


def test_what_can_be_read_of_a_damaged_file_is_found_by_its_words(
    db: Database, project: Namespace, tmp_path: Path
) -> None:
    (tmp_path / "fresh").mkdir()
    put(db, project, "a", "the zeppelin")
    put(db, project, "b", "an archived zeppelin")
    db.archive(project, "b", superseded_by="a", at=NOW)
    with closing(Database(tmp_path / "fresh")) as fresh:
        assert salvage(tmp_path / "memory.db", fresh) == (2, 0)
        space = fresh.namespace("project", None)
        assert search(fresh, space, "zeppelin") == ["a"]
        kept = fresh.entry(space, "b")
        assert kept is not None
        assert (kept.archived_at, kept.superseded_by) == (NOW, "a")
        assert fresh.full_text_problems() == []


def test_a_file_of_before_that_is_damaged_is_salvaged(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    with closing(Database(tmp_path, migrations=MIGRATIONS[:4])) as old:
        put(old, old.namespace("project", None), "a", "the zeppelin")
    with closing(Database(tmp_path / "fresh")) as fresh:
        assert salvage(tmp_path / "memory.db", fresh) == (1, 0)
        assert search(fresh, fresh.namespace("project", None), "zeppelin") == ["a"]


@pytest.mark.parametrize("table", [WORDS, GRAMS])
@pytest.mark.parametrize(
    "damage",
    [
        "INSERT INTO {table} ({table}) VALUES ('delete-all')",
        "INSERT INTO {table} (rowid, task, answer) VALUES (99, 'strange', '')",
        "UPDATE {table}_data SET block = x'00' WHERE id > 10",
        "UPDATE {table}_data SET block = x'0000000100' WHERE id = 10",
    ],
)
def test_damage_is_told_and_mended(db: Database, project: Namespace, tmp_path: Path, table: str, damage: str) -> None:
    put(db, project, "a", "the zeppelin of 日本語")
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        file.execute(damage.format(table=table))
    with closing(Database(tmp_path, busy_seconds=0.05)) as again:
        assert again.full_text_problems() == [table]
        # The entries are sound: nothing is to be salvaged.
        assert again.problems() == []
        again.rebuild_full_text()
        assert again.full_text_problems() == []
        assert search(again, project, "zeppelin") == ["a"]
        assert search(again, project, "日本語") == ["a"]


# --- builds of SQLite


def test_the_build_is_asked_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    class Build:
        def __init__(self, fts5: int, version: str) -> None:
            self._row = (fts5, version)

        def execute(self, sql: str, parameters: object = ()) -> Build:
            return self

        def fetchone(self) -> tuple[int, str]:
            return self._row

    assert module.features(Build(0, "3.45.0")) == Features((), erases=False)
    assert module.features(Build(1, "3.33.0")) == Features((WORDS,), erases=False)
    assert module.features(Build(1, "3.34.0")) == Features((WORDS, GRAMS), erases=False)
    assert module.features(Build(1, "3.42.1")) == Features((WORDS, GRAMS), erases=True)


@pytest.mark.parametrize("tables", [(), (WORDS,)])
def test_a_build_that_can_less_opens_the_file_and_one_that_can_more_catches_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tables: tuple[str, ...],
) -> None:
    caplog.set_level(logging.WARNING)
    with closing(Database(tmp_path)) as db:
        space = db.namespace("project", None)
        put(db, space, "a", "the zeppelin RZ-1")
        put(db, space, "gone", "zeppelin number 2")
    assert caplog.messages == []
    with monkeypatch.context() as patch:
        patch.setattr(module, "features", lambda connection: Features(tables, erases=False))
        with closing(Database(tmp_path)) as db:
            put(db, space, "b", "a zeppelin named abRZ-1cd")
            db.delete(list(db.keys_of(["gone"]).values()))
            db.scrub()
            assert set(search(db, space, "zeppelin")) == ({"a", "b"} if tables else set())
            assert search(db, space, "bRZ-1c") == []
            assert db.full_text_problems() == []
            db.rebuild_full_text()
    assert len(caplog.messages) == 1
    assert "by meaning" in caplog.messages[0]
    with closing(Database(tmp_path)) as db:
        assert set(search(db, space, "zeppelin")) == {"a", "b"}
        assert search(db, space, "bRZ-1c") == ["b"]
        assert db.full_text_problems() == []


def test_a_file_whose_words_were_erased_by_a_later_sqlite_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Database(tmp_path)) as db:
        space = db.namespace("project", None)
        put(db, space, "a", "the zeppelin")
        db.delete([put(db, space, "b", "another zeppelin")])
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file, file:
        # As SQLite from 3.42 on leaves it: older ones refuse to read a table of this format.
        for table in (WORDS, GRAMS):
            file.execute(f"UPDATE {table}_config SET v = 5 WHERE k = 'version'")
        file.execute("DROP TRIGGER full_text_deleted")
        file.execute("CREATE TRIGGER full_text_deleted AFTER DELETE ON entries BEGIN SELECT 1; END")
    with closing(Database(tmp_path)) as db:
        assert search(db, space, "zeppelin") == ["a"]
        db.delete([put(db, space, "c", "a third zeppelin")])
        assert db.full_text_problems() == []


# --- forgetting


def test_no_deleted_word_stays_in_the_file(tmp_path: Path) -> None:
    rnd = random.Random(1)
    common = ["".join(rnd.choices(string.ascii_lowercase, k=rnd.randrange(3, 9))) for _ in range(200)]
    live: dict[int, list[str]] = {}
    with closing(Database(tmp_path)) as db:
        db._writer.execute("PRAGMA synchronous = OFF")
        space = db.namespace("project", None)
        for _ in range(300):
            if live and rnd.random() < 0.45:
                key = rnd.choice(sorted(live))
                words = live.pop(key)
                if rnd.random() < 0.3:
                    db.archive(space, words[0], at=NOW)
                db.delete([key])
                assert db.scrub(full_text.remains(" ".join(words)))
                raw = raw_files(tmp_path)
                # Without its beginning, which the index may share with another word's.
                assert [word for word in words if word[3:10].encode() in raw] == []
            else:
                words = ["".join(rnd.choices(string.ascii_lowercase, k=12)) for _ in range(4)]
                text = " ".join(words + rnd.choices(common, k=rnd.choice([5, 40, 200])))
                live[put(db, space, words[0], text)] = words
        raw = raw_files(tmp_path)
        assert all(word[3:10].encode() in raw for words in live.values() for word in words)
        assert db.problems() == []
        assert db.full_text_problems() == []


def test_what_a_kill_leaves_in_it_goes_with_the_next_cleaning(db: Database, project: Namespace, tmp_path: Path) -> None:
    put(db, project, "a", "kept words")
    key = put(db, project, "b", "the zeppelin 龘靐齉")
    db.scrub()
    assert b"zeppelin" in raw_files(tmp_path)
    db.delete([key])
    # Nothing but the deletion has happened: as a kill leaves it.
    (tmp_path / "killed").mkdir()
    for path in tmp_path.glob("memory.db*"):
        (tmp_path / "killed" / path.name).write_bytes(path.read_bytes())
    with closing(Database(tmp_path / "killed")) as again:
        assert again.scrub()
        raw = raw_files(tmp_path / "killed")
        assert [part for part in ("zeppelin", "龘靐齉", "龘靐", "ppel") if part.encode() in raw] == []
        assert search(again, project, "kept") == ["a"]
