"""The second check between the nearest entries and an answer: does it answer this query?

Similarity finds what is near; `confidence` tells whether it is the same. The threshold stays the caller's: the
check only takes away, and passes on to the next entry what it takes from the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from subconscious_mcp import confidence
from subconscious_mcp.confidence import Judgement
from subconscious_mcp.contrasts import contrasts
from subconscious_mcp.records import Contrast, Near, Recall

CANDIDATES = 4
"""Entries that are looked at where the caller asks for fewer, so that the next may answer in place of one that is
blocked: of two tasks that differ in a word, either can lie nearer to a third wording. Source: own choice; each
costs half a millisecond, and only when the one before was blocked."""

LOOSE = 0.8
"""Similarity below which only a decisive contrast keeps an answer back: whoever lowers the threshold so far
wants to see what is merely related, and the confidence says so. Source: own choice; the model learned on pairs
around the default threshold of 0.85."""
UNRELATED = 0.5
"""Similarity below which nothing is kept back: two texts so far apart have no values in the same place."""

SHOWN = 5
"""Contrasts that are told: one decides, the rest is for who wants to see."""

DECISIVE = 0.5
"""Strength from which a contrast is told where nothing else is said of it. Source: `contrasts`, where
0.5 and more is "probably another task"."""

_MOST_PHRASINGS = 12
"""Queries of an entry that are compared with each other: 66 pairs, some 40 ms."""
MOST_PAIRS = 2_000
"""Pairs of queries that one report compares, about a second."""


def verified(query: str, near: Sequence[Near], least: Callable[[Near], float], threshold: float) -> Recall:
    """Chooses what a recall serves: the nearest entry that is near enough and not blocked.

    Args:
        query: The task that is looked up.
        near: Live entries, nearest first; each may answer in place of those before it.
        least: Returns the similarity that an entry needs.
        threshold: What the caller asked for, for the record.

    Returns:
        A hit; or a miss, which names the nearest entry as blocked where only this check kept it back.
    """
    kept_back: Recall | None = None
    for candidate in near:
        if candidate.similarity < least(candidate):
            continue
        found, blocked = _judged(query, candidate, threshold)
        if not blocked:
            return replace(found, hit=True)
        kept_back = kept_back or replace(found, blocked=True)
    if kept_back is not None:
        return kept_back
    return _judged(query, near[0], threshold)[0] if near else Recall(False, 0.0, None, threshold)


def _judged(query: str, candidate: Near, threshold: float) -> tuple[Recall, bool]:
    judged = check(query, candidate.entry.task, candidate.similarity)
    shown = judged.contrasts[:SHOWN]
    return Recall(False, candidate.similarity, candidate, threshold, judged.confidence, shown), judged.blocked


def check(query: str, stored: str, similarity: float) -> Judgement:
    """Returns what `confidence` says of a query and a stored task; blocked only where that counts."""
    judged = confidence.judge(query, stored, similarity)
    return replace(judged, blocked=judged.blocked and _counts(similarity, judged.contrasts))


def _counts(similarity: float, found: Sequence[Contrast]) -> bool:
    decisive = any(contrast.strength >= DECISIVE for contrast in found)
    return similarity >= LOOSE or (decisive and similarity >= UNRELATED)


def warm() -> None:
    """Builds what the first check would build, some 40 ms."""
    confidence.warm()


def answers(query: str, near: Near) -> bool:
    """Returns whether the check lets an entry's answer through."""
    return not check(query, near.entry.task, near.similarity).blocked


def told(query: str, stored: str) -> tuple[Contrast, ...]:
    """Returns the contrasts worth telling of two texts, the strongest first."""
    return tuple(c for c in contrasts(query, stored) if c.strength >= DECISIVE)[:SHOWN]


def among(queries: Iterable[str], most_pairs: int) -> tuple[tuple[Contrast, ...], int]:
    """Returns how queries that one answer served contrast with each other, the strongest first.

    Args:
        queries: Distinct phrasings; of many, the last are compared.
        most_pairs: Pairs that may be compared.

    Returns:
        The contrasts, each pair of values once, and how many pairs were compared.
    """
    some = list(queries)[-_MOST_PHRASINGS:]
    found: dict[tuple[str, frozenset[str]], Contrast] = {}
    compared = 0
    for number, one in enumerate(some):
        for other in some[:number]:
            if compared >= most_pairs:
                break
            compared += 1
            for contrast in told(one, other):
                values = frozenset((contrast.query_value.casefold(), contrast.stored_value.casefold()))
                known = found.setdefault((contrast.kind, values), contrast)
                if known.strength < contrast.strength:
                    found[(contrast.kind, values)] = contrast
    return tuple(sorted(found.values(), key=lambda c: -c.strength)), compared
