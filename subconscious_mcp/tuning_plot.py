"""Draws threshold advice as an SVG, without a plotting library; the same bytes for the same advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

from subconscious_mcp.render import Payload

WIDTH, HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 60, 50, 60
_HITS, _WRONG, _GREY = "#1b6ca8", "#c0392b", "#888888"
_LEGEND = ((_HITS, "recalls that hit (left)"), (_WRONG, "hits that are wrong, expected (right)"))
_ERROR_SCALES = (0.05, 0.1, 0.2, 0.5, 1.0)

Point = tuple[float, float]


def svg(advice: Payload, namespace: str) -> str:
    """Returns the picture: hit rate on the left axis, expected error with its interval on the right one.

    Args:
        advice: As `learning_payloads.advice_payload` returns it.
    """
    rows = advice["thresholds"]
    low, high = float(rows[0]["threshold"]), float(rows[-1]["threshold"])
    known = [row for row in rows if row["expected_error"] is not None]
    greatest = max([advice["max_error"], *(_upper(row) for row in known)])
    scale = next(top for top in _ERROR_SCALES if greatest <= top)

    def across(threshold: float) -> float:
        return _LEFT + (threshold - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def up(share: float) -> float:
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def error(share: float) -> float:
        return up(share / scale)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        f' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(_LEFT, 22, f"Thresholds of namespace {namespace}: {advice['recalls']} recalls, "
              f"{advice['observations']} observations by feedback"),
        *_axes(low, high, scale, across, up),
        _line((across(low), error(advice["max_error"])), (across(high), error(advice["max_error"])), _WRONG, "2 4"),
    ]  # fmt: skip
    for name, colour in (("recommended", _HITS), ("threshold", _GREY)):
        if advice[name] is not None and low <= advice[name] <= high:
            parts.append(_line((across(advice[name]), up(0)), (across(advice[name]), up(1)), colour, "6 4"))
    banded = [row for row in known if row["interval"] is not None]
    if banded:
        edge = [(across(row["threshold"]), error(row["interval"][1])) for row in banded]
        edge += [(across(row["threshold"]), error(row["interval"][0])) for row in reversed(banded)]
        parts.append(f'<polygon points="{_points(edge)}" fill="{_WRONG}" fill-opacity="0.15"/>')
    parts += _curve([(across(row["threshold"]), up(row["hit_rate"])) for row in rows], _HITS)
    parts += _curve([(across(row["threshold"]), error(row["expected_error"])) for row in known], _WRONG)
    for number, (colour, label) in enumerate(_LEGEND):
        parts.append(_text(_LEFT + 240 * number, 40, label, colour))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _upper(row: Payload) -> float:
    return float(row["expected_error"] if row["interval"] is None else row["interval"][1])


def _axes(
    low: float, high: float, scale: float, across: Callable[[float], float], up: Callable[[float], float]
) -> Iterable[str]:
    for step in range(5):
        share, threshold = step / 4, low + (high - low) * step / 4
        yield _line((_LEFT, up(share)), (WIDTH - _RIGHT, up(share)), "#dddddd")
        yield _text(_LEFT - 8, up(share) + 4, f"{share:.0%}", anchor="end")
        yield _text(WIDTH - _RIGHT + 8, up(share) + 4, f"{share * scale * 100:g}%", _WRONG)
        yield _text(across(threshold), HEIGHT - _BOTTOM + 20, f"{threshold:.2f}", anchor="middle")
    yield _text(WIDTH / 2, HEIGHT - 16, "threshold", anchor="middle")


def _text(x: float, y: float, text: str, colour: str = "#222222", *, anchor: str = "start") -> str:
    # Control characters are in no XML, whatever a namespace is called.
    shown = escape("".join(c if c.isprintable() else "�" for c in text))
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{shown}</text>'


def _line(start: Point, end: Point, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour}"'
        f' stroke-dasharray="{dashes}"/>'
    )


def _curve(points: Sequence[Point], colour: str) -> Iterable[str]:
    if points:
        yield f'<polyline points="{_points(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
