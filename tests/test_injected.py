"""Injected text is known again by marks alone, and nothing else is taken for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp import injected_files
from subconscious_mcp.injected import Injected
from subconscious_mcp.injected_files import FOLDER, MOST_BYTES, record, recorded

TOLD = (
    "  > task: Migrate the tables of the database\n"
    "  > answer: Run the migration twice, first dry and then for real, because of the lock.\n"
    "  > make up\n"
    "  > Then restart the workers one by one.\n"
)


def known(told: str = TOLD, typed: str = "") -> Injected:
    marks = Injected("a session")
    marks.add(told, typed)
    return marks


@pytest.mark.parametrize(
    "text",
    [
        "Run the migration twice, first dry and then for real, because of the lock.",
        "- run the **migration** twice, `first` dry and then for real, because of the lock",
        "answer: Run the migration twice, first dry and then for real, because of the lock.",
        "Run the migration twice, first dry\nand then for real, because of the lock. make up Then restart",
        "Run the migration twice, first dry and then for real, because of the lock.\n\n> make up\n",
        "Migrate the tables of the database\nThen restart the workers one by one.",
    ],
)
def test_it_is_known_in_any_form(text: str) -> None:
    assert known().cut(text) == ""
    assert known().cut(f"Before.\n{text}\nBehind.").split() == ["Before.", "Behind."]


@pytest.mark.parametrize(
    "text",
    [
        "make up",
        "The migration ran twice because of the lock.",
        "Restart the workers one by one, please.",
        "Run the migration twice, first dry.",
        "",
        "  indented\n\n\tcode\n",
        "---\n> \n***",
    ],
)
def test_what_only_resembles_it_stays(text: str) -> None:
    assert known().cut(text) == text.strip()


def test_what_is_written_without_blanks_is_known_too() -> None:
    told = "  > answer: 请先在测试环境运行两次数据库迁移脚本，然后再重启所有工作进程。\n"
    marks = known(told)
    text = "记忆里说：请先在测试环境运行两次数据库迁移脚本，然后再重启所有工作进程。我照做了。"
    assert marks.cut(text) == "记忆里说：。我照做了。"
    assert marks.cut("请先在测试环境运行一次。") == "请先在测试环境运行一次。"


def test_many_lines_with_runs_are_cut_line_by_line() -> None:
    run = "run the migration twice, first dry and then for real, because of the lock"
    text = "\n".join(f"Step {number}: {run}." for number in range(300))
    assert known().cut(text) == "\n".join(f"Step {number}: ." for number in range(300))


def test_a_typed_line_stays_and_typed_lines_lose_no_word() -> None:
    line = "Then restart the workers one by one."
    assert known().cut(line, typed=True) == line
    assert known().cut(f"{line}\nAnd tell me.", typed=True) == "And tell me."
    inside = "Why run the migration twice, first dry and then for real, because of the lock?\nTell me."
    assert known().cut(inside, typed=True) == inside


def test_what_the_user_typed_is_their_own() -> None:
    marks = known(typed="Please:\nThen restart the workers one by one.")
    assert marks.cut("Then restart the workers one by one.") == "Then restart the workers one by one."
    assert marks.cut("Migrate the tables of the database") == ""


def test_marks_say_nothing_of_another_session() -> None:
    assert known().marks.isdisjoint(Injected("another", known().marks)._marks(TOLD))


def test_of_a_huge_text_the_ends_are_searched() -> None:
    line = "Then restart the workers one by one."
    cut = known().cut(f"{line}\n{'some words ' * 20_000}\n{line}")
    assert len(cut) > 200_000
    assert "workers" not in cut


@given(st.text(), st.text())
def test_any_text_is_survived_and_known_again(told: str, text: str) -> None:
    marks = known(told)
    assert marks.cut(text) == known("").cut(text) or marks.marks
    left = marks.cut(told)
    assert len(left) <= len(told)
    assert marks.cut(left) == left


# --- the files


def test_records_of_a_session_add_up(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert recorded(folder, "s").marks == set()
    record(folder, "s", TOLD)
    record(folder, "s", "Another line that is long enough.")
    record(folder, "t", "A line of another session's notes.")
    text = f"{TOLD}Another line that is long enough.\nA line of another session's notes."
    assert recorded(folder, "s").cut(text) == "A line of another session's notes."
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_the_same_again_takes_no_room(tmp_path: Path) -> None:
    for _ in range(3):
        record(str(tmp_path), "s", TOLD)
    (path,) = (tmp_path / FOLDER).iterdir()
    assert path.stat().st_size == 8 * len(known().marks)


def test_a_file_is_bounded_and_keeps_what_is_new(tmp_path: Path) -> None:
    for number in range(40):
        record(str(tmp_path), "s", "\n".join(f"Line {line} of the notes number {number}" for line in range(200)))
    (path,) = (tmp_path / FOLDER).iterdir()
    assert path.stat().st_size <= MOST_BYTES
    assert recorded(str(tmp_path), "s").cut("Line 7 of the notes number 39") == ""


def test_marks_behind_a_cut_one_count(tmp_path: Path) -> None:
    record(str(tmp_path), "s", TOLD)
    (path,) = (tmp_path / FOLDER).iterdir()
    os.truncate(path, path.stat().st_size - 3)
    record(str(tmp_path), "s", "Another line that is long enough.")
    assert recorded(str(tmp_path), "s").cut("Another line that is long enough.") == ""


def test_old_sessions_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injected_files, "MOST_FILES", 3)
    for number in range(5):
        record(str(tmp_path), f"s-{number}", TOLD)
        for path in (tmp_path / FOLDER).iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))
    assert [bool(recorded(str(tmp_path), f"s-{number}").marks) for number in range(5)] == [False, *[True] * 4]
    for path in (tmp_path / FOLDER).iterdir():
        os.utime(path, (0, 0))
    record(str(tmp_path), "new", TOLD)
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
