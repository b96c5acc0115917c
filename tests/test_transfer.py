"""Export and import: what comes back is what was there, and what a stranger's file says is checked."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import Windows
from fakes import Clock, FakeEmbedder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interaction import CONSOLE_SCRIPT

from subconscious_mcp import cli, foreign_formats, importing, transfer_commands, verbs
from subconscious_mcp.errors import InvalidArgument, StorageError, SubconsciousError
from subconscious_mcp.importing import Import, Report
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.records import NewEntry, Observation
from subconscious_mcp.transfer_format import line

TASK = "rotate the signing keys of the billing service"
NOW = 1_800_000_000.0


def opened(folder: Path, embedder: FakeEmbedder | None = None) -> Memory:
    embedder = embedder or FakeEmbedder()
    return Memory(LocalStore(folder, command="tests"), folder, lambda: embedder, clock=Clock())


def call(memory: Memory) -> importing.Call:
    # By way of JSON, as an engine is asked.
    return lambda verb, values: json.loads(
        json.dumps(verbs.OF_ALL_NAMESPACES[verb](memory, json.loads(json.dumps(values))))
    )


def exported(memory: Memory, name: str | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    values = {"name": name, "root": None, "kinds": [], "vectors": False, **options}
    transfer_commands._write_lines(call(memory), values, out)
    return out.getvalue()


def imported(memory: Memory, path: Path, which: foreign_formats.Format = "subconscious", **options: Any) -> Report:
    options.setdefault("target", None)
    items = foreign_formats.read(path, which)
    return Import(call(memory), **options).run(items, ends=which == "subconscious")


def without_time(export: bytes) -> bytes:
    header, rest = export.split(b"\n", 1)
    return line({**json.loads(header), "created": ""}).encode() + b"\n" + rest


def put(memory: Memory, name: str, *entries: NewEntry, root: str | None = None) -> None:
    space = memory.store.namespace(name, root)
    vectors = memory.embedder().embed([entry.task for entry in entries])
    memory.store.add_many(space, list(entries), memory.embedder().fingerprint, vectors)


def an_entry(entry_id: str = "one", **fields: Any) -> NewEntry:
    given = {"kind": "memory", "task": TASK, "answer": "run it", "created_at": NOW, **fields}
    return NewEntry(id=entry_id, **given)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_bytes().split(b"\n") if text]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = opened(tmp_path / "first")
    yield memory
    memory.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Memory]:
    memory = opened(tmp_path / "second")
    yield memory
    memory.close()


def written(path: Path, *payloads: Any, end: bool = True) -> Path:
    """Writes a file of ours: header, what is given, and the end."""
    rows: list[Any] = [{"format": "subconscious-mcp", "version": 1, "fingerprint": None}, *payloads]
    if end:
        count = sum(1 for row in payloads if isinstance(row, dict) and row.get("type") == "entry")
        rows.append({"type": "end", "entries": count})
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def told(entry_id: Any = "one", **fields: Any) -> dict[str, Any]:
    """Returns a line for an entry."""
    given = {"kind": "memory", "namespace": "project", "task": TASK, "answer": "run it", "created_at": NOW, **fields}
    return {"type": "entry", "id": entry_id, **given}


# --- the round trip

# What SQLite stores: any text but one with lone surrogates.
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_odd = st.sampled_from(
    ["\0", "a\u2028b\u2029c\x85d", "🜁🏳️‍🌈", "\r\n\t\x1b", '"\\', "\ufeff", "\ud7ff\U0010ffff", "x" * 1000]
)
_text = (_texts | _odd).map(lambda text: text if text.strip() else text + "a")
_times = st.floats(0, 4e9)


@st.composite
def _entries(draw: Any) -> NewEntry:
    return NewEntry(
        id="",
        kind=draw(st.sampled_from(["memory", "note", "fact", "episode", "chunk"])),
        task=draw(_text),
        answer=draw(_text),
        created_at=draw(_times),
        expires_at=draw(st.none() | st.floats(NOW + 1, 4e9)),
        tags=tuple(draw(st.lists(_texts | _odd.map(lambda text: text[:200]), max_size=4))),
        source=draw(_texts),
        archived_at=draw(st.none() | _times),
        superseded_by=draw(st.sampled_from(["", "another-id"])),
    )


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(["one", "zwei", "三", "a/b"]), _entries()), max_size=8),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.floats(0, 1)), max_size=5),
)
def test_an_export_that_is_imported_is_exported_again_byte_for_byte(entries, vectors, said) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        first, second = opened(folder / "first"), opened(folder / "second")
        try:
            for number, (name, entry) in enumerate(entries):
                put(first, name, replace(entry, id=f"id-{number}"), root=f"/home/{name}" if name == "zwei" else None)
            observations = [
                (f"{number:032x}", Observation(f"id-{which}", similarity, right, NOW, "fa4efa4efa4e"))
                for number, (which, right, similarity) in enumerate(said)
            ]
            first.store.add_feedback(observations)
            before = exported(first, vectors=vectors)
            (folder / "export.jsonl").write_bytes(before)
            report = imported(second, folder / "export.jsonl")
            assert (report.stored, report.skipped, report.cut_off) == (len(entries), [], "")
            assert report.embedded == (0 if vectors else len(entries))
            assert without_time(exported(second, vectors=vectors)) == without_time(before)
            # Once more changes nothing.
            again = imported(second, folder / "export.jsonl")
            assert (again.stored, again.same, again.feedback) == (0, len(entries), 0)
            assert without_time(exported(second, vectors=vectors)) == without_time(before)
        finally:
            first.close()
            second.close()


def test_a_large_answer_and_an_odd_folder_come_back(memory: Memory, other: Memory, tmp_path: Path) -> None:
    root = "/home/\udcff\u2028"
    put(memory, "odd", an_entry(answer="\U0001f600" * 1_000_000), root=root)
    memory.store.add_merged(memory.store.namespace("odd", root), "old name", "/home/old\udce4")
    export = exported(memory)
    assert export.count(b"\n") == len(export.splitlines()) == 4
    (tmp_path / "export").write_bytes(export)
    assert imported(other, tmp_path / "export").stored == 1
    assert without_time(exported(other)) == without_time(export)
    found = other.store.find_namespace("x", "/home/old\udce4")
    assert found is not None and (found.name, found.root) == ("odd", root)


def test_what_has_expired_and_what_comes_later_is_not_exported(memory: Memory) -> None:
    put(memory, "project", an_entry("over", expires_at=NOW - 1), an_entry("live", expires_at=NOW + 1))
    page = call(memory)("export", {"name": "project", "root": None, "kinds": [], "vectors": False})
    put(memory, "project", an_entry("later"))
    page = call(memory)("export page", {"cursor": page["cursor"]})
    assert [json.loads(text)["id"] for text in page["lines"]] == ["live"]


def test_one_namespace_or_kind_is_exported_with_its_feedback_alone(memory: Memory) -> None:
    put(memory, "a", an_entry("one"), an_entry("two", kind="note", answer=""))
    put(memory, "b", an_entry("three"))
    for number, entry_id in enumerate(("one", "two", "three")):
        memory.store.add_feedback([(f"{number:032x}", Observation(entry_id, 1.0, True, NOW, "fa4efa4efa4e"))])
    rows = [json.loads(text) for text in exported(memory, "a", kinds=["note"]).splitlines()]
    assert [row.get("type") for row in rows] == [None, "namespace", "entry", "feedback", "end"]
    assert rows[2]["id"] == rows[3]["entry"] == "two"
    with pytest.raises(InvalidArgument, match="--kind takes one of memory"):
        exported(memory, "a", kinds=["nonsense"])
    with pytest.raises(InvalidArgument, match="no namespace 'c'"):
        exported(memory, "c")


def test_pages_are_bounded_and_together_whole(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subconscious_mcp.local_store._EXPORTED", 3)
    put(memory, "a", *(an_entry(f"a{number}") for number in range(7)))
    put(memory, "b", *(an_entry(f"b{number}") for number in range(4)))
    put(memory, "a", an_entry("a7"))
    rows = [json.loads(text) for text in exported(memory).splitlines()]
    ids = [row["id"] for row in rows if row.get("type") == "entry"]
    assert ids == [f"a{number}" for number in range(8)] + [f"b{number}" for number in range(4)]
    monkeypatch.setattr("subconscious_mcp.local_store._EXPORTED_BYTES", 1)
    page = call(memory)("export", {"name": "a", "root": None, "kinds": [], "vectors": False})
    assert len(call(memory)("export page", {"cursor": page["cursor"]})["lines"]) == 1


def test_an_archived_entry_is_in_no_result_after_an_import(memory: Memory, other: Memory, tmp_path, config) -> None:
    put(memory, "tests", an_entry("new"), an_entry("old", archived_at=NOW, superseded_by="new"))
    (tmp_path / "export").write_bytes(exported(memory))
    scope = other.scope(config, "tests", None)
    other.recall(scope, TASK)  # The set is in memory from here on.
    imported(other, tmp_path / "export")
    assert [near.entry.id for near in other.echo(scope, TASK).near] == ["new"]
    entry = other.store.entry(scope.namespace, "old")
    assert entry is not None and entry.archived_at == NOW and entry.superseded_by == "new"


# --- vectors


def test_vectors_are_taken_as_they_are_and_only_from_the_embedder_in_use(memory, other, tmp_path) -> None:
    put(memory, "project", an_entry())
    export = exported(memory, vectors=True)
    payload = json.loads(export.splitlines()[2])
    raw = np.frombuffer(base64.b64decode(payload["vector"]), dtype="<f2")
    assert raw.shape == (384,)
    marked = np.zeros(384, dtype="<f2")
    marked[7] = 1
    export = export.replace(payload["vector"].encode(), base64.b64encode(marked.tobytes()))
    (tmp_path / "export").write_bytes(export)
    assert imported(other, tmp_path / "export").embedded == 0
    assert exported(other, vectors=True).splitlines()[2] == export.splitlines()[2]
    third = opened(tmp_path / "third", FakeEmbedder("0123456789ab"))
    assert imported(third, tmp_path / "export").embedded == 1
    third.close()


@pytest.mark.parametrize("vector", ["!", "", "AAA=", 5, base64.b64encode(b"\0\x7c" * 384).decode(), "AAAA" * 256])
def test_a_vector_that_cannot_be_used_is_made_again(other: Memory, tmp_path: Path, vector: Any) -> None:
    path = written(tmp_path / "f", told(vector=vector))
    path.write_bytes(path.read_bytes().replace(b'"fingerprint": null', b'"fingerprint": "fa4efa4efa4e"'))
    report = imported(other, path)
    assert (report.stored, report.embedded) == (1, 1)


# --- what a file says is checked


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"type": "entry", "id": ', "the line is no JSON object"),
        (b"[1, 2]", "the line is no JSON object"),
        (b"\xff\xfe\x00", "the line is no JSON object"),
        (b"[" * 100_000, "the line is no JSON object"),
        ({"type": "surprise"}, "the line is of no known type"),
        (told(kind="surprise"), "the kind is unknown"),
        (told(kind=["memory"]), "the kind is unknown"),
        (told(task=" \n"), "the task is blank"),
        (told(task=None), "the task is no text"),
        (told(task="x" * 50_001), "the task is too long (50,001 characters, at most 50,000)"),
        (told(task="\ud800"), "the task is no valid Unicode"),
        (told(answer=""), "the answer is blank"),
        (told(answer="x" * 1_000_001), "the answer is too long (1,000,001 characters, at most 1,000,000)"),
        (told(expires_at=NOW), "it has expired"),
        (told(expires_at="soon"), "expires_at is no time in seconds since the epoch"),
        (told(created_at=None), "created_at is no time in seconds since the epoch"),
        (told(created_at=True), "created_at is no time in seconds since the epoch"),
        (told(created_at=1e300), "created_at is no time in seconds since the epoch"),
        (told(archived_at="x"), "archived_at is no time in seconds since the epoch"),
        (told(tags="a"), "the tags are no list of at most 50"),
        (told(tags=["a"] * 51), "the tags are no list of at most 50"),
        (told(tags=[1]), "a tag is no text"),
        (told(source=1), "the source is no text"),
        (told(namespace="../../etc"), "the namespace looks like a path that leads elsewhere"),
        (told(namespace="/etc"), "the namespace looks like a path that leads elsewhere"),
        (told(namespace="C:\\x"), "the namespace looks like a path that leads elsewhere"),
        (told(namespace="a\0b"), "the namespace is none: 1 to 200 printable characters"),
        (told(namespace=None), "the namespace is none: 1 to 200 printable characters"),
        (told(root="a\0"), "the folder of the namespace is none"),
        (told(superseded_by=["x"]), "the id is none: 1 to 200 printable characters without blanks and slashes"),
        ({"type": "namespace", "name": "..", "root": None}, "the namespace looks like a path that leads elsewhere"),
        ({"type": "namespace", "name": "x", "merged": 5}, "what was merged into the namespace is no list"),
    ],
)
def test_a_bad_line_is_told_with_its_place_and_ends_nothing(other, tmp_path, row: Any, reason: str) -> None:
    path = written(tmp_path / "f", told("before"), row, told("after"))
    report = imported(other, path)
    assert [(s.place, s.reason) for s in report.skipped] == [("line 3", reason)]
    assert report.stored == 2 and report.reasons == {reason: 1}
    assert report.is_whole == (reason == importing.EXPIRED)


@pytest.mark.parametrize("entry_id", ["", "..", ".", "a/b", "a\\b", "a b", "a\n", "\x7f", "x" * 201, None, 5, "\u202e"])
def test_an_id_that_is_none_is_refused(other: Memory, tmp_path: Path, entry_id: Any) -> None:
    report = imported(other, written(tmp_path / "f", told(entry_id)))
    assert report.stored == 0 and report.skipped[0].reason.startswith("the id is none")
    assert "\n" not in report.skipped[0].entry_id and "\x7f" not in report.skipped[0].entry_id


def test_a_file_that_is_cut_off_is_told(memory: Memory, other: Memory, tmp_path: Path) -> None:
    put(memory, "project", an_entry("one"), an_entry("two"))
    export = exported(memory)
    (tmp_path / "f").write_bytes(export[: export.index(b'"two"') + 20])
    report = imported(other, tmp_path / "f")
    assert report.stored == 1 and report.cut_off.startswith("the file has no end") and not report.is_whole
    assert [(s.place, s.reason) for s in report.skipped] == [("line 4", "the line is cut off")]
    # The whole file goes on where that ended.
    (tmp_path / "f").write_bytes(export)
    report = imported(other, tmp_path / "f")
    assert (report.stored, report.same, report.is_whole) == (1, 1, True)
    lines = export.splitlines(keepends=True)
    (tmp_path / "f").write_bytes(b"".join(lines[:2] + lines[3:]))
    assert imported(other, tmp_path / "f").cut_off == "the file says that it has 2 entries, and 1 could be read"


def test_an_overlong_line_is_passed_over(other, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(foreign_formats, "MAX_LINE_BYTES", 1 << 20)
    path = written(tmp_path / "f", told("before"), b"x" * (3 << 20), told("after"))
    report = imported(other, path)
    assert report.stored == 2 and [s.place for s in report.skipped] == ["line 3"]


def test_a_newer_version_is_refused_before_anything_is_stored(other: Memory, tmp_path: Path) -> None:
    path = written(tmp_path / "f", told())
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(InvalidArgument, match="newer version"):
        imported(other, path)
    assert other.namespaces() == []


def test_an_error_in_the_middle_loses_nothing_and_the_same_file_goes_on(other, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importing, "_BATCH", 4)
    path = written(tmp_path / "f", *(told(f"id-{number}") for number in range(10)))
    asked = call(other)
    batches = []

    def breaks(verb: str, values: dict[str, Any]) -> Any:
        batches.append(verb)
        if len(batches) == 3:
            raise StorageError("The disk is full.")
        return asked(verb, values)

    with pytest.raises(StorageError):
        Import(breaks, target=None).run(foreign_formats.read(path, "subconscious"), ends=True)
    report = imported(other, path)
    assert (report.stored, report.same) == (2, 8)


# --- conflicts


def test_an_id_twice_in_a_file_counts_once(other: Memory, tmp_path: Path) -> None:
    report = imported(other, written(tmp_path / "f", told(), told(answer="another")))
    assert report.stored == 1
    assert [(s.place, s.reason) for s in report.skipped] == [("line 3", "its id came before in the file")]


def test_an_id_with_other_content_is_left_replaced_or_stored_anew(other: Memory, tmp_path: Path, config) -> None:
    put(other, "project", an_entry(answer="the old answer"))
    space = other.store.namespace("project", None)
    other.store.add_feedback([("0" * 32, Observation("one", 1.0, False, NOW, "fa4efa4efa4e"))])
    said = {"type": "feedback", "entry": "one", "query": "1" * 32, "similarity": 0.5, "correct": True, "at": NOW}
    said["fingerprint"] = "fa4efa4efa4e"
    path = written(tmp_path / "f", told(answer="the new answer"), said)
    report = imported(other, path)
    assert [s.reason for s in report.skipped] == ["its id is there with other content"]
    # What was said of another answer does not count for this one.
    assert report.feedback == 0 and other.store.entry(space, "one").answer == "the old answer"

    report = imported(other, path, on_conflict="new-id")
    assert (report.stored, report.renamed, report.feedback) == (1, 1, 1)
    assert other.store.count(space, ["memory"], NOW) == 2
    assert imported(other, path, on_conflict="new-id").same == 1

    other.recall(other.scope(config, "project", None), TASK)
    report = imported(other, path, on_conflict="replace")
    assert (report.stored, report.replaced, report.feedback) == (0, 1, 1)
    assert other.store.entry(space, "one").answer == "the new answer"
    assert [o.correct for o in other.store.feedback(space, "one")] == [True]
    # What was replaced is forgotten: its text is in no file.
    files = [file for file in (tmp_path / "second").rglob("*") if file.is_file()]
    assert not any(b"the old answer" in file.read_bytes() for file in files)
    found = other.echo(other.scope(config, "project", None), TASK).near
    assert sorted(near.similarity for near in found) == [1.0, 1.0]
    assert imported(other, path, on_conflict="replace").same == 1


def test_an_entry_of_another_namespace_is_never_touched(other: Memory, tmp_path: Path) -> None:
    put(other, "theirs", an_entry(answer="theirs"))
    said = {"type": "feedback", "entry": "one", "query": "1" * 32, "similarity": 0.5, "correct": False, "at": NOW}
    path = written(tmp_path / "f", told(answer="mine"), said | {"fingerprint": "fa4efa4efa4e"})
    for on_conflict in ("skip", "replace"):
        report = imported(other, path, on_conflict=on_conflict)
        assert [s.reason for s in report.skipped] == ["its id is that of an entry of another namespace"]
        assert report.feedback == 0
    assert imported(other, path, on_conflict="new-id").stored == 1
    theirs = other.store.namespace("theirs", None)
    assert other.store.entry(theirs, "one").answer == "theirs" and other.store.feedback(theirs) == []


def test_two_projects_of_one_name_stay_apart(memory: Memory, other: Memory, tmp_path: Path) -> None:
    put(memory, "app", an_entry("a"), root="/home/one/app")
    put(other, "app", an_entry("b"), root="/home/two/app")
    (tmp_path / "f").write_bytes(exported(memory))
    imported(other, tmp_path / "f")
    found = other.store.find_namespace("app", "/home/one/app")
    assert found is not None and found.name.startswith("app-") and other.store.entry(found, "a") is not None
    assert other.store.entry(other.store.namespace("app", "/home/two/app"), "a") is None


def test_all_go_to_the_namespace_that_is_asked_for(memory: Memory, other: Memory, tmp_path: Path) -> None:
    put(memory, "a", an_entry("one"))
    put(memory, "b", an_entry("two"))
    (tmp_path / "f").write_bytes(exported(memory))
    imported(other, tmp_path / "f", target=("here", None))
    assert other.namespaces() == [{"name": "here", "root": None, "entries": {"memory": 2}}]


def test_a_dry_run_stores_nothing_and_tells_what_would_be(memory: Memory, other: Memory, tmp_path: Path) -> None:
    put(memory, "a", an_entry("one"), an_entry("two"))
    (tmp_path / "f").write_bytes(exported(memory))
    report = imported(other, tmp_path / "f", dry_run=True)
    assert report.stored == 2 and other.namespaces() == []


@pytest.mark.parametrize(
    "change",
    [
        {"query": "what was asked"},
        {"fingerprint": "x"},
        {"similarity": 1.5},
        {"similarity": True},
        {"correct": 1},
        {"at": None},
        {"entry": "a b"},
    ],
)
def test_feedback_is_checked_too(other: Memory, tmp_path: Path, change: dict[str, Any]) -> None:
    said = {"type": "feedback", "entry": "one", "query": "1" * 32, "similarity": 0.5, "correct": True, "at": NOW}
    path = written(tmp_path / "f", told(), {**said, "fingerprint": "fa4efa4efa4e", **change})
    report = imported(other, path)
    assert report.feedback == 0 and [s.place for s in report.skipped] == ["line 3"]
    assert "what was asked" not in str(report.payload())


# --- other memories

GRAPH = [
    {"type": "entity", "name": "billing", "entityType": "service", "observations": ["runs on port 8443", "in Go", " "]},
    {"type": "entity", "name": "lonely", "entityType": "service", "observations": []},
    {"type": "relation", "from": "billing", "to": "orders", "relationType": "reads from"},
    {"type": "relation", "from": "billing", "to": "orders"},
    {"type": "entity", "observations": ["nameless"]},
]


def texts(memory: Memory, name: str) -> dict[str, tuple[str, list[str]]]:
    rows = [json.loads(text) for text in exported(memory, name).splitlines()]
    return {row["task"]: (row["kind"], row["tags"]) for row in rows if row.get("type") == "entry"}


def test_a_knowledge_graph_becomes_facts_once(other: Memory, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    path.write_text("\n".join(["{damaged", *map(json.dumps, GRAPH)]) + "\n")
    assert foreign_formats.detected(path) == "mcp-graph"
    report = imported(other, path, "mcp-graph", target=("here", None))
    assert texts(other, "here") == {
        "billing: runs on port 8443": ("fact", ["service"]),
        "billing: in Go": ("fact", ["service"]),
        "billing reads from orders": ("fact", []),
    }
    assert [s.place for s in report.skipped] == ["line 1", "line 2", "line 3", "line 5", "line 6"]
    again = imported(other, path, "mcp-graph", target=("here", None))
    assert (again.stored, again.same) == (0, 3)


def test_a_graph_as_one_document_is_read_too(other: Memory, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"entities": GRAPH[:1], "relations": GRAPH[2:3]}, indent=2))
    assert foreign_formats.detected(path) == "mcp-graph"
    assert imported(other, path, "mcp-graph", target=("here", None)).stored == 3


def test_an_export_of_mcp_memory_service_becomes_notes_once(other: Memory, tmp_path: Path) -> None:
    memories = [
        {"content": "the build needs JDK 21", "content_hash": "ab", "tags": ["java", " ci "], "created_at": 1.75e9,
         "created_at_iso": "2025-06-15T15:06:40Z", "memory_type": "reference", "metadata": {"source": "chat"}},
        {"content": "old", "content_hash": "cd", "tags": "x,y", "created_at": "2025-01-01T00:00:00Z", "metadata": {}},
        {"content": "  ", "content_hash": "ef", "created_at": 1.0},
        {"content_hash": "gh"},
        "no memory",
    ]  # fmt: skip
    about = {"source_machine": "laptop", "export_timestamp": "2025-06-15", "exporter_version": "4.5.0"}
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"export_metadata": about, "memories": memories}, indent=2), encoding="utf-8-sig")
    assert foreign_formats.detected(path) == "mcp-memory-service"
    report = imported(other, path, "mcp-memory-service", target=("here", None))
    assert [s.place for s in report.skipped] == ["memory 4", "memory 5", "memory 3"]
    rows = [json.loads(text) for text in exported(other, "here").splitlines()][2:4]
    assert [(r["kind"], r["task"], r["answer"], r["tags"], r["source"], r["created_at"]) for r in rows] == [
        ("note", "the build needs JDK 21", "", ["java", "ci", "reference"], "chat", 1.75e9),
        ("note", "old", "", ["x", "y"], "laptop", 1735689600.0),
    ]
    assert imported(other, path, "mcp-memory-service", target=("here", None)).same == 2
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidArgument, match="no whole JSON document"):
        imported(other, path, "mcp-memory-service", target=("here", None))


def published(folder: Path, entries: int = 3) -> None:
    """Makes what the published server keeps, with Chroma itself, in a process of its own."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
    for name in ("subconscious", "subconscious_app", "somebody_elses"):
        place = client.get_or_create_collection(name, metadata={"hnsw:space": "cosine"})
        meta = {"answer": f"in {name}", "tags_json": '["ops"]', "stored_at": 1.7e9, "expires_at": -1.0}
        metas = [dict(meta) for _ in range(entries)]
        metas[0]["expires_at"] = NOW + 60
        metas[1]["expires_at"] = NOW - 60
        place.add(
            ids=[f"{name}-{number}" for number in range(entries)],
            embeddings=[[0.1] * 384] * entries,
            documents=[f"task {number}" for number in range(entries)],
            metadatas=metas,
        )
    client.clear_system_cache()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_published_folder_is_read_and_not_changed(other: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "published" / "data"
    folder.mkdir(parents=True)
    # More than Chroma keeps unsorted, so that its vectors are in files of their own.
    published(folder, 1_200)
    before = contents(folder)
    assert foreign_formats.detected(folder.parent) == foreign_formats.detected(folder / "chroma.sqlite3") == "chroma"
    report = imported(other, folder.parent, "chroma")
    assert contents(folder) == before
    assert report.stored == 2 * 1_199 and report.reasons == {"it has expired": 2} and report.is_whole
    assert [(s["name"], s["entries"]) for s in other.namespaces()] == [
        ("app", {"memory": 1_199}),
        ("default", {"memory": 1_199}),
    ]
    entry = other.store.entry(other.store.namespace("default", None), "subconscious-0")
    assert entry is not None
    assert (entry.task, entry.answer, entry.tags) == ("task 0", "in subconscious", ("ops",))
    assert (entry.created_at, entry.expires_at) == (1.7e9, NOW + 60)
    assert imported(other, folder, "chroma").same == 2 * 1_199


def test_a_folder_of_chroma_that_is_no_memory_or_damaged_is_told(other: Memory, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"without chroma\.sqlite3"):
        foreign_formats.detected(tmp_path)
    (tmp_path / "chroma.sqlite3").write_bytes(b"no database at all" * 100)
    with pytest.raises(SubconsciousError):
        imported(other, tmp_path, "chroma")


def test_a_file_that_is_nothing_known_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for text in ("", "hello", "[]", '{"a": 1}'):
        path.write_text(text)
        with pytest.raises(InvalidArgument, match="no export that is known"):
            foreign_formats.detected(path)
    with pytest.raises(StorageError, match="cannot be read"):
        foreign_formats.detected(tmp_path / "missing")


# --- the commands


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any, tmp_path: Path) -> Callable[..., tuple[int, bytes, bytes]]:
    embedder = FakeEmbedder()
    monkeypatch.setattr("subconscious_mcp.opening.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.chdir(tmp_path)

    def runner(*arguments: str) -> tuple[int, bytes, bytes]:
        code = cli.main(list(arguments))
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return code, captured.out, captured.err

    return runner


def test_the_commands_carry_a_project_over(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("remember", TASK, "schlüssel drehen 🔑", "--tag", "ops")
    code, out, err = run("export")
    assert (code, err) == (0, b"")
    assert [json.loads(text).get("type") for text in out.splitlines()] == [None, "namespace", "entry", "end"]
    code, said, _ = run("export", "out.jsonl", "--vectors", "--json")
    path = tmp_path / "out.jsonl"
    told = {"file": str(path), "entries": 1, "bytes": path.stat().st_size, "namespaces": [tmp_path.name]}
    assert code == 0 and json.loads(said) == told
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    code, _, err = run("export", "out.jsonl")
    assert code == 64 and b"is there already" in err and path.read_bytes() == before
    code, said, _ = run("export", "out.jsonl", "--force")
    assert code == 0 and f": 1 entry of namespace {tmp_path.name}\n".encode() in said
    assert b" of 1 namespace\n" in run("export", "out.jsonl", "--force", "--all")[1]
    assert b'"vector"' not in path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "subconscious-home"]

    monkeypatch.setenv("SUBCONSCIOUS_HOME", str(tmp_path / "elsewhere"))
    code, said, _ = run("import", "out.jsonl", "--dry-run")
    assert code == 0 and b"would store" in said and tmp_path.name.encode() in said
    code, said, _ = run("import", "out.jsonl")
    assert code == 0 and b"stored" in said and tmp_path.name.encode() in said
    code, said, _ = run("import", "out.jsonl", "--json")
    assert code == 0 and json.loads(said)["already_there"] == 1
    assert json.loads(said)["namespaces"] == {tmp_path.name: 1}
    code, said, _ = run("recall", TASK, "--json")
    assert json.loads(said)["answer"] == "schlüssel drehen 🔑"
    with path.open("ab") as file:
        file.write(b"{damaged\n" * 30)
    code, said, _ = run("import", "out.jsonl")
    assert code == 1 and b"line 5" in said and b"the line is no JSON object" in said and b"of all 30" in said


def test_who_looks_in_an_empty_namespace_is_told_which_others_have_entries(run, tmp_path: Path) -> None:
    for number in range(7):
        run("remember", f"{TASK} {number}", "x", "--namespace", f"n{number}")
    run("remember", TASK, "y", "--namespace", "n6")
    code, out, err = run("export")
    assert (code, out) == (64, b"") and b"n6 (2), n0 (1), n1 (1), n2 (1), n3 (1) and 2 more" in err
    code, _, err = run("export", "--namespace", "n1", "--kind", "memory")
    assert (code, err) == (0, b"")
    code, out, err = run("export", "--namespace", "n1", "--kind", "note")
    # Others have none of that kind either.
    assert (code, err) == (0, b"")
    entry_id = json.loads(run("recall", f"{TASK} 1", "--namespace", "n1", "--json")[1])["entry_id"]
    assert run("forget", entry_id, "--namespace", "n1")[0] == 0
    code, out, err = run("export", "--namespace", "n1")
    assert code == 0 and err.startswith(b"subconscious-mcp: 0 entries of namespace n1. There are entries in n6 (2), ")
    code, out, _ = run("export", "f", "--namespace", "n1")
    assert code == 0 and b": 0 entries of namespace n1. There are entries in n6 (2), " in out


def test_an_import_says_in_which_namespaces_the_entries_are_and_the_way_out(run, tmp_path: Path) -> None:
    path = written(tmp_path / "f", told("a", namespace="one"), told("b", namespace="one"), told("c", namespace="two"))
    code, out, _ = run("import", str(path), "--dry-run")
    assert code == 0 and b"one (2), two (1)" in out
    report = json.loads(run("import", str(path), "--json")[1])
    assert report["namespaces"] == {"one": 2, "two": 1} and "hint" not in report
    code, out, _ = run("import", str(path), "--namespace", "three")
    assert code == 1 and b"--namespace NAME" in out and b"--on-conflict new-id" in out
    assert "hint" in json.loads(run("import", str(path), "--namespace", "three", "--json")[1])
    done = json.loads(run("import", str(path), "--namespace", "three", "--on-conflict", "new-id", "--json")[1])
    assert done["namespaces"] == {"three": 3} and done["stored"] == 3
    again = json.loads(run("import", str(path), "--namespace", "three", "--on-conflict", "new-id", "--json")[1])
    assert again["namespaces"] == {"three": 3} and again["already_there"] == 3


def test_the_help_keeps_its_capitals(run, capfdbinary: Any) -> None:
    with pytest.raises(SystemExit):
        run("export", "--help")
    assert b"Write entries as JSON lines." in capfdbinary.readouterr().out


def test_an_export_that_fails_leaves_nothing(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_text("old")
    code, _, err = run("export", "old", "--force", "--namespace", "unknown")
    assert code == 64 and b"no namespace" in err and (tmp_path / "old").read_text() == "old"
    assert run("export", ".")[0] == 64
    assert run("export", "missing/file")[0] == 74
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old", "subconscious-home"]


def test_a_project_finds_what_the_published_server_kept_under_its_name(run, tmp_path: Path, monkeypatch) -> None:
    project = tmp_path / "app"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "published").mkdir()
    published(tmp_path / "published")
    monkeypatch.chdir(project)
    code, said, _ = run("import", str(tmp_path / "published"), "--json")
    # NOW is in the future of a clock that nobody turns.
    assert code == 0 and json.loads(said)["stored"] == 6
    assert json.loads(run("recall", "task 2", "--json")[1])["answer"] == "in subconscious_app"


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    (tmp_path / "windows").mkdir()
    opened = Windows(tmp_path / "windows")
    yield opened
    opened.close()


def command(windows: Windows, *arguments: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [CONSOLE_SCRIPT, *arguments], env=windows.environment(), cwd=windows.folder, capture_output=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_through_an_engine_that_is_written_to_meanwhile(windows: Windows) -> None:
    window = windows.open()
    for number in range(5):
        window.call("remember", {"task": f"task number {number}", "answer": "one\u2028two"})
    code, out, err = command(windows, "export", "--all")
    assert (code, err) == (0, b"") and out.count(b'"type":"entry"') == 5
    (windows.folder / "f").write_bytes(out.replace(b'"id":"', b'"id":"copy-'))
    over = threading.Event()
    unstored: list[object] = []

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            reply = window.call("remember", {"task": f"meanwhile {number}", "answer": "y"})
            if reply.is_error:
                unstored.append(reply)

    writer = threading.Thread(target=write)
    writer.start()
    code, out, err = command(windows, "import", "f", "--json")
    over.set()
    writer.join()
    assert code == 0 and not unstored and json.loads(out)["stored"] == 5
    assert windows.engines() == 1


def test_a_folder_whose_name_is_no_unicode_comes_through_an_engine(windows: Windows) -> None:
    windows.open()
    entry = told(namespace="odd", root="/home/\udcff")
    written(windows.folder / "f", entry)
    assert command(windows, "import", "f")[0] == 0
    code, out, _ = command(windows, "export", "--namespace", "odd")
    assert code == 0 and json.loads(out.splitlines()[2])["root"] == "/home/\udcff"


def test_no_more_feedback_is_kept_of_an_entry_than_otherwise(other: Memory, tmp_path: Path) -> None:
    said = {"type": "feedback", "entry": "one", "similarity": 0.5, "correct": True, "at": NOW}
    rows = [{**said, "fingerprint": "fa4efa4efa4e", "query": f"{number:032x}"} for number in range(300)]
    path = written(tmp_path / "f", told(), *rows)
    assert imported(other, path).feedback == 200
    assert imported(other, path).feedback == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_an_import_that_is_killed_has_whole_batches_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(importing, "_BATCH", 4)
    path = written(tmp_path / "f", *(told(f"id-{number}") for number in range(10)))
    child = os.fork()
    if child == 0:
        memory = opened(tmp_path / "killed")
        asked, calls = call(memory), []

        def killed(verb: str, values: dict[str, Any]) -> Any:
            done = asked(verb, values)
            calls.append(verb)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        Import(killed, target=None).run(foreign_formats.read(path, "subconscious"), ends=True)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    memory = opened(tmp_path / "killed")
    try:
        report = imported(memory, path)
        assert (report.stored, report.same) == (2, 8)
        ids = [json.loads(text)["id"] for text in exported(memory).splitlines()[2:-1]]
        assert ids == [f"id-{number}" for number in range(10)]
    finally:
        memory.close()


def test_a_consolidation_can_be_undone_after_a_move(memory: Memory, other: Memory, tmp_path: Path) -> None:
    space = memory.store.namespace("tests", None)
    put(memory, "tests", *(an_entry(f"n{number}", kind="note", answer="") for number in range(3)))
    assert memory.store.consolidate(space, ["n0", "n1"], "n2", run="run-1", at=NOW)
    export = exported(memory)
    assert json.loads(export.splitlines()[-2])["members"] == ["n0", "n1"]
    (tmp_path / "f").write_bytes(export)
    for _ in range(2):
        assert imported(other, tmp_path / "f").is_whole
        assert without_time(exported(other)) == without_time(export)
    there = other.store.namespace("tests", None)
    (done,) = other.store.consolidations(there)
    assert (done.run, done.survivor, done.made, sorted(done.members)) == ("run-1", "n2", False, ["n0", "n1"])
    rows = exported(memory, kinds=["memory"])
    assert b"consolidation" not in rows
    bad = written(tmp_path / "bad", {"type": "consolidation", "run": "r", "survivor": "s", "made": 1, "members": []})
    assert imported(other, bad).reasons == {}
    bad = written(
        tmp_path / "bad",
        told("x", archived_at=NOW),
        {"type": "consolidation", "run": "r", "survivor": "s", "made": 1, "members": ["x"]},
    )
    assert imported(other, bad).reasons == {"what was consolidated is no list": 1}


def test_a_file_says_nothing_of_entries_that_it_does_not_have(other: Memory, tmp_path: Path) -> None:
    put(other, "theirs", an_entry(), an_entry("archived", archived_at=NOW))
    said = {"type": "feedback", "entry": "one", "query": "1" * 32, "similarity": 0.5, "correct": False, "at": NOW}
    path = written(
        tmp_path / "f",
        said | {"fingerprint": "fa4efa4efa4e"},
        {"type": "consolidation", "run": "r", "survivor": "s", "made": True, "members": ["archived"]},
    )
    before = exported(other)
    assert imported(other, path).reasons == {"the feedback is on no entry of the file": 1}
    assert exported(other) == before
