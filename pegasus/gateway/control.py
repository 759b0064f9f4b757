"""The control plane: the methods that a client may call, and the answer to a call.

The gateway knows no method itself. The daemon gives it a table of methods by name; each gets the caller and the parameters of
the call and returns a JSON object. Errors keep code and message apart: a program decides by the code, and the message can be
shown to a person as it is, without mention of frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import attrs
import trio

from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.protocol import CallFrame, ClientChannel, ErrorFrame, ResultFrame, encode_frame

CALL_TIMEOUT = 30.0
"""Seconds that a method may take. It is cancelled then, and the caller gets an error."""
MAX_CALLS = 16
"""Calls that one connection may have running at the same time. A further one is answered `overloaded`."""

Params: TypeAlias = Mapping[str, Json]
"""The parameters of a call, as they came. A method checks what it uses."""
_log = get_logger("gateway")


class BadParams(Exception):
    """Raised by a method for parameters that it does not take. str() says what was found and what is allowed."""


@attrs.frozen(eq=False)
class Caller:
    """The client that calls a method: the channel it has named in its hello."""

    type: str
    """Channel type, as "cli". A method may decide by it whether the caller is the owner."""
    channel_id: str | None
    """None for a bridge."""
    user_id: str | None = None
    """The person, where the client names one."""

    @classmethod
    def of(cls, channel: ClientChannel) -> Caller:
        """Return the caller that greeted as `channel`."""
        return cls(channel.type, channel.channel_id, channel.user_id)


class Method(Protocol):
    """A method of the control plane.

    Example::

        async def ping(caller: Caller, params: Params) -> Json:
            if params:
                raise BadParams("params: found some, allowed: none")
            return {"pong": caller.type}
    """

    async def __call__(self, caller: Caller, params: Params) -> Json:
        """Return a JSON object. May raise BadParams. It is cancelled after CALL_TIMEOUT, and when its client has gone."""


Methods: TypeAlias = Mapping[str, Method]
"""The methods by the names that clients call them by."""


async def answer_call(methods: Methods, caller: Caller, call: CallFrame) -> str:
    """Run a method and return its result, or its error, as the text of a frame. Raises nothing.

    A method that fails unexpectedly is logged with its traceback; the connection goes on.
    """
    method = methods.get(call.method)
    if method is None:
        return _error(call, "unknown_method", f"method: found {call.method!r}, allowed: {', '.join(sorted(methods))}")
    try:
        with trio.move_on_after(CALL_TIMEOUT):
            result = await method(caller, call.params)
            if not isinstance(result, Mapping):
                raise TypeError(f"a result must be a JSON object, found {type(result).__name__}")
            return encode_frame(ResultFrame(call.id, result))
    except BadParams as error:
        return _error(call, "bad_frame", str(error))
    except Exception as error:
        _log.exception("a control-plane method failed", error=error, method=call.method)
        return _error(call, "internal", f"{call.method} failed: {error}; the log has the details")
    return _error(call, "internal", f"{call.method} took longer than {CALL_TIMEOUT:g} s and was ended")


def _error(call: CallFrame, code: str, message: str) -> str:
    """Return an error frame with the call's id, by which the client finds what was refused."""
    return encode_frame(ErrorFrame(code, message, call.id))
