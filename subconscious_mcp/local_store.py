"""The store on this machine: memory.db keeps, Chroma finds.

A write is done when memory.db has it. The vector index follows in a thread of its own, and
what it lacks is searched exactly, so a read never misses an acknowledged write. Sets of
vectors that are small enough are searched exactly in memory anyway.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import full_text
from subconscious_mcp.database import Database
from subconscious_mcp.errors import IndexUnreadable, StorageError, SubconsciousError
from subconscious_mcp.exact_search import ExactVectors
from subconscious_mcp.records import (
    READ_BY_WORDS,
    Consolidated,
    Entry,
    Filters,
    Holders,
    Kind,
    Namespace,
    Near,
    NewEntry,
    Observation,
)
from subconscious_mcp.restoring import finish
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vector_rows import VectorSet
from subconscious_mcp.vectors import ChromaIndex

log = logging.getLogger(__name__)

EXACT_LIMIT = 20_000
"""Entries of a set up to which it is searched exactly in memory, above which Chroma's index is
asked. Source: validation/results/search.json, the size at which both take about the same time."""

_PAGE = 20_000
"""Vectors read at once: bounds the copy to 15 MB for 384 dimensions."""
_EMBED_BATCH = 512
"""Texts embedded at once after a change of model: enough for the embedder's way of doing many."""
_ADD_BATCH = 512
"""Vectors handed to the index at once, about half a second: closing waits for no more."""
_EXPORTED = 500
_EXPORTED_BYTES = 2 << 20
"""Entries of one page of an export, and characters of their texts: what a reply to a command may well hold."""
_PURGE_BATCH = 500
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_MOST_PENDING = 256
"""Vectors that may wait for quiet before they are added to the index. Until then a search by the
index reads them one by one, a millisecond for so many."""
_FIRST_CANDIDATES = 64
"""Ids asked of the index for a small k: with its own recall below 1, some room above k makes
the re-ranking by stored vectors exact in practice."""
_ROUNDING = 1e-4
"""By how much the index's order may differ from that of the stored vectors. Source: twice the
bound in `exact_search`, because the index is asked with a query that is not rounded."""

_MOST_EQUAL = 16
"""Candidates of one similarity up to which the index is believed. Among many equal vectors the links of
HNSW lead from one to the next, and one that lies near to them can be left without any: with 150 equal
ones in 6 of 12 builds, also when none of them is quite equal. Source: half of the links of a vector."""

_MOST_CANDIDATES = 4096
"""Above this many ids, reading all vectors in order is faster than looking them up."""
_COLLECTION = re.compile(r"(memory|note|fact|episode|chunk)\.(\d+)\.([0-9a-f]{12})")


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
        failed: A search met damage that opening did not: the index is to be built anew.
        losses: How often the index lost all trust. An answer counts only if that stayed the same
            while it was found, because the index may have been emptied in between.
        old: Sets of models that are not in use, which the index still has.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    ready: set[_SetName] = field(default_factory=set)
    large: set[_SetName] = field(default_factory=set)
    pending: dict[_SetName, dict[int, str]] = field(default_factory=dict)
    strangers: list[tuple[_SetName, str]] = field(default_factory=list)
    failed: bool = False
    losses: int = 0
    old: set[_SetName] = field(default_factory=set)


_Living = TypeVar("_Living", dict[int, Entry], set[int])


class LocalStore:
    """The entries of one storage directory, owned by this process until `close`.

    Args:
        folder: The storage directory; made with mode 0700 if it is not there.
        command: What this process is, for the message that a second one shows.
        index: The vector index, for tests.
        lock: The directory's lock where this process has it already; released when the store is
            closed, and not where it cannot be opened.
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
        lock: StorageLock | None = None,
        exact_limit: int = EXACT_LIMIT,
    ) -> None:
        _make_folder(folder)
        self.folder = folder
        self._lock = lock or StorageLock(folder, command)
        try:
            if (before := finish(folder)) is not None:
                log.warning("A restore that was interrupted was finished; what was there before is in %s.", before)
            self.database = Database(folder)
        except BaseException:
            if lock is None:
                self._lock.release()
            raise
        self.index = index or ChromaIndex(folder)
        self._exact_limit = exact_limit
        self._sets: dict[_SetName, ExactVectors] = {}
        # Held while a write reaches both memory.db and the set in memory, and while a set is
        # loaded: a set that is loaded between the two would miss the entry.
        self._sets_lock = threading.RLock()
        self._state = _IndexState()
        # After a kill Chroma may count vectors that it does not find.
        self._doubtful = self._lock.after_kill
        if self._doubtful:
            # A forget may have ended between deleting and emptying the log. A full disk must not
            # prevent reading.
            with contextlib.suppress(StorageError):
                self.database.scrub(wait=False)
        self._old_checked = False
        # The sets as the last whole comparison found them, for the thread that keeps the index.
        self._known: dict[_SetName, Namespace] = {}
        self._counts: dict[_SetName, int] = {}
        # What was forgotten while another program read memory.db: its texts, to be looked for
        # again. Guarded by the lock of the sets.
        # After a kill the write-ahead log may hold some of which nobody knows any more.
        self._unscrubbed: list[str] | None = [] if self._lock.after_kill else None
        self._closed = False
        self._following = False
        self._close_lock = threading.Lock()
        self._fingerprint = ""
        self._dimension = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._indexer: threading.Thread | None = None
        self.last_used = time.monotonic()

    # --- reading

    def namespace(self, name: str, root: str | None) -> Namespace:
        return self.database.namespace(name, root)

    def find_namespace(self, name: str, root: str | None = None) -> Namespace | None:
        return self.database.find_namespace(name, root)

    def namespaces(self) -> list[tuple[Namespace, dict[str, int]]]:
        return self.database.namespaces_by_kind()

    def rename_namespace(self, namespace: Namespace, name: str) -> None:
        self.database.rename_namespace(namespace, name)

    def merge_namespaces(self, source: Namespace, into: Namespace) -> int:
        with self._sets_lock:
            moved = self.database.merge_namespaces(source, into)
            # Loaded anew with what came, and searched exactly until the index has been compared with it.
            self._sets.clear()
            self._lose_trust()
            self._old_checked = False
        self._wake.set()
        return moved

    def entry(self, namespace: Namespace, entry_id: str) -> Entry | None:
        return self.database.entry(namespace, entry_id)

    def namespace_of(self, entry_id: str) -> Namespace | None:
        return self.database.namespace_of(entry_id)

    def sources(self, namespace: Namespace | None, kind: Kind) -> list[str]:
        return self.database.sources(namespace, kind)

    def count(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        return self.database.count(namespace, kinds, now)

    def tasks_by_id(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, str]:
        return self.database.tasks_by_id(namespace, ids)

    def record_recalls(self, outcomes: Sequence[tuple[int, float, bool]]) -> None:
        self.database.record_recalls(outcomes)

    def recall_outcomes(self, namespace: Namespace) -> tuple[float | None, list[bool]]:
        return self.database.recall_outcomes(namespace)

    def similarity(
        self, namespace: Namespace, entry: Entry, fingerprint: str, vector: NDArray[np.float32]
    ) -> float | None:
        name = _SetName(namespace.key, entry.kind, fingerprint)
        one = self._read(name, np.array([entry.key], dtype=np.int64), len(vector), archived=True)
        found = one.search(vector, 1, now=-math.inf)
        return found[0][1] if found else None

    def similarities(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        keys: Sequence[int],
    ) -> dict[int, float]:
        found: dict[int, float] = {}
        for kind in kinds if keys else ():
            name = _SetName(namespace.key, kind, fingerprint)
            wanted = [key for key in keys if key not in found]
            loaded = self._sets.get(name)
            if loaded is not None:
                found.update(loaded.search(vector, len(wanted), now=-math.inf, allowed=set(wanted)))
                wanted = [key for key in wanted if key not in found]
            if wanted:
                some = self._read(name, np.array(wanted, dtype=np.int64), len(vector), archived=True)
                found.update(some.search(vector, len(some), now=-math.inf))
        return found

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        return self.database.entries(keys)

    def tasks(self, keys: Sequence[int]) -> dict[int, tuple[str, float]]:
        return self.database.tasks(keys)

    def recent(
        self, namespace: Namespace, kinds: Sequence[Kind], limit: int, *, now: float, filters: Filters | None = None
    ) -> list[Entry]:
        return self.database.recent(namespace, kinds, limit, now=now, filters=filters or Filters())

    def beside(self, keys: Sequence[int], *, now: float | None = None) -> dict[int, tuple[int | None, int | None]]:
        return self.database.beside(keys, -math.inf if now is None else now)

    def tag_counts(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> dict[str, int]:
        return self.database.tag_counts(namespace, kinds, now)

    def note_feedback(self, namespace: Namespace, query: str, observation: Observation) -> bool:
        return self.database.note_feedback(namespace, query, observation)

    def feedback(self, namespace: Namespace, entry_id: str | None = None) -> list[Observation]:
        return self.database.feedback(namespace, entry_id)

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
        filters: Filters | None = None,
    ) -> list[Near]:
        def living(keys: list[int]) -> dict[int, Entry]:
            found = self.database.entries(keys)
            return {key: entry for key, entry in found.items() if entry.archived_at is None}

        sets = [
            (_SetName(namespace.key, kind, fingerprint), self._allowed(namespace, kind, tags, filters))
            for kind in kinds
        ]
        found, entries = self._nearest(sets, vector, k, now, living)
        near = [Near(entry, found[key]) for key, entry in entries.items()]
        near.sort(key=lambda n: (-n.similarity, -n.entry.created_at, -n.entry.key))
        return near[:k]

    def nearest_keys(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        filters: Filters | None = None,
    ) -> dict[int, float]:
        sets = [
            (_SetName(namespace.key, kind, fingerprint), self._allowed(namespace, kind, (), filters)) for kind in kinds
        ]
        found, living = self._nearest(sets, vector, k, now, self.database.living)
        return dict(sorted(((key, found[key]) for key in living), key=lambda pair: (-pair[1], -pair[0]))[:k])

    def _nearest(
        self,
        sets: Sequence[tuple[_SetName, NDArray[np.int64] | None]],
        vector: NDArray[np.float32],
        k: int,
        now: float,
        living: Callable[[list[int]], _Living],
    ) -> tuple[dict[int, float], _Living]:
        """Searches sets until `living` leaves enough of what is found, or all is seen."""
        self.last_used = time.monotonic()
        wanted = k
        while True:
            found: dict[int, float] = {}
            for name, allowed in sets:
                found.update(self._search(name, vector, wanted, now, allowed))
            left = living(list(found))
            gone = len(found) - len(left)
            if not gone or len(left) >= k or len(found) < wanted:
                break
            # Deleted or archived since they were found: they must not take the places of others.
            wanted += gone
        # The first search of a large set reads it whole, which takes a second: quiet begins behind it.
        self.last_used = time.monotonic()
        return found, left

    def _allowed(
        self, namespace: Namespace, kind: Kind, tags: Sequence[str], filters: Filters | None
    ) -> NDArray[np.int64] | None:
        """Returns the keys, (n,), that may be returned; None for all."""
        tagged = self.database.tagged(namespace, kind, tags) if tags else None
        if filters is None or filters == Filters():
            return tagged
        filtered = self.database.filtered(namespace, kind, filters)
        return filtered if tagged is None else np.intersect1d(filtered, tagged)

    def holders(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        terms: Sequence[str],
        query: str,
        *,
        now: float,
        filters: Filters | None = None,
    ) -> Holders:
        self.last_used = time.monotonic()
        read = [kind for kind in kinds if kind in READ_BY_WORDS]
        if not read:
            return Holders()
        found, common = self.database.holders(namespace, read, terms, query, now=now, filters=filters or Filters())
        count = self.database.count_about(namespace, read, now)
        return Holders(tuple(term for term, _ in found), tuple(keys for _, keys in found), tuple(common), count)

    def _search(
        self, name: _SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        losses = self._trusted(name)
        if name not in self._sets and losses is not None:
            try:
                found = self._search_index(name, vector, k, now, allowed)
                if self._trusted(name) == losses:
                    return found
            except IndexUnreadable as error:
                log.warning("The vector index failed and is rebuilt; searching exactly meanwhile. %s", error)
                self._distrust_index(since=losses)
        return self._loaded(name, len(vector)).search(vector, k, now=now, allowed=allowed)

    def _trusted(self, name: _SetName) -> int | None:
        """Returns the number of losses of trust if the index is to be asked, else None."""
        with self._state.lock:
            return self._state.losses if name in self._state.large else None

    def _loaded(self, name: _SetName, dimension: int) -> ExactVectors:
        # Without the lock, which a write holds on its way to the disk.
        loaded = self._sets.get(name)
        if loaded is not None:
            return loaded
        with self._sets_lock:
            loaded = self._sets.get(name)
            if loaded is None:
                loaded = ExactVectors(dimension)
                for page in self._pages(name, dimension):
                    loaded.extend(page.keys, page.vectors, page.created_at, page.expires_at)
                self._sets[name] = loaded
            return loaded

    def _pages(self, name: _SetName, dimension: int) -> Iterator[VectorSet]:
        after = 0
        while True:
            page = self.database.vector_set(
                name.namespace, name.kind, name.fingerprint, dimension, after=after, limit=_PAGE
            )
            yield page
            if len(page.keys) < _PAGE:
                return
            after = int(page.keys[-1])

    def _search_index(
        self, name: _SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        """Asks the index for candidates, ranks them by their stored vectors, widens until k are found."""
        if allowed is not None and len(allowed) <= _MOST_CANDIDATES:
            return self._read(name, allowed, len(vector)).search(vector, k, now=now)
        with self._state.lock:
            pending = np.fromiter(self._state.pending.get(name, {}), dtype=np.int64)
        wanted = max(_FIRST_CANDIDATES, 4 * k)
        while wanted <= _MOST_CANDIDATES:
            ids = self.index.query(name.collection, vector, wanted)
            if len(ids) < wanted and len(ids) < self.index.count(name.collection):
                # Vectors that nothing links to any more, as many equal neighbours can leave them.
                break
            keys = np.fromiter(self.database.keys_of(ids).values(), dtype=np.int64)
            both = np.union1d(keys, pending)
            candidates = self._read(name, both, len(vector))
            if _most_equal(candidates.search(vector, len(both), now=-math.inf)) > _MOST_EQUAL:
                break
            found = candidates.search(vector, len(both), now=now, allowed=allowed)
            if len(found) >= k and not self._ties_reach_further(found, keys, k):
                return found[:k]
            if len(ids) < wanted:
                break
            wanted *= 4
        # So much is filtered away, or so much is equal, that the index's answer is none or in doubt.
        everything: list[tuple[int, float]] = []
        for page in self._pages(name, len(vector)):
            ranked = ExactVectors(len(vector))
            ranked.extend(page.keys, page.vectors, page.created_at, page.expires_at)
            everything += ranked.search(vector, k, now=now, allowed=allowed)
        return everything

    @staticmethod
    def _ties_reach_further(found: list[tuple[int, float]], keys: NDArray[np.int64], k: int) -> bool:
        """Returns whether an equal one, perhaps a newer one, may lie behind the index's last candidate."""
        asked = set(keys.tolist())
        last = min((similarity for key, similarity in found if key in asked), default=0.0)
        return last > found[k - 1][1] - _ROUNDING

    def _read(self, name: _SetName, keys: NDArray[np.int64], dimension: int, *, archived: bool = False) -> ExactVectors:
        few = self.database.vector_set(
            name.namespace, name.kind, name.fingerprint, dimension, keys=keys, archived=archived
        )
        read = ExactVectors(dimension)
        read.extend(few.keys, few.vectors, few.created_at, few.expires_at)
        return read

    # --- writing

    def add(
        self,
        namespace: Namespace,
        entry: NewEntry,
        fingerprint: str,
        vector: NDArray[np.float32],
        *,
        request: str = "",
    ) -> None:
        self.add_many(namespace, [entry], fingerprint, vector.reshape(1, -1), request=request)

    def add_many(
        self,
        namespace: Namespace,
        entries: Sequence[NewEntry],
        fingerprint: str,
        vectors: NDArray[np.float32],
        *,
        request: str = "",
        replacing: Sequence[Entry] = (),
    ) -> None:
        with self._sets_lock:
            gone = [entry.key for entry in replacing]
            keys = self.database.add_many(namespace, entries, fingerprint, vectors, request=request, replacing=gone)
            for old in replacing:
                self._leave_sets(old.key, old.id, namespace.key, old.kind)
            for key, entry, vector in zip(keys, entries, vectors, strict=True):
                self._join_sets(namespace, key, entry, fingerprint, vector)
            if replacing:
                self._scrub([text for entry in replacing for text in _texts(entry)], wait=True)
            elif self._unscrubbed is not None:
                self._scrub((), wait=False)
        self._wake.set()

    def _join_sets(
        self, namespace: Namespace, key: int, entry: NewEntry | Entry, fingerprint: str, vector: NDArray[np.float32]
    ) -> None:
        if entry.archived_at is not None:
            return
        name = _SetName(namespace.key, entry.kind, fingerprint)
        loaded = self._sets.get(name)
        if loaded is not None:
            expires = np.inf if entry.expires_at is None else entry.expires_at
            loaded.append(key, vector, entry.created_at, expires)
        self._note_pending(name, key, entry.id)

    def _note_pending(self, name: _SetName, key: int, entry_id: str) -> None:
        with self._state.lock:
            self._state.pending.setdefault(name, {})[key] = entry_id

    def written_by(self, request: str) -> str | None:
        return self.database.written_by(request)

    def archive(self, namespace: Namespace, entry_id: str, *, superseded_by: str = "", at: float) -> bool:
        with self._sets_lock:
            key = self.database.archive(namespace, entry_id, superseded_by=superseded_by, at=at)
            if key is None:
                return False
            self._hide(namespace, key)
        self._wake.set()
        return True

    def _hide(self, namespace: Namespace, key: int) -> None:
        entry = self.database.entries([key])[key]
        self._leave_sets(key, entry.id, namespace.key, entry.kind)

    def restore(self, namespace: Namespace, entry_id: str) -> bool:
        with self._sets_lock:
            key = self.database.restore(namespace, entry_id)
            if key is None:
                return False
            self._show_again(namespace, self.database.entries([key])[key])
        self._wake.set()
        return True

    def _show_again(self, namespace: Namespace, entry: Entry) -> None:
        # Read again where they are needed: restoring is rare, and each model has a set of its own.
        for name in [name for name in self._sets if (name.namespace, name.kind) == (namespace.key, entry.kind)]:
            del self._sets[name]
        if self._fingerprint:
            self._note_pending(_SetName(namespace.key, entry.kind, self._fingerprint), entry.key, entry.id)

    def consolidate(
        self,
        namespace: Namespace,
        members: Sequence[str],
        survivor: str | NewEntry,
        *,
        run: str,
        fingerprint: str = "",
        vector: NDArray[np.float32] | None = None,
        at: float,
    ) -> bool:
        with self._sets_lock:
            keys = self.database.consolidate(
                namespace, members, survivor, run=run, fingerprint=fingerprint, vector=vector, at=at
            )
            if keys is None:
                return False
            for key in keys[0]:
                self._hide(namespace, key)
            if not isinstance(survivor, str) and vector is not None and keys[1] is not None:
                self._join_sets(namespace, keys[1], survivor, fingerprint, vector)
        self._wake.set()
        return True

    def consolidations(self, namespace: Namespace) -> list[Consolidated]:
        return self.database.consolidations(namespace)

    def separate(self, namespace: Namespace, done: Sequence[Consolidated]) -> tuple[list[str], list[str]]:
        with self._sets_lock:
            keys, gone, left = self.database.separate(namespace, done)
            back = list(self.database.entries(keys).values())
            for entry in back:
                self._show_again(namespace, entry)
            for entry in gone:
                self._leave_sets(entry.key, entry.id, namespace.key, entry.kind)
            if gone:
                self._scrub([text for entry in gone for text in _texts(entry)], wait=True)
        self._wake.set()
        return [entry.id for entry in back], [one.survivor for one in left]

    def supersede(
        self,
        namespace: Namespace,
        old_id: str,
        new: NewEntry,
        fingerprint: str,
        vector: NDArray[np.float32],
        *,
        request: str = "",
        at: float,
    ) -> bool:
        with self._sets_lock:
            keys = self.database.supersede(namespace, old_id, new, fingerprint, vector, request=request, at=at)
            if keys is None:
                return False
            self._hide(namespace, keys[0])
            self._join_sets(namespace, keys[1], new, fingerprint, vector)
        self._wake.set()
        return True

    def forget(self, namespace: Namespace, entry_id: str, *, request: str = "") -> Entry | None:
        with self._sets_lock:
            entry = self.database.entry(namespace, entry_id)
            if entry is None:
                if self._unscrubbed is not None:
                    self._scrub((), wait=True)
                return None
            self.database.delete([entry.key], request=request, entry_id=entry.id)
            self._leave_sets(entry.key, entry.id, namespace.key, entry.kind)
            self._scrub(_texts(entry), wait=True)
        self._wake.set()
        return entry

    def _scrub(self, texts: Sequence[str], *, wait: bool) -> None:
        """Makes the texts leave the files, and those for which that could not be done before."""
        with self._sets_lock:
            waiting = [*(self._unscrubbed or ()), *texts]
            # Kept until it is done: an error must not forget them.
            self._unscrubbed = waiting
            if self.database.scrub(waiting, wait=wait):
                self._unscrubbed = None
            elif wait:
                log.warning("Another program reads memory.db: a deleted text leaves its files with a later write.")

    def _leave_sets(self, key: int, entry_id: str, namespace: int, kind: Kind) -> None:
        for name, loaded in self._sets.items():
            if (name.namespace, name.kind) == (namespace, kind):
                loaded.remove(key)
        if self._fingerprint:
            name = _SetName(namespace, kind, self._fingerprint)
            with self._state.lock:
                self._state.pending.get(name, {}).pop(key, None)
                self._state.strangers.append((name, entry_id))
                self._state.strangers += [
                    (old, entry_id) for old in self._state.old if (old.namespace, old.kind) == (namespace, kind)
                ]

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
            self._wake.set()
        if purged or self._unscrubbed is not None:
            self._scrub((), wait=False)
        return purged

    def embed_missing(
        self,
        fingerprint: str,
        embed: Callable[[Sequence[str]], NDArray[np.float32]],
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        total = self.database.count_unembedded(fingerprint)
        done = after = 0
        while not stop() and (rows := self.database.unembedded(fingerprint, _EMBED_BATCH, after=after)):
            after = rows[-1][0]
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

    # --- transfer

    def last_key(self) -> int:
        return self.database.last_key()

    def fingerprints(self) -> dict[str, int]:
        return self.database.fingerprints()

    def count_for_export(self, namespaces: Sequence[int], kinds: Sequence[Kind], upto: int, now: float) -> int:
        return self.database.count_for_export(namespaces, kinds, upto, now)

    def export_page(
        self, namespace: int, kinds: Sequence[Kind], fingerprint: str | None, *, after: int, upto: int, now: float
    ) -> list[tuple[Entry, bytes | None]]:
        return self.database.export_page(
            namespace, kinds, fingerprint, after=after, upto=upto, now=now, most=_EXPORTED, most_bytes=_EXPORTED_BYTES
        )

    def feedback_page(self, namespace: int, *, after: int) -> list[tuple[int, str, Observation]]:
        return self.database.feedback_page(namespace, after=after, most=_EXPORTED)

    def add_feedback(self, said: Sequence[tuple[str, Observation]]) -> int:
        return self.database.add_feedback(said)

    def add_consolidated(self, namespace: Namespace | None, done: Consolidated) -> None:
        self.database.add_consolidated(namespace, done)

    def found(self, ids: Sequence[str]) -> dict[str, tuple[int, Entry]]:
        return self.database.found(ids)

    def merged(self, namespace: Namespace) -> list[tuple[str | None, str | None]]:
        return self.database.merged(namespace)

    def add_merged(self, namespace: Namespace, name: str | None, root: str | None) -> bool:
        return self.database.add_merged(namespace, name, root)

    # --- the index, in a thread of its own

    def start_indexing(self, fingerprint: str, dimension: int, *, idle_seconds: float = 0.0) -> None:
        """Lets the index follow memory.db from now on.

        Args:
            idle_seconds: How long no search may have come before the index is opened, because
                importing Chroma takes a second of processor time from the calls that a client
                waits for. Until then every set is searched exactly, however large.
        """
        if self._indexer is not None:
            return
        self._fingerprint, self._dimension = fingerprint, dimension
        indexer = threading.Thread(target=self._follow, args=(idle_seconds,), name="subconscious-indexer", daemon=True)
        self._following = True
        indexer.start()
        # Only now: `close` may come at any moment, and joins what runs.
        self._indexer = indexer

    def _follow(self, idle_seconds: float) -> None:
        try:
            started = time.monotonic()
            while time.monotonic() - self.last_used < idle_seconds:
                if self._closing.wait(min(0.1, idle_seconds)):
                    return
                if time.monotonic() - started >= idle_seconds and self._holds_large_sets():
                    # One call waits a second for Chroma, and each one after it is faster for it.
                    break
            while not self._closing.is_set():
                self._wake.clear()
                try:
                    self.bring_index_up_to_date()
                except Exception as error:
                    if self._closing.is_set():
                        return
                    known = isinstance(error, SubconsciousError)
                    log.error(
                        "The vector index could not be brought up to date; searching exactly. %s",
                        error if known else type(error).__name__,
                        exc_info=not known,
                    )
                    # Searches find what it lacks among what is pending, or load all: no hurry.
                    if self._closing.wait(_RETRY_SECONDS):
                        return
                else:
                    self._wake.wait()
                    self._wait_for_quiet(idle_seconds)
        finally:
            with self._close_lock:
                self._following = False
                if self._closed:
                    # `close` did not wait for this thread.
                    self._release()

    def _holds_large_sets(self) -> bool:
        return any(len(loaded) > self._exact_limit for loaded in list(self._sets.values()))

    def _wait_for_quiet(self, idle_seconds: float) -> None:
        """Lets writes gather: adding to Chroma holds Python's lock, which the next call would wait for."""
        while time.monotonic() - self.last_used < idle_seconds:
            with self._state.lock:
                gathered = sum(len(keys) for keys in self._state.pending.values())
            if gathered >= _MOST_PENDING or self._closing.wait(min(0.1, idle_seconds)):
                return

    def bring_index_up_to_date(self) -> tuple[int, int]:
        """Adds to the index what it lacks and removes what memory.db does not have.

        An index that cannot be read is erased and built anew.

        Returns:
            How many vectors were added and how many removed.

        Raises:
            IndexUnreadable: It cannot be built anew either.
        """
        with self._state.lock:
            failed, self._state.failed = self._state.failed, False
        if failed:
            self._lose_trust()
            self.index.erase()
        try:
            self.index.open()
            return self._reconcile()
        except IndexUnreadable as error:
            if self._closing.is_set():
                raise
            log.warning("The vector index cannot be read and is built anew from memory.db. %s", error)
        self._lose_trust()
        self.index.erase()
        self.index.open()
        return self._reconcile()

    def _lose_trust(self) -> None:
        with self._state.lock:
            self._state.ready.clear()
            self._state.large.clear()
            self._state.losses += 1

    def _distrust_index(self, since: int) -> None:
        """Lets the index be built anew, unless that happened since the search that failed."""
        with self._state.lock:
            if self._state.losses != since:
                return
            self._state.failed = True
        self._lose_trust()
        self._wake.set()

    def _reconcile(self) -> tuple[int, int]:
        with self._state.lock:
            waiting = {name for name, keys in self._state.pending.items() if keys}
            checked = self._old_checked and not self._doubtful and self._known.keys() <= self._state.ready
        if checked and waiting <= self._known.keys():
            # Nothing but what was written since: the sets need not be counted again.
            removed = self._remove_strangers()
            added = self._add_pending({(name.namespace, name.kind): space for name, space in self._known.items()})
            self._free_large_sets({name: self._counts[name] for name in waiting})
            return added, removed
        return self._reconcile_all()

    def _reconcile_all(self) -> tuple[int, int]:
        added = removed = 0
        sets = self.database.sets(self._fingerprint)
        names = {_SetName(namespace.key, kind, self._fingerprint) for namespace, kind, _ in sets}
        with self._state.lock:
            ready = set(self._state.ready)
        unchecked = [item for item in sets if _SetName(item[0].key, item[1], self._fingerprint) not in ready]
        if unchecked or not self._old_checked:
            removed += self._check_others({name.collection for name in names})
        for namespace, kind, _ in unchecked:
            if self._closing.is_set():
                return added, removed
            counts = self._check_set(namespace, kind)
            added, removed = added + counts[0], removed + counts[1]
        if not self._closing.is_set():
            self._doubtful = False
        self._known = {_SetName(n.key, kind, self._fingerprint): n for n, kind, _ in sets}
        self._counts = {_SetName(n.key, kind, self._fingerprint): count for n, kind, count in sets}
        removed += self._remove_strangers()
        added += self._add_pending({(n.key, kind): n for n, kind, _ in sets})
        self._free_large_sets(self._counts)
        return added, removed

    def _check_others(self, own: set[str]) -> int:
        """Removes what memory.db does not have from the sets that are not in use.

        Those of another model keep the vectors that memory.db keeps too.
        """
        removed = 0
        for collection, count in self.index.collections().items():
            name = _set_name(collection)
            if name is None or collection in own:
                continue
            if name.fingerprint != self._fingerprint:
                with self._state.lock:
                    # Before it is compared: what is forgotten from here on is noted.
                    self._state.old.add(name)
                wanted = self.database.ids(name.namespace, name.kind, name.fingerprint).keys()
                strangers = sorted(self.index.ids(collection) - wanted)
                if wanted and not self._doubtful:
                    self.index.remove(collection, strangers)
                    removed += len(strangers)
                    continue
            self.index.drop(collection)
            removed += count
        self._old_checked = True
        return removed

    def _check_set(self, namespace: Namespace, kind: Kind) -> tuple[int, int]:
        name = _SetName(namespace.key, kind, self._fingerprint)
        # Order matters: what is written from here on is noted as pending, and the index is
        # read before the database, so that nothing is taken for a stranger.
        present = self.index.ids(name.collection)
        if self._doubtful and present:
            present -= self.index.missing(name.collection)
        wanted = self.database.ids(namespace.key, kind, self._fingerprint)
        strangers = sorted(present - wanted.keys())
        missing = {key: entry_id for entry_id, key in wanted.items() if entry_id not in present}
        if strangers:
            self.index.remove(name.collection, strangers)
        with self._state.lock:
            new = self._state.pending.pop(name, {})
        if missing.keys() - new.keys() and present:
            log.info("%d vectors missing in the index were added again.", len(missing.keys() - new.keys()))
        if self._add(namespace, name, missing | new):
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
                if not self._add(namespace, name, keys):
                    return added
                added += len(keys)
                self._counts[name] = self._counts.get(name, 0) + len(keys)
            with self._state.lock:
                for key in keys:
                    self._state.pending[name].pop(key, None)
        return added

    def _add(self, namespace: Namespace, name: _SetName, keys: dict[int, str]) -> bool:
        """Adds vectors to the index; returns False if the store was closed before all were added."""
        order = sorted(keys)
        for start in range(0, len(order), _ADD_BATCH):
            if self._closing.is_set():
                return False
            some = np.array(order[start : start + _ADD_BATCH], dtype=np.int64)
            page = self.database.vector_set(name.namespace, name.kind, name.fingerprint, self._dimension, keys=some)
            if len(page.keys):
                self.index.add(
                    name.collection,
                    [keys[int(key)] for key in page.keys],
                    page.vectors.astype(np.float32),
                    {"namespace": namespace.name, "kind": name.kind, "fingerprint": name.fingerprint},
                )
        return True

    def _remove_strangers(self) -> int:
        with self._state.lock:
            gone, self._state.strangers = self._state.strangers, []
        by_set: dict[_SetName, list[str]] = {}
        for name, entry_id in gone:
            by_set.setdefault(name, []).append(entry_id)
        for name, ids in by_set.items():
            if name.fingerprint == self._fingerprint:
                # An id may have been used again, as that of a session's episode is, or its entry been restored: its
                # vector is added behind this, also where that was done before and is undone now.
                for entry_id, key in self.database.keys_of(ids, archived=False).items():
                    self._note_pending(name, key, entry_id)
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
            present = self.index.ids(name.collection) - self.index.missing(name.collection)
            wanted = self.database.ids(namespace.key, kind, self._fingerprint).keys()
            missing += len(wanted - present)
            strangers += len(present - wanted)
        if missing:
            # What is counted and not found is added again only after a second look.
            self._doubtful = True
        for collection in self.index.collections():
            other = _set_name(collection)
            if other is not None and collection not in names:
                wanted = self.database.ids(other.namespace, other.kind, other.fingerprint).keys()
                strangers += len(self.index.ids(collection) - wanted)
        return missing, strangers

    def rebuild_index(self) -> tuple[int, int]:
        """Erases the index and builds it anew; returns what `bring_index_up_to_date` does."""
        self._lose_trust()
        self.index.erase()
        return self.bring_index_up_to_date()

    def prepare_index(self, fingerprint: str, dimension: int) -> None:
        """Says whose vectors the index is for, for callers that bring it up to date themselves."""
        self._fingerprint, self._dimension = fingerprint, dimension

    def close(self) -> None:
        with self._close_lock:
            if self._closed:
                return
        self._closing.set()
        self._wake.set()
        if self._indexer is not None:
            # Chroma's calls cannot be interrupted; what they leave undone is mended at the next
            # opening, so a slow one does not hold up the end.
            self._indexer.join(timeout=_CLOSE_SECONDS)
        with self._close_lock:
            self._closed = True
            self.database.close()
            # Chroma must have no other owner before the thread has left it.
            if not self._following:
                self._release()

    def _release(self) -> None:
        try:
            self.index.close()
        except IndexUnreadable as error:
            log.warning("The vector index could not be closed. %s", error)
        finally:
            # What a kill may have left is looked at by the next owner that has the time.
            self._lock.release(clean=not self._doubtful)


def _most_equal(found: list[tuple[int, float]]) -> int:
    """Returns how many at most have one and the same similarity."""
    return max(Counter(similarity for _, similarity in found).values(), default=0)


def _texts(entry: Entry) -> list[str]:
    """Returns what must be in no file when the entry is forgotten, as the full-text index keeps it too."""
    indexed = full_text.remains(f"{entry.task} {entry.answer}") if entry.kind in READ_BY_WORDS else ()
    return [entry.task, entry.answer, *entry.tags, *indexed]


def _set_name(collection: str) -> _SetName | None:
    parts = _COLLECTION.fullmatch(collection)
    return _SetName(int(parts[2]), cast(Kind, parts[1]), parts[3]) if parts else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else (error.strerror or str(error))
        raise StorageError(
            f"The storage directory {folder} cannot be made: {reason}.",
            "Set SUBCONSCIOUS_STORAGE_DIR to a folder that can be written.",
        ) from None
