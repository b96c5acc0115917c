"""The vector index follows memory.db, in a thread of its own.

What is written is noted as pending, and what is deleted as a stranger; the thread brings both to the index when it is
quiet. Where the index is opened, or cannot be trusted any more, it is compared with memory.db as a whole.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from subconscious_mcp.database import Database
from subconscious_mcp.errors import IndexUnreadable, SubconsciousError
from subconscious_mcp.exact_search import ExactVectors
from subconscious_mcp.records import Kind, Namespace
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

log = logging.getLogger(__name__)

EXACT_LIMIT = 20_000
"""Entries of a set up to which it is searched exactly in memory, above which Chroma's index is
asked. Source: validation/results/search.json, the size at which both take about the same time."""

_ADD_BATCH = 512
"""Vectors handed to the index at once, about half a second: closing waits for no more."""
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_MOST_PENDING = 256
"""Vectors that may wait for quiet before they are added to the index. Until then a search by the
index reads them one by one, a millisecond for so many."""

_COLLECTION = re.compile(r"(memory|note|fact|episode|chunk)\.(\d+)\.([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class SetName:
    """Names one set of comparable vectors, which is one collection of the index."""

    namespace: int
    kind: Kind
    fingerprint: str

    @property
    def collection(self) -> str:
        """The collection's name."""
        return f"{self.kind}.{self.namespace}.{self.fingerprint}"


@dataclass(slots=True)
class IndexState:
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
    ready: set[SetName] = field(default_factory=set)
    large: set[SetName] = field(default_factory=set)
    pending: dict[SetName, dict[int, str]] = field(default_factory=dict)
    strangers: list[tuple[SetName, str]] = field(default_factory=list)
    failed: bool = False
    losses: int = 0
    old: set[SetName] = field(default_factory=set)


class IndexFollowing:
    """A storage directory whose index follows its database until `close`.

    Attributes:
        last_used: When somebody searched last, by the monotonic clock.
    """

    def __init__(self, database: Database, index: ChromaIndex, lock: StorageLock, exact_limit: int) -> None:
        self.database = database
        self.index = index
        self._lock = lock
        self._exact_limit = exact_limit
        self._sets: dict[SetName, ExactVectors] = {}
        # Held while a write reaches both memory.db and the set in memory, and while a set is
        # loaded: a set that is loaded between the two would miss the entry.
        self._sets_lock = threading.RLock()
        self._state = IndexState()
        # After a kill Chroma may count vectors that it does not find.
        self._doubtful = lock.after_kill
        self._old_checked = False
        # The sets as the last whole comparison found them, for the thread that keeps the index.
        self._known: dict[SetName, Namespace] = {}
        self._counts: dict[SetName, int] = {}
        self._closed = False
        self._following = False
        self._close_lock = threading.Lock()
        self._fingerprint = ""
        self._dimension = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._indexer: threading.Thread | None = None
        self.last_used = time.monotonic()

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

    def prepare_index(self, fingerprint: str, dimension: int) -> None:
        """Says whose vectors the index is for, for callers that bring it up to date themselves."""
        self._fingerprint, self._dimension = fingerprint, dimension

    def _note_pending(self, name: SetName, key: int, entry_id: str) -> None:
        with self._state.lock:
            self._state.pending.setdefault(name, {})[key] = entry_id

    def _trusted(self, name: SetName) -> int | None:
        """Returns the number of losses of trust if the index is to be asked, else None."""
        with self._state.lock:
            return self._state.losses if name in self._state.large else None

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

    def rebuild_index(self) -> tuple[int, int]:
        """Erases the index and builds it anew; returns what `bring_index_up_to_date` does."""
        self._lose_trust()
        self.index.erase()
        return self.bring_index_up_to_date()

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
        names = {SetName(namespace.key, kind, self._fingerprint) for namespace, kind, _ in sets}
        with self._state.lock:
            ready = set(self._state.ready)
        unchecked = [item for item in sets if SetName(item[0].key, item[1], self._fingerprint) not in ready]
        if unchecked or not self._old_checked:
            removed += self._check_others({name.collection for name in names})
        for namespace, kind, _ in unchecked:
            if self._closing.is_set():
                return added, removed
            counts = self._check_set(namespace, kind)
            added, removed = added + counts[0], removed + counts[1]
        if not self._closing.is_set():
            self._doubtful = False
        self._known = {SetName(n.key, kind, self._fingerprint): n for n, kind, _ in sets}
        self._counts = {SetName(n.key, kind, self._fingerprint): count for n, kind, count in sets}
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
            name = set_name_of(collection)
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
        name = SetName(namespace.key, kind, self._fingerprint)
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

    def _add(self, namespace: Namespace, name: SetName, keys: dict[int, str]) -> bool:
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
        by_set: dict[SetName, list[str]] = {}
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

    def _free_large_sets(self, counts: dict[SetName, int]) -> None:
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
            name = SetName(namespace.key, kind, self._fingerprint)
            names.add(name.collection)
            present = self.index.ids(name.collection) - self.index.missing(name.collection)
            wanted = self.database.ids(namespace.key, kind, self._fingerprint).keys()
            missing += len(wanted - present)
            strangers += len(present - wanted)
        if missing:
            # What is counted and not found is added again only after a second look.
            self._doubtful = True
        for collection in self.index.collections():
            other = set_name_of(collection)
            if other is not None and collection not in names:
                wanted = self.database.ids(other.namespace, other.kind, other.fingerprint).keys()
                strangers += len(self.index.ids(collection) - wanted)
        return missing, strangers

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


def set_name_of(collection: str) -> SetName | None:
    """Returns the set that a collection is of; None where it is none of ours."""
    parts = _COLLECTION.fullmatch(collection)
    return SetName(int(parts[2]), cast(Kind, parts[1]), parts[3]) if parts else None
