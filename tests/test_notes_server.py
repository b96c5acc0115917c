"""The personal notes' server as its users meet it: the installed command over stdio, with the real model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import ask
from interaction import CONSOLE_SCRIPT, PATIENCE, Process, environment

from subconscious_mcp.storage_lock import wait_until_free

SAMPLES = (
    "The user's reading list: Deep Work and The Pragmatic Programmer are next.",
    "Project Atlas is led by Priya and ships in March.",
    "The user is allergic to shellfish.",
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory, real_model_dir: Path) -> dict[str, str]:
    home = tmp_path_factory.mktemp("notes") / "home"
    env = environment(home, real_model_dir.parent, MCP_MEMORY_PATH=str(home / "kept"), MCP_MEMORY_COLLECTION="mine")
    del env["SUBCONSCIOUS_NAMESPACE"]
    return env


@pytest.fixture(scope="module")
def agent(env: dict[str, str]) -> Iterator[Process]:
    agent = Process(env, command=[*COMMAND_OF_A_CLIENT])
    agent.told = agent.handshake()  # type: ignore[attr-defined]
    yield agent
    agent.close_input()
    agent.end()
    storage = Path(env["MCP_MEMORY_PATH"])
    if ask(storage, "engine stop") is not None:
        assert wait_until_free(storage, PATIENCE)


COMMAND_OF_A_CLIENT = [CONSOLE_SCRIPT, "--toolset", "notes"]


def called(agent: Process, name: str, arguments: dict[str, Any]) -> Any:
    raw = agent.request("tools/call", {"name": name, "arguments": arguments})["result"]
    assert not raw["isError"], raw
    structured = raw["structuredContent"]
    texts = [json.loads(content["text"]) for content in raw["content"]]
    if "result" in structured:
        assert texts == structured["result"]
        return texts
    assert texts == [structured]
    return structured


def refused(agent: Process, name: str, arguments: dict[str, Any]) -> str:
    raw = agent.request("tools/call", {"name": name, "arguments": arguments})["result"]
    assert raw["isError"] and "structuredContent" not in raw
    return str(raw["content"][0]["text"])


def test_it_bears_its_own_name(agent: Process) -> None:
    told = agent.told  # type: ignore[attr-defined]
    assert told["serverInfo"]["name"] == "personal-memory"
    assert "remember" in told["instructions"]


def test_there_are_exactly_four_tools(agent: Process) -> None:
    tools = {tool["name"]: tool for tool in agent.tools()}
    assert list(tools) == ["remember", "recall", "list_recent", "forget"]
    properties = {name: tool["inputSchema"]["properties"] for name, tool in tools.items()}
    assert tools["remember"]["inputSchema"]["required"] == ["content"]
    assert properties["recall"]["limit"]["minimum"] == 1 and properties["recall"]["limit"]["maximum"] == 50
    assert properties["recall"]["limit"]["default"] == 5
    assert properties["list_recent"]["limit"]["maximum"] == 100 and properties["list_recent"]["limit"]["default"] == 10
    assert tools["forget"]["inputSchema"]["required"] == ["memory_id"]


def test_a_session(agent: Process) -> None:
    stored = [called(agent, "remember", {"content": text, "tags": ["t"], "source": "chat"}) for text in SAMPLES]
    assert all(set(one) == {"id", "status"} and one["status"] == "stored" for one in stored)
    hits = called(agent, "recall", {"query": "what should I read next?"})
    assert hits[0]["content"] == SAMPLES[0]
    assert set(hits[0]) == {"id", "content", "created_at", "tags", "source", "score"}
    assert called(agent, "recall", {"query": "who leads project atlas?", "limit": 1})[0]["id"] == stored[1]["id"]
    assert called(agent, "recall", {"query": "who leads project atlas?", "tags": '["none"]'}) == []
    recent = called(agent, "list_recent", {"limit": 2})
    assert [note["id"] for note in recent] == [stored[2]["id"], stored[1]["id"]]
    assert set(recent[0]) == {"id", "content", "created_at", "tags", "source"}
    assert called(agent, "list_recent", {"since": "2020-01-01", "until": "2020-12-31"}) == []
    stats = agent.request("resources/read", {"uri": "memory://stats"})["result"]["contents"][0]
    assert stats["mimeType"] == "text/plain"
    assert "Total memories: 3" in stats["text"] and "Collection: mine" in stats["text"] and "/kept" in stats["text"]
    tagged = agent.request("resources/read", {"uri": "memory://tags/t"})["result"]["contents"][0]
    assert [note["id"] for note in json.loads(tagged["text"])] == [one["id"] for one in reversed(stored)]
    newest = agent.request("resources/read", {"uri": "memory://recent"})["result"]["contents"][0]
    assert len(json.loads(newest["text"])) == 3
    assert called(agent, "forget", {"memory_id": stored[2]["id"]}) == {"id": stored[2]["id"], "deleted": True}
    assert called(agent, "forget", {"memory_id": stored[2]["id"]}) == {"id": stored[2]["id"], "deleted": False}


def test_resources_are_listed(agent: Process) -> None:
    listed = agent.request("resources/list")["result"]["resources"]
    assert [resource["uri"] for resource in listed] == ["memory://stats", "memory://recent"]
    templates = agent.request("resources/templates/list")["result"]["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["memory://tags/{tag}"]
    assert agent.request("prompts/list")["result"]["prompts"] == []
    for uri in ("memory://nothing", "memory://tags/", "file:///etc/passwd"):
        assert agent.request("resources/read", {"uri": uri})["error"]["code"] == -32602


def test_errors_say_what_an_argument_takes(agent: Process) -> None:
    assert "Input should be greater than or equal to 1" in refused(agent, "recall", {"query": "x", "limit": 0})
    assert "from 1 to 50" in refused(agent, "recall", {"query": "x", "limit": 51})
    assert "from 1 to 100" in refused(agent, "list_recent", {"limit": 101})
    assert "content is required" in refused(agent, "remember", {})
    assert "limits" in refused(agent, "recall", {"query": "x", "limits": 3})
    assert "a date" in refused(agent, "recall", {"query": "x", "since": "last tuesday"})
    assert "no tool" in refused(agent, "echo", {"task": "x"})
    assert "memory_id takes" in refused(agent, "forget", {"memory_id": " "})


def test_many_long_notes_share_what_a_result_holds(agent: Process, env: dict[str, str]) -> None:
    ids = [
        called(
            agent, "remember", {"content": f"{number} " + "on and on it goes about the harbour " * 600, "tags": ["l"]}
        )
        for number in range(4)
    ]
    listed = called(agent, "list_recent", {"tags": ["l"], "since": "", "until": ""})
    assert len(listed) == 4 and sum(len(note["content"]) for note in listed) < 61_000
    code, shown = command(env, "note", "show", ids[0]["id"])
    assert code == 0 and shown.count("harbour") == 600
    for one in ids:
        called(agent, "forget", {"memory_id": one["id"]})


def test_a_wrong_setting_leaves_the_tools_that_were_asked_for(env: dict[str, str]) -> None:
    agent = Process({**env, "MCP_MEMORY_COLLECTION": "x" * 600}, command=COMMAND_OF_A_CLIENT)
    assert agent.handshake()["serverInfo"]["name"] == "personal-memory"
    assert "MCP_MEMORY_COLLECTION takes" in refused(agent, "list_recent", {})
    agent.close_input()
    agent.end()


def test_the_toolset_is_an_option_like_others(env: dict[str, str]) -> None:
    done = subprocess.run(
        [CONSOLE_SCRIPT, "--toolset", "nots"], env=env, capture_output=True, text=True, timeout=PATIENCE, input=""
    )
    assert done.returncode == 2 and "--toolset" in done.stderr and "Traceback" not in done.stderr
    for arguments in (["--toolset", "notes", "--print-config"], ["--toolset=notes", "--print-config"]):
        code, shown = command(env, *arguments, "--json")
        assert code == 0 and json.loads(shown)["toolset"]["value"] == "notes"
    served = Process(env, command=[CONSOLE_SCRIPT, "serve", "--toolset", "notes"])
    assert served.handshake()["serverInfo"]["name"] == "personal-memory"
    served.close_input()
    served.end()


def command(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run([CONSOLE_SCRIPT, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_seed_demo_answers_its_two_questions(env: dict[str, str], agent: Process) -> None:
    named = ("--namespace", "samples")
    code, shown = command(env, "seed-demo", *named)
    assert code == 0 and shown.count("stored ") == 5 and "Total memories: 5" in shown
    code, told = command(env, "seed-demo", "--json", *named)
    reading, atlas = json.loads(told)["questions"]
    assert len(reading["found"]) == 3 and reading["found"][0]["content"].startswith("Reading list")
    assert atlas["found"][0]["content"].startswith("Project Atlas")
    assert atlas["found"][0]["tags"] == ["work", "project-atlas"] and atlas["found"][0]["source"] == "slack"


def test_the_note_commands(env: dict[str, str], agent: Process) -> None:
    def note(*arguments: str) -> tuple[int, Any]:
        code, out = command(env, "note", *arguments, "--json", "--namespace", "commands")
        return code, json.loads(out)

    old = note("add", "The standup is at 9:30", "--fact", "--tag", "team")[1]["id"]
    new = note("supersede", old, "The standup is at 10:00")[1]
    assert new["superseded"] == old
    assert [one["content"] for one in note("search", "when is the standup")[1]] == ["The standup is at 10:00"]
    assert note("show", old)[1]["superseded_by"] == new["id"]
    assert note("restore", old) == (0, {"restored": True})
    assert len(note("list", "--kind", "fact")[1]) == 2
    assert note("list", "--until", "2020-01-01") == (0, [])
    assert note("forget", old)[0] == 0 and note("show", old)[0] == 1
    code, shown = command(env, "note", "search", "when is the standup", "--explain", "--namespace", "commands")
    assert code == 0 and "keyword" in shown and new["id"] in shown
