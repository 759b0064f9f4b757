"""Owners: whoever has shown the owner's token, whatever `agent.owners` lists, and those whom it names."""

from __future__ import annotations

import httpx
import pytest

from tests.blackbox.support import Book, Call, Thought, say, serving
from tests.blackbox.support.work import Effects, Office, act, answer
from tests.blackbox.test_tokens import add, greeted

TELEGRAM = {"agent.owners": ["telegram:123"], "http.enabled": True, "http.port": 0}
ASKS = {"policy.rules": [{"tool": "shell_exec", "who": "owner", "decision": "ask"}]}


@pytest.mark.parametrize("type", ["cli", "web"])
async def test_an_owner_who_is_named_on_a_service_keeps_the_own_terminal_and_page(tmp_path, type):
    work = Effects(tmp_path)
    office = Office({"work": [act(work.shell("done", "true")), answer("done")]})
    async with (
        serving(tmp_path, office, {**TELEGRAM, **ASKS}) as daemon,
        daemon.client(type, "main") as owner,
    ):
        assert "my owner" not in (await owner.ask("/model test/other")).lower()
        assert "my owner" not in (await owner.ask("/persona")).lower()
        await owner.say("do work")
        shown = await owner.get("approval", state="open")
        assert shown["who"] == "owner"
        assert shown["id"] in str(await owner.call("approvals.list"))
        headers = {"authorization": f"Bearer {daemon.token}"}
        async with httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20) as http:
            assert shown["id"] in (await http.get("/api/approvals")).text
        # The work is an owner's after a restart, too.
        await daemon.restart()
        async with daemon.client(type, "main") as again:
            await again.say(f"/approve {shown['id']}")
            assert "only my owner" not in str(await again.replies(2)).lower()
        assert work.count("done") == 1


async def test_the_owners_token_makes_no_owners_of_those_behind_a_bridge(tmp_path):
    async with serving(tmp_path, Book(), TELEGRAM) as daemon, daemon.bridge("irc") as bridge:
        await bridge.say("/persona", channel={"type": "irc", "channelId": "#x", "userId": "eve"})
        assert "my owner" in (await bridge.reply())["text"].lower()


async def test_another_token_is_an_owners_only_as_agent_owners_says(tmp_path):
    async with serving(tmp_path, Book(), TELEGRAM) as daemon:
        for name, scope in (("phone", "message"), ("tablet", "message,control")):
            token = await add(daemon, name, "--type", "web", "--channel", name, "--scope", scope)
            async with greeted(daemon, token, channel_id=name) as peer:
                assert "my owner" in (await peer.ask("/persona")).lower()
                await peer.say("/persona", metadata={"role": "owner"})
                assert "my owner" in (await peer.reply())["text"].lower()


async def test_who_is_no_owner_any_more_has_no_owners_call_carried_out(tmp_path):
    """The settings change while the model thinks: its call has the rights of the moment at which it is made."""
    begin = Thought("", (Call("spawn_subagent", {"description": "work", "input": "work"}),))
    book = Book({"go": [begin, lambda view: say(view.results[-1])]})
    settings = {
        "agent.owners": ["cli:*", "slack:ann"],
        "policy.rules": [{"tool": "spawn_subagent", "who": "guest", "decision": "deny"}],
    }
    ann = {"type": "slack", "channelId": "D1", "userId": "ann"}
    async with (
        serving(tmp_path, book, settings) as daemon,
        daemon.bridge("slack") as bridge,
        daemon.client("cli", "main") as owner,
    ):
        book.hold()
        await bridge.say("go", channel=ann)
        await book.reached(1)
        await bridge.say("/persona", channel=ann)
        assert "my owner" not in (await bridge.reply())["text"].lower()
        daemon.configure(agent__owners=["cli:*"])
        await owner.call("config.reload")
        book.release()
        assert "rule 1 of policy.rules" in (await bridge.reply())["text"]
        await bridge.say("/persona", channel=ann)
        assert "my owner" in (await bridge.reply())["text"].lower()


async def test_config_check_and_doctor_say_who_the_owners_are(tmp_path):
    async with serving(tmp_path, Book(), TELEGRAM) as daemon:
        assert (await daemon.command("config", "check")).code == 0
        told = (await daemon.command("doctor")).out
        assert "telegram:123" in told
        assert "token" in told
