"""What tools and `--json` show of results, and what people see of the rare ones."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from subconscious_mcp import render, tables
from subconscious_mcp.records import (
    Contrast,
    DriftCandidate,
    DriftReport,
    Echoes,
    Entry,
    Near,
    Recall,
    Remembered,
    Stats,
)

ENTRY = Entry(1, "an-id", "memory", "a task of some length", "an answer of some length", 12.5, None, ("a", "b"))
NEAR = Near(ENTRY, 0.9)
CUT = "… [cut: "


def candidate(**other: Any) -> DriftCandidate:
    values = {
        "entry_id": "an-id",
        "task_text": "a task of some length",
        "still_stored": True,
        "hits": 4,
        "distinct_queries": 3,
        "similarity_min": 0.5,
        "similarity_max": 0.9,
        "similarity_spread": 0.4,
    }
    return DriftCandidate(**{**values, **other})


def printed(show: Any, *values: Any) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False)
    show(console, *values)
    return console.file.getvalue()


@pytest.mark.parametrize("most", [0, 1, 9])
def test_a_cut_says_how_much_is_missing(most: int) -> None:
    cut = render.bounded("x" * 12_345, most)
    assert cut == "x" * most + f"… [cut: {12_345 - most:,} of 12,345 characters left out]"
    assert render.bounded("x" * most, most) == "x" * most


def test_a_hit_shows_its_entry_and_a_miss_nothing_of_the_nearest() -> None:
    found = render.recall_payload(Recall(True, 0.9, NEAR, 0.85))
    assert (found["answer"], found["task_text"], found["tags"]) == (ENTRY.answer, ENTRY.task, ["a", "b"])
    bounded = render.recall_payload(Recall(True, 0.9, NEAR, 0.85), most_answer=2, most_task=1)
    assert bounded["answer"].startswith(f"an{CUT}") and bounded["task_text"].startswith(f"a{CUT}")
    for best in (NEAR, None):
        missed = render.recall_payload(Recall(False, 0.5, best, 0.85))
        assert missed == {
            "hit": False,
            "similarity": 0.5,
            "answer": None,
            "task_text": None,
            "entry_id": None,
            "stored_at": None,
            "tags": [],
        }


def test_a_blocked_recall_names_the_other_task_and_no_answer() -> None:
    apart = (Contrast("antonym", "disable", "enable", 1.0), Contrast("flag", "", "-r", 0.9))
    payload = render.recall_payload(Recall(False, 0.97, NEAR, 0.85, 0.02, apart, blocked=True), most_task=1)
    assert payload["blocked"]["task_text"].startswith(f"a{CUT}") and payload["confidence"] == 0.02
    assert payload["blocked"]["contrasts"][1] == {"kind": "flag", "query": "", "stored": "-r"}
    assert ENTRY.answer not in str(payload)


def test_a_warning_names_the_neighbour() -> None:
    plain = render.remember_payload(Remembered(True, "new", 384))
    assert plain == {"stored": True, "entry_id": "new", "embedding_dim": 384}
    warned = render.remember_payload(Remembered(False, None, 384, "duplicate", NEAR), most_task=3)
    assert warned["warning"] == "duplicate" and warned["nearest_entry_id"] == "an-id"
    assert warned["nearest_task"].startswith(f"a t{CUT}")
    assert "not stored" in printed(tables.print_remembered, warned)


def test_echoes_show_tasks_and_no_answers() -> None:
    payload = render.echo_payload(Echoes(7, (NEAR,), ((Contrast("flag", "-r", "", 0.9),),)), most_task=1)
    assert payload["count"] == 7
    assert payload["echoes"][0]["task_text"].startswith(f"a{CUT}")
    assert payload["echoes"][0]["contrasts"] == [{"kind": "flag", "query": "-r", "stored": ""}]
    assert ENTRY.answer not in str(payload)
    assert "-r / -" in printed(tables.print_echoes, payload)


def test_a_long_drift_report_says_what_it_leaves_out() -> None:
    report = DriftReport(9, 3, (candidate(), candidate(task_text=None, still_stored=False), candidate()), 2)
    whole = render.drift_payload(report)
    assert len(whole["candidates"]) == 3 and "candidates_left_out" not in whole
    cut = render.drift_payload(report, most=1, most_task=1)
    assert len(cut["candidates"]) == 1 and cut["candidates_left_out"] == 2
    assert cut["candidates"][0]["task_text"].startswith(f"a{CUT}")
    assert whole["skipped_lines"] == 2
    assert whole["candidates"][1]["task_text"] is None
    shown = printed(tables.print_drift, whole)
    assert "(no longer stored)" in shown
    assert "3 candidates among 3 entries with hits, 9 recalls, 2 damaged lines skipped" in shown
    assert "skipped_lines" not in render.drift_payload(DriftReport(0, 0))


def test_entries_that_cannot_be_found_yet_are_counted() -> None:
    assert "being_embedded_again" not in render.stats_payload(Stats(3, None, 0.0))
    payload = render.stats_payload(Stats(3, 12.5, 0.25, unembedded=2))
    assert payload["being_embedded_again"] == 2
    shown = printed(tables.print_stats, payload, "[red]markup[/]")
    assert "[red]markup[/]" in shown and "being embedded again" in shown and "never" not in shown


def test_control_characters_and_long_texts_stay_on_one_line() -> None:
    assert tables.one_line("a\n b\t\tc").plain == "a b c"
    assert tables.one_line("a\x1b[31mb").plain == "a�[31mb"
    assert tables.one_line("x" * 500, 10).plain == "x" * 9 + "…"
