"""The table of docs/channels.md for the doors of the gateway and of HTTP: kill -9, slow readers, outages, order, sizes.

The services have theirs in test_telegram.py, test_slack.py and test_sms.py. Which cell is shown where stands in
`tests/test_channels_page.py`.
"""

from __future__ import annotations

import json
from contextlib import suppress

import httpx
import pytest
import trio

from pegasus.bridge import Bridge, BridgeRefused
from tests.blackbox.support import Book, Closed, Stage, echo, say, until
from tests.blackbox.support.serving import standing
from tests.blackbox.support.terminal import ENTER, terminal

GATEWAY, PAGE = "", "/ws"
"""Where a client dials: the gateway, and the same protocol on the port of the web page."""
BOTH = pytest.mark.parametrize("path", [GATEWAY, PAGE], ids=["gateway", "page"])
FRAME = 1 << 20
LARGE = "x" * 2_500_000
PROMPT = "/help shows what there is"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A stage with HTTP, and a model of which no window is too small."""
    settings = {"http.enabled": True, "http.port": 0, "models.context_window": 100_000_000}
    stage = Stage(tmp_path_factory.mktemp("house"), settings)
    yield from standing(stage.daemon, stage)


def texts(replies):
    return [reply["text"] for reply in replies]


# ------------------------------------------------------------------ WebSocket and web page


@BOTH
async def test_a_message_that_is_sent_again_after_each_kill_9_is_answered_once(house, name, path):
    """The first time nobody knows whether it was accepted."""
    async with house.play(Book(), name) as daemon:
        async with daemon.client(path=path) as client:
            await client.post("once", id="m-1")
            daemon.kill()
        await daemon.start()
        for _ in range(2):
            async with daemon.client(path=path) as client:
                await client.say("once", id="m-1")
                await daemon.restart()
        async with daemon.client(path=path, lastSeq=0) as client:
            await client.say("once", id="m-1")
            await client.say("next")
            assert texts(await client.replies(2)) == ["echo: once", "echo: next"]


@BOTH
async def test_who_keeps_the_last_number_gets_each_reply_once_and_who_does_not_at_least_once(house, name, path):
    async with house.play(Book(), name) as daemon:
        async with daemon.client(path=path) as client:
            for n in range(1, 4):
                await client.say(f"m{n}")
                await client.reply()
        await daemon.restart()
        async with daemon.client(path=path) as forgetful:
            assert texts(await forgetful.replies(3)) == ["echo: m1", "echo: m2", "echo: m3"]
        await daemon.restart()
        async with daemon.client(path=path, lastSeq=2) as client:
            await client.say("m4")
            assert texts(await client.replies(2)) == ["echo: m3", "echo: m4"]
            await client.fence()
            assert len(client.texts()) == 2


@BOTH
async def test_a_slow_reader_gets_its_replies_by_number_without_gaps_over_a_kill_9(house, name, path):
    big, got = [f"{n:02} " + "x" * 100_000 for n in range(40)], []
    async with house.play(Book({"tell me": say(*big)}), name) as daemon:
        async with daemon.client(path=path, lazy=True) as lazy:
            await lazy.say("tell me")
            with suppress(Closed):  # so much is pushed before it reads that it may be disconnected
                while len(got) < 5:
                    got.append(await lazy.reply())
            async with daemon.client(channel_id=f"{name}-other") as other:
                assert await other.ask("are you there?") == "echo: are you there?"
            daemon.kill()
        await daemon.start()
        async with daemon.client(path=path, lazy=True, lastSeq=len(got)) as lazy:
            with suppress(Closed):
                while len(got) < len(big):
                    got.append(await lazy.reply())
        async with daemon.client(path=path, lastSeq=len(got)) as client:
            got += await client.replies(len(big) - len(got))
        assert texts(got) == big
        assert [reply["seq"] for reply in got] == list(range(1, len(big) + 1))


@BOTH
async def test_a_frame_has_a_mebibyte_and_a_reply_any_size(house, name, path):
    async with house.play(Book({"tell me": say(LARGE)}), name) as daemon:
        async with daemon.client(path=path) as client:
            await client.post("x" * FRAME)
            await client.error("too_large")
            assert await client.closed() in (1009, 4413)
        async with daemon.client(path=path) as client:
            await client.say("/help " + "x" * (FRAME - 200))
            await client.reply()
            await client.say("tell me")
            assert (await client.reply())["text"] == LARGE


@BOTH
async def test_replies_wait_for_a_client_that_is_away_while_the_daemon_is_killed(house, name, path):
    async with house.play(book := Book(), name) as daemon:
        book.hold()
        async with daemon.client(path=path) as away:
            await away.say("one")
            await away.say("two")
        await daemon.restart()
        book.release()
        async with daemon.client(channel_id=f"{name}-other") as other:
            await other.ask("fence")
        await daemon.restart()
        async with daemon.client(path=path) as back:
            assert texts(await back.replies(2)) == ["echo: one", "echo: two"]


# ------------------------------------------------------------------ HTTP


def http(daemon):
    return httpx.AsyncClient(
        base_url=daemon.at.http, headers={"authorization": f"Bearer {daemon.token}"}, timeout=20, verify=False
    )


async def read_replies(client, channel_id, count, after=0):
    """So many replies, by long polls."""
    found = []
    while len(found) < count:
        response = await client.get(f"/api/replies?channelId={channel_id}&after={after}&wait=20")
        found += response.json()["replies"]
        after = found[-1]["seq"]
    return found


async def post_until_it_breaks(daemon, path, body, done):
    """A request during which the daemon is killed."""
    async with http(daemon) as client:
        with pytest.raises(httpx.HTTPError):
            await client.post(path, json=body)
    done.set()


async def test_http_a_message_that_is_posted_again_after_a_kill_9_is_answered_once(house, name):
    """The request breaks off. Its answer does not come with another request, but is among the replies, once."""
    message = {"text": "hello", "id": "m-1", "channel": {"channelId": name}}
    async with house.play(book := Book(), name) as daemon:
        book.hold()
        async with trio.open_nursery() as nursery:
            broken = trio.Event()
            nursery.start_soon(post_until_it_breaks, daemon, "/api/messages?wait=30", message, broken)
            await book.reached(1)
            daemon.kill()
            await broken.wait()
        await daemon.start()
        book.release()
        async with http(daemon) as client:
            assert (await client.post("/api/messages", json=message)).status_code == 202
            [reply] = await read_replies(client, name, 1)
            assert reply["text"] == "echo: hello"
        await daemon.restart()
        async with http(daemon) as client:
            assert (await client.post("/api/messages", json=message)).status_code == 202
            assert (await client.post("/api/messages", json={**message, "text": "next", "id": "m-2"})).is_success
            after = await read_replies(client, name, 1, after=reply["seq"])
            assert texts(after) == ["echo: next"]


async def test_http_replies_have_numbers_without_gaps_over_kill_9(house, name):
    """A client that asks behind the last one that it has gets each once; one whose response was lost asks again, and gets the same."""
    found = []
    async with house.play(Book(), name) as daemon:
        for begin in (0, 6):
            for n in range(begin, begin + 6):
                async with http(daemon) as client:
                    message = {"text": f"m{n}", "id": f"m-{n}", "channel": {"channelId": name}}
                    assert (await client.post("/api/messages", json=message)).status_code == 202
            async with http(daemon) as client:
                await read_replies(client, name, 1, after=begin)  # this response got lost
            await daemon.restart()
            async with http(daemon) as client:
                found += await read_replies(client, name, 6, after=begin)
        assert [(reply["seq"], reply["text"]) for reply in found] == [(n + 1, f"echo: m{n}") for n in range(12)]


@pytest.mark.parametrize("path", ["/api/messages", "/v1/chat/completions"])
async def test_http_a_body_has_32_mebibytes(house, name, path):
    async with house.play(
        Book(otherwise=lambda view: echo(view) if len(view.question.text) < 100 else say("read")), name
    ) as daemon:
        text = "x" * 3_000_000
        body = {"text": text, "channel": {"channelId": name}}
        if path != "/api/messages":
            body = {"model": "x", "user": name, "messages": [{"role": "user", "content": text}]}
        async with http(daemon) as client:
            assert (await client.post(path, json=body)).is_success
            chat = name if path == "/api/messages" else f"home/{name}"
            assert texts(await read_replies(client, chat, 1)) == ["read"]
        host, _, port = daemon.at.http.removeprefix("http://").rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {daemon.token}\r\n"
            await stream.send_all(f"{head}Content-Length: {(32 << 20) + 1}\r\n\r\n".encode())
            assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 413 ")


# ------------------------------------------------------------------ programs for OpenAI


def completion(name, text):
    return {"model": "x", "user": name, "messages": [{"role": "user", "content": text}]}


async def ask_as_openai(client, name, text):
    response = await client.post("/v1/chat/completions", json=completion(name, text))
    return response.json()["choices"][0]["message"]["content"]


async def test_openai_a_request_during_a_kill_9_is_answered_once_among_the_replies(house, name):
    """The client asks again, which is another message, since a request has no id."""
    async with house.play(book := Book(), name) as daemon:
        book.hold()
        async with trio.open_nursery() as nursery:
            broken = trio.Event()
            nursery.start_soon(post_until_it_breaks, daemon, "/v1/chat/completions", completion(name, "hello"), broken)
            await book.reached(1)
            daemon.kill()
            await broken.wait()
        await daemon.start()
        book.release()
        async with http(daemon) as client:
            assert texts(await read_replies(client, f"home/{name}", 1)) == ["echo: hello"]
            assert await ask_as_openai(client, name, "hello again") == "echo: hello again"
            assert texts(await read_replies(client, f"home/{name}", 1)) == ["echo: hello again"], (
                "the answer before counts as had"
            )


async def test_openai_a_request_with_an_idempotency_key_is_answered_once_over_kill_9(house, name):
    async with house.play(book := Book(), name) as daemon:
        for _ in range(3):
            async with http(daemon) as client:
                body, key = completion(name, "hello"), {"idempotency-key": "k-1"}
                answer = await client.post("/v1/chat/completions", json=body, headers=key)
                assert answer.json()["choices"][0]["message"]["content"] in ("echo: hello", "")
            await daemon.restart()
        async with http(daemon) as client:
            assert await ask_as_openai(client, name, "next") == "echo: next"
        assert sum(view.thoughts == 0 for view in book.about("hello")) == 1


async def test_openai_a_request_that_had_not_arrived_at_a_kill_9_is_lost(house, name):
    async with house.play(book := Book(), name) as daemon:
        body = json.dumps(completion(name, "half")).encode()
        host, _, port = daemon.at.http.removeprefix("http://").rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {daemon.token}\r\n"
            await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-1])
            async with daemon.client() as client:
                await client.fence()
            daemon.kill()
        await daemon.start()
        async with http(daemon) as client:
            assert await ask_as_openai(client, name, "whole") == "echo: whole"
            assert texts(await read_replies(client, f"home/{name}", 1)) == ["echo: whole"]
        assert book.about("half") == []


async def test_openai_requests_are_answered_one_after_the_other(house, name):
    async with house.play(book := Book(), name) as daemon, http(daemon) as client, trio.open_nursery() as nursery:
        answers = {}

        async def ask(text):
            answers[text] = await ask_as_openai(client, name, text)

        book.hold()
        nursery.start_soon(ask, "first")
        await book.reached(1)
        for count, text in enumerate(("second", "third"), 2):
            nursery.start_soon(ask, text)
            async with daemon.client() as other:
                while (await other.call("status"))["waiting"] < count:
                    await other.fence()
        book.release()
        await until(lambda: len(answers) == 3, "the answers", 20)
        assert list(answers) == ["first", "second", "third"]
        assert all(answer == f"echo: {text}" for text, answer in answers.items())


# ------------------------------------------------------------------ bridges


async def test_bridge_a_reply_that_was_not_handled_comes_again_over_kill_9_of_the_daemon(house, name):
    async with house.play(Book(), name) as daemon:
        with trio.fail_after(30):
            async with Bridge(daemon.url, daemon.token, name) as bridge:
                await bridge.send("hello", "#room", user_id="joe", id="1")
                first = await anext(bridge)
                assert first.text == "echo: hello"
            await daemon.restart()
            async with Bridge(daemon.url, daemon.token, name) as bridge:
                await bridge.send("hello", "#room", user_id="joe", id="1")
                assert await anext(bridge) == first
                await bridge.acknowledge(first)
                await bridge.send("next", "#room", user_id="joe", id="2")
                assert (await anext(bridge)).text == "echo: next"


async def test_bridge_each_conversation_keeps_its_order_over_kill_9(house, name):
    """Everything is sent again by the service's ids, and each message is answered once."""
    settings = {"gateway.port": house.daemon.settings["gateway.port"]}
    assert settings == {"gateway.port": 0}
    rooms = ("#a", "#b")
    async with house.play(Book(), name) as daemon:
        with trio.fail_after(30):
            async with Bridge(daemon.url, daemon.token, name) as bridge:
                for n in range(5):
                    for room in rooms:
                        await bridge.send(f"m{n}", room, user_id="joe", id=f"{n}")
            await daemon.restart()
            async with Bridge(daemon.url, daemon.token, name) as bridge:
                for n in range(10):
                    for room in rooms:
                        await bridge.send(f"m{n}", room, user_id="joe", id=f"{n}")
                heard = {room: [] for room in rooms}
                while sum(map(len, heard.values())) < 20:
                    reply = await anext(bridge)
                    heard[reply.channel.channel_id].append(reply.text)
        assert heard == {room: [f"echo: m{n}" for n in range(10)] for room in rooms}


async def test_bridge_a_message_that_is_too_large_is_refused_and_the_bridge_goes_on(house, name):
    async with house.play(Book({"tell me": say(LARGE)}), name) as daemon:
        with trio.fail_after(30):
            async with Bridge(daemon.url, daemon.token, name) as bridge:
                with pytest.raises(BridgeRefused) as refused:
                    await bridge.send("x" * FRAME, "#room", user_id="joe")
                assert refused.value.code == "too_large"
                await bridge.send("tell me", "#room", user_id="joe")
                assert (await anext(bridge)).text == LARGE


# ------------------------------------------------------------------ terminal


async def test_terminal_a_chat_that_is_killed_shows_its_replies_at_the_next_start(house, name):
    """Both those that it was never shown and one that had arrived and was not acknowledged."""
    async with house.play(book := Book({"two": say("2a", "2b", "2c")}), name) as daemon:
        async with daemon.client("cli") as dying:
            await dying.say("one")
            await dying.reply()
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            await screen.see("echo: one")
            book.hold()
            await screen.type("two", ENTER)
            await book.reached(2)
            screen.process.kill()
            screen.process.wait()
        book.release()
        async with terminal(daemon.home, "chat", "--channel", name) as screen:
            await screen.see(PROMPT)
            for text in ("2a", "2b", "2c"):
                await screen.see(text)
            assert screen.text.index("2a") < screen.text.index("2b") < screen.text.index("2c")


async def test_terminal_lines_are_taken_in_the_order_in_which_they_were_typed_over_kill_9(house, name):
    async with (
        house.play(book := Book(), name) as daemon,
        terminal(daemon.home, "chat", "--channel", name) as screen,
    ):
        await screen.see(PROMPT)
        for n in range(3):
            await screen.type(f"m{n}", ENTER)
        daemon.kill()
        for n in range(3, 6):
            await screen.type(f"m{n}", ENTER)
        await daemon.start()
        await screen.see("echo: m5", 25)
        asked = [view.question.text for view in book.asked]
        assert list(dict.fromkeys(asked)) == [f"m{n}" for n in range(6)]
