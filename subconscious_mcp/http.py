"""MCP over streamable HTTP: a listener beside the engine's own, in a thread with a loop of its own.

Each user has a session manager of the SDK's over a session with the user's own namespace, so what one user
opened, no other can name. A request passes, in this order: the names it may ask by, who asks, how often, how
large, and only then the SDK, which speaks the protocol's revisions of both eras.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from subconscious_mcp.access import METADATA_PATH, Access, Refusal, User
from subconscious_mcp.audit import AuditLog
from subconscious_mcp.config import Config
from subconscious_mcp.host import Host
from subconscious_mcp.http_names import Names
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.rate_limit import RateLimit
from subconscious_mcp.sdk_session import build_server
from subconscious_mcp.session import Session

log = logging.getLogger(__name__)

CALLS_SECONDS = 10.0
"""How long calls under way may take when the server is told to end."""
BODY_SECONDS = 30.0
"""How long a client may take to send what it wants to say."""
SESSION_SECONDS = 1800.0
"""Quiet after which a session of the handshake's era is forgotten; its client opens another."""
MAX_SESSIONS = 1000
"""Open sessions of one user."""
MAX_USERS = 1000
"""Users whose sessions are kept. The one that was quiet longest goes first."""
MAX_CONNECTIONS = 1000
FAILURES_A_MINUTE = 30
"""Refused requests of one address, or of one user, that are answered and noted as what they are."""
_AUDITED = {"tools/call", "resources/read", "prompts/get"}
WATCH_SECONDS = 0.2
"""How often the server looks whether it is to end, and whether a token was revoked."""


class _Member:
    """A user's sessions, for as long as they are kept."""

    def __init__(self, user: User, server: Server[Any], config: Config) -> None:
        self.user = user
        self.manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=SESSION_SECONDS,
            max_request_body_size=config.http_max_body_bytes,
            max_sessions=MAX_SESSIONS,
        )
        self.requests = 0
        self.last_used = time.monotonic()
        self._over = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Keeps the sessions until `end`."""
        try:
            async with self.manager.run():
                task_status.started()
                await self._over.wait()
        except Exception:
            # One user's fault must not end the others' sessions.
            log.exception("The sessions of a user ended.")

    def end(self) -> None:
        """Ends the sessions, and the streams that are open."""
        self._over.set()


class HttpApp:
    """The ASGI application.

    Args:
        config: The server's settings.
        host: The memory that all users share, each in a namespace of its own.
        access: Decides who may ask.
        url: Where the server listens.
        audit: Takes note of each call.
        group: Where the users' sessions run.
    """

    def __init__(
        self, config: Config, host: Host, access: Access, url: str, audit: AuditLog, *, group: TaskGroup
    ) -> None:
        self._config = config
        self._host = host
        self._access = access
        self._metadata = access.metadata(url)
        self._challenge = access.challenge(url)
        self._audit = audit
        self._group = group
        self._names = Names(config.http_allowed_hosts, config.http_allowed_origins)
        self._limit = RateLimit(config.http_rate_limit)
        self._failures = RateLimit(FAILURES_A_MINUTE)
        self._members: dict[tuple[str, str, bool], _Member] = {}
        self._opening = anyio.Lock()
        self._stamp = access.stamp()
        self._calls = 0
        self._stopping = False
        self._answered = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._answer(scope, receive, send)
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Serves a request; returns what it is refused with, if it is."""
        headers = Headers(scope=scope)
        refused = self._refused_names(headers, scope)
        if refused is not None:
            return refused
        path = scope["path"]
        if self._metadata is not None and path in (METADATA_PATH, METADATA_PATH + self._config.http_path):
            return (
                JSONResponse(self._metadata)
                if scope["method"] in ("GET", "HEAD")
                else _plain(405, "Method not allowed.")
            )
        if path != self._config.http_path:
            return _plain(404, "There is nothing here.")
        peer = scope["client"][0] if scope.get("client") else ""
        user = await self._who(headers.getlist("authorization"))
        if isinstance(user, Refusal):
            return self._refused(user, peer)
        wait = self._limit.take(user.name)
        if wait:
            if not self._failures.take(user.name):
                # Not each one: who floods the server must not flood the log, where others' lines would go for it.
                self._audit.note(user.name, peer, "", "too many requests")
            return _too_many(wait)
        if self._stopping:
            return _plain(503, "The server is ending.", {"Retry-After": "5", "Connection": "close"})
        await self._serve(user, scope, receive, send)
        return None

    def _refused_names(self, headers: Headers, scope: Scope) -> Response | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        address = scope["server"][0] if scope.get("server") else ""
        if len(hosts) != 1 or not self._names.takes_host(hosts[0], address):
            return _plain(421, "This server is not asked by that name; see http_allowed_hosts.")
        if len(origins) > 1 or (origins and not self._names.takes_origin(origins[0])):
            return _plain(403, "Pages of that origin may not ask this server; see http_allowed_origins.")
        return None

    async def _who(self, authorization: list[str]) -> User | Refusal:
        if self._access.may_wait(authorization):
            return await anyio.to_thread.run_sync(self._access.who, authorization)
        return self._access.who(authorization)

    def _refused(self, refusal: Refusal, peer: str) -> Response:
        # Only those who fail: behind a proxy all have one address, and must not lock each other out.
        wait = self._failures.take(peer)
        if wait:
            return _too_many(wait)
        self._audit.note("", peer, "", refusal.error or "no token")
        body = {"error": refusal.error or "unauthorized", "error_description": refusal.about}
        if refusal.status not in (401, 403):
            return JSONResponse(body, refusal.status)
        error = [f'error="{refusal.error}", error_description="{refusal.about}"'] if refusal.error else []
        challenge = " ".join(["Bearer", ", ".join([*error, *self._challenge])]).strip()
        return JSONResponse(body, refusal.status, headers={"WWW-Authenticate": challenge})

    # --- users

    async def _serve(self, user: User, scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["method"] == "POST" and Headers(scope=scope).get("mcp-method") != "subscriptions/listen"
        # Streams stand open for ever; who opened one must prove itself again when its token is over.
        limit = math.inf if is_call or user.expires_at is None else max(0.0, user.expires_at - time.time())
        member = await self._member(user)
        member.requests += 1
        self._calls += is_call
        try:
            with anyio.move_on_after(limit):
                await _in_time(member.manager.handle_request, scope, receive, send)
        finally:
            member.requests -= 1
            member.last_used = time.monotonic()
            self._calls -= is_call
            if self._stopping and not self._calls:
                self._answered.set()

    async def _member(self, user: User) -> _Member:
        key = (user.name, user.namespace, user.read_only)
        async with self._opening:
            member = self._members.get(key)
            if member is None:
                self._make_room()
                member = _Member(user, self._server(user), self._config)
                await self._group.start(member.run)
                self._members[key] = member
            return member

    def _make_room(self) -> None:
        idle = sorted((one.last_used, key) for key, one in self._members.items() if not one.requests)
        for _, key in idle[: max(0, len(self._members) - MAX_USERS + 1)]:
            self._members.pop(key).end()

    def end_revoked(self) -> None:
        """Ends the sessions, and with them the open streams, of users whose token is not there any more."""
        stamp = self._access.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        for key, member in list(self._members.items()):
            if self._access.is_revoked(member.user):
                self._members.pop(key).end()

    def _server(self, user: User) -> Server[Any]:
        config = replace(self._config, namespace=user.namespace)
        session = Session(config, Derived(user.namespace, None, "HTTP"), lambda: self._host.memory().get(config))
        names = frozenset(session.tools)
        if user.read_only:
            session.tools = {name: tool for name, tool in session.tools.items() if tool.reads_only}
        server = build_server(session)

        async def audited(ctx: ServerRequestContext[Any, Any], call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            self._host.last_line = time.monotonic()
            if ctx.method not in _AUDITED:
                return await call_next(ctx)
            what, outcome, started = _name(ctx, names), "failed", time.perf_counter()
            try:
                result = await call_next(ctx)
                outcome = "ok"
                if _is_error(result):
                    # A tool that there is, and that this user may not call.
                    outcome = "refused" if what in names and what not in session.tools else "error"
                return result
            finally:
                peer = getattr(getattr(ctx.request, "client", None), "host", "")
                self._audit.note(user.name, peer, what, outcome, time.perf_counter() - started)

        server.middleware.append(audited)
        return server

    # --- the end

    async def drain(self) -> None:
        """Takes no more calls, waits for those under way, and ends all sessions."""
        self._stopping = True
        if self._calls:
            with anyio.move_on_after(CALLS_SECONDS):
                await self._answered.wait()
        for member in self._members.values():
            member.end()


class HttpServer:
    """Serves HTTP beside an engine; see `engine.Companion`.

    Args:
        listener: A bound socket.
        config: The server's settings.
        access: Decides who may ask.
        url: Where the socket listens.
        audit: Takes note of each call.

    Attributes:
        failed: It ended, and not because it was told to.
    """

    def __init__(self, listener: socket.socket, config: Config, access: Access, url: str, audit: AuditLog) -> None:
        self._listener = listener
        self._config = config
        self._access = access
        self._url = url
        self._audit = audit
        self._told = threading.Event()
        self.failed = False
        self._thread: threading.Thread | None = None

    def start(self, host: Host, ended: Callable[[], None]) -> None:
        """Begins to serve.

        Args:
            host: The engine's.
            ended: Called when the server ends, whyever it does.
        """
        self._thread = threading.Thread(target=self._run, args=(host, ended), name="subconscious-http", daemon=True)
        self._thread.start()

    def _run(self, host: Host, ended: Callable[[], None]) -> None:
        try:
            anyio.run(self._serve, host)
        except Exception:
            log.exception("The HTTP server failed.")
            self.failed = True
        finally:
            ended()

    async def _serve(self, host: Host) -> None:
        async with anyio.create_task_group() as group:
            app = HttpApp(self._config, host, self._access, self._url, self._audit, group=group)
            server = uvicorn.Server(
                uvicorn.Config(
                    app,
                    # httptools leaves blanks behind a header's value, which are no part of it.
                    http="h11",
                    ws="none",
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    # A header could say anything of where it comes from.
                    proxy_headers=False,
                    limit_concurrency=MAX_CONNECTIONS,
                    timeout_graceful_shutdown=1,
                )
            )
            group.start_soon(self._watch, app, server)
            await server.serve(sockets=[self._listener])
            group.cancel_scope.cancel()

    async def _watch(self, app: HttpApp, server: uvicorn.Server) -> None:
        # Asked for and not told: whoever stops the server may be the handler of a signal.
        while not self._told.is_set():
            await anyio.sleep(WATCH_SECONDS)
            app.end_revoked()
        await app.drain()
        server.should_exit = True

    def stop(self) -> None:
        """Asks the server to end when its calls are answered; `wait` for that."""
        self._told.set()

    def wait(self) -> None:
        """Waits until the server has ended."""
        if self._thread is not None:
            self._thread.join(CALLS_SECONDS + 5.0)

    def facts(self) -> dict[str, Any]:
        """Returns what `engine status` tells of it."""
        return {"http": self._url}


def _name(context: ServerRequestContext[Any, Any], tools: frozenset[str]) -> str:
    """Returns what is called, as far as it is a name of ours: the client's own words are not logged."""
    if context.method != "tools/call":
        return str(context.method)
    name = (context.params or {}).get("name")
    return name if isinstance(name, str) and name in tools else "unknown tool"


def _is_error(result: Any) -> bool:
    return bool(result.get("isError") if isinstance(result, dict) else getattr(result, "is_error", False))


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text, status, headers)


def _too_many(wait: float) -> Response:
    return _plain(429, "Too many requests.", {"Retry-After": str(math.ceil(wait))})


async def _in_time(
    serve: Callable[[Scope, Receive, Send], Awaitable[None]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Serves a request whose client sends its body in time; 408 for one that does not."""
    complete = started = False
    deadline = anyio.current_time() + BODY_SECONDS

    async def timed() -> Message:
        nonlocal complete
        if complete:
            return await receive()
        with anyio.fail_after(deadline - anyio.current_time()):
            message = await receive()
        complete = not message.get("more_body", False)
        return message

    async def noted(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    try:
        await serve(scope, timed, noted)
    except TimeoutError:
        if complete or started:
            raise
        await _plain(408, "The request took too long.", {"Connection": "close"})(scope, receive, send)
