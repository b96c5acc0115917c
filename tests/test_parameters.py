from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.toolsets import parameters
from subconscious_mcp.toolsets.parameters import Parameter, input_schema, read_arguments

SECONDS = "a whole number of seconds from 1 to 100, or null for never"
ALL: tuple[Parameter, ...] = (
    parameters.text("task", "What to do."),
    parameters.texts("tags", "Labels."),
    parameters.whole("top_k", "How many.", 1, 100, 5),
    parameters.whole_or_null("ttl_seconds", "How long.", 1, 100, SECONDS),
    parameters.share("threshold", "How near.", 0.85),
    parameters.flag("skip", "Whether."),
)


def read(**arguments: Any) -> dict[str, Any]:
    return read_arguments(ALL, {"task": "t", **arguments})


def error(arguments: Any, of: tuple[Parameter, ...] = ALL) -> str:
    with pytest.raises(InvalidArgument) as caught:
        read_arguments(of, arguments)
    return str(caught.value)


def test_what_is_left_out_is_not_in_the_values() -> None:
    assert read_arguments(ALL, {"task": "t"}) == {"task": "t"}
    assert read_arguments((), None) == {}
    assert read_arguments((), {}) == {}


def test_null_counts_as_left_out_but_where_it_is_a_choice() -> None:
    given_null = dict.fromkeys(["tags", "top_k", "ttl_seconds", "threshold", "skip"])
    assert read(**given_null) == {"task": "t", "ttl_seconds": None}
    assert error({"task": None}) == "task is required: a text."


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("task", "", ""),
        ("task", "\ud800", "\ud800"),
        ("tags", [], []),
        ("tags", ["a", ""], ["a", ""]),
        ("tags", ("a",), ["a"]),
        ("tags", '["a", "b"]', ["a", "b"]),
        ("tags", "", []),
        ("tags", "  ", []),
        ("tags", "null", []),
        ("tags", "[]", []),
        ("top_k", 1, 1),
        ("top_k", 100, 100),
        ("top_k", "3", 3),
        ("top_k", " 3 ", 3),
        ("top_k", 3.0, 3),
        ("top_k", "3.0", 3),
        ("ttl_seconds", 100, 100),
        ("ttl_seconds", "60", 60),
        ("threshold", 0, 0.0),
        ("threshold", 1, 1.0),
        ("threshold", "0.5", 0.5),
        ("skip", True, True),
        ("skip", False, False),
        ("skip", "TRUE", True),
        ("skip", " false ", False),
    ],
)
def test_what_is_clear_is_taken(name: str, raw: Any, value: Any) -> None:
    taken = read(**{name: raw})[name]
    assert taken == value
    assert type(taken) is type(value)


NUMBERS_REFUSED = (
    True,
    "",
    "three",
    [1],
    {},
    0,
    -1,
    101,
    10**12,
    10**400,
    -(10**400),
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    "nan",
    "inf",
    "1e400",
)


@pytest.mark.parametrize(
    ("name", "raw", "takes"),
    [
        *[("task", raw, "a text") for raw in (1, True, ["a"], {"a": 1})],
        *[
            ("tags", raw, 'a list of texts, such as ["a", "b"]')
            for raw in ("a,b", '"a"', "3", '{"a": 1}', "[1]", "[", "[" * 100_000, "9" * 5000, 1, {"a": 1}, [None], b"a")
        ],
        *[("top_k", raw, "a whole number from 1 to 100") for raw in NUMBERS_REFUSED],
        *[("ttl_seconds", raw, SECONDS) for raw in NUMBERS_REFUSED],
        *[
            ("threshold", raw, "a number from 0 to 1")
            for raw in (True, "", "high", [0.5], -0.1, 1.1, 2, math.nan, math.inf, 10**400, "1_0")
        ],
        *[("skip", raw, "true or false") for raw in (0, 1, "yes", "", [], 1.0)],
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_is_refused_by_name(name: str, raw: Any, takes: str) -> None:
    assert error({"task": "t", name: raw}) == f"{name} takes {takes}."


@pytest.mark.parametrize("arguments", [[], "task", 1, True, b"x"])
def test_arguments_are_one_object(arguments: Any) -> None:
    assert error(arguments) == "The arguments must be one JSON object."


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    assert error({"task": "t", "treshold": 1}) == "There is no argument 'treshold'. Did you mean threshold?"
    names = "task, tags, top_k, ttl_seconds, threshold, skip"
    assert error({"task": "t", "zzz": 1}) == f"There is no argument 'zzz'. This tool takes {names}."
    assert error({"zzz": 1}, of=()) == "There is no argument 'zzz'. This tool takes no arguments."
    assert error({"zzz": 1}).startswith("There is no argument 'zzz'.")


def test_an_unknown_name_is_shown_on_one_short_line() -> None:
    told = error({"a\nb\u2028" + "x" * 1_000_000: 1})
    assert told.startswith("There is no argument 'a\\nb\\u2028xxx")
    assert len(told.splitlines()) == 1
    assert len(told) < 200


def test_the_first_thing_that_is_missing_is_told() -> None:
    both = (parameters.text("task", ""), parameters.text("answer", ""))
    assert error({}, both) == "task is required: a text."
    assert error({"task": "t"}, both) == "answer is required: a text."


def test_the_schema_says_what_the_check_holds() -> None:
    schema = input_schema(ALL)
    assert schema["required"] == ["task"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == [parameter.name for parameter in ALL]
    for parameter in ALL:
        shown = schema["properties"][parameter.name]
        assert shown["description"] == parameter.about
        if shown.get("default") is not None:
            assert parameter.read(shown["default"]) == shown["default"]
    json.dumps(schema, allow_nan=False)


# --- whatever comes

_SECRET = "SeCrEt"
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 2**63, -(2**63)])
    | st.floats()
    | st.text(alphabet=st.characters(codec=None))
    | st.sampled_from(["null", "[", "{}", "[1]", "1e999", "NaN", "0x10", '["a"]', '"', "\ud800"])
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=10
)
_names = st.sampled_from([parameter.name for parameter in ALL]) | st.text()


@given(st.dictionaries(_names, _values, max_size=6) | _values)
def test_nothing_but_a_refusal_is_ever_raised(arguments: Any) -> None:
    try:
        values = read_arguments(ALL, arguments)
    except InvalidArgument as refusal:
        assert len(str(refusal).splitlines()) == 1
        return
    assert isinstance(values["task"], str)
    assert set(values) <= {parameter.name for parameter in ALL}
    assert all(isinstance(tag, str) for tag in values.get("tags", []))
    assert 1 <= values.get("top_k", 1) <= 100
    assert type(values.get("top_k", 1)) is int
    assert 1 <= (values.get("ttl_seconds") or 1) <= 100
    assert 0.0 <= values.get("threshold", 0.0) <= 1.0
    assert type(values.get("skip", False)) is bool


def _with_secret(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_secret(item) for item in value] or [_SECRET, 1]
    if isinstance(value, dict):
        return {**{key: _with_secret(item) for key, item in value.items()}, _SECRET: _SECRET}
    return f"{_SECRET}{value}"


@given(st.dictionaries(st.sampled_from([parameter.name for parameter in ALL]), _values, max_size=6))
def test_a_value_is_never_repeated(arguments: dict[str, Any]) -> None:
    try:
        read_arguments(ALL, {name: _with_secret(value) for name, value in arguments.items()})
    except InvalidArgument as refusal:
        assert _SECRET not in str(refusal)
        assert refusal.__cause__ is None
        assert refusal.__suppress_context__ or refusal.__context__ is None


def test_a_number_longer_than_python_reads_is_refused() -> None:
    digits = "1" * (getattr(sys, "get_int_max_str_digits", lambda: 4300)() + 1)
    assert error({"task": "t", "top_k": digits}) == "top_k takes a whole number from 1 to 100."
