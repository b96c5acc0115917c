"""Backups of a storage directory, and their way back.

A backup is a folder `backup-<time>`: copies of the two databases, each as it was at one moment, of the echo logs
and of config.json, and a manifest with the sha256 of each. It is made beside an engine that goes on working, because
SQLite lets one process copy what another writes. The vector index is left out: it is built anew from memory.db.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from subconscious_mcp import __version__, restoring
from subconscious_mcp.config import Resolved
from subconscious_mcp.database import DATABASE_FILE, Database, copy_database, examine_database
from subconscious_mcp.errors import InvalidArgument, StorageDamaged, StorageError, StorageFull
from subconscious_mcp.hnsw_files import segments
from subconscious_mcp.inbox import DATABASE_FILE as INBOX_FILE
from subconscious_mcp.inbox import SPOOL_FOLDER
from subconscious_mcp.model_files import hash_file, make_private, sync_folder
from subconscious_mcp.schema import MIGRATIONS
from subconscious_mcp.storage_lock import StorageLock

MANIFEST = "manifest.json"
FORMAT = "subconscious-mcp backup"
VERSION = 1
_CONFIG = "config.json"
_DATABASES = (DATABASE_FILE, INBOX_FILE)
_LOGS = "echo_log*.jsonl"
_NAME = re.compile(
    rf"memory\.db|context\.db|config\.json|echo_log[^/\\]{{0,120}}\.jsonl|{SPOOL_FOLDER}/[\w.-]{{1,120}}"
)
_FOLDER = re.compile(r"backup-\d{8}-\d{6}(-\d+)?")
_BLOCK = 1 << 20

Progress = Callable[[float, int], None]
"""Told the share that is done, 0..1, and how many files."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a backup.

    Attributes:
        name: Its path in the backup, with a slash between folder and file.
        size: Bytes.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that has been looked at: every file is what the manifest says.

    Attributes:
        created: ISO 8601, UTC.
        entries: Entries in its memory.db.
    """

    folder: Path
    created: str
    version: str
    files: tuple[File, ...]
    entries: int

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes:
        aside: Where what was there before is now; None where there was nothing.
        settings: What became of config.json: `restored`, `same`, `kept` (another one is there), or `none`.
    """

    backup: Backup
    aside: Path | None
    settings: str


# --- making one


def back_up(
    resolved: Resolved, folder: Path, *, keep: int | None = None, progress: Progress = lambda share, count: None
) -> tuple[Backup, list[Path]]:
    """Makes a backup in a folder, also while an engine works, and looks at it.

    Args:
        folder: Where `backup-<time>` is made; it is made too if it is not there.
        keep: How many backups stay in the folder, this one among them; None for all.

    Returns:
        The backup, and the older ones that were removed.

    Raises:
        InvalidArgument: The folder cannot hold backups, or there is nothing to back up.
        StorageError: Something cannot be read or written; no unfinished backup stays behind.
    """
    storage = resolved.config.storage_dir
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is no folder.", "Name a folder; the backup becomes a folder in it.")
    real = Path(os.path.realpath(folder))
    if real == Path(os.path.realpath(storage)) or Path(os.path.realpath(storage)) in real.parents:
        raise InvalidArgument(
            f"{folder} is in the storage directory.", "What you forget must leave that. Name a folder elsewhere."
        )
    if restoring.is_pending(storage):
        raise StorageError(f"A restore of {storage} was interrupted.", "Run `subconscious-mcp stats`, which ends it.")
    if not (storage / DATABASE_FILE).is_file():
        raise InvalidArgument(f"There is nothing in {storage} to back up.")
    with _told(folder):
        make_private(folder)
        temporary = folder / f".backup-{secrets.token_hex(6)}"
        temporary.mkdir(mode=0o700)
        try:
            _copy_all(resolved, temporary, progress)
            _write_manifest(temporary)
            made = temporary.rename(_unused(folder / time.strftime("backup-%Y%m%d-%H%M%S")))
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        backup = looked_at(made)
        progress(1.0, len(backup.files))
        # Only when there is one that is known to be good.
        return backup, [] if keep is None else _remove_old(folder, made, keep)


def _copy_all(resolved: Resolved, target: Path, progress: Progress) -> None:
    storage = resolved.config.storage_dir
    logs = sorted(path for path in storage.glob(_LOGS) if path.is_file())
    spooled = sorted(path for path in (storage / SPOOL_FOLDER).glob("*") if _is_spooled(path))
    steps = len(_DATABASES) + len(logs) + len(spooled) + 1
    done = 0
    # The inbox first: what moves from it into memory.db meanwhile is in both, and known by its session.
    for path in spooled:
        with contextlib.suppress(FileNotFoundError):  # The engine has read it meanwhile: it is in the inbox.
            (target / SPOOL_FOLDER).mkdir(mode=0o700, exist_ok=True)
            _copy(path, target / SPOOL_FOLDER / path.name)
        progress((done := done + 1) / steps, done)
    for name in reversed(_DATABASES):
        if (storage / name).is_file():
            with _writable(storage, storage / name):
                copy_database(storage / name, target / name)
            _, _, problems = examine_database(target / name)
            if problems:
                raise StorageDamaged(
                    f"{storage / name} is damaged: {problems[0][:200]}.",
                    "Run `subconscious-mcp doctor --repair` first.",
                )
        progress((done := done + 1) / steps, done)
    for path in logs:
        with contextlib.suppress(FileNotFoundError):
            _copy(path, target / path.name, whole_lines=True)
        progress((done := done + 1) / steps, done)
    if resolved.config_file.is_file():
        _copy(resolved.config_file, target / _CONFIG)


def _is_spooled(path: Path) -> bool:
    # Those that begin with a dot are not written to their end yet.
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".") and _is_name(_spool_name(path))


def _spool_name(path: Path) -> str:
    return f"{SPOOL_FOLDER}/{path.name}"


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and ".." not in name


def _copy(source: Path, target: Path, *, whole_lines: bool = False) -> str:
    """Copies a file, mode 0600, onto the disk; returns its sha256.

    Args:
        whole_lines: Leave out what stands behind the last line end: somebody is writing it.
    """
    digest = hashlib.sha256()
    handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(handle, "w+b") as copy, source.open("rb") as file:
        end = done = 0
        while block := file.read(_BLOCK):
            digest.update(block)
            copy.write(block)
            if b"\n" in block:
                end = done + block.rindex(b"\n") + 1
            done += len(block)
        if whole_lines:
            copy.truncate(end)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def _write_manifest(folder: Path) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "by": __version__,
        "entries": examine_database(folder / DATABASE_FILE)[1],
        "left_out": "the vector index (built anew from memory.db), the models, the logs",
        "files": [
            {"name": path.relative_to(folder).as_posix(), "size": path.stat().st_size, "sha256": hash_file(path)}
            for path in paths
        ],
    }
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    handle = os.open(folder / MANIFEST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    for one in {path.parent for path in paths} | {folder}:
        sync_folder(one)


def _unused(path: Path) -> Path:
    found, number = path, 1
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _remove_old(folder: Path, newest: Path, keep: int) -> list[Path]:
    def age(path: Path) -> tuple[str, int]:
        day, _, number = path.name.removeprefix("backup-").partition("-")
        return day + number.partition("-")[0], int(number.partition("-")[2] or 1)

    ours = [path for path in folder.iterdir() if _FOLDER.fullmatch(path.name) and (path / MANIFEST).is_file()]
    old = sorted((path for path in ours if path != newest), key=age)
    gone = old[: max(0, len(old) - (keep - 1))]
    for path in gone:
        shutil.rmtree(path)
    return gone


# --- looking at one


def looked_at(folder: Path) -> Backup:
    """Reads every file of a backup and compares it with the manifest.

    Raises:
        InvalidArgument: It is no backup, or of a version that is not known.
        StorageDamaged: A file is missing, or is not what it was.
    """
    manifest = _manifest(folder)
    files = tuple(File(str(file["name"]), int(file["size"]), str(file["sha256"])) for file in manifest["files"])
    if DATABASE_FILE not in [file.name for file in files]:
        raise InvalidArgument(f"{folder} is no backup: its manifest names no {DATABASE_FILE}.")
    for file in files:
        path = folder / file.name
        if not _is_name(file.name):
            raise InvalidArgument(f"{folder} is no backup of ours: its manifest names a file that no backup has.")
        with _told(folder):
            whole = path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
            if not whole or path.stat().st_size != file.size or hash_file(path) != file.sha256:
                raise StorageDamaged(f"{path} is missing or not what it was.", "Use another backup.")
    for name in _DATABASES:
        if (folder / name).is_file():
            schema, count, problems = examine_database(folder / name)
            if problems:
                raise StorageDamaged(f"{folder / name} is damaged: {problems[0][:200]}.", "Use another backup.")
            if name == DATABASE_FILE:
                entries = count
                if schema > len(MIGRATIONS):
                    raise InvalidArgument(
                        f"{folder} was made by a newer version of subconscious-mcp.", "Upgrade first."
                    )
    return Backup(folder, str(manifest.get("created", "")), str(manifest.get("by", "")), files, entries)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ValueError
        if manifest["version"] != VERSION:
            raise InvalidArgument(f"{folder} was made by a newer version of subconscious-mcp.", "Upgrade first.")
        _ = [(file["name"] + "", file["size"] + 0, file["sha256"] + "") for file in manifest["files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgument(
            f"{folder} is no backup: its {MANIFEST} is missing or cannot be read.", "Name a folder `backup-<time>`."
        ) from None
    return dict(manifest)


# --- the way back


def restore(
    resolved: Resolved, folder: Path, *, force: bool = False, progress: Progress = lambda share, count: None
) -> Restored:
    """Puts the files of a backup in the place of those of the storage directory: all of them, or none.

    What was there moves into a folder of its own and is never deleted. The vector index is built anew at the next
    start. Settings are only restored where there are none: they say where the data lie.

    Args:
        force: Also where there are data already.

    Raises:
        InvalidArgument: It is no backup, or there are data already.
        StorageDamaged: The backup is not what it was.
        StorageBusy: An engine or another process has the storage directory.
        StorageError: It cannot be written; nothing has changed.
    """
    backup = looked_at(folder)
    storage = Path(os.path.realpath(resolved.config.storage_dir))
    with _told(storage):
        make_private(storage)
        lock = StorageLock(storage, "subconscious-mcp restore")
        clean = False
        try:
            restoring.finish(storage)
            present = _present(storage)
            if any(not _is_derived(name) for name in present) and not force:
                raise InvalidArgument(
                    f"There are data in {storage} already.", "With --force they are moved aside, not deleted."
                )
            aside = _lay_out(backup, storage, present, progress)
            # Nothing that a killed process may have left is there any more.
            clean = True
        finally:
            lock.release(clean=clean or not lock.after_kill)
        settings = _restore_settings(backup, resolved.config_file)
    progress(1.0, len(backup.files))
    return Restored(backup, aside if present else None, settings)


def _present(storage: Path) -> list[str]:
    """Returns the names of what is in a storage directory and takes part in a restore."""
    found = [path for name in _DATABASES for path in storage.glob(f"{name}*")]
    found += [*storage.glob(_LOGS), *storage.glob("chroma.sqlite3*"), *segments(storage)]
    found += [path for path in (storage / SPOOL_FOLDER,) if path.is_dir() and any(path.iterdir())]
    # The logs of the databases first, see `restoring`.
    return sorted({path.name for path in found}, key=lambda name: (name in _DATABASES, name))


def _is_derived(name: str) -> bool:
    return name not in _DATABASES and not name.startswith(("echo_log", SPOOL_FOLDER))


def _lay_out(backup: Backup, storage: Path, present: list[str], progress: Progress) -> Path:
    """Copies the files beside the present ones, makes sure that they are usable, and puts them in place."""
    # What a restore left that was killed before it was decided.
    for old in storage.glob(f"{restoring.STAGE}*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for old in restoring.kept_aside(storage):
        with contextlib.suppress(OSError):
            old.rmdir()  # Nothing is in it.
    stage = storage / f"{restoring.STAGE}{secrets.token_hex(4)}"
    stage.mkdir(mode=0o700)
    try:
        names = []
        for number, file in enumerate(backup.files, 1):
            if file.name == _CONFIG:
                continue
            target = stage / file.name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            if _copy(backup.folder / file.name, target) != file.sha256:
                raise StorageDamaged(f"{backup.folder / file.name} changed while it was read.", "Try again.")
            names.append(file.name.partition("/")[0])
            progress(number / (len(backup.files) + 1), number)
        # An older schema becomes the present one here, where it may still fail.
        Database(stage).close()
        for one in (stage, *(path for path in stage.iterdir() if path.is_dir())):
            sync_folder(one)
        aside = _made_aside(storage, stage)
        install = list(dict.fromkeys(names))
        leave = [name for name in present if name not in install]
        restoring.decide(storage, stage.name, os.path.relpath(aside, storage), install=install, leave=leave)
    except BaseException:
        if not restoring.is_pending(storage):
            shutil.rmtree(stage, ignore_errors=True)
        raise
    restoring.finish(storage)
    return aside


def _made_aside(storage: Path, stage: Path) -> Path:
    """Makes the folder for what is there: beside the storage directory, because what is forgotten must leave that.

    Below it where nothing can be moved out of it, as where it is mounted.
    """
    stamp = time.strftime(f"{restoring.ASIDE}%Y%m%d-%H%M%S")
    beside = _unused(storage.with_name(f"{storage.name}.{stamp}"))
    probe = stage / ".probe"
    try:
        beside.mkdir(mode=0o700)
        probe.touch()
        probe.rename(beside / probe.name).unlink()
        return beside
    except OSError:
        with contextlib.suppress(OSError):
            beside.rmdir()
        probe.unlink(missing_ok=True)
        inside = _unused(storage / stamp)
        inside.mkdir(mode=0o700)
        return inside


def _restore_settings(backup: Backup, present: Path) -> str:
    saved = backup.folder / _CONFIG
    if _CONFIG not in [file.name for file in backup.files]:
        return "none"
    if os.path.lexists(present):
        return "same" if present.is_file() and present.read_bytes() == saved.read_bytes() else "kept"
    make_private(present.parent)
    temporary = present.with_name(f".{present.name}.{secrets.token_hex(4)}")
    _copy(saved, temporary)
    temporary.replace(present)
    return "restored"


@contextlib.contextmanager
def _writable(folder: Path, database: Path) -> Iterator[None]:
    """Says of a database that could not be copied that it, or its folder, is read-only, where that is the cause."""
    try:
        yield
    except StorageError as error:
        read_only = next((path for path in (folder, database) if not os.access(path, os.W_OK)), None)
        if isinstance(error, StorageDamaged) or read_only is None:
            raise
        raise StorageError(
            f"{read_only} is read-only, and SQLite writes beside a database to read it as it is at one moment.",
            f"Make it writable for the backup; or copy the whole of {folder} to a folder of yours, set"
            " SUBCONSCIOUS_STORAGE_DIR to that, and back it up.",
        ) from error


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turns what the file system refuses into one line with the way out."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
            raise StorageFull(f"There is no room in {folder}.", "Free some space; nothing was changed.") from error
        denied = error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
        hint = "Nothing was changed." + (f" Make {folder} writable, or use another folder." if denied else "")
        raise StorageError(f"{error.filename or folder} cannot be used: {error.strerror or error}.", hint) from error
