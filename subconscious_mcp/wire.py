"""The two ends of a stdio connection: whole lines in, whole JSON-RPC messages out.

Whoever owns the wire owns file descriptors 0 and 1 alone: while it is open, descriptor 1 points
at standard error, so that a print of any library, Python or native, cannot corrupt the stream.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from enum import Enum
from typing import Any

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is refused unread: it is no tool call, and it must not fill the memory."""

DRAIN_SECONDS = 30.0
"""How long calls under way may take to answer after the client closed its end."""
STOP_SECONDS = 1.5
"""The same after a signal: clients send SIGKILL two seconds behind SIGTERM."""


class End(Enum):
    """Why no more lines come."""

    CLOSED = "the client closed its end"
    STOPPED = "a signal asked the process to end"


class Oversized:
    """Stands for a line that was too long to be read."""


Event = bytes | Oversized | End


class Wire:
    """Reads lines in a thread of its own and writes messages from any thread.

    Args:
        read_fd: Descriptor of the requests.
        write_fd: Descriptor of the replies.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._write_lock = threading.Lock()
        self._broken = False
        self._waiting: set[Any] = set()
        self._answered = threading.Condition()
        # The reader pauses when 256 lines wait: that is the back-pressure.
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._room = threading.Semaphore(256)
        self.last_line = time.monotonic()

    def start(self) -> None:
        """Starts reading."""
        threading.Thread(target=self._read, name="subconscious-wire", daemon=True).start()

    def _read(self) -> None:
        try:
            with os.fdopen(self._read_fd, "rb", closefd=False) as stream:
                while raw := stream.readline(MAX_LINE_BYTES + 1):
                    self._room.acquire()
                    self.last_line = time.monotonic()
                    if len(raw) > MAX_LINE_BYTES:
                        while not raw.endswith(b"\n") and (raw := stream.readline(MAX_LINE_BYTES)):
                            pass
                        self.events.put(Oversized())
                    else:
                        self.events.put(raw)
        except OSError:
            pass
        self.events.put(End.CLOSED)

    def next_event(self) -> Event:
        """Returns the next line, or why there is none; waits for it."""
        event = self.events.get()
        if not isinstance(event, End):
            self._room.release()
        return event

    def stop(self) -> None:
        """Ends the stream of events as a signal does."""
        self.events.put(End.STOPPED)

    def expect_reply(self, request_id: Any) -> None:
        """Notes that a request waits for its reply, for `wait_until_answered`."""
        with self._answered:
            self._waiting.add(_hashable(request_id))

    def send(self, message: dict[str, Any]) -> None:
        """Writes one message as one line."""
        self.send_line(json.dumps(message, ensure_ascii=False, separators=(",", ":")), message)

    def send_line(self, line: str, message: dict[str, Any]) -> None:
        """Writes a message that is serialised already; a client that is gone loses it."""
        data = line.encode("utf-8", "replace") + b"\n"
        with self._write_lock:
            view = memoryview(data)
            while view and not self._broken:
                try:
                    view = view[os.write(self._write_fd, view) :]
                except OSError:
                    self._broken = True
        if "method" not in message:
            with self._answered:
                self._waiting.discard(_hashable(message.get("id")))
                self._answered.notify_all()

    def wait_until_answered(self, seconds: float) -> bool:
        """Waits until every request has its reply; returns whether that came to be."""
        with self._answered:
            return self._answered.wait_for(lambda: not self._waiting or self._broken, seconds)


def _hashable(request_id: Any) -> Any:
    # 1 and "1" are two ids, and 1 and 1.0 and true are equal in Python.
    return (type(request_id).__name__, request_id) if isinstance(request_id, (str, int, float)) else repr(request_id)


def own_standard_streams() -> Wire:
    """Takes descriptors 0 and 1 for the wire and points 1 at standard error.

    Returns:
        The wire over private duplicates of them.
    """
    sys.stdout.flush()
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        os.dup2(2, 1)
    except OSError:
        # Standard error is closed: stray prints go nowhere.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    if sys.platform == "win32":  # pragma: no cover - not run on the platform that is measured
        import msvcrt

        # Text mode would turn the line ends of the wire into CRLF.
        msvcrt.setmode(read_fd, os.O_BINARY)
        msvcrt.setmode(write_fd, os.O_BINARY)
    return Wire(read_fd, write_fd)
