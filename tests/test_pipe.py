"""What a client may rely on, whatever becomes of the engine behind its pipe."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engines import CHANGED_PIPE, PIPE, Windows, ask, hello_line
from interaction import COMMAND, MODERN_META, PATIENCE, Process, handshake_params

from subconscious_mcp import endpoint, pipe, wire
from subconscious_mcp.storage_lock import holder, wait_until_free

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


def rows(windows: Windows) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(windows.storage / "memory.db")) as database:
        return database.execute("SELECT id, task FROM entries ORDER BY key").fetchall()


def error_of(message: dict[str, Any]) -> str:
    assert message["error"]["code"] == pipe.RETRY_CODE
    return message["error"]["message"]


# --- one engine


@pytest.mark.parametrize("count", [2, 10])
def test_windows_that_start_at_once_on_an_empty_directory_share_one_engine(windows: Windows, count: int) -> None:
    opened = [windows.start() for _ in range(count)]
    for window in opened:
        window.start_request("initialize", handshake_params("2025-11-25"))
    for window in opened:
        assert window.reply(1)["result"]["serverInfo"]["name"] == "subconscious-mcp"
    ids = [remember(window, f"{TASK} number {number}") for number, window in enumerate(opened)]
    for window in opened:
        found = [recall(window, f"{TASK} number {number}")["entry_id"] for number in range(count)]
        assert found == ids
    assert windows.engines() == 1
    assert holder(windows.storage).pid == windows.engine_pid
    assert ask(windows.storage, "engine status")["connections"] == count
    assert windows.storage.stat().st_mode & 0o777 == 0o700
    assert windows.home.stat().st_mode & 0o777 == 0o700


def test_what_one_window_was_told_is_stored_the_others_see_at_once(windows: Windows) -> None:
    one, other = windows.open(), windows.open()
    for number in range(20):
        task = f"{TASK} of year {number}"
        entry_id = remember(one, task)
        assert recall(other, task)["entry_id"] == entry_id
        assert other.call("forget", {"entry_id": entry_id}).payload == {"forgotten": True}
        assert recall(one, task)["entry_id"] != entry_id


def test_each_window_has_its_project_and_its_settings(windows: Windows, tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name / ".git").mkdir(parents=True)
    own = {"unset": ["SUBCONSCIOUS_NAMESPACE"]}
    here = windows.open(cwd=tmp_path / "here", **own)
    there = windows.open(cwd=tmp_path / "there", **own)
    told = windows.open(cwd=tmp_path / "there", CLAUDE_PROJECT_DIR=str(tmp_path / "here"), **own)
    loose = windows.open(cwd=tmp_path / "here", SUBCONSCIOUS_DEFAULT_THRESHOLD="0.1", **own)
    bad = windows.open(cwd=tmp_path / "here", SUBCONSCIOUS_DEFAULT_THRESHOLD="much", **own)
    entry_id = remember(here, TASK)
    assert recall(told, TASK)["entry_id"] == entry_id
    assert there.call("stats", {}).payload["total_entries"] == 0
    far = "Export something of the northern region"
    assert not recall(here, far)["hit"]
    assert recall(loose, far)["hit"]
    for _ in range(2):
        assert "SUBCONSCIOUS_DEFAULT_THRESHOLD takes" in bad.call("recall", {"task": TASK}).error
    assert recall(here, TASK)["hit"]
    assert windows.engines() == 1


def test_paths_in_the_settings_are_relative_to_the_window(windows: Windows, tmp_path: Path) -> None:
    folder = tmp_path / "window"
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "config.json").write_text('{"default_threshold": 0.1}')
    plain = windows.open(SUBCONSCIOUS_STORAGE_DIR=str(windows.storage))
    relative = windows.open(
        cwd=folder, SUBCONSCIOUS_HOME="own", SUBCONSCIOUS_STORAGE_DIR=os.path.relpath(windows.storage, folder)
    )
    remember(plain, TASK)
    far = "Export something of the northern region"
    assert not recall(plain, far)["hit"]
    assert recall(relative, far)["hit"]
    assert windows.engines() == 1


def test_a_window_whose_folder_was_deleted_is_served(windows: Windows, tmp_path: Path) -> None:
    (tmp_path / "deleted").mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    window = windows.start(
        cwd=tmp_path / "deleted", command=[sys.executable, "-c", code, *CHANGED_PIPE], unset=["SUBCONSCIOUS_NAMESPACE"]
    )
    window.handshake()
    assert remember(window, TASK)
    with closing(sqlite3.connect(windows.storage / "memory.db")) as database:
        assert database.execute("SELECT root FROM namespaces").fetchall() != [(str(windows.storage),)]


# --- the engine dies


def modern(window: Process, name: str, arguments: dict[str, Any]) -> int:
    return window.start_request("tools/call", {"name": name, "arguments": arguments, "_meta": MODERN_META})


@pytest.mark.parametrize("sdk", [False, True], ids=["early", "SDK"])
def test_a_kill_while_five_windows_are_idle_is_not_noticed(windows: Windows, sdk: bool) -> None:
    opened = [windows.open() for _ in range(5)]
    if sdk:
        for window in opened:
            window.let_sdk_take_over()
    ids = [remember(window, f"{TASK} {number}") for number, window in enumerate(opened)]
    for round_number in range(2):
        windows.kill_engine()
        calls = [window.start_call("recall", {"task": f"{TASK} {n}"}) for n, window in enumerate(opened)]
        for window, call, entry_id in zip(opened, calls, ids, strict=True):
            assert window.result(call).payload["entry_id"] == entry_id
        assert windows.engines() == round_number + 2
    for window in opened:
        assert window.close() == 0
        # No second reply to the handshake, no reply twice.
        assert window.rest() == []


@pytest.mark.parametrize("era", ["early", "SDK", "modern"])
def test_a_kill_in_the_middle_of_five_windows_calls_is_not_noticed(windows: Windows, era: str) -> None:
    opened = [windows.start() if era == "modern" else windows.open() for _ in range(5)]
    if era == "SDK":
        for window in opened:
            window.let_sdk_take_over()
    calls = []
    for number, window in enumerate(opened):
        arguments = {"task": f"HANG {TASK} {number}", "answer": "an answer"}
        start = modern if era == "modern" else Process.start_call
        calls.append(start(window, "remember", arguments))
    windows.wait_until_hanging(5)
    windows.release()
    windows.kill_engine()
    ids = [window.result(call).payload["entry_id"] for window, call in zip(opened, calls, strict=True)]
    assert sorted(ids) == sorted(entry_id for entry_id, _ in rows(windows))
    for window in opened:
        assert window.close() == 0
        assert window.rest() == []


def test_a_kill_before_the_handshake_is_answered(windows: Windows) -> None:
    # The session is not made before the first engine is gone.
    slow = "engine.Engine._serve_pipe = lambda *a: os._exit(9) if once() else serve(*a)"
    window = windows.start("serve = engine.Engine._serve_pipe\n" + slow)
    window.start_request("initialize", handshake_params("2025-11-25"))
    window.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert window.reply(1)["result"]["protocolVersion"] == "2025-11-25"
    # Only the SDK minds whether it was told that the handshake is over.
    window.let_sdk_take_over()
    assert remember(window, TASK)
    assert window.close() == 0
    assert window.rest() == []


@pytest.mark.parametrize("sdk", [False, True], ids=["early", "SDK"])
def test_a_write_that_was_done_and_not_answered_is_answered_and_not_done_again(windows: Windows, sdk: bool) -> None:
    window = windows.open('die_after(Database, "add_many")')
    if sdk:
        window.let_sdk_take_over()
    entry_id = remember(window, TASK)
    assert windows.engines() == 2
    assert rows(windows) == [(entry_id, TASK)]
    other = remember(window, TASK)
    assert [row[0] for row in rows(windows)] == [entry_id, other]


def test_a_deletion_that_was_done_and_not_answered_is_answered_and_finished(windows: Windows) -> None:
    window = windows.open('die_after(Database, "delete")')
    entry_id = remember(window, "the zanzibar secret", "quetzalcoatl")
    assert window.call("forget", {"entry_id": entry_id}).payload == {"forgotten": True}
    assert windows.engines() == 2
    assert rows(windows) == []
    for path in windows.storage.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"zanzibar" not in content and b"quetzalcoatl" not in content, path
    assert window.call("forget", {"entry_id": entry_id}).payload == {"forgotten": False}


@pytest.mark.parametrize("sdk", [False, True], ids=["early", "SDK"])
def test_two_writes_with_one_id_are_two_writes(windows: Windows, sdk: bool) -> None:
    window = windows.open()
    if sdk:
        window.let_sdk_take_over()

    def call(task: str) -> dict[str, Any]:
        params = {"name": "remember", "arguments": {"task": task, "answer": "x"}}
        return {"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}

    # One after the other, and then a second one while the first is under way.
    for number in range(3):
        window.send(call(f"{TASK} {number}"))
        assert "result" in window.reply("same")
    assert len(rows(windows)) == 3
    if sdk:
        # The SDK itself refuses an id that is in use.
        return
    window.send(call(f"HANG {TASK} one"), call(f"HANG {TASK} two"))
    windows.wait_until_hanging(2)
    windows.release()
    windows.kill_engine()
    assert "result" in window.reply("same")
    assert "result" in window.reply("same")
    assert len(rows(windows)) == 5
    window.close()
    assert window.rest() == []


def test_a_cancelled_request_is_not_sent_again(windows: Windows) -> None:
    window = windows.open()
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    window.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
    # Only when this is answered is the cancellation known to have passed the pipe.
    window.request("ping")
    windows.release()
    windows.kill_engine()
    assert window.call("stats", {}).payload["total_entries"] == 0
    assert window.close() == 0
    assert window.rest() == []


def test_a_request_that_kills_every_engine_is_given_up_and_the_session_goes_on(windows: Windows) -> None:
    window = windows.open()
    entry_id = remember(window, TASK)
    call = window.start_call("recall", {"task": "POISON"})
    text = error_of(window.reply(call))
    assert "it ended each time that this request was sent" in text
    assert text.endswith("try again.")
    assert windows.engines() == pipe.MOST_TRIES
    assert recall(window, TASK)["entry_id"] == entry_id
    assert windows.engines() == pipe.MOST_TRIES + 1


def test_when_no_engine_can_be_started_any_more_each_request_is_answered_with_the_reason(windows: Windows) -> None:
    window = windows.open()
    remember(window, TASK)
    ask(windows.storage, "engine stop")
    assert wait_until_free(windows.storage)
    moved = windows.storage.rename(windows.storage.with_name("moved"))
    windows.storage.write_text("a file in its place")
    for _ in range(2):
        call = window.start_call("recall", {"task": TASK})
        text = error_of(window.reply(call))
        assert "the engine cannot be started: " in text and "Errno" not in text
    windows.storage.unlink()
    moved.rename(windows.storage)
    assert recall(window, TASK)["hit"]


# --- what goes through


def test_large_messages_go_through_both_ways(windows: Windows) -> None:
    window = windows.open()
    request_id = "\N{GRINNING FACE}" * 1_300_000
    window.send({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
    assert window.reply(request_id)["result"] == {}
    assert "at most" in window.call("remember", {"task": TASK, "answer": "x" * 5_000_000}).error


def test_a_thousand_requests_are_taken_before_a_reply_is_read(windows: Windows) -> None:
    lines = [
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"recall","arguments":{"task":"x"}}}\n' % n
        for n in range(1000)
    ]
    handshake = {"jsonrpc": "2.0", "id": -1, "method": "initialize", "params": handshake_params("2025-11-25")}
    with subprocess.Popen(
        CHANGED_PIPE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=windows.environment()
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(handshake).encode() + b"\n" + b"".join(lines))
        process.stdin.close()
        assert sorted(json.loads(line)["id"] for line in process.stdout) == list(range(-1, 1000))
    assert process.returncode == 0


def test_a_line_that_is_too_long_is_refused_and_the_session_goes_on(windows: Windows) -> None:
    assert pipe.MAX_LINE_BYTES == wire.MAX_LINE_BYTES
    window = windows.open(pipe_change="pipe.MAX_LINE_BYTES = 10_000")
    window.send(b"x" * 50_000 + b"\n")
    message = window.take()
    assert message == {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "The message is too long."}}
    assert remember(window, TASK)


def test_lines_that_are_no_requests_pass(windows: Windows) -> None:
    window = windows.open()
    window.send(b"\xff\xfe\n", b"{broken\n", b"\n", b"[" * 100_000 + b"\n", b"[1]\n", b'{"id": {}}\n')
    assert window.call("stats", {}).payload["total_entries"] == 0
    windows.kill_engine()
    assert window.call("stats", {}).payload["total_entries"] == 0


# --- the end


def test_replies_still_come_when_the_client_has_closed_its_end(windows: Windows) -> None:
    window = windows.open()
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    window.close_input()
    windows.let_go()
    assert window.result(call).payload["stored"]
    assert window.wait() == 0


def test_replies_still_come_when_the_engine_dies_after_the_client_has_closed_its_end(windows: Windows) -> None:
    window = windows.open()
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    window.close_input()
    windows.release()
    windows.kill_engine()
    assert window.result(call).payload["stored"]
    assert window.wait() == 0
    assert len(rows(windows)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_pipe(windows: Windows, number: signal.Signals) -> None:
    window = windows.open()
    window.signal(number)
    assert window.wait() == 0
    assert window.errors == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_calls_under_way_be_answered(windows: Windows, number: signal.Signals) -> None:
    window = windows.open(pipe_change="pipe.STOP_SECONDS = 1e6")
    call = window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    window.signal(number)
    windows.let_go()
    assert window.result(call).payload["stored"]
    assert window.wait() == 0


def test_a_signal_ends_a_pipe_whose_call_hangs(windows: Windows) -> None:
    window = windows.open()
    window.start_call("remember", {"task": f"HANG {TASK}", "answer": "x"})
    windows.wait_until_hanging()
    window.signal(signal.SIGTERM)
    assert window.wait() == 0
    windows.let_go()


def test_windows_killed_in_any_order_leave_nothing_behind(windows: Windows) -> None:
    settings = {"SUBCONSCIOUS_ENGINE_IDLE_SECONDS": "0.2"}
    opened = [windows.open(**settings) for _ in range(4)]
    for window in opened:
        remember(window, TASK)
    pid = windows.engine_pid
    for number in (2, 0, 3, 1):
        opened[number].kill()
    assert wait_until_free(windows.storage, PATIENCE)
    assert endpoint.read(str(windows.storage)) is None
    assert not any((windows.storage / "engine").iterdir())
    again = windows.open(**settings)
    assert recall(again, TASK)["hit"]
    assert windows.engine_pid != pid


def test_an_engine_that_ended_by_itself_is_started_by_the_next_call(windows: Windows) -> None:
    window = windows.open(SUBCONSCIOUS_ENGINE_IDLE_SECONDS="0.2")
    remember(window, TASK)
    window.close()
    assert wait_until_free(windows.storage, PATIENCE)
    window = windows.open()
    assert recall(window, TASK)["hit"]
    assert windows.engines() == 2


# --- no engine


def test_without_an_engine_the_pipe_serves_in_its_own_process(windows: Windows) -> None:
    window = windows.open(SUBCONSCIOUS_ENGINE="off")
    assert "tools" in window.request("tools/list")["result"]
    window.call("stats", {})
    assert endpoint.read(str(windows.storage)) is None
    assert window.close() == 0


def test_an_engine_that_cannot_start_leaves_the_pipe_to_serve(windows: Windows) -> None:
    window = windows.open("raise SystemExit(3)")
    window.call("stats", {})
    assert "Serving in this process: the engine ended with exit code 3" in windows.log()
    assert window.close() == 0


@pytest.mark.parametrize("below", [False, True], ids=["a file", "below a file"])
def test_a_storage_directory_that_cannot_be_used_is_told_by_each_call(
    windows: Windows, tmp_path: Path, below: bool
) -> None:
    (tmp_path / "file").write_text("mine")
    storage = tmp_path / "file" / "below" if below else tmp_path / "file"
    window = windows.start(SUBCONSCIOUS_STORAGE_DIR=str(storage))
    window.handshake()
    for _ in range(2):
        error = window.call("stats", {}).error
        assert str(storage) in error and "Errno" not in error
    assert window.close() == 0


def test_settings_that_cannot_be_used_are_told_by_each_call(windows: Windows) -> None:
    windows.home.mkdir()
    (windows.home / "config.json").write_text("[]")
    window = windows.open()
    for _ in range(2):
        assert "config.json must hold one JSON object." in window.call("stats", {}).error
    assert window.close() == 0


def test_a_pipe_beside_a_server_tells_who_holds_the_directory(windows: Windows) -> None:
    server = windows.open(command=COMMAND)
    assert server.call("stats", {})
    # The lock is taken before the model is looked for, which is not there.
    window = windows.open("engine.BUSY_SECONDS = 0.0")
    error = window.call("stats", {}).error
    assert f"is in use by process {server.popen.pid} (subconscious-mcp server)" in error
    assert "Serving in this process: another process than an engine holds" in windows.log()


def test_a_server_beside_an_engine_tells_who_holds_the_directory(windows: Windows) -> None:
    window = windows.open()
    remember(window, TASK)
    server = windows.open(command=COMMAND)
    error = server.call("stats", {}).error
    assert f"is in use by process {windows.engine_pid} (subconscious-mcp engine)" in error


# --- what the engine takes from whoever starts it


def test_the_engine_holds_nothing_of_the_process_that_started_it(windows: Windows, tmp_path: Path) -> None:
    window = windows.open()
    facts = Path(f"/proc/{windows.engine_pid}")
    if facts.exists():
        assert (facts / "cwd").resolve() == windows.storage
        assert os.getsid(windows.engine_pid) == windows.engine_pid
    # Standard output of the pipe ends with the pipe, so the engine has no copy of it.
    assert window.close() == 0
    assert ask(windows.storage, "engine status") is not None


def test_descriptors_that_a_client_leaves_open_are_not_held(windows: Windows, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "left open")
    code = (
        "import os, sys; os.set_inheritable(os.open(sys.argv[1], os.O_WRONLY), True);"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    window = windows.start(command=[sys.executable, "-c", code, str(tmp_path / "left open"), *CHANGED_PIPE])
    with (tmp_path / "left open").open("rb", buffering=0) as left_open:
        window.handshake()
        assert window.close() == 0
        assert ask(windows.storage, "engine status") is not None
        ready, _, _ = select.select([left_open], [], [], PATIENCE)
        assert ready and left_open.read() == b""


def test_modules_in_the_clients_folder_are_not_imported(windows: Windows, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("json", "subconscious_mcp", "select", "socket", "logging"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is the wrong module')\n")
    window = windows.open(command=PIPE, cwd=folder)
    assert [tool["name"] for tool in window.tools()][:1] == ["recall"]
    assert windows.engines() == 1
    assert window.errors == []


def test_what_a_raw_hello_line_lacks_ends_only_its_connection(windows: Windows) -> None:
    window = windows.open()
    lines = [b"\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b'{"hello": "pipe"}\n', b"[" * 100_000 + b"\n", b"\n", b""]
    lines += [hello_line(repeated="x"), hello_line(again=7), hello_line(env=3), hello_line(again=["x"])]
    silent = windows.connect(b"")
    for line in lines:
        with windows.connect(line) as connection:
            connection.shutdown(1)
            while connection.recv(1 << 16):
                pass
    assert remember(window, TASK)
    assert ask(windows.storage, "engine status")["connections"] == 2
    silent.close()
    assert windows.engines() == 1


# --- on systems that start processes otherwise


@pytest.mark.parametrize(
    "change",
    ["del os.posix_spawn", "def no(*a, **k): raise NotImplementedError\nos.posix_spawn = no"],
    ids=["no posix_spawn", "not all of it"],
)
def test_an_engine_is_detached_where_it_is_started_as_a_subprocess(windows: Windows, change: str) -> None:
    window = windows.open(pipe_change=change)
    assert remember(window, TASK)
    assert os.getsid(windows.engine_pid) == windows.engine_pid
    assert window.close() == 0
    assert ask(windows.storage, "engine status") is not None


def test_a_client_that_ignores_the_end_of_its_children_is_served(windows: Windows) -> None:
    # The pipe inherits that, and is never told how an engine ended.
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    window = windows.start("once() and os._exit(3)", command=[sys.executable, "-c", code, *CHANGED_PIPE])
    window.handshake()
    assert remember(window, TASK)
    ask(windows.storage, "engine stop")
    assert wait_until_free(windows.storage, PATIENCE)
    assert recall(window, TASK)["hit"]
    assert windows.engines() == 2
    assert window.close() == 0


def test_without_a_home_folder_each_call_says_so(windows: Windows) -> None:
    window = windows.start(HOME="not absolute", unset=["SUBCONSCIOUS_HOME"])
    window.handshake()
    for _ in range(2):
        assert "home folder" in window.call("stats", {}).error
    assert window.close() != 0


def test_a_client_that_reads_no_more_ends_its_pipe(windows: Windows) -> None:
    with subprocess.Popen(
        CHANGED_PIPE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=windows.environment()
    ) as process:
        assert process.stdin and process.stdout
        process.stdout.close()
        ping = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": handshake_params("2025-11-25")}
        process.stdin.write(json.dumps(ping).encode() + b"\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0


def test_an_input_that_cannot_be_read_is_at_its_end(windows: Windows, tmp_path: Path) -> None:
    with (tmp_path / "only written").open("w") as stdin:
        done = subprocess.run(
            CHANGED_PIPE, stdin=stdin, capture_output=True, env=windows.environment(), timeout=PATIENCE, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- in this process


class Engines:
    """In the place of `pipe.Engine`: connections whose other ends are the test's."""

    def __init__(self) -> None:
        self.why = "none is there"
        self.none = False
        self.hellos: list[dict[str, Any]] = []
        self.ends: list[socket.socket] = []

    def reach(self, hello: dict[str, Any]) -> socket.socket | None:
        self.hellos.append(hello)
        if self.none:
            return None
        ours, theirs = socket.socketpair()
        theirs.settimeout(PATIENCE)
        self.ends.append(theirs)
        return ours

    def gone(self, hello: dict[str, Any]) -> socket.socket:
        """As `reach`, to an engine that ends as soon as it has greeted."""
        self.hellos.append(hello)
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours

    def close(self) -> None:
        for end in self.ends:
            end.close()


@pytest.fixture
def engines() -> Iterator[Engines]:
    opened = Engines()
    yield opened
    opened.close()


def request_line(request_id: int, method: str = "tools/call") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method}).encode() + b"\n"


def pumped(window: pipe.Pipe, engines: Engines, *replies: dict[str, Any]) -> None:
    """Lets the present engine send its replies and end, and the pipe take note of that."""
    end = engines.ends.pop()
    end.sendall(b"".join(json.dumps(reply).encode() + b"\n" for reply in replies))
    end.close()
    connection = window._connection
    assert connection is not None
    window._pump(connection)
    window._disconnected(connection)


def written(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_what_an_engine_did_not_take_goes_to_the_next(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    window = pipe.Pipe(engines)  # type: ignore[arg-type]
    assert window.connect()
    engines.ends.pop().close()
    connection = window._connection
    assert connection is not None
    # The pipe has not noticed yet.
    window._from_client(request_line(1))
    window._pump(connection)
    window._disconnected(connection)
    with monkeypatch.context() as patch:
        patch.setattr(engines, "reach", engines.gone)
        assert window.connect()
        connection = window._connection
        assert connection is not None
        window._pump(connection)
        window._disconnected(connection)
    assert window.connect()
    assert [hello["again"] for hello in engines.hellos] == [[], [1], [1]]
    assert engines.ends[-1].recv(1000) == request_line(1)
    reply = {"jsonrpc": "2.0", "id": 1, "result": {}}
    pumped(window, engines, reply)
    assert written(capfd) == [reply]


@pytest.mark.parametrize("refused", [True, False])
def test_a_handshake_that_came_to_nothing_is_not_repeated(
    engines: Engines, capfd: pytest.CaptureFixture[str], refused: bool
) -> None:
    window = pipe.Pipe(engines)  # type: ignore[arg-type]
    window._from_client(request_line(1, "initialize"))
    if refused:
        assert window.connect()
        assert engines.ends[-1].recv(1000) == request_line(1, "initialize")
        pumped(window, engines, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}})
    else:
        engines.none = True
        assert not window.connect()
        window._fail(["1"], engines.why)
        engines.none = False
    (told,) = written(capfd)
    assert told["id"] == 1
    assert refused or "none is there" in error_of(told)
    assert window.connect()
    assert engines.hellos[-1]["repeated"] == 0 and engines.hellos[-1]["again"] == []
    # The client may try another one, which is repeated when it has succeeded.
    window._from_client(request_line(2, "initialize"))
    pumped(window, engines, {"jsonrpc": "2.0", "id": 2, "result": {}})
    assert window.connect()
    assert engines.hellos[-1]["repeated"] == 1
    assert engines.ends[-1].recv(1000) == request_line(2, "initialize")
    # Its second reply is not for the client.
    pumped(window, engines, {"jsonrpc": "2.0", "id": 2, "result": {}})
    assert [message["id"] for message in written(capfd)] == [2]


def test_what_is_cancelled_between_its_failure_and_its_answer_gets_none(
    engines: Engines, capfd: pytest.CaptureFixture[str]
) -> None:
    window = pipe.Pipe(engines)  # type: ignore[arg-type]
    window._from_client(request_line(1))
    failed = list(window._waiting)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    window._from_client(json.dumps(cancelled).encode() + b"\n")
    window._fail(failed, "it ended")
    assert written(capfd) == []


def test_lines_behind_the_end_are_not_taken(engines: Engines) -> None:
    window = pipe.Pipe(engines)  # type: ignore[arg-type]
    assert window.connect()
    window._client_ended()
    window._from_client(request_line(1))
    assert engines.ends[-1].recv(1000) == b""
    # An engine that is gone by then makes no difference.
    engines.ends[-1].close()
    window._client_ended()
    connection = window._connection
    assert connection is not None
    window._disconnected(connection)
    assert window.connect()
    assert engines.ends[-1].recv(1000) == b""


def test_reaching_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "START_SECONDS", 0.0)
    engine = pipe.Engine(str(tmp_path), str(tmp_path))
    assert engine.reach({"hello": "verb"}) is None
    assert engine.why == f"no engine answered within 0 s, see {tmp_path}/logs/server.log"


def test_without_locks_or_a_writable_folder_no_engine_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pipe.Engine(str(tmp_path / "data"), str(tmp_path))

    def no_locks(handle: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(pipe, "_lock", no_locks)
        assert engine.reach({"hello": "verb"}) is None
    assert engine.why == "the engine cannot be started: No locks available"
    assert engine._start_lock is None
    (tmp_path / "data" / "engine.start").unlink()
    (tmp_path / "data" / "engine.start").mkdir()
    assert engine.reach({"hello": "verb"}) is None
    assert engine.why == "the engine cannot be started: Is a directory"


def test_whoever_starts_an_engine_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starting, waiting = (pipe.Engine(str(tmp_path), str(tmp_path)) for _ in range(2))
    assert starting._started()
    assert starting._start_lock is not None
    looked = []

    def listens(self: pipe.Engine, hello: dict[str, Any]) -> socket.socket | None:
        looked.append(self._start_lock)
        return socket.socket() if len(looked) > 3 else None

    monkeypatch.setattr(pipe.Engine, "_greeted", listens)
    connection = waiting.reach({"hello": "verb"})
    assert connection is not None
    connection.close()
    # It never had the lock, so it has started nothing.
    assert looked == [None] * 4
    starting._release_start_lock()
    assert waiting._started() and waiting._start_lock is not None
    waiting._release_start_lock()


def test_what_is_said_of_a_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_HOME", "relative")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", "project")
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    said = pipe.surroundings()
    assert said["cwd"] == str(folder)
    assert said["env"]["SUBCONSCIOUS_HOME"] == f"{folder}/relative"
    assert said["env"]["CLAUDE_PROJECT_DIR"] == f"{folder}/project"
    folder.rmdir()
    said = pipe.surroundings()
    assert said["cwd"] == ""
    assert said["env"]["SUBCONSCIOUS_HOME"] == "relative"
    assert said["env"]["CLAUDE_PROJECT_DIR"] == "project"
