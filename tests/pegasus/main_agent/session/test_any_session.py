"""A session that somebody, or another program, has edited: whatever its lines say of themselves, the agent starts and answers."""

import json
from random import Random

import pytest
import trio

from pegasus.settings import AgentSettings, ModelSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, reply, say
from pegasus.testing.world import open_world
from tests.pegasus.conversation.test_projection import is_valid

KEYS = (
    *(
        "item",
        "messageId",
        "userId",
        "type",
        "taskId",
        "seq",
        "media",
        "skill",
        "stop",
        "what",
        "seconds",
        "ends",
        "spoken",
    ),
    *(
        "usage",
        "stopReason",
        "thinking",
        "thinkingOf",
        "error",
        "closes",
        "previousSession",
        "summary",
        "carried",
        "mechanical",
    ),
)
TYPES = (
    "compact",
    "task_notify",
    "memory_index",
    "unfinished",
    "apology",
    "new",
    "stopped",
    "limit",
    "skill",
    "reply_undelivered",
)
VALUES = (
    *(None, True, False, -1, 0, 1_000, 1.5, 2**70, "", "x", "explain", *TYPES),
    *([], ["a"], {}, {"a": 1}, [{"file": 5}], [{"file": "media/x.png", "bytes": "a"}], [[1]], {"promises": [5]}),
)
ARGUMENTS = ({}, {"skill": []}, {"skill": "explain"}, {"text": 5}, {"taskId": None}, "[]", "no JSON")


def line(random, n):
    metadata = {key: random.choice(VALUES) for key in random.sample(KEYS, random.randint(0, 4))}
    if random.random() < 0.3:
        metadata["type"] = random.choice(TYPES)
    made = {
        "ts": random.choice([1, 1_772_029_800_000, -5, 2**62]),
        "role": random.choice(["user", "assistant", "system", "tool"]),
    }
    made |= {"content": random.choice([f"line {n}", "", "x" * 3_000]), "metadata": metadata}
    if made["role"] == "assistant" and random.random() < 0.6:
        name = random.choice(["reply", "use_skill", "spawn_subagent", "resume_task", "current_time", "x", ""])
        made["toolCalls"] = [{"id": f"c{n}", "name": name, "arguments": random.choice(ARGUMENTS)}]
    if made["role"] == "tool":
        made["toolCallId"] = f"c{n - 1}"
    return made


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_its_lines_say_of_themselves_the_next_message_is_answered(autojump_clock, seed):
    random, disk = Random(seed), MemoryDisk()
    content = "".join(json.dumps(line(random, n)) + "\n" for n in range(random.choice([1, 5, 60])))
    disk.put("main/current.jsonl", content.encode())
    model = ScriptedModel(lambda request: say("", reply(f"r{len(request.turns)}", "here")))
    modes = ({}, {"when_busy": "interrupt"}, {"speech": "direct"})
    settings = Settings(models=ModelSettings(context_window=20_000), agent=AgentSettings(**random.choice(modes)))
    async with open_world(model, disk=disk, settings=settings) as world:
        with trio.fail_after(100):
            for text in ("hello", "/stop", "/new", "hello again"):
                await world.say(text)
                await world.next_reply()
            await world.idle()
        assert world.channels["cli"].texts.count("here") >= 2
        assert "Sorry" not in "".join(world.channels["cli"].texts)
    assert all(is_valid(request.turns) for request in model.requests)


async def test_what_is_no_line_of_ours_is_kept_beside_the_session(autojump_clock):
    """Whether it is JSON or not: a person may still read it, and a newer version may know what it is."""
    disk = MemoryDisk()
    good, wizard = {"ts": 1, "role": "user", "content": "kept"}, {"ts": 1, "role": "wizard", "content": "Grüße"}
    lines = (json.dumps(good), json.dumps(wizard), "no JSON", json.dumps(good))
    disk.put("main/current.jsonl", "".join(f"{line}\n" for line in lines).encode())
    async with open_world(ScriptedModel([]), disk=disk) as world:
        await world.idle()
        assert [line["content"] for line in world.session()] == ["kept", "kept"]
    [aside] = [path for path in disk.paths() if ".bad-" in path]
    assert disk.content(aside).decode().splitlines() == list(lines[1:3])
