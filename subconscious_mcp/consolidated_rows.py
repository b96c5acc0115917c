"""Which entries were archived by a consolidation, and for whom: the rows that make it reversible.

An entry says by itself what took its place (`superseded_by`); these say that a consolidation did that, and which, so
that what a user superseded is not undone with it. `entry_rows` and `salvage` call these functions, inside transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from subconscious_mcp.records import Consolidated

if TYPE_CHECKING:
    from sqlite3 import Connection


def note(write: Connection, keys: Sequence[int], survivor: str, made: bool, run: str) -> None:
    """Notes that a run archived entries for a survivor; what an earlier run noted of them is over."""
    write.executemany(
        "INSERT OR REPLACE INTO consolidated (entry, survivor, made, run) VALUES (?, ?, ?, ?)",
        [(key, survivor, made, run) for key in keys],
    )


def newest_first(read: Connection, namespace: int) -> list[Consolidated]:
    """Returns what the consolidations of a namespace did and nobody has undone, a survivor and run each."""
    rows = read.execute(
        "SELECT c.run, c.survivor, max(c.made), max(c.key) AS last, group_concat(e.id, ' ') FROM consolidated c"
        " JOIN entries e ON e.key = c.entry WHERE e.namespace = ? GROUP BY c.run, c.survivor ORDER BY last DESC",
        (namespace,),
    )
    return [Consolidated(run, survivor, bool(made), tuple(ids.split(" "))) for run, survivor, made, _, ids in rows]


def separate(write: Connection, namespace: int, survivor: str, run: str) -> tuple[list[int], int | None] | None:
    """Lets what a run archived for a survivor be found again.

    Entries that something else archived since, or restored, stay as they are.

    Returns:
        The keys of the entries that can be found again, and of a survivor that was made for them, which is to be
        deleted; None where the survivor was archived since, so that another entry stands for it.
    """
    held = write.execute(
        "SELECT key, archived_at FROM entries WHERE id = ? AND namespace = ?", (survivor, namespace)
    ).fetchone()
    if held is not None and held[1] is not None:
        return None
    rows = write.execute(
        "SELECT c.key, e.key, c.made, e.archived_at IS NOT NULL AND e.superseded_by = c.survivor FROM consolidated c"
        " JOIN entries e ON e.key = c.entry WHERE c.survivor = ? AND c.run = ? AND e.namespace = ?",
        (survivor, run, namespace),
    ).fetchall()
    back = [int(row[1]) for row in rows if row[3]]
    write.executemany("UPDATE entries SET archived_at = NULL, superseded_by = '' WHERE key = ?", [(k,) for k in back])
    write.executemany("DELETE FROM consolidated WHERE key = ?", [(row[0],) for row in rows])
    return back, int(held[0]) if held is not None and any(row[2] for row in rows) else None
