"""The control plane: methods a client may call. app.py passes the table of methods; each gets who calls and with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import attrs
import trio

from pegasus.gateway import render
from pegasus.gateway.frames import Call, Hello
from pegasus.messages import Json
from pegasus.observe import get_logger

CALL_TIMEOUT = 30.0
"""Seconds a method may take."""
CALLS_UNDER_WAY = 16
"""Calls one connection may have under way at a time."""

Params: TypeAlias = Mapping[str, Json]
_log = get_logger("gateway")


class BadParams(Exception):
    """Raised by a method whose params are not what it takes; says what was found and what is allowed."""


@attrs.frozen(eq=False)
class Caller:
    """Who calls: the channel of the connection; channel_id None for a bridge."""

    type: str
    channel_id: str | None
    user_id: str | None = None

    @classmethod
    def of(cls, hello: Hello) -> Caller:
        """The caller that a client is who said this."""
        channel = hello.channel
        return cls(hello.type, None) if channel is None else cls(channel.type, channel.channel_id, channel.user_id)


class Method(Protocol):
    """A method of the control plane. Its result must be JSON; it may raise BadParams; it is cancelled at its deadline."""

    async def __call__(self, caller: Caller, params: Params) -> Json:
        """Do it and give the result."""


Methods: TypeAlias = Mapping[str, Method]


async def answer_call(methods: Methods, caller: Caller, call: Call) -> str:
    """The result frame of a call, or its error frame; raises nothing."""
    method = methods.get(call.method)
    if method is None:
        known = ", ".join(sorted(methods))
        return render.error("unknown_method", f"method: found {call.method!r}, allowed: {known}", call.id)
    try:
        with trio.move_on_after(CALL_TIMEOUT):
            return render.result(call.id, await method(caller, call.params))
    except BadParams as error:
        return render.error("bad_frame", f"{call.method}: {error}", call.id)
    except Exception as error:
        _log.exception("a control-plane method failed", error=error, method=call.method)
        return render.error("internal", f"{call.method} failed: {error}; the log has the details", call.id)
    return render.error("internal", f"{call.method} took longer than {CALL_TIMEOUT:g} s and was ended", call.id)
