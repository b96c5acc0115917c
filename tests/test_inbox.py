"""The inbox keeps one episode for each session, whatever locks, damages or deletes its file meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import OpenMemory
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp import inbox as inbox_module
from subconscious_mcp.config import Config
from subconscious_mcp.inbox import Episode, Inbox, InboxError, count_memories, seconds_of, timestamp

EARLY, LATE = "2026-11-30T01:00:00.000Z", "2026-11-30T02:00:00.000Z"


def episode(session: str = "s-1", request: str = "Fix the parser", **facts: Any) -> Episode:
    whole = {"ts": EARLY, "namespace": "project", "root": "/work/project", "outcome": "It is fixed.", **facts}
    return Episode(session_id=session, request=request, **whole)


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(str(tmp_path / "data"), wait_seconds=0.05)


@contextmanager
def locked(inbox: Inbox) -> Iterator[None]:
    with closing(sqlite3.connect(inbox.path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def spooled(inbox: Inbox) -> list[Path]:
    return sorted(Path(inbox.spool).glob("*"))


def requests(inbox: Inbox) -> list[str]:
    return [one.request for one in inbox.listed(None, None, 100)]


def execute(inbox: Inbox, query: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(inbox.path)) as connection, connection:
        connection.execute(query, parameters)


def test_an_episode_comes_back_as_it_was(inbox: Inbox) -> None:
    assert inbox.leave(episode()) == "kept"
    (found,) = inbox.pending(10)
    assert {name: getattr(found, name) for name in Episode.__slots__} == {
        "session_id": "s-1",
        "ts": EARLY,
        "namespace": "project",
        "root": "/work/project",
        "request": "Fix the parser",
        "outcome": "It is fixed.",
        "moment": "",
        "number": 1,
        "revision": 1,
        "ingested": 0,
    }
    assert found.content == "Fix the parser → It is fixed."


def test_the_query_of_the_privacy_section_works(inbox: Inbox) -> None:
    inbox.leave(episode())
    query = "SELECT ts, namespace, substr(content,1,80) FROM episodes ORDER BY ts DESC LIMIT 10"
    with closing(sqlite3.connect(inbox.path)) as connection:
        assert connection.execute(query).fetchall() == [(EARLY, "project", "Fix the parser → It is fixed.")]


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_only_the_owner_may_read_it(inbox: Inbox) -> None:
    inbox.leave(episode())
    with locked(inbox):
        inbox.leave(episode("s-2"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(inbox.folder).iterdir()}
    assert modes == {"context.db": 0o600, "context.spool": 0o700}
    assert stat.S_IMODE(Path(inbox.folder).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in spooled(inbox)} == {0o600}


def test_a_later_one_replaces_that_of_its_session(inbox: Inbox) -> None:
    inbox.leave(episode(request="the first"))
    inbox.leave(episode("s-2", request="another"))
    inbox.leave(episode(request="the second", ts=LATE))
    assert [(e.session_id, e.request, e.revision) for e in inbox.pending(10)] == [
        ("s-1", "the second", 2),
        ("s-2", "another", 1),
    ]


def test_the_same_again_is_nothing_new(inbox: Inbox) -> None:
    inbox.leave(episode())
    assert inbox.mark_ingested(inbox.pending(1)[0])
    inbox.leave(episode(ts=LATE))
    assert inbox.pending(10) == []
    # In another project it is.
    inbox.leave(episode(ts=LATE, root="/work/other"))
    assert [one.root for one in inbox.pending(10)] == ["/work/other"]


def test_a_locked_inbox_spools_and_takes_in_later(inbox: Inbox) -> None:
    inbox.leave(episode(request="the first"))
    with locked(inbox):
        assert inbox.leave(episode(request="the second", ts=LATE)) == "spooled"
        assert inbox.leave(episode("s-2", request="another")) == "spooled"
        with pytest.raises(InboxError):
            inbox.take_in_spooled()
    assert inbox.take_in_spooled() == 2
    assert spooled(inbox) == []
    assert sorted(requests(inbox)) == ["another", "the second"]
    assert inbox.take_in_spooled() == 0


def test_a_spooled_older_one_does_not_replace_a_newer_one(inbox: Inbox) -> None:
    inbox.leave(episode("s-2"))
    with locked(inbox):
        inbox.leave(episode(request="older", ts=EARLY))
    inbox.leave(episode(request="newer", ts=LATE))
    inbox.take_in_spooled()
    assert sorted(requests(inbox)) == ["Fix the parser", "newer"]
    assert spooled(inbox) == []


def test_a_newer_one_that_was_spooled_survives_an_older_one_that_is_kept(inbox: Inbox) -> None:
    """The older hook waited for the lock a moment longer, and got it."""
    inbox.leave(episode("s-2"))
    with locked(inbox):
        inbox.leave(episode(request="newer", ts=LATE))
    inbox.leave(episode(request="older", ts=EARLY))
    inbox.take_in_spooled()
    assert sorted(requests(inbox)) == ["Fix the parser", "newer"]


def test_of_one_session_only_the_newest_stays_spooled(inbox: Inbox) -> None:
    inbox.leave(episode("s-2"))
    with locked(inbox):
        for minute in range(5):
            inbox.leave(episode(request=f"number {minute}", ts=f"2026-11-30T01:0{minute}:00.000Z"))
        assert len(spooled(inbox)) == 1
    assert sorted(requests(inbox)) == ["Fix the parser", "number 4"]


def test_one_that_is_spooled_while_an_earlier_one_is_taken_in_is_not_lost(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.leave(episode("s-2"))
    with locked(inbox):
        inbox.leave(episode(request="earlier"))
    read = inbox_module._episode_in

    def read_slowly(path: str) -> Episode | None:
        found = read(path)
        monkeypatch.setattr(inbox_module, "_episode_in", read)
        with locked(inbox):
            assert inbox.leave(episode(request="later", ts=LATE)) == "spooled"
        return found

    monkeypatch.setattr(inbox_module, "_episode_in", read_slowly)
    inbox.take_in_spooled()
    inbox.take_in_spooled()
    assert sorted(requests(inbox)) == ["Fix the parser", "later"]


def test_one_that_is_forgotten_while_it_is_taken_in_stays_forgotten(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.leave(episode("s-2"))
    with locked(inbox):
        inbox.leave(episode())
    read = inbox_module._episode_in

    def read_slowly(path: str) -> Episode | None:
        found = read(path)
        inbox.remove(["s-1"])
        return found

    monkeypatch.setattr(inbox_module, "_episode_in", read_slowly)
    inbox.take_in_spooled()
    assert [one.session_id for one in inbox.pending(10)] == ["s-2"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"session_id": 1}', b"[" * 100_000],
    ids=["empty", "cut", "list", "null", "object", "bytes", "types", "nested"],
)
def test_a_spooled_file_that_is_no_episode_is_dropped(inbox: Inbox, content: bytes) -> None:
    Path(inbox.spool).mkdir(parents=True)
    (Path(inbox.spool) / "0.json").write_bytes(content)
    inbox.leave(episode())
    assert inbox.take_in_spooled() == 0
    assert spooled(inbox) == []
    assert requests(inbox) == ["Fix the parser"]


def test_recent_tells_of_what_is_spooled_too(inbox: Inbox) -> None:
    inbox.leave(episode(request="old"))
    inbox.leave(episode("s-2", request="another project", root="/elsewhere/project"))
    with locked(inbox):
        inbox.leave(episode("s-3", request="spooled", ts=LATE))
        inbox.leave(episode(request="new", ts=LATE))
        # A session starts whatever holds the inbox.
        assert {one.request for one in inbox.recent("project", "/work/project", 5)} == {"spooled", "new"}
        assert inbox.count("project", "/work/project") == 0
    assert {one.request for one in inbox.recent("project", "/work/project", 5)} == {"spooled", "new"}
    assert len(inbox.recent("project", "/work/project", 1)) == 1
    assert inbox.count("project", "/work/project") == 1
    assert inbox.recent("project", None, 5) == []


def test_marking_is_of_what_was_read(inbox: Inbox) -> None:
    inbox.leave(episode(request="the first"))
    (read,) = inbox.pending(1)
    inbox.leave(episode(request="the second", ts=LATE))
    assert not inbox.mark_ingested(read)
    assert [one.request for one in inbox.pending(10)] == ["the second"]
    inbox.remove(["s-1"])
    assert not inbox.mark_ingested(read)


def test_marks_of_a_deleted_inbox_are_none_of_the_next_ones(inbox: Inbox) -> None:
    inbox.leave(episode(request="the first"))
    (read,) = inbox.pending(1)
    Path(inbox.path).unlink()
    # Deleted as a whole: nothing was forgotten, and no empty file is made.
    assert inbox.mark_ingested(read)
    assert not Path(inbox.path).exists()
    inbox.leave(episode(request="the second", ts=LATE))
    assert not inbox.mark_ingested(read)
    assert [one.request for one in inbox.pending(10)] == ["the second"]


def test_pending_goes_on_behind_a_number(inbox: Inbox) -> None:
    for number in range(5):
        inbox.leave(episode(f"s-{number}"))
    assert [one.number for one in inbox.pending(2)] == [1, 2]
    assert [one.number for one in inbox.pending(2, after=2)] == [3, 4]
    assert [one.number for one in inbox.pending(9, after=5)] == []


def test_removed_text_is_in_no_file(inbox: Inbox, tmp_path: Path) -> None:
    secret = "zanzibar zanzibar " * 400
    inbox.leave(episode("s-0", request="stays"))
    inbox.leave(episode(request=secret, outcome=secret))
    with locked(inbox):
        inbox.leave(episode(request=secret + "again", ts=LATE))
    # What a kill left in the middle of spooling.
    Path(f"{spooled(inbox)[0]}.new").write_text(secret)
    assert inbox.remove(["s-1", "unknown"]) == 1
    held = [path for path in tmp_path.rglob("*") if path.is_file() and b"zanzibar" in path.read_bytes()]
    assert held == []
    assert requests(inbox) == ["stays"]
    inbox.leave(episode(request="the same session, after that"))
    assert len(requests(inbox)) == 2


def test_what_a_killed_hook_began_to_spool_goes_after_an_hour(inbox: Inbox) -> None:
    Path(inbox.spool).mkdir(parents=True)
    old, new = Path(inbox.spool, "old.json.new"), Path(inbox.spool, "now.json.new")
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (1, 1))
    inbox.take_in_spooled()
    assert spooled(inbox) == [new]


def test_nothing_stays_of_what_could_not_be_spooled(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.leave(episode("s-0"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with locked(inbox), pytest.raises(OSError, match="No space"):
        inbox.leave(episode())
    assert spooled(inbox) == []


def test_renaming_is_of_names_that_were_asked_for(inbox: Inbox) -> None:
    inbox.leave(episode("asked", namespace="old", root=None))
    inbox.leave(episode("derived", namespace="old"))
    with locked(inbox):
        inbox.leave(episode("spooled", namespace="old", root=None))
    inbox.rename("old", "new")
    found = {one.session_id: one.namespace for one in inbox.listed(None, None, 10)}
    assert found == {"asked": "new", "derived": "old", "spooled": "new"}


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"], ids=["no byte", "a cut header"])
def test_a_file_that_a_killed_hook_left_is_an_empty_inbox(inbox: Inbox, content: bytes) -> None:
    Path(inbox.folder).mkdir()
    Path(inbox.path).write_bytes(content)
    if not content:
        assert inbox.pending(5) == inbox.listed(None, None, 5) == inbox.recent("project", None, 5) == []
        assert inbox.find(1) is None
        assert inbox.remove(["s-1"]) == inbox.count("project", None) == 0
        assert not inbox.mark_ingested(episode(number=1))
        inbox.rename("a", "b")
    assert inbox.leave(episode()) == "kept"
    assert requests(inbox) == ["Fix the parser"]


def test_without_a_file_there_is_nothing_and_none_is_made(inbox: Inbox) -> None:
    assert inbox.pending(5) == inbox.listed(None, None, 5) == inbox.recent("project", None, 5) == []
    assert inbox.find(1) is None
    assert inbox.remove(["s-1"]) == inbox.count("project", None) == inbox.take_in_spooled() == 0
    inbox.rename("a", "b")
    assert inbox.state() == (None, None)
    assert not Path(inbox.folder).exists()


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to be looked at " * 40, None], ids=["text", "other columns"]
)
def test_a_damaged_inbox_is_put_aside_and_the_next_episode_kept(inbox: Inbox, content: bytes | None) -> None:
    Path(inbox.folder).mkdir()
    if content is None:
        execute(inbox, "CREATE TABLE episodes (id INTEGER PRIMARY KEY, text TEXT)")
    else:
        Path(inbox.path).write_bytes(content)
    assert inbox.recent("project", "/work/project", 5) == []
    with pytest.raises(InboxError) as told:
        inbox.pending(5)
    assert told.value.damaged
    assert inbox.leave(episode()) == "kept"
    assert requests(inbox) == ["Fix the parser"]
    (aside,) = Path(inbox.folder).glob("context.db.damaged-*")
    assert content is None or aside.read_bytes() == content


def damage(inbox: Inbox, *pages: int) -> Path:
    """Puts the inbox aside as a hook does that finds it damaged; pages are spoilt, counted from 1."""
    path = Path(inbox.path)
    aside = path.rename(f"{path}.damaged-1")
    content = bytearray(aside.read_bytes())
    for page in pages:
        content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    aside.write_bytes(content)
    return aside


def test_what_was_put_aside_is_taken_in_and_deleted(inbox: Inbox) -> None:
    inbox.leave(episode(request="kept before"))
    inbox.leave(episode("s-2", request="an earlier one of a session that went on"))
    aside = damage(inbox)
    inbox.leave(episode("s-2", request="a later one", ts=LATE))
    assert inbox.take_in_damaged() == 2
    assert not aside.exists()
    assert sorted(requests(inbox)) == ["a later one", "kept before"]


def test_what_was_put_aside_and_cannot_be_read_as_a_whole_stays_until_something_is_forgotten(inbox: Inbox) -> None:
    for number in range(200):
        inbox.leave(episode(f"s-{number}", request=f"zanzibar {number} {'x' * 300}"))
    with closing(sqlite3.connect(inbox.path)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (4096,)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    aside = damage(inbox, pages - 3, pages - 5)
    assert 0 < inbox.take_in_damaged() < 200
    assert aside.exists()
    found = inbox.listed(None, None, 300)
    assert 100 < len(found) < 200
    inbox.remove([one.session_id for one in found])
    assert [path.name for path in Path(inbox.folder).iterdir()] == ["context.db"]
    assert b"zanzibar" not in Path(inbox.path).read_bytes()


@pytest.mark.parametrize("content", [b"", b"no database " * 900, b"SQLite format 3\0" + bytes(9000)])
def test_what_was_put_aside_and_is_no_database_goes_when_something_is_forgotten(inbox: Inbox, content: bytes) -> None:
    inbox.leave(episode())
    aside = Path(f"{inbox.path}.damaged-7")
    aside.write_bytes(content)
    aside.with_name(f"{aside.name}-journal").write_bytes(b"zanzibar")
    inbox.take_in_damaged()
    assert requests(inbox) == ["Fix the parser"]
    inbox.remove(["s-1"])
    assert [path.name for path in Path(inbox.folder).iterdir()] == ["context.db"]


def test_a_table_of_another_kind_that_was_put_aside_is_not_taken_in(inbox: Inbox) -> None:
    inbox.leave(episode())
    aside = Path(f"{inbox.path}.damaged-7")
    with closing(sqlite3.connect(aside)) as connection:
        connection.execute("CREATE TABLE episodes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT)")
        connection.execute("INSERT INTO episodes (text) VALUES ('x')")
        connection.commit()
    assert inbox.take_in_damaged() == 0
    assert aside.exists()


def test_two_hooks_that_meet_a_damaged_inbox_keep_both_episodes(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(inbox.folder).mkdir()
    Path(inbox.path).write_bytes(b"no database " * 100)
    write = Inbox._write
    other = Inbox(inbox.folder, wait_seconds=0.05)

    def other_first(self: Inbox, *arguments: Any) -> None:
        try:
            write(self, *arguments)
        except InboxError:
            monkeypatch.setattr(Inbox, "_write", write)
            assert other.leave(episode("s-2", request="of the other hook")) == "kept"
            raise

    monkeypatch.setattr(Inbox, "_write", other_first)
    assert inbox.leave(episode()) == "kept"
    assert sorted(requests(inbox)) == ["Fix the parser", "of the other hook"]


def test_a_folder_in_the_place_of_the_file_is_no_obstacle(inbox: Inbox) -> None:
    Path(inbox.path).mkdir(parents=True)
    assert inbox.leave(episode()) == "spooled"
    assert [one.request for one in inbox.recent("project", "/work/project", 5)] == ["Fix the parser"]
    Path(inbox.path).rmdir()
    assert requests(inbox) == ["Fix the parser"]


def test_a_row_that_another_program_spoilt_hides_no_other(inbox: Inbox) -> None:
    for number in range(3):
        inbox.leave(episode(f"s-{number}"))
    execute(inbox, "UPDATE episodes SET request = CAST(? AS TEXT), ts = 'long ago' WHERE id = 1", b"caf\xe9 \xff")
    execute(inbox, "UPDATE episodes SET request = ?, outcome = 5, ts = ? WHERE id = 2", b"bytes \xff", b"\xff")
    found = inbox.pending(10)
    assert [one.request for one in found] == ["caf\ufffd \ufffd", "bytes \ufffd", "Fix the parser"]
    assert found[1].outcome == "5"
    assert all(seconds_of(one.ts) > 0 for one in found)


@pytest.mark.skipif(os.name == "nt", reason="names of files are Unicode there")
def test_a_folder_whose_name_is_not_unicode(inbox: Inbox) -> None:
    root = os.fsdecode(b"/work/\xff\xfe")
    inbox.leave(episode(root=root))
    with locked(inbox):
        inbox.leave(episode("s-2", root=root))
    assert [one.root for one in inbox.recent("project", root, 5)] == [root, root]
    inbox.take_in_spooled()
    assert [one.root for one in inbox.recent("project", root, 5)] == [root, root]
    assert inbox.recent("project", "/work/\ufffd\ufffd", 5) == []


@given(st.text(max_size=300), st.text(min_size=1, max_size=50))
def test_any_text_that_can_be_stored_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    text, name = (part.encode("utf-8", "replace").decode().replace("\0", " ") for part in (text, name))
    inbox = Inbox(str(tmp_path_factory.mktemp("inbox")))
    inbox.leave(episode(name, request=text, outcome=text))
    (found,) = inbox.pending(5)
    assert (found.session_id, found.request, found.outcome) == (name, text, text)


def test_hooks_at_once_leave_all_their_episodes(inbox: Inbox) -> None:
    patient = Inbox(inbox.folder, wait_seconds=30.0)
    threads = [threading.Thread(target=patient.leave, args=(episode(f"s-{n}"),)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    inbox.take_in_spooled()
    assert len(inbox.listed(None, None, 100)) == 12


def test_a_setting_of_another_program_leaves_no_log_behind(inbox: Inbox) -> None:
    inbox.leave(episode("s-0"))
    execute(inbox, "PRAGMA journal_mode = WAL")
    inbox.leave(episode(request="zanzibar"))
    inbox.remove(["s-1"])
    assert [path.name for path in Path(inbox.folder).iterdir()] == ["context.db"]
    assert b"zanzibar" not in Path(inbox.path).read_bytes()


def test_every_change_can_be_seen_from_outside(inbox: Inbox) -> None:
    seen = [inbox.state()]
    inbox.leave(episode())
    seen.append(inbox.state())
    with locked(inbox):
        inbox.leave(episode("s-2"))
    seen.append(inbox.state())
    Path(inbox.path).unlink()
    seen.append(inbox.state())
    assert len(set(seen)) == 4


BOOTS = {"this boot": "this:", "an earlier boot": "earlier:", "no known boot": ":"}


@pytest.fixture
def this_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "_boot", lambda: "this")


@pytest.mark.usefixtures("this_boot")
@pytest.mark.parametrize("how", ["kept, kept", "kept, spooled", "spooled, kept", "spooled, spooled"])
@pytest.mark.parametrize("first", BOOTS.values(), ids=BOOTS)
def test_a_later_one_counts_though_the_clock_was_set_back(inbox: Inbox, first: str, how: str) -> None:
    """And whatever the machine had on its monotonic clock when it was booted before."""
    if first == ":" and how.startswith("spooled"):
        pytest.skip("one clock says that what was spooled is the later one, and nothing tells which")
    second = ":" if first == ":" else "this:"
    since = 9 if first == "earlier:" else 1
    inbox.leave(episode("s-2"))
    for one, where in zip(
        (
            episode(request="earlier", ts=LATE, moment=f"{first}{since:020d}"),
            episode(request="later", ts=EARLY, moment=f"{second}{5:020d}"),
        ),
        how.split(", "),
        strict=True,
    ):
        if where == "kept":
            assert inbox.leave(one) == "kept"
        else:
            with locked(inbox):
                assert inbox.leave(one) == "spooled"
    assert "later" in [one.request for one in inbox.recent("project", "/work/project", 5)]
    inbox.take_in_spooled()
    assert sorted(requests(inbox)) == ["Fix the parser", "later"]


@pytest.mark.usefixtures("this_boot")
def test_an_older_one_that_had_to_wait_does_not_count(inbox: Inbox) -> None:
    inbox.leave(episode(request="newer", ts=EARLY, moment="this:2"))
    inbox.leave(episode(request="older", ts=LATE, moment="this:1"))
    assert requests(inbox) == ["newer"]


@pytest.mark.usefixtures("this_boot")
def test_the_same_again_is_later_than_what_was_spooled_between(inbox: Inbox) -> None:
    inbox.leave(episode(request="the same", moment="this:1"))
    with locked(inbox):
        inbox.leave(episode(request="between", moment="this:2"))
    inbox.leave(episode(request="the same", moment="this:3"))
    inbox.take_in_spooled()
    assert requests(inbox) == ["the same"]


def test_moments_grow() -> None:
    moments = [inbox_module.moment() for _ in range(5)]
    assert moments == sorted(moments)
    assert len({moment.partition(":")[0] for moment in moments}) == 1


def test_an_inbox_of_before_moments_goes_on(inbox: Inbox) -> None:
    inbox.leave(episode(request="before"))
    execute(inbox, "ALTER TABLE episodes DROP COLUMN moment")
    inbox.leave(episode(request="now", moment=inbox_module.moment()))
    assert requests(inbox) == ["now"]
    assert len(list(Path(inbox.folder).iterdir())) == 1


@pytest.mark.parametrize("seconds", [0.0, 1_800_000_000.0, 1_800_000_000.999, 1_800_000_000.25])
def test_times_are_kept_to_the_millisecond(seconds: float) -> None:
    assert seconds_of(timestamp(seconds)) == pytest.approx(seconds, abs=0.0011)


def test_times_are_in_the_order_of_their_texts() -> None:
    texts = [timestamp(1_800_000_000 + n / 1000) for n in range(0, 3000, 7)]
    assert texts == sorted(texts)
    assert json.dumps(timestamp()).endswith('Z"')


@pytest.mark.parametrize("name", ["a b", "100% ä?mode=ro&x#1", "記憶"])
def test_memories_are_counted_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with closing(sqlite3.connect(tmp_path / name / "memory.db")) as connection:
        connection.executescript(
            "CREATE TABLE namespaces (key, name, root); CREATE TABLE merged (name, root, namespace);"
            "CREATE TABLE entries (namespace, kind, expires_at);"
            "INSERT INTO namespaces VALUES (1, 'project', NULL); INSERT INTO entries VALUES (1, 'memory', NULL);"
        )
    assert count_memories(str(tmp_path / name), "project", None) == 1


def test_memories_are_counted_without_the_engine(inbox: Inbox, open_memory: OpenMemory, config: Config) -> None:
    folder = inbox.folder
    assert count_memories(folder, "project", "/work/project") == 0
    memory = open_memory()
    scope = memory.scope(config, "project", "/work/project")
    memory.remember(scope, "a task", "an answer")
    memory.remember(scope, "another task", "an answer")
    memory.remember(memory.scope(config, "project", "/elsewhere/project"), "a third task", "an answer")
    memory.keep_episode(episode())
    # Beside the engine that has it open.
    assert count_memories(folder, "project", "/work/project") == 2
    assert count_memories(folder, "project", "/elsewhere/project") == 1
    assert count_memories(folder, "project", None) == 2
    assert count_memories(folder, "unknown", None) == 0
    memory.merge_namespaces(memory.scope(config, "project", "/elsewhere/project").namespace.name, "project")
    assert count_memories(folder, "project", "/elsewhere/project") == 3
    memory.close()
    (Path(folder) / "memory.db").write_bytes(b"no database " * 100)
    assert count_memories(folder, "project", None) == 0
