"""What the rows of memory.db are as records, and what the statements on them share.

`Database` is made of parts, a module for each subject (`namespace_rows`, `entry_rows`, `vector_rows`, ...). A part is a
class on `Rows`: it knows its tables, and of the connections only how to read and how to write.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subconscious_mcp.records import Entry, Filters, Namespace, Observation

if TYPE_CHECKING:
    from sqlite3 import Connection

COLUMNS = "e.key, e.id, e.kind, e.task, e.answer, e.created_at, e.expires_at, e.tags, e.source"
COLUMNS += ", e.archived_at, e.superseded_by"
"""Of `entries e`, what `as_entry` takes."""
LIVE = "e.archived_at IS NULL AND (e.expires_at IS NULL OR e.expires_at > ?)"
"""Of `entries e`, those that may be found at a time."""
MOST_VARIABLES = 500
"""Parameters a statement: below the 999 of the oldest SQLite that Python 3.10 may meet."""


class Rows(ABC):
    """A database as its statements see it.

    Attributes:
        path: The file, for messages.
    """

    path: Path
    _write_lock: threading.RLock

    @abstractmethod
    def transaction(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """Makes one write of the block.

        A durable one has reached the disk when the block ends; the others survive a kill of the
        process all the same, and only a power cut may take them.
        """

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]:
        """Lends the connection that reads to the block."""

    def _read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._reading() as read:
            return read.execute(sql, parameters).fetchall()


def as_entry(row: Sequence[Any]) -> Entry:
    """Returns the entry of a row of `COLUMNS`."""
    return Entry(row[0], row[1], row[2], row[3], row[4], row[5], row[6], as_tags(row[7]), *row[8:])


def as_observation(entry_id: str, *stored: Any) -> Observation:
    """Returns feedback on an entry of a row of similarity, correct, at, fingerprint and kept_back."""
    similarity, correct, at, fingerprint, kept_back = stored
    return Observation(entry_id, float(similarity), bool(correct), float(at), str(fingerprint), bool(kept_back))


def as_tags(stored: Any) -> tuple[str, ...]:
    """Returns the tags of an entry; none where they are damaged, so that the entry is had all the same."""
    try:
        tags = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        return ()
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def as_namespace(key: int, name: str, root: str | bytes | None) -> Namespace:
    """Returns the namespace of a row of key, name and root."""
    return Namespace(key, name, root.decode("utf-8", "surrogatepass") if isinstance(root, bytes) else root)


def root_as_stored(root: str | None) -> str | bytes | None:
    """Returns a folder as it is kept: as bytes where its name is not valid Unicode."""
    if root is None:
        return None
    try:
        root.encode("utf-8")
    except UnicodeEncodeError:
        return root.encode("utf-8", "surrogatepass")
    return root


def condition_of(filters: Filters) -> tuple[str, list[Any]]:
    """Returns what a filter asks of `entries e`, as SQL, and its values."""
    asked, values = ["1"], list[Any]()
    if filters.tags:
        asked.append(f"e.key IN (SELECT t.entry FROM tags t WHERE t.tag IN ({marks(filters.tags)}))")
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


def marks(values: Collection[Any]) -> str:
    """Returns a place in a statement for each of the values."""
    return ",".join("?" * len(values))


def portions(values: Sequence[Any]) -> Iterable[list[Any]]:
    """Yields the values in lists that are short enough for one statement."""
    for start in range(0, len(values), MOST_VARIABLES):
        yield list(values[start : start + MOST_VARIABLES])
