"""MCP resources: what a client reads by itself, without a tool call."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from subconscious_mcp import note_payloads, notes, render
from subconscious_mcp.config import Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Filters

RECENT = 20
TAGGED = 50
MAX_SHOWN = 2_000
"""Characters of a note that a resource holds: it is read into a context whole."""

Reader = Callable[[Memory, Scope, str], str]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a fixed address.

    Attributes:
        read: Returns its text; the last argument is what an address of a template says, here empty.
    """

    uri: str
    name: str
    about: str
    mime_type: str
    read: Reader

    def description(self) -> dict[str, Any]:
        """Returns the resource as `resources/list` shows it."""
        return {"uri": self.uri, "name": self.name, "description": self.about, "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """Resources whose addresses hold a value in braces, which ends them."""

    uri: str
    name: str
    about: str
    mime_type: str
    read: Reader

    def description(self) -> dict[str, Any]:
        """Returns the template as `resources/templates/list` shows it."""
        return {"uriTemplate": self.uri, "name": self.name, "description": self.about, "mimeType": self.mime_type}


def resources_of(config: Config) -> tuple[Resource, ...]:
    """Returns the resources of the configured toolset."""
    stats = _note_stats if config.toolset == "notes" else _answer_stats
    about = "How many entries there are, and where they are kept."
    found = (Resource("memory://stats", "stats", about, "text/plain", stats),)
    if config.toolset == "cache":
        return found
    about = f"The newest {RECENT} notes, newest first."
    return (*found, Resource("memory://recent", "recent", about, "application/json", _recent))


def templates_of(config: Config) -> tuple[ResourceTemplate, ...]:
    """Returns the templates of the configured toolset."""
    if config.toolset == "cache":
        return ()
    about = f"The newest {TAGGED} notes that bear a tag, newest first."
    return (ResourceTemplate("memory://tags/{tag}", "tag", about, "application/json", _tagged),)


def find(
    uri: str, resources: Sequence[Resource], templates: Sequence[ResourceTemplate]
) -> tuple[Resource | ResourceTemplate, str] | None:
    """Returns what an address names, with the value that a template takes from it; None where there is nothing."""
    for resource in resources:
        if resource.uri == uri:
            return resource, ""
    for template in templates:
        start = re.sub(r"\{\w+\}$", "", template.uri)
        value = urllib.parse.unquote(uri[len(start) :]) if uri.startswith(start) else ""
        if value.strip():
            return template, value
    return None


def _note_stats(memory: Memory, scope: Scope, _: str) -> str:
    found = f"Total memories: {notes.count(memory, scope)}"
    return f"{found}\nCollection: {scope.namespace.name}\nStorage path: {memory.folder}"


def _answer_stats(memory: Memory, scope: Scope, _: str) -> str:
    stats = render.stats_payload(memory.stats(scope))
    rows = [f"{name.replace('_', ' ').capitalize()}: {value}" for name, value in stats.items()]
    return "\n".join([*rows, f"Namespace: {scope.namespace.name}", f"Storage path: {memory.folder}"])


def _recent(memory: Memory, scope: Scope, _: str) -> str:
    return _json([note_payloads.note_payload(one, most=MAX_SHOWN) for one in notes.recent(memory, scope, limit=RECENT)])


def _tagged(memory: Memory, scope: Scope, tag: str) -> str:
    found = notes.recent(memory, scope, limit=TAGGED, filters=Filters(tags=(tag,)))
    return _json([note_payloads.note_payload(one, most=MAX_SHOWN) for one in found])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
