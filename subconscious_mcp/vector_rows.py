"""Vectors in memory.db, a set for each namespace, kind and embedder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp.errors import StorageDamaged
from subconscious_mcp.exact_search import as_stored
from subconscious_mcp.records import Kind, Namespace
from subconscious_mcp.rows import Rows, as_namespace, marks, portions

if TYPE_CHECKING:
    from sqlite3 import Connection


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


class VectorRows(Rows):
    """The part of a database that knows vectors."""

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
                for some in portions(keys.tolist()):
                    rows += self._read(f"{sql} AND e.key IN ({marks(some)})", (model, namespace, kind, *some))
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
        return [(as_namespace(key, name, root), kind, count) for key, name, root, kind, count in rows]

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
        with self.transaction() as write:
            model = fingerprint_key(write, fingerprint)
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
        with self.transaction() as write:
            cursor = write.execute(
                "DELETE FROM vectors WHERE fingerprint = ? AND length(vector) != ?", (model, dimension * 2)
            )
            return cursor.rowcount


def fingerprint_key(write: Connection, fingerprint: str) -> int:
    """Returns the key of an embedder, which is noted at first sight."""
    write.execute("INSERT OR IGNORE INTO fingerprints (fingerprint) VALUES (?)", (fingerprint,))
    return int(write.execute("SELECT key FROM fingerprints WHERE fingerprint = ?", (fingerprint,)).fetchone()[0])
