"""The confidence of a hit: representative pairs of every kind, bounds, and the weights file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subconscious_mcp import confidence
from subconscious_mcp.confidence import FEATURES, Judgement, features, judge, read_model, warm
from tests import test_contrasts

WEIGHTS = Path(confidence.__file__).with_name(confidence.WEIGHTS)
NEAR = 0.92

ANOTHER = """
    number | Rotate the keys after 30 days | Rotate the keys after 300 days
    version | Build it with Python 3.9 | Build it with Python 3.13
    identifier | Close ticket CORE-71 | Close ticket CORE-17
    date | Ship the parcel on Monday | Ship the parcel on Friday
    unit | Wait 20 seconds for the lock | Wait 20 minutes for the lock
    quoted | Search the mails for "late fee" | Search the mails for "free trial"
    path | Check the syntax of app/views.py | Check the syntax of app/urls.py
    flag | Run the linter with --fix | Run the linter with --watch
    code | Profile load_config() | Profile save_config()
    name | Deploy the worker to AWS | Deploy the worker to Azure
    negation | Log the request bodies | Do not log the request bodies
    antonym | Enable the query cache | Disable the query cache
    direction | Copy the rows from MySQL to Postgres | Copy the rows from Postgres to MySQL
    order | Run the tests before the build | Run the build before the tests
    scope | Restart all workers | Restart only the failed workers
    modality | Should we split the table? | Split the table
    question | When was the branch deleted? | Who deleted the branch?
"""
THE_SAME = """
    number | Rotate the keys after 30 days | Keys should be rotated after thirty days
    version | Build it with Python 3.13 | Build it using Python v3.13
    identifier | Close ticket CORE-71 | Please close CORE-71
    date | Ship the parcel on Monday | The parcel should be shipped on Monday
    unit | Wait 120 seconds for the lock | Wait 2 minutes for the lock
    quoted | Search the mails for "late fee" | Find "late fee" in the mails
    path | Check the syntax of app/views.py | Check app/views.py for syntax errors
    flag | Run the linter with --fix | Use --fix to run the linter
    code | Profile load_config() | Do a profile of load_config
    name | Deploy the worker to AWS | Roll the worker out to AWS
    negation | Do not log the request bodies | Don't log request bodies
    antonym | Disable the query cache | Turn off the query cache
    direction | Copy the rows from MySQL to Postgres | Copy rows to Postgres from MySQL
    order | Run the tests before the build | Before the build, run the tests
    scope | Restart all workers | Restart every worker
    modality | Should we split the table? | Is it a good idea to split the table?
    question | Who deleted the branch? | Do you know who deleted the branch?
"""


def rows(text: str) -> list[tuple[str, str, str]]:
    return [tuple(part.strip() for part in row.split(" | ")) for row in text.strip().splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize(("kind", "query", "stored"), rows(ANOTHER))
def test_another_task_is_blocked(kind: str, query: str, stored: str) -> None:
    for judged in (judge(query, stored, NEAR), judge(stored, query, NEAR)):
        assert judged.blocked
        assert judged.confidence < 0.5
        assert kind in {contrast.kind for contrast in judged.contrasts}


@pytest.mark.parametrize(("kind", "query", "stored"), rows(THE_SAME))
def test_the_same_task_in_other_words_is_trusted(kind: str, query: str, stored: str) -> None:
    for judged in (judge(query, stored, NEAR), judge(stored, query, NEAR)):
        assert not judged.blocked
        assert judged.confidence > 0.75


def test_every_kind_with_weight_is_represented() -> None:
    kinds = {kind for kind, _, _ in rows(ANOTHER)}
    assert kinds == {kind for kind, _, _ in rows(THE_SAME)} == set(test_contrasts.DIFFERENT)


def test_most_examples_of_contrasts_are_judged_right() -> None:
    different = [(one, other) for _, one, other in test_contrasts.all_of(test_contrasts.DIFFERENT)]
    same = [(one, other) for _, one, other in test_contrasts.all_of(test_contrasts.THE_SAME)]
    assert sum(judge(one, other, NEAR).blocked for one, other in different) >= 0.98 * len(different)
    assert sum(judge(one, other, NEAR).blocked for one, other in same) <= 0.03 * len(same)


@pytest.mark.parametrize(
    ("query", "stored"),
    [
        ("Enable the cache", "Enable the cache"),
        ("", ""),
        ("Don’t wait ３０ seconds", "Don't wait 30 seconds"),
        ("重启服务", "重启服务"),
        ("x " * 500_000, "x " * 500_000),
    ],
)
def test_identical_texts_are_sure(query: str, stored: str) -> None:
    assert judge(query, stored, 1.0) == Judgement(1.0, (), False)
    assert not judge(query, stored, 0.2).blocked


@pytest.mark.parametrize(
    ("query", "stored"),
    [
        ("Wie starte ich den Server neu?", "Wie kann ich den Server neu starten?"),
        ("¿Cómo puedo borrar los datos?", "¿Cómo puedo eliminar los datos?"),
        ("重启服务", "重新启动服务"),
        ("Как перезапустить сервер?", "Как запустить сервер снова?"),
    ],
)
def test_other_languages_lose_no_true_hit(query: str, stored: str) -> None:
    assert not judge(query, stored, 0.9).blocked


def test_values_tell_tasks_of_other_languages_apart() -> None:
    assert judge("超时设置为30秒", "超时设置为300秒", 0.97).blocked


@pytest.mark.parametrize(("_kind", "query", "stored"), rows(ANOTHER) + rows(THE_SAME))
def test_confidence_grows_with_similarity(_kind: str, query: str, stored: str) -> None:
    told = [judge(query, stored, step / 50).confidence for step in range(51)]
    assert told == sorted(told)


@given(st.text(max_size=60), st.text(max_size=60), st.floats())
@settings(max_examples=150, deadline=None)
def test_no_text_and_no_similarity_is_too_strange(query: str, stored: str, similarity: float) -> None:
    judged = judge(query, stored, similarity)
    assert 0.0 <= judged.confidence <= 1.0
    values = features(query, stored, similarity)
    assert len(values) == len(FEATURES)
    assert all(map(math.isfinite, values))


def test_long_texts_are_judged_by_what_differs() -> None:
    text = "Restart the billing service of the third cluster. " * 20_000
    judged = judge(text + "Enable the cache.", text + "Disable the cache.", 0.99)
    assert judged.blocked
    assert judged.contrasts[0].kind == "antonym"
    assert 0 <= judge(text, "Never mind. " + text[::-1], 0.5).confidence <= 1


def test_a_long_task_may_be_told_in_many_other_words() -> None:
    one = (
        "Collect the readings of every sensor in the greenhouse, discard those that lie outside of the plausible "
        "range, and draw a chart that lets the gardener spot a dry bed before noon"
    )
    other = (
        "Gather the measurements of every sensor in the greenhouse, throw away those that lie outside of the credible "
        "range, and plot a chart that helps the gardener notice a dry bed before noon"
    )
    assert not judge(one, other, 0.93).blocked


def test_the_weights_belong_to_the_features() -> None:
    text = WEIGHTS.read_text(encoding="utf-8")
    model = read_model(text)
    assert len(text) < 8_000
    assert len(model.weights) == len(FEATURES)
    assert all(map(math.isfinite, (*model.weights, model.intercept)))
    assert 0 < model.limit < 1
    assert {"model", "data", "date", "version", "seed"} <= model.about.keys()


def test_contrasts_never_speak_for_an_answer() -> None:
    model = read_model(WEIGHTS.read_text(encoding="utf-8"))
    for name, weight in zip(FEATURES, model.weights, strict=True):
        if name.startswith(("one_sided_", "two_sided_")) or name in ("strongest", "doubt", "weighty"):
            assert weight <= 0
        if name in confidence.SIMILARITY:
            assert weight >= 0


def test_weights_of_other_features_are_refused() -> None:
    held = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    held["features"].pop()
    with pytest.raises(ValueError, match="train_confidence"):
        read_model(json.dumps(held))


def test_warming_leaves_nothing_behind() -> None:
    before = judge("Enable the cache", "Disable the cache", NEAR)
    warm()
    assert judge("Enable the cache", "Disable the cache", NEAR) == before
