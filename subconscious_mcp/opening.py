"""From settings to an open memory: the one place where the parts are put together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from subconscious_mcp.config import Config
from subconscious_mcp.embedding import Embedder, shared
from subconscious_mcp.errors import Closing, SubconsciousError
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.model_files import Progress, ensure
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


def open_store(config: Config, command: str) -> LocalStore:
    """Opens the configured storage directory and takes its lock.

    Raises:
        StorageError: It is in use, or cannot be used.
    """
    return LocalStore(
        config.storage_dir,
        command=command,
        index=ChromaIndex(config.storage_dir, embedding_function=_function_for(config)),
    )


def _function_for(config: Config) -> Callable[[], Any]:
    def build() -> Any:
        from subconscious_mcp.embedding import MiniLMEmbeddingFunction

        return MiniLMEmbeddingFunction(
            config.embedding_model,
            models_dir=config.models_dir,
            allow_download=config.model_download == "auto",
        )

    return build


def open_memory(
    config: Config, *, command: str, progress: Progress | None = None, store: LocalStore | None = None
) -> Memory:
    """Opens the memory of the configured storage directory; the model is loaded at first use.

    Args:
        command: What this process is, for the message that a second one shows.
        progress: Told of a model's download.

    Raises:
        StorageError: The directory is in use, or cannot be used.
    """
    store = store or open_store(config, command)
    return Memory(store, config.storage_dir, lambda: load_embedder(config, progress))


class SharedMemory:
    """A memory that opens itself at first use, for sessions in several threads.

    What prevents the opening (a second window that holds the directory, a missing model) is
    told to each call, and the next call tries again: the cause may be gone.

    Args:
        idle_seconds: See `LocalStore.start_indexing`.
    """

    def __init__(self, config: Config, *, command: str, idle_seconds: float = 0.0) -> None:
        self._config = config
        self._command = command
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        self._closed = False

    def get(self) -> Memory:
        """Returns the open memory with its model loaded.

        Raises:
            SubconsciousError: Why it cannot be opened.
        """
        with self._lock:
            if self._closed:
                raise Closing("The server is ending.", "Try again.")
            if self._memory is None:
                self._memory = open_memory(self._config, command=self._command)
            memory = self._memory
        embedder = memory.embedder()
        if isinstance(memory.store, LocalStore):
            memory.store.start_indexing(embedder.fingerprint, embedder.dimension, idle_seconds=self._idle_seconds)
        return memory

    def warm(self) -> None:
        """Opens the memory before the first call needs it; what prevents it is logged."""
        try:
            self.get()
        except SubconsciousError as error:
            log.error("%s", error)
        except Exception:
            log.exception("Opening the memory failed.")

    def close(self) -> None:
        """Finishes what is noted and gives the storage directory free."""
        with self._lock:
            self._closed = True
            memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
