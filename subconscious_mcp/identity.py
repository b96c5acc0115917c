"""Who the server says it is. Apart, so that the handshake needs nothing else."""

from __future__ import annotations

from subconscious_mcp import __version__

SERVER_NAME = "subconscious-mcp"
SERVER_VERSION = __version__
INSTRUCTIONS = (
    "Long-term memory of tasks and their answers. Before starting non-trivial work call recall with the task;"
    " on a miss, do the work and call remember with the task and what was found. A miss reports the nearest"
    " similarity; echo lists what is near without answers."
)
