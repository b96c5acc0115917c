"""Drift from a log, without a store."""

from __future__ import annotations

from subconscious_mcp import drift
from subconscious_mcp.echo_log import CUT_MARK, EchoLine


def line(query: str, similarity: float, entry_id: str | None = "e", hit: bool = True) -> EchoLine:
    return EchoLine(1.0, query, entry_id, similarity, hit, 0.8)


def report(*lines: EchoLine | None, tasks: dict[str, str] | None = None, min_hits: int = 1, min_spread: float = 0.05):
    return drift.report(lines, lambda ids: tasks or {}, min_hits=min_hits, min_spread=min_spread)


def test_misses_and_damaged_lines_are_counted_and_passed_over() -> None:
    found = report(None, line("a", 0.5, hit=False), line("b", 0.9, entry_id=None, hit=False), line("c", 0.9), None)
    assert (found.analyzed_recalls, found.entries_with_hits, found.skipped_lines) == (3, 1, 2)
    assert not found.candidates


def test_an_entry_that_is_gone_is_reported_as_such() -> None:
    candidate = report(line("a", 0.8), line("b", 0.95)).candidates[0]
    assert (candidate.still_stored, candidate.task_text) == (False, None)
    assert (candidate.similarity_min, candidate.similarity_max, candidate.similarity_spread) == (0.8, 0.95, 0.15)


def test_one_phrasing_is_no_band() -> None:
    assert not report(line("same words", 0.8), line("Same  Words", 0.95)).candidates


def test_a_cut_query_that_begins_like_the_stored_task_is_a_repeat_of_it() -> None:
    task = "word " * 400
    cut = task[:1000] + CUT_MARK
    assert not report(line(cut, 1.0), line("paraphrase", 0.86), tasks={"e": task}).candidates


def test_the_widest_band_comes_first() -> None:
    found = report(
        line("a", 0.85, "narrow"), line("b", 0.95, "narrow"), line("a", 0.8, "wide"), line("b", 0.99, "wide")
    )
    assert [candidate.entry_id for candidate in found.candidates] == ["wide", "narrow"]
