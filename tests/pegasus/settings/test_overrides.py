"""PEGASUS__… variables and --set, and who wins."""

from __future__ import annotations

import pytest

from pegasus.settings import SettingsSource, load_settings


def test_the_file_overrides_the_default_the_environment_the_file_and_set_both(load):
    file, environ, sets = "[gateway]\nport = 1\n", {"PEGASUS__GATEWAY__PORT": "2"}, ["gateway.port=3"]
    assert load().gateway.port == 7717
    assert load(file).gateway.port == 1
    assert load(file, environ).gateway.port == 2
    assert load(file, environ, sets).gateway.port == 3


def test_the_last_set_of_a_key_wins(load):
    assert load(sets=["gateway.port=1", "gateway.port=2"]).gateway.port == 2


def test_an_override_leaves_the_other_keys_of_the_section(load):
    assert load("[gateway]\nmax_frame_bytes = 2048\n", {"PEGASUS__GATEWAY__PORT": "2"}).gateway.max_frame_bytes == 2048


@pytest.mark.parametrize("name", ["PEGASUS__GATEWAY__PORT", "pegasus__gateway__port", "Pegasus__Gateway__Port"])
def test_the_case_of_a_variable_does_not_matter(load, name):
    assert load(environ={name: "9"}).gateway.port == 9


def test_other_variables_do_not_matter(load):
    load(environ={"PEGASUS_HOME": "/x", "PEGASUS_CONFIG": "/y", "PEGASUS": "z", "PATH": "/bin"})


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("gateway.port=0", "gateway", "port", 0),
        ("gateway.allow_remote=true", "gateway", "allow_remote", True),
        ("models.timeout=1.5", "models", "timeout", 1.5),
        ("models.timeout= 2 ", "models", "timeout", 2.0),
        ('models.fallback=["openai/a", "openai/b"]', "models", "fallback", ("openai/a", "openai/b")),
        ("tools.timeouts={ a = 1 }", "tools", "timeouts", {"a": 1.0}),
        ("tools.timeouts.a=1", "tools", "timeouts", {"a": 1.0}),
        ("models.default=openai/gpt-4.1", "models", "default", "openai/gpt-4.1"),
        ('models.default="openai/x"', "models", "default", "openai/x"),
        ("agent.persona=12345", "agent", "persona", "12345"),
        ("agent.persona=true", "agent", "persona", "true"),
        ("agent.persona=a=b", "agent", "persona", "a=b"),
        ('agent.persona="unclosed', "agent", "persona", '"unclosed'),
        ("gateway.token=", "gateway", "token", ""),
        ("gateway={ port = 5 }", "gateway", "port", 5),
    ],
)
def test_a_value_is_a_toml_value_and_text_where_the_key_wants_text(load, override, section, key, value):
    assert getattr(getattr(load(sets=[override]), section), key) == value
    name, _, text = override.partition("=")
    variable = "PEGASUS__" + name.replace(".", "__").upper()
    assert getattr(getattr(load(environ={variable: text}), section), key) == value


def test_a_variable_finds_a_name_of_the_file_whatever_its_case_and_dashes(load):
    file = '[providers.My-Proxy]\ntype = "openai"\n'
    settings = load(file, {"PEGASUS__PROVIDERS__MY_PROXY__BASE_URL": "http://a"})
    assert settings.providers["My-Proxy"].base_url == "http://a"
    assert "my_proxy" not in settings.providers


def test_a_variable_may_define_a_new_provider(load):
    settings = load(environ={"PEGASUS__PROVIDERS__WORK__TYPE": "openai"})
    assert settings.providers["work"].type == "openai"


def test_mistakes_name_the_variable_or_set(mistakes):
    lines = mistakes(
        environ={"PEGASUS__GATEWAY__PRT": "1", "PEGASUS__LOG": "x", "PEGASUS____A": "x"}, sets=["log.format=xml", "log"]
    )
    assert lines == [
        "PEGASUS____A: found an empty name between underscores; allowed: PEGASUS__SECTION__KEY",
        '--set: found "log"; allowed: section.key=value',
        "PEGASUS__GATEWAY__PRT: gateway.prt: found an unknown key; "
        'allowed: host, port, token, allow_remote, allowed_origins, max_frame_bytes, compression. Did you mean "port"?',
        'PEGASUS__LOG: log: found "x"; allowed: a table of keys: level, format',
        '--set: log.format: found "xml"; allowed: "line" or "json"',
    ]


def test_keys_of_the_standard_providers_come_from_the_environment(load):
    settings = load(environ={"ANTHROPIC_API_KEY": "ka", "OPENAI_BASE_URL": "http://b"})
    assert settings.providers["anthropic"].api_key == "ka"
    assert settings.providers["openai"].base_url == "http://b"
    assert settings.origins["providers.anthropic.api_key"] == "ANTHROPIC_API_KEY"


def test_a_key_in_the_file_wins_over_the_environment(load):
    settings = load('[providers.anthropic]\napi_key = "mine"\n', {"ANTHROPIC_API_KEY": "ka"})
    assert settings.providers["anthropic"].api_key == "mine"


def test_a_reload_reads_the_same_file_and_options_again(tmp_path):
    file = tmp_path / "pegasus.toml"
    file.write_text("[gateway]\nport = 1\n[log]\nlevel = 'info'\n")
    old = load_settings(SettingsSource(file, overrides=("gateway.port=2",)), {})
    file.write_text("[gateway]\nport = 3\n[log]\nlevel = 'debug'\n")
    new = load_settings(old.source, {})
    assert (new.gateway.port, new.log.level) == (2, "debug")
