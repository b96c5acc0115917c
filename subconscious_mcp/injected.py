"""Knows injected text when it comes back without its frame: by marks of it, never by the text.

What a hook tells a session must not be captured as if it were new, also where the agent repeats it
in its own answer. The text itself must not be kept for that: it may be forgotten meanwhile. So
marks are kept, keyed hashes of lines and of runs of words. Quotation marks, lists, emphasis, case
and line ends do not count.
"""

from __future__ import annotations

import re

try:
    # What `hashlib` would take it from; importing that loads OpenSSL, which takes a hook 5 ms.
    from _blake2 import blake2b
except ImportError:  # pragma: no cover - another implementation of Python
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK_BYTES = 8
FEWEST_CHARS = 16
"""Shorter lines are everybody's words, unless they follow one that is known."""
RUN_WORDS = 8
"""So many words in a row are not said twice by chance."""
LABELS = ("asked: ", "outcome: ", "task: ", "answer: ")
"""What notes put before a quoted text."""
_IDEOGRAMS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_EDGE_CHARS = 16_000
"""Of a longer text the two ends are searched: a quarter of each is the most that is kept."""


class Injected:
    """Marks of what a session was told.

    Args:
        key: Whatever tells this session from others: the marks of one say nothing of another's.
        marks: Marks with the same key, of `MARK_BYTES` bytes each.
    """

    def __init__(self, key: str = "", marks: Iterable[bytes] = ()) -> None:
        self._hash = blake2b(digest_size=MARK_BYTES, key=key.encode("utf-8", "replace")[: blake2b.MAX_KEY_SIZE])
        self.marks = set(marks)

    def add(self, told: str, typed: str = "", *, as_it_was: bool = False) -> None:
        """Takes in a text that is injected.

        Args:
            told: The text.
            typed: What the user wrote at that moment: their own words, though memory may hold the same.
            as_it_was: Only whole lines of it count, with their labels: it is not certain that it was told.
        """
        self.marks |= self._marks(told, as_it_was) - self._marks(typed, as_it_was)

    @staticmethod
    def resembles(*texts: str) -> bool:
        """Returns whether a text may hold notes as they are told: a cheap look before a dear one."""
        return any(label in text for text in texts for label in LABELS)

    def cut(self, text: str, typed: bool = False) -> str:
        """Returns a text without what was injected.

        A typed message of one line may be that of an earlier session, typed again: it stays. Of a
        longer one lines are cut, never words.
        """
        if not self.marks or (typed and "\n" not in text.strip()):
            return text.strip()
        if len(text) <= 2 * _EDGE_CHARS:
            return self._cut(text, typed).strip()
        start, middle, end = text[:_EDGE_CHARS], text[_EDGE_CHARS:-_EDGE_CHARS], text[-_EDGE_CHARS:]
        return f"{self._cut(start, typed)}{middle}{self._cut(end, typed)}".strip()

    def _cut(self, text: str, typed: bool) -> str:
        lines = text.split("\n")
        found = [_words(line) for line in lines]
        known: set[int] = set()
        above, before = "", -1  # the line before that has words
        for number, words in enumerate(found):
            plain = " ".join(word for word, _, _ in words)
            if plain:
                follows = before in known and self._mark(f"{above}\n{plain}") in self.marks
                if follows or (len(plain) >= FEWEST_CHARS and self._mark(plain) in self.marks):
                    known.add(number)
                above, before = plain, number
        gone: dict[int, set[int]] = {}  # the places of words, by line
        if not typed:
            places = [(number, place) for number, words in enumerate(found) for place in range(len(words))]
            plains = [word for words in found for word, _, _ in words]
            for start, end in _runs(plains):
                if self._mark(" ".join(plains[start:end])) in self.marks:
                    for number, place in places[start:end]:
                        gone.setdefault(number, set()).add(place)
        kept = []
        for number, line in enumerate(lines):
            if number in known:
                continue
            if number not in gone:
                kept.append(line)
            elif rest := _without(line, found[number], gone[number]):
                kept.append(rest)
        return "\n".join(kept)

    def _marks(self, text: str, as_it_was: bool = False) -> set[bytes]:
        marks: set[bytes] = set()
        words: list[str] = []
        before: list[str] = []
        for line in text.splitlines():
            bare = line.strip(" \t>")
            label = "" if as_it_was else next((label for label in LABELS if bare.startswith(label)), "")
            mine = [word for word, _, _ in _words(bare.removeprefix(label))]
            words += mine
            forms = [" ".join(mine), *([" ".join([label[:-2], *mine])] if label else [])] if mine else []
            marks.update(self._mark(plain) for plain in forms if len(plain) >= FEWEST_CHARS)
            marks.update(self._mark(f"{above}\n{plain}") for above in before for plain in forms)
            before = forms or before
        if not as_it_was:
            marks.update(self._mark(" ".join(words[start:end])) for start, end in _runs(words))
        return marks

    def _mark(self, plain: str) -> bytes:
        made = self._hash.copy()
        made.update(plain.encode("utf-8", "replace"))
        return made.digest()


def digest(text: str) -> str:
    """Returns 32 hexadecimal digits that tell texts apart."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _words(line: str) -> list[tuple[str, int, int]]:
    """Returns the words of a line, plain, each with its start and end; a Chinese or Japanese character is one."""
    return [
        (plain, *found.span())
        for found in re.finditer(rf"[{_IDEOGRAMS}]|[^\W{_IDEOGRAMS}]+", line)
        if (plain := found[0].strip("_").lower())
    ]


def _runs(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yields the runs of words, from each on, that are not said twice by chance; two ideograms count as a word."""
    weights = [1 if "\u3040" <= word <= "\u9fff" else 2 for word in words]
    end = weight = 0
    for start, first in enumerate(weights):
        while weight < 2 * RUN_WORDS and end < len(words):
            weight += weights[end]
            end += 1
        if weight < 2 * RUN_WORDS:
            return
        yield start, end
        weight -= first


def _without(line: str, words: list[tuple[str, int, int]], places: set[int]) -> str:
    """Returns a line without some of its words and what stands between them; empty where no word is left."""
    if len(places) == len(words):
        return ""
    pieces, done = [], 0
    for place, (_, start, end) in enumerate(words):
        if place in places:
            pieces.append("" if place - 1 in places else line[done:start])
            done = end
    return " ".join("".join([*pieces, line[done:]]).split())
