"""Consolidation: what is merged, what never is, and that all can be undone."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subconscious_mcp import consolidation, near_duplicates, old_notes
from subconscious_mcp.consolidation import KINDS, consolidate, plan, undo
from subconscious_mcp.consolidation_payloads import NO_MODEL, done_payload
from subconscious_mcp.errors import InvalidArgument, LanguageModelError
from subconscious_mcp.language_model import LanguageModel
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.near_duplicates import compared
from subconscious_mcp.opening import load_embedder
from subconscious_mcp.records import NOTES, Entry, Kind, NewEntry, Observation
from subconscious_mcp.toolsets import tools_of
from subconscious_mcp.toolsets.consolidation import consolidation_tools
from tests import test_confidence

DAY = 86_400.0


@pytest.fixture
def scope(memory: Memory, config: Any) -> Scope:
    return memory.scope(config, "tests", None)


@pytest.fixture
def add(memory: Memory, scope: Scope, clock: Any, embedder: Any) -> Any:
    """Stores a note a second after the one before; near to another where that is said."""

    def stores(text: str, *, near: str = "", at: float = 0.97, **options: Any) -> str:
        clock.advance(1.0)
        if near:
            embedder.place(text, at, near)
        return note(memory, scope, text, **options)

    return stores


def note(
    memory: Memory, scope: Scope, text: str, *, tags: Sequence[str] = (), source: str = "", kind: Kind = "note"
) -> str:
    new = NewEntry(uuid.uuid4().hex, kind, text, "", memory.now(), None, tuple(tags), source)
    memory.store.add(scope.namespace, new, memory.embedder().fingerprint, memory.embedder().embed_query(text))
    return new.id


def supersede(memory: Memory, scope: Scope, entry_id: str, text: str) -> str:
    new = NewEntry(uuid.uuid4().hex, "note", text, "", memory.now())
    embedder = memory.embedder()
    vector = embedder.embed_query(text)
    assert memory.store.supersede(scope.namespace, entry_id, new, embedder.fingerprint, vector, at=memory.now())
    return new.id


def state(memory: Memory, scope: Scope) -> dict[str, Entry]:
    """Returns everything that is stored, by id, but for the order of writing."""
    found = {}
    for entry, vector in memory.store.export_page(
        scope.namespace.key, [], memory.embedder().fingerprint, after=0, upto=memory.store.last_key(), now=0.0
    ):
        assert vector is not None
        found[entry.id] = entry
    return found


def found_ids(memory: Memory, scope: Scope, query: str) -> list[str]:
    embedder = memory.embedder()
    vector = embedder.embed_query(query)
    near = memory.store.nearest(scope.namespace, NOTES, embedder.fingerprint, vector, 50, now=memory.now())
    return [one.entry.id for one in near if one.similarity > 0.5]


def shape(made: consolidation.Plan) -> list[tuple[str, list[str]]]:
    return [(group.survivor.task, [one.entry.task for one in group.members]) for group in made.groups]


# --- what is merged


def test_a_note_told_twice_becomes_the_longer_one(memory: Memory, scope: Scope, add: Any) -> None:
    add("I prefer dark mode in the editor")
    add("I like the dark mode in the editor best", near="I prefer dark mode in the editor")
    add("The cat is called Mia")
    made = plan(memory, scope)
    assert shape(made) == [("I like the dark mode in the editor best", ["I prefer dark mode in the editor"])]
    assert made.looked_at == 3
    assert made.groups[0].members[0].why.startswith("similarity 0.97")


def test_of_facts_the_newest_stays(memory: Memory, scope: Scope, add: Any) -> None:
    add("The user wants short answers, please", kind="fact")
    add("The user wants short answers", near="The user wants short answers, please", kind="fact")
    assert shape(plan(memory, scope)) == [("The user wants short answers", ["The user wants short answers, please"])]


def test_kinds_are_never_mixed(memory: Memory, scope: Scope, add: Any) -> None:
    add("The office is closed on Friday")
    add("The office is closed on Friday", kind="fact")
    memory.remember(scope, "The office is closed on Friday", "yes")
    assert shape(plan(memory, scope)) == []


def test_answers_are_merged_only_where_they_are_equal(memory: Memory, scope: Scope) -> None:
    for answer in ("use  pip\ninstall", "use pip install", "use uv"):
        memory.remember(scope, "How do I install it?", answer)
    (group,) = plan(memory, scope).groups
    assert {one.answer for one in (group.survivor, group.members[0].entry)} == {"use  pip\ninstall", "use pip install"}
    assert len(group.members) == 1


def test_an_answer_that_somebody_judged_stays_what_it_is(memory: Memory, scope: Scope) -> None:
    first = memory.remember(scope, "How do I install it?", "use pip").entry_id
    memory.remember(scope, "How do I install it?", "use pip")
    assert len(plan(memory, scope).groups) == 1
    observation = Observation(str(first), 1.0, True, 1.0, memory.embedder().fingerprint)
    memory.store.note_feedback(scope.namespace, "hash", observation)
    assert plan(memory, scope).groups == ()


def test_the_answer_that_lives_longest_stays(memory: Memory, scope: Scope, clock: Any) -> None:
    lasting = memory.remember(scope, "How do I install it?", "use pip", ttl_seconds=None).entry_id
    clock.advance(5)
    memory.remember(scope, "How do I install it?", "use pip", ttl_seconds=60)
    assert plan(memory, scope).groups[0].survivor.id == lasting


def test_there_are_no_chains(memory: Memory, scope: Scope, add: Any, embedder: Any) -> None:
    """A is B and B is C, but A is not C: C stays."""
    longest = add("Water the plants in the hall on each Saturday morning")
    middle = add(
        "Water plants in the hall every Saturday", near="Water the plants in the hall on each Saturday morning"
    )
    last = "Water hall plants Saturdays"
    add(last, near="Water plants in the hall every Saturday", at=0.96)
    vectors = [embedder.embed_query(text) for text in ("Water the plants in the hall on each Saturday morning", last)]
    assert vectors[0] @ vectors[1] < near_duplicates.LEAST
    (group,) = plan(memory, scope).groups
    assert (group.survivor.id, [one.entry.id for one in group.members]) == (longest, [middle])


@pytest.mark.parametrize(("kind", "one", "other"), test_confidence.rows(test_confidence.ANOTHER))
def test_what_contrasts_is_never_merged(
    memory: Memory, scope: Scope, add: Any, kind: str, one: str, other: str
) -> None:
    add(one)
    add(other, near=one, at=0.999)
    made = plan(memory, scope, least=consolidation.LOWEST)
    assert made.groups == ()
    (apart,) = made.apart
    assert kind in {contrast.kind for contrast in apart.contrasts}
    assert consolidate(memory, scope, apply=True).merged == ()


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [
        # A year is no number, so the check of hits finds no contrast of two values here.
        ("Order 1999 was sent to the shop", "Order 200 was sent to the shop"),
        ("The report for the whole team goes to Maria", "The report of 12 May goes to Maria"),
    ],
)
def test_no_value_is_archived_that_the_survivor_does_not_say(
    memory: Memory, scope: Scope, add: Any, longer: str, shorter: str
) -> None:
    add(longer)
    add(shorter, near=longer, at=0.99)
    assert plan(memory, scope).groups == ()


def test_a_survivor_may_say_more(memory: Memory, scope: Scope, add: Any) -> None:
    add("The report goes to Maria on 12 May")
    add("The report goes to Maria", near="The report goes to Maria on 12 May", at=0.99)
    (group,) = plan(memory, scope).groups
    assert group.survivor.task == "The report goes to Maria on 12 May"


def test_a_namespace_does_not_see_another(memory: Memory, scope: Scope, config: Any, add: Any) -> None:
    add("The cat is called Mia")
    note(memory, memory.scope(config, "others", None), "The cat is called Mia")
    assert plan(memory, scope).groups == ()


def test_a_series_is_bounded_and_a_second_run_finds_nothing(memory: Memory, scope: Scope, add: Any) -> None:
    base = "Order 1000 was sent to the shop"
    add(base)
    for number in range(1001, 1040):
        add(f"Order {number} was sent to the shop", near=base, at=0.99)
    for words in ("Order 1000 was sent to the shop again", "The order 1000 was sent to the shop"):
        add(words, near=base, at=0.96)
    done = consolidate(memory, scope, apply=True)
    assert len(done.plan.apart) <= near_duplicates.MOST_APART
    assert done.plan.cut
    again = consolidate(memory, scope, apply=True)
    assert again.merged == ()


# --- carrying out and undoing


def test_a_plan_changes_nothing(memory: Memory, scope: Scope, add: Any) -> None:
    add("The cat is called Mia")
    add("The cat is called Mia", tags=["pets"])
    before = state(memory, scope)
    done = consolidate(memory, scope)
    assert done.plan.groups
    assert not done.run
    assert state(memory, scope) == before


def test_members_are_archived_and_undo_restores_exactly(memory: Memory, scope: Scope, add: Any) -> None:
    first = add("The cat is called Mia", tags=["pets"], source="chat")
    second = add("The cat is called Mia", tags=["pets"])
    before = state(memory, scope)
    (merged,) = consolidate(memory, scope, apply=True).merged
    assert (merged.survivor_id, merged.made, merged.member_ids) == (second, False, (first,))
    assert found_ids(memory, scope, "cat Mia") == [second]
    archived = memory.store.entry(scope.namespace, first)
    assert archived is not None
    assert archived.superseded_by == second
    assert undo(memory, scope, second).restored == (first,)
    assert state(memory, scope) == before
    assert set(found_ids(memory, scope, "cat Mia")) == {first, second}


def test_tags_are_united_in_an_entry_that_undo_deletes(memory: Memory, scope: Scope, add: Any) -> None:
    first = add("The cat is called Mia", tags=["pets"])
    second = add("The cat is called Mia", tags=["home"])
    before = state(memory, scope)
    (merged,) = consolidate(memory, scope, apply=True).merged
    made = memory.store.entry(scope.namespace, merged.survivor_id)
    assert made is not None
    assert merged.made
    assert set(merged.member_ids) == {first, second}
    assert set(made.tags) == {"pets", "home"}
    assert made.created_at == before[second].created_at
    assert found_ids(memory, scope, "cat Mia") == [made.id]
    undone = undo(memory, scope, "last")
    assert set(undone.restored) == {first, second}
    assert state(memory, scope) == before


def test_a_run_is_idempotent(memory: Memory, scope: Scope, add: Any) -> None:
    for tags in (["a"], ["b"], []):
        add("The cat is called Mia", tags=tags)
    assert len(consolidate(memory, scope, apply=True).merged) == 1
    before = state(memory, scope)
    again = consolidate(memory, scope, apply=True)
    assert (again.plan.groups, again.merged) == ((), ())
    assert state(memory, scope) == before


def test_last_is_the_last_run_and_then_the_one_before(memory: Memory, scope: Scope, add: Any) -> None:
    add("The cat is called Mia")
    add("The cat is called Mia")
    start = state(memory, scope)
    consolidate(memory, scope, apply=True)
    middle = state(memory, scope)
    add("The dog is called Rex")
    add("The dog is called Rex")
    add("The cat is called Mia")
    before = state(memory, scope)
    assert len(consolidate(memory, scope, apply=True).merged) == 2
    assert undo(memory, scope, "last").known
    assert state(memory, scope) == before
    assert undo(memory, scope, "last").known
    after = state(memory, scope)
    assert {key: after[key] for key in start} == start != middle
    assert not undo(memory, scope, "last").known


def test_what_a_user_superseded_is_not_undone_with_it(memory: Memory, scope: Scope, add: Any) -> None:
    old = add("The cat is called Mio")
    replaced = supersede(memory, scope, old, "The cat is called Mia")
    other = add("The cat is called Mia")
    (merged,) = consolidate(memory, scope, apply=True).merged
    undo(memory, scope, merged.survivor_id)
    mine = memory.store.entry(scope.namespace, old)
    assert mine is not None
    assert mine.superseded_by == replaced
    assert set(found_ids(memory, scope, "cat Mia")) == {replaced, other}


def test_what_was_superseded_since_is_left(memory: Memory, scope: Scope, add: Any) -> None:
    first = add("The cat is called Mia")
    second = add("The cat is called Mia")
    consolidate(memory, scope, apply=True)
    supersede(memory, scope, second, "The cat is called Tom")
    before = state(memory, scope)
    undone = undo(memory, scope, second)
    assert (undone.restored, undone.left) == ((), (second,))
    assert state(memory, scope) == before
    assert before[first].superseded_by == second


def test_the_others_can_be_had_back_when_the_survivor_is_forgotten(memory: Memory, scope: Scope, add: Any) -> None:
    first = add("The cat is called Mia")
    second = add("The cat is called Mia")
    consolidate(memory, scope, apply=True)
    assert memory.forget(scope, second)
    assert undo(memory, scope, second).restored == (first,)


def test_a_group_that_changed_since_it_was_planned_is_left(memory: Memory, scope: Scope, add: Any) -> None:
    first = add("The cat is called Mia")
    add("The cat is called Mia")
    (group,) = plan(memory, scope).groups
    memory.forget(scope, first)
    before = state(memory, scope)
    assert consolidation.merge(memory, scope, group, "run") is None
    assert state(memory, scope) == before


def test_an_undone_entry_leaves_the_files(memory: Memory, scope: Scope, add: Any, tmp_path: Path) -> None:
    for text in ("walrus one", "walrus two", "walrus three", "walrus four"):
        add(text, tags=["zoo"])
    consolidate(memory, with_model(scope, "XYLOPHONESUM"), apply=True, summaries=True, older_than_days=1)
    memory_clock(memory).advance(100 * DAY)
    done = consolidate(memory, with_model(scope, "XYLOPHONESUM"), apply=True, summaries=True)
    assert done.summarised[0].entry_id
    undo(memory, scope, "last")
    memory.close()
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not any(b"XYLOPHONESUM" in path.read_bytes() for path in files)


@pytest.mark.parametrize(("name", "value"), [("min_similarity", 0.5), ("min_similarity", 1.2), ("older_than_days", 0)])
def test_what_is_out_of_range_is_refused(memory: Memory, scope: Scope, name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name):
        consolidate(memory, scope, **{name: value})


KILLED = """
import sys
sys.path[:0] = {paths!r}
import os
from pathlib import Path
from dataclasses import replace
from fakes import FakeEmbedder
from subconscious_mcp import consolidation
from subconscious_mcp.config import resolve
from subconscious_mcp.local_store import LocalStore
from subconscious_mcp.memory import Memory
folder = Path(sys.argv[1])
store = LocalStore(folder, command="killed")
memory = Memory(store, folder, FakeEmbedder, clock=lambda: 1_800_001_000.0)
scope = memory.scope(replace(resolve().config, storage_dir=folder), "tests", None)
merge, count = consolidation.merge, 0
def counted(*arguments):
    global count
    if count == 2:
        os.kill(os.getpid(), 9)
    count += 1
    return merge(*arguments)
consolidation.merge = counted
consolidation.consolidate(memory, scope, apply=True)
"""


def test_a_kill_between_groups_leaves_what_the_next_run_completes(
    open_memory: Any, config: Any, tmp_path: Path
) -> None:
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    for name in ("Mia", "Rex", "Tom", "Kim"):
        for tag in ("pets", "home"):
            note(memory, scope, f"The animal there is called {name}", tags=[tag])
    before = state(memory, scope)
    memory.close()
    code = KILLED.format(paths=[str(Path(__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], check=False)
    assert done.returncode == -9
    memory = open_memory()
    scope = memory.scope(config, "tests", None)
    assert len(plan(memory, scope).groups) == 2
    assert len(consolidate(memory, scope, apply=True).merged) == 2
    assert memory.store.count(scope.namespace, NOTES, memory.now()) == 4
    undo(memory, scope, "last")
    undo(memory, scope, "last")
    assert state(memory, scope) == before


# --- summaries


def memory_clock(memory: Memory) -> Any:
    return memory._clock


def with_model(scope: Scope, *replies: str, asked: list[str] | None = None) -> Scope:
    left = list(replies)

    def ask(prompt: str, most: int) -> str:
        if asked is not None:
            asked.append(prompt)
        return left.pop(0) if len(left) > 1 else left[0]

    return replace(scope, model=LanguageModel("client", ask))


@pytest.fixture
def old(add: Any, clock: Any) -> list[str]:
    texts = ("The walrus eats clams", "Penguins live at the south", "Tigers sleep by day", "Owls hunt at night")
    ids = [add(text, tags=["zoo", f"t{number}"]) for number, text in enumerate(texts)]
    clock.advance(100 * DAY)
    return ids


def test_old_notes_of_a_tag_become_a_summary_and_come_back(
    memory: Memory, scope: Scope, add: Any, old: list[str]
) -> None:
    young = add("Lions roar loudly", tags=["zoo"])
    before = state(memory, scope)
    asked: list[str] = []
    done = consolidate(
        memory, with_model(scope, "Walrus\x07, penguins, tigers\u202e, owls.", asked=asked), apply=True, summaries=True
    )
    (summary,) = done.summarised
    entry = memory.store.entry(scope.namespace, str(summary.entry_id))
    assert entry is not None
    assert entry.task == "Walrus, penguins, tigers, owls."
    assert (entry.kind, set(entry.tags), entry.source) == ("note", {"summary", "zoo"}, "consolidation")
    assert summary.member_ids == tuple(old)
    assert set(found_ids(memory, scope, "Walrus penguins tigers owls")) <= {entry.id, young}
    # The fixed words, and what the notes say.
    assert asked == [old_notes.prompt([before[one].task for one in old], sum(len(before[one].task) for one in old))]
    assert not any(one in asked[0] for one in ("zoo", "t1", *old))
    assert consolidate(memory, with_model(scope, "again"), apply=True, summaries=True).summarised == ()
    undo(memory, scope, entry.id)
    assert state(memory, scope) == before


@pytest.mark.parametrize("reply", ["", " \n\t", "\x00\x1b", "too long " * 100])
def test_a_summary_that_is_none_is_refused(memory: Memory, scope: Scope, old: list[str], reply: str) -> None:
    before = state(memory, scope)
    done = consolidate(memory, with_model(scope, reply), apply=True, summaries=True)
    assert done.summarised[0].entry_id is None
    assert "model wrote" in done.summarised[0].refused
    assert state(memory, scope) == before


def test_a_model_that_fails_leaves_the_notes(memory: Memory, scope: Scope, old: list[str]) -> None:
    def ask(prompt: str, most: int) -> str:
        raise LanguageModelError("It is not there.")

    done = consolidate(memory, replace(scope, model=LanguageModel("endpoint", ask)), apply=True, summaries=True)
    assert done.summarised[0].refused == "It is not there."
    assert memory.store.count(scope.namespace, NOTES, memory.now()) == len(old)


def test_without_a_model_the_plan_says_so(memory: Memory, scope: Scope, old: list[str]) -> None:
    payload = done_payload(consolidate(memory, scope, apply=True, summaries=True))
    assert payload["model"] == "none"
    assert payload["note"] == NO_MODEL
    assert payload["old_groups_found"] == 1
    assert payload["summaries"] == []
    assert "proposals" not in done_payload(consolidate(memory, scope))


def test_young_notes_facts_and_few_are_left(memory: Memory, scope: Scope, add: Any, clock: Any) -> None:
    for text in ("clams are good", "south is cold", "day is long"):
        add(text, tags=["zoo"])
    for text in ("night falls", "ice melts", "sun shines", "wind blows"):
        add(text, tags=["facts"], kind="fact")
    clock.advance(100 * DAY)
    for text in ("apples", "pears", "plums", "grapes"):
        add(text, tags=["fruit"])
    assert plan(memory, scope, summaries=True).proposals == ()


def test_a_source_and_what_notes_are_about_make_groups(memory: Memory, scope: Scope, add: Any, clock: Any) -> None:
    for text in ("clams are good", "south is cold", "day is long", "ice melts"):
        add(text, source="diary")
    base = "the heating in the cellar makes a noise"
    add(base)
    for text in ("heating repaired", "cellar noise again", "plumber came for it"):
        add(text, near=base, at=0.7)
    add("quite another thing")
    clock.advance(100 * DAY)
    found = plan(memory, scope, summaries=True).proposals
    assert [(one.shared, len(one.members)) for one in found] == [("source diary", 4), ("what they are about", 4)]


def test_large_groups_are_cut_into_what_a_model_can_read(memory: Memory, scope: Scope, add: Any, clock: Any) -> None:
    for number in range(old_notes.MOST_MEMBERS + 3):
        add(f"word{number} thing{number} place{number}", tags=["log"])
    clock.advance(100 * DAY)
    found = plan(memory, scope, summaries=True).proposals
    assert [len(one.members) for one in found] == [old_notes.MOST_MEMBERS]


def test_a_run_merges_first_and_undo_last_takes_both_back(
    memory: Memory, scope: Scope, add: Any, old: list[str], clock: Any
) -> None:
    add("Foxes dig holes", tags=["zoo", "x"])
    add("Foxes dig holes", tags=["zoo", "y"])
    clock.advance(100 * DAY)
    before = state(memory, scope)
    done = consolidate(memory, with_model(scope, "All animals."), apply=True, summaries=True)
    assert len(done.merged) == 1
    assert done.merged[0].survivor_id in done.summarised[0].member_ids
    assert undo(memory, scope, "last").left == ()
    assert state(memory, scope) == before


# --- the tool


def test_the_tool_is_in_the_toolset_all_and_not_among_the_notes(config: Any) -> None:
    names = {
        toolset: [tool.name for tool in tools_of(replace(config, toolset=toolset))]
        for toolset in ("all", "notes", "cache")
    }
    assert "consolidate" in names["all"]
    assert len(names["notes"]) == 4
    assert "consolidate" not in names["notes"] + names["cache"]


def test_the_tools_result_is_bounded(memory: Memory, scope: Scope, config: Any, add: Any) -> None:
    for number in range(30):
        for _ in range(25 if number == 0 else 2):
            add(f"word{number} " * 200)
    (tool,) = consolidation_tools()
    payload = tool.run(memory, scope, tool.parse({"apply": "true"}))
    assert isinstance(payload, dict)
    assert payload["applied"]
    assert payload["groups_found"] == payload["merged"] == 30
    assert len(payload["groups"]) == 20
    assert len(json.dumps(payload)) < 60_000


# --- the real model


SAME = """
    I prefer dark mode in my editor | My editor should be in dark mode
    Anna leads the design team | The design team is led by Anna
    Lena moved to Berlin | Lena has moved to Berlin
    My favourite colour is blue | My favourite color is blue
    The hotel in Rome is paid | The hotel in Rome has been paid
"""
"""Of each of which the default threshold merges both."""
ANOTHER = """
    The flight to Oslo leaves from gate 12 | The flight to Oslo leaves from gate 21
    We deploy on Fridays | We never deploy on Fridays
    Mia is in third grade | Mia is in fourth grade
    Peter owes me 20 euros | I owe Peter 20 euros
    The user lives in Lyon | The user used to live in Lyon
    My sister's birthday is on May 3 | My brother's birthday is on May 3
    The window seat is mine on the way there | The window seat is mine on the way back
    Take one pill in the morning | Take one pill in the evening
"""


def test_the_threshold_with_the_real_model(open_memory: Any, config: Any, real_model_dir: Path) -> None:
    embedder = load_embedder(replace(config, models_dir=real_model_dir.parent))
    memory = open_memory(embedder=embedder)
    scope = memory.scope(config, "real", None)
    rows = [
        tuple(part.strip() for part in row.split(" | ")) for row in (SAME + ANOTHER).strip().splitlines() if row.strip()
    ]
    rows += [(one, other) for _, one, other in test_confidence.rows(test_confidence.ANOTHER)]
    for row in rows:
        for text in row:
            note(memory, scope, text)
    merged = {
        frozenset((group.survivor.task, *(one.entry.task for one in group.members)))
        for group in plan(memory, scope).groups
    }
    wanted = [frozenset(row) for row in rows[: len(SAME.strip().splitlines())]]
    assert merged <= set(wanted)
    assert len(merged) >= 3


def test_both_directions_are_asked(monkeypatch: Any) -> None:
    asked = []

    def check(query: str, stored: str, similarity: float) -> Any:
        asked.append((query, stored))
        return near_duplicates.verification.confidence.Judgement(0.9, (), query == "b")

    monkeypatch.setattr(near_duplicates.verification, "check", check)
    entries = [Entry(number, text, "note", text, "", 0.0, None, ()) for number, text in enumerate("ab")]
    assert compared(entries[0], entries[1], 0.99)[2]
    assert asked == [("a", "b"), ("b", "a")]
    assert KINDS == ("note", "fact", "memory")
