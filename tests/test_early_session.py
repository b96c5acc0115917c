from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from interaction import handshake_params

from subconscious_mcp.early_session import EarlySession
from subconscious_mcp.identity import SERVER_VERSION
from subconscious_mcp.session import Reply
from subconscious_mcp.wire import End, Oversized, Wire


class StandInSession:
    """Answers every call with what it was asked."""

    def descriptions(self) -> list[dict[str, Any]]:
        return [{"name": "stats"}]

    def call(self, name: str, arguments: Any, *more: Any) -> Reply:
        return Reply(None, "refused") if name == "refuse" else Reply({"name": name, "arguments": arguments})


class Early:
    """An early session whose lines are all there before it begins."""

    def __init__(
        self,
        session: Callable[[], Any] = StandInSession,
        sdk_ready: Callable[[], bool] = lambda: False,
    ) -> None:
        self.read_fd, self.write_fd = os.pipe()
        # It is never started: the events are put into its queue.
        self.wire = Wire.of_descriptors(self.read_fd, self.write_fd)
        self.session = EarlySession(self.wire, session, sdk_ready)

    def serve(self, *events: Any) -> list[dict[str, Any]]:
        """Serves what is given until something is left to the SDK; returns the replies by their ids."""
        for event in events:
            self.wire.events.put(line(event) if isinstance(event, (dict, list)) else event)
        self.wire.events.put(End.CLOSED)
        self.session.serve()
        assert self.wire.wait_until_answered()
        os.close(self.write_fd)
        with os.fdopen(self.read_fd, "rb") as stream:
            replies = [json.loads(raw) for raw in stream]
        return sorted(replies, key=lambda reply: str(reply["id"]))

    @property
    def left(self) -> Any:
        return self.session.handover.waiting


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def request(request_id: Any, method: Any, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else {**message, "params": params}


def initialize(version: Any = "2025-11-25", **changes: Any) -> dict[str, Any]:
    return request(0, "initialize", {**handshake_params(version), **changes})


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def early() -> Iterator[Early]:
    early = Early()
    yield early
    for fd in (early.read_fd, early.write_fd):
        try:
            os.close(fd)
        except OSError:
            continue


def test_the_plain_requests_are_answered(early: Early) -> None:
    replies = early.serve(
        initialize(),
        INITIALIZED,
        request("a", "ping"),
        request("b", "tools/list"),
        request("c", "tools/call", {"name": "stats", "arguments": {"x": "★"}}),
        request("d", "tools/call", {"name": "stats"}),
        request("e", "tools/call", {"name": "refuse", "arguments": {}, "_meta": {"progressToken": 1}}),
        request("f", "tools/call", {"name": "stats", "arguments": ["no object"]}),
    )
    shown, ping, listed, called, bare, refused, misshapen = replies
    assert shown["result"]["serverInfo"] == {"name": "subconscious-mcp", "version": SERVER_VERSION}
    assert ping["result"] == {}
    assert listed["result"] == {"tools": [{"name": "stats"}]}
    assert called["result"] == {
        "content": [{"type": "text", "text": '{"name":"stats","arguments":{"x":"★"}}'}],
        "structuredContent": {"name": "stats", "arguments": {"x": "★"}},
        "isError": False,
    }
    assert bare["result"]["structuredContent"]["arguments"] is None
    assert refused["result"] == {"content": [{"type": "text", "text": "refused"}], "isError": True}
    assert misshapen["error"] == {"code": -32602, "message": "arguments takes one JSON object."}
    assert early.left is End.CLOSED
    assert early.session.handover.replay == [line(initialize()), line(INITIALIZED)]
    assert early.session.handover.answered == 0


LEFT_TO_THE_SDK: list[Any] = [
    request(1, "resources/list"),
    request(1, 7),
    request(1, "tools/list", {"cursor": "next"}),
    request(1, "tools/list", []),
    request(1, "tools/call", {"arguments": {}}),
    request(1, "tools/call", {"name": 1}),
    request(1.5, "ping"),
    request(None, "ping"),
    request(True, "ping"),
    initialize(),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    {"id": 1, "method": "ping"},
    [request(1, "ping")],
]


@pytest.mark.parametrize("message", LEFT_TO_THE_SDK, ids=str)
def test_what_is_not_certain_is_left_to_the_sdk(early: Early, message: Any) -> None:
    replies = early.serve(initialize(), message, request(9, "ping"))
    assert [reply["id"] for reply in replies] == [0]
    assert early.left == line(message)


@pytest.mark.parametrize(
    "message",
    [
        request(1, "ping"),
        request(1, "tools/list"),
        request(1, "server/discover"),
        INITIALIZED,
        initialize(None),
        initialize(20251125),
        initialize(capabilities=None),
        initialize(clientInfo=None),
        initialize(clientInfo={"name": "tests"}),
        initialize(clientInfo={"name": 1, "version": "1"}),
        request(0, "initialize"),
        request(0, "initialize", ["2025-11-25"]),
    ],
    ids=str,
)
def test_before_a_sound_handshake_everything_is_left_to_the_sdk(early: Early, message: Any) -> None:
    assert early.serve(message, initialize()) == []
    assert early.left == line(message)
    assert early.session.handover.replay == []


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_tools_of_versions_that_need_a_translation_are_left_to_the_sdk(early: Early, version: str) -> None:
    asked = request(2, "tools/list")
    assert [reply["id"] for reply in early.serve(initialize(version), request(1, "ping"), asked)] == [0, 1]
    assert early.left == line(asked)


def test_lines_that_cannot_be_read_are_told_and_blank_ones_passed_over(early: Early) -> None:
    replies = early.serve(
        b"\xff\xfe\n", b"{\n", b"[" * 100_000 + b"\n", b"\n", b"  \r\n", Oversized(), initialize(), request(1, "ping")
    )
    codes = [reply["error"]["code"] for reply in replies if reply["id"] is None]
    assert codes == [-32700, -32700, -32700, -32600]
    assert [reply["id"] for reply in replies if reply["id"] is not None] == [0, 1]


def test_once_the_sdk_is_there_it_gets_the_next_line() -> None:
    early = Early(sdk_ready=iter([False, True]).__next__)
    ping = request(1, "ping")
    assert [reply["id"] for reply in early.serve(initialize(), ping)] == [0]
    assert early.left == line(ping)


def test_a_call_under_way_answers_by_itself_after_the_handover() -> None:
    may_go_on = threading.Event()

    class Slow(StandInSession):
        def call(self, name: str, arguments: Any, *more: Any) -> Reply:
            may_go_on.wait()
            return super().call(name, arguments)

    early = Early(Slow)
    early.wire.events.put(line(initialize()))
    early.wire.events.put(line(request(1, "tools/call", {"name": "stats"})))
    early.wire.events.put(line(request(2, "resources/list")))
    early.session.serve()
    assert early.left == line(request(2, "resources/list"))
    may_go_on.set()
    assert early.wire.wait_until_answered()
    os.close(early.write_fd)
    with os.fdopen(early.read_fd, "rb") as stream:
        assert [json.loads(raw)["id"] for raw in stream] == [0, 1]


def test_a_server_that_cannot_be_made_is_told_in_one_line() -> None:
    def broken() -> Any:
        raise ImportError("numpy is broken in /some/place")

    replies = Early(broken).serve(initialize(), request(1, "tools/list"), request(2, "tools/call", {"name": "stats"}))
    for reply in replies[1:]:
        assert reply["error"] == {
            "code": -32603,
            "message": "The server could not start (ImportError); see logs/server.log.",
        }
