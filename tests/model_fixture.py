"""The real model, for the few tests that need it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from subconscious_mcp import model_files


@pytest.fixture(scope="session")
def real_model_dir() -> Path:
    """Returns the folder of the installed default model; its parent is the models folder.

    SUBCONSCIOUS_TEST_MODELS_DIR names the models folder, else the user's own is used. What
    is missing is installed once: the one thing in the tests that may use the network.
    """
    named = os.environ.get("SUBCONSCIOUS_TEST_MODELS_DIR")
    models_dir = Path(named) if named else Path.home() / ".subconscious-mcp" / "models"
    return model_files.ensure(model_files.DEFAULT_MODEL, models_dir, allow_download=True)
