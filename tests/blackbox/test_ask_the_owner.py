"""All that waits for an owner: calls, people and changes of the persona, in one list, answered by the same commands."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Call, Thought, say, serving
from tests.blackbox.support.work import Effects, Office, act, answer, shell
from tests.blackbox.test_pairing import answered, by, code_for, write

SETTINGS = {
    "policy.rules": [{"tool": "shell_exec", "decision": "ask"}],
    "agent.owners": ["web:*", "cli:*"],
    "channels.telegram.access": "pairing",
}


def office(command):
    """Asks for a change of the persona when told to be shorter, and runs a command in a task when told to work."""
    wish = {"field": "style", "value": "short and warm", "why": "They like it."}
    pages = {
        "be shorter": [
            Thought("", (Call("propose_persona_change", wish),)),
            lambda view: say(json.loads(view.results[-1])["note"]),
        ]
    }
    return Office({"work": [act(command), lambda view: answer(view.last)]}, pages)


async def test_three_kinds_are_one_list_and_answered_alike(tmp_path):
    work = Effects(tmp_path)
    async with (
        serving(tmp_path, office(work.shell("done", "true")), SETTINGS) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.client() as client,
    ):
        code, other = await code_for(bridge, by("42")), await code_for(bridge, by("43"))
        await client.ask("be shorter")
        await client.say("do work")
        call = (await client.get("approval", state="open"))["id"]
        listed = await client.call("approvals.list")
        assert [each["id"] for each in listed["approvals"]] == [call]
        assert [(each["id"], each["kind"]) for each in listed["requests"]] == [
            (code, "pairing"),
            (other, "pairing"),
            ("p-1", "persona"),
        ]
        shown = (await daemon.command("approvals", "list")).out
        for waits in (call, f"{code}  telegram:42", "p-1  persona style: “short and warm”", "They like it."):
            assert waits in shown
        with pytest.raises(AssertionError, match="a yes or a no alone"):
            await client.call("approvals.allow", id="p-1", scope="forever")
        with pytest.raises(AssertionError, match="only an owner"):
            await bridge.call("approvals.allow", id="p-1")
        allowed = await daemon.command("approvals", "approve", "p-1")
        assert allowed.out.startswith("Accepted; it takes effect at the next start")
        again = await daemon.command("approvals", "deny", "p-1")
        assert (again.code, "accepted already" in again.err) == (1, True)
        assert "telegram:42 may write to me" in (await daemon.command("approvals", "allow", code.lower())).out
        assert await answered(bridge, "hello", by("42")) == "echo: hello"
        assert "telegram:43 is not let in" in (await daemon.command("approvals", "deny", other)).out
        await daemon.command("approvals", "allow", call)
        await work.happened("done")
        listed = await client.call("approvals.list")
        assert (listed["approvals"], listed["requests"]) == ([], [])
        # A no is kept: who was refused gets no other code while the first would have been valid.
        await write(bridge, "let me in", by("43"))
        assert await answered(bridge, "fence", by("42")) == "echo: fence"
        assert (await daemon.command("pair", "approve", other)).code == 1
    assert work.count("done") == 1


async def test_in_a_chat(tmp_path):
    async with (
        serving(tmp_path, office(shell("true")), SETTINGS) as daemon,
        daemon.bridge("telegram") as bridge,
        daemon.client("cli", "main") as owner,
    ):
        code = await code_for(bridge, by("42"))
        await owner.ask("be shorter")
        waiting = await owner.ask("/approvals")
        assert f"{code}  telegram:42 wants to write to me" in waiting
        assert "p-1  persona style: “short and warm”" in waiting
        assert "a yes or a no alone" in await owner.ask(f"/approve {code} always")
        assert (await owner.ask("/deny P-1 too short")).startswith("Rejected: style")
        assert "telegram:42 may write to me" in await owner.ask(f"/approve {code}")
        assert "p-1 " not in await owner.ask("/approvals")
        assert await answered(bridge, "/approve p-1", by("42")) == "Only my owner may decide about that."
        assert "Rejected" not in await owner.ask("/approve p-1")
        assert "rejected" in (await daemon.command("persona", "list")).out
