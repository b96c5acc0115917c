"""Windows: pipes over an engine of their own, both with changed parts where a test needs that."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interaction import CONSOLE_SCRIPT, ENDING, HANDSHAKE, PATIENCE, Process, environment

from subconscious_mcp import endpoint, pipe
from subconscious_mcp.storage_lock import holder, wait_until_free

PIPE = (CONSOLE_SCRIPT,)

CHANGED_PIPE = (
    sys.executable,
    "-c",
    """
import os, sys
from subconscious_mcp import pipe
mark = "from subconscious_mcp.engine import main\\n"
assert mark in pipe._START_ENGINE
pipe._START_ENGINE = pipe._START_ENGINE.replace(mark, mark + os.environ["ENGINE_CHANGE"] + "\\n")
exec(os.environ.get("PIPE_CHANGE", ""))
sys.exit(pipe.run())
""",
)

# The engine with the fake embedder. A text that holds HANG is told through a named pipe and then
# not embedded until a file says that it may be; one that holds POISON ends the engine.
ENGINE = f"""
import os, sys, time
sys.path.append({str(Path(__file__).parent)!r})
from subconscious_mcp import engine, host, opening, wire
from subconscious_mcp.database import Database
from fakes import FakeEmbedder
host.SDK_IDLE_SECONDS = host.CHROMA_IDLE_SECONDS = 1e9
class Embedder(FakeEmbedder):
    def __init__(self, config, progress=None):
        super().__init__()
    def embed_query(self, text):
        if "POISON" in text:
            os._exit(9)
        if "HANG" in text and not os.path.exists(os.environ["RELEASED"]):
            with open(os.environ["REACHED"], "w") as reached:
                reached.write("x")
            while not os.path.exists(os.environ["LET_GO"]):
                time.sleep(0.01)
        return super().embed_query(text)
opening.load_embedder = Embedder
def once():
    try:
        os.close(os.open(os.environ["ONCE"], os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False
def die_after(owner, name):
    call = getattr(owner, name)
    def changed(*arguments, **named):
        result = call(*arguments, **named)
        if once():
            os._exit(9)
        return result
    setattr(owner, name, changed)
"""
PATIENT = "wire.STOP_SECONDS = engine.DRAIN_SECONDS = 1e6"


def ask(storage: Path, verb: str, **hello: Any) -> dict[str, Any] | None:
    """Returns what the running engine says to a command; None where none runs."""
    reached = pipe.Engine(str(storage), str(storage))
    connection = reached.reach({"hello": "verb", "verb": verb, "env": {}, "cwd": "", **hello}, start=False)
    if connection is None:
        return None
    with connection, connection.makefile("rb") as stream:
        return json.loads(stream.readline())["result"]


def wait_for_exit(pid: int) -> None:
    """Waits until a process is gone, where the system can tell: it frees its lock before its figures are written."""
    if not hasattr(os, "pidfd_open"):
        return
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], ENDING)
        finally:
            os.close(handle)


class Windows:
    """Opens windows below a folder; ends what was started, the engines too."""

    def __init__(self, folder: Path, models_dir: Path | None = None) -> None:
        self.folder = folder
        self._models_dir = models_dir
        self.home = folder / "home"
        self.storage = self.home / "data"
        self._storages = {self.storage}
        self.opened: list[Process] = []
        os.mkfifo(folder / "reached")
        # Both ends, so that neither side ever waits for the other to open it.
        self._reached = os.open(folder / "reached", os.O_RDWR)
        self._tell = queue.SimpleQueue[bytes]()
        threading.Thread(target=self._listen, args=(os.dup(self._reached),), daemon=True).start()

    def _listen(self, descriptor: int) -> None:
        while True:
            for _ in os.read(descriptor, 100):
                self._tell.put(b"x")

    def start(
        self,
        engine: str = "",
        *,
        pipe_change: str = "",
        command: Sequence[str] = CHANGED_PIPE,
        cwd: Path | None = None,
        unset: Sequence[str] = (),
        **settings: str,
    ) -> Process:
        """Starts a window without a word to it."""
        env = self.environment(engine, pipe_change, unset, **settings)
        process = Process(env, command=command, cwd=cwd or self.folder)
        self.opened.append(process)
        return process

    def environment(
        self, engine: str = "", pipe_change: str = "", unset: Sequence[str] = (), **settings: str
    ) -> dict[str, str]:
        """Returns the environment of a window."""
        if "SUBCONSCIOUS_STORAGE_DIR" in settings:
            self._storages.add(Path(settings["SUBCONSCIOUS_STORAGE_DIR"]))
        env = environment(self.home, self._models_dir, **settings) | {
            "REACHED": str(self.folder / "reached"),
            "RELEASED": str(self.folder / "released"),
            "LET_GO": str(self.folder / "let go"),
            "ONCE": str(self.folder / "once"),
            "ENGINE_CHANGE": ENGINE + engine,
            "PIPE_CHANGE": pipe_change,
        }
        for name in unset:
            env.pop(name, None)
        return env

    def open(self, engine: str = "", *, version: str = HANDSHAKE, **options: Any) -> Process:
        """Starts a window and shakes hands."""
        process = self.start(engine, **options)
        process.handshake(version)
        return process

    def wait_until_hanging(self, calls: int = 1) -> None:
        """Waits until so many calls hang in the embedder."""
        for _ in range(calls):
            self._tell.get(timeout=PATIENCE)

    def release(self) -> None:
        """Lets no further call hang."""
        (self.folder / "released").touch()

    def let_go(self) -> None:
        """Lets the calls that hang go on."""
        self.release()
        (self.folder / "let go").touch()

    @property
    def engine_pid(self) -> int:
        found = endpoint.read(str(self.storage))
        assert found is not None, "no engine"
        return int(found["pid"])

    def kill_engine(self) -> int:
        """Kills the engine; it is gone when this returns."""
        pid = self.engine_pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def log(self) -> str:
        return (self.home / "logs" / "server.log").read_text()

    def engines(self) -> int:
        """Returns how many engines have started so far."""
        return self.log().count(" started.")

    def connect(self, hello: bytes) -> socket.socket:
        """Returns a raw connection to the engine on which `hello` was sent."""
        found = endpoint.read(str(self.storage))
        assert found is not None
        connection = endpoint.connect(found, PATIENCE)
        connection.sendall(hello)
        return connection

    def close(self) -> None:
        # As a client ends them, so that what they ran is counted; killed is only what does not end.
        self.let_go()
        for process in self.opened:
            process.close_input()
        for process in self.opened:
            process.end()
        os.close(self._reached)
        for storage in self._storages:
            with contextlib.suppress(Exception):
                stopped = ask(storage, "engine stop")
                if stopped is not None:
                    wait_for_exit(stopped["pid"])
            if storage.is_dir() and not wait_until_free(storage, 5.0):
                pid = holder(storage).pid
                if pid is not None and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)


def hello_line(**fields: Any) -> bytes:
    whole: Mapping[str, Any] = {
        "hello": "pipe", "version": "0.0.1", "pipe": "raw", "cwd": "", "env": {}, "repeated": 0, "again": [], "next": 1,
    }  # fmt: skip
    return json.dumps({**whole, **fields}).encode() + b"\n"
