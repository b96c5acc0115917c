"""The command line, in process with the fake embedder and installed with the real model."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeEmbedder

from subconscious_mcp import cli

TASK = "rotate the signing keys of the billing service"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple]:
    """Runs a command in process; returns exit code, standard output and standard error."""
    embedder = FakeEmbedder()
    monkeypatch.setattr("subconscious_mcp.opening.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.setattr("subconscious_mcp.demo.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.setattr("subconscious_mcp.doctor.load_embedder", lambda config, progress=None: embedder)
    monkeypatch.chdir(tmp_path)

    def runner(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runner


def test_the_verbs_follow_one_entry_through_its_life(run) -> None:
    code, out, _ = run("remember", TASK, "run keys rotate", "--tag", "ops", "--json")
    stored = json.loads(out)
    assert code == 0 and stored["stored"] and stored["embedding_dim"] == 384
    code, out, _ = run("recall", TASK, "--json", "--tag", "ops")
    found = json.loads(out)
    assert code == 0
    assert found == {
        "hit": True,
        "similarity": 1.0,
        "answer": "run keys rotate",
        "task_text": TASK,
        "entry_id": stored["entry_id"],
        "stored_at": found["stored_at"],
        "tags": ["ops"],
        "confidence": 1.0,
    }
    code, out, _ = run("echo", TASK, "--json")
    assert code == 0 and json.loads(out)["echoes"][0]["kind"] == "memory"
    code, out, _ = run("stats", "--json")
    assert json.loads(out)["total_entries"] == 1 and json.loads(out)["hit_rate_last_100"] == 1.0
    code, out, _ = run("drift", "--json", "--min-hits", "1")
    assert json.loads(out) == {"analyzed_recalls": 1, "entries_with_hits": 1, "candidates": []}
    assert run("forget", stored["entry_id"], "--json")[:2] == (0, '{"forgotten": true}\n')
    assert run("forget", stored["entry_id"], "--json")[:2] == (1, '{"forgotten": false}\n')
    code, out, _ = run("recall", TASK, "--json")
    assert code == 1 and json.loads(out)["hit"] is False


def test_people_get_tables(run) -> None:
    _, out, _ = run("remember", TASK, "run keys rotate", "--ttl", "3600")
    assert out.startswith("stored  ")
    _, out, _ = run("remember", TASK, "again", "--skip-if-duplicate")
    assert "not stored" in out and "duplicate" in out
    _, out, _ = run("recall", TASK)
    assert out.startswith("hit  similarity 1.0000") and "run keys rotate" in out
    _, out, _ = run("recall", "an unrelated question")
    assert out.startswith("miss  nearest similarity 0.")
    _, out, _ = run("recall", "anything", "--namespace", "empty")
    assert out.startswith("miss  nearest similarity 0.0000, needed 0.85")
    _, out, _ = run("echo", "[bold]markup[/] stays text")
    assert "1 of 1 entries" in out and TASK in out
    _, out, _ = run("stats")
    assert "hit rate, last 100 recalls" in out
    _, out, _ = run("drift")
    assert "0 candidates among 1 entries" in out
    _, out, _ = run("forget", "no-such-id")
    assert "no such entry in namespace" in out
    assert "\x1b[" not in out


def test_an_answer_is_read_from_standard_input(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    run("remember", TASK, "-")
    assert json.loads(run("recall", TASK, "--json")[1])["answer"] == "from a pipe\n"


def test_drift_is_shown_as_a_table(run) -> None:
    run("remember", "alpha beta gamma delta epsilon zeta eta theta", "x")
    run("recall", "alpha beta gamma delta epsilon zeta eta", "--threshold", "0.5", "--no-verify")
    run("recall", "alpha beta gamma delta", "--threshold", "0.5", "--no-verify")
    run("recall", "alpha beta gamma delta iota", "--threshold", "0.5", "--no-verify")
    _, out, _ = run("drift")
    assert "1 candidates" in out and "alpha beta gamma" in out


def test_a_task_that_differs_is_shown_with_what_differs(run) -> None:
    run("remember", "enable the query cache of the orders database on staging", "SET GLOBAL query_cache_type = 1")
    other = "disable the query cache of the orders database on staging"
    code, out, _ = run("recall", other)
    assert code == 1 and out.startswith("blocked  similarity 0.9")
    assert "another task" in out and "antonym  disable / enable" in out and "SET GLOBAL" not in out
    assert run("recall", other, "--no-verify")[0] == 0
    assert "disable / enable" in run("echo", other)[1]
    _, out, _ = run("remember", other, "SET GLOBAL query_cache_type = 0")
    assert "near duplicate" in out and "disable / enable" in out
    assert run("recall", other, "--json")[0] == 0


def test_errors_are_one_line_with_a_fitting_exit_code(run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("recall", " ", "--json")
    assert code == 64 and err == "subconscious-mcp: task takes a text that is not blank.\n"
    assert json.loads(out) == {"error": "task takes a text that is not blank.", "hint": ""}
    code, _, err = run("stats", "--namespace", "")
    assert code == 64 and "--namespace takes" in err
    monkeypatch.setenv("SUBCONSCIOUS_LOG_LEVEL", "nonsense")
    code, _, err = run("stats")
    assert code == 78 and err.count("\n") == 1 and "SUBCONSCIOUS_LOG_LEVEL takes one of" in err


def test_print_config_shows_values_and_their_origins(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_DEFAULT_THRESHOLD", "0.9")
    monkeypatch.setenv("SUBCONSCIOUS_DEFUALT_TTL", "1")
    code, out, err = run("--print-config")
    assert code == 0
    assert re.search(r"default_threshold +0\.9 +env SUBCONSCIOUS_DEFAULT_THRESHOLD", out)
    assert re.search(r"default_ttl_seconds +null +default", out)
    assert "no setting SUBCONSCIOUS_DEFUALT_TTL" in err
    _, out, _ = run("--print-config", "--json")
    shown = json.loads(out)
    assert shown["default_threshold"] == {"value": 0.9, "source": "env SUBCONSCIOUS_DEFAULT_THRESHOLD"}
    assert shown["namespace"]["value"] == tmp_path.name
    documented = {"storage_dir", "embedding_model", "default_threshold", "default_ttl_seconds", "log_level"}
    assert documented | {"echo_log_enabled", "echo_log_max_bytes", "namespace", "capture_enabled"} <= shown.keys()


def test_the_demo_hits_and_misses_and_leaves_nothing(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subconscious_mcp.demo.PARAPHRASE", "How do I renew the TLS certificate of the staging server")
    code, out, _ = run("demo", "--json")
    seen = json.loads(out)
    assert code == 0 and seen["hit"]["hit"] and not seen["miss"]["hit"] and len(seen["remember_ms"]) == 3
    code, out, _ = run("demo")
    assert code == 0 and "hit  similarity" in out and "miss  similarity" in out and "distance" in out
    assert not (tmp_path / "subconscious-home" / "data").exists()


def test_model_status_of_an_empty_folder_tells_the_way_out(run) -> None:
    code, out, _ = run("model", "status")
    assert code == 1 and "not installed" in out and "subconscious-mcp model install" in out
    code, out, _ = run("model", "verify", "--json")
    assert code == 1 and json.loads(out)["installed"] is False
    code, out, _ = run("model")
    assert code == 0 and "install" in out


def test_the_model_is_installed_from_a_folder_and_verified(run, real_model_dir: Path) -> None:
    code, out, err = run("model", "install", "--from", str(real_model_dir))
    assert code == 0 and "is installed in" in out and err
    code, out, _ = run("model", "verify", "--json")
    verified = json.loads(out)
    assert code == 0 and verified["installed"] and all(file["state"] == "ok" for file in verified["files"])
    code, _, err = run("model", "install", "--from", "/no/such/folder")
    assert code != 0 and err.count("\n") >= 1 and "Traceback" not in err


def test_doctor_tells_and_repairs(run) -> None:
    run("remember", TASK, "answer")
    code, out, _ = run("doctor", "--json")
    states = {finding["check"]: finding["state"] for finding in json.loads(out)}
    assert states["memory.db"] == "ok" and states["model"] == "problem" and code == 1
    _, out, _ = run("doctor")
    assert re.search(r"ok +memory\.db: 1 entries in 1 namespaces", out)


def test_a_download_is_a_bar_on_a_terminal(run, monkeypatch: pytest.MonkeyPatch, real_model_dir: Path) -> None:
    # What rich takes for one.
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, err = run("model", "install", "--from", str(real_model_dir))
    assert code == 0 and "is installed in" in out
    assert "\x1b[" in err and "model.safetensors" in err
    assert re.search(r"90\.\d/90\.\d MB", err)


def test_print_config_shows_the_namespace_that_was_asked_for(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_NAMESPACE", "asked for")
    code, out, _ = run("--print-config", "--json")
    assert code == 0
    assert json.loads(out)["namespace"] == {"value": "asked for", "source": "env SUBCONSCIOUS_NAMESPACE"}


def test_help_and_version_need_nothing() -> None:
    for module in ("subconscious_mcp", "subconscious_mcp.server"):
        done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
        assert "usage: subconscious-mcp" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "subconscious_mcp", "--version"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"subconscious-mcp \d+\.\d+\.\d+\n", done.stdout)


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["rekall", "x"])
    assert caught.value.code == 2
    assert "rekall" in capsys.readouterr().err


def test_an_interrupted_command_says_so(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("subconscious_mcp.memory.Memory.stats", interrupted)
    code, _, err = run("stats")
    assert (code, err) == (130, "subconscious-mcp: interrupted\n")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "in the middle"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "JSON"])
def test_a_reader_that_leaves_early_is_no_error(unbuffered: str, form: tuple[str, ...]) -> None:
    import os

    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "subconscious_mcp", "--print-config", *form],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert "Traceback" not in done.stderr


def test_the_installed_command_remembers_and_recalls_with_the_real_model(real_model_dir: Path, tmp_path: Path) -> None:
    import os

    env = {
        **os.environ,
        "SUBCONSCIOUS_HOME": str(tmp_path / "home"),
        "SUBCONSCIOUS_MODELS_DIR": str(real_model_dir.parent),
        "PYTHONIOENCODING": "ascii",
    }

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "subconscious_mcp", *arguments], capture_output=True, encoding="utf-8", env=env
        )

    assert command("remember", "How do I renew the TLS certificate?", "certbot renew ★ 你好").returncode == 0
    found = command("recall", "How can I renew the TLS certificate?")
    assert found.returncode == 0 and "certbot renew ★ 你好" in found.stdout
    missed = command("recall", "What is the capital of Mongolia?", "--json")
    assert missed.returncode == 1 and json.loads(missed.stdout)["similarity"] < 0.5
