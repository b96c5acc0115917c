"""`python -m subconscious_mcp` and the console script: the pipe, or a command.

A client starts it without arguments, and that way is kept short: nothing else is imported.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the pipe, or the command that is named; returns the exit code."""
    if len(sys.argv) == 1:
        from subconscious_mcp.pipe import run

        return run()
    from subconscious_mcp.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
