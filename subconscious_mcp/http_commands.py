"""The commands around HTTP: serve --http, token create, token list, token revoke."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from subconscious_mcp import pipe, storage_lock, tokens
from subconscious_mcp.access import Access
from subconscious_mcp.config import SETTINGS, Config, Resolved, resolve
from subconscious_mcp.engine_client import ask_engine
from subconscious_mcp.errors import InvalidArgument, ListenError, StorageBusy, StorageError
from subconscious_mcp.locate import namespace_name
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.terminal import add_command, show

if TYPE_CHECKING:
    from rich.console import Console

EXIT_UNKNOWN = 1
EXIT_FAILED = 70
MAX_DAYS = 36_500
_OPTIONS = ("http_host", "http_port", "http_path")


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Adds what makes a command serve HTTP; works before the command `serve` and behind it."""
    # SUPPRESS: what stands before `serve` must not be undone by its absence behind it.
    parser.add_argument(
        "--http", action="store_true", default=argparse.SUPPRESS, help="serve streamable HTTP instead of stdio"
    )
    for name, metavar, about in (
        ("http_host", "ADDRESS", "address to listen on (with --http)"),
        ("http_port", "PORT", "port to listen on (with --http); 0 takes a free one"),
        ("http_path", "PATH", "path of the endpoint (with --http)"),
    ):
        option = "--" + name.removeprefix("http_")
        parser.add_argument(option, dest=name, metavar=metavar, default=argparse.SUPPRESS, help=about)


def add_commands(commands: Any) -> None:
    """Adds the commands to the command line's."""
    token = commands.add_parser("token", help="create, list or revoke tokens for HTTP")
    token.set_defaults(run=lambda _: token.print_help() or 0)
    actions = token.add_subparsers(title="commands", metavar="COMMAND")
    create = add_command(actions, "create", "make a token and print it, once", _create)
    create.add_argument("name", metavar="NAME", help="whose it is, for people")
    create.add_argument("--namespace", metavar="NS", help="where its entries are; by default a new one of its own")
    create.add_argument("--read-only", action="store_true", help="only tools that change nothing")
    create.add_argument("--expires-days", type=float, metavar="N", help="days until it ends; by default never")
    add_command(actions, "list", "list the tokens, without their secrets", _list)
    revoke = add_command(actions, "revoke", "end a token, at once", _revoke)
    revoke.add_argument("token_id", metavar="ID")


# --- serve --http


def wants_http(arguments: argparse.Namespace) -> bool:
    """Returns whether a command was asked to serve HTTP.

    Raises:
        InvalidArgument: It was not, and yet told where.
    """
    if getattr(arguments, "http", False):
        return True
    for name in _OPTIONS:
        if hasattr(arguments, name):
            raise InvalidArgument(f"--{name.removeprefix('http_')} needs --http.")
    return False


def serve(arguments: argparse.Namespace) -> NoReturn:
    """Serves MCP over HTTP until a signal or `engine stop`; ends the process.

    The process is the engine of its storage directory, so windows of the same directory go on, over this one.

    Raises:
        SubconsciousError: It cannot serve so.
    """
    resolved = _with_options(resolve(), arguments)
    config = resolved.config
    for warning in resolved.warnings:
        print(f"subconscious-mcp: {warning}", file=sys.stderr)
    access = Access(config)
    access.refuse_open_door(config.http_host)
    listener = _listen(config)
    url = _url(config, listener)
    log_to_file(config.home / "logs" / "server.log", config.log_level)
    from subconscious_mcp.audit import AuditLog
    from subconscious_mcp.engine import in_this_process
    from subconscious_mcp.http import HttpServer

    try:
        audit = AuditLog(config.home / "logs" / "audit.log")
    except OSError as error:
        raise StorageError(f"logs/audit.log cannot be written: {error.strerror or error}.") from None
    companion = HttpServer(listener, config, access, url, audit)
    with _place_of_engine(resolved):
        engine = in_this_process(resolved, companion)
    print(f"subconscious-mcp: MCP at {url}, {access.door()}", flush=True)
    engine.run()
    logging.shutdown()
    # The interpreter's own end would wait for threads that nobody waits for any more.
    os._exit(EXIT_FAILED if companion.failed else 0)


def _with_options(resolved: Resolved, arguments: argparse.Namespace) -> Resolved:
    given: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.name in _OPTIONS and hasattr(arguments, setting.name):
            try:
                given[setting.name] = setting.parse(getattr(arguments, setting.name))
            except ValueError as takes:
                raise InvalidArgument(f"--{setting.name.removeprefix('http_')} takes {takes}.") from None
    return replace(resolved, config=replace(resolved.config, **given))


def _listen(config: Config) -> socket.socket:
    """Opens the listening socket, before anything that is running is asked to give way."""
    host = config.http_host.strip("[]")
    where = f"{config.http_host}, port {config.http_port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, config.http_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name != "nt":
                # The port of a server that has just ended is free, whatever its last connections are at.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"Another program listens on {where}.", "End it, or give this one another port: --port PORT."
            ) from None
        raise ListenError(
            f"{where} cannot be listened on: {error.strerror or error}.", "Give an address of this machine: --host."
        ) from None
    return listener


def _url(config: Config, listener: socket.socket) -> str:
    host = config.http_host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}{config.http_path}"


@contextlib.contextmanager
def _place_of_engine(resolved: Resolved) -> Iterator[None]:
    """Ends the engine that runs and keeps pipes from starting another while this process takes its place."""
    folder, home = resolved.config.storage_dir, resolved.config.home
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        starter = pipe.Engine(str(folder), str(home))
        taken = starter.take_start()
    except OSError as error:
        raise StorageError(f"The storage directory {folder} cannot be used: {error.strerror or error}.") from None
    if not taken:
        raise StorageBusy("Another process is starting an engine and does not come to an end.", "Try again.")
    try:
        running = ask_engine(resolved, "engine status", {})
        if running is not None:
            if "http" in running:
                raise StorageBusy(
                    f"Process {running['pid']} serves this storage directory over HTTP already, at {running['http']}.",
                    "Use that one, or end it with `subconscious-mcp engine stop`.",
                )
            ask_engine(resolved, "engine stop", {})
            storage_lock.wait_until_free(folder)
        yield
    finally:
        starter.leave_start()


# --- token


def _create(arguments: argparse.Namespace) -> int:
    namespace, days = arguments.namespace, arguments.expires_days
    if namespace is not None:
        try:
            namespace = namespace_name(namespace)
        except ValueError as takes:
            raise InvalidArgument(f"--namespace takes {takes}.") from None
    if days is not None and not 0 < days <= MAX_DAYS:
        raise InvalidArgument(f"--expires-days takes a number of days up to {MAX_DAYS}.")
    token, secret = tokens.create(
        resolve().config.home, arguments.name, namespace=namespace, read_only=arguments.read_only, expires_days=days
    )

    def shown(console: Console) -> None:
        # The token alone on standard output: a script takes it from there.
        print(secret)
        print(f"Token {token.id} of {token.name}, namespace {token.namespace}. It is not shown again.", file=sys.stderr)

    show(arguments, {**_facts(token), "token": secret}, shown)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    home = resolve().config.home
    found, used = tokens.listed(home), tokens.last_used(home)

    def table(console: Console) -> None:
        from subconscious_mcp.tables import one_line, print_rows, when

        rows = []
        for token in found:
            ends = "never" if token.expires_at is None else when(token.expires_at)
            rows.append(
                (
                    token.id,
                    one_line(token.name).plain,
                    one_line(token.namespace).plain,
                    "read" if token.read_only else "read, write",
                    when(token.created_at),
                    when(used[token.id]) if token.id in used else "never",
                    f"{ends} (over)" if token.is_expired(time.time()) else ends,
                )
            )
        print_rows(console, ("id", "name", "namespace", "may", "created", "used", "ends"), rows)

    show(arguments, [{**_facts(token), "last_used_at": used.get(token.id)} for token in found], table)
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    revoked = tokens.revoke(resolve().config.home, arguments.token_id)
    text = "revoked" if revoked else "there is no token of that id"
    show(arguments, {"revoked": revoked, "id": arguments.token_id}, lambda console: print(text))
    return 0 if revoked else EXIT_UNKNOWN


def _facts(token: tokens.Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "namespace": token.namespace,
        "read_only": token.read_only,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    }
