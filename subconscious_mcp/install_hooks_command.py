"""The commands `install-hooks` and `uninstall-hooks`: their arguments, and what they say."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subconscious_mcp.errors import ConfigError, StorageError, SubconsciousError, meaning
from subconscious_mcp.terminal import add_command, console

if TYPE_CHECKING:
    from subconscious_mcp.hook_clients import Client
    from subconscious_mcp.install_hooks import Plan, Trial, Wish


def add_commands(commands: Any) -> None:
    """Adds both commands to the command line's."""
    install = _command(commands, "install-hooks", "let a client capture sessions and tell the next one", _install)
    install.add_argument(
        "--recall-on-prompt", action="store_true", help="also look up every prompt, and add what is near it"
    )
    _command(commands, "uninstall-hooks", "remove our hooks from a client's settings", _uninstall)


def _command(commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser = add_command(commands, name, about, run)
    parser.add_argument("--client", default="claude", metavar="NAME", help="claude, codex, cursor, gemini or vscode")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--settings", metavar="PATH", help="another file than the client's own")
    where.add_argument("--project", action="store_true", help="the file of the project in this folder")
    parser.add_argument("--dry-run", action="store_true", help="show the change and write nothing")
    return parser


def _install(arguments: argparse.Namespace) -> int:
    """Installs the hooks; returns the exit code.

    Raises:
        SubconsciousError: They were not installed, and the file is as it was.
    """
    from subconscious_mcp import install_hooks

    client, path = _target(arguments)
    wanted = install_hooks.wish(client, prompts=arguments.recall_on_prompt, environ=os.environ)
    trials: Sequence[Trial] = ()
    backup = None
    try:
        plan = install_hooks.plan_installation(wanted, path)
        if not arguments.dry_run:
            trials = install_hooks.tried(client, plan.wanted, os.environ)
            _refuse_failed(trials)
            backup = install_hooks.carry_out(plan, make_folder=arguments.settings is None)
    except (ConfigError, StorageError) as error:
        return _refused(arguments, error, path, wanted)
    if _as_json(arguments):
        _print_json(_told(plan, arguments, backup, trials))
    elif arguments.dry_run:
        _say_diff(plan)
    else:
        _say_installed(plan, backup, trials, arguments)
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    """Removes the hooks; returns the exit code.

    Raises:
        SubconsciousError: They were not removed, and the file is as it was.
    """
    from subconscious_mcp import install_hooks

    client, path = _target(arguments)
    plan = install_hooks.plan_removal(client, path)
    backup = None if arguments.dry_run else install_hooks.carry_out(plan, make_folder=False)
    if _as_json(arguments):
        _print_json(_told(plan, arguments, backup, ()))
    elif arguments.dry_run:
        _say_diff(plan)
    elif not plan.changes:
        _say(f"There are no hooks of subconscious-mcp in {path}.")
    else:
        _say(f"The hooks are removed from {path}.")
        _say_backup(backup)
        _say("What was captured stays: subconscious-mcp episodes list")
    return 0


def _target(arguments: argparse.Namespace) -> tuple[Client, Path]:
    from subconscious_mcp import hook_clients
    from subconscious_mcp.config import project_dir, user_home

    client = hook_clients.client_named(arguments.client)
    project = project_dir() if arguments.project else None
    return client, hook_clients.settings_file(client, os.environ, user_home(), project, arguments.settings)


def _refuse_failed(trials: Sequence[Trial]) -> None:
    for trial in trials:
        if trial.problem:
            # Of no subclass: to write by hand what does not work would be no way out.
            raise SubconsciousError(
                f"The {trial.event} hook was tried and does not work: {trial.problem}. Nothing was written.",
                "Install subconscious-mcp again and run this again.",
            )


# --- what is said


def _refused(arguments: argparse.Namespace, error: SubconsciousError, path: Path, wanted: Wish) -> int:
    """Says what to write by hand where the file cannot be changed; returns the exit code."""
    from subconscious_mcp.client_settings import lines_to_paste

    hooks = wanted.entries(prompts=wanted.prompts)
    if _as_json(arguments):
        _print_json({"error": error.message, "hint": error.hint, "file": str(path), "hooks": hooks})
    else:
        _say(f"To install the hooks by hand, put this into {path}:")
        _say(lines_to_paste(hooks, wanted.client.shape))
        sys.stdout.flush()
    sys.stderr.write(f"subconscious-mcp: {error}\n")
    return meaning(error).exit_code


def _say_installed(plan: Plan, backup: Path | None, trials: Sequence[Trial], arguments: argparse.Namespace) -> None:
    client, path = plan.client, plan.file.path
    names = ", ".join(plan.wanted)
    if plan.changes:
        _say(f"Installed for {client.title}: {names}, in {path}")
        _say_backup(backup)
    else:
        _say(f"Already installed for {client.title}, nothing was changed: {names}, in {path}")
    times = ", ".join(f"{trial.event} {trial.seconds * 1000:.0f} ms" for trial in trials)
    _say(f"Tried on a made-up session, and they work: {times}")
    if arguments.project and client.shared_project:
        _say(f"{path.name} is shared with the project, and the path of this Python is not: keep it out of git.")
    for note in plan.notes:
        _say(note)
    _say(f"Next: {client.next_step}")
    if client.name == "claude":
        _say("If the server is not registered yet: claude mcp add subconscious-mcp -- subconscious-mcp")
    _say(f"To undo it: {_undo(arguments)}")


def _undo(arguments: argparse.Namespace) -> str:
    words = ["subconscious-mcp", "uninstall-hooks"]
    words += [] if arguments.client == "claude" else ["--client", arguments.client]
    words += ["--project"] if arguments.project else []
    words += ["--settings", arguments.settings] if arguments.settings else []
    return shlex.join(words)


def _say_diff(plan: Plan) -> None:
    if not plan.changes:
        _say(f"There is nothing to change in {plan.file.path}")
        return
    shown = console()
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in plan.diff().split("\n"):
        shown.print(line, style=styles.get(line[:1]), markup=False, soft_wrap=True)
    for note in plan.notes:
        _say(note)
    _say("Nothing was written.")


def _told(plan: Plan, arguments: argparse.Namespace, backup: Path | None, trials: Sequence[Trial]) -> Mapping[str, Any]:
    return {
        "client": plan.client.name,
        "file": str(plan.file.path),
        "changed": plan.changes and not arguments.dry_run,
        "diff": plan.diff(),
        "backup": None if backup is None else str(backup),
        "hooks": plan.wanted,
        "tried": {trial.event: round(trial.seconds, 3) for trial in trials},
        "notes": list(plan.notes),
    }


def _say_backup(backup: Path | None) -> None:
    if backup is not None:
        _say(f"The file as it was: {backup}")


def _say(text: str) -> None:
    # soft_wrap: a path or a line to paste is never broken.
    console().print(text, markup=False, soft_wrap=True)


def _as_json(arguments: argparse.Namespace) -> bool:
    return bool(getattr(arguments, "json", False))


def _print_json(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
