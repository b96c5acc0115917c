"""The engine: the one process of a storage directory that owns its data.

It is started by the first pipe and serves every pipe and every command of that directory, each
connection with a session, a namespace and settings of its own. It ends when nobody has been
connected for a while, when it is told to, or when a newer version asks for its place. It may be
killed at any moment: what was acknowledged is on the disk, and the pipes start another.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, Protocol

from subconscious_mcp import __version__, endpoint
from subconscious_mcp.config import Resolved, project_dir, resolve, stand_in, user_home
from subconscious_mcp.errors import ConfigError, InvalidArgument, StorageBusy, StorageError, SubconsciousError, meaning
from subconscious_mcp.heavy_imports import calm_numpy
from subconscious_mcp.host import Host
from subconscious_mcp.locate import ENV_PREFIX, namespace_name
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.namespaces import Derived, derive
from subconscious_mcp.storage_lock import LOCK_FILE, SERVER, StorageLock, holder
from subconscious_mcp.wire import Wire

log = logging.getLogger(__name__)

COMMAND = "subconscious-mcp engine"
LOCK_SECONDS = 15.0
"""How long to wait for the lock of an engine that ends or of a command: they finish what they are at. Below
the 20 s that a pipe waits for its engine."""
BUSY_SECONDS = 3.0
"""How long to wait for the lock of a server in one process, which mostly stays."""
HELLO_SECONDS = 10.0
DRAIN_SECONDS = 3.0
"""How long connections may take to end: longer than a wire's own limit after a signal."""
WATCH_SECONDS = 1.0
"""How often the engine looks whether it can still be found and whether it is needed."""
TRIM_SECONDS = 8.0
"""Quiet after which freed memory is given back: behind the imports that wait for quiet too."""
_INHERITED = 65_536
_PASSING = {errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_MAX_HELLO_BYTES = 16 << 20
"""A command's arguments come with its hello: an answer may have a million characters."""


def main(folder: str, home: str) -> NoReturn:
    """Runs the engine of a storage directory; ends the process.

    Args:
        folder: The storage directory, absolute.
        home: The folder of config.json and the logs, absolute.
    """
    os.umask(0o077)
    calm_numpy()
    # Descriptors that a client left open in its pipe: holding them would hold the client.
    os.closerange(3, _INHERITED)
    os.environ[f"{ENV_PREFIX}HOME"] = home
    try:
        resolved = resolve()
    except ConfigError:
        # Each session tells its client; the engine itself runs with defaults.
        resolved = resolve({f"{ENV_PREFIX}HOME": os.devnull})
    log_to_file(Path(home) / "logs" / "server.log", resolved.config.log_level)
    try:
        os.chdir(folder)
        engine = Engine(Path(folder), resolved)
    except (SubconsciousError, OSError) as error:
        log.error("The engine cannot run: %s", error)
        logging.shutdown()
        os._exit(meaning(error).exit_code)
    engine.run()
    logging.shutdown()
    # The interpreter's own end would wait for threads that nobody waits for any more.
    os._exit(0)


def in_this_process(resolved: Resolved, companion: Companion) -> Engine:
    """Makes this process the engine of its storage directory, with a companion; `run` is left to the caller.

    Raises:
        StorageError: Another process holds the directory, or it cannot be used.
    """
    folder = resolved.config.storage_dir
    os.environ[f"{ENV_PREFIX}HOME"] = str(resolved.config.home)
    try:
        os.chdir(folder)
    except OSError as error:
        raise StorageError(f"The storage directory {folder} cannot be used: {error.strerror or error}.") from None
    return Engine(folder, resolved, companion)


class Companion(Protocol):
    """Another listener that an engine serves beside its own, over the same memory."""

    def start(self, host: Host, ended: Callable[[], None]) -> None:
        """Begins to serve; `ended` is to be called when it ends, whyever it does."""

    def stop(self) -> None:
        """Asks it to finish what is under way and to end."""

    def wait(self) -> None:
        """Waits until it has ended."""

    def facts(self) -> dict[str, Any]:
        """Returns what `engine status` tells of it."""


class Engine:
    """The engine of a storage directory, from taking its lock to giving it free.

    Args:
        folder: The storage directory.
        resolved: The engine's own settings; each session has its client's.
        companion: Served beside the pipes. Somebody started it, so the engine then ends for nobody but who stops
            it: neither for want of clients nor for a newer version.

    Raises:
        StorageBusy: Another process holds the directory.
        StorageError: No socket can be opened, or the directory cannot be used.
    """

    def __init__(self, folder: Path, resolved: Resolved, companion: Companion | None = None) -> None:
        self._folder = folder
        self._config = resolved.config
        self._companion = companion
        self._lock = _lock(folder)
        self._lock_file = _identity(folder / LOCK_FILE)
        self._since = round(time.time(), 3)
        try:
            self._listener, self._facts = self._listen()
        except OSError as error:
            self._lock.release()
            raise StorageError(f"The engine cannot listen: {error.strerror or error}.") from None
        self._host = Host(folder, command=COMMAND, lock=self._lock)
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._stopping = False
        self._trimmed = False
        self._started = time.monotonic()
        self._last_used = time.monotonic()
        # Wakes the loop, also from a signal handler.
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def _listen(self) -> tuple[socket.socket, dict[str, Any]]:
        listener, address = endpoint.listen(str(self._folder), self._config.engine_transport)
        facts = {**address, "pid": os.getpid(), "version": __version__, "since": self._since}
        try:
            endpoint.publish(str(self._folder), facts)
        except OSError:
            listener.close()
            raise
        return listener, facts

    def run(self) -> None:
        """Serves connections until it is told to stop or nobody has come for a while."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        log.info("Engine %s started.", __version__)
        self._host.start(self._config)
        if self._companion is not None:
            self._companion.start(self._host, self.stop)
        while not self._stopping:
            ready, _, _ = select.select([self._listener, self._woken], [], [], self._pause())
            if self._listener in ready and not self._stopping and not self._accept():
                break
            if not ready:
                if self._idle():
                    log.info("Nobody is connected: the engine ends.")
                    break
                self._stay_found()
                self._give_back()
        self._end()

    def _pause(self) -> float:
        return min(WATCH_SECONDS, self._config.engine_idle_seconds / 4)

    def _accept(self) -> bool:
        """Takes a connection; returns False if none can come any more."""
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in _PASSING:
                log.exception("The engine cannot accept connections any more.")
                return False
            # It will be asked for again; not at once, because the cause is still there.
            log.warning("A connection could not be accepted: %s.", error.strerror)
            time.sleep(0.1)
            return True
        with self._changed:
            self._connections.add(connection)
        threading.Thread(target=self._serve, args=(connection,), name="subconscious-client", daemon=True).start()
        return True

    def _idle(self) -> bool:
        if self._companion is not None:
            return False
        with self._changed:
            quiet = time.monotonic() - self._last_used
            return not self._connections and quiet >= self._config.engine_idle_seconds

    def _stay_found(self) -> None:
        """Says again where the engine listens if that was lost; ends if its directory was."""
        if _identity(self._folder / LOCK_FILE) != self._lock_file:
            # What is written now is in files that nobody finds.
            log.error("%s was removed or replaced: the engine ends.", self._folder)
            self.stop()
            return
        path = self._facts.get("socket")
        try:
            if path is not None and not os.path.lexists(path):
                # Programs that tidy the temporary folder up remove sockets too.
                self._listener.close()
                self._listener, self._facts = self._listen()
            elif endpoint.read(str(self._folder)) != self._facts:
                endpoint.publish(str(self._folder), self._facts)
        except OSError as error:
            log.error("The engine cannot be found any more: %s.", error.strerror or error)
            self.stop()

    def _give_back(self) -> None:
        """Gives freed memory back to the system, once in each time of quiet."""
        quiet = self._host.quiet_seconds() >= TRIM_SECONDS
        if quiet and not self._trimmed:
            _trim()
        self._trimmed = quiet

    def stop(self) -> None:
        """Asks the engine to end; safe to call from a signal handler."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def _end(self) -> None:
        # In this order, so that a pipe that comes now finds no engine and starts another, which
        # waits for the lock.
        endpoint.withdraw(str(self._folder), self._facts)
        self._listener.close()
        if self._companion is not None:
            self._companion.stop()
        self._host.stop()
        if self._companion is not None:
            self._companion.wait()
        with self._changed:
            self._changed.wait_for(lambda: not self._connections, DRAIN_SECONDS)
            # Before anything is closed: what fails from here on is no reply to anybody. The pipes
            # send it again.
            for connection in self._connections:
                _cut(connection)
        self._host.close()
        log.info("Engine ended.")

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(HELLO_SECONDS)
            with connection.makefile("rb") as stream:
                try:
                    hello = json.loads(stream.readline(_MAX_HELLO_BYTES))
                    if not self._admits(connection, hello):
                        return
                    connection.settimeout(None)
                    if hello.get("hello") == "verb":
                        _send(connection, self._answer(hello))
                    else:
                        self._serve_pipe(connection, stream, hello)
                finally:
                    # Before the stream is closed, which waits for the thread that reads from it.
                    _cut(connection)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.debug("A connection ended: %s", type(error).__name__)
        except Exception:
            log.exception("A connection failed.")
        finally:
            with self._changed:
                # With the lock: `_end` must not meet a closed one.
                connection.close()
                self._connections.discard(connection)
                self._last_used = time.monotonic()
                self._changed.notify_all()

    def _admits(self, connection: socket.socket, hello: Mapping[str, Any]) -> bool:
        token = str(self._facts.get("token", ""))
        if not hmac.compare_digest(str(hello.get("token", "")).encode(), token.encode()):
            return False
        gives_way = self._stopping or (
            self._companion is None
            and hello.get("hello") == "pipe"
            and _version(hello.get("version")) > _version(__version__)
        )
        _send(connection, {"engine": {"pid": os.getpid(), "version": __version__, "gives_way": gives_way}})
        if gives_way and not self._stopping:
            log.info("A newer version (%s) is there: the engine gives way.", str(hello.get("version"))[:20])
            self.stop()
        return not gives_way

    def _serve_pipe(self, connection: socket.socket, stream: Any, hello: Mapping[str, Any]) -> None:
        numbers = [0] * int(hello["repeated"]) + [int(number) for number in hello["again"]]
        wire = Wire(stream, connection.send, numbers=numbers, next_number=int(hello["next"]), asked_again=True)
        client = str(hello["pipe"])[:64]
        try:
            config, derived = _settings(hello)
        except ConfigError as fault:
            config = stand_in(_environment(hello))
            error = fault
            self._host.serve(wire, lambda: self._host.fault_session(config, error), config.toolset)
            return
        self._host.serve(wire, lambda: self._host.session(config, derived, client), config.toolset)

    # --- the commands

    def _answer(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self._carry_out(hello)}
        except SubconsciousError as error:
            return {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}
        except Exception as error:
            log.exception("A command failed.")
            text = f"An internal error ({type(error).__name__}) ended the command; see logs/server.log."
            return {"error": {"kind": "SubconsciousError", "message": text, "hint": ""}}

    def _carry_out(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        verb, values = str(hello["verb"]), dict(hello.get("values") or {})
        if verb == "engine stop":
            self.stop()
            return {"stopping": True, "pid": os.getpid()}
        if verb == "engine status":
            return self._status()
        if verb == "doctor":
            return {"findings": [asdict(finding) for finding in self._examine(hello)]}
        from subconscious_mcp.verbs import OF_ALL_NAMESPACES, carry_out

        config, derived = _settings(hello)
        memory = self._host.memory().get(config)
        if verb in OF_ALL_NAMESPACES:
            return {"payload": OF_ALL_NAMESPACES[verb](memory, values)}
        scope = memory.scope(config, derived.name, derived.root)
        payload = carry_out(memory, scope, verb, values)
        return {"payload": payload, "namespace": scope.namespace.name, "threshold": scope.threshold}

    def _status(self) -> dict[str, Any]:
        with self._changed:
            connections = len(self._connections)
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - self._started, 1),
            # This command's own connection is no client.
            "connections": connections - 1,
            "memory_mb": _resident_mb(),
            "address": self._facts.get("socket") or f"127.0.0.1:{self._facts['port']}",
            "storage_dir": str(self._folder),
            **(self._companion.facts() if self._companion is not None else {}),
            **self._host.memory().facts(),
        }

    def _examine(self, hello: Mapping[str, Any]) -> list[Any]:
        from subconscious_mcp.doctor import Doctor

        resolved = resolve(_environment(hello))
        # Without the model, which may be what is to be found out.
        store = self._host.memory().store(resolved.config)
        return list(Doctor(resolved, store=store).examine())


def _lock(folder: Path) -> StorageLock:
    started = time.monotonic()
    while True:
        try:
            return StorageLock(folder, COMMAND)
        except StorageBusy:
            # Only one that ends is worth waiting for; an engine that runs serves the pipe anyway. Who gives up
            # leaves its window without an engine for good.
            limit = BUSY_SECONDS if holder(folder).command == SERVER else LOCK_SECONDS
            facts = endpoint.read(str(folder))
            if time.monotonic() - started > limit or (facts is not None and _listens(facts)):
                raise
            time.sleep(0.02)


def _listens(facts: Mapping[str, Any]) -> bool:
    try:
        endpoint.connect(facts, 1.0).close()
    except OSError:
        return False
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _settings(hello: Mapping[str, Any]) -> tuple[Any, Derived]:
    environ = _environment(hello)
    config = resolve(environ).config
    asked = config.namespace
    given = hello.get("namespace")
    if given is not None:
        try:
            asked = namespace_name(given)
        except ValueError as takes:
            raise InvalidArgument(f"--namespace takes {takes}.") from None
    # A working directory that was deleted is nobody's project; this process's own certainly is none.
    start = project_dir(environ, Path(str(hello.get("cwd") or os.sep)))
    return config, derive(asked, start, user_home())


def _environment(hello: Mapping[str, Any]) -> dict[str, str]:
    environ = {str(name): str(value) for name, value in dict(hello.get("env") or {}).items()}
    environ.setdefault(f"{ENV_PREFIX}HOME", os.environ[f"{ENV_PREFIX}HOME"])
    return environ


def _version(text: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(".") if part.isdigit())


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def _trim() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    # glibc keeps what the imports of large libraries have freed, some 20 MB; other libraries lack the call.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident_mb() -> float | None:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)
    except (OSError, IndexError, ValueError):
        if sys.platform == "win32":
            return None
        import resource

        # The peak, where the present figure is not to be had; bytes on macOS, kilobytes elsewhere.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
