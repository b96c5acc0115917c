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
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, NoReturn

from subconscious_mcp.config import ENV_PREFIX, Config, resolve
from subconscious_mcp.early_session import EarlySession
from subconscious_mcp.errors import ConfigError, meaning
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.namespaces import DEFAULT, Derived
from subconscious_mcp.wire import End, Wire, own_standard_streams

if TYPE_CHECKING:
    from subconscious_mcp.memory import Memory
    from subconscious_mcp.opening import SharedMemory
    from subconscious_mcp.session import Session

log = logging.getLogger(__name__)

SDK_IDLE_SECONDS = 1.0
"""Quiet on the wire before the SDK is imported: the import takes more than a second of
processor time, and a call that comes meanwhile takes twice as long."""
CHROMA_IDLE_SECONDS = 3.0
"""The same for Chroma, behind the SDK; see `LocalStore.start_indexing`."""


class _Parts:
    """What serving needs and what takes long to make, made in the background.

    Args:
        fault: Told to every call in place of its result, where there is one.
    """

    def __init__(self, config: Config, derived: Derived, wire: Wire, fault: ConfigError | None) -> None:
        self._config = config
        self._derived = derived
        self._wire = wire
        self._fault = fault
        self._made: Future[Session] = Future()
        self._memory: SharedMemory | None = None
        self._sdk_wanted = threading.Event()
        self._sdk_there = threading.Event()
        threading.Thread(target=self._run, name="subconscious-start", daemon=True).start()

    def _run(self) -> None:
        try:
            session = self._make()
        except BaseException as error:  # whoever waits for it must not wait for ever
            self._made.set_exception(error)
            return
        self._made.set_result(session)
        if self._memory is not None:
            self._memory.warm()
        while not self._sdk_wanted.wait(0.1):
            if time.monotonic() - self._wire.last_line >= SDK_IDLE_SECONDS:
                break
        import subconscious_mcp.sdk_session  # noqa: F401

        self._sdk_there.set()

    def _make(self) -> Session:
        from subconscious_mcp.opening import SharedMemory
        from subconscious_mcp.session import Session

        if self._fault is not None:
            return Session(self._config, self._derived, self._refuse)
        self._memory = SharedMemory(self._config, command="subconscious-mcp server", idle_seconds=CHROMA_IDLE_SECONDS)
        return Session(self._config, self._derived, self._memory.get)

    def _refuse(self) -> Memory:
        assert self._fault is not None
        raise self._fault

    def session(self) -> Session:
        """Returns the session, waiting for the imports that it needs."""
        return self._made.result()

    def sdk_is_there(self) -> bool:
        return self._sdk_there.is_set()

    def serve_with_sdk(self, early: EarlySession) -> None:
        self._sdk_wanted.set()
        from subconscious_mcp.sdk_session import serve as serve_sdk

        serve_sdk(self._wire, self.session(), early.handover)

    def close(self) -> None:
        wait([self._made])
        if self._memory is not None:
            self._memory.close()


def serve(config: Config, derived: Derived) -> NoReturn:
    """Serves one client over stdio until it closes its end or a signal comes.

    Ends the process with exit code 0, also after SIGTERM and SIGINT.
    """
    _serve(config, derived, None)


def serve_fault(fault: ConfigError) -> NoReturn:
    """Serves one client although the settings cannot be used: every call answers why.

    A client shows no more of a server that does not start than that it is gone; from a call's
    reply its agent can tell the user what to mend. Ends the process with the exit code of `fault`.
    """
    # Settings that nothing can be read from or written to; only the tools' descriptions use them.
    config = resolve({f"{ENV_PREFIX}HOME": os.devnull}).config
    _serve(config, Derived(DEFAULT, None, "no settings"), fault)


def _serve(config: Config, derived: Derived, fault: ConfigError | None) -> NoReturn:
    wire = own_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wire.stop())
    if fault is None:
        log_to_file(config.home / "logs" / "server.log", config.log_level)
    parts = _Parts(config, derived, wire, fault)
    wire.start()
    early = EarlySession(wire, parts.session, parts.sdk_is_there)
    early.serve()
    end = early.handover.waiting
    if isinstance(end, End):
        # Over before the SDK was needed: it is not imported only to say goodbye.
        wire.wait_until_answered()
    else:
        parts.serve_with_sdk(early)
    parts.close()
    _leave(0 if fault is None else meaning(fault).exit_code)


def _leave(exit_code: int) -> NoReturn:
    """Ends the process at once: everything acknowledged is on the disk.

    The interpreter's own end would wait for calls that nobody waits for any more, and would
    pull itself away from under threads that are loading a model or the SDK.
    """
    logging.shutdown()
    os._exit(exit_code)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of `python -m subconscious_mcp.server`: the same as `subconscious-mcp serve`."""
    from subconscious_mcp.cli import main as cli_main

    return cli_main(["serve", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
