"""The lines of an export: one JSON object each, so that `grep` and `jq` can read it and a bad line costs itself.

    {"format": "subconscious-mcp", "version": 1, ...}   the header
    {"type": "namespace", ...}                          for each namespace
    {"type": "entry", ...}                              for each entry, by namespace, the oldest first
    {"type": "feedback", ...}                           for each observation of the entries
    {"type": "consolidation", ...}                      for what was archived for one entry, so that it can be undone
    {"type": "end", ...}                                how many there were: without it the file is cut off

Described in docs/transfer.md. A line holds no character at which some program would break it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from subconscious_mcp.records import Consolidated, Entry, Namespace, Observation

FORMAT = "subconscious-mcp"
VERSION = 1

Payload = dict[str, Any]

ELSEWHERE = "its id is that of an entry of another namespace"
"""Why an entry is skipped that `importing.ELSEWHERE_HINT` has a way out for."""

# Line ends to some readers, though not to JSON; inside a JSON text they can only stand in a string.
_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}


class Item(NamedTuple):
    """What stands at one place of a file that is imported.

    Attributes:
        place: Where, for people: `line 12`.
        payload: As a line of an export has it; None where it cannot be read as that.
        reason: Why not.
        share: How much of the file has been read, 0..1.
    """

    place: str
    payload: Payload | None
    reason: str = ""
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was not imported, and why.

    Attributes:
        entry_id: Its id, as far as it has one; may be anything.
    """

    place: str
    entry_id: str
    reason: str


def line(payload: Mapping[str, Any]) -> str:
    """Returns a line, without its end, that every reader takes for one and that is valid UTF-8."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # A folder's name that is no valid Unicode.
        return json.dumps(payload, separators=(",", ":"))
    return text.translate(_BREAKS)


def namespace_payload(namespace: Namespace, merged: list[tuple[str | None, str | None]]) -> Payload:
    """Returns a namespace with the names and folders that lead to it since others were merged into it."""
    return {
        "type": "namespace",
        "name": namespace.name,
        "root": namespace.root,
        "merged": [{"name": name, "root": root} for name, root in merged],
    }


def entry_payload(entry: Entry, namespace: Namespace, vector: bytes | None) -> Payload:
    """Returns an entry; `vector` is float16, little-endian, as it is stored."""
    payload: Payload = {
        "type": "entry",
        "id": entry.id,
        "kind": entry.kind,
        "namespace": namespace.name,
        "root": namespace.root,
        "task": entry.task,
        "answer": entry.answer,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
        "tags": list(entry.tags),
        "source": entry.source,
        "archived_at": entry.archived_at,
        "superseded_by": entry.superseded_by,
    }
    if vector is not None:
        payload["vector"] = base64.b64encode(vector).decode("ascii")
    return payload


def feedback_payload(query: str, said: Observation) -> Payload:
    """Returns an observation; `query` is the hash of what was asked."""
    return {
        "type": "feedback",
        "entry": said.entry_id,
        "query": query,
        "similarity": said.similarity,
        "correct": said.correct,
        "at": said.at,
        "fingerprint": said.fingerprint,
        "kept_back": said.kept_back,
    }


def consolidation_payload(done: Consolidated, members: Sequence[str]) -> Payload:
    """Returns what one run archived for one survivor."""
    return {
        "type": "consolidation",
        "run": done.run,
        "survivor": done.survivor,
        "made": done.made,
        "members": sorted(members),
    }


def decoded_vector(text: Any) -> bytes | None:
    """Returns the bytes of an entry's vector, or None where it has none that can be read."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
