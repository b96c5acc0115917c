"""What the verbs' arguments take: their limits, and the checks that name them.

`toolsets.parameters` reads what a client sent; these hold whoever calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from subconscious_mcp.config import MAX_TTL_SECONDS
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.locate import namespace_name

MAX_TASK_CHARS = 50_000
"""About 50 windows of the model, two seconds of embedding: beyond it a task is a document."""
MAX_ANSWER_CHARS = 1_000_000
MAX_ID_CHARS = 200
MAX_TAGS = 50
MAX_TAG_CHARS = 200
MAX_TOP_K = 100


def checked_namespace(name: str) -> str:
    """Returns a namespace's name without blanks around it.

    Raises:
        InvalidArgument: It is none.
    """
    try:
        return namespace_name(name)
    except ValueError as takes:
        raise InvalidArgument(f"A namespace takes {takes}.") from None


def checked_text(name: str, text: str, most: int) -> str:
    """Returns `text` if it can be stored: not blank, not too long, valid Unicode.

    Raises:
        InvalidArgument: Names the argument and what it takes; never holds the text.
    """
    if not text.strip():
        raise InvalidArgument(f"{name} takes a text that is not blank.")
    if len(text) > most:
        raise InvalidArgument(f"{name} takes at most {most:,} characters; this has {len(text):,}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} takes valid Unicode text; there is a lone surrogate at character {error.start}."
        ) from None
    return text


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Returns the tags without blanks around and repeats.

    Raises:
        InvalidArgument: A tag is blank or too long, or there are too many.
    """
    stripped = tuple(dict.fromkeys(tag.strip() for tag in tags))
    if len(stripped) > MAX_TAGS or any(not 1 <= len(tag) <= MAX_TAG_CHARS for tag in stripped):
        raise InvalidArgument(f"tags takes at most {MAX_TAGS} texts of 1 to {MAX_TAG_CHARS} characters.")
    for tag in stripped:
        checked_text("tags", tag, MAX_TAG_CHARS)
    return stripped


def checked_ttl(ttl_seconds: int | None) -> int | None:
    """Returns a lifetime in seconds, or None for ever."""
    if ttl_seconds is not None and not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
        raise InvalidArgument(
            f"ttl_seconds takes a whole number of seconds from 1 to {MAX_TTL_SECONDS}, or null for never."
        )
    return ttl_seconds


def checked_threshold(threshold: float) -> float:
    """Returns a similarity, 0..1."""
    if not (math.isfinite(threshold) and 0.0 <= threshold <= 1.0):
        raise InvalidArgument("threshold takes a number from 0 to 1.")
    return threshold


def checked_top_k(top_k: int) -> int:
    """Returns a number of candidates, 1..100."""
    if not 1 <= top_k <= MAX_TOP_K:
        raise InvalidArgument(f"top_k takes a whole number from 1 to {MAX_TOP_K}.")
    return top_k
