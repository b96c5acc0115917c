"""MCP over HTTP: who is let in, that each user has a collection of its own, and how the server ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import CHANGED_PIPE, ENGINE, ask, hello_line
from http_servers import (
    AUDIENCE,
    CHANGED,
    HttpProcess,
    Issuer,
    audit,
    create_token,
    everything_in,
    oauth_settings,
    run_command,
)
from interaction import HANDSHAKE, MODERN, PATIENCE, Process, environment

from subconscious_mcp import endpoint
from subconscious_mcp.storage_lock import wait_until_free

TASK = "Export the monthly sales report of the northern region"
OTHER = "Rotate the signing keys of the staging cluster"


class Place:
    """A home of its own, with servers and windows that are ended."""

    def __init__(self, folder: Path, models_dir: Path | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._models_dir = models_dir
        self.servers: list[HttpProcess] = []
        self.windows: list[Process] = []
        os.mkfifo(folder / "reached")
        self._reached = os.open(folder / "reached", os.O_RDWR)

    def env(self, change: str = "", **settings: str) -> dict[str, str]:
        return environment(self.home, self._models_dir, **settings) | {
            "ENGINE_CHANGE": ENGINE + change,
            "REACHED": str(self.folder / "reached"),
            "RELEASED": str(self.folder / "released"),
            "LET_GO": str(self.folder / "let go"),
            "ONCE": str(self.folder / "once"),
        }

    def serve(self, *arguments: str, change: str = "", **settings: str) -> HttpProcess:
        """Starts a server with the fake embedder."""
        server = HttpProcess(self.env(change, **settings), *arguments, command=CHANGED, cwd=self.folder)
        self.servers.append(server)
        return server

    def window(self, **settings: str) -> Process:
        """Opens a window of the same storage directory."""
        window = Process(self.env(**settings), command=CHANGED_PIPE, cwd=self.folder)
        self.windows.append(window)
        window.handshake()
        return window

    def token(self, *arguments: str) -> dict[str, Any]:
        return create_token(self.env(), *arguments)

    def wait_until_hanging(self) -> None:
        assert os.read(self._reached, 1) == b"x"

    def let_go(self) -> None:
        (self.folder / "released").touch()
        (self.folder / "let go").touch()

    def close(self) -> None:
        self.let_go()
        for window in self.windows:
            window.close_input()
            window.end()
        for server in self.servers:
            server.close()
        os.close(self._reached)
        ask(self.home / "data", "engine stop")
        if (self.home / "data").is_dir():
            wait_until_free(self.home / "data")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with two users and a reader, for tests that leave it as it was."""
    made = Place(tmp_path_factory.mktemp("http"))
    made.alice = made.token("alice")["token"]  # type: ignore[attr-defined]
    made.bob = made.token("bob")["token"]  # type: ignore[attr-defined]
    made.serve(SUBCONSCIOUS_HTTP_RATE_LIMIT="0", SUBCONSCIOUS_HTTP_MAX_BODY_BYTES="100000")
    yield made
    made.close()


def remember(server: HttpProcess, task: str, answer: str, token: str | None = None) -> str:
    return server.call("remember", {"task": task, "answer": answer}, token).result.payload["entry_id"]


# --- the installed command


def test_the_installed_command_serves_the_sdks_client_by_both_eras(tmp_path: Path, real_model_dir: Path) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent)
    token = create_token(env, "alice")["token"]
    server = HttpProcess(env, cwd=tmp_path)
    try:
        for mode in ("legacy", MODERN):
            with server.client(token, mode) as client:
                assert {"recall", "remember", "echo", "forget", "stats", "drift_report"} <= set(client.tools())
                assert client.call("remember", {"task": f"{TASK} {mode}", "answer": mode}).payload["stored"]
                assert client.call("recall", {"task": f"{TASK} {mode}"}).payload["answer"] == mode
                assert client.call("recall", {}).error.startswith("task is required")
    finally:
        assert server.close() == (0, "")


def test_options_that_cannot_be_meant_are_told(place: Place) -> None:
    done = run_command(place.env(), "--port", "1")
    assert done.returncode == 64 and "--port needs --http" in done.stderr
    done = run_command(place.env(), "--http", "--port", "70000")
    assert done.returncode == 64 and "--port takes a port" in done.stderr
    done = run_command(place.env(), "--http", "--path", "no slash")
    assert done.returncode == 64 and "--path takes a path" in done.stderr


# --- users


def test_what_one_user_stores_is_not_there_for_another(shared: Place) -> None:
    (server,) = shared.servers
    alice, bob = shared.alice, shared.bob  # type: ignore[attr-defined]
    entry = remember(server, TASK, "the answer of alice", alice)
    assert server.call("recall", {"task": TASK}, alice).result.payload["hit"]
    missed = server.call("recall", {"task": TASK}, bob).result.payload
    assert not missed["hit"] and missed["similarity"] == 0 and missed["entry_id"] is None
    assert server.call("echo", {"task": TASK}, bob).result.payload["echoes"] == []
    assert server.call("forget", {"entry_id": entry}, bob).result.payload == {"forgotten": False}
    assert server.call("stats", {}, bob).result.payload["total_entries"] == 0
    assert b"Total entries: 0" in server.modern("resources/read", {"uri": "memory://stats"}, bob).body
    assert server.call("forget", {"entry_id": entry}, alice).result.payload == {"forgotten": True}


def test_no_argument_names_another_namespace(shared: Place) -> None:
    (server,) = shared.servers
    for name in ("namespace", "scope", "user"):
        told = server.call("recall", {"task": TASK, name: "tests"}, shared.bob).result  # type: ignore[attr-defined]
        assert name in told.error


def test_a_session_is_its_users_alone(shared: Place) -> None:
    (server,) = shared.servers
    alice, bob = shared.alice, shared.bob  # type: ignore[attr-defined]
    session = server.open_session(alice)
    assert server.in_session(session, "ping", token=alice).message["result"] == {}
    for request in (
        lambda token: server.in_session(session, "tools/list", token=token),
        lambda token: server.ask("DELETE", headers={"Mcp-Session-Id": session}, token=token),
        lambda token: server.ask("GET", headers={"Mcp-Session-Id": session}, token=token),
    ):
        theirs = request(bob)
        assert theirs.status == 404
        unknown = server.in_session("0" * 32, "tools/list", token=bob)
        assert (theirs.body, theirs.headers.keys()) == (unknown.body, unknown.headers.keys())
    assert server.in_session(session, "ping", token=alice).status == 200


def test_a_read_only_token_sees_and_calls_only_what_reads(place: Place) -> None:
    whole, reads = (
        place.token("whole", "--namespace", "shared"),
        place.token("reads", "--namespace", "shared", "--read-only"),
    )
    server = place.serve()
    entry = remember(server, TASK, "x", whole["token"])
    listed = {tool["name"] for tool in server.modern("tools/list", token=reads["token"]).message["result"]["tools"]}
    assert listed == {"recall", "echo", "drift_report", "stats"}
    assert server.call("recall", {"task": TASK}, reads["token"]).result.payload["answer"] == "x"
    for tool, arguments in (("forget", {"entry_id": entry}), ("remember", {"task": OTHER, "answer": "y"})):
        assert "no tool" in server.call(tool, arguments, reads["token"]).result.error
    assert server.call("stats", {}, whole["token"]).result.payload["total_entries"] == 1
    server.call("no such tool", {}, reads["token"])
    server.close()
    told = [(line["tool"], line["outcome"]) for line in audit(place.home) if line["user"].startswith("reads")]
    assert told == [("recall", "ok"), ("forget", "refused"), ("remember", "refused"), ("unknown tool", "error")]


# --- who is let in


def test_without_a_token_this_machine_is_let_in_until_there_is_one(place: Place) -> None:
    server = place.serve()
    assert "there is no token" in server.said
    session = server.open_session()
    remember(server, TASK, "x")
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    stream.request("GET", server.path, headers={"Accept": "text/event-stream", "Mcp-Session-Id": session})
    opened = stream.getresponse()
    assert opened.status == 200
    created = place.token("alice")
    assert server.call("stats", {}).status == 401
    assert server.in_session(session, "ping").status == 401
    # What was opened without one ends.
    opened.read()
    assert server.call("stats", {}, created["token"]).result.payload["total_entries"] == 0
    # The last one that is revoked does not open the door again.
    assert run_command(place.env(), "token", "revoke", created["id"]).returncode == 0
    assert server.call("stats", {}, created["token"]).status == 401
    assert server.call("stats", {}).status == 401
    # Not on the next server either, which says so.
    server.close()
    server = place.serve()
    assert "nobody can get in: there is no token yet" in server.said and "token create NAME" in server.said
    assert server.call("stats", {}).status == 401
    (place.home / "tokens.json").unlink()
    assert server.call("stats", {}).status == 401


def test_a_revoked_token_ends_at_once_and_its_streams_too(place: Place) -> None:
    kept, revoked = place.token("kept"), place.token("revoked")
    server = place.serve()
    session = server.open_session(revoked["token"])
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "Authorization": f"Bearer {revoked['token']}"}
    stream.request("GET", server.path, headers=headers)
    opened = stream.getresponse()
    assert opened.status == 200
    assert run_command(place.env(), "token", "revoke", revoked["id"]).stdout == "revoked\n"
    assert server.in_session(session, "ping", token=revoked["token"]).status == 401
    opened.read()
    assert server.call("stats", {}, kept["token"]).status == 200


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic YWxpY2U6", "Bearer {}x", "Bearer x{}", "Bearer {} {}", "{}", "Bearer\t{}",
     "Bearer smcp_00000000_" + "A" * 43, "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer \u00e9", "Bearer " + "A" * 40_000],
)  # fmt: skip
def test_what_is_no_token_is_refused(shared: Place, authorization: str) -> None:
    (server,) = shared.servers
    given = authorization.replace("{}", shared.alice)  # type: ignore[attr-defined]
    answer = server.call("stats", {}, headers={"Authorization": given})
    assert answer.status in (401, 429)
    assert answer.status == 429 or answer.headers["www-authenticate"].startswith("Bearer")
    assert shared.alice.encode() not in answer.body  # type: ignore[attr-defined]


def test_two_tokens_in_one_request_are_none(shared: Place) -> None:
    (server,) = shared.servers
    twice = [("Authorization", f"Bearer {shared.alice}"), ("Authorization", f"Bearer {shared.bob}")]  # type: ignore[attr-defined]
    assert server.ask(body=b"{}", headers=twice).status in (401, 429)
    # Nor is one in the address, which logs would keep.
    assert server.ask(path=f"/mcp?access_token={shared.alice}", body=b"{}").status in (401, 429)  # type: ignore[attr-defined]


def test_the_scheme_may_be_written_in_any_case(shared: Place) -> None:
    (server,) = shared.servers
    assert server.call("stats", {}, headers={"Authorization": f"bEARER {shared.alice}"}).status == 200  # type: ignore[attr-defined]


def test_an_expired_token_is_refused(place: Place) -> None:
    place.token("kept")
    expired = place.token("old", "--expires-days", "1")
    path = place.home / "tokens.json"
    written = json.loads(path.read_text())
    written["tokens"][1]["expires_at"] = 1.0
    path.write_text(json.dumps(written))
    server = place.serve()
    assert server.call("stats", {}, expired["token"]).status == 401


def test_damaged_tokens_let_nobody_in_and_are_told(place: Place) -> None:
    token = place.token("alice")["token"]
    server = place.serve()
    assert server.call("stats", {}, token).status == 200
    (place.home / "tokens.json").write_text('{"tokens": [{"id": ')
    assert server.call("stats", {}, token).status == 503
    assert "tokens.json is damaged" in (place.home / "logs" / "server.log").read_text()
    server.close()
    server = place.serve()
    assert "nobody can get in: " in server.said and "tokens.json is damaged" in server.said


def test_an_address_of_the_network_needs_tokens_or_an_issuer(place: Place) -> None:
    done = run_command(place.env(), "serve", "--http", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 78 and done.stderr.count("\n") == 1
    assert "there is no token" in done.stderr and "token create" in done.stderr
    token = place.token("alice")
    done = run_command(place.env(SUBCONSCIOUS_HTTP_AUTH="none"), "serve", "--http", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 78 and "http_auth is none" in done.stderr
    server = place.serve("--host", "0.0.0.0")
    assert server.call("stats", {}).status == 401
    assert server.call("stats", {}, token["token"]).status == 200
    assert server.call("stats", {}, token["token"], headers={"Host": "memory.example"}).status == 421


@pytest.mark.parametrize("mode", ["none", "token", "oauth"])
def test_http_auth_says_what_is_taken(place: Place, mode: str) -> None:
    token = place.token("alice")["token"]
    if mode == "oauth":
        done = run_command(place.env(SUBCONSCIOUS_HTTP_AUTH=mode), "serve", "--http", "--port", "0")
        assert done.returncode == 78 and "oauth_issuer" in done.stderr
        return
    server = place.serve(SUBCONSCIOUS_HTTP_AUTH=mode)
    assert ("with a token" if mode == "token" else "http_auth is none") in server.said
    assert server.call("stats", {}).status == (200 if mode == "none" else 401)
    assert server.call("stats", {}, token).status == 200


# --- OAuth


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer("/realm")
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[HttpProcess]:
    made = Place(tmp_path_factory.mktemp("oauth"))
    yield made.serve(SUBCONSCIOUS_HTTP_RATE_LIMIT="0", **oauth_settings(issuer))
    made.close()


def test_users_of_an_issuer_have_collections_of_their_own(guarded: HttpProcess, issuer: Issuer) -> None:
    alice, bob = issuer.token("alice"), issuer.token("bob")
    entry = remember(guarded, TASK, "x", alice)
    assert guarded.call("recall", {"task": TASK}, issuer.token("alice")).result.payload["entry_id"] == entry
    assert not guarded.call("recall", {"task": TASK}, bob).result.payload["hit"]
    reader = issuer.token("alice", "memory:read")
    assert guarded.call("recall", {"task": TASK}, reader).result.payload["hit"]
    assert "no tool" in guarded.call("forget", {"entry_id": entry}, reader).result.error
    none = guarded.call("stats", {}, issuer.token("alice", "mail:read"))
    assert none.status == 403 and 'error="insufficient_scope"' in none.headers["www-authenticate"]


def test_clients_learn_where_tokens_come_from(guarded: HttpProcess, issuer: Issuer) -> None:
    refused = guarded.call("stats", {})
    metadata = "https://memory.example/.well-known/oauth-protected-resource/mcp"
    assert refused.status == 401
    told = f'Bearer scope="memory:read memory:write", resource_metadata="{metadata}"'
    assert refused.headers["www-authenticate"] == told
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        told = guarded.ask("GET", path).message
        assert told["resource"] == AUDIENCE and told["authorization_servers"] == [issuer.url]
        assert guarded.ask("POST", path, b"{}").status == 405


BAD_TOKENS: dict[str, Callable[[Issuer], str]] = {
    "another audience": lambda issuer: issuer.token("alice", aud="https://mail.example"),
    "no audience": lambda issuer: issuer.token("alice", aud=None),
    "another issuer": lambda issuer: issuer.token("alice", iss="https://issuer.example"),
    "an issuer that begins alike": lambda issuer: issuer.token("alice", iss=issuer.url + "/"),
    "expired": lambda issuer: issuer.token("alice", exp=1),
    "without an end": lambda issuer: issuer.token("alice", exp=None),
    "an end that is no time": lambda issuer: issuer.token("alice", exp="soon"),
    "not yet valid": lambda issuer: issuer.token("alice", nbf=4_000_000_000),
    "without a subject": lambda issuer: issuer.token("alice", sub=None),
    "an empty subject": lambda issuer: issuer.token(""),
    "another's key": lambda issuer: issuer.token("alice", key=issuer.other_key),
    "an unknown key": lambda issuer: issuer.token("alice", kid="second"),
    "no signature": lambda issuer: issuer.token("alice", key="", algorithm="none"),
    "the public key as a secret": lambda issuer: issuer.token("alice", key="x" * 64, algorithm="HS256"),
    "a changed claim": lambda issuer: ".".join(
        (issuer.token("alice").split(".")[0], issuer.token("bob").split(".")[1], issuer.token("alice").split(".")[2])
    ),
    "one of our own": lambda issuer: "smcp_00000000_" + "A" * 43,
}


@pytest.mark.parametrize("kind", BAD_TOKENS)
def test_a_token_that_is_not_the_issuers_for_us_is_refused(guarded: HttpProcess, issuer: Issuer, kind: str) -> None:
    answer = guarded.call("stats", {}, BAD_TOKENS[kind](issuer))
    assert answer.status in (401, 429)
    assert guarded.call("stats", {}, issuer.token("alice")).status == 200


def test_an_issuer_needs_an_audience_and_https(place: Place) -> None:
    def refused(**settings: str) -> str:
        done = run_command(place.env(**settings), "serve", "--http", "--port", "0")
        assert done.returncode == 78
        return done.stderr

    assert "oauth_audience" in refused(SUBCONSCIOUS_OAUTH_ISSUER="https://issuer.example")
    both = {"SUBCONSCIOUS_OAUTH_ISSUER": "http://issuer.example", "SUBCONSCIOUS_OAUTH_AUDIENCE": AUDIENCE}
    assert "https" in refused(**both)


# --- names, sizes, paths


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "memory.example"}, 421),
        ({"Host": "127.0.0.1.memory.example"}, 421),
        ({"Host": "localhost@memory.example"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "localhost:99999999"}, 421),
        ({"Origin": "https://memory.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://localhost.memory.example"}, 403),
        ({"Origin": "file://localhost"}, 403),
        ({"Host": "LOCALHOST:1"}, 200),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Origin": "http://[::1]:6274"}, 200),
    ],
)
def test_names_that_are_not_its_own_are_refused(shared: Place, headers: dict[str, str], status: int) -> None:
    (server,) = shared.servers
    assert server.call("stats", {}, shared.alice, headers=headers).status == status  # type: ignore[attr-defined]


def test_names_of_the_settings_are_taken(place: Place) -> None:
    server = place.serve(
        SUBCONSCIOUS_HTTP_ALLOWED_HOSTS="memory.example, other.example:444",
        SUBCONSCIOUS_HTTP_ALLOWED_ORIGINS="https://app.example",
    )
    for host, status in (
        ("memory.example", 200), ("Memory.Example:8443", 200), ("other.example:444", 200), ("other.example", 421),
    ):  # fmt: skip
        assert server.call("stats", {}, headers={"Host": host}).status == status
    for origin, status in (("https://app.example", 200), ("http://app.example", 403), ("https://app.example:1", 403)):
        assert server.call("stats", {}, headers={"Origin": origin}).status == status


@pytest.mark.parametrize(
    "path", ["/", "/mcp/", "//mcp", "/mcp/../mcp", "/MCP", "/mcp%00", "/.well-known/oauth-protected-resource"]
)
def test_other_paths_lead_nowhere(shared: Place, path: str) -> None:
    (server,) = shared.servers
    assert server.ask(path=path, body=b"{}", token=shared.alice).status == 404  # type: ignore[attr-defined]


def test_a_request_that_is_too_large_is_refused_unread(shared: Place) -> None:
    (server,) = shared.servers
    alice = shared.alice  # type: ignore[attr-defined]
    assert server.call("remember", {"task": "x", "answer": "y" * 200_000}, alice).status == 413
    chunked = [("Transfer-Encoding", "chunked"), ("MCP-Protocol-Version", MODERN)]
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    assert server.ask(body=chunk * 5 + b"0\r\n\r\n", headers=chunked, token=alice).status == 413
    # Without a token nothing is read at all.
    assert server.ask(body=None, headers={"Content-Length": "90000000"}).status in (401, 429)


def test_a_body_that_does_not_come_is_not_waited_for(place: Place) -> None:
    server = place.serve(change="from subconscious_mcp import http; http.BODY_SECONDS = 0.2")
    answer = server.ask(body=b"half", headers={"Content-Length": "5000"})
    assert answer.status == 408
    assert server.call("stats", {}).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"jsonrpc":"2.0"}', b"[" * 50_000])
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN, "1999-01-01", "x" * 1000])
def test_what_is_no_message_is_refused(shared: Place, body: bytes, version: str) -> None:
    (server,) = shared.servers
    answer = server.ask(body=body, headers={"MCP-Protocol-Version": version}, token=shared.alice)  # type: ignore[attr-defined]
    # An object without an id is a notification, which the stateless revision takes and drops.
    assert 400 <= answer.status < 500
    assert b"Traceback" not in answer.body


# --- limits and the log


def test_a_flood_of_one_user_leaves_the_others_lines_in_the_log(place: Place) -> None:
    server = place.serve(
        change="from subconscious_mcp import http; http.FAILURES_A_MINUTE = 2", SUBCONSCIOUS_HTTP_RATE_LIMIT="1"
    )
    assert [server.call("stats", {}).status for _ in range(6)] == [200] + [429] * 5
    assert [line["outcome"] for line in audit(place.home)] == ["ok", "too many requests", "too many requests"]


def test_a_user_who_asks_too_often_waits_and_others_do_not(place: Place) -> None:
    alice, bob = place.token("alice")["token"], place.token("bob")["token"]
    server = place.serve(SUBCONSCIOUS_HTTP_RATE_LIMIT="3")
    assert [server.call("stats", {}, alice).status for _ in range(3)] == [200] * 3
    refused = server.call("stats", {}, alice)
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert server.call("stats", {}, bob).status == 200


def test_who_fails_too_often_waits_and_who_succeeds_does_not(place: Place) -> None:
    token = place.token("alice")["token"]
    server = place.serve(change="from subconscious_mcp import http; http.FAILURES_A_MINUTE = 2")
    assert [server.call("stats", {}, "wrong").status for _ in range(3)] == [401, 401, 429]
    assert server.call("stats", {}, token).status == 200


def test_the_log_says_who_called_what_and_no_word_of_it(place: Place) -> None:
    created = place.token("alice")
    server = place.serve()
    token = created["token"]
    remember(server, "SECRETTASK", "SECRETANSWER", token)
    server.call("recall", {}, token)
    server.call("SECRETTOOL", {}, token)
    server.modern("resources/read", {"uri": "memory://tags/SECRETTAG"}, token)
    server.in_session(server.open_session(token), "tools/call", {"name": "stats", "arguments": {}}, token)
    server.call("stats", {}, "SECRETTOKEN")
    server.close()
    lines = audit(place.home)
    name = f"alice ({created['id']})"
    assert [(line["user"], line["tool"], line["outcome"]) for line in lines] == [
        (name, "remember", "ok"),
        (name, "recall", "error"),
        (name, "unknown tool", "error"),
        (name, "resources/read", "failed"),
        (name, "stats", "ok"),
        ("", "", "invalid_token"),
    ]
    assert all(line["peer"] == "127.0.0.1" and line["ms"] >= 0 for line in lines)
    logs = everything_in(place.home / "logs")
    assert b"SECRET" not in logs and token.encode() not in logs
    assert stat.S_IMODE((place.home / "logs" / "audit.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((place.home / "tokens.json").stat().st_mode) == 0o600
    assert token.rpartition("_")[2].encode() not in (place.home / "tokens.json").read_bytes()


# --- beside the engine


def test_a_server_that_fails_says_so_by_its_exit_code(place: Place) -> None:
    change = "from subconscious_mcp import http\nasync def fail(*_): raise RuntimeError\nhttp.HttpServer._serve = fail"
    server = place.serve(change=change)
    assert server.end()[0] == 70
    assert "The HTTP server failed." in (place.home / "logs" / "server.log").read_text()


def test_windows_of_the_same_directory_go_on_over_it(place: Place) -> None:
    window = place.window()
    assert window.call("remember", {"task": TASK, "answer": "of the window"}).payload["stored"]
    server = place.serve(SUBCONSCIOUS_NAMESPACE="tests")
    assert server.call("recall", {"task": TASK}).result.payload["answer"] == "of the window"
    remember(server, OTHER, "over HTTP")
    assert window.call("recall", {"task": OTHER}).payload["answer"] == "over HTTP"
    status = json.loads(run_command(place.env(), "engine", "status", "--json").stdout)
    assert status["http"] == server.url and status["pid"] == server.popen.pid
    assert run_command(place.env(), "recall", OTHER, "--namespace", "tests").returncode == 0
    # A window that goes on when the server has ended starts an engine.
    assert server.close() == (0, "")
    assert window.call("recall", {"task": OTHER}).payload["hit"]


def test_a_second_server_of_a_directory_is_refused(place: Place) -> None:
    server = place.serve()
    done = run_command(place.env(), "serve", "--http", "--port", "0")
    assert done.returncode == 75 and server.url in done.stderr and "engine stop" in done.stderr
    assert server.call("stats", {}).status == 200
    assert run_command(place.env(), "engine", "stop").returncode == 0
    assert server.end() == (0, "")


def test_it_neither_ends_when_idle_nor_for_a_newer_version(place: Place) -> None:
    server = place.serve(SUBCONSCIOUS_ENGINE_IDLE_SECONDS="0.1")
    window = place.window()
    found = endpoint.read(str(place.home / "data"))
    assert found is not None
    with endpoint.connect(found, PATIENCE) as newer:
        newer.sendall(hello_line(version="99.0", token=found.get("token", "")))
        greeting = json.loads(endpoint.read_line(newer))["engine"]
    assert greeting["pid"] == server.popen.pid and not greeting["gives_way"]
    assert window.call("stats", {}).payload["total_entries"] == 0
    assert server.popen.poll() is None


def test_a_port_that_is_taken_is_told_in_one_line(place: Place) -> None:
    window = place.window()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_command(place.env(), "serve", "--http", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 69 and done.stderr.count("\n") == 1 and "--port" in done.stderr
    done = run_command(place.env(), "serve", "--http", "--host", "no.such.host.invalid")
    assert done.returncode in (69, 78) and done.stderr.count("\n") == 1
    # Nothing was asked to give way for it.
    assert window.call("stats", {}).payload["total_entries"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_calls_under_way_are_finished_at_a_signal(place: Place, number: signal.Signals, era: str) -> None:
    server = place.serve()
    arguments = {"task": f"HANG {TASK}", "answer": "x"}
    session = server.open_session()
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    stream.request("GET", server.path, headers={"Accept": "text/event-stream", "Mcp-Session-Id": session})
    opened = stream.getresponse()
    answers = []

    def call() -> None:
        if era == "stateless":
            answers.append(server.call("remember", arguments))
        else:
            answers.append(server.in_session(session, "tools/call", {"name": "remember", "arguments": arguments}))

    thread = threading.Thread(target=call)
    thread.start()
    place.wait_until_hanging()
    server.signal(number)
    place.let_go()
    thread.join(PATIENCE)
    assert answers[0].result.payload["stored"]
    # A stream that stands open holds nothing up.
    opened.read()
    assert server.end() == (0, "")
