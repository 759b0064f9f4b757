"""The prompt of a chat: MEMORY.md for owners, which chat it is, and the same bytes as long as nothing changes."""

from itertools import takewhile

import pytest
import trio

from pegasus.settings import AgentSettings, ModelSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel
from pegasus.testing.world import FakeChannel, files_on, open_world

from .consolidation.kit import NOTES, chat, echo

MARKED = "- Likes tea\n- Opens at 9 [source: web]\n"


@pytest.fixture
def prompts():
    return []


def open_chats(prompts, disk, *, scope="chat", owners=("cli:*", "web:*"), window=0):
    def answer(request):
        prompts.append(request.system)
        return echo(request)

    return open_world(
        ScriptedModel(answer),
        disk=disk,
        settings=Settings(agent=AgentSettings(scope=scope, owners=owners), models=ModelSettings(context_window=window)),
        channels=(FakeChannel("cli"), FakeChannel("web")),
        files=files_on(disk),
    )


async def say(world, text, channel=None):
    await world.say(text, channel or chat())
    await world.next_reply("web")


async def test_an_owner_s_chat_has_the_notes_the_place_and_the_chat(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, MARKED.encode())
    async with open_chats(prompts, disk) as world:
        await say(world, "hello", chat("a|b"))
    [prompt] = prompts
    assert "- Likes tea" in prompt
    assert "Opens at 9" not in prompt, "words from outside come before no model by themselves"
    assert "Notes with words from outside are not shown here" in prompt
    assert "- Channel: web\n- Chat: a%7Cb\n- What you see of it began on 2026-02-25 (UTC)." in prompt
    assert "- Workspace, where tasks work: " in prompt


async def test_a_guest_s_chat_has_neither_notes_nor_the_place_of_the_workspace(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, MARKED.encode())
    async with open_chats(prompts, disk, owners=("cli:*",)) as world:
        await say(world, "hello", chat("a", "eve"))
    assert "tea" not in prompts[0]
    assert "Workspace, where" not in prompts[0]
    assert "- Chat: a" in prompts[0]


async def test_what_the_owner_wrote_about_themselves_is_in_the_chats_of_owners_only(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put("workspace/USER.md", b"My name is Ada.\n")
    disk.put("workspace/AGENTS.md", b"Answer in English.\n")
    async with open_chats(prompts, disk, owners=("web:ann",)) as world:
        for user, place in (("ann", "a"), ("eve", "b"), ("eve", "group"), ("ann", "group")):
            await say(world, f"hello from {user}", chat(place, user))
    assert [prompt.count("My name is Ada.") for prompt in prompts] == [1, 0, 0, 0]
    assert all("Answer in English." in prompt for prompt in prompts)


async def test_nor_has_a_chat_in_which_a_guest_has_written(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, MARKED.encode())
    async with open_chats(prompts, disk, owners=("web:ann",)) as world:
        for user in ("ann", "eve", "ann"):
            await say(world, f"hello from {user}", chat("group", user))
    assert ["tea" in prompt for prompt in prompts] == [True, False, False]


async def test_with_one_session_for_all_channels_the_prompt_says_nothing_of_it(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, MARKED.encode())
    async with open_chats(prompts, disk, scope="global") as world:
        await say(world, "hello")
    assert "tea" not in prompts[0]
    assert "This Conversation" not in prompts[0]


async def test_a_small_window_has_the_beginning_of_the_notes_only(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, b"".join(b"- fact %d\n" % number for number in range(400)))
    async with open_chats(prompts, disk, window=8_000) as world:
        await say(world, "hello")
    async with open_chats(prompts, disk, window=100_000) as world:
        await trio.sleep(1)
        await say(world, "hello")
    small, large = (prompt[prompt.index("- fact 0") :] for prompt in prompts)
    assert len(small) < 800
    assert 4_000 < len(large) < 6_300


async def test_the_prompt_is_the_same_bytes_as_long_as_nothing_changes_and_differs_at_the_end(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, b"- Likes tea\n")
    async with open_chats(prompts, disk) as world:
        await say(world, "one")
        await trio.sleep(80_000)
        await say(world, "two")
        await say(world, "one", chat("b"))
        disk.put(NOTES, b"- Likes coffee\n")
        await say(world, "three")
    assert prompts[0] == prompts[1]
    other_chat, edited = (common_beginning(prompts[0], other) for other in prompts[2:])
    assert other_chat.endswith("- Chat: ")
    assert edited.endswith("- Likes ")


def common_beginning(first, second):
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


async def test_what_is_in_the_place_of_the_notes_harms_nobody(autojump_clock, prompts):
    disk = MemoryDisk()
    disk.put(NOTES, b"\xff\xfe\0 tea \xe2\x80\xa8")
    async with open_chats(prompts, disk) as world:
        await say(world, "hello")
    assert "tea" in prompts[0]
    assert "\0" not in prompts[0]
