"""Runs hooks as clients do: a process of its own, the event on stdin, what the client reads on stdout."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from transcript_builder import Transcript, exchange

HOOK = (sys.executable, "-m", "subconscious_mcp", "hook")
PATIENCE = 60.0
"""Nothing here is timed: what takes longer than this does not end."""


class Client:
    """A client of hooks with a home folder, a storage directory and a project of its own."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.home = folder / "subconscious-home"
        self.storage = self.home / "data"
        self.project = folder / "work" / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SUBCONSCIOUS_")}
        self.env.pop("CLAUDE_PROJECT_DIR", None)
        self.env |= {
            "HOME": str(folder),
            "SUBCONSCIOUS_HOME": str(self.home),
            "SUBCONSCIOUS_MODEL_DOWNLOAD": "never",
            "SUBCONSCIOUS_ENGINE": "off",
            **settings,
        }

    def start(
        self,
        name: str,
        event: object,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Starts a hook and gives it its event: bytes as they are, anything else as JSON."""
        whole = {n: v for n, v in {**self.env, **(env or {})}.items() if v is not None}
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([*HOOK, *name.split()], env=whole, cwd=cwd or self.project, **streams)
        if process.stdin is not None:
            process.stdin.write(event if isinstance(event, bytes) else json.dumps(event).encode())
            process.stdin.close()
            process.stdin = None
        return process

    def run(self, name: str, event: object, **options: Any) -> str:
        """Runs a hook; it ends with 0 and complains of nothing. Returns what it printed."""
        return ended(self.start(name, event, **options))

    def transcript(self, session: str, content: Transcript) -> Path:
        folder = self.folder / "transcripts"
        folder.mkdir(exist_ok=True)
        return content.write(folder / f"{session}.jsonl")

    def stop_event(self, session: str, request: str, outcome: str, **fields: object) -> dict[str, object]:
        path = self.transcript(session, exchange(request, outcome))
        return {
            "hook_event_name": "Stop",
            "session_id": session,
            "transcript_path": str(path),
            "cwd": str(self.project),
            "stop_hook_active": False,
            **fields,
        }

    def stop(
        self, session: str = "s-1", request: str = "Fix the parser", outcome: str = "It keeps trailing commas now."
    ) -> None:
        """Ends a session of one exchange; a Stop hook prints nothing."""
        assert self.run("stop", self.stop_event(session, request, outcome)) == ""

    def session_start(self, session: str = "new", source: str = "startup", **options: Any) -> str:
        event = {"session_id": session, "source": source, "cwd": str(options.get("cwd") or self.project)}
        return self.run("session-start", event, **options)

    def prompt(self, text: str, **options: Any) -> str:
        return self.run("user-prompt-submit", {"session_id": "s", "prompt": text, "cwd": str(self.project)}, **options)

    @property
    def database(self) -> Path:
        return self.storage / "context.db"

    def rows(self, columns: str = "session_id, request, outcome") -> list[tuple[Any, ...]]:
        if not self.database.exists():
            return []
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(f"SELECT {columns} FROM episodes ORDER BY id").fetchall()

    def spooled(self) -> list[Path]:
        return sorted((self.storage / "context.spool").glob("*"))

    def log(self) -> str:
        path = self.home / "logs" / "hook.log"
        return path.read_text() if path.exists() else ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the inbox as another program may."""
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")


def ended(process: subprocess.Popen[bytes]) -> str:
    """Waits for the end of a hook, which is always 0 and silent; returns what it printed."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert not err
    return (out or b"").decode("utf-8")


def files_with(folder: Path, words: str) -> list[str]:
    """Returns which files below a folder hold the words."""
    wanted = (words.encode(), words.encode("utf-16-le"), json.dumps(words)[1:-1].encode())
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for content in [path.read_bytes()]
        if any(form in content for form in wanted)
    ]
