"""The store on this machine: memory.db keeps, Chroma finds.

A write is done when memory.db has it. The vector index follows in a thread of its own, and
what it lacks is searched exactly, so a read never misses an acknowledged write. Sets of
vectors that are small enough are searched exactly in memory anyway.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp.database import Database
from subconscious_mcp.errors import IndexUnreadable, StorageError
from subconscious_mcp.exact_search import ExactVectors
from subconscious_mcp.records import Entry, Kind, Namespace, Near, NewEntry
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

log = logging.getLogger(__name__)

EXACT_LIMIT = 20_000
"""Entries of a set up to which it is searched exactly in memory, above which Chroma's index is
asked. Source: validation/results/search.json, the size at which both take about the same time."""

_PAGE = 20_000
"""Vectors read at once: bounds the copy to 15 MB for 384 dimensions."""
_EMBED_BATCH = 64
_PURGE_BATCH = 500
_FIRST_CANDIDATES = 64
"""Ids asked of the index for a small k: with its own recall below 1, some room above k makes
the re-ranking by stored vectors exact in practice."""
_MOST_CANDIDATES = 4096
"""Above this many ids, reading all vectors in order is faster than looking them up."""
_COLLECTION = re.compile(r"(memory|note|episode|chunk)\.(\d+)\.([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class _SetName:
    """Names one set of comparable vectors, which is one collection of the index."""

    namespace: int
    kind: Kind
    fingerprint: str

    @property
    def collection(self) -> str:
        return f"{self.kind}.{self.namespace}.{self.fingerprint}"


@dataclass(slots=True)
class _IndexState:
    """What the index is known to hold, all under `lock`.

    Attributes:
        ready: Sets that lack only what is `pending`.
        large: Ready sets that are too large for exact search, so that the index is asked.
        strangers: Ids that the index has and memory.db no longer.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    ready: set[_SetName] = field(default_factory=set)
    large: set[_SetName] = field(default_factory=set)
    pending: dict[_SetName, dict[int, str]] = field(default_factory=dict)
    strangers: list[tuple[_SetName, str]] = field(default_factory=list)


class LocalStore:
    """The entries of one storage directory, owned by this process until `close`.

    Args:
        folder: The storage directory; made with mode 0700 if it is not there.
        command: What this process is, for the message that a second one shows.
        index: The vector index, for tests.
        exact_limit: See `EXACT_LIMIT`.

    Raises:
        StorageBusy: Another process owns the directory.
        StorageError: The directory or memory.db cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        command: str,
        index: ChromaIndex | None = None,
        exact_limit: int = EXACT_LIMIT,
    ) -> None:
        _make_folder(folder)
        self.folder = folder
        self._lock = StorageLock(folder, command)
        try:
            self.database = Database(folder)
        except BaseException:
            self._lock.release()
            raise
        self.index = index or ChromaIndex(folder)
        self._exact_limit = exact_limit
        self._sets: dict[_SetName, ExactVectors] = {}
        # Held while a write reaches both memory.db and the set in memory, and while a set is
        # loaded: a set that is loaded between the two would miss the entry.
        self._sets_lock = threading.RLock()
        self._state = _IndexState()
        self._fingerprint = ""
        self._dimension = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._indexer: threading.Thread | None = None
        self.last_used = time.monotonic()

    # --- reading

    def namespace(self, name: str, root: str | None) -> Namespace:
        return self.database.namespace(name, root)

    def entry(self, namespace: Namespace, entry_id: str) -> Entry | None:
        return self.database.entry(namespace, entry_id)

    def count(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        return self.database.count(namespace, kinds, now)

    def tasks_by_id(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, str]:
        return self.database.tasks_by_id(namespace, ids)

    def record_recalls(self, outcomes: Sequence[tuple[int, float, bool]]) -> None:
        self.database.record_recalls(outcomes)

    def recall_outcomes(self, namespace: Namespace) -> tuple[float | None, list[bool]]:
        return self.database.recall_outcomes(namespace)

    def count_unembedded(self, fingerprint: str, namespace: Namespace | None = None) -> int:
        return self.database.count_unembedded(fingerprint, namespace)

    def nearest(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        tags: Sequence[str] = (),
    ) -> list[Near]:
        self.last_used = time.monotonic()
        found: dict[int, float] = {}
        for kind in kinds:
            name = _SetName(namespace.key, kind, fingerprint)
            allowed = self.database.tagged(namespace, kind, tags) if tags else None
            found.update(self._search(name, vector, k, now, allowed))
        entries = self.database.entries(list(found))
        near = [Near(entry, found[key]) for key, entry in entries.items()]
        near.sort(key=lambda n: (-n.similarity, -n.entry.created_at, -n.entry.key))
        return near[:k]

    def _search(
        self, name: _SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        if name not in self._sets and self._in_index(name):
            try:
                return self._search_index(name, vector, k, now, allowed)
            except IndexUnreadable as error:
                log.warning("The vector index failed and is rebuilt; searching exactly meanwhile. %s", error)
                self._distrust_index()
        return self._loaded(name, len(vector)).search(vector, k, now=now, allowed=allowed)

    def _in_index(self, name: _SetName) -> bool:
        with self._state.lock:
            return name in self._state.large

    def _loaded(self, name: _SetName, dimension: int) -> ExactVectors:
        with self._sets_lock:
            loaded = self._sets.get(name)
            if loaded is None:
                loaded = ExactVectors(dimension)
                after = 0
                while True:
                    page = self.database.vector_set(
                        name.namespace, name.kind, name.fingerprint, dimension, after=after, limit=_PAGE
                    )
                    loaded.extend(page.keys, page.vectors, page.created_at, page.expires_at)
                    if len(page.keys) < _PAGE:
                        break
                    after = int(page.keys[-1])
                self._sets[name] = loaded
            return loaded

    def _search_index(
        self, name: _SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        """Asks the index for candidates, ranks them by their stored vectors, widens until k are found."""
        if allowed is not None and len(allowed) <= _MOST_CANDIDATES:
            return self._rank(name, allowed, vector, k, now, None)
        with self._state.lock:
            pending = np.fromiter(self._state.pending.get(name, {}), dtype=np.int64)
        wanted = max(_FIRST_CANDIDATES, 4 * k)
        while wanted <= _MOST_CANDIDATES:
            ids = self.index.query(name.collection, vector, wanted)
            keys = np.fromiter(self.database.keys_of(ids).values(), dtype=np.int64)
            found = self._rank(name, np.union1d(keys, pending), vector, k, now, allowed)
            if len(found) >= k or len(ids) < wanted:
                return found
            wanted *= 4
        # So much is filtered away that the index has no answer within reach.
        everything = self.database.ids(name.namespace, name.kind, name.fingerprint)
        keys = np.fromiter(everything.values(), dtype=np.int64) if allowed is None else allowed
        return self._rank(name, keys, vector, k, now, None)

    def _rank(
        self,
        name: _SetName,
        keys: NDArray[np.int64],
        vector: NDArray[np.float32],
        k: int,
        now: float,
        allowed: NDArray[np.int64] | None,
    ) -> list[tuple[int, float]]:
        few = self.database.vector_set(name.namespace, name.kind, name.fingerprint, len(vector), keys=keys)
        ranked = ExactVectors(len(vector))
        ranked.extend(few.keys, few.vectors, few.created_at, few.expires_at)
        return ranked.search(vector, k, now=now, allowed=allowed)

    # --- writing

    def add(self, namespace: Namespace, entry: NewEntry, fingerprint: str, vector: NDArray[np.float32]) -> None:
        self.add_many(namespace, [entry], fingerprint, vector.reshape(1, -1))

    def add_many(
        self, namespace: Namespace, entries: Sequence[NewEntry], fingerprint: str, vectors: NDArray[np.float32]
    ) -> None:
        """Stores all of `entries` with their vectors, (n, d), or none of them."""
        with self._sets_lock:
            keys = self.database.add_many(namespace, entries, fingerprint, vectors)
            for key, entry, vector in zip(keys, entries, vectors, strict=True):
                name = _SetName(namespace.key, entry.kind, fingerprint)
                loaded = self._sets.get(name)
                if loaded is not None:
                    expires = np.inf if entry.expires_at is None else entry.expires_at
                    loaded.append(key, vector, entry.created_at, expires)
                self._note_pending(name, key, entry.id)
        self._wake.set()

    def _note_pending(self, name: _SetName, key: int, entry_id: str) -> None:
        with self._state.lock:
            self._state.pending.setdefault(name, {})[key] = entry_id

    def forget(self, namespace: Namespace, entry_id: str) -> Entry | None:
        with self._sets_lock:
            entry = self.database.entry(namespace, entry_id)
            if entry is None:
                return None
            self.database.delete([entry.key])
            self._leave_sets(entry.key, entry.id, namespace.key, entry.kind)
        if not self.database.scrub():
            log.warning("Another program reads memory.db: a forgotten text leaves its log with the next write.")
        self._wake.set()
        return entry

    def _leave_sets(self, key: int, entry_id: str, namespace: int, kind: Kind) -> None:
        for name, loaded in self._sets.items():
            if (name.namespace, name.kind) == (namespace, kind):
                loaded.remove(key)
        if self._fingerprint:
            name = _SetName(namespace, kind, self._fingerprint)
            with self._state.lock:
                self._state.pending.get(name, {}).pop(key, None)
                self._state.strangers.append((name, entry_id))

    def purge_expired(self, now: float) -> int:
        purged = 0
        while not self._closing.is_set():
            with self._sets_lock:
                over = self.database.expired(now, _PURGE_BATCH)
                if over:
                    self.database.delete([row[0] for row in over])
                    for row in over:
                        self._leave_sets(*row)
            purged += len(over)
            if len(over) < _PURGE_BATCH:
                break
        if purged:
            self.database.scrub()
            self._wake.set()
        return purged

    def embed_missing(
        self,
        fingerprint: str,
        embed: Callable[[Sequence[str]], NDArray[np.float32]],
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        total = self.database.count_unembedded(fingerprint)
        done = 0
        while not stop():
            rows = self.database.unembedded(fingerprint, _EMBED_BATCH)
            if not rows:
                break
            vectors = embed([task for _, task in rows])
            with self._sets_lock:
                stored = self.database.set_vectors(fingerprint, [key for key, _ in rows], vectors)
                # Reloading is cheaper than tracking: this happens once after a change of model.
                for _, namespace, kind in stored:
                    self._sets.pop(_SetName(namespace, kind, fingerprint), None)
            with self._state.lock:
                for _, namespace, kind in stored:
                    self._state.ready.discard(_SetName(namespace, kind, fingerprint))
                    self._state.large.discard(_SetName(namespace, kind, fingerprint))
            done += len(rows)
            if progress is not None:
                progress(done, max(total, done))
        if done:
            self._wake.set()
        return done

    # --- the index, in a thread of its own

    def start_indexing(self, fingerprint: str, dimension: int, *, idle_seconds: float = 0.0) -> None:
        """Lets the index follow memory.db from now on.

        Args:
            idle_seconds: How long no search may have come before the index is opened, because
                importing Chroma takes a second of processor time from the calls that a client
                waits for. Sets too large for exact search do not wait.
        """
        if self._indexer is not None:
            return
        self._fingerprint, self._dimension = fingerprint, dimension
        self._indexer = threading.Thread(
            target=self._follow, args=(idle_seconds,), name="subconscious-indexer", daemon=True
        )
        self._indexer.start()

    def _follow(self, idle_seconds: float) -> None:
        large = any(count > self._exact_limit for _, _, count in self.database.sets(self._fingerprint))
        while not large and time.monotonic() - self.last_used < idle_seconds:
            if self._closing.wait(min(0.1, idle_seconds)):
                return
        while not self._closing.is_set():
            self._wake.clear()
            try:
                self.bring_index_up_to_date()
            except (IndexUnreadable, StorageError) as error:
                log.error("The vector index could not be brought up to date; searching exactly. %s", error)
                if self._closing.wait(30.0):
                    return
            else:
                self._wake.wait()

    def bring_index_up_to_date(self) -> tuple[int, int]:
        """Adds to the index what it lacks and removes what memory.db does not have.

        An index that cannot be read is erased and built anew.

        Returns:
            How many vectors were added and how many removed.

        Raises:
            IndexUnreadable: It cannot be built anew either.
        """
        for attempt in (1, 2):
            try:
                self.index.open()
                added, removed = self._reconcile()
                return added, removed
            except IndexUnreadable as error:
                if attempt == 2:
                    raise
                log.warning("The vector index cannot be read and is built anew from memory.db. %s", error)
                self._distrust_index()
                self.index.erase()
        raise AssertionError("unreachable")

    def _distrust_index(self) -> None:
        with self._state.lock:
            self._state.ready.clear()
            self._state.large.clear()
        self._wake.set()

    def _reconcile(self) -> tuple[int, int]:
        added = removed = 0
        sets = self.database.sets(self._fingerprint)
        names = {_SetName(namespace.key, kind, self._fingerprint) for namespace, kind, _ in sets}
        with self._state.lock:
            unchecked = [item for item in sets if _SetName(item[0].key, item[1], self._fingerprint) not in self._state.ready]
        if unchecked:
            # A namespace, or a whole set, that memory.db does not have.
            for collection in self.index.collections():
                parts = _COLLECTION.fullmatch(collection)
                if parts and parts[3] == self._fingerprint and collection not in {n.collection for n in names}:
                    self.index.drop(collection)
        for namespace, kind, _ in unchecked:
            counts = self._check_set(namespace, kind)
            added, removed = added + counts[0], removed + counts[1]
        added += self._add_pending({(n.key, kind): n for n, kind, _ in sets})
        removed += self._remove_strangers()
        self._free_large_sets({_SetName(n.key, kind, self._fingerprint): count for n, kind, count in sets})
        return added, removed

    def _check_set(self, namespace: Namespace, kind: Kind) -> tuple[int, int]:
        name = _SetName(namespace.key, kind, self._fingerprint)
        # Order matters: what is written from here on is noted as pending, and the index is
        # read before the database, so that nothing is taken for a stranger.
        present = self.index.ids(name.collection)
        wanted = self.database.ids(namespace.key, kind, self._fingerprint)
        strangers = sorted(present - wanted.keys())
        missing = {key: entry_id for entry_id, key in wanted.items() if entry_id not in present}
        if strangers:
            self.index.remove(name.collection, strangers)
        with self._state.lock:
            new = self._state.pending.pop(name, {})
        if missing.keys() - new.keys() and present:
            log.info("%d vectors missing in the index were added again.", len(missing.keys() - new.keys()))
        self._add(namespace, name, missing | new)
        with self._state.lock:
            self._state.ready.add(name)
        return len(missing), len(strangers)

    def _add_pending(self, namespaces: dict[tuple[int, Kind], Namespace]) -> int:
        added = 0
        with self._state.lock:
            waiting = [(name, dict(keys)) for name, keys in self._state.pending.items() if keys]
        for name, keys in waiting:
            namespace = namespaces.get((name.namespace, name.kind))
            if namespace is not None and name.fingerprint == self._fingerprint:
                self._add(namespace, name, keys)
                added += len(keys)
            with self._state.lock:
                for key in keys:
                    self._state.pending[name].pop(key, None)
        return added

    def _add(self, namespace: Namespace, name: _SetName, keys: dict[int, str]) -> None:
        order = sorted(keys)
        for start in range(0, len(order), _PAGE // 4):
            if self._closing.is_set():
                return
            some = np.array(order[start : start + _PAGE // 4], dtype=np.int64)
            page = self.database.vector_set(
                name.namespace, name.kind, name.fingerprint, self._dimension, keys=some
            )
            if len(page.keys):
                self.index.add(
                    name.collection,
                    [keys[int(key)] for key in page.keys],
                    page.vectors.astype(np.float32),
                    {"namespace": namespace.name, "kind": name.kind, "fingerprint": name.fingerprint},
                )

    def _remove_strangers(self) -> int:
        with self._state.lock:
            gone, self._state.strangers = self._state.strangers, []
        by_set: dict[_SetName, list[str]] = {}
        for name, entry_id in gone:
            by_set.setdefault(name, []).append(entry_id)
        for name, ids in by_set.items():
            self.index.remove(name.collection, ids)
        return len(gone)

    def _free_large_sets(self, counts: dict[_SetName, int]) -> None:
        """Hands sets that have grown too large for exact search over to the index."""
        with self._sets_lock, self._state.lock:
            for name, count in counts.items():
                loaded = self._sets.get(name)
                size = count if loaded is None else len(loaded)
                if name in self._state.ready and size > self._exact_limit:
                    self._state.large.add(name)
                    self._sets.pop(name, None)

    def index_differences(self) -> tuple[int, int]:
        """Returns how many vectors the index lacks and how many it has that memory.db does not.

        Raises:
            IndexUnreadable: It cannot be opened or read.
        """
        self.index.open()
        missing = strangers = 0
        names = set()
        for namespace, kind, _ in self.database.sets(self._fingerprint):
            name = _SetName(namespace.key, kind, self._fingerprint)
            names.add(name.collection)
            present = self.index.ids(name.collection)
            wanted = self.database.ids(namespace.key, kind, self._fingerprint).keys()
            missing += len(wanted - present)
            strangers += len(present - wanted)
        for collection, count in self.index.collections().items():
            parts = _COLLECTION.fullmatch(collection)
            if parts and parts[3] == self._fingerprint and collection not in names:
                strangers += count
        return missing, strangers

    def rebuild_index(self) -> tuple[int, int]:
        """Erases the index and builds it anew; returns what `bring_index_up_to_date` does."""
        self._distrust_index()
        self.index.erase()
        return self.bring_index_up_to_date()

    def prepare_index(self, fingerprint: str, dimension: int) -> None:
        """Says whose vectors the index is for, for callers that bring it up to date themselves."""
        self._fingerprint, self._dimension = fingerprint, dimension

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        if self._indexer is not None:
            # Chroma's calls cannot be interrupted; what they leave undone is mended at the next
            # opening, so a slow one does not hold up the end.
            self._indexer.join(timeout=2.0)
        if self._indexer is None or not self._indexer.is_alive():
            self.index.close()
        self.database.close()
        self._lock.release()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else (error.strerror or str(error))
        raise StorageError(
            f"The storage directory {folder} cannot be made: {reason}.",
            "Set SUBCONSCIOUS_STORAGE_DIR to a folder that can be written.",
        ) from None
