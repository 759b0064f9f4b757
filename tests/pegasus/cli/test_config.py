"""`pegasus config`: check, show, set, unset and keys."""

from __future__ import annotations

import io
import shlex
import tomllib

import pytest


def test_good_settings(pegasus, user):
    (user / ".pegasus").mkdir()
    (user / ".pegasus" / "pegasus.toml").write_text("[gateway]\nport = 1\n")
    assert pegasus("config", "check") == (0, f"{user}/.pegasus/pegasus.toml: ok\n", "")


def test_no_settings_at_all_are_good_too(pegasus, user):
    assert pegasus("config", "check") == (0, f"{user}/.pegasus/pegasus.toml: not there, so all defaults: ok\n", "")
    assert not (user / ".pegasus").exists()


def test_bad_settings(pegasus, user):
    (user / "x.toml").write_text("[gateway]\nport = -1\n")
    code, out, err = pegasus("config", "check", "--config", str(user / "x.toml"))
    assert (code, out) == (78, "")
    assert err == f"{user}/x.toml: gateway.port: found -1; allowed: a whole number from 0 to 65535\n"


def test_models_and_persona_are_checked_too(pegasus):
    code, _, err = pegasus(
        "config", "check", "--set", "models.fallback=['openai/x']", "--set", "agent.persona=none.json"
    )
    assert code == 78
    assert [line.split(":")[1].strip().partition("[")[0] for line in err.splitlines()] == [
        "models.fallback",
        "agent.persona",
    ]


@pytest.mark.parametrize("spec", ["nobody/whisper", "whisper", "anthropic/claude-sonnet-5-5"])
@pytest.mark.parametrize("role", ["transcribe", "speech"])
def test_what_hears_and_speaks_is_checked_too(pegasus, monkeypatch, role, spec):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    code, _, err = pegasus("config", "check", "--set", f"models.{role}={spec}")
    assert code == 78
    assert f'models.{role}: found "{spec}"' in err


def test_show_is_toml_without_secrets(pegasus, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    code, out, err = pegasus("config", "show", "--set", "gateway.token=hidden-0123456789")
    assert (code, err) == (0, "")
    shown = tomllib.loads(out)
    assert shown["providers"]["openai"]["api_key"] == shown["gateway"]["token"] == "***"
    assert "hidden" not in out


def test_show_of_bad_settings_says_what_is_wrong(pegasus):
    assert pegasus("config", "show", "--set", "a.b=1")[:2] == (78, "")


# ------------------------------------------------------------------ set and unset


@pytest.fixture
def file(user):
    (user / ".pegasus").mkdir()
    file = user / ".pegasus" / "pegasus.toml"
    file.write_text("# mine\n[gateway]\nport = 1  # one\n")
    return file


def test_set_changes_one_value_and_keeps_the_rest(pegasus, file):
    code, out, err = pegasus("config", "set", "gateway.port", "2")
    assert (code, err) == (0, "")
    assert out == f"gateway.port: 1 → 2 ({file})\nIn effect from the next start: pegasus\n"
    assert file.read_text() == "# mine\n[gateway]\nport = 2  # one\n"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("providers.lab.type", "openai", '"openai"'),
        ("models.options.subagent.effort", "low", '"low"'),
        ('prices."openai/echo".input', "2", "2.0"),
        ("models.routes.a.model", "openai/x", '"openai/x"'),
        ("providers.openai.headers.X-Title", "me", "***"),
    ],
)
def test_the_first_key_of_a_new_table(pegasus, file, key, value, shown, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    code, out, err = pegasus("config", "set", key, value)
    assert (code, err) == (0, "")
    assert out.startswith(f"{key.replace(chr(34), '')}: nothing → {shown} ({file})\nIn effect from the next start")


def test_a_provider_without_a_type_is_told_the_command_that_works(pegasus, file):
    before = file.read_bytes()
    code, out, err = pegasus("config", "set", "providers.lab.base_url", "http://127.0.0.1:1/v1")
    assert (code, out, file.read_bytes()) == (1, "", before)
    command = shlex.split(err.splitlines()[-1].partition("set both: ")[2])
    assert pegasus(*command[1:])[0] == 0
    assert tomllib.loads(file.read_text())["providers"]["lab"] == {
        "type": "openai",
        "base_url": "http://127.0.0.1:1/v1",
    }
    hint = pegasus("config", "set", "providers.work.api_key", "sk-hidden")[2].splitlines()[-1]
    assert hint == "Set its type before: pegasus config set providers.work.type openai"


def test_values_are_shown_as_toml(pegasus, file):
    said = pegasus("config", "set", "agent.owners", '["cli", "web"]')[1]
    assert 'agent.owners: ["cli:*", "web:*", "api:*"] → ["cli", "web"] (' in said
    assert "channels.cli.enabled: true → false (" in pegasus("config", "set", "channels.cli.enabled", "false")[1]
    pegasus("config", "set", "providers.lab.type", "openai")
    pegasus("config", "set", "providers.lab.api_key", "sk-hidden")
    out = pegasus("config", "unset", "providers.lab")[1]
    assert out.startswith('providers.lab: {type = "openai", api_key = ***, base_url = "", ')
    assert "} → nothing (" in out


def test_nothing_is_written_if_the_change_cannot_be_shown(pegasus, file, monkeypatch):
    def fail(*_):
        raise AttributeError

    before = file.read_bytes()
    monkeypatch.setattr("pegasus.cli.config.shown_value", fail)
    assert pegasus("config", "set", "gateway.port", "5")[0] == 1
    assert file.read_bytes() == before


def test_set_makes_the_file(pegasus, user):
    assert pegasus("config", "set", "models.default", "ollama/x")[0] == 0
    file = user / ".pegasus" / "pegasus.toml"
    assert file.read_text() == '[models]\ndefault = "ollama/x"\n'
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gateway.port", "many", 'gateway.port was not set: found "many"; allowed: a whole number from 0 to 65535\n'),
        ("models.default", "nonsense", 'models.default was not set: found "nonsense"; allowed: "<provider>/<model>"'),
        ("gateway.host", "0.0.0.0", "allow_remote"),
        ("models.default", "nobody/x", "nobody"),
        ("agent.persona", "nowhere.json", "nowhere.json"),
    ],
)
def test_what_the_daemon_would_refuse_is_not_written(pegasus, file, key, value, words):
    before = file.read_bytes()
    code, out, err = pegasus("config", "set", key, value)
    assert (code, out) == (1, "")
    assert err.startswith(f"pegasus: {key} was not set: ")
    assert words in err
    assert str(file) not in err
    assert file.read_bytes() == before


def test_a_refused_value_is_not_blamed_on_a_file_that_does_not_exist(pegasus, user):
    code, out, err = pegasus("config", "set", "models.default", "nonsense")
    assert (code, out) == (1, "")
    assert err == 'pegasus: models.default was not set: found "nonsense"; allowed: "<provider>/<model>"\n'
    assert not (user / ".pegasus").exists()


def test_mistakes_that_the_file_has_already_are_told_with_it(pegasus, file):
    file.write_text('[gateway]\nport = "x"\n')
    code, _, err = pegasus("config", "set", "log.level", "loud")
    assert code == 1
    assert err.splitlines() == [
        "pegasus: log.level was not set:",
        f'{file}: gateway.port: found "x"; allowed: a whole number from 0 to 65535',
        'found "loud"; allowed: one of "debug", "info", "warning", "error"',
    ]


def test_a_key_that_is_needed_is_not_removed(pegasus, file):
    file.write_text('[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n')
    code, _, err = pegasus("config", "unset", "providers.lab.type")
    assert code == 1
    assert err.startswith("pegasus: providers.lab.type was not removed: found nothing; allowed: ")


def test_a_mistake_in_the_file_can_be_mended(pegasus, file):
    file.write_text('[gateway]\nport = "x"\n')
    assert pegasus("config", "set", "gateway.port", "5")[:2] == (
        0,
        f"gateway.port: ? → 5 ({file})\nIn effect from the next start: pegasus\n",
    )


def test_a_file_that_is_no_toml_is_left_alone(pegasus, file):
    file.write_text("[gateway\n")
    code, _, err = pegasus("config", "set", "gateway.port", "5")
    assert (code, file.read_text()) == (78, "[gateway\n")
    assert "line 1" in err


def test_an_unknown_key_is_one_line_with_near_ones(pegasus, file):
    code, out, err = pegasus("config", "set", "gateway.prot", "5")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "Did you mean gateway.port" in err


def test_a_secret_is_not_printed(pegasus, file):
    _, out, _ = pegasus("config", "set", "providers.openai.api_key", "sk-hidden-123")
    assert "hidden" not in out
    assert "providers.openai.api_key: none → ***" in out
    assert 'api_key = "sk-hidden-123"' in file.read_text()


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("providers.openai.base_url", "https://me:hidden@host/v1", '"" → "https://***@host/v1"'),
        ("providers.openai.headers", '{"x-key"="hidden"}', "none → {"),
        ("models.options", '{"default"={headers={authorization="hidden"}}}', "{} → {default.effort ="),
    ],
)
def test_a_secret_inside_of_another_value_is_not_printed(pegasus, file, key, value, shown):
    code, out, _ = pegasus("config", "set", key, value)
    assert code == 0
    assert "hidden" not in out
    assert f"{key}: {shown}" in out
    assert "hidden" in file.read_text()


def test_a_value_can_be_piped(pegasus, file, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-piped\n"))
    assert pegasus("config", "set", "providers.openai.api_key")[0] == 0
    assert 'api_key = "sk-piped"' in file.read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert pegasus("config", "set", "providers.openai.api_key")[0] == 1


def test_what_overrides_the_file_is_named(pegasus, file, monkeypatch):
    monkeypatch.setenv("PEGASUS__GATEWAY__PORT", "9")
    out = pegasus("config", "set", "gateway.port", "5")[1]
    assert "It has no effect: PEGASUS__GATEWAY__PORT overrides it." in out


def test_unset_lets_the_default_count_again(pegasus, file):
    assert pegasus("config", "unset", "gateway.port")[1].startswith(f"gateway.port: 1 → 7717 ({file})")
    assert file.read_text() == "# mine\n[gateway]\n"
    assert "nothing to change" in pegasus("config", "unset", "gateway.port")[1]


def test_a_link_to_the_settings_stays_one(pegasus, file, user):
    real = user / "dotfiles.toml"
    file.rename(real)
    file.symlink_to(real)
    pegasus("config", "set", "gateway.port", "5")
    assert file.is_symlink()
    assert "port = 5" in real.read_text()


def test_keys_prints_every_key_as_comments(pegasus):
    code, out, _ = pegasus("config", "keys")
    assert (code, tomllib.loads(out)) == (0, {})
    assert "# [gateway]" in out
    assert "# port = 7717" in out


def test_get_prints_one_setting_and_no_secret(pegasus):
    assert pegasus("config", "get", "gateway.port", "--set", "gateway.port=5")[:2] == (0, "5\n")
    assert pegasus("config", "get", "gateway.token", "--set", "gateway.token=hidden-0123456789")[1] == "***\n"
    code, out, err = pegasus("config", "get", "gateway.prot")
    assert (code, out) == (1, "")
    assert "gateway.port" in err


def test_a_value_may_begin_with_a_dash(pegasus):
    code, _, err = pegasus("config", "set", "gateway.port", "-1")
    assert (code, "-1" in err) == (1, True)
    assert "option" not in err


def test_a_list_without_brackets_is_answered_with_the_quotes_that_a_shell_needs(pegasus):
    code, _, err = pegasus("config", "set", "agent.owners", "me")
    assert code == 1
    assert err.splitlines()[-1] == """In a shell, with quotes around it: pegasus config set agent.owners '["a", "b"]'"""
