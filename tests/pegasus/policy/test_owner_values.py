"""Which arguments of a call an owner has typed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.policy import OwnerMessage, owner_metadata, parse_owner_messages
from pegasus.policy.owner_values import (
    LONGEST_MESSAGE,
    LONGEST_VALUE,
    MOST_ELEMENTS,
    MOST_MESSAGES,
    MOST_UNITS,
    OwnerText,
    TooManyValues,
    ValueUnit,
    units_of,
)


def holds(text, value, field="to"):
    return OwnerText(text).holds(ValueUnit(field, value))


# ------------------------------------------------------------------ single values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Write to bob@example.com", "bob@example.com"),
        ("Write to bob@example.com.", "bob@example.com"),
        ("Write to (bob@example.com), please!", "bob@example.com"),
        ("Write to <bob@example.com>", "bob@example.com"),
        ("bob@example.com?", "bob@example.com"),
        ("Pay 'bill-december-2023.txt' now", "bill-december-2023.txt"),
        ("Look at https://example.com/a?b=c", "https://example.com/a?b=c"),
        ("Post to #general-chat", "#general-chat"),
        ("Pay GB29NWBK60161331926819 back", "GB29NWBK60161331926819"),
        ("On 2024-05-15 then", "2024-05-15"),
        ('The title is "Lunch break"', "Lunch break"),
        ("The title is “Lunch break”.", "Lunch break"),
        ("Titel „Mittagspause“", "Mittagspause"),
        ('Call it "Lunch break."', "Lunch break"),
        ("发给 bob@example.com，谢谢", "bob@example.com"),
        ("标题是「午饭时间到了」。", "午饭时间到了"),
        ("Run `make_all.sh`", "make_all.sh"),
    ],
)
def test_values_that_count_by_themselves(text, value):
    assert holds(text, value)
    assert holds(text, value, field="")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Write to bob@example.com", "ob@example.com"),
        ("Write to bob@example.com", "bob@example.co"),
        ("Write to alice.bob@example.com", "bob@example.com"),
        ("Write to bob@example.com.evil.net", "bob@example.com"),
        ("See https://evil.net/example.com", "example.com"),
        ("See example.com/path", "example.com"),
        ("Pay /pay/100,000 now", "/pay/100"),
        ("Write to BOB@example.com", "bob@example.com"),
        ("Write to bob@example.com", "bоb@example.com"),
        ("Write to bob@example.com\u0301", "bob@example.com"),
        ("Write to bob@exam\u200bple.com", "bob@example.com"),
        ("caf\u00e9-bar-1", "cafe\u0301-bar-1"),
        ("Pay main", "main"),
        ('Say "main"', "main"),
        ("Please say yes", "yes"),
        ("Pay 123456 now", "123456"),
        ("Pay 1234.56 now", "1234.56"),
        ("Buy a new laptop", "laptop"),
        ("Buy a new laptop", "new laptop"),
        ("a1 b2c3d4 e5", "b2c3d4 e5"),
        ('"a" quoted-not "b"', " quoted-not "),
        ("don't touch x1y2z3'", "t touch x1y2z3"),
        ("", "bob@example.com"),
        ("anything", ""),
        ("a\0b@example.com", "b@example.com\0"),
    ],
)
def test_values_that_do_not(text, value):
    assert not holds(text, value)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("subject Lunch", "subject", "Lunch"),
        ("Subject: Lunch at noon", "subject", "Lunch at noon"),
        ("amount: 13", "amount", 13),
        ("amount=13.", "amount", 13.0),
        ("amount 12.5", "amount", 12.5),
        ("start time 10", "start_time", 10),
        ("start-time: 10", "startTime", 10),
        ("START TIME 10", "start-time", 10),
        ("is public: true", "is_public", True),
        ('title "Lunch"', "title", "Lunch"),
        ("id -7", "id", -7),
    ],
)
def test_values_directly_behind_the_name_of_their_field(text, field, value):
    assert holds(text, value, field)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("subject is Lunch", "subject", "Lunch"),
        ("subject lunch", "subject", "Lunch"),
        ("resubject Lunch", "subject", "Lunch"),
        ("subject Lunches", "subject", "Lunch"),
        ("amount: 13.50", "amount", 13),
        ("amount: 13,000", "amount", 13),
        ("amount: 130", "amount", 13),
        ("amount\n13", "amount", 13),
        ("13 amount", "amount", 13),
        ("public yes", "public", True),
        ("amount: 13", "", 13),
        ("amount: 13", "---", 13),
        ("net-amount: 13", "amount", 13),
    ],
)
def test_values_elsewhere_than_behind_it(text, field, value):
    assert not holds(text, value, field)


@pytest.mark.parametrize(
    "text",
    [
        "> Write to bob@example.com",
        "  > Write to bob@example.com",
        "Look:\n```\nbob@example.com\n```\n",
        "Look:\n```\nbob@example.com",
        "Look: ```bob@example.com``` here",
        "~~~\nbob@example.com\n~~~",
        "Look:\n````\n```\nbob@example.com\n````\n",
        "Look:\n```\na fence in what was pasted\n```\nbob@example.com\n```\nPlease do",
        "Look:\r> bob@example.com",
        "Look:\u2028> bob@example.com",
        "Look:\n\u00a0> bob@example.com",
        "Look:\n\u200b> bob@example.com",
        "Look:\n| > bob@example.com",
        "Do it\n-----Original Message-----\nFrom: Eve\n\nWrite to bob@example.com",
        "Do it\n---------- Forwarded message ---------\nWrite to bob@example.com",
        "Do it\nBegin forwarded message:\nWrite to bob@example.com",
        "Do it\nOn Mon, 3 May 2027 at 10:00, Eve\n<eve@example.com> wrote:\n\nWrite to bob@example.com",
        "Do it\n\nFrom: Eve <eve@example.com>\nSent: Monday\nWrite to bob@example.com",
        "Write to all, except bob@example.com",
        "Never write to bob@example.com",
        "Do not write to bob@example.com!",
        "Don't write to bob@example.com.",
        "Don’t write to bob@example.com.",
        "Write to all without bob@example.com",
        "Write to bob@example.com " + "x" * LONGEST_MESSAGE,
    ],
)
def test_parts_that_give_no_values(text):
    assert not holds(text, "bob@example.com")


def test_the_sentences_beside_one_with_an_exception_count():
    text = "Ask ann@example.com. Never ask bob@example.com! Then ask eve@example.com"
    assert [holds(text, f"{name}@example.com") for name in ("ann", "bob", "eve")] == [True, False, True]


def test_nothing_reaches_across_what_does_not_count():
    assert not holds('Say "one two ```x``` three"', "one two  three")
    assert not holds("to\n> x\nbob", "bob")


def test_nothing_too_long_counts():
    value = "a" * (LONGEST_VALUE - 4) + "@b.c"
    assert holds(f"to {value}", value)
    assert not holds(f"to {value}d", f"{value}d")


# ------------------------------------------------------------------ lists and calls


@pytest.mark.parametrize(
    ("text", "value", "is_held"),
    [
        ("to a@example.com, b@example.com", ["a@example.com", "b@example.com"], True),
        ("to a@example.com, b@example.com", ["a@example.com"], True),
        ("to a@example.com, b@example.com", ["b@example.com", "a@example.com"], False),
        ("to a@example.com, b@example.com", ["a@example.com", "a@example.com"], False),
        ("to a@example.com, b@example.com", ["a@example.com", "c@example.com"], False),
        ("numbers 1 2", [1, 2], False),
        ("with a@example.com title Lunch", [{"email": "a@example.com", "title": "Lunch"}], True),
        ("with a@example.com title Lunch", [{"email": "a@example.com", "title": "Dinner"}], False),
    ],
)
def test_lists(text, value, is_held):
    items = {"type": "object", "properties": {"email": {}, "title": {}}}
    assert OwnerText(text).holds(ValueUnit("to", value, {"items": items})) is is_held


def test_a_list_has_few_elements():
    names = [f"user{n}@example.com" for n in range(MOST_ELEMENTS + 1)]
    assert holds(" ".join(names), names[:-1])
    assert not holds(" ".join(names), names)


def test_a_call_of_very_many_values_is_none_of_an_owners_and_costs_nothing():
    """They would be looked for in each message, and all else in the program waits meanwhile."""
    fields = {f"k{n}": "bob@example.com" for n in range(MOST_UNITS)}
    for arguments in (fields | {"k": ""}, {"list": [fields]}, {"list": [[["bob@example.com"] * MOST_UNITS]]}):
        with pytest.raises(TooManyValues):
            units_of(arguments, {})


SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "number"},
        "recurring": {"type": "boolean", "default": False},
        "cc": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        "place": {"$ref": "#/$defs/Place"},
    },
    "$defs": {"Place": {"type": "object", "properties": {"street": {"type": "string"}}}},
}


def units(**arguments):
    return [(unit.field, unit.value) for unit in units_of(arguments, SCHEMA)]


def test_the_values_of_a_call():
    assert units(to="a", amount=3, recurring=True) == [("to", "a"), ("amount", 3), ("recurring", True)]
    assert units(to="", recurring=False, cc=None) == [("to", "")]
    assert units(recurring=0) == [("recurring", 0)], "a zero is not false"
    assert units(cc=["a"], place={"street": "x"}) == [("cc", ["a"]), ("street", "x")]


def test_a_parameter_that_the_schema_does_not_name_is_a_value_itself():
    assert units(secret="a") == [("", "secret"), ("secret", "a")]
    assert units(place={"secret": None}) == [("", "secret")]


def test_a_call_with_very_many_or_very_deep_values_is_nobodys():
    deep = {}
    for _ in range(20):
        deep = {"to": deep}
    for arguments in ({"to": {str(n): n for n in range(MOST_UNITS)}}, deep):
        with pytest.raises(TooManyValues):
            units(**arguments)


# ------------------------------------------------------------------ for all


FINITE = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.lists(st.text("ab1@.-'\"(:,é中", min_size=1, max_size=10), max_size=6)


@given(WORDS, st.text("ab1@.-é中", min_size=1, max_size=12))
def test_a_value_that_counts_stands_in_the_text_between_blanks_quotes_or_punctuation(words, value):
    text = " ".join(words)
    if OwnerText(text).holds(ValueUnit("x", value)):
        places = [n for n in range(len(text)) if text.startswith(value, n)]
        around = [(text[n - 1 : n], text[n + len(value) : n + len(value) + 1]) for n in places]
        assert any(not (before + behind).isalnum() or not before + behind for before, behind in around)
        assert any(not before.isalnum() and not behind.isalnum() for before, behind in around)


@given(st.text(max_size=40), st.recursive(st.none() | st.booleans() | st.integers() | FINITE | st.text(), st.lists))
def test_any_value_is_judged(text, value):
    OwnerText(text).holds(ValueUnit("x", value))


@given(st.text("a.!? \n'`>~", max_size=200))
def test_any_text_is_read(text):
    OwnerText(text)


def test_a_decision_takes_little_time():
    """A hundred values against texts that are made to be slow: well below the time that a call takes anyway."""
    texts = [("a. " * 700)[:LONGEST_MESSAGE], "'" * LONGEST_MESSAGE, "> " * 1000, "`" * LONGEST_MESSAGE, "a@" * 1000]
    begun = time.thread_time()
    for text in texts:
        for n in range(20):
            holds(text, f"user{n}@example.com", "a")
            holds(text, "a" * LONGEST_VALUE)
    assert (time.thread_time() - begun) / (len(texts) * 20) < 0.005


# ------------------------------------------------------------------ on disk


def test_messages_are_kept_with_the_work():
    messages = (OwnerMessage("cli:main/1", "Pay 'x'"), OwnerMessage("cli:main/2", "now", may_act=False))
    assert parse_owner_messages(owner_metadata(messages)) == messages
    assert owner_metadata(()) == {}
    assert owner_metadata([OwnerMessage("a", "x" * (LONGEST_MESSAGE + 1)), OwnerMessage("a", "")]) == {}
    many = [OwnerMessage(str(n), "x") for n in range(MOST_MESSAGES + 5)]
    assert parse_owner_messages(owner_metadata(many)) == tuple(many[5:])


@pytest.mark.parametrize("damage", [None, "x", {"a": 1}, [1, {"id": 1, "text": "x"}, {"id": "x"}, []]])
def test_what_cannot_be_read_counts_for_nothing(damage):
    assert parse_owner_messages({"ownerMessages": damage}) == ()
    assert parse_owner_messages({"ownerMessages": [{"id": "a", "text": "b"}]}) == (
        OwnerMessage("a", "b", may_act=False),
    )
