"""The commands around captured sessions and namespaces: episodes, capture, redact, namespace, wipe."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subconscious_mcp import injected_files, restoring
from subconscious_mcp.config import Resolved, resolve
from subconscious_mcp.engine_client import ask_engine, derived_namespace
from subconscious_mcp.errors import ConfigError, InvalidArgument, StorageError
from subconscious_mcp.inbox import DATABASE_FILE, SPOOL_FOLDER, Episode, Inbox, translated
from subconscious_mcp.json_text import addition, applied, decoded, is_blank, layout_of, member, replacement, scanned
from subconscious_mcp.namespaces import Derived
from subconscious_mcp.terminal import add_command, show

if TYPE_CHECKING:
    from subconscious_mcp.memory import Memory

COMMAND_WAIT_SECONDS = 5.0


def inbox_of(resolved: Resolved) -> Inbox:
    """Returns the inbox of the configured storage directory."""
    return Inbox(str(resolved.config.storage_dir), wait_seconds=COMMAND_WAIT_SECONDS)


def episode_payload(episode: Episode, *, whole: bool = False) -> dict[str, Any]:
    """Returns an episode for programs; its texts only where `whole` is asked for."""
    payload: dict[str, Any] = {
        "id": episode.number,
        "ts": episode.ts,
        "namespace": episode.namespace,
        "root": episode.root,
        "session_id": episode.session_id,
        "ingested": episode.ingested >= episode.revision,
    }
    texts = {"request": episode.request, "outcome": episode.outcome}
    return {**payload, **(texts if whole else {"request": _start_of(episode.request)})}


def _start_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"


def listed(resolved: Resolved, derived: Derived | None, limit: int) -> list[Episode]:
    """Returns the newest episodes of a project, or of all for None."""
    inbox = inbox_of(resolved)
    with translated(inbox):
        return inbox.listed(None, None, limit) if derived is None else inbox.listed(derived.name, derived.root, limit)


def found(resolved: Resolved, number: int) -> Episode | None:
    """Returns the episode of that number, or None."""
    inbox = inbox_of(resolved)
    with translated(inbox):
        return inbox.find(number)


def forget(resolved: Resolved, episodes: list[Episode]) -> int:
    """Deletes episodes from the inbox and from memory; returns how many there were."""
    sessions = [episode.session_id for episode in episodes]
    if not sessions:
        return 0
    served = ask_engine(resolved, "forget episodes", {"session_ids": sessions})
    if served is not None:
        return int(served["payload"]["forgotten"])
    return int(_in_this_process(resolved, lambda memory: memory.forget_episodes(sessions)))


def forget_all(resolved: Resolved, project: Derived | None) -> int:
    """Deletes all episodes of a project, or of all for None, wherever they are; returns how many there were."""
    values: dict[str, Any] = {
        "session_ids": [episode.session_id for episode in listed(resolved, project, 1 << 40)],
        "name": None if project is None else project.name,
        "root": None if project is None else project.root,
    }
    served = ask_engine(resolved, "wipe episodes", values)
    if served is not None:
        return int(served["payload"]["forgotten"])
    return int(_in_this_process(resolved, lambda memory: memory.wipe_episodes(**values)))


def set_capture(resolved: Resolved, wanted: bool) -> str:
    """Writes `capture_enabled` into config.json, keeping all else; returns what a person should know.

    Raises:
        ConfigError: config.json is no JSON object, or cannot be written.
    """
    path = resolved.config_file
    try:
        mark, text = decoded(path.read_bytes()) if path.exists() else (b"", "")
        changed = mark + _with_setting(text, "capture_enabled", wanted).encode()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = path.resolve()
        temporary = target.with_name(f"{target.name}.{os.getpid()}.new")
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(changed)
        # As it was, whatever the umask.
        temporary.chmod(mode)
        temporary.replace(target)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be changed: {error}.", 'Set "capture_enabled" in it by hand.') from None
    if "SUBCONSCIOUS_CAPTURE_ENABLED" in resolved.origins["capture_enabled"].source:
        return "the environment variable SUBCONSCIOUS_CAPTURE_ENABLED is set and counts before config.json"
    return ""


def _with_setting(text: str, key: str, value: Any) -> str:
    """Returns the text of config.json with one setting; every other byte stays."""
    if is_blank(text):
        return json.dumps({key: value}, indent=2) + "\n"
    root = scanned(text)
    layout = layout_of(text, root)
    known = member(root, key)
    edit = addition(text, root, key, value, layout) if known is None else replacement(text, known, value, layout)
    return applied(text, [edit])


def redact_stream() -> int:
    """Masks the secrets of standard input; returns how many it were."""
    from subconscious_mcp.redaction import redact_counted

    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    masked, count = redact_counted(text)
    sys.stdout.buffer.write(masked.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    return count


# --- everything


_DATA = (
    "memory.db*",
    "memory.damaged-*",
    f"{DATABASE_FILE}*",
    SPOOL_FOLDER,
    injected_files.FOLDER,
    "chroma.sqlite3*",
    "echo_log*.jsonl*",
    "engine.json*",
    f"{restoring.STAGE}*",
    restoring.PLAN,
    "stores",
)
_LOGS = ("server.log*", "hook.log*")


def kept_files(resolved: Resolved) -> list[Path]:
    """Returns every file and folder that holds what was stored: not settings, not models."""
    from subconscious_mcp.hnsw_files import segments
    from subconscious_mcp.restoring import kept_aside

    config = resolved.config
    found_paths = [path for pattern in _DATA for path in config.storage_dir.glob(pattern)]
    found_paths += segments(config.storage_dir)
    found_paths += kept_aside(config.storage_dir)
    found_paths += [path for pattern in _LOGS for path in (config.home / "logs").glob(pattern)]
    return sorted(set(found_paths))


def wipe(resolved: Resolved) -> int:
    """Deletes everything that was stored; the engine ends first. Returns how many files and folders it was.

    Raises:
        StorageBusy: A server in a process of its own holds the directory.
    """
    from subconscious_mcp import storage_lock

    _end_engine(resolved)
    if not resolved.config.storage_dir.is_dir():
        return _removed(kept_files(resolved))
    lock = storage_lock.StorageLock(resolved.config.storage_dir, "subconscious-mcp wipe")
    try:
        return _removed(kept_files(resolved))
    finally:
        lock.release()


def _removed(paths: list[Path]) -> int:
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{path} cannot be deleted: {error.strerror or error}.", "Delete it by hand.") from None
    return len(paths)


def confirmed(question: str, arguments: argparse.Namespace) -> bool:
    """Asks a person, who answers with `yes`.

    Raises:
        InvalidArgument: There is nobody to ask, and `--yes` was not given.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidArgument("This deletes; nobody is there to confirm it.", "Say --yes.")
    print(f"{question} Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


# --- namespaces


def namespace_rows(resolved: Resolved) -> list[dict[str, Any]]:
    """Returns every namespace with its folder and its numbers of entries."""
    served = ask_engine(resolved, "namespaces", {})
    if served is not None:
        return list(served["payload"]["namespaces"])
    return list(_in_this_process(resolved, lambda memory: memory.namespaces()))


def opened_by(resolved: Resolved, derived: Derived) -> str | None:
    """Returns the name of the namespace that a project or a name opens: it may have been renamed, or merged."""
    values = {"name": derived.name, "root": derived.root}
    served = ask_engine(resolved, "find namespace", values)
    name: str | None = (
        served["payload"]["name"]
        if served is not None
        else _in_this_process(resolved, lambda memory: memory.find_namespace(derived.name, derived.root))
    )
    return name


def rename(resolved: Resolved, name: str, new: str) -> None:
    """Gives a namespace another name."""
    _end_engine(resolved)
    _in_this_process(resolved, lambda memory: memory.rename_namespace(name, new))


def merge(resolved: Resolved, name: str, into: str) -> int:
    """Moves all entries of a namespace into another; returns how many it were."""
    _end_engine(resolved)
    moved: int = _in_this_process(resolved, lambda memory: memory.merge_namespaces(name, into))
    return moved


def _end_engine(resolved: Resolved) -> None:
    """Ends the engine: its sessions have to find their namespaces anew. Pipes start another with their next call."""
    from subconscious_mcp import storage_lock

    if ask_engine(resolved, "engine stop", {}) is not None:
        storage_lock.wait_until_free(resolved.config.storage_dir)


def _in_this_process(resolved: Resolved, work: Callable[[Memory], Any]) -> Any:
    from subconscious_mcp.opening import open_memory

    memory = open_memory(resolved.config, command="a command of subconscious-mcp")
    try:
        return work(memory)
    finally:
        memory.close()


# --- the grammar


def add_commands(commands: Any) -> None:
    """Adds these commands to the command line's."""
    _add_episodes(commands)
    capture = add_command(commands, "capture", "show, or set, whether hooks capture sessions", _capture)
    capture.add_argument("state", nargs="?", choices=("on", "off"))
    add_command(commands, "redact", "mask the secrets in standard input, as hooks do", lambda _: redact_stream() and 0)
    _add_namespace(commands)
    everything = add_command(commands, "wipe", "delete everything that was stored, and the logs", _wipe)
    everything.add_argument("--yes", action="store_true", help="do not ask")


def _add_episodes(commands: Any) -> None:
    episodes = commands.add_parser("episodes", help="list, show or delete captured sessions")
    episodes.set_defaults(run=lambda _: episodes.print_help() or 0)
    actions = episodes.add_subparsers(title="commands", metavar="COMMAND")
    listing = add_command(actions, "list", "list captured sessions, newest first", _list_episodes)
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="sessions to list")
    showing = add_command(actions, "show", "show a captured session as it was kept", _show_episode)
    forgetting = add_command(actions, "forget", "delete captured sessions", _forget_episodes)
    for parser in (showing, forgetting):
        parser.add_argument("ids", nargs="+" if parser is forgetting else 1, type=int, metavar="ID")
    wiping = add_command(actions, "wipe", "delete all captured sessions of the project", _wipe_episodes)
    wiping.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (listing, wiping):
        parser.add_argument("--all", action="store_true", help="of all projects")
        parser.add_argument("--namespace", metavar="NAME", help="of a namespace that was asked for by name")


def _add_namespace(commands: Any) -> None:
    namespace = commands.add_parser("namespace", help="list, show, rename or merge namespaces")
    namespace.set_defaults(run=lambda _: namespace.print_help() or 0)
    actions = namespace.add_subparsers(title="commands", metavar="COMMAND")
    add_command(actions, "list", "list the namespaces with their projects", _list_namespaces)
    showing = add_command(actions, "show", "show one namespace, the project's by default", _show_namespace)
    showing.add_argument("name", nargs="?")
    renaming = add_command(actions, "rename", "give a namespace another name", _rename_namespace)
    renaming.add_argument("name")
    renaming.add_argument("new")
    merging = add_command(actions, "merge", "move all entries of a namespace into another", _merge_namespaces)
    merging.add_argument("name")
    merging.add_argument("into")
    merging.add_argument("--yes", action="store_true", help="do not ask")


def _project(arguments: argparse.Namespace, resolved: Resolved) -> Derived | None:
    return None if arguments.all else derived_namespace(resolved, arguments.namespace)


def _list_episodes(arguments: argparse.Namespace) -> int:
    from subconscious_mcp.tables import print_rows

    resolved = resolve()
    episodes = listed(resolved, _project(arguments, resolved), arguments.limit)
    rows = [(str(e.number), e.ts[:16].replace("T", " "), e.namespace, _start_of(e.request)) for e in episodes]
    payload = [episode_payload(episode) for episode in episodes]
    show(arguments, payload, lambda out: print_rows(out, ("id", "when (UTC)", "namespace", "request"), rows))
    return 0


def _show_episode(arguments: argparse.Namespace) -> int:
    (number,) = arguments.ids
    episode = found(resolve(), number)
    if episode is None:
        raise InvalidArgument(f"There is no episode {number}.", "`subconscious-mcp episodes list --all` shows them.")
    text = f"{episode.ts}  {episode.namespace}  {episode.root or ''}\n\n{episode.request}\n\n{episode.outcome}"
    show(arguments, episode_payload(episode, whole=True), lambda out: out.print(text, markup=False, soft_wrap=True))
    return 0


def _forget_episodes(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    wanted = [episode for number in arguments.ids if (episode := found(resolved, number)) is not None]
    count = forget(resolved, wanted)
    _tell_forgotten(arguments, count)
    return 0 if count == len(set(arguments.ids)) else 1


def _wipe_episodes(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    project = _project(arguments, resolved)
    count = len(listed(resolved, project, 1 << 40))
    whose = "all projects" if project is None else project.name
    if not confirmed(f"Delete all captured sessions of {whose} ({count} in the inbox)?", arguments):
        return 1
    _tell_forgotten(arguments, forget_all(resolved, project))
    return 0


def _tell_forgotten(arguments: argparse.Namespace, count: int) -> None:
    show(arguments, {"forgotten": count}, lambda out: out.print(f"{count} forgotten"))


def _capture(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    note = ""
    if arguments.state is not None:
        note = set_capture(resolved, arguments.state == "on")
        resolved = resolve()
    enabled = resolved.config.capture_enabled
    text = f"capture is {'on' if enabled else 'off'} ({resolved.origins['capture_enabled'].source})"
    show(arguments, {"capture_enabled": enabled}, lambda out: out.print(text, markup=False))
    if note:
        print(f"subconscious-mcp: {note}", file=sys.stderr)
    return 0


def _list_namespaces(arguments: argparse.Namespace) -> int:
    from subconscious_mcp.tables import print_rows

    spaces = namespace_rows(resolve())
    rows = [(space["name"], space["root"] or "", _kinds(space["entries"])) for space in spaces]
    show(arguments, spaces, lambda out: print_rows(out, ("namespace", "project", "entries"), rows))
    return 0


def _kinds(entries: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(entries.items())) or "none"


def _show_namespace(arguments: argparse.Namespace) -> int:
    from subconscious_mcp.tables import print_rows

    resolved = resolve()
    derived = derived_namespace(resolved, arguments.name)
    name = opened_by(resolved, derived)
    mine = [space for space in namespace_rows(resolved) if space["name"] == name]
    space = {
        **(mine[0] if mine else {"name": derived.name, "root": derived.root, "entries": {}}),
        "why": derived.reason,
    }
    rows = [
        ("name", space["name"]),
        ("project", space["root"] or ""),
        ("why", space["why"]),
        ("entries", _kinds(space["entries"])),
    ]
    show(arguments, space, lambda out: print_rows(out, ("", ""), rows))
    return 0


def _rename_namespace(arguments: argparse.Namespace) -> int:
    rename(resolve(), arguments.name, arguments.new)
    payload = {"renamed": arguments.name, "name": arguments.new}
    show(arguments, payload, lambda out: out.print(f"{arguments.name} is now {arguments.new}", markup=False))
    return 0


def _merge_namespaces(arguments: argparse.Namespace) -> int:
    question = f"Move all entries of {arguments.name} into {arguments.into}? This cannot be undone."
    if not confirmed(question, arguments):
        return 1
    moved = merge(resolve(), arguments.name, arguments.into)
    text = f"{moved} entries moved to {arguments.into}, which serves both projects from now on"
    show(arguments, {"moved": moved, "into": arguments.into}, lambda out: out.print(text, markup=False))
    return 0


def _wipe(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    paths = kept_files(resolved)
    question = f"Delete everything in {resolved.config.storage_dir} and the logs?"
    if paths and not confirmed(question, arguments):
        return 1
    count = wipe(resolved)
    show(arguments, {"deleted": count}, lambda out: out.print(f"{count} files and folders deleted"))
    return 0
