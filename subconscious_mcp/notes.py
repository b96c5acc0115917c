"""Notes: what a user said, kept and found again by meaning and by words.

A note is one text (an entry's task; its answer is empty). Of kind `note` it is of a moment, of kind `fact` it
holds until another takes its place, which `supersede` does. The verbs are siblings of `memory`'s.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from subconscious_mcp import full_text, hybrid, verification
from subconscious_mcp.arguments import MAX_ID_CHARS, MAX_TASK_CHARS, checked_tags, checked_text
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import NOTES, Contrast, Entry, Filters, Kind, Near, NewEntry

MAX_LIMIT = 50
MAX_RECENT = 100
MAX_SOURCE_CHARS = 500
CONTRADICTION = 0.75
"""Similarity from which a stored note is about the same thing, so that a contrast with it is worth telling. Source:
the lower end of what `remember` calls a near-duplicate."""
_LOOKED_AT = 8
"""Near notes that are looked at for contradictions: half a millisecond each."""
_TOLD = 3
HALF_LIFE = 30 * 86_400.0
"""Seconds after which the lead of a newer note is halved where recent ones are preferred. Source: own choice."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A note that says something else of the same thing.

    Attributes:
        near: The note, and how near it is.
        contrasts: What differs, the strongest first.
    """

    near: Near
    contrasts: tuple[Contrast, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """What `add` or `supersede` came to.

    Attributes:
        duplicate_of: Id of a live note that says the same in the same words; empty where there is none.
    """

    entry_id: str
    contradictions: tuple[Contradiction, ...] = ()
    duplicate_of: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A note that was found.

    Attributes:
        similarity: Cosine of query and note, 0..1.
        parts: What its place in the order is made of.
        before: The note before it, of the same source, where neighbours were asked for.
        after: The one after it.
    """

    entry: Entry
    similarity: float
    parts: hybrid.Parts
    before: Entry | None = None
    after: Entry | None = None


def add(
    memory: Memory,
    scope: Scope,
    content: str,
    *,
    tags: Sequence[str] = (),
    source: str = "",
    kind: Kind = "note",
) -> Noted:
    """Stores a note.

    Args:
        kind: `note` for what was said at a moment, `fact` for what holds from now on.

    Returns:
        Its id, and the notes that contradict it.

    Raises:
        InvalidArgument: An argument is blank, too long, or no kind of note.
    """
    entry = _new(memory, content, tags, source, _checked_kind(kind))
    if scope.request and (written := memory.store.written_by(scope.request)) is not None:
        return Noted(written)
    vector = memory.vector(scope, entry.task)
    fingerprint = memory.embedder().fingerprint
    near = _near(memory, scope, entry.task)
    memory.store.add(scope.namespace, entry, fingerprint, vector, request=scope.request)
    same = next((one.entry.id for one in near if one.entry.task == entry.task and one.entry.kind == entry.kind), "")
    return Noted(entry.id, _contradictions(entry.task, near), same)


def supersede(
    memory: Memory,
    scope: Scope,
    entry_id: str,
    content: str,
    *,
    tags: Sequence[str] | None = None,
    source: str | None = None,
) -> Noted | None:
    """Stores a note in the place of another, which is kept and no longer returned.

    Args:
        tags: None takes those of the old one.
        source: None takes that of the old one.

    Returns:
        The new note's id; None where the namespace has no such note.

    Raises:
        InvalidArgument: An argument is blank or too long, the entry is no note, or it is superseded already.
    """
    old = note(memory, scope, entry_id)
    if scope.request and (written := memory.store.written_by(scope.request)) is not None:
        return Noted(written)
    if old is None:
        return None
    if old.archived_at is not None:
        by = f" by {old.superseded_by}" if old.superseded_by else ""
        raise InvalidArgument(f"That note was superseded{by} already.", "Supersede the one that holds now.")
    entry = _new(
        memory, content, old.tags if tags is None else tags, old.source if source is None else source, old.kind
    )
    near = [one for one in _near(memory, scope, entry.task) if one.entry.id != old.id]
    done = memory.store.supersede(
        scope.namespace,
        old.id,
        entry,
        memory.embedder().fingerprint,
        memory.vector(scope, entry.task),
        request=scope.request,
        at=memory.now(),
    )
    return Noted(entry.id, _contradictions(entry.task, near)) if done else None


def note(memory: Memory, scope: Scope, entry_id: str) -> Entry | None:
    """Returns a note by its id, archived or not; None where there is none.

    Raises:
        InvalidArgument: The id is blank or that of an entry which is no note.
    """
    entry = memory.store.entry(scope.namespace, checked_text("entry_id", entry_id, MAX_ID_CHARS).strip())
    if entry is not None and entry.kind not in NOTES:
        raise InvalidArgument(f"entry_id takes the id of a note; this is an entry of kind {entry.kind}.")
    return entry


def restore(memory: Memory, scope: Scope, entry_id: str) -> bool:
    """Lets an archived note be found again; returns False where there is none.

    Raises:
        InvalidArgument: The id is blank or that of an entry which is no note or not archived.
    """
    entry = note(memory, scope, entry_id)
    if entry is not None and entry.archived_at is None:
        raise InvalidArgument("That note is found already; only one that was superseded can be restored.")
    return entry is not None and memory.store.restore(scope.namespace, entry.id)


def search(
    memory: Memory,
    scope: Scope,
    query: str,
    *,
    limit: int = 5,
    filters: Filters | None = None,
    kinds: Sequence[Kind] = NOTES,
    neighbours: bool = False,
    prefer_recent: bool = False,
) -> list[Hit]:
    """Finds notes by meaning and by words, the best first.

    Candidates are the nearest by vector and the best by words, together, so that an identifier is found which no
    vector would find. Nothing relevant means nothing returned.

    Args:
        neighbours: Return with each note those before and after it of the same source.
        prefer_recent: Let newer notes have a lead, which `HALF_LIFE` halves.

    Raises:
        InvalidArgument: An argument is blank or out of range.
    """
    checked_text("query", query, MAX_TASK_CHARS)
    checked_limit(limit, MAX_LIMIT)
    filters = filters or Filters()
    found = _found(memory, scope, query, filters, kinds)
    read = memory.store.tasks(hybrid.to_read(found))
    texts = {key: task for key, (task, _) in read.items()}
    born = {key: created_at for key, (_, created_at) in read.items()}
    half_life = HALF_LIFE if prefer_recent else None
    ranked = hybrid.rank(query, found, texts, born, limit=limit, now=memory.now(), half_life=half_life)
    beside = memory.store.beside([one.key for one in ranked], now=memory.now()) if neighbours else {}
    around = [key for pair in beside.values() for key in pair if key is not None]
    entries = memory.store.entries(list(dict.fromkeys([*(one.key for one in ranked), *around])))
    return [_hit(one, entries, *beside.get(one.key, (None, None))) for one in ranked if one.key in entries]


def _hit(ranked: hybrid.Ranked, entries: Mapping[int, Entry], before: int | None, after: int | None) -> Hit:
    return Hit(
        entries[ranked.key],
        ranked.similarity,
        ranked.parts,
        None if before is None else entries.get(before),
        None if after is None else entries.get(after),
    )


def _found(memory: Memory, scope: Scope, query: str, filters: Filters, kinds: Sequence[Kind]) -> hybrid.Found:
    """Gathers the candidates and what numbers say of them; the steps are those that `hybrid` names."""
    store, namespace, now = memory.store, scope.namespace, memory.now()
    terms = hybrid.keyword_terms(query, full_text.words(query))
    vector, fingerprint = memory.vector(scope, query), memory.embedder().fingerprint
    similar = store.nearest_keys(namespace, kinds, fingerprint, vector, hybrid.CANDIDATES, now=now, filters=filters)
    held = store.holders(namespace, kinds, terms, query, now=now, filters=filters)
    words = hybrid.weigh(held.terms, held.keys, held.count)
    words = replace(words, names=words.names.union(term.casefold() for term in held.common))
    candidates = list(dict.fromkeys([*similar, *hybrid.best_by_words(words, hybrid.CANDIDATES)]))
    beside = store.beside(candidates, now=now)
    around = list(dict.fromkeys(key for pair in beside.values() for key in pair if key is not None))
    beside |= store.beside([key for key in around if key not in beside], now=now)
    wanted = [key for key in (*candidates, *around) if key not in similar]
    if filters != Filters():
        wanted = [key for key, entry in store.entries(wanted).items() if _passes(entry, filters)]
    similar |= store.similarities(namespace, kinds, fingerprint, vector, list(dict.fromkeys(wanted)))
    return hybrid.combine(similar, words, beside)


def _passes(entry: Entry, filters: Filters) -> bool:
    """Returns whether a neighbour of a candidate may be returned itself."""
    return (
        (not filters.tags or not set(filters.tags).isdisjoint(entry.tags))
        and (filters.since is None or entry.created_at >= filters.since)
        and (filters.until is None or entry.created_at <= filters.until)
        and (filters.source is None or entry.source == filters.source)
    )


def recent(
    memory: Memory,
    scope: Scope,
    *,
    limit: int = 10,
    filters: Filters | None = None,
    kinds: Sequence[Kind] = NOTES,
    archived: bool = False,
) -> list[Entry]:
    """Returns the newest notes, newest first.

    Args:
        archived: Those that were superseded or merged, in place of those that are found.

    Raises:
        InvalidArgument: `limit` is out of range.
    """
    checked_limit(limit, MAX_RECENT)
    return memory.store.recent(
        scope.namespace, kinds, limit, now=memory.now(), filters=filters or Filters(), archived=archived
    )


def count(memory: Memory, scope: Scope) -> int:
    """Returns how many notes there are."""
    return memory.store.count(scope.namespace, NOTES, memory.now())


def checked_limit(limit: int, most: int) -> int:
    """Returns `limit` if it is from 1 to `most`.

    Raises:
        InvalidArgument: It is not.
    """
    if not 1 <= limit <= most:
        raise InvalidArgument(f"limit takes a whole number from 1 to {most}.")
    return limit


def _new(memory: Memory, content: str, tags: Sequence[str], source: str, kind: Kind) -> NewEntry:
    checked_text("content", content, MAX_TASK_CHARS)
    if source.strip():
        checked_text("source", source, MAX_SOURCE_CHARS)
    return NewEntry(uuid.uuid4().hex, kind, content, "", memory.now(), None, checked_tags(tags), source.strip())


def _checked_kind(kind: Kind) -> Kind:
    if kind not in NOTES:
        raise InvalidArgument(f"kind takes one of {', '.join(NOTES)}.")
    return kind


def _near(memory: Memory, scope: Scope, content: str) -> list[Near]:
    vector, fingerprint = memory.vector(scope, content), memory.embedder().fingerprint
    return memory.store.nearest(scope.namespace, NOTES, fingerprint, vector, _LOOKED_AT, now=memory.now())


def _contradictions(content: str, near: Sequence[Near]) -> tuple[Contradiction, ...]:
    apart = (
        Contradiction(one, verification.told(content, one.entry.task))
        for one in near
        if one.similarity >= CONTRADICTION and one.entry.task != content
    )
    return tuple(one for one in apart if one.contrasts)[:_TOLD]
