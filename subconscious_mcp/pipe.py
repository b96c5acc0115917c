"""What a client starts: a small process that passes lines between stdio and the engine.

Standard library only, and little of it: every window of every client starts one. It connects to
the engine of its storage directory, starts it if there is none, says who it is, and then passes
lines on, as they are, both ways. When the engine dies it starts another, repeats the handshake
that it saw, and sends the requests again that have no reply yet. Each line has a number that the
engine remembers with what it wrote, so no write is done twice.

Two threads: one reads the client's lines, one reads the engine's and is the only one to connect.
A third lives while requests are sent again, because their replies must be read meanwhile.
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
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is refused unread, as every server of this package does."""
STOP_SECONDS = 1.5
"""How long calls under way may take after a signal: clients send SIGKILL two seconds behind SIGTERM."""
RETRY_CODE = -32001
INVALID_REQUEST = -32600
EXIT_BUSY = 75
START_LOCK = "engine.start"


def choose_toolset(name: str, *, unless_chosen: bool = False) -> None:
    """Lets this process, and the engine that it asks, serve a toolset whatever config.json says.

    Args:
        unless_chosen: Leave what the environment says already.
    """
    variable = locate.ENV_PREFIX + "TOOLSET"
    if not unless_chosen or not os.environ.get(variable):
        os.environ[variable] = name


def run(toolset: str | None = None) -> int:
    """Serves one client; returns the exit code.

    Args:
        toolset: What the command line asks for, before what the settings do.
    """
    if toolset is not None:
        choose_toolset(toolset)
    # What this process writes is its user's business alone.
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Until the first line is read there is nothing to finish.
        signal.signal(number, lambda *_: os._exit(0))
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
        self._giving_way = False
        self._serving: int | None = None

    def reach(self, hello: dict[str, Any], *, start: bool = True) -> socket.socket | None:
        """Returns a connection on which the engine has answered the hello, or None and sets `why`.

        Args:
            hello: Who asks; the endpoint's token is added.
            start: Start an engine if there is none.
        """
        deadline = time.monotonic() + START_SECONDS
        self._giving_way = False
        self._serving = None
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
            self.why = f"no engine answered within {START_SECONDS:.0f} s, see {self.home}/logs/server.log"
            return None
        finally:
            self._release_start_lock()
            self._let_child_go()

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
            greeting = _parsed(endpoint.read_line(connection)).get("engine")
            if isinstance(greeting, dict):
                if not greeting.get("gives_way"):
                    self._serving = greeting.get("pid")
                    connection.settimeout(None)
                    return connection
                self._giving_way = True
        except OSError:
            # It ended just now.
            pass
        connection.close()
        return None

    def _started(self) -> bool:
        """Starts an engine unless somebody is doing that; returns False when there is no hope."""
        if self._child is not None:
            return self._child_lives()
        try:
            if self._start_lock is None:
                # With the lock, one more look before anything is started: whoever had it has just
                # started an engine.
                self._take_start_lock()
                return True
            self._child = spawn(self.folder, self.home)
        except OSError as error:
            self.why = f"the engine cannot be started: {error.strerror or error}"
            return False
        return True

    def _child_lives(self) -> bool:
        if self._child is None or os.name == "nt":
            return True
        try:
            pid, status = os.waitpid(self._child, os.WNOHANG)
        except ChildProcessError:
            pid, status = self._child, 0
        if pid == 0:
            return True
        self._child = None
        code = os.waitstatus_to_exitcode(status)
        if code == EXIT_BUSY and not self._giving_way:
            self.why = "another process than an engine holds the storage directory"
            return False
        if code not in (0, EXIT_BUSY, -9, -15):
            self.why = f"the engine ended with exit code {code}, see {self.home}/logs/server.log"
            return False
        # It gave way to another, or was killed: the next round starts one again.
        return True

    def _take_start_lock(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        path = os.path.join(self.folder, START_LOCK)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
        except (BlockingIOError, PermissionError):
            # Another pipe is at it.
            os.close(handle)
        except OSError:
            os.close(handle)
            raise
        else:
            self._start_lock = handle

    def take_start(self) -> bool:
        """Takes the right to start an engine, waiting for who has it; returns whether it came to be.

        No pipe starts one until `leave_start`.

        Raises:
            OSError: The storage directory cannot be used.
        """
        deadline = time.monotonic() + START_SECONDS
        while self._start_lock is None and time.monotonic() < deadline:
            self._take_start_lock()
            if self._start_lock is None:
                time.sleep(POLL_SECONDS)
        return self._start_lock is not None

    def leave_start(self) -> None:
        """Lets others start engines again."""
        self._release_start_lock()

    def _release_start_lock(self) -> None:
        if self._start_lock is not None:
            os.close(self._start_lock)
            self._start_lock = None

    def _let_child_go(self) -> None:
        """Leaves the engine to itself, but for its end: it must not stay as a zombie."""
        child, self._child = self._child, None
        if child is not None and os.name != "nt":
            if child != self._serving:
                # Another one was there after all: this one must not wait for its place.
                os.kill(child, signal.SIGTERM)
            threading.Thread(target=_wait_for, args=(child,), daemon=True).start()


def _wait_for(child: int) -> None:
    try:
        os.waitpid(child, 0)
    except OSError:
        pass


def _lock(handle: int) -> None:
    if os.name == "nt":  # pragma: no cover - not run on the platform that is measured
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


# `-c` and not `-m`: a project's folder may hold a json.py, and must not be searched. The package
# is named by its file: the engine is of the same version as the pipe, whatever else the path holds.
_START_ENGINE = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
from importlib.util import module_from_spec, spec_from_file_location
folder = sys.argv[4]
spec = spec_from_file_location("subconscious_mcp", folder + "/__init__.py", submodule_search_locations=[folder])
package = sys.modules["subconscious_mcp"] = module_from_spec(spec)
spec.loader.exec_module(package)
from subconscious_mcp.engine import main
main(sys.argv[2], sys.argv[3])
"""


def spawn(folder: str, home: str) -> int:
    """Starts a detached engine: own session, no stdio of ours, not this folder's modules."""
    package = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-c", _START_ENGINE, "subconscious-mcp-engine", folder, home, package]
    # glibc gives every thread a heap of its own, and the engine has many: with two it needs 20 MB less.
    env = {"MALLOC_ARENA_MAX": "2", **os.environ}
    if hasattr(os, "posix_spawn"):
        null = os.devnull
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        try:
            return os.posix_spawn(sys.executable, command, env, file_actions=actions, setsid=True)
        except NotImplementedError:
            pass
    import subprocess

    flags: dict[str, Any] = {"start_new_session": True, "env": env}
    if os.name == "nt":  # pragma: no cover - not run on the platform that is measured
        detached, new_group, no_window = 0x00000008, 0x00000200, 0x08000000
        flags = {"creationflags": detached | new_group | no_window, "env": env}
    null_file = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null_file, stdout=null_file, stderr=null_file, close_fds=True, **flags).pid


class _Request:
    """A request of the client that waits for its reply; several where the client repeats an id.

    Attributes:
        lines: Numbers and lines.
        owed: Replies that the client has not had.
        answers: Replies that came over the present connection.
        tries: How often it was sent.
    """

    __slots__ = ("answers", "lines", "owed", "tries")

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.owed = 0
        self.answers = 0
        self.tries = 0


class Pipe:
    """One client's connection to whichever engine there is.

    Args:
        engine: Reaches the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._id = os.urandom(8).hex()
        # Guards all below. Held while an engine is reached, so that no new line overtakes the
        # handshake that is repeated.
        self._state = threading.Condition()
        self._connection: socket.socket | None = None
        self._ended = False
        self._resending = False
        self._count = 0
        self._handshake: list[bytes] = []
        self._handshake_key = ""
        self._handshake_answered = False
        # by key, in order of arrival
        self._waiting: dict[str, _Request] = {}
        self._drop = ""

    def run(self) -> int:
        """Passes lines until the client closes its end and has its replies."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # In a thread, because a handler may come while this one holds any lock.
            signal.signal(number, lambda *_: threading.Thread(target=self._end_soon, daemon=True).start())
        threading.Thread(target=self._read_client, daemon=True).start()
        while True:
            connection = self._connection
            if connection is not None:
                self._pump(connection)
                self._disconnected(connection)
            with self._state:
                # An engine that was stopped stays so until it is needed.
                self._state.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return 0
            if not self.connect():
                self._fail(list(self._waiting), self.engine.why)

    def connect(self) -> bool:
        """Connects to an engine and brings it to where the last one was; returns whether it did."""
        with self._state:
            spent = [key for key, request in self._waiting.items() if request.tries >= MOST_TRIES]
        self._fail(spent, "it ended each time that this request was sent")
        with self._state:
            if spent and not self._waiting:
                # The next line brings up the next engine.
                return True
            again = sorted(
                line
                for key, request in self._waiting.items()
                for line in request.lines
                # A handshake without a reply is among the lines that are repeated anyway.
                if not (self._handshake and line[1] is self._handshake[0])
            )
            connection = self.engine.reach(self._hello([number for number, _ in again]))
            if connection is None:
                return False
            for request in self._waiting.values():
                request.tries += 1
                request.answers = 0
            self._drop = self._handshake_key if self._handshake_answered else ""
            self._connection = connection
            lines = b"".join([*self._handshake, *(line for _, line in again)])
            self._resending = bool(lines)
            if lines:
                # Apart: an engine that cannot get rid of its replies takes no more lines.
                threading.Thread(target=self._send_again, args=(connection, lines), daemon=True).start()
            elif self._ended:
                _close_writing(connection)
            return True

    def _send_again(self, connection: socket.socket, lines: bytes) -> None:
        try:
            connection.sendall(lines)
        except OSError:
            # The other thread notices as well.
            pass
        with self._state:
            self._resending = False
            if self._ended:
                _close_writing(connection)
            self._state.notify_all()

    def _hello(self, again: list[int]) -> dict[str, Any]:
        return {
            "hello": "pipe",
            "version": __version__,
            "pipe": self._id,
            **surroundings(),
            # The first lines are the handshake again, then those that have no reply, then new ones.
            "repeated": len(self._handshake),
            "again": again,
            "next": self._count + 1,
        }

    def _disconnected(self, connection: socket.socket) -> None:
        try:
            # Whoever is sending on it must not wait for room that never comes.
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        with self._state:
            self._connection = None
            self._state.wait_for(lambda: not self._resending)
        connection.close()

    # --- from the client

    def _read_client(self) -> None:
        try:
            with open(0, "rb", closefd=False) as stream:
                while line := stream.readline(MAX_LINE_BYTES + 1):
                    if len(line) > MAX_LINE_BYTES:
                        while not line.endswith(b"\n") and (line := stream.readline(MAX_LINE_BYTES)):
                            pass
                        _write_error("null", INVALID_REQUEST, "The message is too long.")
                    else:
                        self._from_client(line if line.endswith(b"\n") else line + b"\n")
        except OSError:
            pass
        self._client_ended()

    def _client_ended(self) -> None:
        with self._state:
            self._ended = True
            if self._connection is not None and not self._resending:
                _close_writing(self._connection)
            self._state.notify_all()

    def _end_soon(self) -> None:
        """Ends as if the client had closed its end, and in any case in time."""
        limit = threading.Timer(STOP_SECONDS, os._exit, (0,))
        limit.daemon = True
        limit.start()
        self._client_ended()

    def _from_client(self, line: bytes) -> None:
        message = _parsed(line)
        method = message.get("method")
        with self._state:
            self._state.wait_for(lambda: not self._resending)
            if self._ended:
                return
            self._count += 1
            connection = self._connection
            if isinstance(method, str) and "id" in message:
                key = _key(message["id"])
                request = self._waiting.setdefault(key, _Request())
                request.lines.append((self._count, line))
                request.owed += 1
                request.tries = max(request.tries, int(connection is not None))
                if method == "initialize" and not self._handshake:
                    self._handshake, self._handshake_key = [line], key
            elif method == "notifications/initialized" and len(self._handshake) == 1:
                self._handshake.append(line)
            elif method == "notifications/cancelled" and isinstance(message.get("params"), dict):
                # It gets no reply any more.
                self._waiting.pop(_key(message["params"].get("requestId")), None)
            self._state.notify_all()
        if connection is not None:
            try:
                connection.sendall(line)
            except OSError:
                # The other thread notices as well, and sends again what waits for a reply.
                pass

    # --- to the client

    def _pump(self, connection: socket.socket) -> None:
        begun: list[bytes] = []
        # One buffer for all: new ones, cut to what came, leave the heap in pieces that grow it.
        buffer = bytearray(1 << 16)
        while True:
            try:
                size = connection.recv_into(buffer)
            except OSError:
                return
            if not size:
                return
            *lines, rest = bytes(memoryview(buffer)[:size]).split(b"\n")
            if lines:
                lines[0] = b"".join([*begun, lines[0]])
                begun = []
            begun.append(rest)
            for line in lines:
                self._to_client(line)

    def _to_client(self, line: bytes) -> None:
        message = _parsed(line)
        if "method" in message or "id" not in message or self._settles(_key(message["id"]), "result" in message):
            _write(line + b"\n")

    def _settles(self, key: str, good: bool) -> bool:
        """Takes note of a reply; returns whether the client waits for it."""
        with self._state:
            if key == self._drop:
                # The client has the reply to its handshake already.
                self._drop = ""
                return False
            if key == self._handshake_key and not self._handshake_answered:
                self._handshake_answered = good
                if not good:
                    self._handshake, self._handshake_key = [], ""
            request = self._waiting.get(key)
            if request is None:
                # Cancelled, and answered before the engine knew; or a line that is no request.
                return True
            request.answers += 1
            if request.answers >= len(request.lines):
                del self._waiting[key]
            # Of two requests with one id, one may have been answered by the engine before this one.
            owed = request.owed > 0
            request.owed -= owed
            return owed

    def _fail(self, keys: list[str], why: str) -> None:
        for key in keys:
            with self._state:
                # Between the two the client may have cancelled it.
                request = self._waiting.pop(key, None)
                if key == self._handshake_key and not self._handshake_answered:
                    self._handshake, self._handshake_key = [], ""
            for _ in range(request.owed if request is not None else 0):
                _write_error(
                    key, RETRY_CODE, f"The memory's engine ended: {why}. What was acknowledged is kept; try again."
                )


def surroundings() -> dict[str, Any]:
    """Returns what an engine needs to know of this process to find its settings and its project.

    Paths are absolute: the engine stands elsewhere, and may have another home folder.
    """
    env = {name: value for name, value in os.environ.items() if name.startswith(locate.ENV_PREFIX)}
    for name in ("CLAUDE_PROJECT_DIR", *locate.NOTES_VARIABLES.values()):
        if name in os.environ:
            env[name] = os.environ[name]
    try:
        env[locate.ENV_PREFIX + "HOME"] = locate.home_folder(os.environ)
        for name in (
            "CLAUDE_PROJECT_DIR",
            locate.ENV_PREFIX + "STORAGE_DIR",
            locate.ENV_PREFIX + "MODELS_DIR",
            locate.NOTES_VARIABLES["storage_dir"],
        ):
            if env.get(name, "").strip():
                env[name] = locate.absolute(env[name].strip())
    except OSError:
        # The working directory was deleted, or there is no home folder: what is said of it stays as it is.
        pass
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    return {"cwd": folder, "env": env}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _key(request_id: Any) -> str:
    # 1 and "1" are two ids.
    return json.dumps(request_id)


def _close_writing(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _write_error(key: str, code: int, text: str) -> None:
    reply = {"jsonrpc": "2.0", "id": json.loads(key), "error": {"code": code, "message": text}}
    _write(json.dumps(reply).encode() + b"\n")


_output = threading.Lock()


def _write(data: bytes) -> None:
    view = memoryview(data)
    with _output:
        try:
            while view:
                view = view[os.write(1, view) :]
        except OSError:
            # The client is gone.
            os._exit(0)
