from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator

import pytest

from subconscious_mcp import wire as module
from subconscious_mcp.wire import End, Oversized, Wire


class Ends:
    """A wire and the client's two ends of it."""

    def __init__(self, **options: int) -> None:
        server_read, self.to_server = os.pipe()
        self.from_server, server_write = os.pipe()
        self.wire = Wire.of_descriptors(server_read, server_write, **options)
        self.server_fds = (server_read, server_write)

    def close(self, *fds: int) -> None:
        for fd in fds:
            os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    for fd in (*ends.server_fds, ends.to_server, ends.from_server):
        try:
            os.close(fd)
        except OSError:
            continue


def test_lines_come_in_order_then_the_end(ends: Ends) -> None:
    ends.wire.start()
    os.write(ends.to_server, b"one\ntwo\n\xff\xfe\n\nunfinished")
    os.close(ends.to_server)
    events = [ends.wire.next_event() for _ in range(6)]
    assert events == [b"one\n", b"two\n", b"\xff\xfe\n", b"\n", b"unfinished", End.CLOSED]


def test_more_lines_than_wait_at_once_come_all(ends: Ends) -> None:
    ends.wire.start()
    lines = [b"%d\n" % number for number in range(1000)]
    os.write(ends.to_server, b"".join(lines))
    assert [ends.wire.next_event() for _ in lines] == lines


@pytest.mark.parametrize("length", [11, 12, 20, 21, 22, 100])
def test_a_line_that_is_too_long_is_passed_over_whole(length: int) -> None:
    ends = Ends(max_line_bytes=10)
    ends.wire.start()
    os.write(ends.to_server, b"x" * length + b"\nnext\n" + b"y" * length)
    os.close(ends.to_server)
    assert isinstance(ends.wire.next_event(), Oversized)
    assert ends.wire.next_event() == b"next\n"
    assert isinstance(ends.wire.next_event(), Oversized)
    assert ends.wire.next_event() is End.CLOSED
    ends.close(*ends.server_fds, ends.from_server)


def test_a_line_of_the_greatest_length_is_read() -> None:
    ends = Ends(max_line_bytes=10)
    ends.wire.start()
    os.write(ends.to_server, b"123456789\n")
    assert ends.wire.next_event() == b"123456789\n"
    os.close(ends.to_server)
    assert ends.wire.next_event() is End.CLOSED
    ends.close(*ends.server_fds, ends.from_server)


def test_an_end_that_cannot_be_read_is_closed(ends: Ends) -> None:
    wire = Wire.of_descriptors(ends.server_fds[1], ends.server_fds[1])
    wire.start()
    assert wire.next_event() is End.CLOSED


def test_a_signal_comes_behind_the_lines(ends: Ends) -> None:
    ends.wire.start()
    os.write(ends.to_server, b"one\n")
    assert ends.wire.next_event() == b"one\n"
    ends.wire.stop()
    assert ends.wire.next_event() is End.STOPPED


@pytest.mark.parametrize("text", ["plain", "★ 🦇 记忆", "a\nb\u2028c", "half \ud800"])
def test_a_message_is_one_line_of_utf8(ends: Ends, text: str) -> None:
    ends.wire.send({"id": text, "result": text})
    line = os.read(ends.from_server, 1000)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line.decode("utf-8")) == {"id": text, "result": text}


def test_a_message_larger_than_the_pipe_comes_whole(ends: Ends) -> None:
    text = "x" * 1_000_000
    sender = threading.Thread(target=ends.wire.send, args=({"id": 1, "result": text},))
    sender.start()
    received = b""
    while not received.endswith(b"\n"):
        received += os.read(ends.from_server, 65536)
    sender.join()
    assert json.loads(received)["result"] == text


@pytest.mark.parametrize("other", ["1", 1.0, 2, None, [1]])
def test_a_request_waits_for_the_reply_to_its_own_id(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, other: object
) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.0)
    ends.wire.expect_reply(1)
    assert not ends.wire.wait_until_answered()
    ends.wire.send({"id": other, "result": {}})
    assert not ends.wire.wait_until_answered()
    ends.wire.send({"id": 1, "method": "sampling/createMessage"})
    assert not ends.wire.wait_until_answered()
    ends.wire.send({"id": 1, "result": {}})
    assert ends.wire.wait_until_answered()


def test_the_wait_ends_with_the_reply_of_another_thread(ends: Ends) -> None:
    ends.wire.expect_reply("a")
    sender = threading.Thread(target=ends.wire.send, args=({"id": "a", "result": {}},))
    sender.start()
    assert ends.wire.wait_until_answered()
    sender.join()


def test_a_cancelled_request_waits_for_nothing(ends: Ends) -> None:
    ends.wire.expect_reply(7)
    ends.wire.expect_no_reply(7)
    ends.wire.expect_no_reply("never asked")
    assert ends.wire.wait_until_answered()


def test_a_signal_shortens_the_wait(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.0)
    ends.wire.expect_reply(1)
    ends.wire.stop()
    assert not ends.wire.wait_until_answered()


def test_a_client_that_is_gone_is_waited_for_no_more(ends: Ends) -> None:
    ends.wire.expect_reply(1)
    ends.wire.expect_reply(2)
    os.close(ends.from_server)
    ends.wire.send({"id": 1, "result": {}})
    assert ends.wire.wait_until_answered()
    ends.wire.send({"id": 2, "result": {}})


def test_a_wire_is_not_quiet_while_a_request_waits_for_its_reply() -> None:
    wire = Wire(io.BytesIO(), lambda some: len(some))
    wire.last_line -= 100.0
    assert wire.quiet_seconds() >= 100.0
    wire.expect_reply(1)
    assert wire.quiet_seconds() == 0.0
    wire.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert wire.quiet_seconds() < 100.0
