"""The command line's verbs of notes, over an open memory; see `verbs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from subconscious_mcp import note_payloads, notes, seed_demo
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import NOTES, Filters, Kind
from subconscious_mcp.render import Payload
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.parameters import read_arguments

Values = Mapping[str, Any]

_MOMENTS = (parameters.moment("since", ""), parameters.moment("until", "", ends=True))


def _add(memory: Memory, scope: Scope, values: Values) -> Payload:
    return note_payloads.noted_payload(notes.add(memory, scope, **values))


def _search(memory: Memory, scope: Scope, values: Values) -> Payload:
    rest, filters, kinds = _filtered(values)
    explain = rest.pop("explain", False)
    hits = notes.search(memory, scope, **rest, filters=filters, kinds=kinds)
    return {"notes": note_payloads.hits_payload(hits, explain=explain)}


def _list(memory: Memory, scope: Scope, values: Values) -> Payload:
    rest, filters, kinds = _filtered(values)
    found = notes.recent(memory, scope, **rest, filters=filters, kinds=kinds)
    return {"notes": [note_payloads.note_payload(entry) for entry in found]}


def _filtered(values: Values) -> tuple[dict[str, Any], Filters, Sequence[Kind]]:
    """Splits a command's values into those of the verb, and the filters that it was given."""
    rest = dict(values)
    given = {name: rest.pop(name) for name in ("since", "until") if name in rest}
    when = read_arguments(_MOMENTS, given)
    source, kind = rest.pop("source", None), rest.pop("kind", None)
    if kind is not None and kind not in NOTES:
        raise InvalidArgument(f"kind takes one of {', '.join(NOTES)}.")
    filters = Filters(tuple(rest.pop("tags", ())), when.get("since"), when.get("until"), source)
    return rest, filters, NOTES if kind is None else (kind,)


def _supersede(memory: Memory, scope: Scope, values: Values) -> Payload:
    return note_payloads.superseded_payload(values["entry_id"], notes.supersede(memory, scope, **values))


def _show(memory: Memory, scope: Scope, values: Values) -> Payload:
    entry = notes.note(memory, scope, **values)
    return {"note": None if entry is None else note_payloads.note_payload(entry)}


def _restore(memory: Memory, scope: Scope, values: Values) -> Payload:
    return {"restored": notes.restore(memory, scope, **values)}


def _forget(memory: Memory, scope: Scope, values: Values) -> Payload:
    return note_payloads.deleted_payload(values["memory_id"], memory.forget(scope, values["memory_id"]))


def _seed(memory: Memory, scope: Scope, values: Values) -> Payload:
    return seed_demo.seed(memory, scope)


NOTE_VERBS: dict[str, Callable[[Memory, Scope, Values], Payload]] = {
    "note add": _add,
    "note search": _search,
    "note list": _list,
    "note supersede": _supersede,
    "note show": _show,
    "note restore": _restore,
    "note forget": _forget,
    "seed demo": _seed,
}
