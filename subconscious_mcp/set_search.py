"""Search by meaning in sets of vectors: exactly in memory, or by the index and then exactly among its candidates."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp.errors import IndexUnreadable
from subconscious_mcp.exact_search import ExactVectors
from subconscious_mcp.index_following import IndexFollowing, SetName
from subconscious_mcp.records import Entry, Filters, Kind, Namespace, Near
from subconscious_mcp.vector_rows import VectorSet

log = logging.getLogger(__name__)

_PAGE = 20_000
"""Vectors read at once: bounds the copy to 15 MB for 384 dimensions."""
_FIRST_CANDIDATES = 64
"""Ids asked of the index for a small k: with its own recall below 1, some room above k makes
the re-ranking by stored vectors exact in practice."""
_ROUNDING = 1e-4
"""By how much the index's order may differ from that of the stored vectors. Source: twice the
bound in `exact_search`, because the index is asked with a query that is not rounded."""

_MOST_EQUAL = 16
"""Candidates of one similarity up to which the index is believed. Among many equal vectors the links of
HNSW lead from one to the next, and one that lies near to them can be left without any: with 150 equal
ones in 6 of 12 builds, also when none of them is quite equal. Source: half of the links of a vector."""

_MOST_CANDIDATES = 4096
"""Above this many ids, reading all vectors in order is faster than looking them up."""

_Living = TypeVar("_Living", dict[int, Entry], set[int])


class SetSearch(IndexFollowing):
    """A storage directory in which what lies near to a vector is found."""

    def similarity(
        self, namespace: Namespace, entry: Entry, fingerprint: str, vector: NDArray[np.float32]
    ) -> float | None:
        name = SetName(namespace.key, entry.kind, fingerprint)
        one = self._read(name, np.array([entry.key], dtype=np.int64), len(vector), archived=True)
        found = one.search(vector, 1, now=-math.inf)
        return found[0][1] if found else None

    def similarities(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        keys: Sequence[int],
    ) -> dict[int, float]:
        found: dict[int, float] = {}
        for kind in kinds if keys else ():
            name = SetName(namespace.key, kind, fingerprint)
            wanted = [key for key in keys if key not in found]
            loaded = self._sets.get(name)
            if loaded is not None:
                found.update(loaded.search(vector, len(wanted), now=-math.inf, allowed=set(wanted)))
                wanted = [key for key in wanted if key not in found]
            if wanted:
                some = self._read(name, np.array(wanted, dtype=np.int64), len(vector), archived=True)
                found.update(some.search(vector, len(some), now=-math.inf))
        return found

    def nearest(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        tags: Sequence[str] = (),
        filters: Filters | None = None,
    ) -> list[Near]:
        def living(keys: list[int]) -> dict[int, Entry]:
            found = self.database.entries(keys)
            return {key: entry for key, entry in found.items() if entry.archived_at is None}

        sets = [
            (SetName(namespace.key, kind, fingerprint), self._allowed(namespace, kind, tags, filters)) for kind in kinds
        ]
        found, entries = self._nearest(sets, vector, k, now, living)
        near = [Near(entry, found[key]) for key, entry in entries.items()]
        near.sort(key=lambda n: (-n.similarity, -n.entry.created_at, -n.entry.key))
        return near[:k]

    def nearest_keys(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        filters: Filters | None = None,
    ) -> dict[int, float]:
        sets = [
            (SetName(namespace.key, kind, fingerprint), self._allowed(namespace, kind, (), filters)) for kind in kinds
        ]
        found, living = self._nearest(sets, vector, k, now, self.database.living)
        return dict(sorted(((key, found[key]) for key in living), key=lambda pair: (-pair[1], -pair[0]))[:k])

    def _nearest(
        self,
        sets: Sequence[tuple[SetName, NDArray[np.int64] | None]],
        vector: NDArray[np.float32],
        k: int,
        now: float,
        living: Callable[[list[int]], _Living],
    ) -> tuple[dict[int, float], _Living]:
        """Searches sets until `living` leaves enough of what is found, or all is seen."""
        self.last_used = time.monotonic()
        wanted = k
        while True:
            found: dict[int, float] = {}
            for name, allowed in sets:
                found.update(self._search(name, vector, wanted, now, allowed))
            left = living(list(found))
            gone = len(found) - len(left)
            if not gone or len(left) >= k or len(found) < wanted:
                break
            # Deleted or archived since they were found: they must not take the places of others.
            wanted += gone
        # The first search of a large set reads it whole, which takes a second: quiet begins behind it.
        self.last_used = time.monotonic()
        return found, left

    def _allowed(
        self, namespace: Namespace, kind: Kind, tags: Sequence[str], filters: Filters | None
    ) -> NDArray[np.int64] | None:
        """Returns the keys, (n,), that may be returned; None for all."""
        tagged = self.database.tagged(namespace, kind, tags) if tags else None
        if filters is None or filters == Filters():
            return tagged
        filtered = self.database.filtered(namespace, kind, filters)
        return filtered if tagged is None else np.intersect1d(filtered, tagged)

    def _search(
        self, name: SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        losses = self._trusted(name)
        if name not in self._sets and losses is not None:
            try:
                found = self._search_index(name, vector, k, now, allowed)
                if self._trusted(name) == losses:
                    return found
            except IndexUnreadable as error:
                log.warning("The vector index failed and is rebuilt; searching exactly meanwhile. %s", error)
                self._distrust_index(since=losses)
        return self._loaded(name, len(vector)).search(vector, k, now=now, allowed=allowed)

    def _loaded(self, name: SetName, dimension: int) -> ExactVectors:
        # Without the lock, which a write holds on its way to the disk.
        loaded = self._sets.get(name)
        if loaded is not None:
            return loaded
        with self._sets_lock:
            loaded = self._sets.get(name)
            if loaded is None:
                loaded = ExactVectors(dimension)
                for page in self._pages(name, dimension):
                    loaded.extend(page.keys, page.vectors, page.created_at, page.expires_at)
                self._sets[name] = loaded
            return loaded

    def _pages(self, name: SetName, dimension: int) -> Iterator[VectorSet]:
        after = 0
        while True:
            page = self.database.vector_set(
                name.namespace, name.kind, name.fingerprint, dimension, after=after, limit=_PAGE
            )
            yield page
            if len(page.keys) < _PAGE:
                return
            after = int(page.keys[-1])

    def _search_index(
        self, name: SetName, vector: NDArray[np.float32], k: int, now: float, allowed: NDArray[np.int64] | None
    ) -> list[tuple[int, float]]:
        """Asks the index for candidates, ranks them by their stored vectors, widens until k are found."""
        if allowed is not None and len(allowed) <= _MOST_CANDIDATES:
            return self._read(name, allowed, len(vector)).search(vector, k, now=now)
        with self._state.lock:
            pending = np.fromiter(self._state.pending.get(name, {}), dtype=np.int64)
        wanted = max(_FIRST_CANDIDATES, 4 * k)
        while wanted <= _MOST_CANDIDATES:
            ids = self.index.query(name.collection, vector, wanted)
            if len(ids) < wanted and len(ids) < self.index.count(name.collection):
                # Vectors that nothing links to any more, as many equal neighbours can leave them.
                break
            keys = np.fromiter(self.database.keys_of(ids).values(), dtype=np.int64)
            both = np.union1d(keys, pending)
            candidates = self._read(name, both, len(vector))
            if _most_equal(candidates.search(vector, len(both), now=-math.inf)) > _MOST_EQUAL:
                break
            found = candidates.search(vector, len(both), now=now, allowed=allowed)
            if len(found) >= k and not self._ties_reach_further(found, keys, k):
                return found[:k]
            if len(ids) < wanted:
                break
            wanted *= 4
        # So much is filtered away, or so much is equal, that the index's answer is none or in doubt.
        everything: list[tuple[int, float]] = []
        for page in self._pages(name, len(vector)):
            ranked = ExactVectors(len(vector))
            ranked.extend(page.keys, page.vectors, page.created_at, page.expires_at)
            everything += ranked.search(vector, k, now=now, allowed=allowed)
        return everything

    @staticmethod
    def _ties_reach_further(found: list[tuple[int, float]], keys: NDArray[np.int64], k: int) -> bool:
        """Returns whether an equal one, perhaps a newer one, may lie behind the index's last candidate."""
        asked = set(keys.tolist())
        last = min((similarity for key, similarity in found if key in asked), default=0.0)
        return last > found[k - 1][1] - _ROUNDING

    def _read(self, name: SetName, keys: NDArray[np.int64], dimension: int, *, archived: bool = False) -> ExactVectors:
        few = self.database.vector_set(
            name.namespace, name.kind, name.fingerprint, dimension, keys=keys, archived=archived
        )
        read = ExactVectors(dimension)
        read.extend(few.keys, few.vectors, few.created_at, few.expires_at)
        return read


def _most_equal(found: list[tuple[int, float]]) -> int:
    """Returns how many at most have one and the same similarity."""
    return max(Counter(similarity for _, similarity in found).values(), default=0)
