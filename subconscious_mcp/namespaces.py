"""From a working directory to the namespace of its project.

One rule for the server, the command line and the hooks: the name that was asked for; else the
project's root folder (of a git worktree: the repository it belongs to); else the folder itself.
A home folder and the root of a file system are nobody's project: their namespace is `default`.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

DEFAULT = "default"
_PLAIN = re.compile(r"[a-z0-9_][a-z0-9._-]{0,63}")


class Derived:
    """A namespace before it is registered. No dataclass: importing those takes a hook 8 ms.

    Attributes:
        name: The name that it would like to have.
        root: The project's folder, which tells it from another project of the same name;
            None for a name that was asked for, and for `default`.
        reason: Why, for people.
    """

    __slots__ = ("name", "reason", "root")

    def __init__(self, name: str, root: Path | None, reason: str) -> None:
        self.name = name
        self.root = root
        self.reason = reason


def derive(asked: str | None, start: Path, home: Path | None) -> Derived:
    """Derives the namespace of a session.

    Args:
        asked: The configured name, or None.
        start: The session's folder: CLAUDE_PROJECT_DIR where the client gives it, else the
            working directory.
        home: The user's home folder, or None where there is none.
    """
    if asked is not None:
        return Derived(asked, None, "asked for")
    folder = _resolved(start)
    root = repository_root(folder)
    reason = "git repository" if root is not None else "folder"
    root = root or folder
    if root == root.parent or (home is not None and root == _resolved(home)):
        return Derived(DEFAULT, None, "no project here")
    name = root.name.removesuffix(".git") if reason == "git repository" else root.name
    # A folder may be called anything; a name is printable and bounded.
    name = "".join(c if c.isprintable() else "_" for c in name)[:100].strip() or "project"
    if name == DEFAULT:
        # A folder of that name must not land in the namespace of everything without a project.
        name = f"{DEFAULT}-{short_hash(str(root))}"
    return Derived(name, root, f"{reason} {root}")


def repository_root(folder: Path) -> Path | None:
    """Returns the root folder of the git repository that `folder` is in, or None.

    A worktree belongs to its repository, so the repository's root is returned for it. A
    submodule is a project of its own. A bare repository is its own root.
    """
    for here in (folder, *folder.parents):
        marker = here / ".git"
        try:
            if marker.is_dir():
                return here
            if marker.is_file():
                return _root_behind(marker) or here
            if (here / "HEAD").is_file() and (here / "objects").is_dir() and (here / "refs").is_dir():
                # Inside a `.git` folder the project is the folder around it.
                return here.parent if here.name == ".git" else here
        except OSError:
            continue
    return None


def _root_behind(marker: Path) -> Path | None:
    """Follows the `.git` file of a worktree to its repository; None for a submodule."""
    text = marker.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith("gitdir:"):
        return None
    git_dir = _resolved(marker.parent / text[len("gitdir:") :].strip())
    common_file = git_dir / "commondir"
    if not common_file.is_file():
        return None
    common = _resolved(git_dir / common_file.read_text(encoding="utf-8", errors="surrogateescape").strip())
    if not common.is_dir():
        return None
    return common.parent if common.name == ".git" else common


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        # Links in a circle are a RuntimeError before Python 3.13; a damaged `.git` file may name any path.
        return path.absolute()


def short_hash(text: str) -> str:
    """Returns eight hexadecimal digits that tell texts apart."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def file_part(name: str) -> str:
    """Returns a part of a file name that no other namespace has, also where case does not count.

    Lower-case plain names stay as they are; others are cut to what every file system takes,
    with a hash of the whole name behind.
    """
    if _PLAIN.fullmatch(name) and not name.endswith("."):
        return name
    plain = re.sub(r"[^a-z0-9._-]+", "_", name.lower()).strip("._-")[:40]
    return f"{plain or 'ns'}-{short_hash(name)}"
