"""The threshold that feedback asks for: monotone, bounded, and the error that it promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from subconscious_mcp.feedback import NEVER, WIDTHS, is_bounded, learned, prior_weight

LEAST = 0.85

similarities = st.floats(0.0, 1.0)
thresholds = st.floats(0.0, 1.0)
errors = st.floats(1e-6, 1.0 - 1e-6)
observations = st.lists(st.tuples(similarities, st.booleans()), max_size=12)
bounded = settings(max_examples=60, deadline=None)


def threshold(said: list[tuple[float, bool]], least: float = LEAST, max_error: float = 0.05) -> float:
    return learned(said, least, max_error).threshold


# --- what it always is


@bounded
@given(thresholds, errors)
def test_without_feedback_it_is_the_callers_threshold(least: float, max_error: float) -> None:
    assert threshold([], least, max_error) == least


@bounded
@given(observations, thresholds, errors)
@example([(1.0, False)] * 12, 1.0, 1e-6)
@example([(0.0, False)] * 12, 0.0, 1 - 1e-6)
def test_it_is_between_the_callers_threshold_and_never(
    said: list[tuple[float, bool]], least: float, max_error: float
) -> None:
    found = learned(said, least, max_error)
    assert least <= found.threshold <= NEVER
    assert 0.0 <= found.error <= found.error_before <= 1.0 or found.threshold == least
    assert found.error <= max_error + 1e-6 or found.reason in ("count", "same task", "never")


@bounded
@given(observations, similarities, thresholds, errors)
def test_a_right_answer_never_raises_it_and_a_wrong_one_never_lowers_it(
    said: list[tuple[float, bool]], similarity: float, least: float, max_error: float
) -> None:
    now = threshold(said, least, max_error)
    assert threshold([*said, (similarity, True)], least, max_error) <= now
    assert threshold([*said, (similarity, False)], least, max_error) >= now


@bounded
@given(observations, similarities, similarities, errors)
def test_what_was_wrong_nearer_speaks_more_against_it(
    said: list[tuple[float, bool]], one: float, other: float, max_error: float
) -> None:
    farther, nearer = sorted((one, other))
    below = threshold([*said, (farther, False)], LEAST, max_error)
    assert below <= threshold([*said, (nearer, False)], LEAST, max_error)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.85, 1.0), st.floats(0, 1)), min_size=40, max_size=120),
    st.floats(0.03, 0.4),
    st.floats(0.85, 1.0),
)
def test_much_feedback_is_monotone_too(drawn: list[tuple[float, float]], max_error: float, similarity: float) -> None:
    said = [(at, luck > 0.3 * max_error or at > 0.95) for at, luck in drawn]
    now = threshold(said, LEAST, max_error)
    assert threshold([*said, (similarity, True)], LEAST, max_error) <= now
    assert threshold([*said, (similarity, False)], LEAST, max_error) >= now


@bounded
@given(observations, thresholds, thresholds, errors)
def test_a_stricter_caller_never_gets_a_lower_one(
    said: list[tuple[float, bool]], one: float, other: float, max_error: float
) -> None:
    low, high = sorted((one, other))
    assert threshold(said, low, max_error) <= threshold(said, high, max_error) + 1e-4


@bounded
@given(observations, st.randoms(use_true_random=False), errors)
def test_the_order_of_the_feedback_does_not_count(said: list[tuple[float, bool]], order, max_error: float) -> None:
    shuffled = list(said)
    order.shuffle(shuffled)
    assert learned(shuffled, LEAST, max_error) == learned(said, LEAST, max_error)


@pytest.mark.parametrize("max_error", [0.0, 1.0, -0.1, math.nan, math.inf])
def test_a_bound_that_is_none_is_refused(max_error: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        learned([(0.9, True)], LEAST, max_error)


# --- what it comes to


def test_a_wrong_answer_closes_what_lies_below_it() -> None:
    assert threshold([(0.88, False)]) > 0.95
    assert threshold([(0.88, False)], max_error=0.5) > 0.88
    assert threshold([(0.88, False), (0.93, True), (0.94, True), (0.95, True)]) == pytest.approx(0.94, abs=0.03)


def test_right_answers_open_it_again() -> None:
    said = [(0.88, False)]
    found = [threshold([*said, *[(0.89, True)] * number]) for number in (0, 1, 3, 10, 60)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.87
    assert threshold([*said, *[(0.86, True)] * 40]) == LEAST


def test_one_wrong_among_many_right_ones_at_the_threshold_is_borne() -> None:
    assert threshold([(0.86, True)] * 40 + [(0.86, False)]) == LEAST
    assert threshold([(0.86, True)] * 40 + [(0.86, False)] * 8) > LEAST


def test_a_sharp_limit_is_found() -> None:
    said = [(s / 1000, s >= 920) for s in range(850, 1000, 5)]
    assert learned(said, LEAST, 0.05).reason == "same task"
    said = [(s / 2000, s >= 1840) for s in range(1700, 2000, 2)]
    assert learned(said, LEAST, 0.05).reason == "count"
    assert 0.91 < threshold(said) <= 0.921


def test_the_bound_by_count_is_clopper_and_pearsons() -> None:
    assert not is_bounded(0, 0, 0.5)
    assert [is_bounded(0, seen, 0.05) for seen in (44, 45)] == [False, True]
    # Source: the quantile of Beta(2, 99) at 0.9 is 0.0384.
    assert [is_bounded(1, 100, bound) for bound in (0.038, 0.039)] == [False, True]


def test_the_same_task_is_served_unless_its_answer_was_wrong_for_it() -> None:
    hopeless = [(0.99, False)] * 5
    found = learned(hopeless, LEAST, 0.05)
    assert (found.threshold, found.reason) == (1.0, "same task")
    found = learned([*hopeless, (1.0, False)], LEAST, 0.05)
    assert (found.threshold, found.reason) == (NEVER, "never")


# --- what it promises: the error among what is served, over many simulated entries

Right = Callable[[float], float]
"""Probability of a right answer by similarity."""


def logistic(midpoint: float, width: float) -> Right:
    return lambda similarity: 1.0 / (1.0 + math.exp(-(similarity - midpoint) / width))


def stream(
    right: Right, rng: np.random.Generator, max_error: float, queries: int, told: float = 1.0
) -> list[tuple[bool, int]]:
    """Serves an entry; returns for each served query whether it was wrong, and how much had been said before.

    Args:
        told: Share of the served answers on which there is feedback.
    """
    said: list[tuple[float, bool]] = []
    served = []
    for similarity in rng.uniform(LEAST, 1.0, queries):
        if similarity >= threshold(said, LEAST, max_error):
            correct = bool(rng.random() < right(float(similarity)))
            served.append((not correct, len(said)))
            if rng.random() < told:
                said.append((float(similarity), correct))
    return served


@pytest.mark.parametrize("max_error", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("told", [1.0, 0.3])
def test_where_the_callers_threshold_is_right_the_error_stays_within_the_bound(
    max_error: float, width: float, told: float
) -> None:
    """Entries as the threshold claims: one in `max_error` answers is wrong at it. Some are hopeless, most are fine."""
    rng = np.random.default_rng(7)
    grid = np.arange(-0.35, 1.5, 0.01)
    weights = np.array([prior_weight(float(midpoint), LEAST, max_error, width) for midpoint in grid])
    served = [
        outcome
        for midpoint in rng.choice(grid, 100, p=weights / weights.sum())
        for outcome in stream(logistic(float(midpoint), width), rng, max_error, 20, told)
    ]
    assert len(served) > 1500
    assert np.mean([wrong for wrong, _ in served]) <= max_error


@pytest.mark.parametrize("midpoint", [0.7, 0.85, 0.9, 0.95, 1.05])
@pytest.mark.parametrize("width", WIDTHS)
def test_whatever_the_entry_its_wrong_answers_are_bounded(midpoint: float, width: float) -> None:
    """At most max_error * N + sqrt(N * log(1 / weight) / 2) of N, on average, where each is told of."""
    rng = np.random.default_rng(11)
    served = [stream(logistic(midpoint, width), rng, 0.05, 40) for _ in range(12)]
    most = max(len(outcomes) for outcomes in served)
    surprise = math.log(1.0 / prior_weight(midpoint, LEAST, 0.05, width))
    wrong = np.mean([sum(wrong for wrong, _ in outcomes) for outcomes in served])
    assert wrong <= 0.05 * most + math.sqrt(most * surprise / 2)
    # The bound is for the worst case; this is what it comes to.
    assert wrong <= 0.05 * most + 3


@pytest.mark.parametrize(
    "right",
    [
        lambda s: 0.0 if s < 0.93 else 1.0,
        lambda s: 0.8,
        lambda s: min(1.0, max(0.0, (s - 0.8) / 0.12)),
        lambda s: 0.5 if s < 0.95 else 0.99,
        lambda s: 0.0,
    ],
    ids=["a step", "flat", "a slope", "two levels", "hopeless"],
)
def test_entries_of_another_shape_are_closed_after_a_few_wrong_answers(right: Right) -> None:
    rng = np.random.default_rng(13)
    served = [stream(right, rng, 0.05, 80) for _ in range(8)]
    wrong = np.mean([sum(wrong for wrong, _ in outcomes) for outcomes in served])
    assert wrong <= 0.05 * np.mean([len(outcomes) for outcomes in served]) + 3
