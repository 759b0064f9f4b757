"""The bridge for Matrix, against the homeserver of the test kit, which is held against matrix-nio here."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from pegasus.bridge import BridgeState
from pegasus.messages import ChannelInfo, Media
from pegasus.testing.bridges.matrix import ANNA, BOT, ROOM, MatrixService
from pegasus.testing.bridges.matrix import TOKEN as MATRIX_TOKEN
from pegasus.testing.bridges.steps import Step, StepPoints
from pegasus.testing.bridges.suite import examine_bridge
from pegasus.testing.bridges.verdict import DeliveryClass
from pegasus.testing.services.server import every_other, json_response, open_service
from tests.examples.conftest import EXAMPLES, load, run_without_variables, texts_of
from tests.pegasus.gateway.world import TOKEN, world

matrix_bridge = load("matrix_bridge")
CHANNEL = ChannelInfo("matrix", ROOM)


@asynccontextmanager
async def homeserver():
    service = MatrixService()
    service.points = StepPoints(lambda: None)
    async with open_service(service):
        yield service


@asynccontextmanager
async def bridged(tmp_path, inviters=()):
    """A homeserver, a gateway, and the bridge between them, which follows the stream already."""
    async with homeserver() as matrix, world() as gateway, running(matrix, gateway, tmp_path, inviters):
        await matrix.until(lambda: matrix.is_followed)
        yield matrix, gateway


@asynccontextmanager
async def running(matrix, gateway, tmp_path, inviters=()):
    bridge = matrix_bridge.MatrixMessenger(matrix.base_url, MATRIX_TOKEN, inviters)
    async with bridge.http, anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.serve, gateway.url, TOKEN, BridgeState.load(tmp_path / "state"))
        yield
        tasks.cancel_scope.cancel()


async def heard(gateway, count):
    await gateway.journal.until(lambda: len(gateway.journal.accepted) >= count)
    return [message for message, _ in gateway.journal.accepted]


async def test_a_message_reaches_the_agent_and_the_reply_the_room(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        id = matrix.say("hello")
        [message] = await heard(gateway, 1)
        assert (message.text, message.id, message.channel) == ("hello", id, ChannelInfo("matrix", ROOM, ANNA))
        await matrix.until(lambda: matrix.read == [id])
        await gateway.typing(CHANNEL, True)
        await gateway.say(CHANNEL, f"**hi** <script> {ANNA}")
        await matrix.until(lambda: matrix.sent())
        [content] = matrix.sent()
        assert content["body"] == f"**hi** <script> {ANNA}"
        assert content["formatted_body"].startswith("<p><strong>hi</strong> &lt;script&gt;")
        assert content["m.mentions"] == {}
        assert matrix.typing == [(ROOM, True)]


async def test_threads_answers_edits_and_mentions_are_told_apart(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        matrix.rooms[ROOM].members.add("@carl:example.org")
        first = matrix.say("tea?")
        fallback = {
            "rel_type": "m.thread",
            "event_id": first,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": first},
        }
        matrix.say("in a thread", **{"m.relates_to": fallback})
        matrix.say("> <@anna:example.org> tea?\n\nyes", **{"m.relates_to": {"m.in_reply_to": {"event_id": first}}})
        edit = {
            "m.new_content": {"msgtype": "m.text", "body": "coffee?"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": first},
        }
        matrix.say("* coffee?", **edit)
        matrix.say("you there", **{"m.mentions": {"user_ids": [BOT]}})
        matrix.say("I am a bot", msgtype="m.notice")
        matrix.say("the end")
        tea, threaded, answer, edited, mention, _end = await heard(gateway, 6)
        assert threaded.channel.reply_to == first
        assert answer.text == "yes"
        assert answer.metadata["quotes"] == [{"kind": "answers", "author": ANNA, "text": "tea?"}]
        assert edited.text == "(This message was edited. It now reads:)\ncoffee?"
        assert (tea.metadata["mentioned"], mention.metadata["mentioned"]) == (False, True)
        await gateway.say(ChannelInfo("matrix", ROOM, reply_to=first), "here")
        await matrix.until(lambda: matrix.sent())
        assert matrix.sent()[0]["m.relates_to"] == {"rel_type": "m.thread", "event_id": first}


async def test_files_go_both_ways_with_their_captions(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        matrix.files["a"] = ("image/png", b"picture")
        place = {"url": "mxc://example.org/a", "info": {"mimetype": "image/png"}}
        matrix.say("a.png", msgtype="m.image", **place)
        matrix.say("look!", msgtype="m.image", filename="a.png", **place)
        matrix.say("b.bin", msgtype="m.file", url="mxc://example.org/gone")
        matrix.say("c.bin", msgtype="m.file", file={"url": "mxc://example.org/a"})
        named, captioned, gone, locked = await heard(gateway, 4)
        assert (named.text, captioned.text) == ("", "look!")
        assert named.media == captioned.media == (Media("a.png", "image/png", "cGljdHVyZQ=="),)
        assert gone.text == "[file b.bin: M_NOT_FOUND: Not found]"
        assert locked.text == "[file c.bin: it is encrypted, or has no address]"
        await gateway.say(CHANNEL, "see", media=(Media("b.txt", "text/plain", "aGk="),))
        await matrix.until(lambda: len(matrix.sent()) == 2)
        [_, file] = matrix.sent()
        assert (file["msgtype"], file["body"]) == ("m.file", "b.txt")
        assert matrix.files[file["url"].rpartition("/")[2]] == ("text/plain", b"hi")


async def test_an_event_that_holds_anything_and_a_file_larger_than_it_says_hold_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix_bridge, "MOST_FILE_BYTES", 100_000)
    async with bridged(tmp_path) as (matrix, gateway):
        matrix.files["a"] = ("image/png", bytes(200_000))
        place = {"url": "mxc://example.org/a", "info": {"size": 1}}
        matrix.say("a.png", msgtype="m.image", **place)
        for odd in (
            {"msgtype": "m.file", "url": "mxc://example.org/a", "info": {"size": "1"}},
            {"msgtype": "m.file", "url": "mxc://example.org/a", "info": []},
            {"m.relates_to": "x"},
            {"m.mentions": []},
            {"msgtype": []},
        ):
            matrix.add(ROOM, ANNA, "m.room.message", {"body": "odd", "msgtype": "m.text", **odd})
        matrix.say("the end")
        assert [message.text for message in await heard(gateway, 2)] == ["[file a.png: it is too large]", "the end"]


async def test_an_invitation_with_the_name_of_somebody_else_in_it_is_declined():
    bridge = matrix_bridge.MatrixMessenger("http://127.0.0.1:9", MATRIX_TOKEN)
    bridge.user_id, calls = BOT, []

    async def call(*path, **_):
        calls.append(path[-1])

    bridge.call = call
    true = {"type": "m.room.member", "state_key": BOT, "sender": "@eve:example.net"}
    for state in ([true, {**true, "sender": ANNA}], [{**true, "sender": ANNA}, true], [], [{**true, "sender": ANNA}]):
        await bridge.answer_invitation("!new:example.net", state)
    assert calls == ["leave", "leave", "leave", "join"]


@pytest.mark.parametrize(
    ("headers", "body", "pause"),
    [({"Retry-After": "1e12"}, {}, 600), ({}, {"retry_after_ms": 10**15}, 600), ({}, {"retry_after_ms": 500}, 0.5)],
)
def test_no_server_silences_it_for_ever(headers, body, pause):
    assert matrix_bridge.pause_of(httpx2.Response(429, headers=headers, json=body)) == pause


def test_a_reply_is_kept_while_the_token_is_not_taken():
    request = httpx2.Request("PUT", "http://example.org")
    with pytest.raises(httpx2.HTTPStatusError):
        matrix_bridge.require_success(httpx2.Response(401, json={"errcode": "M_UNKNOWN_TOKEN"}, request=request))


async def test_what_was_deleted_is_not_heard_and_an_encrypted_room_is_told_once(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        matrix.is_down = True
        matrix.redact(matrix.say("a slip"))
        for _ in range(2):
            matrix.add(ROOM, ANNA, "m.room.encrypted", {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "…"})
        matrix.say("the end")
        matrix.is_down = False
        assert [message.text for message in await heard(gateway, 1)] == ["the end"]
        assert [content["body"] for content in matrix.sent()] == [
            "This room is encrypted, and I cannot read it. Please invite me to a room without encryption."
        ]


async def test_a_long_text_is_sent_in_pieces_that_the_server_takes(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        text = "\n\n".join(f"{number} " + "<&>ü" * 1500 for number in range(8))
        await gateway.say(CHANNEL, text)
        await matrix.until(lambda: any("7 <" in content["body"] for content in matrix.sent()))
        assert "\n\n".join(content["body"] for content in matrix.sent()) == text


@pytest.mark.parametrize(
    ("inviters", "inviter", "is_taken"),
    [
        ((), ANNA, True),
        ((), "@eve:example.net", False),
        (("example.net",), "@eve:example.net", True),
        (("@carl:example.net",), "@eve:example.net", False),
        (("*",), "@eve:example.net", True),
    ],
)
async def test_invitations_count_only_from_those_who_may_invite(tmp_path, inviters, inviter, is_taken):
    async with bridged(tmp_path, inviters) as (matrix, _):
        matrix.invite("!new:example.org", inviter)
        await matrix.until(
            lambda: "!new:example.org" not in matrix.rooms or BOT in matrix.rooms["!new:example.org"].members
        )
        assert ("!new:example.org" in matrix.rooms) is is_taken


async def test_nothing_is_lost_while_matrix_fails_half_of_all_calls(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        matrix.fault = every_other(json_response({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1}, 429))
        for number in range(4):
            matrix.say(f"m{number}")
            await gateway.say(CHANNEL, f"r{number}")
        await heard(gateway, 4)
        await matrix.until(lambda: len(matrix.sent()) == 4)
        assert texts_of(gateway) == [f"m{number}" for number in range(4)]
        assert [content["body"] for content in matrix.sent()] == [f"r{number}" for number in range(4)]


async def test_a_room_that_is_closed_holds_up_no_other_reply(tmp_path):
    async with bridged(tmp_path) as (matrix, gateway):
        closed = ChannelInfo("matrix", "!closed:example.org")
        await gateway.say(closed, "lost")
        await gateway.say(CHANNEL, "heard")
        await matrix.until(lambda: matrix.sent())
        await gateway.journal.until(lambda: not gateway.journal.outbox[closed.address] or gateway.journal.acks)


async def test_the_first_start_hears_no_history_and_a_gap_is_filled(tmp_path):
    async with homeserver() as matrix, world() as gateway:
        matrix.say("old")
        async with running(matrix, gateway, tmp_path):
            await matrix.until(lambda: matrix.is_followed)
        for number in range(20):
            matrix.say(f"m{number}")
        async with running(matrix, gateway, tmp_path):
            await heard(gateway, 20)
        assert texts_of(gateway) == [f"m{number}" for number in range(20)]


@pytest.mark.tried("services", "Matrix, the example bridge killed between the homeserver and the agent", "exactly-once")
async def test_it_is_exactly_once_by_the_suite():
    command = [sys.executable, str(EXAMPLES / "matrix_bridge.py")]
    found = await examine_bridge(command, MatrixService(), steps=[Step.CONFIRMING, Step.ACCEPTED, Step.SENT])
    assert (found.is_passed, found.delivery, found.declared) == (
        True,
        DeliveryClass.EXACTLY_ONCE,
        DeliveryClass.EXACTLY_ONCE,
    )


def test_without_its_variables_it_says_which_are_missing():
    code, said = run_without_variables("matrix_bridge")
    assert (code, said.partition(";")[0]) == (1, "not set: MATRIX_URL, MATRIX_TOKEN, PEGASUS_TOKEN")
