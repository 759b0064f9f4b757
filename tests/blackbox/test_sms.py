"""The real process with SMS and with a bridge: webhooks through the HTTP server, and kill -9 around deliveries."""

from __future__ import annotations

import base64
import time

import httpx2
import pytest
import trio

from pegasus.bridge import Bridge
from pegasus.testing.services.server import HANG_UP, open_service
from pegasus.testing.services.twilio import FakeTwilio
from tests.blackbox.support import Book, serving, until
from tests.blackbox.support.ports import free_port

OWNER = "+15550101"


def wall_clock():
    return int(time.time() * 1000)


def settings_for(twilio, port):
    return {
        "agent.owners": ["cli:*", f"sms:{OWNER}"],
        "http.enabled": True,
        "http.port": port,
        "http.public_url": twilio.public_url,
        "channels.sms.enabled": True,
        "channels.sms.account_sid": twilio.account_sid,
        "channels.sms.auth_token": twilio.auth_token,
        "channels.sms.from_number": twilio.number,
        "channels.sms.base_url": twilio.base_url,
    }


async def test_sms_through_the_http_server_and_kill_9_around_a_delivery(tmp_path):
    port = free_port()
    async with open_service(FakeTwilio(f"http://127.0.0.1:{port}", wall_clock)) as twilio:
        settings = settings_for(twilio, port)
        async with serving(tmp_path, Book(), settings) as daemon, httpx2.AsyncClient() as http:

            async def post(request, **headers):
                answer = await http.post(request.url, content=request.body, headers={**request.headers, **headers})
                return answer.status_code

            async def text(words):
                request = twilio.receive_sms(OWNER, words)
                with trio.fail_after(20):
                    while await post(request) == 503:  # noqa: ASYNC110 it starts
                        await trio.sleep(0.05)
                    assert await post(request) == 200, "it may come again"
                return request

            request = await text("hello")
            assert await post(request, **{"x-twilio-signature": base64.b64encode(b"x" * 20).decode()}) == 401
            await until(lambda: twilio.texts_to(OWNER) == ["echo: hello"], "the first reply", 20)

            # Twilio has sent the reply, its answer never comes, and the process is killed: nothing appears twice.
            def kill_at_second(request):
                if request.method == "POST" and b"second" in request.body:
                    twilio.late_fault = lambda request: None
                    daemon.kill()
                    return HANG_UP
                return None

            twilio.late_fault = kill_at_second
            await text("second")
            await until(lambda: daemon.process.poll() is not None, "the end of the process")
            await daemon.start()
            await text("third")
            await until(lambda: "echo: third" in twilio.texts_to(OWNER), "the last reply", 20)
            assert twilio.texts_to(OWNER) == ["echo: hello", "echo: second", "echo: third"]
            assert twilio.auth_token not in daemon.stderr


async def test_sms_that_was_taken_is_answered_once_over_kill_9_and_one_that_was_not_only_if_it_comes_again(tmp_path):
    port = free_port()
    async with (
        open_service(FakeTwilio(f"http://127.0.0.1:{port}", wall_clock)) as twilio,
        serving(tmp_path, book := Book(), settings_for(twilio, port)) as daemon,
        httpx2.AsyncClient() as http,
    ):

        async def post(request):
            with trio.fail_after(20):
                while True:  # 503 while it starts
                    answer = await http.post(request.url, content=request.body, headers=request.headers)
                    if answer.status_code != 503:
                        return answer.status_code

        book.hold()
        first = twilio.receive_sms(OWNER, "first")
        assert await post(first) == 200
        daemon.kill()
        missed = twilio.receive_sms(OWNER, "missed")
        again = twilio.receive_sms(OWNER, "again")
        for request in (missed, again):
            with pytest.raises(httpx2.ConnectError):
                await post(request)
        await daemon.start()
        assert await post(first) == 200, "Twilio has not seen the answer"
        assert await post(again) == 200
        book.release()
        await until(lambda: "echo: again" in twilio.texts_to(OWNER), "the last reply", 20)
        assert twilio.texts_to(OWNER) == ["echo: first", "echo: again"]


async def test_a_bridge_outlives_a_daemon_that_is_killed(tmp_path):
    settings = {"gateway.port": free_port()}
    async with serving(tmp_path, Book(), settings) as daemon, Bridge(daemon.url, daemon.token, "irc") as bridge:
        with trio.fail_after(60):
            await bridge.send("hello", "#room", user_id="joe", id="1")
            assert (await anext(bridge)).text == "echo: hello"
            daemon.kill()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: bridge.send("again", "#room", user_id="joe", id="2"))
                await daemon.restart()
            await bridge.send("again", "#room", user_id="joe", id="2")
            await bridge.send("last", "#room", user_id="joe", id="3")
            texts = [(await anext(bridge)).text]
            while texts[-1] != "echo: last":
                texts.append((await anext(bridge)).text)
        assert texts in (["echo: again", "echo: last"], ["echo: hello", "echo: again", "echo: last"])
