"""Sessions whose plain answers are one JSON object each, and whose long ones are streams of events.

The SDK answers all requests of a session by streams, or none of them. A stream takes five tasks and two writes more than an object,
and only some answers need one: notes of progress come before the answer, and comments keep a connection open while a client waits for
long. So this is decided for each request here.

Each request has a task of its own, which `is_plain` belongs to. The task of the SDK that gives out the messages of a session is
another one: it would drop notes of progress, were it ever to find that answers are plain.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from mcp.server import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext

MOST_SESSIONS: Final = 50
"""Sessions that clients of one token may have open. One without a request ends after SESSION_IDLE seconds."""
SESSION_IDLE: Final = 1800.0
_REQUEST_KEY: Final = b'"id"'
"""Key of each request. A notification has none. It is accepted before it is worked on, and its client need not wait for that."""
_NEEDS_STREAM: Final = (b"progressToken", b"waitSeconds")
"""Words of a request that is answered by a stream. One that is written in another way is answered all the same."""

is_plain: ContextVar[bool] = ContextVar("is_plain", default=False)
"""Tells whether the request of this task is answered by one object."""


def can_be_plain(fields: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    """Return whether a request is answered by one object. The one that opens a session is not: the session begins its tasks there."""
    has_session = any(name == b"mcp-session-id" for name, _ in fields)
    return has_session and _REQUEST_KEY in body and not any(word in body for word in _NEEDS_STREAM)


class SessionManager(StreamableHTTPSessionManager):
    """The sessions of the clients of a token."""

    def __init__(self, server: Server[Any], max_body_bytes: int) -> None:
        super().__init__(server, max_request_body_size=max_body_bytes)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Return a new session, None if there are too many. Nobody looks at its owner: whoever comes here has the same token."""
        if len(self._server_instances) >= MOST_SESSIONS:
            return None
        session = _Session(mcp_session_id := uuid4().hex, idle_timeout=SESSION_IDLE)
        self._server_instances[mcp_session_id] = session
        return session


class _Session(StreamableHTTPServerTransport):
    """A session."""

    @property
    def is_json_response_enabled(self) -> bool:
        """True while a request is looked at that is answered by one object."""
        return is_plain.get()

    @is_json_response_enabled.setter
    def is_json_response_enabled(self, value: bool) -> None:
        """Leave it as it is; the SDK sets it once for the whole session."""
