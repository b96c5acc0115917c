"""A server over HTTP in a process of its own, spoken to byte by byte or by the SDK's client; an issuer of tokens."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
from anyio.from_thread import start_blocking_portal
from cryptography.hazmat.primitives.asymmetric import rsa
from interaction import CONSOLE_SCRIPT, HANDSHAKE, MODERN, MODERN_META, PATIENCE, Result, handshake_params, result_of
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

AUDIENCE = "https://memory.example/mcp"

# The installed command, with changed parts where a test needs that.
CHANGED = (
    sys.executable,
    "-c",
    "import os, sys; exec(os.environ['ENGINE_CHANGE']); from subconscious_mcp.cli import main; sys.exit(main())",
)


@dataclass(frozen=True)
class Answer:
    """A reply over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in the body, whether it stands there alone or as an event."""
        text = self.body.decode()
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
            assert len(data) == 1, text
            text = data[0]
        return json.loads(text)

    @property
    def result(self) -> Result:
        assert self.status == 200, (self.status, self.body[:300])
        return result_of({"isError": False, **self.message["result"]})


def run_command(env: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command to its end."""
    return subprocess.run(
        [CONSOLE_SCRIPT, *arguments],
        env=dict(env),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def create_token(env: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Returns what `token create` prints."""
    done = run_command(env, "token", "create", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class HttpProcess:
    """`serve --http` on a free port; it listens when this is made."""

    def __init__(
        self,
        env: Mapping[str, str],
        *arguments: str,
        command: Sequence[str] = (CONSOLE_SCRIPT,),
        cwd: Path | None = None,
    ) -> None:
        self.popen = subprocess.Popen(
            [*command, "serve", "--http", "--port", "0", *arguments],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.popen.stdout is not None
        self.said = self.popen.stdout.readline()
        assert self.said.startswith("subconscious-mcp: MCP at "), self.said + self.end()[1]
        self.url = self.said.split()[3].rstrip(",")
        parts = urllib.parse.urlsplit(self.url)
        assert parts.port is not None
        self.port, self.path = parts.port, parts.path
        self._ids = iter(range(1, 1_000_000_000))

    def ask(
        self,
        method: str = "POST",
        path: str | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        token: str | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answer:
        """Sends one request as it is; only Host, Accept and Content-Type are there unless they are given."""
        given = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        names = {name.lower() for name, _ in given}
        usual = [
            ("Host", f"127.0.0.1:{self.port}"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            *([("Authorization", f"Bearer {token}")] if token is not None else []),
        ]
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        own = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            own.putrequest(method, path or self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in [*((n, v) for n, v in usual if n.lower() not in names), *given]:
                own.putheader(name, value.encode("latin-1", "replace"))
            if data is not None and "content-length" not in names and "transfer-encoding" not in names:
                own.putheader("Content-Length", str(len(data)))
            own.endheaders()
            if data is not None:
                # A server that has refused it already may have closed its end.
                with contextlib.suppress(ConnectionError):
                    own.send(data)
            reply = own.getresponse()
            return Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            if connection is None:
                own.close()

    # --- the stateless revision

    def modern(self, method: str, params: Mapping[str, Any] = {}, token: str | None = None, **options: Any) -> Answer:
        """Sends a request of the stateless revision."""
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **options.pop("headers", {})}
        name = params.get("name", params.get("uri"))
        if isinstance(name, str) and "Mcp-Name" not in headers:
            headers["Mcp-Name"] = name
        body = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {"_meta": MODERN_META, **params},
        }
        return self.ask(body=body, headers=headers, token=token, **options)

    def call(self, tool: str, arguments: Any, token: str | None = None, **options: Any) -> Answer:
        """Calls a tool by the stateless revision."""
        return self.modern("tools/call", {"name": tool, "arguments": arguments}, token, **options)

    # --- the revisions with a handshake

    def open_session(self, token: str | None = None) -> str:
        """Shakes hands; returns the session's id."""
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": handshake_params(HANDSHAKE)}
        answer = self.ask(body=body, token=token)
        assert answer.status == 200, answer
        session = answer.headers["mcp-session-id"]
        done = self.in_session(session, "notifications/initialized", None, token)
        assert done.status == 202
        return session

    def in_session(
        self, session: str, method: str, params: Any = None, token: str | None = None, **options: Any
    ) -> Answer:
        """Sends a message in a session."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if not method.startswith("notifications/"):
            body["id"] = next(self._ids)
        if params is not None:
            body["params"] = params
        headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": HANDSHAKE}
        return self.ask(body=body, headers=headers, token=token, **options)

    @contextlib.contextmanager
    def client(self, token: str | None = None, mode: str = "auto") -> Iterator[SdkHttpClient]:
        """The SDK's client."""
        one = SdkHttpClient(self.url, token, mode)
        try:
            yield one
        finally:
            one.close()

    # --- its end

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.popen.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Returns the exit code and what was said on standard error, waiting for the process to end."""
        try:
            _, errors = self.popen.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            _, errors = self.popen.communicate()
        return self.popen.returncode, errors

    def close(self) -> tuple[int, str]:
        if self.popen.poll() is None:
            self.signal()
        return self.end()


class SdkHttpClient:
    """The client of the MCP SDK over HTTP."""

    def __init__(self, url: str, token: str | None, mode: str) -> None:
        self._stack = contextlib.ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}

        async def make() -> Any:
            return httpx2.AsyncClient(headers=headers, timeout=PATIENCE)

        transport = streamable_http_client(url, http_client=self._portal.call(make))
        client = Client(transport, mode=mode, read_timeout_seconds=PATIENCE)
        self.client = self._stack.enter_context(self._portal.wrap_async_context_manager(client))

    def tools(self) -> list[str]:
        return [tool.name for tool in self._portal.call(self.client.list_tools).tools]

    def call(self, name: str, arguments: Any) -> Result:
        result = self._portal.call(self.client.call_tool, name, arguments)
        return result_of({"isError": False, **result.model_dump(by_alias=True, exclude_unset=True, mode="json")})

    def close(self) -> None:
        self._stack.close()


class Issuer:
    """An authorization server, as far as a resource server sees one: metadata and keys, over loopback."""

    def __init__(self, path: str = "") -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys = {"first": self.key}
        self.asked: list[str] = []
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                found = issuer.documents().get(self.path)
                data = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}{path}"
        self._path = path
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def documents(self) -> dict[str, Any]:
        keys = [
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"}
            for name, key in self.keys.items()
        ]
        return {
            f"/.well-known/oauth-authorization-server{self._path}": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            f"{self._path}/keys": {"keys": keys},
        }

    def token(
        self, subject: str, scope: str = "memory:read memory:write", *, key: Any = None, kid: str | None = "first",
        algorithm: str = "RS256", **claims: Any,
    ) -> str:  # fmt: skip
        """Returns an access token; a claim that is given as None is left out."""
        now = int(time.time())
        whole = {
            "iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 3600, "scope": scope, **claims,
        }  # fmt: skip
        headers = {"typ": "at+jwt"} | ({} if kid is None else {"kid": kid})
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, key if key is not None else self.key, algorithm=algorithm, headers=headers)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def oauth_settings(issuer: Issuer) -> dict[str, str]:
    return {"SUBCONSCIOUS_OAUTH_ISSUER": issuer.url, "SUBCONSCIOUS_OAUTH_AUDIENCE": AUDIENCE}


def audit(home: Path) -> list[dict[str, Any]]:
    """Returns the lines of the audit log."""
    return [json.loads(line) for line in (home / "logs" / "audit.log").read_text().splitlines()]


def everything_in(folder: Path) -> bytes:
    """Returns the content of all files below a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
