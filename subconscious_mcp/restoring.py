"""Puts restored files in the place of those of a storage directory: all of them, or none.

Many files cannot be renamed in one step, and the directory itself may be a mounted one that cannot be renamed at
all. So the new files are laid out beside the old ones, and a plan is written when they are whole. From that moment
the restore is done, whoever is killed: the next one who opens the directory carries the plan out before anything
else. A plan is carried out any number of times with the same end.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from subconscious_mcp.errors import StorageDamaged, StorageError

PLAN = "restore.json"
STAGE = "restore.stage-"
ASIDE = "before-restore-"


def is_pending(folder: Path) -> bool:
    """Returns whether a restore of this storage directory is still to be carried out."""
    return (folder / PLAN).exists()


def kept_aside(storage: Path) -> list[Path]:
    """Returns what restores have moved aside."""
    real = Path(os.path.realpath(storage))
    beside = f"{real.name}.{ASIDE}"
    found = [path for path in real.parent.iterdir() if path.name.startswith(beside)] if real.parent.is_dir() else []
    return sorted([*found, *real.glob(f"{ASIDE}*")])


def decide(folder: Path, stage: str, aside: str, *, install: Sequence[str], leave: Sequence[str]) -> None:
    """Writes the plan, with which the restore is done; the lock of the directory is held.

    Args:
        stage: The folder below it with the new files, on the disk already.
        aside: The folder, seen from it, to which what was there moves; nothing may be in it yet.
        install: Names of the new files.
        leave: Names of what moves aside without anything taking its place.

    Raises:
        OSError: Nothing has changed.
    """
    plan = {"stage": stage, "aside": aside, "install": list(install), "leave": list(leave)}
    temporary = folder / f"{STAGE}{secrets.token_hex(4)}.json"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(plan, file)
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)
    temporary.replace(folder / PLAN)
    _sync(folder)


def finish(folder: Path) -> Path | None:
    """Carries out the plan if there is one; whoever calls it holds the lock of the directory.

    Returns:
        Where what was there before is now, or None where there was no plan.

    Raises:
        StorageError: It cannot be carried out; `StorageDamaged` if the plan cannot be read.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        stage, aside = folder / str(plan["stage"]), folder / str(plan["aside"])
        install, leave = list(map(str, plan["install"])), list(map(str, plan["leave"]))
    except (ValueError, KeyError, TypeError):
        raise StorageDamaged(
            f"{path} cannot be read: a restore was interrupted.", "Remove that file and restore the backup again."
        ) from None
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        _carry_out(folder, stage, aside, install, leave)
        path.unlink()
        _sync(folder)
        shutil.rmtree(stage, ignore_errors=True)
        with contextlib.suppress(OSError):
            aside.rmdir()  # There was nothing.
    except OSError as error:
        raise _refused(folder, error) from error
    return Path(os.path.realpath(aside))


def _carry_out(folder: Path, stage: Path, aside: Path, install: Sequence[str], leave: Sequence[str]) -> None:
    aside.mkdir(mode=0o700, exist_ok=True)
    # First of all the logs of the old databases, which the new ones must never meet.
    for name in leave:
        if not os.path.lexists(aside / name):
            _move(folder / name, aside / name)
    for name in install:
        # What has left the stage is in its place: what stands there is new.
        if os.path.lexists(stage / name):
            if not os.path.lexists(aside / name):
                _move(folder / name, aside / name)
            (stage / name).replace(folder / name)
    _sync(aside)
    _sync(aside.parent)
    _sync(folder)


def _move(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        source.rename(target)


def _sync(folder: Path) -> None:
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refused(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"A restore of {folder} cannot be finished: {error.strerror or error}.",
        "Nothing is lost. Mend that, and run any command again.",
    )
