"""Tools of clients: `tools.offer` and `tools.result`, by which an editor lends its files and terminals to its conversation."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from pegasus.formatting import quote
from pegasus.gateway import (
    BadParams,
    Caller,
    EventStream,
    Method,
    NotFound,
    Params,
    PushEvent,
    require_owner,
    require_text,
)
from pegasus.messages import Address, Json
from pegasus.settings import LiveValue
from pegasus.tools import CLIENT_TOOLS, ClientTools


@attrs.frozen(eq=False, repr=False)
class ClientToolMethods:
    """Tools that a client carries out for its own conversation.

    Example::

        stream = await methods.offer(caller, {"tools": ["run_command"]})
        await stream.run(push)  # {"type": "call", "call": "t1", "tool": "run_command", "arguments": {…}}
        await methods.answer(caller, {"call": "t1", "result": {"exitCode": 0, "output": ""}})
    """

    clients: ClientTools
    """The offers."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"tools.offer": self.offer, "tools.result": self.answer}

    async def offer(self, caller: Caller, params: Params) -> EventStream:
        """Offer `tools` for the conversation of the caller. The calls follow as events, until the next offer for it."""
        address, names = self._address(caller), params.get("tools")
        if not isinstance(names, list) or not all(name in CLIENT_TOOLS for name in names):
            raise BadParams(f"tools: found {quote(names, 80)}, allowed: a list of {', '.join(CLIENT_TOOLS)}")

        async def run(push: PushEvent) -> None:
            """Push calls. The offer is made here, so that none is left by a client that has gone before."""
            offer = self.clients.offer(address, [str(name) for name in names])
            try:
                await offer.serve(push)
            finally:
                self.clients.withdraw(address, offer)

        return EventStream({"tools": names}, run)

    async def answer(self, caller: Caller, params: Params) -> Json:
        """Give back what a `call` has led to: its `result`, an object, or an `error`, a sentence for the model."""
        id, result, error = require_text(params, "call"), params.get("result"), params.get("error")
        if (
            not isinstance(error, str | None)
            or not isinstance(result, Mapping | None)
            or (error is None) == (result is None)
        ):
            raise BadParams("allowed: result, an object, or error, a text")
        failure = "" if error is None else error or "it failed"
        if not self.clients.answer(self._address(caller), id, result or {}, failure):
            raise NotFound(f"call: there is no call {quote(id, 40)} that waits for an answer")
        return {}

    def _address(self, caller: Caller) -> Address:
        """Return the conversation of the caller. Raises NotAllowed, BadParams."""
        require_owner(caller, self.owners.now, "offers tools")
        if caller.channel_id is None:
            raise BadParams("tools: a bridge has no conversation of its own")
        return Address(caller.type, caller.channel_id)
