"""From settings to an open memory: the one place where the parts are put together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from subconscious_mcp import verification
from subconscious_mcp.config import Config
from subconscious_mcp.embedding import Embedder, shared
from subconscious_mcp.errors import Closing, SubconsciousError
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.model_files import Progress, ensure
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.vectors import ChromaIndex

log = logging.getLogger(__name__)


def load_embedder(config: Config, progress: Progress | None = None) -> Embedder:
    """Loads the configured model, installing it first where that is allowed.

    Raises:
        ModelError: It is missing, damaged, or could not be fetched.
    """
    folder = ensure(
        config.embedding_model,
        config.models_dir,
        allow_download=config.model_download == "auto",
        progress=progress,
    )
    # Shared, because a query of the collection by its text would load the model a second time.
    return shared(folder)


def open_store(
    config: Config, command: str, *, folder: Path | None = None, lock: StorageLock | None = None
) -> LocalStore:
    """Opens the configured storage directory and takes its lock.

    Args:
        folder: The storage directory, where it is not the configured one.
        lock: The directory's lock where this process has it already.

    Raises:
        StorageError: It is in use, or cannot be used.
    """
    folder = folder or config.storage_dir
    index = ChromaIndex(folder, embedding_function=_function_for(config))
    return LocalStore(folder, command=command, index=index, lock=lock)


def _function_for(config: Config) -> Callable[[], Any]:
    def build() -> Any:
        from subconscious_mcp.embedding import MiniLMEmbeddingFunction

        return MiniLMEmbeddingFunction(
            config.embedding_model,
            models_dir=config.models_dir,
            allow_download=config.model_download == "auto",
        )

    return build


def open_memory(config: Config, *, command: str, progress: Progress | None = None) -> Memory:
    """Opens the memory of the configured storage directory; the model is loaded at first use.

    Args:
        command: What this process is, for the message that a second one shows.
        progress: Told of a model's download.

    Raises:
        StorageError: The directory is in use, or cannot be used.
    """
    store = open_store(config, command)
    return Memory(store, config.storage_dir, lambda: load_embedder(config, progress))


class SharedMemory:
    """The memory of a storage directory for sessions in several threads, opened at first use.

    Sessions may ask for different models; they share the store. What prevents the opening (a
    second window that holds the directory, a missing model) is told to each call, and the next
    call tries again: the cause may be gone.

    Args:
        folder: The storage directory.
        command: What this process is, for the message that a second one shows.
        lock: The directory's lock where this process has it already.
        idle_seconds: See `LocalStore.start_indexing`.
    """

    def __init__(
        self, folder: Path, *, command: str, lock: StorageLock | None = None, idle_seconds: float = 0.0
    ) -> None:
        self._folder = folder
        self._command = command
        self._storage_lock = lock
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._store: LocalStore | None = None
        self._memories: dict[tuple[str, Path], Memory] = {}
        self._closed = False

    def get(self, config: Config) -> Memory:
        """Returns the open memory; its model is loaded by the first call that embeds.

        Raises:
            SubconsciousError: Why it cannot be opened.
        """
        with self._lock:
            store = self._opened(config)
            wanted = (config.embedding_model, config.models_dir)
            if wanted not in self._memories:
                load = partial(self._load, config, store)
                self._memories[wanted] = Memory(store, self._folder, load, owns_store=False)
            return self._memories[wanted]

    def _load(self, config: Config, store: LocalStore) -> Embedder:
        embedder = load_embedder(config)
        # The index is that of the first model; another one's sets are searched exactly.
        with self._lock:
            store.start_indexing(embedder.fingerprint, embedder.dimension, idle_seconds=self._idle_seconds)
        return embedder

    def store(self, config: Config) -> LocalStore:
        """Returns the open store, whether or not there is a model.

        Raises:
            SubconsciousError: Why it cannot be opened.
        """
        with self._lock:
            return self._opened(config)

    def _opened(self, config: Config) -> LocalStore:
        if self._closed:
            raise Closing("The server is ending.", "Try again.")
        if self._store is None:
            self._store = open_store(config, self._command, folder=self._folder, lock=self._storage_lock)
        return self._store

    def warm(self, config: Config) -> None:
        """Opens the memory before the first call needs it; what prevents it is logged."""
        try:
            self.get(config).embedder()
            verification.warm()
        except SubconsciousError as error:
            log.error("%s", error)
        except Exception:
            log.exception("Opening the memory failed.")

    def facts(self) -> dict[str, Any]:
        """Returns what there is to say of it without opening it: entries and models."""
        with self._lock:
            store, memories = self._store, dict(self._memories)
        spaces = store.database.namespaces() if store is not None else []
        return {
            "entries": sum(count for _, count in spaces),
            "namespaces": len(spaces),
            "models": [{"model": name, "loaded": memory.is_loaded} for (name, _), memory in memories.items()],
        }

    def close(self) -> None:
        """Finishes what is noted and gives the storage directory free."""
        with self._lock:
            self._closed = True
            store, memories = self._store, list(self._memories.values())
        for memory in memories:
            memory.close()
        if store is not None:
            store.close()
        elif self._storage_lock is not None:
            self._storage_lock.release()
