"""Exact search over vectors held in memory, and the one formula for similarity.

Every similarity that the product shows is computed here, from the values as they are
stored (float16), so that a vector found by exact search, by the vector index, or by both
gets the same number.

How exact float16 is: for sentence embeddings of 384 dimensions a cosine from rounded values
differs from the float32 one by at most 0.00008 (mean 0.00001), a hundredth of the distance
between thresholds that a person would set. Source: measured on 2 million pairs of
all-MiniLM-L6-v2 with cosines from -0.27 to 0.995, see validation/.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float32]
Halves: TypeAlias = NDArray[np.float16]
Doubles: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.intp]

DECIMALS = 6
"""Similarities are compared and shown at this precision: below it lies only rounding noise."""

_FIRST_CAPACITY = 64
_RESCORE_ROWS = 4096
"""Rows that are computed in float64 at once: bounds the copy at 12 MB for 384 dimensions."""

_GATHER_SHARE = 0.25
"""Above this share of allowed rows, multiplying all is cheaper than copying the scattered ones."""


def as_stored(vectors: ArrayLike) -> Halves:
    """Rounds vectors to the precision in which they are kept.

    Args:
        vectors: (d,) or (n, d), any float type. A row with a value that is not finite, or
            that float16 cannot hold, becomes all zeros: it is similar to nothing, and
            cannot poison the comparison of the other rows.

    Returns:
        The same shape, float16.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        halves = np.array(vectors, dtype=np.float16)
    finite = np.isfinite(halves).all(axis=-1, keepdims=True)
    if not finite.all():
        halves = np.where(finite, halves, np.float16(0))
    return halves


def similarities(query: ArrayLike, vectors: ArrayLike) -> Doubles:
    """Computes the cosine of a query to each stored vector.

    Args:
        query: (d,), any float type; rounded to float16 like the stored ones, so that a text
            compared with itself gives exactly 1.0.
        vectors: (n, d), float16 or anything that is rounded to it; not necessarily of unit length.

    Returns:
        (n,) float64, 0..1, rounded to 6 decimals. A vector of zeros has similarity 0.
    """
    wanted = as_stored(query).astype(np.float64)
    stored = as_stored(vectors)
    found = np.empty(len(stored), dtype=np.float64)
    for start in range(0, len(stored), _RESCORE_ROWS):
        block = stored[start : start + _RESCORE_ROWS].astype(np.float64)
        found[start : start + _RESCORE_ROWS] = _cosines(wanted, block)
    return found


def _cosines(query: Doubles, block: Doubles) -> Doubles:
    """Returns (n,) cosines of float64 values that are already rounded to float16."""
    # einsum and not a BLAS product: its sum for a row does not depend on how many other rows
    # there are, so the same pair gets the same similarity in every search.
    products = np.einsum("ij,j->i", block, query)
    lengths = np.sqrt(np.einsum("ij,ij->i", block, block) * float(query @ query))
    cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cast(Doubles, np.round(np.clip(cosines, 0.0, 1.0), DECIMALS))


class ExactVectors:
    """All vectors of one set, searched by comparing every one of them.

    It finds the true neighbours, always. The cost is one pass over the vectors for a search
    (bound by the speed of memory) and 4 bytes for each dimension of each vector.

    A search takes one float32 matrix product over all rows to find who could be among the
    best, then computes those few in float64. The first step is off by less than `_margin`,
    so that no row which belongs to the answer, ties at its end included, is left out.

    Safe to use from several threads.
    """

    def __init__(self, dimension: int) -> None:
        if dimension < 1:
            raise ValueError("dimension must be at least 1")
        self.dimension = dimension
        self._lock = threading.Lock()
        self._count = 0
        self._row_of: dict[int, int] = {}
        # Values are rounded to float16 and kept as float32, which is what BLAS multiplies.
        self._matrix: Floats = np.empty((0, dimension), dtype=np.float32)
        self._inverse_length: Floats = np.empty(0, dtype=np.float32)
        self._keys: Keys = np.empty(0, dtype=np.int64)
        self._created_at: Doubles = np.empty(0, dtype=np.float64)
        self._expires_at: Doubles = np.empty(0, dtype=np.float64)
        # Two float32 sums of d products can each be off by d * 2**-24 of the vectors' lengths;
        # the few units more cover the scaling, and one step of the sixth decimal the ties.
        self._margin = 2.0 * (dimension + 16) * 2.0**-24 + 10.0**-DECIMALS

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: int) -> bool:
        return key in self._row_of

    def extend(self, keys: ArrayLike, vectors: ArrayLike, created_at: ArrayLike, expires_at: ArrayLike) -> None:
        """Adds vectors; one whose key is known takes the place of the earlier one.

        Args:
            keys: (n,) integers.
            vectors: (n, d) float16 or float32.
            created_at: (n,) float64, seconds since the epoch.
            expires_at: (n,) float64, seconds since the epoch, +inf for never.

        Raises:
            ValueError: The lengths or the dimension do not agree.
        """
        new_keys = np.asarray(keys, dtype=np.int64)
        rows = as_stored(vectors).astype(np.float32)
        created = np.asarray(created_at, dtype=np.float64)
        expires = np.asarray(expires_at, dtype=np.float64)
        n = len(new_keys)
        if n == 0:
            return
        if rows.shape != (n, self.dimension) or created.shape != (n,) or expires.shape != (n,):
            raise ValueError(f"expected {n} vectors of {self.dimension} dimensions and as many times")
        inverse = _inverse_lengths(rows)
        key_list: list[int] = new_keys.tolist()
        with self._lock:
            self._reserve(self._count + n)
            if len(set(key_list)) == n and self._row_of.keys().isdisjoint(key_list):
                places: slice | Rows = slice(self._count, self._count + n)
                self._row_of.update(zip(key_list, range(self._count, self._count + n), strict=True))
                self._count += n
            else:
                found = np.empty(n, dtype=np.intp)
                for i, key in enumerate(key_list):
                    row = self._row_of.setdefault(key, self._count)
                    self._count += row == self._count
                    found[i] = row
                # Of a key that comes twice the last counts. numpy assigns repeated rows in no
                # promised order, so the earlier ones are left out.
                last = {row: i for i, row in enumerate(found.tolist())}
                kept = np.fromiter(last.values(), dtype=np.intp, count=len(last))
                places = found[kept]
                new_keys, rows, inverse = new_keys[kept], rows[kept], inverse[kept]
                created, expires = created[kept], expires[kept]
            self._matrix[places] = rows
            self._inverse_length[places] = inverse
            self._keys[places] = new_keys
            self._created_at[places] = created
            self._expires_at[places] = expires

    def append(self, key: int, vector: ArrayLike, created_at: float, expires_at: float = np.inf) -> None:
        """Adds one vector, as `extend` does.

        Raises:
            ValueError: The vector is not of this set's dimension.
        """
        self.extend([key], np.asarray(vector)[np.newaxis], [created_at], [expires_at])

    def remove(self, key: int) -> bool:
        """Removes a vector and overwrites it; returns whether it was there."""
        with self._lock:
            row = self._row_of.pop(key, None)
            if row is None:
                return False
            last = self._count - 1
            if row != last:
                for column in (self._matrix, self._inverse_length, self._keys):
                    column[row] = column[last]
                self._created_at[row] = self._created_at[last]
                self._expires_at[row] = self._expires_at[last]
                self._row_of[int(self._keys[row])] = row
            self._matrix[last] = 0
            self._count = last
            return True

    def search(
        self, vector: ArrayLike, k: int, *, now: float, allowed: Iterable[int] | None = None
    ) -> list[tuple[int, float]]:
        """Finds the k vectors nearest to `vector`.

        Args:
            vector: (d,), any float type.
            k: How many at most.
            now: Seconds since the epoch. What has `expires_at <= now` is passed over and takes
                no place.
            allowed: Keys that may be returned (a set or an integer array is fastest); the others
                take no place. None allows all.

        Returns:
            Pairs of key and similarity (0..1, 6 decimals), best first. At equal similarity the
            one created last comes first, then the one with the highest key.

        Raises:
            ValueError: The vector is not of this set's dimension.
        """
        query = as_stored(vector).astype(np.float64)
        if query.shape != (self.dimension,):
            raise ValueError(f"expected a vector of {self.dimension} dimensions")
        with self._lock:
            if k < 1 or self._count == 0:
                return []
            rows, rough = self._score_roughly(query, now, allowed)
            if k < len(rough):
                lowest = np.partition(rough, len(rough) - k)[len(rough) - k]
                near = np.flatnonzero(rough >= lowest - self._margin)
                rows = near if rows is None else rows[near]
            elif rows is None:
                rows = np.arange(self._count)
            rows = rows[self._expires_at[rows] > now]
            exact = np.empty(len(rows), dtype=np.float64)
            for start in range(0, len(rows), _RESCORE_ROWS):
                block = self._matrix[rows[start : start + _RESCORE_ROWS]].astype(np.float64)
                exact[start : start + _RESCORE_ROWS] = _cosines(query, block)
            # lexsort puts its last key first in rank, and all of them ascending.
            order = np.lexsort((self._keys[rows], self._created_at[rows], exact))[::-1][:k]
            return list(zip(self._keys[rows[order]].tolist(), exact[order].tolist(), strict=True))

    def _score_roughly(self, query: Doubles, now: float, allowed: Iterable[int] | None) -> tuple[Rows | None, Floats]:
        """Returns the rows to look at (None: all) and the float32 similarity of each, clipped at 0.

        Clipped, because all that lies below 0 is shown as 0 and is then ordered by age; what may
        not be returned has -inf.
        """
        length = float(np.sqrt(query @ query))
        unit = (query / length if length > 0 else query).astype(np.float32)
        rows = None if allowed is None else self._rows_of(allowed)
        if rows is None:
            scores = self._matrix[: self._count] @ unit
        elif len(rows) > self._count * _GATHER_SHARE:
            scores = (self._matrix[: self._count] @ unit)[rows]
        else:
            scores = self._matrix[rows] @ unit
        chosen = slice(self._count) if rows is None else rows
        scores = np.maximum(scores * self._inverse_length[chosen], np.float32(0))
        scores[self._expires_at[chosen] <= now] = -np.inf
        return rows, scores

    def _rows_of(self, keys: Iterable[int]) -> Rows:
        """Returns the rows of those keys that are here, each once."""
        if isinstance(keys, np.ndarray):
            if len(keys) > self._count * _GATHER_SHARE:
                return np.flatnonzero(np.isin(self._keys[: self._count], keys))
            keys = keys.tolist()
        return np.array(sorted({self._row_of[key] for key in keys if key in self._row_of}), dtype=np.intp)

    def _reserve(self, wanted: int) -> None:
        """Makes room for `wanted` rows and half as many more, so that appending rarely copies.

        Room that is not used yet is address space only, no memory.
        """
        if wanted <= len(self._keys):
            return
        capacity = max(wanted + wanted // 2, _FIRST_CAPACITY)
        self._matrix = _grown(self._matrix, self._count, capacity)
        self._inverse_length = _grown(self._inverse_length, self._count, capacity)
        self._keys = _grown(self._keys, self._count, capacity)
        self._created_at = _grown(self._created_at, self._count, capacity)
        self._expires_at = _grown(self._expires_at, self._count, capacity)


def _inverse_lengths(rows: Floats) -> Floats:
    """Returns (n,) float32: one over the length of each row, 0 for a row of zeros."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    inverse: Doubles = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return inverse.astype(np.float32)


_Column = TypeVar("_Column", bound=NDArray[np.generic])


def _grown(column: _Column, count: int, capacity: int) -> _Column:
    """Returns a column with room for `capacity` rows that starts with the first `count` of the old."""
    grown = np.empty((capacity, *column.shape[1:]), dtype=column.dtype)
    grown[:count] = column[:count]
    return cast(_Column, grown)
