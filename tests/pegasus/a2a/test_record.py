"""A task as other agents see it, made of the events in its log."""

import base64
import time

import pytest

from pegasus.a2a.record import parts_of, record_of
from pegasus.events import Event, EventType

E = EventType
CREATED = (
    E.TASK_CREATED,
    {"inputText": "paint", "inputMetadata": {"a2a": {"token": "", "context": "c", "message": "m-1"}}},
)
THOUGHT = (E.REASON_DONE, {})
ASKED = (E.NEED_MORE_INFO, {"question": "Which colour?"})
PLAN = {"steps": [{"call": {"name": "shell_exec"}}, {"call": {"name": "read_file"}, "completed": True}]}
WAITS = (E.TASK_SUSPENDED, {"suspendReason": "approval", "plan": PLAN})
PAUSED = (E.TASK_SUSPENDED, {"suspendReason": "person"})
ANSWERED = (E.TASK_RESUMED, {"newInput": "blue", "newMessages": [{"metadata": {"key": "m-2"}}]})
GOES_ON = (E.TASK_RESUMED, {"newInput": ""})
LATE = (E.TOOL_CALL_COMPLETED, {})
DONE = (E.TASK_COMPLETED, {"finalResult": {"response": "it is blue"}})
STOPPED = (E.TASK_FAILED, {"error": "stopped by its client", "reason": "stopped"})
BROKEN = (E.TASK_FAILED, {"error": "no model"})


def record(*happened):
    return record_of("t", [Event(kind, 1_000 * n, "log", "t", payload) for n, (kind, payload) in enumerate(happened)])


@pytest.mark.parametrize(
    ("happened", "states"),
    [
        ((), []),
        ((THOUGHT, THOUGHT), ["WORKING"]),
        ((ASKED, ANSWERED, THOUGHT), ["INPUT_REQUIRED", "WORKING"]),
        ((THOUGHT, WAITS, LATE), ["WORKING", "AUTH_REQUIRED"]),
        ((THOUGHT, PAUSED, GOES_ON, DONE), ["WORKING", "WORKING", "WORKING", "artifact", "COMPLETED"]),
        ((STOPPED,), ["CANCELED"]),
        ((BROKEN, GOES_ON, DONE), ["FAILED"]),
        ((DONE, ANSWERED, THOUGHT, DONE), ["artifact", "COMPLETED"]),
    ],
)
def test_each_state_is_told_once_and_nothing_follows_the_end(happened, states):
    task = record(CREATED, *happened)
    told = [each.get("statusUpdate", {}).get("status", {}).get("state", "artifact") for each in task.updates]
    assert [state.removeprefix("TASK_STATE_") for state in told] == states
    last = [state for state in told if state != "artifact"]
    assert task.json()["status"]["state"] == (last[-1] if last else "TASK_STATE_SUBMITTED")
    assert len(task.times) == len(task.updates)


def test_the_updates_so_far_stay_as_they_are():
    happened = (CREATED, THOUGHT, ASKED, ANSWERED, WAITS, GOES_ON, DONE)
    for count in range(1, len(happened)):
        some, all = record(*happened[:count]), record(*happened)
        assert all.updates[: len(some.updates)] == some.updates


def test_what_it_waits_for_and_what_it_was_told_are_shown():
    waiting = record(CREATED, ASKED, ANSWERED, WAITS)
    assert "shell_exec" in waiting.message["parts"][0]["text"]
    assert "read_file" not in waiting.message["parts"][0]["text"]
    shown = waiting.json()["history"]
    assert [(each["role"][5:], each["messageId"]) for each in shown] == [
        ("USER", "m-1"),
        ("AGENT", "t-0"),
        ("USER", "m-2"),
        ("AGENT", "t-2"),
    ]
    assert waiting.json(1)["history"] == shown[-1:]
    assert "history" not in waiting.json(0)
    assert waiting.json(9)["history"] == shown
    assert waiting.heard == {"m-2"}


def test_a_task_of_nobody_else_is_none():
    assert record() is None
    assert record((E.TASK_CREATED, {"inputText": "x", "inputMetadata": {"a2a": {"token": 1}}})) is None
    assert record((E.TASK_CREATED, {"inputText": "x"})) is None


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        ("hello", [{"text": "hello"}]),
        ('{"a": 1}', [{"data": {"a": 1}, "mediaType": "application/json"}]),
        ("```json\n[1]\n```", [{"data": [1], "mediaType": "application/json"}]),
        ("{no json", [{"text": "{no json"}]),
        ("", [{"text": ""}]),
        ("see [the page](https://example.org/)", [{"text": "see [the page](https://example.org/)"}]),
        (
            "[a.txt](https://example.org/a)",
            [{"url": "https://example.org/a", "filename": "a.txt", "mediaType": "text/plain"}],
        ),
    ],
)
def test_an_answer_becomes_parts(answer, parts):
    assert parts_of(answer) == parts


def test_files_in_an_answer_are_parts_beside_its_text():
    raw = base64.b64encode(b"tck").decode()
    text, file = parts_of(f"Here: [a.txt](data:text/plain;base64,{raw})")
    assert text["text"].startswith("Here:")
    assert file == {"raw": raw, "filename": "a.txt", "mediaType": "text/plain"}
    assert parts_of("[a.txt](data:text/plain;base64,A)") == [{"text": "[a.txt](data:text/plain;base64,A)"}]


@pytest.mark.parametrize(
    "text", ["[a](http://", "![", "[a](data:a/b;base64,A", "```json\n", "```json" + " \n" * 50_000]
)
def test_an_answer_that_is_made_to_be_slow_is_read_at_once(text):
    """A client can have the model say anything, and all doors wait while it is read."""
    text = (text * 100_000)[:100_000] + "x"
    begun = time.process_time()
    assert parts_of(text) == [{"text": text}]
    assert time.process_time() - begun < 1
