"""The store on this machine: memory.db keeps, Chroma finds.

A write is done when memory.db has it. The vector index follows in a thread of its own, and
what it lacks is searched exactly, so a read never misses an acknowledged write. Sets of
vectors that are small enough are searched exactly in memory anyway.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import full_text
from subconscious_mcp.database import Database
from subconscious_mcp.errors import StorageError
from subconscious_mcp.index_following import EXACT_LIMIT, SetName
from subconscious_mcp.records import (
    READ_BY_WORDS,
    Consolidated,
    Entry,
    Filters,
    Holders,
    Kind,
    Namespace,
    NewEntry,
    Observation,
)
from subconscious_mcp.restoring import finish
from subconscious_mcp.set_search import SetSearch
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

log = logging.getLogger(__name__)

_EMBED_BATCH = 512
"""Texts embedded at once after a change of model: enough for the embedder's way of doing many."""
_EXPORTED = 500
_EXPORTED_BYTES = 2 << 20
"""Entries of one page of an export, and characters of their texts: what a reply to a command may well hold."""
_PURGE_BATCH = 500


class LocalStore(SetSearch):
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
        super().__init__(self.database, index or ChromaIndex(folder), self._lock, exact_limit)
        if self._lock.after_kill:
            # A forget may have ended between deleting and emptying the log. A full disk must not
            # prevent reading.
            with contextlib.suppress(StorageError):
                self.database.scrub(wait=False)
        # What was forgotten while another program read memory.db: its texts, to be looked for
        # again. Guarded by the lock of the sets.
        # After a kill the write-ahead log may hold some of which nobody knows any more.
        self._unscrubbed: list[str] | None = [] if self._lock.after_kill else None

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

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        return self.database.entries(keys)

    def tasks(self, keys: Sequence[int]) -> dict[int, tuple[str, float]]:
        return self.database.tasks(keys)

    def recent(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        limit: int,
        *,
        now: float,
        filters: Filters | None = None,
        archived: bool = False,
    ) -> list[Entry]:
        return self.database.recent(namespace, kinds, limit, now=now, filters=filters or Filters(), archived=archived)

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
        name = SetName(namespace.key, entry.kind, fingerprint)
        loaded = self._sets.get(name)
        if loaded is not None:
            expires = np.inf if entry.expires_at is None else entry.expires_at
            loaded.append(key, vector, entry.created_at, expires)
        self._note_pending(name, key, entry.id)

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
            self._note_pending(SetName(namespace.key, entry.kind, self._fingerprint), entry.key, entry.id)

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
            name = SetName(namespace, kind, self._fingerprint)
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
                    self._sets.pop(SetName(namespace, kind, fingerprint), None)
            with self._state.lock:
                for _, namespace, kind in stored:
                    self._state.ready.discard(SetName(namespace, kind, fingerprint))
                    self._state.large.discard(SetName(namespace, kind, fingerprint))
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


def _texts(entry: Entry) -> list[str]:
    """Returns what must be in no file when the entry is forgotten, as the full-text index keeps it too."""
    indexed = full_text.remains(f"{entry.task} {entry.answer}") if entry.kind in READ_BY_WORDS else ()
    return [entry.task, entry.answer, *entry.tags, *indexed]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else (error.strerror or str(error))
        raise StorageError(
            f"The storage directory {folder} cannot be made: {reason}.",
            "Set SUBCONSCIOUS_STORAGE_DIR to a folder that can be written.",
        ) from None
