"""Serves a wire through the MCP SDK, which speaks every protocol version of both eras.

Importing this module imports the SDK, which takes more than a second: see `early_session`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from subconscious_mcp.early_session import (
    HANDSHAKE_VERSIONS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Handover,
    call_result,
    error_reply,
    takes_arguments,
)
from subconscious_mcp.errors import LanguageModelError
from subconscious_mcp.identity import SERVER_VERSION, instructions, server_name
from subconscious_mcp.language_model import ASK_SECONDS, LanguageModel, max_tokens
from subconscious_mcp.session import Session
from subconscious_mcp.wire import End, Event, Oversized, Wire

log = logging.getLogger(__name__)

CALL_THREADS = 8


def build_server(session: Session) -> Server[Any]:
    """Returns the SDK's server over a session's tools; a request's context is its line's number."""
    limiter = anyio.CapacityLimiter(CALL_THREADS)
    tools = [types.Tool.model_validate(description) for description in session.descriptions()]

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        # In a thread, so that embedding a long text does not hold up a ping. A cancelled call
        # goes on there: a write must not stop halfway.
        result = await anyio.to_thread.run_sync(
            call_result,
            session,
            params.name,
            params.arguments,
            context.request or 0,
            _client_model(context),
            limiter=limiter,
            abandon_on_cancel=True,
        )
        return types.CallToolResult.model_validate(result)

    async def list_resources(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        listed = [types.Resource.model_validate(one) for one in session.resource_descriptions()]
        return types.ListResourcesResult(resources=listed)

    async def list_templates(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        listed = [types.ResourceTemplate.model_validate(one) for one in session.template_descriptions()]
        return types.ListResourceTemplatesResult(resource_templates=listed)

    async def read_resource(
        context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        read = await anyio.to_thread.run_sync(session.read, uri, limiter=limiter, abandon_on_cancel=True)
        if read.text is None:
            code = types.INVALID_PARAMS if read.unknown else types.INTERNAL_ERROR
            raise MCPError(code, read.error or "Error.", {"uri": uri})
        contents = types.TextResourceContents(uri=uri, mime_type=read.mime_type, text=read.text)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        # None yet; clients ask nevertheless, and some take a refusal for a fault.
        return types.ListPromptsResult(prompts=[])

    return Server(
        server_name(session.toolset),
        version=SERVER_VERSION,
        instructions=instructions(session.toolset),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
    )


def _client_model(context: ServerRequestContext[Any]) -> LanguageModel | None:
    """Returns the model behind the client, where it declared in its handshake that it may be asked (sampling).

    Later protocol versions have no requests of a server to its client.
    """
    declared = context.session.client_capabilities
    if context.protocol_version not in HANDSHAKE_VERSIONS or declared is None or declared.sampling is None:
        return None

    async def create(prompt: str, most: int) -> types.CreateMessageResult:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
        params = types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens(most))
        return await context.session.send_request(
            types.CreateMessageRequest(params=params),
            types.CreateMessageResult,
            request_read_timeout_seconds=ASK_SECONDS,
            # Over HTTP it travels with the call that asks.
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )

    def ask(prompt: str, most: int) -> str:
        # From the call's thread back to the loop, which goes on reading the client's replies.
        try:
            result = anyio.from_thread.run(create, prompt, most)
        except (MCPError, ValidationError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            # Not the error's text: it is the client's, and may repeat the notes.
            raise LanguageModelError(f"The client's model gave no answer ({type(error).__name__}).") from None
        if not isinstance(result.content, types.TextContent):
            raise LanguageModelError("The client's model replied with something else than text.")
        return result.content.text

    return LanguageModel("client", ask)


def serve(wire: Wire, session: Session, handover: Handover) -> None:
    """Serves the wire from a handover to its end."""
    anyio.run(_serve, wire, session, handover)


async def _serve(wire: Wire, session: Session, handover: Handover) -> None:
    server = build_server(session)
    to_server, from_wire = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    to_wire, from_server = anyio.create_memory_object_stream[SessionMessage](16)
    feed = _Feed(wire, handover, to_server)
    with _woken_by_signals():
        async with anyio.create_task_group() as group:
            group.start_soon(_write, wire, from_server, handover.answered, bool(handover.replay))
            group.start_soon(feed.run)
            await server.run(from_wire, to_wire, server.create_initialization_options())
            group.cancel_scope.cancel()


@contextmanager
def _woken_by_signals() -> Iterator[None]:
    """Lets a signal wake the loop, where this is the thread that gets signals.

    Python's handlers run between two steps of the program: of a signal that comes right before the loop
    waits, nothing would be seen until the next line.
    """
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    woken, waker = socket.socketpair()
    with woken, waker:
        woken.setblocking(False)
        waker.setblocking(False)
        loop.add_reader(woken, lambda: woken.recv(64))
        before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(woken)


async def _write(wire: Wire, messages: Any, answered: Any, drop_one: bool) -> None:
    async with messages:
        async for item in messages:
            message = item.message.model_dump(by_alias=True, exclude_unset=True, mode="json")
            if drop_one and "method" not in message and message.get("id") == answered:
                # The early session has answered the handshake already.
                drop_one = False
                continue
            wire.send(message)


class _Feed:
    """Hands the wire's lines to the SDK, and its end when every call is answered."""

    def __init__(self, wire: Wire, handover: Handover, to_server: Any) -> None:
        self._wire = wire
        self._handover = handover
        self._to_server = to_server
        self._lines: list[Event] = [_replayable(line) for line in handover.replay]
        if handover.waiting is not None:
            self._lines.append(handover.waiting)

    async def run(self) -> None:
        # A thread of our own and not one of anyio's: it waits on the wire for ever, and must not
        # keep the process from ending.
        send, receive = anyio.create_memory_object_stream[SessionMessage](16)
        token = anyio.lowlevel.current_token()
        done = anyio.Event()

        def pump() -> None:
            try:
                self._pump(lambda message: anyio.from_thread.run(send.send, message, token=token))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.RunFinishedError, RuntimeError):
                # The server ended first.
                return
            anyio.from_thread.run_sync(send.close, token=token)
            anyio.from_thread.run_sync(done.set, token=token)

        threading.Thread(target=pump, name="subconscious-feed", daemon=True).start()
        async with self._to_server, receive:
            async for message in receive:
                await self._to_server.send(message)
            await done.wait()

    def _pump(self, send: Any) -> None:
        replayed = len(self._handover.replay)
        while True:
            if self._lines:
                event, number = self._lines.pop(0), self._handover.number
            else:
                event = self._wire.next_event()
                number = self._wire.number
            if isinstance(event, End):
                self._wire.wait_until_answered()
                return
            message = _parsed(self._wire, event)
            if message is None:
                continue
            if replayed > 0:
                replayed -= 1
            elif isinstance(message, types.JSONRPCRequest):
                arguments = (message.params or {}).get("arguments")
                if message.method == "tools/call" and not takes_arguments(self._wire, message.id, arguments):
                    continue
                self._wire.expect_reply(message.id)
            elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
                # The SDK answers no request that was cancelled.
                self._wire.expect_no_reply((message.params or {}).get("requestId"))
            # With the message and not by its id, which a client may use twice.
            send(SessionMessage(message, ServerMessageMetadata(request_context=number)))


def _replayable(line: bytes) -> bytes:
    """Returns a handshake that was answered already in a form that the SDK takes.

    The early session looks at less of it than the SDK, and a handshake that is refused at its
    replay would end in a client that believes in a session which the SDK does not know.
    """
    message = json.loads(line)
    if message["method"] != "initialize":
        return line
    params = message["params"]
    try:
        types.InitializeRequestParams.model_validate(params, by_name=False)
    except ValidationError:
        client = params["clientInfo"]
        message["params"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {},
            "clientInfo": {"name": client["name"], "version": client["version"]},
        }
    return json.dumps(message).encode()


def _parsed(wire: Wire, event: bytes | Oversized) -> types.JSONRPCMessage | None:
    """Reads one line; what is no message is answered here, because the SDK drops it in silence."""
    if isinstance(event, Oversized):
        wire.send(error_reply(None, INVALID_REQUEST, "The message is too long."))
        return None
    if not event.strip():
        return None
    try:
        raw = json.loads(event)
    except (ValueError, RecursionError):
        wire.send(error_reply(None, PARSE_ERROR, "Parse error"))
        return None
    try:
        return types.jsonrpc_message_adapter.validate_python(raw, by_name=False)
    except ValidationError:
        request_id = raw.get("id") if isinstance(raw, dict) else None
        known = request_id if isinstance(request_id, (str, int)) and not isinstance(request_id, bool) else None
        wire.send(error_reply(known, INVALID_REQUEST, "Invalid request"))
        return None
