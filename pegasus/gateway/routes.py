"""Who is connected for which address: dictionaries, so that a reply costs the same with one client and with thousands."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from pegasus.gateway.frames import Hello
from pegasus.messages import Address

C = TypeVar("C")


class Routes(Generic[C]):
    """Clients by exact address, and bridges by channel type."""

    def __init__(self) -> None:
        self._exact: dict[Address, dict[C, None]] = {}
        self._bridges: dict[str, dict[C, None]] = {}

    def add(self, hello: Hello, client: C) -> None:
        """From now on this client is given what is for the address or the type that it named."""
        if hello.channel is None:
            self._bridges.setdefault(hello.type, {})[client] = None
        else:
            self._exact.setdefault(hello.channel.address, {})[client] = None

    def remove(self, hello: Hello, client: C) -> Collection[C]:
        """The client has gone. Gives the bridges that its address falls to, if it was the last one there."""
        if hello.channel is None:
            _discard(self._bridges, hello.type, client)
            return ()
        address = hello.channel.address
        _discard(self._exact, address, client)
        return () if address in self._exact else tuple(self._bridges.get(address.type, ()))

    def clients(self, address: Address) -> Collection[C]:
        """Who is to get a reply to this address: its own clients, or the bridges of its type if it has none."""
        return tuple(self._exact.get(address) or self._bridges.get(address.type) or ())

    def has_own_client(self, address: Address) -> bool:
        """Whether a client of exactly this address is there, so that bridges leave it alone."""
        return address in self._exact


K = TypeVar("K")


def _discard(table: dict[K, dict[C, None]], key: K, client: C) -> None:
    clients = table.get(key, {})
    clients.pop(client, None)
    if not clients:
        table.pop(key, None)
