"""Hooks: what a client runs at the start and the end of a session, with the event as JSON on stdin.

A hook must never be in the way: it exits with 0 whatever happens, prints nothing but what the
client is to read, waits for nothing for long, and loads no model, no Chroma, no numpy. What goes
wrong is written to logs/hook.log, without any captured text.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from subconscious_mcp.injected import Injected
    from subconscious_mcp.transcripts import Exchange

    Event = Mapping[str, Any]

CLAUDE = "claude"
MOST_EVENT_BYTES = 32 << 20
MOST_LOG_BYTES = 500_000
MOST_ID_CHARS = 200
RECALLED_EPISODES = 6
"""Episodes that this session may have been told of: those shown at its start, and what came since."""
PROMPT_SECONDS = 0.15
"""How long a prompt may wait for its notes."""
SHORTEST_PROMPT = 12
"""Characters; shorter prompts ("yes", "go on") tell nothing of a task."""


def run(arguments: list[str]) -> int:
    """Runs the hook of an event; returns 0, always.

    Args:
        arguments: The event's name and maybe `--client NAME`, as `install-hooks` writes them.
    """
    # What this process writes is its user's business alone.
    os.umask(0o077)
    name = arguments[0] if arguments else ""
    client = arguments[2] if arguments[1:2] == ["--client"] and len(arguments) > 2 else CLAUDE
    try:
        if name not in HOOKS:
            raise ValueError(f"there is no hook {name[:40]!r}; there are {', '.join(HOOKS)}")
        event = _as_claude_says_it(_event())
        written = HOOKS[name](event)
        if written:
            sys.stdout.buffer.write(_as_client_reads_it(written, client, event, name).encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
    except BaseException as error:
        _note(name, error)
        _mute()
    return 0


def _event() -> Event:
    """Reads the event from stdin: whatever comes, an object that may be empty."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    raw = sys.stdin.buffer.read(MOST_EVENT_BYTES)
    try:
        event = json.loads(raw)
    except UnicodeDecodeError:
        event = json.loads(raw.decode("utf-8", "replace"))
    if not isinstance(event, dict):
        raise TypeError("the event is no JSON object")
    return event


def _as_claude_says_it(event: Event) -> Event:
    """Returns an event with the names that Claude Code gives its parts, where another client has others."""
    roots = event.get("workspace_roots")
    others = {
        "session_id": event.get("sessionId") or event.get("conversation_id"),
        "transcript_path": event.get("transcriptPath"),
        "cwd": roots[0] if isinstance(roots, list) and roots else None,
        # Gemini CLI tells both halves of the exchange.
        "last_assistant_message": event.get("prompt_response"),
    }
    return {**{name: value for name, value in others.items() if value is not None}, **event}


_EVENT_NAMES = {
    "session-start": "SessionStart",
    "user-prompt-submit": "UserPromptSubmit",
}


def _as_client_reads_it(text: str, client: str, event: Event, name: str) -> str:
    """Returns what a hook says in the form that its client takes."""
    if client == "cursor":
        return json.dumps({"additional_context": text})
    if client in ("gemini", "vscode"):
        told = _text(event.get("hook_event_name")) or _EVENT_NAMES.get(name, "")
        return json.dumps({"hookSpecificOutput": {"hookEventName": told, "additionalContext": text}})
    # Claude Code and Codex take plain text.
    return text


class _Place:
    """Where this session's memory is, from the environment and config.json."""

    def __init__(self, event: Event) -> None:
        from subconscious_mcp import locate
        from subconscious_mcp.namespaces import derive

        self.home = locate.home_folder(os.environ)
        self.written = locate.written_settings(self.home)
        self.folder = locate.storage_folder(os.environ, self.home, self.written)
        self.capture = locate.capture_wanted(os.environ, self.home, self.written)
        self.engine = locate.engine_wanted(os.environ, self.written)
        self.start = locate.project_folder(os.environ, _text(event.get("cwd")))
        home = os.path.expanduser("~")
        derived = derive(
            locate.asked_namespace(os.environ, self.written),
            self.start,
            home if os.path.isabs(home) else None,
        )
        self.namespace = derived.name
        self.root = derived.root


def stop(event: Event) -> str:
    """Captures the session's last exchange; prints nothing."""
    place = _Place(event)
    if not place.capture:
        return ""
    from subconscious_mcp.inbox import Episode, Inbox, moment, timestamp
    from subconscious_mcp.injected_files import recorded

    # Before anything that takes a while: of two hooks of a session the one that began later counts.
    captured = moment()
    session_id = _session_id(event)
    injected = recorded(place.folder, session_id)
    exchange = _exchange(event, injected)
    if exchange is not None and not injected.marks and injected.resembles(exchange.request, exchange.outcome):
        from subconscious_mcp.ambient import told_of

        # Not waited for: what is written below is worth the whole wait.
        told = Inbox(place.folder, wait_seconds=0.0).recent(place.namespace, place.root, RECALLED_EPISODES)
        exchange = _exchange(event, told_of(told, session_id))
    if exchange is None:
        return ""
    kept = Inbox(place.folder).leave(
        Episode(
            session_id=session_id,
            ts=timestamp(),
            namespace=place.namespace,
            root=place.root,
            request=_storable(exchange.request),
            outcome=_storable(exchange.outcome),
            moment=captured,
        )
    )
    if kept != "kept":
        _log(place.home, "stop: the inbox is locked or cannot be written; the episode was spooled")
    return ""


def _exchange(event: Event, injected: Injected) -> Exchange | None:
    """Returns the session's last exchange without what it was told."""
    from subconscious_mcp.redaction import redact
    from subconscious_mcp.transcripts import last_exchange, told_exchange

    path, last_message = _text(event.get("transcript_path")), event.get("last_assistant_message")
    exchange = last_exchange(path or None, last_message, injected=injected, clean=redact)
    # Some clients have no transcript that can be read.
    return exchange or told_exchange(_text(event.get("prompt")), _text(last_message), injected, redact)


def _record(name: str, place: _Place, event: Event, told: str, typed: str = "") -> None:
    """Notes what a session is told, so that it is not captured again."""
    if told and place.capture:
        from subconscious_mcp.injected_files import record

        try:
            record(place.folder, _session_id(event), told, typed)
        except OSError as error:
            _note(name, error)


def session_start(event: Event) -> str:
    """Returns notes of the project's last sessions, and lets an engine start."""
    place = _Place(event)
    from subconscious_mcp.ambient import SHOWN_EPISODES, session_notes
    from subconscious_mcp.inbox import Inbox, count_memories

    source, session_id = _text(event.get("source")), _session_id(event)
    inbox = Inbox(place.folder)
    memories = count_memories(place.folder, place.namespace, place.root)
    episodes = inbox.count(place.namespace, place.root)
    shown = []
    if source != "resume":
        # A resumed conversation holds its notes already. Of a compacted one, its own part is in the summary.
        recent = inbox.recent(place.namespace, place.root, SHOWN_EPISODES + 1)
        shown = [episode for episode in recent if episode.session_id != session_id][:SHOWN_EPISODES]
    _warm(place)
    notes = session_notes(shown, memories, max(episodes, len(shown)))
    _record("session-start", place, event, notes)
    return notes


def _warm(place: _Place) -> None:
    """Starts an engine unless one seems to run; does not wait for it."""
    if not place.engine:
        return
    from subconscious_mcp import endpoint, pipe

    try:
        found = endpoint.read(place.folder)
        if found is None or not _lives(found.get("pid")):
            os.makedirs(place.folder, mode=0o700, exist_ok=True)
            pipe.spawn(place.folder, place.home)
    except OSError as error:
        _note("session-start", error)


def _lives(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    if os.name == "nt":
        # There a signal 0 would end the process.
        return True
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def user_prompt_submit(event: Event) -> str:
    """Returns what is remembered near a prompt, if a running engine says so in time."""
    deadline = time.monotonic() + PROMPT_SECONDS
    prompt = _text(event.get("prompt"))
    if len(prompt) < SHORTEST_PROMPT or prompt.startswith("/"):
        return ""
    place = _Place(event)
    answer = _ask(place, {"task": _storable(prompt[:4000])}, deadline)
    if answer is None:
        return ""
    from subconscious_mcp.ambient import prompt_notes

    notes = prompt_notes(
        [(near["task"], near["answer"], near["similarity"]) for near in answer["hits"]],
        [(near["task"], near["answer"], near["similarity"]) for near in answer["episodes"]],
    )
    _record("user-prompt-submit", place, event, notes, typed=prompt)
    return notes


def _ask(place: _Place, values: dict[str, Any], deadline: float) -> dict[str, Any] | None:
    """Asks a running engine, and only one; returns its answer, or None where it is not there in time."""
    from subconscious_mcp import endpoint, pipe

    found = endpoint.read(place.folder)
    if found is None:
        return None
    hello = {"hello": "verb", "verb": "near", "values": values, "namespace": None, **pipe.surroundings()}
    # What the event says of the session's folder; the process's own may be another.
    hello["env"].setdefault("CLAUDE_PROJECT_DIR", place.root or os.path.abspath(place.start))
    try:
        with endpoint.connect(found, max(0.01, deadline - time.monotonic())) as connection:
            connection.sendall(json.dumps({**hello, "token": found.get("token", "")}).encode() + b"\n")
            # First the greeting, then the answer. A byte that comes late is as good as none.
            text = b""
            while text.count(b"\n") < 2:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                part = connection.recv(65536)
                if not part:
                    return None
                text += part
    except OSError:
        return None
    result = json.loads(text.split(b"\n")[1]).get("result")
    return result["payload"] if isinstance(result, dict) else None


HOOKS: dict[str, Callable[[Event], str]] = {
    "stop": stop,
    "session-start": session_start,
    "user-prompt-submit": user_prompt_submit,
}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _session_id(event: Event) -> str:
    """Returns what tells a session: its id, else its transcript."""
    said = _storable(_text(event.get("session_id")))[:MOST_ID_CHARS]
    return said or _storable(_text(event.get("transcript_path")))[-MOST_ID_CHARS:]


def _storable(text: str) -> str:
    """Returns a text without what SQLite or UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _note(name: str, error: BaseException) -> None:
    """Logs what went wrong: its kind and, of our own words, the text. Others may hold what was captured."""
    own = isinstance(error, (ValueError, TypeError)) and not isinstance(error, json.JSONDecodeError)
    what = str(error)[:200] if own and str(error).startswith(("there is no hook", "the event is")) else ""
    if isinstance(error, OSError):
        what = error.strerror or ""
    elif isinstance(error, json.JSONDecodeError):
        what = "the event is no JSON"
    try:
        from subconscious_mcp import locate

        _log(locate.home_folder(os.environ), f"{name[:40]}: {type(error).__name__} {what}".rstrip())
    except BaseException:
        # Nowhere to say so.
        return


def _log(home: str, line: str) -> None:
    folder = os.path.join(home, "logs")
    path = os.path.join(folder, "hook.log")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    printable = "".join(c if c.isprintable() else "?" for c in line)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        file.write(f"{stamp} {os.getpid()} {printable}\n".encode("utf-8", "replace"))
        full = file.tell() > MOST_LOG_BYTES
    if full:
        os.replace(path, f"{path}.1")


def _mute() -> None:
    """Keeps the interpreter's own end from complaining about a reader that is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:
        return
