"""What to look for in the full-text index: expressions for FTS5 from any text, which are never a syntax error.

Two indexes answer (`full_text_index`). That of words knows stems and no marks, so `Running` finds `run`, and
`v2.13` is two numbers. That of pieces of three characters finds what lies inside words: identifiers, paths and
versions as they are written, and scripts that put no spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_TERMS = 32
"""Terms of an expression. A question has fewer; of a whole page so many tell what it is about."""
_LONGEST_TERM = 100
"""Characters; no word of a language is longer, and of a longer identifier so many are as good as all."""
_MOST_REMAINS = 200

_COMMON = """
a about all also am an and any are as at be been being but by can could did do does doing don for from get had has have
having he her here him his how i if in into is it its just ll me more my no not of on one or our out re s she should so
some t than that the their them then there these they this to up us ve was we were what when where which while who whom
why will with would you your
"""
_STOP_WORDS = frozenset(_COMMON.split())
_WORD = re.compile(r"[^\W_]+")
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"  # Japanese, Chinese
    "\u1100-\u11ff\uac00-\ud7a3"  # Korean: it has spaces, and particles that cling to the words
    "\U00020000-\U0003ffff"
)
_SPACELESS_RUN = re.compile(f"[{_SPACELESS}]+")
_SOLID = re.compile(r"[^\s\"'`´‘’“”«»,;!?(){}\[\]<>|\x00\ud800-\udfff]+")
_SPECIAL = re.compile(r"[0-9_./\\:@#-]|[a-z][A-Z]")
_EDGE = ".:-"


def words(text: str) -> tuple[str, ...]:
    """Returns the distinct words to look for, at most `MOST_TERMS`, the longest of them where there are more.

    Common English words and single letters are left out where others are left.
    """
    found = [word for word in _WORD.findall(text) if len(word) <= _LONGEST_TERM]
    distinct = {word.casefold(): word for word in reversed(found)}
    telling = {low: word for low, word in distinct.items() if len(word) > 1 and low not in _STOP_WORDS}
    return _most_useful(reversed((telling or distinct).values()))


def grams(text: str) -> tuple[str, ...]:
    """Returns what to look for inside words, at most `MOST_TERMS` terms of three characters or more.

    Identifiers, paths, versions and numbers are whole; a run of a script without spaces is cut into all its pieces
    of three characters, because a question holds the same words as its answer, and not the same sentence.
    """
    found: dict[str, None] = {}
    for solid in _SOLID.findall(text):
        plain = _SPACELESS_RUN.sub(" ", solid)
        for part in plain.split():
            term = part.strip(_EDGE)[:_LONGEST_TERM]
            if len(term) >= 3 and _SPECIAL.search(term):
                found[term] = None
        for run in _SPACELESS_RUN.findall(solid):
            found.update(dict.fromkeys(run[at : at + 3] for at in range(len(run) - 2)))
    return _most_useful(found)


def pairs(text: str) -> tuple[str, ...]:
    """Returns the words of two characters in scripts without spaces, too short for pieces of three."""
    found = dict.fromkeys(run for run in _SPACELESS_RUN.findall(text) if len(run) == 2)
    return tuple(found)[:MOST_TERMS]


def remains(text: str) -> tuple[str, ...]:
    """Returns what shows that words of a text stand in a file as the index keeps them.

    Of a word without its beginning, which is stored once for words that share it, and without its end, which its stem
    may lack; of scripts without spaces two characters of each three.
    """
    found = {word.lower()[2:-2]: None for word in _WORD.findall(text) if 8 <= len(word) <= _LONGEST_TERM}
    for run in _SPACELESS_RUN.findall(text):
        found.update(dict.fromkeys(run[at : at + 2] for at in range(1, len(run) - 1)))
    return tuple(sorted(found, key=len, reverse=True)[:_MOST_REMAINS])


def words_query(text: str) -> str:
    """Returns the expression for the index of words; empty where there is nothing to look for."""
    return any_of(words(text))


def grams_query(text: str) -> str:
    """Returns the expression for the index of pieces; empty where there is nothing to look for."""
    return any_of(grams(text))


def any_of(terms: Iterable[str]) -> str:
    """Returns an expression that matches where one of the terms does.

    Quoted, a term is data: no operator, no column, no prefix. The terms hold no NUL, where FTS5 would stop reading.
    """
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)


def _most_useful(terms: Iterable[str]) -> tuple[str, ...]:
    distinct = tuple(terms)
    if len(distinct) <= MOST_TERMS:
        return distinct
    longest = set(sorted(distinct, key=len, reverse=True)[:MOST_TERMS])
    return tuple(term for term in distinct if term in longest)
