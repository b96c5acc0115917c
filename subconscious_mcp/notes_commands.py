"""The commands around notes: note, seed-demo."""

from __future__ import annotations

import argparse
import datetime
import sys
from typing import TYPE_CHECKING, Any

from subconscious_mcp.engine_client import Done, carry_out
from subconscious_mcp.pipe import choose_toolset
from subconscious_mcp.terminal import add_command, show

if TYPE_CHECKING:
    from rich.console import Console

    from subconscious_mcp.render import Payload

EXIT_NOTHING = 1


def add_commands(commands: Any) -> None:
    """Adds the commands to the command line's."""
    note = commands.add_parser("note", help="store, find, list, replace or forget notes")
    note.set_defaults(run=lambda _: note.print_help() or 0)
    actions = note.add_subparsers(title="commands", metavar="COMMAND")
    add = add_command(actions, "add", "store a note", _add)
    add.add_argument("content", help="the text; - reads it from standard input")
    add.add_argument("--fact", action="store_true", help="it holds until another takes its place")
    add.add_argument("--tag", action="append", default=[], metavar="TAG", help="a label; may be repeated")
    add.add_argument("--source", default="", help="where it comes from")
    search = add_command(actions, "search", "find notes by meaning and by words", _search)
    search.add_argument("query")
    search.add_argument("--neighbours", action="store_true", help="also show the notes before and after each")
    search.add_argument("--prefer-recent", action="store_true", help="let newer notes have a lead")
    search.add_argument("--explain", action="store_true", help="show what each note's place is made of")
    listed = add_command(actions, "list", "list the newest notes", _list)
    listed.add_argument("--archived", action="store_true", help="those that were superseded or merged instead")
    for parser, limit in ((search, 5), (listed, 10)):
        parser.add_argument("--limit", type=int, default=limit, metavar="N")
        parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="only notes with this label")
        parser.add_argument("--since", metavar="DATE", help="only notes from this date or time on")
        parser.add_argument("--until", metavar="DATE", help="only notes up to this date or time")
        parser.add_argument("--source", metavar="SOURCE", help="only notes from this source")
        parser.add_argument("--kind", choices=("note", "fact"), help="only notes of this kind")
    supersede = add_command(actions, "supersede", "store a note in the place of another, which is kept", _supersede)
    supersede.add_argument("entry_id", metavar="ID")
    supersede.add_argument("content", help="what holds now; - reads it from standard input")
    showing = add_command(actions, "show", "show a note, also one that was superseded", _show)
    restore = add_command(actions, "restore", "let a superseded note be found again", _restore)
    forget = add_command(actions, "forget", "delete a note and its text", _forget)
    for parser in (showing, restore, forget):
        parser.add_argument("entry_id", metavar="ID")
    for parser in (add, search, listed, supersede, showing, restore, forget):
        parser.add_argument("--namespace", metavar="NAME", help="another namespace than the personal notes'")
    seed = add_command(commands, "seed-demo", "store five sample notes and ask two questions", _seed)
    seed.add_argument("--namespace", metavar="NAME", help="another namespace than the personal notes'")


def _carry_out(arguments: argparse.Namespace, verb: str, values: dict[str, Any]) -> Done:
    # The settings of the notes' toolset: a person's namespace and not the project's.
    choose_toolset("notes", unless_chosen=True)
    return carry_out(arguments, verb, values)


def _text(given: str) -> str:
    return sys.stdin.read() if given == "-" else given


def _add(arguments: argparse.Namespace) -> int:
    values = {
        "content": _text(arguments.content),
        "tags": arguments.tag,
        "source": arguments.source,
        "kind": "fact" if arguments.fact else "note",
    }
    payload = _carry_out(arguments, "note add", values).payload
    show(arguments, payload, lambda console: _print_stored(console, payload))
    return 0


def _filters(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "limit": arguments.limit,
        "tags": arguments.tag,
        "since": arguments.since,
        "until": arguments.until,
        "source": arguments.source,
        "kind": arguments.kind,
    }
    return {name: value for name, value in given.items() if value not in (None, [])}


def _search(arguments: argparse.Namespace) -> int:
    values = {
        "query": arguments.query,
        "explain": arguments.explain,
        "neighbours": arguments.neighbours,
        "prefer_recent": arguments.prefer_recent,
        **_filters(arguments),
    }
    found = _carry_out(arguments, "note search", values).payload["notes"]
    show(arguments, found, lambda console: _print_notes(console, found))
    return 0 if found else EXIT_NOTHING


def _list(arguments: argparse.Namespace) -> int:
    values = {"archived": arguments.archived, **_filters(arguments)}
    found = _carry_out(arguments, "note list", values).payload["notes"]
    show(arguments, found, lambda console: _print_notes(console, found, nothing="there are no such notes"))
    return 0


def _supersede(arguments: argparse.Namespace) -> int:
    values = {"entry_id": arguments.entry_id, "content": _text(arguments.content)}
    done = _carry_out(arguments, "note supersede", values)
    if done.payload["id"] is None:
        return _unknown(arguments, done)
    show(arguments, done.payload, lambda console: _print_stored(console, done.payload))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    done = _carry_out(arguments, "note show", {"entry_id": arguments.entry_id})
    if done.payload["note"] is None:
        return _unknown(arguments, done)
    show(arguments, done.payload["note"], lambda console: _print_note(console, done.payload["note"]))
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    done = _carry_out(arguments, "note restore", {"entry_id": arguments.entry_id})
    if not done.payload["restored"]:
        return _unknown(arguments, done)
    show(arguments, done.payload, lambda console: console.print("restored"))
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    done = _carry_out(arguments, "note forget", {"memory_id": arguments.entry_id})
    if not done.payload["deleted"]:
        return _unknown(arguments, done)
    show(arguments, done.payload, lambda console: console.print("forgotten"))
    return 0


def _unknown(arguments: argparse.Namespace, done: Done) -> int:
    text = f"there is no such note in namespace {done.namespace}"
    show(arguments, done.payload, lambda console: console.print(text, markup=False))
    return EXIT_NOTHING


def _print_stored(console: Console, payload: Payload) -> None:
    from rich.text import Text

    console.print(Text.assemble(("stored", "bold green"), f"  {payload['id']}"))
    if "duplicate_of" in payload:
        console.print(Text.assemble(("the same as", "yellow"), f"  {payload['duplicate_of']}"))
    for other in payload.get("contradicts", []):
        values = ", ".join(f"{one['new'] or '-'} / {one['stored'] or '-'}" for one in other["contrasts"])
        said = f"  {other['id']}  {_line(other['content'])}  ({values})"
        console.print(Text.assemble(("contradicts", "yellow"), said), soft_wrap=True)


def _print_note(console: Console, note: Payload) -> None:
    from rich.text import Text

    from subconscious_mcp.tables import printable

    console.print(Text(printable(note["content"])), soft_wrap=True)
    console.print(Text("  ".join(_facts(note)), style="dim"), soft_wrap=True)


def _facts(note: Payload) -> list[str]:
    # The time where one is, as people read it.
    when = datetime.datetime.fromisoformat(note["created_at"]).astimezone()
    facts = [note["id"], when.strftime("%Y-%m-%d %H:%M"), *note["tags"]]
    if note["source"]:
        facts.append(f"from {note['source']}")
    if "superseded_by" in note:
        facts.append(f"superseded by {note['superseded_by']}")
    return facts


def _print_notes(console: Console, found: list[Payload], nothing: str = "nothing relevant is known") -> None:
    from rich.text import Text

    if not found:
        console.print(nothing)
    for note in found:
        score = f"{note['score']:.4f}  " if "score" in note else ""
        console.print(Text.assemble((score, "bold"), _line(note["content"])), soft_wrap=True)
        console.print(Text("        " + "  ".join(_facts(note)), style="dim"), soft_wrap=True)
        for beside in ("before", "after"):
            if beside in note:
                console.print(
                    Text(f"        {beside:6}  {_line(note[beside]['content'])}", style="dim"), soft_wrap=True
                )
        if "parts" in note:
            console.print(Text("        " + "  ".join(f"{name} {value}" for name, value in note["parts"].items())))


def _line(text: str) -> str:
    from subconscious_mcp.tables import one_line

    return one_line(text).plain


def _seed(arguments: argparse.Namespace) -> int:
    payload = _carry_out(arguments, "seed demo", {}).payload
    show(arguments, payload, lambda console: _print_seeded(console, payload))
    return 0


def _print_seeded(console: Console, payload: Payload) -> None:
    for stored in payload["stored"]:
        console.print(f"{'stored' if stored['new'] else 'already there'} {stored['id']}", markup=False)
    console.print(f"Total memories: {payload['total']}")
    for question in payload["questions"]:
        console.print(f"\n{question['query']}", style="bold", markup=False)
        _print_notes(console, question["found"])
