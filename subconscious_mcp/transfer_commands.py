"""The commands that carry memories from one place to another: export, import, backup, restore."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from subconscious_mcp.config import Resolved, resolve
from subconscious_mcp.engine_client import ask_engine, derived_namespace
from subconscious_mcp.errors import Closing, InvalidArgument, StorageBusy, StorageError, StorageFull
from subconscious_mcp.terminal import add_command, counted, model_progress, show

if TYPE_CHECKING:
    from rich.console import Console

    from subconscious_mcp.importing import Call
    from subconscious_mcp.namespaces import Derived
    from subconscious_mcp.render import Payload
    from subconscious_mcp.transfer_format import Item

EXIT_INCOMPLETE = 1
"""Something was skipped, or the file was cut off: whoever deletes the original behind `&&` still has it."""
_FORMATS = ("auto", "subconscious", "chroma", "mcp-graph", "mcp-memory-service")
_CONFLICTS = ("skip", "replace", "new-id")
_ROWS = 20


def add_commands(commands: Any) -> None:
    """Adds the commands to the command line's."""
    export = add_command(commands, "export", "write entries as JSON lines", _export)
    export.add_argument("file", nargs="?", default="-", metavar="FILE", help="- is standard output, the default")
    which = export.add_mutually_exclusive_group()
    which.add_argument("--namespace", metavar="NAME", help="another namespace than the project's")
    which.add_argument("--all", action="store_true", help="all namespaces")
    export.add_argument("--vectors", action="store_true", help="with the vectors, so that an import embeds nothing")
    export.add_argument("--kind", action="append", default=[], metavar="KIND", help="only entries of this kind")
    export.add_argument("--force", action="store_true", help="write over FILE")
    importing = add_command(commands, "import", "store entries from an export or from another memory", _import)
    importing.add_argument("file", type=Path, metavar="FILE", help="a file, or the folder of a Chroma database")
    importing.add_argument("--format", choices=_FORMATS, default="auto", help="what FILE is (auto)")
    importing.add_argument("--namespace", metavar="NAME", help="store all entries in this one")
    importing.add_argument("--dry-run", action="store_true", help="store nothing, tell what would be")
    importing.add_argument(
        "--on-conflict",
        choices=_CONFLICTS,
        default="skip",
        help="an id that is there with other content: leave it, replace it, or store under another id (skip)",
    )
    backing_up = add_command(commands, "backup", "copy all data, also while an engine works", _backup)
    backing_up.add_argument("folder", type=Path, metavar="DIR", help="the folder in which backup-<time> is made")
    backing_up.add_argument("--keep", type=int, metavar="N", help="remove older backups in DIR until N are left")
    restoring = add_command(commands, "restore", "bring the data of a backup back", _restore)
    restoring.add_argument("folder", type=Path, metavar="BACKUP", help="a folder backup-<time>")
    restoring.add_argument("--force", action="store_true", help="move data that are there aside")


# --- how a command reaches the store


@contextlib.contextmanager
def _reached(resolved: Resolved, command: str) -> Iterator[Call]:
    """Yields what carries out verbs: the running engine, which has the data open already, or this process."""
    if ask_engine(resolved, "engine status", {}) is not None:

        def ask(verb: str, values: dict[str, Any]) -> Payload:
            served = ask_engine(resolved, verb, values)
            if served is None:
                raise Closing("The engine ended during the command.", "Run it again; what is done stays done.")
            payload: Payload = served["payload"]
            return payload

        yield ask
        return
    from subconscious_mcp import verbs
    from subconscious_mcp.opening import open_memory

    with model_progress() as progress:
        memory = open_memory(resolved.config, command=f"subconscious-mcp {command}", progress=progress)
        try:
            yield lambda verb, values: verbs.OF_ALL_NAMESPACES[verb](memory, values)
        finally:
            memory.close()


@contextlib.contextmanager
def _bar(what: str, unit: str) -> Iterator[Callable[[float, int], None]]:
    """Shows a bar on a terminal's standard error, and nothing elsewhere: told a share, 0..1, and a count."""
    from rich.console import Console

    shown = Console(stderr=True, highlight=False)
    if not shown.is_terminal:
        yield lambda share, count: None
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[count]:,} " + unit, markup=False),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task(what, total=1.0, count=0)
        yield lambda share, count: bar.update(task, completed=share, count=count)


# --- export


def _export(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    derived = None if arguments.all else derived_namespace(resolved, arguments.namespace)
    values = {
        "name": derived.name if derived else None,
        "root": derived.root if derived else None,
        "kinds": list(dict.fromkeys(arguments.kind)),
        "vectors": arguments.vectors,
    }
    if arguments.file == "-":
        with _reached(resolved, "export") as call:
            first, done = _write_lines(call, values, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        # Standard output is the export; and who reads both streams into one file wants no more than is needed.
        if sys.stderr.isatty() or first.get("hint"):
            sys.stderr.write(f"subconscious-mcp: {_exported(done, first, arguments.all)}\n")
        return 0
    path = Path(arguments.file)
    with new_file(path, force=arguments.force) as file, _reached(resolved, "export") as call:
        first, done = _write_lines(call, values, file)
    size = path.stat().st_size
    payload = {
        "file": str(path.absolute()),
        "entries": done,
        "bytes": size,
        "namespaces": first.get("namespaces", []),
        **({"hint": first["hint"]} if first.get("hint") else {}),
    }
    text = f"{counted(size, 'byte')} in {path}: {_exported(done, first, arguments.all)}"
    show(arguments, payload, lambda console: console.print(text, markup=False, soft_wrap=True))
    return 0


def _exported(done: int, first: Payload, is_all: bool) -> str:
    """Tells what was exported. `first` is an export's first page: that of an older engine names no namespace."""
    names = first.get("namespaces", [])
    where = f" of {counted(len(names), 'namespace')}" if is_all else f" of namespace {names[0]}" if names else ""
    return f"{counted(done, 'entry', 'entries')}{where}. {first.get('hint', '')}".rstrip(". ")


def _write_lines(call: Call, values: dict[str, Any], out: IO[bytes]) -> tuple[Payload, int]:
    """Writes an export; returns its first page, and how many entries there were."""
    first = page = call("export", values)
    total, done = page["total"], 0
    with _bar("exporting", "entries") as tell:
        while True:
            out.writelines(line.encode("utf-8") + b"\n" for line in page["lines"])
            if page["cursor"] is None:
                return first, done
            page = call("export page", {"cursor": page["cursor"]})
            done = page["done"]
            tell(done / max(1, total), done)


@contextlib.contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """Yields a file that stands at `path`, whole and with mode 0600, when the block ends well, and else nowhere.

    Raises:
        InvalidArgument: Something is there already.
        StorageError: It cannot be written.
    """
    if path.is_dir():
        raise InvalidArgument(f"{path} is a folder.", "Name a file in it.")
    if not force and os.path.lexists(path):
        raise InvalidArgument(f"{path} is there already.", "Name another file, or give --force.")
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise _unwritable(path, error) from None
        raise


def _sync(folder: Path) -> None:
    from subconscious_mcp.model_files import sync_folder

    sync_folder(folder)


def _unwritable(path: Path, error: OSError) -> StorageError:
    if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
        return StorageFull(f"There is no room for {path}.", "Free some space, or name a file elsewhere.")
    return StorageError(f"{path} cannot be written: {error.strerror or error}.", "Name a file in a folder of yours.")


# --- import


def _import(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import foreign_formats
    from subconscious_mcp.importing import Import

    resolved = resolve()
    which = foreign_formats.detected(arguments.file) if arguments.format == "auto" else arguments.format
    derived = derived_namespace(resolved, arguments.namespace)
    # Where the file names namespaces, as ours do, they stay what they are.
    own = which in ("subconscious", "chroma") and arguments.namespace is None
    with _reached(resolved, "import") as call, _bar("importing", "entries") as tell:
        importing = Import(
            call,
            target=None if own else (derived.name, derived.root),
            on_conflict=arguments.on_conflict,
            dry_run=arguments.dry_run,
            progress=tell,
        )
        items = foreign_formats.read(arguments.file, which)
        if which == "chroma" and own:
            items = _at_home(items, derived)
        report = importing.run(items, ends=which == "subconscious")
    payload = {"format": which, "dry_run": arguments.dry_run, **report.payload()}
    show(arguments, payload, lambda console: _print_report(console, payload))
    return 0 if report.is_whole else EXIT_INCOMPLETE


def _at_home(items: Iterator[Item], derived: Derived) -> Iterator[Item]:
    """Lets what bears the name of the project that the command runs in go into that project's namespace.

    The published server knew its namespaces by their names only; others are opened by their names, and `namespace
    merge` brings them to their projects.
    """
    for item in items:
        if item.payload is not None and item.payload.get("namespace") == derived.name:
            item.payload["root"] = derived.root
        yield item


def _print_report(console: Console, report: Payload) -> None:
    from subconscious_mcp.tables import one_line, print_rows

    stored = "would store" if report["dry_run"] else "stored"
    rows = [("format", report["format"]), (stored, f"{report['stored']:,}"), *_where(report["namespaces"])]
    for name in ("replaced", "renamed", "already_there", "embedded", "feedback"):
        if report[name]:
            rows.append((name.replace("_", " "), f"{report[name]:,}"))
    count = sum(report["reasons"].values())
    rows.append(("skipped", f"{count:,}"))
    print_rows(console, ("", ""), rows)
    if report["skipped"]:
        shown = report["skipped"][:_ROWS]
        print_rows(
            console,
            ("where", "id", "why it was skipped"),
            [(one_line(s["place"]).plain, one_line(s["entry_id"]).plain, one_line(s["reason"]).plain) for s in shown],
        )
    if count > _ROWS:
        reasons = [(f"{number:,}", reason) for reason, number in report["reasons"].items()]
        print_rows(console, ("", f"why, of all {count:,} (--json lists them)"), reasons)
    if "hint" in report:
        console.print(report["hint"], markup=False, soft_wrap=True)
    if "cut_off" in report:
        console.print(report["cut_off"], markup=False, soft_wrap=True)


def _where(namespaces: dict[str, int]) -> list[tuple[str, str]]:
    """Returns the row that says in which namespaces the entries are."""
    if len(namespaces) < 2:
        return [("namespace", name) for name in namespaces]
    shown = [f"{name} ({count:,})" for name, count in list(namespaces.items())[:_ROWS]]
    more = f" and {len(namespaces) - _ROWS} more" if len(namespaces) > _ROWS else ""
    return [("namespaces", ", ".join(shown) + more)]


# --- backup and restore


def _backup(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import backup

    if arguments.keep is not None and arguments.keep < 1:
        raise InvalidArgument("--keep takes a whole number from 1 on.")
    with _bar("copying", "files") as tell:
        made, removed = backup.back_up(resolve(), arguments.folder, keep=arguments.keep, progress=tell)
    payload = {
        "backup": str(made.folder.absolute()),
        "entries": made.entries,
        "bytes": made.size,
        "files": [file.name for file in made.files],
        "removed": [str(path) for path in removed],
    }
    text = (
        f"{counted(made.entries, 'entry', 'entries')}, {made.size:,} bytes in {made.folder}:"
        " every file was read again and is whole.\n"
        "The vector index is not in it: it is built anew from memory.db."
    )
    if removed:
        text += f"\nRemoved: {', '.join(path.name for path in removed)}"
    show(arguments, payload, lambda console: console.print(text, markup=False, soft_wrap=True))
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import backup

    resolved = resolve()
    engine = ask_engine(resolved, "engine status", {})
    if engine is not None:
        raise StorageBusy(
            f"The engine (process {engine['pid']}) has the storage directory open.",
            "Close the clients, run `subconscious-mcp engine stop`, then this again.",
        )
    with _bar("copying", "files") as tell:
        done = backup.restore(resolved, arguments.folder, force=arguments.force, progress=tell)
    settings = {
        "restored": f"The settings were restored to {resolved.config_file}.",
        "kept": f"{resolved.config_file} stays as it is; the one of the backup differs.",
    }.get(done.settings, "")
    payload = {
        "restored": str(done.backup.folder.absolute()),
        "created": done.backup.created,
        "entries": done.backup.entries,
        "storage_dir": str(resolved.config.storage_dir),
        "moved_aside": None if done.aside is None else str(done.aside),
        "settings": done.settings,
    }
    lines = [
        f"Restored to {resolved.config.storage_dir}: {counted(done.backup.entries, 'entry', 'entries')} of"
        f" {done.backup.created}.",
        "The vector index is built anew at the next start.",
        settings,
    ]
    if done.aside is not None:
        lines.append(
            f"What was there before is in {done.aside}. Delete that folder when you need it no more: what you forget"
            " from now on stays in it."
        )
    text = "\n".join(line for line in lines if line)
    show(arguments, payload, lambda console: console.print(text, markup=False, soft_wrap=True))
    return 0
