"""Where an engine listens, and what is made of an engine.json that says something else."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from subconscious_mcp import endpoint


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The temporary folder, as short as the sockets in it need."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


@pytest.fixture
def storage(shared: Path) -> Path:
    folder = shared / "data"
    folder.mkdir()
    return folder


def talks(listener: socket.socket, found: dict[str, Any]) -> bool:
    with closing(endpoint.connect(found, 10.0)) as client, closing(listener.accept()[0]) as server:
        server.sendall(b"a line\nand more")
        return endpoint.read_line(client) == b"a line\n" and client.recv(100) == b"and more"


def test_the_socket_lies_in_a_private_folder_of_the_storage_directory(storage: Path) -> None:
    listener, found = endpoint.listen(str(storage), "auto")
    with closing(listener):
        assert found == {"socket": str(storage / "engine" / "socket")}
        assert (storage / "engine").stat().st_mode & 0o777 == 0o700
        assert (storage / "engine" / "socket").stat().st_mode & 0o777 == 0o600
        assert talks(listener, found)


def test_a_socket_that_was_left_behind_is_replaced(storage: Path) -> None:
    first, found = endpoint.listen(str(storage), "auto")
    first.close()
    with pytest.raises(OSError):
        endpoint.connect(found, 10.0)
    second, again = endpoint.listen(str(storage), "auto")
    with closing(second):
        assert again == found
        assert talks(second, again)


def test_a_path_that_is_too_long_leads_to_the_temporary_folder(shared: Path) -> None:
    folders = [shared / ("long " * 20) / name for name in ("a", "b")]
    listeners = []
    for folder in folders:
        folder.mkdir(parents=True)
        listener, found = endpoint.listen(str(folder), "auto")
        listeners.append(listener)
        assert found["socket"].startswith(f"{shared}/subconscious-mcp-{os.getuid()}/")
        assert talks(listener, found)
    assert len(list((shared / f"subconscious-mcp-{os.getuid()}").iterdir())) == 2
    for listener in listeners:
        listener.close()


def test_a_runtime_folder_of_the_session_comes_before_the_temporary_one(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared / "run"))
    listener, found = endpoint.listen(str(shared / ("x" * 100)), "auto")
    listener.close()
    assert found["socket"].startswith(f"{shared}/run/subconscious-mcp-")


def _taken(storage: Path) -> None:
    (storage / "engine").write_text("a file")


def _open_to_others(storage: Path) -> None:
    (storage / "engine").mkdir()
    (storage / "engine").chmod(0o755)


def _elsewhere(storage: Path) -> None:
    (storage / "other").mkdir(mode=0o700)
    (storage / "engine").symlink_to(storage / "other")


@pytest.mark.parametrize("spoil", [_taken, _open_to_others, _elsewhere])
def test_a_folder_that_is_not_private_is_not_used(storage: Path, shared: Path, spoil: Any) -> None:
    spoil(storage)
    listener, found = endpoint.listen(str(storage), "auto")
    with closing(listener):
        assert found["socket"].startswith(f"{shared}/subconscious-mcp-")
        assert talks(listener, found)


def test_a_folder_of_somebody_else_is_not_used(storage: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: theirs)
    listener, found = endpoint.listen(str(storage), "auto")
    listener.close()
    assert "port" in found
    with pytest.raises(OSError):
        endpoint.listen(str(storage), "unix")


def test_where_there_are_no_sockets_it_is_loopback_with_a_token(
    storage: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> socket.socket:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(endpoint, "_listen_unix", refuse)
    tokens = set()
    for _ in range(2):
        listener, found = endpoint.listen(str(storage), "auto")
        with closing(listener):
            assert listener.getsockname()[0] == "127.0.0.1"
            assert len(found["token"]) == 64
            tokens.add(found["token"])
            assert talks(listener, found)
    assert len(tokens) == 2
    with pytest.raises(OSError):
        endpoint.listen(str(storage), "unix")


def test_a_system_that_knows_no_unix_sockets(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, unreachable = endpoint.listen(str(storage), "auto")
    listener.close()
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(OSError, match="no Unix sockets here"):
        endpoint.connect(unreachable, 10.0)
    listener, found = endpoint.listen(str(storage), "auto")
    with closing(listener):
        assert set(found) == {"port", "token"}
        assert talks(listener, found)


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_a_socket_that_cannot_be_opened_is_closed_again(
    storage: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    closed = []

    class Refused(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(13, "Permission denied")

        def close(self) -> None:
            closed.append(self.family)
            super().close()

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(OSError, match=r"no Unix socket can be opened|Permission denied"):
        endpoint.listen(str(storage), transport)
    assert set(closed) == {socket.AF_UNIX if transport == "unix" else socket.AF_INET}


def test_tcp_can_be_asked_for(storage: Path) -> None:
    listener, found = endpoint.listen(str(storage), "tcp")
    with closing(listener):
        assert set(found) == {"port", "token"}
        assert talks(listener, found)


def test_what_is_published_is_private_whole_and_withdrawn(storage: Path) -> None:
    facts = {"socket": str(storage / "socket"), "pid": 1}
    assert endpoint.read(str(storage)) is None
    (storage / "engine.json").write_text("x" * 1000)
    (storage / "socket").touch()
    endpoint.publish(str(storage), facts)
    assert endpoint.read(str(storage)) == facts
    assert (storage / "engine.json").stat().st_mode & 0o777 == 0o600
    endpoint.withdraw(str(storage), facts)
    assert list(storage.iterdir()) == []
    endpoint.withdraw(str(storage), facts)


def test_a_socket_that_is_gone_already_is_withdrawn_too(storage: Path) -> None:
    facts = {"socket": str(storage / "gone"), "pid": 1}
    endpoint.publish(str(storage), facts)
    endpoint.withdraw(str(storage), facts)
    assert list(storage.iterdir()) == []
    tcp = {"port": 1, "token": "x"}
    endpoint.publish(str(storage), tcp)
    endpoint.withdraw(str(storage), tcp)
    assert list(storage.iterdir()) == []


def test_the_endpoint_of_another_engine_is_not_withdrawn(storage: Path) -> None:
    endpoint.publish(str(storage), {"socket": str(storage / "socket"), "pid": 2})
    (storage / "socket").touch()
    endpoint.withdraw(str(storage), {"socket": str(storage / "socket"), "pid": 1})
    assert sorted(path.name for path in storage.iterdir()) == ["engine.json", "socket"]


DAMAGED = ["", "{", "[]", "null", "\x00", "[" * 100_000, '"text"']


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_counts_as_none(storage: Path, text: str) -> None:
    (storage / "engine.json").write_text(text)
    assert endpoint.read(str(storage)) is None


PLACES: list[dict[str, Any]] = [
    {},
    {"socket": ""},
    {"socket": None},
    {"socket": "x" * 5000},
    {"socket": "a\0b"},
    {"socket": "/nowhere/at/all"},
    {"port": None},
    {"port": "abc"},
    {"port": -1},
    {"port": 10**9},
    {"port": [1]},
]


@pytest.mark.parametrize("place", PLACES, ids=json.dumps)
def test_a_place_that_is_none_refuses_as_an_engine_does_that_is_gone(place: dict[str, Any]) -> None:
    with pytest.raises(OSError):
        endpoint.connect(place, 10.0)


@pytest.mark.parametrize("said", [b"", b"half a line", b"x" * 100])
def test_a_greeting_that_does_not_end_is_an_error(said: bytes) -> None:
    one, other = socket.socketpair()
    with closing(one):
        sender = threading.Thread(target=lambda: (other.sendall(said), other.close()))
        sender.start()
        with pytest.raises(OSError):
            endpoint.read_line(one, most=50)
        sender.join()
