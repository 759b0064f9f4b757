"""Keys that only make sense together, and what this version does not do yet."""

from __future__ import annotations

import json

import pytest

from pegasus.formatting import MASK
from pegasus.loopback import is_loopback
from pegasus.settings import effective, secrets_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_addresses_of_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.5", "10.0.0.1", "example.org", "localhost.example.org", "127.0.0.1.nip.io", "0"],
)
def test_addresses_that_others_can_reach(host):
    assert not is_loopback(host)


@pytest.mark.parametrize("section", ["gateway", "http"])
def test_listening_for_others_needs_consent(load, mistakes, section):
    (line,) = mistakes(sets=[f"{section}.host=0.0.0.0"])
    assert line.startswith(f'--set: {section}.host: found "0.0.0.0", which other machines can reach; allowed: ')
    assert f"{section}.allow_remote = true" in line
    load(sets=[f"{section}.host=0.0.0.0", f"{section}.allow_remote=true"])


@pytest.mark.parametrize("token", ["x", "0123456789abcde"])
def test_a_token_that_can_be_guessed(mistakes, token):
    (line,) = mistakes(sets=[f"gateway.token={token}"])
    assert line.startswith(f"--set: gateway.token: found a token of {len(token)} characters; allowed: at least 16")


@pytest.mark.parametrize("origin", ["example.org", "https://", "https://example.org/", "https://example.org/x", "://x"])
def test_an_origin_that_no_browser_sends(mistakes, origin):
    (line,) = mistakes(f'[gateway]\nallowed_origins = ["https://ok.example:8443", "{origin}"]\n')
    assert f'gateway.allowed_origins: found "{origin}"; allowed: scheme and host' in line


@pytest.mark.parametrize("url", ["pegasus.example", "ftp://a", "https://a/path", "https://a?x=1", "https://"])
def test_a_public_address_that_is_none(mistakes, url):
    (line,) = mistakes(f'[http]\npublic_url = "{url}"\n')
    assert f'http.public_url: found "{url}"; allowed: scheme and host without a path' in line


@pytest.mark.parametrize("rest", ["", 'secret = ""'])
def test_a_webhook_without_a_secret(mistakes, rest):
    (line,) = mistakes(f"[hooks.ci]\ntemplate = 'x'\n{rest}\n")
    assert "hooks.ci.secret: found nothing; allowed: a secret" in line


@pytest.mark.parametrize("channel", ["telegram", "telegram:", ":1"])
def test_a_webhook_for_no_conversation(mistakes, channel):
    (line,) = mistakes(f'[hooks.ci]\nsecret = "x"\nchannel = "{channel}"\n')
    assert line.startswith("pegasus.toml: hooks.ci.channel")


@pytest.mark.parametrize("host", ["http://a", "*.example", "a b", "10.0.0.0/8", "a:b", ""])
def test_a_name_that_no_host_header_has(mistakes, host):
    (line,) = mistakes(
        f'[http]\nallowed_hosts = ["ok.example", "ok.example:8443", "[fd00::1]:80", "10.0.0.1", "{host}"]\n'
    )
    assert f'http.allowed_hosts: found "{host}"; allowed: names' in line


@pytest.mark.parametrize("host", ["http://a", "10.0.0.0/40", "a b", "a:80", "", "1.2.3", "*.", "a..b"])
def test_what_is_no_host(mistakes, host):
    [line] = mistakes(f'[tools]\nallowed_hosts = ["example.org", "{host}"]\n')
    assert line.startswith(f'pegasus.toml: tools.allowed_hosts: found "{host}"; allowed: host names')


def test_hosts_that_web_tools_may_reach(load):
    hosts = (
        "localhost",
        "*.corp.example",
        "10.0.0.0/8",
        "127.0.0.1",
        "[::1]",
        "fd00::/8",
        "my_host",
        "münchen.example",
    )
    assert load(f"[tools]\nallowed_hosts = {json.dumps(hosts)}\n").tools.allowed_hosts == hosts


@pytest.mark.parametrize("owner", ["", ":u1", "telegram:", " cli"])
def test_what_names_no_owner(mistakes, owner):
    [line] = mistakes(f'[agent]\nowners = ["cli", "{owner}"]\n')
    assert line.startswith(f'pegasus.toml: agent.owners: found "{owner}"; allowed: a channel type')


def test_owners_are_types_spaces_and_users(load):
    owners = ("cli", "telegram:12345", "slack:#ops", "web:a:b")
    assert load(f"[agent]\nowners = {json.dumps(owners)}\n").agent.owners == owners
    assert load("[agent]\nowners = []\n").agent.owners == ()


@pytest.mark.parametrize("channel", ["telegram", "slack", "sms"])
def test_who_may_write_is_named_by_texts_or_numbers_on_every_service(load, mistakes, channel):
    section = load(
        f'[channels.{channel}]\naccess = "allow_list"\ngroups = "off"\nallow_from = ["anna", 4711]\n'
    ).channels[channel]
    assert (section.access, section.groups, section.allow_from) == ("allow_list", "off", ("anna", "4711"))
    for wrong in ("true", "1.5", '[["a"]]'):
        assert mistakes(f"[channels.{channel}]\nallow_from = [{wrong}]\n")


def test_searxng_needs_its_address(mistakes):
    [line] = mistakes('[tools.web_search]\nprovider = "searxng"\n')
    assert line.startswith(
        "pegasus.toml: tools.web_search.base_url: found nothing; allowed: the address of your SearXNG"
    )
    assert mistakes('[tools.web_search]\nbase_url = "ftp://a"\n')


@pytest.mark.parametrize("name", ["claude", "anthropic/", "/x"])
def test_a_model_without_provider_or_name(mistakes, name):
    assert mistakes(sets=[f"models.default={name}"]) == [
        f'--set: models.default: found "{name}"; allowed: "<provider>/<model>"'
    ]


def test_a_model_of_an_unknown_provider(mistakes):
    (line,) = mistakes('[models]\nfallback = ["acme/x"]\n')
    assert 'models.fallback: found "acme/x", whose provider is not defined' in line
    assert "Define it as [providers.acme]." in line


def test_a_provider_of_ones_own_needs_a_type(mistakes):
    (line,) = mistakes('[providers.work]\nbase_url = "https://a"\n')
    assert line == (
        'pegasus.toml: providers.work.type: found nothing; allowed: one of "anthropic", "openai", "gemini", "ollama", '
        '"llamacpp", "lmstudio", "offline"'
    )


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://a", "http://", "https:///"])
def test_a_base_url_that_is_no_web_address(mistakes, url):
    (line,) = mistakes(sets=[f"providers.openai.base_url={url}"])
    assert line == f'--set: providers.openai.base_url: found "{url}"; allowed: an http:// or https:// address'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "command"),
        ('command = "x"\nurl = "http://a"', "url"),
        ('command = "x"\nheaders = { A = "b" }', "headers"),
        ('url = "http://a"\nargs = ["x"]', "args"),
        ('url = "ftp://a"', "url"),
        ('url = "http://a"\nauth = "client_credentials"\nclient_id = "c"', "client_secret"),
        ('url = "http://a"\nissuer = "a"', "issuer"),
        ('command = "x"\ntimeout = 0', "timeout"),
    ],
)
def test_an_mcp_server_has_a_command_or_an_address_and_its_keys(mistakes, text, key):
    lines = mistakes(f"[mcp.servers.x]\n{text}\n")
    assert any(f"mcp.servers.x.{key}: found" in line for line in lines)


@pytest.mark.parametrize("name", ["a__b", "a_", "x" * 33])
def test_the_name_of_an_mcp_server_begins_those_of_its_tools(mistakes, name):
    (line,) = mistakes(f'[mcp.servers."{name}"]\ncommand = "c"\n')
    assert 'allowed: a name of at most 32 letters, digits, "-" and "_", without "__" and "_" at the end' in line


@pytest.mark.parametrize("key", ["reads", "fetches", "acts", "asks"])
@pytest.mark.parametrize("name", ["", "*_mail", "get_*_by_id", "**"])
def test_a_pattern_that_fits_no_tool_of_an_mcp_server(load, mistakes, key, name):
    (line,) = mistakes(f'[mcp.servers.x]\ncommand = "c"\n{key} = ["get_*", "send", "{name}"]\n')
    assert f'mcp.servers.x.{key}: found "{name}"; allowed: the name of a tool or its beginning' in line
    load(f'[mcp.servers.x]\ncommand = "c"\ntrust = "hints"\n{key} = ["get_*", "send", "*"]\n')


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[channels.web]\nenabled = true\n",
            "channels.web.enabled: found true, which is not in this version yet; allowed: false",
        ),
    ],
)
def test_what_is_not_there_yet_is_refused(mistakes, text, line):
    assert mistakes(text) == [f"pegasus.toml: {line}"]


def test_later_sections_are_accepted(load):
    assert load("[tasks]\nmax_active = 9\n[http]\nport = 0\n").tasks.max_active == 9


def test_secrets_for_the_mask_of_the_logs(load):
    search = '[tools.web_search]\napi_key = "tvly"\n'
    server = 'enabled = false\ncommand = "c"\nenv = { A = "bearer" }\n'
    text = f'[gateway]\ntoken = "t0ken-0123456789"\n{search}[mcp.servers.x]\n{server}'
    assert set(secrets_of(load(text, {"OPENAI_API_KEY": "sk", "OPENAI_BASE_URL": "https://u:pw@host/v1"}))) == {
        "t0ken-0123456789",
        "bearer",
        "sk",
        "tvly",
        "pw",
    }


@pytest.mark.parametrize(
    ("url", "passwords"),
    [
        ("postgresql://u:p%40ss-word@a,b:5433/x", {"p%40ss-word", "p@ss-word"}),
        ("postgresql:///x?user=u&password=p%20word&sslpassword=key-word", {"p word", "key-word"}),
        ("postgresql://", set()),
    ],
)
def test_an_address_of_a_database_is_secret_and_so_are_the_passwords_in_it(load, url, passwords):
    settings = load(f'[storage]\nurl = "{url}"\n')
    assert set(secrets_of(settings)) == {url, *passwords}
    assert url not in effective(settings)
    assert f'url = "{MASK}"' in effective(settings)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '[storage]\nurl = "mysql://u:pass-word@host/x"\n',
            'storage.url: found another address; allowed: one that begins with "postgresql://", or ""',
        ),
        ("[node]\nlease = 1\n", "node.lease: found 1; allowed: a number from 3 to 300"),
        (
            f'[node]\nname = " {"n" * 3}"\n',
            'node.name: found " nnn"; allowed: at most 100 characters, without spaces around them',
        ),
        (
            '[node]\naddress = "10.0.0.5"\n',
            'node.address: found "10.0.0.5"; allowed: an http:// or https:// address',
        ),
    ],
)
def test_a_node_and_its_database_must_make_sense(mistakes, text, line):
    assert mistakes(text) == [f"pegasus.toml: {line}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "channels.telegram.bot_token: found nothing; allowed: a value, since the adapter is enabled"),
        (
            'bot_token = "1:x"\nmode = "webhook"',
            'channels.telegram.mode: found "webhook"; allowed: "poll"; for "webhook" http.enabled = true and http.public_url, '
            "which Telegram calls",
        ),
        (
            'bot_token = "1:x"\nbase_url = "api.telegram.org"',
            'channels.telegram.base_url: found "api.telegram.org"; allowed: an http:// or https:// address',
        ),
    ],
)
def test_an_adapter_that_cannot_work_is_refused(mistakes, text, line):
    assert mistakes(f"[channels.telegram]\nenabled = true\n{text}\n") == [f"pegasus.toml: {line}"]


def test_the_usual_variable_is_the_token_of_a_section_that_exists(load):
    text = "[channels.telegram]\nenabled = true\n"
    settings = load(text, {"TELEGRAM_BOT_TOKEN": "1:from-the-environment"})
    assert settings.channels["telegram"].bot_token == "1:from-the-environment"
    assert "telegram" not in load("", {"TELEGRAM_BOT_TOKEN": "1:x"}).channels, "a variable alone changes no access"


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ('decision = "deny"', 'tool = ""'),
        ('tool = "x"', 'decision = ""'),
        ('tool = "x"\ndecision = "never"', 'decision = "never"'),
        ('tool = "x"\ndecision = "deny"\nwho = "guests"', 'who = "guests"'),
    ],
)
def test_a_rule_that_never_fits(mistakes, rule, found):
    (line,) = mistakes(f"[[policy.rules]]\n{rule}\n")
    assert f"policy.rules: found rule 1: {found}; allowed: " in line


def test_a_mistake_of_any_length_is_a_line_that_can_be_read(mistakes):
    content = f'"{"k" * 5000}" = 1\n[models]\ndefault = "{"m" * 5000}"\n'
    lines = mistakes(content)
    assert len(lines) == 2
    assert all(len(line) < 1000 for line in lines)
