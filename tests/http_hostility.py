"""Two users of one server, and everything that somebody could try who wants the other's memory or the server's end.

For a test and for a measurement. Each text of a user bears a mark of the user's own, so whatever comes back to one
user is searched for the other's.
"""

from __future__ import annotations

import base64
import json
import random
import socket
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from http_servers import Answer, HttpProcess, Issuer
from interaction import HANDSHAKE, MODERN, MODERN_META, PATIENCE

WORDS = ("export", "rotate", "deploy", "merge", "archive", "invoice", "cluster", "report", "ledger", "parser", "queue")
TRICKS = (
    "../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "C:\\Windows\\win.ini", "memory.db\0.txt",
    "'; DROP TABLE entries; --", "{{7*7}}", "${jndi:ldap://127.0.0.1/x}", "\u202ereversed", "\u00e9" * 50,
    "a" * 5000,
    "%00", "file:///etc/passwd", "memory://stats/../../memory.db", "CON", "~root", "\r\nX-Injected: 1",
)  # fmt: skip
REFUSED = (401, 429)


@dataclass
class User:
    """A user, and what the server must still know of it."""

    name: str
    token: Callable[[], str]
    mark: str
    entries: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    session: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self, rnd: random.Random) -> str:
        return f"{self.mark} {' '.join(rnd.choices(WORDS, k=5))} {rnd.randrange(10**9)}"


@dataclass
class Report:
    """What came of it."""

    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Attack:
    """Calls a server in every way.

    Args:
        server: It must take the tokens of both users, without a rate limit; bodies up to 100,000 bytes.
        alice: A user by a token of ours.
        bob: A user by a token of the issuer's.
        dead: Tokens that were valid once.
        issuer: Bob's.
    """

    def __init__(self, server: HttpProcess, alice: User, bob: User, dead: list[str], issuer: Issuer) -> None:
        self.server = server
        self.users = (alice, bob)
        self.dead = dead
        self.issuer = issuer
        self.report = Report()
        self._lock = threading.Lock()
        listed = server.modern("tools/list", token=alice.token()).message["result"]["tools"]
        self.has_notes = any(tool["name"] == "remember_note" for tool in listed)
        for user in self.users:
            user.session = server.open_session(user.token())

    def kinds(self) -> list[str]:
        """Returns what there is to be tried with the tools that the server offers."""
        return [
            name
            for name in dir(self)
            if name.startswith(("good_", "bad_")) and (self.has_notes or not name.endswith(("_note", "_notes")))
        ]

    def run(self, calls: int, seed: int) -> None:
        """Makes so many calls, by both users in turn."""
        rnd = random.Random(seed)
        kinds = self.kinds()
        weights = [4 if name.startswith("good_") else 1 for name in kinds]
        for number in range(calls):
            user, other = self.users if number % 2 else self.users[::-1]
            (kind,) = rnd.choices(kinds, weights)
            try:
                getattr(self, kind)(rnd, user, other)
            except Exception as error:
                self._wrong(kind, f"{type(error).__name__}: {error}"[:300])
            with self._lock:
                self.report.calls[kind] += 1

    def run_in_threads(self, calls: int, threads: int, seed: int) -> None:
        """The same by several threads at once."""
        running = [
            threading.Thread(target=self.run, args=(calls // threads, seed + number)) for number in range(threads)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    # --- what is held against every reply

    def _seen(self, user: User | None, answer: Answer) -> Answer:
        with self._lock:
            self.report.statuses[answer.status] += 1
        whole = answer.body.decode("utf-8", "replace") + json.dumps(dict(answer.headers))
        for other in self.users:
            if other is user:
                continue
            with other.lock:
                ids = [*other.entries, *other.notes]
            if other.mark in whole or any(entry_id in whole for entry_id in ids):
                with self._lock:
                    self.report.leaks.append(f"{user.name if user else 'nobody'} saw {other.name}'s: {whole[:300]}")
        if answer.status >= 500:
            self._wrong("status", f"{answer.status} {whole[:200]}")
        if "Traceback" in whole or "site-packages" in whole:
            self._wrong("trace", whole[:300])
        return answer

    def _wrong(self, kind: str, what: str) -> None:
        with self._lock:
            self.report.wrong.append(f"{kind}: {what}")

    def _expect(self, kind: str, answer: Answer, *statuses: int) -> None:
        if answer.status not in statuses:
            self._wrong(kind, f"{answer.status} {answer.body[:200]!r}")

    def _call(self, rnd: random.Random, user: User, tool: str, arguments: Any) -> Any:
        """Calls a tool by either era; returns its payload, or None where it was refused."""
        if rnd.random() < 0.5:
            answer = self.server.call(tool, arguments, user.token())
        else:
            params = {"name": tool, "arguments": arguments}
            answer = self.server.in_session(user.session, "tools/call", params, user.token())
        self._seen(user, answer)
        if answer.status != 200 or "result" not in answer.message:
            return None
        result = answer.message["result"]
        return None if result.get("isError") else result["structuredContent"]

    # --- what users do

    def good_remember(self, rnd: random.Random, user: User, other: User) -> None:
        task, answer = user.text(rnd), f"answer of {user.mark} {rnd.randrange(10**9)}"
        done = self._call(rnd, user, "remember", {"task": task, "answer": answer, "tags": [rnd.choice(WORDS)]})
        if not done or not done["stored"]:
            self._wrong("remember", repr(done))
            return
        with user.lock:
            user.entries[done["entry_id"]] = (task, answer)

    def good_recall(self, rnd: random.Random, user: User, other: User) -> None:
        with user.lock:
            chosen = rnd.choice(list(user.entries.values())) if user.entries else None
        if chosen is None:
            return
        found = self._call(rnd, user, "recall", {"task": chosen[0], "verify": False})
        # Another thread of the user may have forgotten it meanwhile.
        if not found or (found["hit"] and user.mark not in found["answer"]):
            self._wrong("recall", repr(found))

    def good_forget(self, rnd: random.Random, user: User, other: User) -> None:
        with user.lock:
            if len(user.entries) < 30:
                return
            entry_id = rnd.choice(list(user.entries))
            entry = user.entries.pop(entry_id)
        if self._call(rnd, user, "forget", {"entry_id": entry_id}) != {"forgotten": True}:
            self._wrong("forget", f"{entry_id} {entry}")

    def good_look(self, rnd: random.Random, user: User, other: User) -> None:
        tool, arguments = rnd.choice(
            [("echo", {"task": user.text(rnd), "top_k": 10}), ("stats", {}), ("drift_report", {})]
        )
        if self._call(rnd, user, tool, arguments) is None:
            self._wrong(tool, "refused")

    def good_read(self, rnd: random.Random, user: User, other: User) -> None:
        uri = rnd.choice(["memory://stats", "memory://recent"])
        answer = self._seen(user, self.server.modern("resources/read", {"uri": uri}, user.token()))
        # Not every toolset has the second.
        self._expect("read", answer, *([200] if uri == "memory://stats" else [200, 400]))

    def good_note(self, rnd: random.Random, user: User, other: User) -> None:
        content = user.text(rnd)
        done = self._call(rnd, user, "remember_note", {"content": content, "tags": [rnd.choice(WORDS)]})
        if not done or done["status"] != "stored":
            self._wrong("remember_note", repr(done))
            return
        with user.lock:
            user.notes[done["id"]] = content

    def good_look_at_notes(self, rnd: random.Random, user: User, other: User) -> None:
        tool, arguments = rnd.choice(
            [
                ("search_notes", {"query": user.text(rnd), "limit": 20}),
                ("list_recent", {"limit": 50}),
                ("consolidate", {}),
            ]
        )
        if self._call(rnd, user, tool, arguments) is None:
            self._wrong(tool, "refused")

    # --- the other's memory

    def bad_foreign_notes(self, rnd: random.Random, user: User, other: User) -> None:
        with other.lock:
            notes = list(other.notes.items())
        if not notes:
            return
        foreign, content = rnd.choice(notes)
        unknown = str(uuid.uuid4())
        for tool, more in (("supersede_note", {"content": user.text(rnd)}), ("forget", {})):
            told = [self._call(rnd, user, tool, {"entry_id": one, **more}) for one in (foreign, unknown)]
            if told[0] is None or told[0] != told[1]:
                self._wrong("foreign notes", repr(told))
        self._call(rnd, user, "search_notes", {"query": content.partition(" ")[2], "limit": 50, "explain": True})
        self._call(rnd, user, "list_recent", {"limit": 100, "since": "2000-01-01"})

    def bad_foreign_id(self, rnd: random.Random, user: User, other: User) -> None:
        with other.lock:
            ids = list(other.entries)
        if not ids:
            return
        foreign, unknown = rnd.choice(ids), str(uuid.uuid4())
        told = [self._call(rnd, user, "forget", {"entry_id": one}) for one in (foreign, unknown)]
        told += [
            self._call(rnd, user, "feedback", {"entry_id": one, "query": "x", "correct": False})
            for one in (foreign, unknown)
        ]
        if told[0] != told[1] or told[0] != {"forgotten": False} or told[2] != told[3]:
            self._wrong("foreign id", repr(told))

    def bad_foreign_text(self, rnd: random.Random, user: User, other: User) -> None:
        with other.lock:
            texts = [task for task, _ in other.entries.values()]
        # Without the mark, which would come back in an error and mean nothing.
        text = rnd.choice(texts).partition(" ")[2] if texts else "x"
        found = self._call(rnd, user, "recall", {"task": text, "threshold": 0.0, "top_k": 50, "verify": False})
        if found is None or (found["hit"] and user.mark not in found["task_text"]):
            self._wrong("foreign text", repr(found))
        self._call(rnd, user, "echo", {"task": text, "top_k": 50})

    def bad_foreign_session(self, rnd: random.Random, user: User, other: User) -> None:
        method, params = rnd.choice(
            [("tools/list", None), ("ping", None), ("tools/call", {"name": "stats", "arguments": {}}),
             ("resources/read", {"uri": "memory://stats"})]
        )  # fmt: skip
        theirs = self._seen(user, self.server.in_session(other.session, method, params, user.token()))
        unknown = self._seen(user, self.server.in_session(uuid.uuid4().hex, method, params, user.token()))
        self._expect("foreign session", theirs, 404)
        if theirs.body != unknown.body:
            self._wrong("foreign session", f"{theirs.body!r} {unknown.body!r}")
        for verb in ("GET", "DELETE"):
            answer = self.server.ask(verb, headers={"Mcp-Session-Id": other.session}, token=user.token())
            self._expect("foreign session", self._seen(user, answer), 404)

    def bad_foreign_namespace(self, rnd: random.Random, user: User, other: User) -> None:
        name = rnd.choice(["namespace", "user", "storage_dir", "_meta", "__class__"])
        told = self._call(rnd, user, "recall", {"task": "x", name: other.name})
        if told is not None:
            self._wrong("foreign namespace", repr(told))
        headers = {rnd.choice(["X-User", "X-Forwarded-User", "X-Namespace", "Remote-User"]): other.name}
        self._seen(user, self.server.call("stats", {}, user.token(), headers=headers))

    # --- tokens

    def bad_token(self, rnd: random.Random, user: User, other: User) -> None:
        good = user.token()
        at = rnd.randrange(len(good) - 2)
        flipped = good[:at] + chr(ord(good[at]) ^ 1) + good[at + 1 :]
        header, payload, signature = self.issuer.token(user.name).split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        forged = base64.urlsafe_b64encode(json.dumps({**claims, "sub": other.name}).encode()).decode().rstrip("=")
        none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"first"}').decode().rstrip("=")
        tokens = [
            flipped, good[:-1], good + "A", good[::-1], "", "null", *self.dead,
            f"smcp_{rnd.randrange(16**8):08x}_{'A' * 43}",
            f"{header}.{forged}.{signature}", f"{none}.{forged}.", f"{none}.{payload}.{signature}",
            self.issuer.token(other.name, exp=int(time.time()) - 3600),
            self.issuer.token(other.name, aud="https://other.example"),
            self.issuer.token(other.name, iss="https://other.example"),
            self.issuer.token(other.name, key=self.issuer.other_key),
            self.issuer.token(other.name, key="s" * 64, algorithm="HS256"),
            self.issuer.token(other.name, kid=rnd.choice(["../first", "second", "first\0", "'"])),
        ]  # fmt: skip
        answer = self.server.call("stats", {}, rnd.choice(tokens))
        self._expect("bad token", self._seen(None, answer), *REFUSED)

    def bad_no_token(self, rnd: random.Random, user: User, other: User) -> None:
        good = user.token()
        headers = rnd.choice(
            [{}, {"Authorization": good}, {"Authorization": f"Basic {good}"}, {"Authorization": f"Bearer,{good}"},
             {"Cookie": f"token={good}"}, {"X-Api-Key": good}, {"Proxy-Authorization": f"Bearer {good}"}]
        )  # fmt: skip
        answer = self.server.call("stats", {}, headers=headers, path=rnd.choice([None, f"/mcp?access_token={good}"]))
        self._expect("no token", self._seen(None, answer), *REFUSED)
        stolen = self.server.in_session(user.session, "tools/call", {"name": "stats", "arguments": {}})
        self._expect("no token", self._seen(None, stolen), *REFUSED)

    # --- names and paths

    def bad_names(self, rnd: random.Random, user: User, other: User) -> None:
        port = self.server.port
        headers, status = rnd.choice(
            [({"Host": "evil.example"}, 421), ({"Host": f"127.0.0.1.evil.example:{port}"}, 421), ({"Host": ""}, 421),
             ({"Host": f"localhost:{port}@evil.example"}, 421), ({"Host": "169.254.169.254"}, 421),
             ({"Host": "evil.example", "X-Forwarded-Host": "localhost"}, 421),
             ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
             ({"Origin": f"http://localhost:{port}.evil.example"}, 403),
             ({"Origin": "http://localhost@evil.example"}, 403)]
        )  # fmt: skip
        answer = self.server.call("stats", {}, user.token(), headers=headers)
        self._expect("names", self._seen(user, answer), status)

    def bad_path(self, rnd: random.Random, user: User, other: User) -> None:
        path = rnd.choice(
            ["/", "/mcp/", "/mcp/..", "//mcp", "/mcp/../../etc/passwd", "/%2e%2e/mcp", "/mcp%00", "/MCP", "/mcp;x=1",
             "/tokens.json", "/data/memory.db", "/logs/audit.log", "/sse", "/messages", "/health", "/.env"]
        )  # fmt: skip
        method = rnd.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"])
        answer = self.server.ask(method, path, None if method in ("GET", "HEAD") else b"{}", token=user.token())
        self._expect("path", self._seen(user, answer), 404, 405)

    def bad_texts(self, rnd: random.Random, user: User, other: User) -> None:
        trick = rnd.choice(TRICKS)
        tool, arguments = rnd.choice(
            [(trick, {}), ("recall", {"task": "x", "tags": [trick]}), ("forget", {"entry_id": trick}),
             ("recall", {trick: trick}), ("recall", {"task": trick}), ("recall", [trick]), ("stats", trick),
             ("recall", {"task": {"$ne": trick}}), ("recall", {"task": "x", "top_k": 10**30}),
             ("remember", {"task": "x", "answer": None}), ("echo", {"task": "x", "threshold": "NaN"})]
        )  # fmt: skip
        headers = {"Mcp-Name": tool} if tool.isascii() and tool.isprintable() else {"Mcp-Name": "x"}
        self._seen(user, self.server.call(tool, arguments, user.token(), headers=headers))
        params = {"name": tool, "arguments": arguments}
        self._seen(user, self.server.in_session(user.session, "tools/call", params, user.token()))
        uri = rnd.choice(["memory://tags/", "memory://", ""]) + trick
        self._seen(user, self.server.in_session(user.session, "resources/read", {"uri": uri}, user.token()))

    # --- sizes and shapes

    def bad_size(self, rnd: random.Random, user: User, other: User) -> None:
        big = {"task": "x", "answer": "y" * 150_000}
        chunked = [("Transfer-Encoding", "chunked"), ("MCP-Protocol-Version", MODERN)]
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        answer = rnd.choice(
            [lambda: self.server.call("remember", big, user.token()),
             lambda: self.server.ask(body=None, headers={"Content-Length": str(10**12)}, token=user.token()),
             lambda: self.server.ask(body=chunk * 5 + b"0\r\n\r\n", headers=chunked, token=user.token())]
        )()  # fmt: skip
        self._expect("size", self._seen(user, answer), 413)
        header = self.server.call("stats", {}, user.token(), headers={"X-Long": "x" * 90_000})
        # Where it comes in one piece, it is read.
        self._expect("size", self._seen(user, header), 200, 400, 431)

    def bad_message(self, rnd: random.Random, user: User, other: User) -> None:
        stats = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "stats", "arguments": {}}}
        body = rnd.choice(
            [b"", b"{", b"[]", b"null", b"1e999", b"\xff\xfe\x00", b"[" * 60_000, b'{"a":' * 20_000,
             json.dumps([stats] * 3).encode(),
             json.dumps({**stats, "id": {"a": 1}}).encode(), json.dumps({**stats, "id": None}).encode(),
             json.dumps({**stats, "method": rnd.choice(TRICKS)}).encode(), json.dumps({**stats, "params": []}).encode(),
             json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(),
             json.dumps({**stats, "params": {"_meta": {**MODERN_META, "x": rnd.choice(TRICKS)}}}).encode()]
        )  # fmt: skip
        headers = {
            "MCP-Protocol-Version": rnd.choice([MODERN, HANDSHAKE, "2024-11-05", "1999-01-01", "x" * 500]),
            "Content-Type": rnd.choice(["application/json", "text/plain", "application/json; charset=utf-7"]),
            "Accept": rnd.choice(["application/json, text/event-stream", "*/*", "text/html", ""]),
        }
        if rnd.random() < 0.5:
            headers["Mcp-Session-Id"] = rnd.choice([user.session, "x" * 1000, "../x"])
        if rnd.random() < 0.3:
            headers["Mcp-Method"] = rnd.choice(["tools/list", "TOOLS/CALL", " tools/call", "subscriptions/listen"])
        self._seen(user, self.server.ask(body=body, headers=headers, token=user.token()))

    def bad_bytes(self, rnd: random.Random, user: User, other: User) -> None:
        """Sends what is no HTTP, or two requests that look like one, and hangs up in the middle."""
        good = f"Host: 127.0.0.1:{self.server.port}\r\nAuthorization: Bearer {user.token()}\r\n"
        inner = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\nContent-Length: 2\r\n\r\n{{}}"
        data = rnd.choice(
            [rnd.randbytes(500), b"\r\n" * 1000, b"GET\r\n\r\n", b"POST /mcp HTTP/9.9\r\n\r\n",
             f"POST /mcp HTTP/1.1\r\n{good}Content-Length: 5\r\n"
             f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}".encode(),
             f"POST /mcp HTTP/1.1\r\n{good}Content-Length: 5\r\nContent-Length: 50\r\n\r\n{inner}".encode(),
             f"POST /mcp HTTP/1.1\r\n{good}Host: evil.example\r\nContent-Length: 0\r\n\r\n".encode(),
             f"POST /mcp HTTP/1.1\r\n{good}Content-Length: -5\r\n\r\n".encode(),
             f"POST /mcp HTTP/1.1\r\n{good}Content-Length: 5000\r\n\r\nhalf".encode(),
             f"CONNECT evil.example:443 HTTP/1.1\r\n{good}\r\n".encode(),
             f"GET http://evil.example/mcp HTTP/1.1\r\n{good}Upgrade: websocket\r\n\r\n".encode()]
        )  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE) as connection:
            connection.sendall(data)
            if rnd.random() < 0.5:
                return
            connection.shutdown(socket.SHUT_WR)
            got = b""
            while part := connection.recv(65536):
                got += part
        if got:
            self._seen(user, Answer(int(got.split()[1]), {}, got))


def timing(attack: Attack, rounds: int, seed: int) -> dict[str, Any]:
    """Measures whether the time of a reply tells what the other user has.

    Returns:
        For each question the medians in milliseconds where the other has it and where nobody has, and how often
        the one took longer than the other: 0.5 where the times tell nothing.
    """
    rnd = random.Random(seed)
    alice, bob = attack.users
    ids = list(bob.entries)

    def timed(tool: str, arguments: Any) -> float:
        started = time.perf_counter()
        attack._seen(alice, attack.server.call(tool, arguments, alice.token()))
        return (time.perf_counter() - started) * 1000

    def asked_by_bob() -> str:
        text = f"{' '.join(rnd.choices(WORDS, k=8))} {rnd.randrange(10**9)}"
        attack.server.call("recall", {"task": text}, bob.token())
        return text

    def asked_by_nobody() -> str:
        attack.server.call("recall", {"task": asked_by_bob()}, bob.token())
        return f"{' '.join(rnd.choices(WORDS, k=8))} {rnd.randrange(10**9)}"

    questions: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
        "forget an id": (
            "forget",
            lambda: {"entry_id": rnd.choice(ids)},
            lambda: {"entry_id": str(uuid.UUID(int=rnd.getrandbits(128), version=4))},
        ),
        "recall a text": ("recall", lambda: {"task": asked_by_bob()}, lambda: {"task": asked_by_nobody()}),
    }
    found: dict[str, Any] = {}
    for name, (tool, there, absent) in questions.items():
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds * 2):
            which = number % 2
            arguments = (there, absent)[which]()
            times[which].append(timed(tool, arguments))
        longer = sum(a > b for a in times[0] for b in times[1]) / (rounds * rounds)
        found[name] = {
            "the other has it, median ms": round(statistics.median(times[0]), 3),
            "nobody has it, median ms": round(statistics.median(times[1]), 3),
            "share of pairs in which the first took longer": round(longer, 3),
        }
    return found
