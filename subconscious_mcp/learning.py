"""What is said of answers, and what the memory makes of it: feedback, and why an entry is served or not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from subconscious_mcp.arguments import MAX_ID_CHARS, MAX_TASK_CHARS, checked_text, checked_threshold
from subconscious_mcp.confidence import Judgement
from subconscious_mcp.drift import phrasing
from subconscious_mcp.errors import InvalidArgument, StorageBusy
from subconscious_mcp.feedback import CONFIDENCE, Learned
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import CURATED, Entry, Observation, Recall
from subconscious_mcp.verification import check


@dataclass(frozen=True, slots=True)
class Noted:
    """What a feedback came to: the observation, and how the entry stands now.

    Attributes:
        right: Observations of right answers that count; see `Memory.counted`.
        learned: What they ask for at the scope's threshold; None where `max_error` is not set.
    """

    observation: Observation
    right: int
    wrong: int
    learned: Learned | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a recall of a query would decide, from the side of one entry.

    Attributes:
        similarity: Of the query and the entry, 0..1; None while the model in use has not embedded it.
        needed: Least similarity at which the entry is served: the caller's threshold or the learned one.
        judgement: What the check of contrasts says of the two.
        checked: That check counts.
        verdict: In words, why the entry is served or not.
        recall: What the recall would return, which may be another entry.
    """

    query: str
    similarity: float | None
    needed: float
    judgement: Judgement
    checked: bool
    verdict: str
    recall: Recall


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an entry is served or not.

    Attributes:
        live: Its time is not over.
        observations: All feedback on it, oldest first.
        counted: The part of it that counts; see `Memory.counted`.
        threshold: The caller's.
        learned: None where `max_error` is not set or nothing was said.
        why: In words, how the threshold comes about.
    """

    entry: Entry
    live: bool
    observations: tuple[Observation, ...]
    counted: tuple[Observation, ...]
    threshold: float
    max_error: float | None
    learned: Learned | None
    why: str
    decision: Decision | None

    @property
    def needed(self) -> float:
        """Least similarity at which the entry is served."""
        return self.threshold if self.learned is None else self.learned.threshold


def give(memory: Memory, scope: Scope, entry_id: str, query: str, *, correct: bool) -> Noted | None:
    """Notes whether an entry's answer was right for a query, in place of what was said of that query before.

    Args:
        query: The task that was looked up; a hash of it is stored, and how near it is.

    Returns:
        What it came to; None where the namespace has no such entry.

    Raises:
        InvalidArgument: An argument is blank or too long, or the entry is none that recall answers with.
        StorageBusy: After a change of model, the entry is not embedded again yet.
    """
    entry = _entry(memory, scope, entry_id)
    checked_text("query", query, MAX_TASK_CHARS)
    if entry is None:
        return None
    if entry.kind not in CURATED:
        raise InvalidArgument("entry_id takes the id of an entry that recall answers with; this one is captured.")
    embedder = memory.embedder()
    similarity = memory.store.similarity(scope.namespace, entry, embedder.fingerprint, memory.vector(scope, query))
    if similarity is None:
        raise StorageBusy("The entry is being embedded again for the model in use.", "Try again in a moment.")
    kept_back = check(query, entry.task, similarity).blocked
    observation = Observation(entry.id, similarity, correct, memory.now(), embedder.fingerprint, kept_back)
    if not memory.store.note_feedback(scope.namespace, query_mark(entry.id, query), observation):
        return None
    counted = memory.counted(scope, memory.store.feedback(scope.namespace, entry.id))
    right = sum(one.correct for one in counted)
    return Noted(observation, right, len(counted) - right, memory.learned(scope, entry.id, scope.threshold))


def query_mark(entry_id: str, query: str) -> str:
    """Returns what is stored of a query: 32 hexadecimal digits, the same for the same words.

    The entry's id is in it, so that what was asked of two entries cannot be linked.
    """
    return hashlib.sha256(f"{entry_id}\0{phrasing(query)}".encode("utf-8", "replace")).hexdigest()[:32]


def exported(memory: Memory, scope: Scope) -> list[Observation]:
    """Returns all feedback of the namespace, oldest first."""
    return memory.store.feedback(scope.namespace)


def explain(
    memory: Memory, scope: Scope, entry_id: str, *, query: str | None = None, threshold: float | None = None
) -> Explanation | None:
    """Tells why an entry is served or not, and what a recall of a query would decide; logs nothing.

    Args:
        threshold: The caller's, 0..1; None takes the scope's default.

    Returns:
        None where the namespace has no such entry.

    Raises:
        InvalidArgument: An argument is blank, too long or out of range.
    """
    entry = _entry(memory, scope, entry_id)
    least = scope.threshold if threshold is None else checked_threshold(threshold)
    if query is not None:
        checked_text("query", query, MAX_TASK_CHARS)
    if entry is None:
        return None
    said = memory.store.feedback(scope.namespace, entry.id)
    counted = memory.counted(scope, said)
    learned = memory.learned(scope, entry.id, least)
    live = entry.expires_at is None or entry.expires_at > memory.now()
    found = Explanation(
        entry,
        live,
        tuple(said),
        tuple(counted),
        least,
        scope.max_error,
        learned,
        _why(learned, counted, least, scope.max_error),
        None,
    )
    return found if query is None else _with_decision(memory, scope, found, query)


def _entry(memory: Memory, scope: Scope, entry_id: str) -> Entry | None:
    if not entry_id.strip():
        raise InvalidArgument("entry_id takes the id of an entry, as remember, recall and echo return it.")
    return memory.store.entry(scope.namespace, checked_text("entry_id", entry_id, MAX_ID_CHARS).strip())


def _with_decision(memory: Memory, scope: Scope, found: Explanation, query: str) -> Explanation:
    entry, embedder = found.entry, memory.embedder()
    similarity = memory.store.similarity(scope.namespace, entry, embedder.fingerprint, memory.vector(scope, query))
    judgement = check(query, entry.task, similarity or 0.0)
    recall = memory.look_up(scope, query, threshold=found.threshold)
    verdict = _verdict(scope, found, similarity, judgement, recall)
    decision = Decision(query, similarity, found.needed, judgement, scope.verify, verdict, recall)
    return replace(found, decision=decision)


def _verdict(scope: Scope, found: Explanation, similarity: float | None, judgement: Judgement, recall: Recall) -> str:
    if found.entry.kind not in CURATED:
        return f"not served: recall never answers with an entry of kind {found.entry.kind}"
    if not found.live:
        return "not served: its time is over"
    if similarity is None:
        return "not served: it is being embedded again for the model in use"
    if found.needed > 1:
        return "not served: its answer was wrong for its own task"
    if similarity < found.needed:
        which = "the threshold" if found.needed <= found.threshold else "the learned threshold"
        return f"not served: {similarity:.4f} is below {which}, {found.needed:.4f}"
    if recall.best is not None and recall.best.entry.id == found.entry.id:
        if recall.hit:
            return "served"
        if recall.rival is not None:
            return f"not served: an entry with another answer is as near, {recall.rival.similarity:.4f}"
    if scope.verify and judgement.blocked:
        return f"not served: it is near enough, but the check trusts it by {judgement.confidence:.2f} only"
    return "not served: another entry is nearer"


def _why(learned: Learned | None, counted: Sequence[Observation], least: float, max_error: float | None) -> str:
    if max_error is None:
        return "max_error is not set, so feedback changes no threshold"
    if learned is None:
        return "nothing was said of its answers, so the caller's threshold counts"
    before, bound = f"{learned.error_before:.1%}", f"{max_error:.1%}"
    above = [one.correct for one in counted if one.similarity >= learned.threshold]
    return {
        "within": f"at {least:.4f} an expected {before} of the answers are wrong, within the bound of {bound}",
        "belief": f"at {least:.4f} an expected {before} of the answers are wrong,"
        f" from {learned.threshold:.4f} on at most {bound}",
        "count": f"{above.count(False)} of {len(above)} answers above {learned.threshold:.4f} were wrong,"
        f" so at most {bound} are, with {CONFIDENCE:.0%} confidence",
        "same task": f"at every similarity more than {bound} are expected to be wrong,"
        " so it is served for its own task alone",
        "never": "its answer was wrong for its own task, so it is not served; forget it, or remember a better one",
    }[learned.reason]
