"""From notes to the JSON values that tools, resources and `--json` show."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import Any

from subconscious_mcp.notes import Contradiction, Hit, Noted
from subconscious_mcp.records import Entry
from subconscious_mcp.render import WHOLE, Payload, Payloads, bounded

MAX_BESIDE = 2_000
"""Characters of a neighbour that comes along with a note."""


def noted_payload(done: Noted, *, most: int = WHOLE) -> Payload:
    """Returns what storing a note came to; notes that contradict it only where there are any."""
    payload: Payload = {"id": done.entry_id, "status": "stored"}
    if done.duplicate_of:
        payload["duplicate_of"] = done.duplicate_of
    if done.contradictions:
        payload["contradicts"] = [_contradiction(one, most) for one in done.contradictions]
    return payload


def superseded_payload(old_id: str, done: Noted | None, *, most: int = WHOLE) -> Payload:
    """Returns what superseding came to; nothing stored where there was nothing to supersede."""
    if done is None:
        return {"id": None, "status": "not found", "superseded": None}
    return {**noted_payload(done, most=most), "superseded": old_id}


def note_payload(entry: Entry, *, most: int = WHOLE) -> Payload:
    """Returns a note; its kind only where it is a fact, its successor only where it has one."""
    payload: Payload = {
        "id": entry.id,
        "content": bounded(entry.task, most),
        "created_at": _moment(entry.created_at),
        "tags": list(entry.tags),
        "source": entry.source,
    }
    if entry.kind != "note":
        payload["kind"] = entry.kind
    if entry.archived_at is not None:
        payload["archived_at"] = _moment(entry.archived_at)
    if entry.superseded_by:
        payload["superseded_by"] = entry.superseded_by
    return payload


def hits_payload(hits: list[Hit], *, explain: bool = False, most: int = WHOLE) -> Payloads:
    """Returns notes that were found, the best first; `score` is the cosine of query and note."""
    found = []
    for hit in hits:
        payload = {**note_payload(hit.entry, most=most), "score": round(hit.similarity, 4)}
        for name, beside in (("before", hit.before), ("after", hit.after)):
            if beside is not None:
                payload[name] = {"id": beside.id, "content": bounded(beside.task, min(most, MAX_BESIDE))}
        if explain:
            payload["parts"] = {name: round(value, 4) for name, value in asdict(hit.parts).items()}
        found.append(payload)
    return found


def deleted_payload(entry_id: str, deleted: bool) -> Payload:
    """Returns what forgetting a note came to."""
    return {"id": entry_id, "deleted": deleted}


def _contradiction(found: Contradiction, most: int) -> dict[str, Any]:
    return {
        "id": found.near.entry.id,
        "content": bounded(found.near.entry.task, most),
        "score": round(found.near.similarity, 4),
        "contrasts": [
            {"kind": one.kind, "new": one.query_value, "stored": one.stored_value} for one in found.contrasts
        ],
    }


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()
