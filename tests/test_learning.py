"""Feedback through the memory, the tool and the commands; what explain tells; with an engine and without."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import OpenMemory
from engines import Windows
from fakes import Clock, FakeEmbedder
from interaction import PATIENCE
from test_forget import files_with, needles

from subconscious_mcp import cli, confidence, learning
from subconscious_mcp.confidence import Judgement
from subconscious_mcp.config import Config, resolve
from subconscious_mcp.errors import ConfigError, InvalidArgument, StorageBusy
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.records import Contrast, NewEntry
from subconscious_mcp.session import Session

TASK = "rotate the signing keys of the billing service"
NEAR, NEARER, FAR = "about the keys", "the keys, then", "something with keys"


def fake_judge(query: str, stored: str, similarity: float) -> Judgement:
    """Trusts the similarity; blocks a query that says `revoke`."""
    blocked = "revoke" in query
    contrasts = (Contrast("antonym", "revoke", "rotate", 0.9),) if blocked else ()
    return Judgement(0.1 if blocked else similarity, contrasts, blocked)


@pytest.fixture(autouse=True)
def _known_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence, "judge", fake_judge)


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, verify_hits=True)


@pytest.fixture
def entry_id(memory: Memory, scope: Scope, embedder: FakeEmbedder) -> str:
    done = memory.remember(scope, TASK, "run keys rotate", tags=["ops"])
    for text, similarity in ((NEAR, 0.88), (NEARER, 0.95), (FAR, 0.6), ("revoke the keys", 0.96)):
        embedder.place(text, similarity, TASK)
    assert done.entry_id is not None
    return done.entry_id


@pytest.fixture
def strict(memory: Memory, config: Config) -> Scope:
    """A scope that learns."""
    return memory.scope(replace(config, max_error=0.05), "tests", None)


# --- through the memory


def test_a_wrong_answer_raises_what_the_entry_needs(memory: Memory, strict: Scope, entry_id: str) -> None:
    assert memory.recall(strict, NEAR).hit
    noted = learning.give(memory, strict, entry_id, NEAR, correct=False)
    assert noted is not None and noted.learned is not None
    assert noted.observation.similarity == pytest.approx(0.88, abs=1e-4)
    assert (noted.right, noted.wrong) == (0, 1)
    assert noted.learned.threshold > 0.95
    assert not memory.recall(strict, NEAR).hit
    assert not memory.recall(strict, NEARER).hit
    assert memory.recall(strict, TASK).hit
    # A caller cannot go below it, but for one whose own threshold is so low that it claims less.
    assert not memory.recall(strict, NEAR, threshold=0.8).hit


@pytest.mark.parametrize("verify", [True, False])
def test_right_answers_bring_it_back(memory: Memory, config: Config, entry_id: str, verify: bool) -> None:
    scope = memory.scope(replace(config, max_error=0.05, verify_hits=verify), "tests", None)
    learning.give(memory, scope, entry_id, NEAR, correct=False)
    assert not memory.recall(scope, NEARER).hit
    assert memory.near(scope, NEARER)[0] == []
    learning.give(memory, scope, entry_id, NEAR, correct=True)
    assert memory.recall(scope, NEARER).hit and memory.recall(scope, NEAR).hit
    assert len(memory.near(scope, NEARER)[0]) == 1


def test_without_a_bound_feedback_is_kept_and_changes_nothing(memory: Memory, scope: Scope, entry_id: str) -> None:
    noted = learning.give(memory, scope, entry_id, NEAR, correct=False)
    assert noted is not None and noted.learned is None
    assert memory.recall(scope, NEAR).hit
    assert len(learning.exported(memory, scope)) == 1


def test_the_same_words_are_the_same_query(memory: Memory, scope: Scope, entry_id: str) -> None:
    learning.give(memory, scope, entry_id, "Rotate  the KEYS", correct=False)
    learning.give(memory, scope, entry_id, "rotate the keys ", correct=True)
    assert [one.correct for one in learning.exported(memory, scope)] == [True]
    learning.give(memory, scope, entry_id, "rotate the key", correct=True)
    assert len(learning.exported(memory, scope)) == 2
    assert learning.query_mark("a", "x") != learning.query_mark("b", "x")


def test_what_cannot_be_judged_is_refused(memory: Memory, scope: Scope, config: Config, entry_id: str) -> None:
    assert learning.give(memory, scope, "no such", NEAR, correct=True) is None
    other = memory.scope(config, "other", None)
    assert learning.give(memory, other, entry_id, NEAR, correct=True) is None
    assert learning.explain(memory, other, entry_id) is None
    for bad_id, bad_query in ((" ", NEAR), ("x" * 1000, NEAR), (entry_id, " "), (entry_id, "a\ud800")):
        with pytest.raises(InvalidArgument):
            learning.give(memory, scope, bad_id, bad_query, correct=True)
    vector = memory.embedder().embed_query("a request")
    episode = NewEntry("episode", "episode", "a request", "an outcome", 1.0)
    memory.store.add(scope.namespace, episode, memory.embedder().fingerprint, vector)
    with pytest.raises(InvalidArgument, match="captured"):
        learning.give(memory, scope, "episode", "a request", correct=True)
    explained = learning.explain(memory, scope, "episode", query="a request")
    assert explained is not None and explained.decision is not None
    assert "kind episode" in explained.decision.verdict


def test_another_models_similarities_do_not_count(
    open_memory: OpenMemory, config: Config, embedder: FakeEmbedder
) -> None:
    config = replace(config, max_error=0.05)
    first = open_memory()
    scope = first.scope(config, "tests", None)
    entry_id = first.remember(scope, TASK, "x").entry_id
    assert entry_id is not None
    embedder.place(NEAR, 0.88, TASK)
    learning.give(first, scope, entry_id, NEAR, correct=False)
    assert not first.recall(scope, NEAR).hit
    first.close()
    other = FakeEmbedder("0123456789ab")
    other.place(NEAR, 0.88, TASK)
    second = open_memory(embedder=other)
    scope = second.scope(config, "tests", None)
    second.wait_until_embedded()
    assert second.recall(scope, NEAR).hit
    found = learning.explain(second, scope, entry_id)
    assert found is not None and (len(found.observations), len(found.counted)) == (1, 0)
    learning.give(second, scope, entry_id, NEAR, correct=False)
    assert not second.recall(scope, NEAR).hit


def test_an_entry_that_waits_for_its_vector_takes_no_feedback(
    memory: Memory, scope: Scope, entry_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.store, "similarity", lambda *_: None)
    with pytest.raises(StorageBusy):
        learning.give(memory, scope, entry_id, NEAR, correct=True)
    found = learning.explain(memory, scope, entry_id, query=NEAR)
    assert found is not None and found.decision is not None
    assert "embedded again" in found.decision.verdict and found.decision.similarity is None


def test_forgetting_takes_the_feedback_and_no_file_holds_the_query(
    memory: Memory, strict: Scope, entry_id: str, tmp_path: Path
) -> None:
    query = "zanzibar and its quagga"
    learning.give(memory, strict, entry_id, query, correct=False)
    memory.settle()
    assert files_with([tmp_path / "data"], needles(query, "zanzibar", "quagga")) == []
    mark = learning.query_mark(entry_id, query).encode()
    assert files_with([tmp_path / "data"], {mark})
    assert memory.forget(strict, entry_id)
    assert learning.exported(memory, strict) == []
    assert files_with([tmp_path / "data"], {mark}) == []


def test_feedback_follows_merges_and_ends_with_the_time_of_its_entry(
    memory: Memory, config: Config, clock: Clock
) -> None:
    config = replace(config, max_error=0.05)
    one, two = memory.scope(config, "one", None), memory.scope(config, "two", None)
    for task, seconds in ((TASK, None), ("another thing", 10)):
        entry_id = memory.remember(one, task, "x", ttl_seconds=seconds).entry_id
        assert entry_id is not None
        learning.give(memory, one, entry_id, f"{task} of old", correct=False)
    memory.merge_namespaces("one", "two")
    memory.rename_namespace("two", "three")
    three = memory.scope(config, "three", None)
    assert len(learning.exported(memory, three)) == 2
    assert not memory.recall(three, f"{TASK} of old").hit and memory.recall(two, TASK).hit
    clock.advance(11)
    memory.store.purge_expired(clock())
    assert len(learning.exported(memory, three)) == 1


@pytest.mark.parametrize("verify", [True, False])
def test_the_next_entry_answers_in_place_of_one_that_was_wrong(
    memory: Memory, config: Config, entry_id: str, embedder: FakeEmbedder, verify: bool
) -> None:
    scope = memory.scope(replace(config, max_error=0.05, verify_hits=verify), "tests", None)
    embedder.place("second", 0.9, NEARER)
    memory.remember(scope, "second", "its answer")
    assert memory.recall(scope, NEARER).similarity == pytest.approx(0.95, abs=1e-4)
    learning.give(memory, scope, entry_id, NEARER, correct=False)
    found = memory.recall(scope, NEARER)
    assert found.hit and found.best is not None and found.best.entry.task == "second"
    assert found.learned_threshold is None
    assert not memory.recall(scope, NEARER, threshold=0.92).hit


def test_what_the_check_keeps_back_closes_nothing(memory: Memory, config: Config, entry_id: str) -> None:
    checked = memory.scope(replace(config, max_error=0.05), "tests", None)
    assert memory.recall(checked, "revoke the keys").blocked
    noted = learning.give(memory, checked, entry_id, "revoke the keys", correct=False)
    assert noted is not None and noted.observation.kept_back and (noted.right, noted.wrong) == (0, 0)
    assert memory.recall(checked, NEARER).hit
    found = learning.explain(memory, checked, entry_id)
    assert found is not None and (len(found.observations), len(found.counted)) == (1, 0)
    # Where similarity alone is trusted it was served, and counts.
    trusting = memory.scope(replace(config, max_error=0.05, verify_hits=False), "tests", None)
    assert not memory.recall(trusting, NEARER).hit


# --- explain


def explained(memory: Memory, scope: Scope, entry_id: str, **options: Any) -> learning.Explanation:
    found = learning.explain(memory, scope, entry_id, **options)
    assert found is not None
    return found


def test_explain_says_why_an_entry_needs_what_it_needs(
    memory: Memory, scope: Scope, strict: Scope, entry_id: str
) -> None:
    assert "max_error is not set" in explained(memory, scope, entry_id).why
    assert "nothing was said" in explained(memory, strict, entry_id).why
    learning.give(memory, strict, entry_id, NEARER, correct=True)
    found = explained(memory, strict, entry_id)
    assert "within the bound of 5.0%" in found.why and found.needed == strict.threshold
    assert explained(memory, strict, entry_id, threshold=0.9).threshold == 0.9
    learning.give(memory, strict, entry_id, FAR, correct=False)
    learning.give(memory, strict, entry_id, NEAR, correct=False)
    found = explained(memory, strict, entry_id)
    assert 0.9 < found.needed <= 1.0 and found.learned is not None
    assert "expected" in found.why and re.search(r"from 0\.9\d+ on at most 5\.0%|own task alone", found.why)
    learning.give(memory, strict, entry_id, TASK, correct=False)
    assert "remember a better one" in explained(memory, strict, entry_id).why
    assert not memory.recall(strict, TASK).hit


def test_much_feedback_is_explained_by_its_count(
    memory: Memory, strict: Scope, entry_id: str, embedder: FakeEmbedder
) -> None:
    for number in range(60):
        embedder.place(f"query {number}", 0.86 + number * 0.002, TASK)
        learning.give(memory, strict, entry_id, f"query {number}", correct=number >= 10)
    found = explained(memory, strict, entry_id)
    assert found.learned is not None and found.learned.reason == "count"
    assert "0 of 50 answers above 0.87" in found.why and "90% confidence" in found.why


@pytest.mark.parametrize(
    ("query", "verdict"),
    [
        (TASK, "served"),
        (FAR, "not served: 0.6000 is below the threshold, 0.8500"),
        ("revoke the keys", "not served: it is near enough, but the check trusts it by 0.10 only"),
        ("another task", "not served: another entry is nearer"),
    ],
)
def test_explain_says_what_a_recall_would_decide(
    memory: Memory, scope: Scope, entry_id: str, embedder: FakeEmbedder, query: str, verdict: str
) -> None:
    if query == "another task":
        embedder.place(query, 0.9, TASK)
        memory.remember(scope, query, "its own answer")
        embedder.fixed[TASK + "!"] = embedder.embed_query(query)
        memory.remember(scope, TASK + "!", "nearer")
    decision = explained(memory, scope, entry_id, query=query).decision
    assert decision is not None
    assert decision.verdict == verdict
    assert decision.checked and decision.judgement == fake_judge(query, TASK, decision.similarity or 0.0)
    # Looking is no recall.
    assert memory.stats(scope).hit_rate_last_100 == 0.0


def test_explain_says_that_time_is_over_and_that_the_learned_threshold_decided(
    memory: Memory, strict: Scope, entry_id: str, clock: Clock, embedder: FakeEmbedder
) -> None:
    learning.give(memory, strict, entry_id, NEAR, correct=False)
    decision = explained(memory, strict, entry_id, query=NEARER).decision
    assert decision is not None and "below the learned threshold" in decision.verdict
    short = memory.remember(strict, "gone soon", "x", ttl_seconds=5).entry_id
    assert short is not None
    clock.advance(5)
    found = explained(memory, strict, short, query="gone soon")
    assert not found.live and found.decision is not None
    assert found.decision.verdict == "not served: its time is over"


# --- the tool


def test_the_tool_is_offered_only_where_it_is_wanted(memory: Memory, config: Config, entry_id: str) -> None:
    derived = Derived("tests", None, "a test")
    plain = Session(config, derived, lambda: memory)
    assert len(plain.tools) == 6 and "feedback" not in plain.tools
    session = Session(replace(config, feedback_tool=True, max_error=0.05), derived, lambda: memory)
    assert list(session.tools) == [*plain.tools, "feedback"]
    tool = next(tool for tool in session.descriptions() if tool["name"] == "feedback")
    assert tool["inputSchema"]["required"] == ["entry_id", "query", "correct"]
    reply = session.call("feedback", {"entry_id": entry_id, "query": NEAR, "correct": "false"})
    assert reply.payload is not None and reply.payload["wrong"] == 1 and reply.payload["learned_threshold"] > 0.9
    assert session.call("feedback", {"entry_id": "no such", "query": "x", "correct": True}).payload == {"noted": False}
    assert session.call("feedback", {"entry_id": entry_id, "query": NEAR}).error == (
        "correct is required: true or false."
    )
    assert "correct takes true or false" in (
        session.call("feedback", {"entry_id": entry_id, "query": NEAR, "correct": "maybe"}).error or ""
    )


# --- settings


@pytest.mark.parametrize(("raw", "value"), [("0.05", 0.05), ("null", None), ("OFF", None), ("none", None), ("", None)])
def test_the_bound_is_read(raw: str, value: float | None) -> None:
    assert resolve({"SUBCONSCIOUS_HOME": "/nowhere", "SUBCONSCIOUS_MAX_ERROR": raw}).config.max_error == value


@pytest.mark.parametrize("raw", ["0", "1", "-0.1", "nan", "much", "1e400"])
def test_a_bound_that_is_none_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="a number between 0 and 1, or null for off"):
        resolve({"SUBCONSCIOUS_HOME": "/nowhere", "SUBCONSCIOUS_MAX_ERROR": raw})


# --- the commands


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Callable]:
    """Runs a command in process, without an engine; returns exit code, standard output and standard error."""
    embedder = FakeEmbedder()
    for text, similarity in ((NEAR, 0.88), (NEARER, 0.95), ("revoke the keys", 0.96)):
        embedder.place(text, similarity, TASK)
    monkeypatch.setattr("subconscious_mcp.opening.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.chdir(tmp_path)

    def runner(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield runner


def test_the_commands_follow_feedback_through_its_life(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_MAX_ERROR", "0.05")
    entry_id = json.loads(run("remember", TASK, "run keys rotate", "--json")[1])["entry_id"]
    code, out, _ = run("feedback", entry_id, NEAR, "--wrong", "--json")
    noted = json.loads(out)
    assert code == 0 and (noted["noted"], noted["right"], noted["wrong"]) == (True, 0, 1)
    assert noted["learned_threshold"] > 0.95
    code, out, _ = run("recall", NEARER)
    assert code == 1 and out.startswith("miss  nearest similarity 0.9500, needed 1.0000 by feedback")
    assert json.loads(run("recall", NEARER, "--json")[1])["learned_threshold"] == 1.0
    code, out, _ = run("feedback", entry_id, NEARER, "--correct")
    assert code == 0 and out.startswith("noted: right at similarity 0.9500 (1 right, 1 wrong, served from ")
    code, out, _ = run("feedback", "--export")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["entry_id"], line["correct"]) for line in lines] == [(entry_id, False), (entry_id, True)]
    assert NEAR not in out
    code, out, _ = run("explain", entry_id, "--query", "revoke the keys")
    assert code == 0
    for shown in (TASK, "1 right, 1 wrong", "needed similarity", "expected", "revoke / rotate", "0.10, blocked"):
        assert shown in out
    code, out, _ = run("explain", entry_id, "--query", TASK, "--json")
    found = json.loads(out)
    assert found["query"]["verdict"] == "served" and found["query"]["served_entry_id"] == entry_id
    assert found["needed"] == found["learned_threshold"] and found["max_error"] == 0.05
    code, out, _ = run("feedback", entry_id, TASK, "--wrong")
    assert code == 0 and out.rstrip().endswith("not served any more)")
    assert "its answer was wrong for its own task" in run("recall", TASK)[1]
    code, out, _ = run("explain", entry_id, "--query", TASK)
    assert "not served at any" in out and "not served: its answer was wrong for its own task" in out
    assert run("forget", entry_id)[0] == 0
    assert run("feedback", "--export")[:2] == (0, "")
    assert run("feedback", entry_id, NEAR, "--wrong")[0] == 1
    code, out, _ = run("explain", entry_id)
    assert code == 1 and "no such entry in namespace" in out
    assert json.loads(run("explain", entry_id, "--json")[1]) == {"found": False}


def test_what_is_served_instead_is_named(run) -> None:
    first, second = (
        json.loads(run("remember", task, "x", "--json")[1])["entry_id"] for task in (TASK, "revoke the keys")
    )
    code, out, _ = run("explain", first, "--query", NEAR)
    assert code == 0 and "served instead" not in out
    _, out, _ = run("explain", second, "--query", TASK)
    assert "not served: another entry is nearer" in out and re.search(rf"served instead +{first}", out)


def test_an_entry_with_marks_is_shown_as_text(run) -> None:
    entry_id = json.loads(run("remember", "[red]a task[/]", "x", "--json")[1])["entry_id"]
    _, out, _ = run("explain", entry_id, "--query", "[bold]markup[/]")
    assert "[red]a task[/]" in out and "[bold]markup[/]" in out and "max_error is not set" in out


@pytest.mark.parametrize(
    "arguments", [(), ("id",), ("id", "query"), ("id", "--wrong"), ("id", "query", "--export"), ("id", " ", "--wrong")]
)
def test_incomplete_feedback_is_refused(run, arguments: tuple[str, ...]) -> None:
    code, _, err = run("feedback", *arguments)
    assert code == 64 and err.startswith("subconscious-mcp: ")


def test_print_config_shows_both_settings(run) -> None:
    shown = json.loads(run("--print-config", "--json")[1])
    assert shown["max_error"] == {"value": None, "source": "default"}
    assert shown["feedback_tool"] == {"value": False, "source": "default"}


# --- by an engine

WITH_JUDGE = """
from subconscious_mcp import confidence
confidence.warm = lambda: None
confidence.judge = lambda query, stored, similarity: confidence.Judgement(similarity, (), False)
"""


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    opened = Windows(tmp_path)
    yield opened
    opened.close()


def test_the_engine_carries_the_commands_out_and_offers_the_tool(windows: Windows, tmp_path: Path) -> None:
    settings = {"SUBCONSCIOUS_MAX_ERROR": "0.05", "SUBCONSCIOUS_FEEDBACK_TOOL": "1", "SUBCONSCIOUS_NAMESPACE": "tests"}
    window = windows.open(WITH_JUDGE, **settings)
    assert len(window.tools()) == 7
    entry_id = window.call("remember", {"task": TASK, "answer": "x"}).payload["entry_id"]
    query = f"{TASK} today"
    assert window.call("recall", {"task": query}).payload["hit"]
    said = window.call("feedback", {"entry_id": entry_id, "query": query, "correct": False}).payload
    assert said["noted"] and said["wrong"] == 1
    assert not window.call("recall", {"task": query}).payload["hit"]
    env = windows.environment(**settings)

    def command(*arguments: str) -> str:
        words = [sys.executable, "-m", "subconscious_mcp", *arguments]
        done = subprocess.run(
            words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = json.loads(command("explain", entry_id, "--query", query, "--json"))
    assert "below the learned threshold" in found["query"]["verdict"]
    assert json.loads(command("feedback", entry_id, query, "--correct", "--json"))["right"] == 1
    assert window.call("recall", {"task": query}).payload["hit"]
    assert [json.loads(line)["correct"] for line in command("feedback", "--export").splitlines()] == [True]
    assert json.loads(command("tune", "--json", "--plot", "a.svg"))["recalls"] == 3
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert windows.engines() == 1
