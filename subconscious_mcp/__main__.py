"""`python -m subconscious_mcp` and the console script: the pipe, a hook, or a command.

A client starts it without arguments, or as a hook, and those ways are kept short: nothing else is imported.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the pipe, or the command that is named; returns the exit code."""
    if len(sys.argv) == 1:
        from subconscious_mcp.pipe import run

        return run()
    if sys.argv[1] == "hook":
        from subconscious_mcp import hooks

        return hooks.run(sys.argv[2:])
    from subconscious_mcp.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
