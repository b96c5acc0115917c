"""The two ends of a stdio connection: whole lines in, whole JSON-RPC messages out.

Whoever owns the wire owns file descriptors 0 and 1 alone: while it is open, descriptor 1 points
at standard error, so that a print of any library, Python or native, cannot corrupt the stream.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, BinaryIO

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

    Each line has a number. Over a pipe it is the line's number among all that the client ever
    sent, so that a request which is sent again, to another engine, is known by it.

    Args:
        stream: Where the requests come from.
        write: Sends some of the bytes it is given and returns how many.
        max_line_bytes: See `MAX_LINE_BYTES`.
        numbers: Numbers of the first lines.
        next_number: Number of the first line behind those.
        asked_again: The client sends again what has no reply when the connection ends; so what
            could not be finished in time is not answered with an error.
    """

    def __init__(
        self,
        stream: BinaryIO,
        write: Callable[[memoryview], int],
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        numbers: Sequence[int] = (),
        next_number: int = 1,
        asked_again: bool = False,
    ) -> None:
        self._stream = stream
        self._send_some = write
        self._max_line_bytes = max_line_bytes
        self._numbers = itertools.chain(numbers, itertools.count(next_number))
        self._asked_again = asked_again
        self.number = 0
        self._write_lock = threading.Lock()
        self._broken = False
        self._waiting: set[Any] = set()
        self._answered = threading.Condition()
        self._stop_by = math.inf
        # The reader pauses when 256 lines wait: that is the back-pressure.
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._room = threading.Semaphore(256)
        self.last_line = time.monotonic()

    @classmethod
    def of_descriptors(cls, read_fd: int, write_fd: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> Wire:
        """Returns a wire over two file descriptors, which stay the caller's to close."""
        stream = os.fdopen(read_fd, "rb", closefd=False)
        return cls(stream, lambda some: os.write(write_fd, some), max_line_bytes=max_line_bytes)

    def start(self) -> None:
        """Starts reading."""
        threading.Thread(target=self._read, name="subconscious-wire", daemon=True).start()

    def _read(self) -> None:
        try:
            stream, most = self._stream, self._max_line_bytes
            while raw := stream.readline(most + 1):
                self._room.acquire()
                self.last_line = time.monotonic()
                if len(raw) > most:
                    while not raw.endswith(b"\n") and (raw := stream.readline(most)):
                        pass
                    self.events.put(Oversized())
                else:
                    self.events.put(raw)
        except (OSError, ValueError):
            # The other end is gone, or the stream was closed under us.
            pass
        self.events.put(End.CLOSED)

    def next_event(self) -> Event:
        """Returns the next line, or why there is none; waits for it. `number` is then the line's."""
        event = self.events.get()
        if not isinstance(event, End):
            self._room.release()
            self.number = next(self._numbers)
        return event

    def stop(self) -> None:
        """Ends the stream of events as a signal does, also where the end is being waited out."""
        # Called by a signal handler, which may take no lock that the thread below it holds.
        self._stop_by = min(self._stop_by, time.monotonic() + STOP_SECONDS)
        self.events.put(End.STOPPED)

    def expect_reply(self, request_id: Any) -> None:
        """Notes that a request waits for its reply, for `wait_until_answered`."""
        with self._answered:
            self._waiting.add(_hashable(request_id))

    def expect_no_reply(self, request_id: Any) -> None:
        """Notes that nobody waits for a reply any more: it came, or the client cancelled the request."""
        with self._answered:
            self._waiting.discard(_hashable(request_id))
            self.last_line = time.monotonic()
            self._answered.notify_all()

    def quiet_seconds(self) -> float:
        """Returns how long ago the last line came or the last reply went; 0 while a request waits for its own."""
        return 0.0 if self._waiting else time.monotonic() - self.last_line

    def send(self, message: dict[str, Any]) -> None:
        """Writes one message as one line; a client that is gone loses it."""
        try:
            data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        except UnicodeEncodeError:
            # The id of a request may hold a lone surrogate, and the reply must bear that very id.
            data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._write_lock:
            view = memoryview(data)
            while view and not self._broken:
                try:
                    view = view[self._send_some(view) :]
                except OSError:
                    self._broken = True
        if "method" not in message:
            self.expect_no_reply(message.get("id"))

    def wait_until_answered(self) -> bool:
        """Waits until every request has its reply, as long as the end of the session allows.

        Returns:
            Whether that came to be.
        """
        drained_by = time.monotonic() + DRAIN_SECONDS
        with self._answered:
            while self._waiting and not self._broken:
                left = min(drained_by, self._stop_by) - time.monotonic()
                if left <= 0:
                    self._broken = self._asked_again
                    return False
                # In slices, because a signal cannot wake a thread that waits here.
                self._answered.wait(min(left, 0.1))
            return True


def _hashable(request_id: Any) -> Any:
    # 1 and "1" are two ids, and 1 and 1.0 and true are equal in Python.
    return (type(request_id).__name__, request_id) if isinstance(request_id, (str, int, float)) else repr(request_id)


def own_standard_streams() -> Wire:
    """Takes descriptors 0 and 1 for the wire and points 1 at standard error.

    Returns:
        The wire over private duplicates of them.
    """
    try:
        sys.stdout.flush()
        os.fstat(0)
        os.fstat(1)
    except (AttributeError, OSError):
        raise SystemExit("subconscious-mcp: standard input or output is closed, so there is no client.") from None
    null = os.open(os.devnull, os.O_RDWR)
    if null == 2:
        # Standard error is closed: this stays in its place, so that stray prints go nowhere. Otherwise the
        # wire or the next file that is opened would get its number, and the prints.
        null = os.dup(null)
    read_fd, write_fd = os.dup(0), os.dup(1)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":  # pragma: no cover - not run on the platform that is measured
        import msvcrt

        # Text mode would turn the line ends of the wire into CRLF.
        msvcrt.setmode(read_fd, os.O_BINARY)
        msvcrt.setmode(write_fd, os.O_BINARY)
    return Wire.of_descriptors(read_fd, write_fd)
