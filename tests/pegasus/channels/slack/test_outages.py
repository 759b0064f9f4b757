"""Slack that is down, refuses the token, or is there while this process dies."""

from itertools import pairwise

import pytest
import trio

from pegasus.messages import ChannelInfo, ReplyDraft
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.services.slack_calls import broken, hung_up, rate_limited, refused
from pegasus.testing.services.slack_workspace import SlackPost
from pegasus.testing.world import kill
from tests.pegasus.channels.slack.conftest import post, ready


async def test_after_an_hour_without_slack_everything_arrives_once_and_in_order(play, autojump_clock):
    async with play() as stage:
        await stage.say("hello")
        await stage.until_posted(1)
        await stage.server.fail()
        for n in range(20):
            await post(stage, f"n{n}", stage.dm)
            await trio.sleep(180)
        assert stage.adapter.state.state == "down"
        assert stage.slack.texts() == ["re: hello"]
        stage.server.is_down = False
        assert (await stage.until_posted(21))[1:] == [f"n{n}" for n in range(20)]
        await stage.say("back?")
        assert (await stage.settle())[21:] == ["re: back?"]
        assert stage.adapter.state.state == "up"


async def test_in_the_first_minute_slack_is_tried_at_least_every_ten_seconds(play, autojump_clock):
    async with play(fault=lambda call: refused("fatal_error")) as stage:
        await trio.sleep(60)
        times = [call.at for call in stage.slack.called("auth.test")]
        assert max(b - a for a, b in pairwise(times)) <= 10
        stage.slack.fault = lambda call: None
        await stage.say("hello")
        assert await stage.until_posted(1) == ["re: hello"]


@pytest.mark.parametrize("code", ["invalid_auth", "token_revoked", "account_inactive"])
async def test_a_token_that_slack_refuses_parks_the_channel_at_once(play, autojump_clock, code):
    async with play(fault=lambda call: refused(code)) as stage:
        await trio.sleep(3600)
        assert stage.adapter.state.state == "parked"
        assert f"{code} (channels.slack.bot_token)" in stage.adapter.state.reason
        assert "xoxb" not in stage.adapter.state.reason
        assert len(stage.slack.calls) <= 2


async def test_a_token_that_is_revoked_while_it_works_parks_the_channel_and_replies_wait(play, autojump_clock):
    async with play() as stage:
        await stage.say("hello")
        await stage.until_posted(1)
        stage.slack.bot_token = "xoxb-another"
        await post(stage, "later", stage.dm)
        await stage.settle()
        assert stage.adapter.state.state == "parked"
        count = len(stage.slack.calls)
        await trio.sleep(3600)
        assert len(stage.slack.calls) == count
        await kill(stage.world)
    stage.slack.bot_token = "xoxb-1-test"
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        assert (await again.until_posted(2))[1:] == ["later"]


async def test_an_app_token_that_is_no_such_token_parks_the_channel_and_says_which(play, autojump_clock):
    async with play(app_token="xoxb-1-test") as stage:
        await trio.sleep(60)
        assert stage.adapter.state.state == "parked"
        assert "not_allowed_token_type (channels.slack.app_token)" in stage.adapter.state.reason
    scope = refused("missing_scope", needed="connections:write")
    async with play(fault=lambda call: scope if call.method == "apps.connections.open" else None) as stage:
        await trio.sleep(60)
        assert stage.adapter.state.state == "parked"
        assert "connections:write" in stage.adapter.state.reason
        assert "app_token" in stage.adapter.state.reason


async def test_a_slack_that_limits_every_call_is_obeyed(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        stage.slack.fault = lambda call: rate_limited(60)
        for n in range(10):
            await post(stage, f"n{n}", stage.dm)
        await trio.sleep(600)
        assert len(stage.slack.called("chat.postMessage")) <= 11
        stage.slack.fault = lambda call: None
        assert await stage.until_posted(10) == [f"n{n}" for n in range(10)]


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.01, 0.05, 0.2, 1.0])
async def test_a_power_failure_around_a_delivery_loses_nothing_and_repeats_nothing(play, autojump_clock, moment):
    """Also not where Slack has taken a message and nothing of that was recorded: it is found in the conversation."""
    async with play() as stage:
        await post(stage, "first", stage.dm)
        await stage.until_posted(1)
        for n in range(3):
            await post(stage, f"n{n}", stage.dm)
        await trio.sleep(moment)
        await kill(stage.world, torn_bytes=5)
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        await again.until_posted(4)
        assert await again.settle() == ["first", "n0", "n1", "n2"]


async def test_a_process_that_dies_again_and_again_before_it_could_record_the_delivery_posts_once(play, autojump_clock):
    async with play() as stage:
        await post(stage, "first", stage.dm)
        await stage.until_posted(1)
        await stage.settle()
        power_fails_at(stage, "chat.postMessage")
        await post(stage, "second", stage.dm)
        await stage.until_posted(2)
        await kill(stage.world)
    for _ in range(3):
        stage.slack.calls.clear()
        async with play(workspace=stage.slack, disk=stage.world.disk) as again:
            power_fails_at(again, "conversations.history")
            await again.slack.until(lambda slack: slack.called("conversations.history"))
            await kill(again.world)
    stage.slack.fault = lambda call: None
    async with play(workspace=stage.slack, disk=stage.world.disk) as last:
        assert await last.settle() == ["first", "second"]


def power_fails_at(stage, method):
    """The call of this method still has its effect; nothing that follows reaches the disk."""

    def fail(call):
        if call.method == method:
            stage.world.disk.lose_power()

    stage.slack.fault = fail


async def test_a_draft_that_nobody_could_record_becomes_the_reply_after_a_power_failure(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        await post(stage, "whole text", stage.dm)
        await stage.until_posted(1)
        await stage.settle()
        power_fails_at(stage, "chat.postMessage")
        await show_draft(stage, "a dra")
        await stage.until_posted(2)
        await kill(stage.world)
    stage.slack.fault = lambda call: None
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        await post(again, "a draft no more", again.dm)
        assert await again.settle() == ["whole text", "a draft no more"]


async def test_a_draft_that_nobody_could_record_is_gone_on_with_and_never_becomes_a_later_reply(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        await stage.settle()
        power_fails_at(stage, "chat.postMessage")
        await show_draft(stage, "hel")
        await stage.until_posted(1)
        await kill(stage.world)
    stage.slack.fault = lambda call: None
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        await ready(again)
        await show_draft(again, "hello")
        await trio.sleep(5)
        assert again.slack.texts() == ["hello"]
        await post(again, "hello!", again.dm)
        await again.settle()
        await post(again, "first", again.dm)
        assert await again.settle() == ["hello!", "first"]


async def test_a_draft_that_slack_does_not_delete_now_becomes_the_next_reply(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        await show_draft(stage, "hel")
        await stage.until_posted(1)
        stage.slack.fault = lambda call: broken(503) if call.method == "chat.delete" else None
        await show_draft(stage, "")
        await trio.sleep(5)
        await post(stage, "first", stage.dm)
        assert await stage.settle() == ["first"]


async def show_draft(stage, text):
    await stage.world.root.ref("channels/slack/adapter").tell(ReplyDraft(ChannelInfo("slack", stage.dm), text))


async def test_where_slack_cannot_be_asked_nothing_is_posted_three_times_and_the_agent_is_told(play, autojump_clock):
    """Without the scope to read a conversation nobody can know whether a call whose answer was lost has posted."""
    async with play(ScriptedModel(lambda request: say(""))) as stage:
        await ready(stage)
        stage.slack.fault = unreadable("chat.postMessage", "files.completeUploadExternal")
        await post(stage, "first", stage.dm)
        await post(stage, "second", stage.dm, files=["a.txt"])
        await stage.until_posted(4)  # files are read in a thread, for which the clock of tests does not wait
        await trio.sleep(600)
        assert await stage.settle() == ["first", "first", "second", "second"]
        assert shared(stage) == ["a.txt", "a.txt"]
        assert str(stage.world.session()).count("never confirmed") == 2


async def test_what_slack_says_that_it_has_not_is_posted_however_often_that_was_tried(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        lost = [hung_up() for _ in range(6)]
        stage.slack.fault = lambda call: lost.pop() if lost and call.method == "chat.postMessage" else None
        await post(stage, "hello", stage.dm)
        await trio.sleep(600)
        assert stage.slack.texts() == ["hello"]
        assert not lost


async def test_a_draft_that_may_be_shown_counts_as_an_attempt_where_slack_cannot_be_asked(play, autojump_clock):
    async with play(ScriptedModel(lambda request: say(""))) as stage:
        await ready(stage)
        await stage.settle()
        power_fails_at(stage, "chat.postMessage")
        await show_draft(stage, "hel")
        await stage.until_posted(1)
        await kill(stage.world)
    stage.slack.fault = unreadable("chat.postMessage")
    async with play(ScriptedModel(lambda request: say("")), stage.slack, disk=stage.world.disk) as again:
        await post(again, "hello", again.dm)
        await trio.sleep(600)
        assert await again.settle() == ["hel", "hello"]
        assert "never confirmed" in str(again.world.session())


async def test_power_failures_one_after_another_never_post_three_times(play, autojump_clock):
    disk = workspace = None
    for _ in range(5):
        async with play(ScriptedModel(lambda request: say("")), workspace, disk=disk) as stage:
            gone = trio.Event()

            def cut_off(stage=stage, gone=gone):
                stage.world.disk.lose_power()
                gone.set()

            stage.slack.fault = unreadable("chat.postMessage", act=cut_off)
            if disk is None:
                await post(stage, "hello", stage.dm)
            with trio.move_on_after(100):
                await gone.wait()
            await kill(stage.world)
        disk, workspace = stage.world.disk, stage.slack
    assert stage.slack.texts() == ["hello", "hello"]


async def test_a_file_whose_sharing_was_not_recorded_is_shared_once(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        power_fails_at(stage, "files.completeUploadExternal")
        await post(stage, "see", stage.dm, files=["a.txt"])
        await stage.slack.until(lambda slack: slack.called("files.completeUploadExternal"))
        await kill(stage.world)
    lost = [hung_up(is_late=True)]
    stage.slack.fault = lambda call: lost.pop() if lost and call.method == "files.completeUploadExternal" else None
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        await post(again, "", again.dm, files=["b.txt"])
        with trio.fail_after(7200):  # files are read in a thread, as above
            await again.slack.until(lambda _: len(shared(again)) == 2)
        await trio.sleep(600)
        assert await again.settle() == ["see"]
        assert shared(again) == ["a.txt", "b.txt"]


async def test_a_message_is_found_behind_all_that_was_written_since(play, autojump_clock):
    async with play() as stage:
        general = stage.slack.add_channel("general")
        await ready(stage)
        lost = [hung_up(is_late=True)]

        def crowd(call):
            if call.method == "conversations.history" and "cursor" not in call.params:
                for n in range(300):
                    post = SlackPost(general, f"{stage.slack.now() + 1:.0f}.{n:06}", f"n{n}", None, (), None, 0.0)
                    stage.slack.posts.append(post)
            return lost.pop() if lost and call.method == "chat.postMessage" else None

        stage.slack.fault = crowd
        await post(stage, "hello", general)
        await stage.settle()
        assert stage.slack.texts(general).count("hello") == 1
        assert len(stage.slack.called("conversations.history")) == 2  # pages


def unreadable(*methods, act=lambda: None):
    """A fault: the app may not read what it has written, and the answers to these methods are lost. act: called at each."""

    def fault(call):
        if call.method in ("conversations.history", "conversations.replies", "files.info"):
            return refused("missing_scope")
        if call.method in methods:
            act()
            return hung_up(is_late=True)
        return None

    return fault


def shared(stage):
    """The names of the files that people see."""
    return [file.name for file in stage.slack.files.values() if file.is_complete]


async def test_another_home_with_the_same_tokens_does_not_take_its_messages_for_these(play, autojump_clock):
    async with play() as stage:
        await post(stage, "hello", stage.dm)
        await stage.until_posted(1)
    async with play(workspace=stage.slack) as other:  # another disk, which numbers from 1 again
        await post(other, "hello", other.dm)
        assert await other.settle() == ["hello", "hello"]


async def test_a_message_under_way_at_a_power_failure_is_delivered_again_and_answered_once(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        stage.world.disk.lose_power(operation=2)
        envelope = stage.message("hello")
        delivery = await stage.server.emit(envelope)
        await trio.sleep(2)
        was_acknowledged = delivery.acknowledged.is_set()
        await kill(stage.world)
    async with play(workspace=stage.slack, disk=stage.world.disk) as again:
        if not was_acknowledged:
            await again.emit(envelope)
        await again.until_posted(1)
        assert await again.settle() == ["re: hello"]
