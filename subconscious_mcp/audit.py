"""logs/audit.log: who called what over HTTP, when, and how it ended. No arguments, no texts.

One JSON object a line: `time` (UTC), `user` (the token's name and id, or the subject of the OAuth token),
`peer` (its address), `tool`, `outcome`, `ms`.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

from subconscious_mcp.logs import PrivateFile

MAX_BYTES = 10_000_000
BACKUPS = 9
"""Files before the present one: some 600,000 calls in all."""
MAX_NAME = 200
"""Characters of a user's name: that of an OAuth subject is the issuer's to choose."""


class AuditLog:
    """Appends to the file, which rotates and which only its owner reads.

    Args:
        path: The file; its folder is made with mode 0700.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = PrivateFile(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8", errors="replace")

    def note(self, user: str, peer: str, tool: str, outcome: str, seconds: float = 0.0) -> None:
        """Notes one call, or one request that was refused.

        Args:
            tool: A name of ours, never one that the client made up.
        """
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "user": user[:MAX_NAME],
            "peer": peer,
            "tool": tool,
            "outcome": outcome,
            "ms": round(seconds * 1000, 1),
        }
        self._file.emit(logging.makeLogRecord({"msg": json.dumps(line), "levelno": logging.INFO}))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
