"""What near entries say of each other's answers, and what a recall makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp import learning, neighbourhood, render
from subconscious_mcp.config import Config
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.neighbourhood import NEIGHBOURS, confidence, evidence, features, limit, read_model
from subconscious_mcp.records import Entry, Near
from subconscious_mcp.verification import judge_among, verified


def near(answer: str, similarity: float, key: int = 1, task: str = "") -> Near:
    entry = Entry(key, f"id-{key}", "memory", task or f"wording {key}", answer, float(key), None, ())
    return Near(entry, similarity)


def around(*answers: str, first: float = 0.9, step: float = 0.02) -> list[Near]:
    return [near(answer, first - step * place, place) for place, answer in enumerate(answers)]


def test_answers_of_their_own_say_nothing() -> None:
    entries = around(*"abcdef")
    assert all(evidence(one, entries) is None for one in entries)


def test_empty_answers_are_not_one_answer() -> None:
    assert evidence(around("", "", "")[0], around("", "", "")) is None


def test_a_few_equal_answers_among_many_say_nothing() -> None:
    entries = around("done", "a", "b", "done", "c", "d", "e")
    assert evidence(entries[0], entries) is None


def test_a_small_memory_with_one_answer_says_nothing() -> None:
    entries = around("a", "a", "a")
    assert evidence(entries[0], entries) is None


def test_neighbours_that_agree_make_an_answer_sure() -> None:
    entries = around(*["a"] * 6, "b", "b")
    found = evidence(entries[0], entries)
    assert found is not None and found.rival is entries[6]
    assert found.margin == pytest.approx(0.12)
    assert (found.similarity, found.second) == (0.9, pytest.approx(0.88))
    assert confidence(found) > limit()


def test_neighbours_that_dispute_make_it_unsure() -> None:
    entries = around("a", "b", "b", "a", "b", "b", "a")
    found = evidence(entries[0], entries)
    assert found is not None and found.rival is entries[1] and found.votes < 0
    assert confidence(found) < limit()


def test_a_candidate_behind_another_answer_has_a_negative_margin() -> None:
    entries = around("a", "b", "a", "b")
    found = evidence(entries[1], entries)
    assert found is not None and found.margin < 0 and found.rival is entries[0]


def test_what_is_known_to_be_another_task_has_no_vote() -> None:
    entries = around("b", "a", "a", "c", "c")
    found = evidence(entries[1], entries, [entries[0]])
    assert found is not None and found.rival is entries[3]


def test_where_all_neighbours_agree_others_begin_behind_the_last() -> None:
    entries = around(*["a"] * NEIGHBOURS)
    found = evidence(entries[0], entries)
    assert found is not None and found.rival is None
    assert confidence(found) > limit()


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1, allow_nan=False)), min_size=1, max_size=NEIGHBOURS + 4)
)
def test_any_neighbourhood_gives_a_probability(rows: list[tuple[str, float]]) -> None:
    entries = [near(answer, s, key) for key, (answer, s) in enumerate(sorted(rows, key=lambda row: -row[1]))]
    for one in entries:
        found = evidence(one, entries)
        if found is not None:
            assert 0.0 <= confidence(found) <= 1.0
            assert len(features(found)) == len(neighbourhood.FEATURES)


def test_weights_of_other_features_are_refused() -> None:
    text = Path(neighbourhood.__file__).with_name(neighbourhood.WEIGHTS).read_text(encoding="utf-8")
    assert read_model(text).limit == limit()
    with pytest.raises(ValueError, match="train_neighbourhood"):
        read_model(text.replace('"margin"', '"distance"'))


# --- in the check


def test_a_disputed_answer_is_kept_back_and_the_rival_named() -> None:
    entries = around("a", "b", "b", "a", "b", "b")
    found = verified("wording", entries, lambda _: 0.85, 0.85)
    assert found.blocked and found.best is entries[0] and found.rival is entries[1]
    payload = render.recall_payload(found)
    assert payload["blocked"]["rival"] == {"entry_id": "id-1", "similarity": 0.88, "task_text": "wording 1"}


def test_the_same_words_are_served_whatever_the_neighbours_say() -> None:
    entries = [near("a", 1.0, 0, "open the gate"), *around("b", "b", "a", "b", first=0.99)]
    assert verified("Open the gate", entries, lambda _: 0.85, 0.85).hit


def test_votes_do_not_outweigh_a_contrast() -> None:
    entries = [near("a", 0.97 - n / 100, n, f"enable the query cache on host {'abcdef'[n]}") for n in range(6)]
    entries += [near("b", 0.7, 7), near("b", 0.69, 8)]
    judged = judge_among("disable the query cache on host a", entries[0], entries)
    assert judged.blocked and judged.rival is None and judged.confidence < 0.5


# --- through the verbs


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, verify_hits=True)


def test_recall_says_that_two_answers_compete(memory: Memory, scope: Scope) -> None:
    reset, change = "Send the reset link.", "Open the profile page."
    for word in ("password", "passcode", "login"):
        memory.remember(scope, f"customer wants a new {word} for the shop account today", reset)
        memory.remember(scope, f"customer wants another {word} for the shop account today", change)
    query = "customer wants some secret for the shop account today"
    payload = render.recall_payload(memory.recall(scope, query, threshold=0.6))
    assert payload["hit"] is False and payload["answer"] is None
    rival = memory.store.entry(scope.namespace, payload["blocked"]["rival"]["entry_id"])
    best = memory.store.entry(scope.namespace, payload["blocked"]["entry_id"])
    assert rival is not None and best is not None and rival.answer != best.answer
    assert memory.recall(scope, query, threshold=0.6, verify=False).hit
    explained = learning.explain(memory, scope, best.id, query=query, threshold=0.6)
    assert explained is not None and explained.decision is not None
    assert "another answer" in explained.decision.verdict
    assert memory.near(scope, query)[0] == []
