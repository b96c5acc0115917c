"""Drivers for the interaction suite: the same agent over pipes in process, a raw process, the SDK's client."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from anyio.from_thread import start_blocking_portal
from fakes import FakeEmbedder
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from numpy.typing import NDArray

from subconscious_mcp.config import Config, resolve
from subconscious_mcp.early_session import EarlySession
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.opening import SharedMemory
from subconscious_mcp.session import Session
from subconscious_mcp.wire import MAX_LINE_BYTES, End, Wire

# Nothing here is timed: a reply that takes longer than this does not come.
PATIENCE = 60.0
ENDING = 10.0
"""How long what a test leaves running may take to end by itself."""

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

GATED = "GATED"
"""A text that holds this word is embedded only when the gate opens."""

# A server whose early session lasts until something comes that only the SDK can answer, and whose
# libraries print to standard output whenever a text is embedded.
NOISY = f"""
import os, sys
from subconscious_mcp import embedding, host
host.SDK_IDLE_SECONDS = host.CHROMA_IDLE_SECONDS = 1e9
embed_query = embedding.OnnxEmbedder.embed_query
def noisy(self, text):
    print("a library prints", flush=True)
    os.write(1, b"native code prints\\n")
    if {GATED!r} in text:
        with open(os.environ["GATE"]) as gate:
            gate.read()
    return embed_query(self, text)
embedding.OnnxEmbedder.embed_query = noisy
"""
BOOTSTRAP = f"""{NOISY}
from subconscious_mcp.cli import main
sys.exit(main(["serve"]))
"""
# The same in the engine behind a pipe.
PIPE_BOOTSTRAP = f"""
import sys
from subconscious_mcp import pipe
mark = "from subconscious_mcp.engine import main\\n"
assert mark in pipe._START_ENGINE
pipe._START_ENGINE = pipe._START_ENGINE.replace(mark, mark + {NOISY!r})
sys.exit(pipe.run())
"""
COMMAND = (sys.executable, "-m", "subconscious_mcp", "serve")
HELD_COMMAND = (sys.executable, "-c", BOOTSTRAP)
ENGINE_COMMAND = (sys.executable, "-c", PIPE_BOOTSTRAP)
CONSOLE_SCRIPT = str(Path(sys.executable).with_name("subconscious-mcp"))


class Gate:
    """Holds a call up in the middle: a pipe with a name, which both sides wait for each other to open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            os.mkfifo(path)

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Waits until a call is in the middle; it goes on behind the block."""
        opened: queue.SimpleQueue[TextIO] = queue.SimpleQueue()
        threading.Thread(target=lambda: opened.put(self.path.open("w")), daemon=True).start()
        with opened.get(timeout=PATIENCE):
            yield


class GatedEmbedder(FakeEmbedder):
    """What `Pipes` needs in place of `opening.load_embedder`."""

    def __init__(self, config: Config, progress: object = None) -> None:
        super().__init__()
        self._gate = config.home.parent / "gate"

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if GATED in text:
            with self._gate.open() as gate:
                gate.read()
        return super().embed_query(text)


@dataclass(frozen=True)
class Result:
    """What a tool call came to, whoever carried it."""

    text: str
    is_error: bool
    structured: dict[str, Any] | None

    @property
    def payload(self) -> dict[str, Any]:
        assert not self.is_error, self.text
        assert json.loads(self.text) == self.structured
        assert "\n" not in self.text
        return json.loads(self.text)

    @property
    def error(self) -> str:
        assert self.is_error, self.text
        assert self.structured is None
        return self.text


def result_of(raw: Mapping[str, Any]) -> Result:
    (content,) = raw["content"]
    assert content["type"] == "text"
    return Result(content["text"], raw["isError"], raw.get("structuredContent"))


def environment(home: Path, models_dir: Path | None = None, **settings: str) -> dict[str, str]:
    """The environment of a server that knows nothing of whoever runs the tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUBCONSCIOUS_")}
    env.pop("CLAUDE_PROJECT_DIR", None)
    env |= {
        "HOME": str(home.parent),
        "SUBCONSCIOUS_HOME": str(home),
        "SUBCONSCIOUS_NAMESPACE": "tests",
        "SUBCONSCIOUS_MODEL_DOWNLOAD": "never",
        "GATE": str(home.parent / "gate"),
    }
    if models_dir is not None:
        env["SUBCONSCIOUS_MODELS_DIR"] = str(models_dir)
    return env | settings


class Lines:
    """Speaks JSON-RPC in lines and holds each line that comes against what JSON-RPC allows."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._write_fd: int | None = write_fd
        self._read_fd = read_fd
        self._received: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._kept: list[dict[str, Any]] = []
        self._ids = iter(range(1, 1_000_000))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError), os.fdopen(self._read_fd, "rb", closefd=False) as stream:
            for line in stream:
                self._received.put(line)
        self._received.put(None)

    def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Sends messages, or bytes as they are, in one write."""
        data = b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages)
        assert self._write_fd is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def next(self) -> dict[str, Any] | None:
        """Returns the next message, or None at the end."""
        line = self._received.get(timeout=PATIENCE)
        if line is None:
            self._received.put(None)
            return None
        return checked_message(line)

    def take(self) -> dict[str, Any]:
        """Returns the next message, one that was kept back first."""
        if self._kept:
            return self._kept.pop(0)
        message = self.next()
        assert message is not None, "the server ended"
        return message

    def reply(self, request_id: Any) -> dict[str, Any]:
        """Returns the reply to one request; others are kept for `take`."""
        passed: list[dict[str, Any]] = []
        while True:
            message = self.take()
            if message.get("id") == request_id and type(message.get("id")) is type(request_id):
                self._kept = passed + self._kept
                return message
            passed.append(message)

    def start_request(self, method: str, params: Any = None) -> int:
        request_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return request_id

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        return self.reply(self.start_request(method, params))

    def handshake(self, version: str = HANDSHAKE) -> dict[str, Any]:
        reply = self.request("initialize", handshake_params(version))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply["result"]

    def let_sdk_take_over(self) -> None:
        """From here on the SDK serves: only it knows what to say to this."""
        assert "result" in self.request("resources/list")

    def start_call(self, name: str, arguments: Any) -> int:
        return self.start_request("tools/call", {"name": name, "arguments": arguments})

    def result(self, request_id: int) -> Result:
        return result_of(self.reply(request_id)["result"])

    def call(self, name: str, arguments: Any) -> Result:
        return self.result(self.start_call(name, arguments))

    def tools(self) -> list[dict[str, Any]]:
        return self.request("tools/list")["result"]["tools"]

    def close_input(self) -> None:
        fd, self._write_fd = self._write_fd, None
        if fd is not None:
            os.close(fd)

    def rest(self) -> list[dict[str, Any]]:
        """Returns what is left to be read, to the end."""
        messages, self._kept = self._kept, []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages


def handshake_params(version: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


def checked_message(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    message = json.loads(line.decode("utf-8"))
    assert message["jsonrpc"] == "2.0"
    if "method" not in message:
        assert "id" in message
        assert ("result" in message) != ("error" in message)
        if "error" in message:
            assert isinstance(message["error"]["code"], int)
            assert "\n" not in message["error"]["message"]
    return message


class Process(Lines):
    """A server process, driven raw."""

    def __init__(
        self, env: Mapping[str, str], *, command: Sequence[str] = HELD_COMMAND, cwd: Path | None = None
    ) -> None:
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env), cwd=cwd
        )
        assert self.popen.stdin and self.popen.stdout and self.popen.stderr
        self.errors: list[str] = []
        self._errors_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._errors_reader.start()
        super().__init__(self.popen.stdout.fileno(), os.dup(self.popen.stdin.fileno()))
        self.popen.stdin.close()

    def _read_errors(self) -> None:
        assert self.popen.stderr
        for line in self.popen.stderr:
            self.errors.append(line.decode())

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self) -> int:
        """Returns the exit code, once everything that was said is read and held against the rules."""
        self._kept = self.rest()
        self._errors_reader.join(PATIENCE)
        return self.popen.wait(PATIENCE)

    def close(self) -> int:
        self.close_input()
        return self.wait()

    def end(self) -> None:
        """Waits for a process whose input is closed; kills it if it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(ENDING)
        self.kill()

    def kill(self) -> None:
        self.close_input()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE)
        for thread in (self._reader, self._errors_reader):
            thread.join(PATIENCE)
        assert self.popen.stdout and self.popen.stderr
        self.popen.stdout.close()
        self.popen.stderr.close()


class Pipes(Lines):
    """The server's own parts in this process, between two pipes, over `GatedEmbedder`."""

    def __init__(self, env: Mapping[str, str], *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        # After the SDK's, because importing it takes more than a second.
        from subconscious_mcp import sdk_session

        self._serve_sdk = sdk_session.serve
        config = self.config = resolve(env).config
        self.memory = SharedMemory(config.storage_dir, command="tests", idle_seconds=1e9)
        derived = Derived(config.namespace or "tests", None, "tests")
        self.session = Session(config, derived, lambda: self.memory.get(config))
        to_server, from_client = os.pipe(), os.pipe()
        self.taken_over = threading.Event()
        self._ends = (to_server[0], from_client[1])
        self.wire = Wire.of_descriptors(*self._ends, max_line_bytes=max_line_bytes)
        self._server = threading.Thread(target=self._serve, daemon=True)
        super().__init__(from_client[0], to_server[1])
        self._server.start()

    def _serve(self) -> None:
        self.wire.start()
        early = EarlySession(self.wire, lambda: self.session, lambda: False)
        early.serve()
        if isinstance(early.handover.waiting, End):
            self.wire.wait_until_answered()
        else:
            self.taken_over.set()
            self._serve_sdk(self.wire, self.session, early.handover)
        os.close(self._ends[1])

    def close(self) -> int:
        self.close_input()
        self._kept = self.rest()
        self._server.join(PATIENCE)
        assert not self._server.is_alive()
        self.memory.close()
        os.close(self._ends[0])
        os.close(self._read_fd)
        return 0


class SdkClient:
    """The installed command, driven by the client of the MCP SDK."""

    def __init__(self, env: Mapping[str, str], mode: str, errors: Path, arguments: Sequence[str] = ("serve",)) -> None:
        self._errors = errors.open("a")
        self._stack = contextlib.ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        parameters = StdioServerParameters(
            command=CONSOLE_SCRIPT, args=list(arguments), env=dict(env), cwd=errors.parent
        )
        client = Client(stdio_client(parameters, errlog=self._errors), mode=mode, read_timeout_seconds=PATIENCE)
        self.client = self._stack.enter_context(self._portal.wrap_async_context_manager(client))

    def tools(self) -> list[dict[str, Any]]:
        listed = self._portal.call(self.client.list_tools)
        return [tool.model_dump(by_alias=True, exclude_unset=True, mode="json") for tool in listed.tools]

    def call(self, name: str, arguments: Any) -> Result:
        result = self._portal.call(self.client.call_tool, name, arguments)
        return result_of({"isError": False, **result.model_dump(by_alias=True, exclude_unset=True, mode="json")})

    def close(self) -> int:
        self._stack.close()
        self._errors.close()
        return 0


def link_tree(source: Path, target: Path) -> None:
    """Copies a folder, its large files as links where the file system allows."""

    def link(name: str, to: str) -> None:
        try:
            os.link(name, to)
        except OSError:
            shutil.copy2(name, to)

    shutil.copytree(source, target, copy_function=link)
