"""The control calls by which a client offers tools, and gives back what they led to."""

from __future__ import annotations

import pytest
import trio

from pegasus.access import TokenGrant
from pegasus.access.principal import StoredToken
from pegasus.app.control_plane import ClientToolMethods
from pegasus.gateway import BadParams, Caller, NotAllowed, NotFound
from pegasus.messages import Address
from pegasus.settings import LiveValue
from pegasus.tools import ClientTools

EDITOR = Caller("api", "acp/1")


@pytest.fixture
def methods():
    return ClientToolMethods(ClientTools(), LiveValue(()))


async def test_an_offer_counts_for_its_conversation_as_long_as_its_client_is_there(methods, autojump_clock):
    stream, told = await methods.offer(EDITOR, {"tools": ["run_command"]}), []
    assert stream.result == {"tools": ["run_command"]}

    async def push(n, event):
        told.append(event)
        with pytest.raises(NotFound):  # another conversation answers
            await methods.answer(Caller("api", "acp/2"), {"call": event["call"], "result": {}})
        assert await methods.answer(EDITOR, {"call": event["call"], "error": ""}) == {}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run, push)
        await trio.testing.wait_all_tasks_blocked()
        offer = methods.clients.find(Address("api", "acp/1"))
        with pytest.raises(Exception, match="it failed"):
            await offer.call("run_command", {"command": "x"}, 5, "t-1/call_7")
        nursery.cancel_scope.cancel()
    assert (told[0]["for"], told[0]["arguments"]) == ("t-1/call_7", {"command": "x"})
    assert methods.clients.find(Address("api", "acp/1")) is None


async def test_what_cannot_be_is_refused(methods):
    guest = Caller("api", "token-app/1", grant=TokenGrant(StoredToken("app", "", ("message",))))
    for method, caller, params, error in (
        (methods.offer, guest, {"tools": []}, NotAllowed),
        (methods.answer, guest, {"call": "t1", "result": {}}, NotAllowed),
        (methods.offer, Caller("api", None), {"tools": []}, BadParams),
        (methods.offer, EDITOR, {"tools": ["rm"]}, BadParams),
        (methods.offer, EDITOR, {"tools": [[]]}, BadParams),
        (methods.offer, EDITOR, {}, BadParams),
        (methods.answer, EDITOR, {"call": "t1"}, BadParams),
        (methods.answer, EDITOR, {"call": "t1", "result": {}, "error": "both"}, BadParams),
        (methods.answer, EDITOR, {"call": "t1", "result": []}, BadParams),
        (methods.answer, EDITOR, {"call": "t1", "result": {}}, NotFound),
    ):
        with pytest.raises(error):
            await method(caller, params)
