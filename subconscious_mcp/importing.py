"""Reads a file of memories and hands it on in batches, to an engine or to the store of this process.

Nothing is lost when it ends in the middle: every batch is stored or not, ids say what is there already, and the
same file once more goes on where it ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from subconscious_mcp.transfer_format import ELSEWHERE, FORMAT, Item, Payload, Skipped

Call = Callable[[str, dict[str, Any]], Payload]
"""Carries out a verb of `verbs.OF_ALL_NAMESPACES` with these values."""

_BATCH = 256
"""Entries of a batch: about five seconds of embedding, after which the progress is shown and nothing is lost."""
_BATCH_BYTES = 4 << 20
"""A command's values, one entry apart, which may have 13 MB as JSON: the engine reads up to 16 MB."""
_MOST_TOLD = 1_000
EXPIRED = "it has expired"
ELSEWHERE_HINT = (
    "Entries of other namespaces are never touched. Give --namespace NAME for the one that has them, or --on-conflict"
    " new-id to store them once more."
)


@dataclass(slots=True)
class Report:
    """What an import did.

    Attributes:
        stored: New entries.
        replaced: Entries that took the place of one with the same id.
        same: Entries that were there already.
        renamed: Entries among `stored` that were given another id.
        embedded: Entries whose vectors were made here; the others came with theirs.
        feedback: Observations that were stored.
        namespaces: How many of the entries are in which namespace now, those among them that were there already.
        skipped: What was left out, the first thousand.
        reasons: How often each reason was given.
        cut_off: How the file is known to be incomplete; empty where it is not.
    """

    stored: int = 0
    replaced: int = 0
    same: int = 0
    renamed: int = 0
    embedded: int = 0
    feedback: int = 0
    namespaces: Counter[str] = field(default_factory=Counter)
    skipped: list[Skipped] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    cut_off: str = ""

    @property
    def is_whole(self) -> bool:
        """Nothing was left out that was still alive."""
        return not self.cut_off and not any(reason != EXPIRED for reason in self.reasons)

    def skip(self, place: str, entry_id: str, reason: str) -> None:
        """Notes what is left out."""
        self.reasons[reason] += 1
        if len(self.skipped) < _MOST_TOLD:
            self.skipped.append(Skipped(place, entry_id, reason))

    def payload(self) -> Payload:
        """Returns it as JSON has it."""
        left_off = sum(self.reasons.values()) - len(self.skipped)
        return {
            "stored": self.stored,
            "replaced": self.replaced,
            "already_there": self.same,
            "renamed": self.renamed,
            "embedded": self.embedded,
            "feedback": self.feedback,
            "namespaces": dict(self.namespaces.most_common()),
            "skipped": [{"place": s.place, "entry_id": s.entry_id, "reason": s.reason} for s in self.skipped],
            **({"skipped_left_off": left_off} if left_off else {}),
            "reasons": dict(self.reasons.most_common()),
            **({"hint": ELSEWHERE_HINT} if ELSEWHERE in self.reasons else {}),
            **({"cut_off": self.cut_off} if self.cut_off else {}),
        }


class Import:
    """One import.

    Args:
        call: Carries out the verbs.
        target: Name and folder of the namespace that all entries go to; None for those that the file names.
        on_conflict: See `transfer.import_entries`.
        dry_run: Store nothing, and tell what would be.
        progress: Told after each batch the share of the file that is done, 0..1, and how many entries.
    """

    def __init__(
        self,
        call: Call,
        *,
        target: tuple[str, str | None] | None,
        on_conflict: str = "skip",
        dry_run: bool = False,
        progress: Callable[[float, int], None] = lambda share, count: None,
    ) -> None:
        self.report = Report()
        self._call = call
        self._target = {"name": target[0] if target else None, "root": target[1] if target else None}
        self._on_conflict = on_conflict
        self._dry_run = dry_run
        self._progress = progress
        self._fingerprint: str | None = None
        self._entries: list[Payload] = []
        self._feedback: list[Payload] = []
        self._bytes = 0
        self._count = 0
        self._share = 0.0
        self._seen: set[str] = set()
        self._refused: set[str] = set()
        self._renamed: dict[str, str] = {}

    def run(self, items: Iterable[Item], *, ends: bool) -> Report:
        """Imports everything.

        Args:
            ends: The file says where it ends, as ours do.

        Raises:
            SubconsciousError: What ends the import: the store cannot be written, the model is missing.
        """
        end: Payload | None = None
        told = 0
        for item in items:
            if item.payload is None:
                self.report.skip(item.place, "", item.reason)
                continue
            payload = {**item.payload, "place": item.place}
            kind = payload.get("type")
            if payload.get("format") == FORMAT:
                fingerprint = payload.get("fingerprint")
                self._fingerprint = fingerprint if isinstance(fingerprint, str) else None
            elif kind == "entry":
                told += 1
                self._take(payload)
            elif kind == "namespace":
                self._take_namespace(payload)
            elif kind == "feedback":
                self._take_feedback(payload)
            elif kind == "consolidation":
                self._take_consolidation(payload)
            elif kind == "end":
                end = payload
            else:
                self.report.skip(item.place, "", "the line is of no known type")
            self._share = item.share
        self._store_entries()
        self._store_feedback()
        if ends:
            self._compare(end, told)
        return self.report

    def _compare(self, end: Payload | None, told: int) -> None:
        if end is None:
            self.report.cut_off = "the file has no end: it was cut off, or its export was"
        elif isinstance(end.get("entries"), int) and end["entries"] != told:
            self.report.cut_off = f"the file says that it has {end['entries']} entries, and {told} could be read"

    def _take(self, payload: Payload) -> None:
        entry_id = payload.get("id")
        if isinstance(entry_id, str):
            if entry_id in self._seen:
                self.report.skip(payload["place"], entry_id[:80], "its id came before in the file")
                return
            self._seen.add(entry_id)
        size = len(json.dumps(payload))
        if self._entries and (len(self._entries) == _BATCH or self._bytes + size > _BATCH_BYTES):
            self._store_entries()
        self._entries.append(payload)
        self._bytes += size

    def _take_namespace(self, payload: Payload) -> None:
        if self._target["name"] is None:
            done = self._call("import namespaces", {"namespaces": [payload], "dry_run": self._dry_run})
            self._note_skipped(done)

    def _take_feedback(self, payload: Payload) -> None:
        # Behind the entries that it is about: only then is known which were left out.
        self._store_entries()
        entry_id = payload.get("entry")
        if not isinstance(entry_id, str) or entry_id not in self._seen:
            # Nothing here may be judged by a file that does not have it.
            self.report.skip(payload["place"], "", "the feedback is on no entry of the file")
            return
        if entry_id in self._refused:
            # Left out, which has been told.
            return
        self._feedback.append({**payload, "entry": self._renamed.get(entry_id, entry_id)})
        if len(self._feedback) == _BATCH:
            self._store_feedback()

    def _take_consolidation(self, payload: Payload) -> None:
        self._store_entries()
        kept: Any = payload.get("members")
        if isinstance(kept, list) and all(isinstance(one, str) for one in kept):
            # Of those that were left out, or are other entries here, nothing is known.
            away = self._refused | self._renamed.keys()
            kept = [one for one in kept if one in self._seen and one not in away]
        if kept != []:
            values = {"consolidations": [{**payload, "members": kept}], **self._target, "dry_run": self._dry_run}
            self._note_skipped(self._call("import consolidations", values))

    def _store_entries(self) -> None:
        entries, self._entries, self._bytes = self._entries, [], 0
        if not entries:
            return
        values = {
            "entries": entries,
            "fingerprint": self._fingerprint,
            **self._target,
            "on_conflict": self._on_conflict,
            "dry_run": self._dry_run,
        }
        done = self._call("import entries", values)
        self._count += len(entries)
        self.report.stored += done["stored"]
        self.report.replaced += done["replaced"]
        self.report.same += done["same"]
        self.report.embedded += done["embedded"]
        self.report.renamed += len(done["renamed"])
        # An engine of an older version does not say.
        self.report.namespaces.update(done.get("namespaces", {}))
        self._renamed.update(done["renamed"])
        self._note_skipped(done)
        self._progress(self._share, self._count)

    def _store_feedback(self) -> None:
        feedback, self._feedback = self._feedback, []
        if feedback:
            done = self._call("import feedback", {"feedback": feedback, **self._target, "dry_run": self._dry_run})
            self.report.feedback += done["stored"]
            self._note_skipped(done)

    def _note_skipped(self, done: Payload) -> None:
        for one in done["skipped"]:
            self.report.skip(one["place"], one["id"], one["reason"])
            self._refused.add(one["id"])
