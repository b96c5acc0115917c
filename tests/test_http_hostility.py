"""Two users over HTTP and everything that somebody could try: nothing leaks, nothing breaks."""

from __future__ import annotations

from pathlib import Path

from http_hostility import Attack, User
from http_servers import CHANGED, HttpProcess, Issuer, create_token, everything_in, oauth_settings, run_command
from interaction import environment

CALLS = 600


def test_hostile_calls_reach_nothing_and_break_nothing(tmp_path: Path) -> None:
    from engines import ENGINE

    issuer = Issuer()
    env = environment(
        tmp_path / "home",
        SUBCONSCIOUS_HTTP_RATE_LIMIT="0",
        SUBCONSCIOUS_HTTP_MAX_BODY_BYTES="100000",
        SUBCONSCIOUS_TOOLSET="all",
        SUBCONSCIOUS_FEEDBACK_TOOL="on",
        **oauth_settings(issuer),
    )
    alice_token, revoked = create_token(env, "alice")["token"], create_token(env, "gone")
    assert run_command(env, "token", "revoke", revoked["id"]).returncode == 0
    changed = {"ENGINE_CHANGE": ENGINE, "REACHED": "", "RELEASED": "/", "LET_GO": "/", "ONCE": ""}
    server = HttpProcess(env | changed, command=CHANGED, cwd=tmp_path)
    try:
        alice = User("alice", lambda: alice_token, "markalice")
        bob = User("bob", lambda: issuer.token("bob"), "markbob")
        attack = Attack(server, alice, bob, [revoked["token"]], issuer)
        attack.run_in_threads(CALLS, 2, seed=7)
        assert attack.report.leaks == []
        assert attack.report.wrong == [], "\n".join(attack.report.wrong)
        assert attack.has_notes and set(attack.report.calls) == set(attack.kinds())
        for user in (alice, bob):
            stats = server.call("stats", {}, user.token()).result.payload
            assert stats["total_entries"] == len(user.entries) > 0
            for task, answer in user.entries.values():
                found = server.call("recall", {"task": task, "verify": False}, user.token()).result.payload
                assert found["answer"] == answer
            listed = server.call("list_recent", {"limit": 100}, user.token()).message["result"]["structuredContent"][
                "result"
            ]
            assert len(listed) == min(100, len(user.notes)) and {note["id"] for note in listed} <= set(user.notes)
    finally:
        assert server.close() == (0, "")
        issuer.close()
    logs = everything_in(tmp_path / "home" / "logs")
    for word in (b"Traceback", b"ERROR", b"markalice", b"markbob", alice_token.encode(), b"eyJ"):
        assert word not in logs
