"""What a client starts: a small process that passes lines between stdio and the engine.

Standard library only, and little of it: every window of every client starts one. It connects to
the engine of its storage directory, starts it if there is none, says who it is, and then passes
lines on, as they are, both ways. When the engine dies it starts another, repeats the handshake
that it saw, and sends the requests again that have no reply yet. Each line has a number that the
engine remembers with what it wrote, so no write is done twice.

Two threads: one reads the client's lines, one reads the engine's and is the only one to connect.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time

from subconscious_mcp import __version__, endpoint, locate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

START_SECONDS = 20.0
"""How long an engine may take to listen. It listens before it imports anything large, so this is
only reached on a machine that is overwhelmed."""
GREETING_SECONDS = 10.0
POLL_SECONDS = 0.01
MOST_TRIES = 3
"""Sendings of one request: one that kills each engine must not kill engines for ever."""
RETRY_CODE = -32001
EXIT_BUSY = 75
START_LOCK = "engine.start"


def run() -> int:
    """Serves one client; returns the exit code."""
    try:
        home = locate.home_folder(os.environ)
        written = locate.written_settings(home)
        folder = locate.storage_folder(os.environ, home, written)
    except OSError:
        # Settings that cannot be used: the server in this process tells the client why.
        return _in_process("")
    if not locate.engine_wanted(os.environ, written):
        return _in_process("")
    pipe = Pipe(Engine(folder, home))
    if not pipe.connect():
        return _in_process(pipe.engine.why)
    return pipe.run()


def _in_process(why: str) -> int:
    """Serves in this process: no engine is wanted, or none can be started."""
    from subconscious_mcp.cli import main

    return main(["serve", *(["--because", why] if why else [])])


class Engine:
    """The engine of a storage directory, as seen from outside.

    Args:
        folder: The storage directory, absolute.
        home: The folder of config.json and the logs, absolute.
    """

    def __init__(self, folder: str, home: str) -> None:
        self.folder = folder
        self.home = home
        self.why = ""
        self._child: int | None = None
        self._start_lock: int | None = None

    def reach(self, hello: dict[str, Any], *, start: bool = True) -> socket.socket | None:
        """Returns a connection on which the engine has answered the hello, or None and sets `why`.

        Args:
            hello: Who asks; the endpoint's token is added.
            start: Start an engine if there is none.
        """
        deadline = time.monotonic() + START_SECONDS
        try:
            while time.monotonic() < deadline:
                connection = self._greeted(hello)
                if connection is not None:
                    return connection
                if not start:
                    self.why = "no engine is running"
                    return None
                if not self._started():
                    return None
                time.sleep(POLL_SECONDS)
            self.why = f"no engine listened within {START_SECONDS:.0f} s, see {self.home}/logs/server.log"
            return None
        finally:
            self._release_start_lock()

    def _greeted(self, hello: dict[str, Any]) -> socket.socket | None:
        found = endpoint.read(self.folder)
        if found is None:
            return None
        try:
            connection = endpoint.connect(found, GREETING_SECONDS)
        except OSError:
            return None
        try:
            message = {**hello, "token": found.get("token", "")}
            connection.sendall(json.dumps(message).encode() + b"\n")
            greeting = json.loads(endpoint.read_line(connection))
            if "engine" in greeting and not greeting["engine"].get("gives_way"):
                connection.settimeout(None)
                return connection
        except (OSError, ValueError):
            # It ended just now, or makes room for a newer one.
            pass
        connection.close()
        return None

    def _started(self) -> bool:
        """Starts an engine unless somebody is doing that; returns False when there is no hope."""
        if self._child is not None:
            return self._child_lives()
        try:
            if not self._take_start_lock():
                return True
            self._child = _spawn(self.folder, self.home)
        except OSError as error:
            self.why = f"the engine cannot be started: {error.strerror or error}"
            return False
        return True

    def _child_lives(self) -> bool:
        if self._child is None or not hasattr(os, "waitpid") or os.name == "nt":
            return True
        try:
            pid, status = os.waitpid(self._child, os.WNOHANG)
        except ChildProcessError:
            pid, status = self._child, 0
        if pid == 0:
            return True
        self._child = None
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_BUSY:
            self.why = "another process than an engine holds the storage directory"
            return False
        if code not in (0, -9, -15):
            self.why = f"the engine ended with exit code {code}, see {self.home}/logs/server.log"
            return False
        # It gave way to another, or was killed: the next round starts one again.
        return True

    def _take_start_lock(self) -> bool:
        if self._start_lock is not None:
            return True
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        path = os.path.join(self.folder, START_LOCK)  # noqa: PTH118
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
        except OSError:
            os.close(handle)
            return False
        self._start_lock = handle
        return True

    def _release_start_lock(self) -> None:
        if self._start_lock is not None:
            os.close(self._start_lock)
            self._start_lock = None

    def reap(self) -> None:
        """Takes note of a child that has ended, so that it does not stay as a zombie."""
        self._child_lives()
        self._child = None


def _lock(handle: int) -> None:
    if os.name == "nt":  # pragma: no cover - not run on the platform that is measured
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _spawn(folder: str, home: str) -> int:
    """Starts a detached engine: own session, no stdio of ours, not this folder's modules."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    # `-c` and not `-m`: a project's folder may hold a json.py, and must not be searched.
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; "
        "sys.path.append(sys.argv[4]); from subconscious_mcp.engine import main; main(sys.argv[2], sys.argv[3])"
    )
    command = [sys.executable, "-c", code, "subconscious-mcp-engine", folder, home, package]
    if hasattr(os, "posix_spawn"):
        null = os.devnull
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        try:
            return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
        except NotImplementedError:
            pass
    import subprocess

    flags: dict[str, Any] = {"start_new_session": True}
    if os.name == "nt":  # pragma: no cover - not run on the platform that is measured
        detached, new_group, no_window = 0x00000008, 0x00000200, 0x08000000
        flags = {"creationflags": detached | new_group | no_window}
    null_file = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null_file, stdout=null_file, stderr=null_file, close_fds=True, **flags).pid


class Pipe:
    """One client's connection to whichever engine there is.

    Args:
        engine: Reaches the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._id = os.urandom(8).hex()
        # Guards all below. Held while the handshake is repeated, so that no new line overtakes it.
        self._state = threading.Condition()
        self._connection: socket.socket | None = None
        self._ended = False
        self._count = 0
        self._handshake: list[bytes] = []
        self._handshake_key = ""
        self._handshake_answered = False
        # key -> [number, line, sendings]; in order of arrival
        self._waiting: dict[str, list[Any]] = {}
        self._drop = ""

    def run(self) -> int:
        """Passes lines until the client closes its end and has its replies."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        threading.Thread(target=self._read_client, daemon=True).start()
        while True:
            connection = self._connection
            if connection is not None:
                self._pump(connection)
                self._disconnected(connection)
            with self._state:
                if self._ended and not self._waiting:
                    return 0
                # An engine that was stopped stays so until it is needed.
                while not self._waiting and not self._ended:
                    self._state.wait()
                if not self._waiting:
                    return 0
            self.engine.reap()
            if not self.connect():
                self._fail_waiting()

    def connect(self) -> bool:
        """Connects to an engine and brings it to where the last one was; returns whether it did."""
        if self._count:
            # Outside of the lock: starting an engine takes its time, and lines may be noted meanwhile.
            probe = self.engine.reach(self._hello([], 0))
            if probe is None:
                return False
            probe.close()
        return self._bring_up()

    def _bring_up(self) -> bool:
        with self._state:
            repeat = self._handshake if self._handshake_answered else []
            for key, entry in list(self._waiting.items()):
                entry[2] += 1
                if entry[2] > MOST_TRIES:
                    del self._waiting[key]
                    self._send_error(key, "it ended each time that this request was sent")
            again = list(self._waiting.values())
            connection = self.engine.reach(self._hello([entry[0] for entry in again], len(repeat)))
            if connection is None:
                return False
            self._drop = self._handshake_key if repeat else ""
            try:
                connection.sendall(b"".join([*repeat, *(entry[1] for entry in again)]))
                if self._ended:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                connection.close()
                return False
            self._connection = connection
            return True

    def _hello(self, again: list[int], repeated: int) -> dict[str, Any]:
        return {
            "hello": "pipe",
            "version": __version__,
            "pipe": self._id,
            **surroundings(),
            # The first lines are the handshake again, then those that have no reply, then new ones.
            "repeated": repeated,
            "again": again,
            "next": self._count + 1,
        }

    def _disconnected(self, connection: socket.socket) -> None:
        with self._state:
            self._connection = None
        connection.close()

    # --- from the client

    def _read_client(self) -> None:
        try:
            with open(0, "rb", closefd=False) as stream:
                for line in stream:
                    self._from_client(line)
        except OSError:
            pass
        with self._state:
            self._ended = True
            if self._connection is not None:
                try:
                    self._connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            self._state.notify()

    def _from_client(self, line: bytes) -> None:
        message = _parsed(line)
        method = message.get("method")
        with self._state:
            self._count += 1
            if isinstance(method, str) and "id" in message:
                key = _key(message["id"])
                self._waiting[key] = [self._count, line, 1]
                if method == "initialize" and not self._handshake:
                    self._handshake, self._handshake_key = [line], key
            elif method == "notifications/initialized" and self._handshake:
                self._handshake.append(line)
            elif method == "notifications/cancelled" and isinstance(message.get("params"), dict):
                # It gets no reply any more.
                self._waiting.pop(_key(message["params"].get("requestId")), None)
            connection = self._connection
            self._state.notify()
        if connection is not None:
            try:
                connection.sendall(line)
            except OSError:
                # The other thread notices as well, and sends again what waits for a reply.
                pass

    # --- to the client

    def _pump(self, connection: socket.socket) -> None:
        rest = b""
        while True:
            try:
                data = connection.recv(1 << 16)
            except OSError:
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._to_client(line)

    def _to_client(self, line: bytes) -> None:
        message = _parsed(line)
        if "method" not in message and "id" in message:
            key = _key(message["id"])
            if self._drop and key == self._drop:
                # The client has the reply to its handshake already.
                self._drop = ""
                return
            with self._state:
                self._waiting.pop(key, None)
                if key == self._handshake_key:
                    self._handshake_answered = True
        _write(line + b"\n")

    def _fail_waiting(self) -> None:
        with self._state:
            waiting, self._waiting = list(self._waiting), {}
        for key in waiting:
            self._send_error(key, self.engine.why)

    def _send_error(self, key: str, why: str) -> None:
        text = f"The memory's engine ended: {why}. Nothing is lost; try again."
        reply = {"jsonrpc": "2.0", "id": json.loads(key), "error": {"code": RETRY_CODE, "message": text}}
        _write(json.dumps(reply).encode() + b"\n")


def surroundings() -> dict[str, Any]:
    """Returns what an engine needs to know of this process to find its settings and its project."""
    names = [name for name in os.environ if name.startswith(locate.ENV_PREFIX) or name == "CLAUDE_PROJECT_DIR"]
    try:
        folder = os.getcwd()  # noqa: PTH109
    except OSError:
        folder = ""
    return {"cwd": folder, "env": {name: os.environ[name] for name in names}}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _key(request_id: Any) -> str:
    # 1 and "1" are two ids.
    return json.dumps(request_id)


def _write(data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        # The client is gone.
        os._exit(0)
