"""The MCP server over stdio, in one process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from subconscious_mcp.config import Config
from subconscious_mcp.early_session import EarlySession, Handover
from subconscious_mcp.errors import SubconsciousError
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.opening import SharedMemory
from subconscious_mcp.session import Session
from subconscious_mcp.wire import End, own_standard_streams

log = logging.getLogger(__name__)

IDLE_SECONDS = 2.0
"""Quiet before Chroma is imported; see `LocalStore.start_indexing`."""


class _SdkImport:
    """Imports the SDK in a thread, once the model is loaded or the SDK is asked for."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._done = threading.Event()
        threading.Thread(target=self._run, name="subconscious-sdk-import", daemon=True).start()

    def _run(self) -> None:
        self._wanted.wait()
        import subconscious_mcp.sdk_session  # noqa: F401

        # What is imported stays: the collector need not look at it again.
        gc.freeze()
        self._done.set()

    def want(self) -> None:
        self._wanted.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()


def serve(config: Config, derived: Derived) -> int:
    """Serves one client over stdio until it closes its end or a signal comes.

    Returns:
        The exit code: 0, also after SIGTERM and SIGINT.
    """
    wire = own_standard_streams()
    log_to_file(config.home / "logs" / "server.log", config.log_level)
    memory = SharedMemory(config, command="subconscious-mcp server", idle_seconds=IDLE_SECONDS)
    session = Session(config, derived, memory.get)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wire.stop())
    sdk = _SdkImport()
    threading.Thread(target=_warm, args=(memory, sdk), name="subconscious-warm", daemon=True).start()
    wire.start()
    handover = EarlySession(wire, session, lambda: sdk.done).serve()
    _serve_rest(wire, session, sdk, handover)
    memory.close()
    return 0


def _warm(memory: SharedMemory, sdk: _SdkImport) -> None:
    """Loads the model before the first call needs it, and the SDK behind it: a first recall needs
    only the model, and two imports at once would slow each other."""
    try:
        memory.get()
    except SubconsciousError as error:
        log.error("%s", error)
    except Exception:
        log.exception("Opening the memory failed.")
    sdk.want()


def _serve_rest(wire: object, session: Session, sdk: _SdkImport, handover: Handover) -> None:
    from subconscious_mcp.wire import Wire

    assert isinstance(wire, Wire)
    if isinstance(handover.waiting, End):
        # Ended before the SDK was needed: do not import it only to say goodbye.
        wire.wait_until_answered(30.0 if handover.waiting is End.CLOSED else 1.5)
        return
    sdk.want()
    from subconscious_mcp.sdk_session import serve as serve_sdk

    serve_sdk(wire, session, handover)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m subconscious_mcp.server`: the same as `subconscious-mcp serve`."""
    from subconscious_mcp.cli import main as cli_main

    return cli_main(["serve", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
