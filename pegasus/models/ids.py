"""Ids of tool calls that are there and unique in their conversation, also where a server gives none or counts from 0 each time.

Two calls with one id would make the conversation invalid for every strict provider, and a reply look like one already sent.
"""

from __future__ import annotations

import zlib

from pegasus.models.encoding import wire_id


class CallIds:
    """For one answer. body: the request it answers, which holds every id used so far as `"id":"…"`."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._given: set[str] = set()

    def unique(self, call_id: str) -> str:
        """The id itself, fit for the wire; or one made of it and the request, always the same for the same request."""
        fit = wire_id(call_id) if call_id else ""
        if not fit or fit in self._given or b'"id":"%s"' % fit.encode() in self._body:
            fit = wire_id(f"{call_id[:12] or 'call'}_{self._mark()}_{len(self._given)}")
        self._given.add(fit)
        return fit

    def _mark(self) -> str:
        return f"{zlib.crc32(self._body):08x}{len(self._body):x}"
