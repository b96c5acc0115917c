"""Where the data lies and whether an engine is wanted: all that the pipe needs of the settings.

Apart from `config` because the pipe starts with every window of every client and imports next to
nothing. `config` uses the same functions, so the two cannot disagree.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ENV_PREFIX = "SUBCONSCIOUS_"
OFF_WORDS = ("0", "false", "no", "off")


def home_folder(environ: Mapping[str, str]) -> str:
    """Returns the folder of config.json, models and logs, absolute.

    Raises:
        OSError: There is no home folder to put it in.
    """
    given = environ.get(ENV_PREFIX + "HOME", "").strip()
    if given:
        return absolute(given)
    home = os.path.expanduser("~")  # noqa: PTH111
    if not os.path.isabs(home):  # noqa: PTH117
        raise OSError("there is no home folder")
    return os.path.join(home, ".subconscious-mcp")  # noqa: PTH118


def absolute(text: str, base: str | None = None) -> str:
    """Returns a path that a setting gives: `~` expanded, relative ones from `base`.

    Args:
        base: A folder; the working directory by default, which is only asked for where it is needed,
            because it may have been deleted.

    Raises:
        OSError: The home folder that the path begins with is not known, or the working directory.
    """
    path = os.path.expanduser(text)  # noqa: PTH111
    if path.startswith("~"):
        raise OSError("the home folder is not known")
    if base is not None:
        path = os.path.join(base, path)  # noqa: PTH118
    # abspath and not realpath: a symbolic link stays what the user wrote.
    return os.path.abspath(path)  # noqa: PTH100


def written_settings(home: str) -> dict[str, Any]:
    """Returns what config.json says, or nothing where it cannot be read: `config` tells why."""
    path = os.path.join(home, "config.json")  # noqa: PTH118
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
    if given:
        return absolute(given)
    text = written.get("storage_dir")
    if isinstance(text, str) and text.strip():
        return absolute(text.strip(), home)
    return os.path.join(home, "data")  # noqa: PTH118


def engine_wanted(environ: Mapping[str, str], written: Mapping[str, Any]) -> bool:
    """Returns whether a background engine may serve; only a clear no is one."""
    given = environ.get(ENV_PREFIX + "ENGINE", "").strip().lower()
    value = given or written.get("engine", True)
    return str(value).strip().lower() not in OFF_WORDS
