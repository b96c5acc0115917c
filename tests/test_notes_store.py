"""What the store offers for notes: filters, order, neighbours, archiving and superseding, found either way."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import FakeEmbedder
from word_search import keys_in_store

from subconscious_mcp.errors import StorageError
from subconscious_mcp.exact_search import similarities
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.records import NOTES, Entry, Filters, Holders, Kind, Namespace, NewEntry

NOW = 1_800_000_000.0
KINDS: tuple[Kind, ...] = ("note", "fact", "chunk")
Opener = Callable[[], LocalStore]


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(dimension=32)


@pytest.fixture(params=[10_000, 3], ids=["exactly", "by the index"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    opened: list[LocalStore] = []

    def open_() -> LocalStore:
        for store in opened:
            store.close()
        opened.append(LocalStore(tmp_path / "data", command="tests", exact_limit=request.param))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(opener: Opener) -> LocalStore:
    return opener()


@pytest.fixture
def space(store: LocalStore) -> Namespace:
    return store.namespace("tests", None)


def new(entry_id: str, task: str, **values: Any) -> NewEntry:
    return replace(NewEntry(entry_id, "note", task, "", NOW), **values)


def put(store: LocalStore, space: Namespace, embedder: FakeEmbedder, entry_id: str, task: str, **values: Any) -> int:
    entry = new(entry_id, task, **values)
    store.add(space, entry, embedder.fingerprint, embedder.embed_query(task))
    return store.database.keys_of([entry_id])[entry_id]


def up_to_date(store: LocalStore, embedder: FakeEmbedder) -> None:
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    store.bring_index_up_to_date()
    assert store.index_differences() == (0, 0)


def near(store: LocalStore, space: Namespace, embedder: FakeEmbedder, text: str, k: int = 50, **more: Any) -> list[str]:
    vector = embedder.embed_query(text)
    found = store.nearest(space, KINDS, embedder.fingerprint, vector, k, now=NOW, **more)
    return [one.entry.id for one in found]


def by_words(store: LocalStore, space: Namespace, text: str, k: int = 50, **filters: Any) -> list[str]:
    keys = keys_in_store(store, space, KINDS, text, k, now=NOW, filters=Filters(**filters))
    entries = store.entries(keys)
    return [entries[key].id for key in keys]


def everywhere(store: LocalStore, space: Namespace, embedder: FakeEmbedder, word: str, source: str) -> dict[str, bool]:
    """Returns where an entry with its word as id is found."""
    ids = [entry.id for entry in store.recent(space, KINDS, 100, now=NOW)]
    keys = store.entries(list(range(1, 100)))
    neighbours = {key for pair in store.beside(list(keys)).values() for key in pair if key is not None}
    return {
        "nearest": word in near(store, space, embedder, word),
        "filtered": word in near(store, space, embedder, word, filters=Filters(source=source)),
        "by words": word in by_words(store, space, word),
        "recent": word in ids,
        "count": store.count(space, KINDS, NOW) == len(ids),
        "beside": word in {keys[key].id for key in neighbours},
        "tags": store.tag_counts(space, KINDS, NOW).get(word) == 1,
    }


# --- archiving


def test_an_archived_entry_is_kept_and_nowhere_found_until_it_is_restored(
    opener: Opener, embedder: FakeEmbedder
) -> None:
    store = opener()
    space = store.namespace("tests", None)
    words = ["alpha", "bravo", "charlie", "delta", "echo"]
    for number, word in enumerate(words):
        put(store, space, embedder, word, word, tags=(word,), source="s", created_at=NOW - 10 + number)
    up_to_date(store, embedder)
    found = dict.fromkeys(everywhere(store, space, embedder, "charlie", "s"), True)
    hidden = {**dict.fromkeys(found, False), "count": True}
    for reopen in (False, True):
        assert everywhere(store, space, embedder, "charlie", "s") == found
        assert store.archive(space, "charlie", superseded_by="another", at=NOW)
        assert not store.archive(space, "charlie", at=NOW + 1)
        assert everywhere(store, space, embedder, "charlie", "s") == hidden
        if reopen:
            store = opener()
            assert everywhere(store, space, embedder, "charlie", "s") == hidden
        up_to_date(store, embedder)
        assert everywhere(store, space, embedder, "charlie", "s") == hidden
        assert near(store, space, embedder, "charlie", k=4).__len__() == 4
        kept = store.entry(space, "charlie")
        assert kept is not None
        assert (kept.archived_at, kept.superseded_by) == (NOW, "another")
        if reopen:
            store = opener()
        assert store.restore(space, "charlie")
        assert not store.restore(space, "charlie")
        assert everywhere(store, space, embedder, "charlie", "s") == found
        up_to_date(store, embedder)
        assert everywhere(store, space, embedder, "charlie", "s") == found
        kept = store.entry(space, "charlie")
        assert kept is not None
        assert (kept.archived_at, kept.superseded_by) == (None, "")


def test_archiving_and_restoring_before_the_index_has_followed(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    for number in range(10):
        put(store, space, embedder, f"n{number}", f"word{number}")
    up_to_date(store, embedder)
    put(store, space, embedder, "late", "lately written")
    for hide in (["late", "n1"], ["n2"]):
        for entry_id in hide:
            assert store.archive(space, entry_id, at=NOW)
        assert not set(hide) & set(near(store, space, embedder, "lately word1 word2"))
        assert store.restore(space, hide[-1])
        assert hide[-1] in near(store, space, embedder, "lately word1 word2")
    up_to_date(store, embedder)
    assert set(near(store, space, embedder, "lately")) == {f"n{n}" for n in range(10)}


def test_only_what_is_live_and_of_the_namespace_is_archived(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    put(store, space, embedder, "a", "alpha")
    put(store, space, embedder, "over", "bravo", expires_at=NOW)
    other = store.namespace("other", None)
    assert not store.archive(other, "a", at=NOW)
    assert not store.archive(space, "none", at=NOW)
    assert not store.archive(space, "over", at=NOW)
    assert not store.restore(space, "a")
    assert store.archive(space, "a", at=NOW)
    assert not store.restore(other, "a")


def test_an_archived_entry_is_forgotten_and_purged_as_others(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    put(store, space, embedder, "a", "alpha")
    put(store, space, embedder, "b", "bravo", expires_at=NOW + 1)
    for entry_id in ("a", "b"):
        assert store.archive(space, entry_id, at=NOW)
    assert store.forget(space, "a") is not None
    assert store.purge_expired(NOW + 1) == 1
    assert store.entry(space, "a") is None
    assert store.entry(space, "b") is None
    up_to_date(store, embedder)


def test_archiving_outlives_a_change_of_model(opener: Opener, embedder: FakeEmbedder) -> None:
    store = opener()
    space = store.namespace("tests", None)
    for number in range(6):
        put(store, space, embedder, f"n{number}", f"word{number}")
    up_to_date(store, embedder)
    assert store.archive(space, "n1", at=NOW)
    other = FakeEmbedder("0123456789ab", 32)
    store = opener()
    store.embed_missing(other.fingerprint, other.embed)
    up_to_date(store, other)
    assert "n1" not in near(store, space, other, "word1")
    assert store.restore(space, "n1")
    assert near(store, space, other, "word1", k=1) == ["n1"]
    up_to_date(store, other)
    store = opener()
    up_to_date(store, embedder)
    assert near(store, space, embedder, "word1", k=1) == ["n1"]


# --- superseding


def test_a_note_takes_the_place_of_another(store: LocalStore, space: Namespace, embedder: FakeEmbedder) -> None:
    put(store, space, embedder, "old", "the office is in Paris")
    up_to_date(store, embedder)
    text = "the office is in Lyon"
    entry = new("new", text, kind="fact")
    vector = embedder.embed_query(text)
    assert store.supersede(space, "old", entry, embedder.fingerprint, vector, request="r", at=NOW)
    assert near(store, space, embedder, "office") == ["new"]
    assert by_words(store, space, "office") == ["new"]
    old = store.entry(space, "old")
    assert old is not None
    assert (old.archived_at, old.superseded_by) == (NOW, "new")
    assert store.written_by("r") == "new"
    up_to_date(store, embedder)
    assert near(store, space, embedder, "office") == ["new"]


@pytest.mark.parametrize("old", ["none", "archived", "over", "elsewhere"])
def test_what_is_not_live_is_not_superseded_and_nothing_is_stored(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder, old: str
) -> None:
    put(store, space, embedder, "archived", "alpha")
    store.archive(space, "archived", at=NOW)
    put(store, space, embedder, "over", "alpha", expires_at=NOW)
    put(store, store.namespace("other", None), embedder, "elsewhere", "alpha")
    vector = embedder.embed_query("bravo")
    entry = new("new", "bravo")
    assert not store.supersede(space, old, entry, embedder.fingerprint, vector, request="r", at=NOW)
    assert store.entry(space, "new") is None
    assert store.written_by("r") is None


def test_a_superseding_that_fails_archives_nothing(store: LocalStore, space: Namespace, embedder: FakeEmbedder) -> None:
    put(store, space, embedder, "old", "alpha")
    put(store, space, embedder, "taken", "bravo")
    with pytest.raises(StorageError):
        store.supersede(
            space, "old", new("taken", "charlie"), embedder.fingerprint, embedder.embed_query("charlie"), at=NOW
        )
    assert set(near(store, space, embedder, "alpha")) == {"old", "taken"}
    assert by_words(store, space, "alpha charlie") == ["old"]


# --- filters


FILTERS = [
    Filters(tags=("a",)),
    Filters(tags=("a", "b")),
    Filters(since=NOW - 5),
    Filters(until=NOW - 95),
    Filters(since=NOW - 50, until=NOW - 50),
    Filters(source="s1"),
    Filters(source=""),
    Filters(tags=("b",), since=NOW - 60, source="s2"),
    Filters(tags=("none",)),
]


def passes(entry: Entry, filters: Filters) -> bool:
    return (
        (not filters.tags or bool(set(filters.tags) & set(entry.tags)))
        and (filters.since is None or entry.created_at >= filters.since)
        and (filters.until is None or entry.created_at <= filters.until)
        and (filters.source is None or entry.source == filters.source)
    )


def test_filters_are_exact_and_make_results_no_fewer(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    for number in range(100):
        put(
            store,
            space,
            embedder,
            f"n{number}",
            f"the word {number % 7}",
            kind=KINDS[number % 3],
            created_at=NOW - number,
            tags=(("a",), ("b",), ("a", "b"), (), ())[number % 5],
            source=("", "s1", "s2", "s3")[number % 4],
        )
    up_to_date(store, embedder)
    every = store.recent(space, KINDS, 1000, now=NOW)
    assert [entry.id for entry in every] == [f"n{number}" for number in range(100)]
    for filters in FILTERS:
        wanted = [entry.id for entry in every if passes(entry, filters)]
        assert [entry.id for entry in store.recent(space, KINDS, 1000, now=NOW, filters=filters)] == wanted
        assert [entry.id for entry in store.recent(space, KINDS, 3, now=NOW, filters=filters)] == wanted[:3]
        assert set(near(store, space, embedder, "the word 1", 1000, filters=filters)) == set(wanted)
        assert len(near(store, space, embedder, "the word 1", 3, filters=filters)) == min(3, len(wanted))
        held = keys_in_store(store, space, KINDS, "the word 1", 1000, now=NOW, filters=filters)
        assert {entry.id for entry in store.entries(held).values()} == set(wanted)
        both = near(store, space, embedder, "the word 1", 1000, filters=filters, tags=["b"])
        assert set(both) == {entry.id for entry in every if passes(entry, filters) and "b" in entry.tags}


def test_of_equal_times_the_last_written_is_the_most_recent(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    for entry_id in ("a", "b", "c"):
        put(store, space, embedder, entry_id, entry_id, kind="fact" if entry_id == "b" else "note")
    assert [entry.id for entry in store.recent(space, NOTES, 2, now=NOW)] == ["c", "b"]
    assert store.recent(space, [], 2, now=NOW) == []
    assert store.recent(space, NOTES, 0, now=NOW) == []


def test_kinds_that_are_not_read_by_words_are_found_by_none(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder
) -> None:
    put(store, space, embedder, "m", "alpha", kind="memory")
    asked: tuple[list[Kind], ...] = (["memory", "episode"], ["memory", "note"])
    for kinds in asked:
        assert keys_in_store(store, space, kinds, "alpha", 5, now=NOW, filters=Filters()) == []
    assert store.holders(space, ["memory", "episode"], ["alpha"], "alpha", now=NOW) == Holders()


def test_similarities_are_those_of_the_vectors(store: LocalStore, space: Namespace, embedder: FakeEmbedder) -> None:
    texts = {
        put(store, space, embedder, f"n{n}", f"word{n} alpha", kind=KINDS[n % 3]): f"word{n} alpha" for n in range(9)
    }
    up_to_date(store, embedder)
    vector = embedder.embed_query("word3 alpha")
    expected = similarities(vector, np.stack([embedder.embed_query(text) for text in texts.values()])).tolist()
    found = store.similarities(space, KINDS, embedder.fingerprint, vector, [*texts, 999])
    assert found == dict(zip(texts, expected, strict=True))
    assert store.similarities(space, KINDS, "0123456789ab", vector, list(texts)) == {}
    assert store.similarities(space, KINDS, embedder.fingerprint, vector, []) == {}
    assert store.similarities(store.namespace("other", None), KINDS, embedder.fingerprint, vector, list(texts)) == {}


# --- neighbours and tags


def test_beside_an_entry_lie_those_of_its_source(store: LocalStore, space: Namespace, embedder: FakeEmbedder) -> None:
    other = store.namespace("other", None)
    a = put(store, space, embedder, "a", "a", source="s", created_at=NOW - 3)
    c = put(store, space, embedder, "c", "c", source="s", created_at=NOW - 1)
    b = put(store, space, embedder, "b", "b", source="s", created_at=NOW - 2)
    d = put(store, space, embedder, "d", "d", source="s", created_at=NOW - 1)
    put(store, space, embedder, "f", "f", source="s", kind="fact", created_at=NOW - 2)
    put(store, other, embedder, "o", "o", source="s", created_at=NOW - 2)
    put(store, space, embedder, "t", "t", source="S", created_at=NOW - 2)
    lone = put(store, space, embedder, "lone", "lone")
    also = put(store, space, embedder, "also", "also", created_at=NOW - 3600)
    soon = put(store, space, embedder, "soon", "soon", created_at=NOW - 3000)
    e = put(store, space, embedder, "e", "e", source="s", expires_at=NOW)
    g = put(store, space, embedder, "g", "g", source="s")
    assert store.beside([a, b, c, d, g, lone, also, soon, 999], now=NOW) == {
        a: (None, b),
        b: (a, c),
        c: (b, d),
        d: (c, g),
        g: (d, None),
        lone: (None, None),
        also: (None, soon),
        soon: (also, None),
    }
    assert store.beside([d]) == {d: (c, e)}
    assert store.archive(space, "b", at=NOW)
    assert store.beside([a, c]) == {a: (None, c), c: (a, d)}
    assert store.beside([]) == {}


def test_finding_what_lies_beside_reads_the_index_alone(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    key = put(store, space, embedder, "a", "a", source="s")
    asked: list[str] = []
    store.database._reader.set_trace_callback(asked.append)
    store.beside([key], now=NOW)
    store.database._reader.set_trace_callback(None)
    with closing(sqlite3.connect(tmp_path / "data" / "memory.db")) as file:
        plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {asked[-1]}")]
    assert sum("COVERING INDEX entries_source" in step for step in plan) == 2
    assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step]


def test_tags_are_counted_among_live_entries(store: LocalStore, space: Namespace, embedder: FakeEmbedder) -> None:
    put(store, space, embedder, "a", "a", tags=("x", "y"))
    put(store, space, embedder, "b", "b", tags=("x",), kind="fact")
    put(store, space, embedder, "m", "m", tags=("x", "z"), kind="memory")
    put(store, space, embedder, "over", "over", tags=("x",), expires_at=NOW)
    put(store, space, embedder, "hidden", "hidden", tags=("x", "h"))
    store.archive(space, "hidden", at=NOW)
    assert store.tag_counts(space, NOTES, NOW) == {"x": 2, "y": 1}
    assert store.tag_counts(store.namespace("other", None), NOTES, NOW) == {}
