"""Which hosts the network tools reach, by rule and with a resolver that answers what the test wants."""

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.tools.base import ToolError
from pegasus.tools.web.addresses import AddressGuard, embedded_v4, why_not_public

PUBLIC = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"]
PUBLIC_INSIDE = ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:0101:0101::1"]
REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "2002:7f00:0001::",
    "2002:c0a8:0101::1",
    "2002:a9fe:a9fe::",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "3fff::1",
    "100::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "4000::1",
]


def guard(*allowed, **names):
    """A guard whose resolver knows `names` and nothing else; what it was asked is in `asked`."""
    asked = []

    async def resolve(name, port):
        asked.append(name)
        if name not in names:
            raise OSError("Name or service not known")
        return names[name]

    made = AddressGuard(allowed, resolve)
    made.asked = asked
    return made


@pytest.mark.parametrize("address", PUBLIC + PUBLIC_INSIDE)
async def test_public_addresses_are_reached(address):
    assert await guard().addresses(address, 80) == (str(ipaddress.ip_address(address)),)


@pytest.mark.parametrize("address", REFUSED)
async def test_other_addresses_are_not(address):
    with pytest.raises(ToolError, match=r"is refused: it is .*tools\.allowed_hosts"):
        await guard().addresses(address, 80)


@pytest.mark.parametrize("address", REFUSED)
async def test_nor_by_a_name(address):
    with pytest.raises(ToolError, match=re.escape(f"rebind.example ({ipaddress.ip_address(address)}) is refused")):
        await guard(**{"rebind.example": [address]}).addresses("rebind.example", 80)


@given(st.ip_addresses(v=4))
def test_whatever_python_knows_to_be_private_is_refused(address):
    """The library's own table as a second opinion; it does not know 192.88.99.0/24."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert why_not_public(address)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "::"]))
def test_an_ipv4_address_in_an_ipv6_address_is_judged_as_itself(inner, prefix):
    if int(inner) > 1:
        outer = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(inner))
        assert embedded_v4(outer) == inner
        assert why_not_public(outer) == why_not_public(inner)


@given(st.ip_addresses(v=4))
def test_so_is_one_in_6to4(inner):
    assert embedded_v4(ipaddress.IPv6Address((0x2002 << 112) | (int(inner) << 80) | 1)) == inner


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_outside_global_unicast_is_refused(address):
    if int(address) >> 125 != 1 and embedded_v4(address) is None:
        assert why_not_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "0x",
        "256.1.1.1",
    ],
)
@pytest.mark.parametrize("dot", ["", "."])
async def test_addresses_in_odd_forms_are_refused_unresolved(host, dot):
    asking = guard(**{host: ["1.1.1.1"]})
    with pytest.raises(ToolError, match="four decimal numbers"):
        await asking.addresses(host + dot, 80)
    assert asking.asked == []


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LocalHost", "a.localhost"])
async def test_localhost_in_any_spelling(host):
    known = {"localhost": ["127.0.0.1", "::1"], "a.localhost": ["127.0.0.1"]}
    with pytest.raises(ToolError, match="this machine"):
        await guard(**known).addresses(host, 80)


@pytest.mark.parametrize("host", ["127.0.0.1\0.example.com", "evil.example\0.example.com", "a b.example.com"])
async def test_a_host_that_resolvers_read_otherwise_is_no_name_of_the_list(host):
    """The C library reads no further than a NUL: the first one is an address of this machine for it."""

    async def resolve(name, port):
        return ["127.0.0.1"]

    for guard in (
        AddressGuard(["*.example.com"], resolve),
        AddressGuard(["127.0.0.1"], resolve, only=["*.example.com"]),
    ):
        with pytest.raises(ToolError, match="not the name of a host"):
            await guard.addresses(host, 80)


async def test_an_address_with_a_zone_is_refused():
    with pytest.raises(ToolError, match="zone"):
        await guard("fe80::/10").addresses("fe80::1%eth0", 80)


async def test_of_several_addresses_only_the_public_ones_are_connected_to():
    known = {"both.example": ["10.0.0.1", "1.1.1.1", "::1", "1.1.1.1", "2606:4700::1"]}
    assert await guard(**known).addresses("both.example", 80) == ("1.1.1.1", "2606:4700::1")


@pytest.mark.parametrize("host", ["nowhere.example", ""])
async def test_a_host_that_is_not_found(host):
    with pytest.raises(ToolError, match=r"not found|names no host"):
        await guard().addresses(host, 80)


async def test_a_name_without_addresses():
    with pytest.raises(ToolError, match="has no address"):
        await guard(**{"empty.example": []}).addresses("empty.example", 80)


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.0/8", "127.9.9.9"),
        ("10.0.0.1/8", "10.200.0.1"),
        ("::1", "::1"),
        ("[::1]", "[::1]"),
        ("fd00::/8", "fd12::1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("inner.example", "inner.example"),
        ("Inner.Example.", "INNER.example."),
        ("*.example", "inner.example"),
        ("10.0.0.0/8", "inner.example"),
    ],
)
async def test_what_the_settings_permit(allowed, host):
    assert await guard(allowed, **{"inner.example": ["10.0.0.9"]}).addresses(host, 80)


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        ("127.0.0.1", "127.0.0.2"),
        ("10.0.0.0/8", "192.168.0.1"),
        ("example", "inner.example"),
        ("*.inner.example", "inner.example"),
        ("ner.example", "inner.example"),
        ("0.0.0.0/0", "::1"),
        ("0.0.0.0/0", "2130706433"),
    ],
)
async def test_and_nothing_more(allowed, host):
    with pytest.raises(ToolError):
        await guard(allowed, **{"inner.example": ["fd00::1"]}).addresses(host, 80)


async def test_the_system_knows_this_machine():
    with pytest.raises(ToolError, match="this machine"):
        await AddressGuard().addresses("localhost", 80)


# ------------------------------------------------------------------ only certain hosts


def listed(*only, allowed=()):
    async def resolve(name, port):
        return {"inside.example": ["10.0.0.1"]}.get(name, ["93.184.216.34"])

    return AddressGuard(allowed, resolve, only=only)


@pytest.mark.parametrize("host", ["docs.example", "DOCS.example.", "a.wiki.example", "93.184.216.34", "[2606:2800::1]"])
async def test_hosts_of_the_list_are_reached(host):
    guard = listed("docs.example", "*.wiki.example", "93.184.216.0/24", "2606:2800::/32")
    assert await guard.addresses(host, 443)


@pytest.mark.parametrize(
    "host",
    [
        "other.example",
        "wiki.example",
        "docs.example.evil",
        "evildocs.example",
        "8.8.8.8",
        "xdocs.example",
        "2606:4700::1",
    ],
)
async def test_other_hosts_are_refused_with_the_setting(host):
    guard = listed("docs.example", "*.wiki.example", "93.184.216.0/24", "2606:2800::/32")
    with pytest.raises(ToolError, match=r"tools\.web_hosts"):
        await guard.addresses(host, 443)


async def test_a_host_of_the_list_is_still_to_be_public():
    with pytest.raises(ToolError, match="private network"):
        await listed("inside.example").addresses("inside.example", 80)
    assert await listed("inside.example", allowed=["inside.example"]).addresses("inside.example", 80)
