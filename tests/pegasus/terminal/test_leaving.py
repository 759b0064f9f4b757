"""The question about running work."""

from __future__ import annotations

from pegasus.terminal.leaving import Leave, LeaveRules, leave_question
from pegasus.terminal.questions import WaitingQuestion
from pegasus.terminal.status_line import ChatStatus, RunningTask

DIG, FETCH = RunningTask(1, "dig"), RunningTask(2, "fetch")


def lines(rules=LeaveRules(), width=200, **status):
    question = leave_question(ChatStatus(online=True, **status), rules)
    return question and question.lines(width)


def test_nothing_is_asked_while_nothing_runs_or_nobody_knows():
    assert lines() is None
    assert lines(thinking=True, answered=True) is None
    assert leave_question(ChatStatus(lost=True, tasks=(DIG,)), LeaveRules()) is None


def test_what_runs_is_named():
    assert lines(tasks=(DIG,))[0] == "Still running: task 1 (dig)."
    assert lines(tasks=(DIG, FETCH))[0] == "Still running: task 1 (dig) and 1 more."
    assert lines(thinking=True)[0] == "Still running: the answer to your message."
    assert lines(tasks=(DIG,), thinking=True)[0] == "Still running: task 1 (dig), and the answer to your message."


def test_messages_that_wait_for_their_turn_are_work_too():
    assert lines(thinking=True, answered=True, waiting=200)[0] == "Still running: the answers to 200 messages."
    assert lines(waiting=1)[0] == "Still running: the answer to your message."
    assert lines(LeaveRules(stops_agent=True), waiting=2)[1] == "  l       leave them running in the background"


def test_a_task_that_waits_for_a_yes_is_named():
    asked = WaitingQuestion("a-7f3k", "shell_exec", is_here=True)
    assert lines(questions=(asked,)) == [
        "Still open: a task that waits for your answer to a-7f3k (shell_exec).",
        "  l       leave it waiting; so does Ctrl-D",
        "  s       stop it and leave",
        "  Esc     stay",
    ]
    stopping = lines(LeaveRules(stops_agent=True, resumes=False), questions=(asked,))
    assert stopping[3] == "  q       only stop the agent, as Ctrl-D does; the question comes again at the next start"
    assert lines(tasks=(DIG,), questions=(asked,))[0] == (
        "Still running: task 1 (dig), and a task that waits for your answer to a-7f3k (shell_exec)."
    )
    assert lines(questions=(WaitingQuestion("a-7f3k", "shell_exec"),)) is None, "it is asked for elsewhere"


def test_a_chat_that_has_joined_leaves_or_stops_the_work():
    assert lines(tasks=(DIG,))[1:] == [
        "  l       leave it running; so does Ctrl-D",
        "  s       stop it and leave",
        "  Esc     stay",
    ]


def test_a_chat_that_stops_the_agent_says_what_becomes_of_the_work():
    assert lines(LeaveRules(stops_agent=True), tasks=(DIG, FETCH))[1:] == [
        "  l       leave them running in the background",
        "  s       give them up, and stop the agent",
        "  q       only stop the agent, as Ctrl-D does; they go on at the next start, but the step under way is not repeated",
        "  Esc     stay",
    ]
    assert "tasks then count as failed" in lines(LeaveRules(stops_agent=True, resumes=False), tasks=(DIG,))[3]


def test_the_question_is_wrapped_between_words():
    task = RunningTask(1, "compare the three offers of the well-known printers")
    assert lines(LeaveRules(stops_agent=True), width=60, tasks=(task,)) == [
        "Still running: task 1 (compare the three offers of the",
        "well-known printers).",
        "  l       leave it running in the background",
        "  s       give it up, and stop the agent",
        "  q       only stop the agent, as Ctrl-D does; it goes on at",
        "          the next start, but the step under way is not",
        "          repeated",
        "  Esc     stay",
    ]


def test_an_answer_alone_is_begun_anew_at_the_next_start():
    assert lines(LeaveRules(stops_agent=True), thinking=True)[3].endswith("it goes on at the next start")


def test_each_key_has_an_effect():
    question = leave_question(ChatStatus(online=True, thinking=True), LeaveRules(stops_agent=True))
    assert {key: leave for key, (_, leave) in question.keys.items()} == {
        "l": Leave.KEEP,
        "s": Leave.STOP,
        "q": Leave.LEAVE,
    }


def test_a_chat_that_stops_the_agent_asks_because_of_other_chats():
    owner = LeaveRules(stops_agent=True, others=1)
    assert lines(owner) == [
        "Another chat is connected to this agent.",
        "  l       leave the agent running in the background",
        "  q       stop the agent, as Ctrl-D does",
        "  Esc     stay",
    ]
    several = LeaveRules(stops_agent=True, others=2)
    assert lines(several, tasks=(DIG,))[0] == "Still running: task 1 (dig). 2 other chats are connected to this agent."
    assert lines(LeaveRules(others=1)) is None
