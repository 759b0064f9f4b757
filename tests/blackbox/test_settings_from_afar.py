"""Settings that are changed by a program or on the page: in the file, by its rules, and in force at once."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Book, connect, serving

MINE = """
# my own words

[log]  # what I look at
level = "info"  # for now

# about the agent
[agent]
max_replies = 7
when_busy = "${BUSY:-followup}"
"""


async def change(client, key, value, was):
    return await client.call("config.set", path=key.split("."), value=value, was=was)


def with_mine(daemon):
    file = daemon.home / "pegasus.toml"
    file.write_text(file.read_text() + MINE)
    return file


async def shown(client, key):
    section, _, name = key.rpartition(".")
    sections = (await client.call("config.show"))["sections"]
    [found] = [each for part in sections if part["name"] == section for each in part["keys"] if each["key"] == name]
    return found


async def test_a_key_is_changed_in_the_file_which_stays_as_it_was_otherwise(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        file = with_mine(daemon)
        await client.call("config.reload")
        key = await shown(client, "log.level")
        assert (key["value"], key["choices"][:2], key.get("fixed")) == ('"info"', ["debug", "info"], None)
        assert key["doc"]
        old = file.read_text()
        answer = await change(client, "log.level", "debug", '"info"')
        assert answer == {"value": '"debug"', "changed": ["log.level"], "afterRestart": []}
        assert file.read_text() == old.replace('level = "info"  # for now', 'level = "debug"  # for now')
        assert oct(file.stat().st_mode & 0o777) == "0o600"
        assert (await change(client, "agent.max_replies", "9", "7"))["changed"] == ["agent.max_replies"]
        assert (await change(client, "log.level", None, '"debug"'))["value"] == '"info"'
        for kept in (
            "# my own words",
            "[log]  # what I look at",
            "# about the agent",
            'when_busy = "${BUSY:-followup}"',
        ):
            assert kept in file.read_text()
        # A key that is not in the file yet; a text that looks like a number is a text; a table has its own form.
        assert (await change(client, "models.voice", "7", '"alloy"'))["value"] == '"7"'
        assert (await change(client, "tools.timeouts", "{ shell_exec = 9 }", "{}"))["value"] == '{ "shell_exec" = 9.0 }'
        await daemon.restart()
        async with daemon.client() as again:
            assert (await shown(again, "agent.max_replies"))["value"] == "9"


REFUSED = [
    ("agent.max_replies", "many", "7", 'pegasus.toml: agent.max_replies: found "many"; allowed: a whole number'),
    ("agent.max_replies", "-1", "7", "agent.max_replies: found -1; allowed: a whole number"),
    ("agent.max_replies", "1\nowners = ['*']", "7", "allowed: a whole number"),
    ("log.level", "loud", '"info"', 'log.level: found "loud"; allowed: one of "debug"'),
    ("models.default", "nobody/x", '"test/model-1"', "nobody"),
    ("models.voice", "a\nb", '"alloy"', "models.voice"),
    ("models.voice", "${HOME}", '"alloy"', "a variable"),
    ("agent.tools", '["${HOME}"]', "[]", "a variable"),
    ("agent.when_busy", "steer", '"followup"', "a variable"),
    ("agent.max_replies", "8", "6", "changed meanwhile: it is 7 in the file"),
    ("agent.nonsense", "8", "none", "there is no key"),
    ("agent", "{}", "none", "there is no key"),
    ("agent.max_replies", 8, "7", "value: found 8"),
    ("agent.max_replies", "8" * 10_001, "7", "10,000 characters"),
    ("agent.scope", "chat", '"global"', "needs a restart"),
    ("agent.owners", "[]", "[]", "change it in the file"),
    ("agent.persona", "/etc/passwd", '""', "change it in the file"),
    ("gateway.token", "x" * 32, "none", "a secret"),
    ("gateway.port", "1", "0", "change it in the file"),
    ("providers.test.base_url", "http://192.0.2.1/", "?", "change it in the file"),
    ("providers.test.api_key", "x", "none", "a secret"),
    ("tools.web_search.api_key", "x", "none", "a secret"),
    ("policy.default", "allow", '"allow"', "change it in the file"),
    ("sandbox.mode", "off", '"auto"', "change it in the file"),
]
"""Key, value, what it was, and a part of the reason."""


async def test_what_the_file_or_its_owner_would_refuse_is_refused_and_nothing_is_written(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        file = with_mine(daemon)
        await client.call("config.reload")
        before = file.read_bytes(), await client.call("config.show")
        for key, value, was, why in REFUSED:
            with pytest.raises(AssertionError) as refused:
                await change(client, key, value, was)
            assert why in str(refused.value), key
            assert (file.read_bytes(), await client.call("config.show")) == before


async def test_a_file_that_was_edited_by_hand_meanwhile_is_not_overwritten(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        file = with_mine(daemon)
        await client.call("config.reload")
        file.write_text(file.read_text().replace("max_replies = 7", "max_replies = 3"))
        before = file.read_bytes()
        with pytest.raises(AssertionError, match=r"changed meanwhile: it is 3 in the file"):
            await change(client, "agent.max_replies", "8", "7")
        assert file.read_bytes() == before
        # Another key may be changed; what was edited by hand counts as well.
        assert (await change(client, "log.level", "debug", '"info"'))["changed"] == ["agent.max_replies", "log.level"]


async def test_only_the_owner_changes_settings(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        made = await daemon.command("token", "add", "app", "--scope", "control,read", "--json")
        async with connect(daemon.url) as peer:
            await peer.hello(json.loads(made.out)["token"], "cli", "token-app")
            assert (await peer.call("config.show"))["mayEdit"] is False
            with pytest.raises(AssertionError, match=r"forbidden|not_allowed|only the owner"):
                await change(peer, "log.level", "debug", '"info"')
        assert 'level = "debug"' not in (daemon.home / "pegasus.toml").read_text()


async def test_a_key_that_the_environment_sets_is_not_changed_in_the_file(tmp_path):
    variables = {"PEGASUS__LOG__LEVEL": "warning"}
    async with serving(tmp_path, Book(), env=variables) as daemon, daemon.client() as client:
        assert (await shown(client, "log.level"))["fixed"].startswith("PEGASUS__LOG__LEVEL sets it")
        with pytest.raises(AssertionError, match="PEGASUS__LOG__LEVEL sets it"):
            await change(client, "log.level", "debug", '"warning"')
