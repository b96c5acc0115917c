"""Knows injected text when it comes back without its frame: by marks of it, never by the text.

What a hook tells a session must not be captured as if it were new, also where the agent repeats it
in its own answer. The text itself must not be kept for that: it may be forgotten meanwhile. So
marks are kept, keyed hashes of lines and of runs of words. Quotation marks, lists, emphasis, case
and line ends do not count.
"""

from __future__ import annotations

try:
    # What `hashlib` would take it from; importing that loads OpenSSL, which takes a hook 5 ms.
    from _blake2 import blake2b
except ImportError:  # pragma: no cover - another implementation of Python
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MARK_BYTES = 8
FEWEST_CHARS = 16
"""Shorter lines are everybody's words, unless they follow one that is known."""
RUN_WORDS = 8
"""So many words in a row are not said twice by chance."""
LABELS = ("asked: ", "outcome: ", "task: ", "answer: ")
"""What notes put before a quoted text."""
_EDGE_CHARS = 32_000
"""Of a longer text the two ends are searched: no more of it is kept."""


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
        known: set[int] = set()
        before = -1  # the line before that has words
        words: list[tuple[str, int, int]] = []  # each word, its line, its place there
        plain: list[str] = []
        for number, line in enumerate(lines):
            found = [(_plain(word), number, place) for place, word in enumerate(line.split())]
            words += [word for word in found if word[0]]
            plain.append(" ".join(word for word, _, _ in found if word))
            if plain[-1]:
                follows = before in known and self._mark(f"{plain[before]}\n{plain[-1]}") in self.marks
                if follows or (len(plain[-1]) >= FEWEST_CHARS and self._mark(plain[-1]) in self.marks):
                    known.add(number)
                before = number
        gone: dict[int, set[int]] = {}
        for run in () if typed else _runs(words):
            if self._mark(" ".join(word for word, _, _ in run)) in self.marks:
                for _, number, place in run:
                    gone.setdefault(number, set()).add(place)
        kept = []
        for number, line in enumerate(lines):
            places = gone.get(number)
            if number in known:
                continue
            if places is None:
                kept.append(line)
            elif rest := [word for place, word in enumerate(line.split()) if place not in places]:
                kept.append(" ".join(rest))
        return "\n".join(kept)

    def _marks(self, text: str, as_it_was: bool = False) -> set[bytes]:
        marks: set[bytes] = set()
        words: list[str] = []
        before: list[str] = []
        for line in text.splitlines():
            bare = line.strip(" \t>")
            label = "" if as_it_was else next((label for label in LABELS if bare.startswith(label)), "")
            mine = [plain for word in bare.removeprefix(label).split() if (plain := _plain(word))]
            words += mine
            forms = [" ".join(mine), *([" ".join([_plain(label), *mine])] if label else [])] if mine else []
            marks.update(self._mark(plain) for plain in forms if len(plain) >= FEWEST_CHARS)
            marks.update(self._mark(f"{above}\n{plain}") for above in before for plain in forms)
            before = forms or before
        marks.update(self._mark(" ".join(run)) for run in _runs(words) if not as_it_was)
        return marks

    def _mark(self, plain: str) -> bytes:
        made = self._hash.copy()
        made.update(plain.encode("utf-8", "replace"))
        return made.digest()


def digest(text: str) -> str:
    """Returns 32 hexadecimal digits that tell texts apart."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _runs(words: list[Any]) -> Iterator[list[Any]]:
    return (words[at : at + RUN_WORDS] for at in range(len(words) - RUN_WORDS + 1))


def _plain(word: str) -> str:
    return word.lower() if word.isalnum() else "".join(filter(str.isalnum, word)).lower()
