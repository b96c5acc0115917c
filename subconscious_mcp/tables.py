"""From results to tables and lines for people. Texts of users are never read as markup."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from subconscious_mcp.render import Payload


def print_recall(console: Console, found: Payload, threshold: float) -> None:
    """Prints a recall: the answer on a hit, on a miss how near the nearest entry was."""
    if found["hit"]:
        verdict = f"  similarity {found['similarity']:.4f}{_confidence(found)}  {when(found['stored_at'])}"
        console.print(Text.assemble(("hit", "bold green"), verdict))
        console.print(Text.assemble(("task    ", "dim"), one_line(found["task_text"])))
        if found["tags"]:
            console.print(Text.assemble(("tags    ", "dim"), ", ".join(found["tags"])))
        console.print(Text.assemble(("entry   ", "dim"), found["entry_id"]))
        console.print(Text(found["answer"]))
        return
    if "blocked" in found:
        blocked = found["blocked"]
        how_near = f"  similarity {found['similarity']:.4f}{_confidence(found)}: another task"
        console.print(Text.assemble(("blocked", "bold yellow"), how_near))
        console.print(Text.assemble(("task    ", "dim"), one_line(blocked["task_text"])))
        for contrast in blocked["contrasts"]:
            values = _values([(contrast["query"], contrast["stored"])])
            console.print(Text.assemble(("differs ", "dim"), contrast["kind"], "  ", values))
        if "rival" in blocked:
            rival = blocked["rival"]
            told = f"{rival['similarity']:.4f}  {one_line(rival['task_text'])}"
            console.print(Text.assemble(("rival   ", "dim"), told, ("  has another answer", "dim")))
        console.print(Text.assemble(("entry   ", "dim"), blocked["entry_id"]))
        return
    needed = f"needed {threshold:.2f}"
    if "learned_threshold" in found:
        needed = f"needed {found['learned_threshold']:.4f} by feedback"
        if found["learned_threshold"] > 1:
            needed = "its answer was wrong for its own task"
    how_near = f"  nearest similarity {found['similarity']:.4f}, {needed}"
    console.print(Text.assemble(("miss", "bold yellow"), how_near))


def _confidence(found: Payload) -> str:
    return f", confidence {found['confidence']:.2f}" if "confidence" in found else ""


def print_remembered(console: Console, done: Payload) -> None:
    """Prints what a remember did, and what it warns of."""
    if done["stored"]:
        console.print(Text.assemble(("stored", "bold green"), f"  {done['entry_id']}"))
    else:
        console.print(Text.assemble(("not stored", "bold yellow"), "  a similar task is there already"))
    if "warning" in done:
        near = f"similarity {done['nearest_similarity']:.4f}  {done['nearest_entry_id']}  "
        warning = done["warning"].replace("_", " ") + "  "
        console.print(Text.assemble((warning, "yellow"), near, one_line(done["nearest_task"])))
        if "nearest_contrasts" in done:
            apart = _values([(c["query"], c["stored"]) for c in done["nearest_contrasts"]])
            console.print(Text.assemble(("differs         ", "yellow"), apart))


def _values(pairs: Sequence[tuple[str, str]]) -> Text:
    return one_line(", ".join(f"{one or '-'} / {other or '-'}" for one, other in pairs))


def print_echoes(console: Console, echoes: Payload) -> None:
    """Prints the nearest entries as a table."""
    table = plain_table("similarity", "kind", "stored", "task", "differs", "tags", "entry")
    for near in echoes["echoes"]:
        table.add_row(
            f"{near['similarity']:.4f}",
            near["kind"],
            when(near["stored_at"]),
            one_line(near["task_text"]),
            _values([(c["query"], c["stored"]) for c in near["contrasts"]]),
            Text(", ".join(near["tags"])),
            near["entry_id"],
        )
    console.print(table)
    console.print(f"{len(echoes['echoes'])} of {echoes['count']} entries")


def print_drift(console: Console, found: Payload) -> None:
    """Prints entries that answer too broad a family of queries."""
    if found["candidates"]:
        table = plain_table("spread", "from", "to", "hits", "phrasings", "differing", "task", "entry")
        for c in found["candidates"]:
            table.add_row(
                f"{c['similarity_spread']:.4f}",
                f"{c['similarity_min']:.4f}",
                f"{c['similarity_max']:.4f}",
                str(c["hits"]),
                str(c["distinct_queries"]),
                _values([(told["one"], told["other"]) for told in c["contrasts"]]),
                one_line(c["task_text"]) if c["still_stored"] else "(no longer stored)",
                c["entry_id"],
            )
        console.print(table)
    skipped = f", {found['skipped_lines']} damaged lines skipped" if "skipped_lines" in found else ""
    console.print(
        f"{len(found['candidates'])} candidates among {found['entries_with_hits']} entries with hits,"
        f" {found['analyzed_recalls']} recalls{skipped}"
    )


def print_stats(console: Console, stats: Payload, namespace: str) -> None:
    """Prints statistics."""
    table = plain_table("", "")
    table.add_row("namespace", Text(namespace))
    table.add_row("entries", str(stats["total_entries"]))
    table.add_row("hit rate, last 100 recalls", f"{stats['hit_rate_last_100']:.2f}")
    table.add_row("last hit", when(stats["last_hit_at"]) if stats["last_hit_at"] else "never")
    if "being_embedded_again" in stats:
        table.add_row("being embedded again", str(stats["being_embedded_again"]))
    console.print(table)


def plain_table(*columns: str) -> Table:
    """Returns a table without lines, whose cells are never read as markup."""
    table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_rows(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows of texts as a plain table."""
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def printable(text: str) -> str:
    """Returns a text without control characters, line breaks apart: what a terminal must not obey."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text.expandtabs())


def one_line(text: str, most: int = 120) -> Text:
    """Returns a text's first words on one line, without control characters."""
    line = " ".join(text[: most * 4].split())
    line = "".join(c if c.isprintable() else "�" for c in line)
    return Text(line if len(line) <= most else line[: most - 1] + "…")


def when(seconds: float) -> str:
    """Returns a time for people, in the local zone."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
