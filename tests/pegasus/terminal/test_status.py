"""The line under the prompt."""

from __future__ import annotations

import attrs
import pytest

from pegasus.messages import ChannelInfo, TaskProgress
from pegasus.terminal.questions import WaitingQuestion
from pegasus.terminal.status_line import FRAME_SECONDS, ChatStatus, RunningTask, in_order, running_task, status_line
from pegasus.terminal.stop_keys import leaving_hint

ONLINE = ChatStatus(online=True)


def test_nothing_is_shown_while_nothing_happens():
    assert status_line(ONLINE, 0.0) == ""


def test_thinking_moves_and_after_a_while_tells_how_long_and_how_to_end_it():
    thinking = ChatStatus(online=True, thinking=True)
    assert status_line(thinking, 0.0) == "⠋ thinking"
    assert status_line(thinking, FRAME_SECONDS * 1.5) == "⠙ thinking"
    assert status_line(thinking, 8.0).endswith("thinking for 8 s, Ctrl-C stops")
    assert status_line(thinking, 125.0).endswith("thinking for 2 min 05 s, Ctrl-C stops")


def test_the_connection_is_told_before_and_after_it_was_there():
    assert status_line(ChatStatus(), 0.0) == "connecting"
    assert status_line(ChatStatus(lost=True), 0.0) == "connection lost, trying again"


def test_messages_that_wait_for_a_connection_are_counted():
    assert status_line(ChatStatus(lost=True, unsent=1), 0.0).endswith("1 message waiting to be sent")
    assert status_line(ChatStatus(lost=True, unsent=2), 0.0).endswith("2 messages waiting to be sent")
    assert status_line(ChatStatus(online=True, unsent=1), 0.0) == ""


def test_thinking_is_not_claimed_while_nobody_knows():
    assert status_line(ChatStatus(lost=True, thinking=True), 0.0) == "connection lost, trying again"


def test_a_hint_stands_before_the_rest():
    assert status_line(ChatStatus(online=True, thinking=True), 0.0, "hint") == "hint · ⠋ thinking"


def test_a_terminal_without_unicode_gets_none():
    line = status_line(ChatStatus(online=True, thinking=True), 0.0, "hint", unicode=False)
    assert line == "hint - thinking"


def test_writing_is_told_apart_from_thinking():
    writing = ChatStatus(online=True, thinking=True, writing=True)
    assert status_line(writing, 0.0) == "⠋ writing"
    assert status_line(writing, 8.0).endswith("writing for 8 s, Ctrl-C stops")


# ------------------------------------------------------------------ tasks

FETCH = RunningTask(3, "fetch the report", "shell_exec", 2, since=100.0)


def tasks_line(*tasks, now=141.0, **options):
    return status_line(ChatStatus(online=True, tasks=tasks), 0.0, now=now, **options)


def test_the_running_task_is_shown_with_tool_step_and_time():
    assert tasks_line(FETCH) == "task 3: fetch the report · shell_exec · step 2 · 0:41"
    assert tasks_line(FETCH, now=100.0 + 3700) == "task 3: fetch the report · shell_exec · step 2 · 1:01:40"
    assert tasks_line(attrs.evolve(FETCH, tool="")) == "task 3: fetch the report · step 2 · 0:41"
    assert tasks_line(RunningTask(4, "later")) == "task 4: later · waits for its turn"


def test_of_several_tasks_the_first_at_work_is_shown_and_the_others_are_counted():
    waiting, working = RunningTask(1, "later"), attrs.evolve(FETCH, number=5)
    assert in_order([waiting, working, FETCH]) == (FETCH, working, waiting)
    assert tasks_line(FETCH, working, waiting).endswith("0:41 · +2 more")


def test_a_task_stands_behind_the_thinking_and_nothing_is_claimed_without_a_connection():
    status = ChatStatus(online=True, thinking=True, tasks=(FETCH,))
    assert status_line(status, 0.0, now=141.0).startswith("⠋ thinking · task 3: fetch")
    assert status_line(attrs.evolve(status, online=False), 0.0) == "connecting"


def test_a_long_description_is_shortened_so_that_the_facts_behind_it_fit():
    line = tasks_line(attrs.evolve(FETCH, description="find out " + "very " * 50), width=60)
    assert line.endswith("… · shell_exec · step 2 · 0:41")
    assert len(line) <= 60
    wide = tasks_line(attrs.evolve(FETCH, description="报告" * 50), width=60)
    assert wide == "task 3: " + "报告" * 5 + "报… · shell_exec · step 2 · 0:41"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (49, "task 3: fetch the r… · shell_exec · step 2 · 0:41"),
        (48, "task 3: fetch the report · shell_exec · 0:41"),
        (40, "task 3: fetch the r… · shell_exec · 0:41"),
        (39, "task 3: fetch the report · 0:41"),
    ],
)
def test_in_a_narrow_window_the_time_stays_and_step_and_tool_give_way(width, line):
    assert tasks_line(FETCH, width=width) == line


def test_the_task_wins_over_a_hint_where_both_do_not_fit():
    status = ChatStatus(online=True, tasks=(FETCH,))
    hint = leaving_hint(status)
    assert status_line(status, 0.0, hint, now=141.0, width=100) == (
        "/stop or /tasks cancel 3; Ctrl-D leaves · task 3: fetch the report · shell_exec · step 2 · 0:41"
    )
    narrow = status_line(status, 0.0, hint, now=141.0, width=58)
    assert narrow == "task 3 · 0:41 · /stop or /tasks cancel 3; Ctrl-D leaves"
    assert len(narrow) <= 58


def test_a_terminal_without_unicode_sees_three_dots():
    line = tasks_line(attrs.evolve(FETCH, description="find out " + "very " * 50), width=45, unicode=False)
    assert line == "task 3: find out very... - shell_exec - 0:41"


def progress(state, **changes):
    task = TaskProgress(
        ChannelInfo("cli", "main"), "t-1", 3, "fetch\n the report\x1b[2J", state, "shell_exec", 2, 41_000
    )
    return attrs.evolve(task, **changes)


@pytest.mark.parametrize(("state", "since"), [("REASONING", 59.0), ("ACTING", 59.0), ("IDLE", None)])
def test_a_task_that_runs_or_waits_for_its_turn_is_shown(state, since):
    task = running_task(progress(state), now=100.0)
    assert task == RunningTask(3, "fetch the report␛[2J", "shell_exec", 2, since)


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "a later version's"])
def test_any_other_task_is_not(state):
    assert running_task(progress(state), now=100.0) is None


@pytest.mark.parametrize("why", ["approval", "person"])
def test_a_task_that_is_paused_or_waits_for_a_yes_is_not(why):
    assert running_task(progress("SUSPENDED", waits_for=why), now=100.0) is None


def test_what_waits_for_an_answer_in_words_is_named():
    task = running_task(progress("SUSPENDED"), now=100.0)
    assert status_line(attrs.evolve(ONLINE, asking=(task,)), 0.0) == "task 3 waits for your answer"
    busy = attrs.evolve(ONLINE, asking=(task, task), thinking=True, questions=(WaitingQuestion("a-1", "shell"),) * 2)
    assert status_line(busy, 0.0) == (
        "2 questions wait for you: /approve or /deny ID · 2 tasks wait for your answer · ⠋ thinking"
    )
    assert not attrs.evolve(ONLINE, asking=(task,)).is_busy
    assert status_line(attrs.evolve(ChatStatus(), asking=(task,)), 0.0) == "connecting"


def test_only_what_runs_makes_the_line_move():
    assert not ONLINE.is_busy
    assert not ChatStatus(online=True, tasks=(RunningTask(4, "later"),)).is_busy
    assert ChatStatus(online=True, tasks=(FETCH,)).is_busy
    assert ChatStatus(online=True, thinking=True).is_busy
    assert not ChatStatus(online=False, thinking=True).is_busy


def test_an_agent_that_is_gone_is_not_called_a_lost_connection():
    assert status_line(ChatStatus(lost=True, gone=True), 0.0) == "the agent does not run"


def test_a_question_that_waits_is_named_with_its_letters():
    asked = attrs.evolve(ONLINE, questions=(WaitingQuestion("a-7f3k", "shell_exec"),))
    assert (
        status_line(asked, 0.0) == "a-7f3k shell_exec waits for you: y once · n no · a always in this task · ? explains"
    )
    once = attrs.evolve(ONLINE, questions=(WaitingQuestion("a-7f3k", "mail__delete", may_widen=False),))
    assert status_line(once, 0.0) == "a-7f3k mail__delete waits for you: y once · n no · ? explains"
    thinking = attrs.evolve(asked, thinking=True, questions=(WaitingQuestion("a-1", "x"), WaitingQuestion("a-2", "y")))
    assert status_line(thinking, 0.0) == "2 questions wait for you: /approve or /deny ID · ⠋ thinking"
    assert status_line(attrs.evolve(asked, online=False), 0.0) == "connecting"
