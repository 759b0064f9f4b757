"""The fake Slack, held against the official client: what `slack-sdk` can do with Slack, it can do with the fake."""

from __future__ import annotations

import logging
from queue import Queue

import pytest
import trio
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import Clock, SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

from pegasus.testing.services.slack_calls import broken, rate_limited
from pegasus.testing.services.slack_events import click_event, command_event, mention_event, message_event, signed
from pegasus.testing.services.slack_server import SlackServer, open_slack
from pegasus.testing.services.slack_workspace import APP_TOKEN, BOT_TOKEN, BOT_USER, SIGNING_SECRET


@pytest.fixture
async def server():
    async with open_slack() as server:
        yield server


def web(server: SlackServer, token: str = BOT_TOKEN) -> WebClient:
    return WebClient(token=token, base_url=f"{server.api_url}/", retry_handlers=[])


async def call(function, **arguments):
    return await trio.to_thread.run_sync(lambda: function(**arguments))


async def code_of(function, **arguments) -> str:
    """The error code that the client raises."""
    with pytest.raises(SlackApiError) as caught:
        await call(function, **arguments)
    return caught.value.response["error"]


async def test_the_official_client_writes_changes_and_deletes_messages(server):
    slack, client = server.workspace, web(server)
    general = slack.add_channel("general")
    assert (await call(client.auth_test))["user_id"] == BOT_USER
    sent = await call(client.chat_postMessage, channel=general, text="one & <two>", thread_ts="1.2")
    await call(client.chat_update, channel=general, ts=sent["ts"], text="three")
    [post] = slack.posts
    assert (post.text, post.versions, post.thread_ts) == ("three", ["one & <two>"], "1.2")
    await call(client.chat_delete, channel=general, ts=sent["ts"])
    assert slack.texts() == []


async def test_it_finds_conversations_and_people_page_by_page(server):
    slack, client = server.workspace, web(server)
    names = [f"room-{n}" for n in range(450)]
    for name in names:
        slack.add_channel(name)
    anna = slack.add_user("anna", shown="Anna K.")
    pages = await call(lambda: [page["channels"] for page in client.conversations_list(limit=1000)])
    assert [channel["name"] for page in pages for channel in page] == names
    assert (await call(client.users_info, user=anna))["user"]["profile"]["display_name"] == "Anna K."
    opened = await call(client.conversations_open, users=anna)
    assert (await call(client.conversations_info, channel=opened["channel"]["id"]))["channel"]["is_im"]


async def test_it_uploads_a_file_and_reads_one(server):
    slack, client = server.workspace, web(server)
    general = slack.add_channel("general")
    await call(client.files_upload_v2, channel=general, filename="a.txt", content="hello", thread_ts="1.2")
    [file] = slack.files.values()
    assert (file.data, file.is_complete, file.channel, file.thread_ts) == (b"hello", True, general, "1.2")


async def test_errors_are_those_of_the_service(server):
    slack, client = server.workspace, web(server)
    general, other = slack.add_channel("general"), slack.add_channel("other", has_app=False)
    old = slack.add_channel("old", archived=True)
    write = client.chat_postMessage
    assert await code_of(web(server, "xoxb-wrong").auth_test) == "invalid_auth"
    assert await code_of(write, channel="C404", text="x") == "channel_not_found"
    assert await code_of(write, channel=other, text="x") == "not_in_channel"
    assert await code_of(write, channel=old, text="x") == "is_archived"
    assert await code_of(write, channel=general, text="x" * 40_001) == "msg_too_long"
    long = [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}]
    assert await code_of(write, channel=general, text="x", blocks=long) == "invalid_blocks"
    assert await code_of(client.apps_connections_open, app_token=BOT_TOKEN) == "not_allowed_token_type"
    slack.fault = lambda call: rate_limited(7)
    with pytest.raises(SlackApiError) as caught:
        await call(write, channel=general, text="x")
    assert (caught.value.response.status_code, caught.value.response.headers["retry-after"]) == (429, "7")
    slack.fault = lambda call: broken(503)
    with pytest.raises(SlackApiError):
        await call(write, channel=general, text="x")
    assert slack.posts == []


async def test_the_official_verifier_accepts_the_signature_of_a_webhook(server):
    slack = server.workspace
    event = message_event(slack, slack.add_channel("general"), slack.add_user("anna"), "Grüße")
    headers, body = signed(event, now=1000)
    named = {name.title(): value for name, value in headers.items()}

    class At(Clock):
        def now(self) -> float:
            return 1000

    assert SignatureVerifier(SIGNING_SECRET, At()).is_valid_request(body, named)
    assert not SignatureVerifier("other", At()).is_valid_request(body, named)


async def test_the_official_socket_mode_client_hears_events_and_survives_a_refresh(server):
    slack = server.workspace
    anna, general = slack.add_user("anna"), slack.add_channel("general")
    heard: Queue[tuple[str, dict]] = Queue()

    def listen(client, request) -> None:
        heard.put((request.type, request.payload))
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    quiet = logging.getLogger("slack-sdk-test")
    quiet.setLevel(logging.CRITICAL)
    client = SocketModeClient(app_token=APP_TOKEN, web_client=web(server), logger=quiet, ping_interval=1)
    client.socket_mode_request_listeners.append(listen)
    message = message_event(slack, general, anna, f"<@{BOT_USER}> hello")
    sent = [
        message,
        mention_event(slack, message),
        click_event(slack, anna, general, "1.2", "approve", "a-1"),
        command_event(slack, anna, general, "/pegasus", "status"),
    ]
    try:
        with trio.fail_after(20):
            await call(client.connect)
            for envelope in sent:
                delivery = await server.emit(envelope)
                await delivery.acknowledged.wait()
            [first] = server.sockets
            await slack.until(lambda _: first.pings > 0)
            await first.disconnect("refresh_requested")
            await slack.until(lambda _: server.sockets not in ([], [first]))
            delivery = await server.emit(message_event(slack, general, anna, "after"))
            await delivery.acknowledged.wait()
    finally:
        await call(client.close)
    assert [kind for kind, _ in list(heard.queue)] == ["events_api"] * 2 + [
        "interactive",
        "slash_commands",
        "events_api",
    ]
    assert heard.queue[0][1]["event"]["text"] == f"<@{BOT_USER}> hello"
