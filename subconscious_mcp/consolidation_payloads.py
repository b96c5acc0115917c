"""From consolidations to the JSON values that the tool and `--json` show."""

from __future__ import annotations

from typing import Any

from subconscious_mcp.consolidation import Done, Plan, Summarised, Undone
from subconscious_mcp.near_duplicates import Apart, Group
from subconscious_mcp.old_notes import Proposal
from subconscious_mcp.records import Contrast, Entry
from subconscious_mcp.render import WHOLE, Payload, bounded

NO_MODEL = (
    "No model is there to write summaries: use the tool from a client that offers its own (MCP sampling),"
    " or set summary_url and summary_model."
)


def done_payload(done: Done, *, most: int = WHOLE, most_groups: int = WHOLE, most_members: int = WHOLE) -> Payload:
    """Returns a plan, and what was carried out of it.

    Args:
        most: Characters of a text.
        most_groups: Groups, pairs and proposals that are shown; the counts tell of all.
        most_members: Members of one of them that are shown.
    """
    payload: Payload = {"applied": bool(done.run), **_plan(done.plan, most, most_groups, most_members)}
    if done.run:
        payload["merged"] = len(done.merged)
        archived = [one.member_ids for one in done.merged] + [one.member_ids for one in _written(done)]
        payload["archived"] = sum(map(len, archived))
        payload["survivors"] = [
            {"id": one.survivor_id, "made": one.made, "archived": list(one.member_ids[:most_members])}
            for one in done.merged[:most_groups]
        ]
        payload["summaries"] = [_summarised(one) for one in done.summarised]
        if done.changed:
            payload["changed_meanwhile"] = done.changed
    return payload


def undone_payload(undone: Undone) -> Payload:
    """Returns what undoing came to."""
    return {"undone": undone.known and not undone.left, "restored": list(undone.restored), "left": list(undone.left)}


def _written(done: Done) -> list[Summarised]:
    return [one for one in done.summarised if one.entry_id is not None]


def _plan(plan: Plan, most: int, most_groups: int, most_members: int) -> Payload:
    payload: Payload = {
        "looked_at": plan.looked_at,
        "min_similarity": plan.least,
        "groups_found": len(plan.groups),
        "duplicates_found": sum(len(group.members) for group in plan.groups),
        "groups": [_group(group, most, most_members) for group in plan.groups[:most_groups]],
        "not_merged": [_apart(apart, most) for apart in plan.apart[:most_groups]],
    }
    if plan.old_groups:
        payload["old_groups_found"] = plan.old_groups
        payload["proposals"] = [_proposal(one, most, most_members) for one in plan.proposals[:most_groups]]
        payload["model"] = plan.model
        if plan.model == "none":
            payload["note"] = NO_MODEL
    return payload


def _group(group: Group, most: int, most_members: int) -> Payload:
    shown: Payload = {
        "kind": group.survivor.kind,
        "survivor": _entry(group.survivor, most),
        "members": [
            {**_entry(one.entry, most), "similarity": one.similarity, "why": one.why}
            for one in group.members[:most_members]
        ],
    }
    if len(group.members) > most_members:
        shown["members_found"] = len(group.members)
    if group.united:
        shown["made_anew_with_tags"] = list(group.tags)
    return shown


def _apart(apart: Apart, most: int) -> Payload:
    return {
        "one": _entry(apart.one, most),
        "other": _entry(apart.other, most),
        "similarity": apart.similarity,
        "confidence": round(apart.confidence, 4),
        "contrasts": [_contrast(one) for one in apart.contrasts],
    }


def _contrast(contrast: Contrast) -> dict[str, Any]:
    return {"kind": contrast.kind, "one": contrast.query_value, "other": contrast.stored_value}


def _proposal(proposal: Proposal, most: int, most_members: int) -> Payload:
    return {
        "shared": proposal.shared,
        "notes": len(proposal.members),
        "characters": proposal.most_chars,
        "members": [_entry(one, most) for one in proposal.members[:most_members]],
        "prompt": bounded(proposal.prompt, most),
    }


def _summarised(one: Summarised) -> Payload:
    shown: Payload = {"id": one.entry_id, "archived": list(one.member_ids) if one.entry_id is not None else []}
    if one.refused:
        shown["refused"] = one.refused
    return shown


def _entry(entry: Entry, most: int) -> Payload:
    return {"id": entry.id, "text": bounded(entry.task, most), "tags": list(entry.tags)}
