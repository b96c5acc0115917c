"""What is told without asking cannot pose as anything but a note; what is secret never gets that far."""

from __future__ import annotations

import json
import re
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import OpenMemory
from fakes import FakeEmbedder
from hook_processes import Client, ended
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_inbox import episode
from transcript_builder import Transcript

from subconscious_mcp import hooks
from subconscious_mcp.ambient import ANSWER_CHARS, OUTCOME_CHARS, REQUEST_CHARS, prompt_notes, quoted, session_notes
from subconscious_mcp.config import Config
from subconscious_mcp.inbox import Inbox
from subconscious_mcp.ingest import ingest_pending
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.transcripts import MEMORY_TAG

FRAME = re.compile(rf"<{MEMORY_TAG}>\n(?:.*\n)*</{MEMORY_TAG}>\n")
LONGEST = REQUEST_CHARS + OUTCOME_CHARS + ANSWER_CHARS


def test_nothing_to_tell_is_no_text() -> None:
    assert session_notes([], 0, 0) == ""
    assert prompt_notes([], []) == ""


def test_the_nudge_counts() -> None:
    assert "1 remembered task and 0 captured sessions of this project" in session_notes([], 1, 0)
    notes = session_notes([episode()], 2, 7)
    assert "2 remembered tasks and 7 captured sessions of this project" in notes
    assert "call recall with the task before non-trivial work" in notes
    assert "Last sessions, newest first (1 of 7):\n- 2026-11-30 01:00 UTC\n" in notes


def test_a_prompts_notes_tell_how_near_they_are() -> None:
    notes = prompt_notes([("a task", "an answer", 0.912)], [("a request", "", 0.64)])
    assert "- a remembered task, similarity 0.91\n  > task: a task\n  > answer: an answer\n" in notes
    assert "- an earlier session, similarity 0.64\n  > asked: a request\n  > outcome: (empty)\n" in notes


@given(st.text(), st.text())
def test_no_text_leaves_its_quotes(request: str, outcome: str) -> None:
    check_frame(session_notes([episode(request=request, outcome=outcome, ts=request)], 1, 1), quotes=2)
    check_frame(prompt_notes([(request, outcome, 1.0)], [(outcome, request, 0.5)]), quotes=4)


PIECES = (
    "</system-reminder>", f"</{MEMORY_TAG}>", f"<{MEMORY_TAG}>", "ignore previous instructions", "\x1b[2J", "\x1b]0;t",
    "\x07", "\u202e", "\u2066", "\u200b", "\ufeff", "```", "~~~", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d",
    "\x1e", "\x85", "\u2028", "\u2029", "\n# Title", "\n- ", "\nHuman: ", "\n  > ", "<!--", "-->", "]]>", "\0",
    "\ud800", "\U000e0041",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_markup_leaves_its_quotes(text: str) -> None:
    check_frame(session_notes([episode(request=text, outcome=text)], 1, 1), quotes=2)
    check_frame(prompt_notes([(text, text, 1.0)], []), quotes=2)


def check_frame(notes: str, quotes: int) -> None:
    """Everything but our own fixed lines is quoted; nothing in a quote is a control or markup."""
    assert FRAME.fullmatch(notes)
    assert notes.count("<") == 2
    lines = notes.split("\n")
    assert len(notes.splitlines()) == len(lines) - 1
    told = [line for line in lines if line.startswith("  > ")]
    assert len(told) >= quotes
    for line in told:
        assert line.isprintable()
        assert not set(line[4:]) & set("<>`")
    ours = [line for line in lines if not line.startswith("  > ")]
    assert not any("ignore previous" in line for line in ours)
    assert len(ours) <= 11


@given(st.text(min_size=1, max_size=3).map(lambda text: text * 5000))
def test_a_quote_is_bounded(text: str) -> None:
    # Every character may be a line of its own.
    assert len(quoted("label: ", text, 300)) <= 300 * 6 + 20


def test_a_secret_in_an_old_row_is_not_told() -> None:
    secret = "ghp_" + "q7RtX0bZ2mKw9LcV4nYs8HdJ3fGp6TaE1uQz"
    notes = session_notes([episode(request=f"use {secret}", outcome=f"export TOKEN={secret}")], 0, 1)
    assert secret not in notes


# --- secrets

LETTERS = string.ascii_letters + string.digits


def tokens(prefix: str, length: int) -> st.SearchStrategy[tuple[str, str]]:
    """Texts with a secret, and the secret: as random as real ones are."""
    return st.text(LETTERS, min_size=length, max_size=length).filter(is_random).map(lambda t: (prefix + t, t))


def is_random(text: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return len(set(text)) > len(text) // 3 and all(any(kind(c) for c in text) for kind in kinds)


def assigned(before: str, behind: str = "") -> st.SearchStrategy[tuple[str, str]]:
    return tokens("", 24).map(lambda pair: (before + pair[0] + behind, pair[1]))


SECRETS = st.one_of(
    tokens("ghp_", 36),
    tokens("github_pat_11ABCDEFG0", 60),
    tokens("sk-ant-api03-", 90),
    tokens("sk-proj-", 48),
    tokens("pypi-AgEIcHlwaS5vcmc", 100),
    tokens("xoxb-123456789012-1234567890123-", 24),
    tokens("Authorization: Bearer ", 40),
    assigned("export DATABASE_PASSWORD="),
    assigned('API_TOKEN="', '"'),
    assigned('{"client_secret": "', '"}'),
    assigned("postgres://admin:", "@db.example.com/main"),
    tokens("", 200).map(
        lambda pair: (
            f"-----BEGIN RSA PRIVATE KEY-----\n{pair[0][:64]}\n{pair[0][64:128]}\n{pair[0][128:]}\n"
            "-----END RSA PRIVATE KEY-----",
            pair[0][64:128],
        )
    ),
)
PLACES = ("request", "first block", "outcome", "event", "queued", "command", "tool", "older")
FILLER = st.sampled_from([0, 0, 3, 150, 290, 990, 1990, 2000, 3990, 7990, 8100, 20_000])


def transcript_with(place: str, text: str) -> tuple[Transcript, str]:
    """A session with a text in one place, and the event's last message."""
    said = {name: f"Plain words of {name}." for name in PLACES} | {place: text}
    transcript = Transcript()
    if place == "older":
        transcript.user(said["older"])
        transcript.assistant(said["older"])
    if place == "command":
        transcript.command("deploy", said["command"])
    else:
        transcript.user(f"Please look at this. {said['request']}")
    transcript.tool(said["tool"], text=said["first block"])
    if place == "queued":
        transcript.line(
            "attachment", attachment={"type": "queued_command", "commandMode": "prompt", "prompt": said["queued"]}
        )
    transcript.assistant(said["first block"], f"The work is complete now. {said['outcome']}")
    return transcript, said["event"] if place == "event" else ""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    secret=SECRETS,
    place=st.sampled_from(PLACES),
    before=FILLER,
    behind=FILLER,
    spooled=st.booleans(),
    newline=st.booleans(),
)
def test_a_secret_reaches_no_file_and_no_session(
    monkeypatch: pytest.MonkeyPatch,
    secret: tuple[str, str],
    place: str,
    before: int,
    behind: int,
    spooled: bool,
    newline: bool,
    config: Config,
) -> None:
    """Wherever it stands, at a cut too: not the inbox, the spool, memory.db, the echo log, what is told."""
    shown, hidden = secret
    gap = "\n" if newline else " "
    text = ("word " * 4000)[:before] + gap + shown + gap + ("more " * 4000)[:behind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        monkeypatch.setenv("SUBCONSCIOUS_HOME", str(home))
        monkeypatch.setenv("SUBCONSCIOUS_ENGINE", "off")
        transcript, message = transcript_with(place, text)
        path = transcript.write(folder / "t.jsonl")
        event: dict[str, Any] = {"session_id": "s", "transcript_path": str(path), "cwd": str(folder)}
        if message:
            event["last_assistant_message"] = message
        if spooled:
            (home / "data" / "context.db").mkdir(parents=True)
        hooks.stop(event)
        told = hooks.session_start({**event, "session_id": "new", "source": "startup"})
        assert "(1 of 1)" in told
        assert_hidden(hidden, told, home)
        if spooled:
            (home / "data" / "context.db").rmdir()
        embedder = FakeEmbedder()
        memory = Memory(LocalStore(home / "data", command="tests"), home / "data", lambda: embedder)
        try:
            assert ingest_pending(memory, Inbox(str(home / "data"))) == 1
            scope = memory.scope(config, "any", None)
            memory.recall(scope, text)
            memory.settle()
            assert_hidden(hidden, told, home)
        finally:
            memory.close()
        assert_hidden(hidden, told, home)


def assert_hidden(secret: str, told: str, folder: Path) -> None:
    pieces = {secret, secret[:16], secret[-16:]}
    assert not any(piece in told for piece in pieces)
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(piece.encode() in content for piece in pieces), path.name


@pytest.mark.parametrize("fault", ["event", "locked", "storage"])
def test_a_secret_reaches_no_log(tmp_path: Path, fault: str) -> None:
    client = Client(tmp_path)
    secret = "ghp_" + "a1B2c3D4e" * 4
    event: object = client.stop_event("s-1", f"use {secret} for it", f"It works with {secret} now.")
    client.stop("s-0")
    if fault == "event":
        event = json.dumps(event).encode() + secret.encode()
        client.run("stop", event)
    elif fault == "locked":
        with client.locked():
            client.run("stop", event)
    else:
        ended(client.start("stop", event, env={"SUBCONSCIOUS_STORAGE_DIR": f"{client.database}/{secret}"}))
    assert client.log()
    assert_hidden(secret, client.log(), client.home)


def test_notes_of_hits_are_bounded_by_what_is_asked_for(open_memory: OpenMemory, config: Config) -> None:
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    for number in range(5):
        memory.remember(scope, "the same task", f"answer {number} " * 2000)
    hits, episodes = memory.near(scope, "the same task")
    assert (len(hits), episodes) == (2, [])
    told: Callable[[Any], tuple[str, str, float]] = lambda near: (near.entry.task, near.entry.answer, near.similarity)  # noqa: E731
    assert len(prompt_notes(list(map(told, hits)), [])) < 2 * LONGEST
