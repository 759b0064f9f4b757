import pytest
from hypothesis import given

from pegasus.conversation.entry import Entry
from pegasus.main_agent.session import NextStep, Session
from pegasus.models.base import ToolCall
from tests.pegasus.conversation.logs import logs


def progress_of(entries, n):
    return Session(entries, None).progress(n)


def user(n):
    return Entry(0, "user", "x", item=n)


def turn(*names):
    return Entry(0, "assistant", "hm", tuple(ToolCall(f"{name}-id", name, {}) for name in names))


def result(name, *, failed=False):
    return Entry(0, "tool", "r", call_id=f"{name}-id", failed=failed)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], NextStep.RECORD),
        ([user(6)], NextStep.RECORD),
        ([user(7)], NextStep.THINK),
        ([user(7), turn()], NextStep.NOTHING),
        ([user(7), turn("reply"), result("reply")], NextStep.NOTHING),
        ([user(7), turn("reply"), result("reply", failed=True)], NextStep.THINK),
        ([user(7), turn("current_time"), result("current_time")], NextStep.THINK),
        (
            [user(7), turn("reply", "current_time"), result("reply"), result("current_time")],
            NextStep.THINK,
        ),
        ([user(7), turn("spawn_subagent"), result("spawn_subagent")], NextStep.NOTHING),
        ([user(7), turn("current_time"), result("current_time"), turn("reply"), result("reply")], NextStep.NOTHING),
        ([user(7), Entry(0, "system", "stopped", metadata={"ends": True})], NextStep.NOTHING),
        ([user(7), user(8)], NextStep.NOTHING),
        ([user(7), user(6)], NextStep.NOTHING),
        ([user(8), turn(), user(7)], NextStep.THINK),
        ([user(8), turn()], NextStep.RECORD),
        ([user(7), Entry(0, "assistant", "Hello.", metadata={"spoken": True})], NextStep.NOTHING),
        ([Entry(0, "system", "new", metadata={"closes": 7})], NextStep.NOTHING),
        ([Entry(0, "system", "new", metadata={"closes": 6})], NextStep.RECORD),
    ],
)
def test_what_an_item_needs_next(entries, expected):
    assert progress_of(entries, 7).next is expected


def test_thoughts_and_replies_before_a_crash_are_counted():
    entries = [user(7), turn("current_time"), result("current_time"), turn("reply"), result("reply")]
    progress = progress_of(entries, 7)
    assert (progress.thoughts, progress.replies) == (2, 1)


@given(logs())
def test_items_that_later_items_follow_are_done(entries):
    numbers = [e.item for e in entries if e.item is not None]
    assert all(progress_of(entries, n).next is NextStep.NOTHING for n in numbers[:-1])


def test_a_forked_skill_leads_to_no_further_thought_and_an_inline_one_does():
    forked = Entry(0, "tool", '{"taskId":"1","status":"spawned"}', call_id="use_skill-id")
    assert progress_of([user(7), turn("use_skill"), forked], 7).next is NextStep.NOTHING
    assert progress_of([user(7), turn("use_skill"), result("use_skill")], 7).next is NextStep.THINK


def test_what_is_said_in_direct_speech_counts_as_a_reply():
    said = Entry(0, "assistant", "Hello.", metadata={"spoken": True})
    assert progress_of([user(7), turn("current_time"), result("current_time"), said], 7).replies == 1


@pytest.mark.parametrize(
    ("entries", "numbers"),
    [
        ([], []),
        ([user(3), turn()], [3]),
        ([user(5), turn(), user(3)], [5, 3]),
        ([Entry(0, "system", "(A new conversation begins.)", metadata={"type": "new", "closes": 2}), user(3)], [2, 3]),
    ],
)
def test_the_items_of_a_session_are_known_after_a_restart(entries, numbers):
    assert Session(entries, None).item_numbers() == numbers
