"""How probable it is that a stored answer answers a query: a small calibrated model.

Cosine similarity puts "enable the cache" beside "disable the cache". `judge` weighs what `contrasts` raises,
the words that one side has alone, and the similarity, with weights that `tools/train_confidence.py` fitted
and `confidence.json` keeps. It blocks what it trusts less than the limit there; the threshold of similarity
is the caller's, and neither replaces the other.

Pure, deterministic, never raises on any text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from subconscious_mcp import asking
from subconscious_mcp.contrasts import Comparison, compare
from subconscious_mcp.reading import Reading, Token, plain
from subconscious_mcp.records import Contrast
from subconscious_mcp.stems import phrase_key

WEIGHTS = "confidence.json"
_MOST = 300
"""Tokens of a side that are weighed. Source: a window of the embedder holds fewer."""

_SHORT = 4.0
"""Weight of words up to which each word in another's place counts in full. A long text that is told anew
replaces many."""

_TWO_SIDED = (
    "number", "version", "identifier", "date", "unit", "quoted", "path", "flag", "code", "name", "negation",
    "antonym", "direction", "order", "scope", "modality", "question", "substitution",
)  # fmt: skip
_ONE_SIDED = (
    "number", "version", "identifier", "date", "quoted", "path", "flag", "code", "name", "negation", "scope",
)  # fmt: skip
SIMILARITY = ("similarity", "nearness", "near_uncontested")
"""Features that grow with the similarity. Their weights are not negative, so that confidence grows with it."""
FEATURES: tuple[str, ...] = (
    *SIMILARITY,
    *(f"two_sided_{kind}" for kind in _TWO_SIDED),
    *(f"one_sided_{kind}" for kind in _ONE_SIDED),
    "strongest",
    "doubt",
    "weighty",
    "substitutions",
    "query_alone",
    "stored_alone",
    "most_alone",
    "least_alone",
    "small_alone",
    "covered",
    "covered_least",
    "shared",
    "brief",
    "lengths",
    "other_form",
    "not_english",
    "cut",
)
"""Names of the features, in the order of `features`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a stored answer may be served for a query.

    Attributes:
        confidence: 0..1, calibrated probability that the stored answer answers the query.
        contrasts: What tells the two apart, the strongest first.
        blocked: The confidence is below the model's limit, whatever the similarity.
    """

    confidence: float
    contrasts: tuple[Contrast, ...]
    blocked: bool


@dataclass(frozen=True, slots=True)
class Model:
    """What `confidence.json` holds, as numbers.

    Attributes:
        weights: One for each of `FEATURES`.
        intercept: Log-odds where every feature is 0.
        limit: Confidence below which an answer is blocked.
        about: How and on what it was trained.
    """

    weights: tuple[float, ...]
    intercept: float
    limit: float
    about: dict[str, Any]


def judge(query: str, stored: str, similarity: float) -> Judgement:
    """Returns how far a stored answer can be trusted to answer a query.

    Args:
        query: What is asked now.
        stored: The task of an entry.
        similarity: Their cosine, 0..1; what is no number counts as 0.

    The first call reads the model and builds the tables of words, some 40 ms: see `warm`.
    """
    comparison = compare(query, stored)
    if comparison is None and _same(query, stored):
        return Judgement(1.0, (), False)
    model = _model()
    odds = model.intercept + math.fsum(map(_product, model.weights, _features(comparison, similarity)))
    confidence = 1.0 / (1.0 + math.exp(-max(min(odds, 30.0), -30.0)))
    return Judgement(confidence, comparison.contrasts if comparison else (), confidence < model.limit)


def features(query: str, stored: str, similarity: float) -> tuple[float, ...]:
    """Returns what the model weighs, one number for each of `FEATURES`; training uses it too."""
    return _features(compare(query, stored), similarity)


def warm() -> None:
    """Reads the model and builds the tables, so that no recall has to wait for them."""
    judge("Enable 2 caches on AWS", "How do I disable the cache from A to B before 3pm?", 0.9)


@cache
def _model() -> Model:
    return read_model(resources.files("subconscious_mcp").joinpath(WEIGHTS).read_text(encoding="utf-8"))


def read_model(text: str) -> Model:
    """Returns the model of a weights file.

    Raises:
        ValueError: It was trained for other features than this module computes.
    """
    held = json.loads(text)
    names = [row["name"] for row in held["features"]]
    if names != list(FEATURES):
        raise ValueError("The weights belong to other features; run tools/train_confidence.py.")
    return Model(
        tuple(float(row["weight"]) for row in held["features"]),
        float(held["intercept"]),
        float(held["limit"]),
        held["about"],
    )


def _product(one: float, other: float) -> float:
    return one * other


def _same(query: str, stored: str) -> bool:
    # What `compare` cut away may differ: of long texts it sees a part.
    return query == stored or plain(query) == plain(stored)


# --- features -------------------------------------------------------------------------------------


def _features(comparison: Comparison | None, similarity: float) -> tuple[float, ...]:
    similarity = min(max(similarity, 0.0), 1.0) if math.isfinite(similarity) else 0.0
    if comparison is None:
        comparison = _NOTHING
    strongest = comparison.contrasts[0].strength if comparison.contrasts else 0.0
    nearness = -math.log(1.02 - similarity)
    return (
        similarity,
        nearness,
        nearness * (1.0 - strongest),
        *_contrasted(comparison.contrasts),
        strongest,
        *_worded(comparison),
    )


def _contrasted(found: tuple[Contrast, ...]) -> list[float]:
    """Returns the greatest strength of each kind, of values on both sides and of values on one."""
    both = dict.fromkeys(_TWO_SIDED, 0.0)
    one = dict.fromkeys(_ONE_SIDED, 0.0)
    for contrast in found:
        table = one if contrast.one_sided and contrast.kind in one else both
        table[contrast.kind] = max(table[contrast.kind], contrast.strength)
    return [*both.values(), *one.values()]


def _worded(comparison: Comparison) -> list[float]:
    """Returns what the words say that no contrast names: how much of each side the other answers."""
    found = comparison.contrasts
    strengths = [contrast.strength for contrast in found]
    replaced = [contrast for contrast in found if contrast.kind == "substitution"]
    mine, theirs = comparison.query.tokens[:_MOST], comparison.stored.tokens[:_MOST]
    query, stored = _weight(mine), _weight(theirs)
    query_alone, stored_alone = _weight(comparison.query_left), _weight(comparison.stored_left)
    lacking = sum(0.4 + contrast.strength for contrast in replaced)
    covered = (
        1.0 - min((query_alone + lacking) / query, 1.0) if query else 1.0,
        1.0 - min((stored_alone + lacking) / stored, 1.0) if stored else 1.0,
    )
    lengths = [len(reading.text) + 10 for reading in (comparison.query, comparison.stored)]
    return [
        -math.fsum(math.log(1.0 - 0.95 * strength) for strength in strengths),
        float(sum(strength >= 0.5 for strength in strengths)),
        len(replaced) / math.sqrt(max(min(query, stored) / _SHORT, 1.0)),
        math.log1p(query_alone),
        math.log1p(stored_alone),
        math.log1p(max(query_alone, stored_alone)),
        math.log1p(min(query_alone, stored_alone)),
        math.log1p(sum(token.slight for side in (comparison.query_left, comparison.stored_left) for token in side)),
        (covered[0] + covered[1]) / 2,
        min(covered),
        math.log1p(max(min(query - query_alone, stored - stored_alone) - lacking, 0.0)),
        1.0 / (1.0 + min(query, stored)),
        abs(math.log(lengths[0] / lengths[1])),
        float(asking.asked(comparison.query) != asking.asked(comparison.stored)),
        float(not comparison.english),
        float(comparison.cut),
    ]


def _weight(tokens: Sequence[Token]) -> float:
    """Returns how much tokens say together: small words nothing, common ones half."""
    generic = _generic()
    return math.fsum(0.5 if token.stem in generic else 1.0 for token in tokens if token.stem and not token.slight)


@cache
def _generic() -> frozenset[str]:
    return frozenset(phrase_key(word) for word in _GENERIC.split())


_GENERIC = """
able about account actually add advice affect allow answer app application apply ask available bad base basic become
begin believe benefit best better big buy call cause certain change check choose code color come command common
company complete config configure contain correct cost country create data day deal decide describe detail device
different difference difficult display do document earn easily easy effect effective enable end ensure enter example
explain fast fastest feature feel field figure file find fix follow form free friend function general get give good
great group guide happen hard have help high home important improve include increase info information input install
instruction interesting item job know kind large learn leave life line link list live local long look lot love low
machine main major make manage many mean meaning money month more most mostly move much name necessary need next
normal note number object offer online only open option order output own page part pay people perform person place
plan please point popular possible prepare present print problem process product program project proper provide
public put quick quickly quite read real really reason receive recommend remove replace report request require result
run safe same save say search see select send server service set setting setup several show side similar simple site
small solution some something source space special specific start state status stop store story study stuff suggest
support system take talk task team tell term test text thing think time tip tool top total try type understand update
use useful user usually value various version view visit want watch way web website week work world write wrong year
"""
"""Words that say little by themselves, for half the weight of others: the inverse document frequency that a
small table can have. Source: own choice among the most frequent verbs and nouns of questions and tasks."""


_NOTHING = Comparison((), Reading("", [], [], True), Reading("", [], [], True))
"""Of two long texts of which only equal parts were compared."""
