"""Transcripts: the last exchange of whatever a session left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transcript_builder import Transcript, exchange

from subconscious_mcp import transcript_records, transcripts
from subconscious_mcp.injected import Injected
from subconscious_mcp.transcripts import MEMORY_TAG, Exchange, bounded, is_courtesy, last_exchange, told_exchange

PLAIN = Exchange("Fix the parser", "The parser now keeps trailing commas.")
LATER = Exchange("Add a test", "Added test_commas with three cases.")


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Exchange | None]:
    def read(transcript: Transcript | bytes, last_message: object = None, **options: object) -> Exchange | None:
        path = tmp_path / "session.jsonl"
        path.write_bytes(transcript if isinstance(transcript, bytes) else transcript.content())
        return last_exchange(path, last_message, **options)

    return read


# The plain case


def test_the_last_exchange_is_taken(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.tool()
    transcript.assistant(LATER.outcome)
    assert read(transcript) == LATER


def test_the_message_of_the_event_counts_before_the_file(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.tool(text="I look at the tests first.")
    assert read(transcript, LATER.outcome) == LATER


@pytest.mark.parametrize("nothing", [None, "", " \n", 5, ["text"], {"text": "x"}, True])
def test_a_message_that_is_none_is_read_from_the_file(read, nothing: object) -> None:
    assert read(exchange(), nothing) == PLAIN


def test_the_message_of_the_event_may_be_a_part_of_the_final_message(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.assistant(LATER.outcome, message_id="m")
    transcript.assistant("It takes a second.", message_id="m")
    assert read(transcript, "It takes a second.") == Exchange(LATER.request, f"{LATER.outcome}\n\nIt takes a second.")


@pytest.mark.parametrize("place", ["missing", "folder"])
def test_a_message_without_a_transcript_is_no_exchange(tmp_path: Path, place: str) -> None:
    path = tmp_path if place == "folder" else tmp_path / "missing.jsonl"
    assert last_exchange(path, "An outcome of nothing") is None
    assert last_exchange(None, "An outcome of nothing") is None


def test_a_path_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    exchange().write(tmp_path / "session.jsonl")
    assert last_exchange("~/session.jsonl") == PLAIN


def test_lines_without_ids_are_read_in_the_order_of_the_file(read) -> None:
    transcript = Transcript()
    for request, outcome in ((PLAIN.request, PLAIN.outcome), (LATER.request, LATER.outcome)):
        transcript.raw({"type": "user", "message": {"role": "user", "content": request}})
        transcript.raw(
            {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": outcome}]}}
        )
    assert read(transcript) == LATER


def test_parents_that_are_all_null_mean_nothing(read) -> None:
    transcript = Transcript()
    for text in (PLAIN.request, "thanks"):
        transcript.user(text, parentUuid=None)
        transcript.assistant(PLAIN.outcome if text == PLAIN.request else "Welcome!", parentUuid=None)
    assert read(transcript) == PLAIN


def test_json_with_spaces_is_read_as_well(read) -> None:
    lines = [json.dumps(json.loads(line)) for line in exchange().lines]
    assert read("\r\n".join(lines).encode()) == PLAIN


# Whose words they are


def test_tool_results_are_no_request(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.tool([{"type": "text", "text": "PASSED in the tool's words"}])
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


def test_a_transcript_of_tool_results_only_has_no_exchange(read) -> None:
    transcript = Transcript()
    for _ in range(3):
        transcript.tool()
    assert read(transcript, "An outcome") is None


def test_thinking_is_no_outcome(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.assistant({"type": "thinking", "thinking": "a secret thought", "signature": "s"}, message_id="m")
    transcript.assistant(PLAIN.outcome, message_id="m")
    transcript.assistant({"type": "thinking", "thinking": "a later thought", "signature": "s"})
    assert read(transcript) == PLAIN


def test_several_blocks_of_text_join(read) -> None:
    transcript = Transcript()
    transcript.user([{"type": "text", "text": "First part"}, {"type": "image"}, {"type": "text", "text": "second"}])
    transcript.assistant("One.", "Two.")
    assert read(transcript) == Exchange("First part\n\nsecond", "One.\n\nTwo.")


def test_lines_of_one_message_join_in_order(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.assistant("An earlier message.")
    transcript.tool()
    for part in ("One.", "Two.", "Three."):
        transcript.assistant(part, message_id="m")
    assert read(transcript) == Exchange(PLAIN.request, "One.\n\nTwo.\n\nThree.")


def test_sidechains_are_skipped(read) -> None:
    transcript = exchange()
    transcript.user("You are a subagent", isSidechain=True, parentUuid=None)
    transcript.assistant("The subagent's report", isSidechain=True)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("mark", [{"isSidechain": True}, {"agentId": "a1b2"}])
def test_the_file_of_a_subagent_has_no_exchange(read, mark: dict) -> None:
    transcript = Transcript()
    transcript.user("You are a subagent", **mark)
    transcript.assistant("The subagent's report", **mark)
    assert read(transcript, "The subagent's report") is None


@pytest.mark.parametrize("flag", ["isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isSynthetic"])
def test_marked_lines_begin_nothing(read, flag: str) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.user("Not the user's words", **{flag: True})
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "Stop hook feedback:\n[./check.sh]: two tests fail",
        "SubagentStop hook feedback: go on",
        "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>",
        "<system-reminder>\nThe file was changed.\n</system-reminder>",
        "<system-reminder>cut off",
        "<local-command-caveat>Caveat: The messages below</local-command-caveat>",
        "Caveat: The messages below were generated by the user while running local commands. DO NOT respond",
        "<local-command-stdout>Set model to opus</local-command-stdout>",
        "<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>",
        "<user-prompt-submit-hook>context</user-prompt-submit-hook>",
        '<teammate-message teammate_id="a">hello</teammate-message>',
        "This session is being continued from a previous conversation that ran out of context.",
        "[SYSTEM NOTIFICATION - NOT USER INPUT] something ended",
        "Base directory for this skill: /home/me/.claude/skills/x",
    ],
)
@pytest.mark.parametrize("blocks", [False, True])
def test_what_a_program_wrote_begins_nothing(read, text: str, blocks: bool) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.tool()
    transcript.user([{"type": "text", "text": text}] if blocks else text)
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("fields", [{"origin": {"kind": "task-notification"}}, {"promptSource": "system"}])
def test_a_line_that_says_it_is_not_the_users_begins_nothing(read, fields: dict) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request, origin={"kind": "human"}, promptSource="typed")
    transcript.user("A background command finished", **fields)
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize(
    "around",
    [
        "<system-reminder>secret plan</system-reminder>\n{}",
        "{}\n<system-reminder>secret plan</system-reminder>",
        "{}\n\n<system-reminder>secret plan",
        "<ide_opened_file>The user opened secret plan</ide_opened_file>\n{}",
        "<local-command-stdout>secret plan</local-command-stdout>{}",
        "<system-reminder>a secret plan</system-reminder><system-reminder>b</system-reminder> {}",
    ],
)
def test_reminders_are_cut_out_of_a_message(read, around: str) -> None:
    transcript = Transcript()
    transcript.user(around.format(PLAIN.request))
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize(
    "request_text",
    [
        "What does <system-reminder> mean in a transcript?",
        "Why is List<channels> not accepted?",
        "The hook feedback: where is it shown?",
        "Caveat: keep the API as it is",
        "[Request interrupted by user] is shown twice, why?",
    ],
)
def test_words_about_a_wrapper_are_the_users(read, request_text: str) -> None:
    assert read(exchange(request_text)) == Exchange(request_text, PLAIN.outcome)


# Commands


def test_a_command_with_arguments_is_a_request(read) -> None:
    transcript = exchange()
    transcript.command("fix-issue", "the login fails on Safari")
    transcript.user("The prompt behind the command", isMeta=True)
    transcript.assistant("Safari sends no cookie; SameSite is now Lax.")
    assert read(transcript) == Exchange(
        "/fix-issue the login fails on Safari", "Safari sends no cookie; SameSite is now Lax."
    )


def test_a_command_without_arguments_has_no_words_and_keeps_its_outcome_to_itself(read) -> None:
    transcript = exchange()
    transcript.command("review")
    transcript.user("The prompt behind the command", isMeta=True)
    transcript.assistant("The review of nine files.")
    assert read(transcript) == PLAIN
    assert read(transcript, "The review of nine files.") == PLAIN


@pytest.mark.parametrize("arguments", ["", "opus"])
def test_a_command_that_the_program_answers_is_nothing(read, arguments: str) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.user("Caveat: The messages below were generated by the user", isMeta=True)
    transcript.command("model", arguments)
    transcript.user("<local-command-stdout>Set model to opus</local-command-stdout>")
    transcript.assistant(PLAIN.outcome)
    transcript.command("cost", arguments)
    transcript.user("<local-command-stdout>12 dollars</local-command-stdout>")
    assert read(transcript) == PLAIN


def test_a_shell_line_is_no_request_and_what_follows_answers_nothing(read) -> None:
    transcript = exchange()
    transcript.user("<bash-input>ls</bash-input>")
    transcript.user("<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>")
    assert read(transcript) == PLAIN
    transcript.assistant("I see one file.")
    assert read(transcript) == PLAIN


# Turns


def test_an_unanswered_request_is_passed_over(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.tool()
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("mark", ["[Request interrupted by user]", "[Request interrupted by user for tool use]"])
def test_an_interrupted_request_is_passed_over(read, mark: str) -> None:
    transcript = exchange()
    transcript.user("Delete everything")
    transcript.assistant("I begin with the tests folder and everything in it.")
    transcript.user([{"type": "text", "text": mark}])
    assert read(transcript) == PLAIN
    transcript.user(LATER.request)
    assert read(transcript) == PLAIN
    transcript.assistant(LATER.outcome)
    assert read(transcript) == LATER


def test_words_behind_an_interruption_are_a_request(read) -> None:
    transcript = exchange()
    transcript.user("Delete everything")
    transcript.assistant("I begin with the tests folder and everything in it.")
    transcript.user([{"type": "text", "text": "[Request interrupted by user]"}, {"type": "text", "text": "thanks"}])
    transcript.assistant("You're welcome.")
    assert read(transcript) == PLAIN


def test_a_tool_that_the_user_refused_interrupts(read) -> None:
    transcript = exchange()
    transcript.user("Push it")
    transcript.assistant("Pushing now.", {"type": "tool_use", "id": "t", "name": "Bash", "input": {}})
    refusal = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "The tool use was rejected"}
    transcript.user([refusal, {"type": "text", "text": "[Request interrupted by user for tool use]"}])
    assert read(transcript) == PLAIN


def test_an_image_alone_has_no_words_and_keeps_its_outcome_to_itself(read) -> None:
    transcript = exchange()
    transcript.user([{"type": "image", "source": {"type": "base64", "data": "AAAA"}}])
    transcript.assistant("The picture shows a stack trace.")
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("with_id", [True, False])
def test_a_message_queued_into_a_turn_belongs_to_its_request(read, with_id: bool) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.tool()
    queued = {"type": "queued_command", "prompt": "and one for tabs", "commandMode": "prompt"}
    note = {"type": "queued_command", "prompt": "<task-notification>x", "commandMode": "task-notification"}
    transcript.raw({"type": "queue-operation", "operation": "enqueue", "content": "and one for tabs"})
    for attachment in (queued, note):
        if with_id:
            transcript.line("attachment", attachment=attachment)
        else:
            transcript.raw({"type": "attachment", "attachment": attachment})
    transcript.assistant(LATER.outcome)
    assert read(transcript) == Exchange(f"{LATER.request}\n\nand one for tabs", LATER.outcome)


def test_a_message_still_in_the_queue_is_no_request(read) -> None:
    transcript = exchange()
    transcript.raw({"type": "queue-operation", "operation": "enqueue", "content": "Later, do that"})
    assert read(transcript) == PLAIN


def test_a_queued_message_that_became_a_turn_is_a_request(read) -> None:
    transcript = exchange()
    transcript.raw({"type": "queue-operation", "operation": "enqueue", "content": LATER.request})
    transcript.raw({"type": "queue-operation", "operation": "dequeue"})
    transcript.user(LATER.request, promptSource="queued")
    transcript.assistant(LATER.outcome)
    assert read(transcript) == LATER


def test_the_outcome_behind_a_hooks_feedback_answers_the_request(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.assistant("I think that is all of it for now.")
    transcript.user("Stop hook feedback:\n- [check]: run the tests", isMeta=True)
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


def test_an_error_of_the_service_is_no_outcome(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.tool(text="I look at the tests, one after the other.")
    transcript.assistant("API Error: 500", isApiErrorMessage=True, model="<synthetic>")
    assert read(transcript) == PLAIN
    assert read(transcript, "API Error: 500") == PLAIN
    assert read(transcript, LATER.outcome) == LATER
    transcript.assistant("No response requested.", model="<synthetic>")
    transcript.assistant("(no content)")
    assert read(transcript) == PLAIN


def test_a_resumed_session_keeps_its_last_exchange(read) -> None:
    transcript = exchange()
    transcript.user("Continue from where you left off.", isMeta=True)
    transcript.assistant("No response requested.", model="<synthetic>")
    assert read(transcript) == PLAIN


def test_a_short_message_of_the_event_is_not_mistaken_for_a_part_of_another(read) -> None:
    transcript = Transcript()
    transcript.user("How many files are there?")
    transcript.tool(text="I found 42 folders and count their files next.")
    assert read(transcript, "42") == Exchange("How many files are there?", "42")


# Courtesy


@pytest.mark.parametrize("courtesy", ["Done!", "You're welcome! Let me know if you need anything else.", "All set. 🎉"])
@pytest.mark.parametrize("in_event", [False, True])
def test_a_courtesy_does_not_replace_the_substance(read, courtesy: str, in_event: bool) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.assistant("I read the parser first, all of its nine hundred lines.")
    transcript.tool(text=PLAIN.outcome)
    if not in_event:
        transcript.assistant(courtesy)
    found = read(transcript, courtesy if in_event else None)
    assert found == Exchange(PLAIN.request, f"{PLAIN.outcome}\n\n{courtesy}")


def test_a_courtesy_is_the_outcome_where_there_is_nothing_else(read) -> None:
    transcript = Transcript()
    transcript.user("Delete the branch foo")
    transcript.tool()
    transcript.assistant("Done!")
    assert read(transcript) == Exchange("Delete the branch foo", "Done!")


@pytest.mark.parametrize("thanks", ["thanks!", "Thank you so much, great work 👍", "谢谢", "danke", "👍"])
def test_thanks_do_not_replace_a_request(read, thanks: str) -> None:
    transcript = exchange()
    transcript.user(thanks)
    transcript.assistant("You're welcome!")
    assert read(transcript) == PLAIN
    assert read(transcript, "You're welcome!") == PLAIN


def test_thanks_are_the_request_where_there_is_no_other(read) -> None:
    assert read(exchange("thanks!", "You're welcome!")) == Exchange("thanks!", "You're welcome!")


@pytest.mark.parametrize("request_text", ["thanks, now add a test", "good: which one is it?", "is it good now?", "yes"])
def test_thanks_with_a_task_are_a_request(read, request_text: str) -> None:
    transcript = exchange()
    transcript.user(request_text)
    transcript.assistant(LATER.outcome)
    assert read(transcript) == Exchange(request_text, LATER.outcome)


def test_praise_that_starts_work_is_a_request(read) -> None:
    transcript = exchange("Plan a release", "The plan has four steps. Shall I?")
    transcript.user("perfect")
    transcript.tool()
    transcript.assistant("Released as 1.2.")
    assert read(transcript) == Exchange("perfect", "Released as 1.2.")


@pytest.mark.parametrize("text", ["42", "No.", "Yes, it is.", "Done: the limit is 30 s now.", "x" * 300])
def test_a_short_answer_is_no_courtesy(text: str) -> None:
    assert not is_courtesy(text)


# Branches


def test_a_rewound_branch_is_not_taken(read) -> None:
    transcript = exchange()
    fork = transcript.leaf
    transcript.user("The abandoned request")
    transcript.tool(text="The abandoned outcome is long and final.")
    transcript.assistant("The abandoned outcome is long and final, too.")
    transcript.user(LATER.request, parentUuid=fork)
    assert read(transcript) == PLAIN
    transcript.assistant(LATER.outcome)
    assert read(transcript) == LATER


def test_an_answer_that_was_asked_for_again_is_taken_once(read) -> None:
    transcript = Transcript()
    request = transcript.user(PLAIN.request)
    transcript.assistant("The abandoned answer", message_id="m")
    transcript.assistant(PLAIN.outcome, message_id="m", parentUuid=request)
    assert read(transcript) == PLAIN


def test_a_conversation_rewound_to_its_start_has_nothing_before(read) -> None:
    transcript = exchange()
    transcript.user("Another beginning", parentUuid=None)
    assert read(transcript) is None


def test_the_chain_passes_through_other_lines(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    for kind in ("attachment", "progress", "system", "unheard-of"):
        transcript.line(kind, attachment={"type": "hook_success"}, content="text", data={"type": "hook_progress"})
    transcript.assistant(PLAIN.outcome)
    transcript.line("system", subtype="stop_hook_summary", isMeta=False)
    transcript.raw({"type": "file-history-snapshot", "messageId": transcript.leaf, "snapshot": {"user": "text"}})
    transcript.raw({"type": "summary", "summary": "A user's summary", "leafUuid": transcript.leaf})
    transcript.raw({"type": "last-prompt", "lastPrompt": "A prompt of the user", "leafUuid": transcript.leaf})
    assert read(transcript) == PLAIN


def test_results_of_parallel_tools_are_passed(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    calls = [
        transcript.assistant({"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {}}, message_id="m")
        for n in (1, 2)
    ]
    for n, call in enumerate(calls, 1):
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"}
        last = transcript.user([result], parentUuid=call)
    transcript.assistant(PLAIN.outcome, parentUuid=last)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("lost", ["of the answer", "of the result"])
def test_a_missing_parent_falls_back_to_the_line_before(read, lost: str) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    if lost == "of the result":
        transcript.leaf = "00000000-dead-4000-8000-000000000000"
    transcript.tool()
    if lost == "of the answer":
        transcript.leaf = "00000000-dead-4000-8000-000000000000"
    transcript.assistant(LATER.outcome)
    assert read(transcript) == LATER


def test_rings_and_doubles_end(read) -> None:
    transcript = exchange()
    transcript.lines *= 3
    assert read(transcript) == PLAIN
    ring = {"type": "user", "uuid": "a", "parentUuid": "a", "message": {"content": [{"type": "tool_result"}]}}
    other = {"type": "assistant", "uuid": "b", "parentUuid": "c", "message": {"content": []}}
    back = {"type": "assistant", "uuid": "c", "parentUuid": "b", "message": {"content": []}}
    for line in (ring, other, back, ring):
        transcript.raw(line)
    assert read(transcript) == PLAIN


def test_a_compaction_within_a_turn_is_crossed(read) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    transcript.tool()
    before = transcript.leaf
    transcript.line("system", subtype="compact_boundary", parentUuid=None, logicalParentUuid=before)
    transcript.user(
        "This session is being continued from a previous conversation that ran out of context.",
        isCompactSummary=True,
        isVisibleInTranscriptOnly=True,
    )
    transcript.tool()
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


def test_a_transcript_that_begins_with_a_summary_has_no_request(read) -> None:
    transcript = Transcript()
    transcript.user("This session is being continued from a previous conversation.", isCompactSummary=True)
    transcript.assistant("Continuing with the third file.")
    assert read(transcript, "Continuing with the third file.") is None


# Injected memory


@pytest.mark.parametrize(
    "frame",
    [
        f"<{MEMORY_TAG}>\nan old secret\n</{MEMORY_TAG}>\n",
        f'<{MEMORY_TAG} namespace="p" count="3">an old secret</{MEMORY_TAG}>',
        f"<{MEMORY_TAG}>an old secret</{MEMORY_TAG}><{MEMORY_TAG}>an old secret</{MEMORY_TAG}>",
    ],
)
def test_framed_memory_is_not_captured_again(read, frame: str) -> None:
    transcript = exchange()
    transcript.user(frame)
    transcript.user(f"{frame}{LATER.request}")
    transcript.assistant(f"{LATER.outcome}\n{frame}")
    assert read(transcript) == LATER
    assert read(transcript, f"{frame}{LATER.outcome}") == LATER


def test_a_frame_without_an_end_takes_the_rest(read) -> None:
    assert read(exchange(f"Fix it <{MEMORY_TAG}>an old secret")) == Exchange("Fix it", PLAIN.outcome)


def injected(told: str) -> Injected:
    marks = Injected("a session")
    marks.add(told)
    return marks


def test_injected_texts_are_found_without_their_frame(read) -> None:
    told = "Earlier in this project:\n- How do I run the tests? With pytest -q in the root.\n- ok"
    transcript = exchange()
    transcript.user(told)
    transcript.user(f"> How do I run the tests?  With pytest -q in the root.\n{LATER.request}\n- ok")
    transcript.assistant(f"{told}\n\n{LATER.outcome}")
    assert read(transcript, injected=injected(told)) == Exchange(f"{LATER.request}\n- ok", LATER.outcome)


def test_a_line_that_the_user_typed_again_is_a_request(read) -> None:
    told = "Earlier in this project:\nRun all tests and fix them\nTwo of them needed a clock."
    assert read(exchange("Run all tests and fix them"), injected=injected(told)) == Exchange(
        "Run all tests and fix them", PLAIN.outcome
    )


def test_an_outcome_of_injected_text_alone_is_none(read) -> None:
    told = "With pytest -q in the root of the project."
    transcript = exchange()
    transcript.user("How do I run the tests?")
    transcript.assistant(told)
    assert read(transcript, injected=injected(told)) == PLAIN


def test_what_an_event_tells_itself_is_read_as_a_transcript_is() -> None:
    told = "With pytest -q in the root of the project."
    known = injected(told)
    assert told_exchange("Fix it", f"{told}\nIt is fixed.", known) == Exchange("Fix it", "It is fixed.")
    assert told_exchange("Fix it", told, known) is told_exchange("Fix it", "") is told_exchange("", "It is fixed.")
    framed = f"<{MEMORY_TAG}>\nold\n</{MEMORY_TAG}>"
    assert told_exchange(f"{framed} Fix it", f"It is fixed. {framed}") == Exchange("Fix it", "It is fixed.")


# Lengths


def test_long_texts_keep_both_ends_and_tell_what_is_missing(read) -> None:
    found = read(exchange("a" * 5_000 + "b" * 5_000, "c" * 50_000 + "d" * 50_000))
    assert found is not None
    for text, length, limit, ends in ((found.request, 10_000, 2_000, "ab"), (found.outcome, 100_000, 8_000, "cd")):
        assert len(text) <= limit
        assert text.startswith(ends[0] * 900)
        assert text.endswith(ends[1] * 900)
        kept = text.count(ends[0] * 10) * 10 + text.count(ends[1] * 10) * 10
        missing = int(text.split("[... ")[1].split(" ")[0])
        assert abs(length - kept - missing) < 20


@given(text=st.text(max_size=400), limit=st.integers(0, 300))
def test_a_bounded_text_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    found = bounded(text, limit)
    assert len(found) <= limit
    assert found == text or len(text) > limit


def test_a_text_is_cleaned_before_it_is_cut(read) -> None:
    secret = "sk-" + "s" * 40
    request = "x" * 970 + secret + "y" * 5_000
    found = read(exchange(request), clean=lambda text: text.replace(secret, "***"))
    assert found is not None
    assert "***" in found.request
    assert "sss" not in found.request
    found = read(exchange("x" * 100_000 + secret), clean=lambda text: text.replace(secret, "***"))
    assert found is not None
    assert found.request.endswith("***")


# Damage


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        b"\0" * 1_000,
        b"\xff\xfe\x0a",
        b"not json\n",
        b"[1, 2]\n3\nnull\ntrue\n{}\n[]\n",
        exchange().content().decode().encode("utf-16"),
        exchange().content().decode().encode("utf-16-be"),
        b'{"type":"user"' * 1_000,
        b"[" * 100_000,
        b'{"type":"user","a":' * 20_000,
        b'{"type":"user","uuid":' + b"9" * 10_000 + b"}\n",
        b'{"type":["user"],"isSidechain":{},"message":[]}\n{"type":{},"parentUuid":{},"uuid":7}\n',
        b'{"type":"user","message":{"content":{"type":"text","text":"x"}}}\n',
        b'{"type":"assistant","message":{"content":[null,3,[],{"type":[]},{"type":"text","text":7}]}}\n',
    ],
)
def test_a_file_without_an_exchange_gives_none(read, content: bytes) -> None:
    assert read(content) is None
    assert read(content, "An outcome") is None


NOISE = [
    b"",
    b"   ",
    b"[1,2,3]",
    b"17",
    b"null",
    b'"user"',
    b"\0\0\0\0",
    b"\xff\xfe\xff",
    b'{"type":"user","message":',
    b'{"type":"user","message":{"content":' + b"[" * 50_000,
    b'{"type":"user","message":null,"uuid":3,"parentUuid":[]}',
    b'{"type":"assistant","message":{"content":7}}',
    b'{"type":"assistant","n":' + b"1" * 9_000 + b"}",
    b'{"type":"attachment","attachment":[]}',
    b'{"type":"attachment","attachment":{"type":"queued_command","prompt":{"a":1}}}',
]


@pytest.mark.parametrize("noise", NOISE)
def test_damaged_lines_cost_only_themselves(read, noise: bytes) -> None:
    lines = exchange().lines
    assert read(b"\n".join([noise, lines[0], noise, lines[1], noise, noise])) == PLAIN


def test_a_cut_last_line_is_passed_over(read) -> None:
    transcript = exchange()
    content = transcript.content()
    transcript.user(LATER.request)
    assert read(content + transcript.lines[-1][:-20]) == PLAIN


def test_a_file_without_a_last_newline_is_whole(read) -> None:
    assert read(exchange().content().rstrip(b"\n")) == PLAIN


def test_a_byte_order_mark_does_no_harm(read) -> None:
    assert read(b"\xef\xbb\xbf" + exchange().content()) == PLAIN


def test_padding_of_a_crash_does_no_harm(read) -> None:
    assert read(exchange().content() + b"\0" * 300_000) == PLAIN
    lines = exchange().lines
    assert read(lines[0] + b"\n" + b"\0" * 5_000 + lines[1]) == PLAIN


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1e"])
def test_only_a_newline_ends_a_line(read, separator: str) -> None:
    found = read(exchange(f"one{separator}two", f"three{separator}four"))
    assert found == Exchange(f"one{separator}two", f"three{separator}four")


def test_bytes_that_are_no_text_are_replaced(read) -> None:
    assert read(exchange().content().replace(b"parser", b"par\xff\xfeser")) == Exchange(
        "Fix the par\ufffd\ufffdser", "The par\ufffd\ufffdser now keeps trailing commas."
    )


def test_texts_can_be_stored(read) -> None:
    lines = exchange("one TWO three", "four TWO five").content()
    lines = lines.replace(b"TWO", rb"\ud800\u0000\ud83d\ude00")
    assert read(lines, "six \udfff\0") == Exchange("one \ufffd\U0001f600 three", "six \ufffd")
    found = read(lines)
    assert found is not None
    assert found.outcome.encode() == "four \ufffd\U0001f600 five".encode()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is forbidden here")
def test_a_file_that_may_not_be_read_gives_none(tmp_path: Path) -> None:
    path = exchange().write(tmp_path / "session.jsonl")
    path.chmod(0)
    assert last_exchange(path) is None


def test_what_is_no_file_gives_none(tmp_path: Path) -> None:
    assert last_exchange(tmp_path) is None
    assert last_exchange(tmp_path / "no" / "such") is None
    assert last_exchange("nul\0byte") is None
    assert last_exchange(["a list"]) is None  # type: ignore[arg-type]
    assert last_exchange(os.devnull) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert last_exchange(tmp_path / "pipe") is None


class Changing:
    """A file that something is done to after some reads."""

    def __init__(self, path: Path, reads: int, change: Callable[[], object]) -> None:
        self._file = path.open("rb", buffering=0)
        self._left = reads
        self._change = change

    def __enter__(self) -> Changing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        self._left -= 1
        if self._left == 0:
            self._change()
        return self._file.read(size)


@pytest.mark.parametrize("reads", [1, 2, 3])
@pytest.mark.parametrize("change", ["grows", "is cut", "is replaced"])
def test_a_file_may_change_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int, change: str
) -> None:
    transcript = exchange()
    for _ in range(20):
        transcript.raw({"type": "mode", "filler": "x" * 10_000})
    path = transcript.write(tmp_path / "session.jsonl")
    later = exchange(LATER.request, LATER.outcome).content()

    def happens() -> None:
        if change == "grows":
            with path.open("ab") as file:
                file.write(later)
        elif change == "is cut":
            os.truncate(path, 50_000)
        else:
            (tmp_path / "new").write_bytes(later)
            (tmp_path / "new").replace(path)

    monkeypatch.setattr(transcripts, "_opened", lambda name: Changing(Path(name), reads, happens))
    assert last_exchange(path) == PLAIN


def test_an_error_while_reading_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = exchange().write(tmp_path / "session.jsonl")

    def fails() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(transcripts, "_opened", lambda name: Changing(Path(name), 1, fails))
    assert last_exchange(path, "text") is None


# Size


@pytest.mark.parametrize("size", [60_000, 65_535, 65_536, 65_537, 200_000, 1_000_000, 3_000_000])
@pytest.mark.parametrize("kind", ["result", "attachment", "progress", "junk", "sidechain"])
def test_a_large_line_between_is_passed(read, size: int, kind: str) -> None:
    transcript = Transcript()
    transcript.user(PLAIN.request)
    big = "x" * size
    if kind == "result":
        transcript.tool(big)
    elif kind == "junk":
        transcript.raw(big)
    elif kind == "sidechain":
        transcript.user(big, isSidechain=True)
    else:
        transcript.line(kind, attachment={"type": "file", "content": big}, data=big)
    transcript.assistant(PLAIN.outcome)
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("size", [1_000_000, 5_000_000])
def test_a_large_line_at_the_end_is_passed(read, size: int) -> None:
    transcript = exchange()
    transcript.line("system", subtype="local_command", content="x" * size)
    assert read(transcript) == PLAIN
    transcript.tool("y" * size)
    assert read(transcript) == PLAIN
    transcript.raw(b'{"type":"user","message":{"content":"' + b"z" * size)
    assert read(transcript) == PLAIN


def test_a_request_of_a_megabyte_is_bounded(read) -> None:
    found = read(exchange("begin " + "★" * 300_000 + " end"))
    assert found is not None
    assert found.request.startswith("begin ★")
    assert found.request.endswith("★ end")
    assert len(found.request) <= transcripts.REQUEST_CHARS


def test_a_request_too_large_to_read_keeps_its_outcome_to_itself(read) -> None:
    transcript = exchange()
    transcript.user("planted " * 500_000)
    transcript.assistant("An outcome of what cannot be read.")
    assert read(transcript) == PLAIN


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("native", [True, False])
def test_a_turn_of_many_lines_is_read_to_its_beginning(read, ids: bool, said: bool, blocks: bool, native: bool) -> None:
    transcript = exchange()
    content = [{"type": "image"}, {"text": LATER.request, "type": "text"}] if blocks else LATER.request
    transcript.user(content)
    for _ in range(transcript_records._FOLLOWED):
        transcript.tool(text="On it with the next file.")
    if not native:
        # Another order of the keys, and no blanks.
        transcript.lines = [
            json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")).encode() for line in transcript.lines
        ]
    if not said:
        transcript.assistant(LATER.outcome)
    if not ids:
        transcript.lines = [
            json.dumps({k: v for k, v in json.loads(line).items() if not k.endswith("uid")}).encode()
            for line in transcript.lines
        ]
    assert read(transcript, LATER.outcome if said else None) == LATER


def test_an_interruption_far_behind_is_seen(read) -> None:
    transcript = exchange()
    transcript.user("Delete everything")
    transcript.user("[Request interrupted by user]")
    for _ in range(transcript_records._FOLLOWED):
        transcript.tool(text="On it with the next file.")
    assert read(transcript, "All is gone by now.") == PLAIN


def test_a_message_queued_far_behind_is_seen(read) -> None:
    transcript = exchange()
    transcript.user(LATER.request)
    transcript.line("attachment", attachment={"type": "queued_command", "prompt": "and one for tabs"})
    for _ in range(transcript_records._FOLLOWED):
        transcript.tool(text="On it with the next file.")
    assert read(transcript, LATER.outcome) == Exchange(f"{LATER.request}\n\nand one for tabs", LATER.outcome)


def test_much_noise_behind_the_exchange_is_passed(read) -> None:
    transcript = exchange()
    for n in range(transcript_records._FOLLOWED + 10):
        transcript.assistant(f"Of a subagent {n}", isSidechain=True)
    transcript.lines += [b'{"type":"progress","data":"user"}', b"1"] * transcript_records._FOLLOWED
    assert read(transcript) == PLAIN


# Properties


VALID = [PLAIN.request, PLAIN.outcome, LATER.request, LATER.outcome]


def rich() -> bytes:
    transcript = exchange()
    transcript.line("system", subtype="compact_boundary", parentUuid=None, logicalParentUuid=transcript.leaf)
    transcript.command("model", "opus")
    transcript.user(LATER.request)
    transcript.tool(text="A look at it ★")
    transcript.line("attachment", attachment={"type": "queued_command", "prompt": "queued"})
    transcript.user("[Request interrupted by user]", isMeta=True)
    transcript.assistant(LATER.outcome, "Done!")
    return transcript.content()


RICH = rich()
relaxed = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@relaxed
@given(content=st.binary(max_size=2_000), message=st.none() | st.text(max_size=50))
def test_no_bytes_raise(read, content: bytes, message: str | None) -> None:
    assert read(content, message) is None


@relaxed
@given(cut=st.integers(0, len(RICH)))
def test_no_truncation_raises_or_pairs_wrongly(read, cut: int) -> None:
    found = read(RICH[:cut])
    if found is not None:
        assert (found.request.startswith(PLAIN.request)) == found.outcome.startswith(PLAIN.outcome)


@relaxed
@given(
    places=st.lists(st.tuples(st.integers(0, len(RICH)), st.integers(0, 30), st.binary(max_size=12)), max_size=6),
)
def test_no_mutation_raises(read, places: list[tuple[int, int, bytes]]) -> None:
    content = RICH
    for at, length, new in places:
        content = content[:at] + new + content[at + length :]
    found = read(content)
    assert found is None or (found.request and found.outcome)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["user", "text", "a", "b", "<", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "id", "model", "kind", "prompt"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
RECORD = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "attachment", "system", "progress"]) | JSON},
    optional={
        **dict.fromkeys(["uuid", "parentUuid", "logicalParentUuid", "message", "isMeta", "isSidechain"], JSON),
        **dict.fromkeys(["agentId", "origin", "content", "attachment", "promptSource"], JSON),
    },
)


@settings(relaxed, max_examples=100)
@given(records=st.lists(RECORD, max_size=8))
def test_no_type_raises(read, records: list[dict]) -> None:
    content = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    assert read(content + exchange().content()) == PLAIN
    read(content)


@relaxed
@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    block=st.integers(1, 200),
    most=st.integers(50, 400),
    data=st.data(),
)
def test_lines_come_back_from_the_end(tmp_path: Path, lengths: list[int], block: int, most: int, data) -> None:
    lines = [bytes([65 + n]) * length for n, length in enumerate(lengths)]
    content = b"\n".join(lines)
    path = tmp_path / "lines"
    path.write_bytes(content)
    token = data.draw(st.sampled_from([b"A", b"BBB", b"C", b"no such"]))
    with pytest.MonkeyPatch.context() as patch, path.open("rb", buffering=0) as file:
        patch.setattr(transcript_records, "_BLOCK_BYTES", block)
        patch.setattr(transcript_records, "_LINE_BYTES", most)
        reader = transcript_records.Lines(file, len(content))
        found = []
        while (line := reader.previous((token,))) is not None:
            found.append((reader.start, reader.long, line))
    expected = [n for n, line in enumerate(lines) if token in line]
    assert [start for start, _, _ in reversed(found)] == [sum(map(len, lines[:n])) + n for n in expected]
    for n, (_, long, line) in zip(reversed(expected), found, strict=True):
        assert long or line == lines[n]
        assert not long or len(lines[n]) > most


@settings(relaxed, max_examples=20)
@given(size=st.integers(1_400_000, 2_000_000), at=st.integers(0, 100))
def test_a_text_in_a_skipped_line_never_appears(read, size: int, at: int) -> None:
    transcript = exchange()
    part = size * at // 100
    transcript.tool("x" * part + "planted" + "x" * (size - part))
    transcript.assistant("y" * part + "planted" + "y" * (size - part))
    found = read(transcript)
    assert found == PLAIN


# Cost


def test_the_module_is_light() -> None:
    script = (
        "import sys, subconscious_mcp.transcripts; "
        "print([n for n in ('typing', 'pathlib', 'asyncio', 'logging', 'numpy') if n in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr
