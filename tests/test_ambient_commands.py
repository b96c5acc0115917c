"""The commands around captured sessions: what they list, what they delete, and that it is gone then."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engines import Windows, ask
from fakes import FakeEmbedder
from hook_processes import Client, files_with
from interaction import PATIENCE
from test_inbox import LATE, episode, locked
from test_ingest import QUICK, ingested, of_windows, wait_for

from subconscious_mcp import ambient_commands, cli
from subconscious_mcp.inbox import Inbox
from subconscious_mcp.injected_files import record
from subconscious_mcp.storage_lock import StorageLock, wait_until_free

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "subconscious-home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def inbox(home: Path) -> Inbox:
    return Inbox(str(home / "data"), wait_seconds=0.05)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: Path) -> Run:
    """Runs a command in process, in the project's folder; returns exit code, standard output and standard error."""
    embedder = FakeEmbedder()
    monkeypatch.setattr("subconscious_mcp.opening.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def runner(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    opened = Windows(tmp_path)
    yield opened
    opened.close()


def leave(inbox: Inbox, project: Path, *sessions: str, words: str = "zanzibar", **facts: object) -> None:
    whole = {"root": str(project), **facts}
    for session in sessions:
        inbox.leave(episode(session, f"Move {words} of {session}", outcome=f"The {words} is moved.", **whole))


# --- episodes


def test_episodes_are_listed_and_shown(run: Run, inbox: Inbox, project: Path) -> None:
    leave(inbox, project, "s-1")
    leave(inbox, project, "s-2", ts=LATE)
    leave(inbox, project, "s-3", root="/elsewhere/project")
    leave(inbox, project, "s-4", namespace="asked for", root=None)
    listed = json.loads(run("episodes", "list", "--json")[1])
    assert [one["session_id"] for one in listed] == ["s-2", "s-1"]
    assert listed[0] == {
        "id": 2,
        "ts": LATE,
        "namespace": "project",
        "root": str(project),
        "session_id": "s-2",
        "ingested": False,
        "request": "Move zanzibar of s-2",
    }
    assert len(json.loads(run("episodes", "list", "--all", "--json")[1])) == 4
    assert len(json.loads(run("episodes", "list", "--all", "--limit", "3", "--json")[1])) == 3
    (asked,) = json.loads(run("episodes", "list", "--namespace", "asked for", "--json")[1])
    assert asked["session_id"] == "s-4"
    code, out, _ = run("episodes", "list")
    assert code == 0 and "2026-11-30 02:00" in out and "Move zanzibar of s-2" in out
    code, out, _ = run("episodes", "show", "1")
    assert code == 0 and "Move zanzibar of s-1\n\nThe zanzibar is moved.\n" in out
    assert json.loads(run("episodes", "show", "1", "--json")[1])["outcome"] == "The zanzibar is moved."
    code, _, err = run("episodes", "show", "99")
    assert code == 64 and "There is no episode 99" in err
    assert run("episodes")[0] == 0


def test_what_is_spooled_is_listed_too(run: Run, inbox: Inbox, project: Path) -> None:
    leave(inbox, project, "s-1")
    with locked(inbox):
        leave(inbox, project, "s-2")
    assert len(json.loads(run("episodes", "list", "--json")[1])) == 2


@pytest.mark.parametrize("arguments", [("list",), ("show", "1"), ("wipe", "--yes")])
def test_a_locked_inbox_is_told(
    run: Run, inbox: Inbox, project: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(ambient_commands, "COMMAND_WAIT_SECONDS", 0.01)
    leave(inbox, project, "s-1")
    with locked(inbox):
        code, _, err = run("episodes", *arguments)
    assert code == 74
    assert "context.db cannot be used: database is locked" in err


def ingest(run: Run, inbox: Inbox) -> None:
    """Lets the episodes become entries, as an engine does."""
    from subconscious_mcp.config import resolve
    from subconscious_mcp.ingest import ingest_pending
    from subconscious_mcp.opening import open_memory

    memory = open_memory(resolve().config, command="tests")
    ingest_pending(memory, inbox)
    memory.close()


def test_forgotten_episodes_are_in_no_file(run: Run, inbox: Inbox, project: Path, home: Path) -> None:
    leave(inbox, project, "s-1", "s-2")
    leave(inbox, project, "s-3", words="kilimanjaro")
    ingest(run, inbox)
    with locked(inbox):
        leave(inbox, project, "s-1", words="zanzibar and more", ts=LATE)
    assert json.loads(run("episodes", "forget", "1", "2", "--json")[1]) == {"forgotten": 2}
    assert files_with(home, "zanzibar") == []
    assert len(files_with(home, "kilimanjaro")) == 2
    code, out, _ = run("episodes", "forget", "1", "3")
    assert (code, out) == (1, "1 forgotten\n")
    assert run("episodes", "forget", "77")[:2] == (1, "0 forgotten\n")
    # What comes behind that is new.
    leave(inbox, project, "s-1", ts=LATE)
    ingest(run, inbox)
    assert json.loads(run("echo", "zanzibar", "--json")[1])["count"] == 1


def test_wiping_is_of_one_project_or_of_all(run: Run, inbox: Inbox, project: Path, home: Path) -> None:
    leave(inbox, project, "s-1", "s-2")
    leave(inbox, project, "s-3", words="kilimanjaro", root="/elsewhere/project")
    leave(inbox, project, "s-4", words="madagascar", namespace="asked for", root=None)
    run("remember", "a task that stays", "an answer")
    ingest(run, inbox)
    code, _, err = run("episodes", "wipe")
    assert code == 64 and "Say --yes." in err
    assert len(inbox.listed(None, None, 9)) == 4
    assert run("episodes", "wipe", "--yes")[:2] == (0, "2 forgotten\n")
    assert files_with(home, "zanzibar") == []
    assert run("episodes", "wipe", "--namespace", "asked for", "--yes", "--json")[1] == '{"forgotten": 1}\n'
    assert files_with(home, "madagascar") == []
    assert len(files_with(home, "kilimanjaro")) == 2
    assert run("episodes", "wipe", "--all", "--yes")[:2] == (0, "1 forgotten\n")
    assert files_with(home, "kilimanjaro") == []
    assert json.loads(run("recall", "a task that stays", "--json")[1])["hit"]


@pytest.mark.parametrize("scope", [(), ("--all",)])
def test_wiping_finds_what_the_inbox_has_lost(
    run: Run, inbox: Inbox, project: Path, home: Path, scope: tuple[str, ...]
) -> None:
    leave(inbox, project, "s-1", "s-2")
    ingest(run, inbox)
    Path(inbox.path).unlink()
    assert files_with(home, "zanzibar") == ["data/memory.db"]
    assert run("episodes", "wipe", "--yes", *scope)[:2] == (0, "2 forgotten\n")
    assert files_with(home, "zanzibar") == []


def test_a_person_confirms(run: Run, inbox: Inbox, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(inbox, project, "s-1")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for said, left in (("", 1), ("no\n", 1), ("y\n", 1), (" YES \n", 0)):
        monkeypatch.setattr(sys, "stdin", Terminal(said))
        code, _, err = run("episodes", "wipe")
        assert "Delete all captured sessions of project (1 in the inbox)? Type yes: " in err
        assert (code, len(inbox.listed(None, None, 9))) == (left, left)


# --- everything


def test_wipe_leaves_settings_and_models_and_nothing_else(
    run: Run, inbox: Inbox, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(inbox, project, "s-1")
    run("remember", "the zanzibar task", "an answer")
    run("recall", "the zanzibar task")
    ingest(run, inbox)
    with locked(inbox):
        leave(inbox, project, "s-2")
    Path(f"{inbox.path}.damaged-1").write_text("zanzibar")
    Path(inbox.folder, "memory.damaged-20261130-010203.db").write_text("zanzibar")
    record(inbox.folder, "s-1", "What the zanzibar session was told.")
    for kept in ("config.json", "models/all/model.bin", "data/notes of the user.txt", "logs/other.txt"):
        (home / kept).parent.mkdir(parents=True, exist_ok=True)
        (home / kept).write_text("{}")
    (home / "logs" / "hook.log").write_text("zanzibar")
    (home / "logs" / "server.log.1").write_text("zanzibar")
    code, _, err = run("wipe")
    assert code == 64 and "Say --yes." in err
    assert len(files_with(home, "zanzibar")) >= 5
    code, out, _ = run("wipe", "--yes", "--json")
    assert code == 0 and json.loads(out)["deleted"] >= 6
    assert files_with(home, "zanzibar") == []
    left = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert left - {"data/engine.lock"} == {
        "config.json", "models/all/model.bin", "data/notes of the user.txt", "logs/other.txt"
    }  # fmt: skip
    assert json.loads(run("stats", "--json")[1])["total_entries"] == 0


def test_wipe_of_nothing(run: Run, home: Path) -> None:
    assert run("wipe")[:2] == (0, "0 files and folders deleted\n")
    assert not home.exists()


def test_wipe_waits_for_nobody_who_holds_the_directory(run: Run, inbox: Inbox, project: Path, home: Path) -> None:
    leave(inbox, project, "s-1")
    lock = StorageLock(home / "data", "a server in a process of its own")
    code, _, err = run("wipe", "--yes")
    assert code == 75 and "a server in a process of its own" in err
    assert len(inbox.listed(None, None, 9)) == 1
    lock.release()


def test_all_of_it_with_an_engine(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands delete is gone from what the engine holds open too."""
    client = of_windows(windows)

    def command(*arguments: str) -> str:
        words = [sys.executable, "-m", "subconscious_mcp", *arguments]
        done = subprocess.run(
            words, env=windows.environment(), cwd=windows.folder, capture_output=True, text=True, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    for number, words in enumerate(("zanzibar", "kilimanjaro", "madagascar", "timbuktu"), 1):
        client.stop(f"s-{number}", f"Move the {words} module", f"The {words} module is moved.")
    window = windows.open(QUICK)
    wait_for(ingested(client, 4))
    pid = windows.engine_pid
    assert json.loads(command("episodes", "forget", "1", "--json")) == {"forgotten": 1}
    assert files_with(windows.home, "zanzibar") == []
    assert window.call("echo", {"task": "Move the zanzibar module"}).payload["count"] == 3
    # A recall asks for it meanwhile: the log must not keep the words of what is forgotten.
    window.call("recall", {"task": "Move the kilimanjaro module", "threshold": 0.1})
    echoes = window.call("echo", {"task": "Move the kilimanjaro module"}).payload["echoes"]
    assert window.call("forget", {"entry_id": echoes[0]["entry_id"]}).payload == {"forgotten": True}
    assert files_with(windows.home, "kilimanjaro") == []
    client.database.unlink()
    assert json.loads(command("episodes", "wipe", "--yes", "--json")) == {"forgotten": 2}
    assert files_with(windows.home, "madagascar") == files_with(windows.home, "timbuktu") == []
    client.stop("s-1", "Move the zanzibar module", "The zanzibar module is moved.")
    wait_for(ingested(client, 1))
    assert window.call("echo", {"task": "Move the zanzibar module"}).payload["count"] == 1
    assert windows.engine_pid == pid
    assert [space["name"] for space in json.loads(command("namespace", "list", "--json"))] == ["tests"]
    window.close()
    command("wipe", "--yes")
    assert wait_until_free(windows.storage)
    assert ask(windows.storage, "engine status") is None
    assert files_with(windows.home, "zanzibar") == []


# --- capture


CONFIGS = {
    "nothing": (None, '{\n  "capture_enabled": false\n}\n'),
    "blanks": (" \n", '{\n  "capture_enabled": false\n}\n'),
    "empty": ("{}", '{\n  "capture_enabled": false\n}'),
    "others": (
        '{\r\n\t"default_threshold": 0.90,\r\n\t"namespace": "項目 \\u2028"\r\n}\r\n',
        '{\r\n\t"default_threshold": 0.90,\r\n\t"namespace": "項目 \\u2028",\r\n\t"capture_enabled": false\r\n}\r\n',
    ),
    "a yes": ('{"a": 1e2, "capture_enabled" :true, "z": []}', '{"a": 1e2, "capture_enabled" :false, "z": []}'),
    "a mark": ('\ufeff{"capture_enabled": true}', '\ufeff{"capture_enabled": false}'),
}


@pytest.mark.parametrize(("before", "after"), CONFIGS.values(), ids=CONFIGS)
def test_capture_is_set_and_every_other_byte_stays(run: Run, home: Path, before: str | None, after: str) -> None:
    path = home / "config.json"
    if before is not None:
        home.mkdir()
        path.write_bytes(before.encode())
    assert run("capture")[:2] == (0, f"capture is on ({'config.json' if 'true' in (before or '') else 'default'})\n")
    assert run("capture", "off")[:2] == (0, "capture is off (config.json)\n")
    assert path.read_bytes() == after.encode()
    assert json.loads(run("capture", "on", "--json")[1]) == {"capture_enabled": True}
    assert path.read_bytes() == after.replace("false", "true").encode()
    assert [file.name for file in home.iterdir()] == ["config.json"]


def test_capture_off_holds_for_the_next_stop(tmp_path: Path, run: Run) -> None:
    client = Client(tmp_path)
    run("capture", "off")
    client.stop("s-1")
    assert client.rows() == []
    run("capture", "on")
    client.stop("s-2")
    assert [row[0] for row in client.rows()] == ["s-2"]


def test_the_environment_counts_before_it_and_that_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_CAPTURE_ENABLED", "false")
    code, out, err = run("capture", "on")
    assert code == 0
    assert out == "capture is off (env SUBCONSCIOUS_CAPTURE_ENABLED)\n"
    assert "SUBCONSCIOUS_CAPTURE_ENABLED is set and counts before config.json" in err


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1, // why\n"b": 2}', b"\xff\xfe"])
def test_a_config_that_cannot_be_kept_stays_as_it_is(run: Run, home: Path, content: bytes) -> None:
    home.mkdir()
    (home / "config.json").write_bytes(content)
    code, _, err = run("capture", "off")
    assert code != 0
    assert "config.json" in err
    assert (home / "config.json").read_bytes() == content


@pytest.mark.parametrize("content", ['{"a": 1, "a": 2}', '{"x": NaN, "x": 1}'])
def test_a_config_that_may_be_read_in_two_ways_stays_as_it_is(run: Run, home: Path, content: str) -> None:
    home.mkdir()
    (home / "config.json").write_text(content)
    code, _, err = run("capture", "off")
    assert code != 0
    assert 'Set "capture_enabled" in it by hand.' in err
    assert (home / "config.json").read_text() == content


@pytest.mark.skipif(os.name == "nt", reason="links and modes of files")
def test_a_linked_config_stays_a_link_and_keeps_its_mode(run: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    (home / "config.json").symlink_to(real)
    run("capture", "off")
    assert (home / "config.json").is_symlink()
    assert json.loads(real.read_text()) == {"capture_enabled": False}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_redact_masks_what_comes_in(tmp_path: Path) -> None:
    token = "ghp_" + "q7RtX0bZ2mKw9LcV4nYs8HdJ3fGp6TaE1uQz"
    client = Client(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "subconscious_mcp", "redact"], input=f"use {token}\n".encode() + b"\xff\n",
        env=client.env, capture_output=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.stdout == b"use [redacted]\n\xff\n"
    assert done.stderr == b""
