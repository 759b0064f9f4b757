"""The bridge for Matrix, against a fake of a Matrix server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, unquote

import pytest
import trio

from pegasus.bridge import reply_id
from pegasus.messages import ChannelInfo, Media
from pegasus.testing.services.server import FakeService, ServiceResponse, every_other, json_response, open_service
from tests.examples.conftest import load, run_without_variables, texts_of
from tests.pegasus.gateway.world import TOKEN, world

matrix_bridge = load("matrix_bridge")
ROOM, BOT, ANNA = "!room:example.org", "@bot:example.org", "@anna:example.org"
CHANNEL = ChannelInfo("matrix", ROOM)


class FakeMatrix(FakeService):
    """A homeserver with one room, by https://spec.matrix.org/latest/client-server-api/."""

    def __init__(self):
        super().__init__()
        self.events = []
        """Pieces of the stream; `since` is a place in it."""
        self.sent = {}
        """By transaction id, what the bot has said. A repeated one is answered, and nothing is said again."""
        self.typing, self.joined, self.files = [], [], {}
        self.members = 2
        self.forbidden = False
        self.is_followed = False
        """The bridge has a place in the stream."""
        self.most = 10
        """Events that an answer has at most; earlier ones are fetched in pages of two."""
        self.changed = trio.Event()

    def notify(self):
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def say(self, body, sender=ANNA, msgtype="m.text", **content):
        id = f"$event{len(self.events)}"
        self.events.append(
            {
                "type": "m.room.message",
                "sender": sender,
                "event_id": id,
                "content": {"msgtype": msgtype, "body": body, **content},
            }
        )
        self.notify()
        return id

    async def until(self, condition):
        with trio.fail_after(20):
            while not condition():
                await self.changed.wait()

    async def answer(self, request):
        if request.headers.get("authorization") != "Bearer matrix-token":
            return json_response({"errcode": "M_UNKNOWN_TOKEN", "error": "?"}, 401)
        path = unquote(request.path).removeprefix("/_matrix/")
        query = {name: values[0] for name, values in parse_qs(request.target.partition("?")[2]).items()}
        if path == "client/v3/account/whoami":
            return json_response({"user_id": BOT})
        if path == "client/v3/sync":
            return json_response(await self.sync(query))
        if path == f"client/v3/rooms/{ROOM}/messages":
            return json_response(self.earlier(query))
        if path.startswith("client/v3/join/"):
            self.joined.append(path.rpartition("/")[2])
        elif "/typing/" in path:
            self.typing.append(json.loads(request.body)["typing"])
        elif path.startswith("client/v1/media/download/"):
            return ServiceResponse(200, self.files[path.rpartition("/")[2]])
        elif path == "media/v3/upload":
            self.files[query["filename"]] = request.body
            return json_response({"content_uri": f"mxc://example.org/{query['filename']}"})
        elif path.startswith(f"client/v3/rooms/{ROOM}/send/m.room.message/"):
            if self.forbidden:
                return json_response({"errcode": "M_FORBIDDEN", "error": "You are not in this room"}, 403)
            self.sent.setdefault(path.rpartition("/")[2], json.loads(request.body))
        self.notify()
        return json_response({"event_id": "$sent"})

    async def sync(self, query):
        since = int(query.get("since", -1))
        self.is_followed = since >= 0
        self.notify()
        with trio.move_on_after(int(query["timeout"]) / 1000):
            while since == len(self.events):
                await self.changed.wait()
        first = max(since, len(self.events) - self.most, 0)
        timeline = {"events": self.events[first:], "limited": first > since, "prev_batch": str(first)}
        room = {"summary": {"m.joined_member_count": self.members}, "timeline": timeline}
        invite = {"!new:example.org": {}} if since < 0 else {}
        return {"next_batch": str(len(self.events)), "rooms": {"join": {ROOM: room}, "invite": invite}}

    def earlier(self, query):
        end, stop = int(query["from"]), int(query["to"])
        first = max(end - 2, stop)
        chunk = self.events[first:end][::-1]
        return {"chunk": chunk, "start": query["from"], **({"end": str(first)} if first > stop else {})}


@asynccontextmanager
async def running(matrix, gateway, state):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(matrix_bridge.run, matrix.base_url, "matrix-token", gateway.url, TOKEN, state)
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def state(tmp_path):
    """A place in the stream at which the bridge goes on, as after a first start."""
    path = tmp_path / "state"
    path.write_text("0")
    return path


async def test_a_message_reaches_the_agent_and_the_reply_the_room(state):
    async with open_service(FakeMatrix()) as matrix, world() as gateway, running(matrix, gateway, state):
        id = matrix.say("hello")
        await gateway.journal.until(lambda: gateway.journal.accepted)
        ((message, _),) = gateway.journal.accepted
        assert (message.text, message.id, message.channel) == ("hello", id, ChannelInfo("matrix", ROOM, ANNA))
        await gateway.typing(CHANNEL, True)
        await gateway.say(CHANNEL, "**hi** <script>")
        await matrix.until(lambda: matrix.sent)
        (content,) = matrix.sent.values()
        assert content["body"] == "**hi** <script>"
        assert content["formatted_body"] == "<p><strong>hi</strong> &lt;script&gt;</p>\n"
        assert matrix.typing == [True]


async def test_threads_files_and_mentions_go_both_ways(state):
    async with open_service(FakeMatrix()) as matrix, world() as gateway, running(matrix, gateway, state):
        matrix.members = 3
        matrix.files["a"] = b"picture"
        thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}
        matrix.say("a.png", msgtype="m.image", url="mxc://example.org/a", info={"mimetype": "image/png"}, **thread)
        matrix.say("you there", **{"m.mentions": {"user_ids": [BOT]}})
        matrix.say("I am a bot", msgtype="m.notice")
        await gateway.journal.until(lambda: len(gateway.journal.accepted) == 2)
        picture, mention = (message for message, _ in gateway.journal.accepted)
        assert picture.media == (Media("a.png", "image/png", "cGljdHVyZQ=="),)
        assert picture.channel.reply_to == "$root"
        marks = {"account": f"matrix:{ANNA}", "apart": True, "door": "bridge"}  # of the intake
        assert picture.metadata == {"group": True, "mentioned": False, **marks}
        assert mention.metadata == {"group": True, "mentioned": True, **marks}
        await gateway.say(
            ChannelInfo("matrix", ROOM, reply_to="$root"), "see", media=(Media("b.txt", "text/plain", "aGk="),)
        )
        await matrix.until(lambda: len(matrix.sent) == 2)
        text, file = matrix.sent.values()
        assert text["m.relates_to"] == file["m.relates_to"] == thread["m.relates_to"]
        assert (file["msgtype"], file["body"], matrix.files["b.txt"]) == ("m.file", "b.txt", b"hi")


async def test_nothing_is_lost_while_matrix_fails_half_of_all_calls(state, monkeypatch):
    monkeypatch.setattr(matrix_bridge, "LONGEST_PAUSE", 0.01)
    async with open_service(FakeMatrix()) as matrix, world() as gateway:
        matrix.fault = every_other(json_response({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1}, 429))
        async with running(matrix, gateway, state):
            for number in range(4):
                matrix.say(f"m{number}")
                await gateway.say(CHANNEL, f"r{number}")
            await gateway.journal.until(lambda: len(gateway.journal.accepted) == 4)
            await matrix.until(lambda: len(matrix.sent) == 4)
        assert texts_of(gateway) == [f"m{number}" for number in range(4)]
        assert [content["body"] for content in matrix.sent.values()] == [f"r{number}" for number in range(4)]


async def test_a_bridge_that_was_killed_repeats_nothing_that_people_see(state):
    async with open_service(FakeMatrix()) as matrix, world() as gateway:
        async with running(matrix, gateway, state):
            matrix.say("m0")
            reply = await gateway.say(CHANNEL, "r0")
            await matrix.until(lambda: matrix.sent)
        gateway.journal.outbox[CHANNEL.address] = [reply]  # as if it had died before it could acknowledge
        state.write_text("0")  # and before it could write its place
        async with running(matrix, gateway, state):
            matrix.say("m1")
            await gateway.say(CHANNEL, "r1")
            await matrix.until(lambda: len(matrix.sent) == 2)
            await gateway.journal.until(lambda: len(gateway.journal.accepted) == 2)
        assert texts_of(gateway) == ["m0", "m1"]
        assert f"{reply_id(reply)}-0" in matrix.sent


async def test_a_room_that_is_closed_holds_up_no_other_reply(state):
    async with open_service(FakeMatrix()) as matrix, world() as gateway, running(matrix, gateway, state):
        matrix.forbidden = True
        await gateway.say(CHANNEL, "lost")
        await gateway.journal.until(lambda: not gateway.journal.outbox[CHANNEL.address] or gateway.journal.acks)
        matrix.forbidden = False
        await gateway.say(CHANNEL, "heard")
        await matrix.until(lambda: matrix.sent)
        assert [content["body"] for content in matrix.sent.values()] == ["heard"]


async def test_the_first_start_hears_no_history_and_accepts_invitations(tmp_path):
    async with open_service(FakeMatrix()) as matrix, world() as gateway:
        matrix.say("old")
        async with running(matrix, gateway, tmp_path / "state"):
            await matrix.until(lambda: matrix.joined and matrix.is_followed)
            matrix.say("new")
            await gateway.journal.until(lambda: gateway.journal.accepted)
        assert texts_of(gateway) == ["new"]
        assert matrix.joined == ["!new:example.org"]


async def test_after_a_long_outage_nothing_is_missing(state):
    async with open_service(FakeMatrix()) as matrix, world() as gateway:
        matrix.most = 3
        for number in range(10):
            matrix.say(f"m{number}")
        async with running(matrix, gateway, state):
            await gateway.journal.until(lambda: len(gateway.journal.accepted) == 10)
        assert texts_of(gateway) == [f"m{number}" for number in range(10)]


def test_without_its_variables_it_says_which_are_missing():
    assert run_without_variables("matrix_bridge") == (
        1,
        "not set: MATRIX_URL, MATRIX_TOKEN, PEGASUS_TOKEN; the beginning of this file shows how to start it\n",
    )
