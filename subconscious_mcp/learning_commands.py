"""The commands around feedback: feedback, explain, tune."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subconscious_mcp.engine_client import carry_out
from subconscious_mcp.errors import InvalidArgument, StorageError
from subconscious_mcp.terminal import add_command, show

if TYPE_CHECKING:
    from rich.console import Console

    from subconscious_mcp.render import Payload

EXIT_UNKNOWN = 1
_BAR = 24
"""Characters of a bar for a share of 1."""


def add_commands(commands: Any) -> None:
    """Adds the commands to the command line's."""
    feedback = add_command(commands, "feedback", "say whether an answer was right for a query", _feedback)
    feedback.add_argument("entry_id", metavar="ENTRY_ID", nargs="?")
    feedback.add_argument("query", metavar="QUERY", nargs="?", help="the task as it was looked up")
    verdict = feedback.add_mutually_exclusive_group()
    verdict.add_argument("--correct", dest="correct", action="store_const", const=True, help="it was right")
    verdict.add_argument("--wrong", dest="correct", action="store_const", const=False, help="it was wrong")
    verdict.add_argument("--export", action="store_true", help="print all feedback as JSON lines")
    explain = add_command(commands, "explain", "tell why an entry is served or not", _explain)
    explain.add_argument("entry_id", metavar="ENTRY_ID")
    explain.add_argument("--query", metavar="TEXT", help="what a recall of this would decide")
    explain.add_argument("--threshold", type=float, help="least similarity of a hit, 0 to 1")
    tune = add_command(commands, "tune", "show hit rate against expected error, and advise on the threshold", _tune)
    tune.add_argument(
        "--max-error", type=float, default=0.05, metavar="SHARE", help="share of wrong answers that is borne (0.05)"
    )
    tune.add_argument("--plot", type=Path, metavar="FILE.svg", help="also draw it into this file")
    for parser in (feedback, explain, tune):
        parser.add_argument("--namespace", metavar="NAME", help="another namespace than the project's")


# --- feedback


def _feedback(arguments: argparse.Namespace) -> int:
    if arguments.export:
        if arguments.entry_id is not None:
            raise InvalidArgument("--export takes no entry and no query: it prints all feedback of the namespace.")
        for observation in carry_out(arguments, "export feedback", {}).payload["observations"]:
            print(json.dumps(observation, ensure_ascii=False))
        return 0
    if arguments.entry_id is None or arguments.query is None or arguments.correct is None:
        raise InvalidArgument(
            "feedback takes the id of an entry, the query, and --correct or --wrong.",
            'For example: subconscious-mcp feedback ID "the task as you asked for it" --wrong',
        )
    values = {"entry_id": arguments.entry_id, "query": arguments.query, "correct": arguments.correct}
    done = carry_out(arguments, "feedback", values)
    payload, namespace = done.payload, done.namespace
    show(arguments, payload, lambda console: console.print(_noted(payload, namespace), markup=False))
    return 0 if payload["noted"] else EXIT_UNKNOWN


def _noted(payload: Payload, namespace: str) -> str:
    if not payload["noted"]:
        return _unknown(namespace)
    needs = ""
    if "learned_threshold" in payload:
        needed = payload["learned_threshold"]
        needs = f", served from {needed:.4f} on" if needed <= 1 else ", not served any more"
    verdict = "right" if payload["correct"] else "wrong"
    kept_back = ", which the check keeps back" if payload["kept_back"] else ""
    return (
        f"noted: {verdict} at similarity {payload['similarity']:.4f}{kept_back}"
        f" ({payload['right']} right, {payload['wrong']} wrong{needs})"
    )


def _unknown(namespace: str) -> str:
    return f"there is no such entry in namespace {namespace}"


# --- explain


def _explain(arguments: argparse.Namespace) -> int:
    values = {"entry_id": arguments.entry_id, "query": arguments.query, "threshold": arguments.threshold}
    done = carry_out(arguments, "explain", values)
    payload, namespace = done.payload, done.namespace
    if not payload["found"]:
        show(arguments, payload, lambda console: console.print(_unknown(namespace), markup=False))
        return EXIT_UNKNOWN
    show(arguments, payload, lambda console: _print_explanation(console, payload))
    return 0


def _print_explanation(console: Console, found: Payload) -> None:
    from subconscious_mcp.tables import one_line, print_rows, when

    said = found["feedback"]
    other = f", {said['not_counted']} not counted" if said["not_counted"] else ""
    expires = "never" if found["expires_at"] is None else when(found["expires_at"])
    rows = [
        ("task", one_line(found["task_text"]).plain),
        ("kind", found["kind"]),
        ("stored", when(found["stored_at"])),
        ("expires", expires if found["live"] else f"{expires} (its time is over)"),
        ("feedback", f"{said['right']} right, {said['wrong']} wrong{other}"),
        ("needed similarity", f"{found['needed']:.4f}" if found["needed"] <= 1 else "not served at any"),
        ("why", found["why"]),
    ]
    if "query" in found:
        rows += _decision_rows(found["query"])
    print_rows(console, ("", ""), rows)
    if said["observations"]:
        print_rows(
            console,
            ("similarity", "answer", "said", ""),
            [
                (
                    f"{one['similarity']:.4f}",
                    "right" if one["correct"] else "wrong",
                    when(one["ts"]),
                    "kept back by the check" if one["kept_back"] else "",
                )
                for one in said["observations"]
            ],
        )


def _decision_rows(decision: Payload) -> list[tuple[str, str]]:
    from subconscious_mcp.tables import one_line

    similarity = "none yet" if decision["similarity"] is None else f"{decision['similarity']:.4f}"
    trust = f"{decision['confidence']:.2f}{', blocked' if decision['blocked'] else ''}"
    rows = [
        ("query", one_line(decision["text"]).plain),
        ("similarity", similarity),
        ("confidence", trust if decision["checked"] else f"{trust} (the check is off)"),
    ]
    for contrast in decision["contrasts"]:
        values = f"{contrast['query'] or '-'} / {contrast['stored'] or '-'}"
        rows.append(("differs", one_line(f"{contrast['kind']}  {values}").plain))
    rows.append(("recall", decision["verdict"]))
    if decision["hit"] and decision["verdict"] != "served":
        rows.append(("served instead", decision["served_entry_id"]))
    return rows


# --- tune


def _tune(arguments: argparse.Namespace) -> int:
    done = carry_out(arguments, "tune", {"max_error": arguments.max_error})
    if arguments.plot is not None:
        from subconscious_mcp.tuning_plot import svg

        try:
            arguments.plot.write_text(svg(done.payload, done.namespace), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{arguments.plot} cannot be written: {error.strerror or error}.") from None
    show(arguments, done.payload, lambda console: _print_advice(console, done.payload))
    return 0


def _print_advice(console: Console, advice: Payload) -> None:
    from subconscious_mcp.tables import print_rows

    rows = []
    for row in advice["thresholds"]:
        error = row["expected_error"]
        marks = [
            word
            for word, which in (("in use", "threshold"), ("recommended", "recommended"))
            if row["threshold"] == advice[which]
        ]
        rows.append(
            (
                f"{row['threshold']:.2f}",
                str(row["hits"]),
                f"{row['hit_rate']:.1%}",
                _bar(row["hit_rate"], "#"),
                "-" if error is None else f"{error:.1%}",
                "" if error is None else _bar(error, "x"),
                "" if row["interval"] is None else "{:.1%} to {:.1%}".format(*row["interval"]),
                f"{row['source']} ({row['basis']})" if row["source"] else "too little",
                ", ".join(marks),
            )
        )
    columns = ("threshold", "hits", "of all", "", "wrong", "", "95 %", "from", "")
    print_rows(console, columns, rows)
    skipped = f", {advice['skipped_lines']} damaged lines skipped" if advice["skipped_lines"] else ""
    console.print(f"{advice['recalls']} recalls, {advice['observations']} observations by feedback{skipped}")
    console.print(advice["advice"], markup=False, soft_wrap=True)


def _bar(share: float, mark: str) -> str:
    # What is there at all is seen.
    return mark * max(round(share * _BAR), 1 if share > 0 else 0)
