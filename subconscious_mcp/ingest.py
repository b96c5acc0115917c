"""Ingest: pending episodes of the inbox become entries, behind everything that a client waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from subconscious_mcp.errors import SubconsciousError
from subconscious_mcp.inbox import Inbox
from subconscious_mcp.memory import Memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the inbox is looked at, by the times of its files."""
RETRY_LOOKS = 30
"""Looks after which what failed is tried again, although nothing changed."""
_BATCH = 50


def ingest_pending(memory: Memory, inbox: Inbox, pause: Callable[[], bool] = lambda: False) -> int:
    """Ingests what is pending, of every namespace; returns how many episodes it was.

    Args:
        pause: Called before each episode: may wait for a quiet moment; true ends early.

    Raises:
        SubconsciousError: Memory cannot take an episode; it and those behind it stay pending.
        InboxError: The inbox is locked or damaged.
    """
    done = 0
    inbox.take_in_spooled()
    while batch := inbox.pending(_BATCH):
        for episode in batch:
            if pause():
                return done
            memory.keep_episode(episode)
            # Behind the entry: a kill between the two has it ingested again, into the same entry.
            inbox.mark_ingested(episode)
            done += 1
    return done


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
            if state != seen or looks >= RETRY_LOOKS:
                looks = 0
                self._ingest()
                # As it was before: its own marks cause one more look, which finds what came meanwhile.
                seen = state
            self._closing.wait(LOOK_SECONDS)

    def _ingest(self) -> None:
        try:
            count = ingest_pending(self._memory(), self._inbox, self._pause)
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

    def _pause(self) -> bool:
        # A busy client is given way for a while, not for ever.
        for _ in range(20):
            if self._quiet() or self._closing.wait(0.1):
                break
        return self._closing.is_set()
