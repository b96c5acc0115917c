"""Order of notes for a query: by meaning, by words, and by what stands around them.

Notes of one source are often the turns of a conversation or the paragraphs of a page. What answers a question may then
share no word with it, because the words are in the note before. So words count for a passage, a note with the two
before and after it, and each term once for a passage, where it is nearest.

    total = 0.55 cosine + 0.45 words of the passage + 0.3 of what the question before it has
            + 0.15 where a person asked for speaks + 0.1 where "when" is asked and a time is named

Terms are weighed by how rare they are among the notes that are searched, not in the whole index: what is a rare word to
other namespaces, a speaker's name, is in half of the notes of a conversation. With 5,000 foreign notes in the index
FTS5's own bm25 lost 0.05 of recall@10 by that; this loses nothing, and an answer does not depend on what others store.

What is needed of the store, in order:

    words = weigh(terms, holders of each term, how many notes there are)       terms: `keyword_terms`
    candidates = the 40 nearest, and `best_by_words(words, CANDIDATES)`
    beside = neighbours of the candidates, then of those neighbours that are no candidates
    similarities = of the candidates and of their neighbours
    found = combine(similarities, words, beside)
    texts = of `to_read(found)`
    rank(query, found, texts, created_at, limit=...)

Source of all constants: the questions with an answer of two long conversations (LoCoMo 26 and 30: 230 questions, 788
turns, recall of the evidence), 15 answerable developer questions about 30 notes, 13 questions about 70 pages in four
ways of cutting them. Round values in the middle of flat optima: recall@10 is 0.82, and to double or halve a constant
costs at most 0.02 of it. Constants chosen on one conversation give the other 0.79 and 0.82; which ingredients there are
was chosen on both. "Without" below means that the others stay as they are. See validation/results/retrieval.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.intp]
Beside: TypeAlias = Mapping[int, tuple[int | None, int | None]]
"""Keys of the notes before and after a note of the same source; None where there is none."""

CANDIDATES = 40
"""From each side. Source: 20, 30, 40, 60 and 100 give the same recall@10 within 0.005."""

VECTOR, KEYWORD = 0.55, 0.45
"""Weights of the cosine, which is not stretched, so that it means the same in every set; and of the words. Source:
0.4 to 0.6 for the cosine are alike, 0.7 loses 0.03 of recall@10."""

BEFORE, AFTER, FURTHER = 0.5, 0.3, 0.3
"""What a term counts in the note before, after, and two away. Source: without the three recall@10 falls by 0.07,
without the last by 0.02."""

PHRASE = 0.3
"""Weight of two adjacent words beside that of the words. Source: 0.15 to 0.6 are alike; without it one
question about pages more goes wrong, and the conversations lose 0.004."""

LEAST_WEIGHT = 0.1
"""Of a term that is in half of the notes or more: next to nothing, and still more than none in a set of three."""

COMPLETE = 0.6
"""Share of the weight of all terms from which the best passage counts in full: one common word out of five is no match.
Source: 0.3 to 1 are alike on the conversations; it is for sets where hardly a word is found."""

ANSWER = 0.3
"""Share of a question's own score that the note after it takes, because it answers. Source: without it
recall@5 and @10 fall by 0.02."""

SPEAKER = 0.15
"""For a note that begins with a name of the query and a colon. Source: without it recall@5 falls by 0.03."""

TIME = 0.1
"""For a note that names a time, where the query asks when. Source: without it recall@5 falls by 0.01."""

RECENCY = 0.1
"""For a note of this moment, halved with each half-life, where recent notes are asked for. Not measured: a nudge, as
large as `TIME`. Otherwise age only orders equal totals."""

LEAST_SIMILARITY, LEAST_SHARE = 0.35, 0.5
"""Where no note is as near as this, nor holds this share of the weight of the query's words, nothing is relevant.

Source: of 258 questions with an answer none is lost (the least has 0.36); of 7 without one 6 find nothing, of 1,200
searches of the four sets for questions of a bank's customers 1,147. A question about the wrong person is not known by
this: it is as near as the right one.
"""

_WORD = re.compile(r"[^\W_]+")
_SPEAKER = re.compile(
    r"\W*(?:[\[(][^\])\n]{0,60}[\])]\s*)?"
    r"([^\W\d_][\w'\u2019-]{0,30}(?: [^\W\d_][\w'\u2019-]{0,30}){0,2})"
    r"\s?(?:[\[(][^\])\n]{0,60}[\])])?\s?:\s"
)
_MOST_READ = 1000
"""Characters of a note in which a time is looked for: 0.1 ms for so many."""
_BRACKETED_END = re.compile(r"\s*[\[(][^\])\n]*[\])]\s*$")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_CLOSING = " \t\r\n\"'\u201d\u2019)]}*_"
_ASKS_WHEN = re.compile(r"\W*(?:since )?(?:when|how long ago|(?:what|which) (?:date|day|month|year|time))\b", re.I)
_DAY = "mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun"
_NAMES_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|since|years?|months?|weeks?|(?:{_DAY})day|19\d\d|20\d\d"
    rf"|(?:last|next|this) (?:night|morning|weekend|(?:{_DAY})\b)"
    r"|january|february|march|april|june|july|august|september|october|november|december)\b",
    re.I,
)


def keyword_terms(query: str, words: Sequence[str]) -> tuple[str, ...]:
    """Returns what to look for in the index of words: the words, then what stands side by side of them in the query.

    Args:
        words: The telling ones of the query's words, see `full_text.words`.
    """
    telling = {word.casefold() for word in words}
    spoken = _WORD.findall(query)
    pairs = [
        f"{one} {other}" for one, other in pairwise(spoken) if one.casefold() in telling and other.casefold() in telling
    ]
    return tuple(dict.fromkeys((*words, *pairs)))


@dataclass(frozen=True, slots=True)
class Words:
    """The terms of a query, who holds them, and what they are worth.

    Attributes:
        names: The terms that are single words, in lower case.
        holders: Of each term that a note holds, the keys, (n,) int64, rising.
        weights: Of each of those, how rare it is, above 0.
        telling: Of each of those, its part in the share that `is_weak` looks at: of words 1 and more where they are
            rare, of phrases 0.
        possible: Sum of `telling` over all terms, also those that no note holds.
    """

    names: frozenset[str] = frozenset()
    holders: tuple[Keys, ...] = ()
    weights: tuple[float, ...] = ()
    telling: tuple[float, ...] = ()
    possible: float = 0.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a note's place is made of.

    Attributes:
        vector: Of the cosine.
        keyword: Of the words that the note holds itself.
        neighbours: Of the words of the notes around it, and of the question that it follows.
        wording: That it begins with a name that is asked for, or names a time where one is.
        recency: Of its age; 0 unless recent notes are asked for.
        total: The sum.
    """

    vector: float
    keyword: float
    neighbours: float
    wording: float
    recency: float
    total: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A note in its place.

    Attributes:
        similarity: Cosine of query and note, 0..1.
    """

    key: int
    similarity: float
    parts: Parts


@dataclass(frozen=True, slots=True)
class Found:
    """Notes with what numbers alone say of them, all arrays (n,).

    Attributes:
        keys: Rising.
        before: Where in `keys` the note before each is; -1 where it is not there.
        vector, keyword, around: Parts of the total: cosine, own words, words of the neighbours.
        share: Of the weight of the query's words, how much each holds, 0..1.
        names: See `Words`.
    """

    keys: Keys
    similarities: Floats
    before: Places
    vector: Floats
    keyword: Floats
    around: Floats
    share: Floats
    names: frozenset[str] = field(default=frozenset())


def weigh(terms: Sequence[str], holders: Sequence[Collection[int] | None], notes: int) -> Words:
    """Weighs the terms of a query by how rare they are.

    What the index of pieces finds, for all pieces of a query together, is one term more, where there is any.

    Args:
        holders: Of each term the keys of the notes that hold it, each once, in any order; None where the term was
            left out because it is in too many.
        notes: How many notes there are to be searched.
    """
    held: list[Keys] = []
    weights: list[float] = []
    telling: list[float] = []
    possible = 0.0
    for term, its_holders in zip(terms, holders, strict=True):
        if its_holders is None:
            continue
        keys = np.sort(np.fromiter(its_holders, dtype=np.int64, count=len(its_holders)))
        count, all_notes = len(keys), max(notes, len(keys))
        rest = (all_notes - count + 0.5) / (count + 0.5)
        is_phrase = " " in term
        worth = 0.0 if is_phrase else math.log1p(rest)
        possible += worth
        if count:
            held.append(keys)
            # Robertson and Sparck Jones: a term of half of the notes says nothing.
            weights.append(max(LEAST_WEIGHT, math.log(rest)) * (PHRASE if is_phrase else 1.0))
            telling.append(worth)
    names = frozenset(term.casefold() for term in terms if " " not in term)
    return Words(names, tuple(held), tuple(weights), tuple(telling), possible)


def best_by_words(words: Words, k: int) -> list[int]:
    """Returns the keys of the k notes that hold the terms of the largest weight; the newest of equal ones."""
    if not words.holders or k < 1:
        return []
    keys, places = np.unique(np.concatenate(words.holders), return_inverse=True)
    sums = np.bincount(places, np.repeat(words.weights, [len(held) for held in words.holders]), len(keys))
    return [int(key) for key in keys[np.lexsort((-keys, -sums))[:k]]]


def combine(similarities: Mapping[int, float], words: Words, beside: Beside) -> Found:
    """Puts together what numbers say of the notes.

    Args:
        similarities: Of all that may be returned: the candidates, and their neighbours.
        beside: Neighbours, as far as they are known. What is not known counts as not there.
    """
    scored = np.array(sorted(similarities), dtype=np.int64)
    # Words may also lie in notes that are themselves not returned.
    known = {key for pair in beside.values() for key in pair if key is not None}
    everyone = np.array(sorted(known.union(beside, similarities)), dtype=np.int64)
    row_of = {int(key): row for row, key in enumerate(everyone)}
    # One row more, which holds nothing: where there is no neighbour.
    nobody = len(everyone)
    before = np.full(nobody + 1, nobody, dtype=np.intp)
    after = before.copy()
    for key, (one, other) in beside.items():
        before[row_of[key]] = nobody if one is None else row_of[one]
        after[row_of[key]] = nobody if other is None else row_of[other]
    own, passage, telling = np.zeros(nobody + 1), np.zeros(nobody + 1), np.zeros(nobody + 1)
    for keys, weight, worth in zip(words.holders, words.weights, words.telling, strict=True):
        held = np.append(_are_in(everyone, keys), 0.0)
        own += weight * held
        telling += worth * held
        passage += weight * np.maximum.reduce(
            (
                held,
                BEFORE * held[before],
                AFTER * held[after],
                FURTHER * held[before[before]],
                FURTHER * held[after[after]],
            )
        )
    rows = np.array([row_of[int(key)] for key in scored], dtype=np.intp)
    full = max(float(passage[rows].max(initial=0.0)), COMPLETE * sum(words.weights))
    scale = KEYWORD / full if full > 0 else 0.0
    cosines = np.nan_to_num(np.array([similarities[int(key)] for key in scored], dtype=np.float64))
    place_of = np.full(nobody + 1, -1, dtype=np.intp)
    place_of[rows] = np.arange(len(scored))
    return Found(
        keys=scored,
        similarities=cosines,
        before=place_of[before[rows]],
        vector=VECTOR * np.clip(cosines, 0.0, 1.0),
        keyword=scale * own[rows],
        around=scale * (passage - own)[rows],
        share=telling[rows] / words.possible if words.possible > 0 else np.zeros(len(rows)),
        names=words.names,
    )


def is_weak(found: Found) -> bool:
    """Returns whether nothing is relevant: no note is near, and none holds much of what the query says."""
    near = float(found.similarities.max(initial=0.0))
    return near < LEAST_SIMILARITY and float(found.share.max(initial=0.0)) < LEAST_SHARE


def to_read(found: Found, k: int = CANDIDATES) -> list[int]:
    """Returns the keys of the notes whose texts `rank` wants: the k best so far, and those before them."""
    best = _order(found, found.vector + found.keyword + found.around, np.zeros(len(found.keys)))[:k]
    before = found.before[best]
    return [int(key) for key in np.unique(found.keys[np.concatenate((best, before[before >= 0]))])]


def rank(
    query: str,
    found: Found,
    texts: Mapping[int, str],
    created_at: Mapping[int, float],
    *,
    limit: int,
    now: float = 0.0,
    half_life: float | None = None,
) -> list[Ranked]:
    """Returns the notes in order, the best first; none where nothing is relevant.

    Equal ones are ordered by age, the newest first, then by key.

    Args:
        texts: Of `to_read`; a note without is judged by numbers alone.
        created_at: Seconds since the epoch; 0 counts for what is not there.
        now: Seconds since the epoch; only needed with `half_life`.
        half_life: Seconds after which a note's lead by its age is halved; None asks for no such lead.
    """
    if limit < 1 or is_weak(found):
        return []
    asks_when = _ASKS_WHEN.match(query) is not None
    size = len(found.keys)
    wording, asks = np.zeros(size), np.zeros(size + 1)
    for at, key in enumerate(found.keys.tolist()):
        if (text := texts.get(key)) is not None:
            wording[at] = _wording(text, found.names, asks_when)
            asks[at] = _asks(text)
    own = np.append(found.vector + found.keyword, 0.0)
    neighbours = found.around + ANSWER * own[found.before] * asks[found.before]
    born = np.array([created_at.get(key, 0.0) for key in found.keys.tolist()], dtype=np.float64)
    recency = RECENCY * 0.5 ** (np.maximum(0.0, now - born) / half_life) if half_life else np.zeros(size)
    totals = found.vector + found.keyword + neighbours + wording + recency
    return [
        Ranked(
            int(found.keys[at]),
            float(found.similarities[at]),
            Parts(
                float(found.vector[at]),
                float(found.keyword[at]),
                float(neighbours[at]),
                float(wording[at]),
                float(recency[at]),
                float(totals[at]),
            ),
        )
        for at in _order(found, totals, born)[:limit]
    ]


def _are_in(keys: Keys, holders: Keys) -> Floats:
    """Returns 1 for each of the keys, (n,), that is among the holders, rising and not empty, else 0."""
    at = np.minimum(np.searchsorted(holders, keys), len(holders) - 1)
    found: Floats = np.equal(holders[at], keys).astype(np.float64)
    return found


def _order(found: Found, totals: Floats, born: Floats) -> Places:
    """Returns the places of the notes, the best first; what differs by rounding only is equal."""
    return np.lexsort((-found.keys, -born, -np.round(totals, 9)))


def _wording(text: str, names: frozenset[str], asks_when: bool) -> float:
    speaker = _SPEAKER.match(text[:200])
    speaks = speaker is not None and any(word.casefold() in names for word in _WORD.findall(speaker[1]))
    return SPEAKER * speaks + TIME * (asks_when and _NAMES_TIME.search(text[:_MOST_READ]) is not None)


def _asks(text: str) -> bool:
    """Returns whether a text ends as a question; a date or a caption in brackets may follow."""
    end = text[-300:].rstrip()
    if end.endswith((")", "]")):
        end = _BRACKETED_END.sub("", end)
    return end.rstrip(_CLOSING).endswith(_QUESTION_MARKS)
