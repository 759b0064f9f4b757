"""`pegasus config check` and `pegasus config show`."""

from __future__ import annotations

import tomllib


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


def test_show_is_toml_without_secrets(pegasus, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    code, out, err = pegasus("config", "show", "--set", "gateway.token=hidden-0123456789")
    assert (code, err) == (0, "")
    shown = tomllib.loads(out)
    assert shown["providers"]["openai"]["api_key"] == shown["gateway"]["token"] == "***"
    assert "hidden" not in out


def test_show_of_bad_settings_says_what_is_wrong(pegasus):
    assert pegasus("config", "show", "--set", "a.b=1")[:2] == (78, "")
