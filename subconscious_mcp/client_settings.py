"""Adds hooks to the text of a client's settings file, and takes them out, changing nothing else.

Text is put in or cut out where it belongs, see `json_text`. Then both texts are parsed, and what is
returned is the old content with our hooks, or nothing at all.

Ours is an entry whose command ends in `subconscious_mcp hook EVENT` or `subconscious-mcp hook EVENT`,
whichever Python it names, as one line for a shell or as words.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from subconscious_mcp.json_text import (
    CannotKeep,
    Child,
    Edit,
    Node,
    Pairs,
    addition,
    applied,
    cuts,
    decoded,
    is_blank,
    layout_of,
    member,
    parsed,
    replacement,
    scanned,
)

_OUR_NAMES = ("subconscious_mcp", "subconscious-mcp")
_EVENT = re.compile(r"[a-z]+(?:-[a-z]+)*")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a client writes hooks.

    Attributes:
        nested: Entries stand in groups, `{"matcher": ..., "hooks": [entry]}`; else directly in the
            list of their event.
        version: A number that the client wants at the top of the file, or None.
    """

    nested: bool
    version: int | None = None


# --- what callers use


def with_hooks(content: bytes, wanted: Mapping[str, Entry], shape: Shape) -> bytes:
    """Returns a settings file with one hook of ours for each event.

    An entry of ours that is there already stays where it is, with whatever else its user wrote into
    it; only its command is renewed. Further ones for the same event are cut out.

    Args:
        content: The file's bytes; empty for a new file.
        wanted: Event, as the client calls it, to entry.
        shape: How the client writes hooks.

    Raises:
        CannotKeep: The content is not plain JSON, or has something else where hooks belong.
    """
    mark, before = decoded(content)
    text = "{}\n" if is_blank(before) else before
    root = scanned(text)
    _find_room(root, wanted)
    if shape.version is not None and member(root, "version") is None:
        text = _appended(text, root, "version", shape.version)
    text = _without(text, _superfluous(text, wanted, shape))
    for event, entry in wanted.items():
        text = _with_one(text, event, entry, shape)
    _check(before, text, wanted, shape)
    return mark + _encoded(text)


def without_hooks(content: bytes) -> bytes:
    """Returns a settings file without any hook of ours, nor the lists and groups that only held ours.

    Raises:
        CannotKeep: The content is not plain JSON.
    """
    mark, before = decoded(content)
    if is_blank(before):
        return content
    text = _without(before, {place.entry.start for place in _places(before, scanned(before))})
    _check(before, text, {}, None)
    return mark + _encoded(text)


def events_of_ours(content: bytes) -> frozenset[str]:
    """Returns the events for which a hook of ours is there.

    Raises:
        CannotKeep: The content is not plain JSON.
    """
    _, text = decoded(content)
    return frozenset() if is_blank(text) else frozenset(place.event for place in _places(text, scanned(text)))


def top_values(content: bytes) -> dict[str, Any]:
    """Returns the settings of a file that `with_hooks` accepts: objects as `Pairs`, numbers as `Number`."""
    _, text = decoded(content)
    return {} if is_blank(text) else dict(parsed(text))


def lines_to_paste(wanted: Mapping[str, Entry], shape: Shape) -> str:
    """Returns what a user would write into an empty file to have the hooks."""
    version = {} if shape.version is None else {"version": shape.version}
    hooks = {event: [_element(entry, shape)] for event, entry in wanted.items()}
    return json.dumps({**version, "hooks": hooks}, indent=2, ensure_ascii=False)


# --- recognising ours


def is_ours(entry: Any) -> bool:
    """Returns whether a parsed hook entry runs a hook of ours and nothing else."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("command"), str):
        return False
    if isinstance(entry.get("args"), list):
        return _end_in_ours([entry["command"], *map(str, entry["args"])])
    return _end_in_ours(_shell_words(entry["command"]))


def _shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True)
    # No escape: the backslash of a Windows path is none, and for the last words it does not matter.
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        words = list(lexer)
    except ValueError:
        return []
    # PowerShell calls a quoted path with a leading `&`.
    words = words[1:] if words[:1] == ["&"] else words
    # Several commands in one line are somebody's own work, of which ours is a part.
    return [] if any(set(word) & set(";&|<>`") for word in words) else words


def _end_in_ours(words: Sequence[str]) -> bool:
    if words[-2:-1] == ["--client"]:
        words = words[:-2]
    if len(words) < 3 or words[-2] != "hook" or not _EVENT.fullmatch(words[-1]):
        return False
    name = re.split(r"[/\\]", words[-3])[-1].lower()
    return name.removesuffix(".exe") in _OUR_NAMES


# --- finding ours


class _Place(NamedTuple):
    """An entry of ours, and whether it stands in a group."""

    event: str
    nested: bool
    entry: Node


def _places(text: str, root: Node) -> Iterator[_Place]:
    hooks = member(root, "hooks")
    for event in hooks.value.children if hooks is not None and hooks.value.kind == "object" else ():
        for element in event.value.children if event.value.kind == "array" else ():
            if _node_is_ours(text, element.value):
                yield _Place(str(event.key), False, element.value)
            for inner in _entries(element.value):
                if _node_is_ours(text, inner.value):
                    yield _Place(str(event.key), True, inner.value)


def _entries(group: Node) -> tuple[Child, ...]:
    inner = member(group, "hooks") if group.kind == "object" else None
    return inner.value.children if inner is not None and inner.value.kind == "array" else ()


def _node_is_ours(text: str, node: Node) -> bool:
    return node.kind == "object" and is_ours(dict(parsed(text[node.start : node.end])))


def _find_room(root: Node, events: Iterable[str]) -> None:
    """Makes sure that hooks can be added where they belong.

    Raises:
        CannotKeep: Something else is there.
    """
    hooks = member(root, "hooks")
    if hooks is None:
        return
    if hooks.value.kind != "object":
        raise CannotKeep('"hooks" is there, and is not an object')
    for name in events:
        event = member(hooks.value, name)
        if event is not None and event.value.kind != "array":
            raise CannotKeep(f'"{name}" is there among the hooks, and is not a list')


def _superfluous(text: str, wanted: Mapping[str, Entry], shape: Shape) -> set[int]:
    """Returns where entries of ours start that are repeated, or in a shape that the client does not read."""
    kept: set[str] = set()
    doomed: set[int] = set()
    for place in _places(text, scanned(text)):
        if place.event in wanted:
            if place.nested != shape.nested or place.event in kept:
                doomed.add(place.entry.start)
            else:
                kept.add(place.event)
    return doomed


# --- changing


def _with_one(text: str, event: str, entry: Entry, shape: Shape) -> str:
    """Returns the text with one hook, renewed or added."""
    root = scanned(text)
    for place in _places(text, root):
        if place.event == event:
            return _renewed(text, root, place.entry, entry)
    hooks = member(root, "hooks")
    if hooks is None:
        return _appended(text, root, "hooks", {event: [_element(entry, shape)]})
    there = member(hooks.value, event)
    if there is None:
        return _appended(text, hooks.value, event, [_element(entry, shape)])
    return _appended(text, there.value, None, _element(entry, shape))


def _element(entry: Entry, shape: Shape) -> dict[str, Any]:
    return {"hooks": [dict(entry)]} if shape.nested else dict(entry)


def _renewed(text: str, root: Node, node: Node, entry: Entry) -> str:
    """Returns the text with an entry's command as it is wanted, and its other members as they were."""
    old = dict(parsed(text[node.start : node.end]))
    layout = layout_of(text, root)
    edits: list[Edit] = []
    for name in ("command", "args"):
        child = member(node, name)
        if child is None:
            if name in entry:
                edits.append(addition(text, node, name, entry[name], layout))
        elif name not in entry:
            edits.extend(cuts(node, {node.children.index(child)}))
        elif old[name] != entry[name]:
            edits.append(replacement(text, child, entry[name], layout))
    return applied(text, edits)


def _appended(text: str, container: Node, key: str | None, value: Any) -> str:
    return applied(text, [addition(text, container, key, value, layout_of(text, scanned(text)))])


def _without(text: str, doomed: set[int]) -> str:
    """Returns the text without the entries that start there, nor what held nothing else."""
    if not doomed:
        return text
    root = scanned(text)
    hooks = member(root, "hooks")
    assert hooks is not None
    edits: list[Edit] = []
    empty: set[int] = set()
    for number, event in enumerate(hooks.value.children):
        gone: set[int] = set()
        for index, element in enumerate(event.value.children if event.value.kind == "array" else ()):
            entries = _entries(element.value)
            inner = {at for at, entry in enumerate(entries) if entry.value.start in doomed}
            if element.value.start in doomed or (inner and len(inner) == len(entries)):
                gone.add(index)
            elif inner:
                group = member(element.value, "hooks")
                assert group is not None
                edits.extend(cuts(group.value, inner))
        if gone and len(gone) == len(event.value.children):
            empty.add(number)
        elif gone:
            edits.extend(cuts(event.value, gone))
    if len(empty) == len(hooks.value.children):
        return applied(text, cuts(root, {root.children.index(hooks)}))
    return applied(text, [*edits, *cuts(hooks.value, empty)])


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise CannotKeep("the path of Python is not Unicode, and JSON cannot express it") from None


# --- the check


def _check(before: str, after: str, wanted: Mapping[str, Entry], shape: Shape | None) -> None:
    """Makes sure that the new text is the old content with what is wanted of ours.

    By a way of its own: through Python's parser, and by taking ours out of both.

    Raises:
        CannotKeep: It is not; a fault of this module, which then must not reach the file.
    """
    old = Pairs() if is_blank(before) else parsed(before)
    old_rest, old_ours = _divided(old)
    new_rest, new_ours = _divided(parsed(after))
    good = True
    if shape is None:
        good = not new_ours
    else:
        if shape.version is not None and "version" not in dict(old):
            new_rest = Pairs(pair for pair in new_rest if pair[0] != "version")
        others = [one for one in old_ours if one.event not in wanted]
        good = [one for one in new_ours if one.event not in wanted] == others
        for event, entry in wanted.items():
            mine = [one for one in new_ours if one.event == event]
            good = good and len(mine) == 1 and mine[0].nested == shape.nested
            good = good and all(mine[0].entry.get(name) == entry.get(name) for name in ("command", "args"))
    if not good or new_rest != old_rest:
        raise CannotKeep("it could not be changed without touching something else")


class _Hook(NamedTuple):
    """A hook of ours, parsed."""

    event: str
    nested: bool
    entry: dict[str, Any]


def _divided(settings: Pairs) -> tuple[Pairs, list[_Hook]]:
    """Returns the settings without our hooks and without lists of hooks that are empty, and our hooks."""
    ours: list[_Hook] = []

    def stays(event: str, nested: bool, entry: Any) -> bool:
        if isinstance(entry, Pairs) and is_ours(dict(entry)):
            ours.append(_Hook(event, nested, dict(entry)))
            return False
        return True

    def rest_of_group(event: str, group: Any) -> Any:
        if not isinstance(group, Pairs):
            return group
        return Pairs(
            (name, [entry for entry in value if stays(event, True, entry)])
            if name == "hooks" and type(value) is list
            else (name, value)
            for name, value in group
        )

    def rest_of_event(event: str, elements: list[Any]) -> list[Any]:
        groups = [rest_of_group(event, element) for element in elements if stays(event, False, element)]
        return [group for group in groups if not (isinstance(group, Pairs) and ("hooks", []) in group)]

    rest = Pairs()
    for name, value in settings:
        if name != "hooks" or not isinstance(value, Pairs):
            rest.append((name, value))
            continue
        events = [(event, rest_of_event(event, it) if type(it) is list else it) for event, it in value]
        kept = Pairs((event, it) for event, it in events if it != [] or isinstance(it, Pairs))
        if kept:
            rest.append((name, kept))
    return rest, ours
