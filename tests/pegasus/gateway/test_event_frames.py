"""A method may answer with a stream: its result, then `event` frames over the same connection."""

import trio

from pegasus.gateway import EventStream
from tests.pegasus.gateway.world import world


async def counting(caller, params):
    async def run(push):
        for n in range(1, int(params.get("events", 3)) + 1):
            await push(n, {"type": "TICK", "text": "x" * int(params.get("size", 0))})

    return EventStream({"n": 0}, run)


async def endless(caller, params):
    async def run(push):
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    ended = ENDED[-1]
    return EventStream({}, run)


ENDED = []
METHODS = {"count": counting, "endless": endless}


async def test_the_result_comes_first_and_each_event_names_its_call():
    async with world(methods=METHODS) as gate, gate.client() as client:
        await client.send(type="call", id="7", method="count")
        assert await client.get() == {"type": "result", "id": "7", "result": {"n": 0}}
        for n in (1, 2, 3):
            assert await client.get() == {"type": "event", "id": "7", "n": n, "event": {"type": "TICK", "text": ""}}


async def test_a_slow_reader_is_waited_for_and_loses_nothing():
    async with world(methods=METHODS) as gate, gate.client() as client:
        await client.send(type="call", id="7", method="count", params={"events": 2000, "size": 2000})
        await trio.sleep(0.05)
        await client.get()
        assert [(await client.get())["n"] for _ in range(2000)] == list(range(1, 2001))


async def test_a_stream_ends_with_its_connection():
    ENDED.append(trio.Event())
    async with world(methods=METHODS) as gate:
        async with gate.client() as client:
            await client.send(type="call", id="7", method="endless")
            await client.get()
        with trio.fail_after(10):
            await ENDED[-1].wait()


async def test_streams_count_as_calls():
    ENDED.append(trio.Event())
    async with world(methods=METHODS) as gate, gate.client() as client:
        for n in range(16):
            await client.send(type="call", id=str(n), method="endless")
            await client.get()
        await client.send(type="call", id="16", method="endless")
        assert (await client.get())["code"] == "overloaded"
