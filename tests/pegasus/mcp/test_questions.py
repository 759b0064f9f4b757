"""Questions of servers: what becomes of forms as the protocol has them, and of forms that no person should see."""

from __future__ import annotations

import pytest

from pegasus.mcp.questions import MOST_CHOICES, MOST_FIELDS, BadQuestion, ServerQuestion, read_question
from pegasus.messages import FormChoice, FormField


def form(required=(), **properties):
    return ServerQuestion("Which?", {"type": "object", "properties": properties, "required": list(required)})


def field(schema):
    [found] = read_question("hotel", form(x=schema)).fields
    return found


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, FormField("x", "text")),
        ({"type": "string", "title": "T", "description": "D"}, FormField("x", "text", "T. D")),
        (
            {"type": "string", "minLength": 2, "maxLength": 5, "default": "abc"},
            FormField("x", "text", default="abc", least=2, most=5),
        ),
        ({"type": "string", "format": "email", "default": "a@b.c"}, FormField("x", "text", default="a@b.c")),
        ({"type": "integer", "minimum": 0, "default": 0}, FormField("x", "integer", default="0", least=0)),
        ({"type": "number", "default": 95.5}, FormField("x", "number", default="95.5")),
        ({"type": "boolean", "default": True}, FormField("x", "boolean", default="yes")),
        ({"type": "boolean", "default": False}, FormField("x", "boolean", default="no")),
        (
            {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"], "default": "b"},
            FormField("x", "choice", default="b", choices=(FormChoice("a", "A"), FormChoice("b", "B"))),
        ),
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            FormField("x", "choice", choices=(FormChoice("a", "A"),)),
        ),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "default": ["a", "b"]},
            FormField("x", "choices", default="a, b", choices=(FormChoice("a"), FormChoice("b")), least=1),
        ),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "maxItems": 1},
            FormField("x", "choices", choices=(FormChoice("a", "A"),), most=1),
        ),
    ],
)
def test_every_kind_of_field_of_the_protocol(schema, expected):
    assert field(schema) == expected


def test_fields_keep_their_order_and_say_whether_they_are_required():
    asked = read_question("hotel", form(["b"], a={"type": "string"}, b={"type": "boolean"}))
    assert [(each.name, each.is_required) for each in asked.fields] == [("a", False), ("b", True)]
    assert asked.source == "MCP server hotel"


def test_a_question_without_fields_needs_a_yes_or_no_only():
    assert read_question("hotel", ServerQuestion("Go on?", {"type": "object", "properties": {}})).fields == ()


def test_words_of_a_server_are_one_line_each_and_cut():
    asked = read_question("hotel", form(x={"type": "string", "description": "a\nb" * 500}))
    assert "\n" not in asked.fields[0].description
    assert len(asked.fields[0].description) <= 200
    words = "Which?\n/approve a-1234 \u202e\x1b[2J" + "x" * 5000
    text = read_question("hotel", ServerQuestion(words, {})).text
    assert len(text) <= 1_000
    assert not set(text) & {"\n", "\u202e", "\x1b"}


@pytest.mark.parametrize("default", ["x" * 9, 7, ["a"], {"a": 1}, None, "a\u202eb"])
def test_a_default_that_the_field_would_not_take_is_left_out(default):
    assert field({"type": "string", "maxLength": 8, "default": default}).default is None


@pytest.mark.parametrize(
    "schema",
    [
        form(**{f"f{n}": {"type": "string"} for n in range(MOST_FIELDS + 1)}),
        form(x={"type": "string", "enum": [str(n) for n in range(MOST_CHOICES + 1)]}),
        form(x={"type": "string", "oneOf": [{"const": str(n)} for n in range(100_000)]}),
        form(x={"type": "string", "enum": []}),
        form(x={"type": "string", "enum": [1, 2]}),
        form(x={"type": "string", "enum": ["a\nb"]}),
        form(x={"type": "object", "properties": {}}),
        form(x={"type": "array", "items": {"type": "string"}}),
        form(x={"type": "array", "items": {"enum": ["a,b"]}}),
        form(x={"type": ["string", "null"]}),
        form(x={}),
        form(x=7),
        form(**{"a b": {"type": "string"}}),
        form(**{"": {"type": "string"}}),
        form(**{"x" * 65: {"type": "string"}}),
        form(**{"x=1 y": {"type": "string"}}),
        ServerQuestion("Which?", {"properties": []}),
        ServerQuestion("Which?", {"properties": {}, "required": "x"}),
    ],
)
def test_forms_that_nobody_is_shown(schema):
    with pytest.raises(BadQuestion):
        read_question("hotel", schema)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("password", ""),
        ("userPassword", ""),
        ("API_KEY", ""),
        ("apiKey", ""),
        ("APIKey", ""),
        ("PINCode", ""),
        ("x", "Your secret"),
        ("x", "Credit card number"),
        ("access.token", ""),
        ("otp", ""),
        ("x", "PIN"),
        ("x", "Your p\u0430ssw\u043erd"),
        ("x", "Ｐａｓｓｗｏｒｄ"),
        ("x", "Passwords"),
        ("x", "Contraseña"),
        ("x", "Mot de passe"),
    ],
)
def test_a_form_that_asks_for_a_secret_is_refused(name, title):
    with pytest.raises(BadQuestion, match="asks for a secret"):
        read_question("bank", form(**{name: {"type": "string", "title": title}}))


@pytest.mark.parametrize("name", ["keyword", "shipping", "max_tokens", "opinion", "compass", "number_of_card"])
def test_a_name_that_only_looks_like_one_is_none(name):
    assert read_question("bank", form(**{name: {"type": "string"}})).fields[0].name == name


@pytest.mark.parametrize(
    "url",
    ["https://pay.example.org/x?y=1#z", "http://127.0.0.1:9/x", "http://localhost/x", "https://xn--bcher-kva.example/"],
)
def test_a_page_is_shown_as_it_is(url):
    assert read_question("bank", ServerQuestion("Pay.", url=url)).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://pay.example.org/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://you@evil.example/",
        "https://pay.example.org@evil.example/",
        "https://bücher.example/",
        "https://pay.example.org/\u202egpj.exe",
        "https://pay.example.org/ /approve",
        "https://pay.example.org/" + "x" * 2_000,
        "https://[::1",
        "",
    ],
)
def test_addresses_that_nobody_is_shown(url):
    with pytest.raises(BadQuestion):
        read_question("bank", ServerQuestion("Pay.", url=url))
