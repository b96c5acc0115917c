"""Toolset `cache`: the answer cache, six tools."""

from __future__ import annotations

from typing import Any

from subconscious_mcp import render
from subconscious_mcp.arguments import MAX_TOP_K
from subconscious_mcp.config import MAX_TTL_SECONDS, Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.render import Payload
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.tool import Tool

MAX_SHOWN_ANSWER = 200_000
"""Characters of an answer that a tool result holds: about 50,000 tokens, more than a client takes."""
MAX_SHOWN_TASK = 10_000
MAX_SHOWN_ECHOES = 200_000

_RECALL = (
    "Look up whether a task like this was done before. On a hit, returns the stored answer; on a miss, `similarity`"
    " tells how close the nearest remembered task was, and `blocked` names a task that is near but differs (enable /"
    " disable). Call it before starting non-trivial work."
)
_TAGS = "Only consider entries that bear at least one of these tags."


def cache_tools(config: Config) -> tuple[Tool, ...]:
    """Returns the six tools, their schemas showing the configured defaults."""
    return (
        Tool(
            "recall",
            "Recall an answer",
            _RECALL,
            (
                parameters.text("task", "The task to look up, in your own words."),
                parameters.share("threshold", "Least cosine similarity of a hit.", config.default_threshold),
                parameters.whole("top_k", "How many candidates to consider.", 1, MAX_TOP_K, 1),
                parameters.texts("tags", _TAGS),
                parameters.flag(
                    "verify", "Keep back an answer whose task contrasts with this one.", default=config.verify_hits
                ),
            ),
            _recall,
            reads_only=True,
        ),
        Tool(
            "remember",
            "Remember an answer",
            "Store a task with its answer for later recall. Warns when a similar task is already stored.",
            (
                parameters.text("task", "The task, as someone would ask for it again."),
                parameters.text("answer", "The answer to give back."),
                parameters.texts("tags", "Labels to filter by."),
                parameters.whole_or_null(
                    "ttl_seconds",
                    f"Lifetime in seconds; null never expires. Left out: {_lifetime(config)}.",
                    1,
                    MAX_TTL_SECONDS,
                    f"a whole number of seconds from 1 to {MAX_TTL_SECONDS}, or null for never",
                ),
                parameters.flag("skip_if_duplicate", "Store nothing if a similar task is already stored."),
            ),
            _remember,
        ),
        Tool(
            "echo",
            "Sense what is near",
            "List the nearest remembered tasks with their similarity, without answers. Use it to sense whether a task"
            " is known territory.",
            (
                parameters.text("task", "The task to ping with."),
                parameters.whole("top_k", "How many nearest entries to report.", 1, MAX_TOP_K, 5),
                parameters.texts("tags", _TAGS),
            ),
            _echo,
            reads_only=True,
        ),
        Tool(
            "drift_report",
            "Report drifting answers",
            "List answers that serve too broad a family of queries: their hits span a wide band of similarities."
            " Review them: forget, split, or raise the threshold.",
            (
                parameters.whole("min_hits", "Hits before an entry is considered.", 1, 1_000_000, 3),
                parameters.share("min_spread", "Least width of the band of similarities.", 0.08),
            ),
            _drift_report,
            reads_only=True,
        ),
        Tool(
            "forget",
            "Forget an entry",
            "Delete the entry with this id, and its text, for good.",
            (parameters.text("entry_id", "The id as remember, recall or echo returned it."),),
            _forget,
            destroys=True,
        ),
        Tool(
            "stats",
            "Show statistics",
            "Count the entries, and tell whether memory pays off: the hit rate of the last 100 recalls.",
            (),
            _stats,
            reads_only=True,
        ),
    )


def _lifetime(config: Config) -> str:
    seconds = config.default_ttl_seconds
    return "never expires" if seconds is None else f"{seconds} seconds"


def _recall(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    found = memory.recall(scope, values.pop("task"), **values)
    return render.recall_payload(found, most_answer=MAX_SHOWN_ANSWER, most_task=MAX_SHOWN_TASK)


def _remember(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    done = memory.remember(scope, values.pop("task"), values.pop("answer"), **values)
    return render.remember_payload(done, most_task=MAX_SHOWN_TASK)


def _echo(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    echoes = memory.echo(scope, values.pop("task"), **values)
    most = min(MAX_SHOWN_TASK, MAX_SHOWN_ECHOES // max(1, len(echoes.near)))
    return render.echo_payload(echoes, most_task=most)


def _drift_report(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    payload = render.drift_payload(memory.drift_report(scope, **values), most_task=2_000, most=render.MAX_CANDIDATES)
    if scope.echo_log is None:
        payload["note"] = "The echo log is switched off (echo_log_enabled), so there is nothing to report."
    return payload


def _forget(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    return render.forget_payload(memory.forget(scope, values["entry_id"]))


def _stats(memory: Memory, scope: Scope, values: dict[str, Any]) -> Payload:
    return render.stats_payload(memory.stats(scope))
