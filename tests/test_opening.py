"""From settings to an open memory, shared between sessions, and what prevents it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeEmbedder

from subconscious_mcp import opening
from subconscious_mcp.config import Config
from subconscious_mcp.errors import Closing, ModelMissing, StorageBusy, StorageError
from subconscious_mcp.opening import SharedMemory
from subconscious_mcp.storage_lock import StorageLock


@pytest.fixture
def shared(config: Config, monkeypatch: pytest.MonkeyPatch) -> SharedMemory:
    """A shared memory in which each model has an embedder of its own."""
    embedders = {"other": FakeEmbedder("07e407e407e4")}
    usual = FakeEmbedder()
    monkeypatch.setattr(
        opening, "load_embedder", lambda config, progress=None: embedders.get(config.embedding_model, usual)
    )
    return SharedMemory(config.storage_dir, command="tests", idle_seconds=1e9)


def test_sessions_share_a_memory_and_models_the_store(shared: SharedMemory, config: Config) -> None:
    assert shared.facts() == {"entries": 0, "namespaces": 0, "models": []}
    memory = shared.get(config)
    assert shared.get(config) is memory
    memory.remember(memory.scope(config, "tests", None), "a task", "an answer")
    other = shared.get(replace(config, embedding_model="other"))
    assert other is not memory
    assert other.stats(other.scope(config, "tests", None)).total_entries == 1
    assert shared.store(config) is memory.store is other.store
    assert shared.facts() == {
        "entries": 1,
        "namespaces": 1,
        "models": [{"model": config.embedding_model, "loaded": True}, {"model": "other", "loaded": False}],
    }
    shared.close()
    StorageLock(config.storage_dir, "tests").release()


def test_what_was_closed_says_so_to_whoever_asks(shared: SharedMemory, config: Config) -> None:
    shared.store(config)
    shared.close()
    for ask in (shared.get, shared.store):
        with pytest.raises(Closing, match="The server is ending"):
            ask(config)


def test_what_was_never_opened_gives_its_lock_free(config: Config) -> None:
    config.storage_dir.mkdir(parents=True)
    shared = SharedMemory(
        config.storage_dir, command="tests", lock=StorageLock(config.storage_dir, "another's"), idle_seconds=1e9
    )
    with pytest.raises(StorageBusy):
        StorageLock(config.storage_dir, "tests")
    shared.close()
    StorageLock(config.storage_dir, "tests").release()
    SharedMemory(config.storage_dir, command="tests").close()


def test_a_lock_that_is_held_already_is_used_and_given_free(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "load_embedder", lambda config, progress=None: FakeEmbedder())
    config.storage_dir.mkdir(parents=True)
    lock = StorageLock(config.storage_dir, "tests")
    shared = SharedMemory(config.storage_dir, command="tests", lock=lock, idle_seconds=1e9)
    shared.warm(config)
    assert shared.facts()["models"] == [{"model": config.embedding_model, "loaded": True}]
    shared.close()
    StorageLock(config.storage_dir, "tests").release()


def test_what_prevents_the_opening_is_told_each_time_until_it_is_gone(shared: SharedMemory, config: Config) -> None:
    config.storage_dir.parent.mkdir(parents=True, exist_ok=True)
    config.storage_dir.write_text("a file in its place")
    for _ in range(2):
        with pytest.raises(StorageError):
            shared.get(config)
    config.storage_dir.unlink()
    assert shared.get(config).stats(shared.get(config).scope(config, "tests", None)).total_entries == 0
    shared.close()


def test_what_prevents_the_warming_is_logged(
    shared: SharedMemory, config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(config: Config, progress: object = None) -> FakeEmbedder:
        raise ModelMissing("The model is not installed.", "Install it.")

    def broken(config: Config, progress: object = None) -> FakeEmbedder:
        raise RuntimeError("a fault of ours")

    for load, told in ((missing, "The model is not installed. Install it."), (broken, "Opening the memory failed.")):
        caplog.clear()
        monkeypatch.setattr(opening, "load_embedder", load)
        shared.warm(config)
        (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert record.getMessage() == told
    shared.close()


def test_a_model_that_may_not_be_fetched_is_missing(config: Config, tmp_path: Path) -> None:
    config = replace(config, models_dir=tmp_path / "models", model_download="never")
    with pytest.raises(ModelMissing):
        opening.load_embedder(config)


def test_a_model_is_loaded_once_for_queries_of_the_memory_and_of_the_collection(
    config: Config, real_model_dir: Path
) -> None:
    config = replace(config, models_dir=real_model_dir.parent, model_download="never")
    embedder = opening.load_embedder(config)
    assert opening.load_embedder(config) is embedder
    # What Chroma asks for when somebody queries the index's collection by a text.
    function = opening._function_for(config)()
    (vector,) = function(["the monthly report"])
    assert np.array_equal(vector, embedder.embed(["the monthly report"])[0])
