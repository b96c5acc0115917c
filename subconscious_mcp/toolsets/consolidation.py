"""The tool `consolidate`, in the toolset `all`."""

from __future__ import annotations

from typing import Any

from subconscious_mcp import consolidation, consolidation_payloads, near_duplicates, old_notes
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.render import Payload
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.tool import Tool

MAX_SHOWN = 300
"""Characters of a text that the result holds."""
MAX_GROUPS = 20
MAX_MEMBERS = 20


def consolidation_tools() -> tuple[Tool, ...]:
    """Returns the tool."""
    return (
        Tool(
            "consolidate",
            "Merge near-duplicates",
            "Show which notes, facts and answers say the same, and which near ones do not; with apply, let one of each"
            " group stand for the others. Nothing is deleted: the others are archived, and `subconscious-mcp"
            " consolidate --undo last` brings them back. Show the plan to the user before you apply it.",
            (
                parameters.flag("apply", "Carry out the plan; false only shows it."),
                parameters.share(
                    "min_similarity", "Similarity from which entries may be merged.", near_duplicates.LEAST
                ),
                parameters.whole(
                    "older_than_days",
                    "Age in days from which notes are summarised.",
                    1,
                    consolidation.MOST_DAYS,
                    old_notes.OLDER_THAN_DAYS,
                ),
                parameters.flag("summaries", "Also let summaries stand for groups of old notes, where a model is."),
            ),
            _consolidate,
        ),
    )


def _consolidate(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    done = consolidation.consolidate(memory, scope, **values)
    return consolidation_payloads.done_payload(done, most=MAX_SHOWN, most_groups=MAX_GROUPS, most_members=MAX_MEMBERS)
