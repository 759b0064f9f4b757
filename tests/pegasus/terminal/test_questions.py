"""Letters typed at the prompt as answers to questions about tool calls."""

import pytest

from pegasus.terminal.questions import OpenQuestions, Remark


def asked(*ids, since=10.0, prompt_is_empty=True):
    questions = OpenQuestions()
    for id in ids:
        questions.add(id, "shell_exec", f"May it run {id}?", now=since, prompt_is_empty=prompt_is_empty)
    return questions


@pytest.mark.parametrize(
    ("line", "command"),
    [("y", "/approve a-1"), (" Y ", "/approve a-1"), ("n", "/deny a-1"), ("a", "/approve a-1 tool")],
)
def test_a_letter_answers_the_question_on_the_screen(line, command):
    assert asked("a-1").read(line, first_key=11.5, now=12) == command


@pytest.mark.parametrize("line", ["y y", "yes please", "why", "/approve a-1", "hello", ""])
def test_other_lines_are_messages(line):
    assert asked("a-1").read(line, first_key=11.5, now=12) is None


@pytest.mark.parametrize("line", ["y", "n", "a", "?", "yes"])
def test_without_a_question_a_letter_is_a_message(line):
    assert OpenQuestions().read(line, first_key=11.5, now=12) is None


def test_a_letter_begun_within_a_second_of_the_question_answers_nothing():
    questions = asked("a-1")
    remark = questions.read("y", first_key=10.99, now=12)
    assert isinstance(remark, Remark)
    assert "a-1 (shell_exec) came while you were typing" in remark.text
    assert questions.read("y", first_key=12.5, now=14) == remark  # read it first
    assert questions.read("y", first_key=15.0, now=15) == "/approve a-1"


def test_a_letter_answers_nothing_if_the_question_came_into_a_line():
    questions = asked("a-1", prompt_is_empty=False)
    assert isinstance(questions.read("y", first_key=13, now=13), Remark)
    assert questions.read("y", first_key=14, now=14) == "/approve a-1"


def test_with_several_questions_the_ids_are_named():
    questions = asked("a-1", "a-2")
    remark = questions.read("y", first_key=20, now=20)
    assert isinstance(remark, Remark)
    assert "a-1 (shell_exec), a-2 (shell_exec)" in remark.text
    questions.remove("a-1")
    assert questions.read("y", first_key=20, now=20) == "/approve a-2"


def test_a_plain_yes_is_asked_about_and_sent_by_a_second_enter():
    questions = asked("a-1")
    remark = questions.read("yes", first_key=20, now=20)
    assert isinstance(remark, Remark)
    assert remark.keeps_line
    assert questions.read("yes", first_key=20, now=21) is None
    assert isinstance(questions.read("yes", first_key=20, now=22), Remark)  # the next one is asked about again


def test_a_question_mark_shows_the_question_and_the_letters():
    remark = asked("a-1").read("?", first_key=20, now=20)
    assert isinstance(remark, Remark)
    assert "May it run a-1?" in remark.text
    assert "also those that text from outside suggests" in remark.text


def test_questions_of_an_agent_that_is_away_are_not_answered():
    questions = asked("a-1")
    questions.clear()
    assert questions.read("y", first_key=20, now=20) is None


def test_a_question_for_once_takes_no_wider_yes():
    questions = OpenQuestions()
    questions.add("a-1", "mail__delete", "May it?", now=10, prompt_is_empty=True, may_widen=False)
    remark = questions.read("a", first_key=20, now=20)
    assert isinstance(remark, Remark)
    assert "y once · n no · ? explains" in remark.text
    assert questions.read("y", first_key=20, now=20) == "/approve a-1"
