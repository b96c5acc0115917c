"""Proves an installed wheel: no dev dependencies, no torch, no network, a real session over stdio.

Run it with the interpreter of an environment that holds the wheel and nothing else, in a
folder outside the checkout, with the model installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

UNWANTED = ("torch", "sentence_transformers", "transformers", "pytest", "hypothesis", "onnx")


def check(condition: bool, what: str) -> None:
    """Prints what held, or ends with what did not."""
    print(f"{'ok' if condition else 'FAILED'}: {what}")
    if not condition:
        sys.exit(1)


def refuse_network() -> list[Any]:
    """Lets no Python code of this process out; returns the list of what tried."""
    tried: list[Any] = []

    def refused(*arguments: Any, **_: Any) -> Any:
        tried.append(arguments[:2])
        raise OSError("no network in this check")

    socket.socket.connect = refused  # type: ignore[method-assign]
    socket.getaddrinfo = refused
    return tried


def converse(lines: list[dict[str, Any]]) -> dict[Any, Any]:
    """Sends requests to the installed command over stdio; returns the results by id."""
    command = [str(Path(sys.executable).parent / "subconscious-mcp")]
    done = subprocess.run(
        command,
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    return {reply["id"]: reply.get("result", reply.get("error")) for reply in replies}


def main() -> None:
    """Runs the checks in order; the first that fails ends the process with 1."""
    import subconscious_mcp

    place = Path(subconscious_mcp.__file__)
    check("site-packages" in place.parts, f"the package comes from the wheel ({place.parent})")
    present = [name for name in UNWANTED if importlib.util.find_spec(name) is not None]
    check(not present, f"none of {', '.join(UNWANTED)} is installed {present or ''}")

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "smoke", "version": "1"}}
    task, paraphrase = "How do I reset my staging password?", "How can I reset my password on staging?"
    os.environ["SUBCONSCIOUS_STORAGE_DIR"] = str(Path.cwd() / "smoke-data")
    os.environ["HF_HUB_OFFLINE"] = "1"
    stored = converse(
        [
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
            {
                "id": 3,
                "method": "tools/call",
                "params": {"name": "remember", "arguments": {"task": task, "answer": "★"}},
            },
        ]
    )
    check(len(stored[2]["tools"]) == 6, "six tools are offered")
    check(stored[3]["structuredContent"]["stored"], "a task is remembered over stdio")
    found = converse(
        [
            {"id": 1, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "recall", "arguments": {"task": paraphrase}}},
        ]
    )
    check(found[2]["structuredContent"]["answer"] == "★", "a paraphrase recalls it in the next process")

    tried = refuse_network()
    from subconscious_mcp.cli import main as command_line

    check(command_line(["demo"]) == 0, "the demo runs")
    check(not tried, f"nothing asked for the network {tried or ''}")


if __name__ == "__main__":
    main()
