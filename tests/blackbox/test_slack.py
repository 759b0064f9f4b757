"""The real process with Slack: Socket Mode over the network, kill -9 at each step, and the Events API through the HTTP server."""

from __future__ import annotations

import time

import httpx2
import trio

from pegasus.testing.services.slack_calls import refused
from pegasus.testing.services.slack_events import message_event, signed
from pegasus.testing.services.slack_server import open_slack
from pegasus.testing.services.slack_workspace import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, SlackWorkspace
from tests.blackbox.support import Book, serving, until


def prepare():
    """A workspace whose clock is the real one's, and its owner."""
    slack = SlackWorkspace(start=int(time.time() - trio.current_time()))
    return slack, slack.add_user("anna")


def settings_for(server, owner, **keys):
    keys = {"enabled": True, "bot_token": BOT_TOKEN, "base_url": server.api_url, **keys}
    return {
        "agent.owners": ["cli:*", f"slack:{owner}"],
        **{f"channels.slack.{key}": value for key, value in keys.items()},
    }


def kill_at(daemon, methods, words=""):
    """A fault: at the first call of these methods with these words, the process is killed. The call still takes effect."""
    left = [True]

    def fault(call):
        if left and call.method in methods and words in str(call.params):
            left.clear()
            daemon.kill()

    return fault


async def test_a_conversation_and_kill_9_at_each_step(tmp_path):
    slack, owner = prepare()
    book = Book()
    async with open_slack(slack) as server:
        server.pace = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)  # Slack would wait for minutes
        settings = settings_for(server, owner, app_token=APP_TOKEN)
        async with serving(tmp_path, book, settings) as daemon:
            dm = slack.open_dm(owner)

            async def say(text):
                await slack.until(lambda _: any(socket.is_open for socket in server.sockets))
                return await server.emit(message_event(slack, dm, owner, text))

            async def answered(text):
                with trio.fail_after(20):
                    await slack.until(lambda _: f"echo: {text}" in slack.texts(dm))

            await say("hello")
            await answered("hello")

            # The process dies when the message has arrived, before or after it could be acknowledged.
            delivery = await say("first")
            daemon.kill()
            await until(lambda: daemon.process.poll() is not None, "the end of the process")
            await daemon.start()
            await answered("first")
            with trio.fail_after(20):
                await delivery.acknowledged.wait()

            # Slack has posted the answer, or a draft has become the answer, and nobody could record it.
            slack.fault = kill_at(daemon, ("chat.postMessage", "chat.update"), "echo: second")
            await say("second")
            await until(lambda: daemon.process.poll() is not None, "the end of the process")
            slack.fault = lambda call: None
            await daemon.start()
            await say("third")
            await answered("third")
            assert slack.texts(dm) == ["echo: hello", "echo: first", "echo: second", "echo: third"]

            # A token that Slack refuses parks the channel; the rest of the daemon runs on, and no token is in the log.
            slack.fault = lambda call: refused("token_revoked")
            await say("anybody there?")
            await until(lambda: "the channel is parked" in daemon.stderr, "the log line", 20)
            async with daemon.client() as client:
                [channel] = (await client.call("status"))["channels"]
                assert (channel["type"], channel["state"]) == ("slack", "parked")
                assert "token_revoked" in channel["reason"]
                await client.say("and the rest?")
                assert (await client.reply())["text"] == "echo: and the rest?"
            assert BOT_TOKEN not in daemon.stderr + (daemon.home / "logs" / "pegasus.log").read_text()
            assert APP_TOKEN not in daemon.stderr


async def test_the_events_api_through_the_http_server(tmp_path):
    slack, owner = prepare()
    async with open_slack(slack) as server:
        settings = settings_for(server, owner, signing_secret=SIGNING_SECRET)
        settings |= {"http.enabled": True, "http.port": 0}
        async with serving(tmp_path, Book(), settings) as daemon, httpx2.AsyncClient() as http:
            await slack.until(lambda _: slack.called("auth.test"))
            url = f"{daemon.at.http}/channels/slack/events"
            headers, body = signed(message_event(slack, slack.open_dm(owner), owner, "hello"), slack.now())

            async def post(headers, body):
                with trio.fail_after(20):
                    while (answer := await http.post(url, headers=headers, content=body)).status_code == 503:  # noqa: ASYNC110 it starts
                        await trio.sleep(0.05)
                return answer.status_code

            assert await post({**headers, "x-slack-signature": "v0=0"}, body) == 401
            assert await post(headers, body) == 200
            assert await post(headers, body) == 200
            with trio.fail_after(20):
                await slack.until(lambda _: slack.texts())
            assert slack.texts() == ["echo: hello"]
            assert (await http.post(f"{daemon.at.http}/channels/sms/twilio", content=b"x")).status_code == 404
