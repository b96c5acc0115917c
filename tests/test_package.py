"""What the package shows to programs that import it, and how it is started."""

from __future__ import annotations

import sys

import pytest

import subconscious_mcp
from subconscious_mcp import __main__ as start
from subconscious_mcp import embedding, errors, verbs
from subconscious_mcp.memory import Memory, Scope


def test_the_public_names_are_there() -> None:
    assert subconscious_mcp.MiniLMEmbeddingFunction is embedding.MiniLMEmbeddingFunction
    assert subconscious_mcp.SubconsciousError is errors.SubconsciousError
    for name in subconscious_mcp.__all__:
        assert hasattr(subconscious_mcp, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = subconscious_mcp.nothing


def test_what_is_named_behind_it_is_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["subconscious-mcp", "engine", "status"])
    assert start.main() == 1
    assert capsys.readouterr().out == "no engine is running\n"


def test_a_verb_that_there_is_not_is_refused(memory: Memory, scope: Scope) -> None:
    with pytest.raises(errors.InvalidArgument, match="There is no verb 'rekall'"):
        verbs.carry_out(memory, scope, "rekall", {})
