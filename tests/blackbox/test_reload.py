"""Reloading the settings of a real daemon: every key, channels, servers of tools, and mistakes."""

from __future__ import annotations

import json
import os

import httpx
import trio

from pegasus.settings import RESTART_KEYS, Settings
from pegasus.settings.keys import walk
from pegasus.testing.services.server import ServiceResponse, open_service
from pegasus.testing.services.telegram import TelegramServer
from tests.blackbox.support import Book, command, say, serving
from tests.blackbox.support.daemon import toml
from tests.blackbox.support.mcp_settings import got, reached, server, states
from tests.blackbox.support.waiting import until_async

OTHER = {
    "agent.persona": "personas/ada.json",
    "agent.owners": ["cli:*", "sms:+15550100"],
    "agent.tools": ["memory_*"],
    "gateway.token": "another-token-of-the-home-42",
    "gateway.allowed_origins": ["https://chat.example"],
    "http.allowed_hosts": ["pegasus.example"],
    "http.public_url": "https://pegasus.example",
    "log.level": "debug",
    "log.format": "json",
    "models.fallback": ["test/model-2"],
    "models.default": "test/model-2",
    "models.subagent": "test/model-2",
    "models.compact": "test/model-2",
    "models.reflection": "test/model-2",
    "models.choices": ["test/model-1", "test/model-2"],
    "models.context_window": 100_000,
    "policy.owner_channel": "sms:+15550100",
    "policy.rules": [],
    "sandbox.mode": "off",
    "sandbox.hosts": ["pypi.org"],
    "sandbox.allowed_hosts": ["127.0.0.1"],
    "sandbox.writable": ["/tmp"],
    "schedule.active_hours": "08:00-22:00",
    "tools.allowed_hosts": ["127.0.0.1"],
    "tools.web_hosts": ["127.0.0.1"],
    "tools.allowed_paths": ["notes"],
    "tools.web_search.api_key": "a-key",
    "tools.web_search.base_url": "https://search.example",
    "tools.web_search.provider": "searxng",
    "channels.cli.allow_from": ["main"],
    "channels.cli.access": "allow_list",
    "telemetry.otlp_endpoint": "http://127.0.0.1:9",
    "storage.url": "postgresql://127.0.0.1:9/pegasus",
    "node.address": "http://127.0.0.1:9",
    "push.contact": "mailto:ada@example.org",
    "push.allowed_hosts": ["push.example"],
    "a2a.signing_key": "card-key.pem",
    "session.memory_window": 60,
    "session.consolidation_timeout": 40.0,
}
"""Values for keys whose other value cannot be derived."""
SECTIONS = {
    "providers.lab.type": "openai",
    "providers.lab.base_url": "http://127.0.0.1:9/v1",
    'prices."test/model-1".input': 1.0,
    "hooks.deploy.secret": "a secret of the hook",
    "channels.sms.allow_from": ["+15550101"],
    "mcp.servers.off.command": "true",
    "mcp.servers.off.enabled": False,
    "models.routes.all.model": "test/model-2",
    "models.options.compact.effort": "low",
}
"""A key of each section under a name of the user's own."""
PERSONA = {"name": "Ada", "role": "a helper", "personality": ["calm"], "style": "short", "values": ["truth"]}


def other_values(settings: dict[str, object]) -> dict[str, object]:
    """Return another allowed value for every key that is not below a name of the user's own."""
    found = {}
    for path, rule, value in walk(Settings()):
        key = ".".join(path)
        if key.startswith("providers."):
            continue
        if key in OTHER:
            found[key] = OTHER[key]
        elif rule.type is bool:
            found[key] = not settings.get(key, value)
        elif rule.type in (int, float):
            candidates = (value + 1, value - 1, value / 2, value * 2, 0.5)
            found[key] = next(rule.type(one) for one in candidates if rule.type(one) != value and _allows(rule, one))
        elif rule.type is dict:
            found[key] = {"read_file": 5.0} if key == "tools.timeouts" else {"x": "1"}
        elif key.startswith("models.") and rule.allowed.startswith("one line of text"):
            found[key] = "test/model-2"
        else:
            words = [word.strip('"') for word in rule.allowed.removeprefix("one of ").replace(" or ", ", ").split(", ")]
            found[key] = next(word for word in words if word not in (value, "") and _allows(rule, word))
    return found


def _allows(rule, value) -> bool:
    try:
        rule.check(rule.type(value))
    except ValueError:
        return False
    return True


async def test_every_key_takes_effect_at_once_or_is_said_to_need_a_restart(tmp_path):
    """One reload with another value for every key there is. What nobody follows would be reported as after a restart."""
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        (daemon.home / "personas").mkdir()
        (daemon.home / "personas" / "ada.json").write_text(json.dumps(PERSONA))
        others = other_values(daemon.settings) | SECTIONS
        before = daemon.settings
        kept = {key: value for key, value in daemon.settings.items() if key.startswith("providers.")}
        daemon.settings = {**kept, **others}
        (daemon.home / "pegasus.toml").write_text(toml(daemon.settings))
        answer = await client.call("config.reload")
        changed, later = set(answer["changed"]), set(answer["afterRestart"])
        assert later == RESTART_KEYS
        assert {key.replace('"', "") for key in others} - RESTART_KEYS - set(before) <= changed
        shown = json.dumps(await client.call("config.show"))
        assert "another-token-of-the-home-42" not in shown
        assert (await client.call("status"))["agent"] == "Ada"
        again = await client.call("config.reload")
        assert again["changed"] == []
        assert set(again["afterRestart"]) == later, "the old values are still in force"


async def test_a_channel_is_added_changed_and_removed_while_the_others_go_on(tmp_path):
    """An answer that waits meanwhile is delivered once, by the adapter that comes next."""
    book = Book(otherwise=lambda view: say("hello to you"))
    async with (
        open_service(TelegramServer()) as telegram,
        serving(tmp_path, book) as daemon,
        daemon.client() as client,
    ):
        new = telegram_settings(telegram)
        daemon.configure(**underlined(new))
        answer = await client.call("config.reload")
        assert set(new) <= set(answer["changed"])
        assert answer["afterRestart"] == []
        telegram.say(7, "anybody there?")
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "hello to you"

        daemon.configure(channels__telegram__groups="all", channels__telegram__enabled=False)
        await client.call("config.reload")
        assert (await client.call("status"))["channels"] == []
        await client.say("still here?")
        assert (await client.reply())["text"] == "hello to you"

        telegram.say(7, "and now?")
        daemon.configure(channels__telegram__enabled=True)
        await client.call("config.reload")
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "hello to you"
        assert "crashed" not in daemon.stderr


async def test_an_answer_that_waits_for_its_service_is_delivered_once_by_the_adapter_that_comes_next(tmp_path):
    book = Book(otherwise=lambda view: say("hello to you"))
    async with (
        open_service(TelegramServer()) as telegram,
        serving(tmp_path, book, telegram_settings(telegram)) as daemon,
        daemon.client() as client,
    ):
        tried = trio.Event()

        def fault(request):
            if request.path.endswith("/sendMessage"):
                tried.set()
                return ServiceResponse(502)
            return None

        telegram.fault = fault
        telegram.say(7, "anybody there?")
        with trio.fail_after(20):
            await tried.wait()
        daemon.configure(channels__telegram__base_url=telegram.base_url.replace("127.0.0.1", "localhost"))
        assert (await client.call("config.reload"))["changed"] == ["channels.telegram.base_url"]
        telegram.fault = lambda request: None
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "hello to you"
        await client.ask("and here?")
        assert telegram.shown == [(7, "hello to you")]


def telegram_settings(telegram):
    return {
        "agent.owners": ["cli:*", "telegram:7"],
        "channels.telegram.enabled": True,
        "channels.telegram.bot_token": telegram.token,
        "channels.telegram.base_url": telegram.base_url,
    }


async def test_servers_of_tools_are_added_changed_and_removed(tmp_path):
    log = tmp_path / "lab.log"
    async with serving(tmp_path, Book()) as daemon, daemon.client("control", "c") as control:
        daemon.configure(**underlined(server("lab", log=log)))
        assert "mcp.servers.lab.command" in (await control.call("config.reload"))["changed"]
        await reached(daemon, "lab")
        daemon.configure(**underlined(server("two")))
        await control.call("config.reload")
        await reached(daemon, "two")
        assert len(await got(log, "initialize")) == 1, "the one that has not changed was not touched"

        daemon.configure(mcp__servers__two__enabled=False)
        await control.call("config.reload")
        await reached(daemon, "two", "off")

        daemon.configure(mcp__servers__lab__timeout=9.0)
        await control.call("config.reload")
        assert len(await got(log, "initialize", 2)) == 2
        await reached(daemon, "lab")

        daemon.settings = {key: value for key, value in daemon.settings.items() if "servers" not in key}
        daemon.configure()
        await control.call("config.reload")
        assert await states(control) == {}

        async def is_gone() -> bool:
            return "mcp:" not in json.dumps(await control.call("tree"))

        await until_async(is_gone, "the end of the server")


def underlined(settings):
    return {key.replace(".", "__"): value for key, value in settings.items()}


async def test_what_the_servers_let_in_follows_a_reload(tmp_path):
    """Names, origins, sizes and webhooks of HTTP, and frames of connections that are made from then on."""
    settings, host = {"http.enabled": True, "http.port": 0}, {"host": "pegasus.example"}
    async with (
        serving(tmp_path, Book(), settings) as daemon,
        daemon.client() as client,
        httpx.AsyncClient(base_url=daemon.at.http, headers={"authorization": f"Bearer {daemon.token}"}) as web,
    ):
        body = {"text": "x" * 5000, "channel": {"type": "api", "channelId": "a"}}
        assert (await web.get("/healthz", headers=host)).status_code == 421
        assert (await web.post("/hooks/deploy", content=b"{}")).status_code == 404
        assert (await web.post("/api/messages", json=body)).status_code == 202
        daemon.configure(
            http__allowed_hosts=["pegasus.example"],
            http__max_body_bytes=2000,
            hooks__deploy__secret="s3cret of the hook",
            gateway__max_frame_bytes=2000,
        )
        await client.call("config.reload")
        assert (await web.get("/healthz", headers=host)).status_code == 200
        assert (await web.post("/hooks/deploy", content=b"{}")).status_code == 401, "it exists now"
        assert (await web.post("/api/messages", json=body)).status_code == 413
        async with daemon.client(channel_id="other") as other:
            await other.send({"type": "message", "id": "m-9", "text": "x" * 5000})
            assert (await other.get("error"))["code"] == "too_large"
        assert await client.ask("hello") == "echo: hello", "connections that are open go on"


async def test_walls_logs_and_the_time_of_a_stop_follow_a_reload(tmp_path):
    async with serving(tmp_path, Book(), {"sandbox.mode": "off"}) as daemon, daemon.client() as client:
        assert "sandbox.mode" in json.dumps(await client.call("status"))
        daemon.configure(sandbox__mode="auto", log__format="json", log__level="debug", run__shutdown_grace=3.0)
        assert set((await client.call("config.reload"))["changed"]) == {
            "sandbox.mode",
            "log.format",
            "log.level",
            "run.shutdown_grace",
        }
        assert "sandbox.mode" not in json.dumps(await client.call("status"))
        await client.ask("hello")
        last = (daemon.home / "logs" / "pegasus.log").read_text().splitlines()[-1]
        assert json.loads(last)["level"]


async def test_walls_that_are_required_and_not_there_change_nothing(tmp_path):
    program = tmp_path / "bwrap"  # as on a machine where something gets through: the trial of the walls says so
    program.write_text("#!/bin/sh\necho limits\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    async with serving(tmp_path, Book(), {"sandbox.mode": "off"}, env=env) as daemon, daemon.client() as client:
        daemon.configure(sandbox__mode="require", agent__max_replies=3)
        await client.send({"type": "call", "id": "r", "method": "config.reload", "params": {}})
        assert "sandbox.mode" in (await client.get("error", id="r"))["message"]
        shown = json.dumps(await client.call("config.show"))
        assert '{"key": "max_replies", "value": "200"' in shown


async def test_a_file_with_mistakes_changes_nothing_and_each_is_said_as_config_check_says_it(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        daemon.configure(models__timeout="soon", log__level="loud", agent__max_replies=3)
        await client.send({"type": "call", "id": "r", "method": "config.reload", "params": {}})
        error = await client.get("error", id="r")
        checked = await daemon.command("config", "check")
        assert error["message"].splitlines() == [
            line.removeprefix("pegasus: ") for line in checked.err.splitlines() if line
        ]
        assert await client.ask("hello") == "echo: hello"


async def test_mistakes_that_only_models_and_persona_can_judge_are_all_said_as_config_check_says_them(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        daemon.configure(models__default="azure/x", agent__persona="missing.json")
        await client.send({"type": "call", "id": "r", "method": "config.reload", "params": {}})
        error = await client.get("error", id="r")
        checked = await daemon.command("config", "check")
        lines = [line.removeprefix("pegasus: ") for line in checked.err.splitlines() if line]
        assert len(lines) == 2
        assert error["message"].splitlines() == lines
        assert await client.ask("hello") == "echo: hello"


async def test_a_persona_whose_file_has_changed_is_taken_up_and_one_with_a_mistake_is_not(tmp_path):
    async with serving(tmp_path, Book(), {"agent.persona": "ada.json"}, start=False) as daemon:
        daemon.home.mkdir()
        file = daemon.home / "ada.json"
        file.write_text(json.dumps(PERSONA))
        await daemon.start()
        async with daemon.client() as client:
            assert await client.call("config.reload") == {"changed": [], "afterRestart": []}
            file.write_text(json.dumps(PERSONA | {"name": "Grace"}))
            assert (await client.call("config.reload"))["changed"] == ["agent.persona"]
            assert (await client.call("status"))["agent"] == "Grace"
            accepted = daemon.home / "data" / "identity" / "persona.json"  # what an owner has accepted
            accepted.parent.mkdir(exist_ok=True)
            accepted.write_text(json.dumps({"name": "Hopper"}))
            assert (await client.call("config.reload"))["changed"] == ["agent.persona"]
            assert (await client.call("status"))["agent"] == "Hopper"
            accepted.unlink()
            await client.call("config.reload")
            file.write_text("{")
            await client.send({"type": "call", "id": "r", "method": "config.reload", "params": {}})
            assert "not JSON" in (await client.get("error", id="r"))["message"]
            assert (await client.call("status"))["agent"] == "Grace"


# ------------------------------------------------------------------ the command


async def test_the_command_says_what_is_in_effect_and_what_waits(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        daemon.configure(models__default="test/model-2", gateway__max_frame_bytes=2_000_000)
        result = await daemon.command("reload")
        assert (result.code, result.err) == (0, "")
        assert "in effect now: " in result.out
        assert "models.default" in result.out
        await client.ask("two")
        assert book.asked[-1].body["model"] == "model-2"
        assert (await daemon.command("reload")).out == "nothing has changed\n"
        daemon.configure(models__timeout="soon")
        refused = await daemon.command("reload")
        checked = await daemon.command("config", "check")
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.removeprefix("pegasus: ") == checked.err.removeprefix("pegasus: ")


async def test_the_command_without_an_agent_says_how_to_start_one(tmp_path):
    result = await command("--home", str(tmp_path), "reload")
    assert result.code == 1
    assert "no agent is running in" in result.err
