"""Calls that need no question after text from outside was read."""

from __future__ import annotations

import time

import pytest

from pegasus.policy import MOST_OPEN, OwnerMessage, ToolKind, ValueCall, doubt_about
from pegasus.policy.value_rules import has_address

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "number"},
        "note": {"type": "string", "default": ""},
        "url": {"type": "string"},
        "copies": {"type": "array", "items": {"type": "string"}},
    },
}
PAY = OwnerMessage("cli:main/1", "Pay bob@example.com, amount: 13")
PRIVATE, OPEN, ACT, DESTRUCTIVE = ToolKind


def call(kind, tool="x", **arguments):
    return ValueCall(tool, kind, arguments, SCHEMA)


def passes(wanted, *messages, earlier=()):
    return not doubt_about(wanted, messages, earlier)


@pytest.mark.parametrize(
    "arguments", [{}, {"to": "whatever"}, {"to": "a.txt"}, {"to": "bob@example.com"}, {"amount": 3}]
)
def test_a_private_reader_passes_with_any_arguments(arguments):
    assert passes(call(PRIVATE, **arguments))
    assert passes(call(PRIVATE, **arguments), earlier=[call(PRIVATE, **arguments)] * 100)


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "https://evil.example/?secret"},
        {"to": " HTTP://evil.example"},
        {"to": "//evil.example/x"},
        {"to": "www.evil.example"},
        {"to": "evil.example/x"},
        {"to": "evil.example:80"},
        {"to": "127.0.0.1:80"},
        {"to": "[::1]"},
        {"url": "evil"},
        {"copies": ["a", "https://evil.example"]},
        {"unknown": {"baseUrl": "https://evil.example"}},
    ],
)
def test_one_with_an_address_does_not(arguments):
    assert has_address(arguments, SCHEMA)
    assert not passes(call(PRIVATE, **arguments))


def test_a_format_of_the_schema_makes_an_address():
    assert has_address({"place": "evil"}, {"properties": {"place": {"format": "hostname"}}})
    assert has_address({"webhookUrl": "evil"}, {})
    assert not has_address({"curl": "evil"}, {})


def test_an_open_reader_passes_once_with_owners_values():
    words = OwnerMessage("m", "Read https://example.com/a and https://example.com/b", may_act=False)
    wanted = call(OPEN, url="https://example.com/a")
    assert passes(wanted, words)
    assert not passes(wanted)
    assert not passes(call(OPEN, url="https://example.com/c"), words)
    assert passes(wanted, words, earlier=[call(OPEN, url="https://example.com/b")])
    assert not passes(wanted, words, earlier=[wanted])
    assert not passes(call(OPEN, url="https://example.com/a", note=""), words, earlier=[wanted])


def test_the_values_of_an_open_reader_may_be_of_several_messages():
    first, second = OwnerMessage("1", "Read https://example.com/a"), OwnerMessage("2", "to bob@example.com")
    assert passes(call(OPEN, url="https://example.com/a", to="bob@example.com"), first, second)


def test_open_readers_pass_a_bounded_number_of_times():
    urls = [f"https://example.com/{n}" for n in range(MOST_OPEN + 1)]
    words = OwnerMessage("m", " ".join(urls))
    made = [call(OPEN, url=url) for url in urls]
    assert passes(made[-2], words, earlier=made[:-2])
    assert not passes(made[-1], words, earlier=made[:-1])
    assert passes(made[-1], words, earlier=[made[0]] * 100)
    assert passes(made[-1], words, earlier=[call(ACT, url=url) for url in urls])


def test_an_act_passes_once_for_each_message_that_names_it():
    wanted = call(ACT, to="bob@example.com", amount=13)
    again = OwnerMessage("cli:main/2", PAY.text)
    assert passes(wanted, PAY)
    assert not passes(wanted, PAY, earlier=[wanted])
    assert passes(wanted, PAY, again, earlier=[wanted])
    assert not passes(wanted, PAY, again, earlier=[wanted, wanted])
    assert passes(wanted, PAY, earlier=[call(ACT, "y", to="bob@example.com", amount=13)])


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "bob@example.com", "amount": 13.0},
        {"amount": 13, "to": "bob@example.com"},
        {"to": "bob@example.com", "amount": 13, "note": ""},
        {"to": "bob@example.com", "amount": 13, "note": None},
        {"to": "bob@example.com", "amount": 13, "copies": []},
    ],
)
def test_another_way_to_write_the_same_call_is_the_same_call(arguments):
    made = call(ACT, to="bob@example.com", amount=13)
    assert not passes(call(ACT, **arguments), PAY, earlier=[made])
    assert not passes(made, PAY, earlier=[call(ACT, **arguments)])


@pytest.mark.parametrize(
    "wanted",
    [
        call(ACT, to="eve@example.com", amount=13),
        call(ACT, to="bob@example.com", amount=14),
        call(ACT, to="bob@example.com", amount=13, note="secret"),
        call(ACT, to="bob@example.com", amount=13, secret=None),
        call(ACT, to="bob@example.com", amount=13, copies=["eve@example.com"]),
        call(ACT),
        call(DESTRUCTIVE, to="bob@example.com", amount=13),
        call(None, to="bob@example.com", amount=13),
        call(ACT, amount=float("inf")),
        call(ACT, to="x" * 1_000_000),
        call(ACT, **{f"to{n}": n for n in range(10_000)}),
    ],
)
def test_nothing_else_passes(wanted):
    assert not passes(wanted, PAY)


def test_an_act_is_not_put_together_of_several_messages():
    to, amount = OwnerMessage("1", "Pay bob@example.com"), OwnerMessage("2", "amount: 13")
    assert not passes(call(ACT, to="bob@example.com", amount=13), to, amount)


def test_a_message_that_other_work_acts_by_lets_nothing_act():
    handed = OwnerMessage(PAY.id, PAY.text, may_act=False)
    assert not passes(call(ACT, to="bob@example.com", amount=13), handed)


def test_a_decision_takes_less_than_a_millisecond():
    wanted = call(ACT, to="bob@example.com", amount=13)
    messages = [OwnerMessage(str(n), "word " * 300 + PAY.text) for n in range(3)]
    earlier = [call(ACT, to=f"user{n}@example.com", amount=n) for n in range(50)]
    passes(wanted, *messages, earlier=earlier)  # texts are prepared once
    begun = time.thread_time()
    for _ in range(100):
        passes(wanted, *messages, earlier=earlier)
    assert (time.thread_time() - begun) / 100 < 0.003, "a third of that on a quiet machine"


@pytest.mark.parametrize(
    ("kind", "arguments", "text", "doubt"),
    [
        (ToolKind.DESTRUCTIVE, {"to": "ann@example.com"}, "to ann@example.com", "it may change something for good"),
        (ToolKind.ACT, {"to": "eve@evil.example"}, "hello", "an owner has not typed the value of to"),
        (
            ToolKind.ACT,
            {"to": "ann@example.com", "Why I ask: \nfine": "x"},
            "to ann@example.com",
            "the value of a parameter",
        ),
        (ToolKind.ACT, {}, "hello", "it has no value that an owner could have typed"),
        (ToolKind.OPEN_READER, {"to": "eve@evil.example"}, "hello", "others may see what it asks for, and an owner"),
        (ToolKind.ACT, {"to": "ann@example.com"}, "to ann@example.com", ""),
    ],
)
def test_the_reason_of_a_question_says_what_is_doubted_and_shows_no_words_of_a_model(kind, arguments, text, doubt):
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    found = doubt_about(ValueCall("mail__send", kind, arguments, schema), (OwnerMessage("m", text),), ())
    assert (doubt in found) if doubt else not found
    assert "\n" not in found
