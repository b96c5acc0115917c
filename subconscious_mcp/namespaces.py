"""From a working directory to the namespace of its project.

One rule for the server, the command line and the hooks: the name that was asked for; else the
project's root folder (of a git worktree: the repository it belongs to); else the folder itself.
A home folder and the root of a file system are nobody's project: their namespace is `default`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT = "default"
_SHOWN = 5
"""Other namespaces that a hint names."""
_PLAIN = r"[a-z0-9_][a-z0-9._-]{0,63}"


class Derived:
    """A namespace before it is registered. No dataclass: importing those takes a hook 8 ms.

    Attributes:
        name: The name that it would like to have.
        root: The project's folder, which tells it from another project of the same name;
            None for a name that was asked for, and for `default`.
        reason: Why, for people.
    """

    __slots__ = ("name", "reason", "root")

    def __init__(self, name: str, root: str | None, reason: str) -> None:
        self.name = name
        self.root = root
        self.reason = reason


def derive(asked: str | None, start: str | os.PathLike[str], home: str | os.PathLike[str] | None) -> Derived:
    """Derives the namespace of a session.

    Args:
        asked: The configured name, or None.
        start: The session's folder: CLAUDE_PROJECT_DIR where the client gives it, else the
            working directory.
        home: The user's home folder, or None where there is none.
    """
    if asked is not None:
        return Derived(asked, None, "asked for")
    folder = _resolved(os.fspath(start))
    root = repository_root(folder)
    reason = "git repository" if root is not None else "folder"
    root = root or folder
    if root == os.path.dirname(root) or (home is not None and root == _resolved(os.fspath(home))):
        return Derived(DEFAULT, None, "no project here")
    name = os.path.basename(root)
    if reason == "git repository":
        name = name.removesuffix(".git")
    # A folder may be called anything; a name is printable and bounded.
    name = "".join(c if c.isprintable() else "_" for c in name)[:100].strip() or "project"
    if name == DEFAULT:
        # A folder of that name must not land in the namespace of everything without a project.
        name = f"{DEFAULT}-{short_hash(root)}"
    return Derived(name, root, f"{reason} {root}")


def others_hint(counts: Mapping[str, int]) -> str:
    """Returns, for who looked where nothing is, which other namespaces have entries; empty where none has.

    Args:
        counts: How many entries each has.
    """
    there = sorted(((count, name) for name, count in counts.items() if count), key=lambda one: (-one[0], one[1]))
    if not there:
        return ""
    shown = [f"{name} ({count:,})" for count, name in there[:_SHOWN]]
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return f"There are entries in {', '.join(shown)}{more}: give --namespace NAME."


def repository_root(folder: str | os.PathLike[str]) -> str | None:
    """Returns the root folder of the git repository that `folder` is in, or None.

    A worktree belongs to its repository, so the repository's root is returned for it. A
    submodule is a project of its own. A bare repository is its own root.
    """
    for here in _upwards(os.fspath(folder)):
        marker = os.path.join(here, ".git")
        try:
            if os.path.isdir(marker):
                return here
            if os.path.isfile(marker):
                return _root_behind(here, marker) or here
            if (
                os.path.isfile(os.path.join(here, "HEAD"))
                and os.path.isdir(os.path.join(here, "objects"))
                and os.path.isdir(os.path.join(here, "refs"))
            ):
                # Inside a `.git` folder the project is the folder around it.
                return os.path.dirname(here) if os.path.basename(here) == ".git" else here
        except OSError:
            continue
    return None


def _upwards(folder: str) -> Iterator[str]:
    while True:
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _root_behind(folder: str, marker: str) -> str | None:
    """Follows the `.git` file of a worktree to its repository; None for a submodule."""
    text = _read(marker)
    if not text.startswith("gitdir:"):
        return None
    git_dir = _resolved(os.path.join(folder, text[len("gitdir:") :].strip()))
    common_file = os.path.join(git_dir, "commondir")
    if not os.path.isfile(common_file):
        return None
    common = _resolved(os.path.join(git_dir, _read(common_file).strip()))
    if not os.path.isdir(common):
        return None
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        # A path may hold anything, a NUL too.
        return os.path.abspath(path)


def short_hash(text: str) -> str:
    """Returns eight hexadecimal digits that tell texts apart."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def file_part(name: str) -> str:
    """Returns a part of a file name that no other namespace has, also where case does not count.

    Lower-case plain names stay as they are; others are cut to what every file system takes,
    with a hash of the whole name behind.
    """
    # Here: a hook does without.
    import re

    if re.fullmatch(_PLAIN, name) and not name.endswith("."):
        return name
    plain = re.sub(r"[^a-z0-9._-]+", "_", name.lower()).strip("._-")[:40]
    return f"{plain or 'ns'}-{short_hash(name)}"
