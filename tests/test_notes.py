"""Notes: kept, found by meaning and by words, filtered exactly, superseded and contradicted."""

from __future__ import annotations

import pytest
from fakes import Clock

from subconscious_mcp import note_payloads, notes, seed_demo
from subconscious_mcp.errors import InvalidArgument
from subconscious_mcp.memory import Memory, Scope
from subconscious_mcp.records import Filters


def found(memory: Memory, scope: Scope, query: str, **arguments: object) -> list[str]:
    return [hit.entry.task for hit in notes.search(memory, scope, query, **arguments)]  # type: ignore[arg-type]


def test_a_note_is_found_again_with_what_was_said_of_it(memory: Memory, scope: Scope) -> None:
    done = notes.add(memory, scope, "the spare key hangs behind the fuse box", tags=["home"], source="chat")
    hits = notes.search(memory, scope, "where is the spare key")
    assert [hit.entry.id for hit in hits] == [done.entry_id] and len(done.entry_id) == 32
    (shown,) = note_payloads.hits_payload(hits)
    assert set(shown) == {"id", "content", "created_at", "tags", "source", "score"}
    assert (shown["tags"], shown["source"]) == (["home"], "chat")
    assert shown["created_at"].endswith("+00:00") and 0 < shown["score"] <= 1
    (explained,) = note_payloads.hits_payload(hits, explain=True)
    assert {"vector", "keyword", "recency"} <= set(explained["parts"])


def test_notes_and_answers_do_not_meet(memory: Memory, scope: Scope) -> None:
    memory.remember(scope, "where is the spare key of the shed", "behind the fuse box")
    notes.add(memory, scope, "the spare key of the shed is lost")
    assert found(memory, scope, "spare key of the shed") == ["the spare key of the shed is lost"]
    assert memory.echo(scope, "spare key of the shed").count == 1
    assert notes.count(memory, scope) == 1


def test_an_identifier_is_found_that_no_vector_finds(memory: Memory, scope: Scope) -> None:
    for number in range(150):
        notes.add(memory, scope, f"the quarterly report of team {number} went to the archive")
    notes.add(memory, scope, "ZX-81/alpha_7 is with the carpenter")
    assert found(memory, scope, "the quarterly report and ZX-81/alpha_7")[0].startswith("ZX-81")


def test_filters_are_exact_however_many_others_are_nearer(memory: Memory, scope: Scope, clock: Clock) -> None:
    start = clock.now
    for number in range(130):
        notes.add(memory, scope, f"standup notes of the platform team number {number}", source="slack")
        clock.now += 1
    notes.add(memory, scope, "standup notes of the platform team are in the drawer", tags=["office"], source="mail")
    wanted = ["standup notes of the platform team are in the drawer"]
    query = "standup notes of the platform team"
    assert found(memory, scope, query, filters=Filters(source="mail")) == wanted
    assert found(memory, scope, query, filters=Filters(tags=("office",))) == wanted
    assert found(memory, scope, query, filters=Filters(since=start + 130)) == wanted
    assert len(found(memory, scope, query, limit=50, filters=Filters(until=start + 2))) == 3
    assert found(memory, scope, query, kinds=("fact",)) == []


def test_neighbours_come_along_on_request(memory: Memory, scope: Scope) -> None:
    texts = ["we talked about the roof", "the roof is leaking over the kitchen", "so the roofer comes on friday"]
    ids = [notes.add(memory, scope, text, source="call").entry_id for text in texts]
    notes.add(memory, scope, "the roof of the other house is fine", source="mail")
    hit = notes.search(memory, scope, "what is leaking over the kitchen", limit=1, neighbours=True)[0]
    shown = note_payloads.hits_payload([hit])[0]
    assert (shown["id"], shown["before"]["id"], shown["after"]["id"]) == (ids[1], ids[0], ids[2])
    plain = note_payloads.hits_payload(notes.search(memory, scope, "what is leaking over the kitchen", limit=1))[0]
    assert "before" not in plain and "after" not in plain


def test_newer_notes_have_a_lead_where_they_are_preferred(memory: Memory, scope: Scope, clock: Clock) -> None:
    old = notes.add(memory, scope, "lunch with anna at the market hall was good").entry_id
    clock.now += 300 * 86_400
    notes.add(memory, scope, "lunch with anna at the market hall was nice today")
    query = "lunch with anna at the market hall was good"
    assert notes.search(memory, scope, query)[0].entry.id == old
    leading = notes.search(memory, scope, query, prefer_recent=True)
    parts = {hit.entry.id == old: hit.parts.recency for hit in leading}
    assert parts[False] > 0.09 > parts[True] and all(
        hit.parts.recency == 0 for hit in notes.search(memory, scope, query)
    )


def test_time_words_are_plain_text(memory: Memory, scope: Scope, clock: Clock) -> None:
    notes.add(memory, scope, "the dentist moved the appointment to last tuesday")
    clock.now += 400 * 86_400
    assert found(memory, scope, "what did the dentist do last tuesday")


def test_nothing_relevant_means_nothing_returned(memory: Memory, scope: Scope) -> None:
    notes.add(memory, scope, "the spare key hangs behind the fuse box")
    assert found(memory, scope, "quantum chromodynamics lattice") == []
    assert found(memory, scope, '!!! ??? \x00 " AND NOT (') == []


def test_a_superseded_note_is_kept_and_not_returned(memory: Memory, scope: Scope) -> None:
    old = notes.add(memory, scope, "the office is in room 12", tags=["office"], source="chat", kind="fact").entry_id
    done = notes.supersede(memory, scope, old, "the office is in room 40")
    assert done is not None
    assert found(memory, scope, "which room is the office in") == ["the office is in room 40"]
    kept = notes.note(memory, scope, old)
    assert kept is not None and kept.superseded_by == done.entry_id and kept.archived_at is not None
    new = notes.note(memory, scope, done.entry_id)
    assert new is not None and (new.tags, new.source, new.kind) == (("office",), "chat", "fact")
    with pytest.raises(InvalidArgument, match=done.entry_id):
        notes.supersede(memory, scope, old, "again")
    assert [entry.id for entry in notes.recent(memory, scope, archived=True)] == [old]
    assert notes.restore(memory, scope, old)
    with pytest.raises(InvalidArgument, match="found already"):
        notes.restore(memory, scope, old)
    assert notes.recent(memory, scope, archived=True) == []
    assert len(found(memory, scope, "which room is the office in")) == 2
    assert notes.supersede(memory, scope, "no such id", "x") is None


def test_a_note_that_contradicts_another_says_so(memory: Memory, scope: Scope) -> None:
    old = notes.add(memory, scope, "the deploy of the shop runs at 9 every monday morning").entry_id
    done = notes.add(memory, scope, "the deploy of the shop runs at 11 every monday morning")
    assert [one.near.entry.id for one in done.contradictions] == [old]
    shown = note_payloads.noted_payload(done)
    assert shown["status"] == "stored" and shown["contradicts"][0]["contrasts"][0]["kind"] in ("number", "date")
    agreeing = notes.add(memory, scope, "every monday morning the deploy of the shop runs at 9")
    assert old not in [one.near.entry.id for one in agreeing.contradictions]
    replaced = notes.supersede(memory, scope, done.entry_id, "the deploy of the shop runs at 10 every monday morning")
    assert replaced is not None and done.entry_id not in [one.near.entry.id for one in replaced.contradictions]


def test_a_note_told_again_in_the_same_words_says_so(memory: Memory, scope: Scope) -> None:
    old = notes.add(memory, scope, "the standup is at 9").entry_id
    done = notes.add(memory, scope, "the standup is at 9")
    assert (done.duplicate_of, done.contradictions) == (old, ())
    assert note_payloads.noted_payload(done)["duplicate_of"] == old
    assert notes.add(memory, scope, "the standup is at 9", kind="fact").duplicate_of == ""


def test_only_notes_are_superseded_and_restored(memory: Memory, scope: Scope) -> None:
    entry_id = memory.remember(scope, "a task", "an answer").entry_id
    assert entry_id is not None
    with pytest.raises(InvalidArgument, match="kind memory"):
        notes.supersede(memory, scope, entry_id, "x")
    with pytest.raises(InvalidArgument, match="kind memory"):
        notes.restore(memory, scope, entry_id)


def test_the_newest_come_first(memory: Memory, scope: Scope, clock: Clock) -> None:
    for text in ("one", "two", "three"):
        notes.add(memory, scope, text)
        clock.now += 1
    assert [entry.task for entry in notes.recent(memory, scope, limit=2)] == ["three", "two"]


def test_arguments_are_held_to_their_bounds(memory: Memory, scope: Scope) -> None:
    for call in (
        lambda: notes.add(memory, scope, " "),
        lambda: notes.add(memory, scope, "x", kind="memory"),
        lambda: notes.add(memory, scope, "x", source="s" * 501),
        lambda: notes.search(memory, scope, "x", limit=51),
        lambda: notes.recent(memory, scope, limit=101),
        lambda: notes.recent(memory, scope, limit=0),
    ):
        with pytest.raises(InvalidArgument):
            call()


def test_the_samples_are_stored_once(memory: Memory, scope: Scope) -> None:
    first, second = seed_demo.seed(memory, scope), seed_demo.seed(memory, scope)
    assert [row["new"] for row in first["stored"]] == [True] * 5
    assert [row["new"] for row in second["stored"]] == [False] * 5
    assert [row["id"] for row in first["stored"]] == [row["id"] for row in second["stored"]]
    assert first["total"] == second["total"] == 5
