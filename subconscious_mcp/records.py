"""The values that move between layers: frozen, without behaviour beyond naming their parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["memory", "note", "fact", "episode", "chunk"]
"""What an entry is: a task with its answer, what was noted at a moment, what holds until something else does,
a captured exchange, a piece of a document."""

CURATED: tuple[Kind, ...] = ("memory",)
"""Kinds whose answers `recall` may return."""

SENSED: tuple[Kind, ...] = ("memory", "episode")
"""Kinds that `echo` reports and `stats` counts."""

NOTES: tuple[Kind, ...] = ("note", "fact")
"""Kinds that the tools for notes write and search."""

READ_BY_WORDS: tuple[Kind, ...] = ("note", "fact", "chunk")
"""Kinds that the full-text index holds. The others are found by meaning only, and writing them costs no more for it."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The isolation label of a project.

    Attributes:
        key: Its row in the database.
        name: What people see, unique among the namespaces of a storage directory.
        root: The project's folder, or None where the name was given and not derived.
    """

    key: int
    name: str
    root: str | None


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry that is about to be stored.

    Attributes:
        expires_at: Seconds since the epoch from which it is no longer returned; None is never.
        archived_at: Since when it is kept and not returned, for one that comes from an export; None is not archived.
        superseded_by: Id of the entry that took its place; empty where none did.
    """

    id: str
    kind: Kind
    task: str
    answer: str
    created_at: float
    expires_at: float | None = None
    tags: tuple[str, ...] = ()
    source: str = ""
    archived_at: float | None = None
    superseded_by: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered unit as it is stored.

    Attributes:
        key: Grows with each write and orders equal times.
        archived_at: Seconds since the epoch from which it is kept and no longer returned; None is not archived.
        superseded_by: Id of the entry that took its place; empty where none did.
    """

    key: int
    id: str
    kind: Kind
    task: str
    answer: str
    created_at: float
    expires_at: float | None
    tags: tuple[str, ...]
    source: str = ""
    archived_at: float | None = None
    superseded_by: str = ""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What one run of a consolidation archived for one survivor.

    Attributes:
        run: Names the run.
        survivor: Id of the entry that stands for the others.
        made: It was made for that; otherwise it was there before.
        members: Ids of the others, those that are still there.
    """

    run: str
    survivor: str
    made: bool
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """What an entry must be like to be returned. The others take no place, so no filter makes results fewer.

    Attributes:
        tags: It bears at least one of them; none asks for nothing.
        since: Seconds since the epoch; it was created then or later.
        until: Seconds since the epoch; it was created then or earlier.
        source: It came from exactly this.
    """

    tags: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds the terms of a query, among the live entries that a search may return.

    Attributes:
        terms: Those that were looked up.
        keys: Of each of them the entries that hold it, (n,) int64, in any order; empty where none does.
        common: Terms that were left out because too many entries hold them: they tell little, and cost time.
        count: How many entries there are, by a hundredth.
    """

    terms: tuple[str, ...] = ()
    keys: tuple[Any, ...] = ()
    common: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Near:
    """An entry near to a query.

    Attributes:
        similarity: Cosine of the two embeddings, 0..1, six decimals, higher is nearer.
    """

    entry: Entry
    similarity: float


ContrastKind = Literal[
    "number",
    "version",
    "identifier",
    "date",
    "unit",
    "quoted",
    "path",
    "flag",
    "code",
    "name",
    "negation",
    "antonym",
    "direction",
    "order",
    "scope",
    "modality",
    "question",
    "substitution",
]
"""What differs between two texts."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference in meaning.

    Attributes:
        kind: What differs; `date` is a date or a time of day, `question` what is asked (why, when), and
            `substitution` a word in the place of another, of unknown relation.
        query_value: As the query says it; empty where it says nothing.
        stored_value: As the stored task says it; empty where it says nothing.
        strength: 0..1, how much it speaks against the stored answer.
    """

    kind: ContrastKind
    query_value: str
    stored_value: str
    strength: float

    @property
    def one_sided(self) -> bool:
        """True where only one of the two mentions a value."""
        return not (self.query_value and self.stored_value)

    def __str__(self) -> str:
        return f"{self.query_value or '-'} / {self.stored_value or '-'}"


@dataclass(frozen=True, slots=True)
class Recall:
    """The verdict of a recall.

    Attributes:
        best: What is served; on a miss the nearest live entry.
        similarity: That of `best`, 0..1; 0.0 where there is none.
        threshold: Least similarity of a hit that was asked for.
        confidence: 0..1, probability that its answer answers the query; None where it was not checked.
        contrasts: What tells the query and the task of `best` apart, the strongest first.
        blocked: It is near enough, and yet a miss, because the check of contrasts does not trust it.
        learned_threshold: On a miss, what `best` needs where feedback raised that above `threshold`.
        rival: Where `best` is blocked for it: the nearest entry with another answer.
    """

    hit: bool
    similarity: float
    best: Near | None
    threshold: float
    confidence: float | None = None
    contrasts: tuple[Contrast, ...] = ()
    blocked: bool = False
    learned_threshold: float | None = None
    rival: Near | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What somebody said of one query's hit: whether the entry's answer was right for it.

    Attributes:
        similarity: Of the query and the entry's task under `fingerprint`, 0..1.
        at: Seconds since the epoch.
        fingerprint: The embedder that measured the similarity; another's says nothing to it.
        kept_back: The check of contrasts keeps the entry back for that query, whatever its similarity.
    """

    entry_id: str
    similarity: float
    correct: bool
    at: float
    fingerprint: str
    kept_back: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a remember did.

    Attributes:
        stored: False when `skip_if_duplicate` kept a duplicate out.
        entry_id: The new entry's id; None when nothing was stored.
        dimension: Length of the embedding.
        warning: `near_duplicate` (inside the band), `duplicate` (above it, skipped), or None.
        nearest: The neighbour that the warning is about.
        contrasts: What tells the two tasks apart, the strongest first.
    """

    stored: bool
    entry_id: str | None
    dimension: int
    warning: Literal["near_duplicate", "duplicate"] | None = None
    nearest: Near | None = None
    contrasts: tuple[Contrast, ...] = ()


@dataclass(frozen=True, slots=True)
class Echoes:
    """What a ping sensed: how many live entries there are, and the nearest.

    Attributes:
        contrasts: For each of `near`, what tells it from the query, the strongest first.
    """

    count: int
    near: tuple[Near, ...]
    contrasts: tuple[tuple[Contrast, ...], ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Whether memory pays off.

    Attributes:
        total_entries: Live entries of the namespace.
        last_hit_at: Seconds since the epoch of the last hit; None before the first.
        hit_rate_last_100: Hits among the last 100 recalls, 0..1; 0.0 before the first.
        unembedded: Entries that a change of model left to be embedded again.
    """

    total_entries: int
    last_hit_at: float | None
    hit_rate_last_100: float
    unembedded: int = 0


@dataclass(frozen=True, slots=True)
class DriftCandidate:
    """An entry whose hits span a wide band of similarities across phrasings.

    Attributes:
        contrasts: What tells the queries that it answered apart, the strongest first.
    """

    entry_id: str
    task_text: str | None
    still_stored: bool
    hits: int
    distinct_queries: int
    similarity_min: float
    similarity_max: float
    similarity_spread: float
    contrasts: tuple[Contrast, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What the echo log says about first-fill drift.

    Attributes:
        skipped_lines: Damaged lines of the log that were passed over.
    """

    analyzed_recalls: int
    entries_with_hits: int
    candidates: tuple[DriftCandidate, ...] = field(default=())
    skipped_lines: int = 0
