"""Settings: environment over config.json over defaults. The only reader of the environment."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from subconscious_mcp import locate
from subconscious_mcp.errors import ConfigError
from subconscious_mcp.locate import ENV_PREFIX, namespace_name

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MODEL_DOWNLOAD_CHOICES = ("auto", "never")
MAX_TTL_SECONDS = 100 * 365 * 86_400
"""One hundred years: beyond it a number is a mistake, and sums of times stay exact."""


@dataclass(frozen=True, slots=True)
class Config:
    """The resolved settings.

    Attributes:
        home: Folder of config.json, models and logs.
        storage_dir: Folder of the data, absolute.
        models_dir: Folder of the installed models, absolute.
        embedding_model: Name or folder of a sentence-transformers model.
        default_threshold: Least similarity of a hit, 0..1.
        default_ttl_seconds: Lifetime of an entry in seconds; None is for ever.
        max_error: Share of wrong answers that is borne of an entry with feedback, between 0 and 1;
            None learns no thresholds.
        feedback_tool: Offer the tool by which an agent says whether an answer was right.
        echo_log_max_bytes: Size above which the older half of the echo log is dropped.
        namespace: The namespace that was asked for; None derives it from the project.
        model_download: `auto` installs a missing model at first use, `never` does not.
        engine: A background process may serve all windows; otherwise each serves itself.
        engine_idle_seconds: How long the engine waits for a client before it ends.
        engine_transport: `unix`, `tcp`, or `auto`: Unix sockets where there are any.
        http_host: Address that `serve --http` listens on.
        http_path: Path of the MCP endpoint, with a slash before and none behind.
        http_rate_limit: Requests a minute of one user; 0 for as many as they like.
        http_auth: `auto` asks for a token where there are any or an issuer, and off this machine; `none`, `token`
            and `oauth` take just that.
        http_allowed_hosts: Names by which clients may ask, besides this machine's own.
        oauth_issuer: Authorization server whose access tokens are taken; None takes none.
        oauth_audience: This server's name in those tokens, its address as clients know it.
        oauth_jwks_url: Where the issuer's keys are, where its metadata does not say or another host has them.
        toolset: Which tools a client is offered: `cache`, `notes`, or `all`.
        summary_url: OpenAI-compatible endpoint that may be asked to summarise notes; None asks none.
        summary_model: The model's name there; None says none.
        summary_api_key: What the endpoint wants to be shown. From the environment only, and shown nowhere.
    """

    home: Path
    storage_dir: Path
    models_dir: Path
    embedding_model: str
    default_threshold: float
    default_ttl_seconds: int | None
    log_level: str
    verify_hits: bool
    echo_log_enabled: bool
    echo_log_max_bytes: int
    namespace: str | None
    capture_enabled: bool
    model_download: str
    engine: bool
    engine_idle_seconds: float
    engine_transport: str
    max_error: float | None
    feedback_tool: bool
    http_host: str
    http_port: int
    http_path: str
    http_max_body_bytes: int
    http_rate_limit: int
    http_auth: str
    http_allowed_hosts: tuple[str, ...]
    http_allowed_origins: tuple[str, ...]
    oauth_issuer: str | None
    oauth_audience: str | None
    oauth_jwks_url: str | None
    toolset: str
    summary_url: str | None
    summary_model: str | None
    summary_api_key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from, for people: `default`, `config.json` or an environment variable."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with their origins, and what a person should be told about them."""

    config: Config
    origins: dict[str, Origin]
    warnings: tuple[str, ...]
    config_file: Path


# --- parsers: each takes what JSON or the environment gives and returns the value, or raises
# ValueError with what the setting takes ("a number from 0 to 1").


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("a text")
    return raw.strip()


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    # JSON's 1 and 0, and the words that people put into environment variables.
    word = str(raw).strip().lower() if isinstance(raw, (str, int)) else ""
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("true or false")


def _number(raw: Any, takes: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        raise ValueError(takes)
    try:
        value = float(raw)
    except (ValueError, OverflowError):
        raise ValueError(takes) from None
    if not math.isfinite(value):
        raise ValueError(takes)
    return value


def _threshold(raw: Any) -> float:
    takes = "a number from 0 to 1"
    value = _number(raw, takes)
    if not 0.0 <= value <= 1.0:
        raise ValueError(takes)
    return value


def _max_error(raw: Any) -> float | None:
    if isinstance(raw, str) and raw.strip().lower() in ("null", "none", "off"):
        return None
    takes = "a number between 0 and 1, or null for off"
    value = _number(raw, takes)
    if not 0.0 < value < 1.0:
        raise ValueError(takes)
    return value


def _whole(low: int, high: int, takes: str) -> Callable[[Any], int]:
    def parse(raw: Any) -> int:
        value = _number(raw, takes)
        if value != int(value) or not low <= value <= high:
            raise ValueError(takes)
        return int(value)

    return parse


def _ttl(raw: Any) -> int | None:
    if isinstance(raw, str) and raw.strip().lower() in ("null", "none", "never"):
        return None
    takes = f"a whole number of seconds from 1 to {MAX_TTL_SECONDS}, or null for never"
    return _whole(1, MAX_TTL_SECONDS, takes)(raw)


def _log_level(raw: Any) -> str:
    word = raw.strip().upper() if isinstance(raw, str) else ""
    word = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(word, word)
    if word not in LOG_LEVELS:
        raise ValueError("one of " + ", ".join(LOG_LEVELS))
    return word


def _choice(*choices: str) -> Callable[[Any], str]:
    def parse(raw: Any) -> str:
        word = raw.strip().lower() if isinstance(raw, str) else ""
        if word not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return word

    return parse


def _seconds(raw: Any) -> float:
    takes = "a number of seconds from 0.1 to 31536000"
    value = _number(raw, takes)
    if not 0.1 <= value <= 31_536_000:
        raise ValueError(takes)
    return value


def _texts(raw: Any) -> tuple[str, ...]:
    # A JSON list, or what people put into an environment variable.
    several = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
        raise ValueError("texts, separated by commas")
    return tuple(one.strip() for one in several if one.strip())


def _path(raw: Any) -> str:
    path = raw.strip().rstrip("/") if isinstance(raw, str) else ""
    if not path.startswith("/") or not all(c.isalnum() or c in "/._~-" for c in path) or not path.isascii():
        raise ValueError("a path like /mcp")
    return path


def _model_url(raw: Any) -> str:
    takes = "an address such as https://models.example/v1, or one with http on this machine, without a password in it"
    try:
        parts = urlsplit(_text(raw))
        sound = bool(parts.hostname) and parts.username is None and parts.password is None and parts.port != 0
    except ValueError:
        raise ValueError(takes) from None
    here = (parts.hostname or "") in ("localhost", "127.0.0.1", "::1")
    if not sound or not (parts.scheme == "https" or (parts.scheme == "http" and here)):
        raise ValueError(takes)
    return parts.geturl()


def _model_download(raw: Any) -> str:
    # People write `false` for "do not", so the words of a boolean are taken too.
    try:
        return "auto" if _boolean(raw) else "never"
    except ValueError:
        return _choice(*MODEL_DOWNLOAD_CHOICES)(raw)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its default, how it is read and what it is for.

    Attributes:
        secret: It is taken from the environment only, and its value is never shown.
    """

    name: str
    default: Any
    parse: Callable[[Any], Any]
    about: str
    secret: bool = False

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


SETTINGS: tuple[Setting, ...] = (
    Setting("storage_dir", None, _text, "folder of the data"),
    Setting("embedding_model", "all-MiniLM-L6-v2", _text, "name or folder of the embedding model"),
    Setting("default_threshold", 0.85, _threshold, "least similarity of a hit"),
    Setting("default_ttl_seconds", None, _ttl, "lifetime of an entry, null for ever"),
    Setting("log_level", "INFO", _log_level, "detail of logs/server.log"),
    Setting("verify_hits", True, _boolean, "keep back an answer whose task contrasts with the query"),
    Setting("echo_log_enabled", True, _boolean, "log each recall, for drift_report"),
    Setting(
        "echo_log_max_bytes",
        5_000_000,
        _whole(1_000, 10**12, "a whole number of bytes from 1000"),
        "size of the echo log above which its older half is dropped",
    ),
    Setting("namespace", None, namespace_name, "isolation label; derived from the project by default"),
    Setting("capture_enabled", True, _boolean, "let hooks capture sessions"),
    Setting("models_dir", None, _text, "folder of the installed models"),
    Setting("model_download", "auto", _model_download, "install a missing model at first use"),
    Setting("engine", True, _boolean, "serve all windows from one background process"),
    Setting("engine_idle_seconds", 600.0, _seconds, "quiet after which the engine ends"),
    Setting("engine_transport", "auto", _choice("auto", "unix", "tcp"), "how pipes reach the engine"),
    Setting("max_error", None, _max_error, "share of wrong answers that is borne of an entry with feedback"),
    Setting("feedback_tool", False, _boolean, "offer the tool `feedback` to agents"),
    Setting("http_host", "127.0.0.1", _text, "address that `serve --http` listens on"),
    Setting("http_port", 8000, _whole(0, 65535, "a port from 0 to 65535"), "its port; 0 takes a free one"),
    Setting("http_path", "/mcp", _path, "its path"),
    Setting(
        "http_max_body_bytes",
        8 * 1024 * 1024,
        _whole(1_000, 10**9, "a whole number of bytes from 1000"),
        "size above which a request is refused",
    ),
    Setting(
        "http_rate_limit",
        600,
        _whole(0, 10**9, "a whole number of requests a minute, or 0 for no limit"),
        "requests a minute of one user, 0 for no limit",
    ),
    Setting("http_auth", "auto", _choice("auto", "none", "token", "oauth"), "what users must show"),
    Setting("http_allowed_hosts", (), _texts, "names by which clients may ask, besides this machine's own"),
    Setting("http_allowed_origins", (), _texts, "web pages that may ask, besides this machine's own"),
    Setting("oauth_issuer", None, _text, "authorization server whose access tokens are taken"),
    Setting("oauth_audience", None, _text, "this server's address in those tokens"),
    Setting("oauth_jwks_url", None, _text, "where the issuer's keys are, if its metadata does not say"),
    Setting("toolset", "cache", _choice(*locate.TOOLSETS), "which tools clients are offered"),
    Setting("summary_url", None, _model_url, "OpenAI-compatible endpoint that may summarise notes"),
    Setting("summary_model", None, _text, "name of the model there"),
    Setting("summary_api_key", None, _text, "key for it, from the environment only", secret=True),
)
_NULLABLE = {
    "default_ttl_seconds",
    "max_error",
    "namespace",
    "storage_dir",
    "models_dir",
    "oauth_issuer",
    "oauth_audience",
    "oauth_jwks_url",
    "summary_url",
    "summary_model",
}


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """Returns `SUBCONSCIOUS_HOME`, or `.subconscious-mcp` in the user's home folder.

    Raises:
        ConfigError: The user has no home folder and the variable is not set.
    """
    env = os.environ if environ is None else environ
    try:
        return Path(locate.home_folder(env))
    except OSError:
        raise ConfigError(
            "There is no home folder to keep the memory in.", f"Set {ENV_PREFIX}HOME to a folder."
        ) from None


def default_models_dir() -> Path:
    """Returns the folder of the installed models as the resolved settings have it.

    Raises:
        ConfigError: A setting is unreadable or out of range.
    """
    return resolve().config.models_dir


def project_dir(environ: Mapping[str, str] | None = None, working: Path | None = None) -> Path:
    """Returns the folder whose project a session belongs to: what the client says, else the working one.

    Args:
        environ: The session's environment; the process's own by default.
        working: The session's working directory; the process's own by default.
    """
    env = os.environ if environ is None else environ
    return Path(locate.project_folder(env, "" if working is None else str(working)))


def user_home() -> Path | None:
    """Returns the user's home folder, or None where there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def stand_in(environ: Mapping[str, str] | None = None) -> Config:
    """Returns settings for a session that can only say what is wrong with its own: the defaults, in no folder.

    The toolset is the one that was asked for, so that the client finds the tools it expects.
    """
    asked = locate.asked_toolset(os.environ if environ is None else environ, {})
    toolset = {f"{ENV_PREFIX}TOOLSET": asked} if asked in locate.TOOLSETS else {}
    return resolve({f"{ENV_PREFIX}HOME": os.devnull, **toolset}).config


def resolve(environ: Mapping[str, str] | None = None) -> Resolved:
    """Resolves every setting: environment over config.json over defaults.

    Args:
        environ: The environment to read; the process's own by default.

    Raises:
        ConfigError: config.json is no JSON object, or a value is of the wrong type or out of range.
    """
    env = os.environ if environ is None else environ
    home = default_home(env)
    config_file = home / "config.json"
    written = _read_file(config_file)
    warnings = _unknown_names(written, env)
    origins: dict[str, Origin] = {}
    for setting in SETTINGS:
        origins[setting.name] = _resolve_one(setting, env, written, config_file)
    if origins["toolset"].value == "notes":
        _take_notes_settings(origins, env)
    values = {name: origin.value for name, origin in origins.items()}
    for name, below in (("storage_dir", "data"), ("models_dir", "models")):
        # What the file says is relative to the file; what the environment says, to where one stands.
        base = home if origins[name].source == "config.json" else None
        path = home / below if values[name] is None else _absolute(values[name], base)
        values[name] = path
        origins[name] = Origin(path, origins[name].source)
    config = Config(home=home, **values)
    for setting in SETTINGS:
        origin = origins[setting.name]
        if setting.secret and origin.value is not None:
            # What shows settings shows origins.
            origins[setting.name] = Origin("(not shown)", origin.source)
    return Resolved(config, origins, tuple(warnings), config_file)


def _take_notes_settings(origins: dict[str, Origin], env: Mapping[str, str]) -> None:
    """Takes the variables of the personal notes' first server, and its collection where no namespace is asked for.

    Notes are about a person and not about a project, so no namespace is derived.
    """
    for name, variable in locate.NOTES_VARIABLES.items():
        given = env.get(variable, "")
        if given.strip() and not origins[name].source.startswith("env"):
            setting = next(one for one in SETTINGS if one.name == name)
            origins[name] = Origin(_parsed(setting, given, f"The environment variable {variable}"), f"env {variable}")
    if origins["namespace"].value is None:
        origins["namespace"] = Origin(locate.NOTES_NAMESPACE, "default of the toolset")


def _absolute(text: str, base: Path | None) -> Path:
    try:
        return Path(locate.absolute(text, None if base is None else str(base)))
    except OSError:
        raise ConfigError(
            f"The folder that the path {text!r} starts from is not there.", "Give an absolute path."
        ) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        # utf-8-sig: Windows editors write a byte-order mark.
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.", "Mend or remove the file.") from None
    if not text.strip():
        return {}
    try:
        written = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"{path} is not valid JSON{where}.", "Mend or remove the file.") from None
    if not isinstance(written, dict):
        raise ConfigError(f"{path} must hold one JSON object.", 'For example {"default_threshold": 0.9}.')
    return written


def _unknown_names(written: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    names = [setting.name for setting in SETTINGS]
    variables = [setting.env for setting in SETTINGS]
    told = []
    for name in written:
        if name not in names:
            told.append(f"config.json: there is no setting {name!r}{_did_you_mean(name, names)}")
    for setting in SETTINGS:
        if setting.secret and setting.name in written:
            told.append(f"config.json: {setting.name} is taken from the environment only, as {setting.env}.")
    # A variable of the tests' own is no setting and no mistake.
    known = {*variables, ENV_PREFIX + "HOME", ENV_PREFIX + "TEST_MODELS_DIR"}
    for variable in sorted(env):
        if variable.startswith(ENV_PREFIX) and variable not in known:
            told.append(f"environment: there is no setting {variable}{_did_you_mean(variable, variables)}")
    return told


def _did_you_mean(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else "."


def _resolve_one(setting: Setting, env: Mapping[str, str], written: Mapping[str, Any], config_file: Path) -> Origin:
    # An empty variable counts as unset: that is how shells and compose files say "nothing".
    raw = env.get(setting.env, "")
    if raw.strip():
        return Origin(_parsed(setting, raw, f"The environment variable {setting.env}"), f"env {setting.env}")
    if setting.name in written and not setting.secret:
        value = written[setting.name]
        if value is None and setting.name in _NULLABLE:
            return Origin(None, "config.json")
        return Origin(_parsed(setting, value, f"{setting.name} in {config_file}"), "config.json")
    return Origin(setting.default, "default")


def _parsed(setting: Setting, raw: Any, where: str) -> Any:
    try:
        return setting.parse(raw)
    except ValueError as takes:
        raise ConfigError(f"{where} takes {takes}.") from None
