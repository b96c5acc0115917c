"""What the tools' arguments take: one table for the JSON schema and for the check.

Clients send what models write: a list as a JSON string, a number in quotes, null for what is
left out. What is clear is taken; the rest is refused in one line that names the argument and
what it takes, and never repeats the value.
"""

from __future__ import annotations

import datetime
import difflib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subconscious_mcp.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool.

    Attributes:
        schema: Its JSON schema, without title and description.
        takes: What it takes, for people: "a whole number from 1 to 100".
        read: Returns the value of what a client sent, or raises ValueError.
        null_is_a_value: Null is handed on; otherwise it counts as left out.
    """

    name: str
    about: str
    schema: Mapping[str, Any]
    takes: str
    read: Callable[[Any], Any]
    required: bool = False
    null_is_a_value: bool = False


def text(name: str, about: str) -> Parameter:
    """A required text."""
    return Parameter(name, about, {"type": "string"}, "a text", _read_text, required=True)


def texts(name: str, about: str) -> Parameter:
    """An optional list of texts."""
    schema = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}
    return Parameter(name, about, schema, 'a list of texts, such as ["a", "b"]', _read_texts)


def optional_text(name: str, about: str) -> Parameter:
    """An optional text."""
    return Parameter(name, about, {"type": "string", "default": ""}, "a text", _read_text)


def choice(name: str, about: str, choices: Sequence[str], default: str | None) -> Parameter:
    """An optional word of a few; None stands for no choice."""

    def read(raw: Any) -> str:
        word = raw.strip().lower() if isinstance(raw, str) else ""
        if word not in choices:
            raise ValueError
        return word

    schema: dict[str, Any] = {"type": "string", "enum": list(choices)}
    if default is not None:
        schema["default"] = default
    return Parameter(name, about, schema, f"one of {', '.join(choices)}", read)


def moment(name: str, about: str, *, ends: bool = False) -> Parameter:
    """An optional date or time, read into seconds since the epoch; a bare date is its first or its last moment."""

    def read(raw: Any) -> float | None:
        return _read_moment(raw, ends)

    takes = "a date such as 2026-11-30, or a time such as 2026-11-30T18:00:00Z"
    return Parameter(name, about, {"type": "string"}, takes, read)


def limit(name: str, about: str, high: int, default: int) -> Parameter:
    """An optional whole number from 1 on, whose refusal also says what validators of JSON schemas say."""
    plain = whole(name, about, 1, high, default)

    def read(raw: Any) -> int:
        value = _whole_reader(-(2**53), 2**53)(raw)
        if value < 1:
            raise OutOfBounds("Input should be greater than or equal to 1.")
        if value > high:
            raise OutOfBounds(f"Input should be less than or equal to {high}.")
        return value

    return Parameter(name, about, plain.schema, plain.takes, read)


class OutOfBounds(ValueError):
    """A value of the right kind that is too small or too large; its text says so in other words."""


def whole(name: str, about: str, low: int, high: int, default: int) -> Parameter:
    """An optional whole number."""
    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return Parameter(name, about, schema, f"a whole number from {low} to {high}", _whole_reader(low, high))


def whole_or_null(name: str, about: str, low: int, high: int, takes: str) -> Parameter:
    """An optional whole number for which null is a choice of its own."""
    schema = {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"type": "null"}]}
    return Parameter(name, about, schema, takes, _whole_reader(low, high), null_is_a_value=True)


def share(name: str, about: str, default: float) -> Parameter:
    """An optional number from 0 to 1."""
    schema = {"type": "number", "minimum": 0, "maximum": 1, "default": default}
    return Parameter(name, about, schema, "a number from 0 to 1", _read_share)


def flag(name: str, about: str, default: bool = False) -> Parameter:
    """An optional yes or no."""
    return Parameter(name, about, {"type": "boolean", "default": default}, "true or false", _read_flag)


def yes_or_no(name: str, about: str) -> Parameter:
    """A required yes or no."""
    return Parameter(name, about, {"type": "boolean"}, "true or false", _read_flag, required=True)


def input_schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Returns the JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {p.name: {**p.schema, "description": p.about} for p in parameters},
        "required": [p.name for p in parameters if p.required],
        "additionalProperties": False,
    }


def read_arguments(parameters: Sequence[Parameter], arguments: Any) -> dict[str, Any]:
    """Checks a call's arguments.

    Returns:
        The values that were given; what was left out is not in it.

    Raises:
        InvalidArgument: Names the first argument that is unknown, missing or of the wrong kind.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise InvalidArgument("The arguments must be one JSON object.")
    known = {p.name: p for p in parameters}
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]}?" if near else _all_names(parameters)
            raise InvalidArgument(f"There is no argument {str(name)[:60]!r}.", hint)
    values: dict[str, Any] = {}
    for parameter in parameters:
        given = arguments.get(parameter.name)
        if parameter.name not in arguments or (given is None and not parameter.null_is_a_value):
            if parameter.required:
                raise InvalidArgument(f"{parameter.name} is required: {parameter.takes}.")
            continue
        try:
            values[parameter.name] = None if given is None else parameter.read(given)
        except OutOfBounds as error:
            raise InvalidArgument(f"{parameter.name} takes {parameter.takes}.", str(error)) from None
        except (ValueError, OverflowError, RecursionError):
            raise InvalidArgument(f"{parameter.name} takes {parameter.takes}.") from None
    return values


def _all_names(parameters: Sequence[Parameter]) -> str:
    names = ", ".join(p.name for p in parameters)
    return f"This tool takes {names}." if names else "This tool takes no arguments."


def _read_text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError
    return raw


def _read_texts(raw: Any) -> list[str]:
    if isinstance(raw, str):
        # Some models write a list as JSON inside a string, and nothing as an empty string.
        raw = json.loads(raw) if raw.strip() else []
        raw = [] if raw is None else raw
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not all(isinstance(item, str) for item in raw):
        raise ValueError
    return list(raw)


def _number(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise ValueError
    value = float(raw)
    if not math.isfinite(value):
        raise ValueError
    return value


def _whole_reader(low: int, high: int) -> Callable[[Any], int]:
    def read(raw: Any) -> int:
        value = _number(raw)
        if value != int(value) or not low <= value <= high:
            raise ValueError
        return int(value)

    return read


def _read_moment(raw: Any, ends: bool) -> float | None:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return _number(raw)
    if not isinstance(raw, str):
        raise ValueError
    said = raw.strip()
    if not said:
        # As models write what they leave out.
        return None
    try:
        day = datetime.date.fromisoformat(said)
    except ValueError:
        # Python 3.10 knows no Z.
        when = datetime.datetime.fromisoformat(said[:-1] + "+00:00" if said[-1:] in ("Z", "z") else said)
        # Without an offset it is the user's own time.
        return when.timestamp()
    start = datetime.datetime.combine(day, datetime.time.min)
    return (start + datetime.timedelta(days=1)).timestamp() - 1e-6 if ends else start.timestamp()


def _read_share(raw: Any) -> float:
    value = _number(raw)
    if not 0.0 <= value <= 1.0:
        raise ValueError
    return value


def _read_flag(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else ""
    if word in ("true", "false"):
        return word == "true"
    raise ValueError
