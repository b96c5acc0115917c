"""Traces of deleted texts in memory.db: copies that SQLite leaves in the free parts of pages when rows move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO

HEADER_BYTES = 100
"""With which each database file of SQLite begins."""

_TREE_PAGES = {2: 12, 5: 12, 10: 8, 13: 8}
"""The pages of SQLite's trees by their first byte, and the length of their headers."""

_TRACE_BYTES = 16
"""A piece that is looked for after deleting: short enough to meet what is left of a text, long
enough not to be met in others."""

_MOST_TRACES = 128


def has_traces(file: FileIO, texts: Sequence[str]) -> bool:
    """Returns whether the free parts of the file's pages hold a piece of one of the texts.

    Reads the whole file, about 0.1 s for 100,000 entries. The write-ahead log must be empty.
    """
    pieces = {piece for text in texts for piece in _pieces(text)}
    if not pieces:
        return False
    remains: list[bytes] = []
    file.seek(0)
    head = file.read(HEADER_BYTES)
    # The format of the file is documented: https://sqlite.org/fileformat2.html
    page_size = int.from_bytes(head[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size
    place = 0
    file.seek(0)
    while block := file.read(page_size * 256):
        for start in range(0, len(block), page_size):
            at = start + (HEADER_BYTES if place + start == 0 else 0)
            if block[at] not in _TREE_PAGES:
                continue
            cells = int.from_bytes(block[at + 3 : at + 5], "big")
            content = int.from_bytes(block[at + 5 : at + 7], "big") or 65_536
            free = block[at + _TREE_PAGES[block[at]] + 2 * cells : start + content].strip(b"\0")
            if free:
                remains.append(free)
        place += len(block)
    whole = b"\0".join(remains)
    return any(piece in whole for piece in pieces)


def _pieces(text: str) -> Iterator[bytes]:
    """Yields parts of a text, spread evenly, so that what is left of it holds one of them."""
    raw = text.encode("utf-8", "replace")
    stride = max(_TRACE_BYTES, len(raw) // _MOST_TRACES)
    for start in range(0, max(1, len(raw) - _TRACE_BYTES + 1), stride):
        piece = raw[start : start + _TRACE_BYTES]
        if len(piece) >= _TRACE_BYTES // 4:
            yield piece
