"""Tools that a connected client carries out: answers, deadlines, cancellation, and the end of an offer."""

from __future__ import annotations

import pytest
import trio

from pegasus.messages import Address
from pegasus.tools.client_tools import ClientCallFailed, ClientTools

HERE = Address("api", "acp/1")


async def test_a_call_gets_its_answer_once(autojump_clock):
    offer, told = ClientTools().offer(HERE, ["run_command"]), []

    async def push(n, event):
        told.append((n, event))
        if event["type"] == "call":
            error = event["arguments"].get("fail", "")
            assert offer.answer(event["call"], {"output": "x"}, error)
            assert not offer.answer(event["call"], {"output": "y"}, "")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(offer.serve, push)
        assert await offer.call("run_command", {"command": "x"}, 5) == {"output": "x"}
        with pytest.raises(ClientCallFailed, match="the disk is full"):
            await offer.call("run_command", {"fail": "the disk is full"}, 5)
        nursery.cancel_scope.cancel()
    assert [n for n, _ in told] == [1, 2]
    assert not offer.answer(told[0][1]["call"], {}, ""), "a late answer"


async def test_a_client_that_does_not_answer_costs_the_deadline_and_is_told(autojump_clock):
    offer, told = ClientTools().offer(HERE, ["run_command"]), []

    async def push(n, event):
        told.append(event["type"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(offer.serve, push)
        began = trio.current_time()
        with pytest.raises(ClientCallFailed, match="not answered within 5 s"):
            await offer.call("run_command", {}, 5)
        assert trio.current_time() - began == 5
        with trio.move_on_after(1):
            await offer.call("run_command", {}, 5)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert told == ["call", "cancel", "call", "cancel"]


async def test_calls_fail_at_once_when_the_client_is_gone(autojump_clock):
    clients = ClientTools()
    offer = clients.offer(HERE, ["run_command"])
    async with trio.open_nursery() as nursery:
        serving = trio.CancelScope()

        async def serve():
            with serving:
                await offer.serve(nothing)

        async def ask():
            with pytest.raises(ClientCallFailed, match="is gone"):
                await offer.call("run_command", {}, 50)

        nursery.start_soon(serve)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        serving.cancel()
    assert trio.current_time() < 1
    with pytest.raises(ClientCallFailed, match="not connected"):
        await offer.call("run_command", {}, 50)
    clients.withdraw(HERE, offer)
    assert clients.find(HERE) is None


async def test_a_call_of_a_former_offer_comes_to_its_end(autojump_clock):
    clients, results = ClientTools(), []
    former = clients.offer(HERE, ["run_command"])
    async with trio.open_nursery() as nursery:
        calls = []

        async def push(n, event):
            calls.append(event["call"])

        async def ask():
            results.append(await former.call("run_command", {}, 50))

        nursery.start_soon(former.serve, push)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        newer = clients.offer(HERE, [])
        assert clients.find(HERE) is newer
        assert not clients.answer(Address("api", "acp/2"), calls[0], {}, "")
        assert clients.answer(HERE, calls[0], {"output": "late"}, "")
    assert results == [{"output": "late"}], "and its stream has ended with it"


async def nothing(n, event):
    """Tell nobody."""
