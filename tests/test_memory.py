"""The core verbs over a real store, with the fake embedder."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import OpenMemory
from fakes import Clock, FakeEmbedder

from subconscious_mcp.arguments import MAX_ANSWER_CHARS, MAX_TASK_CHARS
from subconscious_mcp.config import Config
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope

TASK = "rotate the signing keys of the billing service"


def test_a_remembered_task_is_recalled_by_its_own_words_with_similarity_one(memory: Memory, scope: Scope) -> None:
    done = memory.remember(scope, TASK, "run keys rotate", tags=["ops", "keys"])
    found = memory.recall(scope, TASK, threshold=1.0)
    assert done.stored and done.dimension == 384 and done.warning is None
    assert found.hit and found.similarity == 1.0
    assert found.best is not None
    assert (found.best.entry.id, found.best.entry.answer) == (done.entry_id, "run keys rotate")
    assert found.best.entry.tags == ("ops", "keys")


def test_a_miss_tells_the_nearest_similarity_and_an_empty_memory_zero(
    memory: Memory, scope: Scope, embedder: FakeEmbedder
) -> None:
    assert memory.recall(scope, TASK).similarity == 0.0
    memory.remember(scope, TASK, "answer")
    embedder.place("something else", 0.6, TASK)
    found = memory.recall(scope, "something else")
    assert not found.hit
    assert found.similarity == pytest.approx(0.6, abs=1e-4)


@pytest.mark.parametrize(
    ("similarity", "warns"), [(0.7499, False), (0.7501, True), (0.85, True), (0.9199, True), (0.9201, False)]
)
def test_the_band_of_near_duplicates_warns_inside_and_is_silent_outside(
    memory: Memory, scope: Scope, embedder: FakeEmbedder, similarity: float, warns: bool
) -> None:
    first = memory.remember(scope, TASK, "first")
    embedder.place("a neighbour", similarity, TASK)
    done = memory.remember(scope, "a neighbour", "second")
    assert done.stored
    assert (done.warning == "near_duplicate") is warns
    if warns:
        assert done.nearest is not None and done.nearest.entry.id == first.entry_id
        assert done.nearest.similarity == pytest.approx(similarity, abs=1e-4)


@pytest.mark.parametrize(("similarity", "warning"), [(0.8, "near_duplicate"), (0.95, "duplicate"), (1.0, "duplicate")])
def test_skip_if_duplicate_stores_nothing_and_tells(
    memory: Memory, scope: Scope, embedder: FakeEmbedder, similarity: float, warning: str
) -> None:
    memory.remember(scope, TASK, "first")
    embedder.place("a neighbour", similarity, TASK)
    done = memory.remember(scope, "a neighbour", "second", skip_if_duplicate=True)
    assert (done.stored, done.entry_id, done.warning) == (False, None, warning)
    assert done.nearest is not None and done.nearest.entry.task == TASK
    assert memory.stats(scope).total_entries == 1


def test_skip_if_duplicate_stores_what_is_far_enough(memory: Memory, scope: Scope, embedder: FakeEmbedder) -> None:
    memory.remember(scope, TASK, "first")
    embedder.place("far", 0.74, TASK)
    assert memory.remember(scope, "far", "second", skip_if_duplicate=True).stored


def test_an_expired_neighbour_neither_warns_nor_keeps_out(memory: Memory, scope: Scope, clock: Clock) -> None:
    memory.remember(scope, TASK, "old", ttl_seconds=10)
    clock.advance(10)
    done = memory.remember(scope, TASK, "new", skip_if_duplicate=True)
    assert done.stored and done.warning is None


def test_the_newest_of_equal_tasks_answers(memory: Memory, scope: Scope, clock: Clock) -> None:
    for answer in ("first", "second", "third"):
        memory.remember(scope, TASK, answer)
        clock.advance(1)
    memory.remember(scope, TASK, "fourth")
    clock.now -= 2
    memory.remember(scope, TASK, "written later with a clock set back")
    found = memory.recall(scope, TASK)
    assert found.best is not None and found.best.entry.answer == "fourth"


def test_the_last_written_of_equal_tasks_answers_at_equal_times(memory: Memory, scope: Scope) -> None:
    memory.remember(scope, TASK, "first")
    memory.remember(scope, TASK, "second")
    found = memory.recall(scope, TASK)
    assert found.best is not None and found.best.entry.answer == "second"


def test_what_may_not_answer_takes_no_place(memory: Memory, scope: Scope, clock: Clock, embedder: FakeEmbedder) -> None:
    embedder.place("good", 0.9, TASK)
    good = memory.remember(scope, "good", "right", tags=["keep"])
    for number in range(30):
        memory.remember(scope, TASK, f"expired {number}", ttl_seconds=5, tags=["keep"])
    for number in range(30):
        memory.remember(scope, TASK, f"untagged {number}")
    clock.advance(5)
    found = memory.recall(scope, TASK, top_k=1, tags=["keep"])
    assert found.hit and found.best is not None and found.best.entry.id == good.entry_id


def test_entries_expire_on_the_second_and_are_purged_behind_a_write(
    memory: Memory, scope: Scope, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subconscious_mcp.memory._PURGE_SECONDS", 0.0)
    memory.remember(scope, TASK, "short", ttl_seconds=10)
    clock.advance(9.999)
    assert memory.recall(scope, TASK).hit
    clock.advance(0.001)
    assert not memory.recall(scope, TASK).hit
    memory.remember(scope, "an unrelated thing", "x")
    memory.settle()
    assert memory.store.purge_expired(clock.now) == 0
    assert memory.stats(scope).total_entries == 1


def test_defaults_of_the_scope_count_where_the_caller_says_nothing(
    memory: Memory, config: Config, clock: Clock, embedder: FakeEmbedder
) -> None:
    from dataclasses import replace

    strict = memory.scope(replace(config, default_threshold=0.95, default_ttl_seconds=60), "tests", None)
    embedder.place("close", 0.9, TASK)
    memory.remember(strict, TASK, "answer")
    assert not memory.recall(strict, "close").hit
    assert memory.recall(strict, "close", threshold=0.85).hit
    memory.remember(strict, "kept for ever", "answer", ttl_seconds=None)
    clock.advance(60)
    assert not memory.recall(strict, TASK).hit
    assert memory.recall(strict, "kept for ever").hit


def test_namespaces_see_nothing_of_each_other(memory: Memory, config: Config) -> None:
    one, two = memory.scope(config, "one", None), memory.scope(config, "two", None)
    done = memory.remember(one, TASK, "secret of one")
    assert done.entry_id is not None
    assert memory.recall(two, TASK).similarity == 0.0
    assert memory.echo(two, TASK).count == 0
    assert not memory.forget(two, done.entry_id)
    assert memory.stats(two).total_entries == 0
    assert memory.remember(two, TASK, "own", skip_if_duplicate=True).stored
    assert memory.recall(one, TASK).best is not None


def test_echo_lists_the_nearest_without_counting_as_a_recall(
    memory: Memory, scope: Scope, embedder: FakeEmbedder
) -> None:
    memory.remember(scope, TASK, "first")
    embedder.place("second", 0.7, TASK)
    memory.remember(scope, "second", "x", tags=["t"])
    echoes = memory.echo(scope, TASK)
    assert echoes.count == 2
    assert [near.entry.task for near in echoes.near] == [TASK, "second"]
    assert [near.entry.task for near in memory.echo(scope, TASK, tags=["t"]).near] == ["second"]
    assert len(memory.echo(scope, TASK, top_k=1).near) == 1
    assert memory.stats(scope).hit_rate_last_100 == 0.0
    assert scope.echo_log is not None and not scope.echo_log.path.exists()


def test_the_hit_rate_is_of_the_last_hundred_recalls_and_survives_a_restart(
    open_memory: OpenMemory, config: Config, clock: Clock
) -> None:
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    for _ in range(80):
        memory.recall(scope, "never heard of")
    memory.remember(scope, TASK, "answer")
    clock.advance(5)
    for _ in range(60):
        memory.recall(scope, TASK)
    hit_at = clock.now
    clock.advance(5)
    memory.close()
    memory = open_memory()
    stats = memory.stats(memory.scope(config, "tests", None))
    assert (stats.total_entries, stats.hit_rate_last_100, stats.last_hit_at) == (1, 0.6, hit_at)


def test_forget_deletes_once(memory: Memory, scope: Scope) -> None:
    done = memory.remember(scope, TASK, "answer")
    assert done.entry_id is not None
    assert memory.forget(scope, f"  {done.entry_id} ")
    assert not memory.forget(scope, done.entry_id)
    assert not memory.recall(scope, TASK).hit
    assert memory.stats(scope).total_entries == 0


def test_drift_is_reported_by_distinct_phrasings(memory: Memory, scope: Scope, embedder: FakeEmbedder) -> None:
    memory.remember(scope, TASK, "answer")
    for query, similarity in (("wide", 0.86), ("narrow", 0.97)):
        embedder.place(query, similarity, TASK)
    embedder.fixed["WIDE"] = embedder.fixed["wide"]
    for query in ("wide", "WIDE", "narrow", TASK):
        assert memory.recall(scope, query).hit
    report = memory.drift_report(scope)
    assert (report.analyzed_recalls, report.entries_with_hits, len(report.candidates)) == (4, 1, 1)
    drifted = report.candidates[0]
    assert (drifted.hits, drifted.distinct_queries, drifted.still_stored) == (4, 3, True)
    assert drifted.similarity_max == pytest.approx(0.97, abs=1e-4)
    assert drifted.similarity_spread == pytest.approx(0.11, abs=2e-4)
    assert not memory.drift_report(scope, min_hits=5).candidates
    assert not memory.drift_report(scope, min_spread=0.2).candidates


def test_repeats_of_the_stored_text_are_no_drift(memory: Memory, scope: Scope, embedder: FakeEmbedder) -> None:
    memory.remember(scope, TASK, "answer")
    embedder.place("paraphrase", 0.86, TASK)
    for query in (TASK, TASK.upper(), f"  {TASK}  ", "paraphrase", "paraphrase"):
        memory.recall(scope, query)
    assert not memory.drift_report(scope).candidates


def test_without_an_echo_log_nothing_is_written_and_nothing_reported(memory: Memory, config: Config) -> None:
    from dataclasses import replace

    scope = memory.scope(replace(config, echo_log_enabled=False), "quiet", None)
    memory.remember(scope, TASK, "answer")
    memory.recall(scope, TASK)
    assert memory.drift_report(scope).analyzed_recalls == 0
    assert memory.stats(scope).hit_rate_last_100 == 1.0
    assert not list(config.storage_dir.glob("*.jsonl"))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda m, s: m.recall(s, ""), "task"),
        (lambda m, s: m.recall(s, " \n\t"), "task"),
        (lambda m, s: m.recall(s, "x" * (MAX_TASK_CHARS + 1)), "task"),
        (lambda m, s: m.recall(s, "a \ud800 b"), "task"),
        (lambda m, s: m.recall(s, "x", threshold=float("nan")), "threshold"),
        (lambda m, s: m.recall(s, "x", threshold=2), "threshold"),
        (lambda m, s: m.recall(s, "x", top_k=0), "top_k"),
        (lambda m, s: m.recall(s, "x", top_k=10**12), "top_k"),
        (lambda m, s: m.recall(s, "x", tags=[""]), "tags"),
        (lambda m, s: m.recall(s, "x", tags=["y" * 201]), "tags"),
        (lambda m, s: m.recall(s, "x", tags=["\udfff"]), "tags"),
        (lambda m, s: m.remember(s, "x", " "), "answer"),
        (lambda m, s: m.remember(s, "x", "y" * (MAX_ANSWER_CHARS + 1)), "answer"),
        (lambda m, s: m.remember(s, "x", "y", tags=[str(n) for n in range(51)]), "tags"),
        (lambda m, s: m.remember(s, "x", "y", ttl_seconds=0), "ttl_seconds"),
        (lambda m, s: m.remember(s, "x", "y", ttl_seconds=-1), "ttl_seconds"),
        (lambda m, s: m.remember(s, "x", "y", ttl_seconds=10**400), "ttl_seconds"),
        (lambda m, s: m.echo(s, "x", top_k=-1), "top_k"),
        (lambda m, s: m.forget(s, "  "), "entry_id"),
        (lambda m, s: m.drift_report(s, min_hits=0), "min_hits"),
        (lambda m, s: m.drift_report(s, min_spread=float("nan")), "min_spread"),
    ],
)
def test_wrong_arguments_are_named_in_one_line_and_store_nothing(
    memory: Memory, scope: Scope, call, named: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(memory, scope)
    assert str(caught.value).startswith(named)
    assert "\n" not in str(caught.value)
    assert memory.stats(scope).total_entries == 0


def test_texts_come_back_as_they_were_given(memory: Memory, scope: Scope) -> None:
    task = "  ★ emoji 🦇, Chinese 你好, Cyrillic привет,\r\n tabs\t and a \x00 byte "
    answer = "line\u2028separator \ufeff\n" * 3
    memory.remember(scope, task, answer)
    found = memory.recall(scope, task)
    assert found.best is not None
    assert (found.best.entry.task, found.best.entry.answer) == (task, answer)


def test_a_failing_log_takes_nothing_from_the_caller(memory: Memory, scope: Scope) -> None:
    assert scope.echo_log is not None
    scope.echo_log.path.mkdir()
    memory.remember(scope, TASK, "answer")
    assert memory.recall(scope, TASK).hit
    assert memory.stats(scope).hit_rate_last_100 == 1.0


def test_a_model_that_cannot_be_loaded_is_tried_again(open_memory: OpenMemory, config: Config) -> None:
    from subconscious_mcp.errors import ModelMissing

    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    attempts: list[int] = []

    def load() -> FakeEmbedder:
        attempts.append(1)
        if len(attempts) == 1:
            raise ModelMissing("The model is not installed.")
        return FakeEmbedder()

    memory._load_embedder = load
    with pytest.raises(ModelMissing):
        memory.remember(scope, TASK, "answer")
    assert memory.remember(scope, TASK, "answer").stored


def test_after_a_change_of_model_the_old_entries_are_embedded_again(open_memory: OpenMemory, config: Config) -> None:
    memory = open_memory()
    memory.remember(memory.scope(config, "tests", None), TASK, "answer")
    memory.close()
    memory = open_memory(embedder=FakeEmbedder("0123456789ab", dimension=32))
    scope = memory.scope(config, "tests", None)
    told: list[tuple[int, int]] = []
    memory.wait_until_embedded(lambda done, total: told.append((done, total)))
    assert memory.recall(scope, TASK).hit
    assert memory.stats(scope).unembedded == 0
    memory.close()
    memory = open_memory()
    assert memory.recall(memory.scope(config, "tests", None), TASK).hit


def test_a_task_that_missed_is_remembered_without_the_model(
    memory: Memory, scope: Scope, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plain = embedder.embed_query

    def counted(text: str) -> Any:
        asked.append(text)
        return plain(text)

    monkeypatch.setattr(embedder, "embed_query", counted)
    memory.recall(scope, "rotate the keys")
    entry = memory.remember(scope, "rotate the keys", "ran rotate.sh").entry_id
    memory.recall(scope, "rotate the  keys")
    assert asked == ["rotate the keys", "rotate the  keys"]
    assert memory.recall(scope, "rotate the keys").best.entry.id == entry  # type: ignore[union-attr]


def test_vectors_of_only_the_last_tasks_are_kept(memory: Memory, scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subconscious_mcp.memory._RECENT_VECTORS", 3)
    for n in range(5):
        memory.recall(scope, f"task {n}")
        memory.recall(scope, "task 0")
    assert len(memory._recent) == 3


def test_a_vector_that_is_kept_is_kept_for_its_namespace(
    memory: Memory, scope: Scope, config: Config, embedder: FakeEmbedder
) -> None:
    memory.recall(scope, "rotate the keys")
    before = embedder.calls
    memory.recall(memory.scope(config, "another", None), "rotate the keys")
    assert embedder.calls == before + 1
