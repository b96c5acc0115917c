"""What the entries around a candidate say of its answer, where answers repeat.

A memory that holds several wordings of a task with one answer tells more than a pair of texts does: when the
entries near to a query all have one answer, that is the one; when they dispute, no similarity makes the nearest
right. Where every entry has an answer of its own nothing follows from the neighbours, and nothing is said.

The weights are in `neighbourhood.json`, fitted by `tools/train_neighbourhood.py`. Pure and deterministic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from subconscious_mcp.records import Near

WEIGHTS = "neighbourhood.json"
NEIGHBOURS = 16
"""Entries around a query that are looked at. Source: of 8, 16 and 32, on banking77 and clinc150."""
REPEATING = 0.5
"""Share of the neighbours whose answer another of them has too, from which answers count as repeating. Source:
own choice; a few tasks that were answered with "done" must not make a vote."""
_WIDTH = 0.1
"""Similarity over which a neighbour's vote falls to 1/e. Source: of 0.05 and 0.1, on banking77 and clinc150."""
_WIDEST = 0.3
"""Margin beyond which more says nothing. Source: own choice; the data hold few."""
_SURE = 8.0
"""Logarithm of votes for one against votes against it, beyond which more says nothing. Source: own choice."""
_ALONE = 0.5
"""Similarity that stands for that of a second wording where there is none. Source: own choice."""
FEATURES = ("similarity", "margin", "votes", "second", "support")


@dataclass(frozen=True, slots=True)
class Evidence:
    """How the neighbours speak for a candidate's answer.

    Attributes:
        similarity: Of the candidate, 0..1.
        margin: How much nearer the candidate is than the nearest entry with another answer; negative where that
            one is nearer.
        votes: Logarithm of the neighbours' votes, weighed by nearness, for the candidate's answer over those for
            others.
        second: Similarity of the second entry with its answer, 0..1.
        support: Sum of the similarities of the four nearest entries with its answer, over 4.
        rival: The nearest entry with another answer; None where all neighbours have the candidate's.
    """

    similarity: float
    margin: float
    votes: float
    second: float
    support: float
    rival: Near | None


@dataclass(frozen=True, slots=True)
class Model:
    """What `neighbourhood.json` holds, as numbers.

    Attributes:
        middle: Of each of `FEATURES`, what is taken off.
        spread: Of each, what it is divided by then.
        weights: One for each of `terms`.
        intercept: Log-odds where every term is 0.
        limit: Confidence below which an answer is kept back.
    """

    middle: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float
    limit: float


def evidence(candidate: Near, near: Sequence[Near], besides: Sequence[Near] = ()) -> Evidence | None:
    """Returns what the entries around a query say of one of them.

    Args:
        candidate: One of `near`.
        near: The entries nearest to the query; at most `NEIGHBOURS` of them count.
        besides: Entries that are known to be other tasks than the query; they have no vote.

    Returns:
        None where nothing follows: answers do not repeat, or all that there is has the candidate's answer.
    """
    around = [one for one in near[:NEIGHBOURS] if one is candidate or all(one is not other for other in besides)]
    groups = _by_answer(around)
    if sum(len(group) for group in groups if len(group) > 1) < REPEATING * len(around):
        return None
    mine = next((group for group in groups if any(one is candidate for one in group)), [])
    others = [one for one in around if all(one is not other for other in mine)]
    if not mine or (not others and len(around) < NEIGHBOURS):
        return None
    # All neighbours of one answer: others begin behind the last of them.
    beyond = [one.similarity for one in others] or [around[-1].similarity]
    against = math.log(math.fsum(math.exp((similarity - candidate.similarity) / _WIDTH) for similarity in beyond))
    told = [one.similarity for one in mine]
    votes = math.log(math.fsum(math.exp((similarity - candidate.similarity) / _WIDTH) for similarity in told))
    return Evidence(
        similarity=candidate.similarity,
        margin=min(candidate.similarity - beyond[0], _WIDEST),
        votes=min(votes - against, _SURE),
        second=told[1] if len(told) > 1 else _ALONE,
        support=math.fsum(told[:4]) / 4,
        rival=others[0] if others else None,
    )


def confidence(found: Evidence) -> float:
    """Returns the probability, 0..1, that the candidate's answer answers the query."""
    model = _model()
    scaled = [(v - m) / s for v, m, s in zip(features(found), model.middle, model.spread, strict=True)]
    odds = model.intercept + math.fsum(w * term for w, term in zip(model.weights, terms(scaled), strict=True))
    return 1.0 / (1.0 + math.exp(-max(min(odds, 30.0), -30.0)))


def features(found: Evidence) -> tuple[float, ...]:
    """Returns what the model weighs, one number for each of `FEATURES`."""
    return (found.similarity, found.margin, found.votes, found.second, found.support)


def terms(scaled: Sequence[float]) -> list[float]:
    """Returns the features, scaled, and the product of each two of them, its own square among them."""
    products = [one * other for place, one in enumerate(scaled) for other in scaled[place:]]
    return [*scaled, *products]


def limit() -> float:
    """Returns the confidence below which an answer is kept back."""
    return _model().limit


def _by_answer(around: Sequence[Near]) -> list[list[Near]]:
    # Compared and not hashed: of long answers the first bytes tell most apart, and a hash reads them whole.
    groups: list[list[Near]] = []
    for one in around:
        answer = one.entry.answer
        group = next((known for known in groups if answer and known[0].entry.answer == answer), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


@cache
def _model() -> Model:
    return read_model(resources.files("subconscious_mcp").joinpath(WEIGHTS).read_text(encoding="utf-8"))


def read_model(text: str) -> Model:
    """Returns the model of a weights file.

    Raises:
        ValueError: It was trained for other features than this module computes.
    """
    held: dict[str, Any] = json.loads(text)
    if [row["name"] for row in held["features"]] != list(FEATURES):
        raise ValueError("The weights belong to other features; run tools/train_neighbourhood.py.")
    return Model(
        tuple(float(row["middle"]) for row in held["features"]),
        tuple(float(row["spread"]) for row in held["features"]),
        tuple(float(weight) for weight in held["weights"]),
        float(held["intercept"]),
        float(held["limit"]),
    )
