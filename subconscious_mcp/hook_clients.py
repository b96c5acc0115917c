"""The clients that can run hooks: their settings files, their formats, their words for events.

What is written for Claude Code follows its reference of hooks and issues that tell how it behaves.
The other formats follow their documentation (Codex and Gemini CLI also their sources) and were not
tried with the programs themselves.
"""

from __future__ import annotations

import ntpath
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subconscious_mcp import locate
from subconscious_mcp.client_settings import Shape
from subconscious_mcp.errors import ConfigError, InvalidArgument

# What a hook may take before the client ends it, in seconds. Ours take well under a second; the rest is
# for machines that are busy or asleep, and a prompt waits for its hook.
SECONDS = {"session-start": 10, "stop": 10, "user-prompt-submit": 5}
PROMPT = "user-prompt-submit"


@dataclass(frozen=True, slots=True)
class Client:
    """A program that runs hooks.

    Attributes:
        title: Its name, for people.
        variable: The environment variable that moves its folder, or an empty text.
        user_file: Its file of hooks, below the home folder.
        project_file: The same below a project's folder.
        shared_project: The project's file is meant to be shared with other people.
        shape: How it writes hooks.
        events: Our name of an event to the client's.
        milliseconds: It counts time-outs in milliseconds.
        exec_form: It starts a command with a list of arguments, without a shell.
        typed: An entry says that it is of type "command".
        named: An entry has a name, by which its user disables it.
        next_step: What its user does after hooks were installed.
    """

    name: str
    title: str
    variable: str
    user_file: str
    project_file: str
    shape: Shape
    events: Mapping[str, str]
    next_step: str
    shared_project: bool = True
    milliseconds: bool = False
    exec_form: bool = False
    typed: bool = True
    named: bool = False


_EVENTS = {"session-start": "SessionStart", "stop": "Stop", PROMPT: "UserPromptSubmit"}

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude",
            title="Claude Code",
            variable="CLAUDE_CONFIG_DIR",
            user_file=".claude/settings.json",
            # Not settings.json: that one is checked in, and the path of this machine's Python is nobody else's.
            project_file=".claude/settings.local.json",
            shared_project=False,
            shape=Shape(nested=True),
            events=_EVENTS,
            exec_form=True,
            next_step="Start a new session of Claude Code; /hooks shows them.",
        ),
        Client(
            name="codex",
            title="Codex",
            variable="CODEX_HOME",
            user_file=".codex/hooks.json",
            project_file=".codex/hooks.json",
            shape=Shape(nested=True),
            events=_EVENTS,
            next_step="Start Codex and trust the hooks in /hooks: before that they do not run."
            " Versions before May 2026 need `codex_hooks = true` below [features] in config.toml.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            variable="",
            user_file=".cursor/hooks.json",
            project_file=".cursor/hooks.json",
            shape=Shape(nested=False, version=1),
            typed=False,
            # No prompt: Cursor's hook before a prompt can refuse it and cannot add to it.
            events={"session-start": "sessionStart", "stop": "stop"},
            next_step="Start Cursor again; Settings, Hooks shows them.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            variable="",
            user_file=".gemini/settings.json",
            project_file=".gemini/settings.json",
            shape=Shape(nested=True),
            events={"session-start": "SessionStart", "stop": "AfterAgent", PROMPT: "BeforeAgent"},
            milliseconds=True,
            named=True,
            next_step="Start Gemini CLI again, 0.26 or newer; /hooks panel shows them.",
        ),
        Client(
            name="vscode",
            title="VS Code",
            variable="",
            user_file=".copilot/hooks/subconscious-mcp.json",
            project_file=".github/hooks/subconscious-mcp.json",
            # The version is for Copilot's command line, which reads the same folder.
            shape=Shape(nested=False, version=1),
            events={"session-start": "SessionStart", "stop": "Stop"},
            next_step="Start a new chat; the output channel GitHub Copilot Chat Hooks shows what ran."
            " VS Code also reads Claude Code's files: one of the two is enough.",
        ),
    )
}


def client_named(name: str) -> Client:
    """Returns a client.

    Raises:
        InvalidArgument: There is no such client.
    """
    if name not in CLIENTS:
        raise InvalidArgument(f"--client takes one of {', '.join(CLIENTS)}.")
    return CLIENTS[name]


def settings_file(
    client: Client, environ: Mapping[str, str], home: Path | None, project: Path | None, given: str | None
) -> Path:
    """Returns the absolute path of a client's file of hooks.

    Args:
        environ: The environment; only the client's own variable is read.
        home: The user's home folder.
        project: A project's folder, for its file instead of the user's.
        given: A path that the user named instead.

    Raises:
        ConfigError: There is no home folder.
        InvalidArgument: The path that was given is blank.
    """
    moved = environ.get(client.variable, "").strip() if client.variable else ""
    try:
        if given is not None:
            if not given.strip():
                raise InvalidArgument("--settings takes the path of a settings file.")
            return Path(locate.absolute(given))
        if project is not None:
            return Path(locate.absolute(str(project))) / client.project_file
        if moved:
            # The last part only: the variable stands for the folder that is ~/.claude otherwise.
            return Path(locate.absolute(moved)) / Path(client.user_file).name
    except OSError:
        raise ConfigError("The home folder is not known.", "Name the file: --settings PATH.") from None
    if home is None:
        raise ConfigError("There is no home folder.", "Name the file: --settings PATH.")
    return home / client.user_file


def entries(
    client: Client,
    command: Sequence[str],
    events: Sequence[str],
    *,
    shell: bool,
    windows: bool = sys.platform == "win32",
) -> dict[str, dict[str, Any]]:
    """Returns the hooks to write: the client's event to the entry.

    Args:
        command: What starts subconscious-mcp.
        events: Our names of events.
        shell: One line for a shell, also where the client could do without.
    """
    written: dict[str, dict[str, Any]] = {}
    for event in events:
        entry: dict[str, Any] = {"type": "command"} if client.typed else {}
        words = [*command, *hook_words(client, event)]
        if client.exec_form and not shell:
            entry.update(command=words[0], args=words[1:])
        else:
            entry["command"] = shell_line(words, windows=windows, slashes=client.exec_form)
        if client.named:
            entry["name"] = f"subconscious-mcp-{event}"
        entry["timeout"] = SECONDS[event] * (1000 if client.milliseconds else 1)
        written[client.events[event]] = entry
    return written


def hook_words(client: Client, event: str) -> list[str]:
    """Returns the arguments that run a hook; other clients than Claude Code are named, for what they read."""
    return ["hook", event, *([] if client.name == "claude" else ["--client", client.name])]


def shell_line(words: Sequence[str], *, windows: bool, slashes: bool, short: Callable[[str], str] | None = None) -> str:
    """Returns words as one line for the client's shell.

    On Windows that is cmd, PowerShell or Git Bash, depending on the client, and they agree on no way
    of quoting: cmd takes the outer quotes off, PowerShell prints a line that begins with a quote. A
    path without blanks needs none, and Windows has a short one for most.

    Args:
        slashes: The shell may be Git Bash, which reads a backslash as an escape.
        short: Returns the short path of a Windows path; for tests.
    """
    if not windows:
        return shlex.join(words)
    program = words[0]
    if not _is_plain(program):
        found = (short or _short_path)(program)
        program = found if _is_plain(found) else program
    if slashes:
        program = program.replace("\\", "/")
    return subprocess.list2cmdline([program, *words[1:]])


def _is_plain(path: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_:.~\\/+-]+", path) is not None


def _short_path(path: str) -> str:
    """Returns the path in which every name has eight letters and three, where the volume has such names."""
    if sys.platform != "win32":
        return path
    import ctypes

    buffer = ctypes.create_unicode_buffer(32_768)
    length = ctypes.windll.kernel32.GetShortPathNameW(ntpath.normpath(path), buffer, len(buffer))
    return buffer.value if length else path
