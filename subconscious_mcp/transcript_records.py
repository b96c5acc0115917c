"""From the bytes of a transcript to the records of its active branch, the last one first.

A transcript is a file of JSON lines that Claude Code appends to. Its lines form a tree: each names
its parent, and a rewound conversation leaves its branch in the file. They are read from the end,
and no more of them than is needed: a block or a line is in memory, never a file. Nothing that
stands in a file makes a function here raise; only `OSError` of the reads themselves comes through.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, BinaryIO

    Record = dict[str, Any]

_BLOCK_BYTES = 64 * 1024
_LINE_BYTES = 1_310_720
"""A longer line is not parsed; its two ends tell where it belongs. One of a megabyte still is."""
_SHORT_BYTES = 1024
"""A longer line without words is never parsed, whatever is odd about it."""
_MOST_NODES = 150_000
"""Of JSON in a line: an object of each two bytes of a line would take more memory than there is."""
_FOLLOWED = 500
"""Lines that are followed from parent to parent. A turn of more is read in the order of the file,
which is many times as fast and errs only where a rewound branch lies inside such a turn."""
_SKIMMED = 2_500
"""Lines that are parsed after those."""
_MOST_ID_CHARS = 200
_OVERLAP = 1_500
"""No token is longer: an id of most characters, each as an escape."""

_SPEAKERS = frozenset({"user", "assistant", "system", "attachment"})
"""Types of the lines that make up the tree. Progress lines hang on it, but lead off the branch."""
# A quote inside of JSON text has a backslash before it. So a word in bare quotes is a whole string
# of the line's own: a key, or a value such as the type of a block.
_LINKS = (b'"user"', b'"assistant"', b'"system"', b'"attachment"')
_USER, _RESULT, _TEXT, _QUEUED = b'"user"', b'"tool_result"', b'"text"', b'"queued_command"'
_STOPPED = b"[Request interrupted by user"
_SIDECHAIN, _TOOL = b'"isSidechain":', b'"tool_use'  # the call, and the id of it in its result
_PARENTS = (("parentUuid", b'"parentUuid"'), ("logicalParentUuid", b'"logicalParentUuid"'))
_SAID = b'"user","content":'
_RESULTS = (b'[{"tool_use_id"', b'[{"type":"tool_result"')

_decode = json.JSONDecoder(strict=False).decode


# Lines, from the end of a file to its start


class Lines:
    """The lines of a file before an offset, the last one first.

    Args:
        file: Unbuffered. What is appended behind `end` meanwhile is not seen.
        end: The offset.

    Attributes:
        start: Offset of the line that was returned last.
        long: Whether that line was longer than `_LINE_BYTES`: then it is only its two ends.
    """

    def __init__(self, file: BinaryIO, end: int) -> None:
        self._file = file
        self._unread = end
        self._lines: list[bytes] = []  # the first on top of the stack is the next
        self._block = b""  # lines before those, not yet split
        self._line_end = end  # behind the next of them
        self._pieces: list[bytes] = []  # of a line whose start was not yet read, the last piece first
        self._pieces_bytes = 0
        self._cut = False  # whether pieces were dropped
        self._seen = False  # whether they held what was looked for
        self.start = end
        self.long = False

    def previous(self, tokens: Sequence[bytes]) -> bytes | None:
        """Returns the nearest line before that holds one of the tokens, or None."""
        while True:
            while self._lines:
                line = self._lines.pop()
                self.start = self._line_end - len(line)
                self._line_end = self.start - 1
                self.long = False
                if _holds(line, tokens):
                    return line
            if self._block:
                if _holds(self._block, tokens):
                    self._lines = self._block.split(b"\n")
                else:
                    self._line_end -= len(self._block) + 1
                self._block = b""
            elif self._unread > 0 or self._pieces:
                if (found := self._joined(tokens)) is not None:
                    return found
            else:
                return None

    def skimmed(self, requests_only: Callable[[], bool], native: Callable[[], bool]) -> Iterator[bytes]:
        """Yields the lines before that may hold words of the user, or of both; `start` is not kept.

        Many times as fast as line by line: a block without such words is never split.

        Args:
            requests_only: Whether the words of the assistant do not count.
            native: Whether lines are known to be written as Claude Code writes them.
        """
        while True:
            if self._block and not (native() and requests_only() and not _asks(self._block)):
                self._lines = [*self._block.split(b"\n"), *self._lines]
            self._block, self.long = b"", False
            while self._lines:
                only = requests_only()
                counts = _may_ask if only else _may_count
                places = [place for place, line in enumerate(self._lines) if counts(line)]
                while places and requests_only() == only:
                    place = places.pop()
                    line = self._lines[place]
                    del self._lines[place:]
                    yield line
                if requests_only() == only:
                    self._lines = []
            if self._unread <= 0 and not self._pieces:
                return
            found = self._joined((_USER, _QUEUED, _TEXT))
            if found is not None and (self.long or _may_count(found)):
                yield found

    def _joined(self, tokens: Sequence[bytes]) -> bytes | None:
        """Reads a block; returns the line that ends in or behind it, if it is complete and holds a token."""
        begin = max(0, self._unread - _BLOCK_BYTES)
        self._file.seek(begin)
        block = self._file.read(self._unread - begin) or b""
        if len(block) < self._unread - begin:
            # The file was cut meanwhile: what stood behind is no longer a line.
            self._forget_pieces()
        self._unread = begin
        newline = block.rfind(b"\n")
        self._keep(block[newline + 1 :], tokens)
        if newline < 0 < begin:
            return None
        line, self.long = b"".join(reversed(self._pieces)), self._cut
        held = self._seen or _holds(line, tokens)
        self.start = begin + newline + 1
        self._line_end = self.start - 1
        self._forget_pieces()
        if newline >= 0:
            # The first line of a block began before it, except in the first block.
            first = block.find(b"\n") if begin > 0 else -1
            if begin > 0:
                self._keep(block[:first], tokens)
            self._block = block[first + 1 : newline]
            if not self._block and first + 1 <= newline:
                self._lines = [b""]
        return line if held else None

    def _forget_pieces(self) -> None:
        self._pieces, self._pieces_bytes, self._cut, self._seen = [], 0, False, False

    def _keep(self, piece: bytes, tokens: Sequence[bytes]) -> None:
        """Adds the piece before those of an unfinished line; drops the middle of a line that is too long."""
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes <= _LINE_BYTES:
            return
        if not self._cut:
            begun = b"".join(reversed(self._pieces))
            self._seen = _holds(begun, tokens)
            self._pieces = [begun[-_BLOCK_BYTES:], begun[:_BLOCK_BYTES]]
            self._cut = True
            return
        # The beginning of what is known so far, and a token may lie across.
        head = self._pieces.pop(1)
        self._seen = self._seen or _holds(piece, tokens) or _holds(piece[-_OVERLAP:] + head[:_OVERLAP], tokens)
        self._pieces[1] = piece if len(piece) >= _BLOCK_BYTES else (piece + head)[:_BLOCK_BYTES]


def _holds(line: bytes, tokens: Sequence[bytes]) -> bool:
    # `any` and a generator take three times as long, for each line of a file.
    for token in tokens:  # noqa: SIM110
        if token in line:
            return True
    return False


def _parsed(line: bytes) -> Record | None:
    """Returns the object on a line, or None for anything else."""
    line = line.strip(b" \t\r\n\0\xef\xbb\xbf")
    if not line.startswith(b"{"):
        return None
    try:
        record = _decode(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _may_count(line: bytes) -> bool:
    """Returns whether a line may hold words of the user or the assistant."""
    if _RESULT in line:
        return _STOPPED in line
    return _TEXT in line or _USER in line or _QUEUED in line


def _may_ask(line: bytes) -> bool:
    """Returns whether a line may hold words of the user."""
    return (_USER in line and (_RESULT not in line or _STOPPED in line)) or _QUEUED in line


def _asks(block: bytes) -> bool:
    """Returns whether one of the lines of Claude Code in a block may hold words of the user."""
    at = block.rfind(_SAID)
    while at >= 0:
        if not block.startswith(_RESULTS, at + len(_SAID)):
            return True
        at = block.rfind(_SAID, 0, at)
    return _STOPPED in block or _QUEUED in block


def _aside(line: bytes) -> bool:
    # The line's own is the first; one look at the whole of a line costs more than all else that is done with it.
    at = line.find(_SIDECHAIN)
    return at >= 0 and line.startswith((b"true", b" true"), at + len(_SIDECHAIN))


def _outline(line: bytes, long: bool) -> Record:
    """Returns what a line that is not parsed has to say: where it belongs, and what it is."""
    record: Record = {"type": "outline", "isSidechain": _aside(line), "tools": _TOOL in line}
    for name, token in _PARENTS:
        at = line.find(token)
        if at >= 0:
            at += len(token)
            rest = line[at : at + _MOST_ID_CHARS + 8].lstrip(b" \t:")
            record[name] = rest[1:].partition(b'"')[0].decode("utf-8", "replace") if rest[:1] == b'"' else None
            if record[name]:
                break
    if long:
        meta = b'"isMeta":true' in line or b'"isMeta": true' in line
        # Words of the user, too many to read: they are not kept, and yet a request.
        record["request"] = _USER in line and _RESULT not in line and not meta
    return record


# Records, from the last one of the conversation to its first


class Branch:
    """The records of the active branch, the last one first.

    The last record of the tree is on the active branch, whatever stands before it. From there
    parent leads to parent; the boundary of a compaction names the one before it as its logical
    parent. A record that names none, or one that is not before it in the file, is followed by
    the one before it in the file. As every step goes towards the start, no ring can hold it.

    Attributes:
        requests_only: Set as soon as the outcome is known: then less needs to be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines = Lines(file, os.fstat(file.fileno()).st_size)
        self._left = _FOLLOWED
        self._native = True
        self.requests_only = False

    def __iter__(self) -> Iterator[Record]:
        parent: str | None = None
        following = True
        start = 0
        while self._left > 0:
            record = self._before() if parent is None else self._with_id(parent)
            if record is None:
                if parent is None or self._left <= 0:
                    break
                # Searched for up to the start of the file: once, and from now on in its order.
                self._lines = Lines(self._file, start)
                parent, following = None, False
                continue
            yield record
            if record.get("type") == "attachment" and not _id(record, "uuid"):
                continue
            start = self._lines.start
            if not following:
                continue
            parent = _id(record, "parentUuid") or _id(record, "logicalParentUuid")
            if parent is None and "parentUuid" in record:
                if _begins(record):
                    return
                # No answer is the first of a conversation: this file's parents mean nothing.
                following = record.get("type") not in ("assistant", "user")
        if self._left <= 0:
            yield from self._skimmed()

    def _before(self) -> Record | None:
        """Returns the record of the tree that is before in the file."""
        while self._left > 0 and (line := self._lines.previous((b'"type"',))) is not None:
            if not (self._lines.long or _holds(line, _LINKS)) or _aside(line):
                continue
            self._left -= 1
            record = self._read(line)
            if record is None or record.get("agentId"):
                continue
            kind = record.get("type")
            if (kind == "outline" and b'"progress"' not in line) or (isinstance(kind, str) and kind in _SPEAKERS):
                return record
        return None

    def _with_id(self, parent: str) -> Record | None:
        """Returns the record of that id, or a message that was queued behind it."""
        plain = parent.isascii() and parent.replace("-", "").isalnum()
        token = (f'"{parent}"' if plain else json.dumps(parent)).encode()
        while self._left > 0 and (line := self._lines.previous((token, _QUEUED))) is not None:
            self._left -= 1
            record = self._read(line)
            if record is None:
                continue
            if record.get("type") == "outline":
                # The id is somewhere in the line, and not as that of its parent.
                if (self._lines.long or token in line) and record.get("parentUuid") != parent:
                    return record
            elif record.get("uuid") == parent or (record.get("type") == "attachment" and not _id(record, "uuid")):
                return record
        return None

    def _skimmed(self) -> Iterator[Record]:
        """Yields what may count, in the order of the file."""
        left = _SKIMMED
        for line in self._lines.skimmed(lambda: self.requests_only, lambda: self._native):
            if _aside(line):
                continue
            record = self._read(line)
            if record is not None and not record.get("agentId"):
                yield record
            left -= 1
            if left <= 0:
                return

    def _read(self, line: bytes) -> Record | None:
        long = self._lines.long or (
            len(line) > 4 * _BLOCK_BYTES and sum(map(line.count, (b"{", b"[", b","))) > _MOST_NODES
        )
        record = None if not long and _may_count(line) else _outline(line, long)
        if record is None or (not long and len(line) <= _SHORT_BYTES and not _is_link(line, record)):
            record = _parsed(line)
        if _SAID not in line and (_RESULT in line or (record is not None and record.get("type") == "user")):
            self._native = False
        return record


def _is_link(line: bytes, record: Record) -> bool:
    """Returns whether the outline of a line without words is all that it has to say: most are links of the chain."""
    whole = line.startswith(b"{") and line.rstrip().endswith(b"}")
    return whole and bool(record.get("parentUuid")) and b'"agentId"' not in line


def _begins(record: Record) -> bool:
    """Returns whether a record may be the first of a conversation: a message without a parent."""
    if record.get("type") != "user" or record.get("parentUuid") is not None:
        return False
    return not (record.get("isMeta") or record.get("isCompactSummary") or "tool_result" in blocks(record)[1])


def _id(record: Record, name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= _MOST_ID_CHARS else None


def blocks(record: Record) -> tuple[list[str], set[str]]:
    """Returns the texts of a message and the kinds of its blocks."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    kinds: set[str] = set()
    for block in parts if isinstance(parts, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str):
            kinds.add(kind)
            text = block.get("text")
            if kind == "text" and isinstance(text, str) and (text := sound(text).strip()):
                texts.append(text)
    return texts, kinds


def sound(text: str) -> str:
    """Returns a text that any store takes: without NUL and half characters."""
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
