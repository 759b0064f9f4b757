"""`EventStreamResponse`: what all responses of server-sent events have in common.

The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

QUIET: Final = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the stream for dead."""


class EventStreamResponse(Response):
    """A response that is sent piece by piece, and that nobody keeps. Subclasses send it in `__call__`."""

    def __init__(self) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        self.raw_headers = [field for field in self.raw_headers if field[0] != b"content-length"]
