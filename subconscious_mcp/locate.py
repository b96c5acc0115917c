"""Where the data lies and whether an engine is wanted: all that pipe and hooks need of the settings.

Apart from `config` because pipes and hooks start with every window and every session of a client
and import next to nothing. `config` uses the same functions, so the two cannot disagree.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ENV_PREFIX = "SUBCONSCIOUS_"
ON_WORDS = ("1", "true", "yes", "on")
OFF_WORDS = ("0", "false", "no", "off")
MAX_NAMESPACE_CHARS = 200
TOOLSETS = ("cache", "notes", "all")
NOTES_NAMESPACE = "personal_memory"
NOTES_VARIABLES = {"storage_dir": "MCP_MEMORY_PATH", "namespace": "MCP_MEMORY_COLLECTION"}
"""Settings of ours by the variables that stand for them with the toolset `notes`."""


def home_folder(environ: Mapping[str, str]) -> str:
    """Returns the folder of config.json, models and logs, absolute.

    Raises:
        OSError: There is no home folder to put it in.
    """
    given = environ.get(ENV_PREFIX + "HOME", "").strip()
    if given:
        return absolute(given)
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("there is no home folder")
    return os.path.join(home, ".subconscious-mcp")


def absolute(text: str, base: str | None = None) -> str:
    """Returns a path that a setting gives: `~` expanded, relative ones from `base`.

    Args:
        base: A folder; the working directory by default, which is only asked for where it is needed,
            because it may have been deleted.

    Raises:
        OSError: The home folder that the path begins with is not known, or the working directory.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise OSError("the home folder is not known")
    if base is not None:
        path = os.path.join(base, path)
    # abspath and not realpath: a symbolic link stays what the user wrote.
    return os.path.abspath(path)


def written_settings(home: str) -> dict[str, Any]:
    """Returns what config.json says, or nothing where it cannot be read: `config` tells why."""
    path = os.path.join(home, "config.json")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
        if not text.strip():
            return {}
        import json

        written = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return {}
    return written if isinstance(written, dict) else {}


def storage_folder(environ: Mapping[str, str], home: str, written: Mapping[str, Any]) -> str:
    """Returns the storage directory: environment over config.json over the default."""
    given = environ.get(ENV_PREFIX + "STORAGE_DIR", "").strip()
    if not given and asked_toolset(environ, written) == "notes":
        given = environ.get(NOTES_VARIABLES["storage_dir"], "").strip()
    if given:
        return absolute(given)
    text = written.get("storage_dir")
    if isinstance(text, str) and text.strip():
        return absolute(text.strip(), home)
    return os.path.join(home, "data")


def engine_wanted(environ: Mapping[str, str], written: Mapping[str, Any]) -> bool:
    """Returns whether a background engine may serve; only a clear no is one."""
    given = environ.get(ENV_PREFIX + "ENGINE", "").strip().lower()
    value = given or written.get("engine", True)
    return str(value).strip().lower() not in OFF_WORDS


def asked_toolset(environ: Mapping[str, str], written: Mapping[str, Any]) -> str:
    """Returns the toolset that the settings ask for, in lower case; `config` checks it."""
    return str(environ.get(ENV_PREFIX + "TOOLSET", "").strip() or written.get("toolset", "cache")).strip().lower()


def namespace_name(raw: Any) -> str:
    """Checks a namespace's name: 1 to 200 characters, none of them a control character.

    Raises:
        ValueError: Says what a name takes.
    """
    takes = f"a name of 1 to {MAX_NAMESPACE_CHARS} characters without control characters"
    if not isinstance(raw, str):
        raise ValueError(takes)
    name = raw.strip()
    if not 1 <= len(name) <= MAX_NAMESPACE_CHARS or not name.isprintable():
        raise ValueError(takes)
    return name


def capture_wanted(environ: Mapping[str, str], home: str, written: Mapping[str, Any]) -> bool:
    """Returns whether sessions may be captured: whatever is not clearly a yes is a no.

    A config.json that cannot be parsed is taken for a no if it says anything of capture, and one that
    cannot be read is a no, because it may.
    """
    given = environ.get(ENV_PREFIX + "CAPTURE_ENABLED", "").strip()
    if not given and "capture_enabled" not in written:
        try:
            with open(os.path.join(home, "config.json"), "rb") as file:
                return bool(written) or b"capture_enabled" not in file.read().replace(b"\0", b"")
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
    value = given or written["capture_enabled"]
    return value is True or str(value).strip().lower() in ON_WORDS


def asked_namespace(environ: Mapping[str, str], written: Mapping[str, Any]) -> str | None:
    """Returns the namespace that the settings ask for, or None to derive it from the project."""
    for value in (environ.get(ENV_PREFIX + "NAMESPACE", "").strip() or None, written.get("namespace")):
        if value is not None:
            try:
                return namespace_name(value)
            except ValueError:
                return None
    return None


def project_folder(environ: Mapping[str, str], said: str) -> str:
    """Returns the folder whose project a session is about: what the client says, else the working one.

    Its environment comes before `said`, an event's or a connection's, because a session may have changed its folder.
    """
    given = environ.get("CLAUDE_PROJECT_DIR", "").strip() or said
    if given:
        return given
    try:
        return os.getcwd()
    except OSError:
        # It was deleted: it is nobody's project any more.
        return os.sep
