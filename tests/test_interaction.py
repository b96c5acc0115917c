"""What an agent and its user are promised, asked of every way in which the server can be met.

In process over pipes with the fake embedder, and the installed command with the real model, serving
itself and through an engine: driven raw, in the early session and after the SDK has taken over, and
by the SDK's own client in both eras.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from engines import ask
from fakes import Clock
from interaction import (
    COMMAND,
    ENGINE_COMMAND,
    GATED,
    MODERN,
    MODERN_META,
    PATIENCE,
    Gate,
    GatedEmbedder,
    Lines,
    Pipes,
    Process,
    SdkClient,
    environment,
    handshake_params,
    link_tree,
)

from subconscious_mcp import cli, config, opening
from subconscious_mcp.arguments import MAX_TASK_CHARS
from subconscious_mcp.memory import Memory
from subconscious_mcp.storage_lock import StorageLock, wait_until_free

RAW = ("pipes, early", "pipes, SDK", "process, early", "process, SDK", "engine, early", "engine, SDK")
CLIENTS = ("client, legacy", "client, 2026-07-28", "engine client, legacy", "engine client, 2026-07-28")
WAYS = (*RAW, *CLIENTS)

TASK = "Export the monthly sales report of the northern region as a spreadsheet"
PARAPHRASE = "Please export the monthly sales report of the northern region as one spreadsheet"
NEAR = "Export the monthly complaints list of the northern region as a spreadsheet"
FAR = "Train a puppy to sit"

Agent = Any
Start = Callable[..., Any]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, real_model_dir: Path) -> Iterator[Start]:
    """Starts servers; what is still there at the end is ended."""
    started: list[Any] = []
    engines: set[Path] = set()
    patch = pytest.MonkeyPatch()
    patch.setattr(opening, "load_embedder", GatedEmbedder)

    def starter(way: str, folder: Path | None = None, version: str = "2025-11-25", **settings: str) -> Agent:
        folder = folder or tmp_path_factory.mktemp("agent")
        settings = {"SUBCONSCIOUS_LOG_LEVEL": "DEBUG", "PYTHONIOENCODING": "cp1252", "LC_ALL": "C", **settings}
        env = environment(folder / "home", real_model_dir.parent, **settings)
        agent: Agent
        if way.startswith("engine"):
            engines.add(folder / "home" / "data")
        if "client" in way:
            arguments = [] if way.startswith("engine") else ["serve"]
            agent = SdkClient(env, way.partition(", ")[2], folder / "stderr", arguments)
        else:
            Gate(Path(env["GATE"]))
            if way.startswith("engine"):
                agent = Process(env, command=ENGINE_COMMAND, cwd=folder)
            else:
                agent = Pipes(env) if way.startswith("pipes") else Process(env, cwd=folder)
            agent.handshake(version)
            if way.endswith("SDK"):
                agent.let_sdk_take_over()
        agent.folder = folder
        started.append(agent)
        return agent

    yield starter
    for agent in started:
        if isinstance(agent, Process):
            agent.close_input()
            agent.end()
        elif not isinstance(agent, Pipes) or agent._write_fd is not None:
            agent.close()
    for storage in engines:
        if ask(storage, "engine stop") is not None:
            assert wait_until_free(storage, PATIENCE)
    patch.undo()


@pytest.fixture(scope="module")
def agents(start: Start) -> dict[str, Agent]:
    return {}


@pytest.fixture(params=WAYS)
def agent(request: pytest.FixtureRequest, start: Start, agents: dict[str, Agent]) -> Agent:
    """An agent's connection, shared between tests: each asks of what only it has stored."""
    if request.param not in agents:
        agents[request.param] = start(request.param)
    agent = agents[request.param]
    if request.param == "pipes, early":
        assert not agent.taken_over.is_set(), "an earlier test let the SDK take over"
    return agent


raw_ways = pytest.mark.parametrize("agent", RAW, indirect=True)


def stored(folder: Path, entry_id: str) -> dict[str, Any]:
    with closing(sqlite3.connect(folder / "home" / "data" / "memory.db")) as database:
        database.row_factory = sqlite3.Row
        return dict(database.execute("SELECT * FROM entries WHERE id = ?", (entry_id,)).fetchone())


def count(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "home" / "data" / "memory.db")) as database:
        return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])


def lock_is_free(folder: Path) -> bool:
    StorageLock(folder / "home" / "data", "tests").release()
    return True


def remember(agent: Agent, task: str, answer: str = "an answer", **more: Any) -> str:
    return agent.call("remember", {"task": task, "answer": answer, **more}).payload["entry_id"]


# --- the tools

_TEXTS = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}
_TOP_K = {"type": "integer", "minimum": 1, "maximum": 100}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_TEXT = {"type": "string"}
SCHEMAS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "recall": (
        ["task"],
        {
            "task": _TEXT,
            "threshold": _SHARE | {"default": 0.85},
            "top_k": _TOP_K | {"default": 1},
            "tags": _TEXTS,
            "verify": {"type": "boolean", "default": True},
        },
    ),
    "remember": (
        ["task", "answer"],
        {
            "task": _TEXT,
            "answer": _TEXT,
            "tags": _TEXTS,
            "ttl_seconds": {
                "anyOf": [{"type": "integer", "minimum": 1, "maximum": config.MAX_TTL_SECONDS}, {"type": "null"}]
            },
            "skip_if_duplicate": {"type": "boolean", "default": False},
        },
    ),
    "echo": (["task"], {"task": _TEXT, "top_k": _TOP_K | {"default": 5}, "tags": _TEXTS}),
    "drift_report": (
        [],
        {
            "min_hits": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 3},
            "min_spread": _SHARE | {"default": 0.08},
        },
    ),
    "forget": (["entry_id"], {"entry_id": _TEXT}),
    "stats": ([], {}),
}
READ_ONLY = {"recall", "echo", "drift_report", "stats"}


def test_there_are_the_six_tools_with_their_schemas(agent: Agent) -> None:
    listed = agent.tools()
    assert [tool["name"] for tool in listed] == list(SCHEMAS)
    for tool in listed:
        required, properties = SCHEMAS[tool["name"]]
        schema = tool["inputSchema"]
        assert tool["title"] and tool["description"]
        assert all(argument.pop("description") for argument in schema["properties"].values())
        assert schema == {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        assert tool["annotations"] == {
            "readOnlyHint": tool["name"] in READ_ONLY,
            "destructiveHint": tool["name"] == "forget",
            "idempotentHint": tool["name"] != "remember",
            "openWorldHint": False,
        }


def test_every_way_lists_the_same_tools(agent: Agent, agents: dict[str, Agent], start: Start) -> None:
    first = agents.setdefault(WAYS[0], agents.get(WAYS[0]) or start(WAYS[0]))
    assert agent.tools() == first.tools()


# --- the handshake


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
def test_the_handshake_is_answered_alike_early_and_by_the_sdk(
    start: Start, tmp_path: Path, asked: str, given: str
) -> None:
    replies = []
    for early in (True, False):
        agent = Pipes(environment(tmp_path / "home"))
        if not early:
            # A ping before the handshake is left to the SDK.
            assert agent.request("ping")["result"] == {}
        replies.append(agent.handshake(asked))
        assert [tool["name"] for tool in agent.tools()] == list(SCHEMAS)
        assert agent.call("stats", {}).payload["total_entries"] == 0
        assert agent.request("ping")["result"] == {}
        agent.close()
    assert replies[0] == replies[1]
    assert replies[0]["protocolVersion"] == given
    assert replies[0]["serverInfo"]["name"] == "subconscious-mcp"
    assert replies[0]["instructions"]
    assert replies[0]["capabilities"] == {
        "prompts": {"listChanged": False},
        "resources": {"subscribe": False, "listChanged": False},
        "tools": {"listChanged": False},
    }


@pytest.mark.parametrize("way", ["pipes", "process"])
def test_without_a_handshake_the_2026_era_is_served(
    start: Start, tmp_path: Path, way: str, real_model_dir: Path
) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent)
    agent = Pipes(env) if way == "pipes" else Process(env, command=COMMAND)
    discovered = agent.request("server/discover", {"_meta": MODERN_META})["result"]
    assert discovered["supportedVersions"] == [MODERN]
    assert discovered["instructions"]
    listed = agent.request("tools/list", {"_meta": MODERN_META})["result"]["tools"]
    assert [tool["name"] for tool in listed] == list(SCHEMAS)
    params = {"name": "stats", "arguments": {}, "_meta": MODERN_META}
    called = agent.request("tools/call", params)["result"]
    assert called["resultType"] == "complete"
    assert called["structuredContent"]["total_entries"] == 0
    assert agent.close() == 0


def test_a_handshake_that_the_sdk_would_refuse_does_not_end_the_session_later(start: Start, tmp_path: Path) -> None:
    agent = Pipes(environment(tmp_path / "home"))
    params = handshake_params("2025-11-25") | {"capabilities": {"roots": ["odd"]}}
    assert agent.request("initialize", params)["result"]["protocolVersion"] == "2025-11-25"
    agent.let_sdk_take_over()
    assert agent.call("stats", {}).payload["total_entries"] == 0
    agent.close()


# --- the contract of each tool


def test_remember_recall_miss_echo_forget(agent: Agent) -> None:
    done = agent.call("remember", {"task": TASK, "answer": "sales.sh --north", "tags": ["sales", "north"]}).payload
    entry_id = done["entry_id"]
    assert done == {"stored": True, "entry_id": entry_id, "embedding_dim": 384}

    hit = agent.call("recall", {"task": PARAPHRASE}).payload
    stored_at = hit.pop("stored_at")
    similarity = hit.pop("similarity")
    assert 0.85 <= similarity < 1.0
    assert 0.8 < hit.pop("confidence") <= 1.0
    assert stored_at == pytest.approx(stored(agent.folder, entry_id)["created_at"])
    assert hit == {
        "hit": True,
        "answer": "sales.sh --north",
        "task_text": TASK,
        "entry_id": entry_id,
        "tags": ["sales", "north"],
    }

    miss = agent.call("recall", {"task": FAR}).payload
    assert 0.0 <= miss.pop("similarity") < 0.5
    assert 0.0 <= miss.pop("confidence") < 0.8
    assert miss == {
        "hit": False,
        "answer": None,
        "task_text": None,
        "entry_id": None,
        "stored_at": None,
        "tags": [],
    }

    echoes = agent.call("echo", {"task": PARAPHRASE, "top_k": 1}).payload
    assert echoes["count"] >= 1
    assert echoes["echoes"] == [
        {
            "entry_id": entry_id,
            "similarity": similarity,
            "task_text": TASK,
            "stored_at": stored_at,
            "tags": ["sales", "north"],
            "kind": "memory",
            "contrasts": [],
        }
    ]

    assert agent.call("forget", {"entry_id": entry_id}).payload == {"forgotten": True}
    assert agent.call("forget", {"entry_id": entry_id}).payload == {"forgotten": False}
    assert agent.call("recall", {"task": TASK}).payload["hit"] is False


def test_the_same_text_is_a_hit_at_threshold_one_and_the_newest_answers(agent: Agent) -> None:
    ids = [remember(agent, "Renew the certificate of the mail gateway", answer) for answer in ("old", "new")]
    hit = agent.call("recall", {"task": "Renew the certificate of the mail gateway", "threshold": 1.0}).payload
    assert (hit["hit"], hit["similarity"], hit["answer"], hit["entry_id"]) == (True, 1.0, "new", ids[1])


def test_tags_choose_who_is_asked_and_take_no_place(agent: Agent) -> None:
    remember(agent, "Water the tomatoes in the greenhouse", "untagged")
    remember(agent, "Water the tomatoes in the greenhouse twice", "tagged", tags=["garden"])
    asked = {"task": "Water the tomatoes in the greenhouse", "threshold": 0.5}
    assert agent.call("recall", asked).payload["answer"] == "untagged"
    assert agent.call("recall", asked | {"tags": ["garden", "other"]}).payload["answer"] == "tagged"
    assert agent.call("recall", asked | {"tags": '["garden"]'}).payload["answer"] == "tagged"
    assert agent.call("recall", asked | {"tags": ""}).payload["answer"] == "untagged"
    assert agent.call("recall", asked | {"tags": None}).payload["answer"] == "untagged"
    missed = agent.call("recall", asked | {"tags": ["nobody has this"]}).payload
    assert (missed["hit"], missed["similarity"]) == (False, 0.0)
    assert agent.call("echo", asked | {"tags": ["nobody has this"]}).is_error
    del asked["threshold"]
    assert agent.call("echo", asked | {"tags": ["nobody has this"]}).payload["echoes"] == []


def test_a_near_duplicate_is_told_and_skipped_when_asked(agent: Agent) -> None:
    first = remember(agent, TASK)
    near = agent.call("remember", {"task": NEAR, "answer": "x"}).payload
    assert near["stored"] is True
    assert near["warning"] == "near_duplicate"
    assert 0.75 <= near["nearest_similarity"] <= 0.92
    assert (near["nearest_task"], near["nearest_entry_id"]) == (TASK, first)
    agent.call("forget", {"entry_id": near["entry_id"]})

    before = count(agent.folder)
    skipped = agent.call("remember", {"task": NEAR, "answer": "x", "skip_if_duplicate": True}).payload
    assert skipped == {**near, "stored": False, "entry_id": None}
    equal = agent.call("remember", {"task": TASK, "answer": "x", "skip_if_duplicate": True}).payload
    assert (equal["stored"], equal["warning"], equal["nearest_similarity"]) == (False, "duplicate", 1.0)
    assert count(agent.folder) == before
    agent.call("forget", {"entry_id": first})


def test_a_lifetime_is_kept_with_the_entry(agent: Agent) -> None:
    for asked, lifetime in ((60, 60), ("60", 60), (None, None)):
        row = stored(agent.folder, remember(agent, f"Defrost the freezer {asked!r}", ttl_seconds=asked))
        assert (row["expires_at"] and row["expires_at"] - row["created_at"]) == lifetime


def test_an_entry_is_gone_when_its_time_is_over(start: Start) -> None:
    agent = start("pipes, early")
    clock = agent.memory.get(agent.config)._clock = Clock()
    remember(agent, TASK, "short", ttl_seconds=60)
    clock.advance(59)
    assert agent.call("recall", {"task": TASK}).payload["answer"] == "short"
    clock.advance(1)
    assert agent.call("recall", {"task": TASK}).payload["hit"] is False
    assert agent.call("echo", {"task": TASK}).payload == {"count": 0, "echoes": []}


def test_drift_is_reported(agent: Agent) -> None:
    entry_id = remember(agent, TASK)
    for task in (TASK, PARAPHRASE, NEAR, NEAR.replace("spreadsheet", "slideshow")):
        assert agent.call("recall", {"task": task, "threshold": 0.5, "verify": False}).payload["entry_id"] == entry_id
    report = agent.call("drift_report", {"min_spread": 0.05}).payload
    assert set(report) == {"analyzed_recalls", "entries_with_hits", "candidates"}
    assert report["analyzed_recalls"] >= 4
    (found,) = [c for c in report["candidates"] if c["entry_id"] == entry_id]
    assert found["similarity_spread"] == pytest.approx(found["similarity_max"] - found["similarity_min"], abs=1e-6)
    assert {name: found[name] for name in ("task_text", "still_stored", "hits", "distinct_queries")} == {
        "task_text": TASK,
        "still_stored": True,
        "hits": 4,
        "distinct_queries": 4,
    }
    assert set(found) - {"task_text", "still_stored", "hits", "distinct_queries", "entry_id"} == {
        "similarity_min",
        "similarity_max",
        "similarity_spread",
        "contrasts",
    }
    assert agent.call("drift_report", {"min_hits": 5}).payload["candidates"] == []
    agent.call("forget", {"entry_id": entry_id})
    assert entry_id not in agent.call("drift_report", {}).text


def test_a_near_task_that_differs_is_blocked_and_named(agent: Agent) -> None:
    task = "Enable the nightly backup of the invoice archive"
    other = "Disable the nightly backup of the invoice archive"
    entry_id = remember(agent, task, "systemctl enable backup.timer")
    contrasts = [{"kind": "antonym", "query": "Disable", "stored": "Enable"}]
    found = agent.call("recall", {"task": other}).payload
    assert found["hit"] is False and found["answer"] is None and found["similarity"] >= 0.85
    assert found["confidence"] < 0.5
    assert found["blocked"] == {"entry_id": entry_id, "task_text": task, "contrasts": contrasts}
    assert agent.call("recall", {"task": other, "verify": False}).payload["hit"] is True
    assert agent.call("echo", {"task": other, "top_k": 1}).payload["echoes"][0]["contrasts"] == contrasts
    warned = agent.call("remember", {"task": other, "answer": "systemctl disable backup.timer"}).payload
    assert warned["stored"] and warned.get("nearest_contrasts", contrasts) == contrasts
    assert agent.call("recall", {"task": other}).payload["answer"] == "systemctl disable backup.timer"


@pytest.mark.parametrize("way", ["pipes, early", "process, early"])
def test_statistics_and_entries_survive_a_restart(start: Start, way: str) -> None:
    agent = start(way)
    assert agent.call("stats", {}).payload == {"total_entries": 0, "last_hit_at": None, "hit_rate_last_100": 0.0}
    remember(agent, TASK, "kept")
    for task in (TASK, FAR, FAR, FAR):
        agent.call("recall", {"task": task})
    before = agent.call("stats", {}).payload
    assert (before["total_entries"], before["hit_rate_last_100"]) == (1, 0.25)
    assert (
        before["last_hit_at"]
        >= stored(agent.folder, agent.call("recall", {"task": TASK}).payload["entry_id"])["created_at"]
    )
    before = agent.call("stats", {}).payload
    assert agent.close() == 0
    again = start(way, agent.folder)
    assert again.call("stats", {}).payload == before
    assert again.call("recall", {"task": TASK}).payload["answer"] == "kept"


@pytest.mark.parametrize("way", ["pipes, early", "process, early"])
def test_configured_defaults_act_where_the_argument_is_left_out(
    start: Start, way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("configured")
    (folder / "home").mkdir()
    (folder / "home" / "config.json").write_text('{"default_ttl_seconds": 3600, "default_threshold": 0.1}')
    agent = start(way, folder, SUBCONSCIOUS_DEFAULT_THRESHOLD="1")
    schemas = {tool["name"]: tool["inputSchema"]["properties"] for tool in agent.tools()}
    assert schemas["recall"]["threshold"]["default"] == 1.0
    assert "3600 seconds" in schemas["remember"]["ttl_seconds"]["description"]

    row = stored(folder, remember(agent, TASK))
    assert row["expires_at"] - row["created_at"] == 3600
    assert stored(folder, remember(agent, FAR, ttl_seconds=None))["expires_at"] is None
    assert agent.call("recall", {"task": PARAPHRASE}).payload["hit"] is False
    assert agent.call("recall", {"task": PARAPHRASE, "threshold": None}).payload["hit"] is False
    assert agent.call("recall", {"task": PARAPHRASE, "threshold": 0.5}).payload["hit"] is True


def test_a_switched_off_echo_log_is_told(start: Start) -> None:
    agent = start("pipes, early", SUBCONSCIOUS_ECHO_LOG_ENABLED="0")
    assert "echo_log_enabled" in agent.call("drift_report", {}).payload["note"]


# --- texts

TEXTS = (
    "a star ★",
    "🦇🏳️\u200d🌈 emoji",
    "如何轮换密钥",
    "Как обновить сертификат",
    "e\u0301 or é",
    "\u2028 line \x00 end\r\n\t",
)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_texts_come_back_exactly(agent: Agent, text: str) -> None:
    entry_id = remember(agent, text, f"answer {text}", tags=[text])
    hit = agent.call("recall", {"task": text, "threshold": 1.0, "tags": [text]}).payload
    assert (hit["entry_id"], hit["task_text"], hit["answer"]) == (entry_id, text, f"answer {text}")
    assert hit["tags"] == [text.strip()]
    agent.call("forget", {"entry_id": entry_id})


@raw_ways
@pytest.mark.parametrize("argument", ["task", "answer", "tags"])
def test_a_lone_surrogate_is_refused_and_nothing_half_stored(agent: Lines, argument: str) -> None:
    agent.call("stats", {})
    before = count(agent.folder)  # type: ignore[attr-defined]
    bad: Any = "half a character \ud800"
    arguments = {"task": "t", "answer": "a", argument: [bad] if argument == "tags" else bad}
    error = agent.call("remember", arguments).error
    assert error.startswith(f"{argument} takes valid Unicode text")
    assert count(agent.folder) == before  # type: ignore[attr-defined]
    assert agent.call("stats", {}).payload


@raw_ways
def test_the_id_of_a_request_comes_back_whatever_it_is(agent: Lines) -> None:
    for request_id in (0, -1, 2**53, "", "1", "★", "\ud800"):
        agent.send({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
        reply = agent.take()
        # The SDK takes no lone surrogate, and says so to that very id.
        assert reply["id"] == request_id
        assert type(reply["id"]) is type(request_id)


# --- arguments

SECRET = "sk-proj-secret"
ONE_LINE: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {"task": "x", "tags": "a,b"}, 'tags takes a list of texts, such as ["a", "b"].'),
    ("recall", {"task": "x", "tags": f'{{"a": "{SECRET}"}}'}, 'tags takes a list of texts, such as ["a", "b"].'),
    ("recall", {"task": "x", "tags": [1]}, 'tags takes a list of texts, such as ["a", "b"].'),
    ("recall", {"task": "x", "tags": [" "]}, "tags takes at most 50 texts of 1 to 200 characters."),
    ("recall", {"task": "x", "top_k": 0}, "top_k takes a whole number from 1 to 100."),
    ("recall", {"task": "x", "top_k": -1}, "top_k takes a whole number from 1 to 100."),
    ("recall", {"task": "x", "top_k": 10**12}, "top_k takes a whole number from 1 to 100."),
    ("recall", {"task": "x", "top_k": 1.5}, "top_k takes a whole number from 1 to 100."),
    ("recall", {"task": "x", "top_k": True}, "top_k takes a whole number from 1 to 100."),
    ("echo", {"task": "x", "top_k": SECRET}, "top_k takes a whole number from 1 to 100."),
    ("recall", {"task": "x", "threshold": 2}, "threshold takes a number from 0 to 1."),
    ("recall", {"task": "x", "threshold": float("nan")}, "threshold takes a number from 0 to 1."),
    ("recall", {"task": "x", "threshold": "Infinity"}, "threshold takes a number from 0 to 1."),
    ("drift_report", {"min_spread": -0.1}, "min_spread takes a number from 0 to 1."),
    ("drift_report", {"min_hits": 0}, "min_hits takes a whole number from 1 to 1000000."),
    *[
        (
            "remember",
            {"task": "x", "answer": SECRET, "ttl_seconds": seconds},
            f"ttl_seconds takes a whole number of seconds from 1 to {config.MAX_TTL_SECONDS}, or null for never.",
        )
        for seconds in (0, -1, -2_000_000_000, 10**400)
    ],
    ("remember", {"task": "x", "answer": "y", "skip_if_duplicate": 1}, "skip_if_duplicate takes true or false."),
    ("remember", {"task": "x", "answer": [SECRET]}, "answer takes a text."),
    ("remember", {"task": "x", "answer": " "}, "answer takes a text that is not blank."),
    ("recall", {"task": ""}, "task takes a text that is not blank."),
    ("recall", {"task": " \t\n "}, "task takes a text that is not blank."),
    (
        "recall",
        {"task": SECRET + "x" * 1_000_000},
        f"task takes at most {MAX_TASK_CHARS:,} characters; this has {1_000_000 + len(SECRET):,}.",
    ),
    ("recall", {"task": {"text": SECRET}}, "task takes a text."),
    (
        "forget",
        {"entry_id": ""},
        "entry_id takes the id of an entry, as remember, recall and echo return it.",
    ),
    ("recall", {}, "task is required: a text."),
    ("remember", {"task": "x"}, "answer is required: a text."),
    ("recall", {"task": None}, "task is required: a text."),
    ("recall", {"task": "x", "treshold": SECRET}, "There is no argument 'treshold'. Did you mean threshold?"),
    (
        "recall",
        {"task": "x", "loudness": SECRET},
        "There is no argument 'loudness'. This tool takes task, threshold, top_k, tags, verify.",
    ),
    ("stats", {"loudness": SECRET}, "There is no argument 'loudness'. This tool takes no arguments."),
    (
        "recal",
        {"task": SECRET},
        "There is no tool 'recal'. There are recall, remember, echo, drift_report, forget, stats.",
    ),
]


@raw_ways
@pytest.mark.parametrize(("tool", "arguments", "line"), ONE_LINE, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_is_refused_in_one_line(agent: Lines, tool: str, arguments: dict[str, Any], line: str) -> None:
    assert agent.call(tool, arguments).error == line


@raw_ways
def test_clear_arguments_of_the_wrong_type_are_taken(agent: Lines) -> None:
    asked = {"task": FAR, "top_k": "3", "threshold": "0.9", "tags": '["a","b"]'}
    assert agent.call("recall", asked).payload["hit"] is False
    assert agent.call("recall", {"task": FAR, "top_k": 3.0, "threshold": None}).payload["hit"] is False
    assert agent.call("stats", None).payload
    assert "result" in agent.request("tools/call", {"name": "stats"})


@raw_ways
@pytest.mark.parametrize("arguments", [[SECRET], SECRET, 1, True])
def test_arguments_that_are_no_object_are_refused_in_one_line(agent: Lines, arguments: Any) -> None:
    # No tool's result but the protocol's own error: such a request is no call of a tool.
    reply = agent.request("tools/call", {"name": "recall", "arguments": arguments})
    assert reply["error"] == {"code": -32602, "message": "arguments takes one JSON object."}


def test_a_fault_of_ours_is_told_in_one_line_without_its_message(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Memory, "stats", fails)
    agent = start("pipes, early")
    assert agent.call("stats", {}).error == "An internal error (RuntimeError) ended the call; see logs/server.log."
    assert "stats failed" in caplog.text
    agent.close()


# --- the wire


@raw_ways
def test_garbage_costs_only_itself_and_every_request_is_answered_once(agent: Lines) -> None:
    agent.send(b"\xff\xfe\n", b'{"jsonrpc": "2.0", "id": 1, "method"\n', b"\n", b"  \n")
    for _ in range(2):
        reply = agent.take()
        assert (reply["id"], reply["error"]["code"]) == (None, -32700)
    ids = [agent.start_call("recall", {"task": f"{FAR} {number}"}) for number in range(20)]
    replies = [agent.take() for _ in ids]
    assert sorted(reply["id"] for reply in replies) == ids
    assert all(reply["result"]["isError"] is False for reply in replies)


@pytest.mark.parametrize("way", ["early", "SDK"])
@pytest.mark.parametrize(
    "line", [b"[]", b"1", b"null", b'{"jsonrpc": "1.0", "id": 1}', b'{"id": 7, "method": 1}', b"[" * 100_000]
)
def test_what_is_no_message_is_told_and_the_session_goes_on(start: Start, way: str, line: bytes) -> None:
    agent = start(f"pipes, {way}")
    agent.send(line + b"\n")
    assert agent.take()["error"]["code"] in (-32700, -32600)
    assert agent.call("stats", {}).payload
    agent.close()


@pytest.mark.parametrize("way", ["early", "SDK"])
def test_a_line_that_is_too_long_is_refused_unread(start: Start, tmp_path: Path, way: str) -> None:
    agent = Pipes(environment(tmp_path / "home"), max_line_bytes=1000)
    agent.handshake()
    if way == "SDK":
        agent.let_sdk_take_over()
    for length in (1001, 2000, 5000):
        agent.send(b"x" * length + b"\n")
        assert agent.take()["error"] == {"code": -32600, "message": "The message is too long."}
        assert agent.call("stats", {}).payload
    agent.send(b" " * 900 + b"\n")
    assert agent.call("stats", {}).payload
    agent.close()


@raw_ways
def test_a_ping_is_answered_while_a_text_is_being_embedded(agent: Lines) -> None:
    call = agent.start_call("recall", {"task": f"{GATED} a long text"})
    with Gate(agent.folder / "gate").reached():  # type: ignore[attr-defined]
        assert agent.request("ping")["result"] == {}
    assert agent.result(call).payload["hit"] is False


@pytest.mark.parametrize("way", ["pipes, SDK", "process, SDK"])
def test_a_cancelled_call_holds_up_no_end(start: Start, way: str) -> None:
    agent = start(way)
    call = agent.start_call("recall", {"task": GATED})
    with Gate(agent.folder / "gate").reached():
        agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}})
        assert agent.request("ping")["result"] == {}
    assert agent.close() == 0


def test_standard_output_holds_nothing_but_messages_whatever_prints(start: Start) -> None:
    # Every line that any test reads is held against the rules; here the prints are seen elsewhere.
    agent = start("process, early")
    agent.call("recall", {"task": TASK})
    assert agent.close() == 0
    assert "a library prints\n" in agent.errors
    assert "native code prints\n" in agent.errors


@pytest.mark.parametrize("version", ["2025-06-18", "2024-11-05"])
def test_requests_that_are_sent_at_once_after_the_start_are_answered(
    tmp_path: Path, real_model_dir: Path, version: str
) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent, SUBCONSCIOUS_LOG_LEVEL="DEBUG")
    process = Process(env, command=COMMAND)
    try:
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "recall", "arguments": {"task": TASK}}}
        process.send(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": handshake_params(version)},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            b"\xff\xfe\n",
            *[call | {"id": number} for number in range(1, 21)],
        )
        process.close_input()
        replies = process.rest()
        assert sorted(reply["id"] for reply in replies if reply["id"] is not None) == list(range(21))
        assert process.wait() == 0
        assert process.errors == []
    finally:
        process.kill()


def test_the_log_tells_no_texts(start: Start) -> None:
    agent = start("process, SDK")
    remember(agent, "a secret task", "a secret answer")
    agent.call("recall", {"task": "a secret task", "threshold": 2})
    agent.call("secret tool", {})
    agent.send({"jsonrpc": "2.0", "id": 1, "method": "secret method", "params": {"a": "secret"}})
    agent.reply(1)
    assert agent.close() == 0
    log = (agent.folder / "home" / "logs" / "server.log").read_text()
    assert "Namespace 'tests'" in log
    assert "secret" not in log


# --- the end


@pytest.mark.parametrize("way", ["pipes, early", "pipes, SDK", "process, early", "process, SDK"])
def test_a_call_is_answered_when_input_closes_in_the_middle_of_it(start: Start, way: str) -> None:
    agent = start(way)
    call = agent.start_call("remember", {"task": f"{GATED} {TASK}", "answer": "kept"})
    with Gate(agent.folder / "gate").reached():
        agent.close_input()
    result = agent.result(call).payload
    assert agent.close() == 0
    assert stored(agent.folder, result["entry_id"])["answer"] == "kept"
    assert lock_is_free(agent.folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", ["process, early", "process, SDK"])
def test_a_signal_ends_an_idle_server(start: Start, way: str, number: signal.Signals) -> None:
    agent = start(way)
    agent.call("stats", {})
    agent.signal(number)
    assert agent.wait() == 0
    assert lock_is_free(agent.folder)
    assert not any("Traceback" in line for line in agent.errors)


@pytest.mark.parametrize(
    ("way", "number"), [("process, early", signal.SIGINT), ("process, SDK", signal.SIGTERM)], ids=str
)
def test_a_signal_in_the_middle_of_a_call_loses_nothing_acknowledged(
    start: Start, way: str, number: signal.Signals
) -> None:
    agent = start(way)
    entry_id = remember(agent, TASK, "kept")
    agent.start_call("remember", {"task": f"{GATED} {FAR}", "answer": "never acknowledged"})
    with Gate(agent.folder / "gate").reached():
        agent.signal(number)
        assert agent.wait() == 0
    # The SDK tells that the call has not come to its end; the early session says nothing more.
    assert all(message["error"]["message"] == "Connection closed" for message in agent.rest())
    assert lock_is_free(agent.folder)
    assert stored(agent.folder, entry_id)["answer"] == "kept"
    assert count(agent.folder) == 1


def test_a_signal_ends_a_server_whose_client_has_closed_its_end_in_the_middle_of_a_call(start: Start) -> None:
    # As clients do: they close the input, wait a little, and then send the signal.
    agent = start("process, early")
    agent.start_call("recall", {"task": GATED})
    with Gate(agent.folder / "gate").reached():
        agent.close_input()
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
    assert lock_is_free(agent.folder)


def test_a_signal_right_after_the_handshake_ends_the_server(tmp_path: Path, real_model_dir: Path) -> None:
    process = Process(environment(tmp_path / "home", real_model_dir.parent), command=COMMAND)
    process.handshake()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    process.kill()


def test_a_client_that_reads_no_more_ends_nothing_badly(start: Start) -> None:
    agent = start("process, early")
    entry_id = remember(agent, TASK, "kept")
    reader, agent.popen.stdout = agent.popen.stdout, None
    call = agent.start_call("recall", {"task": GATED})
    with Gate(agent.folder / "gate").reached():
        # The thread that reads sits in the pipe: put the reading end of another one in its place.
        other = os.pipe()
        os.dup2(other[0], reader.fileno())
        os.close(other[0])
    agent.start_call("forget", {"entry_id": "nothing"})
    agent.close_input()
    os.close(other[1])
    assert agent.popen.wait(PATIENCE) == 0
    assert call
    assert lock_is_free(agent.folder)
    assert stored(agent.folder, entry_id)["answer"] == "kept"
    agent.popen.stdout = reader


# --- what stands in the way


def test_a_second_server_tells_who_holds_the_directory_and_works_once_it_is_gone(start: Start) -> None:
    first = start("process, early")
    remember(first, TASK, "of the first")
    second = start("process, early", first.folder)
    for tool, arguments in (("recall", {"task": TASK}), ("stats", {})):
        error = second.call(tool, arguments).error
        assert f"is in use by process {first.popen.pid} (subconscious-mcp server)" in error
        assert "\n" not in error
    assert first.close() == 0
    assert second.call("recall", {"task": TASK}).payload["answer"] == "of the first"
    assert second.close() == 0


def test_a_missing_model_is_told_and_found_once_it_is_installed(
    start: Start, tmp_path: Path, real_model_dir: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    agent = start("process, early", tmp_path, SUBCONSCIOUS_MODELS_DIR=str(models))
    for tool, arguments in (("recall", {"task": TASK}), ("remember", {"task": TASK, "answer": "x"})):
        error = agent.call(tool, arguments).error
        assert "subconscious-mcp model install" in error
        assert "\n" not in error
    link_tree(real_model_dir, models / real_model_dir.name)
    assert agent.call("remember", {"task": TASK, "answer": "x"}).payload["stored"] is True
    assert agent.close() == 0


def test_what_embeds_nothing_needs_no_model(start: Start, tmp_path: Path) -> None:
    first = start("process, early", tmp_path)
    entry_id = first.call("remember", {"task": TASK, "answer": "x"}).payload["entry_id"]
    assert first.close() == 0
    models = tmp_path / "models"
    models.mkdir()
    second = start("process, early", tmp_path, SUBCONSCIOUS_MODELS_DIR=str(models))
    assert second.call("stats", {}).payload["total_entries"] == 1
    assert second.call("drift_report", {}).payload["candidates"] == []
    assert second.call("forget", {"entry_id": entry_id}).payload["forgotten"] is True
    assert second.call("stats", {}).payload["total_entries"] == 0
    assert second.close() == 0


BAD_SETTINGS = [
    ("[]", {}, "must hold one JSON object."),
    ("{", {}, "is not valid JSON (line 1, column 2)."),
    ('{"default_threshold": "high"}', {}, "takes a number from 0 to 1."),
    ("{}", {"SUBCONSCIOUS_DEFAULT_THRESHOLD": "7"}, "SUBCONSCIOUS_DEFAULT_THRESHOLD takes a number from 0 to 1."),
    ("{}", {"SUBCONSCIOUS_LOG_LEVEL": "nonsense"}, "SUBCONSCIOUS_LOG_LEVEL takes one of DEBUG, INFO,"),
]


@pytest.mark.parametrize(("written", "settings", "told"), BAD_SETTINGS)
def test_settings_that_cannot_be_used_end_a_command_with_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    written: str,
    settings: dict[str, str],
    told: str,
) -> None:
    (tmp_path / "config.json").write_text(written)
    for name, value in ({"SUBCONSCIOUS_HOME": str(tmp_path)} | settings).items():
        monkeypatch.setenv(name, value)
    assert cli.main(["stats"]) == 78
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("subconscious-mcp: ")
    assert told in line


@pytest.mark.parametrize("way", ["process, early", "process, SDK"])
def test_settings_that_cannot_be_used_are_told_by_every_call_of_a_server(
    start: Start, way: str, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.json").write_text("[]")
    agent = start(way, tmp_path)
    assert [tool["name"] for tool in agent.tools()] == list(SCHEMAS)
    for tool, arguments in (("recall", {"task": TASK}), ("stats", {})):
        error = agent.call(tool, arguments).error
        assert "config.json must hold one JSON object." in error
    assert agent.close() == 78
    assert agent.errors == [f"subconscious-mcp: {error}\n"]
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["config.json"]


def test_a_server_needs_no_home_folder_when_it_is_told_one(tmp_path: Path, real_model_dir: Path) -> None:
    env = environment(tmp_path / "home", real_model_dir.parent)
    del env["HOME"]
    process = Process(env, command=COMMAND, cwd=tmp_path)
    process.handshake()
    assert remember(process, TASK)
    assert process.close() == 0
    process.kill()


@pytest.mark.parametrize("name", ["with spaces", "Ünïcödé 记忆 память", "nested/folders/that are/missing"])
def test_any_folder_name_will_do(start: Start, tmp_path: Path, name: str) -> None:
    agent = start("pipes, early", tmp_path, SUBCONSCIOUS_STORAGE_DIR=str(tmp_path / name))
    remember(agent, TASK, "kept")
    assert (tmp_path / name / "memory.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
    agent.close()


def _a_file(folder: Path) -> Path:
    (folder / "file").write_text("mine")
    return folder / "file"


def _below_a_file(folder: Path) -> Path:
    return _a_file(folder) / "below"


def _without_a_place_for_the_lock(folder: Path) -> Path:
    (folder / "storage" / "engine.lock").mkdir(parents=True)
    return folder / "storage"


@pytest.mark.parametrize("make", [_a_file, _below_a_file, _without_a_place_for_the_lock])
def test_a_storage_directory_that_cannot_be_used_is_told_until_it_can(
    start: Start, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    storage = make(tmp_path)
    agent = start("pipes, early", tmp_path, SUBCONSCIOUS_STORAGE_DIR=str(storage))
    for _ in range(2):
        error = agent.call("stats", {}).error
        assert str(storage) in error
        assert "\n" not in error
        assert "Errno" not in error
    in_the_way = tmp_path / "file" if (tmp_path / "file").exists() else storage
    shutil.rmtree(in_the_way) if in_the_way.is_dir() else in_the_way.unlink()
    assert agent.call("stats", {}).payload["total_entries"] == 0
    agent.close()


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_server_without_a_client_says_so(tmp_path: Path, stream: str) -> None:
    number = ("stdin", "stdout").index(stream)
    shell = f'exec "$@" {number}{"<>"[number]}&-'
    env = environment(tmp_path / "home")
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *COMMAND], env=env, capture_output=True, text=True, timeout=PATIENCE, input=None
    )
    assert done.returncode == 1
    assert done.stderr == "subconscious-mcp: standard input or output is closed, so there is no client.\n"
