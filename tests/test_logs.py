from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from subconscious_mcp import logs

SECRET = "a text that a user has stored"


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """Leaves the loggers of the whole process as they were."""
    root, own = logging.getLogger(), logging.getLogger("subconscious_mcp")
    before = (root.level, own.level, logging.raiseExceptions, [*root.handlers])
    yield
    for handler in [handler for handler in root.handlers if handler not in before[3]]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    own.setLevel(before[1])
    logging.raiseExceptions = before[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "logs" / "server.log"


def test_our_records_are_written_with_their_time_and_place(path: Path) -> None:
    logs.log_to_file(path, "INFO")
    logging.getLogger("subconscious_mcp.server").info("Namespace %r.", "ünï ★")
    logging.getLogger("subconscious_mcp.server").debug("too much")
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert line.endswith("subconscious_mcp.server: Namespace 'ünï ★'.")
    assert " INFO " in line


def test_a_level_is_for_our_records_alone(path: Path) -> None:
    logs.log_to_file(path, "DEBUG")
    logging.getLogger("subconscious_mcp").debug("ours")
    logging.getLogger("another").info("theirs")
    assert "ours" in path.read_text()
    assert "theirs" not in path.read_text()


def test_of_other_libraries_only_the_template_is_written(path: Path) -> None:
    logs.log_to_file(path, "DEBUG")
    logging.getLogger("another.library").warning("bad request: %s", SECRET)
    logging.getLogger("another.library").warning("x" * 10_000)
    text = path.read_text()
    assert "bad request: %s" in text
    assert SECRET not in text
    assert len(text) < 1000
    # Only the library itself, not one whose name begins alike, is ours.
    logging.getLogger("subconscious_mcp_plugin").warning("its %s", SECRET)
    assert SECRET not in path.read_text()


def test_of_an_exception_its_kind_and_place_are_written_and_no_message(path: Path) -> None:
    logs.log_to_file(path, "INFO")
    for name in ("subconscious_mcp.session", "another"):
        try:
            raise ValueError(SECRET) from KeyError(SECRET)
        except ValueError:
            logging.getLogger(name).exception("failed")
    text = path.read_text()
    assert text.splitlines().count("ValueError") == 2
    assert "test_logs.py" in text
    assert SECRET not in text
    logging.getLogger("subconscious_mcp").error("nothing is under way", exc_info=True)
    assert "No exception" in path.read_text()


def test_only_their_owner_reads_the_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 1000)
    logs.log_to_file(path, "INFO")
    for _ in range(100):
        logging.getLogger("subconscious_mcp").info("a line of the log")
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["server.log", "server.log.1", "server.log.2", "server.log.3"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_size <= 1000 for file in files)


def test_a_second_call_takes_the_place_of_the_first(path: Path, tmp_path: Path) -> None:
    logs.log_to_file(path, "INFO")
    other = tmp_path / "other.log"
    logs.log_to_file(other, "INFO")
    logging.getLogger("subconscious_mcp").info("once")
    assert path.read_text() == ""
    assert other.read_text().count("once") == 1


def test_a_log_that_cannot_be_written_goes_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file stands in the way")
    logs.log_to_file(tmp_path / "logs" / "server.log", "INFO")
    logging.getLogger("subconscious_mcp").info("still told")
    first, second = capsys.readouterr().err.splitlines()
    assert "cannot be written" in first
    assert second.endswith("still told")


def test_a_text_that_is_no_unicode_does_not_end_the_logging(path: Path) -> None:
    logs.log_to_file(path, "INFO")
    logging.getLogger("subconscious_mcp").info("half \ud800")
    logging.getLogger("subconscious_mcp").info("%d", "no number")
    logging.getLogger("subconscious_mcp").info("the next")
    assert "the next" in path.read_text(encoding="utf-8")
