"""The plain messenger: how little a bridge needs, and all that the library does for it."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager

import pytest
import trio

from pegasus.bridge import BridgeRefused, BridgeState, Undeliverable
from pegasus.messages import ChannelInfo, Media
from pegasus.testing.bridges.plain import PlainService
from pegasus.testing.bridges.steps import StepPoints
from tests.examples.conftest import EXAMPLES, load, run_without_variables
from tests.pegasus.gateway.world import TOKEN, world

plain_bridge = load("plain_bridge")
ROOM = ChannelInfo("plain", "kitchen", "anna")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("pegasus.bridge.messenger.FIRST_PAUSE", 0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bridge.json"


async def no_kill():
    raise AssertionError("nothing is armed")


@asynccontextmanager
async def running(service, gateway, path, kind=plain_bridge.PlainMessenger, token=TOKEN):
    """Run a bridge between both."""
    async with service.open(path.parent, StepPoints(no_kill)) as variables, trio.open_nursery() as nursery:
        messenger = kind(variables["SERVICE_URL"], variables["SERVICE_TOKEN"])
        async with messenger.http:
            nursery.start_soon(messenger.serve, gateway.url, token, BridgeState.load(path))
            yield
            nursery.cancel_scope.cancel()


async def until_acknowledged(gateway, reply):
    await gateway.journal.until(lambda: (reply.channel.address, reply.seq) in gateway.journal.acks)


def test_the_example_has_at_most_a_hundred_lines():
    assert len((EXAMPLES / "plain_bridge.py").read_text().splitlines()) <= 100


async def test_text_files_and_typing_are_carried(path):
    service, file = PlainService(), {"name": "a.txt", "mime": "text/plain", "data": "aGk="}
    async with world() as gateway, running(service, gateway, path):
        await service.write("hello\u2764", files=[file])
        await gateway.journal.until(lambda: gateway.journal.accepted)
        ((message, _),) = gateway.journal.accepted
        assert (message.text, message.channel, message.id) == ("hello\u2764", ROOM, "1")
        assert message.media == (Media("a.txt", "text/plain", "aGk="),)
        await gateway.typing(ROOM, True)
        await until_acknowledged(gateway, await gateway.say(ROOM, "hi", media=message.media))
        [post] = service.posts
        assert (post.text, post.files) == ("hi", [file])
        assert [request.body for request in service.requests if request.path == "/typing"] == [
            b'{"room":"kitchen","active":true}'
        ]
    assert BridgeState.load(path).cursor == "1"


async def test_a_long_reply_comes_in_pieces_and_a_question_has_buttons_below_the_last(path):
    service = PlainService()
    async with world() as gateway, running(service, gateway, path):
        text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(4))
        await until_acknowledged(gateway, await gateway.say(ROOM, text, metadata={"approval": "a-7f3k"}))
    assert " ".join(" ".join(post.text for post in service.posts).split()) == " ".join(text.split())
    assert all(len(post.text) <= 500 for post in service.posts)
    assert [bool(post.buttons) for post in service.posts] == [False] * (len(service.posts) - 1) + [True]
    assert service.posts[-1].buttons == [
        {"label": "Approve", "text": "/approve a-7f3k"},
        {"label": "Deny", "text": "/deny a-7f3k"},
    ]


async def test_files_that_the_gateway_does_not_take_are_named_instead(path):
    service = PlainService()
    data = base64.b64encode(bytes(1_200_000)).decode()
    async with world() as gateway, running(service, gateway, path):
        await service.write("look", files=[{"name": "film.mkv", "mime": "video/x-matroska", "data": data}])
        await gateway.journal.until(lambda: gateway.journal.accepted)
        assert [message.text for message, _ in gateway.journal.accepted] == [
            "look\n\n[too large to be carried: film.mkv]"
        ]


class Unlucky(plain_bridge.PlainMessenger):
    """Fails in all ways: once for a while, and for good in one room."""

    failures = 2

    async def send(self, reply):
        if reply.channel_id == "gone":
            raise Undeliverable("no such room")
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the author did not think of this")
        await super().send(reply)


async def test_what_fails_is_tried_again_and_what_never_succeeds_holds_up_nobody(path, caplog):
    service = PlainService()
    async with world() as gateway, running(service, gateway, path, Unlucky):
        await until_acknowledged(gateway, await gateway.say(ChannelInfo("plain", "gone"), "lost"))
        await until_acknowledged(gateway, await gateway.say(ROOM, "heard"))
    assert service.seen() == ["heard"]
    assert "RuntimeError: the author did not think of this" in caplog.text


class Stuck(plain_bridge.PlainMessenger):
    """Has rooms whose server fails, or does not answer, until it is repaired."""

    repaired = None

    async def send(self, reply):
        if reply.channel_id == "broken" and not self.repaired.is_set():
            raise RuntimeError("503")
        if reply.channel_id == "hanging":
            await self.repaired.wait()
        await super().send(reply)

    async def show_typing(self, channel_id, is_active):
        if channel_id == "hanging":
            await self.repaired.wait()


async def test_a_room_that_cannot_be_reached_holds_up_no_other_and_keeps_its_order(path, monkeypatch):
    monkeypatch.setattr("pegasus.bridge.connection.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("pegasus.bridge.connection.MOST_OF_CONVERSATION", 2)
    Stuck.repaired = trio.Event()
    service, stuck = PlainService(), [ChannelInfo("plain", name) for name in ("broken", "hanging")]
    async with world() as gateway, running(service, gateway, path, Stuck):
        await gateway.typing(stuck[1], True)
        last = [await gateway.say(room, f"{room.channel_id} {number}") for number in range(5) for room in stuck][-2:]
        for number in range(3):
            await until_acknowledged(gateway, await gateway.say(ROOM, f"kitchen {number}"))
        assert service.seen() == [f"kitchen {number}" for number in range(3)]
        assert {address for address, _ in gateway.journal.acks} == {ROOM.address}
        Stuck.repaired.set()
        for reply in last:
            await until_acknowledged(gateway, reply)
    for room in stuck:
        own = [text for text in service.seen() if text.startswith(room.channel_id)]
        assert own == [f"{room.channel_id} {number}" for number in range(5)]


async def test_parts_that_were_sent_are_not_sent_again_after_a_crash(path):
    service = PlainService()
    async with world() as gateway:
        reply = await gateway.say(ROOM, "First.\n\n" + "x" * 498)
        state = BridgeState.load(path)
        state.note_part("kitchen", 1)  # and then it was killed
        async with running(service, gateway, path):
            await until_acknowledged(gateway, reply)
    assert service.seen() == ["x" * 498]
    after = BridgeState.load(path)
    assert (after.seqs, after.parts) == ({"kitchen": reply.seq}, {})


async def test_a_refused_token_ends_it_and_a_damaged_state_is_not_taken_for_an_empty_one(path):
    service = PlainService()
    async with world() as gateway:
        await service.write("hello")
        with pytest.RaisesGroup(BridgeRefused, flatten_subgroups=True):
            async with running(service, gateway, path, token="wrong"):
                await trio.sleep_forever()
    assert BridgeState.load(path).cursor == ""  # the message waits for a token that counts
    path.write_text('{"cursor":')
    with pytest.raises(ValueError, match="damaged"):
        BridgeState.load(path)


def test_without_its_variables_it_says_which_are_missing():
    assert run_without_variables("plain_bridge") == (
        1,
        "not set: SERVICE_URL, SERVICE_TOKEN, PEGASUS_TOKEN; the beginning of the program shows how to start it\n",
    )
