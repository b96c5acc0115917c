"""What a search of notes asks of memory.db: who holds a word, what lies beside an entry, what a filter lets through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import full_text_index
from subconscious_mcp.records import READ_BY_WORDS, Entry, Filters, Kind, Namespace
from subconscious_mcp.rows import COLUMNS, LIVE, Rows, as_entry, condition_of, marks, portions

_FIRST_MATCHES = 200
"""Entries below which so few hold the rarer terms of a query that those which many hold are looked at too."""
_BY_WORDS = "('note', 'fact', 'chunk')"
"""`READ_BY_WORDS` as the index of sources says it."""
SITTING_SECONDS = 900
"""Time within which notes without a source count as told one after the other. Source: own choice."""


class NoteRows(Rows):
    """The part of a database that finds entries by what they say, bear, and lie beside."""

    _full_text: full_text_index.Features

    def recent(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        limit: int,
        *,
        now: float,
        filters: Filters,
        archived: bool = False,
    ) -> list[Entry]:
        """Returns live entries, or archived ones in their place, the newest first."""
        live = LIVE.replace("IS NULL", "IS NOT NULL", 1) if archived else LIVE
        condition, values = condition_of(filters)
        found: list[Entry] = []
        for kind in dict.fromkeys(kinds):
            # One kind at a time, so that the index gives the order and no more is read than is returned.
            rows = self._read(
                f"SELECT {COLUMNS} FROM entries e WHERE e.namespace = ? AND e.kind = ? AND {live} AND {condition}"
                " ORDER BY e.created_at DESC, e.key DESC LIMIT ?",
                (namespace.key, kind, now, *values, limit),
            )
            found += [as_entry(row) for row in rows]
        found.sort(key=lambda entry: (-entry.created_at, -entry.key))
        return found[:limit]

    def beside(self, keys: Sequence[int], now: float) -> dict[int, tuple[int | None, int | None]]:
        """Returns the keys of the live entries before and after each entry; see `Store.beside`."""
        found: dict[int, tuple[int | None, int | None]] = {}
        order = (
            "n.namespace = e.namespace AND n.kind = e.kind AND n.source = e.source"
            f" AND n.kind IN {_BY_WORDS}"
            f" AND (n.source != '' OR n.created_at BETWEEN e.created_at - {SITTING_SECONDS} AND"
            f" e.created_at + {SITTING_SECONDS})"
        )
        live = "n.archived_at IS NULL AND (n.expires_at IS NULL OR n.expires_at > ?)"
        sides = ", ".join(
            f"(SELECT n.key FROM entries n WHERE {order} AND (n.created_at, n.key) {sign} (e.created_at, e.key)"
            f" AND {live} ORDER BY n.created_at {way}, n.key {way} LIMIT 1)"
            for sign, way in (("<", "DESC"), (">", "ASC"))
        )
        for some in portions(keys):
            rows = self._read(f"SELECT e.key, {sides} FROM entries e WHERE e.key IN ({marks(some)})", (now, now, *some))
            found.update({key: (before, after) for key, before, after in rows})
        return found

    def tag_counts(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> dict[str, int]:
        """Returns how many live entries of these kinds bear each tag."""
        return dict(
            self._read(
                "SELECT t.tag, count(*) FROM entries e JOIN tags t ON t.entry = e.key"
                f" WHERE e.namespace = ? AND e.kind IN ({marks(kinds)}) AND {LIVE} GROUP BY t.tag ORDER BY t.tag",
                (namespace.key, *kinds, now),
            )
        )

    def tagged(self, namespace: Namespace, kind: Kind, tags: Sequence[str]) -> NDArray[np.int64]:
        """Returns the keys, (n,) int64, of entries that bear at least one of the tags."""
        keys: set[int] = set()
        for some in portions(tags):
            rows = self._read(
                f"SELECT t.entry FROM tags t JOIN entries e ON e.key = t.entry WHERE t.tag IN ({marks(some)})"
                " AND e.namespace = ? AND e.kind = ?",
                (*some, namespace.key, kind),
            )
            keys.update(row[0] for row in rows)
        return np.array(sorted(keys), dtype=np.int64)

    def filtered(self, namespace: Namespace, kind: Kind, filters: Filters) -> NDArray[np.int64]:
        """Returns the keys, (n,) int64, of the entries of a kind that a filter lets through."""
        condition, values = condition_of(filters)
        # Said so, SQLite sees that the index of sources serves.
        read = f" AND e.kind IN {_BY_WORDS}" if kind in READ_BY_WORDS else ""
        rows = self._read(
            f"SELECT e.key FROM entries e WHERE e.namespace = ? AND e.kind = ?{read} AND {condition}",
            (namespace.key, kind, *values),
        )
        return np.sort(np.array([row[0] for row in rows], dtype=np.int64))

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
        condition, values = condition_of(filters)
        live = (
            f"e.namespace = ? AND e.kind IN ({marks(kinds)}) AND {LIVE} AND {condition}",
            (namespace.key, *kinds, now, *values),
        )
        if filters.source is not None or filters.tags:
            return self._among_few(terms, query, *live), []
        held = full_text_index.holders(self._read, self._full_text, terms, query, most=full_text_index.MOST_HOLDERS)
        common = [term for term, keys in held if keys is None]
        found = [(term, keys) for term, keys in held if keys is not None]
        if filters != Filters() or self._indexes_others(namespace, kinds, now):
            found = self._among(found, *live)
        if common and sum(len(keys) for _, keys in found) < _FIRST_MATCHES:
            # What many hold may be what tells in the few entries that the namespace has, or the filter lets through.
            held = full_text_index.holders(self._read, self._full_text, common, "", most=None)
            found += self._among([(term, keys) for term, keys in held if keys is not None], *live)
            common = []
        return found, common

    def _among_few(
        self, terms: Sequence[str], query: str, condition: str, values: Sequence[Any]
    ) -> list[tuple[str, NDArray[np.int64]]]:
        """Returns who holds each term of the entries of a source or a tag: those first, then the postings between."""
        listed = self._read(
            f"SELECT group_concat(e.key) FROM entries e WHERE {condition} AND e.kind IN {_BY_WORDS}", values
        )[0][0]
        wanted = np.fromstring(listed or "", dtype=np.int64, sep=",")
        if not len(wanted):
            return []
        span = (int(wanted.min()), int(wanted.max()))
        held = full_text_index.holders(self._read, self._full_text, terms, query, most=None, span=span)
        return [(term, keys[np.isin(keys, wanted)]) for term, keys in held if keys is not None]

    def _indexes_others(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> bool:
        """Returns whether the full-text index knows entries of other namespaces or kinds, or that are over."""
        others = [kind for kind in READ_BY_WORDS if kind not in kinds]
        return bool(
            self._read(
                "SELECT EXISTS (SELECT 1 FROM namespaces n WHERE n.key != ? AND EXISTS"
                f" (SELECT 1 FROM entries e WHERE e.namespace = n.key AND e.kind IN ({marks(READ_BY_WORDS)})))"
                f" OR EXISTS (SELECT 1 FROM entries e WHERE e.namespace = ? AND e.kind IN ({marks(others)}))"
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
