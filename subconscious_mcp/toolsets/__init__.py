"""Which tools a client is offered, by the setting `toolset`."""

from __future__ import annotations

from subconscious_mcp.config import Config
from subconscious_mcp.toolsets.cache import cache_tools
from subconscious_mcp.toolsets.feedback import feedback_tools
from subconscious_mcp.toolsets.notes import notes_beside_tools, notes_tools
from subconscious_mcp.toolsets.tool import Tool


def tools_of(config: Config) -> tuple[Tool, ...]:
    """Returns the tools of the configured toolset."""
    if config.toolset == "notes":
        return notes_tools(config)
    beside = notes_beside_tools(config) if config.toolset == "all" else ()
    return (*cache_tools(config), *beside, *feedback_tools(config))
