"""How a command reaches the memory, by a running engine or by itself, and which namespace it means."""

from __future__ import annotations

import argparse
import json
from typing import Any, NamedTuple

from subconscious_mcp import errors, pipe
from subconscious_mcp.config import Resolved, project_dir, resolve, user_home
from subconscious_mcp.errors import InvalidArgument, SubconsciousError
from subconscious_mcp.locate import namespace_name
from subconscious_mcp.namespaces import Derived, derive
from subconscious_mcp.terminal import model_progress


def ask_engine(
    resolved: Resolved, verb: str, values: dict[str, Any], namespace: str | None = None
) -> dict[str, Any] | None:
    """Lets the engine carry out a verb; returns its result, or None where no engine runs.

    Raises:
        SubconsciousError: What the verb raised there.
    """
    engine = pipe.Engine(str(resolved.config.storage_dir), str(resolved.config.home))
    hello = {"hello": "verb", "verb": verb, "values": values, "namespace": namespace, **pipe.surroundings()}
    connection = engine.reach(hello, start=False)
    if connection is None:
        return None
    with connection, connection.makefile("rb") as stream:
        line = stream.readline()
    try:
        answer = json.loads(line)
    except ValueError:
        raise errors.Closing("The engine ended during the command.", "Try again.") from None
    if "error" in answer:
        kind = getattr(errors, answer["error"]["kind"], SubconsciousError)
        raise kind(answer["error"]["message"], answer["error"]["hint"])
    result: dict[str, Any] = answer["result"]
    return result


def derived_namespace(resolved: Resolved, asked: str | None) -> Derived:
    """Returns the namespace that a command means: the one that was asked for, else the project's.

    Raises:
        InvalidArgument: `asked` is no name.
    """
    if asked is not None:
        try:
            asked = namespace_name(asked)
        except ValueError as takes:
            raise InvalidArgument(f"--namespace takes {takes}.") from None
    return derive(asked or resolved.config.namespace, project_dir(), user_home())


class Done(NamedTuple):
    """What a verb came to, and in which namespace and with which threshold."""

    payload: dict[str, Any]
    namespace: str
    threshold: float


def carry_out(arguments: argparse.Namespace, verb: str, values: dict[str, Any]) -> Done:
    """Carries out a verb in the namespace that was asked for or is the project's.

    By the engine where one runs, which has the memory open already; else by this process.
    """
    resolved = resolve()
    derived = derived_namespace(resolved, arguments.namespace)
    served = ask_engine(resolved, verb, values, arguments.namespace)
    if served is not None:
        return Done(**served)
    from subconscious_mcp import verbs
    from subconscious_mcp.opening import open_memory

    with model_progress() as progress:
        memory = open_memory(resolved.config, command=f"subconscious-mcp {verb}", progress=progress)
        try:
            scope = memory.scope(resolved.config, derived.name, derived.root)
            return Done(verbs.carry_out(memory, scope, verb, values), scope.namespace.name, scope.threshold)
        finally:
            memory.close()
