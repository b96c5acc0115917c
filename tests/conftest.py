"""Fixtures that every test may use, and the rule that no test reaches the network."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakes import Clock, FakeEmbedder

from subconscious_mcp.config import Config, resolve
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.vectors import ChromaIndex

pytest_plugins = ["model_fixture"]

_real_connect = socket.socket.connect


def _loopback_only(self: socket.socket, address: Any) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6):
        try:
            loopback = ipaddress.ip_address(address[0]).is_loopback
        except ValueError:
            loopback = address[0] == "localhost"
        if not loopback:
            raise OSError(f"tests reach no network, and this one asked for {address[0]}")
    _real_connect(self, address)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _loopback_only)


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the settings and the data of whoever runs it."""
    import os

    for name in [name for name in os.environ if name.startswith("SUBCONSCIOUS_")]:
        if name != "SUBCONSCIOUS_TEST_MODELS_DIR":
            monkeypatch.delenv(name)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.setenv("SUBCONSCIOUS_HOME", str(tmp_path / "subconscious-home"))


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    # Tests place words that mean nothing at a similarity; the check of meanings has its own tests.
    return replace(resolve().config, storage_dir=tmp_path / "data", namespace="tests", verify_hits=False)


OpenMemory = Callable[..., Memory]


@pytest.fixture
def open_memory(tmp_path: Path, embedder: FakeEmbedder, clock: Clock) -> Iterator[OpenMemory]:
    """Opens memories with the fake embedder; whatever is left open is closed at the end.

    Arguments of the returned function: `folder`, `embedder`, `exact_limit`, `index`.
    """
    opened: list[Memory] = []

    def opener(
        folder: Path = tmp_path / "data",
        embedder: FakeEmbedder = embedder,
        index: ChromaIndex | None = None,
        **options: Any,
    ) -> Memory:
        store = LocalStore(folder, command="tests", index=index, **options)
        memory = Memory(store, folder, lambda: embedder, clock=clock)
        opened.append(memory)
        return memory

    yield opener
    for memory in opened:
        with contextlib.suppress(Exception):
            memory.close()


@pytest.fixture
def memory(open_memory: OpenMemory) -> Memory:
    return open_memory()


@pytest.fixture
def scope(memory: Memory, config: Config) -> Scope:
    return memory.scope(config, "tests", None)
