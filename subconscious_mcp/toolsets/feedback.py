"""The tool `feedback`, beside any toolset where it is switched on."""

from __future__ import annotations

from typing import Any

from subconscious_mcp import learning, learning_payloads
from subconscious_mcp.config import Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.render import Payload
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.tool import Tool


def feedback_tools(config: Config) -> tuple[Tool, ...]:
    """Returns the tool where `feedback_tool` is set, else none."""
    if not config.feedback_tool:
        return ()
    return (
        Tool(
            "feedback",
            "Say whether an answer was right",
            "Tell whether the answer that recall returned was right for the task you asked for. Entries whose answers"
            " were wrong need a greater similarity from then on. Saying it again of the same task replaces it.",
            (
                parameters.text("entry_id", "The id as recall returned it."),
                parameters.text("query", "The task as you gave it to recall."),
                parameters.yes_or_no("correct", "Whether the answer was right for that task."),
            ),
            _feedback,
        ),
    )


def _feedback(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    return learning_payloads.noted_payload(learning.give(memory, scope, **values))
