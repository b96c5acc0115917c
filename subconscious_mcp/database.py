"""memory.db: the truth. The only module that imports sqlite3.

One connection writes and one reads, each behind a lock, so that a read never waits for a
write's trip to the disk. Errors of SQLite leave this module as `StorageError`s. What is asked of the tables, and
written to them, is in the parts of `Database` (`rows`).
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from subconscious_mcp import full_text_index
from subconscious_mcp.entry_rows import EntryRows
from subconscious_mcp.errors import StorageBusy, StorageDamaged, StorageError, StorageFull
from subconscious_mcp.feedback_rows import FeedbackRows
from subconscious_mcp.namespace_rows import NamespaceRows
from subconscious_mcp.note_rows import NoteRows
from subconscious_mcp.records import Kind, Namespace
from subconscious_mcp.schema import MIGRATIONS
from subconscious_mcp.traces import HEADER_BYTES, has_traces
from subconscious_mcp.transfer_rows import TransferRows
from subconscious_mcp.vector_rows import VectorRows

log = logging.getLogger(__name__)

DATABASE_FILE = "memory.db"
BUSY_SECONDS = 10.0
"""How long a write waits for another program that holds the database. Longer than a backup's
or a browser's lock usually lasts, shorter than an agent's patience."""


class Database(TransferRows, NamespaceRows, EntryRows, NoteRows, VectorRows, FeedbackRows):
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
                if 0 < os.fstat(self._file.fileno()).st_size < HEADER_BYTES:
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
            with self.transaction():
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
        with self.transaction() as write:
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
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
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

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock, self._translated():
            yield self._reader

    def count_about(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        """Returns `count`, or what it was a hundredth of that many changes ago: counting 100,000 takes 8 ms."""
        name = (namespace.key, tuple(kinds))
        changes = self._writer.total_changes
        known = self._counts.get(name)
        if known is None or abs(changes - known[1]) > known[0] // 100:
            known = self._counts[name] = (self.count(namespace, kinds, now), changes)
        return known[0]

    # --- care

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
                with self.transaction() as write:
                    full_text_index.drop_deleted_words(write, self._full_text)
            if not self._empty_log(wait):
                return False
            if has_traces(self._file, texts):
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
                with self.transaction() as write:
                    full_text_index.check(write, table)
            except StorageDamaged:
                found.append(table)
        return found

    def rebuild_full_text(self) -> None:
        """Makes the full-text index anew from the entries."""
        with self.transaction() as write:
            full_text_index.prepare(write, self._full_text, anew=True)

    def compact(self) -> None:
        """Rewrites the file without its free pages."""
        with self._write_lock, self._translated():
            self._writer.execute("VACUUM")
        self.scrub()


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


@contextmanager
def reading_damaged(path: Path) -> Iterator[Callable[[str, Sequence[Any]], Iterator[Any]]]:
    """Lends what yields the rows of a statement on a database, to read what can be read of it; changes nothing.

    It raises a `StorageError` where the next row cannot be read.
    """
    with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)) as source:

        def rows(sql: str, parameters: Sequence[Any]) -> Iterator[Any]:
            try:
                yield from source.execute(sql, parameters)
            except sqlite3.DatabaseError as error:
                raise _as_storage_error(error, path, BUSY_SECONDS) from error

        yield rows


def _as_storage_error(error: sqlite3.DatabaseError, path: Path, busy_seconds: float) -> StorageError:
    text = str(error)
    # "Could not decode to UTF-8" comes with the text that could not, which belongs in no message.
    if any(sign in text for sign in ("malformed", "not a database", "corrupt", "checksum mismatch", "UTF-8")):
        return StorageDamaged(
            f"{path} is damaged.", "Run `subconscious-mcp doctor --repair`; it keeps the damaged file."
        )
    if "is full" in text:
        return StorageFull(f"The disk of {path} is full.", "Free some space and try again; nothing was changed.")
    if "locked" in text or "busy" in text:
        return StorageBusy(
            f"{path} is locked by another program for more than {busy_seconds:.0f} s.",
            "Close the program that has it open and try again; nothing was changed.",
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
