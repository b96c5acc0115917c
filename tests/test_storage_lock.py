"""One process owns a storage directory, and a second one is told which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subconscious_mcp import storage_lock
from subconscious_mcp.errors import StorageBusy, StorageError
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.storage_lock import LOCK_FILE, Holder, StorageLock, holder

HOLD = """
import sys
from pathlib import Path
from subconscious_mcp.storage_lock import StorageLock
lock = StorageLock(Path(sys.argv[1]), "subconscious-mcp in another window")
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


Hold = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts processes that hold a folder until their standard input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_process_is_told_who_holds_it(tmp_path: Path, hold: Hold) -> None:
    process = hold(tmp_path)
    with pytest.raises(StorageBusy) as caught:
        StorageLock(tmp_path, "tests")
    assert f"process {process.pid} (subconscious-mcp in another window) since 2" in caught.value.message
    assert "SUBCONSCIOUS_STORAGE_DIR" in caught.value.hint
    with pytest.raises(StorageBusy):
        LocalStore(tmp_path, command="tests")
    assert list(tmp_path.iterdir()) == [tmp_path / LOCK_FILE]


def test_it_is_free_after_its_holder_ended(tmp_path: Path, hold: Hold) -> None:
    process = hold(tmp_path)
    process.communicate("")
    lock = StorageLock(tmp_path, "tests")
    assert not lock.after_kill
    lock.release()
    assert holder(tmp_path) == Holder(None, None, "")


def test_it_is_free_after_its_holder_was_killed_and_that_is_known(tmp_path: Path, hold: Hold) -> None:
    process = hold(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lock = StorageLock(tmp_path, "tests")
    assert lock.after_kill
    assert holder(tmp_path).pid == os.getpid()
    lock.release(clean=False)
    again = StorageLock(tmp_path, "tests")
    assert again.after_kill
    again.release()
    again.release()


def test_one_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    lock = StorageLock(tmp_path, "tests")
    with pytest.raises(StorageBusy, match=f"process {os.getpid()}"):
        StorageLock(tmp_path, "tests")
    lock.release()
    StorageLock(tmp_path, "tests").release()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b"[" * 100_000,
        b'{"pid": "x", "since": 1, "command": "c"}',
        b'{"pid": 1e999, "since": 1, "command": "c"}',
        b'{"pid": 1, "since": 1e999, "command": "c"}',
        b'{"pid": 1, "since": 1e300, "command": "c"}',
        b'{"pid": 1, "since": -1e300, "command": "c"}',
        b'{"pid": 1, "since": NaN, "command": "c"}',
        b'{"pid": 1, "since": 1, "command": "a\\nb\\u0000\\u001b[31m"}',
        b'{"pid": 1, "since": 1, "command": ["c"]}',
        b'{"pid": 1, "since": 1, "command": "' + b"x" * 10_000 + b'"}',
    ],
)
def test_a_damaged_text_of_the_holder_is_no_obstacle(tmp_path: Path, hold: Hold, text: bytes) -> None:
    hold(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(text)
    with pytest.raises(StorageBusy, match="in use by") as caught:
        StorageLock(tmp_path, "tests")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400 + len(str(tmp_path))


def test_the_lock_file_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        StorageLock(tmp_path / "missing", "tests")
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        StorageLock(tmp_path, "tests")


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(storage_lock, "_lock", refuse)
    with pytest.raises(StorageError, match="without locks"):
        StorageLock(tmp_path, "tests")


def test_a_full_disk_leaves_the_holder_unnamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage_lock.os, "write", full)
        lock = StorageLock(tmp_path, "tests")
    with pytest.raises(StorageBusy, match="another process"):
        StorageLock(tmp_path, "tests")
    lock.release()


def test_the_file_is_the_owners(tmp_path: Path) -> None:
    lock = StorageLock(tmp_path, "tests")
    assert (tmp_path / LOCK_FILE).stat().st_mode & 0o777 == 0o600
    lock.release()
