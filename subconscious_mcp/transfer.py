"""Export and import over a store: pages of lines out, batches of entries in.

A page and a batch are what one command of the engine can carry, so that a command works alike through a running
engine and by itself. Nothing is kept here between two of them: where an export stands is in its cursor.

An import believes nothing. What a file says is checked as if a stranger had written it, and what cannot be stored
is told with its place and the reason; it ends nothing.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import __version__
from subconscious_mcp.arguments import MAX_ANSWER_CHARS, MAX_TAG_CHARS, MAX_TAGS, MAX_TASK_CHARS
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.locate import MAX_NAMESPACE_CHARS, namespace_name
from subconscious_mcp.memory import Memory
from subconscious_mcp.namespaces import others_hint
from subconscious_mcp.records import Consolidated, Entry, Kind, Namespace, NewEntry, Observation
from subconscious_mcp.transfer_format import (
    ELSEWHERE,
    FORMAT,
    VERSION,
    Payload,
    consolidation_payload,
    decoded_vector,
    entry_payload,
    feedback_payload,
    line,
    namespace_payload,
)

Conflict = Literal["skip", "replace", "new-id"]
CONFLICTS: tuple[Conflict, ...] = get_args(Conflict)
ANSWERED: tuple[Kind, ...] = ("memory", "episode")
"""Kinds that are nothing without an answer; the others have a text alone."""

MAX_SOURCE_CHARS = 4_096
_PHASES = ("entry", "feedback", "consolidation")
"""What an export goes through, each for every namespace."""
_ID = re.compile(r"[^\s/\\\x00-\x1f\x7f]{1,200}")
_NO_PATH = re.compile(r"(^|[/\\])\.\.?([/\\]|$)|^[/\\]|^[A-Za-z]:[/\\]")
_QUERY = re.compile(r"[0-9a-f]{8,128}")
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")
_LAST_SECOND = 1e11
"""Seconds since the epoch that are still a time, in the year 5138: larger ones are milliseconds."""


# --- export


def begin_export(
    memory: Memory, *, name: str | None, root: str | None, kinds: Sequence[Kind], vectors: bool
) -> Payload:
    """Begins an export: what is stored now and not expired is what it holds.

    Args:
        name: The namespace's name, or that of a project's folder `root`; None for all namespaces.
        kinds: Only these; none for all.
        vectors: With the vectors of the embedder that has most.

    Returns:
        `lines`, `total` entries, the `cursor` of the first page, the names of the `namespaces`, and where there is
        nothing to export a `hint` at what others have.

    Raises:
        InvalidArgument: There is no such namespace, or no such kind.
    """
    store = memory.store
    unknown = [kind for kind in kinds if kind not in get_args(Kind)]
    if unknown:
        raise InvalidArgument(f"--kind takes one of {', '.join(get_args(Kind))}.")
    if name is None:
        spaces = [namespace for namespace, _ in store.namespaces()]
    else:
        found = store.find_namespace(name, root)
        if found is None:
            hint = _others(memory, None, kinds) or "`subconscious-mcp namespace list` shows them."
            raise InvalidArgument(f"There is no namespace {name!r}.", hint)
        spaces = [found]
    now, upto = memory.now(), store.last_key()
    total = store.count_for_export([namespace.key for namespace in spaces], kinds, upto, now)
    known = store.fingerprints()
    # The last of equal ones: the embedder that came last.
    fingerprint = max(reversed(known), key=lambda one: known[one], default=None) if any(known.values()) else None
    cursor = {
        "spaces": [[namespace.key, namespace.name, namespace.root] for namespace in spaces],
        "kinds": list(kinds),
        "fingerprint": fingerprint if vectors else None,
        "now": now,
        "upto": upto,
        "phase": _PHASES[0],
        "space": 0,
        "after": 0,
        "entries": 0,
        "feedback": 0,
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds"),
        "by": __version__,
        "fingerprint": fingerprint,
        "dimension": _dimension(memory, spaces, fingerprint, upto),
        "vectors": vectors and fingerprint is not None,
        "counts": {"namespaces": len(spaces), "entries": total},
    }
    lines = [line(header), *(line(namespace_payload(space, store.merged(space))) for space in spaces)]
    return {
        "lines": lines,
        "total": total,
        "cursor": json.dumps(cursor),
        "namespaces": [space.name for space in spaces],
        "hint": _others(memory, spaces[0], kinds) if name is not None and not total else "",
    }


def _others(memory: Memory, own: Namespace | None, kinds: Sequence[Kind]) -> str:
    """Returns which other namespaces have entries of these kinds."""
    return others_hint(
        {
            space.name: sum(count for kind, count in counts.items() if not kinds or kind in kinds)
            for space, counts in memory.store.namespaces()
            if own is None or space.key != own.key
        }
    )


def _dimension(memory: Memory, spaces: Sequence[Namespace], fingerprint: str | None, upto: int) -> int | None:
    for space in spaces if fingerprint else ():
        page = memory.store.export_page(space.key, (), fingerprint, after=0, upto=upto, now=-math.inf)
        for _, vector in page:
            if vector is not None:
                return len(vector) // 2
    return None


def export_page(memory: Memory, cursor: str) -> Payload:
    """Returns the next `lines`, how many entries are `done`, and the `cursor` behind them; None after the last."""
    # A text in ASCII, because an engine's reply holds no folder whose name is no valid Unicode.
    at = json.loads(cursor)
    spaces = [Namespace(int(key), str(name), root) for key, name, root in at["spaces"]]
    kinds = tuple(at["kinds"])
    lines: list[str] = []
    while not lines and at["space"] < len(spaces):
        space = spaces[at["space"]]
        if at["phase"] == "entry":
            page = memory.store.export_page(
                space.key, kinds, at["fingerprint"], after=at["after"], upto=at["upto"], now=at["now"]
            )
            lines = [line(entry_payload(entry, space, vector)) for entry, vector in page]
            last = page[-1][0].key if page else 0
            at["entries"] += len(lines)
        elif at["phase"] == "feedback":
            said = memory.store.feedback_page(space.key, after=at["after"])
            there = memory.store.found([observation.entry_id for _, _, observation in said])
            wanted = {entry_id for entry_id, (_, entry) in there.items() if _is_exported(entry, kinds, at)}
            lines = [line(feedback_payload(query, one)) for _, query, one in said if one.entry_id in wanted]
            last = said[-1][0] if said else 0
            at["feedback"] += len(lines)
        else:
            lines, last = _consolidation_lines(memory, space, kinds, at), 0
        at["after"] = last
        if not last:
            at["space"] += 1
            if at["space"] == len(spaces) and at["phase"] != _PHASES[-1]:
                at["phase"], at["space"] = _PHASES[_PHASES.index(at["phase"]) + 1], 0
    if lines:
        return {"lines": lines, "done": at["entries"], "cursor": json.dumps(at)}
    end = {"type": "end", "namespaces": len(spaces), "entries": at["entries"], "feedback": at["feedback"]}
    return {"lines": [line(end)], "done": at["entries"], "cursor": None}


def _consolidation_lines(memory: Memory, space: Namespace, kinds: Sequence[Kind], at: Mapping[str, Any]) -> list[str]:
    """Returns all of a namespace at once: there are few, and the oldest comes first."""
    lines = []
    for done in reversed(memory.store.consolidations(space)):
        there = memory.store.found(done.members)
        members = [one for one in done.members if one in there and _is_exported(there[one][1], kinds, at)]
        if members:
            lines.append(line(consolidation_payload(done, members)))
    return lines


def _is_exported(entry: Entry, kinds: Sequence[Kind], at: Mapping[str, Any]) -> bool:
    live = entry.expires_at is None or entry.expires_at > at["now"]
    return live and entry.key <= at["upto"] and (not kinds or entry.kind in kinds)


# --- import: what a file says, checked


class _Refused(Exception):
    """Why an entry is not imported."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry of a file that can be stored.

    Attributes:
        vector: Its embedding by the embedder in use, (d,) float16, or None.
    """

    place: str
    new: NewEntry
    name: str
    root: str | None
    vector: NDArray[np.float16] | None


def _checked_text(what: str, value: Any, most: int, *, may_be_blank: bool = False) -> str:
    if not isinstance(value, str):
        raise _Refused(f"{what} is no text")
    if not may_be_blank and not value.strip():
        raise _Refused(f"{what} is blank")
    if len(value) > most:
        raise _Refused(f"{what} is too long ({len(value):,} characters, at most {most:,})")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise _Refused(f"{what} is no valid Unicode") from None
    return value


def _checked_time(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LAST_SECOND < value < _LAST_SECOND:
        raise _Refused(f"{what} is no time in seconds since the epoch")
    return float(value)


def _checked_id(value: Any) -> str:
    # Ids name no files; one that looks like a path is nobody's, and the next program may be less careful.
    if not isinstance(value, str) or not _ID.fullmatch(value) or set(value) == {"."} or not value.isprintable():
        raise _Refused("the id is none: 1 to 200 printable characters without blanks and slashes")
    return _checked_text("the id", value, 200)


def _checked_name(value: Any) -> str:
    try:
        name = namespace_name(value)
    except ValueError:
        raise _Refused(f"the namespace is none: 1 to {MAX_NAMESPACE_CHARS} printable characters") from None
    if _NO_PATH.search(name):
        raise _Refused("the namespace looks like a path that leads elsewhere")
    return _checked_text("the namespace", name, MAX_NAMESPACE_CHARS)


def _checked_root(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= 4_096 or "\0" in value:
        raise _Refused("the folder of the namespace is none")
    return value


def _checked_tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_TAGS:
        raise _Refused(f"the tags are no list of at most {MAX_TAGS}")
    return tuple(_checked_text("a tag", tag, MAX_TAG_CHARS, may_be_blank=True) for tag in value)


def _candidate(payload: Mapping[str, Any], target: tuple[str, str | None] | None, now: float) -> _Candidate:
    """Checks one entry; `target` is the namespace that all go to, or None for the one that each names.

    Raises:
        _Refused: Why it cannot be stored.
    """
    kind = payload.get("kind")
    if kind not in get_args(Kind):
        raise _Refused("the kind is unknown")
    entry_id = _checked_id(payload.get("id"))
    name, root = target or (_checked_name(payload.get("namespace")), _checked_root(payload.get("root")))
    expires_at = payload.get("expires_at")
    if expires_at is not None and _checked_time("expires_at", expires_at) <= now:
        raise _Refused("it has expired")
    archived_at, superseded_by = payload.get("archived_at"), payload.get("superseded_by", "")
    new = NewEntry(
        id=entry_id,
        kind=cast(Kind, kind),
        task=_checked_text("the task", payload.get("task"), MAX_TASK_CHARS),
        answer=_checked_text(
            "the answer", payload.get("answer", ""), MAX_ANSWER_CHARS, may_be_blank=kind not in ANSWERED
        ),
        created_at=_checked_time("created_at", payload.get("created_at")),
        expires_at=None if expires_at is None else float(expires_at),
        tags=_checked_tags(payload.get("tags", [])),
        source=_checked_text("the source", payload.get("source", ""), MAX_SOURCE_CHARS, may_be_blank=True),
        archived_at=None if archived_at is None else _checked_time("archived_at", archived_at),
        superseded_by=_checked_id(superseded_by) if superseded_by else "",
    )
    return _Candidate(str(payload.get("place", "")), new, name, root, _vector(payload.get("vector")))


def _vector(text: Any) -> NDArray[np.float16] | None:
    raw = decoded_vector(text)
    if not raw or len(raw) % 2:
        return None
    vector = np.frombuffer(raw, dtype="<f2").astype(np.float16)
    # One that is not finite, or nothing but zeros, says nothing of its text: it is embedded again.
    return vector if np.isfinite(vector).all() and vector.any() else None


# --- import: into the store


def import_namespaces(memory: Memory, *, namespaces: Sequence[Mapping[str, Any]], dry_run: bool) -> Payload:
    """Registers namespaces, with the names and folders that lead to them; returns what was `skipped`."""
    skipped = []
    for payload in namespaces:
        try:
            name, root = _checked_name(payload.get("name")), _checked_root(payload.get("root"))
            merged = payload.get("merged", [])
            if not isinstance(merged, list) or not all(isinstance(one, dict) for one in merged):
                raise _Refused("what was merged into the namespace is no list")
            leading = [
                (None if one.get("name") is None else _checked_name(one["name"]), _checked_root(one.get("root")))
                for one in merged
            ]
            if not dry_run:
                space = memory.store.namespace(name, root)
                for other_name, other_root in leading:
                    memory.store.add_merged(space, other_name, other_root)
        except _Refused as refused:
            skipped.append(_told(payload, str(refused)))
    return {"skipped": skipped}


def import_entries(
    memory: Memory,
    *,
    entries: Sequence[Mapping[str, Any]],
    fingerprint: str | None,
    name: str | None,
    root: str | None,
    on_conflict: Conflict,
    dry_run: bool,
) -> Payload:
    """Stores a batch of entries, in their order; those of one namespace that follow each other, or none of them.

    Args:
        entries: As the lines of an export, with the `place` of each.
        fingerprint: The embedder of their vectors; those of another than the one in use are embedded again.
        name: The namespace that all go to; None for the one that each names.
        root: Its folder, where its name is that of a project.
        on_conflict: What becomes of an entry whose id is there with other content.

    Returns:
        How many were `stored`, `replaced`, there already (`same`) and `embedded`, how many of these are in which of
        the `namespaces`, which ids were `renamed`, and what was `skipped`.
    """
    if on_conflict not in CONFLICTS:
        raise InvalidArgument(f"--on-conflict takes one of {', '.join(CONFLICTS)}.")
    return _Batch(memory, on_conflict, dry_run).carried_out(
        entries, fingerprint, None if name is None else (name, root)
    )


class _Batch:
    """One batch of an import."""

    def __init__(self, memory: Memory, on_conflict: Conflict, dry_run: bool) -> None:
        self._memory = memory
        self._on_conflict = on_conflict
        self._dry_run = dry_run
        self._skipped: list[Payload] = []
        self._renamed: dict[str, str] = {}
        self._same = self._replaced = self._stored = self._embedded = 0
        self._namespaces: Counter[str] = Counter()

    def carried_out(
        self, entries: Sequence[Mapping[str, Any]], fingerprint: str | None, target: tuple[str, str | None] | None
    ) -> Payload:
        now = self._memory.now()
        candidates: list[_Candidate] = []
        for payload in entries:
            try:
                candidates.append(_candidate(payload, target, now))
            except _Refused as refused:
                self._skipped.append(_told(payload, str(refused)))
        there = self._memory.store.found([one.new.id for one in candidates])
        run: list[tuple[_Candidate, Entry | None]] = []
        for candidate in candidates:
            settled = self._settled(candidate, there)
            if settled is None:
                continue
            if run and (run[0][0].name, run[0][0].root) != (candidate.name, candidate.root):
                self._store(run, fingerprint)
                run = []
            run.append(settled)
        if run:
            self._store(run, fingerprint)
        return {
            "stored": self._stored,
            "replaced": self._replaced,
            "same": self._same,
            "embedded": self._embedded,
            "namespaces": dict(self._namespaces),
            "renamed": self._renamed,
            "skipped": self._skipped,
        }

    def _settled(
        self, candidate: _Candidate, there: Mapping[str, tuple[int, Entry]]
    ) -> tuple[_Candidate, Entry | None] | None:
        """Returns what is to be stored and what it replaces; None where nothing is."""
        known = there.get(candidate.new.id)
        if known is None:
            return candidate, None
        key, entry = known
        space = self._memory.store.find_namespace(candidate.name, candidate.root)
        own = space is not None and space.key == key
        if own and _is_same(candidate, entry):
            self._note_same(candidate, space)
            return None
        if self._on_conflict == "new-id":
            # The same each time, so that the same file adds nothing when it comes again.
            new_id = _derived_id(candidate)
            self._renamed[candidate.new.id] = new_id
            if self._memory.store.found([new_id]):
                self._note_same(candidate, space)
                return None
            return _with_id(candidate, new_id), None
        if not own:
            # Whoever imports into one namespace must not reach into another.
            self._skip(candidate, ELSEWHERE)
            return None
        if self._on_conflict == "skip":
            self._skip(candidate, "its id is there with other content")
            return None
        return candidate, entry

    def _note_same(self, candidate: _Candidate, space: Namespace | None) -> None:
        self._same += 1
        self._namespaces[candidate.name if space is None else space.name] += 1

    def _skip(self, candidate: _Candidate, reason: str) -> None:
        self._skipped.append({"place": candidate.place, "id": candidate.new.id, "reason": reason})

    def _store(self, run: Sequence[tuple[_Candidate, Entry | None]], fingerprint: str | None) -> None:
        replaced = [entry for _, entry in run if entry is not None]
        self._stored += len(run) - len(replaced)
        self._replaced += len(replaced)
        candidates = [candidate for candidate, _ in run]
        name, root = candidates[0].name, candidates[0].root
        if self._dry_run:
            known = self._memory.store.find_namespace(name, root)
            self._namespaces[name if known is None else known.name] += len(run)
            return
        vectors = self._vectors(candidates, fingerprint)
        space = self._memory.store.namespace(name, root)
        # The name that it has: that of another project may have been taken.
        self._namespaces[space.name] += len(run)
        self._memory.store.add_many(
            space,
            [candidate.new for candidate in candidates],
            self._memory.embedder().fingerprint,
            vectors,
            replacing=replaced,
        )

    def _vectors(self, candidates: Sequence[_Candidate], fingerprint: str | None) -> NDArray[np.float32]:
        embedder = self._memory.embedder()
        vectors = np.zeros((len(candidates), embedder.dimension), dtype=np.float32)
        missing = []
        for row, candidate in enumerate(candidates):
            usable = fingerprint == embedder.fingerprint and candidate.vector is not None
            if usable and candidate.vector is not None and candidate.vector.shape == (embedder.dimension,):
                vectors[row] = candidate.vector
            else:
                missing.append(row)
        if missing:
            vectors[missing] = embedder.embed([candidates[row].new.task for row in missing])
            self._embedded += len(missing)
        return vectors


def _is_same(candidate: _Candidate, entry: Entry) -> bool:
    return all(getattr(candidate.new, field) == getattr(entry, field) for field in NewEntry.__slots__)


def _derived_id(candidate: _Candidate) -> str:
    new = candidate.new
    # As JSON, because a folder's name may be no valid Unicode.
    named = json.dumps([new.id, candidate.name, candidate.root, new.kind, new.task, new.answer])
    return uuid.uuid5(uuid.NAMESPACE_URL, "subconscious-mcp:import:" + named).hex


def _with_id(candidate: _Candidate, new_id: str) -> _Candidate:
    return replace(candidate, new=replace(candidate.new, id=new_id))


def import_feedback(
    memory: Memory, *, feedback: Sequence[Mapping[str, Any]], name: str | None, root: str | None, dry_run: bool
) -> Payload:
    """Stores feedback on entries that are there, in their order; what was said of the same query before stays.

    Args:
        name: The namespace that all entries went to; None for any.
        root: Its folder, where its name is that of a project.
    """
    said: list[tuple[str, Observation]] = []
    skipped = []
    for payload in feedback:
        try:
            said.append(_observation(payload))
        except _Refused as refused:
            skipped.append(_told({"id": payload.get("entry"), **payload}, str(refused)))
    if name is not None:
        space = memory.store.find_namespace(name, root)
        there = memory.store.found([one.entry_id for _, one in said])
        own = {entry_id for entry_id, (key, _) in there.items() if space is not None and key == space.key}
        said = [(query, one) for query, one in said if one.entry_id in own]
    return {"stored": 0 if dry_run else memory.store.add_feedback(said), "skipped": skipped}


def _observation(payload: Mapping[str, Any]) -> tuple[str, Observation]:
    query, fingerprint, similarity = payload.get("query"), payload.get("fingerprint"), payload.get("similarity")
    if not isinstance(query, str) or not _QUERY.fullmatch(query):
        raise _Refused("the query of the feedback is no hash")
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise _Refused("the fingerprint of the feedback is none")
    if isinstance(similarity, bool) or not isinstance(similarity, (int, float)) or not 0.0 <= similarity <= 1.0:
        raise _Refused("the similarity of the feedback is none")
    correct, kept_back = payload.get("correct"), payload.get("kept_back", False)
    if not isinstance(correct, bool) or not isinstance(kept_back, bool):
        raise _Refused("the verdict of the feedback is none")
    at = _checked_time("the time of the feedback", payload.get("at"))
    return query, Observation(_checked_id(payload.get("entry")), float(similarity), correct, at, fingerprint, kept_back)


def import_consolidations(
    memory: Memory,
    *,
    consolidations: Sequence[Mapping[str, Any]],
    name: str | None,
    root: str | None,
    dry_run: bool,
) -> Payload:
    """Notes what was archived for which entry, as far as the entries are there and nothing else was noted of them.

    Args:
        name: The namespace that all entries went to; None for any.
        root: Its folder, where its name is that of a project.
    """
    skipped = []
    only = memory.store.find_namespace(name, root) if name is not None else None
    for payload in consolidations:
        try:
            members, made = payload.get("members"), payload.get("made")
            if not isinstance(members, list) or not isinstance(made, bool):
                raise _Refused("what was consolidated is no list")
            ids = tuple(_checked_id(member) for member in members)
            done = Consolidated(_checked_id(payload.get("run")), _checked_id(payload.get("survivor")), made, ids)
            if not dry_run and (name is None or only is not None):
                memory.store.add_consolidated(only, done)
        except _Refused as refused:
            skipped.append(_told(payload, str(refused)))
    return {"skipped": skipped}


def _told(payload: Mapping[str, Any], reason: str) -> Payload:
    entry_id = payload.get("id")
    # It may be anything, and is printed.
    shown = entry_id[:80] if isinstance(entry_id, str) and entry_id.isprintable() else ""
    return {"place": str(payload.get("place", "")), "id": shown, "reason": reason}
