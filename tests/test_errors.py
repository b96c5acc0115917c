"""What each error means to the shell and to HTTP, and what a user sees of it."""

from __future__ import annotations

import pytest

from subconscious_mcp import errors
from subconscious_mcp.errors import MEANINGS, SubconsciousError, meaning

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SubconsciousError)]


@pytest.mark.parametrize("kind", CLASSES)
def test_each_kind_has_a_meaning_of_its_own(kind: type[SubconsciousError]) -> None:
    assert meaning(kind("It failed.")) is MEANINGS[kind]
    assert 400 <= MEANINGS[kind].http_status < 600
    assert 64 <= MEANINGS[kind].exit_code <= 78


def test_a_kind_that_is_not_listed_means_what_its_base_means() -> None:
    class Special(errors.StorageBusy):
        pass

    assert meaning(Special("It failed.")) is MEANINGS[errors.StorageBusy]


@pytest.mark.parametrize("error", [ValueError("x"), OSError(5, "x"), KeyboardInterrupt()])
def test_an_error_of_another_origin_counts_as_a_fault_of_ours(error: BaseException) -> None:
    assert meaning(error) is MEANINGS[SubconsciousError]


def test_the_way_out_stands_behind_what_is_wrong() -> None:
    assert str(SubconsciousError("It failed.")) == "It failed."
    assert str(SubconsciousError("It failed.", "Try again.")) == "It failed. Try again."
