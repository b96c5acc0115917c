"""The echo log: bounded, and read whatever stands in it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import FakeEmbedder
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from subconscious_mcp.config import Config
from subconscious_mcp.echo_log import CUT_MARK, MAX_QUERY_CHARS, EchoLine, EchoLog, log_file
from subconscious_mcp.errors import StorageError
from subconscious_mcp.memory import Memory


def line(query: str = "a query", entry_id: str | None = "id", similarity: float = 0.9) -> EchoLine:
    return EchoLine(1_800_000_000.5, query, entry_id, similarity, similarity >= 0.85, 0.85)


@pytest.fixture
def log(tmp_path: Path) -> EchoLog:
    return EchoLog(tmp_path / "echo_log.jsonl", 1_000_000)


def queries(log: EchoLog) -> list[str | None]:
    return [None if found is None else found.query for found in log.lines()]


def test_lines_come_back_as_they_were(log: EchoLog) -> None:
    lines = [line("one"), line("two", None, 0.0), line('"quoted"\n\\ ★ 日本', "x", 1.0)]
    log.append(lines[:2])
    log.append(lines[2:])
    assert list(log.lines()) == lines
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_not_there_has_no_lines(log: EchoLog) -> None:
    assert list(log.lines()) == []
    log.forget("id", ["text"])
    assert not log.path.exists()


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\r", "\r\n", "\n", "\x00", "\x1e"])
def test_no_mark_in_a_query_ends_its_line(log: EchoLog, mark: str) -> None:
    log.append([line(f"before{mark}behind"), line("next")])
    assert queries(log) == [f"before{mark}behind", "next"]


def test_a_lone_surrogate_is_replaced(log: EchoLog) -> None:
    log.append([line("a\ud800b")])
    assert queries(log) == ["a?b"]


DAMAGED = [
    b"{",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b"{}",
    b"\xff\xfe\x00",
    b"\x00" * 100,
    b"[" * 100_000,
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": NaN, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": 1.5, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": -1, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": null, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": 1' + b"0" * 400 + b', "hit": true}',
    b'{"ts": 1' + b"0" * 5000 + b', "query": "q", "entry_id": "i", "similarity": 1, "hit": true}',
    b'{"ts": Infinity, "query": "q", "entry_id": "i", "similarity": 1, "hit": true}',
    b'{"ts": 1, "query": 7, "entry_id": "i", "similarity": 1, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": ["i"], "similarity": 1, "hit": true}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": 1, "hit": "yes"}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": 1}',
    b'{"ts": 1, "query": "q", "entry_id": "i", "similarity": 1, "hit": true, "threshold": "x"}',
    '{"ts": 1, "query": "q"}'.encode("utf-16"),
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_line_costs_only_itself(log: EchoLog, damage: bytes) -> None:
    log.append([line("before")])
    with log.path.open("ab") as file:
        file.write(damage.replace(b"\n", b"") + b"\n")
    log.append([line("behind")])
    assert queries(log) == ["before", None, "behind"]
    log.drop_damaged()
    assert queries(log) == ["before", "behind"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
@example(b"\n\n\n")
def test_random_bytes_never_end_a_read(log: EchoLog, damage: bytes) -> None:
    log.path.unlink(missing_ok=True)
    log.append([line("before")])
    with log.path.open("ab") as file:
        file.write(damage)
    log.append([line("behind")])
    found = queries(log)
    assert found[0] == "before"
    assert found[-1] == "behind"
    log.forget("nobody", [])
    assert queries(log) == [query for query in found if query is not None]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["ts", "query", "entry_id", "similarity", "hit", "threshold"]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.lists(st.none(), max_size=1),
        ),
        max_size=5,
    )
)
def test_random_records_never_end_a_read(log: EchoLog, records: list[dict[str, object]]) -> None:
    log.path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert len(list(log.lines())) == len(records)


def test_a_line_that_a_kill_cut_does_not_swallow_the_next(log: EchoLog) -> None:
    log.append([line("one"), line("two")])
    with log.path.open("r+b") as file:
        file.truncate(log.path.stat().st_size - 20)
    log.append([line("three")])
    assert queries(log) == ["one", None, "three"]


def test_a_cut_in_the_middle_of_a_character(log: EchoLog) -> None:
    log.append([line("★★★★")])
    raw = log.path.read_bytes()
    log.path.write_bytes(raw[: raw.index("★".encode()) + 1])
    log.append([line("next")])
    assert queries(log) == [None, "next"]


@pytest.mark.parametrize("limit", [1000, 5000, 100_000])
def test_the_log_is_bounded_whatever_the_queries_are(tmp_path: Path, limit: int) -> None:
    log = EchoLog(tmp_path / "log.jsonl", limit)
    rnd = random.Random(limit)
    for number in range(400):
        character = rnd.choice(["a", "★", "😀", "\x00", '"', "\\", "\n", "\u2028"])
        log.append([line(f"{number} " + character * rnd.choice([1, 10, 1000, 200_000]))])
        assert log.path.stat().st_size <= limit
    found = queries(log)
    assert None not in found
    assert str(found[-1]).startswith("399 ")


def test_the_newest_half_stays(tmp_path: Path) -> None:
    log = EchoLog(tmp_path / "log.jsonl", 2000)
    for number in range(100):
        log.append([line(f"query {number}")])
    found = queries(log)
    assert found == [f"query {number}" for number in range(100 - len(found), 100)]
    assert len(found) >= 6


def test_a_long_query_is_cut_and_marked(log: EchoLog) -> None:
    log.append([line("x" * (MAX_QUERY_CHARS + 1)), line("y" * MAX_QUERY_CHARS)])
    assert queries(log) == ["x" * MAX_QUERY_CHARS + CUT_MARK, "y" * MAX_QUERY_CHARS]


# --- forgetting


def test_forgetting_takes_the_lines_of_the_entry_and_of_its_words(log: EchoLog) -> None:
    text = "rotate the signing key of the billing service"
    log.append(
        [
            line("something else that hit it", "gone"),
            line(text, None, 0.0),
            line("please " + text + " now", "other"),
            line("  Rotate the SIGNING\nkey of the billing service", "other"),
            line("the signing key of the", "other"),
            line("key", "other"),
            line("rotate the logs", "other"),
        ]
    )
    log.forget("gone", [text, "the answer"])
    assert queries(log) == ["key", "rotate the logs"]


def test_forgetting_meets_queries_that_were_cut(log: EchoLog) -> None:
    text = "the password of the staging host is hunter " * 60
    log.append([line(text, "x"), line("n" * 900 + " " + text, "x"), line("n" * 2000, "x"), line("other " * 300, "x")])
    log.forget("gone", [text])
    assert queries(log) == ["n" * MAX_QUERY_CHARS + CUT_MARK, ("other " * 300)[:MAX_QUERY_CHARS] + CUT_MARK]


def test_forgetting_removes_damaged_lines_and_what_a_kill_left_of_a_rewrite(log: EchoLog) -> None:
    log.append([line("kept", "x")])
    with log.path.open("ab") as file:
        file.write(b'{"query": "secret wor')
    left = log.path.with_name(log.path.name + ".new")
    left.write_bytes(b"secret words")
    log.forget("gone", ["secret words"])
    assert queries(log) == ["kept"]
    assert not left.exists()
    left.write_bytes(b"secret words")
    log.path.unlink()
    log.forget("gone", ["secret words"])
    assert list(log.path.parent.iterdir()) == []


# --- what is no log


def test_a_folder_in_the_place_of_the_log(log: EchoLog) -> None:
    log.path.mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        log.append([line()])
    with pytest.raises(StorageError, match="cannot be read"):
        list(log.lines())
    log.forget("id", ["text"])


def test_a_log_that_may_not_be_written(log: EchoLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([line("one")])

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("subconscious_mcp.echo_log.os.open", refuse)
    with pytest.raises(StorageError, match="SUBCONSCIOUS_ECHO_LOG_ENABLED"):
        log.append([line("two")])
    with pytest.raises(StorageError, match="Permission denied"):
        log.forget("id", [])
    assert queries(log) == ["one"]


def test_recalls_are_answered_where_the_log_cannot_be_written(
    memory: Memory, config: Config, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    scope = memory.scope(config, "tests", None)
    log_file(tmp_path / "data", "tests").mkdir()
    memory.remember(scope, "a task", "an answer")
    assert memory.recall(scope, "a task").hit
    memory.settle()
    assert memory.stats(scope).hit_rate_last_100 == 1.0


def test_each_namespace_has_its_file(tmp_path: Path) -> None:
    names: Sequence[str] = ["default", "p", "P", "a b", "a_b", "..", "проект", "x" * 600, "a/b", "default-", "CON"]
    files = [log_file(tmp_path, name) for name in names]
    assert files[0].name == "echo_log.jsonl"
    assert files[1].name == "echo_log_p.jsonl"
    assert len({file.name.lower() for file in files}) == len(names)
    assert all(file.parent == tmp_path and len(file.name) < 100 for file in files)
