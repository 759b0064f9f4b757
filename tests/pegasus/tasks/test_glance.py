"""A glance at the log of a task that is to be failed says what a replay would, or nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.tasks.glance import glance
from pegasus.tasks.log import task_line
from pegasus.tasks.recovery import plan_recovery
from pegasus.tasks.replay import replay
from pegasus.tasks.views import task_view
from tests.pegasus.tasks.lives import (
    ARGUMENTS,
    BEGAN,
    ID,
    Life,
    asked,
    created,
    failed,
    finished,
    lifetime,
    reasoned,
    responded,
    told,
    tool_done,
)

lives = st.randoms(use_true_random=False)
NASTY = '"\n{"ts":1,"event":"TASK_COMPLETED","taskId":"x","data":{"event":"TASK_NOTIFY"}}\n'


def at_work(random, rounds):
    life = Life(created(NASTY, metadata={"channel": {"type": "web", "channelId": "c1"}, "event": "TASK_FAILED"}))
    for n in range(rounds):
        arguments = random.choice([*ARGUMENTS, {"ts": 1, "event": "TASK_NOTIFY", "data": NASTY}])
        calls = [(f"c{n}-{m}", "look", arguments) for m in range(random.randint(1, 3))]
        life.do(reasoned(*calls, text=NASTY, at=BEGAN + n))
        for call_id, _, _ in calls[: random.randint(0, 3)] if n == rounds - 1 else calls:
            life.do(tool_done(call_id, NASTY, random.random() < 0.7, at=BEGAN + n))
    return life


def ended(found):
    """The task as it is seen when it has been failed, and all that its submitter is told."""
    plan = plan_recovery(found, "fail", lambda name: None, BEGAN)
    found.task.transition(failed())
    return plan, task_view(found.task), found.task.draft.notified


@settings(max_examples=100, deadline=None)
@given(lives, st.integers(0, 5))
def test_of_a_task_at_work_it_says_the_same(random, rounds):
    log = at_work(random, rounds).log
    brief, whole = glance(log, ID), replay(log, ID)
    assert (brief.lines, brief.last_at, brief.notifications) == (whole.lines, whole.last_at, ())
    assert not brief.is_over
    assert ended(brief) == ended(whole)


@settings(max_examples=200, deadline=None)
@given(lives, st.integers(1, 12))
def test_of_any_life_it_says_the_same_or_nothing(random, length):
    log = lifetime(random, length=length, wild=0).log
    brief = glance(log, ID)
    if brief is not None:
        assert ended(brief) == ended(replay(log, ID))


@settings(max_examples=200, deadline=None)
@given(lives, st.data())
def test_of_a_damaged_log_it_says_nothing_unless_the_task_is_unfinished(random, data):
    """What is lost behind the beginning of a line makes no difference to a task that is failed."""
    log = bytearray(lifetime(random, length=8).log)
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    brief, whole = glance(bytes(log), ID), replay(bytes(log), ID)
    if brief is not None:
        assert not whole.is_over
        assert whole.notifications == ()


@pytest.mark.parametrize(
    "events",
    [
        [told()],
        [asked()],
        [reasoned(), responded()],
        [failed()],
        [created()],
    ],
    ids=["said something", "asked", "answered", "failed", "was created twice"],
)
def test_of_a_task_that_was_more_than_at_work_it_says_nothing(events):
    life = Life()
    for made in events:
        life.do(made)
    assert glance(life.log, ID) is None


def test_of_a_completed_task_it_says_nothing():
    life = Life()
    life.do(reasoned())
    life.do(responded())
    life.do(finished(life.live))
    assert glance(life.log, ID) is None


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\n",
        task_line(created())[:-1],
        task_line(reasoned()),
        b" " + task_line(created()),
        task_line(created()) + b"{}\n",
        task_line(created()) + b"\n",
        b'{"ts":1,"event":"TASK_CREATED","taskId":"' + ID.encode() + b'","data":{]}\n',
        json.dumps({"ts": 1, "event": "TASK_CREATED", "taskId": ID, "data": {"inputText": 5}}).encode() + b"\n",
        task_line(created()).replace(b'"inputText":"find papers"', b'"inputText":5'),
    ],
)
def test_of_what_is_no_log_of_a_task_at_work_it_says_nothing(log):
    assert glance(log, ID) is None


def test_of_another_task_it_says_nothing():
    assert glance(Life().log, "ffffffffffffffff") is None
