"""The addresses that network tools may reach: public ones, and those permitted by the setting `tools.allowed_hosts`.

`tools.web_hosts` narrows that down to certain hosts. It is checked by the name as it is written, for each hop of a redirect.

A model can be talked into fetching `http://169.254.169.254/` (the credentials of a cloud machine)
or a service of the local network. So every connection of a tool goes to an address that an
`AddressGuard` returned. A name is resolved once, each of its addresses is checked, and the
connection is made to a checked address. A name server that answers differently the second time (DNS
rebinding) gains nothing, because there is no second time. Only the address counts, so the spelling
of a host does not matter: `localhost.` and a public name that points inside end up as the same
address.

Ranges: the IANA special-purpose address registries (RFC 6890) for IPv4 and IPv6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

import attrs
import trio

from pegasus.sandbox import Dial, DialError, Sandbox
from pegasus.settings import Settings
from pegasus.tools.base import ToolError

Address: TypeAlias = IPv4Address | IPv6Address
"""An address of either version."""
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""A function that returns the addresses of a host name, best first. It raises OSError if there are
none."""

CONNECT_SECONDS: Final = 10.0
"""Seconds that an address has to accept the connection of a command, before the next one is tried."""
_HINT: Final = "only public addresses are reached, unless the user permits it by tools.allowed_hosts in pegasus.toml"
"""Says what the user can change; the model passes it on."""

_SPECIAL_BLOCKS: Final = tuple(
    (ip_network(block), description)
    for block, description in (
        ("0.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's inner network"),
        ("127.0.0.0/8", "this machine"),
        ("169.254.0.0/16", "link-local, where clouds keep their secrets"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation only"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "for measurements in a private network"),
        ("198.51.100.0/24", "documentation only"),
        ("203.0.113.0/24", "documentation only"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::1/128", "this machine"),
        ("::/128", "this machine"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved (Teredo among it)"),
        ("2001:db8::/32", "documentation only"),
        ("3fff::/20", "documentation only"),
    )
)
"""Ranges that are not public, each with its description for the error."""
_GLOBAL_V6: Final = ip_network("2000::/3")
"""The only range of IPv6 that is in use for public addresses."""
_SIX_TO_FOUR: Final = ip_network("2002::/16")
"""6to4: bits 16 to 47 are an IPv4 address."""
_V4_IN_LAST_BITS: Final = tuple(
    ip_network(block) for block in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")
)
"""Ranges whose last 32 bits are an IPv4 address."""


def embedded_v4(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for (mapped, SIIT, NAT64, compatible or 6to4), or None."""
    if isinstance(address, IPv4Address) or int(address) <= 1:
        return None
    if address in _SIX_TO_FOUR:
        return IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    if any(address in block for block in _V4_IN_LAST_BITS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def why_not_public(address: Address) -> str | None:
    """Return the kind of an address that is not public, or None for a public one."""
    address = embedded_v4(address) or address
    for block, description in _SPECIAL_BLOCKS:
        if address.version == block.version and address in block:
            return description
    if address.version == 6 and address not in _GLOBAL_V6:
        return "reserved"
    return None


class AddressGuard:
    """Resolves hosts to addresses that may be connected to.

    For example:

        guard = AddressGuard(["*.home.example", "192.168.1.0/24"])
        await guard.addresses("printer.home.example", 80)  # ("192.168.1.17",)
        await guard.addresses("169.254.169.254", 80)  # raises ToolError
    """

    def __init__(
        self, allowed: Sequence[str] = (), resolve: Resolve | None = None, *, only: Sequence[str] = ()
    ) -> None:
        """Make a guard.

        allowed: names (`example.org`; `*.example.org` for all below it), addresses and CIDR ranges
        that are permitted though they are not public. resolve: used instead of the system's
        resolver. only: the hosts that are reached at all, in the same forms; () = all.
        """
        self._allowed = _HostList(allowed)
        self._only = _HostList(only)
        self._resolve = resolve or lookup

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Return the addresses to connect to, best first. Raises ToolError if there are none that may be reached.

        host: a name in its ASCII form, or an address. A permitted name may resolve to any address;
        an address that is written directly must itself be public or permitted. When cancelled,
        returns at once.
        """
        name = host.lower().strip("[]")
        literal = _parse_literal(name)
        if self._only and not self._only.has(name.rstrip("."), literal):
            raise ToolError(f"{host} is refused: only the hosts of tools.web_hosts in pegasus.toml are reached")
        found = [literal] if literal is not None else await self._lookup(name.rstrip("."), port)
        permitted = literal is None and self._allowed.has_name(name.rstrip("."))
        checked = [address for address in found if permitted or self._is_reachable(address)]
        if not checked:
            raise ToolError(_explain_refusal(host, found))
        return tuple(dict.fromkeys(str(address) for address in checked))

    async def _lookup(self, name: str, port: int) -> list[Address]:
        """Resolve a name.

        Raises ToolError with the resolver's reason. The port is passed on because some resolvers
        need one.
        """
        if not name:
            raise ToolError("the address names no host")
        try:
            found = await self._resolve(name, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the host {name} was not found: {error}") from error
        return [ip_address(text) for text in found]

    def _is_reachable(self, address: Address) -> bool:
        """Return whether an address is public, or in a permitted range, itself or as the IPv4 address in it."""
        return why_not_public(address) is None or self._allowed.has_address(address)


class _HostList:
    """Hosts of the settings: names, addresses and ranges."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._names: list[str] = []
        self._blocks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            entry = entry.strip().lower().rstrip(".")
            try:
                self._blocks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:  # a name; so a mistyped range permits nothing instead of too much
                self._names.append(entry)

    def __bool__(self) -> bool:
        return bool(self._names or self._blocks)

    def has(self, name: str, literal: Address | None) -> bool:
        """Return whether a host is in the list as it is written: a name, or an address."""
        return self.has_name(name) if literal is None else self.has_address(literal)

    def has_name(self, name: str) -> bool:
        """Return whether a name is in the list, whatever it resolves to."""
        return any(name == entry or (entry.startswith("*.") and name.endswith(entry[1:])) for entry in self._names)

    def has_address(self, address: Address) -> bool:
        """Return whether an address is in the list, itself or as the IPv4 address in it."""
        return any(
            form.version == block.version and form in block
            for form in (address, embedded_v4(address))
            if form is not None
            for block in self._blocks
        )


def with_network(sandbox: Sandbox, settings: Settings) -> Sandbox:
    """Return walls whose way to the network reaches what these settings allow."""
    wanted = settings.sandbox
    dial = guarded_dial(AddressGuard(wanted.allowed_hosts, only=wanted.hosts))
    return attrs.evolve(sandbox, dial=dial, has_hosts=bool(wanted.hosts))


def guarded_dial(guard: AddressGuard) -> Dial:
    """Return the function that makes the connections of commands within walls: to addresses that this guard lets through.

    sandbox = attrs.evolve(sandbox, dial=guarded_dial(AddressGuard(settings.sandbox.allowed_hosts)))
    """

    async def dial(host: str, port: int) -> trio.abc.Stream:
        """Connect to the first address of the host that answers.

        The error names the setting of the sandbox, since this way has a list of its own.
        """
        try:
            addresses = await guard.addresses(host, port)
        except ToolError as error:
            text = str(error).replace("tools.allowed_hosts", "sandbox.allowed_hosts")
            raise DialError(text.replace("tools.web_hosts", "sandbox.hosts")) from error
        problem = ""
        for address in addresses:
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    return await trio.open_tcp_stream(address, port)
            except (OSError, trio.TooSlowError) as error:
                problem = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
        raise DialError(f"{host} port {port} cannot be reached: {problem}")

    return dial


def _explain_refusal(host: str, found: Sequence[Address]) -> str:
    """Return the reason for the model: what the first address is, and what the user can do about it."""
    if not found:
        return f"the host {host} has no address"
    address = str(found[0])
    place = address if address == host.strip("[]") else f"{host} ({address})"
    return f"{place} is refused: it is {why_not_public(found[0])}; {_HINT}"


def _parse_literal(host: str) -> Address | None:
    """Return the address if the host is one, None for a name.

    Raises ToolError for spellings that programs read differently: what this check takes for a name,
    the system's resolver might take for an address of this machine. It also reads no further than a NUL, so that a
    name could end as an entry of the settings does and mean another host.
    """
    if not host.isprintable() or " " in host:
        raise ToolError(f"{host!r} is refused: it is not the name of a host; {_HINT}")
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        if _ends_in_number(host):
            raise ToolError(
                f"{host} is refused: write an IPv4 address as four decimal numbers, as 192.0.2.1; {_HINT}"
            ) from None
        return None
    if "%" in host:
        raise ToolError(f"{host} is refused: an address with a zone is link-local; {_HINT}")
    return address


def _ends_in_number(host: str) -> bool:
    """Return whether some programs take a host for an IPv4 address: 2130706433, 0x7f.1, 0177.0.0.1 (WHATWG URL)."""
    last = host.removesuffix(".").rpartition(".")[2]
    if last.isdigit():
        return True
    return last.startswith("0x") and all(letter in "0123456789abcdef" for letter in last[2:])


async def lookup(name: str, port: int) -> list[str]:
    """Return the addresses of a name as the system resolves it. Raises OSError; when cancelled, returns at once."""
    found = await trio.socket.getaddrinfo(name, port, type=trio.socket.SOCK_STREAM)
    return [str(info[4][0]).partition("%")[0] for info in found]
