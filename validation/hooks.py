"""How long a hook takes, as a whole process, and how much memory.

    python validation/hooks.py --out validation/results/hooks.json

Run it with the Python of an installed wheel. A bare interpreter is timed beside each hook: what it takes is
the machine's, what is on top is ours. No engine runs, and none is started.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conditions import spread, write
from sentences import sentences

COMMAND = str(Path(sys.executable).parent / "subconscious-mcp")


def transcript(path: Path, size: int, *, one_turn: bool = False) -> Path:
    """Writes a transcript of about `size` bytes: turns of a request, tool calls with results, an answer."""
    texts = iter(sentences(size // 2_000 + 2_000))
    chance = random.Random(1)
    parent: str | None = None
    with path.open("w", encoding="utf-8") as file:
        number = 0

        def line(kind: str, content: Any) -> None:
            nonlocal parent, number
            number += 1
            own = f"00000000-0000-4000-8000-{number:012d}"
            message = {"role": kind, "content": content, "id": f"msg_{number}"}
            record = {"type": kind, "uuid": own, "parentUuid": parent, "sessionId": "s", "isSidechain": False}
            whole = {**record, "message": message, "timestamp": "2026-01-01T00:00:00Z"}
            file.write(json.dumps(whole, separators=(",", ":")) + "\n")  # as Claude Code writes it
            parent = own

        line("user", f"Please do this: {next(texts)}")
        while file.tell() < size:
            for call in range(8):
                use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": f"/src/{call}.py"}}
                line("assistant", [use])
                body = "".join(chance.choices("abcdefghij \n", k=chance.randrange(200, 4_000)))
                line("user", [{"type": "tool_result", "tool_use_id": use["id"], "content": body}])
            if not one_turn:
                line("assistant", [{"type": "text", "text": f"It is done. {next(texts)}"}])
                line("user", next(texts))
        line("assistant", [{"type": "text", "text": f"All of it is done now: {next(texts)}"}])
    return path


def timed(command: list[str], event: dict[str, Any], home: Path, times: int) -> dict[str, Any]:
    """Runs a command with an event beside a bare interpreter, in turns."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SUBCONSCIOUS_", "PYTHON", "CLAUDE"))}
    env |= {"SUBCONSCIOUS_HOME": str(home), "SUBCONSCIOUS_ENGINE": "off"}
    text = json.dumps(event).encode()
    wall, cpu, bare = [], [], []
    for number in range(times + 3):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, input=text, env=env, check=True, stdout=subprocess.DEVNULL, cwd=home)
        took = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=env, check=True, stdin=subprocess.DEVNULL)
        if number >= 3:  # the first ones write bytecode and fill the file cache
            wall.append(took * 1e3)
            cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
            bare.append((time.perf_counter() - started) * 1e3)
    return {"wall_ms": spread(wall), "cpu_ms": spread(cpu), "bare_python_wall_ms": round(statistics.median(bare), 2)}


def peak_mb(command: list[str], event: dict[str, Any], home: Path) -> float:
    """Returns the most memory that one run had, measured by a parent that has no other child."""
    code = (
        "import json,os,resource,subprocess,sys\n"
        "subprocess.run(json.loads(sys.argv[1]), input=sys.argv[2].encode(), check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    env = {**os.environ, "SUBCONSCIOUS_HOME": str(home), "SUBCONSCIOUS_ENGINE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(command), json.dumps(event)],
        env=env,
        check=True,
        capture_output=True,
        text=True,
        cwd=home,
    )
    return round(int(done.stdout) / 1024, 1)


def fill_inbox(home: Path, count: int) -> None:
    from subconscious_mcp.inbox import Episode, Inbox, timestamp

    inbox = Inbox(str(home / "data"))
    texts = sentences(2 * count)
    for number in range(count):
        inbox.leave(
            Episode(
                session_id=f"session {number}",
                ts=timestamp(1_700_000_000 + number),
                namespace=home.name,
                root=str(home),
                request=texts[2 * number],
                outcome=texts[2 * number + 1] * 10,
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--times", type=int, default=40)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hooks-") as temporary:
        home = Path(temporary).resolve()
        fill_inbox(home, 1000)
        stop, start = [COMMAND, "hook", "stop"], [COMMAND, "hook", "session-start"]
        files = {
            "3 MB": transcript(home / "3.jsonl", 3_000_000),
            "3 MB, one turn": transcript(home / "3-one.jsonl", 3_000_000, one_turn=True),
            "100 MB": transcript(home / "100.jsonl", 100_000_000),
            "100 MB, one turn": transcript(home / "100-one.jsonl", 100_000_000, one_turn=True),
        }
        for name, path in files.items():
            event = {"session_id": name, "transcript_path": str(path), "cwd": str(home), "hook_event_name": "Stop"}
            result[f"stop, {name}"] = {**timed(stop, event, home, options.times), "peak_mb": peak_mb(stop, event, home)}
        event = {"session_id": "new", "source": "startup", "cwd": str(home), "hook_event_name": "SessionStart"}
        result["session-start, 1,000 episodes"] = {
            **timed(start, event, home, options.times),
            "peak_mb": peak_mb(start, event, home),
        }
    write(options.out, {"what": "hooks as whole processes", "times": options.times, "hooks": result})


if __name__ == "__main__":
    main()
