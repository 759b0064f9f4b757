"""Voice messages, PDFs and recordings through the real process: what the model reads, what people hear, and a kill in between."""

from __future__ import annotations

from base64 import b64encode

import pytest
import trio

from pegasus.testing.provider.audio import heard, spoken
from pegasus.testing.services.server import open_service
from pegasus.testing.services.telegram import TelegramServer
from tests.blackbox.support import Book, Call, Thought, reply, say, serving, until
from tests.blackbox.test_telegram import OWNER, settings_for
from tests.pegasus.media import documents
from tests.pegasus.media.pdfs import bomb, pdf
from tests.pegasus.models.formats.pictures import png

OPUS = b"OggS\0\2" + bytes(20) + b"OpusHead" + bytes(range(200))
HEARS = {"models.transcribe": "test/whisper", "models.speech": "test/tts"}


async def test_a_voice_message_is_written_down_once_although_the_process_is_killed(tmp_path):
    book = Book({"buy milk": say("noted")})
    async with (
        open_service(TelegramServer()) as telegram,
        serving(tmp_path, book, {**settings_for(telegram), **HEARS}) as daemon,
    ):

        def kill_first(call):
            if len(book.server.audio_calls) == 1:
                daemon.kill()
            return heard("buy milk")

        book.server.audio = kill_first
        voice = telegram.add_file(OPUS, mime_type="audio/ogg", duration=2)
        telegram.say(OWNER, None, voice=voice)
        await until(lambda: daemon.process.poll() is not None, "the end of the process")
        await daemon.start()
        with trio.fail_after(30):
            assert (await telegram.next_message()).text == "noted"
        assert book.asked[-1].user.endswith("\nbuy milk")
        telegram.say(OWNER, None, voice=voice)
        with trio.fail_after(30):
            assert (await telegram.next_message()).text == "noted"
        assert len(book.server.audio_calls) == 2  # once for nothing, once for both messages
        assert [message.text for message in telegram.messages if message.text == "noted"] == ["noted"] * 2


async def test_the_agent_speaks_and_telegram_plays_it(tmp_path):
    def speaking(view):
        if view.results and "speech/" in view.results[-1]:
            path = view.results[-1].partition('"path":"')[2].partition('"')[0]
            return Thought(calls=(Call("reply", {**reply("listen").arguments, "media": [path]}),))
        return Thought(calls=(Call("speak", {"text": "Good morning"}),))

    book = Book({"speak": speaking})
    async with open_service(TelegramServer()) as telegram, serving(tmp_path, book, {**settings_for(telegram), **HEARS}):
        book.server.audio = lambda call: spoken(OPUS)
        telegram.say(OWNER, "speak")
        with trio.fail_after(30):
            assert (await telegram.next_message()).text == "listen"
            kind, name, content = (await telegram.next_message()).file
        assert (kind, content) == ("voice", OPUS)
        assert name.endswith(".ogg")
        assert book.server.audio_calls[0].fields["input"] == "Good morning"


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_pdf_is_read_out_and_one_that_cannot_be_is_named(tmp_path, wire):
    book = Book(otherwise=say("read"))
    async with serving(tmp_path, book, wire=wire) as daemon, daemon.client() as client:
        for number, (content, words) in enumerate(
            [
                (pdf("Dear friend", "Yours"), "[page 1]\nDear friend\n[page 2]\nYours"),
                (pdf("secret", password="x"), "protected by a password"),
                (bomb(), "inflate"),
                (b"%PDF-1.4 nonsense", "damaged"),
            ]
        ):
            file = {"name": "letter.pdf", "mime": "application/pdf", "data": b64encode(content).decode()}
            assert await client.ask("read it", f"m-{number}", media=[file]) == "read"
            assert words in book.asked[-1].user
            assert "[File: media/" in book.asked[-1].user


async def test_a_document_is_read_out_whatever_its_sender_says_it_is(tmp_path):
    book = Book(otherwise=say("read"))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        for name, content, words in (
            ("a", documents.spreadsheet(), "2 sheets; it reads:)\n[sheet Costs]"),
            ("b.pdf", documents.letter(), "Sales grew by"),
            ("c.txt", documents.MAIL, "The price is 5 €."),
            ("d", "Привет, как дела?".encode("koi8-r"), "Привет, как дела?"),
            ("e", b"<p>plain</p>", "<p>plain</p>"),
        ):
            file = {"name": name, "mime": "application/octet-stream", "data": b64encode(content).decode()}
            assert await client.ask("read it", f"m-{name}", media=[file]) == "read"
            assert words in book.asked[-1].user
            assert "it reads:)" in book.asked[-1].user


async def test_a_client_marks_a_voice_message_and_a_picture_with_huge_sides_is_named(tmp_path):
    book = Book(otherwise=say("ok"))
    async with serving(tmp_path, book, HEARS) as daemon, daemon.client() as client:
        book.server.audio = lambda call: heard("buy milk")
        voice = {"name": "clip.webm", "mime": "audio/webm", "data": b64encode(b"\x1a\x45\xdf\xa3 clip").decode()}
        assert await client.ask("", "m-1", media=[{**voice, "voice": True}]) == "ok"
        assert book.asked[-1].user.endswith("\nbuy milk")
        assert await client.ask("", "m-2", media=[voice]) == "ok"
        assert "written down by a machine; it reads:)\nbuy milk\n(end of clip.webm)" in book.asked[-1].user
        assert (book.server.audio_calls[0].mime, len(book.server.audio_calls)) == ("audio/webm", 1)
        huge = {"name": "x.png", "mime": "image/png", "data": b64encode(png(60_000, 60_000)).decode()}
        assert await client.ask("look", "m-3", media=[huge]) == "ok"
        assert "60000 x 60000 pixels, and models take up to 8000 x 8000" in book.asked[-1].user
