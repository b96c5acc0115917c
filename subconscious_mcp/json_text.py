"""JSON as a text that somebody wrote: where things stand in it, and what to put in or cut out.

For files that belong to their user. They are never parsed and printed again: a value is found, text
is put in beside it in the manner of its neighbours, and every other byte stays.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST_LEVELS = 200
"""Nesting that is still edited. Real files have ten levels; Python's own parser ends at a thousand."""

_BLANK = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# NaN and the infinities are no JSON, but many programs write them and nothing is lost by keeping them.
_WORD = re.compile(r"true|false|null|NaN|-?Infinity")
_LINE_END = re.compile(r"\r\n|\r|\n")


class CannotKeep(ValueError):
    """The text cannot be edited without losing something; the message says what stands in the way."""


# --- the scanner


class Node(NamedTuple):
    """A value: its kind (object, array, string or other), and where it stands: text[start:end]."""

    kind: str
    start: int
    end: int
    children: tuple[Child, ...] = ()


class Child(NamedTuple):
    """A member of an object, or an element of an array, which has no key."""

    key: str | None
    start: int
    key_end: int
    value: Node

    @property
    def end(self) -> int:
        return self.value.end


def scanned(text: str) -> Node:
    """Finds where everything stands in a JSON object.

    Raises:
        CannotKeep: The text is not one plain JSON object.
    """
    root = _value(text, _skip(text, 0), 0)
    rest = _skip(text, root.end)
    if rest != len(text):
        raise _unexpected(text, rest)
    if root.kind != "object":
        raise CannotKeep("it holds no JSON object")
    return root


def member(node: Node, key: str) -> Child | None:
    """Returns the member of an object that has a key, if there is one."""
    return next((child for child in node.children if child.key == key), None)


def is_blank(text: str) -> bool:
    """Returns whether there is nothing in a text but what JSON skips."""
    return _skip(text, 0) == len(text)


def _value(text: str, at: int, level: int) -> Node:
    if level > MOST_LEVELS:
        raise CannotKeep(f"{_where(text, at)}: it is nested more than {MOST_LEVELS} levels deep")
    first = text[at : at + 1]
    if first == "{":
        return _container(text, at, "object", "}", level)
    if first == "[":
        return _container(text, at, "array", "]", level)
    for kind, pattern in (("string", _STRING), ("other", _WORD), ("other", _NUMBER)):
        found = pattern.match(text, at)
        if found:
            return Node(kind, at, found.end())
    raise _unexpected(text, at)


def _container(text: str, start: int, kind: str, closing: str, level: int) -> Node:
    children: list[Child] = []
    keys: set[str] = set()
    at = _skip(text, start + 1)
    if text[at : at + 1] == closing:
        return Node(kind, start, at + 1)
    while True:
        begin, key, key_end = at, None, at
        if kind == "object":
            key, key_end = _key(text, at, keys)
            at = _skip(text, _skip(text, key_end) + 1)
        value = _value(text, at, level + 1)
        children.append(Child(key, begin, key_end, value))
        at = _skip(text, value.end)
        if text[at : at + 1] == closing:
            return Node(kind, start, at + 1, tuple(children))
        if text[at : at + 1] != ",":
            raise _unexpected(text, at)
        at = _skip(text, at + 1)


def _key(text: str, at: int, seen: set[str]) -> tuple[str, int]:
    found = _STRING.match(text, at)
    if found is None:
        raise _unexpected(text, at)
    key: str = json.loads(found[0])
    if key in seen:
        # Which of the two counts is up to who reads it.
        raise CannotKeep(f"{_where(text, at)}: the key {key[:60]!a} is there twice")
    seen.add(key)
    colon = _skip(text, found.end())
    if text[colon : colon + 1] != ":":
        raise _unexpected(text, colon)
    return key, found.end()


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _unexpected(text: str, at: int) -> CannotKeep:
    """Says what there is instead of plain JSON."""
    here = text[at : at + 1]
    if text[at : at + 2] in ("//", "/*") or here == "#":
        what = "a comment"
    elif here in ("}", "]") and text[:at].rstrip(" \t\r\n").endswith(","):
        what = f"a comma before the {here}"
    elif not here:
        what = "the text ends too early"
    elif here in ("'", '"'):
        what = "a string that JSON does not know"
    else:
        what = f"an unexpected {here!a}"
    return CannotKeep(f"{_where(text, at)}: {what}")


def _where(text: str, at: int) -> str:
    lines = _LINE_END.split(text[:at])
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"


# --- changing


class Edit(NamedTuple):
    """Text to put in place of text[start:end]."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Returns the text with edits that do not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def addition(text: str, container: Node, key: str | None, value: Any, layout: Layout) -> Edit:
    """Returns the edit that adds a last child, in the manner of its siblings."""
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + layout.colon
    if container.children:
        last = container.children[-1].end
        gap = _LINE_END.split(text[container.start + 1 : container.children[0].start])
        if len(gap) == 1:
            return Edit(last, last, layout.comma + name + layout.rendered(value, None))
        return Edit(last, last, f",{layout.newline}{gap[-1]}{name}{layout.rendered(value, gap[-1])}")
    if not layout.spread:
        return Edit(container.start + 1, container.end - 1, name + layout.rendered(value, None))
    outer = _indent_of_line(text, container.start)
    indent = outer + layout.unit
    inside = f"{layout.newline}{indent}{name}{layout.rendered(value, indent)}{layout.newline}{outer}"
    return Edit(container.start + 1, container.end - 1, inside)


def replacement(text: str, child: Child, value: Any, layout: Layout) -> Edit:
    """Returns the edit that gives a child another value, over as many lines as the old one."""
    spread = len(_LINE_END.split(text[child.value.start : child.end])) > 1
    indent = _indent_of_line(text, child.start) if spread else None
    return Edit(child.value.start, child.end, layout.rendered(value, indent))


def cuts(container: Node, gone: set[int]) -> Iterator[Edit]:
    """Yields the edits that take children out, each with one comma."""
    children = container.children
    if len(gone) == len(children):
        yield Edit(container.start + 1, container.end - 1, "")
        return
    first_kept = min(set(range(len(children))) - gone)
    for index in gone:
        if index < first_kept:
            yield Edit(children[index].start, children[index + 1].start, "")
        else:
            yield Edit(children[index - 1].end, children[index].end, "")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a text is written.

    Attributes:
        unit: One level of indentation.
        spread: Values are spread over lines.
    """

    newline: str
    unit: str
    colon: str
    comma: str
    spread: bool

    def rendered(self, value: Any, indent: str | None) -> str:
        """Returns a value as text: in one line, or spread over lines that begin with `indent`."""
        if indent is None:
            return json.dumps(value, ensure_ascii=False, separators=(self.comma, self.colon))
        text = json.dumps(value, ensure_ascii=False, indent=self.unit, separators=(",", self.colon))
        return text.replace("\n", self.newline + indent)


def layout_of(text: str, root: Node) -> Layout:
    """Finds out how a text is written, from its first line end and its first member."""
    newline = _LINE_END.search(text)
    spread = not root.children or _LINE_END.search(text, root.start, root.end) is not None
    unit, tight = "  ", False
    if root.children:
        first = root.children[0]
        gap = _LINE_END.split(text[root.start + 1 : first.start])
        if len(gap) > 1:
            unit = gap[-1].removeprefix(_indent_of_line(text, root.start)) or unit
        tight = text[first.key_end : first.value.start].endswith(":")
    return Layout(newline[0] if newline else "\n", unit, ":" if tight else ": ", "," if tight else ", ", spread)


def _indent_of_line(text: str, at: int) -> str:
    line = _LINE_END.split(text[:at])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- bytes


def decoded(content: bytes) -> tuple[bytes, str]:
    """Returns the byte-order mark of a file, which may be empty, and its text.

    Raises:
        CannotKeep: It is not UTF-8.
    """
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    try:
        return mark, content[len(mark) :].decode("utf-8")
    except UnicodeDecodeError:
        raise CannotKeep("it is not UTF-8 text") from None


# --- parsing, without giving anything another form


class Pairs(list[tuple[str, Any]]):
    """A parsed object: its members in their order."""


class Number(NamedTuple):
    """A number, as it was written."""

    text: str


def parsed(text: str) -> Any:
    """Parses JSON by Python's own parser, objects to `Pairs` and numbers to `Number`."""
    return json.loads(text, object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=Number)
