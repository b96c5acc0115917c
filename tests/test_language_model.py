"""Who is asked for summaries: the client's own model, an endpoint, or nobody; and what is sent."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from anyio.from_thread import start_blocking_portal
from engines import ask
from interaction import CONSOLE_SCRIPT, HANDSHAKE, PATIENCE, Pipes, environment, handshake_params
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from subconscious_mcp import cli
from subconscious_mcp.config import Config, resolve
from subconscious_mcp.errors import ConfigError, LanguageModelError
from subconscious_mcp.language_model import LanguageModel, cleaned, configured, is_loopback
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.opening import load_embedder
from subconscious_mcp.records import NewEntry

NOTES = ("The walrus eats clams", "Penguins live at the south pole", "Tigers sleep by day", "Owls hunt at night")
DAY = 86_400.0
KEY = "sk-test-0123456789"


# --- an endpoint


class Endpoint:
    """A server that speaks as OpenAI's, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.reply: bytes = json.dumps({"choices": [{"message": {"content": "Animals."}}]}).encode()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append((self.path, dict(self.headers), body))
                self.send_response(endpoint.status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                # A client that has read enough hangs up.
                with contextlib.suppress(OSError):
                    self.wfile.write(endpoint.reply)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(PATIENCE)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def model_of(config: Config, url: str | None, **settings: Any) -> LanguageModel:
    model = configured(replace(config, summary_url=url, **settings))
    assert model is not None
    return model


def test_nobody_is_asked_unless_configured(config: Config) -> None:
    assert configured(config) is None


def test_an_endpoint_is_sent_the_prompt_and_nothing_else(config: Config, endpoint: Endpoint) -> None:
    model = model_of(config, endpoint.url, summary_model="small", summary_api_key=KEY)
    assert model.where == "endpoint"
    assert model.ask("the prompt", 200) == "Animals."
    ((path, headers, body),) = endpoint.asked
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {"model": "small", "messages": [{"role": "user", "content": "the prompt"}], "max_tokens": 100}


def test_a_whole_address_is_taken_as_it_is_and_no_key_is_sent(config: Config, endpoint: Endpoint) -> None:
    model_of(config, f"{endpoint.url}/chat/completions").ask("p", 10)
    ((path, headers, body),) = endpoint.asked
    assert path == "/v1/chat/completions"
    assert "Authorization" not in headers
    assert "model" not in body


@pytest.mark.parametrize(
    "reply",
    [b"", b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": 3}}]}', b"[" * 100_000, b"\xff"],
)
def test_a_reply_of_another_kind_is_an_error_in_one_line(config: Config, endpoint: Endpoint, reply: bytes) -> None:
    endpoint.reply = reply
    with pytest.raises(LanguageModelError) as told:
        model_of(config, endpoint.url).ask("p", 10)
    assert "\n" not in str(told.value)
    assert told.value.hint


def test_a_refusal_tells_the_status_and_no_secret(config: Config, endpoint: Endpoint, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.status, endpoint.reply = 401, f"bad key {KEY}".encode()
    with pytest.raises(LanguageModelError, match="401") as told:
        model_of(config, endpoint.url, summary_api_key=KEY).ask("the secret prompt", 10)
    assert KEY not in str(told.value) + caplog.text
    assert "secret prompt" not in str(told.value) + caplog.text


def test_no_redirect_is_followed(config: Config, endpoint: Endpoint) -> None:
    endpoint.status, endpoint.headers = 307, {"Location": f"{endpoint.url}/elsewhere"}
    with pytest.raises(LanguageModelError, match="307"):
        model_of(config, endpoint.url).ask("p", 10)
    assert len(endpoint.asked) == 1


def test_a_reply_without_end_is_refused(config: Config, endpoint: Endpoint) -> None:
    endpoint.reply = b"x" * (3 << 20)
    with pytest.raises(LanguageModelError, match="megabyte"):
        model_of(config, endpoint.url).ask("p", 10)


def test_no_server_is_an_error_in_one_line(config: Config, endpoint: Endpoint) -> None:
    endpoint.close()
    with pytest.raises(LanguageModelError, match="cannot be asked"):
        model_of(config, endpoint.url).ask("p", 10)


@pytest.mark.parametrize(
    "url",
    ["http://models.example/v1", "ftp://localhost/v1", "localhost:11434", "https://user:pass@models.example/v1",
     "file:///etc/passwd", "https://", "http://127.0.0.1.example/v1", "http://[::1", "https://x:99999/"],
)  # fmt: skip
def test_an_address_off_this_machine_takes_https(url: str) -> None:
    with pytest.raises(ConfigError, match="SUBCONSCIOUS_SUMMARY_URL takes an address"):
        resolve({"SUBCONSCIOUS_HOME": "/nowhere", "SUBCONSCIOUS_SUMMARY_URL": url})


@pytest.mark.parametrize("url", ["https://models.example/v1", "http://localhost:11434/v1", "http://[::1]:8080/v1"])
def test_addresses_that_are_taken(url: str) -> None:
    found = resolve({"SUBCONSCIOUS_HOME": "/nowhere", "SUBCONSCIOUS_SUMMARY_URL": url})
    assert found.config.summary_url == url


def test_the_key_is_taken_from_the_environment_only_and_shown_nowhere(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_HOME", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"summary_api_key": KEY}))
    found = resolve()
    assert found.config.summary_api_key is None
    assert any("summary_api_key is taken from the environment only" in warning for warning in found.warnings)
    monkeypatch.setenv("SUBCONSCIOUS_SUMMARY_API_KEY", KEY)
    found = resolve()
    assert found.config.summary_api_key == KEY
    assert KEY not in repr(found)
    for arguments in (["--print-config"], ["--json", "--print-config"]):
        assert cli.main(arguments) == 0
        shown = capsys.readouterr()
        assert KEY not in shown.out + shown.err
        assert "summary_api_key" in shown.out


def test_this_machine_is_known() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.0.1", "::1")))
    assert not any(map(is_loopback, ("models.example", "10.0.0.1", "")))


def test_a_text_is_cleaned() -> None:
    assert cleaned("  a\x00b\tc\r\nd\u202e\ud800\n", 9) == "ab c \nd"
    with pytest.raises(LanguageModelError, match="at most 3"):
        cleaned("four", 3)


# --- a client's own model


def fill(storage: Path, models_dir: Path) -> list[str]:
    """Stores notes of a hundred days ago; returns their ids."""
    embedder = load_embedder(replace(resolve().config, models_dir=models_dir))
    store = LocalStore(storage, command="tests")
    namespace = store.namespace("tests", None)
    at = time.time() - 100 * DAY
    entries = [NewEntry(f"note-{number}", "note", text, "", at, None, ("zoo",)) for number, text in enumerate(NOTES)]
    store.add_many(namespace, entries, embedder.fingerprint, embedder.embed([one.task for one in entries]))
    store.close()
    return [one.id for one in entries]


async def sampled(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    (message,) = params.messages
    assert isinstance(message.content, types.TextContent)
    assert all(note in message.content.text for note in NOTES)
    assert params.max_tokens
    text = types.TextContent(type="text", text="Walrus, penguins, tigers and owls: habits.")
    return types.CreateMessageResult(role="assistant", content=text, model="tests")


async def refusing(context: Any, params: types.CreateMessageRequestParams) -> types.ErrorData:
    return types.ErrorData(code=-1, message="The user said no to: The walrus eats clams")


def consolidated(env: dict[str, str], folder: Path, arguments: list[str], mode: str, callback: Any) -> dict[str, Any]:
    """Has the client of the SDK call the tool; returns its result."""
    parameters = StdioServerParameters(command=CONSOLE_SCRIPT, args=arguments, env=env, cwd=folder)
    with (folder / "stderr").open("a") as errors, start_blocking_portal() as portal:
        client = Client(
            stdio_client(parameters, errlog=errors),
            mode=mode,
            read_timeout_seconds=PATIENCE,
            sampling_callback=callback,
        )
        with portal.wrap_async_context_manager(client) as opened:
            result = portal.call(opened.call_tool, "consolidate", {"apply": True, "summaries": True})
    assert not result.is_error
    assert result.structured_content is not None
    return dict(result.structured_content)


@pytest.mark.parametrize("arguments", [["serve"], []], ids=["serve", "engine"])
def test_a_client_that_offers_its_model_is_asked(real_model_dir: Path, tmp_path: Path, arguments: list[str]) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent, SUBCONSCIOUS_TOOLSET="all")
    ids = fill(tmp_path / "home" / "data", real_model_dir.parent)
    try:
        payload = consolidated(env, tmp_path, arguments, "legacy", sampled)
        undone = ask(tmp_path / "home" / "data", "undo consolidation", values={"what": "last"}, namespace="tests")
    finally:
        ask(tmp_path / "home" / "data", "engine stop")
    assert payload["model"] == "client"
    (summary,) = payload["summaries"]
    assert summary["id"]
    assert summary["archived"] == ids
    if not arguments:
        # The engine is still there, and a command speaks to it.
        assert undone is not None
        assert sorted(undone["payload"]["restored"]) == ids


def test_a_client_that_says_no_leaves_the_notes(real_model_dir: Path, tmp_path: Path) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent, SUBCONSCIOUS_TOOLSET="all")
    fill(tmp_path / "home" / "data", real_model_dir.parent)
    payload = consolidated(env, tmp_path, ["serve"], "legacy", refusing)
    (summary,) = payload["summaries"]
    assert summary["id"] is None
    assert "gave no answer" in summary["refused"]
    assert "walrus" not in summary["refused"]


@pytest.mark.parametrize(("mode", "callback"), [("legacy", None), ("2026-07-28", sampled)])
def test_without_an_offer_or_a_handshake_nobody_is_asked(
    real_model_dir: Path, tmp_path: Path, mode: str, callback: Any
) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent, SUBCONSCIOUS_TOOLSET="all")
    fill(tmp_path / "home" / "data", real_model_dir.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        payload = consolidated(env, tmp_path, ["serve"], mode, callback)
    assert payload["model"] == "none"
    assert payload["summaries"] == []
    assert payload["old_groups_found"] == 1


@pytest.mark.parametrize(("capabilities", "taken_over"), [({"sampling": {}}, True), ({}, False)])
def test_the_early_session_leaves_such_a_call_to_the_sdk(
    tmp_path: Path, monkeypatch: Any, capabilities: dict[str, Any], taken_over: bool
) -> None:
    from interaction import GatedEmbedder

    from subconscious_mcp import opening

    monkeypatch.setattr(opening, "load_embedder", GatedEmbedder)
    agent = Pipes(environment(tmp_path / "home", SUBCONSCIOUS_TOOLSET="all"))
    agent.request("initialize", {**handshake_params(HANDSHAKE), "capabilities": capabilities})
    agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert agent.call("consolidate", {}).payload["looked_at"] == 0
    assert agent.taken_over.is_set() is taken_over
    assert agent.close() == 0


# --- the command


@pytest.fixture
def home(tmp_path: Path, monkeypatch: Any, real_model_dir: Path) -> Path:
    for name, value in environment(tmp_path / "home", real_model_dir.parent).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SUBCONSCIOUS_ENGINE", "off")
    return tmp_path / "home"


def run(capsys: Any, *arguments: str) -> tuple[int, Any]:
    code = cli.main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_command_plans_carries_out_and_takes_back(
    home: Path, endpoint: Endpoint, monkeypatch: Any, capsys: Any, real_model_dir: Path
) -> None:
    ids = fill(home / "data", real_model_dir.parent)
    for tag in ("a", "b"):
        assert cli.main(["remember", "How do I install it?", "use pip", "--tag", tag]) == 0
    capsys.readouterr()
    code, planned = run(capsys, "consolidate", "--summaries")
    assert (code, planned["applied"], planned["model"], planned["groups_found"]) == (0, False, "none", 1)
    monkeypatch.setenv("SUBCONSCIOUS_SUMMARY_URL", endpoint.url)
    code, done = run(capsys, "consolidate", "--summaries", "--apply")
    assert (code, done["merged"], done["model"]) == (0, 1, "endpoint")
    assert done["summaries"][0]["archived"] == ids
    assert len(endpoint.asked) == 1
    code, undone = run(capsys, "consolidate", "--undo", "last")
    assert (code, len(undone["restored"])) == (0, 6)
    code, undone = run(capsys, "consolidate", "--undo", "last")
    assert (code, undone["undone"]) == (1, False)
    assert cli.main(["consolidate", "--summaries"]) == 0
    shown = capsys.readouterr().out
    assert "nothing was changed" in shown
    assert "The walrus eats clams" in shown


def test_the_command_says_where_it_looked_and_what_it_did_not_do(
    home: Path, monkeypatch: Any, capsys: Any, real_model_dir: Path
) -> None:
    fill(home / "data", real_model_dir.parent)
    assert cli.main(["remember", "x", "y", "--namespace", "other"]) == 0
    capsys.readouterr()
    assert cli.main(["consolidate", "--namespace", "empty"]) == 0
    assert "0 entries of namespace empty compared: 0 near-duplicates in 0 groups\nThere are entries in " in (
        capsys.readouterr().out
    )
    code, done = run(capsys, "consolidate", "--namespace", "other")
    assert (code, done["namespace"], done["looked_at"], "hint" in done) == (0, "other", 1, False)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("SUBCONSCIOUS_SUMMARY_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}/v1")
        assert cli.main(["consolidate", "--summaries", "--apply"]) == 1
        said = capsys.readouterr()
        assert said.out.count("no summary: The model at 127.0.0.1 cannot be asked") == 1
        assert "1 group of old notes" in said.out and "0 summaries written" in said.out
        assert said.err.count("\n") == 1 and "SUBCONSCIOUS_SUMMARY_MODEL" in said.err
        monkeypatch.setenv("SUBCONSCIOUS_SUMMARY_MODEL", "llama")
        assert cli.main(["consolidate", "--summaries"]) == 0
        assert capsys.readouterr().err == ""


def test_the_command_refuses_what_does_not_go_together(home: Path, capsys: Any) -> None:
    assert cli.main(["consolidate", "--undo", "last", "--summaries"]) == 64
    assert cli.main(["consolidate", "--min-similarity", "0.1"]) == 64
    assert "min_similarity" in capsys.readouterr().err
