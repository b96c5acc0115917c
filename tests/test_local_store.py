"""The local store: SQLite and Chroma together find what comparing everything would find."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import FakeEmbedder
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kills import DAMAGES, SEGMENT
from numpy.typing import NDArray
from word_search import keys_in_store

from subconscious_mcp import full_text, index_following, set_search
from subconscious_mcp.errors import IndexUnreadable, StorageBusy, StorageDamaged, StorageError
from subconscious_mcp.exact_search import similarities
from subconscious_mcp.index_following import SetName
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.records import Filters, Kind, Namespace, Near, NewEntry
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

NOW = 1_800_000_000.0
DIMENSION = 32
SMALL = 10
"""An exact limit above which even these small sets are searched by Chroma."""

EXACTLY, BY_INDEX = 10_000, SMALL


@dataclass
class Model:
    """What a store must hold, and the answers that comparing everything gives."""

    embedder: FakeEmbedder
    entries: dict[str, tuple[int, NewEntry]] = field(default_factory=dict)
    written: int = 0
    known: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds each text once: that is the slow part of these tests."""
        for text in texts:
            if text not in self.known:
                self.known[text] = self.embedder.embed_query(text)
        return np.stack([self.known[text] for text in texts])

    def holders(self, query: str, now: float) -> set[str]:
        wanted = set(full_text.words(query))
        return {
            entry.id
            for _, entry in self.entries.values()
            if wanted & set(entry.task.split()) and (entry.expires_at is None or entry.expires_at > now)
        }

    def put(self, entry: NewEntry) -> None:
        self.written += 1
        self.entries[entry.id] = (self.written, entry)

    def nearest(
        self,
        vector: NDArray[np.float32],
        k: int,
        now: float,
        kinds: Sequence[Kind] = ("memory",),
        tags: Sequence[str] = (),
    ) -> list[tuple[str, float]]:
        live = [
            (written, entry)
            for written, entry in self.entries.values()
            if entry.kind in kinds
            and (entry.expires_at is None or entry.expires_at > now)
            and (not tags or set(tags) & set(entry.tags))
        ]
        if not live:
            return []
        found = similarities(vector, self.vectors([entry.task for _, entry in live]))
        ranked = sorted(
            zip(live, found.tolist(), strict=True), key=lambda pair: (-pair[1], -pair[0][1].created_at, -pair[0][0])
        )
        return [(entry.id, similarity) for (_, entry), similarity in ranked[:k]]


Opener = Callable[..., LocalStore]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches of texts that are embedded again, without hundreds of texts."""
    monkeypatch.setattr("subconscious_mcp.local_store._EMBED_BATCH", 64)


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder(dimension=DIMENSION)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def opener(folder: Path) -> Iterator[Opener]:
    opened: list[LocalStore] = []

    def open_(exact_limit: int = BY_INDEX, **options: Any) -> LocalStore:
        store = LocalStore(folder, command="tests", exact_limit=exact_limit, **options)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


def up_to_date(store: LocalStore, embedder: FakeEmbedder) -> tuple[int, int]:
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    return store.bring_index_up_to_date()


def write(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder, model: Model, texts: Sequence[str], **values: Any
) -> list[str]:
    start = model.written
    entries = [
        replace(
            NewEntry(id=f"{space.key}-{start + i}", kind="memory", task=text, answer="answer", created_at=NOW), **values
        )
        for i, text in enumerate(texts)
    ]
    store.add_many(space, entries, embedder.fingerprint, model.vectors(texts))
    for entry in entries:
        model.put(entry)
    return [entry.id for entry in entries]


def pairs(near: Sequence[Near]) -> list[tuple[str, float]]:
    return [(found.entry.id, found.similarity) for found in near]


def texts(count: int, seed: int = 0) -> list[str]:
    rnd = random.Random(seed)
    words = [f"word{n}" for n in range(30)]
    return [" ".join(rnd.choices(words, k=rnd.randrange(1, 6))) for _ in range(count)]


def assert_same(
    store: LocalStore, space: Namespace, embedder: FakeEmbedder, model: Model, *, now: float = NOW, **filters: Any
) -> None:
    kinds: Sequence[Kind] = filters.pop("kinds", ("memory",))
    for query in texts(8, seed=99):
        vector = embedder.embed_query(query)
        for k in (1, 5, 200):
            found = store.nearest(space, kinds, embedder.fingerprint, vector, k, now=now, **filters)
            assert pairs(found) == model.nearest(vector, k, now, kinds, **filters)


@pytest.fixture(params=[EXACTLY, BY_INDEX], ids=["exactly", "by the index"])
def limit(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# --- searching


def test_search_finds_what_comparing_everything_finds(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(150))
    assert_same(store, space, embedder, model)
    assert up_to_date(store, embedder) == (150, 0)
    assert_same(store, space, embedder, model)
    # What the index does not have yet.
    write(store, space, embedder, model, texts(20, seed=1))
    assert_same(store, space, embedder, model)
    assert bool(store._sets) == (limit == EXACTLY)


def test_expired_entries_take_no_place(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    good = write(store, space, embedder, model, ["word1 word2 word3"])
    write(store, space, embedder, model, ["word1 word2"] * 150, expires_at=NOW)
    write(store, space, embedder, model, texts(50), expires_at=NOW + 1)
    up_to_date(store, embedder)
    vector = embedder.embed_query("word1 word2")
    near = store.nearest(space, ["memory"], embedder.fingerprint, vector, 1, now=NOW + 1)
    assert [found.entry.id for found in near] == good
    assert_same(store, space, embedder, model)
    assert_same(store, space, embedder, model, now=NOW + 1)


def test_entries_without_the_tag_or_of_another_kind_take_no_place(
    opener: Opener, embedder: FakeEmbedder, limit: int
) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    good = write(store, space, embedder, model, ["word1 word2 word3"], tags=("good",))
    write(store, space, embedder, model, ["word1 word2"] * 150, tags=("bad",))
    write(store, space, embedder, model, ["word1 word2"] * 80, kind="episode")
    write(store, space, embedder, model, texts(40), tags=("bad", "both"))
    up_to_date(store, embedder)
    vector = embedder.embed_query("word1 word2")
    near = store.nearest(space, ["memory"], embedder.fingerprint, vector, 1, now=NOW, tags=["good"])
    assert [found.entry.id for found in near] == good
    for tags in (["good"], ["bad"], ["good", "both"], ["none"]):
        assert_same(store, space, embedder, model, tags=tags)
    assert_same(store, space, embedder, model, kinds=("memory", "episode"))
    assert_same(store, space, embedder, model, kinds=("note",))


def test_many_tagged_entries_are_filtered_among_candidates(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_search, "_MOST_CANDIDATES", 64)
    monkeypatch.setattr(set_search, "_PAGE", 50)
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(120), tags=("a",))
    write(store, space, embedder, model, texts(60, seed=1), tags=("b",))
    up_to_date(store, embedder)
    assert_same(store, space, embedder, model, tags=["a"])
    assert_same(store, space, embedder, model, tags=["b"])


def test_of_equal_ones_the_newest_wins(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    # More than the index is asked for at first.
    for number in range(3):
        write(store, space, embedder, model, ["the same task"] * 70, created_at=NOW + number)
    write(store, space, embedder, model, ["the same task"] * 5, created_at=NOW - 1)
    up_to_date(store, embedder)
    newest = write(store, space, embedder, model, ["the same task"], created_at=NOW + 9)
    vector = embedder.embed_query("the same task")
    near = store.nearest(space, ["memory"], embedder.fingerprint, vector, 5, now=NOW)
    assert near[0].entry.id == newest[0]
    assert near[0].similarity == 1.0
    assert pairs(near) == model.nearest(vector, 5, NOW)
    up_to_date(store, embedder)
    near = store.nearest(space, ["memory"], embedder.fingerprint, vector, 5, now=NOW)
    assert pairs(near) == model.nearest(vector, 5, NOW)


def test_forgetting_and_purging(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    ids = write(store, space, embedder, model, texts(60))
    write(store, space, embedder, model, texts(600, seed=1), expires_at=NOW)
    up_to_date(store, embedder)
    late = write(store, space, embedder, model, texts(5, seed=2))
    for entry_id in [*ids[::3], late[0]]:
        forgotten = store.forget(space, entry_id)
        assert forgotten is not None
        assert forgotten.id == entry_id
        assert store.forget(space, entry_id) is None
        del model.entries[entry_id]
    assert_same(store, space, embedder, model)
    assert store.purge_expired(NOW) == 600
    assert store.purge_expired(NOW) == 0
    model.entries = {key: value for key, value in model.entries.items() if value[1].expires_at is None}
    assert_same(store, space, embedder, model)
    up_to_date(store, embedder)
    assert store.index_differences() == (0, 0)
    assert_same(store, space, embedder, model)


def test_two_namespaces_never_mix(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store = opener(limit)
    models = {store.namespace(name, None): Model(embedder) for name in ("one", "two")}
    for seed, (space, model) in enumerate(models.items()):
        write(store, space, embedder, model, texts(40, seed))
    up_to_date(store, embedder)
    for space, model in models.items():
        assert_same(store, space, embedder, model)
    one, two = models
    some = next(iter(models[one].entries))
    assert store.entry(two, some) is None
    assert store.forget(two, some) is None
    assert_same(store, one, embedder, models[one])


def test_an_entry_that_goes_while_it_is_found_takes_no_place(
    opener: Opener, embedder: FakeEmbedder, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    ids = write(store, space, embedder, model, ["word1", "word1 word2", "word1 word2 word3", *texts(20)])
    up_to_date(store, embedder)
    plain = store.database.entries
    gone: list[str] = []

    def entries(keys: Sequence[int]) -> Any:
        # Another thread is just before us.
        if len(gone) < 2:
            gone.append(ids[len(gone)])
            store.database.delete(list(store.database.keys_of([gone[-1]]).values()))
        return plain(keys)

    monkeypatch.setattr(store.database, "entries", entries)
    near = store.nearest(space, ["memory"], embedder.fingerprint, embedder.embed_query("word1"), 1, now=NOW)
    assert [found.entry.id for found in near] == [ids[2]]


# --- the index follows


def test_the_index_follows_by_itself(opener: Opener, embedder: FakeEmbedder) -> None:
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    done = threading.Condition()
    plain = store.bring_index_up_to_date
    rounds = 0

    def bring() -> tuple[int, int]:
        nonlocal rounds
        try:
            return plain()
        finally:
            with done:
                rounds += 1
                done.notify_all()

    store.bring_index_up_to_date = bring  # type: ignore[method-assign]
    ids = write(store, space, embedder, model, texts(30))
    store.index.open()
    store.start_indexing(embedder.fingerprint, embedder.dimension)
    store.start_indexing("another", 7)

    def wait_until_same() -> None:
        name = SetName(space.key, "memory", embedder.fingerprint).collection
        with done:
            assert done.wait_for(lambda: store.index.ids(name) == set(model.entries), timeout=60)

    wait_until_same()
    write(store, space, embedder, model, texts(30, seed=1))
    wait_until_same()
    store.forget(space, ids[0])
    del model.entries[ids[0]]
    wait_until_same()
    assert_same(store, space, embedder, model)


def test_a_closed_store_does_not_wait_to_become_idle(opener: Opener, embedder: FakeEmbedder) -> None:
    store = opener()
    store.start_indexing(embedder.fingerprint, embedder.dimension, idle_seconds=3600.0)
    store.close()
    store.close()
    assert store._indexer is not None
    assert not store._indexer.is_alive()
    opener().close()


def test_a_slow_index_keeps_the_directory_until_it_is_done(
    opener: Opener, embedder: FakeEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_following, "_CLOSE_SECONDS", 0.0)
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(10))
    busy, go_on = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        busy.set()
        go_on.wait()

    monkeypatch.setattr(store.index, "add", slow)
    store.start_indexing(embedder.fingerprint, embedder.dimension)
    assert busy.wait(60)
    store.close()
    with pytest.raises(StorageBusy):
        StorageLock(folder, "tests")
    go_on.set()
    assert store._indexer is not None
    store._indexer.join()
    again = opener()
    assert up_to_date(again, embedder)[0] == 10


def test_an_indexer_that_fails_tries_again_and_ends(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_following, "_RETRY_SECONDS", 0.0)
    store = opener()
    failures: list[Exception] = [IndexUnreadable("no"), StorageError("no"), ValueError("a text")]
    tried = threading.Event()

    def fail() -> tuple[int, int]:
        if failures:
            raise failures.pop()
        tried.set()
        return 0, 0

    monkeypatch.setattr(store, "bring_index_up_to_date", fail)
    store.start_indexing(embedder.fingerprint, embedder.dimension)
    assert tried.wait(60)


def reopened(opener: Opener, store: LocalStore) -> LocalStore:
    store.close()
    return opener()


def filled(opener: Opener, embedder: FakeEmbedder, count: int = 120) -> tuple[LocalStore, Namespace, Model]:
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(count))
    up_to_date(store, embedder)
    return store, space, model


def test_what_was_written_while_chroma_was_closed_is_added(opener: Opener, embedder: FakeEmbedder) -> None:
    store, space, model = filled(opener, embedder)
    store = reopened(opener, store)
    write(store, space, embedder, model, texts(15, seed=1))
    gone = next(iter(model.entries))
    store.forget(space, gone)
    del model.entries[gone]
    store = reopened(opener, store)
    assert_same(store, space, embedder, model)
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    assert store.index_differences() == (15, 1)
    assert store.bring_index_up_to_date() == (15, 1)
    assert store.index_differences() == (0, 0)
    assert_same(store, space, embedder, model)


def test_strangers_are_removed(opener: Opener, embedder: FakeEmbedder, folder: Path) -> None:
    store, space, model = filled(opener, embedder)
    store.close()
    index = ChromaIndex(folder)
    index.open()
    name = f"memory.{space.key}.{embedder.fingerprint}"
    index.add(name, ["stranger"], embedder.embed(["word1"]), {})
    index.add(f"memory.99.{embedder.fingerprint}", ["stranger"], embedder.embed(["word1"]), {})
    index.add("memory.1.0123456789ab", ["stranger"], np.ones((1, 5), np.float32), {})
    index.add("somebody-elses", ["kept"], embedder.embed(["word1"]), {})
    index.close()
    store = opener()
    store.prepare_index(embedder.fingerprint, embedder.dimension)
    assert store.index_differences() == (0, 3)
    assert store.bring_index_up_to_date() == (0, 3)
    assert store.index_differences() == (0, 0)
    assert store.index.collections() == {name: 120, "somebody-elses": 1}
    assert_same(store, space, embedder, model)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(100)


def half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def damage_database(change: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: change(folder / "chroma.sqlite3")


def damage_segments(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in folder.iterdir():
            if SEGMENT.fullmatch(path.name):
                change(path)

    return damage


def half_copied(segment: Path) -> None:
    for path in sorted(segment.iterdir())[1::2]:
        path.unlink()


def emptied(segment: Path) -> None:
    for path in segment.iterdir():
        path.unlink()


DAMAGE = {
    "folder deleted": lambda folder: DAMAGES[0](folder, random.Random(0)),
    "database cut": damage_database(cut),
    "database zeroed": damage_database(zero),
    "database halved": damage_database(half),
    "database gone": damage_database(Path.unlink),
    "segments gone": damage_segments(shutil.rmtree),
    "segments half copied": damage_segments(half_copied),
    "segments emptied": damage_segments(emptied),
    "segments halved": damage_segments(lambda segment: [half(path) for path in segment.iterdir()] and None),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A closed store, large enough for Chroma to have written HNSW files: it does each 1000 vectors."""
    folder = tmp_path_factory.mktemp("large") / "data"
    embedder = FakeEmbedder(dimension=DIMENSION)
    store, model = LocalStore(folder, command="tests", exact_limit=SMALL), Model(embedder)
    write(store, store.namespace("p", None), embedder, model, texts(1050))
    up_to_date(store, embedder)
    store.close()
    assert list(folder.glob("*/data_level0.bin"))
    return folder, model


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_index_is_mended(
    opener: Opener, embedder: FakeEmbedder, folder: Path, large: tuple[Path, Model], damage: Callable[[Path], None]
) -> None:
    model = large[1]
    shutil.copytree(large[0], folder)
    damage(folder)
    store = opener()
    space = store.namespace("p", None)
    assert_same(store, space, embedder, model)
    up_to_date(store, embedder)
    assert store.index_differences() == (0, 0)
    assert store._trusted(SetName(space.key, "memory", embedder.fingerprint)) is not None
    for _, entry in list(model.entries.values())[::40]:
        vector = embedder.embed_query(entry.task)
        found = store.nearest(space, ["memory"], embedder.fingerprint, vector, 3, now=NOW)
        assert pairs(found) == model.nearest(vector, 3, NOW)


def test_an_index_that_fails_in_a_search_is_built_anew(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, space, model = filled(opener, embedder)
    erased: list[bool] = []
    plain = store.index.erase

    def fail(*arguments: object) -> list[str]:
        raise IndexUnreadable("damage that only a search meets")

    def erase() -> None:
        erased.append(True)
        plain()

    monkeypatch.setattr(store.index, "erase", erase)
    with monkeypatch.context() as patch:
        patch.setattr(store.index, "query", fail)
        assert_same(store, space, embedder, model)
    assert store.bring_index_up_to_date() == (120, 0)
    assert erased == [True]
    assert_same(store, space, embedder, model)
    assert store._sets == {}
    assert store.bring_index_up_to_date() == (0, 0)
    assert erased == [True]


def test_an_index_that_is_emptied_while_it_is_asked_is_not_believed(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, space, model = filled(opener, embedder)

    def query(*arguments: object) -> list[str]:
        # What a rebuild in the other thread does in between.
        store._lose_trust()
        store.bring_index_up_to_date()
        return []

    monkeypatch.setattr(store.index, "query", query)
    vector = embedder.embed_query("word1 word2")
    near = store.nearest(space, ["memory"], embedder.fingerprint, vector, 1, now=NOW)
    assert pairs(near) == model.nearest(vector, 1, NOW)


def test_a_vector_that_nothing_in_the_index_links_to_is_found_all_the_same(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HNSW can leave one so where many are equally near: it is counted, and no search gets there."""
    store, project, model = filled(opener, embedder, count=40)
    up_to_date(store, embedder)
    query = ChromaIndex.query
    lost = next(iter(model.entries))

    def without_it(self: ChromaIndex, collection: str, vector: NDArray[np.float32], k: int) -> list[str]:
        return [name for name in query(self, collection, vector, k) if name != lost]

    monkeypatch.setattr(ChromaIndex, "query", without_it)
    task = model.entries[lost][1].task
    found = store.nearest(project, ("memory",), embedder.fingerprint, embedder.embed_query(task), 1, now=NOW)
    assert pairs(found) == [(lost, 1.0)]


def test_an_index_that_cannot_be_built_leaves_exact_search(
    opener: Opener, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(30))

    def fail() -> None:
        raise IndexUnreadable("never")

    monkeypatch.setattr(store.index, "open", fail)
    with pytest.raises(IndexUnreadable):
        up_to_date(store, embedder)
    assert_same(store, space, embedder, model)


def test_after_a_kill_what_chroma_counts_and_does_not_find_is_added(
    opener: Opener, embedder: FakeEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, space, model = filled(opener, embedder)
    store.close()
    ghosts = set(list(model.entries)[:7])
    asked: list[str] = []

    def missing(self: ChromaIndex, collection: str) -> set[str]:
        asked.append(collection)
        return ghosts

    monkeypatch.setattr(ChromaIndex, "missing", missing)
    store = opener()
    assert up_to_date(store, embedder) == (0, 0)
    assert asked == []
    store.close()
    StorageLock(folder, "killed").release(clean=False)
    # Who does not look at the index leaves that to the next.
    opener().close()
    store = opener()
    assert up_to_date(store, embedder) == (7, 0)
    assert len(asked) == 1
    assert_same(store, space, embedder, model)
    store.close()
    store = opener()
    assert up_to_date(store, embedder) == (0, 0)


# --- models


@pytest.mark.parametrize("dimension", [DIMENSION, 48])
def test_a_change_of_model_and_back(opener: Opener, embedder: FakeEmbedder, limit: int, dimension: int) -> None:
    store, model = opener(limit), Model(embedder)
    space = store.namespace("p", None)
    write(store, space, embedder, model, texts(150))
    up_to_date(store, embedder)
    store.close()

    other = FakeEmbedder("0123456789ab", dimension)
    store = opener(limit)
    again = Model(other, dict(model.entries), model.written)
    vector = other.embed_query("word1")
    assert store.nearest(space, ["memory"], other.fingerprint, vector, 5, now=NOW) == []
    assert store.count_unembedded(other.fingerprint) == 150
    told: list[tuple[int, int]] = []
    assert store.embed_missing(other.fingerprint, other.embed, lambda done, total: told.append((done, total))) == 150
    assert told == [(64, 150), (128, 150), (150, 150)]
    up_to_date(store, other)
    assert_same(store, space, other, again)
    gone = next(iter(model.entries))
    store.forget(space, gone)
    del model.entries[gone], again.entries[gone]
    up_to_date(store, other)
    assert store.index_differences() == (0, 0)
    assert_same(store, space, other, again)
    # Forgotten by the model that is not in use too.
    old = f"memory.{space.key}.{embedder.fingerprint}"
    assert store.index.ids(old) == set(model.entries)
    store.close()

    store = opener(limit)
    assert store.count_unembedded(embedder.fingerprint) == 0
    assert up_to_date(store, embedder) == (0, 0)
    assert_same(store, space, embedder, model)


def test_embedding_again_stops_when_it_is_told_and_goes_on_later(opener: Opener, embedder: FakeEmbedder) -> None:
    store, model = opener(), Model(embedder)
    space = store.namespace("p", None)
    ids = write(store, space, embedder, model, texts(150))
    other = FakeEmbedder("0123456789ab")
    answers = iter([False, True])
    assert store.embed_missing(other.fingerprint, other.embed, stop=lambda: next(answers)) == 64

    def embed(some: Sequence[str]) -> NDArray[np.float32]:
        # Forgotten while it is being embedded.
        if store.forget(space, ids[149]) is not None:
            del model.entries[ids[149]]
        return other.embed(some)

    store.embed_missing(other.fingerprint, embed)
    assert store.count_unembedded(other.fingerprint) == 0
    assert_same(store, space, other, Model(other, model.entries, model.written))


def test_a_vector_of_a_wrong_length_is_told(opener: Opener, embedder: FakeEmbedder) -> None:
    store, space, _ = filled(opener, embedder)
    with pytest.raises(StorageDamaged, match="length"):
        store._loaded(SetName(space.key, "memory", embedder.fingerprint), 7)


# --- opening


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "проект" / "data"
    store = LocalStore(folder, command="tests")
    assert folder.stat().st_mode & 0o777 == 0o700
    store.close()


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="it is a file"):
        LocalStore(tmp_path / "file", command="tests")
    with pytest.raises(StorageError, match="cannot be made"):
        LocalStore(tmp_path / "file" / "below", command="tests")


def test_a_store_that_cannot_open_its_database_frees_the_lock(folder: Path) -> None:
    folder.mkdir()
    (folder / "memory.db").write_bytes(b"no database" * 100)
    with pytest.raises(StorageDamaged):
        LocalStore(folder, command="tests")
    StorageLock(folder, "tests").release()


# --- threads


def test_every_acknowledged_write_of_many_threads_is_found(opener: Opener, embedder: FakeEmbedder, limit: int) -> None:
    store = opener(limit)
    spaces = [store.namespace(name, None) for name in ("one", "two")]
    store.start_indexing(embedder.fingerprint, embedder.dimension)
    failures: list[str] = []

    def work(seed: int) -> None:
        rnd = random.Random(seed)
        own = FakeEmbedder(dimension=DIMENSION)
        space = spaces[seed % 2]
        live: dict[str, str] = {}
        for number in range(40):
            entry_id = f"{seed}-{number}"
            text = f"unique{seed}x{number} {rnd.choice(['red', 'green'])}"
            entry = NewEntry(id=entry_id, kind="memory", task=text, answer="a", created_at=NOW + number)
            store.add(space, entry, own.fingerprint, own.embed_query(text))
            live[entry_id] = text
            if rnd.random() < 0.3:
                gone = rnd.choice(sorted(live))
                if store.forget(space, gone) is None:
                    failures.append(f"{gone} was not there")
                del live[gone]
            for some in rnd.sample(sorted(live), min(2, len(live))):
                near = store.nearest(space, ["memory"], own.fingerprint, own.embed_query(live[some]), 1, now=NOW)
                if [found.entry.id for found in near] != [some]:
                    failures.append(f"{some} was not found")
        survivors.update({(space, entry_id): text for entry_id, text in live.items()})

    survivors: dict[tuple[Namespace, str], str] = {}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(survivors) == sum(store.count(space, ["memory"], NOW) for space in spaces)
    store.close()
    store = opener(limit)
    up_to_date(store, embedder)
    assert store.index_differences() == (0, 0)
    for (space, entry_id), text in survivors.items():
        near = store.nearest(space, ["memory"], embedder.fingerprint, embedder.embed_query(text), 1, now=NOW)
        assert near[0].entry.id == entry_id


# --- everything in any order

TEXTS = st.lists(st.sampled_from(["red", "green", "blue", "one", "two"]), min_size=1, max_size=3).map(" ".join)
TAGS = st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True).map(tuple)


class StoreMachine(RuleBasedStateMachine):
    """Calls in any order give what a dictionary gives."""

    folder: Path
    limit: int
    examples = 0

    def __init__(self) -> None:
        super().__init__()
        self.embedder = FakeEmbedder(dimension=DIMENSION)
        self.model = Model(self.embedder)
        self.archived: dict[str, tuple[int, NewEntry]] = {}
        self.now = NOW
        shutil.rmtree(self.folder, ignore_errors=True)
        self.open()

    def open(self) -> None:
        self.store = LocalStore(self.folder, command="tests", exact_limit=self.limit)
        self.space = self.store.namespace("p", None)

    @initialize()
    def follow(self) -> None:
        self.store.prepare_index(self.embedder.fingerprint, self.embedder.dimension)

    @rule(tasks=st.lists(TEXTS, min_size=1, max_size=8), lifetime=st.none() | st.integers(1, 30), tags=TAGS)
    def remember(self, tasks: list[str], lifetime: int | None, tags: tuple[str, ...]) -> None:
        expires = None if lifetime is None else self.now + lifetime
        values = {"kind": "note", "created_at": self.now, "expires_at": expires, "tags": tags}
        write(self.store, self.space, self.embedder, self.model, tasks, **values)

    @rule(task=TEXTS, k=st.sampled_from([1, 3, 100]), tags=TAGS)
    def recall(self, task: str, k: int, tags: tuple[str, ...]) -> None:
        vector = self.embedder.embed_query(task)
        found = self.store.nearest(self.space, ["note"], self.embedder.fingerprint, vector, k, now=self.now, tags=tags)
        assert pairs(found) == self.model.nearest(vector, k, self.now, ["note"], tags)

    @rule(query=TEXTS)
    def search(self, query: str) -> None:
        keys = keys_in_store(self.store, self.space, ["note"], query, 1000, now=self.now, filters=Filters())
        ids = {entry.id for entry in self.store.entries(keys).values()}
        assert ids == self.model.holders(query, self.now)

    @precondition(lambda self: self.model.entries or self.archived)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from(sorted(self.model.entries | self.archived)))
        assert self.store.forget(self.space, entry_id) is not None
        (self.model.entries if entry_id in self.model.entries else self.archived).pop(entry_id)

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data())
    def archive(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from(sorted(self.model.entries)))
        _, entry = self.model.entries[entry_id]
        if entry.expires_at is None or entry.expires_at > self.now:
            assert self.store.archive(self.space, entry_id, at=self.now)
            self.archived[entry_id] = self.model.entries.pop(entry_id)
        assert not self.store.archive(self.space, entry_id, at=self.now)

    @precondition(lambda self: self.archived)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from(sorted(self.archived)))
        assert self.store.restore(self.space, entry_id)
        assert not self.store.restore(self.space, entry_id)
        self.model.entries[entry_id] = self.archived.pop(entry_id)

    @rule(seconds=st.integers(1, 20))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        self.store.purge_expired(self.now)
        for entries in (self.model.entries, self.archived):
            for entry_id, (_, entry) in list(entries.items()):
                if entry.expires_at is not None and entry.expires_at <= self.now:
                    del entries[entry_id]

    @rule()
    def index(self) -> None:
        up_to_date(self.store, self.embedder)
        assert self.store.index_differences() == (0, 0)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        self.follow()

    @rule()
    def delete_chroma(self) -> None:
        self.store.close()
        DAMAGES[0](self.folder, random.Random(0))
        self.open()
        self.follow()

    @invariant()
    def counts(self) -> None:
        live = [e for _, e in self.model.entries.values() if e.expires_at is None or e.expires_at > self.now]
        assert self.store.count(self.space, ["note"], self.now) == len(live)
        assert self.store.database.full_text_problems() == []

    def teardown(self) -> None:
        self.store.close()


def test_calls_in_any_order(folder: Path, limit: int) -> None:
    machine = type("Machine", (StoreMachine,), {"folder": folder, "limit": 3 if limit == BY_INDEX else limit})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_large_set_gets_its_index_while_searches_go_on(opener: Opener, embedder: FakeEmbedder) -> None:
    store = opener(exact_limit=5)
    space = store.namespace("tests", None)
    write(store, space, embedder, Model(embedder), texts(20))
    vector = embedder.embed_query("word1")
    store.start_indexing(embedder.fingerprint, embedder.dimension, idle_seconds=0.2)
    deadline = time.monotonic() + 60.0
    while not store._state.large and time.monotonic() < deadline:
        store.nearest(space, ("memory",), embedder.fingerprint, vector, 1, now=NOW)
    assert store._state.large
