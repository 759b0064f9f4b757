"""The real process with Telegram: a conversation over the network, and kill -9 at each step of a delivery."""

from __future__ import annotations

import json

import httpx2
import trio

from pegasus.testing.services.server import HANG_UP, ServiceResponse, open_service
from pegasus.testing.services.telegram import TOKEN, TelegramServer
from tests.blackbox.support import SILENCE, Book, echo, serving, until
from tests.blackbox.support.ports import free_port

OWNER = 42


def settings_for(telegram):
    return {
        "agent.owners": ["cli:*", f"telegram:{OWNER}"],
        "channels.telegram.enabled": True,
        "channels.telegram.bot_token": TOKEN,
        "channels.telegram.base_url": telegram.base_url,
    }


def at(method, words, act):
    """A fault at the first call of this method with these words in it: `act` is done, and the answer never comes."""
    left = [True]

    def fault(request):
        if left and request.path.endswith(f"/{method}") and words.encode() in request.body:
            left.clear()
            act()
            return HANG_UP
        return None

    return fault


async def test_a_conversation_and_kill_9_at_each_step_of_a_delivery(tmp_path):
    book = Book()
    async with open_service(TelegramServer()) as telegram, serving(tmp_path, book, settings_for(telegram)) as daemon:
        telegram.say(OWNER, "hello")
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: hello"

        assert "telegram: up" in (await daemon.command("doctor")).out

        # The message was heard and is on disk, and Telegram has not been told so.
        telegram.fault = at("getUpdates", "offset", daemon.kill)
        telegram.say(OWNER, "first")
        await until(lambda: daemon.process.poll() is not None, "the end of the process")
        await daemon.start()
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: first"

        # Telegram is asked to send, and has not done it.
        telegram.fault = at("sendMessage", "echo: second", daemon.kill)
        telegram.say(OWNER, "second")
        await until(lambda: daemon.process.poll() is not None, "the end of the process")
        await daemon.start()
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: second"

        # Telegram has done it, and its answer never comes: this one appears twice, and no other.
        telegram.late_fault = at("sendMessage", "echo: third", daemon.kill)
        telegram.say(OWNER, "third")
        await until(lambda: daemon.process.poll() is not None, "the end of the process")
        await daemon.start()
        telegram.say(OWNER, "fourth")
        with trio.fail_after(20):
            await telegram.until(lambda: (OWNER, "echo: fourth") in telegram.shown)
        texts = [text.removeprefix("echo: ") for _, text in telegram.shown]
        assert texts == ["hello", "first", "second", "third", "third", "fourth"]
        assert len(book.about("first")) >= 1

        # A token that Telegram refuses parks the channel; the rest of the daemon runs on, and the token is in no log.
        telegram.token = "999:revoked"
        telegram.say(OWNER, "anybody there?")
        await until(lambda: "the channel is parked" in daemon.stderr, "the log line", 20)
        async with daemon.client() as client:
            [channel] = (await client.call("status"))["channels"]
            assert (channel["type"], channel["state"]) == ("telegram", "parked")
            assert "refuses the bot token" in channel["reason"]
            assert '"state":"parked"' in json.dumps(await client.call("tree"), separators=(",", ":"))
            await client.say("and the rest?")
            assert (await client.reply())["text"] == "echo: and the rest?"
        shown = await daemon.command("tree")
        assert "parked" in shown.out
        assert TOKEN not in daemon.stderr
        assert TOKEN not in (daemon.home / "logs" / "pegasus.log").read_text()


async def test_a_parked_channel_is_taken_up_with_the_token_of_a_reload(tmp_path):
    async with open_service(TelegramServer()) as telegram:
        settings = settings_for(telegram) | {"channels.telegram.bot_token": "999:revoked"}
        async with serving(tmp_path, Book(), settings) as daemon, daemon.client() as client:
            telegram.say(OWNER, "anybody there?")
            await until(lambda: "the channel is parked" in daemon.stderr, "the log line", 20)

            daemon.configure(channels__telegram__bot_token=TOKEN, channels__telegram__allow_from=["7"])
            assert await client.call("config.reload") == {
                "changed": ["channels.telegram.allow_from", "channels.telegram.bot_token"],
                "afterRestart": [],
            }
            with trio.fail_after(20):
                assert (await telegram.next_message()).text == "echo: anybody there?"
            [channel] = (await client.call("status"))["channels"]
            assert channel["state"] == "up"
            assert TOKEN not in daemon.stderr


async def test_kill_9_again_and_again_when_telegram_has_taken_an_answer_never_shows_it_three_times(tmp_path):
    """Telegram recognises no repeated call. So an answer is sent a second time, and then the agent is told instead."""
    book = Book(otherwise=lambda view: SILENCE if "never confirmed" in view.question.text else echo(view))
    async with open_service(TelegramServer()) as telegram, serving(tmp_path, book, settings_for(telegram)) as daemon:
        telegram.late_fault = at("sendMessage", "echo: one", daemon.kill)
        telegram.say(OWNER, "one")
        for kills in (1, 2):
            await until(lambda: daemon.process.poll() is not None, "the end of the process")
            assert telegram.shown == [(OWNER, "echo: one")] * kills
            telegram.late_fault = at("sendMessage", "echo: one", daemon.kill)
            await daemon.start()
        for _ in range(3):  # however often it starts from now on, before and after the agent was told
            await daemon.restart()
        telegram.say(OWNER, "two")
        with trio.fail_after(20):
            await telegram.until(lambda: (OWNER, "echo: two") in telegram.shown)
        assert [text for _, text in telegram.shown] == ["echo: one", "echo: one", "echo: two"]
        await until(lambda: any("never confirmed" in view.question.text for view in book.asked), "the report", 20)


async def test_an_answer_that_never_left_is_sent_however_often_the_process_is_killed_meanwhile(tmp_path):
    """Starts during an outage of Telegram are no attempts: nothing of them can be there."""
    async with open_service(TelegramServer()) as telegram, serving(tmp_path, Book(), settings_for(telegram)) as daemon:
        telegram.say(OWNER, "hello")
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: hello"
        telegram.fault = lambda request: ServiceResponse(502) if request.path.endswith("/sendMessage") else None
        telegram.say(OWNER, "one")
        log = daemon.home / "data" / "channels" / "telegram.jsonl"
        for _ in range(4):
            tried = len(telegram.requests)

            def is_refused(tried=tried):
                calls = sum(request.path.endswith("/sendMessage") for request in telegram.requests[tried:])
                return calls >= 2 and log.read_bytes().endswith(b'"attempts":0}\n')

            await until(is_refused, "a second call in this process, with its outcome on record", 20)
            await daemon.restart()
        telegram.fault = lambda request: None
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: one"


async def test_what_people_write_while_the_process_is_dead_is_answered_once_and_in_order(tmp_path):
    async with open_service(TelegramServer()) as telegram, serving(tmp_path, Book(), settings_for(telegram)) as daemon:
        telegram.say(OWNER, "hello")
        with trio.fail_after(20):
            assert (await telegram.next_message()).text == "echo: hello"
        daemon.kill()
        for n in range(5):
            telegram.say(OWNER, f"m{n}")
        await daemon.start()
        with trio.fail_after(20):
            await telegram.until(lambda: (OWNER, "echo: m4") in telegram.shown)
        await daemon.restart()
        telegram.say(OWNER, "last")
        with trio.fail_after(20):
            await telegram.until(lambda: (OWNER, "echo: last") in telegram.shown)
        texts = [text for _, text in telegram.shown]
        assert list(dict.fromkeys(texts)) == ["echo: hello", *(f"echo: m{n}" for n in range(5)), "echo: last"]
        assert len(texts) <= 7 + 2, "each of the two kills may repeat the message that was being recorded"


async def test_telegram_calls_the_webhook_through_the_http_server(tmp_path):
    async with open_service(TelegramServer()) as telegram:
        port = free_port()
        settings = settings_for(telegram) | {
            "http.enabled": True,
            "http.port": port,
            "http.public_url": f"http://127.0.0.1:{port}",
            "channels.telegram.mode": "webhook",
        }
        async with serving(tmp_path, Book(), settings):
            await until(lambda: telegram.webhook, "the webhook", 20)
            url, secret = telegram.webhook["url"], telegram.webhook["secret_token"]
            update = {"update_id": 1, "message": telegram.say(OWNER, "hello")}

            async with httpx2.AsyncClient() as http:

                async def post(url, secret, content=None):
                    headers = {"x-telegram-bot-api-secret-token": secret}
                    body = json.dumps(update).encode() if content is None else content
                    return (await http.post(url, content=body, headers=headers)).status_code

                with trio.fail_after(20):
                    while await post(url, secret) == 503:
                        await telegram.until(lambda: True)
                    assert await post(url, secret) == 200, "it may come again"
                    assert await post(url, "wrong") == 401
                    assert await post(f"{url[:-3]}abc", secret) == 401
                    assert await post(url, secret, b"{") == 400
                    assert await post(url.replace("/telegram/", "/slack/"), secret) == 404
                    assert (await telegram.next_message()).text == "echo: hello"
            assert [text for _, text in telegram.shown] == ["echo: hello"]
