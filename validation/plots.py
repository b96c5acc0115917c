"""Draws the results, and writes the table of figures into the README of this folder.

    python validation/plots.py            # validation/plots/*.svg from validation/results/*.json
    python validation/plots.py --readme   # only the table between the markers of validation/README.md

A result that is not there is left out. The plots are the same, byte for byte, for the same
results and the same matplotlib (extra `benchmark`); the table needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PLOTS = HERE / "plots"
README = HERE / "README.md"
# Load of the machine above which times are shown, but not held against a bar.
BUSY = 1.5
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NAMES = {
    "ours": "subconscious-mcp",
    "sentence_transformers": "sentence-transformers",
    "chroma": "Chroma's function",
    "fastembed": "fastembed",
}
COLOURS = {"ours": "#1b6ca8", "sentence_transformers": "#d98324", "chroma": "#7a9e3f", "fastembed": "#8c6bb1"}


def result(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


# --- Plots --------------------------------------------------------------------------------------


def canvas(width: float = 7.2, height: float = 4.0) -> tuple[Any, Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "subconscious-mcp",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
        }
    )
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    return pyplot, figure, axes


def save(figure: Any, name: str) -> None:
    PLOTS.mkdir(exist_ok=True)
    # White, not transparent: black labels must be readable where the page is dark.
    figure.savefig(
        PLOTS / f"{name}.svg",
        facecolor="white",
        transparent=False,
        metadata={"Date": None, "Creator": None},
    )
    print(PLOTS / f"{name}.svg")


def draw_bulk(embedding: dict[str, Any]) -> None:
    pyplot, figure, axes = canvas()
    sets = embedding["bulk"]
    limits = embedding.get("matmul", {}).get("sets", {})
    shown = [name for name in NAMES if any(name in one["docs_per_s"] for one in sets.values())]
    width = 0.8 / len(shown)
    for position, name in enumerate(shown):
        places, heights = [], []
        for group, one in enumerate(sets.values()):
            if name in one["docs_per_s"]:
                places.append(group - 0.4 + (position + 0.5) * width)
                heights.append(one["docs_per_s"][name]["median"])
        bars = axes.bar(places, heights, width * 0.92, label=NAMES[name], color=COLOURS[name])
        axes.bar_label(bars, [f"{height:.0f}" for height in heights], fontsize=8, padding=1)
    for group, name in enumerate(sets):
        if name in limits:
            height = limits[name]["limit_docs_per_s"]
            label = "limit of the matrix products" if group == 0 else None
            axes.hlines(height, group - 0.42, group + 0.42, colors="#444444", linestyles="dashed", label=label)
    labels = [f"{name}\n{one['tokens_mean']:.0f} tokens on average" for name, one in sets.items()]
    axes.set_xticks(range(len(sets)), labels)
    axes.set_ylabel("texts per second")
    axes.set_title("Embedding many texts, two cores (median of interleaved rounds)", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    save(figure, "bulk")
    pyplot.close(figure)


def draw_lines(
    name: str, title: str, ylabel: str, sizes: list[int], lines: Iterable[tuple[str, str, str, list[float | None]]]
) -> None:
    """Draws one line a (label, colour, style, values) over the numbers of entries."""
    pyplot, figure, axes = canvas()
    for label, colour, style, values in lines:
        known = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
        if not known:
            continue
        axes.plot(*zip(*known, strict=True), style, label=label, color=colour, marker="o", markersize=4)
        for size, value in known if style == "-" else ():
            axes.annotate(f"{value:.1f}", (size, value), (0, 5), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("entries in the store")
    axes.set_ylabel(ylabel)
    axes.set_title(title, fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    save(figure, name)
    pyplot.close(figure)


def draw_recall(latency: dict[str, Any]) -> None:
    rows = latency["sizes"]
    draw_lines(
        "recall",
        "Recall over stdio by the size of the store",
        "milliseconds a call",
        [row["entries"] for row in rows],
        [
            ("median", COLOURS["ours"], "-", [row.get("recall_ms", {}).get("p50") for row in rows]),
            ("95th percentile", COLOURS["ours"], "--", [row.get("recall_ms", {}).get("p95") for row in rows]),
            ("processor time", "#888888", ":", [row.get("recall_cpu_ms") for row in rows]),
        ],
    )


def draw_search(search: dict[str, Any]) -> None:
    rows = search["sizes"]
    draw_lines(
        "search",
        "Exact search and Chroma's index by the size of the store",
        "milliseconds a search",
        [row["entries"] for row in rows],
        [
            (f"{label}, {word}", colour, style, [row.get(key, {}).get(point) for row in rows])
            for label, key, colour in (("exact", "exact_ms", "#1b6ca8"), ("index", "index_ms", "#d98324"))
            for word, point, style in (("median", "p50", "-"), ("95th percentile", "p95", "--"))
        ],
    )


def draw_reliability(confidence: dict[str, Any]) -> None:
    pyplot, figure, axes = canvas(5.2, 4.6)
    axes.plot([0, 1], [0, 1], ":", color="#888888", label="perfect")
    named = (
        ("all_with_equal_weight", "all held-out sources", COLOURS["ours"], "-"),
        ("own_pairs", "own pairs of validation", "#d98324", "--"),
    )
    for name, label, colour, style in named:
        held = confidence["calibration"][name]
        told = f"{label}, expected calibration error {held['expected_calibration_error']:.3f}"
        places = [(one["confidence"], one["same"]) for one in held["bins"]]
        axes.plot(*zip(*places, strict=True), style, label=told, color=colour, marker="o", markersize=4)
    axes.set_xlabel("confidence")
    axes.set_ylabel("share that is one task")
    axes.set_title("Reliability of the confidence", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    save(figure, "reliability")
    pyplot.close(figure)


def draw_hits(confidence: dict[str, Any]) -> None:
    """Draws true hits against wrong hits as the threshold falls, with the default's place marked."""
    pyplot, figure, axes = canvas()
    whole = confidence["own_pairs"]
    curve = whole["curve"]
    for ending, label, colour in (("", "cosine alone", "#888888"), ("_checked", "with the check", COLOURS["ours"])):
        places = [
            (
                100 * row[f"wrong_hits{ending}"] / whole["other_task"],
                100 * row[f"true_hits{ending}"] / whole["one_task"],
            )
            for row in curve
        ]
        axes.plot(*zip(*places, strict=True), "-", label=label, color=colour, marker="o", markersize=3)
        place = next(place for place, row in zip(places, curve, strict=True) if row["threshold"] == 0.85)
        axes.annotate("0.85", place, (6, -10), textcoords="offset points", fontsize=8, color=colour)
    axes.set_xlabel("wrong hits, % of the pairs that are two tasks")
    axes.set_ylabel("true hits, % of the pairs that are one")
    axes.set_title("Hits and wrong hits over thresholds, own pairs", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    save(figure, "hits")
    pyplot.close(figure)


# --- The table of the README --------------------------------------------------------------------


def at(tree: Any, *path: Any) -> Any:
    """Returns what lies there, or None."""
    for step in path:
        if not isinstance(tree, dict) or step not in tree:
            return None
        tree = tree[step]
    return tree


def of_size(whole: dict[str, Any] | None, size: int) -> dict[str, Any]:
    return next((row for row in at(whole, "sizes") or () if row.get("entries") == size), {})


def was_busy(whole: dict[str, Any] | None) -> bool:
    """Tells whether other work took so much of the machine that its times say little.

    Our own run is two of the load during its rounds.
    """
    if whole is None:
        return False
    rounds = whole.get("load_1m_by_round") or [0.0]
    return whole.get("load_1m_before", 0) > BUSY or sorted(rounds)[len(rounds) // 2] > BUSY + 2


def figure_rows() -> list[tuple[str, str, str, str]]:
    """Returns (what, bar, figure, whether it is reached) for every bar."""
    embedding, latency, search, kills = (result(name) for name in ("embedding", "latency", "search", "kill_rounds"))
    rows: list[tuple[str, str, str, str]] = []

    def row(what: str, bar: float, value: float | None, unit: str = "", least: bool = False, digits: int = 2) -> None:
        if value is None:
            rows.append((what, f"{'≥' if least else '≤'} {bar:g}{unit}", "not measured yet", ""))
            return
        reached = "yes" if (value >= bar if least else value <= bar) else "no"
        verdict = "not judged, the machine was busy" if timed and was_busy(embedding) else reached
        rows.append((what, f"{'≥' if least else '≤'} {bar:g}{unit}", f"{value:.{digits}f}{unit}", verdict))

    timed = False
    texts = at(embedding, "parity", "texts") or 500
    cosine = at(embedding, "parity", "to_sentence_transformers", "ours", "cosine_min")
    row(f"smallest cosine to sentence-transformers, {texts} texts", 0.999999, cosine, "", True, 8)
    timed = True
    for name in ("short", "long", "mixed"):
        ratio = at(embedding, "bulk", name, "ours_times_as_fast", "sentence_transformers", "median")
        row(
            f"many {name} texts, times sentence-transformers"
            if name != "mixed"
            else "many texts of mixed lengths, times sentence-transformers",
            1.8,
            ratio,
            " x",
            True,
        )
    share = at(embedding, "matmul", "sets", "long", "ours_share", "median")
    row("many long texts, share of the limit of the matrix products", 80, share and 100 * share, " %", True, 0)
    query = at(embedding, "query", "embedders", "ours")
    row("one query of 12 tokens, processor time, median", 6, at(query, "cpu_ms", "p50"), " ms")
    row("process start to the first vector", 0.35, at(embedding, "start", "ours", "start_to_first_vector_s"), " s")
    timed = False
    some = of_size(latency, 10_000)
    row("`initialize` answered after, 10,000 entries", 1000, at(some, "initialize_ms", "p50"), " ms", digits=0)
    first = at(some, "start_to_first_recall_ms", "p50")
    row("start to the first recall answered, 10,000 entries", 1800, first, " ms", digits=0)
    row("recall, 10,000 entries, median", 8, at(some, "recall_ms", "p50"), " ms")
    row("recall, 100,000 entries, median", 15, at(of_size(latency, 100_000), "recall_ms", "p50"), " ms")
    row("remember, 10,000 entries, median", 15, at(some, "remember_ms", "p50"), " ms")
    found = at(of_size(search, 100_000), "recall_at_10")
    row("recall@10 of the index, 100,000 entries", 0.99, found, "", True, 4)
    confidence = result("confidence")
    own = at(confidence, "own_pairs", "at_default")
    wrong, lost = at(own, "wrong_hit_rate"), at(own, "true_hits_lost")
    row("own pairs at 0.85 that are two tasks, served", 5, wrong and 100 * wrong, " %", digits=1)
    row("own pairs at 0.85 that are one task, blocked", 3, lost and 100 * lost, " %", digits=1)
    for name in ("banking77", "clinc150"):
        for queries, answers in (
            ("all_intents_sharing_answers", "an intent shares its answer"),
            ("all_intents", "each entry has its own answer"),
        ):
            equal = at(confidence, "intents", name, queries, "checked_at_the_hit_rate_of_cosine", "precision_checked")
            what = f"{name}, same intent at the hit rate of cosine at 0.85, {answers}"
            row(what, 98.5, equal and 100 * equal, " %", True, 1)
    for name in ("banking77", "clinc150"):
        judged = at(confidence, "latency_ms", f"recalls_of_{name}", "p95")
        row(f"the check of a recall, {name}, 95th percentile", 1, judged, " ms")
    note_rows(row)
    if kills is None:
        rows.append(("killed at random moments: acknowledged entries lost", "0", "not measured yet", ""))
    else:
        faults = sum(kills.get(key, 0) for key in ("lost", "forgotten_but_there", "searches_wrong")) + len(
            kills.get("failures", ())
        )
        told = (
            f"{kills.get('lost')} of {kills.get('acknowledged'):,} in {kills.get('rounds')} rounds; "
            f"{kills.get('searches_wrong', 0)} of {kills.get('searches', 0):,} searches wrong"
        )
        rows.append(("killed at random moments: acknowledged entries lost", "0", told, "yes" if not faults else "no"))
    return rows


def note_rows(row: Callable[..., None]) -> None:
    """Adds the rows of the notes."""
    found, timed = result("retrieval"), result("notes_latency")
    for k, bar in (("@10", 78), ("@5", 66)):
        share = at(found, "conversations", "hybrid", "all", k)
        row(f"notes: evidence of two long conversations, recall{k}", bar, share and 100 * share, " %", True, 1)
    share = at(found, "devbench", "hybrid", "@5")
    row("notes: developer questions, recall@5", 95, share and 100 * share, " %", True, 1)
    share = at(found, "docs", "hybrid", "@1")
    row("notes: pages of documentation, recall@1", 85, share and 100 * share, " %", True, 1)
    for size, bar in ((10_000, 20), (100_000, 40)):
        sizes = {one["notes"]: one for one in (timed or {}).get("sizes", ())}
        row(f"notes: search, {size:,} notes, median", bar, at(sizes.get(size), "recall_ms", "p50"), " ms")


def peers_table(embedding: dict[str, Any]) -> list[str]:
    """Returns the lines of the table that has our embedder beside its peers."""
    lines = [
        "| | short | long | mixed | query, wall / processor | first vector | peak memory | smallest cosine |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, label in NAMES.items():
        missing = at(embedding, "embedders", name, "absent")
        if missing:
            lines.append(f"| {label} | absent: {missing} | | | | | | |")
            continue
        bulk = [at(embedding, "bulk", one, "docs_per_s", name, "median") for one in ("short", "long", "mixed")]
        query = at(embedding, "query", "embedders", name)
        cells = [
            *(f"{value:.0f}/s" if value else "" for value in bulk),
            f"{query['wall_ms']['p50']:.1f} / {query['cpu_ms']['p50']:.1f} ms" if query else "",
            f"{at(embedding, 'start', name, 'start_to_first_vector_s') or 0:.2f} s",
            f"{at(embedding, 'peak_rss_mb', 'after_bulk', name) or 0:.0f} MB",
            "1 (the measure)"
            if name == "sentence_transformers"
            else f"{at(embedding, 'parity', 'to_sentence_transformers', name, 'cosine_min') or 0:.7f}",
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def conditions_line(name: str) -> str | None:
    whole = result(name)
    if whole is None:
        return None
    under = whole.get("conditions", whole)
    parts = [under.get("date"), under.get("processor")]
    parts += [f"{under['cores']} cores"] if "cores" in under else []
    before = whole.get("load_1m_before")
    parts += [f"load {before} before"] if before is not None else []
    parts += [f"load {under['load_1m']} at the end"] if "load_1m" in under else []
    parts += [f"Python {under.get('python') or at(under, 'versions', 'python')}"]
    parts += [f"commit {under['commit']}"] if under.get("commit") else []
    return f"- `{name}.json`: " + ", ".join(str(part) for part in parts if part)


def table() -> str:
    lines = ["| what | bar | measured | reached |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in figure_rows()]
    embedding = result("embedding")
    if embedding is not None:
        sets = [
            f"{name} {one['tokens_mean']:.0f} tokens ({one['tokens_min']} to {one['tokens_max']})"
            for name, one in embedding["bulk"].items()
        ]
        lines += ["", f"Our embedder beside its peers, texts a second ({', '.join(sets)}):", ""]
        lines += peers_table(embedding)
    lines += ["", "Measured under these conditions:", ""]
    lines += [line for name in sorted(path.stem for path in RESULTS.glob("*.json")) if (line := conditions_line(name))]
    return "\n".join(lines)


def write_readme() -> None:
    text = README.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    README.write_text(f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}", encoding="utf-8")
    print(README)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="only write the table of the README")
    options = parser.parse_args()
    if options.readme:
        write_readme()
        return
    for name, draw in (("embedding", draw_bulk), ("latency", draw_recall), ("search", draw_search)):
        whole = result(name)
        if whole is not None:
            draw(whole)
    whole = result("confidence")
    if whole is not None:
        draw_reliability(whole)
        draw_hits(whole)


if __name__ == "__main__":
    main()
