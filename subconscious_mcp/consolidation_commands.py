"""The command consolidate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from subconscious_mcp.config import Config, resolve
from subconscious_mcp.engine_client import Done, ask_engine, carry_out, derived_namespace
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.namespaces import others_hint
from subconscious_mcp.terminal import add_command, counted, model_progress, show

if TYPE_CHECKING:
    from rich.console import Console

    from subconscious_mcp.render import Payload

EXIT_NOTHING = 1
_SHOWN = 20
"""Groups and pairs that are printed; `--json` has all."""


def add_commands(commands: Any) -> None:
    """Adds the command to the command line's."""
    parser = add_command(
        commands, "consolidate", "show near-duplicates and old notes, and let one entry stand for each group", _run
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--apply", action="store_true", help="carry it out; without it nothing changes")
    what.add_argument(
        "--undo", metavar="ID", help="restore what the entry with this id stands for; `last` for the whole last run"
    )
    parser.add_argument("--summaries", action="store_true", help="also let a model summarise groups of old notes")
    parser.add_argument(
        "--min-similarity", type=float, metavar="SHARE", help="similarity from which entries may be merged (0.95)"
    )
    parser.add_argument("--older-than-days", type=int, metavar="N", help="age of notes to summarise (90)")
    parser.add_argument("--namespace", metavar="NAME", help="another namespace than the project's")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.undo is not None:
        return _undo(arguments)
    values = {
        "apply": arguments.apply,
        "summaries": arguments.summaries,
        "min_similarity": arguments.min_similarity,
        "older_than_days": arguments.older_than_days,
    }
    done, hint = _carry_out(arguments, {name: value for name, value in values.items() if value is not None})
    payload = {"namespace": done.namespace, **done.payload, **({"hint": hint} if hint else {})}
    show(arguments, payload, lambda console: _print_done(console, payload))
    # Whoever asked for summaries and got none must not take that for done.
    missed = payload["applied"] and (payload["summaries"] or payload.get("model") == "none") and not _written(payload)
    return EXIT_NOTHING if missed else 0


def _carry_out(arguments: argparse.Namespace, values: dict[str, Any]) -> tuple[Done, str]:
    """Returns what was done, and where there was nothing to look at, which namespaces have entries."""
    resolved = resolve()
    if arguments.summaries:
        _remark_on_model(resolved.config)
    derived = derived_namespace(resolved, arguments.namespace)
    with _waiting():
        served = ask_engine(resolved, "consolidate", values, arguments.namespace)
    if served is not None:
        done = Done(**served)
        return done, _hint(done, lambda: (ask_engine(resolved, "namespaces", {}) or {"payload": {}})["payload"])
    from subconscious_mcp import consolidation, consolidation_payloads
    from subconscious_mcp.opening import open_memory

    with model_progress() as model, _bar("comparing") as progress:
        memory = open_memory(resolved.config, command="subconscious-mcp consolidate", progress=model)
        try:
            scope = memory.scope(resolved.config, derived.name, derived.root)
            made = consolidation.consolidate(memory, scope, **values, progress=progress)
            done = Done(consolidation_payloads.done_payload(made), scope.namespace.name, scope.threshold)
            return done, _hint(done, lambda: {"namespaces": memory.namespaces()})
        finally:
            memory.close()


def _hint(done: Done, namespaces: Callable[[], Payload]) -> str:
    if done.payload["looked_at"]:
        return ""
    # What was captured of conversations is not consolidated.
    return others_hint(
        {
            one["name"]: sum(count for kind, count in one["entries"].items() if kind != "episode")
            for one in namespaces().get("namespaces", [])
            if one["name"] != done.namespace
        }
    )


def _remark_on_model(config: Config) -> None:
    if config.summary_url is not None and config.summary_model is None:
        sys.stderr.write(
            "subconscious-mcp: summary_url is set and summary_model is not: the endpoint is asked for no model by name,"
            " which many refuse. Set SUBCONSCIOUS_SUMMARY_MODEL.\n"
        )


@contextmanager
def _waiting() -> Iterator[None]:
    """Shows on a terminal that the engine is at work."""
    from rich.console import Console

    shown = Console(stderr=True)
    if not shown.is_terminal:
        yield
        return
    with shown.status("consolidating"):
        yield


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on standard error, on a terminal only."""
    from rich import progress
    from rich.console import Console

    shown = Console(stderr=True)
    with progress.Progress(console=shown, transient=True, disable=not shown.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _undo(arguments: argparse.Namespace) -> int:
    if arguments.summaries or arguments.min_similarity is not None or arguments.older_than_days is not None:
        raise InvalidArgument("--undo goes with no other option but --namespace and --json.")
    done = carry_out(arguments, "undo consolidation", {"what": arguments.undo})
    payload, namespace = done.payload, done.namespace
    show(arguments, payload, lambda console: console.print(_undone(payload, namespace), markup=False, soft_wrap=True))
    return 0 if payload["undone"] else EXIT_NOTHING


def _undone(payload: Payload, namespace: str) -> str:
    if payload["left"]:
        return (
            f"{_entries(len(payload['restored']))} restored; left, because other entries took their place since:"
            f" {', '.join(payload['left'])}"
        )
    if not payload["undone"]:
        return f"there is nothing of that name to undo in namespace {namespace}"
    return f"{_entries(len(payload['restored']))} restored"


def _entries(number: int) -> str:
    return counted(number, "entry", "entries")


def _written(payload: Payload) -> int:
    return sum(summary["id"] is not None for summary in payload["summaries"])


# --- tables


def _print_done(console: Console, payload: Payload) -> None:
    from rich.text import Text

    from subconscious_mcp.tables import one_line

    for group in payload["groups"][:_SHOWN]:
        survivor = group["survivor"]
        console.print(Text.assemble(("keep  ", "bold green"), one_line(survivor["text"])), soft_wrap=True)
        console.print(Text(f"      {group['kind']}  {survivor['id']}", style="dim"), soft_wrap=True)
        for member in group["members"][:_SHOWN]:
            console.print(Text.assemble(("same  ", "green"), one_line(member["text"])), soft_wrap=True)
            console.print(Text(f"      {member['id']}  {member['why']}", style="dim"), soft_wrap=True)
        if "made_anew_with_tags" in group:
            tags = ", ".join(group["made_anew_with_tags"])
            console.print(Text(f"      made anew with the tags of all: {tags}", style="dim"), soft_wrap=True)
    for apart in payload["not_merged"][:_SHOWN]:
        values = ", ".join(f"{one['one'] or '-'} / {one['other'] or '-'}" for one in apart["contrasts"])
        console.print(Text.assemble(("near  ", "yellow"), one_line(apart["one"]["text"])), soft_wrap=True)
        console.print(Text.assemble("      ", one_line(apart["other"]["text"])), soft_wrap=True)
        why = f"      similarity {apart['similarity']:.4f}, not merged: {values or 'too much differs'}"
        console.print(Text(why, style="dim"), soft_wrap=True)
    for proposal in payload.get("proposals", []):
        head = f"{proposal['notes']} old notes, {proposal['shared']}, {proposal['characters']:,} characters"
        console.print(Text.assemble(("old   ", "cyan"), head), soft_wrap=True)
        for member in proposal["members"]:
            console.print(Text.assemble("      ", one_line(member["text"])), soft_wrap=True)
    for line in _totals(payload):
        console.print(line, markup=False, soft_wrap=True)


def _totals(payload: Payload) -> Iterator[str]:
    duplicates, groups = (
        counted(payload["duplicates_found"], "near-duplicate"),
        counted(payload["groups_found"], "group"),
    )
    yield f"{_entries(payload['looked_at'])} of namespace {payload['namespace']} compared: {duplicates} in {groups}"
    if "hint" in payload:
        yield payload["hint"]
    if "proposals" in payload:
        yield f"{counted(payload['old_groups_found'], 'group')} of old notes, model: {payload['model']}"
        if "note" in payload:
            yield payload["note"]
    if not payload["applied"]:
        if payload["groups_found"] or payload.get("proposals"):
            yield "nothing was changed; --apply carries it out, and --undo last takes it back"
        return
    # Each once: a server that is down is down for all of them.
    for refused in dict.fromkeys(summary["refused"] for summary in payload["summaries"] if "refused" in summary):
        yield f"no summary: {refused}"
    merged, written = counted(payload["merged"], "group"), counted(_written(payload), "summary", "summaries")
    yield f"{merged} merged, {written} written, {_entries(payload['archived'])} archived"
    if payload["archived"]:
        yield "subconscious-mcp consolidate --undo last takes it back"
