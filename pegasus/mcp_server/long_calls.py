"""Long calls as tasks, for clients with the extension `io.modelcontextprotocol/tasks` (from 2026-07-28 on).

A turn that takes longer than TASK_AFTER becomes a task: the client gets a handle, and asks for the state when it likes. The handle
names the message, which is on disk, so that it counts after a crash of the agent, too. A client may make one up: it reaches the
conversations of its own token only, and finds nothing there that it may not have.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, Final

import attrs
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from pegasus.mcp_server.reach import TokenReach
from pegasus.mcp_server.tools import turn_result
from pegasus.mcp_server.turns import AskedTurns
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json
from pegasus.web import ApiRequest
from pegasus.wire import decode_json, encode_json

EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASK_AFTER: Final = 10.0
"""Seconds after which a call becomes a task."""
POLL_EVERY: Final = 2000
"""Milliseconds that a client should let pass between two questions."""
LOOK: Final = 0.1
"""Seconds in which the journal must say that a turn has ended."""
_LATEST: Final = 253_370_764_800_000
"""1 January 9999, ms. Calendars of Python end soon after it."""
_MISSING_CAPABILITY: Final = -32021


def can_have_tasks(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client of a request takes a handle in place of a result."""
    capabilities = context.session.client_capabilities
    is_declared = capabilities is not None and EXTENSION in (capabilities.extensions or {})
    return is_declared and context.protocol_version in MODERN_PROTOCOL_VERSIONS


def require_tasks(context: ServerRequestContext[Any, Any]) -> None:
    """Raise MCPError unless the client has the extension."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    if not can_have_tasks(context):
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(_MISSING_CAPABILITY, "Missing required client capability", missing)


@attrs.frozen
class LongCall:
    """A turn that goes on behind its call."""

    address: Address
    message_id: str
    item: int
    """Number of the message in the queue."""
    created: int
    """Wall clock, ms."""

    @property
    def handle(self) -> str:
        """Id of the task."""
        value: list[Json] = [self.address.type, self.address.channel_id, self.message_id, self.item, self.created]
        return base64.urlsafe_b64encode(encode_json(value).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, handle: str, reach: TokenReach) -> LongCall:
        """Return the turn of a handle. Raises MCPError for one that names none of the client's own."""
        try:
            value = decode_json(base64.urlsafe_b64decode(handle + "=" * (-len(handle) % 4)))
        except (ValueError, RecursionError):
            value = None
        match value:
            case [str(type), str(id), str(message_id), int(item), int(created)] if (
                reach.talks and reach.has_conversation(type, id) and 0 < item < 1 << 53 and 0 <= created < _LATEST
            ):
                return cls(Address(type, id), message_id, item, created)
        raise MCPError(INVALID_PARAMS, "there is no such task", {"taskId": handle[:100]})

    def state(self, now: int, status: str, **more: Json) -> dict[str, Json]:
        """Return the task as the extension has it. now: wall clock, ms."""
        return {
            "taskId": self.handle,
            "status": status,
            "createdAt": _format(self.created),
            "lastUpdatedAt": _format(now),
            "ttlMs": None,
            "pollIntervalMs": POLL_EVERY,
            **more,
        }


async def look_at(request: ApiRequest, turns: AskedTurns, handle: str) -> dict[str, Json]:
    """Return the present state of a task, with its result once there is one. Raises MCPError, ApiError."""
    call = LongCall.parse(handle, TokenReach(request.grant))
    turn = await turns.revisit(call.address, call.message_id, call.item, LOOK)
    now = request.services.clock()
    if not turn.is_done:
        return call.state(now, "working")
    if turn.is_stopped and not turn.replies:
        return call.state(now, "cancelled")
    result = turn_result(call.message_id, call.address.channel_id, turn, has_key=True)
    found = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
    return call.state(now, "completed", result=found)


def cancel(request: ApiRequest, handle: str) -> None:
    """Stop the turn of a task. One that has ended stays as it is. Raises MCPError."""
    call = LongCall.parse(handle, TokenReach(request.grant))
    channel = ChannelInfo(call.address.type, call.address.channel_id)
    request.services.withdraw(InboundMessage("", channel, call.message_id))


def _format(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
