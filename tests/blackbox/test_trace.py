"""`pegasus trace`: the life of one message, told from the files with and without the daemon."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support.work import Office, act, answer, heard, shell, task_id


def steps(found):
    """What happened, in order, without repetitions in a row."""
    names = [step["what"] for step in found["steps"]]
    return [name for n, name in enumerate(names) if n == 0 or names[n - 1] != name]


async def test_a_message_with_its_task_is_followed_from_accepting_to_the_end(workplace, name):
    book = Office({"count": [act(shell("echo one two")), answer("there are two")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        id = await client.say("do count")
        assert await heard(client) == ["completed: there are two"]
        task = task_id(daemon.home, "count")
        shown = await daemon.command("trace", id, "--json")
        assert shown.code == 0, shown.err
        found = json.loads(shown.out)
        names = steps(found)
        assert names[0] == "accepted"
        for wanted in ("taken up", "thought", "called", "created", "completed", "done"):
            assert wanted in names, (wanted, names)
        times = [step["at"] for step in found["steps"] if step["at"]]
        assert times == sorted(times)
        tools = {step.get("tool") for step in found["steps"] if step["what"] == "called"}
        assert "shell_exec" in tools
        assert found["state"] == "done"
        channel = f"{client.channel['type']}:{client.channel['channelId']}"
        await daemon.stop()
        for other in (f"#{found['n']}", f"{channel} {id}", f"message {channel} {id}", task):
            again = await daemon.command("trace", other, "--json")
            assert again.code == 0, (other, again.err)
            assert json.loads(again.out)["n"] == found["n"]
        text = (await daemon.command("trace", id)).out
        assert "accepted" in text
        assert "shell_exec" in text
        assert "failed" not in text
        await daemon.start()


@pytest.mark.files("a database keeps up to where replies were acknowledged, and not when")
async def test_a_reply_and_its_acknowledgement_have_times(workplace, name):
    async with workplace.play(Office(), name) as daemon, daemon.client() as client:
        id = await client.say("hello")
        await client.ack(await client.reply())
        await client.ask("/status")  # the acknowledgement was taken before this message
        await daemon.stop()
        found = json.loads((await daemon.command("trace", id, "--json")).out)
        by_name = {step["what"]: step for step in found["steps"]}
        assert by_name["replied"]["seq"] == by_name["acknowledged"]["seq"]
        assert 0 < by_name["accepted"]["at"] <= by_name["replied"]["at"] <= by_name["acknowledged"]["at"]
        await daemon.start()


async def test_a_message_that_nobody_knows_is_refused(workplace, name):
    async with workplace.play(Office(), name) as daemon:
        refused = await daemon.command("trace", "m-nobody")
        assert refused.code == 1
        assert "there is no message" in refused.err
