"""The documentation says what the code does."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from subconscious_mcp import cli
from subconscious_mcp.config import SETTINGS, resolve
from subconscious_mcp.toolsets.cache import cache_tools

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(parser: argparse.ArgumentParser, prefix: str = "") -> list[str]:
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                below = commands(sub, f"{prefix}{name} ")
                found += below or [f"{prefix}{name}"]
    return found


@pytest.mark.parametrize("command", commands(cli._parser()))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"subconscious-mcp {command}" in README


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_in_the_readmes_table(setting) -> None:
    assert re.search(rf"^\| `{setting.name}` \|.*`{setting.env}` \|$", README, re.MULTILINE)


def test_every_tool_is_in_the_readmes_table_with_its_arguments() -> None:
    for tool in cache_tools(resolve().config):
        row = re.search(rf"^\| `{tool.name}\((.*?)\)` \|", README, re.MULTILINE)
        assert row is not None
        shown = [part.split("=")[0].strip() for part in row[1].split(",") if part.strip()]
        assert shown == [parameter.name for parameter in tool.parameters]


def test_every_link_leads_somewhere() -> None:
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("validation/*.md")]:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_example_configurations_are_json_that_starts_the_command() -> None:
    for path in (ROOT / "examples").glob("*.json"):
        servers = json.loads(path.read_text(encoding="utf-8"))["mcpServers"]
        assert servers["subconscious-mcp"]["command"] == "subconscious-mcp"


def test_the_readmes_chroma_example_runs(real_model_dir: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SUBCONSCIOUS_MODELS_DIR", str(real_model_dir.parent))
    monkeypatch.chdir(tmp_path)
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "chromadb" in block)
    exec(compile(code, "README", "exec"), {})
    assert "quarterly report" in capsys.readouterr().out
