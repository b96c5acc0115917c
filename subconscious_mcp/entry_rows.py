"""Entries in memory.db: how they are written, archived and deleted, and had by their keys and ids."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import consolidated_rows
from subconscious_mcp.exact_search import as_stored
from subconscious_mcp.records import Consolidated, Entry, Kind, Namespace, NewEntry
from subconscious_mcp.rows import COLUMNS, LIVE, Rows, as_entry, marks, portions
from subconscious_mcp.vector_rows import fingerprint_key

if TYPE_CHECKING:
    from sqlite3 import Connection

REQUEST_SECONDS = 3600.0
"""How long it is remembered which request wrote what."""


class EntryRows(Rows):
    """The part of a database that knows entries."""

    def add(self, namespace: Namespace, entry: NewEntry, fingerprint: str, vector: NDArray[np.float32]) -> int:
        """Stores an entry with its vector; it is on the disk when this returns.

        Returns:
            The new entry's key.
        """
        return self.add_many(namespace, [entry], fingerprint, vector.reshape(1, -1))[0]

    def add_many(
        self,
        namespace: Namespace,
        entries: Sequence[NewEntry],
        fingerprint: str,
        vectors: NDArray[np.float32],
        *,
        request: str = "",
        replacing: Sequence[int] = (),
    ) -> list[int]:
        """Stores all of `entries` with their vectors, (n, d) float32, or none of them.

        Args:
            request: Identity of the request that stores them, kept in the same transaction.
            replacing: Keys of entries that are deleted in the same transaction.
        """
        stored = as_stored(vectors)
        with self.transaction() as write:
            for some in portions(replacing):
                write.execute(f"DELETE FROM entries WHERE key IN ({marks(some)})", some)
            if request:
                self._note_request(write, request, entries[0].id)
            model = fingerprint_key(write, fingerprint)
            return [
                self._insert(write, namespace, entry, model, vector)
                for entry, vector in zip(entries, stored, strict=True)
            ]

    def _insert(
        self, write: Connection, namespace: Namespace, entry: NewEntry, model: int, vector: NDArray[np.float16]
    ) -> int:
        cursor = write.execute(
            "INSERT INTO entries (id, namespace, kind, task, answer, created_at, expires_at, tags, source)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.id,
                namespace.key,
                entry.kind,
                entry.task,
                entry.answer,
                entry.created_at,
                entry.expires_at,
                json.dumps(entry.tags, ensure_ascii=False),
                entry.source,
            ),
        )
        key = int(cursor.lastrowid or 0)
        if entry.archived_at is not None:
            values = (entry.archived_at, entry.superseded_by, key)
            write.execute("UPDATE entries SET archived_at = ?, superseded_by = ? WHERE key = ?", values)
        write.executemany(
            "INSERT INTO tags (tag, entry) VALUES (?, ?)", [(tag, key) for tag in dict.fromkeys(entry.tags)]
        )
        write.execute(
            "INSERT INTO vectors (fingerprint, entry, vector) VALUES (?, ?, ?)", (model, key, vector.tobytes())
        )
        return key

    def archive(self, namespace: Namespace, entry_id: str, *, superseded_by: str = "", at: float) -> int | None:
        """Keeps a live entry out of all results from now on; returns its key, or None where there is none."""
        with self.transaction() as write:
            return self._archive(write, namespace, entry_id, superseded_by, at)

    def _archive(
        self, write: Connection, namespace: Namespace, entry_id: str, superseded_by: str, at: float
    ) -> int | None:
        row = write.execute(
            f"SELECT e.key FROM entries e WHERE e.id = ? AND e.namespace = ? AND {LIVE}", (entry_id, namespace.key, at)
        ).fetchone()
        if row is None:
            return None
        write.execute(
            "UPDATE entries SET archived_at = ?, superseded_by = ? WHERE key = ?", (at, superseded_by, row[0])
        )
        return int(row[0])

    def restore(self, namespace: Namespace, entry_id: str) -> int | None:
        """Lets an archived entry be found again; returns its key, or None where there is none."""
        with self.transaction() as write:
            row = write.execute(
                "SELECT key FROM entries WHERE id = ? AND namespace = ? AND archived_at IS NOT NULL",
                (entry_id, namespace.key),
            ).fetchone()
            if row is None:
                return None
            write.execute("UPDATE entries SET archived_at = NULL, superseded_by = '' WHERE key = ?", row)
        return int(row[0])

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
    ) -> tuple[int, int] | None:
        """Stores an entry and archives the one whose place it takes: both or neither.

        Returns:
            The keys of the old and of the new one; None where there is no such live entry.
        """
        stored = as_stored(vector)
        with self.transaction() as write:
            old = self._archive(write, namespace, old_id, new.id, at)
            if old is None:
                return None
            if request:
                self._note_request(write, request, new.id)
            return old, self._insert(write, namespace, new, fingerprint_key(write, fingerprint), stored)

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
    ) -> tuple[list[int], int | None] | None:
        """Archives entries for one that stands for them, which is stored here where it is a new one: all or nothing.

        Returns:
            The keys of the entries and of the new one; None where one of them is not live.
        """
        with self.transaction() as write:
            live = f"SELECT 1 FROM entries e WHERE e.id = ? AND e.namespace = ? AND {LIVE}"
            survivor_id = survivor if isinstance(survivor, str) else survivor.id
            for entry_id in [*members, *([survivor] if isinstance(survivor, str) else [])]:
                if write.execute(live, (entry_id, namespace.key, at)).fetchone() is None:
                    return None
            archived = [self._archive(write, namespace, entry_id, survivor_id, at) for entry_id in members]
            keys = [key for key in archived if key is not None]
            consolidated_rows.note(write, keys, survivor_id, not isinstance(survivor, str), run)
            if isinstance(survivor, str) or vector is None:
                return keys, None
            model = fingerprint_key(write, fingerprint)
            return keys, self._insert(write, namespace, survivor, model, as_stored(vector))

    def consolidations(self, namespace: Namespace) -> list[Consolidated]:
        """Returns what consolidations did and nobody has undone, the newest first."""
        with self._reading() as read:
            return consolidated_rows.newest_first(read, namespace.key)

    def separate(
        self, namespace: Namespace, done: Sequence[Consolidated]
    ) -> tuple[list[int], list[Entry], list[Consolidated]]:
        """Undoes consolidations; see `consolidated_rows.separate`.

        Returns:
            The keys of the entries that can be found again, the survivors that are gone, and what was left undone.
        """
        back: list[int] = []
        gone: list[Entry] = []
        left: list[Consolidated] = []
        with self.transaction() as write:
            for one in done:
                separated = consolidated_rows.separate(write, namespace.key, one.survivor, one.run)
                if separated is None:
                    left.append(one)
                    continue
                back += separated[0]
                if separated[1] is not None:
                    row = write.execute(f"SELECT {COLUMNS} FROM entries e WHERE e.key = ?", (separated[1],)).fetchone()
                    gone.append(as_entry(row))
                    write.execute("DELETE FROM entries WHERE key = ?", (separated[1],))
        # A summary may have stood for what the same run had made, which is gone now.
        return [key for key in back if key not in {entry.key for entry in gone}], gone, left

    def delete(self, keys: Sequence[int], *, request: str = "", entry_id: str = "") -> None:
        """Deletes entries with their tags and vectors; their bytes are overwritten with zeros.

        The write-ahead log may hold them until `scrub`.

        Args:
            request: Identity of the request that deletes `entry_id`, kept in the same transaction.
        """
        for some in portions(keys):
            with self.transaction() as write:
                write.execute(f"DELETE FROM entries WHERE key IN ({marks(some)})", some)
                if request:
                    self._note_request(write, request, entry_id)

    def _note_request(self, write: Connection, request: str, entry_id: str) -> None:
        now = time.time()
        write.execute(
            "INSERT OR REPLACE INTO requests (request, entry_id, at) VALUES (?, ?, ?)", (request, entry_id, now)
        )
        # Whoever sends again does so within seconds.
        write.execute("DELETE FROM requests WHERE at < ?", (now - REQUEST_SECONDS,))

    def written_by(self, request: str) -> str | None:
        """Returns the id of the entry that a request has written or deleted, or None."""
        rows = self._read("SELECT entry_id FROM requests WHERE request = ?", (request,))
        return rows[0][0] if rows else None

    def entry(self, namespace: Namespace, entry_id: str) -> Entry | None:
        """Returns the entry with this id, expired or not, or None if the namespace has none."""
        rows = self._read(
            f"SELECT {COLUMNS} FROM entries e WHERE e.id = ? AND e.namespace = ?", (entry_id, namespace.key)
        )
        return as_entry(rows[0]) if rows else None

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        """Returns the entries with these keys; keys that are gone are left out."""
        found = {}
        for some in portions(keys):
            for row in self._read(f"SELECT {COLUMNS} FROM entries e WHERE e.key IN ({marks(some)})", some):
                found[row[0]] = as_entry(row)
        return found

    def tasks(self, keys: Sequence[int]) -> dict[int, tuple[str, float]]:
        """Returns task and time of creation of the entries with these keys; keys that are gone are left out."""
        found: dict[int, tuple[str, float]] = {}
        for some in portions(keys):
            rows = self._read(f"SELECT key, task, created_at FROM entries WHERE key IN ({marks(some)})", some)
            found.update((key, (task, created_at)) for key, task, created_at in rows)
        return found

    def living(self, keys: Sequence[int]) -> set[int]:
        """Returns those of the keys whose entries are there and not archived."""
        found: set[int] = set()
        for some in portions(keys):
            rows = self._read(f"SELECT key FROM entries WHERE key IN ({marks(some)}) AND archived_at IS NULL", some)
            found.update(row[0] for row in rows)
        return found

    def tasks_by_id(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, str]:
        """Returns the task texts of these entries; ids that are gone are left out."""
        found: dict[str, str] = {}
        for some in portions(ids):
            rows = self._read(
                f"SELECT id, task FROM entries WHERE namespace = ? AND id IN ({marks(some)})", (namespace.key, *some)
            )
            found.update(rows)
        return found

    def sources(self, namespace: Namespace | None, kind: Kind) -> list[str]:
        """Returns what the entries of a kind came from, those of one namespace or of all."""
        key = None if namespace is None else namespace.key
        query = "SELECT DISTINCT source FROM entries WHERE kind = ? AND (? IS NULL OR namespace = ?) ORDER BY source"
        return [source for (source,) in self._read(query, (kind, key, key))]

    def count(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        """Returns how many live entries of these kinds there are."""
        rows = self._read(
            f"SELECT count(*) FROM entries e WHERE e.namespace = ? AND e.kind IN ({marks(kinds)}) AND {LIVE}",
            (namespace.key, *kinds, now),
        )
        return int(rows[0][0])

    def keys_of(self, ids: Sequence[str], *, archived: bool = True) -> dict[str, int]:
        """Returns id to key of these entries; ids that are gone are left out.

        Args:
            archived: Those of archived entries too.
        """
        found: dict[str, int] = {}
        condition = "" if archived else " AND archived_at IS NULL"
        for some in portions(ids):
            found.update(self._read(f"SELECT id, key FROM entries WHERE id IN ({marks(some)}){condition}", some))
        return found

    def expired(self, now: float, limit: int) -> list[tuple[int, str, int, Kind]]:
        """Returns key, id, namespace key and kind of entries whose time is over."""
        return self._read(
            "SELECT key, id, namespace, kind FROM entries WHERE expires_at IS NOT NULL AND expires_at <= ?"
            " ORDER BY expires_at LIMIT ?",
            (now, limit),
        )
