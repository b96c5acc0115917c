"""Backups: made while others write, verified, and brought back whole, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engines import Windows
from fakes import FakeEmbedder
from interaction import CONSOLE_SCRIPT

from subconscious_mcp import backup, cli, restoring
from subconscious_mcp.config import Resolved, resolve
from subconscious_mcp.errors import (
    InvalidArgument,
    StorageBusy,
    StorageDamaged,
    StorageError,
    StorageFull,
    SubconsciousError,
)
from subconscious_mcp.inbox import Episode, Inbox
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.records import NewEntry

posix_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
NOW = 1_800_000_000.0
EMBEDDER = FakeEmbedder()


@pytest.fixture
def resolved() -> Resolved:
    return resolve()


def fill(folder: Path, *texts: str, indexed: bool = False) -> None:
    store = LocalStore(folder, command="tests")
    space = store.namespace("tests", None)
    entries = [NewEntry(f"id-{text}", "memory", text, f"answer {text}", NOW) for text in texts]
    store.add_many(space, entries, EMBEDDER.fingerprint, EMBEDDER.embed(texts))
    if indexed:
        store.prepare_index(EMBEDDER.fingerprint, EMBEDDER.dimension)
        store.bring_index_up_to_date()
    store.close()


def texts_in(folder: Path) -> list[str]:
    store = LocalStore(folder, command="tests")
    try:
        assert store.database.problems() == []
        found = store.export_page(store.namespace("tests", None).key, (), None, after=0, upto=1 << 60, now=NOW)
        return [entry.task for entry, _ in found]
    finally:
        store.close()


def whole(resolved: Resolved) -> None:
    """Fills a storage directory with everything that a backup holds."""
    storage = resolved.config.storage_dir
    fill(storage, "one", "two", indexed=True)
    inbox = Inbox(str(storage))
    inbox.leave(
        Episode(session_id="s", ts="2026-11-30T00:00:00.000Z", namespace="n", root=None, request="r", outcome="o")
    )
    (storage / "echo_log.jsonl").write_bytes(b'{"query": "one"}\n{"query": "half a li')
    (storage / "context.spool").mkdir(exist_ok=True)
    (storage / "context.spool" / "a-1.json").write_text("{}")
    resolved.config_file.write_text('{"default_threshold": 0.9}')


# --- making one


def test_a_backup_holds_everything_but_the_index_and_is_for_its_owner_alone(resolved: Resolved, tmp_path: Path) -> None:
    whole(resolved)
    made, removed = backup.back_up(resolved, tmp_path / "new" / "backups")
    assert [file.name for file in made.files] == [
        "config.json",
        "context.db",
        "context.spool/a-1.json",
        "echo_log.jsonl",
        "memory.db",
    ]
    assert made.entries == 2 and removed == [] and made == backup.looked_at(made.folder)
    assert (made.folder / "echo_log.jsonl").read_bytes() == b'{"query": "one"}\n'
    assert [path.name for path in (tmp_path / "new" / "backups").iterdir()] == [made.folder.name]
    if os.name == "posix":
        for path in (made.folder, *made.folder.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    # Nothing of the original has changed, and nothing was left in it.
    assert texts_in(resolved.config.storage_dir) == ["one", "two"]


def test_what_a_killed_process_left_in_the_log_is_in_the_backup(resolved: Resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    store = LocalStore(storage, command="tests")
    store.namespace("tests", None)
    store.add(store.namespace("tests", None), NewEntry("a", "memory", "in the log", "x", NOW), "f" * 12,
              EMBEDDER.embed_query("x"))  # fmt: skip
    assert (storage / "memory.db-wal").stat().st_size > 0
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    store.close()
    assert b"in the log" in (made.folder / "memory.db").read_bytes()
    assert not (made.folder / "memory.db-wal").exists()


def test_older_backups_are_removed_when_there_is_a_good_one(resolved: Resolved, tmp_path: Path) -> None:
    fill(resolved.config.storage_dir, "one")
    backups = tmp_path / "backups"
    made = [backup.back_up(resolved, backups)[0].folder for _ in range(4)]
    assert len({path.name for path in made}) == 4
    (backups / "backup-20200101-000000").mkdir()  # Without a manifest it is none of ours.
    (backups / "mine").write_text("mine")
    newest, removed = backup.back_up(resolved, backups, keep=2)
    assert removed == made[:3]
    kept = sorted(path.name for path in backups.iterdir())
    assert kept == sorted(["backup-20200101-000000", "mine", made[3].name, newest.folder.name])


def test_where_no_backup_can_be_made(resolved: Resolved, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="nothing in"):
        backup.back_up(resolved, tmp_path / "backups")
    fill(resolved.config.storage_dir, "one")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(resolved.config.storage_dir)
    with pytest.raises(InvalidArgument, match="is no folder"):
        backup.back_up(resolved, tmp_path / "file")
    for folder in (resolved.config.storage_dir, resolved.config.storage_dir / "below", tmp_path / "link" / "below"):
        with pytest.raises(InvalidArgument, match="in the storage directory"):
            backup.back_up(resolved, folder)


def test_a_damaged_database_is_not_backed_up_and_nothing_is_left(resolved: Resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    fill(storage, *(f"text {number}" for number in range(300)))
    backups = tmp_path / "backups"
    with (storage / "memory.db").open("r+b") as file:
        file.seek(8_192)
        file.write(os.urandom(60_000))
    backup_before = backups / "backup-20260101-000000"
    backup_before.mkdir(parents=True)
    with pytest.raises(StorageDamaged, match="is damaged"):
        backup.back_up(resolved, backups, keep=1)
    assert list(backups.iterdir()) == [backup_before]


def test_a_full_disk_leaves_no_backup(resolved: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(resolved.config.storage_dir, "one")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_write_manifest", full)
    with pytest.raises(StorageFull):
        backup.back_up(resolved, tmp_path / "backups")
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_read_only_directory_is_named_as_such(resolved: Resolved, tmp_path: Path, monkeypatch) -> None:
    storage = resolved.config.storage_dir
    fill(storage, "one")

    def refused(source: Path, target: Path) -> None:
        raise StorageError(f"{source} cannot be written (unable to open database file).")

    monkeypatch.setattr(backup, "copy_database", refused)
    # Something else is wrong.
    with pytest.raises(StorageError, match="unable to open"):
        backup.back_up(resolved, tmp_path / "backups")
    monkeypatch.setattr("os.access", lambda path, mode: path != storage)
    with pytest.raises(StorageError, match="is read-only") as caught:
        backup.back_up(resolved, tmp_path / "backups")
    assert str(storage) in caught.value.message and "Make it writable" in caught.value.hint
    assert list((tmp_path / "backups").iterdir()) == []


# --- looking at one


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda folder: (folder / "memory.db").unlink(), StorageDamaged),
        (lambda folder: (folder / "memory.db").write_bytes(b""), StorageDamaged),
        (lambda folder: flip(folder / "memory.db", 5_000), StorageDamaged),
        (lambda folder: flip(folder / "echo_log.jsonl", 3), StorageDamaged),
        (lambda folder: (folder / "manifest.json").unlink(), InvalidArgument),
        (lambda folder: (folder / "manifest.json").write_text("{"), InvalidArgument),
        (lambda folder: (folder / "manifest.json").write_text("[]"), InvalidArgument),
        (lambda folder: edit(folder, lambda said: said.update(version=2)), InvalidArgument),
        (lambda folder: edit(folder, lambda said: said.update(files=[])), InvalidArgument),
        (lambda folder: edit(folder, lambda said: said["files"].append({"name": 5})), InvalidArgument),
        (lambda folder: smuggle(folder, "../outside"), InvalidArgument),
        (lambda folder: smuggle(folder, "context.spool/../../outside"), InvalidArgument),
        (lambda folder: smuggle(folder, "engine.lock"), InvalidArgument),
        (lambda folder: smuggle(folder, "echo_log/../../x.jsonl"), InvalidArgument),
        (lambda folder: as_link(folder / "echo_log.jsonl"), StorageDamaged),
        (lambda folder: newer(folder), InvalidArgument),
    ],
)
def test_a_backup_that_is_not_what_it_was_is_refused_and_nothing_changes(
    resolved: Resolved, tmp_path: Path, change: Callable[[Path], object], error: type[SubconsciousError]
) -> None:
    whole(resolved)
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    change(made.folder)
    with pytest.raises(error) as caught:
        backup.restore(resolved, made.folder, force=True)
    assert error is InvalidArgument or "Use another backup." in caught.value.hint
    assert texts_in(resolved.config.storage_dir) == ["one", "two"]
    assert not list(resolved.config.storage_dir.glob("*restore*"))


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def edit(folder: Path, change: Callable[[Any], object]) -> None:
    said = json.loads((folder / "manifest.json").read_text())
    change(said)
    (folder / "manifest.json").write_text(json.dumps(said))


def smuggle(folder: Path, name: str) -> None:
    edit(folder, lambda said: said["files"].append({**said["files"][0], "name": name}))


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def newer(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as database:
        database.execute("PRAGMA user_version = 999")
    record = backup.hash_file(folder / "memory.db")
    edit(folder, lambda said: [f.update(sha256=record) for f in said["files"] if f["name"] == "memory.db"])


# --- the way back


def test_a_backup_comes_back_and_what_was_there_is_kept(resolved: Resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    whole(resolved)
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    fill(storage, "three")
    (storage / "echo_log_other.jsonl").write_text("{}\n")
    with pytest.raises(InvalidArgument, match="already"):
        backup.restore(resolved, made.folder)
    assert texts_in(storage) == ["one", "two", "three"]
    done = backup.restore(resolved, made.folder, force=True)
    assert done.settings == "same" and done.aside is not None
    assert texts_in(storage) == ["one", "two"]
    assert (storage / "echo_log.jsonl").read_bytes() == b'{"query": "one"}\n'
    assert not (storage / "echo_log_other.jsonl").exists() and not (storage / "chroma.sqlite3").exists()
    assert {path.name for path in done.aside.iterdir()} >= {"memory.db", "context.db", "echo_log_other.jsonl"}
    assert [e.request for e in Inbox(str(storage)).recent("n", None, 5)] == ["r"]
    # The index is built anew, and what was there is a storage directory of its own.
    store = LocalStore(storage, command="tests")
    store.prepare_index(EMBEDDER.fingerprint, EMBEDDER.dimension)
    assert store.bring_index_up_to_date() == (2, 0) and store.index_differences() == (0, 0)
    store.close()
    assert texts_in(done.aside) == ["one", "two", "three"]


def test_what_is_forgotten_is_in_no_file_of_the_storage_directory_after_a_restore(resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    fill(storage, "rosebud")
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    backup.restore(resolved, made.folder, force=True)
    store = LocalStore(storage, command="tests")
    assert store.forget(store.namespace("tests", None), "id-rosebud") is not None
    store.close()
    assert not any(b"rosebud" in path.read_bytes() for path in storage.rglob("*") if path.is_file())


def test_where_nothing_can_leave_the_directory_it_stays_in_it(resolved, tmp_path: Path, monkeypatch) -> None:
    storage = resolved.config.storage_dir
    fill(storage, "one")
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    plain = Path.rename

    def across(self: Path, target: Path) -> Path:
        if self.name == ".probe":
            raise OSError(18, "Invalid cross-device link")
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", across)
    done = backup.restore(resolved, made.folder, force=True)
    assert done.aside is not None and done.aside.parent == storage
    assert [path.name for path in storage.parent.iterdir()] == [storage.name]
    assert texts_in(storage) == texts_in(done.aside) == ["one"] and restoring.kept_aside(storage) == [done.aside]


def test_a_storage_directory_behind_a_link_is_restored_where_it_is(resolved, tmp_path: Path) -> None:
    real = tmp_path / "disk" / "data"
    fill(real, "one")
    storage = resolved.config.storage_dir
    storage.parent.mkdir(parents=True, exist_ok=True)
    storage.symlink_to(real)
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    done = backup.restore(resolved, made.folder, force=True)
    assert storage.is_symlink() and texts_in(storage) == ["one"]
    assert done.aside is not None and done.aside.parent == real.parent


def test_an_empty_place_needs_no_force_and_gets_the_settings(resolved: Resolved, tmp_path: Path, monkeypatch) -> None:
    whole(resolved)
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    monkeypatch.setenv("SUBCONSCIOUS_HOME", str(tmp_path / "elsewhere"))
    there = resolve()
    done = backup.restore(there, made.folder)
    assert (done.aside, done.settings) == (None, "restored")
    assert texts_in(there.config.storage_dir) == ["one", "two"]
    assert resolve().config.default_threshold == 0.9
    there.config_file.write_text("{}")
    assert backup.restore(there, made.folder, force=True).settings == "kept"
    assert there.config_file.read_text() == "{}"


def test_a_backup_of_an_older_schema_is_brought_up_to_date(resolved: Resolved, tmp_path: Path, monkeypatch) -> None:
    from subconscious_mcp import database, schema

    storage = resolved.config.storage_dir
    storage.mkdir(parents=True)
    old = database.Database(storage, migrations=schema.MIGRATIONS[:1])
    old.close()
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    backup.restore(resolved, made.folder, force=True)
    assert texts_in(storage) == []


def test_nothing_is_restored_while_somebody_has_the_directory(resolved: Resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    fill(storage, "one")
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    store = LocalStore(storage, command="tests")
    with pytest.raises(StorageBusy):
        backup.restore(resolved, made.folder, force=True)
    assert backup.back_up(resolved, tmp_path / "backups")[0].entries == 1
    store.close()


def test_an_interrupted_restore_is_no_source_of_a_backup(resolved: Resolved, tmp_path: Path) -> None:
    fill(resolved.config.storage_dir, "one")
    (resolved.config.storage_dir / restoring.PLAN).write_text("{")
    with pytest.raises(StorageError, match="interrupted"):
        backup.back_up(resolved, tmp_path / "backups")
    with pytest.raises(StorageDamaged, match="cannot be read"):
        LocalStore(resolved.config.storage_dir, command="tests")


# --- kills


def killed_at(step: int, run: Callable[[], object]) -> bool:
    """Runs in a process of its own that is killed before its n-th change on the disk; returns whether it was."""
    child = os.fork()
    if child == 0:
        left = step

        def counted(name: str) -> None:
            plain = getattr(os, name)

            def before(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return plain(*arguments, **named)

            setattr(os, name, before)

        try:
            for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync"):
                counted(name)
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@posix_only
def test_a_kill_anywhere_in_a_restore_leaves_all_that_was_there_or_all_that_comes(resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    whole(resolved)
    made, _ = backup.back_up(resolved, tmp_path / "backups")
    fill(storage, "three")
    (storage / "echo_log.jsonl").write_text("new\n")
    # A killed engine's: its log holds what it acknowledged last.
    store = LocalStore(storage, command="killed")
    store.add(store.namespace("tests", None), NewEntry("id-four", "memory", "four", "x", NOW), EMBEDDER.fingerprint,
              EMBEDDER.embed_query("four"))  # fmt: skip
    shutil.copytree(storage, tmp_path / "start")
    store.close()
    old, new = (["one", "two", "three", "four"], "new\n"), (["one", "two"], '{"query": "one"}\n')
    seen = []
    step = 0
    while True:
        for path in (storage, *restoring.kept_aside(storage)):
            shutil.rmtree(path)
        shutil.copytree(tmp_path / "start", storage)
        killed = killed_at(step, lambda: backup.restore(resolved, made.folder, force=True))
        found = texts_in(storage), (storage / "echo_log.jsonl").read_text()
        assert found in (old, new), f"step {step}"
        assert not restoring.is_pending(storage)
        if found == new:
            (aside,) = restoring.kept_aside(storage)
            assert texts_in(aside) == old[0] and (aside / "echo_log.jsonl").read_text() == old[1]
        seen.append(found == new)
        # Whatever a kill left, the same command does it then.
        if killed and step % 5 == 0:
            backup.restore(resolved, made.folder, force=True)
            assert texts_in(storage) == new[0] and not list(storage.glob(f"{restoring.STAGE}*"))
        if not killed:
            break
        step += 1
    # From one moment on it is done.
    assert seen == sorted(seen) and not seen[0] and seen[-1] and step > 15


@posix_only
def test_a_kill_anywhere_in_a_backup_leaves_the_data_and_no_half_a_backup(resolved, tmp_path: Path) -> None:
    storage = resolved.config.storage_dir
    whole(resolved)
    backups = tmp_path / "backups"
    backups.mkdir()
    step = 0
    while True:
        killed = killed_at(step, lambda: backup.back_up(resolved, backups, keep=2))
        named = [path for path in backups.iterdir() if path.name.startswith("backup-")]
        for path in named:
            if (path / "manifest.json").exists():
                assert backup.looked_at(path).entries == 2
        if not killed:
            break
        step += 1
    assert step > 10 and texts_in(storage) == ["one", "two"]


# --- the commands


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple]:
    for module in ("opening", "doctor"):
        monkeypatch.setattr(f"subconscious_mcp.{module}.load_embedder", lambda config, progress=None: EMBEDDER)
    monkeypatch.chdir(tmp_path)

    def runner(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner


def test_the_commands_back_up_and_restore(run, tmp_path: Path) -> None:
    run("remember", "rotate the keys", "keys rotate")
    code, out, err = run("backup", "backups", "--keep", "3", "--json")
    made = json.loads(out)
    assert (code, err, made["entries"], made["files"], made["removed"]) == (0, "", 1, ["memory.db"], [])
    run("remember", "another task", "x")
    code, _, err = run("restore", made["backup"])
    assert code == 64 and "--force" in err
    code, out, _ = run("restore", made["backup"], "--force")
    assert code == 0 and "1 entry of" in out and "built anew" in out and "before-restore-" in out
    assert json.loads(run("stats", "--json")[1])["total_entries"] == 1
    assert "warning restore: " in run("doctor")[1]
    assert run("backup", "backups", "--keep", "0")[0] == 64
    assert "every file was read again" in run("backup", "backups")[1]
    # What is wiped is wiped, what was moved aside too.
    run("wipe", "--yes")
    left = [path.name for path in resolve().config.home.rglob("*")]
    assert not any("restore" in name or "memory" in name for name in left)


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    (tmp_path / "windows").mkdir()
    opened = Windows(tmp_path / "windows")
    yield opened
    opened.close()


def command(windows: Windows, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONSOLE_SCRIPT, *arguments],
        env=windows.environment(),
        cwd=windows.folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_live_engine_is_backed_up_while_it_is_written_to(windows: Windows, tmp_path: Path) -> None:
    window = windows.open()
    acknowledged: list[str] = []
    over = threading.Event()
    started = threading.Event()

    def write() -> None:
        while not over.is_set():
            number = len(acknowledged)
            reply = window.call("remember", {"task": f"task number {number}", "answer": "x"})
            acknowledged.append(reply.payload["entry_id"])
            started.set()

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    backups = []
    for _ in range(3):
        before = len(acknowledged)
        done = command(windows, "backup", "backups", "--json")
        after = len(acknowledged) + 1
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        assert before <= made["entries"] <= after
        backups.append((before, made))
    done = command(windows, "restore", backups[0][1]["backup"], "--force")
    assert done.returncode == 75 and "engine stop" in done.stderr
    over.set()
    writer.join()
    assert windows.engines() == 1
    assert command(windows, "engine", "stop").returncode == 0
    before, made = backups[-1]
    assert command(windows, "restore", made["backup"], "--force").returncode == 0
    again = windows.open()
    found = again.call("recall", {"task": f"task number {before - 1}"}).payload
    assert found["hit"] and found["entry_id"] == acknowledged[before - 1]
    assert again.call("stats", {}).payload["total_entries"] == made["entries"]
