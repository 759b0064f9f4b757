from pegasus.gateway.frames import Hello
from pegasus.gateway.routes import Routes
from pegasus.messages import Address, ChannelInfo

C1 = Address("web", "c1")


def client(channel_id):
    return Hello("web", ChannelInfo("web", channel_id))


BRIDGE = Hello("web", None)


def test_all_clients_of_an_address_get_its_replies():
    routes = Routes()
    routes.add(client("c1"), "a")
    routes.add(client("c1"), "b")
    routes.add(client("c2"), "c")
    assert set(routes.clients(C1)) == {"a", "b"}


def test_a_bridge_gets_what_has_no_client_of_its_own():
    routes = Routes()
    routes.add(BRIDGE, "bridge")
    routes.add(client("c1"), "a")
    assert list(routes.clients(C1)) == ["a"]
    assert list(routes.clients(Address("web", "c2"))) == ["bridge"]
    assert list(routes.clients(Address("irc", "c1"))) == []


def test_when_the_last_client_of_an_address_goes_it_falls_to_the_bridges():
    routes = Routes()
    routes.add(BRIDGE, "bridge")
    routes.add(client("c1"), "a")
    routes.add(client("c1"), "b")
    assert list(routes.remove(client("c1"), "a")) == []
    assert list(routes.remove(client("c1"), "b")) == ["bridge"]
    assert list(routes.clients(C1)) == ["bridge"]


def test_nothing_stays_behind():
    routes = Routes()
    for hello in (BRIDGE, client("c1")):
        routes.add(hello, "x")
        routes.remove(hello, "x")
        routes.remove(hello, "x")
    assert (routes._exact, routes._bridges) == ({}, {})
