"""The files of HNSW below a Chroma directory: whether they are sound, and what they hold beyond vectors.

Chroma's native code reads them without checking: a damaged one can end the whole process. The
layout is that of hnswlib's persistent form, version 1.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from pathlib import Path

import numpy as np

from subconscious_mcp.errors import IndexUnreadable

_SEGMENT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REPAIR_HINT = "Run `subconscious-mcp doctor --repair`: it builds the index again from the database."


def segments(folder: Path) -> list[Path]:
    """Returns the folders that Chroma made for its collections."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name)]


def check_segments(folder: Path) -> None:
    """Checks that HNSW's files agree with one another, because Chroma would not.

    A segment of another version than 1 is left to Chroma.

    Raises:
        IndexUnreadable: A file is missing, cut, or points outside of another.
    """
    for segment in segments(folder):
        try:
            sound = _is_sound(segment)
        except (OSError, ValueError, struct.error):
            sound = False
        if not sound:
            raise IndexUnreadable("A file of the vector index is damaged.", REPAIR_HINT)


def blank_unused(segment: Path) -> None:
    """Overwrites what a segment's files hold beyond their vectors.

    Chroma writes the room for a collection's first vectors as it got it from the system's heap,
    where a forgotten text may have been. Later on its files end with the last vector.
    """
    with contextlib.suppress(FileNotFoundError):
        header = (segment / "header.bin").read_bytes()
        if len(header) < 36 or struct.unpack_from("<i", header)[0] != 1:
            return
        _, _, count, row_size = struct.unpack_from("<4Q", header, 4)
        for name, used in (("data_level0.bin", count * row_size), ("length.bin", count * 4)):
            with (segment / name).open("r+b") as file:
                unused = file.seek(0, os.SEEK_END) - used
                if unused > 0:
                    file.seek(used)
                    if any(file.read()):
                        file.seek(used)
                        file.write(bytes(unused))


def _is_sound(segment: Path) -> bool:
    files = {name: segment / f"{name}.bin" for name in ("header", "data_level0", "length", "link_lists")}
    present = [path for path in files.values() if path.exists()]
    if not present:
        return True  # Chroma makes the folder before its files.
    if len(present) < len(files):
        return False
    header = files["header"].read_bytes()
    (version,) = struct.unpack_from("<i", header)
    if version != 1:
        return bool(version > 1)
    start, limit, count, row_size, label_at, vector_at, top, entry, links_above, links_below, links = (
        struct.unpack_from("<6QiI3Q", header, 4)
    )
    # A row is the number of links, room for them, the vector in float32, and a label of 8 bytes.
    row_is_sound = vector_at == 4 + 4 * links_below and vector_at < label_at and row_size == label_at + 8 and start == 0
    if not (row_is_sound and count <= limit and links == links_above and links_below == 2 * links):
        return False
    if count == 0:
        return True
    if not (segment / "index_metadata.pickle").exists() or entry >= count or top < 0:
        return False
    if files["data_level0"].stat().st_size < count * row_size:
        return False
    rows = np.memmap(files["data_level0"], dtype=np.uint8, mode="r", shape=(count, row_size))
    words = np.ascontiguousarray(rows[:, :vector_at]).view("<u4")
    # The number shares its four bytes with the mark of a removed vector.
    numbers = words[:, 0] & 0xFFFF
    used = np.arange(links_below) < numbers[:, np.newaxis]
    if bool((numbers > links_below).any()) or bool((words[:, 1:][used] >= count).any()):
        return False
    # A page that a power cut left as zeros: its vectors would never be found.
    if not rows[:, vector_at:label_at].any(axis=1).all():
        return False
    lengths = np.fromfile(files["length"], dtype="<f4")[:count]
    if len(lengths) < count or not (np.isfinite(lengths) & (lengths > 0)).all():
        return False
    upper = np.fromfile(files["link_lists"], dtype="<u4").tolist()
    return _are_sound_upper_links(upper, count, links_above, entry, top)


def _are_sound_upper_links(words: list[int], count: int, max_links: int, entry: int, top: int) -> bool:
    """Checks the links above the lowest level: for each vector a size in bytes, then its levels.

    A level is a number of links and room for `max_links` of them. A link at some level must lead
    to a vector that has that level: HNSW follows it without looking.
    """
    level_words = 1 + max_links
    levels: list[int] = []
    starts: list[int] = []
    place = 0
    for _ in range(count):
        if place >= len(words) or words[place] % (4 * level_words):
            return False
        levels.append(words[place] // (4 * level_words))
        starts.append(place + 1)
        place += 1 + levels[-1] * level_words
    if place > len(words) or levels[entry] != top:
        return False
    for start, own in zip(starts, levels, strict=True):
        for level in range(1, own + 1):
            first = start + (level - 1) * level_words
            linked = words[first + 1 : first + 1 + words[first]]
            if words[first] > max_links or any(to >= count or levels[to] < level for to in linked):
                return False
    return True
