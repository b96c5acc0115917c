"""The check between the nearest entries and an answer, with the trained model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import OpenMemory
from fakes import Clock

from subconscious_mcp import render
from subconscious_mcp.config import Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Entry, Near
from subconscious_mcp.verification import CANDIDATES, among, told, verified

ENABLE = "enable the query cache of the orders database on staging"
DISABLE = "disable the query cache of the orders database on staging"


def near(task: str, similarity: float, key: int = 1) -> Near:
    return Near(Entry(key, f"id-{key}", "memory", task, f"answer to {task}", float(key), None, ()), similarity)


def at_85(_: Near) -> float:
    return 0.85


def test_the_same_task_in_other_words_is_served() -> None:
    stored = near("How do I enable the query cache of the orders database on staging?", 0.95)
    found = verified(ENABLE, [stored], at_85, 0.85)
    assert (found.hit, found.blocked, found.best) == (True, False, stored)
    assert found.confidence is not None and found.confidence > 0.8


def test_a_contrasting_task_is_kept_back_and_named() -> None:
    found = verified(DISABLE, [near(ENABLE, 0.97)], at_85, 0.85)
    assert (found.hit, found.blocked, found.similarity) == (False, True, 0.97)
    assert [(c.kind, c.query_value, c.stored_value) for c in found.contrasts] == [("antonym", "disable", "enable")]
    assert found.confidence is not None and found.confidence < 0.5


def test_the_next_entry_is_served_in_place_of_one_that_is_kept_back() -> None:
    stored = [near(ENABLE, 0.97, 1), near(f"please {DISABLE}", 0.96, 2)]
    found = verified(DISABLE, stored, at_85, 0.85)
    assert found.hit and found.best is stored[1] and found.similarity == 0.96


def test_the_nearest_is_named_where_all_are_kept_back() -> None:
    stored = [near(ENABLE, 0.97 - n / 100, n) for n in range(CANDIDATES + 3)]
    found = verified(DISABLE, stored, at_85, 0.85)
    assert found.blocked and found.best is stored[0]


def test_the_check_never_serves_what_is_not_near_enough() -> None:
    stored = [near(ENABLE, 0.97, 1), near(DISABLE, 0.849, 2)]
    assert verified(DISABLE, stored, at_85, 0.85).blocked
    found = verified(DISABLE, stored[1:], at_85, 0.85)
    assert not found.hit and not found.blocked and found.similarity == 0.849


def test_each_entry_may_need_a_similarity_of_its_own() -> None:
    stored = [near(ENABLE, 0.97, 1), near(f"please {ENABLE}", 0.95, 2)]
    found = verified(ENABLE, stored, lambda one: 0.99 if one is stored[0] else 0.85, 0.85)
    assert found.hit and found.best is stored[1]


def test_below_the_usual_thresholds_only_a_decisive_contrast_keeps_back() -> None:
    related = "write a migration for the archive"
    for similarity, hit in ((0.81, False), (0.79, True)):
        found = verified(related, [near(ENABLE, similarity)], lambda _: 0.3, 0.3)
        assert found.hit is hit and found.confidence is not None and found.confidence < 0.8
    for similarity, hit in ((0.79, False), (0.51, False), (0.49, True)):
        assert verified(DISABLE, [near(ENABLE, similarity)], lambda _: 0.3, 0.3).hit is hit


def test_an_empty_memory_is_a_miss_without_confidence() -> None:
    found = verified(ENABLE, [], at_85, 0.85)
    assert (found.hit, found.similarity, found.best, found.confidence) == (False, 0.0, None, None)


def test_only_decisive_contrasts_are_told() -> None:
    assert [c.kind for c in told(ENABLE, DISABLE)] == ["antonym"]
    assert told(ENABLE, f"please {ENABLE}") == ()


def test_queries_of_one_answer_are_compared_with_each_other_within_a_budget() -> None:
    found, compared = among([ENABLE, f"please {ENABLE}", DISABLE], 100)
    assert compared == 3
    assert [c.kind for c in found] == ["antonym"]
    assert among([ENABLE, DISABLE], 0) == ((), 0)


# --- through the verbs


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, verify_hits=True)


def test_recall_keeps_back_a_contrasting_task_unless_told_otherwise(
    memory: Memory, scope: Scope, config: Config
) -> None:
    entry = memory.remember(scope, ENABLE, "SET GLOBAL query_cache_type = 1").entry_id
    payload = render.recall_payload(memory.recall(scope, DISABLE, threshold=0.8))
    assert payload["hit"] is False and payload["answer"] is None and payload["similarity"] > 0.8
    assert payload["blocked"] == {
        "entry_id": entry,
        "task_text": ENABLE,
        "contrasts": [{"kind": "antonym", "query": "disable", "stored": "enable"}],
    }
    assert 0.0 <= payload["confidence"] < 0.5
    trusting = render.recall_payload(memory.recall(scope, DISABLE, threshold=0.8, verify=False))
    assert trusting["hit"] is True and "blocked" not in trusting and "confidence" not in trusting
    unchecked = memory.scope(replace(config, verify_hits=False), "tests", None)
    assert memory.recall(unchecked, DISABLE, threshold=0.8).hit
    assert memory.recall(unchecked, DISABLE, threshold=0.8, verify=True).blocked


def test_a_blocked_recall_is_logged_as_a_miss_that_was_blocked(memory: Memory, scope: Scope) -> None:
    memory.remember(scope, ENABLE, "x")
    memory.recall(scope, DISABLE, threshold=0.8)
    memory.recall(scope, ENABLE, threshold=0.8)
    assert memory.stats(scope).hit_rate_last_100 == 0.5
    assert scope.echo_log is not None
    assert [(line.hit, line.blocked) for line in scope.echo_log.lines() if line] == [(False, True), (True, False)]


def test_remember_names_what_tells_a_near_duplicate_apart(memory: Memory, scope: Scope) -> None:
    memory.remember(scope, ENABLE, "x")
    payload = render.remember_payload(memory.remember(scope, DISABLE, "y"))
    assert payload["warning"] == "near_duplicate"
    assert payload["nearest_contrasts"] == [{"kind": "antonym", "query": "disable", "stored": "enable"}]


def test_echo_shows_the_contrasts_of_each(memory: Memory, scope: Scope) -> None:
    memory.remember(scope, ENABLE, "x")
    memory.remember(scope, f"please {DISABLE}", "y")
    shown = render.echo_payload(memory.echo(scope, DISABLE))["echoes"]
    assert {e["task_text"]: [c["kind"] for c in e["contrasts"]] for e in shown} == {
        ENABLE: ["antonym"],
        f"please {DISABLE}": [],
    }


def test_drift_ranks_answers_whose_queries_contrast_first(memory: Memory, scope: Scope) -> None:
    plain = memory.remember(scope, "rotate the keys of the mail gateway every month now", "x").entry_id
    mixed = memory.remember(scope, ENABLE, "y").entry_id
    for query in ("rotate the keys of the mail gateway", "rotate keys", "rotate the mail keys please"):
        memory.recall(scope, query, threshold=0.1, verify=False)
    for query in (f"{ENABLE} please", DISABLE, f"{DISABLE} please"):
        memory.recall(scope, query, threshold=0.1, verify=False)
    candidates = memory.drift_report(scope, min_spread=0.0).candidates
    assert [c.entry_id for c in candidates] == [mixed, plain]
    assert [(c.kind, {c.query_value, c.stored_value}) for c in candidates[0].contrasts] == [
        ("antonym", {"enable", "disable"})
    ]


def test_what_stands_beside_a_prompt_is_checked_too(memory: Memory, config: Config) -> None:
    scope = memory.scope(replace(config, default_threshold=0.8), "tests", None)
    memory.remember(scope, ENABLE, "x")
    assert memory.near(scope, DISABLE)[0] == []
    assert len(memory.near(scope, f"please {ENABLE}")[0]) == 1


def test_a_tag_filter_still_leaves_the_next_entry(open_memory: OpenMemory, config: Config, clock: Clock) -> None:
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    memory.remember(scope, ENABLE, "x", tags=["db"])
    kept = memory.remember(scope, f"please {DISABLE}", "y", tags=["db"]).entry_id
    found = memory.recall(scope, DISABLE, threshold=0.8, tags=["db"])
    assert found.hit and found.best is not None and found.best.entry.id == kept
