"""The MCP server over stdio in one process, for containers and for whoever wants no engine."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from subconscious_mcp.config import Config, stand_in
from subconscious_mcp.errors import ConfigError, meaning
from subconscious_mcp.host import Host
from subconscious_mcp.logs import log_to_file
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.storage_lock import SERVER
from subconscious_mcp.wire import Wire, own_standard_streams

log = logging.getLogger(__name__)


def serve(config: Config, derived: Derived, because: str = "") -> NoReturn:
    """Serves one client over stdio until it closes its end or a signal comes.

    Ends the process with exit code 0, also after SIGTERM and SIGINT.

    Args:
        because: Why there is no engine, for the log.
    """
    wire = _own_wire()
    log_to_file(config.home / "logs" / "server.log", config.log_level)
    if because:
        log.warning("Serving in this process: %s.", because)
    host = Host(config.storage_dir, command=SERVER)
    host.start(config)
    host.serve(wire, lambda: host.session(config, derived), config.toolset)
    host.close()
    _leave(0)


def serve_fault(fault: ConfigError) -> NoReturn:
    """Serves one client although the settings cannot be used: every call answers why.

    A client shows no more of a server that does not start than that it is gone; from a call's
    reply its agent can tell the user what to mend. Ends the process with the exit code of `fault`.
    """
    wire = _own_wire()
    # Settings that nothing can be read from or written to; only the tools' descriptions use them.
    config = stand_in()
    host = Host(config.storage_dir, command=SERVER)
    host.start(None)
    host.serve(wire, lambda: host.fault_session(config, fault), config.toolset)
    _leave(meaning(fault).exit_code)


def _own_wire() -> Wire:
    wire = own_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: wire.stop())
    return wire


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
