"""The command line's verbs over an open memory, for whichever process has it open.

Siblings of the tools: the same verbs of `memory`, whole results instead of bounded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from subconscious_mcp import (
    consolidation,
    consolidation_payloads,
    learning,
    learning_payloads,
    render,
    transfer,
    tuning,
)
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.note_verbs import NOTE_VERBS
from subconscious_mcp.render import Payload

Values = Mapping[str, Any]


def _remember(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.remember_payload(memory.remember(scope, **values))


def _recall(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.recall_payload(memory.recall(scope, **values))


def _echo(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.echo_payload(memory.echo(scope, **values))


def _forget(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.forget_payload(memory.forget(scope, **values))


def _stats(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.stats_payload(memory.stats(scope))


def _drift(memory: Memory, scope: Scope, values: Values) -> Payload:
    return render.drift_payload(memory.drift_report(scope, **values))


def _feedback(memory: Memory, scope: Scope, values: Values) -> Payload:
    return learning_payloads.noted_payload(learning.give(memory, scope, **values))


def _exported_feedback(memory: Memory, scope: Scope, values: Values) -> Payload:
    return {"observations": [learning_payloads.observation_payload(one) for one in learning.exported(memory, scope)]}


def _explain(memory: Memory, scope: Scope, values: Values) -> Payload:
    return learning_payloads.explanation_payload(learning.explain(memory, scope, **values))


def _tune(memory: Memory, scope: Scope, values: Values) -> Payload:
    return learning_payloads.advice_payload(tuning.tune(memory, scope, **values))


def _consolidate(memory: Memory, scope: Scope, values: Values) -> Payload:
    return consolidation_payloads.done_payload(consolidation.consolidate(memory, scope, **values))


def _undo_consolidation(memory: Memory, scope: Scope, values: Values) -> Payload:
    return consolidation_payloads.undone_payload(consolidation.undo(memory, scope, **values))


def _near(memory: Memory, scope: Scope, values: Values) -> Payload:
    hits, episodes = memory.near(scope, **values)
    return {
        "hits": [render.near_payload(near) for near in hits],
        "episodes": [render.near_payload(n) for n in episodes],
    }


def _forget_episodes(memory: Memory, values: Values) -> Payload:
    return {"forgotten": memory.forget_episodes(values["session_ids"])}


def _wipe_episodes(memory: Memory, values: Values) -> Payload:
    return {"forgotten": memory.wipe_episodes(**values)}


def _namespaces(memory: Memory, values: Values) -> Payload:
    return {"namespaces": memory.namespaces()}


def _find_namespace(memory: Memory, values: Values) -> Payload:
    return {"name": memory.find_namespace(**values)}


def _export(memory: Memory, values: Values) -> Payload:
    return transfer.begin_export(memory, **values)


def _export_page(memory: Memory, values: Values) -> Payload:
    return transfer.export_page(memory, **values)


def _import_namespaces(memory: Memory, values: Values) -> Payload:
    return transfer.import_namespaces(memory, **values)


def _import_entries(memory: Memory, values: Values) -> Payload:
    return transfer.import_entries(memory, **values)


def _import_feedback(memory: Memory, values: Values) -> Payload:
    return transfer.import_feedback(memory, **values)


def _import_consolidations(memory: Memory, values: Values) -> Payload:
    return transfer.import_consolidations(memory, **values)


VERBS: dict[str, Callable[[Memory, Scope, Values], Payload]] = {
    "remember": _remember,
    "recall": _recall,
    "echo": _echo,
    "forget": _forget,
    "stats": _stats,
    "drift": _drift,
    "feedback": _feedback,
    "export feedback": _exported_feedback,
    "explain": _explain,
    "tune": _tune,
    "near": _near,
    "consolidate": _consolidate,
    "undo consolidation": _undo_consolidation,
    **NOTE_VERBS,
}
OF_ALL_NAMESPACES: dict[str, Callable[[Memory, Values], Payload]] = {
    "namespaces": _namespaces,
    "find namespace": _find_namespace,
    "forget episodes": _forget_episodes,
    "wipe episodes": _wipe_episodes,
    "export": _export,
    "export page": _export_page,
    "import namespaces": _import_namespaces,
    "import entries": _import_entries,
    "import feedback": _import_feedback,
    "import consolidations": _import_consolidations,
}
"""Verbs that open no namespace: looking must not register the folder that it is done from."""


def carry_out(memory: Memory, scope: Scope, verb: str, values: Values) -> Payload:
    """Carries out one verb; `values` are the keyword arguments of the verb of `memory`.

    Raises:
        SubconsciousError: What the verb raises; `InvalidArgument` for one that there is not.
    """
    if verb not in VERBS:
        raise InvalidArgument(f"There is no verb {verb[:60]!r}.")
    return VERBS[verb](memory, scope, values)
