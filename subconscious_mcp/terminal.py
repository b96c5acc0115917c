"""What commands share: their grammar's common part, JSON or tables, colours, progress bars."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def speak_utf8() -> None:
    """Lets both streams take every character."""
    for stream in (sys.stdout, sys.stderr):
        # Under cp1252 or ASCII a star or a Chinese answer would be an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def add_command(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Adds a command with what all commands have in common; returns its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=f"{about[:1].upper()}{about[1:]}."
    )
    parser.set_defaults(run=run)
    if name != "serve":
        # SUPPRESS: `--json` before the command must not be undone by its absence behind it.
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")
    return parser


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun: `1 entry`, `2 entries`.

    Args:
        one: The noun for one.
        many: The noun for any other number, where it is not `one` with an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def show(arguments: argparse.Namespace, payload: Any, table: Callable[[Console], object]) -> None:
    """Prints a result: as JSON where `--json` was given, else with `table`."""
    if getattr(arguments, "json", False):
        print(json.dumps(payload, ensure_ascii=False))
    else:
        table(console())


def console() -> Console:
    """Returns where tables go."""
    from rich.console import Console

    # highlight=False: colours only where they mean something. Off a terminal nothing is cut.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


@contextmanager
def model_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows downloads on standard error: a bar on a terminal, else a line for each."""
    from rich.console import Console

    shown = Console(stderr=True, highlight=False)
    bars: Any = None
    tasks: dict[str, Any] = {}

    def tell(what: str, done: int, total: int) -> None:
        nonlocal bars
        if not shown.is_terminal:
            if what not in tasks:
                tasks[what] = None
                shown.print(f"{what}", markup=False)
            return
        if bars is None:
            from rich import progress

            bars = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.DownloadColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeRemainingColumn(),
                console=shown,
            )
            bars.start()
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total or None)
        bars.update(tasks[what], completed=done, total=total or None)

    try:
        yield tell
    finally:
        if bars is not None:
            bars.stop()
