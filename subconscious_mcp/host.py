"""Serves connections: what every one of them needs, made once and as late as can be.

What a client waits for comes first: the handshake is answered before anything large is
imported, the first calls as soon as the model is loaded. The MCP SDK and Chroma are imported
when the clients are quiet, or when something comes that needs them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from subconscious_mcp.config import Config
from subconscious_mcp.early_session import EarlySession
from subconscious_mcp.errors import SubconsciousError
from subconscious_mcp.heavy_imports import one_at_a_time
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.storage_lock import StorageLock
from subconscious_mcp.wire import End, Wire

if TYPE_CHECKING:
    from subconscious_mcp.ingest import Ingester
    from subconscious_mcp.memory import Memory
    from subconscious_mcp.opening import SharedMemory
    from subconscious_mcp.session import Session

log = logging.getLogger(__name__)

SDK_IDLE_SECONDS = 1.0
"""Quiet on the wires before the SDK is imported: the import takes more than a second of
processor time, and a call that comes meanwhile takes twice as long."""
CHROMA_IDLE_SECONDS = 3.0
"""The same for Chroma, behind the SDK; see `LocalStore.start_indexing`."""

INGEST_IDLE_SECONDS = 0.3
"""The same for each episode of the inbox, which takes a few milliseconds to embed."""


class Host:
    """What the connections of one process share: the memory, and the SDK once it is there.

    Args:
        storage_dir: The storage directory, opened at the first call.
        command: What this process is, for the message that a second one shows.
        lock: The directory's lock where this process has it already.
    """

    def __init__(self, storage_dir: Path, *, command: str, lock: StorageLock | None = None) -> None:
        self._storage_dir = storage_dir
        self._command = command
        self._lock = lock
        self._memory: Future[SharedMemory] = Future()
        self._sdk_wanted = threading.Event()
        self._sdk_there = threading.Event()
        self._wires: set[Wire] = set()
        self._ingester: Ingester | None = None
        self._wires_lock = threading.Lock()
        self.last_line = time.monotonic()

    def start(self, warm: Config | None) -> None:
        """Begins to import in the background.

        Args:
            warm: Settings whose model is loaded before the first call needs it.
        """
        threading.Thread(target=self._start, args=(warm,), name="subconscious-start", daemon=True).start()

    def _start(self, warm: Config | None) -> None:
        try:
            from subconscious_mcp.opening import SharedMemory

            memory = SharedMemory(
                self._storage_dir, command=self._command, lock=self._lock, idle_seconds=CHROMA_IDLE_SECONDS
            )
        except BaseException as error:  # whoever waits for it must not wait for ever
            self._memory.set_exception(error)
            return
        self._memory.set_result(memory)
        if warm is not None:
            memory.warm(warm)
            self._follow_inbox(memory, warm)
        while not self._sdk_wanted.wait(0.1):
            if self.quiet_seconds() >= SDK_IDLE_SECONDS:
                break
        with one_at_a_time:
            import subconscious_mcp.sdk_session  # noqa: F401
        self._sdk_there.set()

    def _follow_inbox(self, memory: SharedMemory, config: Config) -> None:
        from subconscious_mcp.inbox import ENGINE_WAIT_SECONDS, Inbox
        from subconscious_mcp.ingest import Ingester

        inbox = Inbox(str(self._storage_dir), wait_seconds=ENGINE_WAIT_SECONDS)
        self._ingester = Ingester(
            inbox, lambda: memory.get(config), lambda: self.quiet_seconds() >= INGEST_IDLE_SECONDS
        )
        self._ingester.start()

    def quiet_seconds(self) -> float:
        """Returns how long no client has wanted anything: none has asked, and none waits for a reply."""
        with self._wires_lock:
            quiet = [wire.quiet_seconds() for wire in self._wires]
        # Also of those that have no wire here: HTTP's.
        return min([*quiet, time.monotonic() - self.last_line])

    def memory(self) -> SharedMemory:
        """Returns the shared memory, waiting for the imports that it needs."""
        return self._memory.result()

    def session(self, config: Config, derived: Derived, client: str = "") -> Session:
        """Returns a session on the shared memory, waiting for the imports that it needs.

        Args:
            client: Identity of a client that may send a request again, or empty.
        """
        memory = self.memory()
        from subconscious_mcp.session import Session

        return Session(config, derived, lambda: memory.get(config), client)

    def fault_session(self, config: Config, fault: SubconsciousError) -> Session:
        """Returns a session in which every call answers `fault`."""
        from subconscious_mcp.session import Session

        def refuse() -> Memory:
            raise fault

        return Session(config, Derived("default", None, "no settings"), refuse)

    def serve(self, wire: Wire, make_session: Callable[[], Session], toolset: str = "cache") -> None:
        """Serves a connection until its end, and until every call has its reply.

        Args:
            make_session: Returns its session; may wait.
            toolset: Of the session, for the handshake, which does not wait for it.
        """
        session: Future[Session] = Future()

        def make() -> None:
            try:
                session.set_result(make_session())
            except BaseException as error:  # told to whoever waits for the session
                session.set_exception(error)

        with self._wires_lock:
            self._wires.add(wire)
        try:
            threading.Thread(target=make, name="subconscious-session", daemon=True).start()
            wire.start()
            early = EarlySession(wire, session.result, self._sdk_there.is_set, toolset)
            early.serve()
            if isinstance(early.handover.waiting, End):
                # Over before the SDK was needed: it is not imported only to say goodbye.
                wire.wait_until_answered()
                return
            self._sdk_wanted.set()
            with one_at_a_time:
                from subconscious_mcp.sdk_session import serve as serve_sdk
            serve_sdk(wire, session.result(), early.handover)
        finally:
            self.last_line = time.monotonic()
            with self._wires_lock:
                self._wires.discard(wire)

    def stop(self) -> None:
        """Ends every connection as a signal does."""
        with self._wires_lock:
            for wire in self._wires:
                wire.stop()

    def close(self) -> None:
        """Finishes what is noted and gives the storage directory free."""
        try:
            memory = self.memory()
        except BaseException:
            log.exception("The server could not start.")
            if self._lock is not None:
                self._lock.release()
            return
        if self._ingester is not None:
            self._ingester.close()
        memory.close()
