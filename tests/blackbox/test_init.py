"""`pegasus init` at a terminal: a few answers lead to an agent that works."""

from __future__ import annotations

import signal

from pegasus.testing.provider import ProviderAnswer, open_provider
from tests.blackbox.support import command, environment
from tests.blackbox.support.terminal import ENTER, terminal


async def test_a_few_answers_lead_to_an_agent_that_answers(tmp_path):
    home = tmp_path / "home"
    async with open_provider(lambda request: ProviderAnswer("Good morning!"), api_key="sk-typed-0123456789") as server:
        # Without systemctl no service is offered.
        (tmp_path / "bin").mkdir()
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "PATH": str(tmp_path / "bin")}
        async with terminal(home, "init", env=env) as screen:
            await screen.see("1. Which model is to answer?")
            await screen.see("offline/stand-in")
            await screen.type("openai/model-1", ENTER)
            await screen.see("2. API key of openai")
            await screen.type("sk-typed-0123456789", ENTER)
            await screen.see("3. Who are you?")
            await screen.type("Ada, in Rome", ENTER)
            await screen.see("4. Run a test call?")
            await screen.type(ENTER)
            await screen.see("It answered in")
            await screen.see("Good morning!")
            await screen.see("5. Which service searches the web?")
            await screen.type(ENTER)
            await screen.see("6. Reach it from a chat service, too?")
            await screen.type("telegram", ENTER)
            await screen.see("Token of your bot")
            await screen.type("123456:typed", ENTER)
            await screen.see("Next: ")
            assert await screen.exit() == 0
            assert "sk-typed" not in screen.text
            assert "123456:typed" not in screen.text
    config = home / "pegasus.toml"
    assert config.stat().st_mode & 0o777 == 0o600
    assert len(config.read_text().splitlines()) <= 16
    assert (home / "workspace" / "USER.md").read_text() == "Ada, in Rome\n"


async def test_ctrl_c_leaves_nothing(tmp_path):
    home = tmp_path / "home"
    async with terminal(home, "init") as screen:
        await screen.see("1. Which model is to answer?")
        await screen.type("openai/gpt-6.1-terra", ENTER)
        await screen.see("2. API key of openai")
        screen.process.send_signal(
            signal.SIGINT
        )  # as Ctrl-C does; the terminal of the test is nobody's controlling one
        assert await screen.exit() == 130
    assert not home.exists()


async def test_without_a_terminal_it_asks_nothing(tmp_path):
    result = await command("--home", str(tmp_path / "home"), "init", env=environment({"HOME": str(tmp_path)}))
    assert (result.code, result.err) == (0, "")
    assert (tmp_path / "home" / "pegasus.toml").exists()


async def test_a_server_of_ones_own_that_wants_a_key_gets_one(tmp_path):
    home = tmp_path / "home"
    (tmp_path / "bin").mkdir()
    async with open_provider(lambda request: ProviderAnswer("Good morning!"), api_key="sk-own-0123456789") as server:
        server.pages["/v1/models"] = {"data": [{"id": "echo"}]}
        async with terminal(home, "init", env={"PATH": str(tmp_path / "bin")}) as screen:
            await screen.see("1. Which model is to answer?")
            await screen.type(server.url, ENTER)
            await screen.see("server/echo")
            await screen.type(ENTER)
            await screen.see("2. API key of server (Enter if it wants none)")
            await screen.type(ENTER)
            await screen.see("3. Who are you?")
            await screen.type(ENTER)
            await screen.see("4. Run a test call?")
            await screen.type(ENTER)
            await screen.see("It failed")
            await screen.see("Choose another model or key?")
            await screen.type(ENTER)
            await screen.see("Number, another")
            await screen.type(ENTER)
            await screen.see("2. API key of server")
            await screen.type("sk-own-0123456789", ENTER)
            await screen.see("4. Run a test call?")
            await screen.type(ENTER)
            await screen.see("Good morning!")
            await screen.see("5. Which")
            await screen.type(ENTER)
            await screen.see("6. Reach")
            await screen.type(ENTER)
            await screen.see("Next: ")
            assert await screen.exit() == 0
    assert 'api_key = "sk-own-0123456789"' in (home / "pegasus.toml").read_text()
