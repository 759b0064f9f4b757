"""The power fails at any operation of a consolidation: nothing is lost, and nothing is there twice."""

import re
from contextlib import suppress

import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, say
from pegasus.testing.world import FakeChannel, kill

from .kit import HISTORY, MONTH, NOTES, all_texts, chat, notes, open_chats, part_of, session_of, settle, talk

SECONDS = 5


def keeper(request):
    """Takes a while, so that all operations from then on are those of the consolidation."""
    text = notes("told of " + ",".join(part_of(request)), "- Likes tea\n- Lives in Bonn")
    return After(SECONDS, say(text))


async def run_until(operation, *, again=None, torn=0):
    """Lose power at an operation of the first consolidation, start again, and return the disk when all is over.

    again: lose power once more, at this operation of the next start.
    """
    disk, web = MemoryDisk(), FakeChannel("web")
    disk.put(NOTES, b"- Likes tea\n")
    before = 0
    with suppress(GaveUp):
        async with open_chats(keeper, disk=disk, web=web) as world:
            await talk(world, 0, 4)
            await world.idle()
            before = disk.operations
            disk.lose_power(operation)
            with suppress(ActorError):
                await trio.sleep(SECONDS + 5)
            await kill(world, torn_bytes=torn)
    lost = disk.operations - before >= operation
    disk.crash(torn)
    if again is not None:
        with suppress(GaveUp, ActorError):
            async with open_chats(keeper, disk=disk, web=web) as world:
                disk.lose_power(again)
                with suppress(ActorError):
                    await world.say("message 4", chat())
                    await trio.sleep(SECONDS + 5)
                await kill(world, torn_bytes=torn)
        disk.crash(torn)
    async with open_chats(keeper, disk=disk, web=web) as world:
        await trio.sleep(1)
        await world.say("message 5", chat())
        await settle(world)
        await trio.sleep(90)
    return disk, web, lost


def verify(disk, web):
    for path in (HISTORY, MONTH):
        text = disk.content(path).decode()
        told_of = [number for part in re.findall("^told of (.*)$", text, re.MULTILINE) for number in part.split(",")]
        assert told_of == sorted(set(told_of), key=int), f"{path}: each message once, in order"
        assert "0" in told_of
        assert len(re.findall("<!-- (.*) -->", text)) == len(set(re.findall("<!-- (.*) -->", text)))
        assert text.count("## ") == text.count("<!-- ") == len(re.findall("^told of", text, re.MULTILINE)), (
            "nothing is torn"
        )
        assert "\0" not in text
    assert disk.content(NOTES) == b"- Likes tea\n- Lives in Bonn\n"
    everything = all_texts(disk).decode()
    for number in (0, 1, 2, 3, 5):
        assert f"message {number}" in everything
        assert len([reply for reply in web.replies if reply.text == f"answer to message {number}"]) == 1
    [first, *rest] = session_of(disk)
    facts = [entry.get("metadata", {}) for entry in rest]
    done = [metadata["consolidation"] for metadata in facts if metadata.get("type") == "consolidated"]
    assert first["metadata"]["consolidation"]["id"] in done


@pytest.mark.parametrize("torn", [0, 30])
@pytest.mark.parametrize("operation", range(1, 37))
async def test_killed_at_any_operation(autojump_clock, operation, torn):
    disk, web, _ = await run_until(operation, torn=torn)
    verify(disk, web)


@pytest.mark.parametrize("again", range(1, 40, 3))
@pytest.mark.parametrize("operation", [14, 20])
async def test_killed_once_more_while_it_makes_up_for_the_first_time(autojump_clock, operation, again):
    disk, web, _ = await run_until(operation, again=again, torn=7)
    verify(disk, web)


async def test_these_operations_are_all_there_are(autojump_clock):
    _, _, lost = await run_until(36)
    assert not lost
