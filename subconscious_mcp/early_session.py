"""Answers a session's first requests while the MCP SDK is still being imported.

Importing the SDK takes more than a second of processor time, loading the model a third of
that. A client that starts a server wants its handshake and its first recall now. So until the
SDK stands, the plain requests of the handshake protocol are answered here, from the same tools;
then the SDK gets the handshake replayed and serves the rest of the session.

Only what is certain is answered: the handshake, ping, and the listing and calling of tools at
protocol versions whose messages need no translation. Anything else waits for the SDK.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from subconscious_mcp.identity import SERVER_VERSION, instructions, server_name
from subconscious_mcp.wire import End, Event, Oversized, Wire

if TYPE_CHECKING:
    # The handshake does not wait for numpy: a session is made while it is under way.
    from subconscious_mcp.language_model import LanguageModel
    from subconscious_mcp.session import Session

log = logging.getLogger(__name__)

# The versions with a handshake, oldest first. Source: the protocol's released revisions; a test
# compares the replies given here with those of the SDK, version by version.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PLAIN_VERSIONS = ("2025-06-18", "2025-11-25")
"""Versions at which tools are described and answered exactly as the toolset renders them."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
EARLY_THREADS = 4
ASKS_THE_CLIENT = ("consolidate",)
"""Tools that may ask a client's own model during a call, which only the SDK can carry."""


@dataclass(slots=True)
class Handover:
    """What the SDK needs to take over a session.

    Attributes:
        replay: Lines that it must see although they are answered already.
        answered: Id of the handshake among them, whose second reply must not reach the client.
        waiting: The line, or the end, that made the early session stop.
        number: The number of that line.
    """

    replay: list[bytes] = field(default_factory=list)
    answered: Any = None
    waiting: Event | None = None
    number: int = 0


class EarlySession:
    """Serves a wire until the SDK is there or something comes that only the SDK can answer.

    Args:
        wire: The connection.
        session: Returns who carries out the calls; waits for it to be made.
        sdk_ready: Asked after each event; true ends the early session.
        toolset: Which tools the session will offer, for the handshake, which does not wait for them.
    """

    def __init__(
        self, wire: Wire, session: Callable[[], Session], sdk_ready: Callable[[], bool], toolset: str = "cache"
    ) -> None:
        self._wire = wire
        self._session = session
        self._sdk_ready = sdk_ready
        self._toolset = toolset
        self.handover = Handover()
        self._version: str | None = None
        self._offers_model = False
        self._pool = ThreadPoolExecutor(EARLY_THREADS, thread_name_prefix="subconscious-early")

    def serve(self) -> None:
        """Serves until the SDK has to go on from `handover`.

        Calls that are under way go on in their threads and answer by themselves.
        """
        while True:
            event = self._wire.next_event()
            if self._sdk_ready() or not self._answers(event):
                self.handover.waiting = event
                self.handover.number = self._wire.number
                self._pool.shutdown(wait=False)
                return

    def _answers(self, event: Event) -> bool:
        if isinstance(event, End):
            return False
        if isinstance(event, Oversized):
            self._wire.send(error_reply(None, INVALID_REQUEST, "The message is too long."))
            return True
        try:
            message = json.loads(event)
        except (ValueError, RecursionError):
            if event.strip():
                self._wire.send(error_reply(None, PARSE_ERROR, "Parse error"))
            return True
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return False
        method, params = message.get("method"), message.get("params", {})
        if not isinstance(params, dict):
            return False
        if "id" not in message:
            if method == "notifications/initialized" and self._version is not None:
                self.handover.replay.append(event)
                return True
            return False
        return self._answers_request(event, message["id"], method, params)

    def _answers_request(self, line: bytes, request_id: Any, method: Any, params: dict[str, Any]) -> bool:
        if not isinstance(request_id, (str, int)) or isinstance(request_id, bool):
            return False
        if method == "initialize" and self._version is None:
            return self._initialize(line, request_id, params)
        if self._version is None:
            return False
        if method == "ping":
            self._reply(request_id, {})
            return True
        if self._version not in PLAIN_VERSIONS:
            return False
        if method == "tools/list" and not params.get("cursor"):
            self._wire.expect_reply(request_id)
            self._pool.submit(self._answer, request_id, lambda: {"tools": self._session().descriptions()})
            return True
        if method == "tools/call" and isinstance(params.get("name"), str):
            name, arguments = params["name"], params.get("arguments")
            if self._offers_model and name in ASKS_THE_CLIENT:
                return False
            if takes_arguments(self._wire, request_id, arguments):
                self._wire.expect_reply(request_id)
                number = self._wire.number
                self._pool.submit(
                    self._answer, request_id, lambda: call_result(self._session(), name, arguments, number)
                )
            return True
        return False

    def _initialize(self, line: bytes, request_id: Any, params: dict[str, Any]) -> bool:
        asked, client = params.get("protocolVersion"), params.get("clientInfo")
        sound = (
            isinstance(asked, str)
            and isinstance(params.get("capabilities"), dict)
            and isinstance(client, dict)
            and isinstance(client.get("name"), str)
            and isinstance(client.get("version"), str)
        )
        if not sound:
            return False
        self._offers_model = isinstance(params["capabilities"].get("sampling"), dict)
        self._version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self.handover.replay.append(line)
        self.handover.answered = request_id
        self._reply(request_id, initialize_result(self._version, self._toolset))
        return True

    def _answer(self, request_id: Any, make: Callable[[], dict[str, Any]]) -> None:
        try:
            result = make()
        except Exception as error:
            # A call never raises, so the session could not be made; a client waits nevertheless.
            log.exception("The server could not start.")
            text = f"The server could not start ({type(error).__name__}); see logs/server.log."
            self._wire.send(error_reply(request_id, INTERNAL_ERROR, text))
        else:
            self._reply(request_id, result)

    def _reply(self, request_id: Any, result: dict[str, Any]) -> None:
        self._wire.send({"jsonrpc": "2.0", "id": request_id, "result": result})


def initialize_result(version: str, toolset: str) -> dict[str, Any]:
    """Returns the result of the handshake at a protocol version."""
    info: dict[str, Any] = {"name": server_name(toolset), "version": SERVER_VERSION}
    return {
        "protocolVersion": version,
        "capabilities": {
            "prompts": {"listChanged": False},
            "resources": {"subscribe": False, "listChanged": False},
            "tools": {"listChanged": False},
        },
        "serverInfo": info,
        "instructions": instructions(toolset),
    }


def call_result(
    session: Session, name: str, arguments: Any, number: int, model: LanguageModel | None = None
) -> dict[str, Any]:
    """Carries out a tool call and returns its result as it goes over the wire.

    Args:
        number: The number of the request's line.
        model: The client's own language model, where it lets itself be asked.
    """
    reply = session.call(name, arguments, number, model)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text} for text in reply.texts],
        "isError": reply.payload is None,
    }
    if reply.structured is not None:
        result["structuredContent"] = reply.structured
    return result


def takes_arguments(wire: Wire, request_id: Any, arguments: Any) -> bool:
    """Returns whether a call's arguments are an object or left out; answers the call if not.

    The SDK's own reply to such a request does not say what is wrong.
    """
    if arguments is None or isinstance(arguments, dict):
        return True
    wire.send(error_reply(request_id, INVALID_PARAMS, "arguments takes one JSON object."))
    return False


def error_reply(request_id: Any, code: int, text: str) -> dict[str, Any]:
    """Returns a JSON-RPC error message."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
