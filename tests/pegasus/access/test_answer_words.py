"""Scopes and numbers of calls, as people write them behind the id of an approval."""

import pytest

from pegasus.access import AnswerScope, read_answer, read_numbers


@pytest.mark.parametrize(
    ("text", "scope", "calls"),
    [
        ("", "once", None),
        ("hour", "hour", None),
        ("HOUR", "hour", None),
        ("always", "arguments", None),
        ("--always", "arguments", None),
        ("--scope hour", "hour", None),
        ("--scope=hour", "hour", None),
        ("—scope hour", "hour", None),
        ("1,3", "once", (0, 2)),
        ("1, 3", "once", (0, 2)),
        ("1 3", "once", (0, 2)),
        ("1-3", "once", (0, 1, 2)),
        ("1–3,5", "once", (0, 1, 2, 4)),
        ("--calls 1-2", "once", (0, 1)),
        ("--calls=1,3", "once", (0, 2)),
        ("1,3 hour", "hour", (0, 2)),
        ("hour 1,3", "hour", (0, 2)),
        ("--calls 1,3 --scope tool", "tool", (0, 2)),
        ("  hour\n1-2 ", "hour", (0, 1)),
    ],
)
def test_each_form_is_understood(text, scope, calls):
    assert read_answer(text) == (AnswerScope(scope), calls, "")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("beds=2 view=to the  sea 3", "beds=2 view=to the  sea 3"),
        ("once beds=2", "beds=2"),
        ("hour forever", "forever"),
        ("1,x", "1,x"),
        ("3-1", "3-1"),
        ("1-", "1-"),
        ("-1", "-1"),
        ("12345", "12345"),
        ("١", "١"),
        ("--scope", "--scope"),
        ("--scope week", "--scope week"),
        ("--calls all", "--calls all"),
        ("--calls hour", "--calls hour"),
    ],
)
def test_what_is_neither_is_left_over(text, rest):
    assert read_answer(text)[2] == rest


def test_a_long_line_is_read_in_no_time():
    assert len(read_answer("1 " * 100_000)[1] or ()) == 100_000
    assert read_numbers("1," * 100_000 + "x") is None
