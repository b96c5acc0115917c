"""What feedback on an entry's answers says about the similarity from which it may be served.

Two ways to a threshold; the lower one counts.

By belief, for little feedback: an entry has a midpoint m and is right at similarity s with probability
1 / (1 + exp(-(s - m) / w)). Nobody knows m; the caller's threshold says what is believed before any feedback:
that at this very similarity `max_error` of the answers are wrong. Each observation moves that belief by Bayes'
rule, and the entry is served where the expected error is at most `max_error`.

By count, for much of it, whatever the shape: the entry is served above a similarity from which on so few of so
many answers were wrong that the upper confidence bound of the error is at most `max_error`.

What that guarantees: docs/decisions.md. Without feedback the threshold is the caller's. A right answer never
raises it, a wrong one never lowers it, whichever order they come in. Pure and deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

WIDTHS = (0.02, 0.05)
"""Widths w of the change from wrong to right; the expected error is the greatest of those under each. Source:
the likeliest ones of 4,617 nearest neighbours in banking77 and clinc150 (MiniLM, 12 and 8 stored an intent):
0.04 to 0.05 of those above 0.7, 0.02 to 0.04 of those above 0.8."""
SPREAD = 0.06
"""Scale of the logistic distribution of midpoints among entries. Source: the same fit, 0.05 to 0.08."""

CONFIDENCE = 0.9
"""Confidence of the upper bound by count (Clopper and Pearson's, one-sided): 45 right answers without a wrong one
bound an error of 0.05. Source: own choice; tests/test_feedback.py simulates what it comes to."""

NEVER = 1.001
"""A threshold above every similarity: even for its own task the answer was wrong."""

_MIDPOINTS = np.arange(-1.2, 1.2, 0.01)
"""Midpoints that are considered, relative to the caller's threshold. The sums over them are those of smooth
functions, exact far beyond what a threshold is rounded to."""
_STEPS = 10_000
_TOLERANCE = 1e-9
_HALVINGS = 40

Floats = NDArray[np.float64]


Reason = Literal["within", "belief", "count", "same task", "never"]
"""Why a threshold is what it is: the caller's own is within the bound, by belief, by count, only the entry's own
task is left, or not even that."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned of one entry, for one threshold of the caller.

    Attributes:
        threshold: Least similarity at which the entry is served, four decimals, not below the caller's; `NEVER`
            where the answer was wrong for the task itself.
        error_before: Expected share of wrong answers at the caller's threshold by belief, 0..1.
        error: The same at `threshold`.
    """

    threshold: float
    reason: Reason
    error_before: float
    error: float


def learned(observations: Iterable[tuple[float, bool]], least: float, max_error: float) -> Learned:
    """Returns the threshold that the feedback on an entry asks for.

    Args:
        observations: Similarity, 0..1, and whether the answer was right, of each query.
        least: The caller's threshold, 0..1.
        max_error: Share of wrong answers that is borne, between 0 and 1, both excluded.

    Raises:
        ValueError: `max_error` is out of range.
    """
    if not 0.0 < max_error < 1.0:
        raise ValueError("max_error is between 0 and 1")
    # Sorted, because sums of floats depend on their order.
    return _learned(tuple(sorted(observations)), least, max_error)


@lru_cache(maxsize=128)
def _learned(observations: tuple[tuple[float, bool], ...], least: float, max_error: float) -> Learned:
    if not observations:
        return Learned(least, "within", max_error, max_error)
    beliefs = [(width, _belief(width, max_error, observations, least)) for width in WIDTHS]

    def error(similarity: float) -> float:
        return max(_expected_error(similarity - least, width, belief) for width, belief in beliefs)

    before, most = error(least), max_error + _TOLERANCE
    if before <= most:
        return Learned(least, "within", before, before)
    counted = _counted(observations, least, max_error)
    believed = _least_within(error, least, most) if error(1.0) <= most else None
    if believed is not None and (counted is None or believed <= counted):
        return Learned(believed, "belief", before, error(believed))
    if counted is not None:
        return Learned(counted, "count", before, error(counted))
    if any(similarity >= 1.0 and not correct for similarity, correct in observations):
        return Learned(NEVER, "never", before, error(1.0))
    # Under the widest curve even the same text might be wrong; that it was is for feedback to say.
    return Learned(1.0, "same task", before, error(1.0))


def _least_within(error: Callable[[float], float], low: float, most: float) -> float:
    """Returns where a falling error is at most `most`, rounded up; it is so at 1."""
    high = 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if error(middle) <= most else (middle, high)
    return min(math.ceil(high * _STEPS) / _STEPS, 1.0)


def _counted(observations: Sequence[tuple[float, bool]], least: float, max_error: float) -> float | None:
    """Returns the least similarity above which the bound by count holds, or None.

    Args:
        observations: Sorted by similarity.
    """
    above = [(similarity, correct) for similarity, correct in observations if similarity >= least]
    seen, wrong = len(above), sum(not correct for _, correct in above)
    if is_bounded(wrong, seen, max_error):
        return least
    for number, (similarity, correct) in enumerate(above):
        wrong -= not correct
        last_of_equals = number + 1 == len(above) or above[number + 1][0] > similarity
        # Just above the one that was left out, not at the next one: a wrong answer between the two would else
        # lower the threshold.
        threshold = (math.floor(similarity * _STEPS) + 1) / _STEPS
        if last_of_equals and threshold <= 1.0 and is_bounded(wrong, seen - number - 1, max_error):
            return threshold
    return None


def is_bounded(wrong: int, seen: int, max_error: float, confidence: float = CONFIDENCE) -> bool:
    """Returns whether the upper confidence bound of an error is at most `max_error`, after `wrong` of `seen`.

    That is: were the error so large, so few wrong ones would be seen with a probability of at most 1 - confidence.
    """
    if seen == 0 or wrong > max_error * seen:
        return False
    logs = (
        math.lgamma(seen + 1)
        - math.lgamma(k + 1)
        - math.lgamma(seen - k + 1)
        + k * math.log(max_error)
        + (seen - k) * math.log1p(-max_error)
        for k in range(wrong + 1)
    )
    return math.fsum(map(math.exp, logs)) <= 1.0 - confidence


def prior_weight(midpoint: float, least: float, max_error: float, width: float) -> float:
    """Returns the weight, 0..1, that a midpoint near to the given one has before any feedback."""
    belief = _prior(width, max_error)
    return float(belief[np.abs(_MIDPOINTS - (midpoint - least)).argmin()])


def _belief(width: float, max_error: float, observations: Iterable[tuple[float, bool]], least: float) -> Floats:
    """Returns the weights of the midpoints, (k,), summing to 1, after the observations."""
    said = np.array([(similarity - least, 1.0 if correct else -1.0) for similarity, correct in observations])
    # The log of the probability of each verdict: that of a wrong one is that of a right one mirrored.
    odds = (said[:, :1] - _MIDPOINTS) * (said[:, 1:] / width)
    # No overflow: an exponent is at most 2.4 / 0.02.
    logs = np.log(_prior(width, max_error)) - np.log1p(np.exp(-odds)).sum(axis=0)
    return _normalised(logs)


def _expected_error(similarity: float, width: float, belief: Floats) -> float:
    """Returns the expected share of wrong answers at a similarity relative to the caller's threshold."""
    return float(belief @ (0.5 - 0.5 * np.tanh((similarity - _MIDPOINTS) / (2 * width))))


@lru_cache(maxsize=32)
def _prior(width: float, max_error: float) -> Floats:
    """Returns the weights of the midpoints, (k,), by which the error at the caller's threshold is `max_error`."""
    low, high = float(_MIDPOINTS[0]), float(_MIDPOINTS[-1])
    for _ in range(_HALVINGS):
        centre = (low + high) / 2
        weights = _logistic(centre)
        low, high = (centre, high) if _expected_error(0.0, width, weights) <= max_error else (low, centre)
    return _logistic(low)


def _logistic(centre: float) -> Floats:
    # In logs, because far tails underflow.
    away = np.abs(_MIDPOINTS - centre) / SPREAD
    logs = -away - 2.0 * np.log1p(np.exp(-away))
    return _normalised(logs)


def _normalised(logs: Floats) -> Floats:
    weights: Floats = np.exp(logs - logs.max())
    weights /= weights.sum()
    return weights
