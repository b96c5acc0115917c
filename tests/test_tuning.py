"""Threshold advice: the table, the sentence, the picture; from a log and feedback of every kind."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st
from test_echo_log import DAMAGED
from test_learning import NEAR, NEARER, TASK, _known_judge, fake_judge, run  # noqa: F401 - fixtures

from subconscious_mcp import confidence, learning, tuning
from subconscious_mcp.config import Config
from subconscious_mcp.echo_log import CUT_MARK, EchoLine, log_file
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.learning_payloads import advice_payload
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Observation
from subconscious_mcp.tuning import ENOUGH, THRESHOLDS, Advice, Row, advise, wilson
from subconscious_mcp.tuning_plot import svg

SVG = "{http://www.w3.org/2000/svg}"


def line(similarity: float, query: str = "a query", entry_id: str | None = "e") -> EchoLine:
    return EchoLine(1.0, query, entry_id, similarity, similarity >= 0.85, 0.85)


def said(similarity: float, correct: bool = True) -> Observation:
    return Observation("e", similarity, correct, 1.0, "fa4efa4efa4e")


def advised(
    lines: list[EchoLine | None], feedback: list[Observation] | None = None, tasks: dict[str, str] | None = None,
    *, current: float = 0.85, max_error: float = 0.05, verify: bool = True,
) -> Advice:  # fmt: skip
    stored = {"e": TASK} if tasks is None else tasks
    return advise(
        lines, feedback or [], lambda ids: {i: stored[i] for i in ids if i in stored},
        current=current, max_error=max_error, verify=verify,
    )  # fmt: skip


def row(advice: Advice, threshold: float) -> Row:
    return next(one for one in advice.rows if one.threshold == threshold)


def test_without_anything_it_says_so() -> None:
    advice = advised([])
    assert [one.threshold for one in advice.rows] == sorted({*THRESHOLDS, 0.85})
    assert {(one.hits, one.hit_rate, one.error, one.source) for one in advice.rows} == {(0, 0.0, None, None)}
    assert advice.recommended is None
    assert advice.sentence.startswith("Too little is known for advice: 0 recalls and 0 observations")


def test_hits_are_counted_of_all_recalls() -> None:
    lines = [line(0.6), line(0.75), line(0.9), line(1.0), None, line(0.0, entry_id=None)]
    advice = advised(lines)
    assert (advice.recalls, advice.skipped) == (5, 1)
    assert [row(advice, at).hits for at in (0.7, 0.76, 0.9, 0.98)] == [3, 2, 2, 1]
    assert row(advice, 0.9).hit_rate == 0.4


def test_what_the_check_blocks_is_no_hit_where_it_counts() -> None:
    lines = [line(0.9, "revoke it"), line(0.9)]
    assert row(advised(lines), 0.9).hits == 1
    assert row(advised(lines, verify=False), 0.9).hits == 2
    # Of an entry that is gone nobody can tell.
    assert row(advised(lines, tasks={}), 0.9).hits == 2


def test_the_error_is_that_of_the_confidence_until_there_is_feedback() -> None:
    lines = [line(0.8)] * ENOUGH + [line(0.96, "other")] * ENOUGH
    advice = advised(lines)
    found = row(advice, 0.9)
    assert (found.source, found.basis, found.interval) == ("confidence", ENOUGH, None)
    assert found.error == pytest.approx(0.04)
    assert row(advice, 0.8).error == pytest.approx(0.12)
    assert row(advice, 0.98).error is None
    assert advice.recommended == 0.82
    assert "by the check's confidence in 20 of them" in advice.sentence and "50% of the recalls hit" in advice.sentence


def test_feedback_counts_before_confidence() -> None:
    lines: list[EchoLine | None] = [line(0.9)] * 50
    advice = advised(lines, [said(0.9, number >= 2) for number in range(100)])
    found = row(advice, 0.9)
    assert (found.source, found.basis, found.error) == ("feedback", 100, 0.02)
    assert found.interval == wilson(2, 100)
    assert advice.recommended == 0.86
    assert "by 100 observations (95 % interval 0.6% to 7.0%), so more feedback is needed to be sure." in advice.sentence
    sure = advised(lines, [said(0.9)] * 100)
    assert "(95 % interval 0.0% to 3.7%)." in sure.sentence


def test_feedback_says_nothing_of_what_was_never_served() -> None:
    """All of it lies at 0.95 and above: nobody has seen what lies at 0.8."""
    advice = advised([], [said(0.95 + number / 1000) for number in range(40)])
    assert row(advice, 0.92).source == "feedback"
    assert row(advice, 0.9).source is None
    assert advice.recommended == 0.92


def test_a_threshold_below_one_that_is_too_bad_is_not_recommended() -> None:
    # By chance none was wrong between 0.7 and 0.8.
    feedback = [said(0.72)] * 400 + [said(0.9, number % 2 == 0) for number in range(20)] + [said(0.965)] * 30
    advice = advised([], feedback)
    assert row(advice, 0.7).error is not None and row(advice, 0.7).error < 0.05  # type: ignore[operator]
    assert advice.recommended == 0.92


def test_where_nothing_is_good_enough_it_says_so() -> None:
    advice = advised([], [said(0.99, number % 4 != 0) for number in range(40)])
    assert advice.recommended is None
    assert "No threshold can be recommended: at 0.98 still 25.0% of the hits" in advice.sentence


def test_a_cut_query_is_not_judged() -> None:
    assert row(advised([line(0.9, "revoke" + CUT_MARK)]), 0.9).hits == 1


def test_many_queries_are_judged_only_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MOST_JUDGED", 30)
    judged: list[str] = []

    def judge(query: str, stored: str, similarity: float) -> confidence.Judgement:
        judged.append(query)
        return fake_judge(query, stored, similarity)

    monkeypatch.setattr(confidence, "judge", judge)
    advice = advised([line(0.9, f"query {number % 50}") for number in range(200)])
    assert sorted(judged) == sorted(f"query {number}" for number in range(20, 50))
    assert row(advice, 0.9).hits == 200
    assert row(advice, 0.9).basis == 120


@pytest.mark.parametrize(("wrong", "seen"), [(0, 1), (1, 1), (0, 1000), (500, 1000), (3, 7)])
def test_an_interval_holds_its_share(wrong: int, seen: int) -> None:
    low, high = wilson(wrong, seen)
    assert 0.0 <= low <= wrong / seen <= high <= 1.0
    # Source: Newcombe 1998, table I: 81 of 263.
    assert [round(end, 4) for end in wilson(81, 263)] == [0.2553, 0.3662]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.builds(line, st.floats(0, 1), st.text(max_size=5), st.sampled_from([None, "e", "g"])))
    ),
    st.lists(st.builds(said, st.floats(0, 1), st.booleans()), max_size=60),
    st.floats(0.0, 1.0),
    st.floats(1e-6, 1 - 1e-6),
    st.text(max_size=20),
)
def test_it_never_raises_and_is_consistent(
    lines: list[EchoLine | None], feedback: list[Observation], current: float, max_error: float, name: str
) -> None:
    advice = advised(lines, feedback, current=current, max_error=max_error)
    hits = [one.hits for one in advice.rows]
    assert hits == sorted(hits, reverse=True)
    for one in advice.rows:
        assert 0.0 <= one.hit_rate <= 1.0
        assert one.error is None or (math.isfinite(one.error) and 0.0 <= one.error <= 1.0)
        assert (one.interval is not None) is (one.source == "feedback")
    if advice.recommended is not None:
        assert (row(advice, advice.recommended).error or 0.0) <= max_error
    ElementTree.fromstring(svg(json.loads(json.dumps(advice_payload(advice))), name))


# --- over a memory, and as a command


def fill(memory: Memory, scope: Scope, embedder: FakeEmbedder, tmp: Path) -> str:
    entry_id = memory.remember(scope, TASK, "x").entry_id
    assert entry_id is not None
    for number in range(60):
        embedder.place(f"query {number}", 0.7 + number * 0.005, TASK)
        memory.recall(scope, f"query {number}", threshold=0.0)
    memory.settle()
    with log_file(tmp / "data", "tests").open("ab") as file:
        for damage in DAMAGED:
            file.write(damage.replace(b"\n", b"") + b"\n")
    return entry_id


def test_a_damaged_log_costs_its_damaged_lines_only(
    memory: Memory, scope: Scope, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    entry_id = fill(memory, scope, embedder, tmp_path)
    advice = tuning.tune(memory, scope)
    assert (advice.recalls, advice.skipped, advice.said) == (60, len(DAMAGED), 0)
    assert row(advice, 0.7).hits == 60 and row(advice, 0.7).source == "confidence"
    for number in range(20, 60):
        learning.give(memory, scope, entry_id, f"query {number}", correct=number >= 30)
    advice = tuning.tune(memory, scope, max_error=0.1)
    assert advice.said == 40
    assert row(advice, 0.78).error == 10 / 40
    assert advice.recommended == 0.84 and "default_threshold to 0.84" in advice.sentence


def test_without_a_log_feedback_is_enough(memory: Memory, config: Config, embedder: FakeEmbedder) -> None:
    scope = memory.scope(replace(config, echo_log_enabled=False), "tests", None)
    entry_id = memory.remember(scope, TASK, "x").entry_id
    assert entry_id is not None
    for number in range(60):
        embedder.place(f"query {number}", 0.9 + number * 0.001, TASK)
        learning.give(memory, scope, entry_id, f"query {number}", correct=True)
    advice = tuning.tune(memory, scope, max_error=0.07)
    assert (advice.recalls, advice.said, advice.recommended) == (0, 60, 0.86)


@pytest.mark.parametrize("bound", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_none_is_refused(memory: Memory, scope: Scope, bound: float) -> None:
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        tuning.tune(memory, scope, max_error=bound)


def test_the_command_prints_a_table_and_draws(run: Any, tmp_path: Path) -> None:  # noqa: F811
    entry_id = json.loads(run("remember", TASK, "x", "--json")[1])["entry_id"]
    for query in (NEAR, NEARER, TASK) * 10:
        run("recall", query)
    run("feedback", entry_id, NEAR, "--wrong")
    code, out, _ = run("tune", "--plot", str(tmp_path / "a.svg"))
    assert code == 0
    assert "in use" in out and "recommended" in out and "confidence (" in out
    assert "30 recalls, 1 observations by feedback" in out
    assert "set default_threshold to" in out.splitlines()[-1]
    assert "#" * 24 in out
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert drawn.tag == f"{SVG}svg" and len(drawn.findall(f"{SVG}polyline")) == 2
    before = (tmp_path / "a.svg").read_bytes()
    code, out, _ = run("tune", "--json", "--max-error", "0.2", "--plot", str(tmp_path / "a.svg"))
    advice = json.loads(out)
    assert advice["recommended"] == 0.7 and advice["max_error"] == 0.2 and advice["observations"] == 1
    assert (tmp_path / "a.svg").read_bytes() != before
    code, _, err = run("tune", "--plot", str(tmp_path / "no" / "folder" / "a.svg"))
    assert code == 74 and "cannot be written" in err
    code, _, err = run("tune", "--max-error", "2")
    assert code == 64 and "max_error takes" in err


def test_the_command_is_honest_about_an_empty_namespace(run: Any) -> None:  # noqa: F811
    code, out, _ = run("tune", "--namespace", "empty")
    assert code == 0 and "Too little is known" in out and "too little" in out


def test_a_picture_shows_the_interval_and_is_the_same_each_time() -> None:
    advice = advised([line(0.9)] * 50, [said(0.9, number >= 2) for number in range(100)])
    drawn = svg(advice_payload(advice), "a <name> & \x07")
    assert drawn == svg(advice_payload(advice), "a <name> & \x07")
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(f"{SVG}polygon")) == 1
    assert "a <name> & �" in root.findall(f"{SVG}text")[0].text  # type: ignore[operator]
