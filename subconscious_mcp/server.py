"""The MCP server over stdio, in one process.

What a client waits for comes first: the handshake is answered before anything large is
imported, the first calls as soon as the model is loaded. The MCP SDK and Chroma are imported
when the client is quiet, or when something comes that needs them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from subconscious_mcp.config import Config
from subconscious_mcp.early_session import EarlySession
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.wire import DRAIN_SECONDS, STOP_SECONDS, End, Wire, own_standard_streams

if TYPE_CHECKING:
    from subconscious_mcp.opening import SharedMemory
    from subconscious_mcp.session import Session

log = logging.getLogger(__name__)

SDK_IDLE_SECONDS = 1.0
"""Quiet on the wire before the SDK is imported: the import takes more than a second of
processor time, and a call that comes meanwhile takes twice as long."""
CHROMA_IDLE_SECONDS = 3.0
"""The same for Chroma, behind the SDK; see `LocalStore.start_indexing`."""


class _Parts:
    """What serving needs and what takes long to make, made in the background."""

    def __init__(self, config: Config, derived: Derived, wire: Wire) -> None:
        self._config = config
        self._derived = derived
        self._wire = wire
        self._made: Future[tuple[Session, SharedMemory]] = Future()
        self._sdk_wanted = threading.Event()
        self._sdk_there = threading.Event()
        threading.Thread(target=self._run, name="subconscious-start", daemon=True).start()

    def _run(self) -> None:
        from subconscious_mcp.opening import SharedMemory
        from subconscious_mcp.session import Session

        memory = SharedMemory(self._config, command="subconscious-mcp server", idle_seconds=CHROMA_IDLE_SECONDS)
        self._made.set_result((Session(self._config, self._derived, memory.get), memory))
        memory.warm()
        while not self._sdk_wanted.wait(0.1):
            if time.monotonic() - self._wire.last_line >= SDK_IDLE_SECONDS:
                break
        import subconscious_mcp.sdk_session  # noqa: F401

        self._sdk_there.set()

    def session(self) -> Session:
        """Returns the session, waiting for the imports that it needs."""
        return self._made.result()[0]

    def sdk_is_there(self) -> bool:
        return self._sdk_there.is_set()

    def serve_with_sdk(self, early: EarlySession) -> None:
        self._sdk_wanted.set()
        from subconscious_mcp.sdk_session import serve as serve_sdk

        serve_sdk(self._wire, self.session(), early.handover)

    def close(self) -> None:
        self._made.result()[1].close()


def serve(config: Config, derived: Derived) -> int:
    """Serves one client over stdio until it closes its end or a signal comes.

    Returns:
        The exit code: 0, also after SIGTERM and SIGINT.
    """
    wire = own_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wire.stop())
    log_to_file(config.home / "logs" / "server.log", config.log_level)
    parts = _Parts(config, derived, wire)
    wire.start()
    early = EarlySession(wire, parts.session, parts.sdk_is_there)
    early.serve()
    end = early.handover.waiting
    if isinstance(end, End):
        # Over before the SDK was needed: it is not imported only to say goodbye.
        wire.wait_until_answered(DRAIN_SECONDS if end is End.CLOSED else STOP_SECONDS)
    else:
        parts.serve_with_sdk(early)
    parts.close()
    _leave()
    return 0


def _leave() -> None:
    """Ends the process at once if a call is still under way that nobody waits for any more.

    Everything acknowledged is on the disk, and the interpreter would wait for that call.
    """
    logging.shutdown()
    others = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon]
    if any(thread.is_alive() and "early" not in thread.name for thread in others):
        os._exit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m subconscious_mcp.server`: the same as `subconscious-mcp serve`."""
    from subconscious_mcp.cli import main as cli_main

    return cli_main(["serve", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
