"""Namespaces are listed, renamed and merged, and whoever opens them afterwards finds everything."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import OpenMemory
from engines import Windows
from fakes import FakeEmbedder
from hook_processes import Client
from interaction import CONSOLE_SCRIPT, PATIENCE, Process, environment
from test_inbox import episode, locked
from test_ingest import QUICK, wait_for

from subconscious_mcp import cli
from subconscious_mcp.config import Config
from subconscious_mcp.database import Database
from subconscious_mcp.echo_log import log_file
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.inbox import Inbox
from subconscious_mcp.ingest import ingest_pending
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
from subconscious_mcp.records import Namespace, NewEntry
from subconscious_mcp.schema import MIGRATIONS

ONE, OTHER = "/work/one/api", "/work/other/api"


def names(memory: Memory) -> list[tuple[str, str | None, dict[str, int]]]:
    return [(space["name"], space["root"], space["entries"]) for space in memory.namespaces()]


def log_lines(memory: Memory, config: Config, name: str) -> list[str]:
    memory.settle()
    path = log_file(config.storage_dir, name)
    return [json.loads(line)["query"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def two(memory: Memory, config: Config) -> tuple[str, str]:
    """Two projects of the same folder name, each with a task, an episode, a hit and a miss."""
    found = []
    for root in (ONE, OTHER):
        scope = memory.scope(config, "api", root)
        memory.remember(scope, f"a task of {root}", f"an answer of {root}")
        memory.keep_episode(episode(root, f"a request of {root}", namespace="api", root=root))
        memory.recall(scope, f"a task of {root}")
        memory.recall(scope, "nothing of the kind")
        found.append(scope.namespace.name)
    memory.settle()
    return found[0], found[1]


# --- merging


def test_a_merge_moves_everything(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    assert memory.merge_namespaces(other, one) == 2
    assert names(memory) == [("api", ONE, {"episode": 2, "memory": 2})]
    # The folder of either opens the one from now on, and so does the name that is gone.
    for name, root in (("api", ONE), ("api", OTHER), ("whatever", OTHER), (other, None), (one, None)):
        scope = memory.scope(config, name, root)
        assert scope.namespace.name == one
        for task in (ONE, OTHER):
            found = memory.recall(scope, f"a task of {task}")
            assert found.hit and found.best is not None and found.best.entry.answer == f"an answer of {task}"
        assert memory.stats(scope).total_entries == 4
    # A third project of that folder name has nothing to do with it.
    third = memory.scope(config, "api", "/work/third/api")
    assert third.namespace.name not in two
    assert memory.stats(third).total_entries == 0


def test_a_merge_moves_outcomes_and_the_log(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    memory.merge_namespaces(other, one)
    queries = [f"a task of {ONE}", "nothing of the kind", f"a task of {OTHER}", "nothing of the kind"]
    assert log_lines(memory, config, one) == queries
    assert not log_file(config.storage_dir, other).exists()
    stats = memory.stats(memory.scope(config, "api", OTHER))
    assert stats.hit_rate_last_100 == 0.5
    assert stats.last_hit_at is not None
    assert memory.drift_report(memory.scope(config, "api", OTHER), min_hits=1).analyzed_recalls == 4


def test_what_is_captured_later_goes_where_the_project_went(
    memory: Memory, config: Config, two: tuple[str, str]
) -> None:
    one, other = two
    memory.merge_namespaces(other, one)
    inbox = Inbox(str(config.storage_dir))
    inbox.leave(episode("later", "a later request", namespace="api", root=OTHER))
    assert ingest_pending(memory, inbox) == 1
    assert names(memory) == [("api", ONE, {"episode": 3, "memory": 2})]


def test_merges_of_merges(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    memory.remember(memory.scope(config, "asked for", None), "a third task", "a third answer")
    memory.merge_namespaces(one, other)
    memory.merge_namespaces(other, "asked for")
    assert names(memory) == [("asked for", None, {"episode": 2, "memory": 3})]
    for name, root in (("api", ONE), ("api", OTHER), (one, None), (other, None)):
        assert memory.scope(config, name, root).namespace.name == "asked for"
    # They are one already.
    for source, into in ((one, other), (other, "asked for"), ("asked for", "asked for")):
        with pytest.raises(InvalidArgument, match="into itself"):
            memory.merge_namespaces(source, into)


@pytest.mark.parametrize(("source", "into"), [("api", "unknown"), ("unknown", "api"), ("", "api"), ("api", "a\nb")])
def test_merging_what_is_not_there_is_refused(memory: Memory, two: tuple[str, str], source: str, into: str) -> None:
    before = names(memory)
    with pytest.raises(InvalidArgument):
        memory.merge_namespaces(source, into)
    assert names(memory) == before


def test_an_index_finds_everything_after_a_merge(
    open_memory: OpenMemory, config: Config, embedder: FakeEmbedder
) -> None:
    """At once by exact search, and after the index was brought up to date, in this process and in the next."""
    memory = open_memory(exact_limit=5)
    tasks = {}
    for root in (ONE, OTHER):
        scope = memory.scope(config, "api", root)
        for number in range(20):
            tasks[f"task {root.split('/')[2]}{number}"] = memory.remember(
                scope, f"task {root.split('/')[2]}{number}", "x"
            ).entry_id

    def prepare(memory: Memory) -> LocalStore:
        store = memory.store
        assert isinstance(store, LocalStore)
        store.prepare_index(embedder.fingerprint, embedder.dimension)
        store.bring_index_up_to_date()
        return store

    def look(memory: Memory) -> None:
        scope = memory.scope(config, "api", OTHER)
        for task, entry_id in tasks.items():
            (best, *_) = memory.echo(scope, task, top_k=1).near
            assert (best.entry.id, best.similarity) == (entry_id, 1.0)

    prepare(memory)
    memory.merge_namespaces(memory.scope(config, "api", OTHER).namespace.name, "api")
    look(memory)
    scope = memory.scope(config, "api", OTHER)
    tasks["one more"] = memory.remember(scope, "one more", "x").entry_id
    memory.store.bring_index_up_to_date()  # type: ignore[attr-defined]
    look(memory)
    memory.close()
    memory = open_memory(exact_limit=5)
    look(memory)
    store = prepare(memory)
    look(memory)
    assert store.index_differences() == (0, 0)


# --- renaming


def test_a_renamed_namespace_is_the_same_one(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    memory.rename_namespace(other, "  better name ")
    assert [name for name, _, _ in names(memory)] == ["api", "better name"]
    scope = memory.scope(config, "api", OTHER)
    assert scope.namespace.name == "better name"
    assert memory.recall(scope, f"a task of {OTHER}").hit
    assert log_lines(memory, config, "better name")[0] == f"a task of {OTHER}"
    assert not log_file(config.storage_dir, other).exists()
    # The old name is free.
    fresh = memory.scope(config, other, None)
    assert memory.stats(fresh).total_entries == 0
    # And so is the other's, which leaves this one alone.
    memory.rename_namespace(one, "more")
    assert memory.scope(config, "api", ONE).namespace.name == "more"


def test_a_rename_takes_pending_episodes_of_an_asked_name_along(memory: Memory, config: Config) -> None:
    inbox = Inbox(str(config.storage_dir), wait_seconds=0.05)
    memory.scope(config, "asked for", None)
    inbox.leave(episode("s-1", namespace="asked for", root=None))
    with locked(inbox):
        inbox.leave(episode("s-2", namespace="asked for", root=None))
    memory.rename_namespace("asked for", "new")
    assert ingest_pending(memory, inbox) == 2
    assert names(memory) == [("new", None, {"episode": 2})]


def test_names_that_clash_are_refused(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    before = names(memory)
    for name, new in ((one, other), (other, one), (one, ""), (one, "a\x00b"), (one, "x" * 201), ("unknown", "new")):
        with pytest.raises(InvalidArgument):
            memory.rename_namespace(name, new)
    assert names(memory) == before
    memory.rename_namespace(one, one)
    assert names(memory) == before
    assert len(log_lines(memory, config, one)) == 2


def test_the_name_of_a_merged_namespace_may_be_used_again(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, other = two
    memory.merge_namespaces(other, one)
    memory.scope(config, "third", None)
    with pytest.raises(InvalidArgument, match="already"):
        # It leads to another one: whoever has it written down would meet strangers.
        memory.rename_namespace("third", other)
    memory.rename_namespace(one, other)
    assert names(memory)[0] == (other, ONE, {"episode": 2, "memory": 2})
    assert memory.scope(config, "api", OTHER).namespace.name == other
    # The name that is free again may go to the third.
    memory.rename_namespace("third", "api")
    assert memory.scope(config, "api", None).namespace.root is None
    assert memory.scope(config, "api", ONE).namespace.name == other


def test_a_log_in_the_place_of_the_new_name_is_kept(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    one, _ = two
    log_file(config.storage_dir, "new").write_text('{"query": "left by a namespace that is gone"}')
    memory.rename_namespace(one, "new")
    assert log_lines(memory, config, "new") == [
        "left by a namespace that is gone", f"a task of {ONE}", "nothing of the kind"
    ]  # fmt: skip


# --- an old file


def test_a_file_of_the_second_step_is_migrated(tmp_path: Path) -> None:
    """Its namespaces and entries stay as they are, and can be merged."""
    folder = tmp_path / "old"
    folder.mkdir()
    old = Database(folder, migrations=MIGRATIONS[:4])
    one, other = old.namespace("api", ONE), old.namespace("api", OTHER)
    vector = FakeEmbedder().embed_query("a task")
    for number, space in enumerate((one, other, other)):
        old.add(
            space,
            NewEntry(id=str(number), kind="memory", task="a task", answer=str(number), created_at=1.0),
            "fa4efa4efa4e",
            vector,
        )
    old.close()
    # As the second step left it: the third and the fourth make what is taken out here.
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        connection.executescript("DROP TABLE merged; DROP TABLE feedback; PRAGMA user_version = 2")
    with closing(sqlite3.connect(tmp_path / "fresh.db")) as fresh:
        for statement in (statement for step in MIGRATIONS[:2] for statement in step):
            fresh.execute(statement)
        tables = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name"
        with closing(sqlite3.connect(folder / "memory.db")) as connection:
            assert connection.execute(tables).fetchall() == fresh.execute(tables).fetchall()
    database = Database(folder)
    assert [(space.root, count) for space, count in database.namespaces()] == [(ONE, 1), (OTHER, 2)]
    assert database.namespace("api", OTHER).key == other.key
    assert database.merge_namespaces(other, one) == 2
    assert database.namespace("api", OTHER) == one
    assert database.problems() == []
    database.close()
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


def test_a_merge_is_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    database = Database(tmp_path / "data")
    one, other = database.namespace("api", ONE), database.namespace("api", OTHER)
    with closing(sqlite3.connect(tmp_path / "data" / "memory.db", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TRIGGER stop BEFORE INSERT ON merged BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END"
        )
        with pytest.raises(Exception, match=r"memory\.db"):
            database.merge_namespaces(other, one)
        connection.execute("DROP TRIGGER stop")
    assert [space for space, _ in database.namespaces()] == [one, other]
    assert database.namespace("api", OTHER) == other
    database.close()


def test_sessions_that_are_open_during_a_merge_do_no_harm(memory: Memory, config: Config, two: tuple[str, str]) -> None:
    """The commands end the engine first; whatever holds the old namespace is told, and loses nothing."""
    one, other = two
    stale = memory.scope(config, "api", OTHER)
    memory.merge_namespaces(other, one)
    assert not memory.recall(stale, f"a task of {OTHER}").hit
    with pytest.raises(Exception):  # noqa: B017 - of which kind does not matter
        memory.remember(stale, "too late", "x")
    assert memory.stats(memory.scope(config, "api", OTHER)).total_entries == 4
    assert isinstance(stale.namespace, Namespace)


# --- the commands


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs a command in process; returns exit code, standard output and standard error."""
    embedder = FakeEmbedder()
    monkeypatch.setattr("subconscious_mcp.opening.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def runner(*arguments: str, cwd: Path = tmp_path) -> tuple[int, str, str]:
        monkeypatch.chdir(cwd)
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner


@pytest.fixture
def folders(tmp_path: Path, run: Run) -> tuple[Path, Path]:
    found = []
    for name in ("one", "other"):
        folder = tmp_path / name / "api"
        folder.mkdir(parents=True)
        assert run("remember", f"a task of {name}", f"an answer of {name}", cwd=folder)[0] == 0
        found.append(folder)
    return found[0], found[1]


def test_namespaces_are_shown(run: Run, folders: tuple[Path, Path]) -> None:
    one, other = folders
    listed = json.loads(run("namespace", "list", "--json")[1])
    assert [(space["root"], space["entries"]) for space in listed] == [
        (str(one), {"memory": 1}),
        (str(other), {"memory": 1}),
    ]
    assert listed[0]["name"] == "api"
    code, out, _ = run("namespace", "list")
    assert code == 0 and "1 memory" in out and listed[1]["name"] in out
    shown = json.loads(run("namespace", "show", "--json", cwd=other)[1])
    assert shown == {**listed[1], "why": f"folder {other}"}
    shown = json.loads(run("namespace", "show", "--json", "api")[1])
    assert shown == {**listed[0], "why": "asked for"}
    shown = json.loads(run("namespace", "show", "--json", "nobody's")[1])
    assert shown == {"name": "nobody's", "root": None, "entries": {}, "why": "asked for"}
    assert "none" in run("namespace", "show", "nobody's")[1]
    assert run("namespace")[0] == 0


def test_the_commands_rename_and_merge(run: Run, folders: tuple[Path, Path]) -> None:
    other = folders[1]
    second = json.loads(run("namespace", "show", "--json", cwd=other)[1])["name"]
    assert run("namespace", "rename", second, "other api")[1] == f"{second} is now other api\n"
    code, _, err = run("namespace", "rename", "api", "other api")
    assert code == 64 and "There is a namespace 'other api' already." in err
    code, _, err = run("namespace", "rename", "nobody's", "x")
    assert code == 64 and "There is no namespace" in err
    code, _, err = run("namespace", "merge", "other api", "api")
    assert code == 64 and "Say --yes." in err
    assert run("namespace", "merge", "other api", "api", "--yes", "--json")[1] == '{"moved": 1, "into": "api"}\n'
    for folder in folders:
        for name in ("one", "other"):
            assert json.loads(run("recall", f"a task of {name}", "--json", cwd=folder)[1])["hit"]
    shown = json.loads(run("namespace", "show", "--json", cwd=other)[1])
    assert (shown["name"], shown["entries"]) == ("api", {"memory": 2})


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    opened = Windows(tmp_path)
    yield opened
    opened.close()


def test_windows_that_are_open_go_on_in_the_merged_namespace(windows: Windows, folders: tuple[Path, Path]) -> None:
    """A merge ends the engine; the window's next call starts another and finds what came."""
    other = folders[1]
    opened = [windows.open(QUICK, cwd=folder, unset=["SUBCONSCIOUS_NAMESPACE"]) for folder in folders]
    for window, name in zip(opened, ("one", "other"), strict=True):
        window.call("remember", {"task": f"a task of {name}", "answer": f"an answer of {name}"})
    env = windows.environment(unset=["SUBCONSCIOUS_NAMESPACE"])

    def command(*arguments: str, cwd: Path = other) -> str:
        words = [sys.executable, "-m", "subconscious_mcp", *arguments]
        done = subprocess.run(
            words, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    second = json.loads(command("namespace", "show", "--json"))["name"]
    assert json.loads(command("namespace", "merge", second, "api", "--yes", "--json"))["moved"] == 1
    for window in opened:
        for name in ("one", "other"):
            assert window.call("recall", {"task": f"a task of {name}"}).payload["hit"] is True
    assert windows.engines() == 2


# --- all of it, as installed


def test_a_session_is_known_to_the_next_one(tmp_path: Path, real_model_dir: Path) -> None:
    """From a transcript over Stop, ingest and echo to the next session; another project knows nothing of it."""
    client = Client(tmp_path, SUBCONSCIOUS_MODELS_DIR=str(real_model_dir.parent), SUBCONSCIOUS_ENGINE="on")
    env = environment(client.home, real_model_dir.parent) | client.env
    env.pop("SUBCONSCIOUS_NAMESPACE")
    twin = tmp_path / "elsewhere" / "project"
    twin.mkdir(parents=True)

    def hook(name: str, event: dict[str, str], cwd: Path) -> str:
        done = subprocess.run(
            [CONSOLE_SCRIPT, "hook", name], input=json.dumps(event).encode(), env=env, cwd=cwd, capture_output=True,
            timeout=PATIENCE, check=True,
        )  # fmt: skip
        assert done.stderr == b""
        return done.stdout.decode()

    first = Process(env, command=(CONSOLE_SCRIPT,), cwd=client.project)
    opened = [first]
    try:
        first.handshake()
        first.call("remember", {"task": "How are the release notes made?", "answer": "Run make notes."})
        request = "The nightly import of the customer table fails with a timeout, please fix it"
        event = client.stop_event("s-1", request, "Raised the statement timeout and added an index on customer_id.")
        assert hook("stop", event, client.project) == ""
        wait_for(lambda: client.rows("ingested = revision") == [(1,)])
        second = Process(env, command=(CONSOLE_SCRIPT,), cwd=client.project / ".")
        opened.append(second)
        second.handshake()
        near = second.call("echo", {"task": "import of customers times out at night"}).payload["echoes"]
        assert (near[0]["kind"], near[0]["task_text"]) == ("episode", request)
        assert second.call("recall", {"task": request, "threshold": 0.5}).payload["hit"] is False
        told = hook("session-start", {"source": "startup", "cwd": str(client.project)}, client.project)
        assert "asked: The nightly import of the customer table" in told
        assert "1 remembered task and 1 captured session" in told
        assert hook("session-start", {"source": "startup", "cwd": str(twin)}, twin) == ""
        stranger = Process(env, command=(CONSOLE_SCRIPT,), cwd=twin)
        opened.append(stranger)
        stranger.handshake()
        assert stranger.call("echo", {"task": request}).payload == {"count": 0, "echoes": []}
        prompt = {"prompt": "The import of the customer table fails with a timeout again", "cwd": str(client.project)}
        wait_for(lambda: "Raised the statement timeout" in hook("user-prompt-submit", prompt, client.project))
    finally:
        for process in opened:
            process.close_input()
        for process in opened:
            process.end()
        subprocess.run([CONSOLE_SCRIPT, "engine", "stop"], env=env, capture_output=True, check=False, timeout=PATIENCE)
