"""`is_loopback`: whether an address leads to this machine and can be reached from no other."""

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
