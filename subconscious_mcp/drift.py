"""First-fill semantic drift: entries whose one answer serves too broad a family of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from subconscious_mcp.echo_log import CUT_MARK, EchoLine
from subconscious_mcp.records import DriftCandidate, DriftReport
from subconscious_mcp.verification import MOST_PAIRS, among

MIN_PHRASINGS = 2
"""A band needs two ends: an entry that answers one phrasing has not drifted."""


@dataclass(slots=True)
class _Served:
    """The hits of one entry, by phrasing: the last similarity, and the words that were used."""

    hits: int = 0
    similarities: dict[str, float] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)


def report(
    lines: Iterable[EchoLine | None],
    tasks: Callable[[Sequence[str]], Mapping[str, str]],
    *,
    min_hits: int,
    min_spread: float,
) -> DriftReport:
    """Reads an echo log for entries whose hits span a wide band of similarities.

    Those whose queries contrast with each other come first: that is drift, a wide band only hints at it.

    Args:
        lines: The log, oldest first; None stands for a damaged line.
        tasks: Returns the task texts of the entries that are still stored, by id.
        min_hits: Recorded hits before an entry is considered.
        min_spread: Least width, max - min, of the band to flag.
    """
    recalls = skipped = 0
    served: dict[str, _Served] = {}
    for line in lines:
        if line is None:
            skipped += 1
            continue
        recalls += 1
        if line.hit and line.entry_id is not None:
            entry = served.setdefault(line.entry_id, _Served())
            entry.hits += 1
            said = phrasing(line.query)
            entry.similarities[said] = line.similarity
            entry.queries[said] = line.query
    stored = tasks(list(served))
    candidates = [
        candidate
        for entry_id, entry in served.items()
        if entry.hits >= min_hits
        and (candidate := _candidate(entry_id, entry, stored.get(entry_id))) is not None
        and candidate.similarity_spread >= min_spread
    ]
    candidates.sort(key=lambda c: (-c.similarity_spread, -c.hits, c.entry_id))
    left = MOST_PAIRS
    for number, candidate in enumerate(candidates):
        found, compared = among(served[candidate.entry_id].queries.values(), left)
        left -= compared
        candidates[number] = replace(candidate, contrasts=found)
    candidates.sort(key=lambda c: -sum(contrast.strength for contrast in c.contrasts))
    return DriftReport(recalls, len(served), tuple(candidates), skipped)


def phrasing(query: str) -> str:
    """Returns a query without what does not make it another phrasing: case and blanks."""
    return " ".join(query.casefold().split())


def _candidate(entry_id: str, entry: _Served, task: str | None) -> DriftCandidate | None:
    # Repeats of the stored text itself say nothing about breadth: they are always near 1.
    own = phrasing(task) if task is not None else None
    band = [
        similarity
        for text, similarity in entry.similarities.items()
        if text != own and not (own is not None and text.endswith(CUT_MARK) and own.startswith(text[:-1]))
    ]
    if len(band) < MIN_PHRASINGS:
        return None
    return DriftCandidate(
        entry_id=entry_id,
        task_text=task,
        still_stored=task is not None,
        hits=entry.hits,
        distinct_queries=len(entry.similarities),
        similarity_min=min(band),
        similarity_max=max(band),
        similarity_spread=round(max(band) - min(band), 6),
    )
