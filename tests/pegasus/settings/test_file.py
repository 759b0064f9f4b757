"""What a settings file may say, and how each kind of mistake in it is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pegasus.settings import PROVIDER_TYPES, SERVICE_TYPES, Settings, SettingsError, SettingsSource, load_settings
from pegasus.settings.load import changed_keys

GATEWAY = "host, port, token, allow_remote, allowed_origins, max_frame_bytes, compression"
SECTIONS = (
    "run, models, providers, budget, prices, agent, limits, tasks, tools, policy, sandbox, schedule, session, media, gateway, http, "
    "push, hooks, a2a, agents, channels, mcp, telemetry, storage, node, retention, log"
)


def test_a_missing_file_means_all_defaults(load):
    assert changed_keys(load(), Settings()) == ()


def test_an_empty_file_means_all_defaults(load):
    assert changed_keys(load(""), Settings()) == ()


def test_a_file_that_was_named_must_exist(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.toml: found no such file"):
        load_settings(SettingsSource(tmp_path / "none.toml", required=True), {})


def test_values_of_every_type_arrive_in_their_own_type(load):
    settings = load(
        """
        [run]
        shutdown_grace = 5
        [models]
        default = "anthropic/claude"
        fallback = ["openai/gpt"]
        [tools.timeouts]
        current_time = 2.5
        [gateway]
        allow_remote = true
        port = 0
        """
    )
    assert (settings.run.shutdown_grace, type(settings.run.shutdown_grace)) == (5.0, float)
    assert settings.models.fallback == ("openai/gpt",)
    assert settings.tools.timeouts == {"current_time": 2.5}
    assert settings.gateway.allow_remote is True
    assert settings.gateway.port == 0


def test_a_section_keeps_the_defaults_of_the_keys_it_does_not_name(load):
    assert load("[gateway]\nport = 1\n").gateway.max_frame_bytes == 1048576


def test_a_provider_of_ones_own_stands_beside_the_standard_ones(load):
    settings = load('[providers.local]\ntype = "openai"\nbase_url = "http://127.0.0.1:8000/v1"\n')
    assert set(settings.providers) == {*PROVIDER_TYPES, *SERVICE_TYPES, "local"}
    assert settings.providers["local"].type == "openai"


def test_a_provider_named_like_a_type_needs_no_type(load):
    assert load('[providers.openai]\nbase_url = "http://127.0.0.1:1/v1"\n').providers["openai"].type == "openai"


def test_a_disabled_tool_server_is_accepted(load):
    server = load('[mcp.servers.x]\nenabled = false\ncommand = "run"\nargs = ["-v"]\nenv = { A = "b" }\n').mcp.servers[
        "x"
    ]
    assert (server.tools, server.args, server.env) == (("*",), ("-v",), {"A": "b"})


def test_a_byte_order_mark_is_no_mistake(load):
    assert load(b"\xef\xbb\xbf[gateway]\nport = 1\n").gateway.port == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[gateway]\nprot = 1\n",
            f'gateway.prot: found an unknown key; allowed: {GATEWAY}. Did you mean "port"?',
        ),
        (
            "[gatway]\n",
            f'gatway: found an unknown key; allowed: {SECTIONS}. Did you mean "gateway"?',
        ),
        (
            "[zzz]\n",
            f"zzz: found an unknown key; allowed: {SECTIONS}",
        ),
        (
            '[channels.telegarm]\naccess = "open"\n',
            'channels.telegarm: found a channel type; allowed: "telegram", or a name that is less like it',
        ),
        ('[gateway]\nport = "7717"\n', 'gateway.port: found "7717"; allowed: a whole number from 0 to 65535'),
        ("[gateway]\nport = 65536\n", "gateway.port: found 65536; allowed: a whole number from 0 to 65535"),
        ("[gateway]\nport = 1.5\n", "gateway.port: found 1.5; allowed: a whole number from 0 to 65535"),
        ("[gateway]\nport = true\n", "gateway.port: found true; allowed: a whole number from 0 to 65535"),
        ("[models]\ntimeout = 0\n", "models.timeout: found 0; allowed: a number above 0, at most 86400"),
        ("[models]\ntimeout = nan\n", "models.timeout: found nan; allowed: a number above 0, at most 86400"),
        ("[models]\ntimeout = inf\n", "models.timeout: found inf; allowed: a number above 0, at most 86400"),
        ("[tasks]\nmax_queued = -1\n", "tasks.max_queued: found -1; allowed: a whole number, at least 0"),
        ("[models]\ndefault = 3\n", "models.default: found 3; allowed: one line of text"),
        ('[models]\ndefault = "a\\nb"\n', 'models.default: found "a\\nb"; allowed: one line of text'),
        ("[log]\nlevel = 'loud'\n", 'log.level: found "loud"; allowed: one of "debug", "info", "warning", "error"'),
        ("[http]\nenabled = 1\n", "http.enabled: found 1; allowed: true or false"),
        ('[models]\nfallback = "a/b"\n', 'models.fallback: found "a/b"; allowed: a list of texts, as ["a", "b"]'),
        (
            "[models]\nfallback = [1, 2, 3, 4]\n",
            'models.fallback: found [1, 2, 3, …]; allowed: a list of texts, as ["a", "b"]',
        ),
        ("[tools]\ntimeouts = 3\n", "tools.timeouts: found 3; allowed: a table"),
        ("[tools.timeouts]\na = 0\n", "tools.timeouts.a: found 0; allowed: a number above 0"),
        (
            "gateway = 3\n",
            f"gateway: found 3; allowed: a table of keys: {GATEWAY}",
        ),
        ("providers = 3\n", "providers: found 3; allowed: tables, as [providers.NAME]"),
        (
            "[agent]\nmax_thoughts = 2020-01-01\n",
            "agent.max_thoughts: found 2020-01-01; allowed: a whole number from 1 to 1000",
        ),
        (
            '[providers."a b"]\ntype = "openai"\n',
            'providers: found the name "a b"; allowed: letters, digits, - and _, at most 64',
        ),
        ('[gateway]\nhost = ""\n', 'gateway.host: found ""; allowed: one line of text, not empty'),
        ("[gateway]\ntoken = 12345\n", "gateway.token: found a int; allowed: one line of text"),
        (
            "[a\n",
            "line 1, column 3: expected ']' at the end of a table declaration",
        ),
        ("[models]\ndefault = ollama/x\n", "line 2, column 11: invalid value; a text stands in quotes"),
        ("a = " + "[" * 50_000, "brackets nested too deep"),
    ],
)
def test_each_kind_of_mistake_is_one_line_that_names_file_key_finding_and_what_is_allowed(mistakes, text, line):
    assert mistakes(text) == [f"pegasus.toml: {line}"]


@pytest.mark.parametrize("text", ["[gateway]\nport = \n", "[a\n", "a = 'b", "\0"])
def test_broken_toml_is_told_with_its_place(mistakes, text):
    (line,) = mistakes(text)
    assert re.fullmatch(r"pegasus\.toml: (line \d, column \d|end of document): [a-z].+", line)


def test_all_mistakes_are_told_at_once(mistakes):
    lines = mistakes(
        '[gateway]\nport = -1\nhots = "x"\n[session]\nmemory_window = -1\n',
        {"PEGASUS__HTTP__PORT": "x"},
        ["log.level=1"],
    )
    assert [line.split(":")[1].strip() for line in lines] == [
        "gateway.port",
        "gateway.hots",
        "session.memory_window",
        "http.port",
        "log.level",
    ]


def test_a_wrong_value_is_told_only_once_although_other_checks_need_it(mistakes):
    assert len(mistakes("[gateway]\nhost = 3\n")) == 1
    assert len(mistakes('[providers.work]\ntype = "soap"\n')) == 1


def test_bytes_that_are_not_text(mistakes):
    assert mistakes(b'a = "\xff"\n') == [
        "pegasus.toml: found a byte that is not UTF-8 at 5; allowed: a TOML file in UTF-8"
    ]


def test_a_huge_file_is_not_read(mistakes):
    assert mistakes(b"#" * (1 << 21)) == ["pegasus.toml: found more than 1048576 bytes; allowed: a smaller TOML file"]


def test_a_folder_in_place_of_the_file(tmp_path):
    with pytest.raises(SettingsError, match="found a folder; allowed: a TOML file"):
        load_settings(SettingsSource(tmp_path), {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    file = tmp_path / "pegasus.toml"
    file.write_text("")
    file.chmod(0)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(SettingsSource(file), {})


def test_a_path_that_no_system_has():
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(SettingsSource(Path("/tmp/\0")), {})


def test_a_long_value_is_shown_by_its_beginning(mistakes):
    (line,) = mistakes(f'[log]\nlevel = "{"x" * 5000}"\n')
    assert "(5000 characters)" in line
    assert len(line) < 300


def test_a_secret_is_never_part_of_a_mistake(mistakes):
    (line,) = mistakes('[providers.openai]\napi_key = "sk-very\\nsecret"\n')
    assert "secret with control characters" in line
    assert "sk-very" not in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[models]\n\n[gateway]\nport = 1\n[models]\n", "`[models]` is declared twice, in lines 1 and 5"),
        ("[models.routes.a]\n[ models . routes . a ]\n", "`[models.routes.a]` is declared twice, in lines 1 and 2"),
        ("[log]\n[gateway]\nport = 1\nhost = 'x'\nport = 2\n", "`port` is declared twice, in lines 3 and 5"),
        ("[gateway]\nport = 1\nport = 2", "`port` is declared twice, in lines 2 and 3"),
        ("[models]\ntimeout = 1\n[models]\n", "`[models]` is declared twice, in lines 1 and 3"),
        ("models.timeout = 1\n[models]\n", "`[models]` is declared twice, in lines 1 and 2"),
        ("models = { timeout = 1 }\n[models]\n", "`[models]` is declared twice, in lines 1 and 2"),
        ("[models.routes.a]\n[models]\nroutes = 1\n", "`routes` is declared twice, in lines 1 and 3"),
        ("\"models\".timeout = '''\n'''\n\n[models]\n", "`[models]` is declared twice, in lines 1 and 4"),
    ],
)
def test_what_is_declared_twice_names_both_lines(mistakes, text, line):
    (found,) = mistakes(text)
    assert found == f"pegasus.toml: {line}; leave one of them"


def test_a_file_that_everybody_may_write_is_refused(load, tmp_path):
    load("[gateway]\nport = 1\n")
    (tmp_path / "pegasus.toml").chmod(0o666)
    with pytest.raises(SettingsError, match=r"found a file that everybody may write; allowed: .* chmod o-w"):
        load_settings(SettingsSource(tmp_path / "pegasus.toml"), {})


def test_a_device_is_no_file_that_others_can_change():
    assert changed_keys(load_settings(SettingsSource(Path("/dev/null"), required=True), {}), Settings()) == ()
