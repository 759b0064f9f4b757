"""Arguments find their places in the body, and nothing in them is taken for one."""

from pathlib import Path

import pytest

from pegasus.skills import Skill, expand
from pegasus.skills.skill import MAX_EXPANDED, split_arguments


def expanded(body, arguments, **fields):
    return expand(Skill("x", "d", body, Path("x"), **fields), arguments)


@pytest.mark.parametrize(
    ("body", "arguments", "result"),
    [
        ("Do $ARGUMENTS now", "a b", "Do a b now"),
        ("$1 then $2", "a b c", "a then b"),
        ("$ARGUMENTS[0] then $ARGUMENTS[1]", "a b c", "a then b"),
        ("$2|", "a", "|"),
        ("$ARGUMENTS[9]|", "a", "|"),
        ("$0 $1", "a", "$0 a"),
        ("$10", "a b c d e f g h i ten", "ten"),
        ("Do $ARGUMENTS!", "", "Do !"),
        ("Do it.", "a b", "Do it.\n\nARGUMENTS: a b"),
        ("Do it.", "  ", "Do it."),
        ("$0", "a", "$0\n\nARGUMENTS: a"),
        ("$ARGUMENTS_X and $ARGUMENTSX", "a", "$ARGUMENTS_X and $ARGUMENTSX\n\nARGUMENTS: a"),
    ],
)
def test_where_arguments_go(body, arguments, result):
    assert expanded(body, arguments) == result


def test_counting_from_zero_where_the_front_matter_asks_for_it():
    assert expanded("$0 then $1", "a b", first=0) == "a then b"
    assert expanded("$ARGUMENTS[0]", "a b", first=0) == "a"


@pytest.mark.parametrize("price", ["$100", "$1.50", "$1,000", "$999"])
def test_a_price_is_no_placeholder(price):
    assert expanded(f"It costs {price}: $1", "a") == f"It costs {price}: a"


def test_a_backslash_makes_a_placeholder_plain_text():
    assert expanded(r"\$1 is $1, \$ARGUMENTS is $ARGUMENTS, \n stays", "a") == r"$1 is a, $ARGUMENTS is a, \n stays"


@pytest.mark.parametrize("tricky", ["$1", "$ARGUMENTS", "$&", "$$", "$'", r"\1", r"\g<0>", r"\$1", "{}", "%s"])
def test_what_stands_in_an_argument_is_taken_literally(tricky):
    assert expanded("<$1> <$ARGUMENTS>", tricky) == f"<{tricky}> <{tricky}>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('fix "the red tests" now', ("fix", "the red tests", "now")),
        ("'a b' c", ("a b", "c")),
        ("“a b” c", ("a b", "c")),
        (r'"a \"b\" \\ \n"', (r'a "b" \ \n',)),
        ("it's Bob's", ("it's", "Bob's")),
        ("don't 'stop", ("don't", "'stop")),
        ('say "hello', ("say", '"hello')),
        ('a"b c"d', ('a"b', 'c"d')),
        (r"C:\dir x", (r"C:\dir", "x")),
        ('""', ("",)),
        ("a\n\tb", ("a", "b")),
        ("你好 世界", ("你好", "世界")),
        ("", ()),
    ],
)
def test_single_arguments(text, words):
    assert split_arguments(text) == words


@pytest.mark.parametrize("unit", ["“a ", "'a ", '"a ', '"\\" ', "'", '"', "a' "])
def test_many_quotes_take_no_longer_than_other_text(unit):
    """A test that is quadratic in its length does not end."""
    assert split_arguments(unit * 300_000)


def test_long_arguments_stand_once_however_often_they_are_wanted():
    arguments = "y" * (MAX_EXPANDED // 4)
    result = expanded("$ARGUMENTS " * 1000, arguments)
    assert result.count(arguments) == 1
    assert result.endswith(f"ARGUMENTS: {arguments}")
    assert result.count("(see ARGUMENTS at the end)") == 1000
