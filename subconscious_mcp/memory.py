"""The core verbs: remember, recall, echo, forget, stats, drift.

Synchronous; adapters use worker threads. The only owner of a write that touches more than
one place: an entry and what the echo log says of it.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subconscious_mcp import drift, verification
from subconscious_mcp.arguments import (
    MAX_ANSWER_CHARS,
    MAX_ID_CHARS,
    MAX_TASK_CHARS,
    checked_namespace,
    checked_tags,
    checked_text,
    checked_threshold,
    checked_top_k,
    checked_ttl,
)
from subconscious_mcp.config import Config
from subconscious_mcp.echo_log import EchoLine, EchoLog, log_file
from subconscious_mcp.embedding import Embedder
from subconscious_mcp.errors import InvalidArgument, SubconsciousError
from subconscious_mcp.feedback import Learned, learned
from subconscious_mcp.inbox import ENGINE_WAIT_SECONDS, Episode, Inbox, seconds_of, translated
from subconscious_mcp.language_model import LanguageModel, configured
from subconscious_mcp.records import (
    CURATED,
    SENSED,
    DriftReport,
    Echoes,
    Kind,
    Namespace,
    Near,
    NewEntry,
    Observation,
    Recall,
    Remembered,
    Stats,
)
from subconscious_mcp.store import Store

log = logging.getLogger(__name__)

NEAR_DUPLICATE = (0.75, 0.92)
"""Similarities at which `remember` warns: related, and perhaps another task. Above, it is the
same task told again. Source: the tool's contract; independent of the recall threshold."""

PROMPT_HITS = 2
PROMPT_EPISODES = 2
EPISODE_THRESHOLD = 0.6
"""Similarity from which an episode is about the same thing as a prompt. Source: MiniLM puts 99.7 % of 999
paraphrases above it, a third of short requests with one intent, and 0.06 % of those with another; measured
on public sets of questions."""
_SESSION = "session:"

_RECENT_VECTORS = 512
"""Vectors of the last tasks that are kept, 1.5 kB each."""
_PURGE_SECONDS = 30.0
"""How often a write looks for expired entries."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a session is allowed to see, and its defaults.

    Attributes:
        namespace: The only one whose entries its verbs reach.
        threshold: Least similarity of a hit where the caller says nothing.
        ttl_seconds: Lifetime of an entry where the caller says nothing; None is for ever.
        echo_log: The namespace's log, or None where it is switched off.
        verify: Check hits for contrasts where the caller says nothing.
        request: Identity of the request that is carried out, where it may come twice; a write
            that bears it is done once.
        max_error: Share of wrong answers that is borne of an entry with feedback; None where
            feedback changes nothing.
        model: Who may be asked to write summaries; None where nobody is.
    """

    namespace: Namespace
    threshold: float
    ttl_seconds: int | None
    echo_log: EchoLog | None
    request: str = ""
    verify: bool = True
    max_error: float | None = None
    model: LanguageModel | None = None


class _Unset:
    """Tells an argument that was left out from one that is None."""


UNSET = _Unset()


class Memory:
    """The memory of one storage directory.

    Args:
        store: Where entries live; closed with the memory.
        folder: The storage directory, for the echo logs.
        load_embedder: Returns the embedder; called once, at first use or by `warm`.
        clock: Seconds since the epoch.
        owns_store: Close the store with the memory; False where memories share it.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        load_embedder: Callable[[], Embedder],
        *,
        clock: Callable[[], float] = time.time,
        owns_store: bool = True,
    ) -> None:
        self.store = store
        self._folder = folder
        self._load_embedder = load_embedder
        self._clock = clock
        self._owns_store = owns_store
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()
        self._echo_logs: dict[Path, EchoLog] = {}
        self._embedding_again: threading.Thread | None = None
        self._inbox = Inbox(str(folder), wait_seconds=ENGINE_WAIT_SECONDS)
        self._bookkeeper = _Bookkeeper()
        self._recent: dict[bytes, NDArray[np.float32]] = {}  # by hash of the task, least recently used first
        self._recent_lock = threading.Lock()
        self._closing = threading.Event()
        self._next_purge = 0.0

    # --- sessions

    def scope(self, config: Config, name: str, root: str | None) -> Scope:
        """Opens a session on a namespace, registering the namespace at first sight."""
        namespace = self.store.namespace(name, root)
        echo_log = None
        if config.echo_log_enabled:
            path = log_file(self._folder, namespace.name)
            # One object a file, because each guards its file with a lock.
            echo_log = self._echo_logs.setdefault(path, EchoLog(path, config.echo_log_max_bytes))
        return Scope(
            namespace,
            config.default_threshold,
            config.default_ttl_seconds,
            echo_log,
            verify=config.verify_hits,
            max_error=config.max_error,
            model=configured(config),
        )

    def embedder(self) -> Embedder:
        """Returns the embedder, loading it at the first call.

        Raises:
            ModelError: It cannot be loaded; the next call tries again.
        """
        with self._embedder_lock:
            if self._embedder is None:
                self._embedder = self._load_embedder()
                self._embed_again(self._embedder)
            return self._embedder

    def vector(self, scope: Scope, task: str) -> NDArray[np.float32]:
        """Returns the vector of a task, from those of the namespace's last tasks where it is among them.

        An agent recalls a task, misses, works it out, and remembers it under the same words.
        """
        # The hash, and not the text: what is forgotten must not stay behind for the life of an engine. With the
        # namespace: how fast an answer comes must not tell one user what another asked.
        name = hashlib.sha256(f"{scope.namespace.key}\0{task}".encode("utf-8", "surrogatepass")).digest()
        with self._recent_lock:
            known = self._recent.pop(name, None)
        vector = self.embedder().embed_query(task) if known is None else known
        with self._recent_lock:
            self._recent[name] = vector
            if len(self._recent) > _RECENT_VECTORS:
                del self._recent[next(iter(self._recent))]
        return vector

    @property
    def is_loaded(self) -> bool:
        """Whether the model is loaded."""
        return self._embedder is not None

    @property
    def folder(self) -> Path:
        """The storage directory."""
        return self._folder

    def now(self) -> float:
        """Returns the time by the memory's clock, seconds since the epoch."""
        return self._clock()

    def _embed_again(self, embedder: Embedder) -> None:
        """After a change of model, embeds what only another model has embedded, in the background."""
        missing = self.store.count_unembedded(embedder.fingerprint)
        if not missing:
            return
        log.warning("%d entries are embedded again for the model in use; nothing is lost meanwhile.", missing)
        self._embedding_again = threading.Thread(
            target=self._embed_missing, args=(embedder,), name="subconscious-embed-again", daemon=True
        )
        self._embedding_again.start()

    def _embed_missing(self, embedder: Embedder) -> None:
        def progress(done: int, total: int) -> None:
            log.info("Embedded again: %d of %d entries.", done, total)

        try:
            self.store.embed_missing(embedder.fingerprint, embedder.embed, progress, self._closing.is_set)
        except SubconsciousError as error:
            log.error("Embedding again stopped; it goes on at the next start. %s", error)

    def wait_until_embedded(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embeds in the foreground what only another model has embedded; returns how many."""
        embedder = self.embedder()
        if self._embedding_again is not None:
            self._embedding_again.join()
        return self.store.embed_missing(embedder.fingerprint, embedder.embed, progress, self._closing.is_set)

    # --- verbs

    def remember(
        self,
        scope: Scope,
        task: str,
        answer: str,
        *,
        tags: Sequence[str] = (),
        ttl_seconds: int | _Unset | None = UNSET,
        skip_if_duplicate: bool = False,
    ) -> Remembered:
        """Stores a task with its answer.

        Args:
            ttl_seconds: Lifetime in seconds, None for ever; left out, the scope's default.
            skip_if_duplicate: Store nothing if a live entry is as near as the band of
                near-duplicates or nearer.

        Raises:
            InvalidArgument: A text is blank or too long, a tag or the lifetime out of range.
            StorageError: Nothing was stored.
        """
        checked_text("task", task, MAX_TASK_CHARS)
        checked_text("answer", answer, MAX_ANSWER_CHARS)
        tags = checked_tags(tags)
        lifetime = scope.ttl_seconds if isinstance(ttl_seconds, _Unset) else checked_ttl(ttl_seconds)
        embedder = self.embedder()
        done_before = self.store.written_by(scope.request) if scope.request else None
        if done_before is not None:
            return Remembered(True, done_before, embedder.dimension)
        vector = self.vector(scope, task)
        now = self._clock()
        near = self.store.nearest(scope.namespace, CURATED, embedder.fingerprint, vector, 1, now=now)
        nearest = near[0] if near else None
        low, high = NEAR_DUPLICATE
        in_band = nearest is not None and low <= nearest.similarity <= high
        skipped = skip_if_duplicate and nearest is not None and nearest.similarity >= low
        apart = verification.told(task, nearest.entry.task) if nearest and (in_band or skipped) else ()
        if skipped:
            warning: Literal["near_duplicate", "duplicate"] = "near_duplicate" if in_band else "duplicate"
            return Remembered(False, None, embedder.dimension, warning, nearest, apart)
        entry = NewEntry(
            id=str(uuid.uuid4()),
            kind="memory",
            task=task,
            answer=answer,
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
            tags=tags,
        )
        self.store.add(scope.namespace, entry, embedder.fingerprint, vector, request=scope.request)
        self._purge_soon(now)
        if in_band:
            return Remembered(True, entry.id, embedder.dimension, "near_duplicate", nearest, apart)
        return Remembered(True, entry.id, embedder.dimension)

    def recall(
        self,
        scope: Scope,
        task: str,
        *,
        threshold: float | None = None,
        top_k: int = 1,
        tags: Sequence[str] = (),
        verify: bool | None = None,
    ) -> Recall:
        """Looks up the nearest remembered task.

        Args:
            threshold: Least similarity of a hit, 0..1; None takes the scope's default.
            top_k: How many candidates to consider.
            tags: Only entries that bear at least one of them.
            verify: Check that a near entry is no other task, see `verification`; None takes the scope's default.

        Raises:
            InvalidArgument: An argument is out of range.
        """
        found = self.look_up(scope, task, threshold=threshold, top_k=top_k, tags=tags, verify=verify)
        entry_id = found.best.entry.id if found.best else None
        line = EchoLine(self._clock(), task, entry_id, found.similarity, found.hit, found.threshold, found.blocked)
        self._note_recall(scope, line)
        return found

    def look_up(
        self,
        scope: Scope,
        task: str,
        *,
        threshold: float | None = None,
        top_k: int = 1,
        tags: Sequence[str] = (),
        verify: bool | None = None,
    ) -> Recall:
        """Returns what `recall` would, without being a recall: not logged and no part of the hit rate."""
        checked_text("task", task, MAX_TASK_CHARS)
        checked_top_k(top_k)
        tags = checked_tags(tags)
        verify = scope.verify if verify is None else verify
        least = scope.threshold if threshold is None else checked_threshold(threshold)
        embedder = self.embedder()
        vector = self.vector(scope, task)
        now = self._clock()
        # What keeps the nearest back may let the next through.
        may_answer = max(top_k, verification.CANDIDATES) if verify or scope.max_error is not None else top_k
        wanted = max(may_answer, verification.NEIGHBOURS) if verify else may_answer
        near = self.store.nearest(scope.namespace, CURATED, embedder.fingerprint, vector, wanted, now=now, tags=tags)

        def needs(one: Near) -> float:
            return self._learned_threshold(scope, one, least)

        if verify:
            found = verification.verified(task, near, needs, least, may_answer)
        else:
            served = next((one for one in near if one.similarity >= needs(one)), None)
            best = served or (near[0] if near else None)
            found = Recall(served is not None, best.similarity if best else 0.0, best, least)
        if found.hit or found.blocked or found.best is None:
            return found
        needed = self._learned_threshold(scope, found.best, least)
        return replace(found, learned_threshold=needed) if needed > least else found

    def echo(self, scope: Scope, task: str, *, top_k: int = 5, tags: Sequence[str] = ()) -> Echoes:
        """Returns the nearest live entries; not logged and no part of the hit rate.

        Raises:
            InvalidArgument: An argument is out of range.
        """
        checked_text("task", task, MAX_TASK_CHARS)
        checked_top_k(top_k)
        tags = checked_tags(tags)
        embedder = self.embedder()
        vector = self.vector(scope, task)
        now = self._clock()
        near = self.store.nearest(scope.namespace, SENSED, embedder.fingerprint, vector, top_k, now=now, tags=tags)
        apart = tuple(verification.told(task, one.entry.task) for one in near)
        return Echoes(self.store.count(scope.namespace, SENSED, now), tuple(near), apart)

    def forget(self, scope: Scope, entry_id: str) -> bool:
        """Deletes an entry of the session's namespace, its text, and what the log says of it.

        Returns:
            Whether there was such an entry.
        """
        if not entry_id.strip():
            raise InvalidArgument("entry_id takes the id of an entry, as remember, recall and echo return it.")
        entry_id = checked_text("entry_id", entry_id, MAX_ID_CHARS).strip()
        if scope.request and self.store.written_by(scope.request) is not None:
            # Deleted, and the process was killed before it answered: what follows may be missing.
            self.store.forget(scope.namespace, entry_id)
            self._clean_log(scope, entry_id, [])
            return True
        entry = self.store.entry(scope.namespace, entry_id)
        if entry is None:
            return False
        # The log first: a kill between the two leaves an entry that can be forgotten again. And
        # once more behind, for a recall that hit it meanwhile.
        self._clean_log(scope, entry.id, [entry.task, entry.answer])
        if entry.kind == "episode" and entry.source.startswith(_SESSION):
            # Else the next session would be told of it again.
            with translated(self._inbox):
                self._inbox.remove([entry.source.removeprefix(_SESSION)])
        gone = self.store.forget(scope.namespace, entry_id, request=scope.request)
        self._clean_log(scope, entry.id, [entry.task, entry.answer])
        return gone is not None

    # --- episodes

    def keep_episode(self, episode: Episode) -> None:
        """Turns an episode of the inbox into an entry, in place of what its session left before.

        May be done again for the same episode, after a kill say: there is one entry in the end.

        Raises:
            SubconsciousError: It is no entry now; the episode stays in the inbox.
        """
        embedder = self.embedder()
        vector = embedder.embed_query(episode.request)
        namespace = self.store.namespace(episode.namespace, episode.root)
        entry_id = episode_entry_id(episode.session_id)
        self._forget_anywhere(entry_id)
        entry = NewEntry(
            id=entry_id,
            kind="episode",
            task=episode.request,
            answer=episode.outcome,
            created_at=seconds_of(episode.ts),
            source=f"{_SESSION}{episode.session_id}",
        )
        self.store.add(namespace, entry, embedder.fingerprint, vector)

    def forget_episodes(self, session_ids: Sequence[str]) -> int:
        """Deletes the episodes of sessions, from the inbox and from memory; returns how many there were."""
        with translated(self._inbox):
            removed = self._inbox.remove(session_ids)
        entries = sum(map(self.forget_episode_entry, session_ids))
        return max(removed, entries)

    def wipe_episodes(self, session_ids: Sequence[str], name: str | None, root: str | None) -> int:
        """Deletes the episodes of sessions, and all that became entries, of a project or of all; returns how many.

        The inbox may have been deleted since they became entries, so it does not know all of them.

        Args:
            name: The project's, as derived or asked for; None for all.
        """
        namespace = None if name is None else self.store.find_namespace(name, root)
        known = name is None or namespace is not None
        sources = self.store.sources(namespace, "episode") if known else []
        kept = [source.removeprefix(_SESSION) for source in sources if source.startswith(_SESSION)]
        return self.forget_episodes(list(dict.fromkeys([*session_ids, *kept])))

    def forget_episode_entry(self, session_id: str) -> bool:
        """Deletes the entry that a session's episode became; returns whether there was one."""
        return self._forget_anywhere(episode_entry_id(session_id))

    def _forget_anywhere(self, entry_id: str) -> bool:
        """Deletes an entry wherever it is, and what its namespace's log says of it."""
        namespace = self.store.namespace_of(entry_id)
        if namespace is None:
            return False
        entry = self.store.entry(namespace, entry_id)
        if entry is None:
            return False
        path = log_file(self._folder, namespace.name)
        echo_log = self._echo_logs.get(path) or EchoLog(path, 1 << 40)
        self._bookkeeper.flush()
        echo_log.forget(entry_id, [entry.task, entry.answer])
        return self.store.forget(namespace, entry_id) is not None

    def near(self, scope: Scope, task: str) -> tuple[list[Near], list[Near]]:
        """Returns remembered tasks that would be hits, and episodes about something alike.

        Not logged and no part of the hit rate: nobody asked.
        """
        checked_text("task", task, MAX_TASK_CHARS)
        embedder = self.embedder()
        vector = self.vector(scope, task)
        now = self._clock()

        def above(kinds: Sequence[Kind], least: float, most: int) -> list[Near]:
            found = self.store.nearest(scope.namespace, kinds, embedder.fingerprint, vector, most, now=now)
            return [near for near in found if near.similarity >= least]

        around = above(CURATED, 0.0, verification.NEIGHBOURS)
        hits = [
            one
            for one in around[: verification.CANDIDATES]
            if one.similarity >= self._learned_threshold(scope, one, scope.threshold)
        ]
        if scope.verify:
            hits = [one for one in hits if not verification.judge_among(task, one, around).blocked]
        return hits[:PROMPT_HITS], above(("episode",), EPISODE_THRESHOLD, PROMPT_EPISODES)

    # --- namespaces

    def namespaces(self) -> list[dict[str, Any]]:
        """Returns every namespace with its folder and its number of entries of each kind."""
        return [
            {"name": namespace.name, "root": namespace.root, "entries": kinds}
            for namespace, kinds in self.store.namespaces()
        ]

    def find_namespace(self, name: str, root: str | None) -> str | None:
        """Returns the name of the namespace that a project opens, or a name where `root` is None; None for none."""
        found = self.store.find_namespace(name, root)
        return None if found is None else found.name

    def rename_namespace(self, name: str, new: str) -> None:
        """Gives a namespace, its log and its episodes another name.

        Raises:
            InvalidArgument: There is no such namespace, or another bears the new name.
        """
        namespace = self._known_namespace(name)
        new = checked_namespace(new)
        self.store.rename_namespace(namespace, new)
        with translated(self._inbox):
            # Else what is pending would bring the old name back.
            self._inbox.rename(namespace.name, new)
        EchoLog(log_file(self._folder, namespace.name), 1 << 40).move_to(log_file(self._folder, new))

    def merge_namespaces(self, name: str, into: str) -> int:
        """Moves all entries of a namespace into another, and its log; returns how many entries.

        Raises:
            InvalidArgument: One of the two is not known, or they are the same.
        """
        source, target = self._known_namespace(name), self._known_namespace(into)
        moved = self.store.merge_namespaces(source, target)
        EchoLog(log_file(self._folder, source.name), 1 << 40).move_to(log_file(self._folder, target.name))
        return moved

    def _known_namespace(self, name: str) -> Namespace:
        found = self.store.find_namespace(checked_namespace(name))
        if found is None:
            raise InvalidArgument(f"There is no namespace {name!r}.", "`subconscious-mcp namespace list` shows them.")
        return found

    def _clean_log(self, scope: Scope, entry_id: str, texts: Sequence[str]) -> None:
        self._bookkeeper.flush()
        # The log of a namespace is cleaned even where this session does not write to it.
        path = log_file(self._folder, scope.namespace.name)
        (scope.echo_log or EchoLog(path, 1 << 40)).forget(entry_id, texts)

    def stats(self, scope: Scope) -> Stats:
        """Returns counts and the hit rate of the last 100 recalls."""
        self._bookkeeper.flush()
        last_hit_at, outcomes = self.store.recall_outcomes(scope.namespace)
        rate = sum(outcomes) / len(outcomes) if outcomes else 0.0
        unembedded = 0
        if self._embedding_again is not None and self._embedder is not None:
            unembedded = self.store.count_unembedded(self._embedder.fingerprint, scope.namespace)
        return Stats(self.store.count(scope.namespace, SENSED, self._clock()), last_hit_at, round(rate, 6), unembedded)

    def drift_report(self, scope: Scope, *, min_hits: int = 3, min_spread: float = 0.08) -> DriftReport:
        """Reports entries whose hits span a wide band of similarities.

        Raises:
            InvalidArgument: An argument is out of range.
        """
        if min_hits < 1:
            raise InvalidArgument("min_hits takes a whole number from 1.")
        if not 0.0 <= min_spread <= 1.0:
            raise InvalidArgument("min_spread takes a number from 0 to 1.")
        self._bookkeeper.flush()
        if scope.echo_log is None:
            return DriftReport(0, 0)
        return drift.report(
            scope.echo_log.lines(),
            lambda ids: self.store.tasks_by_id(scope.namespace, ids),
            min_hits=min_hits,
            min_spread=min_spread,
        )

    # --- feedback

    def learned(self, scope: Scope, entry_id: str, least: float) -> Learned | None:
        """Returns what feedback says of an entry, or None where nobody wants to know or said anything.

        Args:
            least: The caller's threshold, 0..1.
        """
        if scope.max_error is None:
            return None
        said = self.counted(scope, self.store.feedback(scope.namespace, entry_id))
        return learned([(o.similarity, o.correct) for o in said], least, scope.max_error) if said else None

    def counted(self, scope: Scope, said: Sequence[Observation]) -> list[Observation]:
        """Returns the feedback that tells of what is served: measured by the model in use, and not kept back."""
        if not said:
            return []
        fingerprint = self.embedder().fingerprint
        return [one for one in said if one.fingerprint == fingerprint and not (scope.verify and one.kept_back)]

    def _learned_threshold(self, scope: Scope, near: Near, least: float) -> float:
        # Feedback only ever raises it.
        found = self.learned(scope, near.entry.id, least) if near.similarity >= least else None
        return least if found is None else found.threshold

    # --- what follows a call

    def _note_recall(self, scope: Scope, line: EchoLine) -> None:
        # After the answer, because it waits for the disk; before the next read of stats or log.
        def note() -> None:
            self.store.record_recalls([(scope.namespace.key, line.at, line.hit)])
            # What was forgotten since must not come back into the log.
            there = line.entry_id is None or self.store.entry(scope.namespace, line.entry_id) is not None
            if scope.echo_log is not None and there:
                scope.echo_log.append([line])

        self._bookkeeper.do(note)

    def _purge_soon(self, now: float) -> None:
        # The real clock, because tests turn the other one.
        if time.monotonic() >= self._next_purge:
            self._next_purge = time.monotonic() + _PURGE_SECONDS
            self._bookkeeper.do(lambda: self.store.purge_expired(now))

    def settle(self) -> None:
        """Waits until what earlier calls left to do in the background is done."""
        self._bookkeeper.flush()

    def close(self) -> None:
        """Finishes what is noted and gives the storage directory free."""
        self._closing.set()
        self._bookkeeper.close()
        if self._embedding_again is not None:
            self._embedding_again.join(timeout=2.0)
        if self._owns_store:
            self.store.close()


class _Bookkeeper:
    """One thread that does small jobs in order, so that no call waits for them."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Future[None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def do(self, job: Callable[[], object]) -> Future[None]:
        done: Future[None] = Future()
        with self._lock:
            if self._closed:
                done.set_result(None)
                return done
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="subconscious-bookkeeper", daemon=True)
                self._thread.start()
            self._jobs.put((job, done))
        return done

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                job()
            except SubconsciousError as error:
                # A full disk must not take the answer away from the caller who has it already.
                log.error("%s", error)
            except Exception:
                log.exception("A background job failed.")
            finally:
                done.set_result(None)

    def flush(self) -> None:
        if self._thread is not None:
            self.do(lambda: None).result()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
            self._jobs.put(None)
        if thread is not None:
            thread.join()


def episode_entry_id(session_id: str) -> str:
    """Returns the id of the entry that a session's episode becomes: the same each time."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"subconscious-mcp:{_SESSION}{session_id}"))
