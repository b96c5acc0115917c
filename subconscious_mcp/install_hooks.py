"""Installs hooks in a client's settings, and removes them: which command, which entries, and do they work.

Nothing is written before the hooks were run: on a made-up session, in folders of their own, as the
client would run them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from subconscious_mcp import client_settings, locate, settings_file
from subconscious_mcp.errors import ConfigError, InvalidArgument
from subconscious_mcp.hook_clients import PROMPT, SECONDS, Client, entries
from subconscious_mcp.json_text import CannotKeep, Pairs
from subconscious_mcp.settings_file import SettingsFile

FIRST_WITH_EXEC_FORM = (2, 1, 139)
"""Of Claude Code; an earlier one ignores the arguments and starts Python alone."""

_START_SECONDS = 30
_SAMPLE = "subconscious-mcp tries its hooks: which port does the staging server use?"
_SAMPLE_ANSWER = "The staging server uses port 8443."


@dataclass(frozen=True, slots=True)
class Plan:
    """A change of a settings file.

    Attributes:
        wanted: The hooks that will be there; empty for a removal.
        after: The new content; None where there is no file and none is needed.
        notes: What the user should know.
    """

    client: Client
    file: SettingsFile
    wanted: Mapping[str, Mapping[str, Any]]
    after: bytes | None
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return self.after != self.file.content

    def diff(self) -> str:
        """Returns the change for people, empty where there is none."""
        old, new = (_lines(content) for content in (self.file.content, self.after))
        before = str(self.file.path) if self.file.content is not None else os.devnull
        return "\n".join(difflib.unified_diff(old, new, before, str(self.file.path), lineterm=""))


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be installed.

    Attributes:
        prompts: Also the hook that adds notes to a prompt.
        command: What starts subconscious-mcp.
        shell: As one line for a shell, also where the client could do without.
    """

    client: Client
    prompts: bool
    command: Sequence[str]
    shell: bool
    notes: tuple[str, ...] = field(default=())

    def entries(self, *, prompts: bool) -> dict[str, dict[str, Any]]:
        events = [event for event in self.client.events if event != PROMPT or prompts]
        return entries(self.client, self.command, events, shell=self.shell)


def wish(client: Client, *, prompts: bool, environ: Mapping[str, str]) -> Wish:
    """Finds out how the client is to start the hooks.

    Raises:
        InvalidArgument: The client has no hook that adds to a prompt.
        ConfigError: There is no command that works from everywhere.
    """
    if prompts and PROMPT not in client.events:
        raise InvalidArgument(f"{client.title} has no hook that adds to a prompt.", "Leave --recall-on-prompt out.")
    command = own_command(environ)
    shell = client.exec_form and _is_older(client, environ)
    notes = []
    if re.search(r"[/\\](?:archive|builds|environments)-v\d+[/\\]", command[0]):
        notes.append(f"{command[0]} lies in a cache that may be cleared; install subconscious-mcp and run this again.")
    home = locate.home_folder(environ)
    if not locate.capture_wanted(environ, home, locate.written_settings(home)):
        notes.append("Capture is off, and the hooks will capture nothing: subconscious-mcp capture on.")
    return Wish(client, prompts, command, shell, tuple(notes))


def plan_installation(wanted: Wish, path: Path) -> Plan:
    """Works out what to write; writes nothing. A hook that was opted in before stays.

    Raises:
        ConfigError: The file cannot be edited without losing something.
        StorageError: It cannot be read, or may not be replaced.
    """
    file = settings_file.opened(path)
    content = file.content or b""
    with_prompt = wanted.prompts
    try:
        there = client_settings.events_of_ours(content)
        with_prompt = with_prompt or wanted.client.events.get(PROMPT) in there
        hooks = wanted.entries(prompts=with_prompt)
        after = client_settings.with_hooks(content, hooks, wanted.client.shape)
        notes = (*wanted.notes, *_obstacles(wanted.client, after))
    except CannotKeep as reason:
        raise _refusal(path, reason, "Add the hooks by hand, or mend the file and run this again.") from None
    plan = Plan(wanted.client, file, hooks, after, notes)
    if plan.changes:
        settings_file.refuse_unkeepable(file)
    return plan


def plan_removal(client: Client, path: Path) -> Plan:
    """Works out a file without our hooks; writes nothing.

    Raises:
        ConfigError: The file cannot be edited without losing something.
        StorageError: It cannot be read, or may not be replaced.
    """
    file = settings_file.opened(path)
    try:
        after = None if file.content is None else client_settings.without_hooks(file.content)
    except CannotKeep as reason:
        hint = "Remove the hooks that run `subconscious_mcp hook` by hand, or mend the file and run this again."
        raise _refusal(path, reason, hint) from None
    plan = Plan(client, file, {}, after)
    if plan.changes:
        settings_file.refuse_unkeepable(file)
    return plan


def carry_out(plan: Plan, *, make_folder: bool) -> Path | None:
    """Writes what was planned; returns the backup, where there is one.

    Raises:
        StorageError: It cannot be written, or was changed since it was planned. It is as it was.
    """
    if plan.after is None or not plan.changes:
        return None
    return settings_file.replace(plan.file, plan.after, make_folder=make_folder)


def _refusal(path: Path, reason: CannotKeep, hint: str) -> ConfigError:
    return ConfigError(f"{path} is left as it is: {reason}.", hint)


def _obstacles(client: Client, content: bytes) -> list[str]:
    """Tells what in the settings keeps hooks from running."""
    values = client_settings.top_values(content)
    told = []
    if client.name == "claude" and values.get("disableAllHooks") is True:
        told.append("disableAllHooks is true in this file: no hook runs.")
    switches = values.get("hooksConfig")
    if client.name == "gemini" and isinstance(switches, Pairs) and dict(switches).get("enabled") is False:
        told.append("hooksConfig.enabled is false in this file: no hook runs.")
    if re.search(rb"\b(?:NaN|Infinity)\b", content):
        told.append("NaN or Infinity in this file is no JSON: a strict client may refuse the whole file.")
    return told


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8-sig", "replace")
    lines = re.split(r"\r\n|\r|\n", text)
    printable = ["".join(c if c.isprintable() or c == "\t" else "�" for c in line) for line in lines]
    return printable[:-1] if printable[-1] == "" else printable


# --- the command


def own_command(environ: Mapping[str, str]) -> list[str]:
    """Returns what starts subconscious-mcp from any folder and with any PATH.

    This Python, by its absolute path and not by what that is a link to, since a virtual environment
    is its link. In isolated mode: a session's folder may hold a json.py. What was installed for the user alone
    cannot be imported so, and has a console script.

    Raises:
        ConfigError: Neither works.
    """
    python = os.path.abspath(sys.executable) if sys.executable else ""  # noqa: PTH100
    isolated = [python, "-I", "-m", "subconscious_mcp"]
    if python and _starts(isolated, environ):
        return isolated
    name = "subconscious-mcp.exe" if sys.platform == "win32" else "subconscious-mcp"
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    for folder in (sysconfig.get_path("scripts"), user):
        script = Path(folder) / name
        if script.is_file() and _starts([str(script)], environ):
            return [str(script)]
    raise ConfigError(
        f"{python or 'This Python'} starts subconscious-mcp only from this folder or with this environment.",
        "Install it (pip install .) and run this again.",
    )


def _starts(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    # As a client would: from elsewhere, without what a shell may have set for Python.
    plain = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [*command, "--version"],
            env=plain,
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and done.stdout.startswith(b"subconscious-mcp ")


def _is_older(client: Client, environ: Mapping[str, str]) -> bool:
    """Returns whether the client says that it is too old for commands with arguments."""
    program = shutil.which(client.name, path=environ.get("PATH", ""))
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_START_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    found = re.match(rb"\s*(\d+)\.(\d+)\.(\d+)", done.stdout)
    return found is not None and tuple(map(int, found.groups())) < FIRST_WITH_EXEC_FORM


# --- the trial


class Trial(NamedTuple):
    """How a hook ran: what was wrong, or nothing, and how long it took."""

    event: str
    problem: str
    seconds: float


def tried(client: Client, hooks: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> list[Trial]:
    """Runs the hooks as the client would: a session ends, and the next one begins.

    In a folder of its own that is removed: nothing of the user's is read or written.
    """
    with tempfile.TemporaryDirectory(prefix="subconscious-mcp-", ignore_cleanup_errors=True) as name:
        folder = Path(os.path.realpath(name))
        project = folder / "a project"
        project.mkdir()
        transcript = folder / "session.jsonl"
        transcript.write_text("".join(json.dumps(line) + "\n" for line in _sample_session(project)), encoding="utf-8")
        kept = {name: value for name, value in environ.items() if not name.startswith(locate.ENV_PREFIX)}
        home = folder / "home"
        own = {
            **kept,
            "SUBCONSCIOUS_HOME": str(home),
            # A trial starts no engine.
            "SUBCONSCIOUS_ENGINE": "off",
            "CLAUDE_PROJECT_DIR": str(project),
        }
        trials = []
        for event in ("stop", "session-start", PROMPT):
            entry = hooks.get(client.events.get(event, ""))
            if entry is not None:
                sample = _sample_event(client.events[event], event, project, transcript)
                problem, seconds = _run(event, entry, sample, own, project)
                trials.append(Trial(event, problem or _missing(event, home), seconds))
        return trials


def _sample_session(project: Path) -> list[dict[str, Any]]:
    common = {"sessionId": "trial-1", "cwd": str(project), "isSidechain": False, "version": "2.1.139"}
    stamp = "2026-01-01T00:00:0{}.000Z"
    return [
        {
            **common,
            "type": "user",
            "uuid": "1",
            "parentUuid": None,
            "timestamp": stamp.format(0),
            "message": {"role": "user", "content": _SAMPLE},
        },
        {
            **common,
            "type": "assistant",
            "uuid": "2",
            "parentUuid": "1",
            "timestamp": stamp.format(1),
            "message": {"role": "assistant", "content": [{"type": "text", "text": _SAMPLE_ANSWER}]},
        },
    ]


def _sample_event(name: str, event: str, project: Path, transcript: Path) -> dict[str, Any]:
    first = event == "stop"
    own: dict[str, dict[str, Any]] = {
        "stop": {"stop_hook_active": False, "last_assistant_message": _SAMPLE_ANSWER},
        "session-start": {"source": "startup"},
        PROMPT: {"prompt": _SAMPLE},
    }
    return {
        "session_id": "trial-1" if first else "trial-2",
        "transcript_path": str(transcript if first else transcript.with_name("none.jsonl")),
        "cwd": str(project),
        "hook_event_name": name,
        **own[event],
    }


def _run(
    event: str, entry: Mapping[str, Any], sample: Mapping[str, Any], environ: Mapping[str, str], project: Path
) -> tuple[str, float]:
    """Runs one hook; returns what was wrong, or nothing, and the seconds it took."""
    command: str | list[str] = entry["command"]
    if "args" in entry:
        command = [entry["command"], *entry["args"]]
    elif sys.platform != "win32":
        command = ["/bin/sh", "-c", entry["command"]]
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            input=json.dumps(sample).encode(),
            env=dict(environ),
            cwd=project,
            capture_output=True,
            timeout=SECONDS[event],
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {SECONDS[event]} seconds", float(SECONDS[event])
    except OSError as error:
        return f"it does not start: {error.strerror or error}", 0.0
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"it ends with exit code {done.returncode}{': ' + last[0][:200] if last else ''}", seconds
    if event == "session-start" and _SAMPLE.partition(":")[0].encode() not in done.stdout:
        return "it does not tell of the session before", seconds
    return "", seconds


def _missing(event: str, home: Path) -> str:
    """Tells where the hook of a session's end left nothing behind: it ends well whatever happens."""
    if event != "stop" or (home / "data" / "context.db").exists():
        return ""
    try:
        last = (home / "logs" / "hook.log").read_text(encoding="utf-8").strip().splitlines()[-1]
    except (OSError, IndexError):
        last = ""
    return f"it captures nothing{': ' + last if last else ''}"
