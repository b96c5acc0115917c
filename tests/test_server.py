"""The server in one process: the ways to start it, and what it says of how it was started."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interaction import BOOTSTRAP, COMMAND, CONSOLE_SCRIPT, HELD_COMMAND, Process, environment

TASK = "Export the monthly sales report of the northern region"


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Servers to be ended."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.close_input()
        process.end()


def open_server(started: list[Process], folder: Path, command: Any, **settings: str) -> Process:
    process = Process(environment(folder / "home", **settings), command=command, cwd=folder)
    started.append(process)
    process.handshake()
    return process


@pytest.mark.parametrize(
    "command",
    [COMMAND, (sys.executable, "-m", "subconscious_mcp.server"), (CONSOLE_SCRIPT, "--json"), (CONSOLE_SCRIPT,)],
    ids=["serve", "module", "an option alone", "nothing"],
)
def test_each_way_to_start_it_serves(started: list[Process], tmp_path: Path, command: tuple[str, ...]) -> None:
    server = open_server(started, tmp_path, command, SUBCONSCIOUS_ENGINE="off")
    assert [tool["name"] for tool in server.tools()][:1] == ["recall"]
    assert server.call("stats", {}).payload["total_entries"] == 0
    assert server.close() == 0
    assert server.errors == []


def test_a_misspelt_setting_is_told_and_the_reason_for_it_logged(started: list[Process], tmp_path: Path) -> None:
    server = open_server(
        started, tmp_path, (*COMMAND, "--because", "somebody wanted it"), SUBCONSCIOUS_DEFUALT_TTL_SECONDS="1"
    )
    server.call("stats", {})
    assert server.close() == 0
    (line,) = server.errors
    assert line.startswith("subconscious-mcp: ") and "SUBCONSCIOUS_DEFUALT_TTL_SECONDS" in line
    log = (tmp_path / "home" / "logs" / "server.log").read_text()
    assert "Serving in this process: somebody wanted it." in log


def test_without_a_standard_error_what_libraries_print_goes_nowhere(
    started: list[Process], tmp_path: Path, real_model_dir: Path
) -> None:
    assert HELD_COMMAND[-1] == BOOTSTRAP
    server = open_server(
        started,
        tmp_path,
        ("sh", "-c", 'exec "$@" 2>&-', "sh", *HELD_COMMAND),
        SUBCONSCIOUS_MODELS_DIR=str(real_model_dir.parent),
    )
    assert server.call("remember", {"task": TASK, "answer": "x"}).payload["stored"]
    assert server.call("recall", {"task": TASK}).payload["hit"]
    assert server.close() == 0
    assert server.errors == []
