"""/copy."""

from __future__ import annotations

from base64 import b64decode

import pytest

from pegasus.terminal.copying import LONGEST, CopyableAnswers


def clipboard(copied):
    assert copied.sequence.startswith("\x1b]52;c;")
    assert copied.sequence.endswith("\x07")
    return b64decode(copied.sequence[7:-1]).decode()


@pytest.fixture
def answers():
    answers = CopyableAnswers()
    for text in ("first", "```python\nprint('中文')\n```"):
        answers.add(text)
    return answers


def test_it_copies_the_last_answer_as_it_was_written(answers):
    assert clipboard(answers.read("/copy")) == "```python\nprint('中文')\n```"
    assert clipboard(answers.read(" /COPY 2 ")) == "first"


@pytest.mark.parametrize("words", ["0", "3", "00012", "-1", "x", "²", "9" * 5_000])
def test_an_answer_that_is_not_there_is_told(answers, words):
    copied = answers.read(f"/copy {words}")
    assert "allowed: a number from 1 to 2" in copied.notice
    assert not copied.sequence


def test_without_an_answer_it_says_so():
    assert CopyableAnswers().read("/copy").notice == "There is no answer to copy yet."


def test_an_answer_that_no_terminal_takes_is_not_copied(answers):
    answers.add("x" * (LONGEST + 1))
    assert "Not copied" in answers.read("/copy").notice


@pytest.mark.parametrize("typed", ["hello", "", "/copying", "see /copy"])
def test_anything_else_is_a_message(answers, typed):
    assert answers.read(typed) is None
