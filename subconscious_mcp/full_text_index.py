"""The full-text index of memory.db: two FTS5 tables that are derived from the entries.

One knows words by their stems, the other pieces of three characters (`full_text` says what for). Both read their
texts from the table of entries, so that each text is stored once, and triggers keep them in step with it, whatever
deletes an entry. They can be made anew at any time: where they are not as this version makes them, they are.

What is deleted must leave no word behind. From SQLite 3.42 FTS5 deletes words where they stand; before, it only notes
that they are gone, and they leave when all is merged into one. `full_text_state` says that this is still to be done.

Statements only: `database` executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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

MOST_VISITED = 8000
""


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


def prepare(connection: Connection, able: Features) -> bool:
    """Makes the index anew where it is not as this version and build of SQLite make it; within a transaction.

    Returns:
        Whether it was made anew.
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
    if ours == wanted:
        return False
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
    rebuild(connection, able)
    return True


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


def rebuild(connection: Connection, able: Features) -> None:
    """Makes the index from the entries, whatever it holds; within a transaction."""
    for table in able.tables:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")
    connection.execute("UPDATE full_text_state SET stale = 0")


def is_stale(connection: Connection) -> bool:
    """Returns whether deleted words may still stand in the index."""
    return bool(connection.execute("SELECT max(stale) FROM full_text_state").fetchone()[0])


def drop_deleted_words(connection: Connection, able: Features) -> None:
    """Lets deleted words leave the index; within a transaction.

    Writes it anew, about 0.1 s for 10,000 notes.
    """
    for table in able.tables:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    connection.execute("UPDATE full_text_state SET stale = 0")


def check(connection: Connection, table: str) -> None:
    """Compares a table with the entries; SQLite raises where they differ. Within a transaction."""
    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


@dataclass(frozen=True, slots=True)
class _Search:
    """Terms to look for in a table, those that few entries hold, or of one that many hold the newest."""

    table: str
    terms: tuple[str, ...]
    first_key: int = 0


class FullTextSearch:
    """Finds entries by their words.

    bm25 visits every entry that holds one of the terms, and a common word says little of what is meant. So the rarest
    terms are taken that are in `MOST_VISITED` entries together; of a single one that is in more, the newest entries.

    Args:
        read: Executes a statement and returns its rows.
    """

    def __init__(self, read: Read, able: Features) -> None:
        self._read = read
        self._able = able

    def ranked(self, query: str, limit: int) -> tuple[list[tuple[int, float]], bool]:
        """Returns key and score (bm25, higher is better) of the entries that match best, the best first.

        Args:
            limit: Entries that each of the two indexes may name.

        Returns:
            With them whether these are all that there are.
        """
        scores: dict[int, float] = {}
        whole = True
        for table, terms in ((WORDS, full_text.words(query)), (GRAMS, full_text.grams(query))):
            if not terms or table not in self._able.tables:
                continue
            search = self._affordable(table, terms)
            rows = self._read(
                f"SELECT rowid, rank FROM {table} WHERE {table} MATCH ? AND rowid >= ? ORDER BY rank LIMIT ?",
                (full_text.any_of(search.terms), search.first_key, limit),
            )
            whole = whole and len(rows) < limit
            for key, rank in rows:
                scores[key] = scores.get(key, 0.0) - rank
        return sorted(scores.items(), key=lambda pair: (-pair[1], -pair[0])), whole

    def _affordable(self, table: str, terms: tuple[str, ...]) -> _Search:
        if len(terms) == 1:
            return _Search(table, terms, self._newest(table, terms[0])[1])
        counts = sorted((self._newest(table, term), term) for term in terms)
        chosen = [counts[0][1]]
        visited = counts[0][0][0]
        if visited > MOST_VISITED:
            return _Search(table, (chosen[0],), counts[0][0][1])
        for (count, _), term in counts[1:]:
            visited += count
            if visited > MOST_VISITED:
                break
            chosen.append(term)
        return _Search(table, tuple(chosen))

    def _newest(self, table: str, term: str) -> tuple[int, int]:
        """Returns how many entries hold a term, and the key from which on `MOST_VISITED` do; 0 where fewer do."""
        count = self._read(
            f"SELECT count(*), min(key) FROM (SELECT rowid AS key FROM {table} WHERE {table} MATCH ?"
            " ORDER BY rowid DESC LIMIT ?)",
            (full_text.any_of((term,)), MOST_VISITED + 1),
        )[0]
        return (count[0], count[1] if count[0] > MOST_VISITED else 0)
