"""MCP servers that ask the person something, with the real process and a server of the official SDK, in both forms of the protocol."""

from __future__ import annotations

import sys
from pathlib import Path

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.files import lines
from tests.blackbox.support.mcp_settings import reached
from tests.blackbox.support.work import Office, act, answer, heard

SCRIPT = Path(__file__).parent / "support" / "mcp_asking.py"


def asking(name, *words):
    """The settings of the server under this name."""
    key = f"mcp.servers.{name}"
    return {f"{key}.command": sys.executable, f"{key}.args": [str(SCRIPT), *words], f"{key}.timeout": 30.0}


def job(tool):
    """A task that calls one tool and says what came of it."""
    return [act(Call(tool, {})), lambda view: answer(view.last)]


async def test_a_person_answers_servers(tmp_path):
    """A form in a chat and on the command line, a page, a password, nine hundred questions at once, and /stop among them."""
    tools = {"new": "new__book", "old": "old__book", "page": "old__pay", "thief": "old__steal", "nag": "old__nag"}
    book = Office({name: job(tool) for name, tool in tools.items()})
    settings = {**asking("new"), **asking("old", "legacy"), "policy.rules": [{"tool": "*", "decision": "allow"}]}
    async with serving(tmp_path, book, settings) as daemon, daemon.client() as client:
        assert (await reached(daemon, "new", timeout=40))["protocol"] == "2026-07-28"
        assert (await reached(daemon, "old", timeout=40))["protocol"] == "2025-11-25"

        await client.say("do new")
        asked = await client.get("approval", state="open")
        assert (asked["tool"], asked["question"]["source"], asked["question"]["text"]) == (
            "new__book",
            "MCP server new",
            "Which room?",
        )
        assert [field["name"] for field in asked["question"]["fields"]] == ["beds", "view"]
        await client.get("task", state="SUSPENDED")
        await client.say(f"/approve {asked['id']} beds=9")
        assert 'beds: found "9", allowed: whole number, 1 to 4' in (await client.reply())["text"]
        await client.say(f"/approve {asked['id']} beds=3 view=to the sea, 海")
        assert "has your answer" in (await client.reply())["text"]
        assert "booked: 3, to the sea, 海" in (await heard(client))[0]

        await client.say("do old")
        asked = await client.get("approval", state="open", tool="old__book")
        listed = await daemon.command("approvals", "list")
        assert "beds (whole number, 1 to 4; otherwise 1): Beds. How many beds" in listed.out
        allowed = await daemon.command("approvals", "allow", asked["id"], "beds=2")
        assert (allowed.code, allowed.out) == (0, f"{asked['id']} is allowed: old__book\n")
        assert "booked: 2, the yard" in (await heard(client))[0]

        await client.say("do page")
        asked = await client.get("approval", state="open", tool="old__pay")
        assert asked["question"]["url"] == "https://pay.example.org/7"
        await client.call("approvals.answer", id=asked["id"], decision="deny")
        assert "decline" in (await heard(client))[0]

        await client.say("do thief")
        assert "its form asks for a secret (password)" in (await heard(client))[0]

        await client.say("do nag")
        asked = await client.get("approval", state="open", tool="old__nag")
        assert await client.ask("hello") == "echo: hello", "nothing else waits"
        await client.say("/stop")
        assert "task 5: nag" in (await client.reply())["text"]
        await client.get("approval", id=asked["id"], state="withdrawn")
        assert not (await client.call("approvals.list"))["approvals"]
        assert (await reached(daemon, "old"))["state"] == "up"
        assert "sea" not in (daemon.home / "data/approvals.jsonl").read_text(), "what was filled in is kept nowhere"
        assert len([line for line in lines(daemon.home / "data/approvals.jsonl") if "tool" in line]) == 4
