"""The full-text index of memory.db: two FTS5 tables that are derived from the entries.

One knows words by their stems, the other pieces of three characters (`full_text` says what for). Both read their
texts from the table of entries, so that each text is stored once, and triggers keep them in step with it, whatever
deletes an entry. They can be made anew at any time: where they are not as this version makes them, they are.

What is deleted must leave no word behind. From SQLite 3.42 FTS5 deletes words where they stand; before, it only notes
that they are gone, and they leave when all is merged into one. `full_text_state` says that this is still to be done.

Statements only: `database` and `note_rows` execute them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import full_text
from subconscious_mcp.records import READ_BY_WORDS

WORDS, GRAMS = "full_text_words", "full_text_grams"
_TOKENIZERS = {WORDS: "porter unicode61 remove_diacritics 2", GRAMS: "trigram"}
_SOURCE = "full_text_source"
_OTHERS = {
    "full_text_added": "TRIGGER",
    "full_text_deleted": "TRIGGER",
    "full_text_changed": "TRIGGER",
    _SOURCE: "VIEW",
}
_PLAIN_FORMAT = 4
"""Format of FTS5 tables that every SQLite reads; where words are deleted where they stand it becomes 5."""

_MOST_SCANNED = 2000
"""Entries in which a word of two Chinese or Japanese characters is looked for, the newest: too short for the index of
pieces, it is found by reading. Source: 5 ms for so many."""

MOST_HOLDERS = 2000
"""Entries up to which a term is used at first: half a millisecond for so many. Source: measured with 100,000
notes; leaving out what a fifth of the notes hold costs less than 0.005 of recall@10."""


class Connection(Protocol):
    """The part of a connection to SQLite that is needed here."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


Read = Callable[[str, Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Features:
    """What this build of SQLite can do.

    Attributes:
        tables: Those of `WORDS` and `GRAMS` that it can make.
        erases: It deletes words where they stand.
    """

    tables: tuple[str, ...]
    erases: bool


def features(connection: Connection) -> Features:
    """Asks SQLite what it can do."""
    has_fts5, version = connection.execute(
        "SELECT sqlite_compileoption_used('ENABLE_FTS5'), sqlite_version()"
    ).fetchone()
    number = tuple(int(part) for part in version.split("."))
    if not has_fts5:
        return Features((), erases=False)
    return Features((WORDS, GRAMS) if number >= (3, 34) else (WORDS,), erases=number >= (3, 42))


def prepare(connection: Connection, able: Features, *, anew: bool = False) -> None:
    """Makes the index where it is not as this version and build of SQLite make it; within a transaction.

    Args:
        anew: Make it in any case, because it is damaged.
    """
    wanted = _statements(able)
    present = dict(
        connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name GLOB 'full_text_*' AND type IN ('table', 'view', 'trigger')"
        ).fetchall()
    )
    tables = [name for name in _TOKENIZERS if name in present]
    # A table that this build cannot make it cannot drop either. Without its triggers it falls behind, until a build
    # that can make it makes it anew.
    ours = {name: sql for name, sql in present.items() if name in able.tables or name in _OTHERS}
    if ours == wanted and not anew:
        return
    for name, kind in _OTHERS.items():
        connection.execute(f"DROP {kind} IF EXISTS {name}")
    for name in tables:
        if name in able.tables:
            # Else SQLite before 3.42 cannot even drop what a later one has written.
            connection.execute(f"UPDATE {name}_config SET v = ? WHERE k = 'version'", (_PLAIN_FORMAT,))
            connection.execute(f"DROP TABLE {name}")
    for sql in wanted.values():
        connection.execute(sql)
    for table in able.tables:
        if able.erases:
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 1)")
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")
    connection.execute("UPDATE full_text_state SET stale = 0")


def _statements(able: Features) -> dict[str, str]:
    """Returns what makes the index, by name, in the order in which it is made."""
    if not able.tables:
        return {}
    held = f"kind IN ({', '.join(repr(str(kind)) for kind in READ_BY_WORDS)})"

    def live(row: str) -> str:
        return f"{row}.{held} AND {row}.archived_at IS NULL"

    def put(table: str) -> str:
        return f"INSERT INTO {table} (rowid, task, answer) SELECT new.key, new.task, new.answer WHERE {live('new')};"

    def take(table: str) -> str:
        return (
            f"INSERT INTO {table} ({table}, rowid, task, answer)"
            f" SELECT 'delete', old.key, old.task, old.answer WHERE {live('old')};"
        )

    puts, takes = " ".join(map(put, able.tables)), " ".join(map(take, able.tables))
    # Of an archived entry the words have left the index, and may stand in it still.
    stale = "" if able.erases else " UPDATE full_text_state SET stale = 1;"
    made = {_SOURCE: f"CREATE VIEW {_SOURCE} AS SELECT key, task, answer FROM entries e WHERE {live('e')}"}
    for table in able.tables:
        made[table] = (
            f"CREATE VIRTUAL TABLE {table} USING fts5(task, answer, content='{_SOURCE}', content_rowid='key',"
            f" tokenize='{_TOKENIZERS[table]}')"
        )
    made["full_text_added"] = (
        f"CREATE TRIGGER full_text_added AFTER INSERT ON entries WHEN {live('new')} BEGIN {puts} END"
    )
    made["full_text_deleted"] = (
        f"CREATE TRIGGER full_text_deleted AFTER DELETE ON entries WHEN old.{held} BEGIN {takes}{stale} END"
    )
    made["full_text_changed"] = (
        "CREATE TRIGGER full_text_changed AFTER UPDATE OF kind, task, answer, archived_at ON entries"
        f" WHEN old.{held} OR new.{held} BEGIN {takes} {puts} END"
    )
    return made


def is_stale(connection: Connection) -> bool:
    """Returns whether deleted words may still stand in the index."""
    return bool(connection.execute("SELECT max(stale) FROM full_text_state").fetchone()[0])


def drop_deleted_words(connection: Connection, able: Features) -> None:
    """Lets deleted words leave the index; within a transaction.

    Writes it anew: 0.2 s for 10,000 notes, 2 s for 100,000.
    """
    for table in able.tables:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    connection.execute("UPDATE full_text_state SET stale = 0")


def check(connection: Connection, table: str) -> None:
    """Compares a table with the entries; SQLite raises where they differ. Within a transaction."""
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def holders(
    read: Read,
    able: Features,
    terms: Sequence[str],
    query: str,
    *,
    most: int | None,
    span: tuple[int, int] = (0, (1 << 63) - 1),
) -> list[tuple[str, NDArray[np.int64] | None]]:
    """Returns the entries that hold each term, (n,), the newest first; None for a term that more than `most` hold.

    Args:
        terms: Words, and words side by side, of the query.
        query: What is looked for inside words is taken from it.
        span: Least and greatest key of the entries that count.
    """
    limit = -1 if most is None else most + 1
    wanted = [(WORDS, term) for term in terms] + [(GRAMS, term) for term in full_text.grams(query)]
    found: list[tuple[str, NDArray[np.int64] | None]] = []
    for table, term in wanted:
        if table in able.tables:
            keys = _holders(read, table, term, limit, span)
            found.append((term, keys if most is None or len(keys) <= most else None))
    return found + [(pair, _scanned(read, pair)) for pair in full_text.pairs(query)]


def _holders(read: Read, table: str, term: str, limit: int, span: tuple[int, int]) -> NDArray[np.int64]:
    """Returns the keys of the entries that hold a term, (n,), the newest first."""
    # As one text: for thousands of rows that takes a tenth of the time.
    keys = read(
        f"SELECT group_concat(key) FROM (SELECT rowid AS key FROM {table} WHERE {table} MATCH ?"
        " AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?)",
        (full_text.any_of((term,)), *span, limit),
    )[0][0]
    return np.fromstring(keys or "", dtype=np.int64, sep=",")


def _scanned(read: Read, pair: str) -> NDArray[np.int64]:
    """Returns the keys of those of the newest `_MOST_SCANNED` entries that hold two characters, (n,), newest first."""
    rows = read(
        f"SELECT key FROM (SELECT key, task, answer FROM {_SOURCE} ORDER BY key DESC LIMIT ?)"
        " WHERE instr(task, ?) OR instr(answer, ?)",
        (_MOST_SCANNED, pair, pair),
    )
    return np.array([row[0] for row in rows], dtype=np.int64)
