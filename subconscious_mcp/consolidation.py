"""Consolidation: near-duplicates become one entry, old notes a summary. Nothing is deleted, and all can be undone.

A plan is made first and shows what would be done. Carried out, each group is one step in memory.db: the members are
archived, say who took their place, and are still there by their ids. A kill between two groups leaves a state that
the next run completes, and a second run finds nothing to do.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from subconscious_mcp import near_duplicates, old_notes
from subconscious_mcp.arguments import MAX_ID_CHARS, MAX_TAGS, checked_text
from subconscious_mcp.errors import InvalidArgument, LanguageModelError
from subconscious_mcp.language_model import LanguageModel, cleaned
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.near_duplicates import LEAST, Apart, Group, Progress
from subconscious_mcp.old_notes import OLDER_THAN_DAYS, SUMMARY_SOURCE, SUMMARY_TAG, Proposal
from subconscious_mcp.records import Kind, NewEntry

KINDS: tuple[Kind, ...] = ("note", "fact", "memory")
LOWEST = 0.8
"""Least similarity that may be asked for. Source: `verification.LOOSE`, below which the check keeps back less."""
MOST_DAYS = 36_500
LAST = "last"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done.

    Attributes:
        looked_at: Entries that were compared.
        least: Similarity from which entries may be merged.
        groups: Entries that are one.
        apart: Near pairs that are not merged, the nearest, with what keeps them apart.
        proposals: Old notes that a summary may stand for; none where summaries were not asked for.
        old_groups: How many groups of old notes there are in all.
        model: Who would write the summaries: `client`, `endpoint`, or `none`.
        cut: Some entries have more neighbours than were compared.
    """

    looked_at: int
    least: float
    groups: tuple[Group, ...]
    apart: tuple[Apart, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    old_groups: int = 0
    model: str = "none"
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Merged:
    """A group that became one entry, an old one or one that was made of them."""

    survivor_id: str
    made: bool
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summarised:
    """What became of a proposal: the summary's id, or why there is none."""

    entry_id: str | None
    member_ids: tuple[str, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did.

    Attributes:
        plan: The first plan.
        run: Names the run, empty where nothing was carried out.
        changed: Groups that were left because one of their entries changed meanwhile.
    """

    plan: Plan
    run: str = ""
    merged: tuple[Merged, ...] = ()
    summarised: tuple[Summarised, ...] = ()
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Undone:
    """What undoing came to.

    Attributes:
        restored: Ids of the entries that can be found again.
        left: Ids of survivors that something else took the place of since: that is undone first.
        known: There was something of that name to undo.
    """

    restored: tuple[str, ...]
    left: tuple[str, ...] = ()
    known: bool = True


def plan(
    memory: Memory,
    scope: Scope,
    *,
    kinds: Sequence[Kind] = KINDS,
    least: float = LEAST,
    summaries: bool = False,
    older_than_days: int = OLDER_THAN_DAYS,
    progress: Progress | None = None,
) -> Plan:
    """Returns what a consolidation would do, and changes nothing.

    Args:
        kinds: Of what; entries of different kinds are never merged, and of answers only equal ones.
        least: Similarity from which entries may be merged, `LOWEST`..1.
        summaries: Look for old notes that a summary may stand for.
        older_than_days: What counts as old.

    Raises:
        InvalidArgument: An argument is out of range.
    """
    if not LOWEST <= least <= 1.0:
        raise InvalidArgument(f"min_similarity takes a number from {LOWEST} to 1.")
    if not 1 <= older_than_days <= MOST_DAYS:
        raise InvalidArgument(f"older_than_days takes a whole number from 1 to {MOST_DAYS}.")
    rows = near_duplicates.rows(memory, scope, kinds)
    found = near_duplicates.find(memory, rows, least, progress)
    near_duplicates.nearest_apart(found)
    proposals: list[Proposal] = []
    count = 0
    if summaries:
        merged = {member.entry.id for group in found.groups for member in group.members}
        rest = [row for row in rows if row.id not in merged]
        proposals, count = old_notes.proposals(memory, rest, memory.now() - older_than_days * 86_400)
    return Plan(
        len(rows),
        least,
        tuple(found.groups),
        tuple(found.apart),
        tuple(proposals),
        count,
        scope.model.where if scope.model is not None else "none",
        found.cut,
    )


def consolidate(
    memory: Memory,
    scope: Scope,
    *,
    apply: bool = False,
    min_similarity: float = LEAST,
    older_than_days: int = OLDER_THAN_DAYS,
    summaries: bool = False,
    progress: Progress | None = None,
) -> Done:
    """Plans a consolidation, and carries it out where `apply` says so.

    Summaries need a model (`Scope.model`); without one the plan says so and the notes stay as they are.

    Raises:
        InvalidArgument: An argument is out of range.
        StorageError: The groups before are done, the others are left for another run.
    """
    first = made = plan(
        memory,
        scope,
        least=min_similarity,
        summaries=summaries,
        older_than_days=older_than_days,
        progress=progress,
    )
    if not apply:
        return Done(first)
    run = uuid.uuid4().hex
    merged: list[Merged] = []
    changed = 0
    while made.groups:
        for group in made.groups:
            done = merge(memory, scope, group, run)
            changed += done is None
            merged += [done] if done is not None else []
        if not made.cut or changed:
            break
        # What was not compared may be now, so that another run finds nothing to do.
        made = plan(memory, scope, least=min_similarity, progress=progress)
    proposals = first.proposals
    if summaries and merged:
        # An entry that was made of several is what a summary stands for now.
        proposals = plan(
            memory, scope, kinds=("note",), least=1.0, summaries=True, older_than_days=older_than_days
        ).proposals
    model = scope.model
    summarised = [] if model is None else [summarise(memory, scope, model, one, run) for one in proposals]
    return Done(first, run, tuple(merged), tuple(summarised), changed)


def merge(memory: Memory, scope: Scope, group: Group, run: str) -> Merged | None:
    """Lets one entry stand for a group; returns None where one of them changed since it was planned.

    The survivor stays as it is, unless the others bear other tags or live longer: then an entry that is made of it,
    with all tags, takes the place of all.
    """
    ids = tuple(member.entry.id for member in group.members)
    store, namespace, now = memory.store, scope.namespace, memory.now()
    if not group.united:
        done = store.consolidate(namespace, ids, group.survivor.id, run=run, at=now)
        return Merged(group.survivor.id, False, ids) if done else None
    old = group.survivor
    new = NewEntry(
        uuid.uuid4().hex, old.kind, old.task, old.answer, old.created_at, group.expires_at, group.tags, old.source
    )
    members = (old.id, *ids)
    done = store.consolidate(
        namespace,
        members,
        new,
        run=run,
        fingerprint=memory.embedder().fingerprint,
        vector=memory.embedder().embed_query(new.task),
        at=now,
    )
    return Merged(new.id, True, members) if done else None


def summarise(memory: Memory, scope: Scope, model: LanguageModel, proposal: Proposal, run: str) -> Summarised:
    """Lets a summary that a model writes stand for old notes; the notes stay where it writes none that can be taken."""
    ids = tuple(one.id for one in proposal.members)
    try:
        said = model.ask(proposal.prompt, old_notes.wanted_chars(proposal.most_chars))
        text = cleaned(said, proposal.most_chars)
    except LanguageModelError as error:
        return Summarised(None, ids, str(error))
    tags = tuple(dict.fromkeys((SUMMARY_TAG, *proposal.tags)))[:MAX_TAGS]
    new = NewEntry(uuid.uuid4().hex, "note", text, "", memory.now(), None, tags, SUMMARY_SOURCE)
    done = memory.store.consolidate(
        scope.namespace,
        ids,
        new,
        run=run,
        fingerprint=memory.embedder().fingerprint,
        vector=memory.embedder().embed_query(text),
        at=memory.now(),
    )
    return Summarised(new.id, ids) if done else Summarised(None, ids, "One of the notes changed meanwhile.")


def undo(memory: Memory, scope: Scope, what: str) -> Undone:
    """Restores what was before a consolidation.

    Args:
        what: The id of an entry that stands for others; or `last` for all that the last run did.

    Raises:
        InvalidArgument: `what` is blank or too long.
    """
    what = checked_text("undo", what, MAX_ID_CHARS).strip()
    steps = memory.store.consolidations(scope.namespace)
    if what == LAST:
        # The newest first: a summary may stand for what the same run made before.
        chosen = [one for one in steps if one.run == steps[0].run]
    else:
        chosen = [one for one in steps if one.survivor == what]
    if not chosen:
        return Undone((), known=False)
    restored, left = memory.store.separate(scope.namespace, chosen)
    return Undone(tuple(restored), tuple(left))
