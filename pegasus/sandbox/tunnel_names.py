"""The host that a client names at the beginning of a connection through a tunnel: in the greeting of TLS, or in a request of HTTP.

A server may have many sites behind one address, as those of content networks have. So a tunnel to an allowed name leads to the allowed
site only if the client names it inside as well.
"""

from __future__ import annotations

import re
from typing import Final

MOST_BYTES: Final = 64 * 1024
"""Bytes in which a client must have named its host. Greetings of TLS have some hundred to some thousand."""
_HANDSHAKE: Final = 22
"""Type of a TLS record that carries the greeting."""
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
"""Number of the extension with the name, and of a name of a host in it."""
_METHOD: Final = re.compile(rb"[A-Z]{3,10} ")
_HOST: Final = re.compile(rb"\r\nhost[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)


def named_host(data: bytes) -> str | None:
    """Return the host that the beginning of a connection names, in small letters, "" if it names none; None: more must come first.

    Of a greeting or request that makes no sense, or names several hosts, the answer is a text that is no host.
    """
    data = data.lstrip(b"\r\n")  # as servers do before a request
    if not data:
        return None
    try:
        if data[0] == _HANDSHAKE:
            return _of_greeting(data)
    except IndexError:
        return "(a greeting that makes no sense)"
    if _METHOD.match(data) is None:
        # Until the method could be complete, this may be a request.
        return None if len(data) < 11 and data.isupper() and data.isalpha() else ""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    hosts = _HOST.findall(data[: end + 2])
    if len(hosts) != 1 or b"\n" in data[:end].replace(b"\r\n", b""):
        return "(a request that names not one host)"
    return _without_port(hosts[0].decode("latin-1"))


def _without_port(host: str) -> str:
    """Return a host without its port and brackets."""
    name, _, port = host.lower().rpartition(":")
    return (name if name and port.isdecimal() else host.lower()).strip("[]").rstrip(".")


def _of_greeting(data: bytes) -> str | None:
    """Return the name in a ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3). Raises IndexError for nonsense."""
    message, position = b"", 0
    while position + 5 <= len(data):  # a greeting may be spread over several records
        if data[position] != _HANDSHAKE:
            raise IndexError
        size = int.from_bytes(data[position + 3 : position + 5])
        message += data[position + 5 : position + 5 + size]
        position += 5 + size
    if len(message) < 4:
        return None
    length = int.from_bytes(message[1:4])
    if message[0] != _CLIENT_HELLO or length > MOST_BYTES:
        raise IndexError
    if len(message) < 4 + length:
        return None
    body = message[4 : 4 + length]
    at = 34  # version and random number
    at += 1 + body[at]  # session
    at += 2 + int.from_bytes(body[at : at + 2])  # ciphers
    at += 1 + body[at]  # compressions
    end = at + 2 + int.from_bytes(body[at : at + 2])
    at += 2
    names: list[str] = []
    while at + 4 <= min(end, len(body)):
        kind, size = int.from_bytes(body[at : at + 2]), int.from_bytes(body[at + 2 : at + 4])
        if kind == _SERVER_NAME:
            inner = body[at + 4 : at + 4 + size]
            if inner[2] != _SERVER_NAME or int.from_bytes(inner[3:5]) != len(inner) - 5:
                raise IndexError  # several names
            names.append(inner[5:].decode("latin-1").lower().rstrip("."))
        at += 4 + size
    if len(names) > 1:
        raise IndexError
    return names[0] if names else ""
