"""The echo log: one JSON line a recall, from which `drift_report` reads.

A line holds the query, the nearest entry's id, the similarity and the verdict; never an answer.
The log is bounded whatever its lines hold, and a damaged line costs only itself.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from subconscious_mcp.errors import StorageError
from subconscious_mcp.namespaces import DEFAULT, file_part
from subconscious_mcp.redaction import redact

MAX_QUERY_CHARS = 1000
"""Longer queries are cut: the log tells phrasings apart, it does not keep texts."""
CUT_MARK = "…"

_SHARED_WORDS = 3
_SHARED_CHARS = 12
"""A query of at least so many words that a forgotten text holds, or a cut one that ends in so many
of its first characters, tells of it. Fewer would take the lines of other entries along."""


@dataclass(frozen=True, slots=True)
class EchoLine:
    """One recall as logged.

    Attributes:
        similarity: That of the nearest entry, or of the one that was served in its place; 0..1.
        blocked: It missed only because the check of contrasts kept the answer back.
    """

    at: float
    query: str
    entry_id: str | None
    similarity: float
    hit: bool
    threshold: float
    blocked: bool = False


def log_file(folder: Path, namespace: str) -> Path:
    """Returns the path of a namespace's log: `echo_log.jsonl` for the default one."""
    return folder / ("echo_log.jsonl" if namespace == DEFAULT else f"echo_log_{file_part(namespace)}.jsonl")


_locks: dict[Path, threading.Lock] = {}


class EchoLog:
    """The log of one namespace.

    Args:
        path: Its file; made at the first line, mode 0600.
        max_bytes: Size above which the older half is dropped.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._temporary = path.with_name(path.name + ".new")
        self._max_bytes = max_bytes
        # Four bytes a character at most, twice for an escape: a line stays below half the limit.
        self._max_chars = max(16, min(MAX_QUERY_CHARS, max_bytes // 16))
        # One for each file and not for each object: sessions with other settings have their own.
        self._lock = _locks.setdefault(path, threading.Lock())
        self._clean: tuple[object, ...] = ()  # in which state, of what

    def append(self, lines: Sequence[EchoLine]) -> None:
        """Adds lines at the end; drops the older half of a log that has grown too large.

        Raises:
            StorageError: The file cannot be written.
        """
        whole = b"".join(self._encoded(line) for line in lines)
        with self._lock, _Translated(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                # A line that a kill cut short must not swallow this one.
                whole = whole if _ends_in_newline(self.path) else b"\n" + whole
                file.write(whole)
                size = file.tell()
        if size > self._max_bytes:
            self._rewrite(lambda line: True, self._max_bytes // 2)

    def _encoded(self, line: EchoLine) -> bytes:
        text = json.dumps(
            {
                "ts": round(line.at, 3),
                "query": self._cut(redact(line.query)),
                "entry_id": line.entry_id,
                "similarity": line.similarity,
                "hit": line.hit,
                "threshold": line.threshold,
                **({"blocked": True} if line.blocked else {}),
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )
        return text.encode("utf-8", "replace") + b"\n"

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._max_chars else text[: self._max_chars] + CUT_MARK

    def lines(self) -> Iterator[EchoLine | None]:
        """Yields the lines, oldest first; None for each that is damaged."""
        try:
            with self.path.open("rb") as file:
                for raw in file:
                    if raw.strip():
                        yield _parsed(raw)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def forget(self, entry_id: str, texts: Sequence[str]) -> None:
        """Removes every line that names the entry or holds one of the texts, or much of one.

        A recall that missed just before its task was remembered holds the same words, so the
        texts count as well as the id. Damaged lines go too: they may hold anything.
        """
        # As they were asked for, and as the log writes them.
        plain = [_plain(each) for text in texts for each in dict.fromkeys((text, redact(text)))]

        def keeps(line: EchoLine) -> bool:
            return line.entry_id != entry_id and not any(_shares(line.query, text) for text in plain)

        with self._lock, _Translated(self.path):
            # What a kill left in the middle of a rewrite.
            self._temporary.unlink(missing_ok=True)
        # Asked for before and behind a deletion; the second time there is rarely anything new.
        asked = (entry_id, plain)
        if self._clean != (self._state(), asked) and self.path.is_file():
            self._clean = (self._rewrite(keeps, None), asked)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            facts = self.path.stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def move_to(self, path: Path) -> None:
        """Appends the log to another one and removes it."""
        with self._lock, _Translated(path):
            if not self.path.is_file() or self.path == path:
                return
            if not path.exists():
                self.path.replace(path)
                return
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "ab") as out, self.path.open("rb") as file:
                out.write(b"" if _ends_in_newline(path) else b"\n")
                shutil.copyfileobj(file, out)
            self.path.unlink()

    def drop_damaged(self) -> None:
        """Removes the lines that cannot be read."""
        self._rewrite(lambda line: True, None)

    def _rewrite(self, keeps: Callable[[EchoLine], bool], budget: int | None) -> tuple[int, int, int] | None:
        """Writes the kept lines, the newest `budget` bytes of them, in place of the file; returns its state."""
        with self._lock, _Translated(self.path):
            with self.path.open("rb") as file:
                if budget is not None:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - budget))
                    if size > budget:
                        file.readline()
                start = file.tell()

                def kept() -> Iterator[bytes]:
                    # Line by line: a whole log in memory would be several times its size.
                    file.seek(start)
                    for raw in file:
                        if (line := _parsed(raw)) is not None and keeps(line):
                            yield raw if raw.endswith(b"\n") else raw + b"\n"

                if budget is None and sum(map(len, kept())) == file.tell() - start:
                    return self._state()
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                with os.fdopen(os.open(self._temporary, flags, 0o600), "wb") as out:
                    out.writelines(kept())
                    out.flush()
                    os.fsync(out.fileno())
            self._temporary.replace(self.path)
            return self._state()


class _Translated:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror or error}.",
                "Mend that, or set SUBCONSCIOUS_ECHO_LOG_ENABLED=0.",
            ) from error


def _plain(text: str) -> str:
    """Returns a text without what two writings of the same words differ in."""
    return " ".join(text.casefold().split())


def _shares(query: str, text: str) -> bool:
    """Returns whether a logged query holds a text (`_plain`), its beginning, or a good part of it."""
    plain = _plain(query)
    if text in plain:
        return True
    words = plain.removesuffix(CUT_MARK).rstrip()
    if len(words.split()) >= _SHARED_WORDS and words in text:
        return True
    if not plain.endswith(CUT_MARK):
        return False
    # The query was cut somewhere behind the text's beginning.
    start = words.find(text[:_SHARED_CHARS])
    while start >= 0:
        if text.startswith(words[start:]):
            return True
        start = words.find(text[:_SHARED_CHARS], start + 1)
    return False


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _parsed(raw: bytes) -> EchoLine | None:
    try:
        record = json.loads(raw)
        line = EchoLine(
            at=float(record["ts"]),
            query=record["query"],
            entry_id=record["entry_id"],
            similarity=float(record["similarity"]),
            hit=record["hit"],
            threshold=float(record.get("threshold", 0.0)),
            blocked=record.get("blocked") is True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    sound = (
        isinstance(line.query, str)
        and isinstance(line.hit, bool)
        and (line.entry_id is None or isinstance(line.entry_id, str))
        and math.isfinite(line.at)
        and 0.0 <= line.similarity <= 1.0
    )
    return line if sound else None
