"""What an export reads of memory.db page by page, and what an import adds beside the entries."""

from __future__ import annotations

from collections.abc import Sequence

from subconscious_mcp.entry_rows import EntryRows
from subconscious_mcp.feedback_rows import FEEDBACK_WINDOW, insert_feedback
from subconscious_mcp.records import Consolidated, Entry, Kind, Namespace, Observation
from subconscious_mcp.rows import COLUMNS, as_entry, as_observation, marks, portions
from subconscious_mcp.vector_rows import VectorRows


class TransferRows(EntryRows, VectorRows):
    """The part of a database that exports and imports."""

    def last_key(self) -> int:
        """Returns the key of the newest entry, 0 where there is none."""
        return int(self._read("SELECT coalesce(max(key), 0) FROM entries")[0][0])

    def count_for_export(self, namespaces: Sequence[int], kinds: Sequence[Kind], upto: int, now: float) -> int:
        """Returns how many entries `export_page` yields for these namespaces."""
        count = 0
        for some in portions(namespaces):
            sql = f"SELECT count(*) FROM entries e WHERE e.namespace IN ({marks(some)}) AND {_exported(kinds)}"
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
            f"SELECT {COLUMNS}, v.vector FROM entries e LEFT JOIN vectors v ON v.fingerprint = ? AND v.entry = e.key"
            f" WHERE e.key > ? AND +e.namespace = ? AND {_exported(kinds)} ORDER BY e.key LIMIT ?"
        )
        page: list[tuple[Entry, bytes | None]] = []
        with self._reading() as read:
            size = 0
            for row in read.execute(sql, (model, after, namespace, upto, now, *kinds, most)):
                page.append((as_entry(row[:-1]), row[-1]))
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
        return [(row[0], row[1], as_observation(*row[2:])) for row in rows]

    def add_feedback(self, said: Sequence[tuple[str, Observation]]) -> int:
        """Stores feedback as (hash of the query, what was said) where there is none on the same query yet.

        Returns:
            How much was stored; what is about entries that are not there is left out.
        """
        keys = self.keys_of(list({observation.entry_id for _, observation in said}))
        added = 0
        with self.transaction() as write:
            for query, observation in said:
                key = keys.get(observation.entry_id)
                count, known = write.execute(
                    "SELECT count(*), coalesce(sum(query = ?), 0) FROM feedback WHERE entry = ?", (query, key)
                ).fetchone()
                # What is there stays, so that the same once more changes nothing.
                if key is not None and not known and count < FEEDBACK_WINDOW:
                    insert_feedback(write, key, query, observation)
                    added += 1
        return added

    def add_consolidated(self, namespace: Namespace | None, done: Consolidated) -> None:
        """Notes what an export says of a consolidation, of archived entries of which nothing is noted yet.

        Args:
            namespace: Only entries of this one; None for any.
        """
        key = None if namespace is None else namespace.key
        with self.transaction() as write:
            for some in portions(done.members):
                write.execute(
                    "INSERT OR IGNORE INTO consolidated (entry, survivor, made, run) SELECT key, ?, ?, ? FROM entries"
                    f" WHERE id IN ({marks(some)}) AND (? IS NULL OR namespace = ?) AND archived_at IS NOT NULL",
                    (done.survivor, done.made, done.run, *some, key, key),
                )

    def found(self, ids: Sequence[str]) -> dict[str, tuple[int, Entry]]:
        """Returns namespace key and entry of those ids that are there, whichever namespace they are in."""
        found: dict[str, tuple[int, Entry]] = {}
        for some in portions(ids):
            sql = f"SELECT e.namespace, {COLUMNS} FROM entries e WHERE e.id IN ({marks(some)})"
            found.update((row[2], (row[0], as_entry(row[1:]))) for row in self._read(sql, some))
        return found


def _exported(kinds: Sequence[Kind]) -> str:
    """Returns the condition for `upto`, `now` and the kinds, none for all."""
    of_kind = f" AND e.kind IN ({marks(kinds)})" if kinds else ""
    return f"e.key <= ? AND (e.expires_at IS NULL OR e.expires_at > ?){of_kind}"
