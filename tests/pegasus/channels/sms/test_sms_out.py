"""Replies by SMS."""

from __future__ import annotations

import attrs
import pytest
import trio

from pegasus.channels.sms.pieces import is_gsm, to_cheaper_text
from pegasus.file_types import extension_of
from pegasus.messages import ChannelInfo, OutboundMessage, StoredFile
from pegasus.storage import ReplaceFile, keep_file
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.services.server import HANG_UP, ServiceResponse, every_other
from pegasus.testing.services.twilio import refuse
from pegasus.testing.world import kill
from tests.pegasus.channels.sms.conftest import FRIEND, OWNER, answering


async def test_a_message_is_answered(play, autojump_clock):
    async with play() as stage:
        assert await stage.text(OWNER, "hello") == 200
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: hello"]
        assert (stage.adapter.state.state, stage.adapter.state.name) == ("up", stage.twilio.number)


async def test_markdown_becomes_plain_text_and_links_show_their_address(play, autojump_clock):
    text = "**Done**: see [the log](https://a.b/c).\n\n```sh\nls -l\n  pwd\n```"
    async with play(answering([text])) as stage:
        await stage.text(OWNER, "go")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["Done: see the log (https://a.b/c).\n\nls -l\n  pwd"]


async def test_a_long_reply_goes_out_in_order_as_messages_that_twilio_takes(play, autojump_clock):
    paragraphs = [f"{n} " + "word 😀 " * 60 for n in range(12)]
    async with play(answering(["\n\n".join(paragraphs)])) as stage:
        await stage.text(OWNER, "go")
        await stage.idle()
        texts = stage.twilio.texts_to(OWNER)
        assert len(texts) == 4
        assert [part.strip() for text in texts for part in text.split("\n\n")] == [p.strip() for p in paragraphs]


async def test_a_reply_without_text_sends_nothing(play, autojump_clock):
    async with play() as stage:
        assert stage.adapter.pieces(reply_of(" \n")) == []


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(("code", "text"), [(21610, "unsubscribed recipient"), (21614, "not a mobile number")])
async def test_what_one_recipient_refuses_is_reported_and_holds_nobody_up(play, autojump_clock, code, text):
    async with play() as stage:
        stage.twilio.refuses[FRIEND] = code, text
        await stage.text(FRIEND, "first")
        await stage.text(OWNER, "hello")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: hello"]
        assert sum("POST" in request.method for request in stage.twilio.requests) <= 3
        assert any(str(code) in line for line in stage.user_lines(FRIEND))
        assert not any(str(code) in line for line in stage.user_lines())
        assert stage.adapter.state.state == "up"


async def test_somebody_who_has_written_stop_gets_nothing_until_start(play, autojump_clock):
    async with play() as stage:
        await stage.text(FRIEND, "STOP", extra=[("OptOutType", "STOP")])
        await stage.idle()
        assert stage.model.requests == []
        stage.twilio.receive_sms(FRIEND, "start")
        await stage.text(FRIEND, "hello")
        await stage.idle()
        assert stage.twilio.texts_to(FRIEND) == ["re: hello"]


async def test_a_wrong_token_parks_the_channel_without_naming_it(play, autojump_clock):
    async with play(auth_token="a-wrong-secret") as stage:
        await stage.idle()
        assert stage.adapter.state.state == "parked"
        assert "auth_token" in stage.adapter.state.reason
        assert "a-wrong-secret" not in stage.adapter.state.reason


@pytest.mark.parametrize("answer", [refuse(20003, "Authenticate", 401), refuse(21659, "not a Twilio number")])
async def test_a_token_that_is_revoked_later_parks_it_and_loses_nothing(play, autojump_clock, answer):
    async with play() as stage:
        stage.twilio.fault = lambda request: answer if request.method == "POST" else None
        await stage.text(OWNER, "hello")
        await stage.idle()
        assert stage.adapter.state.state == "parked"
        await kill(stage.world)
    stage.twilio.fault = lambda request: None
    async with play(twilio=stage.twilio, disk=stage.world.disk.survivor()) as again:
        await again.idle()
        assert again.twilio.texts_to(OWNER) == ["re: hello"]


async def test_a_rate_limit_is_obeyed(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        begin = trio.current_time()
        busy = attrs.evolve(refuse(20429, "Too Many Requests", 429), headers={"retry-after": "30"})
        stage.twilio.fault = lambda request: busy if trio.current_time() < begin + 30 else None
        await stage.text(OWNER, "one")
        await stage.text(OWNER, "two")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: one", "re: two"]
        posts = [request for request in stage.twilio.requests if request.method == "POST"]
        assert len(posts) == 3  # one was refused
        assert trio.current_time() >= begin + 30


# ------------------------------------------------------------------ outages


async def test_an_hour_without_twilio_loses_nothing(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        stage.twilio.is_down = True
        for number in range(5):
            await stage.text(OWNER, f"m{number}")
        await trio.sleep(3600)
        assert stage.adapter.state.state == "down"
        stage.twilio.is_down = False
        await trio.sleep(120)
        assert stage.twilio.texts_to(OWNER) == [f"re: m{number}" for number in range(5)]
        assert stage.adapter.state.state == "up"


@pytest.mark.parametrize("answer", [ServiceResponse(503), HANG_UP])
async def test_half_of_all_calls_failing_changes_neither_order_nor_number(play, autojump_clock, answer):
    async with play() as stage:
        stage.twilio.fault = every_other(answer)
        for number in range(6):
            await stage.text(OWNER, f"m{number}")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == [f"re: m{number}" for number in range(6)]


async def test_a_message_whose_answer_was_lost_is_not_sent_again(play, autojump_clock):
    async with play() as stage:
        lost = every_other(HANG_UP)
        stage.twilio.late_fault = lambda request: lost(request) if request.method == "POST" else None
        for _ in range(3):
            await stage.text(OWNER, "same")
            await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: same"] * 3


async def test_a_crash_between_sending_and_recording_sends_nothing_twice(play, autojump_clock):
    async with play() as stage:
        await stage.text(OWNER, "same")
        await stage.idle()
        with trio.move_on_after(5):
            stage.twilio.late_fault = lambda request: HANG_UP
            await stage.text(OWNER, "same")
            await trio.sleep_forever()
        assert len(stage.twilio.messages) == 2
        await kill(stage.world)
    stage.twilio.late_fault = lambda request: None
    async with play(twilio=stage.twilio, disk=stage.world.disk.survivor()) as again:
        await again.idle()
        assert again.twilio.texts_to(OWNER) == ["re: same"] * 2
        await again.text(OWNER, "same")
        await again.idle()
        assert again.twilio.texts_to(OWNER) == ["re: same"] * 3


async def test_a_service_that_does_not_list_messages_gets_each_at_least_once(play, autojump_clock):
    async with play() as stage:
        lost = every_other(HANG_UP)
        stage.twilio.fault = lambda request: refuse(20404, "?", 404) if request.method == "GET" else None
        stage.twilio.late_fault = lambda request: lost(request) if request.method == "POST" else None
        await stage.text(OWNER, "hello")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: hello"] * 2


async def test_a_service_that_does_not_list_messages_never_gets_one_three_times_and_the_agent_is_told(
    play, autojump_clock
):
    async with play() as stage:
        stage.twilio.fault = lambda request: refuse(20404, "?", 404) if request.method == "GET" else None
        stage.twilio.late_fault = lambda request: HANG_UP if request.method == "POST" else None
        await stage.text(OWNER, "hello")
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: hello"] * 2
        assert any("never confirmed" in line for line in stage.user_lines())


async def test_a_message_that_may_be_behind_what_twilio_lists_is_never_sent_three_times(play, autojump_clock):
    async with play() as stage:
        await stage.text(OWNER, "first")
        await stage.idle()
        others = attrs.evolve(stage.twilio.messages[0], body="of another program")

        def flood(request):
            if request.method == "POST":
                stage.twilio.messages += [attrs.evolve(others, sid=f"SM{n}") for n in range(60)]
                return HANG_UP
            return None

        stage.twilio.late_fault = flood
        await stage.text(OWNER, "second")
        await stage.idle()
        await trio.sleep(600)
        assert stage.twilio.texts_to(OWNER).count("re: second") == 2


async def test_power_failures_one_after_another_never_send_a_message_three_times(play, autojump_clock):
    """Twilio does not list what it has sent here, so nobody can know whether it has."""
    disk = twilio = None
    for _ in range(5):
        async with play(twilio=twilio, disk=disk) as stage:
            gone = trio.Event()

            def cut_off(request, stage=stage, gone=gone):
                if request.method == "POST":
                    stage.world.disk.lose_power()
                    gone.set()

            stage.twilio.fault = lambda request: refuse(20404, "?", 404) if request.method == "GET" else None
            stage.twilio.late_fault = cut_off
            if disk is None:
                await stage.text(OWNER, "hello")
            with trio.move_on_after(100):
                await gone.wait()
            await kill(stage.world)
        disk, twilio = stage.world.disk, stage.twilio
    assert twilio.texts_to(OWNER) == ["re: hello"] * 2


async def test_twilio_is_asked_for_nothing_where_every_call_was_answered(play, autojump_clock):
    async with play() as stage:
        for number in range(3):
            await stage.text(OWNER, f"m{number}")
            await stage.text(FRIEND, f"m{number}")
        await stage.idle()
        assert not any("Messages.json?" in request.target for request in stage.twilio.requests)


async def test_a_redirect_is_not_followed_with_the_token(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        asked = len(stage.twilio.requests)
        elsewhere = ServiceResponse(307, b"", {"location": "http://fake.invalid/elsewhere"})
        stage.twilio.fault = lambda request: elsewhere if request.method == "POST" else None
        await stage.text(OWNER, "hello")
        await trio.sleep(30)
        assert not any("elsewhere" in request.target for request in stage.twilio.requests[asked:])


# ------------------------------------------------------------------ files


async def file_of(stage, name="chart.png", mime="image/png", content=b"\x89PNG\r\n\x1a\npicture"):
    path = await keep_file(stage.world.journal, content, extension_of(mime))
    return StoredFile(name, mime, path, len(content))


def reply_of(text="", *files):
    return OutboundMessage(text, ChannelInfo("sms", OWNER), 1, files=files)


async def send(stage, reply):
    await stage.idle()
    (piece,) = stage.adapter.pieces(reply)
    await stage.adapter.send(reply, piece, 0)
    return stage.twilio.messages[-1]


async def open_link(stage, path):
    request = attrs.evolve(stage.twilio.webhook([]), method="GET", path=path.removeprefix("https://agent.example.com"))
    return await stage.adapter.receive(request)


async def test_a_picture_goes_out_as_mms_and_as_a_link_that_works(play, autojump_clock):
    async with play() as stage:
        sent = await send(stage, reply_of("See:", await file_of(stage, "my chart.png")))
        (url,) = sent.media
        assert sent.body == f"See:\nmy chart.png: {url}"
        assert url.startswith("https://agent.example.com/channels/sms/media/")
        assert url.endswith("/my%20chart.png")
        answer = await open_link(stage, url)
        assert (answer.status, answer.body) == (200, b"\x89PNG\r\n\x1a\npicture")
        assert answer.content_type == "image/png"


async def test_files_are_kept_once_for_all_links_and_a_link_ends_with_its_file(play, autojump_clock):
    async with play() as stage:
        file = await file_of(stage)
        links = {(await send(stage, reply_of(f"{n}", file))).media for n in range(3)}
        assert len(links) == 1
        assert not [path for path in stage.world.disk.files.durable(0, False) if path.startswith("channels/sms-")]
        await stage.world.journal.ask(ReplaceFile, file.file, b"")  # as after `media.keep_days`
        assert (await open_link(stage, links.pop()[0])).status == 404


async def test_a_link_that_was_guessed_finds_nothing(play, autojump_clock):
    async with play() as stage:
        (link,) = (await send(stage, reply_of("See:", await file_of(stage)))).media
        place, _, name = link.rpartition("/")
        digest, tag = place[:-26], place[-26:-4]
        for path in (
            *(
                f"/channels/sms/media/{part}"
                for part in ("0" * 40 + "/x", "../../token", "..%2f..%2ftoken", "", "x" * 65)
            ),
            f"{digest}{tag[::-1]}.png/{name}",
            f"{digest}{tag}.txt/{name}",
            f"{place}/another.html",
            place,
        ):
            assert (await open_link(stage, path)).status == 404, path


async def test_a_page_that_goes_out_cannot_run_in_a_browser(play, autojump_clock):
    async with play() as stage:
        sent = await send(stage, reply_of("", await file_of(stage, "x.html", "text/html", b"<script>")))
        answer = await open_link(stage, sent.body.partition(": ")[2])
        assert answer.content_type == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert sent.media == ()


async def test_files_are_named_where_nobody_can_reach_us(play, autojump_clock):
    async with play(public_url="") as stage:
        files = [await file_of(stage, "../a\nb.png"), await file_of(stage, "c.pdf", "application/pdf")]
        (piece,) = stage.adapter.pieces(reply_of("See:", *files))
        assert piece.text == "See:\n[file: a_b.png]\n[file: c.pdf]"


async def test_pictures_that_are_refused_go_out_as_links_alone(play, autojump_clock):
    async with play() as stage:
        stage.twilio.refuses_media = True
        await send(stage, reply_of("See:", await file_of(stage)))
        assert [(m.media, "https://" in m.body) for m in stage.twilio.messages] == [((), True)]


# ------------------------------------------------------------------ the alphabet


def test_nice_punctuation_is_made_plain_where_that_saves_parts():
    assert to_cheaper_text("It’s “done” – see below…") == 'It\'s "done" - see below...'
    assert to_cheaper_text("Größe: 5 €") == "Größe: 5 €"
    assert to_cheaper_text("“готово” – да") == "“готово” – да"


def test_the_alphabet_has_its_128_characters_but_the_escape():
    assert sum(map(is_gsm, map(chr, range(0x10000)))) == 127 + 10


async def test_a_model_that_replies_to_a_number_that_never_wrote_reaches_it(play, autojump_clock):
    model = ScriptedModel([say("", call("reply", "c1", channelType="sms", channelId="+15550777", text="hi"))])
    async with play(model) as stage:
        await stage.text(OWNER, "tell them hi")
        await stage.idle()
        assert stage.twilio.texts_to("+15550777") == ["hi"]
