"""The engine: its life from the first window to the last, its commands, and who may speak to it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engines import PATIENT, PIPE, Windows, ask, hello_line
from fakes import FakeEmbedder
from interaction import PATIENCE, Process

from subconscious_mcp import __version__, endpoint, engine, opening, pipe
from subconscious_mcp.config import Resolved, resolve
from subconscious_mcp.errors import StorageBusy, StorageError
from subconscious_mcp.storage_lock import LOCK_FILE, SERVER, StorageLock, holder, wait_until_free

TASK = "Export the monthly sales report of the northern region"


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    opened = Windows(tmp_path)
    yield opened
    opened.close()


def remember(window: Process, task: str, answer: str = "an answer") -> str:
    return window.call("remember", {"task": task, "answer": answer}).payload["entry_id"]


def recall(window: Process, task: str) -> dict[str, Any]:
    return window.call("recall", {"task": task}).payload


def count(windows: Windows) -> int:
    with closing(sqlite3.connect(windows.storage / "memory.db")) as database:
        return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])


def command(windows: Windows, *arguments: str, text: str = "", **settings: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PIPE, *arguments],
        input=text,
        env=windows.environment(**settings),
        cwd=windows.folder,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# --- its end


@pytest.mark.parametrize("sdk", [False, True], ids=["early", "SDK"])
def test_sigterm_lets_calls_under_way_be_answered(windows: Windows, sdk: bool) -> None:
    window = windows.open(PATIENT)
    if sdk:
        window.let_sdk_take_over()
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    os.kill(windows.engine_pid, signal.SIGTERM)
    windows.let_go()
    assert window.result(call).payload["stored"]
    assert wait_until_free(windows.storage, PATIENCE)
    assert endpoint.read(str(windows.storage)) is None
    assert not any((windows.storage / "engine").iterdir())
    assert windows.engines() == 1
    assert "Engine ended." in windows.log()
    assert recall(window, f"HANG {TASK}")["hit"]
    assert windows.engines() == 2


@pytest.mark.parametrize("sdk", [False, True], ids=["early", "SDK"])
def test_what_is_not_finished_in_time_is_done_by_the_next_engine(windows: Windows, sdk: bool) -> None:
    window = windows.open("wire.STOP_SECONDS = engine.DRAIN_SECONDS = 0.0")
    if sdk:
        window.let_sdk_take_over()
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    windows.release()
    os.kill(windows.engine_pid, signal.SIGTERM)
    assert window.result(call).payload["stored"]
    assert windows.engines() == 2
    assert count(windows) == 1
    assert window.close() == 0
    assert window.rest() == []


def test_idle_windows_do_not_hold_its_end_up(windows: Windows) -> None:
    # With this patience a connection that is not let go would hold it up for ever.
    opened = [windows.open(PATIENT) for _ in range(3)]
    opened[1].let_sdk_take_over()
    for window in opened:
        window.call("stats", {})
    silent = windows.connect(hello_line())
    os.kill(windows.engine_pid, signal.SIGTERM)
    assert wait_until_free(windows.storage, PATIENCE)
    silent.close()
    for window in opened:
        assert window.call("stats", {}).payload["total_entries"] == 0


def test_it_ends_when_nobody_is_connected_for_a_while(windows: Windows) -> None:
    window = windows.open(SUBCONSCIOUS_ENGINE_IDLE_SECONDS="0.1")
    remember(window, TASK)
    # Longer than that, but somebody is connected.
    assert ask(windows.storage, "engine status")["connections"] == 1
    window.kill()
    assert wait_until_free(windows.storage, PATIENCE)
    assert "Nobody is connected: the engine ends." in windows.log()
    assert endpoint.read(str(windows.storage)) is None


# --- versions


def test_a_newer_version_takes_the_place_of_an_older_engine(windows: Windows) -> None:
    old = windows.open()
    entry_id = remember(old, TASK)
    pid = windows.engine_pid
    new = windows.open('engine.__version__ = "99.0"', pipe_change='pipe.__version__ = "99.0"')
    assert recall(new, TASK)["entry_id"] == entry_id
    assert ask(windows.storage, "engine status")["version"] == "99.0"
    assert windows.engine_pid != pid
    # The older window goes on, with the newer engine.
    assert recall(old, TASK)["entry_id"] == entry_id
    assert windows.engines() == 2


def test_an_older_version_does_not(windows: Windows) -> None:
    new = windows.open()
    pid = windows.engine_pid
    old = windows.open(pipe_change='pipe.__version__ = "0.0.1"')
    entry_id = remember(old, TASK)
    assert recall(new, TASK)["entry_id"] == entry_id
    assert windows.engine_pid == pid
    assert ask(windows.storage, "engine status", version="99.0")["version"] == __version__


# --- where it listens


def test_over_tcp_only_who_has_the_token_is_served(windows: Windows) -> None:
    window = windows.open(SUBCONSCIOUS_ENGINE_TRANSPORT="tcp")
    entry_id = remember(window, TASK)
    found = endpoint.read(str(windows.storage))
    assert found is not None and len(found["token"]) == 64
    assert (windows.storage / "engine.json").stat().st_mode & 0o777 == 0o600
    for token in ({}, {"token": ""}, {"token": "0" * 64}, {"token": None}, {"token": "\ud800"}, {"token": [found]}):
        with windows.connect(hello_line(**token)) as connection:
            assert connection.recv(1) == b""
    windows.kill_engine()
    assert recall(window, TASK)["entry_id"] == entry_id
    assert window.close() == 0


def test_a_storage_path_longer_than_a_socket_may_be(windows: Windows, tmp_path: Path) -> None:
    storage = tmp_path / ("long " * 30) / "data"
    one = windows.open(SUBCONSCIOUS_STORAGE_DIR=str(storage), XDG_RUNTIME_DIR=str(tmp_path))
    other = windows.open(SUBCONSCIOUS_STORAGE_DIR=str(storage))
    entry_id = remember(one, TASK)
    assert recall(other, TASK)["entry_id"] == entry_id
    found = endpoint.read(str(storage))
    assert found is not None and not found["socket"].startswith(str(storage))
    assert windows.engines() == 1


STALE = [
    '{"socket": "{folder}/engine/socket", "pid": 1}',
    '{"socket": "/nowhere", "pid": 1}',
    '{"port": 1, "token": "x"}',
    '{"port": "no number"}',
    "[]",
    "{",
]


@pytest.mark.parametrize("text", STALE)
def test_what_a_killed_engine_left_does_not_block_the_next_start(windows: Windows, text: str) -> None:
    (windows.storage / "engine").mkdir(parents=True, mode=0o700)
    (windows.storage / "engine").chmod(0o700)
    (windows.storage / "engine" / "socket").touch()
    (windows.storage / LOCK_FILE).write_text('{"pid": 1, "since": 1.0, "command": "subconscious-mcp engine"}')
    (windows.storage / "engine.start").touch()
    (windows.storage / "engine.json").write_text(text.replace("{folder}", str(windows.storage)))
    window = windows.open()
    assert remember(window, TASK)
    assert windows.engines() == 1


@pytest.mark.parametrize("lost", ["engine.json", "engine/socket", "damaged"])
def test_an_engine_that_cannot_be_found_any_more_sees_to_it(windows: Windows, lost: str) -> None:
    window = windows.open()
    entry_id = remember(window, TASK)
    pid = windows.engine_pid
    if lost == "damaged":
        (windows.storage / "engine.json").write_text("{")
    else:
        (windows.storage / lost).unlink()
    # Without a wait: the pipe tries until it finds one.
    other = windows.open()
    assert recall(other, TASK)["entry_id"] == entry_id
    assert recall(window, TASK)["entry_id"] == entry_id
    assert windows.engine_pid == pid


def test_an_engine_whose_directory_was_removed_ends_and_leaves_the_next_one_alone(windows: Windows) -> None:
    window = windows.open(PATIENT)
    remember(window, TASK)
    old = windows.engine_pid
    moved = windows.storage.with_name("moved")
    windows.storage.rename(moved)
    assert wait_until_free(moved, PATIENCE)
    assert "was removed or replaced: the engine ends." in windows.log()
    assert recall(window, TASK)["hit"] is False
    assert windows.engine_pid != old
    assert ask(windows.storage, "engine status")["entries"] == 0
    shutil.rmtree(moved)


# --- the commands


def test_the_commands_show_and_end_it(windows: Windows) -> None:
    assert command(windows, "engine", "status") == (1, "no engine is running\n", "")
    assert command(windows, "engine", "stop") == (0, "no engine is running\n", "")
    assert command(windows, "engine", "logs")[0] == 1
    window = windows.open()
    remember(window, TASK)
    code, out, _ = command(windows, "engine", "status", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["running"] is True
    assert (facts["pid"], facts["version"]) == (windows.engine_pid, __version__)
    assert (facts["connections"], facts["entries"], facts["namespaces"]) == (1, 1, 1)
    assert facts["models"] == [{"model": "all-MiniLM-L6-v2", "loaded": True}]
    assert facts["uptime_seconds"] >= 0 and facts["memory_mb"] > 1
    assert facts["storage_dir"] == str(windows.storage)
    code, out, _ = command(windows, "engine", "status")
    assert code == 0 and str(windows.engine_pid) in out and "(loaded)" in out
    code, out, _ = command(windows, "engine", "logs", "--lines", "1", "--json")
    assert code == 0 and len(json.loads(out)["lines"]) == 1
    assert f"Engine {__version__} started." in command(windows, "engine", "logs")[1]
    pid = windows.engine_pid
    assert command(windows, "engine", "stop")[:2] == (0, f"stopped process {pid}\n")
    StorageLock(windows.storage, "tests").release()
    assert recall(window, TASK)["hit"]


def test_the_verbs_go_through_the_engine(windows: Windows) -> None:
    window = windows.open()
    # The commands have the real embedder only, and no model: what works here is the engine's work.
    code, out, errors = command(windows, "remember", TASK, "-", "--json", text="an answer\n")
    assert (code, errors) == (0, "")
    entry_id = json.loads(out)["entry_id"]
    assert recall(window, TASK)["entry_id"] == entry_id
    assert json.loads(command(windows, "recall", TASK, "--json")[1])["answer"] == "an answer\n"
    assert command(windows, "recall", TASK, "--namespace", "another")[0] == 1
    assert json.loads(command(windows, "echo", TASK, "--json")[1])["echoes"][0]["entry_id"] == entry_id
    assert json.loads(command(windows, "stats", "--json")[1])["total_entries"] == 1
    assert command(windows, "drift")[0] == 0
    code, _, errors = command(windows, "recall", TASK, "--top-k", "0")
    assert (code, errors) == (64, "subconscious-mcp: top_k takes a whole number from 1 to 100.\n")
    code, _, errors = command(windows, "recall", TASK, "--namespace", " ")
    assert code == 64 and "--namespace takes a name" in errors
    code, _, errors = command(windows, "stats", SUBCONSCIOUS_DEFAULT_THRESHOLD="much")
    assert code == 78 and "SUBCONSCIOUS_DEFAULT_THRESHOLD takes" in errors
    assert command(windows, "forget", entry_id)[0] == 0
    assert command(windows, "forget", entry_id)[0] == 1
    assert holder(windows.storage).pid == windows.engine_pid


def test_the_longest_answer_goes_through_the_engine(windows: Windows) -> None:
    windows.open()
    answer = "\N{GRINNING FACE}" * 1_000_000
    code, out, errors = command(windows, "remember", TASK, "-", "--json", text=answer)
    assert (code, errors) == (0, "")
    assert json.loads(out)["stored"]
    assert json.loads(command(windows, "recall", TASK, "--json")[1])["answer"] == answer


def test_without_an_engine_the_verbs_take_the_lock_themselves(tmp_path: Path, real_model_dir: Path) -> None:
    windows = Windows(tmp_path, real_model_dir.parent)
    try:
        code, out, _ = command(windows, "remember", TASK, "an answer", "--json")
        assert code == 0 and json.loads(out)["stored"]
        assert command(windows, "recall", TASK)[0] == 0
        assert endpoint.read(str(windows.storage)) is None
        StorageLock(windows.storage, "tests").release()
    finally:
        windows.close()


def test_a_command_whose_engine_dies_says_so(windows: Windows) -> None:
    windows.open()
    code, _, errors = command(windows, "recall", "POISON")
    assert code == 75
    assert errors == "subconscious-mcp: The engine ended during the command. Try again.\n"


def test_the_doctor_examines_through_the_engine(windows: Windows) -> None:
    windows.open()
    code, out, _ = command(windows, "doctor", "--json")
    findings = {finding["check"]: finding for finding in json.loads(out)}
    assert next(iter(findings)) == "engine"
    assert f"process {windows.engine_pid}, 1 connections" in findings["engine"]["detail"]
    assert findings["memory.db"]["state"] == "ok"
    # The model of the stand-in is not installed: that hides nothing else.
    assert findings["model"]["state"] == "problem"
    assert code == 1
    code, _, errors = command(windows, "doctor", "--repair")
    assert code == 75
    assert f"The engine (process {windows.engine_pid}) has the storage directory open." in errors
    assert "engine stop" in errors


def test_deletions_of_several_windows_at_once_do_not_meet(windows: Windows) -> None:
    opened = [windows.open(SUBCONSCIOUS_ECHO_LOG_ENABLED="01"[number % 2]) for number in range(4)]
    ids = [[remember(window, f"{TASK} {number} {turn}") for turn in range(15)] for number, window in enumerate(opened)]
    for number, window in enumerate(opened):
        for turn in range(15):
            recall(window, f"{TASK} {number} {turn}")
    calls = [
        (window, window.start_call("forget", {"entry_id": own[turn]}))
        for turn in range(15)
        for window, own in zip(opened, ids, strict=True)
    ]
    for window, call in calls:
        assert window.result(call).payload == {"forgotten": True}
    assert TASK not in (windows.storage / "echo_log_tests.jsonl").read_text()


# --- a directory that cannot be used


def test_a_database_that_cannot_be_opened_does_not_cost_the_engine_its_lock(windows: Windows) -> None:
    windows.storage.mkdir(parents=True)
    (windows.storage / "memory.db").write_text("no database" * 1000)
    window = windows.open()
    for _ in range(2):
        assert "memory.db" in window.call("stats", {}).error
    with pytest.raises(Exception, match="in use by"):
        StorageLock(windows.storage, "tests")
    (windows.storage / "memory.db").unlink()
    assert remember(window, TASK)
    with pytest.raises(Exception, match="in use by"):
        StorageLock(windows.storage, "tests")


def test_a_missing_model_is_told_by_each_call_and_found_once_it_is_there(windows: Windows) -> None:
    window = windows.open(
        "from subconscious_mcp.errors import ModelMissing\n"
        "def load(config, progress=None):\n"
        "    if os.path.exists(os.environ['ONCE']):\n"
        "        return Embedder(config)\n"
        "    raise ModelMissing('The model is not installed.', 'Run `subconscious-mcp model install`.')\n"
        "opening.load_embedder = load\n"
    )
    for _ in range(2):
        assert "subconscious-mcp model install" in window.call("recall", {"task": TASK}).error
    (windows.folder / "once").touch()
    assert remember(window, TASK)


# --- in this process


@pytest.fixture
def signals() -> Iterator[None]:
    """An engine that runs in this process takes the signals: they are given back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolved:
    """Settings of an engine in this process, with the fake embedder."""
    monkeypatch.setattr(opening, "load_embedder", lambda config, progress=None: FakeEmbedder())
    monkeypatch.setenv("SUBCONSCIOUS_STORAGE_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SUBCONSCIOUS_NAMESPACE", "tests")
    (tmp_path / "data").mkdir(mode=0o700)
    return resolve()


def meanwhile(running: engine.Engine, act: Callable[[], Any]) -> Any:
    """Runs an engine on this thread, as its signals want it; returns what `act` returned on another."""
    with ThreadPoolExecutor(1) as pool:

        def acted() -> Any:
            try:
                return act()
            finally:
                running.stop()

        result = pool.submit(acted)
        running.run()
        return result.result(PATIENCE)


def said(folder: Path, line: bytes) -> list[dict[str, Any]]:
    """Returns all that an engine says to a raw hello."""
    found = endpoint.read(str(folder))
    assert found is not None
    with closing(endpoint.connect(found, PATIENCE)) as connection, connection.makefile("rb") as stream:
        connection.sendall(line)
        return [json.loads(answer) for answer in stream]


def test_commands_are_answered_and_faults_are_told_without_their_texts(settings: Resolved, signals: None) -> None:
    folder = settings.config.storage_dir
    running = engine.Engine(folder, settings)

    def act() -> None:
        verb = {"hello": "verb", "env": dict(os.environ), "cwd": str(folder)}

        def answer(**fields: Any) -> dict[str, Any]:
            greeting, answer = said(folder, hello_line(**{**verb, **fields}))
            assert greeting["engine"]["pid"] == os.getpid()
            return answer

        stored = answer(verb="remember", values={"task": TASK, "answer": "x"})["result"]
        assert stored["payload"]["stored"] and stored["namespace"] == "tests"
        found = answer(verb="recall", values={"task": TASK}, namespace="another")["result"]
        assert (found["payload"]["hit"], found["namespace"]) == (False, "another")
        assert answer(verb="engine status")["result"]["entries"] == 1
        findings = {finding["check"]: finding for finding in answer(verb="doctor")["result"]["findings"]}
        assert findings["memory.db"]["state"] == "ok"
        assert answer(verb="recall", values={"task": " "})["error"]["kind"] == "InvalidArgument"
        assert answer(verb="stats", namespace=" ")["error"]["message"].startswith("--namespace takes a name")
        assert answer(verb="rekall")["error"]["message"] == "There is no verb 'rekall'."
        for fields in ({}, {"verb": "recall", "values": {"secret": "secret"}}, {"verb": "recall", "values": 7}):
            error = answer(**fields)["error"]
            assert error["kind"] == "SubconsciousError" and "secret" not in error["message"]
            assert error["message"].startswith("An internal error (")
        assert answer(verb="engine stop")["result"] == {"stopping": True, "pid": os.getpid()}

    meanwhile(running, act)
    assert endpoint.read(str(folder)) is None
    assert wait_until_free(folder, PATIENCE)


def test_a_connection_that_cannot_be_accepted_now_is_accepted_later(
    settings: Resolved, signals: None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = settings.config.storage_dir
    running = engine.Engine(folder, settings)
    listener = running._listener
    errors = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ECONNABORTED, "aborted")]

    class Exhausted:
        """The listener of a process that has no descriptor left for a while."""

        fileno, close = listener.fileno, listener.close

        def accept(self) -> Any:
            if errors:
                raise errors.pop()
            return listener.accept()

    running._listener = Exhausted()  # type: ignore[assignment]
    assert meanwhile(running, lambda: ask(folder, "engine status"))["connections"] == 0
    assert errors == []
    assert "A connection could not be accepted: Too many open files." in caplog.text


def test_an_engine_that_can_accept_no_connection_any_more_ends(
    settings: Resolved, signals: None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = settings.config.storage_dir
    running = engine.Engine(folder, settings)
    found = endpoint.read(str(folder))
    assert found is not None
    waiting = endpoint.connect(found, PATIENCE)
    listener = running._listener

    class Broken:
        fileno, close = listener.fileno, listener.close

        def accept(self) -> Any:
            raise OSError(errno.ENOTSOCK, "not a socket")

    running._listener = Broken()  # type: ignore[assignment]
    running.run()
    waiting.close()
    assert "The engine cannot accept connections any more." in caplog.text
    assert endpoint.read(str(folder)) is None
    assert wait_until_free(folder, PATIENCE)


def test_an_engine_that_cannot_say_where_it_is_ends(
    settings: Resolved, signals: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "WATCH_SECONDS", 0.01)
    folder = settings.config.storage_dir
    running = engine.Engine(folder, settings)
    (folder / "engine.json").unlink()
    (folder / "engine.json.new").mkdir()
    running.run()
    assert "The engine cannot be found any more: Is a directory." in caplog.text
    assert wait_until_free(folder, PATIENCE)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_an_engine_that_cannot_listen_or_be_found_gives_its_lock_free(
    settings: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    folder = tmp_path / ("long " * 30) / "data"
    folder.mkdir(parents=True)
    if transport == "unix":
        # No place is short enough for a socket.
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        (folder / "engine.json.new").mkdir()
    resolved = replace(settings, config=replace(settings.config, engine_transport=transport))
    with pytest.raises(StorageError, match="The engine cannot listen: "):
        engine.Engine(folder, resolved)
    assert endpoint.read(str(folder)) is None
    StorageLock(folder, "tests").release()


def test_an_engine_beside_one_that_listens_does_not_wait(settings: Resolved, signals: None) -> None:
    folder = settings.config.storage_dir
    running = engine.Engine(folder, settings)

    def act() -> None:
        with pytest.raises(StorageBusy, match=f"is in use by process {os.getpid()}"):
            engine.Engine(folder, settings)

    meanwhile(running, act)


@pytest.mark.parametrize("held_by", [engine.COMMAND, SERVER, "another command"])
def test_an_engine_waits_for_the_lock_of_whoever_ends(
    settings: Resolved, signals: None, monkeypatch: pytest.MonkeyPatch, held_by: str
) -> None:
    folder = settings.config.storage_dir
    lock = StorageLock(folder, held_by)
    # What an engine that was killed left behind leads nowhere.
    endpoint.publish(str(folder), {"socket": str(folder / "engine" / "socket"), "pid": 1})
    monkeypatch.setattr(engine, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.0)
    with pytest.raises(StorageBusy):
        engine.Engine(folder, settings)
    monkeypatch.setattr(engine, "LOCK_SECONDS", PATIENCE)
    monkeypatch.setattr(engine, "BUSY_SECONDS", PATIENCE)
    looked = engine.holder

    def look(folder: Path) -> Any:
        found = looked(folder)
        lock.release()
        return found

    monkeypatch.setattr(engine, "holder", look)
    running = engine.Engine(folder, settings)
    assert looked(folder).command == engine.COMMAND
    running.stop()
    running.run()
    assert wait_until_free(folder, PATIENCE)


def test_freed_memory_goes_back_once_in_each_time_of_quiet(
    settings: Resolved, signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = engine.Engine(settings.config.storage_dir, settings)
    trimmed = []
    trim = engine._trim
    monkeypatch.setattr(engine, "_trim", lambda: trimmed.append(trim()))
    for quiet, times in ((False, 0), (True, 1), (True, 1), (False, 1), (True, 2)):
        monkeypatch.setattr(engine, "TRIM_SECONDS", 0.0 if quiet else 1e9)
        running._give_back()
        assert len(trimmed) == times
    running.stop()
    running.run()


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_on_other_systems_there_is_nothing_to_give_back(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    import ctypes

    asked: list[object] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", asked.append)
    engine._trim()
    assert not asked


def test_a_library_without_the_call_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    monkeypatch.setattr(sys, "platform", "linux")
    asked: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", asked.append)  # returns None, which has no such call
    engine._trim()
    assert asked == [None]


def test_the_memory_in_use_is_told_as_well_as_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    here = engine._resident_mb()
    assert here is not None and here > 1

    def unreadable(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", unreadable)
    monkeypatch.setattr(sys, "platform", "linux")
    peak = engine._resident_mb()
    assert peak is not None and peak > 1
    monkeypatch.setattr(sys, "platform", "darwin")
    assert engine._resident_mb() == pytest.approx(peak / 1024, abs=1.0)
    monkeypatch.setattr(sys, "platform", "win32")
    assert engine._resident_mb() is None


# --- pieces


def test_a_pipe_looks_for_an_engine_without_starting_one(tmp_path: Path) -> None:
    engine = pipe.Engine(str(tmp_path), str(tmp_path))
    assert engine.reach({"hello": "verb"}, start=False) is None
    assert engine.why == "no engine is running"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("greeting", [b"", b"\n", b"[]\n", b"{}\n", b'{"engine": 3}\n', b"\xff\n", b"[" * 5000 + b"\n"])
def test_somebody_else_who_listens_there_is_no_engine(tmp_path: Path, greeting: bytes) -> None:
    import threading

    listener, found = endpoint.listen(str(tmp_path), "tcp")
    endpoint.publish(str(tmp_path), found)

    def greet() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(greeting)

    thread = threading.Thread(target=greet)
    thread.start()
    with closing(listener):
        assert pipe.Engine(str(tmp_path), str(tmp_path)).reach({"hello": "verb"}, start=False) is None
        thread.join()
