"""Access tokens: whose keys are fetched, how often, and whom a token stands for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import Clock
from http_servers import AUDIENCE, Issuer
from interaction import PATIENCE

from subconscious_mcp import oauth
from subconscious_mcp.errors import ConfigError
from subconscious_mcp.oauth import Verifier


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _as_at_first(issuer: Issuer) -> None:
    issuer.keys = {"first": issuer.key}
    issuer.asked.clear()


def fetches(issuer: Issuer) -> int:
    return issuer.asked.count("/keys")


def test_a_token_stands_for_its_subject(issuer: Issuer) -> None:
    found = Verifier(issuer.url, AUDIENCE).verify(issuer.token("alice", aud=[AUDIENCE, "https://other.example"]))
    assert found is not None
    assert found.name == "alice" and found.scopes == {"memory:read", "memory:write"}
    other = Verifier(issuer.url, AUDIENCE).verify(issuer.token("bob"))
    assert other is not None and other.namespace != found.namespace
    as_list = Verifier(issuer.url, AUDIENCE).verify(issuer.token("alice", scope=None, scp=["memory:read"]))
    assert as_list is not None and as_list.scopes == {"memory:read"} and as_list.namespace == found.namespace


def test_keys_are_fetched_once_and_for_an_unknown_one_once_a_minute(issuer: Issuer) -> None:
    clock = Clock()
    verifier = Verifier(issuer.url, AUDIENCE, clock=clock)
    for _ in range(5):
        assert verifier.verify(issuer.token("alice")) is not None
    assert fetches(issuer) == 1
    issuer.keys["second"] = issuer.other_key
    new = issuer.token("alice", key=issuer.other_key, kid="second")
    assert verifier.verify(new) is None
    clock.advance(oauth.REFETCH_SECONDS)
    assert verifier.verify(new) is not None
    assert fetches(issuer) == 2
    for number in range(50):
        assert verifier.verify(issuer.token("alice", kid=f"made up {number}")) is None
    assert fetches(issuer) == 2


def test_a_key_that_was_withdrawn_is_not_taken_for_long(issuer: Issuer) -> None:
    clock = Clock()
    verifier = Verifier(issuer.url, AUDIENCE, clock=clock)
    assert verifier.verify(issuer.token("alice")) is not None
    issuer.keys = {"second": issuer.other_key}
    clock.advance(oauth.KEYS_SECONDS)
    assert verifier.verify(issuer.token("alice")) is None


def test_an_issuer_that_is_away_costs_nothing_while_its_keys_are_known(issuer: Issuer) -> None:
    clock = Clock()
    verifier = Verifier(issuer.url, AUDIENCE, clock=clock)
    assert verifier.verify(issuer.token("alice")) is not None
    issuer.keys = {}
    issuer.documents = dict  # type: ignore[method-assign]
    try:
        clock.advance(oauth.KEYS_SECONDS)
        assert verifier.verify(issuer.token("alice")) is not None
    finally:
        del issuer.documents


def test_while_keys_are_fetched_others_go_on_with_those_there_are(issuer: Issuer) -> None:
    clock, fetching, answer = Clock(), threading.Event(), threading.Event()
    keys = issuer.documents()["/keys"]

    def fetch(url: str) -> Any:
        if clock.now > 1_800_000_000:
            fetching.set()
            assert answer.wait(PATIENCE)
        return keys

    verifier = Verifier(issuer.url, AUDIENCE, f"{issuer.url}/keys", fetch=fetch, clock=clock)
    assert verifier.verify(issuer.token("alice")) is not None
    clock.advance(oauth.KEYS_SECONDS)
    thread = threading.Thread(target=verifier.verify, args=(issuer.token("alice", kid="made up"),))
    thread.start()
    assert fetching.wait(PATIENCE)
    assert verifier.verify(issuer.token("alice")) is not None
    assert verifier.verify(issuer.token("alice", kid="another")) is None
    answer.set()
    thread.join(PATIENCE)


def test_one_key_needs_no_name_and_of_several_one_must_be_named(issuer: Issuer) -> None:
    token = issuer.token("alice", kid=None)
    assert Verifier(issuer.url, AUDIENCE).verify(token) is not None
    issuer.keys["second"] = issuer.other_key
    assert Verifier(issuer.url, AUDIENCE).verify(token) is None


def documents(issuer: str, keys_url: str) -> dict[str, Any]:
    return {"issuer": issuer, "jwks_uri": keys_url}


@pytest.mark.parametrize(
    ("metadata", "asked"),
    [
        ({"issuer": "https://a.example", "jwks_uri": "https://a.example/k"}, True),
        ({"issuer": "https://a.example", "jwks_uri": "https://b.example/k"}, False),
        ({"issuer": "https://a.example", "jwks_uri": "http://a.example/k"}, False),
        ({"issuer": "https://a.example", "jwks_uri": "file:///etc/passwd"}, False),
        ({"issuer": "https://b.example", "jwks_uri": "https://a.example/k"}, False),
        ({"issuer": "https://a.example"}, False),
        ([], False),
        (None, False),
    ],
)
def test_keys_come_from_the_issuers_own_host(issuer: Issuer, metadata: Any, asked: bool) -> None:
    fetched = []

    def fetch(url: str) -> Any:
        fetched.append(url)
        return {"keys": []} if url.endswith("/k") else metadata

    assert Verifier("https://a.example", AUDIENCE, fetch=fetch).verify(issuer.token("alice")) is None
    assert ("https://a.example/k" in fetched) is asked
    assert all(url.startswith("https://a.example/") for url in fetched)


def test_another_host_must_be_named_by_the_settings(issuer: Issuer) -> None:
    verifier = Verifier(issuer.url, AUDIENCE, f"{issuer.url}/keys")
    assert verifier.verify(issuer.token("alice")) is not None
    assert issuer.asked == ["/keys"]


@pytest.mark.parametrize("url", ["http://issuer.example", "ftp://issuer.example", "issuer.example", "", "https://"])
def test_plain_http_is_taken_on_this_machine_only(url: str) -> None:
    with pytest.raises(ConfigError, match="https"):
        Verifier(url, AUDIENCE)
    with pytest.raises(ConfigError, match="https"):
        Verifier("https://issuer.example", AUDIENCE, url)


def test_keys_that_are_not_understood_cost_the_others_nothing(issuer: Issuer) -> None:
    whole = issuer.documents()["/keys"]["keys"]
    odd = [{"kty": "XYZ", "kid": "odd"}, {"kty": "oct", "kid": "first", "k": "AAAA"}, {}, *whole]
    verifier = Verifier(issuer.url, AUDIENCE, f"{issuer.url}/keys", fetch=lambda _: {"keys": odd})
    assert verifier.verify(issuer.token("alice")) is not None


@pytest.mark.parametrize(
    "token", ["", ".", "..", "a.b.c", "x" * 20_000, "eyJhbGciOiJSUzI1NiIsImtpZCI6W119.e30.AA", "\ud800"]
)
def test_what_is_no_token_is_none(issuer: Issuer, token: str) -> None:
    assert Verifier(issuer.url, AUDIENCE).verify(token) is None


def test_what_is_fetched_is_bounded_and_follows_no_redirect(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert oauth.fetch(f"{issuer.url}/keys")["keys"]
    with pytest.raises(OSError):
        oauth.fetch(f"{issuer.url}/nothing")
    monkeypatch.setattr(oauth, "MAX_FETCHED_BYTES", 10)
    with pytest.raises(ValueError):
        oauth.fetch(f"{issuer.url}/keys")
