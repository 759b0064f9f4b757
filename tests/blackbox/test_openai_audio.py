"""`/v1/audio` by OpenAI's own client, with the models that the settings name."""

from __future__ import annotations

import openai
import pytest
import trio

from pegasus.testing.provider.answers import ProviderAnswer, refuse
from pegasus.testing.provider.audio import heard, spoken
from pegasus.web.routes.audio import read_form
from pegasus.web.visitors import ApiError
from tests.blackbox.support import Book
from tests.blackbox.test_openai_chats import talking

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the client's generators
OGG = b"OggS\0\2" + bytes(20) + b"OpusHead" + bytes(range(256)) * 300
AUDIO = {"models.transcribe": "test/whisper", "models.speech": "test/tts"}
SUBTITLES = "1\n00:00:00,000 --> 00:00:01,000\nBuy milk\n"


@pytest.mark.tried(
    "clients", "OpenAI's transcriptions: JSON, with times, text, SRT, VTT", "those of the model of the settings"
)
async def test_a_recording_is_written_down_in_each_format(tmp_path):
    book = Book()
    async with talking(tmp_path, book, AUDIO) as (daemon, client):
        transcribe = client.audio.transcriptions.create
        book.server.audio = lambda call: heard("Buy milk", {"type": "tokens", "input_tokens": 14, "output_tokens": 3})
        found = await transcribe(
            model="any", file=("note.mp3", OGG, "text/html"), language="en", prompt="Einkäufe\r\n--x"
        )
        assert found.text == "Buy milk"
        [call] = book.server.audio_calls
        fields = {"model": "whisper", "response_format": "json", "language": "en", "prompt": "Einkäufe\r\n--x"}
        assert (call.file, call.mime, call.fields) == (OGG, "audio/ogg", fields)
        many = b'{"text": "Buy milk", "duration": 1.5, "language": "english", "segments": []}'
        book.server.audio = lambda call: ProviderAnswer(body=many, content_type="application/json")
        times = await transcribe(
            model="any",
            file=("a.ogg", OGG),
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
        assert (times.text, times.duration) == ("Buy milk", 1.5)
        book.server.audio = lambda call: ProviderAnswer(body=SUBTITLES.encode(), content_type="text/html")
        for form in ("text", "srt", "vtt"):
            assert await transcribe(model="any", file=("a.ogg", OGG), response_format=form) == SUBTITLES
            assert book.server.audio_calls[-1].fields["response_format"] == form
        raw = await client.audio.transcriptions.with_raw_response.create(
            model="any", file=("a.ogg", OGG), response_format="text"
        )
        assert raw.headers["content-type"].startswith("text/plain")
        used = await client._client.get(
            f"{daemon.at.http}/api/usage", headers={"authorization": f"Bearer {daemon.token}"}
        )
        assert (used.json()["today"]["calls"], used.json()["today"]["estimatedCalls"]) == (6, 5)


@pytest.mark.tried(
    "clients", "OpenAI's speech: streamed, each format", "the file as the model of the settings makes it"
)
async def test_a_text_is_spoken_while_it_is_made(tmp_path):
    book = Book()
    async with talking(tmp_path, book, AUDIO) as (_, client):
        book.server.audio = lambda call: spoken(OGG)
        answer = await client.audio.speech.create(model="any", voice="alloy", input="Hello", speed=1.5)
        assert (answer.content, answer.response.headers["content-type"]) == (OGG, "audio/mpeg")
        assert book.server.audio_calls[0].fields == {
            "model": "tts",
            "input": "Hello",
            "voice": "alloy",
            "speed": 1.5,
            "response_format": "mp3",
        }
        async with client.audio.speech.with_streaming_response.create(
            model="any", voice="alloy", input="Hello", response_format="opus"
        ) as stream:
            assert b"".join([piece async for piece in stream.iter_bytes()]) == OGG
            assert stream.headers["content-type"] == "audio/ogg"


async def test_what_cannot_be_heard_or_said_is_refused_with_a_sentence(tmp_path):
    book = Book()
    async with talking(tmp_path, book, AUDIO) as (daemon, client):
        book.server.audio = lambda call: refuse(400, "no speech was found")
        for file, words in (
            (("a.ogg", b""), "an empty file"),
            (("a.ogg", b"%PDF-1.7 nothing to hear"), "application/pdf"),
            (("a.wav", b"<html><script>"), "text/plain"),
            (("a.ogg", OGG), "no speech was found"),
        ):
            with pytest.raises(openai.BadRequestError, match=words):
                await client.audio.transcriptions.create(model="any", file=file)
        for fields, words in (({"response_format": "pdf"}, "response_format"), ({"stream": True}, "stream")):
            with pytest.raises(openai.BadRequestError, match=words):
                await client.audio.transcriptions.create(model="any", file=("a.ogg", OGG), **fields)
        for fields, words in (
            ({"input": ""}, "input"),
            ({"input": "x" * 5_000}, "allowed: 4,096"),
            ({"voice": ""}, "voice"),
            ({"response_format": "midi"}, "response_format"),
        ):
            with pytest.raises(openai.BadRequestError, match=words):
                await client.audio.speech.create(**{"model": "any", "input": "Hello", "voice": "alloy", **fields})
        assert len(book.server.audio_calls) == 1
        url = f"{daemon.at.http}/v1/audio/transcriptions"
        head = {"authorization": f"Bearer {daemon.token}"}
        http = client._client
        for kind, body in (
            ("application/json", b"{}"),
            ("multipart/form-data", b"--x"),
            ("multipart/form-data; boundary=x", b"no form"),
            (
                "multipart/form-data; boundary=x",
                b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\ntext\r\n--x--\r\n',
            ),
            ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: " + bytes(300_000)),
            (
                "multipart/form-data; boundary=x; charset=rot13",
                b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n' * 99,
            ),
        ):
            answer = await http.post(url, content=body, headers={**head, "content-type": kind})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), answer.text


async def test_speech_is_sent_on_as_it_comes(tmp_path):
    book = Book()
    async with talking(tmp_path, book, AUDIO) as (_, client):
        book.server.audio = lambda call: refuse(401)
        with pytest.raises(openai.APIStatusError) as refusal:
            await client.audio.speech.create(model="any", voice="alloy", input="Hello")
        assert refusal.value.status_code == 503
        book.server.audio = lambda call: ProviderAnswer(stream=(OGG, *(0.01, b"more") * 1000))
        async with client.audio.speech.with_streaming_response.create(
            model="any", voice="alloy", input="Hello"
        ) as stream:
            heard_so_far = b""
            async for piece in stream.iter_bytes():
                heard_so_far += piece
                if len(heard_so_far) >= len(OGG):
                    break
        assert heard_so_far.startswith(OGG)
        await book.abandoned()  # the client has left in the middle, and the service makes no more of it


async def test_without_a_model_a_sentence_says_which_setting_is_missing(tmp_path):
    async with talking(tmp_path, Book()) as (_, client):
        for call, setting in (
            (client.audio.transcriptions.create(model="any", file=("a.ogg", OGG)), "models.transcribe"),
            (client.audio.speech.create(model="any", voice="alloy", input="Hello"), "models.speech"),
        ):
            with trio.fail_after(30), pytest.raises(openai.APIStatusError, match=setting) as refusal:
                await call
            assert refusal.value.status_code == 501


async def test_a_form_of_a_charset_that_it_does_not_fit_is_refused():
    field = b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n' + b"x\r\n--b--\r\n"
    with pytest.raises(ApiError, match="not well-formed"):
        await read_form("multipart/form-data; boundary=b; charset=undefined", field)
