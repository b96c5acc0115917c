"""Five sample notes and two questions: what `subconscious-mcp seed-demo` stores and asks."""

from __future__ import annotations

from typing import Any

from subconscious_mcp import note_payloads, notes
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Filters

SAMPLES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "Reading list: start with The Design of Everyday Things, then Thinking in Systems; both lie on the desk.",
        ("reading", "personal"),
        "chat",
    ),
    (
        "Project Atlas is led by Priya Raman; its first release is planned for the second week of March.",
        ("work", "project-atlas"),
        "slack",
    ),
    ("I am allergic to shellfish, so no prawns and no oyster sauce.", ("health", "food"), "chat"),
    ("The spare key of the bicycle shed hangs behind the fuse box in the hall.", ("home",), "chat"),
    ("I prefer short answers with a code sample first and the reasons after it.", ("preferences",), "chat"),
)
QUESTIONS = ("what should I read next?", "who leads project atlas?")
SHOWN = 3


def seed(memory: Memory, scope: Scope) -> dict[str, Any]:
    """Stores the samples that are not there yet, asks the questions, and returns what was seen, JSON values only."""
    stored = []
    for content, tags, source in SAMPLES:
        there = notes.recent(memory, scope, limit=notes.MAX_RECENT, filters=Filters(tags=tags, source=source))
        known = next((entry.id for entry in there if entry.task == content), None)
        done = known or notes.add(memory, scope, content, tags=tags, source=source).entry_id
        stored.append({"id": done, "new": known is None})
    asked = [
        {"query": query, "found": note_payloads.hits_payload(notes.search(memory, scope, query, limit=SHOWN))}
        for query in QUESTIONS
    ]
    return {"stored": stored, "total": notes.count(memory, scope), "questions": asked}
