"""Replies on Slack: how a text is shown, where it goes, what Slack refuses, files, drafts, signs."""

import attrs
import pytest
import trio

from pegasus.messages import ChannelInfo, Media, OutboundMessage, ReplyDraft, Typing
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.services.slack_calls import broken, hung_up, rate_limited, refused
from pegasus.testing.services.slack_events import wrap_event
from tests.pegasus.channels.slack.conftest import FRIEND, OWNER, answering, post, ready

# ------------------------------------------------------------------ text


async def test_markdown_becomes_mrkdwn_and_nobody_is_mentioned(play, autojump_clock):
    async with play(answering("**done** <!channel> [x](https://x.org)")) as stage:
        await stage.say("go")
        assert await stage.until_posted(1) == ["*done* &lt;!channel&gt; <https://x.org|x>"]


async def test_slack_opens_no_address_of_a_reply(play, autojump_clock):
    async with play(answering("https://evil.example/?secret")) as stage:
        await stage.say("go")
        await stage.until_posted(1)
        [call] = stage.slack.called("chat.postMessage")
        assert (call.params["unfurl_links"], call.params["unfurl_media"]) == (False, False)


async def test_a_long_reply_is_split_and_its_code_stays_code(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        code = "\n".join(f"line {n} <&>" for n in range(5000))
        await post(stage, f"Before.\n\n```\n{code}\n```\n\nAfter.", stage.dm)
        texts = await stage.settle()
        assert len(texts) > 1
        assert all(len(text) <= 40_000 and text.count("```") % 2 == 0 for text in texts)
        whole = "\n".join(texts)
        assert all(f"line {n} &lt;&amp;&gt;" in whole for n in range(5000))


async def test_a_thread_that_a_model_has_made_up_is_none(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        await post(stage, "hello", stage.dm, "the thread of yesterday")
        await stage.until_posted(1)
        assert stage.slack.posts[0].thread_ts is None


# ------------------------------------------------------------------ addresses


async def test_names_of_channels_and_people_are_resolved_once(play, autojump_clock):
    async with play() as stage:
        for n in range(450):
            stage.slack.add_channel(f"room-{n}")
        general = stage.slack.add_channel("general")
        await ready(stage)
        for text in ("one", "two"):
            await post(stage, text, "#general")
            await post(stage, text, "@ben")
            await post(stage, text, FRIEND)
        await stage.settle()
        dm = stage.slack.open_dm(FRIEND)
        assert stage.slack.texts(general) == ["one", "two"]
        assert sorted(stage.slack.texts(dm)) == ["one", "one", "two", "two"]
        assert len(stage.slack.called("conversations.list")) == 3  # pages
        assert len(stage.slack.called("users.list")) == 1


async def test_a_display_name_that_two_people_have_is_nobody(play, autojump_clock):
    async with play(ScriptedModel(lambda request: say(""))) as stage:
        stage.slack.add_user("sam1", shown="Sam")
        stage.slack.add_user("sam2", shown="Sam")
        await ready(stage)
        await post(stage, "hello", "@Sam")
        assert await stage.settle() == []
        assert "there is no person @Sam" in str(stage.world.session())


async def test_what_slack_refuses_is_tried_once_reported_and_holds_nobody_up(play, autojump_clock):
    async with play(ScriptedModel(lambda request: say(""))) as stage:
        away, old = stage.slack.add_channel("away", has_app=False), stage.slack.add_channel("old", archived=True)
        await ready(stage)
        for channel in ("C404", away, old, "#nowhere", stage.dm):
            await post(stage, "hello", channel)
            await post(stage, "again", channel)
        assert await stage.settle() == ["hello", "again"]
        session = str(stage.world.session())
        for code in ("channel_not_found", "not_in_channel", "is_archived", "there is no channel #nowhere"):
            assert code in session
        assert sum(call.params["channel"] == away for call in stage.slack.called("chat.postMessage")) == 2


# ------------------------------------------------------------------ limits and lost answers


async def test_a_rate_limit_is_obeyed_and_only_its_conversation_waits(play, autojump_clock):
    async with play() as stage:
        general = stage.slack.add_channel("general")
        await ready(stage)
        limits = [rate_limited(30), rate_limited(20)]
        stage.slack.fault = lambda call: (
            limits.pop() if limits and call.method == "chat.postMessage" and call.params["channel"] == general else None
        )
        start = trio.current_time()
        for text in ("one", "two"):
            await post(stage, text, general)
            await post(stage, text, stage.dm)
        await stage.until_posted(4)
        assert stage.slack.texts(general) == stage.slack.texts(stage.dm) == ["one", "two"]
        times = {(found.channel, found.text): found.at - start for found in stage.slack.posts}
        assert times[stage.dm, "two"] < 5
        assert 50 <= times[general, "one"] <= times[general, "two"]


async def test_a_call_whose_answer_is_lost_does_not_post_twice(play, autojump_clock):
    async with play() as stage:
        general = stage.slack.add_channel("general")
        await ready(stage)
        lost = [hung_up(is_late=True), broken(502, is_late=True), broken(500), hung_up()]
        stage.slack.fault = lambda call: lost.pop() if lost and call.method == "chat.postMessage" else None
        await post(stage, "one", general)
        await post(stage, "two", general, "1.000001")
        await stage.settle()
        assert stage.slack.texts() == ["one", "two"]
        assert len(stage.slack.called("chat.postMessage")) > 2


async def test_half_of_all_calls_fail_and_everything_arrives_once_and_in_order(play, autojump_clock):
    async with play() as stage:
        general = stage.slack.add_channel("general")
        count = 0

        def every_other(call):
            nonlocal count
            count += 1
            faults = (broken(503), None, hung_up(is_late=True), None, refused("internal_error"), None)
            return faults[count % len(faults)]

        stage.slack.fault = every_other
        for n in range(30):
            await post(stage, f"g{n}", general)
            await post(stage, f"d{n}", stage.dm, f"{n % 3}.000001")
        await stage.until_posted(60)
        await stage.settle()
        assert stage.slack.texts(general) == [f"g{n}" for n in range(30)]
        assert stage.slack.texts(stage.dm) == [f"d{n}" for n in range(30)]


# ------------------------------------------------------------------ files


async def test_a_file_goes_out_into_the_thread(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        reply = OutboundMessage("see", ChannelInfo("slack", stage.dm, reply_to="1.000001"), 1)
        reply = attrs.evolve(reply, media=(Media("a.txt", "text/plain", "aGVsbG8="),))
        pieces = stage.adapter.pieces(reply)
        for number, piece in enumerate(pieces):
            await stage.adapter.send(reply, piece, number)
        [file] = stage.slack.files.values()
        assert (file.name, file.data, file.channel, file.thread_ts) == ("a.txt", b"hello", stage.dm, "1.000001")
        assert stage.slack.texts() == ["see"]


# ------------------------------------------------------------------ drafts and signs


async def test_a_draft_is_changed_at_most_once_a_second_and_becomes_the_reply(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        ref = stage.world.root.ref("channels/slack/adapter")
        words = [f"word{n} " for n in range(40)]
        for n in range(40):
            await ref.tell(ReplyDraft(ChannelInfo("slack", stage.dm), "".join(words[: n + 1])))
            await trio.sleep(0.25)
        [shown] = stage.slack.posts
        assert 8 <= len(shown.versions) <= 11
        await post(stage, "".join(words), stage.dm)
        assert await stage.settle() == ["".join(words).strip()]


async def test_reasoning_is_quoted_before_the_text_begins_and_is_no_part_of_the_reply(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        ref, here = stage.world.root.ref("channels/slack/adapter"), ChannelInfo("slack", stage.dm)
        await ref.tell(ReplyDraft(here, "", "Who is\n<!channel>?"))
        await stage.until_posted(1)
        assert stage.slack.texts() == ["> 💭 Who is &lt;!channel&gt;?"]
        await ref.tell(ReplyDraft(here, "It is", "Who is it?"))
        await trio.sleep(3)
        assert stage.slack.texts() == ["It is"]
        await post(stage, "It is Anna", stage.dm)
        assert await stage.settle() == ["It is Anna"]


async def test_a_draft_that_is_withdrawn_disappears_and_one_of_another_thread_is_replaced(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        ref = stage.world.root.ref("channels/slack/adapter")
        await ref.tell(ReplyDraft(ChannelInfo("slack", stage.dm), "thinking of"))
        await stage.until_posted(1)
        await ref.tell(ReplyDraft(ChannelInfo("slack", stage.dm), ""))
        await stage.settle()
        assert stage.slack.texts() == []
        await ref.tell(ReplyDraft(ChannelInfo("slack", stage.dm), "draft"))
        await stage.until_posted(1)
        await post(stage, "answer", stage.dm, "1.000001")
        assert await stage.settle() == ["answer"]


async def test_a_draft_that_somebody_has_deleted_is_posted_as_a_reply(play, autojump_clock):
    async with play() as stage:
        await ready(stage)
        await stage.world.root.ref("channels/slack/adapter").tell(ReplyDraft(ChannelInfo("slack", stage.dm), "draft"))
        await stage.until_posted(1)
        stage.slack.posts[0].is_deleted = True
        await post(stage, "answer", stage.dm)
        assert await stage.settle() == ["answer"]


async def test_typing_is_shown_in_assistant_threads_only(play, autojump_clock):
    async with play() as stage:
        thread = {"user_id": OWNER, "channel_id": stage.dm, "thread_ts": "7.000007"}
        stage.slack.assistant_threads.add((stage.dm, "7.000007"))
        await stage.emit(wrap_event({"type": "assistant_thread_started", "assistant_thread": thread}))
        ref = stage.world.root.ref("channels/slack/adapter")
        await ref.tell(Typing(ChannelInfo("slack", stage.dm, OWNER, "7.000007"), True))
        await ref.tell(Typing(ChannelInfo("slack", "C0OTHER", OWNER), True))
        await ref.tell(Typing(ChannelInfo("slack", "C0OTHER", OWNER, "8.000008"), True))
        await trio.sleep(10)
        assert stage.slack.statuses == [(stage.dm, "7.000007", "is thinking…")]
        assert len(stage.slack.called("assistant.threads.setStatus")) == 1


@pytest.mark.parametrize("code", ["thread_not_found", "restricted_action_thread_locked", "cannot_reply_to_message"])
async def test_a_reply_to_a_thread_that_takes_none_goes_to_the_conversation_itself(play, autojump_clock, code):
    async with play() as stage:
        stage.slack.closed_threads[stage.dm, "1.000001"] = code
        await stage.say("hello", thread_ts="1.000001")
        assert await stage.settle() == ["re: hello"]
        assert stage.slack.posts[0].thread_ts is None
        assert len(stage.model.requests) == 1
