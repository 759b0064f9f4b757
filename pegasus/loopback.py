"""`is_loopback`: whether an address leads to this machine and can be reached from no other.

It decides where a weaker protection will do, such as plain http:// instead of TLS. So it errs on the side of no. A name
is judged by its letters alone, because a resolver may answer differently the next time; only `localhost` is known to
mean this machine (RFC 6761, section 6.3).

The file stands by itself because packages on different levels need the same answer, and none of them should import
another one for it.
"""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine can reach: `is_loopback("[::1]")`.

    A name other than localhost is not looked up: what it means may change, and may be decided by others.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
