"""The `task` frame: the state of a background task, for the clients of the conversation that asked for it."""

import attrs
import trio

from pegasus.gateway.send_queue import MAX_STATES, SendQueue
from pegasus.messages import ChannelInfo, TaskProgress
from tests.pegasus.gateway.world import WEB, take, world

TASK = TaskProgress(WEB, "t1", 3, "find papers", "ACTING", "web_search", 2, 8250)


def waiting(tasks):
    async def open_tasks():
        return tasks

    return open_tasks


async def test_a_state_reaches_the_clients_of_its_conversation_with_every_field():
    async with world() as gate, gate.client() as client, gate.client("c2") as other:
        await gate.ref.tell(TASK)
        assert await client.get() == {
            "type": "task",
            "channel": {"type": "web", "channelId": "c1"},
            "taskId": "t1",
            "number": 3,
            "description": "find papers",
            "state": "ACTING",
            "tool": "web_search",
            "step": 2,
            "elapsedMs": 8250,
        }
        await other.quiet()


async def test_a_state_without_a_tool_has_an_empty_one():
    async with world() as gate, gate.client() as client:
        await gate.ref.tell(attrs.evolve(TASK, tool="", step=0, elapsed_ms=0, number=0))
        frame = await client.get()
        assert (frame["tool"], frame["step"], frame["elapsedMs"], frame["number"]) == ("", 0, 0, 0)


async def test_a_bridge_gets_the_states_of_its_type_with_the_channel():
    async with world() as gate, gate.client(None) as bridge:
        await gate.ref.tell(attrs.evolve(TASK, channel=ChannelInfo("web", "room", "u1", "thread")))
        assert (await bridge.get())["channel"] == {
            "type": "web",
            "channelId": "room",
            "userId": "u1",
            "replyTo": "thread",
        }


async def test_the_unfinished_tasks_of_its_conversation_follow_the_welcome():
    elsewhere = attrs.evolve(TASK, task_id="t2", channel=ChannelInfo("web", "c2"))
    async with world(open_tasks=waiting([TASK, elsewhere])) as gate:
        async with gate.client() as client:
            assert (await client.get())["taskId"] == "t1"
            await client.quiet()
        async with gate.client(None) as bridge:
            assert [(await bridge.get())["taskId"], (await bridge.get())["taskId"]] == ["t1", "t2"]


async def test_a_program_that_only_makes_calls_is_shown_no_tasks():
    async with world(open_tasks=waiting([TASK])) as gate, gate.client(callsOnly=True) as client:
        await client.quiet()


async def test_an_older_list_of_tasks_does_not_replace_a_state_that_was_pushed_meanwhile():
    listed = trio.Event()

    async def open_tasks():
        await listed.wait()
        return [TASK]

    async with world(open_tasks=open_tasks) as gate, gate.client() as client:
        await gate.ref.tell(attrs.evolve(TASK, state="COMPLETED", tool=""))
        assert (await client.get())["state"] == "COMPLETED"
        listed.set()
        await trio.testing.wait_all_tasks_blocked(0.02)
        await client.quiet()


# ------------------------------------------------------------------ the queue


async def test_the_newest_state_of_a_task_waits_behind_the_frames_and_replaces_those_before_it():
    queue = SendQueue(max_frames=2)
    for n in range(50):
        queue.push_state("t1", f"t1 {n}")
        queue.push_state("t2", f"t2 {n}")
    queue.push("reply")
    assert await take(queue) == ["reply", "t1 49", "t2 49"]
    assert queue.closing is None


async def test_states_of_very_many_tasks_drop_the_oldest():
    queue = SendQueue()
    for n in range(MAX_STATES + 1):
        queue.push_state(str(n), str(n))
    states = await take(queue)
    assert len(states) == MAX_STATES
    assert states[0] == "1"


async def test_a_state_behind_a_close_is_dropped_and_one_before_it_is_sent():
    queue = SendQueue()
    queue.push_state("t1", "before")
    queue.close(1001, "stopping")
    queue.push_state("t1", "behind")
    assert [await take(queue), await take(queue)] == [["before"], []]
