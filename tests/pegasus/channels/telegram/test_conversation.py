"""Conversations on Telegram, from the update to the message that people see."""

import itertools
from base64 import b64encode
from types import SimpleNamespace

import attrs
import pytest
import trio

from pegasus.channels import service_adapter
from pegasus.messages import ChannelInfo, Media, ReplyDraft
from pegasus.storage import Commit, Post, Waiting
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call
from pegasus.testing.scripted import say as tell
from pegasus.testing.services.server import HANG_UP, ServiceResponse, every_other, json_response
from pegasus.testing.services.telegram import TelegramServer
from pegasus.testing.world import kill
from pegasus.wire import encode_json
from tests.pegasus.channels.telegram.conftest import FRIEND, GROUP, OWNER, STRANGER, answering


async def say(stage, text, chat=OWNER):
    """The agent writes to a chat by itself."""
    channel = ChannelInfo("telegram", str(chat))
    await stage.world.journal.ask(
        Commit, (), (Post(f"k{trio.current_time()}{text[:9]}", text, str(chat), channel, "telegram"),)
    )


async def test_a_message_is_answered_in_its_chat(play, autojump_clock):
    async with play() as stage:
        stage.telegram.say(OWNER, "hello")
        sent = await stage.telegram.next_message()
        assert (sent.chat_id, sent.text) == (OWNER, "re: hello")
        assert (stage.adapter.state.state, stage.adapter.state.name) == ("up", "@pegasus_bot")


async def test_the_commands_are_listed_for_people_who_type_a_slash(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        assert {"stop", "status", "help", "pair"} <= {each["command"] for each in stage.telegram.commands}


async def test_an_update_is_confirmed_only_when_its_message_is_on_disk(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        stage.world.disk.fail(times=1_000_000)
        stage.telegram.say(OWNER, "hello")
        await trio.sleep(60)
        assert stage.telegram.waiting == 1


async def test_an_update_is_handled_once_however_often_it_comes(play, autojump_clock):
    async with play() as stage:
        message = stage.telegram.say(OWNER, "hello")
        for _ in range(5):
            stage.telegram.update(message=message)
        await stage.world.idle()
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "re: hello")]


async def test_a_thousand_messages_at_once_are_all_kept_in_order(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        for n in range(1000):
            stage.telegram.say(OWNER, f"message {n}")
        await trio.sleep(60)
        assert stage.telegram.waiting == 0
        assert await stage.world.journal.ask(Waiting) == 1000


async def test_what_does_not_fit_into_the_inbox_waits_at_telegram(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        for n in range(2500):
            stage.telegram.say(OWNER, f"message {n}")
        await trio.sleep(60)
        assert await stage.world.journal.ask(Waiting) < 1400
        assert stage.telegram.waiting > 1000


async def test_updates_that_make_no_sense_are_passed_over(play, autojump_clock):
    async with play() as stage:
        for content in (
            {},
            {"message": None},
            {"message": []},
            {"message": {"message_id": "x", "chat": {"id": OWNER}}},
            {"message": {"message_id": 1, "chat": "x", "text": "y"}},
            {"message": {"message_id": 1, "chat": {"id": OWNER}, "from": {"id": OWNER}, "text": 7}},
            {"message": {"message_id": 1, "chat": {"id": OWNER}, "from": {"id": True}, "text": "x"}},
            {"message": {"message_id": 2, "chat": {"id": 2**70}, "from": {"id": OWNER}, "photo": [1, {"file_id": 3}]}},
            {"callback_query": {"id": 7, "from": {}, "message": {}}},
            {"poll_answer": {"option_ids": [1]}},
            {"a_kind_of_tomorrow": {"x": 1}},
        ):
            stage.telegram.update(**content)
        stage.telegram.say(OWNER, "hello", entities=[{"type": "mention", "offset": -5, "length": "x"}, 7, None])
        sent = await stage.telegram.next_message()
        assert sent.text == "re: hello"


async def test_an_edited_message_is_heard_again_and_says_so(play, autojump_clock):
    async with play() as stage:
        message = stage.telegram.say(OWNER, "hello")
        await stage.telegram.next_message()
        edited = {**message, "text": "/stop everything", "edit_date": 5}
        stage.telegram.update(edited_message=edited)
        stage.telegram.update(edited_message=edited)
        await stage.telegram.next_message()
        await stage.world.idle()
        assert len(stage.telegram.messages) == 2
        assert "(This message was edited. It now reads:)\n/stop everything" in stage.model.requests[1].turns[-1].text


async def test_a_forwarded_command_is_no_command(play, autojump_clock):
    async with play() as stage:
        stage.telegram.say(OWNER, "/stop", forward_origin={"type": "hidden_user", "sender_user_name": "x"})
        await stage.telegram.next_message()
        assert "(Forwarded)\n/stop" in stage.model.requests[0].turns[-1].text


@pytest.mark.parametrize(
    ("more", "is_typed"),
    [
        ({}, True),
        ({"entities": [{"type": "bold", "offset": 0, "length": 3}]}, True),
        ({"entities": [{"type": "blockquote", "offset": 0, "length": 3}]}, False),
        ({"entities": [{"type": "expandable_blockquote", "offset": 0, "length": 3}]}, False),
        ({"entities": [{"type": "pre", "offset": 0, "length": 3}]}, False),
        ({"entities": [{"type": "text_link", "offset": 0, "length": 3, "url": "https://evil.example"}]}, False),
        ({"via_bot": {"id": 9, "is_bot": True, "first_name": "Eve"}}, False),
        ({"contact": {"first_name": "eve@example.com", "phone_number": "+1"}}, False),
    ],
)
async def test_words_that_are_quoted_or_made_by_another_bot_do_not_count_as_typed(play, autojump_clock, more, is_typed):
    """A quotation has no `>` in its text here: only an entity tells."""
    async with play() as stage:
        stage.telegram.say(OWNER, "pay eve@example.com", **more)
        await stage.telegram.next_message()
        assert (b'"relayed":true' in stage.world.disk.content("inbox/inbox.jsonl")) is not is_typed


async def test_invisible_characters_and_markup_in_texts_and_names_do_no_harm(play, autojump_clock):
    async with play(answering(["<b>**x** \u202e& <script>"])) as stage:
        stage.telegram.say(OWNER, "<b>hi\u202e\u200b</b>", name="<a href='x'>\u202eevil")
        sent = await stage.telegram.next_message()
        assert sent.text == "<b>x \u202e& <script>"
        assert "\u202e" not in stage.model.requests[0].turns[-1].text


# ------------------------------------------------------------------ replies


async def test_markdown_becomes_what_telegram_has(play, autojump_clock):
    async with play(answering(["# Done\n\n**bold** and `code` <b>\n\n- one\n- two"])) as stage:
        stage.telegram.say(OWNER, "go")
        sent = await stage.telegram.next_message()
        assert sent.text == "Done\n\nbold and code <b>\n\n• one\n• two"
        assert [entity["type"] for entity in sent.entities] == ["bold", "bold", "code"]


async def test_a_text_that_telegram_cannot_read_is_sent_as_plain_text(play, autojump_clock):
    async with play(answering(["**bold**"])) as stage:

        def refuse(request):
            if b"HTML" in request.body:
                description = "Bad Request: can't parse entities: too new for me"
                return json_response({"ok": False, "error_code": 400, "description": description}, 400)
            return None

        stage.telegram.fault = refuse
        stage.telegram.say(OWNER, "go")
        sent = await stage.telegram.next_message()
        assert (sent.text, sent.entities) == ("bold", [])


async def test_a_long_reply_is_split_between_paragraphs_and_code_stays_code(play, autojump_clock):
    long = "\n\n".join(["word " * 300] * 4) + "\n\n```python\n" + "x = '😀' < 1\n" * 900 + "```\n\nend"
    async with play(answering([long])) as stage:
        stage.telegram.say(OWNER, "go")
        await stage.world.idle()
        await trio.sleep(30)
        texts = [message.text for message in stage.telegram.messages]
        assert len(texts) > 3
        assert "".join(texts).count("x = '😀' < 1") == 900
        code = [message for message in stage.telegram.messages if "x =" in message.text]
        assert all({"pre"} <= {entity["type"] for entity in message.entities} for message in code)
        assert texts[-1].endswith("end")


async def test_a_draft_is_edited_and_becomes_the_reply(play, autojump_clock):
    async with play() as stage:
        switchboard, here = stage.world.root.ref("channels/switchboard"), ChannelInfo("telegram", str(OWNER))
        for n in range(50):
            await switchboard.tell(ReplyDraft(here, "word " * (n + 1)))
            await trio.sleep(0.1)
        await say(stage, "the whole")
        await trio.sleep(5)
        [message] = stage.telegram.messages
        assert message.text == "the whole"
        times = [time for _, time in stage.telegram.edit_times]
        assert all(after - before >= 1 for before, after in itertools.pairwise(times[:-1]))
        await say(stage, "the next")
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "the whole"), (OWNER, "the next")]


async def test_reasoning_is_shown_before_the_text_begins_and_is_no_part_of_the_reply(play, autojump_clock):
    async with play() as stage:
        switchboard, here = stage.world.root.ref("channels/switchboard"), ChannelInfo("telegram", str(OWNER))
        await switchboard.tell(ReplyDraft(here, "", "Who is it?"))
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "💭 Who is it?")]
        await switchboard.tell(ReplyDraft(here, "It is", "Who is it?"))
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "It is")]
        await say(stage, "It is Anna")
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "It is Anna")]


async def test_a_draft_that_a_crash_has_left_becomes_the_reply(play, autojump_clock):
    async with play() as stage:
        switchboard, here = stage.world.root.ref("channels/switchboard"), ChannelInfo("telegram", str(OWNER))
        await switchboard.tell(ReplyDraft(here, "half a sen"))
        await trio.sleep(5)
        await kill(stage.world)
        telegram, disk = stage.telegram, stage.world.disk
    async with play(telegram=telegram, disk=disk) as stage:
        await say(stage, "the whole")
        await trio.sleep(5)
        assert telegram.shown == [(OWNER, "the whole")]


async def test_a_draft_of_which_nobody_knows_whether_it_is_shown_counts_as_an_attempt(play, autojump_clock):
    async with play() as stage:
        switchboard, here = stage.world.root.ref("channels/switchboard"), ChannelInfo("telegram", str(OWNER))
        stage.telegram.late_fault = lambda request: HANG_UP if request.path.endswith("/sendMessage") else None
        for text in ("the", "the whole"):
            await switchboard.tell(ReplyDraft(here, text))
            await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "the")], "one that may be there is neither changed nor shown again"
        await say(stage, "the whole")
        await trio.sleep(300)
        stage.telegram.late_fault = lambda request: None
        await trio.sleep(300)
        told = [text for _, text in stage.telegram.shown]
        assert told[:2] == ["the", "the whole"]
        assert all("It began: " in text for text in told[2:]), "the agent was told, and answers that here"
        await switchboard.tell(ReplyDraft(here, "half"))
        await trio.sleep(5)
        await say(stage, "the next")
        await trio.sleep(5)
        assert [text for _, text in stage.telegram.shown][len(told) :] == ["the next"]


async def test_a_draft_that_is_withdrawn_or_deleted_by_its_reader_leaves_nothing(play, autojump_clock):
    async with play() as stage:
        switchboard, here = stage.world.root.ref("channels/switchboard"), ChannelInfo("telegram", str(OWNER))
        await switchboard.tell(ReplyDraft(here, "half"))
        await trio.sleep(5)
        await switchboard.tell(ReplyDraft(here, ""))
        await trio.sleep(5)
        assert stage.telegram.shown == []
        await switchboard.tell(ReplyDraft(here, "another"))
        await trio.sleep(5)
        stage.telegram.messages[-1].is_deleted = True
        await say(stage, "the whole")
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "the whole")]


async def test_typing_is_shown_while_the_agent_thinks(play, autojump_clock):
    thinking = After(12.0, tell("", call("reply", "c1", channelId=str(OWNER), text="well")))
    async with play(ScriptedModel(lambda request: thinking)) as stage:
        stage.telegram.say(OWNER, "hello")
        await stage.telegram.next_message()
        await trio.sleep(60)
        assert [chat for chat, action, _ in stage.telegram.actions if action == "typing"] == [OWNER] * 3


# ------------------------------------------------------------------ what Telegram refuses


async def test_a_chat_that_has_blocked_the_bot_is_left_alone_and_the_agent_is_told(play, autojump_clock, monkeypatch):
    warnings = []
    log = SimpleNamespace(warning=lambda text, **fields: warnings.append(text), info=lambda *_, **__: None)
    monkeypatch.setattr(service_adapter, "_log", log)
    async with play() as stage:
        stage.telegram.blocked.add(FRIEND)
        await say(stage, "to a friend", FRIEND)
        await say(stage, "to the owner")
        await trio.sleep(60)
        assert stage.telegram.shown[0] == (OWNER, "to the owner")
        tries = [
            params for method, params in stage.telegram.calls if method == "sendMessage" and params["chat_id"] == FRIEND
        ]
        assert 1 <= sum(params["text"] == "to a friend" for params in tries) <= 2
        await trio.sleep(1800)
        assert len(stage.model.requests) < 12, "a model that answers each report comes to an end"
        assert any("bot was blocked by the user" in str(line) for line in stage.world.session())
        assert set(warnings) == {"a reply is refused"}


async def test_a_rate_limit_is_obeyed_and_other_chats_do_not_wait(play, autojump_clock):
    async with play() as stage:
        stage.telegram.limits[FRIEND] = trio.current_time() + 40
        await say(stage, "limited", FRIEND)
        await say(stage, "free")
        await trio.sleep(5)
        assert stage.telegram.shown == [(OWNER, "free")]
        await trio.sleep(60)
        assert stage.telegram.shown == [(OWNER, "free"), (FRIEND, "limited")]
        assert stage.telegram.violations == []


async def test_a_revoked_token_parks_the_channel_and_is_shown_nowhere(play, autojump_clock, caplog):
    async with play() as stage:
        await stage.world.idle()
        token, stage.telegram.token = stage.telegram.token, "another"
        stage.telegram.say(OWNER, "hello")
        await trio.sleep(3600)
        state = stage.adapter.state
        assert state.state == "parked"
        assert "refuses the bot token" in state.reason
        calls = len(stage.telegram.requests)
        await say(stage, "to nobody")
        await trio.sleep(3600)
        assert len(stage.telegram.requests) == calls, "nothing more is tried"
        assert token not in f"{state}{caplog.text}"


async def test_an_outage_of_an_hour_loses_nothing(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        stage.telegram.is_down = True
        for n in range(30):
            await say(stage, f"reply {n}")
        await trio.sleep(3600)
        assert stage.adapter.state.state == "down"
        stage.telegram.is_down = False
        stage.telegram.say(OWNER, "back?")
        await trio.sleep(120)
        assert stage.telegram.shown == [*((OWNER, f"reply {n}") for n in range(30)), (OWNER, "re: back?")]


async def test_if_half_of_all_calls_fail_everything_arrives_once_and_in_order(play, autojump_clock):
    async with play() as stage:
        stage.telegram.fault = every_other(ServiceResponse(502, b"Bad Gateway"))
        for n in range(20):
            await say(stage, f"reply {n}")
        stage.telegram.say(FRIEND, "hello")
        await trio.sleep(600)
        assert [text for chat, text in stage.telegram.shown if chat == OWNER] == [f"reply {n}" for n in range(20)]
        assert (FRIEND, "re: hello") in stage.telegram.shown


async def test_an_answer_that_is_lost_each_time_is_sent_twice_and_the_agent_is_told(play, autojump_clock):
    """Of a long reply the other messages arrive once, in order."""
    async with play() as stage:
        await stage.world.idle()
        stage.telegram.late_fault = lambda request: HANG_UP if b"second" in request.body else None
        await say(stage, "\n\n".join(f"{word} " + word[0] * 4000 for word in ("first", "second", "third")))
        await say(stage, "and the next")
        await trio.sleep(600)
        words = [text.split()[0] for _, text in stage.telegram.shown]
        assert [word for word in words if word != "re:"] == ["first", "second", "second", "third", "and"]
        assert any("never confirmed" in str(line) for line in stage.world.session())


async def test_an_outage_in_which_no_call_is_answered_does_not_use_up_the_attempts(play, autojump_clock):
    """Nobody knows what became of the first call. The second is not made before Telegram answers again."""
    async with play() as stage:
        await stage.world.idle()
        stage.telegram.fault = lambda request: HANG_UP
        await say(stage, "reply")
        await trio.sleep(3600)
        assert sum(request.path.endswith("/sendMessage") for request in stage.telegram.requests) == 1
        stage.telegram.fault = lambda request: None
        await trio.sleep(120)
        assert stage.telegram.shown == [(OWNER, "reply")]


async def test_power_failures_one_after_another_never_show_an_answer_three_times(play, autojump_clock):
    """The power goes when Telegram has taken the answer, at each start again."""
    telegram, disk = TelegramServer(), None
    for _ in range(5):
        async with play(telegram=telegram, disk=disk) as stage:
            if disk is None:
                await say(stage, "reply")
            gone = trio.Event()

            def cut_off(request, stage=stage, gone=gone):
                if request.path.endswith("/sendMessage"):
                    stage.world.disk.lose_power()
                    gone.set()

            telegram.late_fault = cut_off
            with trio.move_on_after(60):
                await gone.wait()
            await kill(stage.world)
            disk = stage.world.disk
    assert telegram.shown.count((OWNER, "reply")) == 2


async def test_a_redirect_is_not_followed(play, autojump_clock):
    async with play() as stage:
        stage.telegram.fault = lambda request: ServiceResponse(307, b"", {"location": "http://evil.invalid/steal"})
        await say(stage, "reply")
        await trio.sleep(60)
        assert stage.adapter.state.state == "down"
        assert "redirects" in stage.adapter.state.reason
        assert all(request.target.startswith("/bot") for request in stage.telegram.requests)


async def test_answers_that_are_no_answers_count_as_an_outage(play, autojump_clock):
    async with play() as stage:
        bodies = iter([b"", b"<html>", b"[]", b'{"ok":"yes"}', b'{"ok":false}', b"\xff\xfe"] * 3)
        stage.telegram.fault = lambda request: (
            None if (body := next(bodies, None)) is None else ServiceResponse(200, body)
        )
        await say(stage, "reply")
        await trio.sleep(300)
        assert (OWNER, "reply") in stage.telegram.shown or stage.world.session()


# ------------------------------------------------------------------ files


async def test_files_come_to_the_agent_with_their_message(play, autojump_clock):
    async with play() as stage:
        document = stage.telegram.add_file(b"the notes", file_name="notes.txt", mime_type="text/plain")
        stage.telegram.say(OWNER, None, caption="read this", document=document)
        await stage.telegram.next_message()
        text = stage.model.requests[0].turns[-1].text
        assert "read this" in text
        assert "notes.txt" in text
        assert "the notes" in text


async def test_a_file_that_is_too_large_or_gone_is_named(play, autojump_clock):
    async with play() as stage:
        video = stage.telegram.add_file(b"x", mime_type="video/mp4") | {"file_size": 900 << 20}
        stage.telegram.say(OWNER, None, caption="watch", video=video)
        stage.telegram.say(OWNER, None, voice={"file_id": "nowhere", "mime_type": "audio/ogg", "file_size": 5})
        await stage.telegram.next_message()
        await stage.telegram.next_message()
        first, second = (request.turns[-1].text for request in stage.model.requests)
        assert "I could not get it: it has 943,718,400 bytes" in first
        assert "voice.ogg" in second
        assert "invalid file_id" in second


async def test_a_picture_reaches_a_model_that_sees(play, autojump_clock):
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63606060f80f0001040100"
        "5fe5c34b0000000049454e44ae426082"
    )
    async with play() as stage:
        sizes = [stage.telegram.add_file(b"small", width=1, height=1), stage.telegram.add_file(png, width=9, height=9)]
        stage.telegram.say(OWNER, None, photo=sizes)
        await stage.telegram.next_message()
        assert "photo.jpg" in stage.model.requests[0].turns[-1].text


@pytest.mark.parametrize(
    ("field", "more", "is_voice"),
    [
        ("voice", {}, True),
        ("voice", {"forward_origin": {"type": "user"}, "forward_date": 1}, False),
        ("audio", {}, False),
    ],
)
async def test_a_voice_message_is_its_writers_own_unless_it_was_forwarded(play, autojump_clock, field, more, is_voice):
    async with play() as stage:
        file = stage.telegram.add_file(b"OggS", mime_type="audio/ogg")
        stage.telegram.say(OWNER, None, **{field: file}, **more)
        await stage.telegram.next_message()
        [line] = [line for line in stage.world.session() if line["role"] == "user" and "item" in line["metadata"]]
        assert "you cannot hear it" in line["content"]
        inbox = stage.world.disk.content("inbox/inbox.jsonl")
        assert (b'"voice":true' in inbox) is is_voice


async def test_opus_is_sent_as_a_voice_message_and_other_recordings_as_files(play, autojump_clock):
    async with play() as stage:
        await say(stage, "placeholder")
        await trio.sleep(5)
        opus = b64encode(b"OggS" + bytes(24) + b"OpusHead").decode()
        media = (
            Media("a.ogg", "audio/ogg", opus),
            Media("b.ogg", "audio/ogg", "T2dnUw=="),
            Media("c.mp3", "audio/mpeg", "aGk="),
        )
        await stage.adapter.deliver(attrs.evolve(_reply("listen"), media=media))
        assert [message.file[0] for message in stage.telegram.messages[-3:]] == ["voice", "document", "document"]


async def test_files_of_a_reply_follow_its_text(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        await say(stage, "placeholder")
        await trio.sleep(5)
        media = (Media("cat.png", "image/png", "aGk="), Media("notes.txt", "text/plain", "aGk="))
        reply = attrs.evolve(_reply("look"), media=media)
        await stage.adapter.deliver(reply)
        kinds = [message.file and message.file[0] for message in stage.telegram.messages[1:]]
        assert kinds == [None, "photo", "document"]
        assert stage.telegram.messages[-1].file == ("document", "notes.txt", b"hi")


def _reply(text):
    from pegasus.messages import OutboundMessage

    return OutboundMessage(text, ChannelInfo("telegram", str(OWNER)), 99)


# ------------------------------------------------------------------ strangers


async def test_a_stranger_gets_one_code_and_nothing_of_theirs_is_kept(play, autojump_clock):
    telegram = TelegramServer()
    async with play(telegram=telegram) as stage:
        for n in range(50):
            telegram.say(STRANGER, f"secret words {n}", name="Mallory")
        photo = [telegram.add_file(b"x", width=1, height=1)]
        telegram.say(STRANGER, None, photo=photo)
        await trio.sleep(300)
        assert len([text for chat, text in telegram.shown if chat == STRANGER]) == 1
        assert stage.model.requests == []
        disk = stage.world.disk
        assert not any(b"secret words" in disk.content(path) for path in disk.paths())
        assert not any(method == "getFile" for method, _ in telegram.calls), "files of strangers are not fetched"


async def test_while_the_file_of_people_cannot_be_read_nobody_is_taken_for_a_stranger(play, autojump_clock):
    disk = MemoryDisk()
    disk.put(
        "access.json", encode_json({"people": [{"type": "telegram", "userId": str(STRANGER)}], "codes": []}).encode()
    )
    disk.files.unreadable = {"access.json"}
    telegram = TelegramServer()
    document = telegram.add_file(b"the notes", file_name="notes.txt", mime_type="text/plain")
    telegram.say(STRANGER, None, caption="read this", document=document)
    async with play(telegram=telegram, disk=disk) as stage:
        await trio.sleep(300)
        assert telegram.shown == []
        disk.files.unreadable = set()
        with trio.fail_after(
            3_600
        ):  # attempts are a minute apart, and the clock jumps while a thread counts what the guest has
            while not telegram.shown:  # noqa: ASYNC110
                await trio.sleep(10)
        [(chat, _)] = telegram.shown
        assert chat == STRANGER
        [request] = stage.model.requests
        assert "read this" in request.turns[-1].text
        assert "the notes" in request.turns[-1].text


async def test_a_file_of_people_that_stays_unreadable_does_not_keep_the_others_from_being_heard(play, autojump_clock):
    disk = MemoryDisk()
    disk.put(
        "access.json", encode_json({"people": [{"type": "telegram", "userId": str(STRANGER)}], "codes": []}).encode()
    )
    disk.files.unreadable = {"access.json"}
    telegram = TelegramServer()
    async with play(telegram=telegram, disk=disk) as stage:
        telegram.say(STRANGER, "one")
        telegram.say(STRANGER, "two")
        telegram.say(GROUP, "three", user=STRANGER)
        telegram.say(OWNER, "hello")
        await trio.sleep(900)
        owners = [text for chat, text in telegram.shown if chat == OWNER]
        [told] = [text for chat, text in telegram.shown if chat != OWNER]
        assert owners == ["re: hello"]
        assert "my disk does not let me" in told
        for n in range(1000):
            telegram.say(10_000 + n, "let me in")
        await trio.sleep(300)
        assert len({chat for chat, _ in telegram.shown}) < 30
        disk.files.unreadable = set()
        telegram.say(STRANGER, "again")
        await trio.sleep(60)
        assert telegram.shown[-1] == (STRANGER, "re: again")
        assert len(stage.model.requests) == 2


async def test_a_crowd_of_strangers_costs_a_bounded_space(play, autojump_clock):
    async with play() as stage:
        for n in range(1000):
            stage.telegram.say(10_000 + n, "let me in")
        await trio.sleep(300)
        asked = {chat for chat, _ in stage.telegram.shown if chat >= 10_000}
        assert len(asked) == 3
        disk = stage.world.disk
        assert sum(len(disk.content(path)) for path in disk.paths()) < 20_000


async def test_the_owner_lets_somebody_in_with_one_click(play, autojump_clock):
    async with play() as stage:
        stage.telegram.say(STRANGER, "hello?")
        await trio.sleep(5)
        question = next(message for message in stage.telegram.messages if message.chat_id == OWNER)
        assert f"telegram:{STRANGER} wants to write to me" in question.text
        by_stranger = stage.telegram.click(question, "Let in", user=STRANGER)
        await trio.sleep(5)
        assert by_stranger not in stage.telegram.clicks, "nobody else can click in the owner's chat"
        by_owner = stage.telegram.click(question, "Let in", user=OWNER)
        await trio.sleep(5)
        assert stage.telegram.clicks[by_owner]["text"] == f"telegram:{STRANGER} may write to me from now on."
        assert question.text.endswith(f"telegram:{STRANGER} may write to me from now on.")
        assert question.reply_markup is None
        stage.telegram.say(STRANGER, "hello again")
        await trio.sleep(5)
        assert stage.telegram.shown[-1] == (STRANGER, "re: hello again")


async def test_a_link_with_the_code_lets_somebody_in_when_the_owner_follows_it(play, autojump_clock):
    async with play() as stage:
        stage.telegram.say(STRANGER, "/start")
        await trio.sleep(5)
        [answer] = [text for chat, text in stage.telegram.shown if chat == STRANGER]
        code = answer.split("code: ")[1][:8]
        stage.telegram.say(OWNER, f"/start {code}")
        await stage.world.idle()
        stage.telegram.say(STRANGER, "hello")
        await trio.sleep(5)
        assert stage.telegram.shown[-1] == (STRANGER, "re: hello")


# ------------------------------------------------------------------ groups


async def test_in_a_group_only_what_is_meant_for_the_agent_is_heard(play, autojump_clock):
    async with play() as stage:
        telegram = stage.telegram
        telegram.say(GROUP, "just talk", user=OWNER)
        telegram.say(GROUP, "/status@other_bot", user=OWNER)
        telegram.mention(GROUP, "named", user=OWNER)
        telegram.say(GROUP, "answered", user=OWNER, reply_to_message={"message_id": 1, "from": telegram.me})
        telegram.say(GROUP, "/help@Pegasus_Bot", user=OWNER)
        telegram.mention(GROUP, "from a stranger", user=STRANGER)
        await stage.world.idle()
        await trio.sleep(30)
        help_text, *texts = sorted(text for _, text in telegram.shown)
        assert "/stop" in help_text
        assert texts == ["re: @pegasus_bot named", "re: answered"]
        assert all(chat == GROUP for chat, _ in telegram.shown)


async def test_a_group_may_be_heard_whole_or_not_at_all(play, autojump_clock):
    async with play(groups="all") as stage:
        stage.telegram.say(GROUP, "just talk", user=FRIEND)
        await trio.sleep(10)
        assert stage.telegram.shown == [(GROUP, "re: just talk")]
    async with play(groups="off") as stage:
        stage.telegram.mention(GROUP, "named", user=OWNER)
        await trio.sleep(10)
        assert stage.telegram.shown == []


async def test_a_topic_is_answered_in_the_topic_and_heard_from_then_on(play, autojump_clock):
    async with play() as stage:
        topic = {"message_thread_id": 7, "is_topic_message": True, "user": OWNER}
        stage.telegram.say(GROUP, "before", **topic)
        stage.telegram.mention(GROUP, "named", **topic)
        await trio.sleep(10)
        stage.telegram.say(GROUP, "after", **topic)
        stage.telegram.say(GROUP, "elsewhere", **(topic | {"message_thread_id": 8}))
        await trio.sleep(10)
        assert [(sent.thread_id, sent.text) for sent in stage.telegram.messages] == [
            (7, "re: @pegasus_bot named"),
            (7, "re: after"),
        ]
        stage.telegram.closed_threads.add(7)
        stage.telegram.say(GROUP, "the topic is deleted meanwhile", **topic)
        await trio.sleep(10)
        assert stage.telegram.messages[-1].thread_id is None


async def test_a_group_that_becomes_a_supergroup_is_followed(play, autojump_clock):
    async with play() as stage:
        stage.telegram.mention(-5, "first", user=OWNER)
        await trio.sleep(10)
        stage.telegram.moved[-5] = -10055
        await say(stage, "a late reply", -5)
        await trio.sleep(10)
        assert stage.telegram.shown[-1] == (-10055, "a late reply")
        stage.telegram.say(-6, None, user=OWNER, migrate_to_chat_id=-10066)
        await trio.sleep(10)
        await say(stage, "another", -6)
        await trio.sleep(10)
        assert stage.telegram.shown[-1] == (-10066, "another")


async def test_bots_that_answer_each_other_come_to_an_end(play, autojump_clock):
    async with play(groups="all", access="open") as stage:
        bot = {"id": 777, "is_bot": True, "first_name": "Echo"}
        for n in range(40):
            stage.telegram.say(GROUP, f"echo {n}", **{"from": bot})
        await trio.sleep(60)
        assert len(stage.telegram.shown) == 5
        stage.telegram.say(GROUP, "a person", user=FRIEND)
        stage.telegram.say(GROUP, "echo", **{"from": bot})
        await trio.sleep(60)
        assert len(stage.telegram.shown) == 7


async def test_a_guest_who_writes_too_much_is_told_when_to_go_on(play, autojump_clock):
    async with play() as stage:
        for n in range(60):
            stage.telegram.say(FRIEND, f"message {n}")
        await trio.sleep(30)
        told = [text for chat, text in stage.telegram.shown if "messages a minute" in text]
        assert len(told) == 1
        assert "try again in" in told[0]


async def test_a_message_that_the_disk_refuses_for_long_does_not_count_against_its_sender(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        stage.world.disk.fail(times=90)
        stage.telegram.say(FRIEND, "hello")
        await trio.sleep(1800)  # ninety attempts, 15 s apart in the end
        assert (FRIEND, "re: hello") in stage.telegram.shown


async def test_a_file_that_comes_slowly_holds_up_only_its_own_conversation(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        original = stage.telegram.answer

        async def slow(request):
            if request.path.endswith("/getFile"):
                await trio.sleep(20)
            return await original(request)

        stage.telegram.answer = slow
        document = stage.telegram.add_file(b"the notes", file_name="notes.txt", mime_type="text/plain")
        stage.telegram.say(OWNER, None, caption="read", document=document)
        stage.telegram.say(OWNER, "behind the file")
        stage.telegram.say(FRIEND, "quick")
        await trio.sleep(10)
        assert stage.telegram.shown == [(FRIEND, "re: quick")]
        await stage.telegram.until(lambda: stage.telegram.shown[-1] == (OWNER, "re: behind the file"))


async def test_an_answer_without_a_message_id_is_a_yes_all_the_same(play, autojump_clock):
    async with play() as stage:

        def odd(request):
            return json_response({"ok": True, "result": True}) if request.path.endswith("/sendMessage") else None

        stage.telegram.late_fault = odd
        await say(stage, "reply")
        await trio.sleep(60)
        assert stage.telegram.shown == [(OWNER, "reply")]


async def test_halves_of_surrogate_pairs_do_no_harm(play, autojump_clock):
    async with play() as stage:
        broken = "x\ud83d"
        document = stage.telegram.add_file(b"content", file_name=broken, mime_type="text/plain")
        stage.telegram.say(
            OWNER, broken, name=broken, entities=[{"type": "text_link", "offset": 0, "length": 2, "url": broken}]
        )
        stage.telegram.say(OWNER, None, caption="file", document=document)
        await stage.telegram.until(lambda: len(stage.telegram.messages) == 2)
        assert "x\ufffd" in stage.model.requests[0].turns[-1].text


@pytest.mark.parametrize("reason", ["TOPIC_CLOSED", "TOPIC_DELETED", "message thread not found", "TOPIC_ID_INVALID"])
async def test_a_reply_to_a_topic_that_takes_none_goes_to_the_group_and_the_model_is_not_asked_again(
    play, autojump_clock, reason
):
    async with play() as stage:
        stage.telegram.closed_threads.add(7)
        stage.telegram.closed_reason = reason
        stage.telegram.mention(GROUP, "hello", user=OWNER, message_thread_id=7, is_topic_message=True)
        sent = await stage.telegram.next_message()
        await stage.world.idle()
        assert (sent.thread_id, sent.text) == (None, "re: @pegasus_bot hello")
        assert len(stage.model.requests) == 1
