"""Editing the text of settings files: what is ours comes and goes, and every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from subconscious_mcp import client_settings, json_text
from subconscious_mcp.client_settings import Shape, is_ours, with_hooks, without_hooks
from subconscious_mcp.json_text import CannotKeep

NESTED = Shape(nested=True)
FLAT = Shape(nested=False, version=1)


def ours(word: str, python: str = "/opt/my python/bin/python") -> dict[str, Any]:
    arguments = ["-I", "-m", "subconscious_mcp", "hook", word]
    return {"type": "command", "command": python, "args": arguments, "timeout": 10}


WANTED = {"SessionStart": ours("session-start"), "Stop": ours("stop")}
THEIRS = {"type": "command", "command": "say done", "timeout": 1.50}


def installed(text: str, wanted: dict[str, Any] = WANTED, shape: Shape = NESTED) -> str:
    return with_hooks(text.encode(), wanted, shape).decode()


def removed(text: str) -> str:
    return without_hooks(text.encode()).decode()


def parsed(text: str) -> Any:
    """Everything there is to a JSON text: order, repeated keys, numbers as written."""
    return json.loads(
        text.removeprefix("\ufeff"),
        object_pairs_hook=lambda pairs: ("object", pairs),
        parse_int=lambda number: ("number", number),
        parse_float=lambda number: ("number", number),
        parse_constant=lambda word: ("number", word),
    )


def plus_ours(value: dict[str, Any], wanted: dict[str, Any] = WANTED) -> dict[str, Any]:
    """The same settings with our hooks, by the simplest means, where none of ours is there."""
    value = json.loads(json.dumps(value))
    for event, entry in wanted.items():
        value.setdefault("hooks", {}).setdefault(event, []).append({"hooks": [entry]})
    return value


# --- examples


def test_a_new_file_is_written_with_two_spaces_and_a_line_end() -> None:
    text = installed("")
    assert text == json.dumps({"hooks": {e: [{"hooks": [entry]}] for e, entry in WANTED.items()}}, indent=2) + "\n"
    assert installed(" \n\t\r\n") == text
    assert installed("{}") == text.rstrip("\n")


def test_what_is_there_stays_byte_for_byte() -> None:
    before = '{\n    "model" : "opus",\n    "env": {"A":"1",  "B":"2"}\n}\n'
    after = installed(before)
    head = '{\n    "model" : "opus",\n    "env": {"A":"1",  "B":"2"}'
    assert after.startswith(head + ',\n    "hooks": {\n        "SessionStart": [\n')
    assert after.endswith("\n    }\n}\n")
    assert removed(after) == before


@pytest.mark.parametrize(
    "before",
    [
        '{"a":1}',
        '{"a": 1}',
        '{ "a": 1 }',
        '{\r\n\t"a": 1\r\n}\r\n',
        '{\r  "a": 1\r}',
        '{\n "a": 1}',
        '{"a": 1,\n "b": 2}\n\n',
        '\ufeff{\n  "ü😀": "\\u00fc\\ud83d\\ude00 \\/"\n}',
        '{"lone": "\\ud800", "\\udfff": "\\\\\\""}',
        '{"n": [NaN, -Infinity, 1E400, 1.50, -0, 100000000000000000000000000000001, 1e-7]}',
        '{\n  "long": ' + "9" * 5000 + "\n}",
        '{\n  "deep": ' + "[" * 150 + "]" * 150 + "\n}",
        '{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "x"}]}]}}',
        '{\n  "hooks": {\n    "Stop": [\n      {"hooks": [ {"command": "a"} ]}\n    ]\n  },\n  "z": null\n}\n',
        '{"hooks": {"Stop": ["a string", 5, null, {"hooks": "no list"}, {"hooks": {}}, [[]], {"command": "old"}]}}',
        '{"hooks": {"Notification": "a string", "Other": {"x": 1}, "Third": null}}',
    ],
)
def test_installed_and_removed_again_it_is_what_it_was(before: str) -> None:
    after = installed(before)
    assert parsed(after) != parsed(before)
    assert installed(after) == after
    assert removed(after) == before
    assert parsed(removed(after)) == parsed(before)
    newlines = {"\r\n"} if "\r\n" in before else {"\r"} if "\r" in before else {"\n"}
    rest = after.replace(newlines.pop(), "")
    assert "\n" not in rest and "\r" not in rest


def test_a_tight_file_stays_tight_and_a_file_of_one_line_has_one() -> None:
    assert installed('{"a":1}', {"Stop": {"command": "subconscious-mcp", "args": ["hook", "stop"]}}) == (
        '{"a":1,"hooks":{"Stop":[{"hooks":[{"command":"subconscious-mcp","args":["hook","stop"]}]}]}}'
    )
    assert installed('{"a": 1}', {"Stop": {"command": "subconscious-mcp hook stop"}}) == (
        '{"a": 1, "hooks": {"Stop": [{"hooks": [{"command": "subconscious-mcp hook stop"}]}]}}'
    )


def test_tabs_and_line_ends_are_used_as_they_are_found() -> None:
    line = {"command": "subconscious-mcp hook stop"}
    after = with_hooks(b'{\r\n\t"a": 1\r\n}\r\n', {"Stop": line}, NESTED)
    expected = json.dumps({"a": 1, "hooks": {"Stop": [{"hooks": [line]}]}}, indent="\t") + "\n"
    assert after == expected.replace("\n", "\r\n").encode()


def test_hooks_of_others_stay_even_in_the_group_of_ours() -> None:
    group = {"matcher": "startup", "hooks": [THEIRS, ours("session-start", "/old/python"), THEIRS]}
    before = json.dumps({"hooks": {"SessionStart": [group]}}, indent=1)
    after = json.loads(installed(before))
    assert after["hooks"]["SessionStart"] == [{"matcher": "startup", "hooks": [THEIRS, WANTED["SessionStart"], THEIRS]}]
    assert json.loads(removed(before))["hooks"]["SessionStart"] == [{"matcher": "startup", "hooks": [THEIRS, THEIRS]}]


def test_an_entry_of_another_environment_is_renewed_in_its_place_with_what_its_user_wrote() -> None:
    old = {**ours("stop", "/gone/venv/bin/python"), "timeout": 99, "statusMessage": "kept"}
    before = json.dumps({"hooks": {"Stop": [{"hooks": [THEIRS]}, {"hooks": [old]}]}}, indent=2)
    after = installed(before, {"Stop": ours("stop")})
    assert after == before.replace("/gone/venv/bin/python", "/opt/my python/bin/python")


@pytest.mark.parametrize("spread", [None, 2])
def test_the_two_forms_of_a_command_change_into_each_other(spread: int | None) -> None:
    line = {"type": "command", "command": "/x/python -I -m subconscious_mcp hook stop", "timeout": 10}
    before = json.dumps({"hooks": {"Stop": [{"hooks": [line]}]}}, indent=spread)
    as_words = installed(before, {"Stop": ours("stop")})
    assert json.loads(as_words)["hooks"]["Stop"] == [{"hooks": [ours("stop")]}]
    assert json.loads(installed(as_words, {"Stop": line}))["hooks"]["Stop"] == [{"hooks": [line]}]


def test_repeated_hooks_of_ours_become_one() -> None:
    twice = [{"hooks": [ours("stop", "/a"), ours("stop", "/b")]}, {"hooks": [ours("stop", "/c"), THEIRS]}, THEIRS]
    after = json.loads(installed(json.dumps({"hooks": {"Stop": twice}})))
    assert after["hooks"]["Stop"] == [{"hooks": [ours("stop")]}, {"hooks": [THEIRS]}, THEIRS]


def test_an_older_hook_shape_of_ours_gives_way_and_of_others_stays() -> None:
    before = json.dumps({"hooks": {"Stop": [THEIRS, ours("stop", "/old")]}})
    after = json.loads(installed(before, {"Stop": ours("stop")}))
    assert after["hooks"]["Stop"] == [THEIRS, {"hooks": [ours("stop")]}]
    flat = json.loads(installed(json.dumps(after), {"Stop": ours("stop")}, FLAT))
    assert flat == {"hooks": {"Stop": [THEIRS, ours("stop")]}, "version": 1}


def test_the_clients_version_is_added_once_and_left_alone() -> None:
    after = installed("", {"stop": ours("stop")}, FLAT)
    assert json.loads(after) == {"version": 1, "hooks": {"stop": [ours("stop")]}}
    assert installed(after, {"stop": ours("stop")}, FLAT) == after
    assert json.loads(installed('{"version": 2}', {"stop": ours("stop")}, FLAT))["version"] == 2


def test_events_that_are_not_wanted_are_left_and_removed_in_the_end() -> None:
    before = json.dumps({"hooks": {"SessionEnd": [{"hooks": [ours("stop")]}], "Stop": []}})
    after = installed(before)
    assert json.loads(after)["hooks"]["SessionEnd"] == [{"hooks": [ours("stop")]}]
    assert client_settings.events_of_ours(after.encode()) == {"SessionEnd", "SessionStart", "Stop"}
    assert json.loads(removed(after)) == {}
    assert client_settings.events_of_ours(b" ") == frozenset()


def test_nothing_of_ours_to_remove_changes_nothing() -> None:
    for text in ("", " \n", "{}", '{"hooks": {}}', '{"hooks": [1]}', '{"hooks": {"Stop": []}}', '{"hooks": "no"}'):
        assert removed(text) == text


# --- refusals


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{\n  // a comment\n  "a": 1\n}', "line 2, column 3: a comment"),
        ('{"a": 1 /* b */}', "line 1, column 9: a comment"),
        ("# yaml\na: 1", "line 1, column 1: a comment"),
        ('{"a": [1, 2,]}', "line 1, column 13: a comma before the ]"),
        ('{"a": 1,\r\n}', "line 2, column 1: a comma before the }"),
        ("{'a': 1}", "a string that JSON does not know"),
        ('{"a": "\\x41"}', "a string that JSON does not know"),
        ('{"a": "line\nline"}', "a string that JSON does not know"),
        ('{"a": 1', "the text ends too early"),
        ('{"a"', "the text ends too early"),
        ("{", "the text ends too early"),
        ('{"a" 1}', "line 1, column 6: an unexpected '1'"),
        ('{"a": 01}', "unexpected '1'"),
        ('{"a": +1}', "unexpected '+'"),
        ('{"a": 1}\n{"b": 2}', "line 2, column 1: an unexpected '{'"),
        ('{"a": 1, "\\u0061": 2}', "the key 'a' is there twice"),
        ('{"x": [{"k": 1, "k": 1}]}', "the key 'k' is there twice"),
        ('["a"]', "no JSON object"),
        ('"text"', "no JSON object"),
        ("null", "no JSON object"),
        ('{"hooks": []}', '"hooks" is there, and is not an object'),
        ('{"hooks": "x"}', '"hooks" is there, and is not an object'),
        ('{"hooks": null}', '"hooks" is there, and is not an object'),
        ('{"hooks": {"Stop": {"hooks": []}}}', '"Stop" is there among the hooks, and is not a list'),
        ('{"hooks": {"Stop": "say done"}}', '"Stop" is there among the hooks, and is not a list'),
        ('{"deep": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than 200 levels"),
        ("\ufeff\ufeff{}", "an unexpected"),
        ("\u00a0{}", "an unexpected"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(CannotKeep) as caught:
        installed(text)
    assert why in str(caught.value)
    if "hooks" not in text:
        with pytest.raises(CannotKeep):
            removed(text)


def test_text_that_is_not_utf8_is_refused() -> None:
    for content in ("{}".encode("utf-16"), b'{"a": "\xff"}', b"\xef\xbb\xbf\xff"):
        with pytest.raises(CannotKeep, match="not UTF-8"):
            with_hooks(content, WANTED, NESTED)


def test_a_path_that_json_cannot_express_is_refused() -> None:
    with pytest.raises(CannotKeep, match="the path of Python"):
        with_hooks(b"{}", {"Stop": ours("stop", "/caf\udce9/python")}, NESTED)


def test_a_fault_of_the_editor_never_reaches_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_settings, "addition", lambda *_: json_text.Edit(1, 7, '"b": 1, "hooks": {}'))
    with pytest.raises(CannotKeep, match="without touching something else"):
        installed('{"a": 1}')
    monkeypatch.setattr(client_settings, "cuts", lambda *_: [json_text.Edit(1, 9, "")])
    with pytest.raises(CannotKeep, match="without touching something else"):
        removed('{"a": 1, "hooks": {"Stop": [{"command": "subconscious-mcp hook stop"}]}}')


# --- what is ours


@pytest.mark.parametrize(
    "entry",
    [
        ours("stop"),
        ours("user-prompt-submit", "C:\\Program Files\\Python\\python.exe"),
        {"command": "/x/bin/subconscious-mcp", "args": ["hook", "stop"]},
        {"command": "subconscious-mcp hook stop"},
        {"command": "'/home/a b/bin/subconscious-mcp' hook session-start"},
        {"command": "/a\\ b/bin/subconscious-mcp hook stop"},
        {"command": '"/home/a b/bin/python" -m subconscious_mcp hook stop'},
        {"command": "C:\\venv\\Scripts\\subconscious-mcp.exe hook stop"},
        {"command": '& "C:\\a b\\python.exe" -I -m subconscious_mcp hook stop --client codex'},
        {"command": "uvx subconscious-mcp hook stop"},
        {"command": "python -m subconscious_mcp hook session-end"},
    ],
)
def test_ours_is_known_by_its_words(entry: dict[str, Any]) -> None:
    assert is_ours(entry)


@pytest.mark.parametrize(
    "entry",
    [
        THEIRS,
        {},
        {"command": None},
        {"command": 5, "args": []},
        {"command": "subconscious-mcp"},
        {"command": "subconscious-mcp hook"},
        {"command": "my-subconscious-mcp hook stop"},
        {"command": "subconscious-mcp-extra hook stop"},
        {"command": "subconscious-mcp hook stop && say done"},
        {"command": "cd /x; subconscious-mcp hook stop"},
        {"command": "subconscious-mcp hook stop | tee log"},
        {"command": "echo 'subconscious-mcp hook stop'"},
        {"command": "subconscious-mcp hook stop 'unclosed"},
        {"command": "subconscious-mcp", "args": ["hook", "stop", "later"]},
        {"command": "subconscious-mcp", "args": ["hook", 5]},
        {"prompt": "subconscious-mcp hook stop"},
        "subconscious-mcp hook stop",
    ],
)
def test_what_others_wrote_is_not_ours(entry: Any) -> None:
    assert not is_ours(entry)


# --- properties

TEXTS = st.text(max_size=6) | st.sampled_from(["hooks", "Stop", "\ud800", "\u2028", "é", "😀", '"', "\\", "//", "/*"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.one_of(
    st.just(THEIRS),
    st.builds(ours, st.sampled_from(["stop", "session-start"]), st.sampled_from(["/a", "/b c/python"])),
    st.just({"command": "subconscious-mcp hook stop", "type": "command", "timeout": 3}),
    VALUES,
)
GROUPS = st.one_of(
    st.builds(lambda entries: {"hooks": entries}, st.lists(ENTRIES, max_size=3)),
    st.builds(lambda entries: {"matcher": "*", "hooks": entries, "x": 1.0}, st.lists(ENTRIES, max_size=3)),
    ENTRIES,
)
EVENTS = st.dictionaries(
    st.sampled_from(["Stop", "SessionStart", "PreToolUse", "stop"]), st.lists(GROUPS, max_size=3) | VALUES, max_size=4
)
SETTINGS = st.builds(
    lambda some, hooks, more, has: {**some, **({"hooks": hooks} if has else {}), **more},
    st.dictionaries(TEXTS, VALUES, max_size=3),
    st.one_of(EVENTS, EVENTS, EVENTS, VALUES),
    st.dictionaries(TEXTS, VALUES, max_size=2),
    st.booleans(),
)
STYLES = st.tuples(
    st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from([": ", ":", " : "]),
    st.sampled_from(["", "\ufeff"]),
)


def written(value: Any, style: tuple[Any, ...]) -> str:
    indent, newline, escaped, colon, mark = style
    separators = (",", colon) if indent is not None or colon == ":" else (", ", colon)
    return mark + json.dumps(value, indent=indent, ensure_ascii=escaped, separators=separators).replace("\n", newline)


def own_entries(value: Any) -> list[Any]:
    """Every entry of ours, wherever it stands below the hooks."""
    found = []
    for event, groups in value["hooks"].items() if isinstance(value.get("hooks"), dict) else ():
        for group in groups if isinstance(groups, list) else ():
            inner = group.get("hooks") if isinstance(group, dict) else None
            for entry in [group, *(inner if isinstance(inner, list) else [])]:
                if is_ours(entry):
                    found.append((event, entry))
    return found


def rest(value: Any) -> Any:
    """The settings without ours, and without lists of hooks that hold nothing, in their order."""
    value = dict(value)
    if isinstance(value.get("hooks"), dict):
        events = {}
        for event, groups in value["hooks"].items():
            if isinstance(groups, list):
                kept = []
                for group in groups:
                    if is_ours(group):
                        continue
                    if isinstance(group, dict) and isinstance(group.get("hooks"), list):
                        group = {**group, "hooks": [entry for entry in group["hooks"] if not is_ours(entry)]}
                        if not group["hooks"]:
                            continue
                    kept.append(group)
                groups = kept
            if groups != []:
                events[event] = groups
        value["hooks"] = events
        if not events:
            del value["hooks"]
    # As a text, in which order counts and NaN is equal to itself.
    return json.dumps(value)


def usable(value: Any) -> bool:
    hooks = value.get("hooks", {})
    return isinstance(hooks, dict) and all(isinstance(hooks.get(event, []), list) for event in WANTED)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, STYLES)
def test_any_settings_gain_exactly_our_hooks_and_lose_them_again(value: dict[str, Any], style: tuple[Any, ...]) -> None:
    text = written(value, style)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        content = written(value, (*style[:2], True, *style[3:])).encode()
    before = json.loads(content.decode("utf-8-sig"))
    if not usable(before):
        with pytest.raises(CannotKeep):
            with_hooks(content, WANTED, NESTED)
        return
    after = with_hooks(content, WANTED, NESTED)
    new = json.loads(after.decode("utf-8-sig"))
    assert rest(new) == rest(before)
    for event, entry in WANTED.items():
        mine = [found for name, found in own_entries(new) if name == event]
        assert len(mine) == 1 and (mine[0]["command"], mine[0]["args"]) == (entry["command"], entry["args"])
    assert with_hooks(after, WANTED, NESTED) == after
    gone = without_hooks(after)
    assert rest(json.loads(gone.decode("utf-8-sig"))) == rest(before)
    assert own_entries(json.loads(gone.decode("utf-8-sig"))) == []
    if "hooks" not in before and before:
        assert gone == content


@settings(max_examples=100, deadline=None)
@given(SETTINGS, STYLES, st.data())
def test_a_mutated_file_is_refused_or_gains_exactly_our_hooks(
    value: dict[str, Any], style: tuple[Any, ...], data: st.DataObject
) -> None:
    text = written(value, (*style[:2], True, *style[3:]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 3)))
        piece = data.draw(
            st.sampled_from([*'{}[],:"\\/*# \n\t0e-.', "//", "null", "\ufeff", "é", "\x00"]) | st.just("")
        )
        text = text[:at] + piece + text[until:]
    content = text.encode()
    try:
        after = with_hooks(content, WANTED, NESTED)
    except CannotKeep:
        return
    if not content.decode("utf-8-sig").strip(" \t\r\n"):
        before = {}
    else:
        before = json.loads(content.decode("utf-8-sig"))
    new = json.loads(after.decode("utf-8-sig"))
    assert rest(new) == rest(before)
    assert {event for event, _ in own_entries(new)} >= set(WANTED)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='{}[],:"\\/ \n\rau0d8-.eE1tnN*#', max_size=40))
@example('{"a":1}')
@example("[1e5, -0.0]")
def test_the_scanner_accepts_what_pythons_parser_accepts(text: str) -> None:
    class Repeated(Exception):
        pass

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise Repeated
        return dict(pairs)

    try:
        expected = isinstance(json.loads(text, object_pairs_hook=once), dict)
    except (ValueError, Repeated):
        expected = False
    try:
        json_text.scanned(text)
        accepted = True
    except CannotKeep:
        accepted = False
    assert accepted == expected


@settings(max_examples=100, deadline=None)
@given(SETTINGS, STYLES)
def test_what_is_added_is_an_insertion(value: dict[str, Any], style: tuple[Any, ...]) -> None:
    """Where nothing of ours was, all that was there is still there, in its order."""
    text = written(value, (*style[:2], True, *style[3:]))
    if not usable(json.loads(text.removeprefix("\ufeff"))) or own_entries(value):
        return
    following = iter(installed(text))
    assert all(any(here == other for other in following) for here in text if not here.isspace())


def test_plus_ours_is_what_comes_out() -> None:
    before = {"a": 1, "hooks": {"Stop": [{"hooks": [THEIRS]}], "PreToolUse": []}, "b": [1.5]}
    assert json.loads(installed(json.dumps(before))) == plus_ours(before)
