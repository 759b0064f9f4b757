"""`[models.options]` and the options of a provider: what they may hold, and where mistakes in them are named."""

from __future__ import annotations

import pytest

from pegasus.settings import SettingsSource, load_settings, secrets_of
from pegasus.settings.render import effective

FILE = """
[models]
default = "lab/x:1"
[models.options.subagent]
effort = "high"
[models.options."lab/x:1"]
temperature = 0
headers = { X-Team = "${TEAM}" }
extra_body = { chat_template_kwargs = { enable_thinking = false, name = "${TEAM}" }, top_p = 0.5, stop = ["a"] }
[providers.lab]
type = "openai"
base_url = "http://10.0.0.5/v1"
query = { api-version = "2026-10-01" }
"""


def test_options_of_a_role_a_model_and_a_provider(load):
    settings = load(FILE, {"TEAM": "seven-secret"})
    assert settings.models.options["subagent"].effort == "high"
    own = settings.models.options["lab/x:1"]
    assert own.temperature == 0
    assert own.headers == {"X-Team": "seven-secret"}
    thinking = {"enable_thinking": False, "name": "seven-secret"}
    assert own.extra_body == {"chat_template_kwargs": thinking, "top_p": 0.5, "stop": ["a"]}
    assert settings.providers["lab"].query == {"api-version": "2026-10-01"}


def test_headers_and_query_are_secret(load):
    settings = load(FILE, {"TEAM": "seven-secret"})
    assert {"seven-secret", "2026-10-01"} <= set(secrets_of(settings))
    shown = effective(settings)
    assert 'headers = { "X-Team" = "***" }' in shown
    assert 'query = { "api-version" = "***" }' in shown


def test_a_body_outside_of_a_file(load):
    sets = ["providers.openai.extra_body={ a = 1, b = { c = [true] } }", "models.options.compact.effort=low"]
    settings = load(sets=sets)
    assert settings.providers["openai"].extra_body == {"a": 1, "b": {"c": [True]}}
    assert settings.models.options["compact"].effort == "low"
    settings = load(environ={"PEGASUS__PROVIDERS__OPENAI__HEADERS__X_TITLE": "Pegasus"})
    assert settings.providers["openai"].headers == {"X_TITLE": "Pegasus"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[models]\neffort = "much"', 'models.effort: found "much"; allowed: one of "", "low", "medium", "high"'),
        (
            "[models.options.nobody]\ntimeout = 1",
            'models.options: found the name "nobody"; allowed: "default", "subagent", "compact", "reflection", "<provider>/<model>"',
        ),
        (
            '[models.options."nowhere/x"]\ntimeout = 1',
            'models.options.nowhere/x: found "nowhere/x", whose provider is not defined; allowed: the providers anthropic, ',
        ),
        (
            "[models.options.compact]\ntimeout = -1",
            "models.options.compact.timeout: found -1; allowed: a number from 0 to",
        ),
        (
            "[providers.openai]\ntemperature = 3",
            "providers.openai.temperature: found 3; allowed: a number from -1 to 2",
        ),
        (
            "[providers.openai]\ntemperature = -0.5",
            "providers.openai.temperature: found -0.5; allowed: a number from 0 to 2",
        ),
        (
            '[providers.openai]\nheaders = { "X Y" = "a" }',
            'providers.openai.headers: found the name "X Y"; allowed: letters, digits and -',
        ),
        (
            '[providers.openai]\nheaders = { Host = "a" }',
            'providers.openai.headers: found "Host"; allowed: other headers',
        ),
        (
            '[providers.openai]\nheaders = { X-A = "s€cret" }',
            "providers.openai.headers.X-A: found a value with other characters than ASCII; allowed: ASCII only",
        ),
        (
            "[providers.openai]\nheaders = { X-A = 1 }",
            "providers.openai.headers.X-A: found a int; allowed: one line of text",
        ),
        (
            "[providers.openai]\nextra_body = { messages = [] }",
            'providers.openai.extra_body: found the field "messages"; allowed: other fields of the request. Pegasus makes',
        ),
        (
            "[providers.openai]\nextra_body = { a = 2026-11-23 }",
            "providers.openai.extra_body: found a table; allowed: a table of JSON values (no dates)",
        ),
        (
            "[providers.openai]\nextra_body = { a = inf }",
            "providers.openai.extra_body: found a table; allowed: a table of JSON",
        ),
        ("[providers.openai]\nextra_body = 1", "providers.openai.extra_body: found 1; allowed: a table of JSON values"),
        (
            '[providers.anthropic]\nwire = "responses"',
            'providers.anthropic.wire: found "responses"; allowed: "", since only type "openai" has two formats',
        ),
    ],
)
def test_mistakes_name_the_key(mistakes, text, line):
    (found,) = mistakes(text)
    assert found.removeprefix("pegasus.toml: ").startswith(line)


def test_a_variable_that_is_missing_in_a_body(mistakes):
    (found,) = mistakes('[providers.openai]\nextra_body = { a = { b = "${NOT_SET:?set it}" } }')
    assert found == "pegasus.toml: providers.openai.extra_body: found ${NOT_SET} not set; allowed: set it"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://localhost:11434"),
        ("0.0.0.0:11500", "http://localhost:11500"),
        (":11500", "http://localhost:11500"),
        ("[::]:11434", "http://localhost:11434"),
        ("box:11500/", "http://box:11500"),
        ("http://box:11500", "http://box:11500"),
        ("https://example.org/ollama", "https://example.org/ollama"),
    ],
)
def test_the_address_of_ollama_is_where_its_program_listens(host: str, address: str) -> None:
    settings = load_settings(SettingsSource(), {"OLLAMA_HOST": host})
    assert settings.providers["ollama"].base_url == address
    other = {"OLLAMA_HOST": host, "OLLAMA_BASE_URL": "http://other:1"}
    assert load_settings(SettingsSource(), other).providers["ollama"].base_url == "http://other:1"
