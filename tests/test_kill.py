"""A process that is killed at any moment loses nothing that it acknowledged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kills import DAMAGES, Expected, fill, look, run_and_kill

EXACT_LIMIT = 10
FILLED = 150


@pytest.mark.parametrize("exact_limit", [EXACT_LIMIT, 10_000], ids=["by the index", "exactly"])
def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path, exact_limit: int) -> None:
    folder = tmp_path / "data"
    expected = Expected(fill(folder, FILLED, exact_limit))
    rnd = random.Random(exact_limit)
    # What happens to Chroma's files between the kill and the next opening.
    damages = [None, DAMAGES[0], None, DAMAGES[1], DAMAGES[3], None]
    for number, damage in enumerate(damages if exact_limit == EXACT_LIMIT else damages[:2]):
        new = run_and_kill(
            folder,
            expected,
            first=FILLED + 1000 * number,
            lines=rnd.randrange(1, 80),
            exact_limit=exact_limit,
            indexed_first=number % 2 == 0,
        )
        if damage is not None:
            damage(folder, rnd)
        found = look(folder, expected, new + rnd.sample(sorted(expected.live), 60), exact_limit)
        assert found.lost == []
        assert found.still_there == []
        assert found.words_in_files == []
        assert found.not_searched == []
        assert found.differences == (0, 0)
        assert found.checked > 0
    assert expected.acknowledged > 0
