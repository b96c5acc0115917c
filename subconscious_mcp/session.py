"""One client's session: its settings, its namespace, its tools. Knows nothing of the wire."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from subconscious_mcp.config import Config
from subconscious_mcp.errors import ConfigError, InvalidArgument, SubconsciousError
from subconscious_mcp.language_model import LanguageModel
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.render import Payload, Payloads
from subconscious_mcp.resources import Resource, ResourceTemplate, find, resources_of, templates_of
from subconscious_mcp.toolsets import tools_of
from subconscious_mcp.toolsets.tool import Tool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool call came to: a payload, or an error in one line."""

    payload: Payload | Payloads | None
    error: str | None = None

    @property
    def texts(self) -> list[str]:
        """The compact texts that the model reads: of several results one each."""
        if self.payload is None:
            return [self.error or "Error."]
        several = self.payload if isinstance(self.payload, list) else [self.payload]
        return [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in several]

    @property
    def text(self) -> str:
        """The same as one text, a line for each result."""
        return "\n".join(self.texts)

    @property
    def structured(self) -> Payload | None:
        """The same as one JSON object; several results stand under `result`."""
        return {"result": self.payload} if isinstance(self.payload, list) else self.payload


@dataclass(frozen=True, slots=True)
class Read:
    """What reading a resource came to: its text, or an error in one line.

    Attributes:
        unknown: There is no such resource.
    """

    text: str | None
    mime_type: str = ""
    error: str | None = None
    unknown: bool = False


class Session:
    """Carries out the tool calls of one client. Safe to call from several threads.

    Args:
        config: The session's settings.
        derived: Its namespace before registration.
        memory: Returns the open memory, or raises why it cannot be opened.
        client: Identity of a client that may send a request again, or empty.
    """

    def __init__(self, config: Config, derived: Derived, memory: Callable[[], Memory], client: str = "") -> None:
        self._client = client
        self._config = config
        self._derived = derived
        self._memory = memory
        self._scope: Scope | None = None
        self._lock = threading.Lock()
        self.toolset = config.toolset
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools_of(config)}
        self._resources: tuple[Resource, ...] = resources_of(config)
        self._templates: tuple[ResourceTemplate, ...] = templates_of(config)

    def descriptions(self) -> list[dict[str, Any]]:
        """Returns the tools as `tools/list` shows them."""
        return [tool.description() for tool in self.tools.values()]

    def resource_descriptions(self) -> list[dict[str, Any]]:
        """Returns the resources as `resources/list` shows them."""
        return [resource.description() for resource in self._resources]

    def template_descriptions(self) -> list[dict[str, Any]]:
        """Returns the templates as `resources/templates/list` shows them."""
        return [template.description() for template in self._templates]

    def read(self, uri: str) -> Read:
        """Reads one resource; never raises, because a client waits for the reply."""
        try:
            found = find(uri, self._resources, self._templates)
            if found is None:
                return Read(None, error="There is no such resource.", unknown=True)
            resource, value = found
            memory = self._memory()
            return Read(resource.read(memory, self._scope_on(memory), value), resource.mime_type)
        except SubconsciousError as error:
            log.error("%s cannot be read: %s", uri[:60], error)
            return Read(None, error=str(error))
        except Exception as error:
            log.exception("Reading a resource failed.")
            return Read(None, error=f"An internal error ({type(error).__name__}) ended it; see logs/server.log.")

    def call(self, name: str, arguments: Any, number: int = 0, model: LanguageModel | None = None) -> Reply:
        """Carries out one tool call; never raises, because a client waits for the reply.

        Args:
            number: The number of the request's line, by which one that is sent again is known;
                0 where it has none.
            model: The client's own language model, where it lets itself be asked during the call.
        """
        try:
            tool = self.tools.get(name)
            if tool is None:
                raise InvalidArgument(f"There is no tool {name[:60]!r}.", f"There are {', '.join(self.tools)}.")
            values = tool.parse(arguments)
            memory = self._memory()
            scope = self._scope_on(memory)
            if self._client and number:
                scope = replace(scope, request=f"{self._client}:{number}")
            if model is not None:
                scope = replace(scope, model=model)
            return Reply(tool.run(memory, scope, values))
        except SubconsciousError as error:
            # Neither is news to whoever reads the log: the caller's own mistake, and what was told at the start.
            if not isinstance(error, (InvalidArgument, ConfigError)):
                log.error("%s failed: %s", name[:60], error)
            return Reply(None, str(error))
        except Exception as error:
            # A fault of ours. The log gets the trace, the client no more than its kind.
            log.exception("%s failed", name[:60])
            return Reply(None, f"An internal error ({type(error).__name__}) ended the call; see logs/server.log.")

    def _scope_on(self, memory: Memory) -> Scope:
        with self._lock:
            if self._scope is None:
                self._scope = memory.scope(self._config, self._derived.name, self._derived.root)
                log.info("Namespace %r (%s).", self._scope.namespace.name, self._derived.reason)
            return self._scope
