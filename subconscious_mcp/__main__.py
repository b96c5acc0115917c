"""`python -m subconscious_mcp` and the console script: the pipe, a hook, or a command.

A client starts it without arguments, or as a hook, and those ways are kept short: nothing else is imported.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs the pipe, or the command that is named; returns the exit code."""
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        # Also while a command is still being imported, which is when an impatient hand strikes.
        os.write(2, b"subconscious-mcp: interrupted\n")
        return 130


def _run(arguments: list[str]) -> int:
    toolset = _toolset(arguments)
    if not arguments or toolset is not None:
        from subconscious_mcp.pipe import run

        return run(toolset)
    if arguments[0] == "hook":
        import gc

        # A process of a moment: there is nothing to collect.
        gc.disable()
        from subconscious_mcp import hooks

        # What it wrote is written, so the interpreter need not be taken down: that takes 5 ms.
        os._exit(hooks.run(arguments[1:]))
    from subconscious_mcp.cli import main as command_line

    return command_line()


def _toolset(arguments: list[str]) -> str | None:
    """Returns NAME of `--toolset NAME` or `--toolset=NAME` where that is all that is said and NAME is one.

    The rest is for the command line, which knows the option too and says what is wrong.
    """
    from subconscious_mcp.locate import TOOLSETS

    if len(arguments) == 1 and arguments[0].startswith("--toolset="):
        arguments = arguments[0].split("=", 1)
    if len(arguments) == 2 and arguments[0] == "--toolset" and arguments[1] in TOOLSETS:
        return arguments[1]
    return None


if __name__ == "__main__":
    sys.exit(main())
