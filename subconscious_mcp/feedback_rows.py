"""What became of recalls, in memory.db: hits and misses of each namespace, and feedback on the answers of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from subconscious_mcp.records import Namespace, Observation
from subconscious_mcp.rows import Rows, as_observation

if TYPE_CHECKING:
    from sqlite3 import Connection

RECALL_WINDOW = 100
FEEDBACK_WINDOW = 200
"""Observations that are kept of an entry, the newest. With so many a threshold moves by thousandths."""


class FeedbackRows(Rows):
    """The part of a database that knows outcomes of recalls and feedback."""

    def record_recalls(self, outcomes: Sequence[tuple[int, float, bool]]) -> None:
        """Notes recalls as (namespace key, seconds since the epoch, hit); keeps the last 100 of each."""
        with self.transaction(durable=False) as write:
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

    def note_feedback(self, namespace: Namespace, query: str, observation: Observation) -> bool:
        """Notes what somebody said of an entry's answer, in place of what was said of the same query.

        Args:
            query: A hash of the query; its text is not stored.

        Returns:
            Whether the namespace has the entry.
        """
        with self.transaction() as write:
            row = write.execute(
                "SELECT key FROM entries WHERE id = ? AND namespace = ?", (observation.entry_id, namespace.key)
            ).fetchone()
            if row is None:
                return False
            insert_feedback(write, row[0], query, observation)
            write.execute(
                "DELETE FROM feedback WHERE entry = ? AND key <= (SELECT key FROM feedback"
                " WHERE entry = ? ORDER BY key DESC LIMIT 1 OFFSET ?)",
                (row[0], row[0], FEEDBACK_WINDOW),
            )
        return True

    def feedback(self, namespace: Namespace, entry_id: str | None = None) -> list[Observation]:
        """Returns what was said of an entry's answer, or of all entries of the namespace, oldest first."""
        rows = self._read(
            "SELECT e.id, f.similarity, f.correct, f.at, f.fingerprint, f.kept_back FROM entries e"
            f" JOIN feedback f ON f.entry = e.key WHERE e.namespace = ? {'' if entry_id is None else 'AND e.id = ?'}"
            " ORDER BY f.key",
            (namespace.key,) if entry_id is None else (namespace.key, entry_id),
        )
        return [as_observation(*row) for row in rows]


def insert_feedback(write: Connection, entry: int, query: str, observation: Observation) -> None:
    """Notes feedback on an entry, in place of what was said of the same query."""
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
