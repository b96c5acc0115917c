"""Builds transcripts as Claude Code writes them, line by line."""

from __future__ import annotations

import json
from pathlib import Path


class Transcript:
    """A transcript under construction; each line's parent is the line before, unless told otherwise."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.leaf: str | None = None
        self._count = 0

    def raw(self, line: bytes | str | object) -> Transcript:
        """Adds a line as it is; anything but bytes and text as JSON."""
        if not isinstance(line, (bytes, str)):
            line = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self.lines.append(line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line)
        return self

    def line(self, kind: str, **fields: object) -> str:
        """Adds a line of the tree and returns its id; `parentUuid` among the fields rewinds."""
        self._count += 1
        uuid = f"00000000-0000-4000-8000-{self._count:012d}"
        record = {
            "parentUuid": self.leaf,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/me/project",
            "sessionId": "11111111-2222-4333-8444-555555555555",
            "version": "2.1.0",
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": "2026-01-01T00:00:00.000Z",
        }
        self.raw(record)
        if not record["isSidechain"]:
            self.leaf = uuid
        return uuid

    def user(self, content: object, **fields: object) -> str:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def assistant(
        self, *blocks: str | dict, message_id: str | None = None, model: str = "claude", **fields: object
    ) -> str:
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        message = {
            "id": message_id or f"msg_{self._count:04d}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
        }
        return self.line("assistant", message=message, **fields)

    def tool(self, result: object = "ok", name: str = "Bash", text: str | None = None) -> str:
        """Adds a call of a tool, after a text in the same message if given, and its result."""
        number = self._count
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {"command": "ls"}}
        self.assistant(*([text] if text else []), call)
        block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": result}
        return self.user([block], toolUseResult={"stdout": result})

    def command(self, name: str, arguments: str = "") -> str:
        return self.user(
            f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>\n"
            f"<command-args>{arguments}</command-args>"
        )

    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path


def exchange(request: str = "Fix the parser", outcome: str = "The parser now keeps trailing commas.") -> Transcript:
    """Returns a transcript of one plain exchange."""
    transcript = Transcript()
    transcript.user(request)
    transcript.assistant(outcome)
    return transcript
