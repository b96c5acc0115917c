"""memory.db: the truth. The only module that imports sqlite3.

One connection writes and one reads, each behind a lock, so that a read never waits for a
write's trip to the disk. Errors of SQLite leave this module as `StorageError`s.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import consolidated_rows, full_text_index
from subconscious_mcp.errors import InvalidArgument, StorageBusy, StorageDamaged, StorageError, StorageFull
from subconscious_mcp.exact_search import as_stored
from subconscious_mcp.namespaces import short_hash
from subconscious_mcp.records import READ_BY_WORDS, Consolidated, Entry, Filters, Kind, Namespace, NewEntry, Observation
from subconscious_mcp.schema import MIGRATIONS

log = logging.getLogger(__name__)

DATABASE_FILE = "memory.db"
BUSY_SECONDS = 10.0
"""How long a write waits for another program that holds the database. Longer than a backup's
or a browser's lock usually lasts, shorter than an agent's patience."""

RECALL_WINDOW = 100
FEEDBACK_WINDOW = 200
"""Observations that are kept of an entry, the newest. With so many a threshold moves by thousandths."""
REQUEST_SECONDS = 3600.0
"""How long it is remembered which request wrote what."""
_COLUMNS = "e.key, e.id, e.kind, e.task, e.answer, e.created_at, e.expires_at, e.tags, e.source"
_COLUMNS += ", e.archived_at, e.superseded_by"
_LIVE = "e.archived_at IS NULL AND (e.expires_at IS NULL OR e.expires_at > ?)"
_HEADER_BYTES = 100
_TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""The pages of SQLite's trees by their first byte, and the length of their headers."""

_TRACE_BYTES = 16
"""A piece that is looked for after deleting: short enough to meet what is left of a text, long
enough not to be met in others."""

_MOST_TRACES = 128
_FIRST_MATCHES = 200
"""Entries below which so few hold the rarer terms of a query that those which many hold are looked at too."""
SITTING_SECONDS = 900
"""Time within which notes without a source count as told one after the other. Source: own choice."""
_MAX_VARIABLES = 500
"""Parameters a statement: below the 999 of the oldest SQLite that Python 3.10 may meet."""


@dataclass(frozen=True, slots=True)
class VectorSet:
    """The stored vectors of one namespace, kind and embedder, in the order of their keys.

    Attributes:
        keys: (n,) int64.
        vectors: (n, d) float16.
        created_at: (n,) float64, seconds since the epoch.
        expires_at: (n,) float64, +inf for never.
    """

    keys: NDArray[np.int64]
    vectors: NDArray[np.float16]
    created_at: NDArray[np.float64]
    expires_at: NDArray[np.float64]


class Database:
    """The entries, vectors, namespaces and recall outcomes of one storage directory.

    Args:
        folder: The storage directory; it must exist. memory.db is made in it with mode 0600.
        busy_seconds: See `BUSY_SECONDS`.

    Raises:
        StorageError: The file cannot be opened or written, was written by a newer version
            (nothing is changed then), or is no database (`StorageDamaged`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = folder / DATABASE_FILE
        self._busy_seconds = busy_seconds
        self._write_lock = threading.RLock()
        # Of a namespace and kinds: what `count_about` found, and how many rows had changed by then.
        self._counts: dict[tuple[int, tuple[Kind, ...]], tuple[int, int]] = {}
        self._read_lock = threading.RLock()
        with self._translated():
            # SQLite gives the write-ahead log the mode of the database file. The file stays open
            # as long as the connections, because closing any descriptor of it would drop the
            # locks that SQLite holds for this process (POSIX).
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "rb", buffering=0)
            opened: list[sqlite3.Connection] = []
            try:
                if 0 < os.fstat(self._file.fileno()).st_size < _HEADER_BYTES:
                    # SQLite takes what is shorter than its header for a new file.
                    raise sqlite3.DatabaseError("file is not a database")
                opened.append(self._connect(len(migrations)))
                self._writer = opened[0]
                self._migrate(migrations)
                self._full_text = self._prepare_full_text()
                opened.append(self._connect(len(migrations)))
                self._reader = opened[1]
            except BaseException:
                for connection in opened:
                    connection.close()
                self._file.close()
                raise

    def _connect(self, newest: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            # Before anything that writes: a newer version may keep its file in another way.
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found > newest:
                raise StorageError(
                    f"{self.path} was written by a newer version of subconscious-mcp (schema {found}).",
                    "Upgrade this installation; nothing was changed.",
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
            # What is forgotten is overwritten with zeros, also inside pages that stay in use.
            connection.execute("PRAGMA secure_delete = ON")
            # No text in temporary files.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, migrations: Sequence[Sequence[str]]) -> None:
        found = self._writer.execute("PRAGMA user_version").fetchone()[0]
        for number in range(found + 1, len(migrations) + 1):
            # One transaction a step: a kill leaves the file before or behind it, never between.
            with self._transaction():
                for statement in migrations[number - 1]:
                    self._writer.execute(statement)
                self._writer.execute(f"PRAGMA user_version = {number}")

    def _prepare_full_text(self) -> full_text_index.Features:
        able = full_text_index.features(self._writer)
        if not self._writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'full_text_state'").fetchone():
            # A file of an earlier step, which has no notes.
            return full_text_index.Features((), erases=False)
        if len(able.tables) < 2:
            log.warning(
                "This Python's SQLite lacks %s: notes are found by meaning %s.",
                "trigrams (it is older than 3.34)" if able.tables else "FTS5",
                "and whole words only" if able.tables else "only",
            )
        with self._transaction() as write:
            full_text_index.prepare(write, able)
        return able

    def close(self) -> None:
        """Closes both connections; the write-ahead log is merged into the file."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()
            self._file.close()

    # --- transactions and errors

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise _as_storage_error(error, self.path, self._busy_seconds) from error
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be opened: {error.strerror or error}.",
                "Make the storage directory writable or set SUBCONSCIOUS_STORAGE_DIR to another folder.",
            ) from error

    @contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Makes one write of the block.

        A durable one has reached the disk when the block ends; the others survive a kill of the
        process all the same, and only a power cut may take them.
        """
        with self._write_lock, self._translated():
            connection = self._writer
            if not durable:
                connection.execute("PRAGMA synchronous = NORMAL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # On a full disk SQLite may have rolled back already.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            finally:
                if not durable:
                    connection.execute("PRAGMA synchronous = FULL")

    def _read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._read_lock, self._translated():
            return self._reader.execute(sql, parameters).fetchall()

    # --- namespaces

    def namespace(self, name: str, root: str | None) -> Namespace:
        """Returns the namespace of a project, registering it at first sight.

        A derived namespace is found by its root. Where its name is taken, by another root or
        by a name that was asked for, it gets one of its own, so that two never share data.

        Args:
            name: The name that was asked for or derived.
            root: The project's folder for a derived name, else None.
        """
        with self._write_lock:
            found = self.find_namespace(name, root)
            if found is not None:
                return found
            own, number = name, 1
            while root is not None and self.find_namespace(own, None) is not None:
                # Somebody may have asked for the very name with the hash.
                own = f"{name}-{short_hash(root)}" + (f"-{number}" if number > 1 else "")
                number += 1
            with self._transaction() as write:
                write.execute(
                    "INSERT INTO namespaces (name, root, created_at) VALUES (?, ?, ?)",
                    (own, _root_as_stored(root), time.time()),
                )
            registered = self.find_namespace(own, root)
            if registered is None:  # pragma: no cover - the insert above would have raised
                raise StorageError(f"The namespace {own!r} could not be registered.")
            return registered

    def find_namespace(self, name: str, root: str | None) -> Namespace | None:
        """Returns the namespace of a root, or that of a name where there is none; None if it is not known."""
        # Whoever asks for a name gets what bears it, a project's namespace too.
        column, wanted = ("name", name) if root is None else ("root", _root_as_stored(root))
        rows = self._read(
            f"SELECT key, name, root FROM namespaces WHERE {column} = ? UNION ALL SELECT n.key, n.name, n.root"
            f" FROM merged m JOIN namespaces n ON n.key = m.namespace WHERE m.{column} = ?",
            (wanted, wanted),
        )
        return _namespace(*rows[0]) if rows else None

    def rename_namespace(self, namespace: Namespace, name: str) -> None:
        """Gives a namespace another name.

        Raises:
            InvalidArgument: Another namespace bears it.
        """
        with self._write_lock:
            known = self.find_namespace(name, None)
            if known is not None and known.key != namespace.key:
                raise InvalidArgument(
                    f"There is a namespace {name!r} already.", "Merge the two, or choose another name."
                )
            with self._transaction() as write:
                write.execute("DELETE FROM merged WHERE name = ? AND root IS NULL", (name,))
                write.execute("UPDATE merged SET name = NULL WHERE name = ?", (name,))
                write.execute("UPDATE namespaces SET name = ? WHERE key = ?", (name, namespace.key))

    def merge_namespaces(self, source: Namespace, into: Namespace) -> int:
        """Moves all entries of a namespace into another, which then serves its project too.

        Returns:
            How many entries were moved.
        """
        if source.key == into.key:
            raise InvalidArgument("A namespace cannot be merged into itself.")
        with self._transaction() as write:
            keys = (into.key, source.key)
            moved = write.execute("UPDATE entries SET namespace = ? WHERE namespace = ?", keys).rowcount
            write.execute("UPDATE recalls SET namespace = ? WHERE namespace = ?", keys)
            write.execute(
                "UPDATE namespaces SET last_hit_at = (SELECT max(last_hit_at) FROM namespaces WHERE key IN (?, ?))"
                " WHERE key = ?",
                (source.key, into.key, into.key),
            )
            write.execute("UPDATE merged SET namespace = ? WHERE namespace = ?", (into.key, source.key))
            write.execute("DELETE FROM namespaces WHERE key = ?", (source.key,))
            write.execute(
                "INSERT INTO merged (name, root, namespace) VALUES (?, ?, ?)",
                (source.name, _root_as_stored(source.root), into.key),
            )
        return moved

    def namespaces(self) -> list[tuple[Namespace, int]]:
        """Returns every namespace with its number of stored entries, by name."""
        rows = self._read(
            "SELECT n.key, n.name, n.root, (SELECT count(*) FROM entries e WHERE e.namespace = n.key) "
            "FROM namespaces n ORDER BY n.name"
        )
        return [(_namespace(key, name, root), count) for key, name, root, count in rows]

    def namespaces_by_kind(self) -> list[tuple[Namespace, dict[str, int]]]:
        """Returns every namespace, by name, with its number of stored entries of each kind."""
        found = [(namespace, dict[str, int]()) for namespace, _ in self.namespaces()]
        counts = {namespace.key: kinds for namespace, kinds in found}
        for key, kind, count in self._read("SELECT namespace, kind, count(*) FROM entries GROUP BY namespace, kind"):
            if key in counts:
                counts[key][kind] = count
        return found

    # --- entries

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
        with self._transaction() as write:
            for some in _portions(replacing):
                write.execute(f"DELETE FROM entries WHERE key IN ({_marks(some)})", some)
            if request:
                self._note_request(write, request, entries[0].id)
            model = self._fingerprint_key(write, fingerprint)
            return [
                self._insert(write, namespace, entry, model, vector)
                for entry, vector in zip(entries, stored, strict=True)
            ]

    def _insert(
        self, write: sqlite3.Connection, namespace: Namespace, entry: NewEntry, model: int, vector: NDArray[np.float16]
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
        with self._transaction() as write:
            return self._archive(write, namespace, entry_id, superseded_by, at)

    def _archive(
        self, write: sqlite3.Connection, namespace: Namespace, entry_id: str, superseded_by: str, at: float
    ) -> int | None:
        row = write.execute(
            f"SELECT e.key FROM entries e WHERE e.id = ? AND e.namespace = ? AND {_LIVE}", (entry_id, namespace.key, at)
        ).fetchone()
        if row is None:
            return None
        write.execute(
            "UPDATE entries SET archived_at = ?, superseded_by = ? WHERE key = ?", (at, superseded_by, row[0])
        )
        return int(row[0])

    def restore(self, namespace: Namespace, entry_id: str) -> int | None:
        """Lets an archived entry be found again; returns its key, or None where there is none."""
        with self._transaction() as write:
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
        with self._transaction() as write:
            old = self._archive(write, namespace, old_id, new.id, at)
            if old is None:
                return None
            if request:
                self._note_request(write, request, new.id)
            return old, self._insert(write, namespace, new, self._fingerprint_key(write, fingerprint), stored)

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
        with self._transaction() as write:
            live = f"SELECT 1 FROM entries e WHERE e.id = ? AND e.namespace = ? AND {_LIVE}"
            survivor_id = survivor if isinstance(survivor, str) else survivor.id
            for entry_id in [*members, *([survivor] if isinstance(survivor, str) else [])]:
                if write.execute(live, (entry_id, namespace.key, at)).fetchone() is None:
                    return None
            archived = [self._archive(write, namespace, entry_id, survivor_id, at) for entry_id in members]
            keys = [key for key in archived if key is not None]
            consolidated_rows.note(write, keys, survivor_id, not isinstance(survivor, str), run)
            if isinstance(survivor, str) or vector is None:
                return keys, None
            model = self._fingerprint_key(write, fingerprint)
            return keys, self._insert(write, namespace, survivor, model, as_stored(vector))

    def consolidations(self, namespace: Namespace) -> list[Consolidated]:
        """Returns what consolidations did and nobody has undone, the newest first."""
        with self._read_lock, self._translated():
            return consolidated_rows.newest_first(self._reader, namespace.key)

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
        with self._transaction() as write:
            for one in done:
                separated = consolidated_rows.separate(write, namespace.key, one.survivor, one.run)
                if separated is None:
                    left.append(one)
                    continue
                back += separated[0]
                if separated[1] is not None:
                    row = write.execute(f"SELECT {_COLUMNS} FROM entries e WHERE e.key = ?", (separated[1],)).fetchone()
                    gone.append(_entry(row))
                    write.execute("DELETE FROM entries WHERE key = ?", (separated[1],))
        # A summary may have stood for what the same run had made, which is gone now.
        return [key for key in back if key not in {entry.key for entry in gone}], gone, left

    def delete(self, keys: Sequence[int], *, request: str = "", entry_id: str = "") -> None:
        """Deletes entries with their tags and vectors; their bytes are overwritten with zeros.

        The write-ahead log may hold them until `scrub`.

        Args:
            request: Identity of the request that deletes `entry_id`, kept in the same transaction.
        """
        for some in _portions(keys):
            with self._transaction() as write:
                write.execute(f"DELETE FROM entries WHERE key IN ({_marks(some)})", some)
                if request:
                    self._note_request(write, request, entry_id)

    def _note_request(self, write: sqlite3.Connection, request: str, entry_id: str) -> None:
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

    def scrub(self, texts: Sequence[str] = (), *, wait: bool = True) -> bool:
        """Empties the write-ahead log, where deleted text may still stand, and looks for traces.

        SQLite overwrites what it deletes, but not the copies that stay in the free part of a
        page when its rows move to another one. They are rare; where a trace of `texts` is found
        the file is written anew.

        Args:
            texts: What was deleted and must be in no file.
            wait: Wait for another program that reads the database, as long as a write does.

        Returns:
            False if another program reads the database just now; the text may still be there.
        """
        with self._write_lock, self._translated():
            if self._full_text.tables and full_text_index.is_stale(self._writer):
                with self._transaction() as write:
                    full_text_index.drop_deleted_words(write, self._full_text)
            if not self._empty_log(wait):
                return False
            if self._has_traces(texts):
                self._writer.execute("VACUUM")
                return self._empty_log(wait)
        return True

    def _empty_log(self, wait: bool) -> bool:
        if not wait:
            self._writer.execute("PRAGMA busy_timeout = 0")
        try:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self._writer.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")
        return not busy

    def _has_traces(self, texts: Sequence[str]) -> bool:
        """Returns whether the free parts of the file's pages hold a piece of one of the texts.

        Reads the whole file, about 0.1 s for 100,000 entries. The write-ahead log must be empty.
        """
        pieces = {piece for text in texts for piece in _pieces(text)}
        if not pieces:
            return False
        remains: list[bytes] = []
        self._file.seek(0)
        head = self._file.read(_HEADER_BYTES)
        # The format of the file is documented: https://sqlite.org/fileformat2.html
        page_size = int.from_bytes(head[16:18], "big")
        page_size = 65_536 if page_size == 1 else page_size
        place = 0
        self._file.seek(0)
        while block := self._file.read(page_size * 256):
            for start in range(0, len(block), page_size):
                at = start + (_HEADER_BYTES if place + start == 0 else 0)
                if block[at] not in _TREE_PAGES:
                    continue
                cells = int.from_bytes(block[at + 3 : at + 5], "big")
                content = int.from_bytes(block[at + 5 : at + 7], "big") or 65_536
                free = block[at + _TREE_PAGES[block[at]] + 2 * cells : start + content].strip(b"\0")
                if free:
                    remains.append(free)
            place += len(block)
        whole = b"\0".join(remains)
        return any(piece in whole for piece in pieces)

    def entry(self, namespace: Namespace, entry_id: str) -> Entry | None:
        """Returns the entry with this id, expired or not, or None if the namespace has none."""
        rows = self._read(
            f"SELECT {_COLUMNS} FROM entries e WHERE e.id = ? AND e.namespace = ?", (entry_id, namespace.key)
        )
        return _entry(rows[0]) if rows else None

    def namespace_of(self, entry_id: str) -> Namespace | None:
        """Returns the namespace that an entry is in, or None where there is no such entry."""
        rows = self._read(
            "SELECT n.key, n.name, n.root FROM entries e JOIN namespaces n ON n.key = e.namespace WHERE e.id = ?",
            (entry_id,),
        )
        return _namespace(*rows[0]) if rows else None

    def sources(self, namespace: Namespace | None, kind: Kind) -> list[str]:
        """Returns what the entries of a kind came from, those of one namespace or of all."""
        key = None if namespace is None else namespace.key
        query = "SELECT DISTINCT source FROM entries WHERE kind = ? AND (? IS NULL OR namespace = ?) ORDER BY source"
        return [source for (source,) in self._read(query, (kind, key, key))]

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        """Returns the entries with these keys; keys that are gone are left out."""
        found = {}
        for some in _portions(keys):
            for row in self._read(f"SELECT {_COLUMNS} FROM entries e WHERE e.key IN ({_marks(some)})", some):
                found[row[0]] = _entry(row)
        return found

    def tasks(self, keys: Sequence[int]) -> dict[int, tuple[str, float]]:
        """Returns task and time of creation of the entries with these keys; keys that are gone are left out."""
        found: dict[int, tuple[str, float]] = {}
        for some in _portions(keys):
            rows = self._read(f"SELECT key, task, created_at FROM entries WHERE key IN ({_marks(some)})", some)
            found.update((key, (task, created_at)) for key, task, created_at in rows)
        return found

    def living(self, keys: Sequence[int]) -> set[int]:
        """Returns those of the keys whose entries are there and not archived."""
        found: set[int] = set()
        for some in _portions(keys):
            rows = self._read(f"SELECT key FROM entries WHERE key IN ({_marks(some)}) AND archived_at IS NULL", some)
            found.update(row[0] for row in rows)
        return found

    def tasks_by_id(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, str]:
        """Returns the task texts of these entries; ids that are gone are left out."""
        found: dict[str, str] = {}
        for some in _portions(ids):
            rows = self._read(
                f"SELECT id, task FROM entries WHERE namespace = ? AND id IN ({_marks(some)})", (namespace.key, *some)
            )
            found.update(rows)
        return found

    def count(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        """Returns how many live entries of these kinds there are."""
        rows = self._read(
            f"SELECT count(*) FROM entries e WHERE e.namespace = ? AND e.kind IN ({_marks(kinds)}) AND {_LIVE}",
            (namespace.key, *kinds, now),
        )
        return int(rows[0][0])

    def count_about(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        """Returns `count`, or what it was a hundredth of that many changes ago: counting 100,000 takes 8 ms."""
        name = (namespace.key, tuple(kinds))
        changes = self._writer.total_changes
        known = self._counts.get(name)
        if known is None or abs(changes - known[1]) > known[0] // 100:
            known = self._counts[name] = (self.count(namespace, kinds, now), changes)
        return known[0]

    def recent(
        self, namespace: Namespace, kinds: Sequence[Kind], limit: int, *, now: float, filters: Filters
    ) -> list[Entry]:
        """Returns live entries, the newest first."""
        condition, values = _condition(filters)
        found: list[Entry] = []
        for kind in dict.fromkeys(kinds):
            # One kind at a time, so that the index gives the order and no more is read than is returned.
            rows = self._read(
                f"SELECT {_COLUMNS} FROM entries e WHERE e.namespace = ? AND e.kind = ? AND {_LIVE} AND {condition}"
                " ORDER BY e.created_at DESC, e.key DESC LIMIT ?",
                (namespace.key, kind, now, *values, limit),
            )
            found += [_entry(row) for row in rows]
        found.sort(key=lambda entry: (-entry.created_at, -entry.key))
        return found[:limit]

    def beside(self, keys: Sequence[int], now: float) -> dict[int, tuple[int | None, int | None]]:
        """Returns the keys of the live entries before and after each entry; see `Store.beside`."""
        found: dict[int, tuple[int | None, int | None]] = {}
        order = (
            "n.namespace = e.namespace AND n.kind = e.kind AND n.source = e.source AND n.kind IN ('note', 'fact', 'chunk')"
            f" AND (n.source != '' OR n.created_at BETWEEN e.created_at - {SITTING_SECONDS} AND"
            f" e.created_at + {SITTING_SECONDS})"
        )
        live = "n.archived_at IS NULL AND (n.expires_at IS NULL OR n.expires_at > ?)"
        sides = ", ".join(
            f"(SELECT n.key FROM entries n WHERE {order} AND (n.created_at, n.key) {sign} (e.created_at, e.key)"
            f" AND {live} ORDER BY n.created_at {way}, n.key {way} LIMIT 1)"
            for sign, way in (("<", "DESC"), (">", "ASC"))
        )
        for some in _portions(keys):
            rows = self._read(
                f"SELECT e.key, {sides} FROM entries e WHERE e.key IN ({_marks(some)})", (now, now, *some)
            )
            found.update({key: (before, after) for key, before, after in rows})
        return found

    def tag_counts(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> dict[str, int]:
        """Returns how many live entries of these kinds bear each tag."""
        return dict(
            self._read(
                "SELECT t.tag, count(*) FROM entries e JOIN tags t ON t.entry = e.key"
                f" WHERE e.namespace = ? AND e.kind IN ({_marks(kinds)}) AND {_LIVE} GROUP BY t.tag ORDER BY t.tag",
                (namespace.key, *kinds, now),
            )
        )

    def filtered(self, namespace: Namespace, kind: Kind, filters: Filters) -> NDArray[np.int64]:
        """Returns the keys, (n,) int64, of the entries of a kind that a filter lets through."""
        condition, values = _condition(filters)
        rows = self._read(
            f"SELECT e.key FROM entries e WHERE e.namespace = ? AND e.kind = ? AND {condition} ORDER BY e.key",
            (namespace.key, kind, *values),
        )
        return np.array([row[0] for row in rows], dtype=np.int64)

    # --- full text

    def holders(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        terms: Sequence[str],
        query: str,
        *,
        now: float,
        filters: Filters,
    ) -> tuple[list[tuple[str, NDArray[np.int64]]], list[str]]:
        """Returns the live entries that hold each term, and the terms that too many hold; see `Store.holders`."""
        condition, values = _condition(filters)
        live = (
            f"e.namespace = ? AND e.kind IN ({_marks(kinds)}) AND {_LIVE} AND {condition}",
            (namespace.key, *kinds, now, *values),
        )
        held = full_text_index.holders(self._read, self._full_text, terms, query, full_text_index.MOST_HOLDERS)
        common = [term for term, keys in held if keys is None]
        found = [(term, keys) for term, keys in held if keys is not None]
        if filters != Filters() or self._indexes_others(namespace, kinds, now):
            found = self._among(found, *live)
        if common and sum(len(keys) for _, keys in found) < _FIRST_MATCHES:
            # What many hold may be what tells in the few entries that the namespace has, or the filter lets through.
            held = full_text_index.holders(self._read, self._full_text, common, "", None)
            found += self._among([(term, keys) for term, keys in held if keys is not None], *live)
            common = []
        return found, common

    def _indexes_others(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> bool:
        """Returns whether the full-text index knows entries of other namespaces or kinds, or that are over."""
        others = [kind for kind in READ_BY_WORDS if kind not in kinds]
        return bool(
            self._read(
                "SELECT EXISTS (SELECT 1 FROM namespaces n WHERE n.key != ? AND EXISTS"
                f" (SELECT 1 FROM entries e WHERE e.namespace = n.key AND e.kind IN ({_marks(READ_BY_WORDS)})))"
                f" OR EXISTS (SELECT 1 FROM entries e WHERE e.namespace = ? AND e.kind IN ({_marks(others)}))"
                " OR EXISTS (SELECT 1 FROM entries e WHERE e.expires_at IS NOT NULL AND e.expires_at <= ?)",
                (namespace.key, *READ_BY_WORDS, namespace.key, *others, now),
            )[0][0]
        )

    def _among(
        self, held: Sequence[tuple[str, NDArray[np.int64]]], condition: str, values: Sequence[Any]
    ) -> list[tuple[str, NDArray[np.int64]]]:
        """Returns of each term's entries those that are wanted."""
        if not held:
            return []
        everyone = np.unique(np.concatenate([keys for _, keys in held]))
        # As text both ways: for thousands of keys that takes a tenth of the time.
        listed = self._read(
            "SELECT group_concat(e.key) FROM entries e WHERE e.key IN (SELECT value FROM json_each(?))"
            f" AND {condition}",
            (f"[{','.join(map(str, everyone.tolist()))}]", *values),
        )[0][0]
        wanted = np.fromstring(listed or "", dtype=np.int64, sep=",")
        return [(term, keys[np.isin(keys, wanted)]) for term, keys in held]

    def tagged(self, namespace: Namespace, kind: Kind, tags: Sequence[str]) -> NDArray[np.int64]:
        """Returns the keys, (n,) int64, of entries that bear at least one of the tags."""
        keys: set[int] = set()
        for some in _portions(tags):
            rows = self._read(
                f"SELECT t.entry FROM tags t JOIN entries e ON e.key = t.entry WHERE t.tag IN ({_marks(some)})"
                " AND e.namespace = ? AND e.kind = ?",
                (*some, namespace.key, kind),
            )
            keys.update(row[0] for row in rows)
        return np.array(sorted(keys), dtype=np.int64)

    def expired(self, now: float, limit: int) -> list[tuple[int, str, int, Kind]]:
        """Returns key, id, namespace key and kind of entries whose time is over."""
        return self._read(
            "SELECT key, id, namespace, kind FROM entries WHERE expires_at IS NOT NULL AND expires_at <= ?"
            " ORDER BY expires_at LIMIT ?",
            (now, limit),
        )

    # --- vectors

    def _fingerprint_key(self, write: sqlite3.Connection, fingerprint: str) -> int:
        write.execute("INSERT OR IGNORE INTO fingerprints (fingerprint) VALUES (?)", (fingerprint,))
        return int(write.execute("SELECT key FROM fingerprints WHERE fingerprint = ?", (fingerprint,)).fetchone()[0])

    def _known_fingerprint(self, fingerprint: str) -> int | None:
        rows = self._read("SELECT key FROM fingerprints WHERE fingerprint = ?", (fingerprint,))
        return int(rows[0][0]) if rows else None

    def fingerprints(self) -> dict[str, int]:
        """Returns every embedder's fingerprint with its number of vectors."""
        return dict(
            self._read(
                "SELECT f.fingerprint, count(v.entry) FROM fingerprints f"
                " LEFT JOIN vectors v ON v.fingerprint = f.key GROUP BY f.key"
            )
        )

    def vector_set(
        self,
        namespace: int,
        kind: Kind,
        fingerprint: str,
        dimension: int,
        *,
        keys: NDArray[np.int64] | None = None,
        after: int = 0,
        limit: int = -1,
        archived: bool = False,
    ) -> VectorSet:
        """Returns the vectors of a set, or of those entries of it that `keys` names.

        Args:
            archived: Those of archived entries too.
            after: Only entries with a larger key, for reading a large set in pages.
            limit: How many at most; -1 for all.
        """
        model = self._known_fingerprint(fingerprint)
        rows: list[Any] = []
        if model is not None:
            sql = (
                "SELECT e.key, v.vector, e.created_at, e.expires_at FROM entries e"
                " JOIN vectors v ON v.fingerprint = ? AND v.entry = e.key WHERE e.namespace = ? AND e.kind = ?"
                + ("" if archived else " AND e.archived_at IS NULL")
            )
            if keys is None:
                rows = self._read(sql + " AND e.key > ? ORDER BY e.key LIMIT ?", (model, namespace, kind, after, limit))
            else:
                for some in _portions(keys.tolist()):
                    rows += self._read(f"{sql} AND e.key IN ({_marks(some)})", (model, namespace, kind, *some))
        whole = b"".join(row[1] for row in rows)
        # Each, not the sum: one that is too long must not make up for one that is too short.
        if any(len(row[1]) != dimension * 2 for row in rows):
            raise StorageDamaged(
                f"{self.path} holds vectors of another length than the model's.",
                "Run `subconscious-mcp doctor --repair`.",
            )
        return VectorSet(
            np.array([row[0] for row in rows], dtype=np.int64),
            np.frombuffer(whole, dtype=np.float16).reshape(-1, dimension),
            np.array([row[2] for row in rows], dtype=np.float64),
            np.array([np.inf if row[3] is None else row[3] for row in rows], dtype=np.float64),
        )

    def sets(self, fingerprint: str) -> list[tuple[Namespace, Kind, int]]:
        """Returns namespace, kind and number of vectors of each set that an embedder has."""
        model = self._known_fingerprint(fingerprint)
        rows = self._read(
            "SELECT n.key, n.name, n.root, e.kind, count(*) FROM vectors v JOIN entries e ON e.key = v.entry"
            " JOIN namespaces n ON n.key = e.namespace WHERE v.fingerprint = ? AND e.archived_at IS NULL"
            " GROUP BY n.key, e.kind",
            (model,),
        )
        return [(_namespace(key, name, root), kind, count) for key, name, root, kind, count in rows]

    def ids(self, namespace: int, kind: Kind, fingerprint: str) -> dict[str, int]:
        """Returns id to key of every entry of a set that this embedder has embedded."""
        model = self._known_fingerprint(fingerprint)
        return dict(
            self._read(
                "SELECT e.id, e.key FROM entries e JOIN vectors v ON v.fingerprint = ? AND v.entry = e.key"
                " WHERE e.namespace = ? AND e.kind = ? AND e.archived_at IS NULL",
                (model, namespace, kind),
            )
        )

    def keys_of(self, ids: Sequence[str], *, archived: bool = True) -> dict[str, int]:
        """Returns id to key of these entries; ids that are gone are left out.

        Args:
            archived: Those of archived entries too.
        """
        found: dict[str, int] = {}
        condition = "" if archived else " AND archived_at IS NULL"
        for some in _portions(ids):
            found.update(self._read(f"SELECT id, key FROM entries WHERE id IN ({_marks(some)}){condition}", some))
        return found

    def unembedded(self, fingerprint: str, limit: int, *, after: int = 0) -> list[tuple[int, str]]:
        """Returns key and task of entries that this embedder has not embedded, oldest first.

        Args:
            after: Only entries with a larger key, so that going through many takes one pass.
        """
        model = self._known_fingerprint(fingerprint) or -1
        return self._read(
            "SELECT e.key, e.task FROM entries e WHERE e.key > ? AND NOT EXISTS"
            " (SELECT 1 FROM vectors v WHERE v.fingerprint = ? AND v.entry = e.key) ORDER BY e.key LIMIT ?",
            (after, model, limit),
        )

    def count_unembedded(self, fingerprint: str, namespace: Namespace | None = None) -> int:
        """Returns how many entries this embedder has not embedded."""
        model = self._known_fingerprint(fingerprint) or -1
        rows = self._read(
            "SELECT count(*) FROM entries e WHERE (? IS NULL OR e.namespace = ?) AND NOT EXISTS"
            " (SELECT 1 FROM vectors v WHERE v.fingerprint = ? AND v.entry = e.key)",
            (namespace and namespace.key, namespace and namespace.key, model),
        )
        return int(rows[0][0])

    def set_vectors(
        self, fingerprint: str, keys: Sequence[int], vectors: NDArray[np.float32]
    ) -> list[tuple[int, int, Kind]]:
        """Stores the vectors, (n, d) float32, of entries that are still there.

        Returns:
            Key, namespace key and kind of those entries.
        """
        stored = as_stored(vectors)
        done: list[tuple[int, int, Kind]] = []
        with self._transaction() as write:
            model = self._fingerprint_key(write, fingerprint)
            for key, vector in zip(keys, stored, strict=True):
                row = write.execute("SELECT key, namespace, kind FROM entries WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    write.execute(
                        "INSERT OR REPLACE INTO vectors (fingerprint, entry, vector) VALUES (?, ?, ?)",
                        (model, key, vector.tobytes()),
                    )
                    done.append(row)
        return done

    def count_damaged_vectors(self, fingerprint: str, dimension: int) -> int:
        """Returns how many vectors are of another length than the model's."""
        model = self._known_fingerprint(fingerprint) or -1
        rows = self._read(
            "SELECT count(*) FROM vectors WHERE fingerprint = ? AND length(vector) != ?", (model, dimension * 2)
        )
        return int(rows[0][0])

    def drop_damaged_vectors(self, fingerprint: str, dimension: int) -> int:
        """Removes vectors of another length than the model's; their texts are embedded again.

        Returns:
            How many were removed.
        """
        model = self._known_fingerprint(fingerprint) or -1
        with self._transaction() as write:
            cursor = write.execute(
                "DELETE FROM vectors WHERE fingerprint = ? AND length(vector) != ?", (model, dimension * 2)
            )
            return cursor.rowcount

    # --- recall outcomes

    def record_recalls(self, outcomes: Sequence[tuple[int, float, bool]]) -> None:
        """Notes recalls as (namespace key, seconds since the epoch, hit); keeps the last 100 of each."""
        with self._transaction(durable=False) as write:
            for namespace, at, hit in outcomes:
                write.execute("INSERT INTO recalls (namespace, at, hit) VALUES (?, ?, ?)", (namespace, at, int(hit)))
                if hit:
                    write.execute("UPDATE namespaces SET last_hit_at = ? WHERE key = ?", (at, namespace))
            for namespace in {outcome[0] for outcome in outcomes}:
                write.execute(
                    "DELETE FROM recalls WHERE namespace = ? AND key <= (SELECT key FROM recalls"
                    " WHERE namespace = ? ORDER BY key DESC LIMIT 1 OFFSET ?)",
                    (namespace, namespace, RECALL_WINDOW),
                )

    def recall_outcomes(self, namespace: Namespace) -> tuple[float | None, list[bool]]:
        """Returns when the last hit was, and the outcomes of the last 100 recalls."""
        last = self._read("SELECT last_hit_at FROM namespaces WHERE key = ?", (namespace.key,))
        rows = self._read(
            "SELECT hit FROM recalls WHERE namespace = ? ORDER BY key DESC LIMIT ?", (namespace.key, RECALL_WINDOW)
        )
        return (last[0][0] if last else None), [bool(row[0]) for row in rows]

    # --- feedback

    def note_feedback(self, namespace: Namespace, query: str, observation: Observation) -> bool:
        """Notes what somebody said of an entry's answer, in place of what was said of the same query.

        Args:
            query: A hash of the query; its text is not stored.

        Returns:
            Whether the namespace has the entry.
        """
        with self._transaction() as write:
            row = write.execute(
                "SELECT key FROM entries WHERE id = ? AND namespace = ?", (observation.entry_id, namespace.key)
            ).fetchone()
            if row is None:
                return False
            self._insert_feedback(write, row[0], query, observation)
            write.execute(
                "DELETE FROM feedback WHERE entry = ? AND key <= (SELECT key FROM feedback"
                " WHERE entry = ? ORDER BY key DESC LIMIT 1 OFFSET ?)",
                (row[0], row[0], FEEDBACK_WINDOW),
            )
        return True

    def _insert_feedback(self, write: sqlite3.Connection, entry: int, query: str, observation: Observation) -> None:
        write.execute(
            "INSERT OR REPLACE INTO feedback (entry, query, fingerprint, similarity, correct, kept_back, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                entry,
                query,
                observation.fingerprint,
                observation.similarity,
                int(observation.correct),
                int(observation.kept_back),
                observation.at,
            ),
        )

    def feedback(self, namespace: Namespace, entry_id: str | None = None) -> list[Observation]:
        """Returns what was said of an entry's answer, or of all entries of the namespace, oldest first."""
        rows = self._read(
            "SELECT e.id, f.similarity, f.correct, f.at, f.fingerprint, f.kept_back FROM entries e"
            f" JOIN feedback f ON f.entry = e.key WHERE e.namespace = ? {'' if entry_id is None else 'AND e.id = ?'}"
            " ORDER BY f.key",
            (namespace.key,) if entry_id is None else (namespace.key, entry_id),
        )
        return [_observation(*row) for row in rows]

    # --- care

    def problems(self) -> list[str]:
        """Returns what SQLite's integrity check finds; empty when the file is sound."""
        try:
            rows = self._read("PRAGMA integrity_check(20)")
        except StorageDamaged as error:
            # So damaged that the check itself cannot go on.
            return [error.message]
        # Newer SQLite looks into the full-text index too, which is no truth and has a check of its own.
        return [row[0] for row in rows if row[0] != "ok" and "fts5" not in row[0].lower()]

    @property
    def full_text(self) -> full_text_index.Features:
        """What this build of SQLite can do for the search by words."""
        return self._full_text

    def full_text_problems(self) -> list[str]:
        """Returns the tables of the full-text index that do not agree with the entries."""
        found = []
        for table in self._full_text.tables:
            try:
                with self._transaction() as write:
                    full_text_index.check(write, table)
            except StorageDamaged:
                found.append(table)
        return found

    def rebuild_full_text(self) -> None:
        """Makes the full-text index anew from the entries."""
        with self._transaction() as write:
            full_text_index.prepare(write, self._full_text, anew=True)

    def _copy(self, rows: Sequence[Sequence[Any]]) -> int:
        """Stores rows that were read from another file: all but key and namespace as they were."""
        copied = 0
        with self._transaction() as write:
            for row in rows:
                cursor = write.execute(
                    "INSERT OR IGNORE INTO entries (id, kind, task, answer, created_at, expires_at, tags, source,"
                    " archived_at, superseded_by, namespace)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*row[:6], json.dumps(_tags(row[6]), ensure_ascii=False), *row[7:]),
                )
                if cursor.rowcount == 1:
                    copied += 1
                    write.executemany(
                        "INSERT INTO tags (tag, entry) VALUES (?, ?)",
                        [(tag, cursor.lastrowid) for tag in dict.fromkeys(_tags(row[6]))],
                    )
        return copied

    def _copy_feedback(self, rows: Sequence[tuple[str, Observation]]) -> None:
        """Stores feedback that was read from another file, of entries that were copied."""
        keys = self.keys_of([observation.entry_id for _, observation in rows])
        with self._transaction() as write:
            for query, observation in rows:
                if observation.entry_id in keys:
                    self._insert_feedback(write, keys[observation.entry_id], query, observation)

    def compact(self) -> None:
        """Rewrites the file without its free pages."""
        with self._write_lock, self._translated():
            self._writer.execute("VACUUM")
        self.scrub()

    # --- transfer

    def last_key(self) -> int:
        """Returns the key of the newest entry, 0 where there is none."""
        return int(self._read("SELECT coalesce(max(key), 0) FROM entries")[0][0])

    def count_for_export(self, namespaces: Sequence[int], kinds: Sequence[Kind], upto: int, now: float) -> int:
        """Returns how many entries `export_page` yields for these namespaces."""
        count = 0
        for some in _portions(namespaces):
            sql = f"SELECT count(*) FROM entries e WHERE e.namespace IN ({_marks(some)}) AND {_exported(kinds)}"
            count += int(self._read(sql, (*some, upto, now, *kinds))[0][0])
        return count

    def export_page(
        self,
        namespace: int,
        kinds: Sequence[Kind],
        fingerprint: str | None,
        *,
        after: int,
        upto: int,
        now: float,
        most: int,
        most_bytes: int,
    ) -> list[tuple[Entry, bytes | None]]:
        """Returns entries that are not expired, by key, with their vectors as stored: float16, little-endian.

        Args:
            fingerprint: Whose vectors; None for none.
            after: Only entries with a larger key.
            upto: Only entries with this key or a smaller one.
            most: How many at most.
            most_bytes: The page ends behind the entry whose texts reach this size.
        """
        model = self._known_fingerprint(fingerprint) if fingerprint else None
        # The plus keeps SQLite from sorting the whole namespace for each page: keys are read in their order.
        sql = (
            f"SELECT {_COLUMNS}, v.vector FROM entries e LEFT JOIN vectors v ON v.fingerprint = ? AND v.entry = e.key"
            f" WHERE e.key > ? AND +e.namespace = ? AND {_exported(kinds)} ORDER BY e.key LIMIT ?"
        )
        page: list[tuple[Entry, bytes | None]] = []
        with self._read_lock, self._translated():
            size = 0
            for row in self._reader.execute(sql, (model, after, namespace, upto, now, *kinds, most)):
                page.append((_entry(row[:-1]), row[-1]))
                size += len(row[3]) + len(row[4])
                if size >= most_bytes:
                    break
        return page

    def feedback_page(self, namespace: int, *, after: int, most: int) -> list[tuple[int, str, Observation]]:
        """Returns feedback on entries of a namespace as (its key, hash of the query, what was said), oldest first."""
        rows = self._read(
            "SELECT f.key, f.query, e.id, f.similarity, f.correct, f.at, f.fingerprint, f.kept_back FROM feedback f"
            " JOIN entries e ON e.key = f.entry WHERE f.key > ? AND e.namespace = ? ORDER BY f.key LIMIT ?",
            (after, namespace, most),
        )
        return [(row[0], row[1], _observation(*row[2:])) for row in rows]

    def add_feedback(self, said: Sequence[tuple[str, Observation]]) -> int:
        """Stores feedback as (hash of the query, what was said) where there is none on the same query yet.

        Returns:
            How much was stored; what is about entries that are not there is left out.
        """
        keys = self.keys_of(list({observation.entry_id for _, observation in said}))
        added = 0
        with self._transaction() as write:
            for query, observation in said:
                key = keys.get(observation.entry_id)
                count, known = write.execute(
                    "SELECT count(*), coalesce(sum(query = ?), 0) FROM feedback WHERE entry = ?", (query, key)
                ).fetchone()
                # What is there stays, so that the same once more changes nothing.
                if key is not None and not known and count < FEEDBACK_WINDOW:
                    self._insert_feedback(write, key, query, observation)
                    added += 1
        return added

    def add_consolidated(self, namespace: Namespace | None, done: Consolidated) -> None:
        """Notes what an export says of a consolidation, of archived entries of which nothing is noted yet.

        Args:
            namespace: Only entries of this one; None for any.
        """
        key = None if namespace is None else namespace.key
        with self._transaction() as write:
            for some in _portions(done.members):
                write.execute(
                    "INSERT OR IGNORE INTO consolidated (entry, survivor, made, run) SELECT key, ?, ?, ? FROM entries"
                    f" WHERE id IN ({_marks(some)}) AND (? IS NULL OR namespace = ?) AND archived_at IS NOT NULL",
                    (done.survivor, done.made, done.run, *some, key, key),
                )

    def found(self, ids: Sequence[str]) -> dict[str, tuple[int, Entry]]:
        """Returns namespace key and entry of those ids that are there, whichever namespace they are in."""
        found: dict[str, tuple[int, Entry]] = {}
        for some in _portions(ids):
            sql = f"SELECT e.namespace, {_COLUMNS} FROM entries e WHERE e.id IN ({_marks(some)})"
            found.update((row[2], (row[0], _entry(row[1:]))) for row in self._read(sql, some))
        return found

    def merged(self, namespace: Namespace) -> list[tuple[str | None, str | None]]:
        """Returns the names and roots that lead to a namespace since others were merged into it."""
        rows = self._read("SELECT name, root FROM merged WHERE namespace = ? ORDER BY rowid", (namespace.key,))
        return [(name, _namespace(0, "", root).root) for name, root in rows]

    def add_merged(self, namespace: Namespace, name: str | None, root: str | None) -> bool:
        """Lets a name and a root lead to a namespace, unless one of them leads somewhere already."""
        with self._write_lock:
            if (name is not None and self.find_namespace(name, None)) or (root and self.find_namespace("", root)):
                return False
            with self._transaction() as write:
                write.execute(
                    "INSERT INTO merged (name, root, namespace) VALUES (?, ?, ?)",
                    (name, _root_as_stored(root), namespace.key),
                )
        return True


def copy_database(source: Path, target: Path) -> None:
    """Copies a database as it is at one moment, also while other processes write it.

    Args:
        source: It must be there.
        target: A new file, made with mode 0600, that is whole and needs no log of its own when this returns.

    Raises:
        StorageError: One of the two cannot be used; `StorageDamaged` if the source is no database.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(sqlite3.connect(target)) as copy:
            # rw and not ro: what a killed process left in the log belongs to the data.
            with closing(sqlite3.connect(source.absolute().as_uri() + "?mode=rw", uri=True)) as read:
                read.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
                # All pages in one step: while it lasts a writer may append to the log, and nothing begins anew.
                read.backup(copy)
            # The copy is read where nobody writes, and is hashed: one file.
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        raise _as_storage_error(error, source, BUSY_SECONDS) from error


def examine_database(path: Path) -> tuple[int, int, list[str]]:
    """Returns the schema's number, the number of rows of `entries` or `episodes`, and what the integrity check finds.

    Changes nothing, not even a log beside it.

    Raises:
        StorageError: It cannot be read; `StorageDamaged` if it is no database.
    """
    try:
        with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=ro&immutable=1", uri=True)) as read:
            problems = [row[0] for row in read.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            tables = {row[0] for row in read.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            table = next((name for name in ("entries", "episodes") if name in tables), None)
            count = read.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if table and not problems else 0
            return int(read.execute("PRAGMA user_version").fetchone()[0]), int(count), problems
    except sqlite3.DatabaseError as error:
        raise _as_storage_error(error, path, BUSY_SECONDS) from error


def salvage(damaged: Path, fresh: Database) -> tuple[int, int]:
    """Copies every readable entry of a damaged memory.db into a fresh one.

    Vectors are not copied: they are embedded again from the texts.

    Returns:
        How many entries were copied, and how many rows could not be read.
    """
    source = sqlite3.connect(damaged.absolute().as_uri() + "?mode=ro", uri=True)
    copied = lost = 0
    try:
        # Raises where not even the list of tables can be read.
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        namespaces: dict[object, Namespace] = {}
        for row in _readable(source, "namespaces", "key, name, root"):
            if row is not None and isinstance(row[1], str):
                namespaces[row[0]] = fresh.namespace(row[1], _namespace(*row).root)
        _salvage_merged(source, namespaces, fresh)
        rows: list[Any] = []
        ids: dict[int, str] = {}
        for row in _readable(source, "entries", _columns_of(source)):
            if row is None or not _is_sound(row):
                lost += 1
                continue
            if row[11] not in namespaces:
                namespaces[row[11]] = fresh.namespace(f"salvaged-{row[11]}", None)
            rows.append((*row[1:11], namespaces[row[11]].key))
            ids[row[0]] = row[1]
            if len(rows) == _MAX_VARIABLES:
                copied += fresh._copy(rows)
                rows = []
        copied += fresh._copy(rows)
        _salvage_feedback(source, ids, fresh)
    except sqlite3.DatabaseError:
        pass
    finally:
        source.close()
    return copied, lost


def _salvage_merged(source: sqlite3.Connection, namespaces: Mapping[object, Namespace], fresh: Database) -> None:
    """Copies which names and roots lead to another namespace, as far as that can be read."""
    rows: list[tuple[Any, Any, int]] = []
    with suppress(sqlite3.DatabaseError):
        for name, root, key in source.execute("SELECT name, root, namespace FROM merged"):
            if key in namespaces:
                rows.append((name, root, namespaces[key].key))
    with fresh._transaction() as write:
        write.executemany("INSERT OR IGNORE INTO merged (name, root, namespace) VALUES (?, ?, ?)", rows)


def _salvage_feedback(source: sqlite3.Connection, ids: Mapping[int, str], fresh: Database) -> None:
    """Copies the readable feedback on entries that were copied, by the keys that these had."""
    said: list[tuple[str, Observation]] = []
    for row in _readable(source, "feedback", "key, entry, query, similarity, correct, at, fingerprint, kept_back"):
        with suppress(ValueError, TypeError):
            if row is not None and row[1] in ids and 0.0 <= float(row[3]) <= 1.0:
                said.append((str(row[2]), _observation(ids[row[1]], *row[3:])))
    fresh._copy_feedback(said)


def _columns_of(source: sqlite3.Connection) -> str:
    """Returns the columns of an entry and its namespace, as a file of any version has them."""
    known = {row[1] for row in source.execute("PRAGMA table_info(entries)")}
    columns = _COLUMNS.replace("e.", "")
    if "archived_at" not in known:
        columns = columns.replace("archived_at", "NULL").replace("superseded_by", "''")
    return f"{columns}, namespace"


def _is_sound(row: Sequence[Any]) -> bool:
    """Returns whether a row of a damaged file holds what an entry may hold."""
    return (
        all(isinstance(text, str) for text in (*row[1:5], row[8], row[10]))
        and row[2] in get_args(Kind)
        and isinstance(row[5], (int, float))
        and all(at is None or isinstance(at, (int, float)) for at in (row[6], row[9]))
    )


def _readable(source: sqlite3.Connection, table: str, columns: str) -> Iterator[Any]:
    """Yields the rows of a damaged table one by one, None for each that cannot be read."""
    last = _last_key(source, table)
    # Without a known end, so many unreadable keys in a row are taken for it.
    most_misses = 10_000 if last is None else last
    key, misses = 0, 0
    while misses <= most_misses and (last is None or key < last):
        try:
            row = source.execute(f"SELECT {columns} FROM {table} WHERE key > ? ORDER BY key LIMIT 1", (key,)).fetchone()
            if row is None:
                return
            yield row
            key, misses = row[0], 0
        except sqlite3.DatabaseError:
            # Step over the damaged page key by key, by exact look-ups.
            key += 1
            misses += 1
            try:
                row = source.execute(f"SELECT {columns} FROM {table} WHERE key = ?", (key,)).fetchone()
            except sqlite3.DatabaseError:
                if last is not None:
                    yield None
                continue
            if row is not None:
                yield row


def _last_key(source: sqlite3.Connection, table: str) -> int | None:
    """Returns the highest key that a table has or had, None where that cannot be read."""
    for sql in (f"SELECT max(key) FROM {table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):
        try:
            row = source.execute(sql).fetchone()
        except sqlite3.DatabaseError:
            continue
        return int(row[0]) if row and isinstance(row[0], int) else 0
    return None


def _as_storage_error(error: sqlite3.DatabaseError, path: Path, busy_seconds: float) -> StorageError:
    text = str(error)
    # "Could not decode to UTF-8" comes with the text that could not, which belongs in no message.
    if any(sign in text for sign in ("malformed", "not a database", "corrupt", "checksum mismatch", "UTF-8")):
        return StorageDamaged(
            f"{path} is damaged.", "Run `subconscious-mcp doctor --repair`; it keeps the damaged file."
        )
    if "is full" in text:
        return StorageFull(f"The disk of {path} is full.", "Free some space and try again; nothing was stored.")
    if "locked" in text or "busy" in text:
        return StorageBusy(
            f"{path} is locked by another program for more than {busy_seconds:.0f} s.",
            "Close the program that has it open and try again; nothing was stored.",
        )
    if "readonly" in text or "unable to open" in text or "permission" in text.lower():
        return StorageError(
            f"{path} cannot be written ({text}).",
            "Make the storage directory writable or set SUBCONSCIOUS_STORAGE_DIR to another folder.",
        )
    if "disk I/O error" in text:
        return StorageError(
            f"The disk of {path} reports an error.", "Check the disk, then run `subconscious-mcp doctor`."
        )
    return StorageError(f"{path}: {text}.", "Run `subconscious-mcp doctor`.")


def _entry(row: Sequence[Any]) -> Entry:
    return Entry(row[0], row[1], row[2], row[3], row[4], row[5], row[6], _tags(row[7]), *row[8:])


def _observation(entry_id: str, *stored: Any) -> Observation:
    similarity, correct, at, fingerprint, kept_back = stored
    return Observation(entry_id, float(similarity), bool(correct), float(at), str(fingerprint), bool(kept_back))


def _tags(stored: Any) -> tuple[str, ...]:
    try:
        tags = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        return ()
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _exported(kinds: Sequence[Kind]) -> str:
    """Returns the condition for `upto`, `now` and the kinds, none for all."""
    of_kind = f" AND e.kind IN ({_marks(kinds)})" if kinds else ""
    return f"e.key <= ? AND (e.expires_at IS NULL OR e.expires_at > ?){of_kind}"


def _root_as_stored(root: str | None) -> str | bytes | None:
    """Returns a folder as it is kept: as bytes where its name is not valid Unicode."""
    if root is None:
        return None
    try:
        root.encode("utf-8")
    except UnicodeEncodeError:
        return root.encode("utf-8", "surrogatepass")
    return root


def _namespace(key: int, name: str, root: str | bytes | None) -> Namespace:
    return Namespace(key, name, root.decode("utf-8", "surrogatepass") if isinstance(root, bytes) else root)


def _pieces(text: str) -> Iterator[bytes]:
    """Yields parts of a text, spread evenly, so that what is left of it holds one of them."""
    raw = text.encode("utf-8", "replace")
    stride = max(_TRACE_BYTES, len(raw) // _MOST_TRACES)
    for start in range(0, max(1, len(raw) - _TRACE_BYTES + 1), stride):
        piece = raw[start : start + _TRACE_BYTES]
        if len(piece) >= _TRACE_BYTES // 4:
            yield piece


def _condition(filters: Filters) -> tuple[str, list[Any]]:
    """Returns what a filter asks of `entries e`, as SQL, and its values."""
    asked, values = ["1"], list[Any]()
    if filters.tags:
        asked.append(f"e.key IN (SELECT t.entry FROM tags t WHERE t.tag IN ({_marks(filters.tags)}))")
        values += filters.tags
    for condition, value in (
        ("e.created_at >= ?", filters.since),
        ("e.created_at <= ?", filters.until),
        ("e.source = ?", filters.source),
    ):
        if value is not None:
            asked.append(condition)
            values.append(value)
    return " AND ".join(asked), values


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))


def _portions(values: Sequence[Any]) -> Iterable[list[Any]]:
    for start in range(0, len(values), _MAX_VARIABLES):
        yield list(values[start : start + _MAX_VARIABLES])
