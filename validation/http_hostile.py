"""Two users over HTTP, thousands of random calls, good ones and hostile ones: what leaked, what broke.

    python validation/http_hostile.py --out validation/results/http_hostile.json

It runs the command of this Python's environment, with the real model. One user has a token of ours, the other one
of an issuer on this machine. Behind it the same server's replies are timed: whether they tell what the other has.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conditions import write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from http_hostility import Attack, User, timing
from http_servers import HttpProcess, Issuer, create_token, everything_in, oauth_settings, run_command
from interaction import environment

from subconscious_mcp.config import default_models_dir

MOST_NOTES = 200
"""Notes of each user that are looked up at the end."""


def resident_mb(pid: int) -> float:
    """Returns how much memory a process has, MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


def descriptors(pid: int) -> int:
    """Returns how many files and sockets a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def kept(server: HttpProcess, user: User) -> dict[str, int]:
    """Counts what a user stored and what the server has of it."""
    count = server.call("stats", {}, user.token()).result.payload["total_entries"]
    found = 0
    for task, answer in user.entries.values():
        payload = server.call("recall", {"task": task, "verify": False}, user.token()).result.payload
        found += payload["answer"] == answer
    notes = list(user.notes.items())[:MOST_NOTES]
    for note_id, content in notes:
        answer = server.call("search_notes", {"query": content, "limit": 1}, user.token())
        found += [note["id"] for note in answer.message["result"]["structuredContent"]["result"]] == [note_id]
    return {
        "entries_stored": len(user.entries),
        "entries_counted": count,
        "notes_stored": len(user.notes),
        "looked_up": len(user.entries) + len(notes),
        "found": found,
    }


def main() -> None:
    """Runs the attack and writes what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=400, help="timed calls of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--toolset", default="all")
    parser.add_argument("--out", type=Path, default=Path("validation/results/http_hostile.json"))
    arguments = parser.parse_args()
    models = default_models_dir()
    issuer = Issuer()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        env = environment(
            home,
            models,
            SUBCONSCIOUS_HTTP_RATE_LIMIT="0",
            SUBCONSCIOUS_HTTP_MAX_BODY_BYTES="100000",
            SUBCONSCIOUS_TOOLSET=arguments.toolset,
            SUBCONSCIOUS_FEEDBACK_TOOL="on",
            **oauth_settings(issuer),
        )
        token, revoked = create_token(env, "alice")["token"], create_token(env, "gone")
        run_command(env, "token", "revoke", revoked["id"])
        server = HttpProcess(env, cwd=Path(folder))
        users = User("alice", lambda: token, "markalice"), User("bob", lambda: issuer.token("bob"), "markbob")
        attack = Attack(server, *users, [revoked["token"]], issuer)
        attack.run(100, arguments.seed - 1)
        before = resident_mb(server.popen.pid), descriptors(server.popen.pid)
        started = time.perf_counter()
        attack.run_in_threads(arguments.calls, arguments.threads, arguments.seed)
        seconds = time.perf_counter() - started
        after = resident_mb(server.popen.pid), descriptors(server.popen.pid)
        result: dict[str, Any] = {
            "calls": sum(attack.report.calls.values()),
            "hostile": sum(count for kind, count in attack.report.calls.items() if kind.startswith("bad_")),
            "kinds": dict(sorted(attack.report.calls.items())),
            "replies_by_status": {str(status): count for status, count in sorted(attack.report.statuses.items())},
            "leaks": len(attack.report.leaks),
            "wrong_replies": len(attack.report.wrong),
            "examples": [*attack.report.leaks[:10], *attack.report.wrong[:10]],
            "seconds": round(seconds, 1),
            "entries": {user.name: kept(server, user) for user in users},
            "memory_mb": {"before": before[0], "after": after[0]},
            "descriptors": {"before": before[1], "after": after[1]},
            "timing": timing(attack, arguments.rounds, arguments.seed),
        }
        code, errors = server.close()
        log = everything_in(home / "logs")
        result |= {
            "exit_code": code,
            "standard_error": errors[:500],
            "errors_in_the_log": log.count(b" ERROR ") + log.count(b"Traceback"),
            "texts_or_tokens_in_the_logs": sum(
                log.count(word) for word in (b"markalice", b"markbob", token.encode(), b"eyJ")
            ),
        }
    issuer.close()
    write(arguments.out, result)


if __name__ == "__main__":
    main()
