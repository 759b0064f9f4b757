"""Every door of one daemon at the same time: terminal, web page, HTTP, OpenAI clients, Telegram, Slack, SMS and a bridge."""

from __future__ import annotations

import time

import httpx
import httpx2
import pytest
import trio

from pegasus.bridge import Bridge
from pegasus.testing.services.server import open_service
from pegasus.testing.services.slack_events import message_event
from pegasus.testing.services.slack_server import open_slack
from pegasus.testing.services.slack_workspace import APP_TOKEN, BOT_TOKEN, SlackWorkspace
from pegasus.testing.services.telegram import TOKEN, TelegramServer
from pegasus.testing.services.twilio import FakeTwilio
from tests.blackbox.support import Book, serving, until
from tests.blackbox.support.ports import free_port
from tests.blackbox.support.terminal import ENTER, terminal

CHAT, PHONE = 42, "+15550101"


@pytest.mark.deadline(60)
async def test_each_message_is_answered_at_its_door_and_a_service_that_is_away_holds_up_no_other(tmp_path):
    port = free_port()
    slack = SlackWorkspace(start=int(time.time() - trio.current_time()))
    anna = slack.add_user("anna")
    async with (
        open_service(TelegramServer()) as telegram,
        open_slack(slack) as slack_server,
        open_service(FakeTwilio(f"http://127.0.0.1:{port}", lambda: int(time.time() * 1000))) as twilio,
    ):
        settings = {
            "agent.owners": ["cli:*", "web:*", f"telegram:{CHAT}", f"slack:{anna}", f"sms:{PHONE}"],
            "http.enabled": True,
            "http.port": port,
            "http.public_url": twilio.public_url,
            "channels.telegram.enabled": True,
            "channels.telegram.bot_token": TOKEN,
            "channels.telegram.base_url": telegram.base_url,
            "channels.slack.enabled": True,
            "channels.slack.bot_token": BOT_TOKEN,
            "channels.slack.app_token": APP_TOKEN,
            "channels.slack.base_url": slack_server.api_url,
            "channels.sms.enabled": True,
            "channels.sms.account_sid": twilio.account_sid,
            "channels.sms.auth_token": twilio.auth_token,
            "channels.sms.from_number": twilio.number,
            "channels.sms.base_url": twilio.base_url,
        }
        async with serving(tmp_path, book := Book(), settings) as daemon:
            dm = slack.open_dm(anna)
            headers = {"authorization": f"Bearer {daemon.token}"}
            async with (
                httpx.AsyncClient(base_url=daemon.at.http, headers=headers, timeout=20, verify=False) as http,
                httpx2.AsyncClient() as caller,
                Bridge(daemon.url, daemon.token, "irc") as bridge,
                daemon.client("web", "page", path="/ws") as page,
                terminal(daemon.home, "chat", "--channel", "main") as screen,
            ):

                async def by_telegram(text):
                    telegram.say(CHAT, text)
                    await telegram.until(lambda: (CHAT, f"echo: {text}") in telegram.shown)

                async def by_slack(text):
                    await slack.until(lambda _: any(socket.is_open for socket in slack_server.sockets))
                    await slack_server.emit(message_event(slack, dm, anna, text))
                    await slack.until(lambda _: f"echo: {text}" in slack.texts(dm))

                async def by_sms(text):
                    request = twilio.receive_sms(PHONE, text)
                    status = 503
                    while status == 503:  # it starts
                        answer = await caller.post(request.url, content=request.body, headers=request.headers)
                        status = answer.status_code
                    assert status == 200
                    await until(lambda: f"echo: {text}" in twilio.texts_to(PHONE), "the SMS", 20)

                async def by_bridge(text):
                    await bridge.send(text, "#room", user_id="joe")
                    assert (await anext(bridge)).text == f"echo: {text}"

                async def by_page(text):
                    assert await page.ask(text) == f"echo: {text}"

                async def by_terminal(text):
                    await screen.type(text, ENTER)
                    await screen.see(f"echo: {text}")

                async def by_http(text):
                    message = {"text": text, "channel": {"channelId": "script"}}
                    answer = (await http.post("/api/messages?wait=20", json=message)).json()
                    assert [reply["text"] for reply in answer["replies"]] == [f"echo: {text}"]

                async def by_openai(text):
                    body = {"model": "x", "user": "editor", "messages": [{"role": "user", "content": text}]}
                    answer = (await http.post("/v1/chat/completions", json=body)).json()
                    assert answer["choices"][0]["message"]["content"] == f"echo: {text}"

                doors = {
                    "telegram": by_telegram,
                    "slack": by_slack,
                    "sms": by_sms,
                    "irc": by_bridge,
                    "web": by_page,
                    "cli": by_terminal,
                    "script": by_http,
                    "editor": by_openai,
                }
                await screen.see("/help shows what there is")
                async with trio.open_nursery() as nursery:
                    for name, door in doors.items():
                        nursery.start_soon(door, f"hello from {name}")
                for name in doors:
                    [question] = {view.question for view in book.about(f"hello from {name}")}
                    assert name in (question.type, question.id.removeprefix("home/"))

                # Each reply without a channel goes to where the newest message came from.
                for name, door in reversed(doors.items()):
                    await door(f"again {name}")

                # Two services go away and come back. Nobody at the other doors waits for them.
                telegram.is_down = True
                await slack_server.fail()
                for name in ("sms", "irc", "web", "cli", "script", "editor"):
                    await doors[name](f"still {name}")
                telegram.is_down = slack_server.is_down = False
                for name in ("telegram", "slack"):
                    await doors[name](f"back {name}")

                # What was said at a door was heard at no other.
                said = {
                    "telegram": [text for _, text in telegram.shown],
                    "slack": slack.texts(dm),
                    "sms": twilio.texts_to(PHONE),
                    "web": page.texts(),
                }
                for name, texts in said.items():
                    assert texts[:2] == [f"echo: hello from {name}", f"echo: again {name}"]
                    assert all(text.endswith(name) for text in texts)
