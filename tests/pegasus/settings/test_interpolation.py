"""${VAR}, ${VAR:-default}, ${VAR:?message}."""

from __future__ import annotations

import pytest

from pegasus.settings.sources import InterpolationError, interpolate

ENVIRON = {"A": "1", "EMPTY": "", "WILD": "${A} $1 \\n"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $A {x} $", "plain $A {x} $"),
        ("${A}", "1"),
        ("<${A}${A}>", "<11>"),
        ("${NONE}", ""),
        ("${A:-x}", "1"),
        ("${NONE:-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${NONE:-}", ""),
        ("${NONE:-a:b-c?d}", "a:b-c?d"),
        ("${A:?must be there}", "1"),
        ("$${A}", "${A}"),
        ("$${A}${A}", "${A}1"),
        ("${WILD}", "${A} $1 \\n"),
    ],
)
def test_a_text_with_variables(text, result):
    assert interpolate(text, ENVIRON) == result


@pytest.mark.parametrize("text", ["${A", "${}", "${1A}", "${A B}", "${A:=x}", "${A:}", "${A:-${B}}", "${Ä}"])
def test_what_is_no_variable_is_refused(text):
    with pytest.raises(InterpolationError) as caught:
        interpolate(text, ENVIRON)
    assert "${VAR:-default}" in caught.value.allowed


def test_a_variable_that_must_be_set_says_its_message(mistakes):
    (line,) = mistakes('[providers.openai]\napi_key = "${KEY:?ask Ann for the key}"\n')
    assert line == "pegasus.toml: providers.openai.api_key: found ${KEY} not set; allowed: ask Ann for the key"


def test_a_variable_that_must_be_set_has_a_message_of_its_own(mistakes):
    (line,) = mistakes('[gateway]\ntoken = "${KEY:?}"\n')
    assert line.endswith("found ${KEY} not set; allowed: the environment variable KEY must be set")


def test_variables_in_lists_and_tables(load):
    text = (
        '[models]\nfallback = ["openai/${M}"]\n[mcp.servers.x]\nenabled = false\ncommand = "c"\nenv = { A = "${M}" }\n'
    )
    settings = load(text, {"M": "m"})
    assert settings.models.fallback == ("openai/m",)
    assert settings.mcp.servers["x"].env == {"A": "m"}


def test_a_variable_may_give_a_number_or_a_list(load):
    settings = load(
        '[gateway]\nport = "${PORT:-7000}"\nallow_remote = "${REMOTE}"\n[models]\nfallback = "${F}"\n',
        {"REMOTE": "true", "F": '["a/b"]', "A": ""},
        ["providers.a.type=openai"],
    )
    assert (settings.gateway.port, settings.gateway.allow_remote, settings.models.fallback) == (7000, True, ("a/b",))


def test_a_text_key_stays_text_whatever_the_variable_holds(load):
    assert load('[agent]\npersona = "${T}"\n', {"T": "123"}).agent.persona == "123"
