"""What a tool is, for whichever adapter offers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.render import Payload, Payloads
from subconscious_mcp.toolsets.parameters import Parameter, input_schema, read_arguments


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: parse, one call, render.

    Attributes:
        run: Makes the one call and renders its result, from the values that were given.
        reads_only: It changes nothing that another call could see, the log of recalls apart.
        destroys: It may delete what was stored.
    """

    name: str
    title: str
    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Memory, Scope, dict[str, Any]], Payload | Payloads]
    reads_only: bool = False
    destroys: bool = False

    def parse(self, arguments: Any) -> dict[str, Any]:
        """Checks a call's arguments; see `read_arguments`."""
        return read_arguments(self.parameters, arguments)

    def description(self) -> Payload:
        """Returns the tool as `tools/list` shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.about,
            "inputSchema": input_schema(self.parameters),
            "annotations": {
                "readOnlyHint": self.reads_only,
                "destructiveHint": self.destroys,
                "idempotentHint": self.reads_only or self.destroys,
                "openWorldHint": False,
            },
        }
