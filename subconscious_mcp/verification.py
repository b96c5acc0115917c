"""The second check between the nearest entries and an answer: does it answer this query?

Similarity finds what is near; `confidence` tells whether it is the same, and `neighbourhood` what the other near
entries make of it where several share an answer. The threshold stays the caller's: the check only takes away,
and passes on to the next entry what it takes from the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from subconscious_mcp import confidence, neighbourhood
from subconscious_mcp.confidence import Judgement
from subconscious_mcp.contrasts import contrasts
from subconscious_mcp.records import Contrast, Near, Recall

CANDIDATES = 4
"""Entries that are looked at where the caller asks for fewer, so that the next may answer in place of one that is
blocked: of two tasks that differ in a word, either can lie nearer to a third wording. Source: own choice; each
costs half a millisecond, and only when the one before was blocked."""
NEIGHBOURS = neighbourhood.NEIGHBOURS
"""Entries that the check wants to see, see `neighbourhood`."""

LOOSE = 0.8
"""Similarity below which only a decisive contrast keeps an answer back: whoever lowers the threshold so far
wants to see what is merely related, and the confidence says so. Source: own choice; the model learned on pairs
around the default threshold of 0.85."""
UNRELATED = 0.5
"""Similarity below which nothing is kept back: two texts so far apart have no values in the same place."""

SAME_WORDS = 0.9999
"""Similarity of the same words: a model that folds case gives them 1 but for rounding."""

SHOWN = 5
"""Contrasts that are told: one decides, the rest is for who wants to see."""

DECISIVE = 0.5
"""Strength from which a contrast is told where nothing else is said of it. Source: `contrasts`, where
0.5 and more is "probably another task"."""

_MOST_PHRASINGS = 12
"""Queries of an entry that are compared with each other: 66 pairs, some 40 ms."""
MOST_PAIRS = 2_000
"""Pairs of queries that one report compares, about a second."""


def verified(
    query: str, near: Sequence[Near], least: Callable[[Near], float], threshold: float, candidates: int = CANDIDATES
) -> Recall:
    """Chooses what a recall serves: the nearest entry that is near enough and not blocked.

    Args:
        query: The task that is looked up.
        near: Live entries, nearest first, at best `NEIGHBOURS` of them: the others are asked too.
        least: Returns the similarity that an entry needs.
        threshold: What the caller asked for, for the record.
        candidates: Of `near`, how many may answer in place of those before them.

    Returns:
        A hit; or a miss, which names the nearest entry as blocked where only this check kept it back.
    """
    kept_back: Recall | None = None
    besides: list[Near] = []
    for candidate in near[:candidates]:
        if candidate.similarity < least(candidate):
            continue
        judged = judge_among(query, candidate, near, besides)
        if not judged.blocked:
            return replace(_recall(candidate, threshold, judged), hit=True)
        kept_back = kept_back or replace(_recall(candidate, threshold, judged), blocked=True)
        if judged.rival is None:
            besides.append(candidate)
    if kept_back is not None:
        return kept_back
    return (
        _recall(near[0], threshold, judge_among(query, near[0], near)) if near else Recall(False, 0.0, None, threshold)
    )


def _recall(candidate: Near, threshold: float, judged: Verdict) -> Recall:
    shown = judged.contrasts[:SHOWN]
    return Recall(False, candidate.similarity, candidate, threshold, judged.confidence, shown, rival=judged.rival)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check says of a candidate.

    Attributes:
        confidence: 0..1, probability that its answer answers the query.
        contrasts: What tells it and the query apart, the strongest first.
        blocked: Its answer is kept back.
        rival: The nearest entry with another answer, where that is why.
    """

    confidence: float
    contrasts: tuple[Contrast, ...]
    blocked: bool
    rival: Near | None = None


def judge_among(query: str, candidate: Near, near: Sequence[Near], besides: Sequence[Near] = ()) -> Verdict:
    """Judges a candidate by its text, and by the entries around it where answers repeat.

    Args:
        near: The entries nearest to the query, `candidate` among them.
        besides: Those that are known to be other tasks.
    """
    judged = check(query, candidate.entry.task, candidate.similarity)
    alone = Verdict(judged.confidence, judged.contrasts, judged.blocked)
    decisive = any(contrast.strength >= DECISIVE for contrast in judged.contrasts)
    if (judged.blocked and decisive) or candidate.similarity >= SAME_WORDS:
        # No vote makes another task this one, nor the same words another task.
        return alone
    around = neighbourhood.evidence(candidate, near, besides)
    if around is None:
        return alone
    sure = neighbourhood.confidence(around)
    blocked = candidate.similarity >= UNRELATED and sure < neighbourhood.limit()
    return Verdict(sure, judged.contrasts, blocked, around.rival if blocked else None)


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
    neighbourhood.limit()


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
