"""Reads a user's settings file, and puts a new version in its place or leaves it as it is.

The new version is written beside the file and renamed, so that there is the old one or the new one at
any moment. Links, mode and owner stay. What cannot be kept that way is refused.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from subconscious_mcp.errors import ConfigError, StorageError, StorageFull
from subconscious_mcp.model_files import DISK_FULL, PRIVATE_FILE, make_private, sync_folder

MOST_BYTES = 10_000_000
KEPT_BACKUPS = 5
_FULL = DISK_FULL | {errno.EFBIG}


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was found.

    Attributes:
        path: As it was named.
        real: Where its links lead.
        content: Its bytes, or None where there is no file.
        facts: Its mode and owner, where there is one.
    """

    path: Path
    real: Path
    content: bytes | None
    facts: os.stat_result | None


def opened(path: Path) -> SettingsFile:
    """Reads a settings file; there may be none yet.

    Raises:
        ConfigError: Something else is there.
        StorageError: It cannot be read.
    """
    with _told(path):
        real = Path(os.path.realpath(path))
        try:
            facts = path.stat()
        except FileNotFoundError:
            return SettingsFile(path, real, None, None)
        if stat.S_ISDIR(facts.st_mode):
            raise ConfigError(f"{path} is a folder.", "Name the settings file: --settings PATH.")
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(f"{path} is no regular file.", "Name the settings file: --settings PATH.")
        if facts.st_size > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES // 1_000_000} MB.", "Is it a settings file?")
        return SettingsFile(path, real, path.read_bytes(), facts)


def refuse_unkeepable(file: SettingsFile) -> None:
    """Makes sure that a file may be replaced, and that it would stay what it is.

    Raises:
        StorageError: It is read-only, or has other names that would stay behind.
    """
    if file.facts is None:
        return
    # The mode counts for root as well, who may write anything: somebody meant it.
    if not file.facts.st_mode & 0o222 or not os.access(file.real, os.W_OK):
        raise StorageError(f"{file.path} is read-only.", "Make it writable and run this again.")
    if file.facts.st_nlink > 1:
        raise StorageError(
            f"{file.path} is one file with {file.facts.st_nlink} names (hard links); to replace it would part them.",
            "Make it a file of its own, or a symbolic link.",
        )


def replace(file: SettingsFile, content: bytes, *, make_folder: bool) -> Path | None:
    """Puts a new version in the place of a file, after a backup.

    Args:
        make_folder: Its folder may be made where it is missing.

    Returns:
        The backup, where there was a file.

    Raises:
        ConfigError: The folder is missing.
        StorageError: It was changed meanwhile, or cannot be replaced. It is as it was.
        StorageFull: There is no room. It is as it was.
    """
    refuse_unkeepable(file)
    folder = file.real.parent
    temporary = folder / f".{file.real.name}.{secrets.token_hex(4)}"
    backup: Path | None = None
    with _told(file.path):
        if not folder.is_dir():
            # What a link leads to is somebody's arrangement.
            if not make_folder or file.path.is_symlink():
                raise ConfigError(f"The folder {folder} is not there.", "Make it, or name another file.")
            make_private(folder)
        try:
            _write(temporary, content, PRIVATE_FILE if file.facts is None else file.facts.st_mode, file.facts)
            backup = _backed_up(file)
            _refuse_changed(file)
            temporary.replace(file.real)
        except BaseException:
            for leftover in (temporary, backup):
                with suppress(OSError):
                    if leftover is not None:
                        leftover.unlink()
            raise
        sync_folder(folder)
    _drop_old_backups(file.path)
    return backup


def _write(path: Path, content: bytes, mode: int, owner: os.stat_result | None) -> None:
    """Writes a new file to the disk for good; until it is whole, only its owner can read it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if sys.platform != "win32":
                if owner is not None and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _backed_up(file: SettingsFile) -> Path | None:
    """Copies what was read, for its owner alone: settings hold keys."""
    if file.content is None or file.facts is None:
        return None
    # Beside the name that its user knows, not where a link leads: that may be a repository.
    stamp = f"{file.path}.bak.{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(100):
        backup = Path(f"{stamp}-{number}" if number else stamp)
        with suppress(FileExistsError):
            _write(backup, file.content, file.facts.st_mode & PRIVATE_FILE, file.facts)
            return backup
    raise StorageError(f"There are a hundred backups of this second beside {file.path}.", "Remove them.")


def _drop_old_backups(path: Path) -> None:
    """Removes all but the newest backups; only files with exactly the names that are given here."""
    name = re.compile(re.escape(path.name) + r"\.bak\.\d{8}-\d{6}(?:-\d{1,2})?")
    with suppress(OSError):
        found = [other for other in path.parent.iterdir() if name.fullmatch(other.name)]
        found.sort(key=lambda other: [int(part) for part in re.findall(r"\d+", other.name[len(path.name) :])])
        for old in found[:-KEPT_BACKUPS]:
            old.unlink()


def _refuse_changed(file: SettingsFile) -> None:
    now = opened(file.path)
    if (now.real, now.content) != (file.real, file.content):
        raise StorageError(
            f"{file.path} was changed by another program meanwhile and was left as it is.", "Run this again."
        )


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what the file system refuses into one line with the way out."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(
                f"The disk is full; {path} was left as it is.", "Make room and run this again."
            ) from error
        raise StorageError(
            f"{error.filename or path}: {error.strerror or error}. {path} was left as it is.",
            "Mend that, or name another file: --settings PATH.",
        ) from error
