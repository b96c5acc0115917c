"""Settings: environment over config.json over defaults, with one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp.config import SETTINGS, resolve
from subconscious_mcp.errors import ConfigError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"SUBCONSCIOUS_HOME": str(tmp_path)}


def written(env: dict[str, str], text: str | bytes) -> None:
    path = Path(env["SUBCONSCIOUS_HOME"]) / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_defaults_are_those_of_the_documentation(env: dict[str, str]) -> None:
    config = resolve(env).config
    home = Path(env["SUBCONSCIOUS_HOME"])
    assert (config.storage_dir, config.models_dir) == (home / "data", home / "models")
    assert config.embedding_model == "all-MiniLM-L6-v2"
    assert (config.default_threshold, config.default_ttl_seconds) == (0.85, None)
    assert (config.log_level, config.echo_log_enabled, config.echo_log_max_bytes) == ("INFO", True, 5_000_000)
    assert (config.namespace, config.capture_enabled, config.model_download) == (None, True, "auto")


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(env: dict[str, str]) -> None:
    written(env, json.dumps({"default_threshold": 0.7, "log_level": "warn", "storage_dir": "elsewhere"}))
    env["SUBCONSCIOUS_DEFAULT_THRESHOLD"] = "0.9"
    resolved = resolve(env)
    assert resolved.config.default_threshold == 0.9
    assert resolved.config.log_level == "WARNING"
    # What the file says is relative to the file.
    assert resolved.config.storage_dir == Path(env["SUBCONSCIOUS_HOME"]) / "elsewhere"
    assert resolved.origins["default_threshold"].source == "env SUBCONSCIOUS_DEFAULT_THRESHOLD"
    assert resolved.origins["log_level"].source == "config.json"
    assert resolved.origins["capture_enabled"].source == "default"
    assert resolved.warnings == ()


def test_an_empty_variable_counts_as_unset(env: dict[str, str]) -> None:
    env["SUBCONSCIOUS_LOG_LEVEL"] = "  "
    assert resolve(env).config.log_level == "INFO"


@pytest.mark.parametrize(("word", "value"), [("1", True), ("On", True), ("yes", True), ("0", False), ("FALSE", False)])
def test_booleans_are_the_words_that_people_use(env: dict[str, str], word: str, value: bool) -> None:
    env["SUBCONSCIOUS_ECHO_LOG_ENABLED"] = word
    assert resolve(env).config.echo_log_enabled is value


@pytest.mark.parametrize(
    ("name", "raw", "takes"),
    [
        ("DEFAULT_THRESHOLD", "2", "a number from 0 to 1"),
        ("DEFAULT_THRESHOLD", "nan", "a number from 0 to 1"),
        ("DEFAULT_THRESHOLD", "high", "a number from 0 to 1"),
        ("DEFAULT_TTL_SECONDS", "0", "a whole number of seconds"),
        ("DEFAULT_TTL_SECONDS", "1.5", "a whole number of seconds"),
        ("DEFAULT_TTL_SECONDS", "1" + "0" * 400, "a whole number of seconds"),
        ("LOG_LEVEL", "nonsense", "one of DEBUG, INFO"),
        ("ECHO_LOG_ENABLED", "maybe", "true or false"),
        ("ECHO_LOG_MAX_BYTES", "12", "a whole number of bytes"),
        ("NAMESPACE", "x" * 201, "a name of 1 to 200"),
        ("NAMESPACE", "a\nb", "a name of 1 to 200"),
        ("MODEL_DOWNLOAD", "sometimes", "one of auto, never"),
    ],
)
def test_a_wrong_variable_is_one_line_that_names_it(env: dict[str, str], name: str, raw: str, takes: str) -> None:
    env[f"SUBCONSCIOUS_{name}"] = raw
    with pytest.raises(ConfigError) as caught:
        resolve(env)
    assert f"SUBCONSCIOUS_{name} takes {takes}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "one JSON object"),
        ('"text"', "one JSON object"),
        ("{", "not valid JSON (line 1"),
        ("[" * 100_000, "not valid JSON"),
        ('{"default_threshold": "high"}', "default_threshold in"),
        ('{"default_threshold": NaN}', "default_threshold in"),
        ('{"default_threshold": true}', "default_threshold in"),
        ('{"default_threshold": null}', "default_threshold in"),
        ('{"echo_log_enabled": 2}', "echo_log_enabled in"),
        ('{"storage_dir": 5}', "storage_dir in"),
        ('{"namespace": []}', "namespace in"),
        ('{"log_level": 10}', "log_level in"),
        (b"\xff\xfe{\x00}\x00", "cannot be read"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it(env: dict[str, str], text: str | bytes, says: str) -> None:
    written(env, text)
    with pytest.raises(ConfigError) as caught:
        resolve(env)
    assert says in str(caught.value)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "  \n", "{}", "\ufeff{}", '{"default_ttl_seconds": null, "namespace": null}'])
def test_files_that_say_nothing_are_fine(env: dict[str, str], text: str) -> None:
    written(env, text)
    assert resolve(env).config.default_threshold == 0.85


def test_a_config_file_that_is_a_folder_is_told(env: dict[str, str]) -> None:
    (Path(env["SUBCONSCIOUS_HOME"]) / "config.json").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(env)


def test_misspelt_names_are_told_with_the_right_one(env: dict[str, str]) -> None:
    written(env, '{"defualt_threshold": 0.9, "colour": "red"}')
    env["SUBCONSCIOUS_STORAGEDIR"] = "/x"
    warnings = resolve(env).warnings
    assert warnings == (
        "config.json: there is no setting 'defualt_threshold'; did you mean default_threshold?",
        "config.json: there is no setting 'colour'.",
        "environment: there is no setting SUBCONSCIOUS_STORAGEDIR; did you mean SUBCONSCIOUS_STORAGE_DIR?",
    )


def test_a_home_is_expanded_and_missing_ones_are_told(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "me"))
    env["SUBCONSCIOUS_STORAGE_DIR"] = "~/d with space/données"
    assert resolve(env).config.storage_dir == tmp_path / "me" / "d with space" / "données"
    assert resolve({}).config.home == tmp_path / "me" / ".subconscious-mcp"
    env["SUBCONSCIOUS_STORAGE_DIR"] = "~nobody-of-that-name/data"
    with pytest.raises(ConfigError, match="starts from is not there"):
        resolve(env)
    monkeypatch.setattr("os.path.expanduser", lambda text: text)
    with pytest.raises(ConfigError, match="SUBCONSCIOUS_HOME"):
        resolve({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([setting.name for setting in SETTINGS]), json_values)
def test_any_value_is_taken_or_refused_in_one_line(tmp_path_factory, name: str, value: object) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "config.json").write_text(json.dumps({name: value}), encoding="utf-8")
    try:
        resolve({"SUBCONSCIOUS_HOME": str(home)})
    except ConfigError as error:
        assert "\n" not in str(error)
