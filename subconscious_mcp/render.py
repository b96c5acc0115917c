"""From results to the JSON values that tools and `--json` show; `tables` is for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subconscious_mcp.records import Contrast, DriftReport, Echoes, Near, Recall, Remembered, Stats

Payload = dict[str, Any]
"""JSON values only."""
Payloads = list[Payload]
"""What a tool that returns several results returns."""

WHOLE = 1 << 62
"""A bound that cuts nothing."""

MAX_CANDIDATES = 100
MAX_CONTRASTS = 5
"""Of one drift candidate."""


def bounded(text: str, most: int) -> str:
    """Returns `text`, cut with a mark that says how much is missing if it is longer than `most`."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… [cut: {len(text) - most:,} of {len(text):,} characters left out]"


def recall_payload(found: Recall, *, most_answer: int = WHOLE, most_task: int = WHOLE) -> Payload:
    """Returns a recall as its tool does; a miss holds no answer, and no more of the nearest than the check tells."""
    entry = found.best.entry if found.best is not None and found.hit else None
    payload: Payload = {
        "hit": found.hit,
        "similarity": found.similarity,
        "answer": bounded(entry.answer, most_answer) if entry else None,
        "task_text": bounded(entry.task, most_task) if entry else None,
        "entry_id": entry.id if entry else None,
        "stored_at": entry.created_at if entry else None,
        "tags": list(entry.tags) if entry else [],
    }
    if found.confidence is not None:
        payload["confidence"] = round(found.confidence, 4)
    if found.learned_threshold is not None:
        payload["learned_threshold"] = found.learned_threshold
    if found.blocked and found.best is not None:
        payload["blocked"] = {
            "entry_id": found.best.entry.id,
            "task_text": bounded(found.best.entry.task, most_task),
            "contrasts": _contrasts(found.contrasts),
        }
        if found.rival is not None:
            # Two answers compete, and no word of the query says which.
            payload["blocked"]["rival"] = {
                "entry_id": found.rival.entry.id,
                "similarity": found.rival.similarity,
                "task_text": bounded(found.rival.entry.task, most_task),
            }
    return payload


def _contrasts(found: Sequence[Contrast]) -> list[Payload]:
    return [{"kind": c.kind, "query": c.query_value, "stored": c.stored_value} for c in found]


def remember_payload(done: Remembered, *, most_task: int = WHOLE) -> Payload:
    """Returns a remember as its tool does."""
    payload: Payload = {"stored": done.stored, "entry_id": done.entry_id, "embedding_dim": done.dimension}
    if done.warning is not None and done.nearest is not None:
        payload |= {
            "warning": done.warning,
            "nearest_task": bounded(done.nearest.entry.task, most_task),
            "nearest_similarity": done.nearest.similarity,
            "nearest_entry_id": done.nearest.entry.id,
        }
        if done.contrasts:
            # Two tasks, then, and not one told again.
            payload["nearest_contrasts"] = _contrasts(done.contrasts)
    return payload


def echo_payload(echoes: Echoes, *, most_task: int = WHOLE) -> Payload:
    """Returns an echo as its tool does."""
    pairs = zip(echoes.near, echoes.contrasts, strict=True)
    return {"count": echoes.count, "echoes": [_one_echo(near, apart, most_task) for near, apart in pairs]}


def _one_echo(near: Near, contrasts: Sequence[Contrast], most: int) -> Payload:
    return {
        "entry_id": near.entry.id,
        "similarity": near.similarity,
        "task_text": bounded(near.entry.task, most),
        "stored_at": near.entry.created_at,
        "tags": list(near.entry.tags),
        "kind": near.entry.kind,
        "contrasts": _contrasts(contrasts),
    }


def drift_payload(found: DriftReport, *, most_task: int = WHOLE, most: int = WHOLE) -> Payload:
    """Returns a drift report as its tool does, at most `most` candidates of it."""
    shown = found.candidates[:most]
    payload: Payload = {
        "analyzed_recalls": found.analyzed_recalls,
        "entries_with_hits": found.entries_with_hits,
        "candidates": [
            {
                "entry_id": c.entry_id,
                "task_text": None if c.task_text is None else bounded(c.task_text, most_task),
                "still_stored": c.still_stored,
                "hits": c.hits,
                "distinct_queries": c.distinct_queries,
                "similarity_min": c.similarity_min,
                "similarity_max": c.similarity_max,
                "similarity_spread": c.similarity_spread,
                "contrasts": [
                    {"kind": told.kind, "one": told.query_value, "other": told.stored_value}
                    for told in c.contrasts[:MAX_CONTRASTS]
                ],
            }
            for c in shown
        ],
    }
    if len(shown) < len(found.candidates):
        payload["candidates_left_out"] = len(found.candidates) - len(shown)
    if found.skipped_lines:
        payload["skipped_lines"] = found.skipped_lines
    return payload


def forget_payload(forgotten: bool) -> Payload:
    """Returns a forget as its tool does."""
    return {"forgotten": forgotten}


def near_payload(near: Near) -> Payload:
    """What stands beside a prompt: the texts and how near they are."""
    return {"task": near.entry.task, "answer": near.entry.answer, "similarity": near.similarity}


def stats_payload(stats: Stats) -> Payload:
    """Returns statistics as their tool does."""
    payload: Payload = {
        "total_entries": stats.total_entries,
        "last_hit_at": stats.last_hit_at,
        "hit_rate_last_100": stats.hit_rate_last_100,
    }
    if stats.unembedded:
        # Only while a change of model is worked off: these entries cannot be found yet.
        payload["being_embedded_again"] = stats.unembedded
    return payload
