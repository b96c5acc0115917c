"""What each session was told, as marks in a file of its own beside the inbox.

Written by the hooks that inject, read by the one that captures. There is no text in these files
(see `injected`), and a session that loses its file loses nothing else.
"""

from __future__ import annotations

import os
import time

from subconscious_mcp.injected import MARK_BYTES, Injected, digest

FOLDER = "context.injected"
MOST_BYTES = 128 * 1024
"""Of one session: the longest notes of a prompt make about 8 kB, the same notes again nothing."""
MOST_FILES = 500
MOST_SECONDS = 30 * 86_400.0
"""Nobody goes on with a session that was told nothing for so long."""


def record(folder: str, session: str, told: str, typed: str = "") -> None:
    """Notes that a session is told something.

    Args:
        folder: The storage directory.
        session: The session's identity.
        told: What it is told.
        typed: What the user wrote at that moment.

    Raises:
        OSError: It cannot be written.
    """
    path = _path(folder, session)
    stored = _read(path)
    known = Injected(session, _split(stored))
    before = frozenset(known.marks)
    known.add(told, typed)
    new = b"".join(known.marks - before)
    if not stored:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        _tidy(os.path.dirname(path))
    if len(stored) + len(new) > MOST_BYTES:
        # The newest half; two hooks at once would have one lose marks, which is no more than that.
        _write(f"{path}.{os.getpid()}.new", (stored + new)[-MOST_BYTES // 2 :])
        os.replace(f"{path}.{os.getpid()}.new", path)
    else:
        # What a kill cut in the middle is no mark; those behind it are.
        _write(path, bytes(-len(stored) % MARK_BYTES) + new)


def recorded(folder: str, session: str) -> Injected:
    """Returns what a session was told; without any marks where nothing is known of it."""
    return Injected(session, _split(_read(_path(folder, session))))


def _path(folder: str, session: str) -> str:
    return os.path.join(folder, FOLDER, digest(session))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(2 * MOST_BYTES)
    except OSError:
        return b""


def _split(stored: bytes) -> list[bytes]:
    return [stored[at : at + MARK_BYTES] for at in range(0, len(stored) - MARK_BYTES + 1, MARK_BYTES)]


def _write(path: str, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        file.write(content)


def _tidy(folder: str) -> None:
    """Removes the files of sessions that are over."""
    oldest = time.time() - MOST_SECONDS
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
            except OSError:
                continue
    found.sort(reverse=True)
    for number, (changed, path) in enumerate(found):
        if number >= MOST_FILES or changed < oldest:
            try:
                os.unlink(path)
            except OSError:
                continue
