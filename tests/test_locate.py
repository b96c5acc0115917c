"""Where the data lies and whether an engine is wanted, and that `config` says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from subconscious_mcp import locate
from subconscious_mcp.config import resolve


def test_the_home_folder_is_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    named = [("/somewhere", "/somewhere"), (" /blanks ", "/blanks"), ("relative", f"{tmp_path}/relative")]
    named += [("~/own", f"{tmp_path}/user/own"), ("/a/../b", "/b")]
    for given, folder in named:
        assert locate.home_folder({"SUBCONSCIOUS_HOME": given}) == folder
    for environ in ({}, {"SUBCONSCIOUS_HOME": ""}, {"SUBCONSCIOUS_HOME": "  "}):
        assert locate.home_folder(environ) == f"{tmp_path}/user/.subconscious-mcp"


def test_without_a_home_folder_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "not absolute")
    with pytest.raises(OSError, match="there is no home folder"):
        locate.home_folder({})
    assert locate.home_folder({"SUBCONSCIOUS_HOME": "/somewhere"}) == "/somewhere"


def test_the_home_of_somebody_who_is_not_known_is_no_folder(tmp_path: Path) -> None:
    for text in ("~nobody-of-this-name", "~nobody-of-this-name/data"):
        with pytest.raises(OSError, match="the home folder is not known"):
            locate.absolute(text)
    # Only at the beginning does the mark mean a home.
    assert locate.absolute("a/~nobody", str(tmp_path)) == f"{tmp_path}/a/~nobody"


def test_a_relative_path_begins_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate.absolute("data") == f"{tmp_path}/data"
    assert locate.absolute("data", "/base") == "/base/data"
    assert locate.absolute("/data", "/base") == "/data"
    (tmp_path / "link").symlink_to(tmp_path)
    assert locate.absolute("link/data") == f"{tmp_path}/link/data"


WRITTEN: list[tuple[bytes | None, dict[str, Any]]] = [
    (None, {}),
    (b"", {}),
    (b" \n", {}),
    (b'{"engine": false}', {"engine": False}),
    (b'\xef\xbb\xbf{"engine": false}', {"engine": False}),
    (b"{", {}),
    (b"[]", {}),
    (b'"text"', {}),
    (b"\xff\xfe", {}),
    (b"[" * 100_000, {}),
]


@pytest.mark.parametrize(("content", "found"), WRITTEN, ids=range(len(WRITTEN)))
def test_what_is_written_counts_where_it_can_be_read(
    tmp_path: Path, content: bytes | None, found: dict[str, Any]
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    assert locate.written_settings(str(tmp_path)) == found


def test_a_folder_in_the_place_of_the_settings_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert locate.written_settings(str(tmp_path)) == {}


PLACES: list[tuple[str | None, Any, str]] = [
    (None, None, "{home}/data"),
    ("", None, "{home}/data"),
    ("  ", "  ", "{home}/data"),
    (None, "own", "{home}/own"),
    (None, " /elsewhere ", "/elsewhere"),
    ("/given", "/elsewhere", "/given"),
    (" given ", "/elsewhere", "{cwd}/given"),
]


@pytest.mark.parametrize(("given", "written", "place"), PLACES)
def test_the_storage_directory_is_the_one_that_config_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, written: Any, place: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(tmp_path)
    environ = {"SUBCONSCIOUS_HOME": str(home)}
    if given is not None:
        environ["SUBCONSCIOUS_STORAGE_DIR"] = given
    if written is not None:
        (home / "config.json").write_text(json.dumps({"storage_dir": written}))
    found = locate.storage_folder(environ, str(home), locate.written_settings(str(home)))
    assert found == place.replace("{home}", str(home)).replace("{cwd}", str(tmp_path))
    if written is None or written.strip():
        assert resolve(environ).config.storage_dir == Path(found)


@pytest.mark.parametrize("written", [7, None, ["a"], False])
def test_a_storage_directory_that_is_no_text_is_left_for_config_to_refuse(tmp_path: Path, written: Any) -> None:
    assert locate.storage_folder({}, str(tmp_path), {"storage_dir": written}) == f"{tmp_path}/data"


WISHES: list[tuple[str | None, Any, bool]] = [
    (None, None, True),
    (None, True, True),
    (None, False, False),
    (None, 0, False),
    (None, "Off", False),
    ("off", True, False),
    (" NO ", None, False),
    ("0", None, False),
    ("on", False, True),
    ("", False, False),
]


@pytest.mark.parametrize(("given", "written", "wanted"), WISHES)
def test_an_engine_is_wanted_unless_somebody_says_no(
    tmp_path: Path, given: str | None, written: Any, wanted: bool
) -> None:
    environ = {"SUBCONSCIOUS_HOME": str(tmp_path)}
    if given is not None:
        environ["SUBCONSCIOUS_ENGINE"] = given
    if written is not None:
        (tmp_path / "config.json").write_text(json.dumps({"engine": written}))
    assert locate.engine_wanted(environ, locate.written_settings(str(tmp_path))) is wanted
    assert resolve(environ).config.engine is wanted
