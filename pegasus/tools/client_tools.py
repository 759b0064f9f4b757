"""Tools that a connected program carries out for its conversation, in place of our own: the files and terminals of an editor.

A client of an owner's offers some of NAMES for its own conversation (`ClientTools.offer`), for as long as it is connected. The newest
offer for a conversation counts for new calls; those of an earlier one come to their end.

A call waits for the client at most until its deadline, and fails at once when the client is gone. Whether it had an effect by then is
not known, so it is never made again, and our own tool does not take its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

import attrs
import trio

from pegasus.messages import Address, Json

RUN_COMMAND: Final = "run_command"
READ_FILE: Final = "read_text_file"
WRITE_FILE: Final = "write_text_file"
NAMES: Final = (RUN_COMMAND, READ_FILE, WRITE_FILE)
"""Tools that a client may offer."""
_NUMBERS: Final = count(1)
"""Numbers of calls. No id comes twice in a run of the program, so a late answer never meets another call."""
_CLOSED: Final = (trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError)
"""Errors of a queue that nobody reads any more."""


class ClientCallFailed(Exception):
    """A client has refused a call, is late, or is gone. str() is a sentence for the model."""


@attrs.define(eq=False)
class _ClientCall:
    """A call that the client has not answered."""

    done: trio.Event = attrs.field(factory=trio.Event)
    result: Mapping[str, Any] = attrs.field(factory=dict)
    error: str = ""


class ClientOffer:
    """Tools that one client offers for its conversation."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self.is_former = False
        """Another offer has taken its place."""
        self._calls: dict[str, _ClientCall] = {}
        """Calls that wait, by id."""
        self._out, self._queue = trio.open_memory_channel[Mapping[str, Json]](1000)
        """Calls and cancellations that the client is not told of yet. Few calls run at once, so it is never full."""

    async def serve(self, push: Callable[[int, Mapping[str, Json]], Awaitable[None]]) -> None:
        """Tell the client of calls until cancelled (the client is gone), or until those of a former offer are done."""
        try:
            numbers = count(1)
            async for message in self._queue:
                await push(next(numbers), message)
        finally:
            self.end()

    async def call(self, name: str, arguments: Mapping[str, Json], seconds: float, key: str = "") -> Mapping[str, Any]:
        """Return what the client gives back. Raises ClientCallFailed. Cancelled, the client is told so.

        key: of the tool call that it is a part of, by which the client finds that.
        """
        id, call = f"t{next(_NUMBERS)}", _ClientCall()
        if self.is_former:
            raise ClientCallFailed(f"{name} is not carried out by the connected program any more")
        try:
            self._out.send_nowait({"type": "call", "call": id, "for": key, "tool": name, "arguments": arguments})
        except _CLOSED:
            raise ClientCallFailed(f"the program that carries out {name} is not connected any more") from None
        self._calls[id] = call
        try:
            with trio.move_on_after(seconds):
                await call.done.wait()
        finally:
            del self._calls[id]
            if not call.done.is_set():
                with suppress(*_CLOSED):
                    self._out.send_nowait({"type": "cancel", "call": id})
            self._close_if_over()
        if not call.done.is_set():
            raise ClientCallFailed(f"the program that carries out {name} has not answered within {seconds:.3g} s")
        if call.error:
            raise ClientCallFailed(call.error)
        return call.result

    def answer(self, id: str, result: Mapping[str, Any], error: str) -> bool:
        """Give a call its result, or its error where that is not ""; return whether it waits for one."""
        call = self._calls.get(id)
        if call is None or call.done.is_set():
            return False
        call.result, call.error = result, error
        call.done.set()
        return True

    def retire(self) -> None:
        """Let no call begin any more; those that wait come to their end."""
        self.is_former = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        """Let the stream end once nothing more can come."""
        if self.is_former and not self._calls:
            self._out.close()

    def end(self) -> None:
        """Let all calls fail, and no other begin."""
        self._out.close()
        for id, call in self._calls.items():
            if not call.done.is_set():
                call.error = (
                    f"the program that carries out this call is gone; whether it has had an effect is unknown ({id})"
                )
                call.done.set()


class ClientTools:
    """Offers of clients by conversation."""

    def __init__(self) -> None:
        self._offers: dict[Address, list[ClientOffer]] = {}
        """Offers that are not over, the newest last."""

    def offer(self, address: Address, names: Collection[str]) -> ClientOffer:
        """Take an offer for a conversation, which counts from now on."""
        offers = self._offers.setdefault(address, [])
        for former in offers:
            former.retire()
        offers.append(ClientOffer(names))
        return offers[-1]

    def withdraw(self, address: Address, offer: ClientOffer) -> None:
        """End an offer. One that it has taken the place of does not come back."""
        offer.end()
        self._offers[address].remove(offer)
        if not self._offers[address]:
            del self._offers[address]

    def find(self, address: Address) -> ClientOffer | None:
        """Return the offer that counts for a conversation, None if there is none."""
        offers = self._offers.get(address)
        return offers[-1] if offers and not offers[-1].is_former else None

    def answer(self, address: Address, id: str, result: Mapping[str, Any], error: str) -> bool:
        """Give a call of a conversation its result, or its error; return whether it waits for one."""
        return any(offer.answer(id, result, error) for offer in self._offers.get(address, ()))
