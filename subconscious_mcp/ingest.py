"""Ingest: pending episodes of the inbox become entries, behind everything that a client waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from typing import Any

from subconscious_mcp.errors import Closing, ModelError, StorageBusy, StorageFull, SubconsciousError
from subconscious_mcp.inbox import Episode, Inbox
from subconscious_mcp.memory import Memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the inbox is looked at, by the times of its files."""
RETRY_LOOKS = 30
"""Looks after which what failed is tried again, although nothing changed."""
_BATCH = 50


def ingest_pending(
    memory: Memory,
    inbox: Inbox,
    pause: Callable[[], bool] = lambda: False,
    failed: Callable[[Episode, Exception], None] | None = None,
    passed_over: Container[Revision] = (),
) -> int:
    """Ingests what is pending, of every namespace; returns how many episodes it was.

    An episode that memory cannot take is passed over, and is pending as before.

    Args:
        pause: Called before each episode: may wait for a quiet moment; true ends early.
        failed: Told of each episode that memory did not take, and why.
        passed_over: Episodes not to try now, as `revision_of` tells them.

    Raises:
        SubconsciousError: Memory can take no episode at all: there is no model, no room, or it is closed.
        InboxError: The inbox is locked or damaged.
    """
    done = number = 0
    inbox.take_in_spooled()
    inbox.take_in_damaged()
    # Once, so that what prevents every episode is told as that.
    if inbox.pending(1):
        memory.embedder()
    while batch := inbox.pending(_BATCH, after=number):
        for listed in batch:
            number = listed.number
            if revision_of(listed) in passed_over:
                continue
            if pause():
                return done
            # As it is now: it may have been forgotten or replaced since the batch was read.
            episode = inbox.find(number)
            if episode is None:
                continue
            try:
                memory.keep_episode(episode)
            except (ModelError, StorageFull, StorageBusy, Closing):
                raise
            except Exception as error:
                if failed is not None:
                    failed(episode, error)
                continue
            # Behind the entry: a kill between the two has it ingested again, into the same entry.
            if not inbox.mark_ingested(episode):
                # Forgotten between the two; or replaced, and then it is pending again.
                if inbox.find(number) is None:
                    memory.forget_episode_entry(episode.session_id)
                continue
            done += 1
    return done


Revision = tuple[int, str, int]


def revision_of(episode: Episode) -> Revision:
    """Returns what tells an episode, as it is now, from every other."""
    return episode.number, episode.session_id, episode.revision


class Ingester:
    """Follows the inbox in a thread of its own until `close`.

    Args:
        inbox: The inbox of the storage directory.
        memory: Returns the open memory; may raise, and is asked again later.
        quiet: Whether no client waits just now.
    """

    def __init__(self, inbox: Inbox, memory: Callable[[], Memory], quiet: Callable[[], bool]) -> None:
        self._inbox = inbox
        self._memory = memory
        self._quiet = quiet
        self._told = ""
        self._passed_over: set[Revision] = set()
        self._told_of: set[Revision] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="subconscious-ingest", daemon=True)

    def start(self) -> None:
        """Begins with what is pending already."""
        self._thread.start()

    def close(self) -> None:
        """Ends after the present episode."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _follow(self) -> None:
        seen: tuple[Any, ...] | None = None
        looks = 0
        while not self._closing.is_set():
            state = self._inbox.state()
            looks += 1
            if looks >= RETRY_LOOKS:
                looks = 0
                seen = None
                self._passed_over.clear()
            if state != seen:
                self._ingest()
                # As it was before: its own marks cause one more look, which finds what came meanwhile.
                seen = state
            self._closing.wait(LOOK_SECONDS)

    def _ingest(self) -> None:
        try:
            count = ingest_pending(self._memory(), self._inbox, self._pause, self._pass_over, self._passed_over)
            if count:
                log.info("Episodes ingested: %d.", count)
            self._told = ""
        except SubconsciousError as error:
            # Once and not at every look: a missing model stays missing for a while.
            if str(error) != self._told:
                log.warning("Episodes wait in the inbox: %s", error)
            self._told = str(error)
        except OSError as error:
            log.warning("The inbox cannot be read now: %s.", error.strerror or type(error).__name__)
        except Exception:
            log.exception("Ingesting failed; it is tried again.")

    def _pass_over(self, episode: Episode, error: Exception) -> None:
        """Notes an episode that memory does not take: the others are not to wait for it."""
        revision = revision_of(episode)
        self._passed_over.add(revision)
        if revision not in self._told_of:
            self._told_of.add(revision)
            # No text of the error's: it may be the episode's.
            why = str(error) if isinstance(error, SubconsciousError) else type(error).__name__
            log.warning("Episode %d of the inbox is passed over and tried again later: %s", episode.number, why)

    def _pause(self) -> bool:
        # A busy client is given way for a while, not for ever.
        for _ in range(20):
            if self._quiet() or self._closing.wait(0.1):
                break
        return self._closing.is_set()
