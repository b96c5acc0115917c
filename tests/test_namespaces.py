"""One rule from a working directory to a namespace."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subconscious_mcp import namespaces
from subconscious_mcp.namespaces import derive, file_part, repository_root


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "work" / "api"
    root.mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def test_a_name_that_was_asked_for_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("p", "a b", "项目", "..", "127.0.0.1", "A", "a", "a/b"):
        derived = derive(name, tmp_path, None)
        assert (derived.name, derived.root) == (name, None)


def test_a_folder_of_a_repository_belongs_to_its_root(repository: Path) -> None:
    below = repository / "src" / "deep"
    below.mkdir(parents=True)
    derived = derive(None, below, None)
    assert (derived.name, derived.root) == ("api", str(repository))


def test_worktrees_share_their_repositorys_namespace(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "elsewhere" / "feature"
    tree.parent.mkdir()
    git(repository, "worktree", "add", "-q", str(tree))
    (tree / "below").mkdir()
    assert derive(None, tree / "below", None).root == str(repository)
    assert derive(None, repository / ".git" / "worktrees", None).root == str(repository)


def test_a_bare_repository_is_its_own_root_and_its_worktrees_belong_to_it(repository: Path, tmp_path: Path) -> None:
    bare = tmp_path / "store.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    derived = derive(None, bare, None)
    assert (derived.name, derived.root) == ("store", str(bare))
    tree = tmp_path / "tree"
    git(bare, "worktree", "add", "-q", str(tree), "-b", "other")
    assert derive(None, tree, None).root == str(bare)


def test_a_submodule_is_a_project_of_its_own(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(repository), "lib")
    assert derive(None, outer / "lib", None).root == str(outer / "lib")


def test_a_folder_without_a_repository_is_its_own_project(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    derived = derive(None, folder, None)
    assert (derived.name, derived.root) == ("notes", str(folder))


def test_home_and_root_are_nobodys_project(tmp_path: Path) -> None:
    assert derive(None, tmp_path, tmp_path).name == "default"
    assert derive(None, Path(tmp_path.anchor), None).name == "default"
    git(tmp_path, "init", "-q")
    # Dotfiles kept in git make the home folder a repository; it is no project all the same.
    assert derive(None, tmp_path / "missing", tmp_path).name == "default"


def test_a_folder_called_default_does_not_land_among_those_without_a_project(tmp_path: Path) -> None:
    folder = tmp_path / "default"
    folder.mkdir()
    derived = derive(None, folder, None)
    assert derived.root == str(folder) and derived.name.startswith("default-")


def test_odd_folder_names_make_printable_bounded_names(tmp_path: Path) -> None:
    folder = tmp_path / ("tab\tand\nline " + "x" * 200)
    folder.mkdir()
    name = derive(None, folder, None).name
    assert name.isprintable() and len(name) <= 100


def test_a_broken_git_file_leaves_the_folder_its_own_project(tmp_path: Path) -> None:
    texts = (b"", b"gitdir:", b"gitdir: /nowhere/at/all", b"\xff\xfe\x00", b"gitdir: a\x00b")
    for number, text in enumerate(texts):
        folder = tmp_path / f"f{number}"
        folder.mkdir()
        (folder / ".git").write_bytes(text)
        assert repository_root(folder) == str(folder)


def test_a_worktree_whose_repository_is_gone_is_its_own_project(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(tree))
    common = next((repository / ".git" / "worktrees").iterdir()) / "commondir"
    common.write_text("/nowhere/at/all\n")
    assert repository_root(tree) == str(tree)


def test_links_in_a_circle_are_a_folder_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    derived = derive(None, tmp_path / "one", tmp_path / "other")
    assert (derived.name, derived.root) == ("one", str(tmp_path / "one"))


def test_a_git_file_that_cannot_be_read_is_passed_over(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = repository / "closed"
    closed.mkdir()
    (closed / ".git").write_text("gitdir: /somewhere")
    assert repository_root(closed) == str(closed)

    def refused(path: str, **_: object) -> object:
        assert path == str(closed / ".git")
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(namespaces, "open", refused, raising=False)
    assert repository_root(closed) == str(repository)


def test_file_parts_never_collide_even_where_case_does_not_count() -> None:
    names = [
        "p",
        "a b",
        "a_b",
        "项目",
        "目项",
        "..",
        ".",
        "127.0.0.1",
        "x" * 600,
        "x" * 601,
        "A",
        "a",
        "a/b",
        "a.",
        "CON",
    ]
    parts = [file_part(name).lower() for name in names]
    assert len(set(parts)) == len(names)
    assert file_part("my-project_1.0") == "my-project_1.0"


@given(st.text(min_size=1, max_size=300))
def test_a_file_part_is_fit_for_every_file_system(name: str) -> None:
    part = file_part(name)
    assert 1 <= len(part) <= 64
    assert part == part.lower()
    assert set(part) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not part.startswith(".") and not part.endswith(".")
