"""Differences in meaning between a query and a stored task that lie near to each other as vectors.

An embedding puts "enable the cache" and "disable the cache" side by side, and 30 seconds beside 300.
`contrasts` names what tells such tasks apart, each with both values and a strength: how much it speaks
against the stored answer before a model has weighed it. It reads wording, not the world: what it does
not raise may still differ, and what it raises with little strength may be the same.

Strengths: 0.9 to 1.0 two values that exclude each other; 0.5 to 0.8 probably; up to 0.4 a value that only
one side mentions, mostly an addition ("on port 8080"), or words in each other's place of unknown relation.

Pure, deterministic, never raises. Words are compared in English only; numbers, identifiers and known
names in any language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from subconscious_mcp import asking, relations, values, wording
from subconscious_mcp.reading import Reading, Token, plain, quoted, read
from subconscious_mcp.records import Contrast
from subconscious_mcp.values import Value
from subconscious_mcp.wording import Found

WINDOW = 4000
"""Characters of each text that are compared: from the first difference on where both are longer.
Source: two full windows of the embedder; a comparison of two such texts takes some milliseconds."""
_CONTEXT = 200
_MOST = 16
"""Contrasts that are returned: nobody reads more, and one strong one decides."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found, and the words that it left: what a model weighs beside the contrasts.

    Attributes:
        contrasts: The strongest first.
        query: The query as it was read.
        stored: The stored task as it was read.
        query_left: What of the query has no answer in the stored task, not even a word in its place.
        stored_left: Likewise the other way round.
        cut: Only a part of the texts was compared.
    """

    contrasts: tuple[Contrast, ...]
    query: Reading
    stored: Reading
    query_left: tuple[Token, ...] = ()
    stored_left: tuple[Token, ...] = ()
    cut: bool = False

    @property
    def english(self) -> bool:
        """True where the words were compared, and not the values and known names alone."""
        return self.query.english and self.stored.english


def contrasts(query: str, stored: str) -> tuple[Contrast, ...]:
    """Returns how a query and a stored task contrast, the strongest first.

    Args:
        query: What is asked now.
        stored: The task of an entry. Of both at most `WINDOW` characters are compared.

    The first call builds the tables, which takes some ten milliseconds.
    """
    comparison = compare(query, stored)
    return comparison.contrasts if comparison else ()


def compare(query: str, stored: str) -> Comparison | None:
    """As `contrasts`, with what the comparison read; None where the two are the same text."""
    if query == stored:
        return None
    cut = len(query) > WINDOW or len(stored) > WINDOW
    query, stored = _window(query, stored)
    query, stored = plain(query), plain(stored)
    if query == stored:
        return None
    masked = _masked(query, stored)
    mine, theirs = _read(query, masked), _read(stored, masked)
    found = _values(mine, theirs)
    pair = wording.Pair(mine, theirs)
    found += _worded(mine, theirs, pair) if mine.english and theirs.english else pair.names()
    found.sort(key=lambda contrast: -contrast[3])
    return Comparison(
        tuple(
            Contrast(kind, _shown(one), _shown(other), strength)  # type: ignore[arg-type]
            for kind, one, other, strength in dict.fromkeys(found[:_MOST])
        ),
        mine,
        theirs,
        tuple(pair.query.left),
        tuple(pair.stored.left),
        cut,
    )


@lru_cache(maxsize=8)
def _read(text: str, masked: frozenset[str]) -> Reading:
    """As `read`; a query is compared with several stored tasks."""
    return read(text, masked)


def _shown(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _window(query: str, stored: str) -> tuple[str, str]:
    """Returns the parts that are compared: what is the same at the beginning of long texts is passed over."""
    if len(query) <= WINDOW and len(stored) <= WINDOW:
        return query, stored
    low, high = 0, min(len(query), len(stored))
    while low < high:  # The longest common beginning, by halves.
        middle = (low + high + 1) // 2
        if query[low:middle] == stored[low:middle]:
            low = middle
        else:
            high = middle - 1
    start = max(low - _CONTEXT, 0)
    while 0 < start < low and not query[start - 1].isspace():
        start += 1
    return query[start : start + WINDOW], stored[start : start + WINDOW]


def _worded(mine: Reading, theirs: Reading, pair: wording.Pair) -> list[Found]:
    found = pair.contrasts()
    near = pair.closeness()
    related = (
        relations.orders(mine, theirs) or relations.directions(mine, theirs, near) or relations.swaps(mine, theirs)
    )
    if pair.turned:
        related = []  # A takes less than B, B more than A.
    timed = [one for one in found if {one[1].lower(), one[2].lower()} == {"before", "after"}]
    if timed and relations.told_in_order(mine, theirs):
        found = [one for one in found if one not in timed]
    if asking.tells_trouble(mine, theirs):
        # "I can't get it to work", "how do I get it to work": what does not work is what is asked.
        found = [(*one[:3], min(one[3], 0.4)) if one[0] == "negation" else one for one in found]
    return [*found, *related, *relations.scopes(mine, theirs, near), *asking.compare(mine, theirs)]


# --- values ---------------------------------------------------------------------------------------


def _masked(query: str, stored: str) -> frozenset[str]:
    """Returns the quotes that count as one value: those that differ, where both texts quote."""
    mine, theirs = _quotes(query), _quotes(stored)
    if not mine or not theirs:
        return frozenset()
    in_query, in_stored = _flat(query), _flat(stored)
    mine = [quote for quote in mine if quote not in in_stored]
    theirs = [quote for quote in theirs if quote not in in_query]
    return frozenset((*mine, *theirs)) if mine and theirs else frozenset()


def _quotes(text: str) -> list[str]:
    # One word in code quotes is a name in code, a path or a flag, and compared as such.
    return [quoted(quote) for quote in values.quotes(text) if quote[0] != "`" or " " in quote]


def _flat(text: str) -> str:
    return " ".join(text.lower().split())


_FAMILIES = {
    "number": "number", "version": "number", "date": "date", "identifier": "identifier",
    "quoted": "quoted", "path": "path", "flag": "flag", "code": "code",
}  # fmt: skip
_ONE_SIDED = {
    "number": 0.35, "version": 0.35, "date": 0.3, "identifier": 0.4, "quoted": 0.2, "path": 0.3, "flag": 0.5,
    "code": 0.3,
}  # fmt: skip
"""Strength of a value that one side mentions alone. A flag mostly changes what a command does; a quote is
often told in other words."""


def _values(mine: Reading, theirs: Reading) -> list[Found]:
    query = [token for token in mine.tokens if token.value is not None]
    stored = [token for token in theirs.tokens if token.value is not None]
    if not query and not stored:
        return []
    query, stored = _unmatched(query[:200], stored[:200], values.equal)
    query, stored = _unmatched(query, stored, values.alike)
    query = [token for token in query if not _is_said(token, theirs)]
    stored = [token for token in stored if not _is_said(token, mine)]
    found: list[Found] = []
    for one, other in _paired(query, stored, mine, theirs):
        found.append(_difference(one, other))
        query.remove(one)
        stored.remove(other)
    for token in query:
        found.append((_kind(token), token.text, "", _alone(token)))
    for token in stored:
        found.append((_kind(token), "", token.text, _alone(token)))
    return [contrast for contrast in found if contrast[3]]


def _unmatched(
    query: list[Token], stored: list[Token], test: Callable[[Value, Value], bool]
) -> tuple[list[Token], list[Token]]:
    rest = list(stored)
    left: list[Token] = []
    for token in query:
        match = next((other for other in rest if test(_value(token), _value(other))), None)
        if match is None:
            left.append(token)
        else:
            rest.remove(match)
    if not left or not rest:
        # A value that is told twice on one side says nothing new the second time.
        left = [token for token in left if not any(test(_value(token), _value(other)) for other in stored)]
        rest = [token for token in rest if not any(test(_value(token), _value(other)) for other in query)]
    return left, rest


def _value(token: Token) -> Value:
    assert token.value is not None
    return token.value


def _kind(token: Token) -> str:
    return _value(token).kind


def _is_said(token: Token, other: Reading) -> bool:
    """Tells whether the other side says a name in code, a path or an identifier as plain words."""
    if _kind(token) not in ("code", "path", "identifier", "flag"):
        return False
    joined = "".join(letter for letter in other.text.lower() if letter.isalnum())
    keys = (_value(token).keys[0],) if _kind(token) != "path" else _value(token).keys
    for key in keys:
        bare = "".join(letter for letter in str(key) if letter.isalnum())
        if len(bare) >= 3 and re.search(re.escape(bare) + (r"(?!\d)" if bare[-1].isdigit() else ""), joined):
            return True
    return False


def _paired(query: list[Token], stored: list[Token], mine: Reading, theirs: Reading) -> list[tuple[Token, Token]]:
    """Pairs values of one family that have no equal: those in the same place first, then as they come."""
    ranked = []
    for first, one in enumerate(query[:20]):
        for second, other in enumerate(stored[:20]):
            if _FAMILIES[_kind(one)] != _FAMILIES[_kind(other)]:
                continue
            near = _dimension(one) == _dimension(other)
            around = _neighbours(one, mine) & _neighbours(other, theirs)
            ranked.append((not near, -len(around), abs(first - second), first, second))
    pairs: list[tuple[Token, Token]] = []
    taken: set[tuple[str, int]] = set()
    for _, _, _, first, second in sorted(ranked):
        if ("query", first) not in taken and ("stored", second) not in taken:
            taken |= {("query", first), ("stored", second)}
            pairs.append((query[first], stored[second]))
    return pairs


def _neighbours(token: Token, reading: Reading) -> set[str]:
    place = reading.tokens.index(token)
    return {near.stem for near in reading.tokens[max(place - 2, 0) : place + 3] if near.stem and near is not token}


def _dimension(token: Token) -> object:
    key = _value(token).keys[0]
    return key[0] if isinstance(key, tuple) else ""


def _difference(one: Token, other: Token) -> Found:
    """Returns the contrast of two values that have no equal."""
    first, second = _value(one), _value(other)
    kind = (
        first.kind
        if first.kind == second.kind
        else next((kind for kind in ("version", "date", "number") if kind in (first.kind, second.kind)), first.kind)
    )
    strength = 1.0
    if kind == "number":
        if first.bare is not None and first.bare == second.bare:
            kind = "unit"
        elif _dimension(one) != _dimension(other):
            strength = 0.6
        if first.weak and second.weak and strength == 1.0 and 1.0 in (first.bare, second.bare):
            strength = 0.6
    elif (kind == "version" and _prefixes(first, second)) or (kind == "date" and _dimension(one) != _dimension(other)):
        strength = 0.5
    elif kind in ("quoted", "code", "path"):
        strength = 0.9
    return kind, first.text, second.text, strength


def _prefixes(one: Value, other: Value) -> bool:
    """Tells whether one version only says more than the other: 3.12, 3.12.1."""
    mine = next((key[1] for key in one.keys if isinstance(key, tuple) and key[0] == "version"), ())
    theirs = next((key[1] for key in other.keys if isinstance(key, tuple) and key[0] == "version"), ())
    length = min(len(mine), len(theirs))
    return length > 0 and mine[:length] == theirs[:length]


def _alone(token: Token) -> float:
    value = _value(token)
    if value.weak:
        return 0.0 if value.bare == 1.0 else 0.15
    return _ONE_SIDED[value.kind]
