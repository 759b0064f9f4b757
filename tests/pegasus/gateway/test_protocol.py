"""The protocol over real sockets, as docs/gateway.md describes it."""

import inspect
import json

import pytest
import trio
from trio_websocket import open_websocket_url

from actors import Child, open_supervisor
from pegasus.access import OWNER_GRANT, ChannelRules, PairingBook, TokenBook
from pegasus.client import open_client
from pegasus.gateway import BadParams, GatewayConfig, reply_feed, requests
from pegasus.gateway.delivery import Hub
from pegasus.gateway.send_queue import SendQueue
from pegasus.gateway.services import GatewayServices
from pegasus.intake import Intake
from pegasus.protocol import ClientChannel
from pegasus.settings import LiveValue
from pegasus.storage import Connected, Disconnected, Overloaded, StorageError
from tests.pegasus.gateway.world import TOKEN, WEB, FakeJournal, RawClient, world

HELLO = {"type": "hello", "token": TOKEN, "channel": {"type": "web", "channelId": "c1"}}


class UnreadableJournal:
    """Reads nothing."""

    async def ask(self, kind, *args):
        raise StorageError("I/O error")


# ------------------------------------------------------------------ hello


async def test_hello_is_answered_by_welcome():
    async with world() as gate:
        gate.journal.last[WEB.address] = 12
        async with gate.client() as client:
            assert client.welcome == {
                "type": "welcome",
                "protocol": 1,
                "agent": "Peggy",
                "channel": {"type": "web", "channelId": "c1"},
                "seq": 12,
            }


async def test_a_bridge_is_welcomed_with_seq_0():
    async with world() as gate, gate.client(None) as bridge:
        assert (bridge.welcome["channel"], bridge.welcome["seq"]) == ({"type": "web"}, 0)


async def test_the_subprotocol_is_agreed():
    async with world() as gate, gate.client(subprotocols=("other", "pegasus.v1")) as client:
        assert client.socket.subprotocol == "pegasus.v1"


async def test_a_client_without_subprotocol_is_served():
    async with world() as gate, gate.client(subprotocols=()) as client:
        assert client.socket.subprotocol is None
        assert client.welcome["type"] == "welcome"


async def test_the_token_may_come_in_a_header():
    bearer = [(b"Authorization", b"bearer " + TOKEN.encode())]
    async with world() as gate, gate.client(headers=bearer, token=None) as client:
        assert client.welcome["type"] == "welcome"


@pytest.mark.parametrize("token", ["wrong", "", "s3cret ", "ü"])
async def test_a_wrong_token_is_unauthorized(token):
    async with world() as gate, gate.client(hello=False) as client:
        answer = await client.hello(channel=HELLO["channel"], token=token)
        assert answer["code"] == "unauthorized"
        assert await client.closed() == ([], 4401)


async def test_no_token_is_unauthorized():
    async with world() as gate, gate.client(hello=False) as client:
        assert "no token" in (await client.hello(channel=HELLO["channel"], token=None))["message"]
        assert await client.closed() == ([], 4401)


async def test_a_token_in_the_hello_takes_precedence_over_the_header():
    bearer = [(b"Authorization", b"Bearer " + TOKEN.encode())]
    async with world() as gate, gate.client(headers=bearer, hello=False) as client:
        assert (await client.hello(channel=HELLO["channel"], token="wrong"))["code"] == "unauthorized"


@pytest.mark.parametrize("frame", ['{"type":"message","id":"m","text":"hi"}', "nonsense", '{"type":"ack","seq":1}'])
async def test_a_frame_before_hello_is_unauthorized(frame):
    async with world() as gate, gate.client(hello=False) as client:
        await client.send(frame)
        frames, code = await client.closed()
        assert ([f["code"] for f in frames], code) == (["unauthorized"], 4401)


async def test_a_binary_frame_before_hello_is_unauthorized():
    async with world() as gate, gate.client(hello=False) as client:
        await client.socket.send_message(b"\x00")
        frames, code = await client.closed()
        assert ([f["code"] for f in frames], code) == (["unauthorized"], 4401)


async def test_a_hello_with_a_bad_field_is_a_bad_frame():
    async with world() as gate, gate.client(hello=False) as client:
        await client.send(type="hello", token=TOKEN, channel={"type": "web", "channelId": 5})
        frames, code = await client.closed()
        assert (frames[0]["code"], code) == ("bad_frame", 4400)
        assert "hello.channel.channelId: found the number 5" in frames[0]["message"]


async def test_a_client_without_a_hello_is_disconnected_after_the_timeout():
    async with world(hello_timeout=0.5) as gate, gate.client(hello=False) as client:
        frames, code = await client.closed()
        assert (frames[0]["code"], code) == ("unauthorized", 4401)
        assert "no hello within 0.5 s" in frames[0]["message"]


async def test_a_second_hello_is_a_bad_frame():
    async with world() as gate, gate.client() as client:
        await client.send(**HELLO)
        assert (await client.get())["code"] == "bad_frame"
        await client.quiet()


async def test_a_foreign_origin_is_unauthorized_before_its_first_frame():
    headers = [(b"Origin", b"https://evil.example")]
    async with world() as gate, gate.client(headers=headers, hello=False) as client:
        frames, code = await client.closed()
        assert (frames[0]["code"], code) == ("unauthorized", 4401)
        assert '"https://evil.example"' in frames[0]["message"]


async def test_an_allowed_origin_may_come():
    headers = [(b"Origin", b"http://localhost:7718")]
    async with world(origins=frozenset({"http://localhost:7718"})) as gate, gate.client(headers=headers) as client:
        assert client.welcome["type"] == "welcome"


async def test_a_client_that_is_not_in_allow_from_is_unauthorized():
    async with world(access={"web": ChannelRules("allow_list", ["u1"])}) as gate:
        async with gate.client(hello=False) as client:
            channel = {"type": "web", "channelId": "c1", "userId": "u2"}
            assert "allow_from" in (await client.hello(channel=channel))["message"]
            assert await client.closed() == ([], 4401)
        async with gate.client(hello=False) as client:
            channel = {"type": "web", "channelId": "c1", "userId": "u1"}
            assert (await client.hello(channel=channel))["type"] == "welcome"


async def test_a_client_that_may_have_been_let_in_is_told_to_try_again_while_that_cannot_be_read():
    class UnreadableBook(PairingBook):
        async def ensure_read(self):
            raise StorageError("I/O error")

    async with world(access={"web": ChannelRules("allow_list", ["u1"])}, pairing=UnreadableBook()) as gate:
        async with gate.client(hello=False) as client:
            answer = await client.hello(channel={"type": "web", "channelId": "c1", "userId": "u2"})
            assert (answer["code"], "I/O error" in answer["message"]) == ("internal", True)
            assert await client.closed() == ([], 1011)
        async with gate.client(None) as bridge:
            channel = {"type": "web", "channelId": "c", "userId": "u2"}
            await bridge.send(type="message", id="m-1", text="hi", channel=channel)
            answer = await bridge.get()
            assert (answer["code"], answer["id"], "I/O error" in answer["message"]) == ("internal", "m-1", True)
            await bridge.quiet()


async def test_a_client_whose_token_cannot_be_looked_up_is_told_to_try_again():
    tokens = TokenBook()
    await tokens.load(UnreadableJournal(), lambda: 0)
    async with world(tokens=tokens) as gate:
        async with gate.client(hello=False) as client:
            answer = await client.hello(channel=HELLO["channel"], token="of a phone")
            assert (answer["code"], "I/O error" in answer["message"]) == ("internal", True)
            assert await client.closed() == ([], 1011)
        async with gate.client() as owner:
            assert owner.welcome["type"] == "welcome"


async def test_a_connection_beyond_the_limit_is_refused_with_a_reason():
    async with world(max_connections=1) as gate, gate.client() as first:
        async with gate.client("c2", hello=False) as second:
            frames, code = await second.closed()
            assert (frames[0]["code"], code) == ("overloaded", 1013)
            assert "1 clients are connected" in frames[0]["message"]
        await first.quiet()


async def test_a_client_is_closed_with_1011_when_the_journal_cannot_give_the_last_seq():
    async with world() as gate:
        gate.journal.failure = StorageError("no disk")
        async with gate.client(hello=False) as client:
            assert (await client.hello(channel=HELLO["channel"]))["code"] == "internal"
            assert await client.closed() == ([], 1011)


async def test_the_journal_knows_who_is_connected():
    async with world() as gate:
        async with gate.client(), gate.client(None):
            pass
        await gate.journal.until(lambda: len(gate.journal.presence) == 4)
        assert sorted(gate.journal.presence, key=repr) == [
            Connected("web", "c1"),
            Connected("web", None),
            Disconnected("web", "c1"),
            Disconnected("web", None),
        ]


async def test_the_journal_does_not_know_of_a_client_that_only_makes_calls():
    async with world(methods={"ping": echo_type}) as gate:
        async with gate.client("status", callsOnly=True) as client:
            await client.send(type="call", id="7", method="ping")
            assert (await client.get())["result"] == {"type": "web"}
        async with gate.client():
            pass
        await gate.journal.until(lambda: Disconnected("web", "c1") in gate.journal.presence)
        assert gate.journal.presence == [Connected("web", "c1"), Disconnected("web", "c1")]


async def echo_type(caller, params):
    return {"type": caller.type}


# ------------------------------------------------------------------ messages


async def test_a_message_is_accepted_once_it_is_with_the_journal():
    async with world() as gate, gate.client() as client:
        gate.journal.hold = True
        await client.send(type="message", id="m-1", text="hi")
        await gate.journal.until(lambda: gate.journal.held)
        gate.journal.release()
        assert await client.get() == {"type": "accepted", "id": "m-1"}
        ((message, lane),) = gate.journal.accepted
        assert (message.text, message.channel, message.id, lane) == ("hi", WEB, "m-1", "main")


async def test_the_same_id_is_accepted_again_and_kept_once():
    async with world() as gate, gate.client() as client:
        for _ in range(2):
            await client.send(type="message", id="m-1", text="hi")
            assert await client.get() == {"type": "accepted", "id": "m-1"}
        assert len(gate.journal.accepted) == 1


async def test_commands_that_must_pass_a_busy_agent_take_the_control_lane():
    async with world() as gate, gate.client() as client:
        for text in ["/stop", " /HELP me ", "/status", "/stopping", "/new", "please /stop"]:
            await client.send(type="message", id=text, text=text)
            await client.get()
        lanes = [lane for _, lane in gate.journal.accepted]
        assert lanes == ["control", "control", "control", "main", "main", "main"]


async def test_a_full_inbox_is_overloaded():
    async with world() as gate, gate.client() as client:
        gate.journal.verdict = Overloaded(1000)
        await client.send(type="message", id="m-1", text="hi")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("overloaded", "m-1")
        assert "1000 messages are waiting" in answer["message"]
        await client.quiet()


async def test_an_error_of_the_disk_is_reported_with_its_reason():
    async with world() as gate, gate.client() as client:
        gate.journal.verdict = StorageError("No space left on device")
        await client.send(type="message", id="m-1", text="hi")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("internal", "m-1")
        assert answer["message"] == "not accepted, disk: No space left on device"


async def test_a_journal_that_is_gone_is_reported():
    async with world() as gate, gate.client() as client:
        await client.quiet()
        await gate.supervisor.stop_child("journal")
        await client.send(type="message", id="m-1", text="hi")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("internal", "m-1")
        assert "send it again" in answer["message"]


async def test_a_client_learns_before_it_gives_up_why_it_is_not_greeted(monkeypatch):
    assert inspect.signature(open_client).parameters["timeout"].default > reply_feed.GREETING_TIME
    monkeypatch.setattr(reply_feed, "GREETING_TIME", 0.1)
    async with world() as gate:
        gate.journal.slow = trio.Event()
        async with gate.client(hello=False) as client:
            answer = await client.hello(channel=HELLO["channel"])
            assert (answer["code"], "database" in answer["message"]) == ("internal", True)
            assert await client.closed() == ([], 1011)
        gate.journal.slow.set()


async def test_a_journal_that_is_slow_to_greet_is_waited_for():
    async with world(hello_timeout=0.3) as gate:
        gate.journal.slow = trio.Event()
        async with gate.client(hello=False) as client:
            await client.send(**HELLO)
            with trio.move_on_after(0.6):
                raise AssertionError(await client.socket.get_message())
            gate.journal.slow.set()
            assert (await client.get())["type"] == "welcome"


async def test_thousands_of_messages_at_once_are_answered_in_order():
    async with world() as gate, gate.client() as client:
        ids = [f"m-{n}" for n in range(2_000)]

        async def send_all():
            for id in ids:
                await client.send(type="message", id=id, text="x")

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_all)
                answers = [await client.get() for _ in ids]
        assert [a["id"] for a in answers] == ids


async def test_no_more_than_64_messages_of_a_client_are_under_way():
    async with world() as gate, gate.client() as client:
        gate.journal.hold = True
        async with trio.open_nursery() as nursery:

            async def send_all():
                for n in range(200):
                    await client.send(type="message", id=f"m-{n}", text="x")

            nursery.start_soon(send_all)
            await gate.journal.until(lambda: len(gate.journal.held) >= 64)
            async with gate.client("c2") as other:  # a round trip of somebody else: the gateway has read what it would
                await other.quiet()
            assert len(gate.journal.held) <= 65
            gate.journal.release()
            assert [(await client.get())["id"] for _ in range(200)] == [f"m-{n}" for n in range(200)]


async def test_a_message_is_accepted_although_its_sender_has_gone():
    async with world() as gate:
        gate.journal.hold = True
        async with gate.client() as client:
            await client.send(type="message", id="m-1", text="bye")
        await gate.journal.until(lambda: gate.journal.held)
        ((reply, _, _),) = gate.journal.held
        assert not reply.abandoned
        gate.journal.release()
        assert [m.text for m, _ in gate.journal.accepted] == ["bye"]


# ------------------------------------------------------------------ bad frames


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("nonsense", "bad_frame"),
        ("[" * 50_000, "bad_frame"),
        ('{"type":"message","id":"m-1","text":5}', "bad_frame"),
        ('{"type":"massage"}', "unknown_type"),
    ],
)
async def test_after_a_bad_frame_the_connection_stays_open(frame, code):
    async with world() as gate, gate.client() as client:
        await client.send(frame)
        assert (await client.get())["code"] == code
        await client.quiet()


async def test_a_binary_frame_is_a_bad_frame():
    async with world() as gate, gate.client() as client:
        await client.socket.send_message(b"{}")
        assert (await client.get())["code"] == "bad_frame"
        await client.quiet()


async def test_a_message_of_a_stranger_through_a_bridge_is_refused_and_the_bridge_stays():
    async with world(access={"web": ChannelRules("allow_list", ["u1"])}) as gate, gate.client(None) as bridge:
        channel = {"type": "web", "channelId": "c", "userId": "u2"}
        await bridge.send(type="message", id="m-1", text="hi", channel=channel)
        answer = await bridge.get()
        assert (answer["code"], answer["id"]) == ("bad_frame", "m-1")
        assert "allow_from" in answer["message"]
        await bridge.quiet()


# ------------------------------------------------------------------ control plane


async def test_a_call_gets_its_result_and_the_method_knows_the_caller():
    async with world() as gate, gate.client() as client:
        await client.send(type="call", id="7", method="echo", params={"a": [1]})
        answer = await client.get()
        assert answer == {"type": "result", "id": "7", "result": {"caller": "c1", "params": {"a": [1]}}}


async def test_the_error_of_an_unknown_method_lists_the_known_ones():
    async with world() as gate, gate.client() as client:
        await client.send(type="call", id="7", method="ecko")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("unknown_method", "7")
        assert answer["message"] == 'method: found "ecko", allowed: clients, echo'


async def bad(caller, params):
    raise BadParams("id: found 5, allowed: a task id")


async def broken(caller, params):
    raise RuntimeError("boom")


async def no_json(caller, params):
    return {"x": object()}


async def forever(caller, params):
    await trio.sleep_forever()


@pytest.mark.parametrize(
    ("method", "code", "words"),
    [(bad, "bad_frame", "a task id"), (broken, "internal", "boom"), (no_json, "internal", "not JSON serializable")],
)
async def test_a_method_that_fails_is_an_error_with_its_id(method, code, words):
    async with world(methods={"m": method}) as gate, gate.client() as client:
        await client.send(type="call", id="7", method="m")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == (code, "7")
        assert words in answer["message"]
        await client.quiet()


async def test_a_method_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(requests, "CALL_TIMEOUT", 0.05)
    async with world(methods={"m": forever}) as gate, gate.client() as client:
        await client.send(type="call", id="7", method="m")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("internal", "7")


async def test_a_slow_call_delays_nobody_and_too_many_are_overloaded():
    async with world(methods={"m": forever}) as gate, gate.client() as client:
        for n in range(17):
            await client.send(type="call", id=str(n), method="m")
        answer = await client.get()
        assert (answer["code"], answer["id"]) == ("overloaded", "16")
        await client.send(type="message", id="m-1", text="hi")
        assert (await client.get())["type"] == "accepted"


# ------------------------------------------------------------------ the actor


async def test_when_the_gateway_crashes_it_comes_back_on_the_same_port_and_clients_too():
    async with world() as gate:
        async with gate.client() as client:
            await gate.crash()
            assert (await client.closed())[1] == 1006
        async with gate.client() as client:
            await client.quiet()


async def test_a_stop_closes_all_connections_with_1001():
    async with world() as gate, gate.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(gate.supervisor.stop_child, "gateway")
        assert await client.closed() == ([], 1001)


async def test_a_client_that_connects_while_the_gateway_is_away_is_served_when_it_is_back():
    async with world() as gate:
        await gate.supervisor.stop_child("gateway")
        async with trio.open_nursery() as nursery:

            async def connect():
                async with open_websocket_url(gate.url) as socket:
                    await RawClient(socket).hello(channel=HELLO["channel"])

            nursery.start_soon(connect)
            await gate.supervisor.restart_child("gateway")


async def test_the_clients_that_are_connected_are_listed_without_programs_that_only_call():
    async with world() as gate, gate.client(callsOnly=True) as caller, gate.client("one"), gate.client("two"):
        await caller.send(type="call", id="1", method="clients")
        result = (await caller.get())["result"]
        assert sorted(client["channelId"] for client in result["clients"]) == ["one", "two"]


async def test_an_id_that_is_refused_is_not_remembered():
    async with open_supervisor([Child("journal", FakeJournal().run)]) as supervisor, trio.open_nursery() as nursery:
        journal = supervisor.ref("journal")
        services = GatewayServices(LiveValue(GatewayConfig(token=TOKEN)), Intake(journal), Hub(journal), {})
        said = requests.Requests(ClientChannel("web", "c1"), OWNER_GRANT, services, SendQueue(), nursery)
        for id in ("m-1", "x" * 100_000, "m-2"):
            await said.handle(json.dumps({"type": "message", "id": id, "text": "hi"}))
        assert list(said.sent) == ["m-1", "m-2"]
