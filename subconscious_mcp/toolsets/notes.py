"""Toolset `notes`: a personal memory, four tools; and the same beside the answers in the toolset `all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subconscious_mcp import note_payloads, notes
from subconscious_mcp.config import Config
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import NOTES, Filters, Kind
from subconscious_mcp.render import Payload, Payloads
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.consolidation import consolidation_tools
from subconscious_mcp.toolsets.parameters import Parameter
from subconscious_mcp.toolsets.tool import Tool

MAX_SHOWN = 20_000
"""Characters of a note that a tool result holds; the resource memory://notes/{id} holds the whole."""
MAX_SHOWN_TOGETHER = 60_000
"""Characters of all notes of a result, which share it evenly: about 15,000 tokens."""
MAX_SHOWN_BESIDE = 500
"""Characters of a note that is only pointed at."""

_TAGS = "Only notes that bear at least one of these tags."


def notes_tools(config: Config) -> tuple[Tool, ...]:
    """Returns the four tools of the personal memory."""
    return (_remember("remember"), _recall("recall"), _list_recent(), _forget())


def notes_beside_tools(config: Config) -> tuple[Tool, ...]:
    """Returns the notes' tools under names that leave the answers' theirs; `forget` takes the id of either."""
    return (_remember("remember_note"), _recall("search_notes"), _list_recent(), _supersede(), *consolidation_tools())


def _remember(name: str) -> Tool:
    return Tool(
        name,
        "Remember a note",
        "Store one thing the user said or decided, so that it can be recalled in any later conversation. Write it as a"
        " sentence that can be understood alone.",
        (
            parameters.text("content", "The text to remember."),
            parameters.texts("tags", "Labels to filter by later."),
            parameters.optional_text("source", "Where it comes from, such as chat or slack."),
            parameters.choice(
                "kind", "note: said or happened at a moment; fact: holds until something else is said.", NOTES, "note"
            ),
        ),
        _add,
    )


def _recall(name: str) -> Tool:
    return Tool(
        name,
        "Recall notes",
        "Find notes by meaning and by words, best first, each with a similarity score. Call it before answering"
        " anything that earlier conversations may bear on.",
        (
            parameters.text("query", "What to look for, in your own words."),
            parameters.limit("limit", "How many notes to return at most.", notes.MAX_LIMIT, 5),
            parameters.texts("tags", _TAGS),
            *_filters(),
            parameters.flag("neighbours", "Also return the notes before and after each, of the same source."),
            parameters.flag("prefer_recent", "Let newer notes have a lead."),
            parameters.flag("explain", "Show what each note's place is made of."),
        ),
        _search,
        reads_only=True,
    )


def _list_recent() -> Tool:
    return Tool(
        "list_recent",
        "List recent notes",
        "List the newest notes, newest first.",
        (
            parameters.limit("limit", "How many notes to return at most.", notes.MAX_RECENT, 10),
            parameters.texts("tags", _TAGS),
            *_filters(),
        ),
        _recent,
        reads_only=True,
    )


def _forget() -> Tool:
    return Tool(
        "forget",
        "Forget a note",
        "Delete the note with this id, and its text, for good.",
        (parameters.text("memory_id", "The id as remember or recall returned it."),),
        _delete,
        destroys=True,
    )


def _supersede() -> Tool:
    return Tool(
        "supersede_note",
        "Replace a note",
        "Store what holds now in the place of a note that no longer does. The old one is kept, and no longer found.",
        (
            parameters.text("entry_id", "The id of the note that no longer holds."),
            parameters.text("content", "What holds now."),
        ),
        _replace,
    )


def _filters() -> tuple[Parameter, ...]:
    return (
        parameters.moment("since", "Only notes from this date or time on."),
        parameters.moment("until", "Only notes up to this date or time.", ends=True),
        parameters.optional_text("source", "Only notes from this source."),
        parameters.choice("kind", "Only notes of this kind.", NOTES, None),
    )


def _taken_filters(values: dict[str, Any]) -> tuple[Filters, Sequence[Kind]]:
    filters = Filters(
        tags=tuple(values.pop("tags", ())),
        since=values.pop("since", None),
        until=values.pop("until", None),
        source=values.pop("source", "") or None,
    )
    kind = values.pop("kind", None)
    return filters, NOTES if kind is None else (kind,)


def _share(count: int) -> int:
    return min(MAX_SHOWN, MAX_SHOWN_TOGETHER // max(1, count))


def _add(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    return note_payloads.noted_payload(notes.add(memory, scope, **values), most=MAX_SHOWN_BESIDE)


def _search(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payloads:
    filters, kinds = _taken_filters(values)
    explain = values.pop("explain", False)
    hits = notes.search(memory, scope, **values, filters=filters, kinds=kinds)
    return note_payloads.hits_payload(hits, explain=explain, most=_share(len(hits)))


def _recent(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payloads:
    filters, kinds = _taken_filters(values)
    found = notes.recent(memory, scope, **values, filters=filters, kinds=kinds)
    most = _share(len(found))
    return [note_payloads.note_payload(entry, most=most) for entry in found]


def _delete(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    entry_id = values["memory_id"].strip()
    if not entry_id:
        raise InvalidArgument("memory_id takes the id of a note, as remember or recall returned it.")
    return note_payloads.deleted_payload(entry_id, memory.forget(scope, entry_id))


def _replace(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    done = notes.supersede(memory, scope, **values)
    return note_payloads.superseded_payload(values["entry_id"], done, most=MAX_SHOWN_BESIDE)
