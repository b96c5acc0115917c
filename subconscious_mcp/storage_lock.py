"""One process owns a storage directory: the lock that says which.

The operating system holds the lock, so it is gone with the process, however that ends. The
file's text is only for people: it names the holder.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from subconscious_mcp.errors import StorageBusy, StorageError

SERVER = "subconscious-mcp server"
"""The command of a server in one process: it holds the directory for as long as its client lives."""
LOCK_FILE = "engine.lock"
# Windows locks byte ranges, and a locked range cannot be read by others: lock one far behind
# the text.
_WINDOWS_OFFSET = 1 << 30


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a storage directory, as far as its lock file tells."""

    pid: int | None
    since: float | None
    command: str

    def __str__(self) -> str:
        pid = f"process {self.pid}" if self.pid else "another process"
        since = ""
        if self.since:
            # Any number may stand in a damaged file.
            with contextlib.suppress(ValueError, OverflowError, OSError):
                since = time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{pid}{f' ({self.command})' if self.command else ''}{since}"


class StorageLock:
    """Exclusive ownership of a storage directory, from construction to `release`.

    Args:
        folder: The storage directory; it must exist.
        command: What this process is, for the message that another one shows.

    Attributes:
        after_kill: The last holder did not release it: its process was ended, or the machine.

    Raises:
        StorageBusy: Another process holds it; the message names that process.
        StorageError: The lock file cannot be made there (read-only, or no lock support).
    """

    def __init__(self, folder: Path, command: str) -> None:
        self._path = folder / LOCK_FILE
        try:
            self._fd: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(
                f"The storage directory {folder} cannot be written: {error.strerror or error}.",
                "Make it writable or set SUBCONSCIOUS_STORAGE_DIR to another folder.",
            ) from None
        try:
            _lock(self._fd)
        except BlockingIOError:
            self._close()
            raise StorageBusy(
                f"The storage directory {folder} is in use by {holder(folder)}.",
                "Close that window or process, or give this one another SUBCONSCIOUS_STORAGE_DIR.",
            ) from None
        except OSError as error:
            self._close()
            raise StorageError(
                f"The storage directory {folder} is on a file system without locks: {error.strerror or error}.",
                "Set SUBCONSCIOUS_STORAGE_DIR to a local folder.",
            ) from None
        self.after_kill = os.fstat(self._fd).st_size > 0
        text = json.dumps({"pid": os.getpid(), "since": round(time.time(), 3), "command": command})
        # On a full disk the holder stays unnamed, and reading works all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.write(self._fd, text.encode())

    def release(self, *, clean: bool = True) -> None:
        """Gives the directory free. The file stays: removing it would race with the next holder.

        Args:
            clean: False leaves the next holder as if this one had been killed.
        """
        if self._fd is not None:
            if clean:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, 0)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def wait_until_free(folder: Path, seconds: float = 10.0) -> bool:
    """Waits until nobody holds `folder`; returns whether that came to be."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            lock = StorageLock(folder, "subconscious-mcp")
            lock.release(clean=not lock.after_kill)
            return True
        except StorageBusy:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def holder(folder: Path) -> Holder:
    """Returns who the lock file says holds `folder`; unknown parts are empty."""
    try:
        written = json.loads((folder / LOCK_FILE).read_text(encoding="utf-8"))
        # One line, whatever a damaged file holds.
        command = "".join(c for c in str(written["command"]) if c.isprintable())[:100]
        return Holder(int(written["pid"]), float(written["since"]), command)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Holder(None, None, "")


if sys.platform == "win32":  # pragma: no cover - not run on the platform that is measured
    import msvcrt

    def _lock(fd: int) -> None:
        os.lseek(fd, _WINDOWS_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
        finally:
            os.lseek(fd, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
