"""Writes examples/demo_session.md: a real session over stdio, with what the server really answered.

python tools/demo_session.py > examples/demo_session.md
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "An agent is asked to renew a certificate. Before it starts, it asks whether that was done before. "
        "Nothing is remembered yet, so it misses:",
        "recall",
        {"task": "How do I renew the TLS certificate of the staging server?"},
    ),
    (
        "It does the work and remembers what it found:",
        "remember",
        {
            "task": "How do I renew the TLS certificate of the staging server?",
            "answer": "Run `certbot renew` on the bastion host, then `systemctl reload nginx`.",
            "tags": ["ops", "tls"],
        },
    ),
    (
        "Days later, another session, other words. A hit; the work is not done again:",
        "recall",
        {"task": "How can I renew the staging server's TLS certificate?"},
    ),
    (
        "A task that sounds alike is not the same. The miss says how close the nearest memory was:",
        "recall",
        {"task": "How do I install a TLS certificate on the mail server?"},
    ),
    (
        "`echo` senses what is near without taking an answer from it:",
        "echo",
        {"task": "certificates of our servers"},
    ),
    (
        "Remembering a near-duplicate is told, so that the agent can merge or proceed:",
        "remember",
        {"task": "How do I renew the TLS certificate of the production server?", "answer": "Likewise on prod."},
    ),
    ("Does memory pay off?", "stats", {}),
)


def main() -> None:
    """Runs the session on a store of its own and prints it as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SUBCONSCIOUS_STORAGE_DIR": folder, "SUBCONSCIOUS_NAMESPACE": "demo"}
        command = [str(Path(sys.executable).parent / "subconscious-mcp")]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, encoding="utf-8", bufsize=1
        )

        def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None and process.stdout is not None
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            result: dict[str, Any] = json.loads(process.stdout.readline())["result"]
            return result

        info = {"name": "demo", "version": "1"}
        request(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        print("# A session\n")
        print("Written by `python tools/demo_session.py`: the answers are the server's own, ids and times included.")
        for number, (story, tool, arguments) in enumerate(STEPS, 1):
            result = request(number, "tools/call", {"name": tool, "arguments": arguments})
            shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
            print(f"\n{story}\n\n```\n{tool}({shown})\n```\n\n```json")
            print(json.dumps(result["structuredContent"], indent=2, ensure_ascii=False))
            print("```")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


if __name__ == "__main__":
    main()
