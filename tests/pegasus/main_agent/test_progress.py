import pytest
from hypothesis import given

from pegasus.conversation.entry import Entry
from pegasus.main_agent.progress import Next, progress_of
from pegasus.models.base import ToolCall
from tests.pegasus.conversation.logs import logs


def user(n):
    return Entry(0, "user", "x", metadata={"item": n})


def turn(*names):
    return Entry(0, "assistant", "hm", tuple(ToolCall(f"{name}-id", name, {}) for name in names))


def result(name, *, failed=False):
    return Entry(0, "tool", "r", call_id=f"{name}-id", metadata={"error": True} if failed else {})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], Next.RECORD),
        ([user(6)], Next.RECORD),
        ([user(7)], Next.THINK),
        ([user(7), turn()], Next.NOTHING),
        ([user(7), turn("reply"), result("reply")], Next.NOTHING),
        ([user(7), turn("reply"), result("reply", failed=True)], Next.THINK),
        ([user(7), turn("current_time"), result("current_time")], Next.THINK),
        (
            [user(7), turn("reply", "current_time"), result("reply"), result("current_time")],
            Next.THINK,
        ),
        ([user(7), turn("spawn_subagent"), result("spawn_subagent")], Next.NOTHING),
        ([user(7), turn("current_time"), result("current_time"), turn("reply"), result("reply")], Next.NOTHING),
        ([user(7), Entry(0, "system", "stopped", metadata={"ends": True})], Next.NOTHING),
        ([user(7), user(8)], Next.NOTHING),
        ([Entry(0, "system", "new", metadata={"doneThrough": 7})], Next.NOTHING),
        ([Entry(0, "system", "new", metadata={"doneThrough": 6})], Next.RECORD),
    ],
)
def test_what_an_item_needs_next(entries, expected):
    assert progress_of(entries, 7).next is expected


def test_thoughts_and_replies_before_a_crash_are_counted():
    entries = [user(7), turn("current_time"), result("current_time"), turn("reply"), result("reply")]
    progress = progress_of(entries, 7)
    assert (progress.thoughts, progress.replied) == (2, True)


@given(logs())
def test_items_that_later_items_follow_are_done(entries):
    numbers = [e.item for e in entries if e.item is not None]
    assert all(progress_of(entries, n).next is Next.NOTHING for n in numbers[:-1])
