"""By which names a server may be asked, and how often."""

from __future__ import annotations

import pytest
from fakes import Clock

from subconscious_mcp import rate_limit
from subconscious_mcp.http_names import Names, is_loopback
from subconscious_mcp.rate_limit import RateLimit


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ("localhost", True),
        ("LocalHost:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("192.0.2.7:8000", True),  # where the request came to
        ("192.0.2.8:8000", False),
        ("127.0.0.1.example", False),
        ("localhost.", False),
        ("localhost:", False),
        ("localhost:80:80", False),
        ("localhost, memory.example", False),
        ("user@localhost", False),
        ("", False),
        ("memory.example", True),
        ("memory.example:1", True),
        ("xmemory.example", False),
        ("other.example:444", True),
        ("other.example:443", False),
    ],
)
def test_hosts(host: str, taken: bool) -> None:
    assert Names(["Memory.example", "other.example:444"]).takes_host(host, "192.0.2.7") is taken


def test_an_address_of_the_sixth_version_is_named_in_brackets() -> None:
    assert Names().takes_host("[2001:db8::7]:8000", "2001:db8::7")
    assert not Names().takes_host("2001:db8::7", "2001:db8::7")


@pytest.mark.parametrize(
    ("origin", "taken"),
    [
        ("http://localhost:6274", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:1", True),
        ("https://app.example", True),
        ("https://APP.example", True),
        ("http://app.example", False),
        ("https://app.example.evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://localhost:80@evil.example", False),
        ("http://evil.example/localhost", False),
        ("null", False),
        ("", False),
        ("vscode-webview://localhost", False),
    ],
)
def test_origins(origin: str, taken: bool) -> None:
    assert Names((), ["https://app.example/"]).takes_origin(origin) is taken


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_addresses_of_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_bucket_fills_again_with_time() -> None:
    clock = Clock()
    limit = RateLimit(6, clock=clock)
    assert [limit.take("alice") for _ in range(6)] == [0.0] * 6
    assert limit.take("alice") == pytest.approx(10)
    assert limit.take("bob") == 0
    clock.advance(4)
    assert limit.take("alice") == pytest.approx(6)
    clock.advance(6)
    assert limit.take("alice") == 0
    assert limit.take("alice") == pytest.approx(10)
    clock.advance(1000)
    assert [limit.take("alice") for _ in range(7)] == [0.0] * 6 + [pytest.approx(10)]


def test_no_limit_is_none_and_the_table_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(RateLimit(0).take("alice") == 0 for _ in range(1000))
    monkeypatch.setattr(rate_limit, "MAX_KEYS", 3)
    limit = RateLimit(1, clock=Clock())
    assert [limit.take(key) > 0 for key in "abcdaba"] == [False, False, False, False, False, False, True]
