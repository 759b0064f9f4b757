"""The stand-in in a running agent: it remembers and forgets by the real tools, streams, and shows its demo."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pytest
import trio

from pegasus.models import CallPiece, ModelRequest, ToolSpec, UserTurn
from pegasus.models.stand_in import DEMO_DONE, DEMO_STEPS, StandIn
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel
from pegasus.testing.world import CLI, kill, open_world
from pegasus.tools import Effect, Tool
from tests.pegasus.models.conftest import REPLY


async def ask(world, text: str) -> str:
    await world.say(text, CLI)
    return (await world.next_reply()).text


async def test_it_remembers(autojump_clock) -> None:
    async with open_world(StandIn()) as world:
        await ask(world, "hello")
        assert "Nothing so far" in await ask(world, "what do you remember?")
        noted = await ask(world, "remember that I like tea")
        assert noted.startswith("Noted: I like tea (facts/user.md;")
        assert "- I like tea" in world.disk.content("memory/facts/user.md").decode()
        assert await ask(world, "What do you remember?") == "- I like tea", "without the head of the file"


async def test_it_survives_a_crash_with_what_it_was_told(autojump_clock) -> None:
    disk = MemoryDisk()
    async with open_world(StandIn(), disk=disk) as world:
        await ask(world, "remember: the bin goes out on Tuesday")
        await kill(world)
    async with open_world(StandIn(), disk=disk) as world:
        assert "Tuesday" in await ask(world, "what do you remember")


@pytest.mark.parametrize(
    "text", ["remember", "remember that", "I remember that day", "do you remember?", "demonstrate"]
)
async def test_other_sentences_are_not_taken_for_a_wish(text, autojump_clock) -> None:
    async with open_world(StandIn()) as world:
        assert "beyond my rules" in await ask(world, text)


async def test_it_writes_its_answer_bit_by_bit(autojump_clock) -> None:
    pieces: list[object] = []
    times: list[float] = []

    def listen(heard: Sequence[object]) -> None:
        pieces.extend(heard)
        times.append(trio.current_time())

    tools = (REPLY, ToolSpec("current_time", "", {"type": "object"}))
    request = ModelRequest("s", (UserTurn(text="[channel: cli | id: main]\nhello"),), tools, on_pieces=listen)
    response = await StandIn().generate(request)
    written = [piece.text for piece in pieces if isinstance(piece, CallPiece)]
    assert json.loads("".join(written)) == response.calls[0].arguments
    assert len(written) > 10
    assert 0.3 < times[-1] - times[0] < 1.5


async def test_without_a_listener_it_does_not_wait(autojump_clock) -> None:
    began = trio.current_time()
    await StandIn().generate(ModelRequest("s", (UserTurn(text="[channel: cli | id: main]\nhello"),), (REPLY,)))
    assert trio.current_time() == began


def tool(name: str, made: list[str]) -> Tool:
    async def run(arguments, context):
        made.append(name)
        await trio.sleep(arguments.get("duration", 0.1))
        return {"name": name}

    return Tool(ToolSpec(name, "", {"type": "object"}), run, "test", Effect.PURE)


async def test_the_demo_shows_a_task_memory_and_recovery_within_a_minute(autojump_clock) -> None:
    made: list[str] = []
    names = {step[1] for step in DEMO_STEPS} - {"notify"}
    began = trio.current_time()
    async with open_world(StandIn(), tools=[tool(name, made) for name in sorted(names)]) as world:
        said = [await ask(world, "demo")]
        while "Recovery" not in said[-1]:
            said.append((await world.next_reply()).text)
        assert made == [step[1] for step in DEMO_STEPS if step[1] != "notify"]
        assert "half done" in said[1]
        assert said[2].startswith(DEMO_DONE)
        assert f"kill -9 {os.getpid()}" in said[3]
        assert world.disk.content("memory/facts/demo.md") == b"", "the fact was taken back"
        await world.idle()
    assert trio.current_time() - began < 60


async def test_a_model_without_the_tools_of_the_demo_is_not_asked_for_it(autojump_clock) -> None:
    async with open_world(StandIn(), task_model=ScriptedModel([])) as world:
        assert "Demo" in await ask(world, "show me the demo")
