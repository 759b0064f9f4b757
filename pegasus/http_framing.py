r"""`refuse_ambiguous`: an h11 connection that takes no request whose end two servers could see at different places.

A proxy in front of this server passes requests on over one connection. If the two disagree about where a request ends, its sender
can hide a second one in it, which the proxy has not looked at (request smuggling). h11 is lenient where RFC 9112 lets a server be: it
ends lines at a bare LF, folds lines that begin with a blank, takes several equal Content-Lengths as one, and lets chunks win over a
Content-Length. A proxy may decide otherwise, so here each of these is an error, which h11 then treats as its own ones: the request is
not served, and nothing more of the connection is read.

* A line ends with CRLF, in the head of a request, in a chunk's size and in the trailer behind the last chunk. A CR or LF anywhere
  else is refused, and so is a line that begins with a blank.
* There is one Content-Length at most, which is one number.
* Transfer-Encoding comes without Content-Length, in HTTP/1.1, and ends with `chunked`, which it has once.

What h11 refuses itself is not repeated here: a blank before the colon, NUL, sizes that are no numbers, whatever is no request line.

    connection = h11.Connection(h11.SERVER)
    refuse_ambiguous(connection)
    connection.receive_data(b"GET / HTTP/1.1\nHost: x\n\n")
    connection.next_event()                     # raises h11.RemoteProtocolError
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import h11
from h11._receivebuffer import ReceiveBuffer

_BARE: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n")
"""A CR or a LF that is no end of a line."""
_FOLD: Final = re.compile(rb"\n[ \t]")
"""A line that begins with a blank: the old way to continue the line before it."""
_FRAMING: Final = re.compile(rb"\n(content-length|transfer-encoding):[ \t]*([^\r]*?)[ \t]*\r", re.IGNORECASE)
"""A header field that says where the body ends, and its value."""


def refuse_ambiguous(connection: h11.Connection) -> None:
    """Make a connection refuse what the top of this file lists. It must not have read anything yet.

    Raises AttributeError if a new version of h11 keeps its bytes elsewhere, so that no server runs without the check.
    """
    if connection._receive_buffer:
        raise ValueError("the connection has read something already")
    connection._receive_buffer = _StrictBuffer()


def has_body(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether these fields announce a body. The handshake of a WebSocket has none: it would be read as frames.

    >>> has_body([(b"content-length", b"5")])
    True
    """
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        for name, value in fields
    )


class _StrictBuffer(ReceiveBuffer):
    """h11's buffer, which looks at all lines that are taken out of it."""

    _taken: bytearray
    """Bytes that were taken out last."""

    def _extract(self, count: int) -> bytearray:
        self._taken = super()._extract(count)
        return self._taken

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines of a head or a trailer, None if it is not complete. Raises RemoteProtocolError."""
        lines = super().maybe_extract_lines()
        if lines is not None:
            _check_lines(self._taken)
            _check_framing(self._taken)
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the line with a chunk's size, None if it is not complete. Raises RemoteProtocolError."""
        line = super().maybe_extract_next_line()
        if line is not None:
            _check_lines(line)
        return line


def _check_lines(lines: bytearray) -> None:
    if _BARE.search(lines):
        raise h11.RemoteProtocolError("a CR or LF that is no end of a line")
    if _FOLD.search(lines):
        raise h11.RemoteProtocolError("a line that begins with a blank")


def _check_framing(head: bytearray) -> None:
    found = [(name.lower(), value.lower()) for name, value in _FRAMING.findall(head)]
    names = [name for name, _ in found]
    if len(set(names)) > 1:
        raise h11.RemoteProtocolError("Content-Length together with Transfer-Encoding")
    if b"content-length" in names and not (len(found) == 1 and found[0][1].isdigit()):
        raise h11.RemoteProtocolError("several values of Content-Length, or none that is a number")
    if b"transfer-encoding" in names:
        # Other codings before the last one are a matter of h11, which answers 501: it knows none.
        *others, last = [coding.strip() for _, value in found for coding in value.split(b",")]
        is_old = not head.partition(b"\r\n")[0].endswith(b" HTTP/1.1")
        if is_old or last != b"chunked" or b"chunked" in others:
            raise h11.RemoteProtocolError("a Transfer-Encoding that does not say where the body ends")
