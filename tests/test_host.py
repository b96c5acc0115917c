"""What the connections of one process share, and what becomes of them where it cannot be made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeEmbedder
from interaction import PATIENCE, Lines

from subconscious_mcp import opening
from subconscious_mcp.config import Config
from subconscious_mcp.early_session import INTERNAL_ERROR
from subconscious_mcp.errors import ConfigError
from subconscious_mcp.host import Host
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.session import Session
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.wire import Wire

TASK = "Export the monthly sales report of the northern region"
HERE = Derived("tests", None, "tests")


class Window(Lines):
    """A client's connection to a host in this process."""

    def __init__(self, host: Host, make_session: Callable[[], Session]) -> None:
        to_host, from_host = os.pipe(), os.pipe()
        self._host_ends = (to_host[0], from_host[1])
        self._wire = Wire.of_descriptors(*self._host_ends)
        self._thread = threading.Thread(target=self._serve, args=(host, make_session))
        super().__init__(from_host[0], to_host[1])
        self._thread.start()

    def _serve(self, host: Host, make_session: Callable[[], Session]) -> None:
        try:
            host.serve(self._wire, make_session)
        finally:
            os.close(self._host_ends[1])

    def ended(self) -> bool:
        """Waits until the host has let the connection go."""
        self._thread.join(PATIENCE)
        return not self._thread.is_alive()

    def close(self) -> None:
        self.close_input()
        self._kept = self.rest()
        assert self.ended()
        os.close(self._host_ends[0])
        os.close(self._read_fd)


@pytest.fixture
def storage(config: Config) -> Path:
    config.storage_dir.mkdir(parents=True)
    return config.storage_dir


@pytest.fixture
def host(storage: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host with the fake embedder, started without loading it; closed at the end."""
    embedder = FakeEmbedder()
    monkeypatch.setattr(opening, "load_embedder", lambda config, progress=None: embedder)
    host = Host(storage, command="tests")
    host.start(None)
    yield host
    host.close()


def is_free(storage: Path) -> bool:
    StorageLock(storage, "tests").release()
    return True


def test_windows_share_what_is_stored_early_and_through_the_sdk(host: Host, config: Config) -> None:
    one, other = (Window(host, lambda: host.session(config, HERE)) for _ in range(2))
    one.handshake()
    other.handshake()
    entry_id = one.call("remember", {"task": TASK, "answer": "x"}).payload["entry_id"]
    other.let_sdk_take_over()
    assert other.call("recall", {"task": TASK}).payload["entry_id"] == entry_id
    assert host.quiet_seconds() < PATIENCE
    for window in (one, other):
        window.close()


def test_a_signal_ends_every_connection(host: Host, config: Config) -> None:
    opened = [Window(host, lambda: host.session(config, HERE)) for _ in range(3)]
    for window in opened:
        window.handshake()
    opened[1].let_sdk_take_over()
    host.stop()
    for window in opened:
        assert window.ended()
        assert window.rest() == []
        window.close()


def test_a_host_that_is_closed_gives_the_directory_free(host: Host, config: Config, storage: Path) -> None:
    window = Window(host, lambda: host.session(config, HERE))
    window.handshake()
    assert window.call("stats", {}).payload["total_entries"] == 0
    with pytest.raises(Exception, match="in use by"):
        StorageLock(storage, "tests")
    window.close()
    host.close()
    assert is_free(storage)
    assert "The server is ending. Try again." in host.session(config, HERE).call("stats", {}).text


def test_settings_that_cannot_be_used_are_the_answer_to_each_call(host: Host, config: Config, storage: Path) -> None:
    fault = ConfigError("The settings are wrong.", "Mend them.")
    window = Window(host, lambda: host.fault_session(config, fault))
    window.handshake()
    assert window.tools()
    for _ in range(2):
        assert window.call("stats", {}).error == "The settings are wrong. Mend them."
    window.close()
    assert list(storage.iterdir()) == []


@pytest.mark.parametrize("locked", [True, False])
def test_what_prevents_the_start_is_told_to_the_client_and_the_directory_is_given_free(
    storage: Path, config: Config, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ImportError("a library is damaged")

    monkeypatch.setattr(opening, "SharedMemory", broken)
    host = Host(storage, command="tests", lock=StorageLock(storage, "tests") if locked else None)
    host.start(config)
    window = Window(host, lambda: host.session(config, HERE))
    window.handshake()
    for method in ("tools/list", "tools/call"):
        params = {"name": "stats", "arguments": {}} if method == "tools/call" else None
        error = window.request(method, params)["error"]
        assert error["code"] == INTERNAL_ERROR
        assert error["message"] == "The server could not start (ImportError); see logs/server.log."
    assert window.request("ping")["result"] == {}
    window.close()
    host.close()
    assert is_free(storage)
