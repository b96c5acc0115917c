"""Who the server says it is, by toolset. Apart, so that the handshake needs nothing else."""

from __future__ import annotations

from subconscious_mcp import __version__

SERVER_VERSION = __version__

_CACHE = (
    "Long-term memory of tasks and their answers. Before starting non-trivial work call recall with the task;"
    " on a miss, do the work and call remember with the task and what was found. A miss reports the nearest"
    " similarity; echo lists what is near without answers."
)
_NOTES = (
    "Long-term memory of what the user said: facts, preferences, events. Call remember when the user tells something"
    " worth keeping, and recall before you answer what earlier conversations may bear on."
)
_NOTES_BESIDE = (
    " Notes are kept beside the answers: remember_note stores what the user said, search_notes finds it by meaning"
    " and by words."
)


def server_name(toolset: str) -> str:
    """Returns the name by which clients and their logs know the server."""
    return "personal-memory" if toolset == "notes" else "subconscious-mcp"


def instructions(toolset: str) -> str:
    """Returns what the server tells the client's model of itself."""
    if toolset == "notes":
        return _NOTES
    return _CACHE + _NOTES_BESIDE if toolset == "all" else _CACHE
