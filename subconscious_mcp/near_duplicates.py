"""Which entries say the same, so that one of them can stand for the others.

Two entries are the same where their similarity is high enough and the check of contrasts lets each stand for the other.
Similarity alone is no ground: "gate 12" and "gate 21" are nearer to each other than most sentences told anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import verification
from subconscious_mcp.arguments import MAX_TAGS
from subconscious_mcp.exact_search import similarities
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Contrast, Entry, Kind

LEAST = 0.95
"""Similarity from which two entries may be merged. Source: tools/measure_consolidation.py with all-MiniLM-L6-v2. Of 281
pairs that differ in meaning (60 own notes, 221 pairs of the tests of contrasts) 0 would be merged, at 0.92 3; 143 pairs
of a set of paraphrases that are this near and no pair of the set would be, and read one by one say the same. The price
is what is missed: merged are 26 of 45 own notes told anew (31 at 0.92) and 382 of 999 paraphrases (611 at 0.92). A
wrong merge hides what somebody said, a missed one costs a line."""

MOST_FAILED = 6
"""Near entries that a survivor may be compared with in vain. Source: own choice; about a millisecond each, and who has
so many neighbours that say something else is one of a series, in which what is told twice lies nearest."""
MOST_APART = 20
"""Near pairs that are told although they are not merged."""
_VALUES = frozenset(("number", "version", "identifier", "date", "unit", "quoted", "path", "flag", "code", "name"))
"""Kinds of contrasts that are values and not words."""
_BLOCK_VALUES = 4_000_000
"""Similarities that are computed at once, 16 MB."""
_PORTION = 32
_ROUNDING = 1e-3
"""By how much the product over all rows may be off; what passes is computed exactly."""

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


class Row(NamedTuple):
    """What the search for duplicates keeps of an entry; its texts stay in the store."""

    key: int
    id: str
    kind: Kind
    same: bytes
    """Only entries with equal values can be one: the kind, and for a task with an answer the answer."""
    rank: tuple[float, float, int]
    """Of two that are one the greater survives."""
    created_at: float
    chars: int
    tags: tuple[str, ...]
    source: str
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Member:
    """An entry that another may stand for.

    Attributes:
        similarity: Cosine of it and the survivor, 0..1.
        confidence: 0..1, probability that they are the same, of both directions the lesser.
        contrasts: What differs nevertheless, too little to tell them apart.
    """

    entry: Entry
    similarity: float
    confidence: float
    contrasts: tuple[Contrast, ...] = ()

    @property
    def why(self) -> str:
        """Why it is thought the same, for people."""
        if self.similarity >= verification.SAME_WORDS:
            return "the same words"
        differs = ", ".join(str(one) for one in self.contrasts) or "nothing"
        return f"similarity {self.similarity:.4f}, confidence {self.confidence:.2f} both ways, differs: {differs}"


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that are one.

    Attributes:
        survivor: Which stands for the others. Every member was compared with it, so there are no chains.
        members: The others.
    """

    survivor: Entry
    members: tuple[Member, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all, the survivor's first."""
        return tuple(dict.fromkeys(tag for one in self._entries() for tag in one.tags))

    @property
    def expires_at(self) -> float | None:
        """When the last of them expires; None is never."""
        times = [one.expires_at for one in self._entries()]
        return None if None in times else max(time for time in times if time is not None)

    @property
    def united(self) -> bool:
        """Whether the survivor alone would be found less or shorter than all were, so that a new entry is needed."""
        return set(self.tags) != set(self.survivor.tags) or self.expires_at != self.survivor.expires_at

    def _entries(self) -> tuple[Entry, ...]:
        return (self.survivor, *(member.entry for member in self.members))


@dataclass(frozen=True, slots=True)
class Apart:
    """Two near entries that are not merged, and what keeps them apart, the strongest first."""

    one: Entry
    other: Entry
    similarity: float
    confidence: float
    contrasts: tuple[Contrast, ...]


@dataclass(slots=True)
class Found:
    """What a search came to.

    Attributes:
        least: Similarity below which nothing was compared.
        cut: Some survivors have more near entries than were compared.
    """

    least: float
    groups: list[Group] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)
    cut: bool = False


def rows(memory: Memory, scope: Scope, kinds: Sequence[Kind]) -> list[Row]:
    """Returns the live entries of some kinds that the model in use has embedded, the best survivors first.

    Answers of which somebody said whether they were right are left out: what was learned belongs to the entry.
    """
    store, namespace, now = memory.store, scope.namespace, memory.now()
    said = {one.entry_id for one in store.feedback(namespace)} if "memory" in kinds else set()
    found: list[Row] = []
    after, upto = 0, store.last_key()
    fingerprint = memory.embedder().fingerprint
    while page := store.export_page(namespace.key, kinds, fingerprint, after=after, upto=upto, now=now):
        after = page[-1][0].key
        found += [
            _row(entry, vector)
            for entry, vector in page
            if vector is not None and entry.archived_at is None and entry.id not in said
        ]
    return sorted(found, key=lambda row: row.rank, reverse=True)


def _row(entry: Entry, vector: bytes) -> Row:
    answer = hashlib.sha256(_flat(entry.answer).encode()).digest() if entry.answer else b""
    return Row(
        entry.key,
        entry.id,
        entry.kind,
        entry.kind.encode() + answer,
        _rank(entry),
        entry.created_at,
        len(entry.task),
        entry.tags,
        entry.source,
        np.frombuffer(vector, dtype="<f2").astype(np.float32),
    )


def _rank(entry: Entry) -> tuple[float, float, int]:
    """Returns what decides which of several entries stands for the others.

    Of facts the newest: a fact holds until something else is said. Of notes the longest: each was true at its moment,
    and the longest says what the others say and perhaps more. Of answers the one that lives longest.
    """
    if entry.kind == "fact":
        first = 0.0
    elif entry.kind == "memory":
        first = np.inf if entry.expires_at is None else entry.expires_at
    else:
        first = float(len(_flat(entry.task)))
    return first, entry.created_at, entry.key


def _flat(text: str) -> str:
    return " ".join(text.split())


def find(memory: Memory, found_rows: Sequence[Row], least: float, progress: Progress | None = None) -> Found:
    """Groups the entries that are one.

    Args:
        found_rows: The best survivors first. Each in turn takes what is the same and not taken yet.
        least: Similarity, 0..1, below which nothing is compared.
    """
    found = Found(least)
    total = len(found_rows)
    if not total:
        return found
    matrix = np.stack([row.vector for row in found_rows])
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix /= np.where(lengths > 0, lengths, 1.0)
    names = {name: number for number, name in enumerate(dict.fromkeys(row.same for row in found_rows))}
    same = np.array([names[row.same] for row in found_rows])
    free = np.ones(total, dtype=bool)
    block = max(1, min(total, _BLOCK_VALUES // total))
    for start in range(0, total, block):
        products = matrix[start : start + block] @ matrix.T
        for number in range(start, min(start + block, total)):
            if not free[number]:
                continue
            # Only those behind it: a better one would have taken it.
            near = np.flatnonzero(products[number - start, number + 1 :] >= least - _ROUNDING) + number + 1
            near = near[free[near] & (same[near] == same[number])]
            if len(near):
                nearest = near[np.argsort(-products[number - start, near], kind="stable")]
                free[_gather(memory, found_rows, number, nearest, found)] = False
        if progress is not None:
            progress(min(start + block, total), total)
    return found


def _gather(
    memory: Memory, found_rows: Sequence[Row], number: int, nearest: NDArray[np.intp], found: Found
) -> list[int]:
    """Lets one entry take those of its neighbours, the nearest first, that are the same; returns their places."""
    row = found_rows[number]
    taken: list[int] = []
    members: list[Member] = []
    survivor = memory.store.entries([row.key]).get(row.key)
    if survivor is None:
        return taken
    tags, failed = set(survivor.tags), 0
    # In portions, because in a series everything is near and nearly nothing is looked at.
    for start in range(0, len(nearest), _PORTION):
        some = nearest[start : start + _PORTION].tolist()
        exact = similarities(row.vector, np.stack([found_rows[other].vector for other in some]))
        entries = memory.store.entries([found_rows[other].key for other in some])
        for place, similarity in zip(some, exact.tolist(), strict=True):
            other = entries.get(found_rows[place].key)
            if other is None or similarity < found.least or len(tags | set(other.tags)) > MAX_TAGS:
                continue
            if failed >= MOST_FAILED:
                found.cut = True
                break
            confidence, contrasts, apart = compared(survivor, other, similarity)
            if apart:
                failed += 1
                _note_apart(found, Apart(survivor, other, similarity, confidence, contrasts))
            else:
                tags |= set(other.tags)
                taken.append(place)
                members.append(Member(other, similarity, confidence, contrasts))
        if failed >= MOST_FAILED:
            found.cut = found.cut or start + _PORTION < len(nearest)
            break
    if members:
        found.groups.append(Group(survivor, tuple(members)))
    return taken


def compared(survivor: Entry, other: Entry, similarity: float) -> tuple[float, tuple[Contrast, ...], bool]:
    """Returns the confidence that an entry is the same as one that may stand for it, what differs, and if it is not.

    Asked both ways, because an addition can be harmless for one direction only.
    """
    there = verification.check(survivor.task, other.task, similarity)
    decisive = any(c.strength >= verification.DECISIVE or _is_lost(c) for c in there.contrasts)
    if there.blocked or decisive:
        return there.confidence, there.contrasts[: verification.SHOWN], True
    back = verification.check(other.task, survivor.task, similarity)
    contrasts = there.contrasts if there.confidence <= back.confidence else back.contrasts
    apart = back.blocked or any(c.strength >= verification.DECISIVE for c in back.contrasts)
    return min(there.confidence, back.confidence), contrasts[: verification.SHOWN], apart


def _is_lost(contrast: Contrast) -> bool:
    """Tells whether a contrast is a value that only the entry to be archived says.

    An answer may be served although a query says one value more; an entry that is archived takes it along.
    """
    return contrast.kind in _VALUES and not contrast.query_value


def _note_apart(found: Found, apart: Apart) -> None:
    found.apart.append(apart)
    if len(found.apart) > 2 * MOST_APART:
        nearest_apart(found)


def nearest_apart(found: Found) -> None:
    """Leaves of the pairs that are not merged the nearest."""
    found.apart.sort(key=lambda one: -one.similarity)
    del found.apart[MOST_APART:]
