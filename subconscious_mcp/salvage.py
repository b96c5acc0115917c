"""What can be read of a damaged memory.db, copied into a fresh one row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from subconscious_mcp import consolidated_rows
from subconscious_mcp.database import Database, reading_damaged
from subconscious_mcp.errors import StorageError
from subconscious_mcp.feedback_rows import insert_feedback
from subconscious_mcp.records import Kind, Namespace, Observation
from subconscious_mcp.rows import COLUMNS, MOST_VARIABLES, as_namespace, as_observation, as_tags

Read = Callable[[str, Sequence[Any]], Iterator[Any]]


def salvage(damaged: Path, fresh: Database) -> tuple[int, int]:
    """Copies every readable entry of a damaged memory.db into a fresh one.

    Vectors are not copied: they are embedded again from the texts.

    Returns:
        How many entries were copied, and how many rows could not be read.
    """
    with reading_damaged(damaged) as read:
        try:
            columns = _columns_of(read)
        except StorageError:
            # Not even the list of tables can be read.
            return 0, 0
        namespaces: dict[object, Namespace] = {}
        for row in _readable(read, "namespaces", "key, name, root"):
            if row is not None and isinstance(row[1], str):
                namespaces[row[0]] = fresh.namespace(row[1], as_namespace(*row).root)
        _salvage_merged(read, namespaces, fresh)
        copied = lost = 0
        rows: list[Any] = []
        ids: dict[int, str] = {}
        for row in _readable(read, "entries", columns):
            if row is None or not _is_sound(row):
                lost += 1
                continue
            if row[11] not in namespaces:
                namespaces[row[11]] = fresh.namespace(f"salvaged-{row[11]}", None)
            rows.append((*row[1:11], namespaces[row[11]].key))
            ids[row[0]] = row[1]
            if len(rows) == MOST_VARIABLES:
                copied += _copy(rows, fresh)
                rows = []
        copied += _copy(rows, fresh)
        _salvage_feedback(read, ids, fresh)
        _salvage_consolidated(read, ids, fresh)
    return copied, lost


def _salvage_merged(read: Read, namespaces: Mapping[object, Namespace], fresh: Database) -> None:
    """Copies which names and roots lead to another namespace, as far as that can be read."""
    rows: list[tuple[Any, Any, int]] = []
    with suppress(StorageError):
        for name, root, key in read("SELECT name, root, namespace FROM merged", ()):
            if key in namespaces:
                rows.append((name, root, namespaces[key].key))
    with fresh.transaction() as write:
        write.executemany("INSERT OR IGNORE INTO merged (name, root, namespace) VALUES (?, ?, ?)", rows)


def _salvage_feedback(read: Read, ids: Mapping[int, str], fresh: Database) -> None:
    """Copies the readable feedback on entries that were copied, by the keys that these had."""
    said: list[tuple[str, Observation]] = []
    for row in _readable(read, "feedback", "key, entry, query, similarity, correct, at, fingerprint, kept_back"):
        with suppress(ValueError, TypeError):
            if row is not None and row[1] in ids and 0.0 <= float(row[3]) <= 1.0:
                said.append((str(row[2]), as_observation(ids[row[1]], *row[3:])))
    keys = fresh.keys_of([observation.entry_id for _, observation in said])
    with fresh.transaction() as write:
        for query, observation in said:
            if observation.entry_id in keys:
                insert_feedback(write, keys[observation.entry_id], query, observation)


def _salvage_consolidated(read: Read, ids: Mapping[int, str], fresh: Database) -> None:
    """Copies what consolidations archived, as far as that can be read, so that it can be had back."""
    keys = fresh.keys_of(list(ids.values()))
    with fresh.transaction() as write:
        for row in _readable(read, "consolidated", "key, entry, survivor, made, run"):
            key = None if row is None else keys.get(ids.get(row[1], ""))
            if key is not None and isinstance(row[2], str) and isinstance(row[4], str):
                consolidated_rows.note(write, [key], row[2], row[3] == 1, row[4])


def _columns_of(read: Read) -> str:
    """Returns the columns of an entry and its namespace, as a file of any version has them."""
    known = {row[1] for row in read("PRAGMA table_info(entries)", ())}
    columns = COLUMNS.replace("e.", "")
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


def _readable(read: Read, table: str, columns: str) -> Iterator[Any]:
    """Yields the rows of a damaged table one by one, None for each that cannot be read."""
    last = _last_key(read, table)
    # Without a known end, so many unreadable keys in a row are taken for it.
    most_misses = 10_000 if last is None else last
    key, misses = 0, 0
    while misses <= most_misses and (last is None or key < last):
        try:
            row = next(read(f"SELECT {columns} FROM {table} WHERE key > ? ORDER BY key LIMIT 1", (key,)), None)
            if row is None:
                return
            yield row
            key, misses = row[0], 0
        except StorageError:
            # Step over the damaged page key by key, by exact look-ups.
            key += 1
            misses += 1
            try:
                row = next(read(f"SELECT {columns} FROM {table} WHERE key = ?", (key,)), None)
            except StorageError:
                if last is not None:
                    yield None
                continue
            if row is not None:
                yield row


def _last_key(read: Read, table: str) -> int | None:
    """Returns the highest key that a table has or had, None where that cannot be read."""
    for sql in (f"SELECT max(key) FROM {table}", f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):
        try:
            row = next(read(sql, ()), None)
        except StorageError:
            continue
        return int(row[0]) if row and isinstance(row[0], int) else 0
    return None


def _copy(rows: Sequence[Sequence[Any]], fresh: Database) -> int:
    """Stores entries as they were, but for key and namespace; returns how many."""
    copied = 0
    with fresh.transaction() as write:
        for row in rows:
            cursor = write.execute(
                "INSERT OR IGNORE INTO entries (id, kind, task, answer, created_at, expires_at, tags, source,"
                " archived_at, superseded_by, namespace)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row[:6], json.dumps(as_tags(row[6]), ensure_ascii=False), *row[7:]),
            )
            if cursor.rowcount == 1:
                copied += 1
                write.executemany(
                    "INSERT INTO tags (tag, entry) VALUES (?, ?)",
                    [(tag, cursor.lastrowid) for tag in dict.fromkeys(as_tags(row[6]))],
                )
    return copied
