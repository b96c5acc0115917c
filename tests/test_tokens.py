"""Tokens: made, listed, revoked, and recognised by a server that runs."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes import Clock
from http_servers import create_token, run_command
from interaction import environment

from subconscious_mcp import tokens
from subconscious_mcp.errors import InvalidArgument, StorageBusy, StorageDamaged, StorageError
from subconscious_mcp.tokens import TokenBook


def test_a_token_is_known_by_its_secret_and_kept_as_a_hash(tmp_path: Path) -> None:
    token, text = tokens.create(tmp_path, "alice")
    path = tmp_path / tokens.TOKENS_FILE
    assert text.startswith(f"smcp_{token.id}_")
    assert text[len(f"smcp_{token.id}_") :] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    book = TokenBook(tmp_path)
    assert book.find(text) == token
    for wrong in (
        "",
        text[:-1],
        text + "x",
        text.upper(),
        f"smcp_{token.id}_" + "A" * 43,
        f"smcp_00000000_{text[14:]}",
        " " + text,
    ):
        assert book.find(wrong) is None


def test_each_token_has_a_namespace_of_its_own_unless_one_is_named(tmp_path: Path) -> None:
    first, second = tokens.create(tmp_path, "alice")[0], tokens.create(tmp_path, "alice")[0]
    assert first.namespace != second.namespace
    assert tokens.create(tmp_path, "alice", namespace=first.namespace)[0].namespace == first.namespace


def test_a_book_follows_the_file(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    assert book.tokens() == {} and not book.exists()
    token, text = tokens.create(tmp_path, "alice")
    assert book.find(text) == token and book.exists()
    assert tokens.revoke(tmp_path, token.id)
    assert book.find(text) is None and book.exists()
    assert not tokens.revoke(tmp_path, token.id)


def test_a_token_ends_when_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = tokens.create(tmp_path, "alice", expires_days=1)
    assert token.expires_at is not None
    book = TokenBook(tmp_path)
    monkeypatch.setattr("subconscious_mcp.tokens.time.time", lambda: token.expires_at - 1)
    assert book.find(text) == token
    monkeypatch.setattr("subconscious_mcp.tokens.time.time", lambda: token.expires_at)
    assert book.find(text) is None


def test_what_does_not_clearly_say_that_it_may_write_may_not(tmp_path: Path) -> None:
    _, text = tokens.create(tmp_path, "alice")
    path = tmp_path / tokens.TOKENS_FILE
    written = json.loads(path.read_text())
    for raw, read_only in ((False, False), (True, True), (0, True), ("no", True), (None, True)):
        written["tokens"][0]["read_only"] = raw
        path.write_text(json.dumps(written))
        os.utime(path, ns=(1, hash(str(raw)) % 10**9))
        found = TokenBook(tmp_path).find(text)
        assert found is not None and found.read_only is read_only


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"tokens": 1}', '{"tokens": [{"id": "x"}]}', "[" * 100_000])
def test_a_damaged_file_lets_nobody_in_and_is_not_overwritten(tmp_path: Path, content: str) -> None:
    path = tmp_path / tokens.TOKENS_FILE
    path.write_text(content)
    with pytest.raises(StorageDamaged):
        TokenBook(tmp_path).find("smcp_00000000_" + "A" * 43)
    with pytest.raises(StorageDamaged):
        tokens.create(tmp_path, "alice")
    assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]


def test_commands_at_once_lose_no_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: tokens.create(tmp_path, f"user {n}")[0], range(24)))
    assert {token.id for token in tokens.listed(tmp_path)} == {token.id for token in made}
    assert [path.name for path in tmp_path.iterdir()] == [tokens.TOKENS_FILE]


def test_what_a_killed_command_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "WRITE_SECONDS", 0.0)
    (tmp_path / "tokens.json.new").touch()
    with pytest.raises(StorageBusy, match=r"tokens\.json\.new"):
        tokens.create(tmp_path, "alice")


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\nb", "a\x1b[0m"])
def test_a_name_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument):
        tokens.create(tmp_path, name)
    assert not (tmp_path / tokens.TOKENS_FILE).exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        tokens.create(tmp_path / "file", "alice")


def test_when_a_token_was_used_is_written_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("subconscious_mcp.tokens.time.time", clock)
    first, text = tokens.create(tmp_path, "alice")
    second, other = tokens.create(tmp_path, "bob")
    book = TokenBook(tmp_path)
    assert tokens.last_used(tmp_path) == {}
    assert book.find(text) and book.find(other)
    assert tokens.last_used(tmp_path) == {first.id: clock.now}
    assert book.find(f"smcp_{first.id}_" + "A" * 43) is None
    clock.advance(tokens.USED_SECONDS)
    assert book.find(text)
    assert tokens.last_used(tmp_path) == {first.id: clock.now, second.id: clock.now - tokens.USED_SECONDS}
    tokens.revoke(tmp_path, second.id)
    clock.advance(tokens.USED_SECONDS)
    assert book.find(text)
    assert tokens.last_used(tmp_path) == {first.id: clock.now}
    assert stat.S_IMODE((tmp_path / tokens.USED_FILE).stat().st_mode) == 0o600
    (tmp_path / tokens.USED_FILE).write_text("[")
    assert tokens.last_used(tmp_path) == {}


# --- the commands


def test_the_commands_show_the_secret_once(tmp_path: Path) -> None:
    env = environment(tmp_path / "home")
    created = run_command(env, "token", "create", "alice", "--read-only", "--expires-days", "30")
    assert created.returncode == 0
    secret = created.stdout.strip()
    assert secret.startswith("smcp_") and "not shown again" in created.stderr and secret not in created.stderr
    named = create_token(env, "bob", "--namespace", "team")
    assert named["namespace"] == "team" and named["expires_at"] is None and not named["read_only"]
    listed = run_command(env, "token", "list")
    assert "alice" in listed.stdout and "team" in listed.stdout and "never" in listed.stdout
    facts = json.loads(run_command(env, "token", "list", "--json").stdout)
    assert [one["name"] for one in facts] == ["alice", "bob"] and facts[0]["read_only"]
    for text in (listed.stdout, json.dumps(facts)):
        assert secret.rpartition("_")[2] not in text and "sha256" not in text
    assert run_command(env, "token", "revoke", named["id"]).stdout == "revoked\n"
    unknown = run_command(env, "token", "revoke", named["id"])
    assert unknown.returncode == 1 and "no token" in unknown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--expires-days", "0"),
        ("--expires-days", "-1"),
        ("--expires-days", "nan"),
        ("--namespace", "a\nb"),
        ("--namespace", ""),
    ],
)
def test_wrong_options_are_told_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_command(environment(tmp_path / "home"), "token", "create", "alice", *arguments)
    assert done.returncode == 64 and done.stderr.count("\n") == 1
    assert not (tmp_path / "home" / "tokens.json").exists()
