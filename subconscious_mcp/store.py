"""What `memory` needs of the place where entries live, whichever place that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp.records import (
    Consolidated,
    Entry,
    Filters,
    Holders,
    Kind,
    Namespace,
    Near,
    NewEntry,
    Observation,
)


class Store(Protocol):
    """A place for entries and their vectors. Every method is safe to call from any thread.

    A write has reached the disk when its method returns, and every later read sees it.
    Vectors of different fingerprints are never compared.
    """

    def namespace(self, name: str, root: str | None) -> Namespace:
        """Returns the namespace of a project, registering it at first sight."""

    def find_namespace(self, name: str, root: str | None = None) -> Namespace | None:
        """Returns the namespace of a root, or the one that bears a name where there is none; None if not known.

        One that took in the root's, or the one that bore the name, counts too.
        """

    def namespaces(self) -> list[tuple[Namespace, dict[str, int]]]:
        """Returns every namespace, by name, with its number of entries of each kind."""

    def rename_namespace(self, namespace: Namespace, name: str) -> None:
        """Gives a namespace another name; refuses one that another bears."""

    def merge_namespaces(self, source: Namespace, into: Namespace) -> int:
        """Moves all entries of one namespace into another, which serves both from then on."""

    def add(
        self,
        namespace: Namespace,
        entry: NewEntry,
        fingerprint: str,
        vector: NDArray[np.float32],
        *,
        request: str = "",
    ) -> None:
        """Stores an entry with its vector, (d,), and with it the identity of the request."""

    def add_many(
        self,
        namespace: Namespace,
        entries: Sequence[NewEntry],
        fingerprint: str,
        vectors: NDArray[np.float32],
        *,
        request: str = "",
        replacing: Sequence[Entry] = (),
    ) -> None:
        """Stores all of `entries` with their vectors, (n, d), or none of them.

        Args:
            request: The identity of the request.
            replacing: Entries of the namespace that are deleted in the same moment, texts and all.
        """

    def written_by(self, request: str) -> str | None:
        """Returns the id of the entry that a request has written or deleted, or None."""

    def nearest(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        tags: Sequence[str] = (),
        filters: Filters | None = None,
    ) -> list[Near]:
        """Returns the k nearest live entries of these kinds, best first; equal ones newest first.

        With `tags` only entries that bear at least one of them, with `filters` only what they let through; the
        others take no place. An archived entry is not live.
        """

    def nearest_keys(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        k: int,
        *,
        now: float,
        filters: Filters | None = None,
    ) -> dict[int, float]:
        """Returns the keys and similarities of what `nearest` returns, best first; equal ones by key."""

    def tasks(self, keys: Sequence[int]) -> dict[int, tuple[str, float]]:
        """Returns task and time of creation, seconds since the epoch, of the entries with these keys."""

    def holders(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        terms: Sequence[str],
        query: str,
        *,
        now: float,
        filters: Filters | None = None,
    ) -> Holders:
        """Returns the live entries that hold each term of a query.

        Args:
            terms: Words, and words side by side, of the query.
            query: Identifiers, paths and scripts without spaces are taken from it too, and looked for inside words.
        """

    def similarities(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        fingerprint: str,
        vector: NDArray[np.float32],
        keys: Sequence[int],
    ) -> dict[int, float]:
        """Returns the cosine, 0..1, of a vector, (d,), and each of these entries that this embedder has embedded."""

    def recent(
        self,
        namespace: Namespace,
        kinds: Sequence[Kind],
        limit: int,
        *,
        now: float,
        filters: Filters | None = None,
        archived: bool = False,
    ) -> list[Entry]:
        """Returns live entries, or with `archived` those that are kept out of all results, the newest first."""

    def beside(self, keys: Sequence[int], *, now: float | None = None) -> dict[int, tuple[int | None, int | None]]:
        """Returns the keys of the live entries before and after each entry, of the same namespace, kind and source.

        In the order of creation, then of keys; None where there is none. Entries without a source are neighbours if
        they were told within a quarter of an hour. Of kinds that are not `READ_BY_WORDS` there are none.

        Args:
            now: Seconds since the epoch; what expired by then is passed over. Without it nothing counts as expired.
        """

    def tag_counts(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> dict[str, int]:
        """Returns how many live entries of these kinds bear each tag."""

    def archive(self, namespace: Namespace, entry_id: str, *, superseded_by: str = "", at: float) -> bool:
        """Keeps a live entry out of all results from now on, `entry` and `entries` apart.

        Args:
            superseded_by: Id of the entry that takes its place.
            at: Seconds since the epoch.

        Returns:
            Whether there was such a live entry.
        """

    def restore(self, namespace: Namespace, entry_id: str) -> bool:
        """Lets an archived entry be found again; returns whether there was one."""

    def supersede(
        self,
        namespace: Namespace,
        old_id: str,
        new: NewEntry,
        fingerprint: str,
        vector: NDArray[np.float32],
        *,
        request: str = "",
        at: float,
    ) -> bool:
        """Stores an entry with its vector, (d,), and archives the one whose place it takes: both or neither.

        Returns:
            Whether there was a live entry `old_id`; nothing is stored where there was none.
        """

    def consolidate(
        self,
        namespace: Namespace,
        members: Sequence[str],
        survivor: str | NewEntry,
        *,
        run: str,
        fingerprint: str = "",
        vector: NDArray[np.float32] | None = None,
        at: float,
    ) -> bool:
        """Archives entries for one that stands for them, and notes that `separate` may undo it: all or nothing.

        Args:
            members: Ids of live entries.
            survivor: The id of another live entry; or an entry that is stored for them, with its vector, (d,).
            run: Names the run that does this.
            at: Seconds since the epoch.

        Returns:
            Whether all of them were there and live; nothing is done where not.
        """

    def consolidations(self, namespace: Namespace) -> list[Consolidated]:
        """Returns what consolidations did and nobody has undone, the newest first."""

    def separate(self, namespace: Namespace, done: Sequence[Consolidated]) -> tuple[list[str], list[str]]:
        """Undoes consolidations, in this order; a survivor that was made for one is deleted, text and all.

        Returns:
            Ids of the entries that can be found again; and of the survivors that were archived since, for which nothing
            is done: what stands for them is undone first.
        """

    def entry(self, namespace: Namespace, entry_id: str) -> Entry | None:
        """Returns an entry of the namespace, archived or expired too, or None."""

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        """Returns the entries with these keys, archived or expired too; keys that are gone are left out."""

    def namespace_of(self, entry_id: str) -> Namespace | None:
        """Returns the namespace of an entry, whichever it is, or None where there is no such entry."""

    def sources(self, namespace: Namespace | None, kind: Kind) -> list[str]:
        """Returns what the entries of a kind came from, those of one namespace or of all."""

    def forget(self, namespace: Namespace, entry_id: str, *, request: str = "") -> Entry | None:
        """Deletes an entry and every byte of its texts; returns what it was, or None."""

    def purge_expired(self, now: float) -> int:
        """Deletes entries whose time is over; returns how many."""

    def count(self, namespace: Namespace, kinds: Sequence[Kind], now: float) -> int:
        """Returns how many live entries of these kinds there are."""

    def tasks_by_id(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, str]:
        """Returns the task texts of the entries that are still there."""

    def record_recalls(self, outcomes: Sequence[tuple[int, float, bool]]) -> None:
        """Notes recalls as (namespace key, seconds since the epoch, hit)."""

    def recall_outcomes(self, namespace: Namespace) -> tuple[float | None, list[bool]]:
        """Returns when the last hit was, and the outcomes of the last 100 recalls."""

    def similarity(
        self, namespace: Namespace, entry: Entry, fingerprint: str, vector: NDArray[np.float32]
    ) -> float | None:
        """Returns how near a vector, (d,), is to an entry, expired or not.

        None where this embedder has not embedded the entry.
        """

    def note_feedback(self, namespace: Namespace, query: str, observation: Observation) -> bool:
        """Notes what somebody said of an entry's answer, in place of what was said of the same query.

        Args:
            query: A hash of the query; its text is not stored.

        Returns:
            Whether the namespace has the entry.
        """

    def feedback(self, namespace: Namespace, entry_id: str | None = None) -> list[Observation]:
        """Returns what was said of an entry's answer, or of all entries of the namespace, oldest first.

        The newest of each entry; what is forgotten or purged takes its feedback along.
        """

    def count_unembedded(self, fingerprint: str, namespace: Namespace | None = None) -> int:
        """Returns how many entries this embedder has not embedded."""

    def embed_missing(
        self,
        fingerprint: str,
        embed: Callable[[Sequence[str]], NDArray[np.float32]],
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """Embeds every entry that this embedder has not embedded; returns how many it did.

        Args:
            progress: Called with how many are done and how many there were.
            stop: Asked between batches; true ends early, and nothing done is lost.
        """

    def last_key(self) -> int:
        """Returns the key of the newest entry, 0 where there is none."""

    def fingerprints(self) -> dict[str, int]:
        """Returns every embedder's fingerprint with its number of vectors, the first known first."""

    def count_for_export(self, namespaces: Sequence[int], kinds: Sequence[Kind], upto: int, now: float) -> int:
        """Returns how many entries `export_page` yields for these namespaces."""

    def export_page(
        self, namespace: int, kinds: Sequence[Kind], fingerprint: str | None, *, after: int, upto: int, now: float
    ) -> list[tuple[Entry, bytes | None]]:
        """Returns some entries that are not expired, by key, with their vectors as float16, little-endian.

        Args:
            namespace: Its key.
            kinds: Only these; none for all.
            fingerprint: Whose vectors; None for none.
            after: Only entries with a larger key; the last one's leads to the next page.
            upto: Only entries with this key or a smaller one.
        """

    def feedback_page(self, namespace: int, *, after: int) -> list[tuple[int, str, Observation]]:
        """Returns some feedback as (its key, hash of the query, what was said), oldest first."""

    def add_feedback(self, said: Sequence[tuple[str, Observation]]) -> int:
        """Stores feedback as (hash of the query, what was said) where there is none on that query yet."""

    def add_consolidated(self, namespace: Namespace | None, done: Consolidated) -> None:
        """Notes what an export says of a consolidation, of archived entries of which nothing is noted yet.

        Args:
            namespace: Only entries of this one; None for any.
        """

    def found(self, ids: Sequence[str]) -> dict[str, tuple[int, Entry]]:
        """Returns namespace key and entry of those ids that are there, whichever namespace they are in."""

    def merged(self, namespace: Namespace) -> list[tuple[str | None, str | None]]:
        """Returns the names and roots that lead to a namespace since others were merged into it."""

    def add_merged(self, namespace: Namespace, name: str | None, root: str | None) -> bool:
        """Lets a name and a root lead to a namespace, unless one of them leads somewhere already."""

    def close(self) -> None:
        """Gives the storage directory free."""
