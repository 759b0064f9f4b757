"""The Events API: signatures, replays, retries, and the answer within three seconds."""

import trio

from pegasus.channels import WebhookRequest
from pegasus.storage import Waiting
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.services.slack_calls import refused
from pegasus.testing.services.slack_events import click_event, command_event, mention_event, signature, signed
from pegasus.testing.services.slack_workspace import BOT_USER
from tests.pegasus.channels.slack.conftest import FRIEND, OWNER


async def ready(stage):
    await stage.slack.until(lambda slack: slack.called("auth.test"))
    await trio.sleep(1)
    assert stage.adapter.state.state == "up"


async def test_an_event_is_answered_with_200_when_its_message_is_on_disk(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        answer = await stage.webhook(stage.message("hello"))
        assert answer.status == 200
        assert await stage.settle() == ["re: hello"]
        assert stage.server.connections == 0


async def test_a_request_without_the_right_signature_is_401_and_leaves_nothing(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        headers, body = signed(stage.message("hello"), stage.slack.now())
        old = signed(stage.message("hello"), stage.slack.now() - 301)
        early = signed(stage.message("hello"), stage.slack.now() + 301)
        for given, content in (
            ({}, body),
            (headers, body + b" "),
            (signed(stage.message("hello"), stage.slack.now(), secret="other")[0], body),
            old,
            early,
            ({**headers, "x-slack-request-timestamp": "٣"}, body),
            ({**headers, "x-slack-request-timestamp": "9" * 400}, body),
            ({**headers, "x-slack-signature": "é"}, body),
        ):
            assert (await stage.post(given, content)).status == 401
        assert await stage.settle() == []


async def test_a_replay_within_the_window_counts_once(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        request = signed(stage.message("hello"), stage.slack.now())
        assert [(await stage.post(*request)).status for _ in range(5)] == [200] * 5
        message = stage.message(f"<@{BOT_USER}> x", FRIEND, stage.slack.add_channel("general"))
        assert (await stage.webhook(message)).status == 200
        assert (await stage.webhook(mention_event(stage.slack, message))).status == 200
        assert await stage.settle() == ["re: hello", "re: x"]


async def test_the_address_is_verified_with_the_challenge(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        answer = await stage.webhook({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "x"})
        assert (answer.status, answer.body) == (200, b"3eZbrw1aB")
        body = b'{"type":"url_verification","challenge":"x"}'
        assert (await stage.post({"content-type": "application/json"}, body)).status == 401


async def test_signed_bodies_that_make_no_sense_are_400_and_never_5xx(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        for kind in ("application/json", "application/x-www-form-urlencoded", ""):
            for body in (
                b"",
                b"{",
                b"[]",
                b"\xff",
                b"payload=%7B",
                b"&" * 5000,
                b'{"type":"url_verification"}',
                b"a=1&" * 500,
            ):
                answer = await stage.post({"content-type": kind, **signature(body, stage.slack.now())}, body)
                assert answer.status in (200, 400)
        for event in ({}, {"type": "event_callback"}, {"type": "event_callback", "event": 3}):
            assert (await stage.webhook(event)).status == 200
        get = await stage.adapter.receive(WebhookRequest("GET", "/channels/slack/events", {}, b""))
        assert get.status == 405


async def test_without_a_signing_secret_the_route_does_not_exist(play, autojump_clock):
    async with play() as stage:
        assert (await stage.webhook(stage.message("hello"))).status == 404


async def test_clicks_and_commands_come_as_forms(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        assert (await stage.webhook(command_event(stage.slack, OWNER, stage.dm, "/pegasus", "hi there"))).status == 200
        assert (
            await stage.webhook(click_event(stage.slack, OWNER, stage.dm, "1.000001", "deny", "a-0000"))
        ).status == 200
        assert await stage.settle() == ["re: hi there"]


async def test_while_the_disk_refuses_slack_is_asked_to_come_again_and_then_it_counts_once(
    play, autojump_clock, by_webhook
):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        await stage.settle()
        stage.world.disk.fail(times=1_000_000)
        attempts = []

        async def heal():
            await trio.sleep(30)
            stage.world.disk.files.end_faults()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            attempts.append(await stage.deliver(stage.message("hello")))
        assert attempts[0] > 1
        assert await stage.settle() == ["re: hello"]


async def test_a_slow_file_is_answered_in_time_and_taken_at_the_retry(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        file = stage.slack.add_file("a.txt", "text/plain", b"the plan")
        stage.slack.file_delay = 8.0
        start = trio.current_time()
        # Two files, so that nothing further is waited for.
        other = stage.slack.add_file("b.txt", "text/plain", b"more")
        answer = await stage.webhook(stage.message("read", files=[file, other]))
        assert (answer.status, trio.current_time() - start < 3) == (503, True)
        assert await stage.deliver(stage.message("next")) == 3  # behind the file: in order
        await stage.settle()
        assert "the plan" in stage.prompts()
        assert len(stage.slack.texts()) == 2


async def test_a_token_that_is_revoked_is_noticed_though_nothing_is_sent(play, autojump_clock, by_webhook):
    async with play(settings=by_webhook) as stage:
        await ready(stage)
        stage.slack.fault = lambda call: refused("account_inactive")
        await trio.sleep(3600)
        assert (stage.adapter.state.state, "account_inactive" in stage.adapter.state.reason) == ("parked", True)
        assert (await stage.webhook(stage.message("hello"))).status == 503


async def test_many_at_once_are_all_taken(play, autojump_clock, by_webhook):
    async with play(ScriptedModel(lambda request: Hang()), settings=by_webhook) as stage:
        await ready(stage)
        statuses = []

        async def post(n):
            statuses.append((await stage.webhook(stage.message(f"n{n}"))).status)

        async with trio.open_nursery() as nursery:
            for n in range(300):
                nursery.start_soon(post, n)
        assert statuses == [200] * 300
        assert await stage.world.journal.ask(Waiting) == 300
