"""The library on a real home: settings as a program gives them, the lock, several agents in one process, what of it is left alone."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading

import attrs
import pytest
import trio

from pegasus.embedding import Agent, InboundMessage, MessageKind
from pegasus.host import HomeBusy
from pegasus.settings import Settings, SettingsError
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import ProviderAnswer

STAND_IN = {"models": {"default": "offline/stand-in"}}


async def say(agent, text, chat="main"):
    with trio.fail_after(30):
        messages = [message async for message in agent.process_message(InboundMessage("cli", "me", chat, text))]
    assert [message.kind for message in messages].count(MessageKind.FINAL) == 1
    return messages[-1].content


async def test_settings_may_be_a_mapping(tmp_path):
    async with Agent.create(STAND_IN, home=tmp_path / "home") as agent:
        assert "Hello!" in await say(agent, "hello")


async def test_settings_may_be_a_file(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text('[models]\ndefault = "offline/stand-in"\n')
    async with Agent.create(path, home=tmp_path / "home") as agent:
        assert "Hello!" in await say(agent, "hello")


async def test_settings_may_be_those_of_the_home(tmp_path):
    (tmp_path / "pegasus.toml").write_text('[models]\ndefault = "offline/stand-in"\n[agent]\nscope = "global"\n')
    async with Agent.create(home=tmp_path) as agent:
        assert "Hello!" in await say(agent, "hello", "c1")
    assert (tmp_path / "data/sessions/cli%3Ac1.jsonl").exists(), "each chat has its session, whatever the scope"


async def test_settings_may_be_finished_ones(tmp_path):
    settings = Settings()
    settings = attrs.evolve(settings, models=attrs.evolve(settings.models, default="offline/stand-in"))
    async with Agent.create(settings, home=tmp_path) as agent:
        assert "Hello!" in await say(agent, "hello")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"models": {"defualt": "x"}}, "config: models.defualt: found an unknown key"),
        ({"agent": {"max_thoughts": 0}}, "config: agent.max_thoughts: found 0"),
        ({"agent": "x"}, "config: agent: found"),
        ("nowhere.toml", "nowhere.toml"),
    ],
)
async def test_mistakes_in_the_settings_name_key_and_what_is_allowed(config, reason, tmp_path):
    with pytest.raises(SettingsError, match=reason.replace(".", r"\.")):
        async with Agent.create(config, home=tmp_path):
            pass


async def test_a_second_agent_on_one_home_is_refused_and_the_first_goes_on(tmp_path):
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        with pytest.raises(HomeBusy, match="already runs Pegasus here"):
            async with Agent.create(STAND_IN, home=tmp_path):
                pass
        assert "Hello!" in await say(agent, "hello")
    async with Agent.create(STAND_IN, home=tmp_path):
        pass


async def test_two_agents_with_homes_of_their_own_run_side_by_side(tmp_path):
    async with (
        Agent.create(STAND_IN, home=tmp_path / "a") as first,
        Agent.create(STAND_IN, home=tmp_path / "b") as second,
    ):
        await say(first, "remember that my cat is called Mau")
        assert "Mau" not in await say(second, "what do you know about my cat?")
        assert "Hello!" in await say(second, "hello", "c1")
    assert not (tmp_path / "a/data/sessions/cli%3Ac1.jsonl").exists()


async def test_other_settings_count_from_the_next_message_on_and_the_conversation_goes_on(tmp_path):
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        await say(agent, "hello")
        taken_up = await agent.update_config({**STAND_IN, "agent": {"tools": ["current_time"]}, "gateway": {"port": 1}})
        assert (taken_up.changed, taken_up.after_restart) == (("agent.tools",), ("gateway.port",))
        await say(agent, "hello again")
    assert (tmp_path / "data/sessions/cli%3Amain.jsonl").read_text().count('"role":"user"') == 2


async def test_settings_with_a_mistake_change_nothing(tmp_path):
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        with pytest.raises(SettingsError):
            await agent.update_config({"models": {"default": 7}})
        assert "Hello!" in await say(agent, "hello")


async def test_another_model_answers_the_next_message_and_its_usage_is_counted(tmp_path):
    async with open_provider(lambda request: ProviderAnswer("from the other model")) as provider:
        other = {
            "models": {"default": "anthropic/some-model"},
            "providers": {"anthropic": {"api_key": "sk-some-key", "base_url": provider.url}},
            "agent": {"speech": "direct"},
        }
        async with Agent.create(STAND_IN, home=tmp_path) as agent:
            assert "Hello!" in await say(agent, "hello")
            assert "models.default" in (await agent.update_config(other)).changed
            assert await say(agent, "hello") == "from the other model"
            *_, last = [message async for message in agent.process_message(InboundMessage("cli", "me", "c2", "hello"))]
            assert last.usage is not None
            assert last.usage.input_tokens > 0
            assert last.usage.cost is None, "the price of that model is not known"


async def test_the_process_is_left_alone(tmp_path, capfd):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    root, level = list(logging.getLogger().handlers), logging.getLogger().level
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        await say(agent, "hello")
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        assert (logging.getLogger().handlers, logging.getLogger().level) == (root, level)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "logs/pegasus.log").exists()
    assert not (tmp_path / "run/daemon.json").exists()


async def test_the_log_goes_to_the_loggers_of_python_without_secrets(tmp_path, caplog):
    secret = "sk-0123456789abcdef"
    config = {**STAND_IN, "providers": {"anthropic": {"api_key": secret}}}
    (tmp_path / "skills/bad").mkdir(parents=True)
    (tmp_path / "skills/bad/SKILL.md").write_text(f"---\nname: {secret}\n---\n")
    with caplog.at_level(logging.DEBUG, "pegasus"):
        async with Agent.create(config, home=tmp_path) as agent:
            await say(agent, "hello")
    assert any(record.name.startswith("pegasus.") for record in caplog.records)
    assert secret not in caplog.text


async def test_no_thread_of_its_own_is_left(tmp_path):
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        await say(agent, "hello")
    assert not [
        thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()
    ]


async def test_cancelling_the_program_around_it_stops_it_in_order(tmp_path):
    with trio.move_on_after(5) as cancelled:
        async with Agent.create(STAND_IN, home=tmp_path) as agent:
            await say(agent, "hello")
            cancelled.cancel()
            await trio.sleep_forever()
    assert cancelled.cancelled_caught
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        assert "Hello!" in await say(agent, "hello")


async def test_cancelling_a_start_leaves_the_home_free(tmp_path):
    for moment in (0.0, 0.01, 0.05, 0.1):
        with trio.move_on_after(moment):
            async with Agent.create(STAND_IN, home=tmp_path):
                await trio.sleep_forever()
    async with Agent.create(STAND_IN, home=tmp_path) as agent:
        assert "Hello!" in await say(agent, "hello")


def test_a_program_that_is_killed_loses_nothing_that_was_accepted(tmp_path):
    home = tmp_path / "home"
    program = f"""
import os, trio
from pegasus.embedding import Agent, InboundMessage
async def main():
    async with Agent.create({STAND_IN!r}, home={str(home)!r}) as agent:
        async for message in agent.process_message(InboundMessage("cli", "me", "main", "hello", id="m1")):
            if message.is_final:
                os.kill(os.getpid(), 9)
trio.run(main)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == -9

    async def look():
        async with Agent.create(STAND_IN, home=home) as agent:
            with trio.fail_after(30):
                return (await anext(agent.messages())).content

    assert "Hello!" in trio.run(look)
