"""Forms that an owner fills in: what is typed, what is taken, and what is said about the rest."""

from __future__ import annotations

import pytest

from pegasus.access import question_text
from pegasus.messages import ApprovalNotice, FormChoice, FormField, OwnerQuestion
from pegasus.policy import FormError, fill_form, parse_answer
from pegasus.policy.forms import describe_form

BEDS = FormField("beds", "integer", "How many beds", is_required=True, least=1, most=4)
VIEW = FormField("view", "text", "Where to", default="the yard", most=20)
PRICE = FormField("price", "number")
QUIET = FormField("quiet", "boolean", default="no")
ROOM = FormField("room", "choice", choices=(FormChoice("s", "Single"), FormChoice("d", "Double")), default="s")
EXTRAS = FormField("extras", "choices", choices=(FormChoice("tea"), FormChoice("bike")), most=2)
FORM = (BEDS, VIEW, PRICE, QUIET, ROOM, EXTRAS)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("beds=2", {"beds": "2"}),
        ("  beds=2   view= to the  sea ", {"beds": "2", "view": "to the  sea"}),
        ("view=a=b beds=3", {"view": "a=b", "beds": "3"}),
        ("view=my-beds=4", {"view": "my-beds=4"}),
        ("view=two\nlines\nbeds=1", {"view": "two\nlines", "beds": "1"}),
        ("view= beds=1", {"view": "", "beds": "1"}),
        ("beds=1 beds=2", {"beds": "2"}),
        ("view=größer 不行 beds=1", {"view": "größer 不行", "beds": "1"}),
    ],
)
def test_a_value_ends_where_the_next_field_begins(text, values):
    assert parse_answer(FORM, text) == values


@pytest.mark.parametrize("text", ["two", "bed=2", "always beds=2"])
def test_words_that_belong_to_no_field_are_refused(text):
    with pytest.raises(FormError, match="allowed: beds=… view=…"):
        parse_answer(FORM, text)


def test_a_question_without_a_form_takes_no_values():
    with pytest.raises(FormError, match="it has no form"):
        parse_answer((), "beds=2")


def test_what_is_missing_gets_its_default():
    assert fill_form(FORM, {"beds": "2"}) == {"beds": 2, "view": "the yard", "quiet": False, "room": "s"}
    with pytest.raises(FormError, match="beds: required; write beds=… view=…"):
        fill_form(FORM, {})


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("beds", 4, 4),
        ("beds", "3.0", 3),
        ("price", "99.5", 99.5),
        ("price", 7, 7.0),
        ("quiet", "Yes", True),
        ("quiet", True, True),
        ("quiet", "off", False),
        ("room", "double", "d"),
        ("room", "D", "d"),
        ("extras", "bike, tea,", ["bike", "tea"]),
        ("extras", ["tea", "tea"], ["tea"]),
        ("extras", "", []),
        ("view", "", ""),
    ],
)
def test_a_value_gets_the_type_of_its_field(name, given, value):
    found = fill_form(FORM, {"beds": 1, name: given})[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("beds", "0", "whole number, 1 to 4"),
        ("beds", "2.5", "whole number"),
        ("beds", "1e400", "whole number"),
        ("beds", True, "whole number"),
        ("beds", "two", "whole number"),
        ("price", "nan", "number"),
        ("quiet", "perhaps", "yes or no"),
        ("room", "triple", r"s \(Single\) or d \(Double\)"),
        ("extras", "tea,coffee", "tea, bike, at most 2 of them"),
        ("extras", 5, "tea, bike"),
        ("view", "x" * 21, "text, at most 20 characters"),
        ("view", {"a": 1}, "text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_is_allowed(name, given, words):
    with pytest.raises(FormError, match=rf"^{name}: found .*, allowed: {words}"):
        fill_form(FORM, {"beds": 1, name: given})


def test_a_field_that_is_none_is_refused():
    with pytest.raises(FormError, match='there is no "floor"'):
        fill_form(FORM, {"beds": 1, "floor": 3})


def test_a_form_is_shown_with_what_each_field_takes():
    assert describe_form(OwnerQuestion("MCP server hotel", "Which room?", FORM)) == [
        "beds (whole number, 1 to 4; required): How many beds",
        "view (text, at most 20 characters; otherwise the yard): Where to",
        "price (number; may be left out)",
        "quiet (yes or no; otherwise no)",
        "room (s (Single) or d (Double); otherwise s)",
        "extras (tea, bike, at most 2 of them; may be left out)",
    ]


def notice(question):
    return ApprovalNotice("a-7f3k", "hotel__book", {}, "it asks", "owner", 60_000, "open", "t1", question=question)


def test_a_question_says_whose_words_it_shows_and_how_to_answer():
    asked = notice(OwnerQuestion("MCP server hotel", "```Which room?", (BEDS,)))
    text = question_text(asked, "3", 0)
    assert text.startswith(
        "The MCP server hotel asks, called by task 3 (hotel__book). In its words:\n````\n```Which room?\n"
    )
    assert "Never give it passwords or keys." in text
    assert "\n/approve a-7f3k beds=… · /deny a-7f3k\n" in text
    optional = notice(OwnerQuestion("MCP server hotel", "Which room?", (VIEW,)))
    assert "/approve a-7f3k · /approve a-7f3k view=… · /deny" in question_text(optional, "", 0)


def test_a_page_is_shown_with_its_whole_address_and_its_host():
    asked = notice(OwnerQuestion("MCP server bank", "Pay here.", url="https://pay.example.org/x?y=1"))
    text = question_text(asked, "", 0)
    assert "https://pay.example.org/x?y=1" in text
    assert "This opens pay.example.org." in text
    assert "/approve a-7f3k · /deny a-7f3k" in text
