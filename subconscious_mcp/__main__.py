"""`python -m subconscious_mcp` is the same as the console script `subconscious-mcp`."""

from __future__ import annotations

import sys

from subconscious_mcp.cli import main

if __name__ == "__main__":
    sys.exit(main())
