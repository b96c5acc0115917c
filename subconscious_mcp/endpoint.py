"""Where an engine can be reached: a Unix socket in a private folder, or loopback TCP with a token.

`engine.json` in the storage directory says which. It is written when the engine listens and
removed when it stops; one that a killed engine left leads to a refused connection.
"""

from __future__ import annotations

import json
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ENDPOINT_FILE = "engine.json"
MAX_SOCKET_PATH = 100
"""Bytes of a socket's path; the smallest limit of the systems that have them is 104."""
BACKLOG = 128


def read(folder: str) -> dict[str, Any] | None:
    """Returns what engine.json says, or None where there is none that can be read."""
    try:
        with open(os.path.join(folder, ENDPOINT_FILE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def connect(found: Mapping[str, Any], seconds: float) -> socket.socket:
    """Connects to an engine.

    Raises:
        OSError: Nobody listens there, or not within `seconds`; or `found` names no place at all.
    """
    if "socket" in found:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("no Unix sockets here")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: Any = str(found["socket"])
    else:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        address = ("127.0.0.1", found.get("port"))
    try:
        connection.settimeout(seconds)
        connection.connect(address)
    except (ValueError, TypeError, OverflowError):
        # A damaged engine.json; an engine that starts writes a new one.
        connection.close()
        raise OSError("engine.json is damaged") from None
    except BaseException:
        connection.close()
        raise
    return connection


def listen(folder: str, transport: str) -> tuple[socket.socket, dict[str, Any]]:
    """Opens a listening socket for the engine of a storage directory.

    Args:
        folder: The storage directory.
        transport: `unix`, `tcp`, or `auto`: Unix sockets where there are any.

    Returns:
        The socket, and what engine.json says of it.

    Raises:
        OSError: Neither kind of socket can be opened.
    """
    if transport != "tcp" and hasattr(socket, "AF_UNIX"):
        for path in _socket_paths(folder):
            try:
                return _listen_unix(path), {"socket": path}
            except OSError:
                # A file system without sockets: some network drives, some mounts.
                continue
        if transport == "unix":
            raise OSError("no Unix socket can be opened for this storage directory")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    import secrets

    # Every user of the machine reaches a loopback port; the token lies in a file that only one reads.
    return listener, {"port": listener.getsockname()[1], "token": secrets.token_hex(32)}


def _socket_paths(folder: str) -> list[str]:
    """Returns where the socket may lie: in the storage directory, or elsewhere if that is too long."""
    import hashlib
    import tempfile

    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    shared = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    uid = os.getuid() if hasattr(os, "getuid") else 0
    candidates = [
        os.path.join(folder, "engine", "socket"),
        os.path.join(shared, f"subconscious-mcp-{uid}", name),
        os.path.join(tempfile.gettempdir(), f"subconscious-mcp-{uid}", name),
    ]
    return [path for path in candidates if len(os.fsencode(path)) <= MAX_SOCKET_PATH]


def _listen_unix(path: str) -> socket.socket:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    facts = os.lstat(folder)
    # In a folder that others can write, they could put a socket of their own in this one's place.
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise OSError(f"{folder} is not private")
    # The caller holds the lock of the storage directory, so whoever made this file is gone.
    if os.path.lexists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def publish(folder: str, facts: Mapping[str, Any]) -> None:
    """Writes engine.json, mode 0600, at once and whole."""
    path = os.path.join(folder, ENDPOINT_FILE)
    # One name, because only the holder of the directory's lock writes: a kill leaves no more than one.
    temporary = f"{path}.new"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(temporary, path)


def withdraw(folder: str, facts: Mapping[str, Any]) -> None:
    """Removes engine.json and the socket it names, if they are still those of `facts`."""
    if read(folder) != facts:
        # The directory was removed and made again, and another engine is there.
        return
    for path in (os.path.join(folder, ENDPOINT_FILE), str(facts.get("socket", ""))):
        if path:
            try:
                os.unlink(path)
            except OSError:
                continue


def read_line(connection: socket.socket, most: int = 65536) -> bytes:
    """Reads one line byte-exactly, so that what follows it stays in the socket.

    Raises:
        OSError: The other end closed, waited too long, or sent a line that is too long.
    """
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part or len(line) > most:
            raise OSError("the engine closed the connection")
        line += part
    return line
