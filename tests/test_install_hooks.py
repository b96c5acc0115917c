"""Installing hooks: which file, which command, what stays, what is refused, and that the hooks then run."""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from subconscious_mcp import cli, hook_clients, install_hooks, install_hooks_command, settings_file
from subconscious_mcp.errors import ConfigError, InvalidArgument, StorageError, SubconsciousError, meaning
from subconscious_mcp.hook_clients import CLIENTS, shell_line

CLAUDE = CLIENTS["claude"]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links, modes and owners of POSIX")
COMMAND = ["/opt/env one/bin/python", "-I", "-m", "subconscious_mcp"]
OTHER = (
    '{\n  "model": "opus",\n  "hooks": {\n    "Stop": [{"hooks": [{"type": "command", "command": "say"}]}]\n  }\n}\n'
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    # No program of whoever runs this is asked for its version.
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return folder


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The commands as the command line runs them."""

    def ran(*words: str) -> Ran:
        parser = argparse.ArgumentParser()
        install_hooks_command.add_commands(parser.add_subparsers())
        arguments = parser.parse_args(words)
        try:
            code = arguments.run(arguments)
        except SubconsciousError as error:
            sys.stderr.write(f"{error}\n")
            code = meaning(error).exit_code
        return Ran(code, *capsys.readouterr())

    return ran


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without starting Python: the command is what it is, and the hooks work."""
    monkeypatch.setattr(install_hooks, "own_command", lambda _: list(COMMAND))
    monkeypatch.setattr(install_hooks, "tried", lambda *_: [])


@pytest.fixture
def file(home: Path) -> Path:
    path = home / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(OTHER)
    path.chmod(0o600)
    return path


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.bak.*"))


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".settings")]


def events(path: Path) -> dict[str, list[Any]]:
    return json.loads(path.read_text(encoding="utf-8-sig"))["hooks"]


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_ino, path.is_file() and path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


# --- the whole way, with the real hooks


def test_the_hooks_are_installed_tried_and_removed(run: Run, home: Path, tmp_path: Path) -> None:
    path = home / ".claude" / "settings.json"
    code, out, err = run("install-hooks")
    assert (code, err) == (0, "")
    assert f"Installed for Claude Code: SessionStart, Stop, in {path}\n" in out
    assert "Tried on a made-up session, and they work: stop " in out and ", session-start " in out
    assert "Start a new session" in out and "claude mcp add subconscious-mcp -- subconscious-mcp" in out
    assert events(path).keys() == {"SessionStart", "Stop"}
    entry = events(path)["Stop"][0]["hooks"][0]
    assert entry["command"] == str(Path(sys.executable).absolute())
    assert entry["args"] == ["-I", "-m", "subconscious_mcp", "hook", "stop"] and entry["timeout"] == 10
    assert "matcher" not in events(path)["SessionStart"][0]
    before = path.read_bytes()
    code, out, _ = run("install-hooks")
    assert code == 0 and "Already installed for Claude Code, nothing was changed" in out and "they work" in out
    assert path.read_bytes() == before and backups(path) == []
    code, out, _ = run("uninstall-hooks")
    assert code == 0 and "are removed" in out and json.loads(path.read_bytes()) == {}
    # The trial's memory was its own.
    assert not (tmp_path / "subconscious-home").exists()


def test_all_hooks_of_every_client_run_as_they_are_written(home: Path, run: Run) -> None:
    for name, client in CLIENTS.items():
        prompt = ["--recall-on-prompt"] if "user-prompt-submit" in client.events else []
        code, out, _ = run("install-hooks", "--client", name, *prompt, "--json")
        told = json.loads(out)
        assert code == 0 and told["changed"] and told["tried"].keys() == client.events.keys()
        assert Path(told["file"]).is_file() and told["client"] == name


@POSIX
def test_blanks_in_the_path_of_python_and_a_module_of_the_project_do_not_matter(tmp_path: Path) -> None:
    environment = tmp_path / "my env's" / "venv"
    venv.EnvBuilder(symlinks=True).create(environment)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "of_this_one.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    package = Path(install_hooks.__file__).parent.parent
    (packages / "checkout.pth").write_text(f"{package}\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "json.py").write_text("raise SystemExit('a module of the project was imported')")
    command = [str(environment / "bin" / "python"), "-I", "-m", "subconscious_mcp"]
    for shell in (False, True):
        hooks = hook_clients.entries(CLAUDE, command, ["stop", "session-start"], shell=shell)
        trials = install_hooks.tried(CLAUDE, hooks, os.environ)
        assert [trial.problem for trial in trials] == ["", ""]
    done = subprocess.run([*command, "hook", "stop"], input=b"{}", cwd=project, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_installed_command_installs(tmp_path: Path) -> None:
    if "install-hooks" not in cli._parser().format_help():
        pytest.skip("not a command yet")
    path = tmp_path / "a folder" / "settings.json"
    path.parent.mkdir()
    command = [sys.executable, "-m", "subconscious_mcp", "install-hooks", "--settings", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert events(path).keys() == {"SessionStart", "Stop"}


# --- which file


@pytest.mark.usefixtures("quick")
def test_claude_config_dir_says_where(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = {
        "~/elsewhere": home / "elsewhere" / "settings.json",
        "relative/folder": tmp_path / "relative" / "folder" / "settings.json",
        str(tmp_path / "with blanks"): tmp_path / "with blanks" / "settings.json",
        "  ": home / ".claude" / "settings.json",
        "": home / ".claude" / "settings.json",
    }
    for value, path in expected.items():
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", value)
        assert json.loads(run("install-hooks", "--json").out)["file"] == str(path)
        assert path.is_file()


@pytest.mark.usefixtures("quick")
def test_a_file_may_be_named(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given, path in {"mine.json": tmp_path / "mine.json", "~/mine.json": home / "mine.json"}.items():
        code, out, _ = run("install-hooks", "--settings", given)
        assert code == 0 and f"in {path}\n" in out and path.is_file()
    assert "To undo it: subconscious-mcp uninstall-hooks --settings '~/mine.json'" in out
    code, out, err = run("install-hooks", "--settings", str(tmp_path / "no" / "folder.json"))
    assert code == 78 and "is not there" in err and '"SessionStart"' in out and not (tmp_path / "no").exists()
    code, _, err = run("install-hooks", "--settings", " ")
    assert code == 64 and "--settings takes" in err
    with pytest.raises(SystemExit):
        run("install-hooks", "--settings", "x", "--project")


@pytest.mark.usefixtures("quick")
def test_a_projects_hooks_go_where_they_are_not_checked_in(run: Run, tmp_path: Path, monkeypatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    code, out, _ = run("install-hooks", "--project")
    assert code == 0 and (project / ".claude" / "settings.local.json").is_file() and "out of git" not in out
    assert "uninstall-hooks --project" in out
    code, out, _ = run("install-hooks", "--project", "--client", "cursor")
    assert (project / ".cursor" / "hooks.json").is_file() and "keep it out of git" in out
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tmp_path))
    assert json.loads(run("install-hooks", "--project", "--json").out)["file"].startswith(str(tmp_path / ".claude"))


def test_each_client_has_its_file_its_events_and_its_time(home: Path) -> None:
    expected = {
        "claude": (".claude/settings.json", {"SessionStart": 10, "Stop": 10, "UserPromptSubmit": 5}),
        "codex": (".codex/hooks.json", {"SessionStart": 10, "Stop": 10, "UserPromptSubmit": 5}),
        "cursor": (".cursor/hooks.json", {"sessionStart": 10, "stop": 10}),
        "gemini": (".gemini/settings.json", {"SessionStart": 10000, "AfterAgent": 10000, "BeforeAgent": 5000}),
        "vscode": (".copilot/hooks/subconscious-mcp.json", {"SessionStart": 10, "Stop": 10}),
    }
    assert expected.keys() == CLIENTS.keys()
    for name, (where, times) in expected.items():
        client = CLIENTS[name]
        assert hook_clients.settings_file(client, {}, home, None, None) == home / where
        written = hook_clients.entries(client, COMMAND, list(client.events), shell=False, windows=False)
        assert {event: entry["timeout"] for event, entry in written.items()} == times
        assert all(("args" in entry) == (name == "claude") for entry in written.values())
        assert all(entry.get("type", "command") == "command" for entry in written.values())
        if name != "claude":
            line = "'/opt/env one/bin/python' -I -m subconscious_mcp hook stop --client " + name
            assert written[client.events["stop"]]["command"] == line
    assert hook_clients.settings_file(CLIENTS["codex"], {"CODEX_HOME": "/x"}, home, None, None) == Path("/x/hooks.json")
    with pytest.raises(ConfigError, match="no home folder"):
        hook_clients.settings_file(CLAUDE, {}, None, None, None)
    with pytest.raises(InvalidArgument, match="--client takes one of claude, codex, cursor, gemini, vscode"):
        hook_clients.client_named("emacs")


# --- what stays


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("content", [b"", b" \r\n", b"{}", b"\xef\xbb\xbf{}\r\n"])
def test_an_empty_file_gets_the_hooks(run: Run, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert run("install-hooks").code == 0
    assert events(file).keys() == {"SessionStart", "Stop"}
    assert file.read_bytes().startswith(content[:3] if content[:1] == b"\xef" else b"{")


@pytest.mark.usefixtures("quick")
def test_the_hooks_of_others_and_the_way_of_writing_stay(run: Run, file: Path) -> None:
    content = OTHER.replace("\n", "\r\n").replace("  ", "\t").encode("utf-8-sig")
    file.write_bytes(content)
    assert run("install-hooks").code == 0
    changed = file.read_bytes()
    assert b"\n" not in changed.replace(b"\r\n", b"") and changed.startswith(content[:40]) and b'\t"hooks"' in changed
    assert events(file)["Stop"][0] == {"hooks": [{"type": "command", "command": "say"}]}
    assert backups(file)[0].read_bytes() == content
    assert run("uninstall-hooks").code == 0
    assert file.read_bytes() == content


@pytest.mark.usefixtures("quick")
def test_a_second_environment_takes_the_place_of_the_first(run: Run, file: Path, monkeypatch) -> None:
    run("install-hooks")
    monkeypatch.setattr(install_hooks, "own_command", lambda _: ["/env two/bin/subconscious-mcp"])
    code, out, _ = run("install-hooks")
    assert code == 0 and "Installed" in out
    assert [entry["command"] for group in events(file)["Stop"] for entry in group["hooks"]] == [
        "say",
        "/env two/bin/subconscious-mcp",
    ]
    assert events(file)["Stop"][1]["hooks"][0]["args"] == ["hook", "stop"]
    run("uninstall-hooks")
    assert file.read_text() == OTHER


@pytest.mark.usefixtures("quick")
def test_the_hook_for_prompts_is_opted_in_and_stays(run: Run, file: Path) -> None:
    run("install-hooks")
    assert "UserPromptSubmit" not in events(file)
    run("install-hooks", "--recall-on-prompt")
    assert events(file)["UserPromptSubmit"][0]["hooks"][0]["timeout"] == 5
    assert "UserPromptSubmit" in run("install-hooks").out and "UserPromptSubmit" in events(file)
    run("uninstall-hooks")
    assert file.read_text() == OTHER
    for client in ("cursor", "vscode"):
        code, _, err = run("install-hooks", "--client", client, "--recall-on-prompt")
        assert code == 64 and "no hook that adds to a prompt" in err


@POSIX
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o700, 0o200 | 0o400])
def test_the_mode_stays_and_the_backup_is_private(run: Run, file: Path, mode: int) -> None:
    file.chmod(mode)
    old = os.umask(0)
    try:
        assert run("install-hooks").code == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == mode
    [backup] = backups(file)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600 and backup.read_text() == OTHER
    assert leftovers(file.parent) == []


@POSIX
@pytest.mark.usefixtures("quick")
def test_a_new_file_and_its_folder_are_private(run: Run, home: Path) -> None:
    old = os.umask(0)
    try:
        run("install-hooks")
    finally:
        os.umask(old)
    path = home / ".claude" / "settings.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert backups(path) == []


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.usefixtures("quick")
def test_the_owner_stays_when_root_installs(run: Run, file: Path) -> None:
    os.chown(file, 65534, 65533)
    assert run("install-hooks").code == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65533)
    assert (backups(file)[0].stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (65534, 0o600)


@POSIX
@pytest.mark.usefixtures("quick")
def test_links_stay_links(run: Run, file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "claude.json"
    real.parent.mkdir()
    file.rename(real)
    between = tmp_path / "between.json"
    between.symlink_to("dotfiles/claude.json")
    file.symlink_to(between)
    assert run("install-hooks").code == 0
    assert file.is_symlink() and between.is_symlink() and not real.is_symlink()
    assert events(real).keys() == {"SessionStart", "Stop"} and file.readlink() == between
    assert [path.name for path in real.parent.iterdir()] == ["claude.json"]
    assert backups(file)[0].read_text() == OTHER


@POSIX
@pytest.mark.usefixtures("quick")
def test_a_link_to_a_file_that_is_not_there_yet_is_followed(run: Run, file: Path, tmp_path: Path) -> None:
    file.unlink()
    file.symlink_to(tmp_path / "later.json")
    assert run("install-hooks").code == 0
    assert file.is_symlink() and events(tmp_path / "later.json").keys() == {"SessionStart", "Stop"}
    (tmp_path / "later.json").unlink()
    file.unlink()
    file.symlink_to(tmp_path / "no folder" / "later.json")
    code, _, err = run("install-hooks")
    assert code == 78 and "is not there" in err and not (tmp_path / "no folder").exists()


@pytest.mark.usefixtures("quick")
def test_only_the_newest_backups_are_kept_and_nothing_of_others(run: Run, file: Path) -> None:
    for number in range(8):
        (file.parent / f"settings.json.bak.2025010{number}-120000").write_text("old")
    others = ["settings.json.bak.1700000000", "settings.json.bak", "settings.json.bak.20250101-120000.gz", "other.json"]
    for name in others:
        (file.parent / name).write_text("not ours")
    run("install-hooks")
    ours = [path.name for path in file.parent.glob("settings.json.bak.*-*") if path.name not in others]
    assert len(ours) == settings_file.KEPT_BACKUPS and "settings.json.bak.20250107-120000" in ours
    assert "settings.json.bak.20250103-120000" not in ours
    assert all((file.parent / name).read_text() == "not ours" for name in others)
    for word in ("uninstall-hooks", "install-hooks", "uninstall-hooks"):
        run(word)
    assert len([path for path in file.parent.iterdir() if ".bak.2" in path.name]) == settings_file.KEPT_BACKUPS + 1


# --- what is refused, with the file as it was


def refused(run: Run, path: Path, *, code: int, says: str) -> Ran:
    before = snapshot(path.parent)
    ran = run("install-hooks")
    assert ran.code == code and says in ran.err and ran.err.count("\n") == 1 and "Traceback" not in ran.err
    pasted = ran.out[ran.out.index("{") :]
    assert json.loads(pasted)["hooks"].keys() == {"SessionStart", "Stop"}
    assert snapshot(path.parent) == before
    return ran


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{\n  // mine\n  "a": 1\n}', "line 2, column 3: a comment"),
        (b'{"a": 1,}', "a comma before the }"),
        (b'{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b'{"hooks": []}', '"hooks" is there, and is not an object'),
        (b'{"hooks": {"Stop": "say"}}', '"Stop" is there among the hooks'),
        (b'"text"', "no JSON object"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"a": ' + b"[" * 3000 + b"]" * 3000 + b"}", "nested more than"),
        (b" " * 10_000_001, "larger than 10 MB"),
    ],
)
def test_what_cannot_be_kept_is_refused(run: Run, file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)
    refused(run, file, code=78, says=says)
    told = json.loads(run("install-hooks", "--json").out)
    assert says in told["error"] and told["hooks"].keys() == {"SessionStart", "Stop"} and told["file"] == str(file)
    if b"hooks" not in content and len(content) < 10_000:
        code, _, err = run("uninstall-hooks")
        assert code == 78 and says in err and file.read_bytes() == content


@POSIX
@pytest.mark.usefixtures("quick")
def test_a_read_only_file_is_refused_for_root_as_well(run: Run, file: Path) -> None:
    run("install-hooks")
    installed = file.read_bytes()
    file.chmod(0o400)
    assert run("install-hooks").code == 0
    code, _, err = run("uninstall-hooks")
    assert code == 74 and "read-only" in err and file.read_bytes() == installed
    file.chmod(0o600)
    file.write_text(OTHER)
    file.chmod(0o444)
    refused(run, file, code=74, says="read-only")
    assert run("install-hooks", "--dry-run").code == 74


@POSIX
@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written_is_refused(home: Path, file: Path) -> None:
    plan = install_hooks.plan_installation(install_hooks.Wish(CLAUDE, False, COMMAND, False), file)
    before = snapshot(file.parent)
    file.parent.chmod(0o555)
    for folder in (home, home.parent, home.parent.parent, home.parent.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.chown(file, 65534, -1) if os.geteuid() == 0 else None
    child = os.fork()
    if child == 0:
        code = 9
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            install_hooks.carry_out(plan, make_folder=True)
        except StorageError as error:
            code = 0 if "Permission denied" in error.message and "left as it is" not in error.hint else 8
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    file.parent.chmod(0o755)
    assert snapshot(file.parent) == before


@POSIX
@pytest.mark.usefixtures("quick")
def test_a_file_with_two_names_is_refused(run: Run, file: Path, tmp_path: Path) -> None:
    os.link(file, tmp_path / "other name")
    refused(run, file, code=74, says="2 names (hard links)")


@POSIX
@pytest.mark.usefixtures("quick")
def test_what_is_no_file_is_refused(run: Run, file: Path) -> None:
    file.unlink()
    file.mkdir()
    refused(run, file, code=78, says="is a folder")
    file.rmdir()
    os.mkfifo(file)
    refused(run, file, code=78, says="no regular file")
    file.unlink()
    file.symlink_to(file)
    refused(run, file, code=74, says="symbolic links")
    file.unlink()
    file.symlink_to("/dev/null")
    refused(run, file, code=78, says="no regular file")
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("a file in the place of the folder")
    assert run("install-hooks").code == 74


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("change", ["content", "gone", "appears", "link"])
def test_a_change_by_another_program_is_kept(run: Run, file: Path, monkeypatch, change: str) -> None:
    """The other program writes after ours has read, at the last moment that can be told."""
    really = settings_file._backed_up
    if change == "appears":
        file.unlink()

    def meanwhile(opened: settings_file.SettingsFile) -> Path | None:
        backup = really(opened)
        if change in ("content", "appears"):
            file.write_text('{"new": 1}')
        elif change == "gone":
            file.unlink()
        else:
            file.rename(file.with_name("moved.json"))
            file.symlink_to("moved.json")
        return backup

    monkeypatch.setattr(settings_file, "_backed_up", meanwhile)
    code, out, err = run("install-hooks")
    assert code == 74 and "was changed by another program" in err and '"SessionStart"' in out
    assert leftovers(file.parent) == [] and backups(file) == []
    if change in ("content", "appears"):
        assert file.read_text() == '{"new": 1}'
    assert file.exists() == (change != "gone")


@POSIX
@pytest.mark.parametrize(
    ("change", "limit"),
    [("install", 0), ("install", 300), ("remove", 0), ("remove", 100), ("remove", 700)],
)
def test_a_full_disk_leaves_the_file_as_it_was(file: Path, change: str, limit: int) -> None:
    """A limit of the size of files: writing fails in the middle, as on a full disk.

    In the last case the new version has room, and the backup of the larger old one has not.
    """
    wish = f"install_hooks.Wish(hook_clients.CLIENTS['claude'], False, {COMMAND!r}, False)"
    if change == "install":
        file.write_text(json.dumps({"long": "x" * 500}))
        plan = f"install_hooks.plan_installation({wish}, path)"
    else:
        hooks = hook_clients.entries(CLAUDE, COMMAND, ["stop", "session-start"], shell=False)
        groups = {event: [{"hooks": [entry]}] for event, entry in hooks.items()}
        file.write_text(json.dumps({"long": "x" * 500, "hooks": groups}, indent=2))
        plan = "install_hooks.plan_removal(hook_clients.CLIENTS['claude'], path)"
    before = snapshot(file.parent)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from subconscious_mcp import install_hooks, errors, hook_clients\n"
        f"path = Path({str(file)!r})\n"
        f"plan = {plan}\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n"
        "    install_hooks.carry_out(plan, make_folder=True)\n"
        "except errors.StorageFull as error:\n"
        "    sys.exit(3)\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert snapshot(file.parent) == before


@pytest.mark.usefixtures("quick")
def test_a_kill_before_the_rename_leaves_the_file_as_it_was(run: Run, file: Path, monkeypatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run("install-hooks")
    assert file.read_text() == OTHER and leftovers(file.parent) == [] and backups(file) == []


# --- what is shown


@pytest.mark.usefixtures("quick")
def test_a_dry_run_shows_the_change_and_writes_nothing(run: Run, home: Path, file: Path) -> None:
    before = snapshot(home)
    code, out, err = run("install-hooks", "--dry-run")
    assert (code, err) == (0, "") and snapshot(home) == before
    assert out.startswith(f"--- {file}\n+++ {file}\n@@ ") and out.endswith("Nothing was written.\n")
    assert '\n+            "command": "/opt/env one/bin/python",\n' in out and '\n   "model": "opus",\n' in out
    told = json.loads(run("install-hooks", "--dry-run", "--json").out)
    assert told["changed"] is False and told["diff"] in out
    run("install-hooks")
    assert "nothing to change" in run("install-hooks", "--dry-run").out
    before = snapshot(home)
    code, out, _ = run("uninstall-hooks", "--dry-run")
    assert '\n-            "command": "/opt/env one/bin/python",\n' in out and snapshot(home) == before


@pytest.mark.usefixtures("quick")
def test_a_dry_run_for_a_new_file_makes_not_even_its_folder(run: Run, home: Path) -> None:
    assert run("install-hooks", "--dry-run").out.startswith(f"--- {os.devnull}\n")
    code, out, _ = run("uninstall-hooks")
    assert code == 0 and "There are no hooks" in out
    assert json.loads(run("uninstall-hooks", "--json").out)["changed"] is False
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_control_characters_of_a_file_do_not_reach_the_terminal(run: Run, file: Path) -> None:
    file.write_text('{\n"a": "\x7f\x9b31m[bold]\u202e",\n"b": 1\n}')
    out = run("install-hooks", "--dry-run").out
    assert '"a": "��31m[bold]�",' in out


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("client", "content", "note"),
    [
        ("claude", '{"disableAllHooks": true}', "disableAllHooks is true"),
        ("gemini", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled is false"),
        ("claude", '{"a": NaN}', "NaN or Infinity"),
    ],
)
def test_what_keeps_hooks_from_running_is_told(run: Run, tmp_path: Path, client: str, content: str, note: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content)
    code, out, _ = run("install-hooks", "--client", client, "--settings", str(path))
    assert code == 0 and note in out and path.read_text().startswith(content[:-1])


def test_capture_that_is_off_and_a_python_in_a_cache_are_told(home: Path, monkeypatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_CAPTURE_ENABLED", "false")
    cached = "/home/u/.cache/uv/archive-v0/abc/bin/python"
    monkeypatch.setattr(install_hooks, "own_command", lambda _: [cached, "-I", "-m", "subconscious_mcp"])
    notes = install_hooks.wish(CLAUDE, prompts=False, environ=os.environ).notes
    assert len(notes) == 2 and "may be cleared" in notes[0] and "capture on" in notes[1]


# --- the command


@POSIX
@pytest.mark.parametrize(
    ("says", "shell"), [("2.1.117 (Claude Code)", True), ("2.1.139", False), ("3.0.0", False), ("hello", False)]
)
def test_an_old_claude_code_gets_one_line(tmp_path: Path, monkeypatch, says: str, shell: bool) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(install_hooks, "own_command", lambda _: list(COMMAND))
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    found = install_hooks.wish(CLAUDE, prompts=False, environ=environ)
    entry = found.entries(prompts=False)["Stop"]
    assert found.shell == shell and ("args" not in entry) == shell
    if shell:
        assert entry["command"] == "'/opt/env one/bin/python' -I -m subconscious_mcp hook stop"
    program.write_text("no program")
    assert not install_hooks.wish(CLAUDE, prompts=False, environ=environ).shell


def test_the_command_is_this_python_by_its_own_path_and_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [str(Path(sys.executable).absolute()), "-I", "-m", "subconscious_mcp"]
    assert install_hooks.own_command(os.environ) == expected


def test_an_installation_for_one_user_is_started_by_its_script(tmp_path: Path, monkeypatch) -> None:
    script = tmp_path / ("subconscious-mcp.exe" if sys.platform == "win32" else "subconscious-mcp")
    monkeypatch.setattr(install_hooks, "_starts", lambda command, _: len(command) == 1)
    monkeypatch.setattr(install_hooks.sysconfig, "get_path", lambda *_: str(tmp_path))
    with pytest.raises(ConfigError, match="only from this folder"):
        install_hooks.own_command({})
    script.touch()
    assert install_hooks.own_command({}) == [str(script)]
    monkeypatch.setattr(sys, "executable", "")
    assert install_hooks.own_command({}) == [str(script)]


def test_what_does_not_start_is_no_command(tmp_path: Path) -> None:
    assert not install_hooks._starts([str(tmp_path / "no such program")], os.environ)
    assert not install_hooks._starts([sys.executable, "-I", "-m", "no_such_module"], os.environ)


def test_windows_lines_need_no_quotes_where_there_is_a_short_path() -> None:
    words = ["C:\\Program Files\\Python\\python.exe", "-I", "-m", "subconscious_mcp", "hook", "stop"]

    def line(path: str, *, slashes: bool = False, short: str = "C:\\PROGRA~1\\Python\\python.exe") -> str:
        return shell_line([path, *words[1:]], windows=True, slashes=slashes, short=lambda _: short)

    rest = " -I -m subconscious_mcp hook stop"
    assert line(words[0]) == "C:\\PROGRA~1\\Python\\python.exe" + rest
    assert line(words[0], slashes=True) == "C:/PROGRA~1/Python/python.exe" + rest
    assert line("C:\\Python\\python.exe") == "C:\\Python\\python.exe" + rest
    # Volumes without short names exist.
    assert line(words[0], short=words[0]) == '"C:\\Program Files\\Python\\python.exe"' + rest
    assert shell_line(words, windows=True, slashes=False) == '"C:\\Program Files\\Python\\python.exe"' + rest


# --- the trial


@POSIX
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "exit code 3"),
        ("echo 'no module' >&2; exit 1", "exit code 1: no module"),
        ("exec sleep 5", "longer than 0.3 seconds"),
        ("exit 0", "it captures nothing"),
        ('mkdir -p "$SUBCONSCIOUS_HOME/logs"; echo why > "$SUBCONSCIOUS_HOME/logs/hook.log"', "captures nothing: why"),
        ('mkdir -p "$SUBCONSCIOUS_HOME/data"; touch "$SUBCONSCIOUS_HOME/data/context.db"', "does not tell of the"),
        (None, "does not start"),
    ],
)
def test_hooks_that_do_not_work_are_not_installed(
    run: Run, file: Path, tmp_path: Path, monkeypatch, script: str | None, says: str
) -> None:
    program = tmp_path / "subconscious-mcp"
    if script is not None:
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setattr(install_hooks, "own_command", lambda _: [str(program)])
    monkeypatch.setattr(install_hooks, "SECONDS", {"stop": 0.3 if "sleep" in str(script) else 5, "session-start": 5})
    before = snapshot(file.parent)
    code, out, err = run("install-hooks")
    assert code == 70 and says in err and "Nothing was written" in err and "by hand" not in out
    assert snapshot(file.parent) == before


def test_the_trial_gets_nothing_of_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    def noted(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        seen.append(options["env"])
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(install_hooks.subprocess, "run", noted)
    environ = {"SUBCONSCIOUS_STORAGE_DIR": "/data", "SUBCONSCIOUS_NAMESPACE": "mine", "KEPT": "1", "PATH": "/bin"}
    hooks = hook_clients.entries(CLAUDE, COMMAND, list(CLAUDE.events), shell=False)
    install_hooks.tried(CLAUDE, hooks, environ)
    assert len(seen) == 3
    for env in seen:
        ours = {name for name in env if name.startswith("SUBCONSCIOUS_")}
        assert ours == {"SUBCONSCIOUS_HOME", "SUBCONSCIOUS_ENGINE"} and env["SUBCONSCIOUS_ENGINE"] == "off"
        assert env["KEPT"] == "1" and not Path(env["SUBCONSCIOUS_HOME"]).parent.exists()
