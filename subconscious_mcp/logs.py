"""logs/server.log: what the server did and what went wrong, never what it was told.

Texts that users store or ask for are not logged at any level. Other libraries' records may
hold them in their arguments, and tracebacks in their messages, so of those only the fixed
parts are written.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

from subconscious_mcp.redaction import redact

MAX_BYTES = 2_000_000
BACKUPS = 3
_OWN = "subconscious_mcp"


class _Discreet(logging.Formatter):
    """Writes our own messages, of other libraries' only the template, of errors no message; no secret of any."""

    def format(self, record: logging.LogRecord) -> str:
        # A copy: another handler may have left an exception's message in `exc_text`, and must not find ours.
        shown = {**record.__dict__, "exc_text": None}
        if record.name.partition(".")[0] != _OWN:
            shown |= {"args": (), "msg": str(record.msg)[:200]}
        return redact(super().format(logging.makeLogRecord(shown)))

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        kind, _, trace = ei
        frames = "".join(traceback.format_tb(trace)).rstrip()
        return f"{frames}\n{kind.__name__ if kind else 'No exception'}"


class PrivateFile(logging.handlers.RotatingFileHandler):
    """Rotating files that only their owner reads."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=private)


def log_to_file(path: Path, level: str) -> None:
    """Sends the package's log to a rotating file, and to standard error where that cannot be.

    Args:
        path: The file; its folder is made with mode 0700.
        level: Least level of our own records; other libraries' start at WARNING.
    """
    handler: logging.Handler
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = PrivateFile(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8", errors="replace")
    except OSError as error:
        # A server without a log still serves.
        handler = logging.StreamHandler(sys.stderr)
        print(f"subconscious-mcp: {path} cannot be written ({error.strerror or error}).", file=sys.stderr)
    handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"))
    # A full disk must not print a traceback for each record.
    logging.raiseExceptions = False
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h.formatter, _Discreet)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN).setLevel(level)
