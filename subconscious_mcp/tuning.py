"""Threshold advice: hit rate against expected error, from the log of recalls and the feedback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from subconscious_mcp.confidence import Judgement
from subconscious_mcp.echo_log import CUT_MARK, EchoLine
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Observation
from subconscious_mcp.verification import check

THRESHOLDS = tuple(round(0.70 + 0.02 * step, 2) for step in range(15))
"""0.70 to 0.98."""
ENOUGH = 20
"""Observations, or checked recalls, from which a share of errors is told. Source: own choice; the 95 % interval
of 1 in 20 reaches from 1 to 24 %."""
NEAR = 0.05
ENOUGH_NEAR = 5
"""Feedback counts at a threshold only if so many of the observations lie less than `NEAR` above it: people say
something of what was served, and what was never served would else look as good as that."""
MOST_JUDGED = 2_000
"""Pairs of query and task that are checked for contrasts, the newest: one or two seconds."""
_Z = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""

Source = Literal["feedback", "confidence"]


@dataclass(frozen=True, slots=True)
class Row:
    """What a threshold would come to.

    Attributes:
        hits: Logged recalls that would hit.
        hit_rate: Their share of all, 0..1.
        error: Expected share of wrong answers among the hits, 0..1; None where too little is known.
        interval: The 95 % interval of it, where it comes from feedback.
        source: Where it comes from.
        basis: Observations or checked recalls that it rests on.
    """

    threshold: float
    hits: int
    hit_rate: float
    error: float | None
    interval: tuple[float, float] | None
    source: Source | None
    basis: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A table of thresholds, and which to take for an error that is borne.

    Attributes:
        recalls: Lines of the log that could be read.
        skipped: Damaged ones.
        said: Observations that count; see `Memory.counted`.
        current: The threshold in use.
        recommended: None where none can be recommended.
        sentence: The advice in words.
    """

    rows: tuple[Row, ...]
    recalls: int
    skipped: int
    said: int
    current: float
    max_error: float
    recommended: float | None
    sentence: str


def tune(memory: Memory, scope: Scope, *, max_error: float = 0.05) -> Advice:
    """Advises on the threshold of a namespace.

    Args:
        max_error: Share of wrong answers among the hits that is borne, between 0 and 1.

    Raises:
        InvalidArgument: `max_error` is out of range.
    """
    if not 0.0 < max_error < 1.0:
        raise InvalidArgument("max_error takes a number between 0 and 1.")
    memory.settle()
    said = memory.counted(scope, memory.store.feedback(scope.namespace))
    return advise(
        scope.echo_log.lines() if scope.echo_log is not None else (),
        said,
        lambda ids: memory.store.tasks_by_id(scope.namespace, ids),
        current=scope.threshold,
        max_error=max_error,
        verify=scope.verify,
    )


def advise(
    lines: Iterable[EchoLine | None],
    said: Sequence[Observation],
    tasks: Callable[[Sequence[str]], Mapping[str, str]],
    *,
    current: float,
    max_error: float,
    verify: bool,
) -> Advice:
    """Makes the table from a log and feedback.

    Args:
        lines: The log, oldest first; None stands for a damaged line.
        tasks: Returns the task texts of the entries that are still stored, by id.
        current: The threshold in use, which gets a row of its own.
        verify: The check of contrasts counts: what it blocks is no hit.
    """
    recalls: list[EchoLine] = []
    skipped = 0
    for line in lines:
        if line is None:
            skipped += 1
        else:
            recalls.append(line)
    judged = _judged(recalls, tasks)
    kept = [(line, judged.get((line.query, line.entry_id))) for line in recalls]
    near = [
        (line.similarity, found)
        for line, found in kept
        # The log also knows what the entries around it kept back, which is not counted again.
        if not (verify and (line.blocked or (found is not None and found.blocked)))
    ]
    rows = tuple(_row(threshold, near, said, len(recalls)) for threshold in sorted({*THRESHOLDS, round(current, 4)}))
    best = _recommended(rows, max_error)
    sentence = _sentence(best, rows, len(recalls), len(said), max_error)
    return Advice(
        rows, len(recalls), skipped, len(said), current, max_error, best.threshold if best else None, sentence
    )


def _judged(
    recalls: Sequence[EchoLine], tasks: Callable[[Sequence[str]], Mapping[str, str]]
) -> dict[tuple[str, str | None], Judgement]:
    """Returns what the check says of the newest pairs of query and task; each pair once."""
    wanted: dict[tuple[str, str], float] = {}
    for line in reversed(recalls):
        # A cut query lacks what its task may say behind the cut.
        if line.entry_id is not None and line.similarity >= THRESHOLDS[0] and not line.query.endswith(CUT_MARK):
            wanted.setdefault((line.query, line.entry_id), line.similarity)
            if len(wanted) == MOST_JUDGED:
                break
    stored = tasks(list({entry_id for _, entry_id in wanted}))
    return {
        (query, entry_id): check(query, stored[entry_id], similarity)
        for (query, entry_id), similarity in wanted.items()
        if entry_id in stored
    }


def _row(
    threshold: float, near: Sequence[tuple[float, Judgement | None]], said: Sequence[Observation], recalls: int
) -> Row:
    hits = [found for similarity, found in near if similarity >= threshold]
    rate = len(hits) / recalls if recalls else 0.0
    above = [one for one in said if one.similarity >= threshold]
    if len(above) >= ENOUGH and sum(one.similarity < threshold + NEAR for one in above) >= ENOUGH_NEAR:
        wrong = sum(not one.correct for one in above)
        return Row(
            threshold,
            len(hits),
            rate,
            wrong / len(above),
            wilson(wrong, len(above)),
            "feedback",
            len(above),
        )
    checked = [found.confidence for found in hits if found is not None]
    if len(checked) >= ENOUGH:
        error = math.fsum(1.0 - trust for trust in checked) / len(checked)
        return Row(threshold, len(hits), rate, error, None, "confidence", len(checked))
    return Row(threshold, len(hits), rate, None, None, None, max(len(above), len(checked)))


def wilson(wrong: int, seen: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share, 0..1, after Wilson; `seen` is at least 1."""
    share = wrong / seen
    centre = (share + _Z**2 / (2 * seen)) / (1 + _Z**2 / seen)
    half = _Z / (1 + _Z**2 / seen) * math.sqrt(share * (1 - share) / seen + _Z**2 / (4 * seen**2))
    # At the ends rounding would leave the share itself outside.
    return (max(0.0, centre - half) if wrong else 0.0), (min(1.0, centre + half) if wrong < seen else 1.0)


def _recommended(rows: Sequence[Row], max_error: float) -> Row | None:
    """Returns the lowest threshold within the bound that has none above it that is not."""
    best = None
    for row in reversed(rows):
        if row.error is None:
            continue
        if row.error > max_error:
            break
        best = row
    return best


def _sentence(best: Row | None, rows: Sequence[Row], recalls: int, said: int, max_error: float) -> str:
    bound = f"{max_error:.1%}"
    if best is None:
        known = [row for row in rows if row.error is not None]
        if not known:
            return (
                f"Too little is known for advice: {recalls} recalls and {said} observations by feedback;"
                f" it takes {ENOUGH} recalls near to a stored task, or {ENOUGH} observations."
            )
        return (
            f"No threshold can be recommended: at {known[-1].threshold:.2f} still {known[-1].error:.1%} of the hits"
            f" are expected to be wrong, more than {bound}."
        )
    advice = (
        f"For at most {bound} wrong answers set default_threshold to {best.threshold:.2f}: {best.hit_rate:.0%} of the"
        f" recalls hit, and {best.error:.1%} of the hits are expected to be wrong"
    )
    if best.interval is None:
        return f"{advice}, by the check's confidence in {best.basis} of them; nobody has confirmed it by feedback."
    doubt = "" if best.interval[1] <= max_error else ", so more feedback is needed to be sure"
    interval = f"{best.interval[0]:.1%} to {best.interval[1]:.1%}"
    return f"{advice}, by {best.basis} observations (95 % interval {interval}){doubt}."
