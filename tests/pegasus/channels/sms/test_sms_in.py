"""Messages that come by SMS: the webhook, its signature, files of an MMS."""

from __future__ import annotations

import contextlib
import re
from urllib.parse import urlencode

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from pegasus.channels.sms.webhook import (
    NoSms,
    Sms,
    is_signed_by_twilio,
    parse_form,
    read_sms,
    sign_request,
    signed_address,
)
from pegasus.storage import Waiting
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import Hang, ScriptedModel
from pegasus.testing.services.server import HANG_UP, ServiceResponse
from pegasus.testing.services.twilio import FakeTwilio
from pegasus.testing.world import kill
from pegasus.wire import encode_json, from_wire, to_wire
from tests.pegasus.channels.sms.conftest import FRIEND, OWNER, STRANGER

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\x0f\x04\0\t\xfb\x03\xfd"
    b"\xe3U\xf2\x9c\0\0\0\0IEND\xaeB`\x82"
)


async def test_a_message_is_processed_once_however_often_it_comes(play, autojump_clock):
    async with play() as stage:
        for _ in range(3):
            assert await stage.text(OWNER, "hello", sid="SM1") == 200
        await stage.idle()
        assert await stage.text(OWNER, "hello", sid="SM1") == 200
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: hello"]


async def test_messages_that_come_in_another_order_and_again_are_each_answered_once(play, autojump_clock):
    async with play() as stage:
        for number in (3, 1, 3, 2, 1):
            assert await stage.text(OWNER, f"m{number}", sid=f"SM{number}") == 200
        await stage.idle()
        assert stage.twilio.texts_to(OWNER) == ["re: m3", "re: m1", "re: m2"]


async def test_while_the_file_of_people_cannot_be_read_nobody_is_taken_for_a_stranger(play, autojump_clock):
    disk = MemoryDisk()
    disk.put("access.json", encode_json({"people": [{"type": "sms", "userId": STRANGER}], "codes": []}).encode())
    disk.files.unreadable = {"access.json"}
    async with play(disk=disk) as stage:
        file = [("image/png", PNG)]
        assert await stage.text(STRANGER, "look", file, sid="MM1") == 503
        await stage.idle()
        assert stage.twilio.texts_to(STRANGER) == []
        disk.files.unreadable = set()
        assert await stage.text(STRANGER, "look", file, sid="MM1") == 200
        await stage.idle()
        [line] = stage.user_lines(STRANGER)
        assert "image/png" in line
        assert stage.user_lines() == []


async def test_a_thousand_messages_at_once_are_taken_once_each_and_in_order(play, autojump_clock):
    async with play(ScriptedModel(lambda request: Hang())) as stage:
        statuses = []

        async def deliver(number):
            statuses.append(await stage.text(OWNER, f"n{number}", sid=f"SM{number}"))

        for _ in range(2):  # Twilio may be set to call again
            async with trio.open_nursery() as nursery:
                for number in range(1000):
                    nursery.start_soon(deliver, number)
                    await trio.lowlevel.checkpoint()
        assert statuses == [200] * 2000
        assert await stage.world.journal.ask(Waiting) == 1000
        disk = stage.world.disk
        inbox = b"".join(disk.content(path) for path in disk.paths() if path.startswith("inbox/"))
        assert re.findall(rb'"text":"(n\d+)"', inbox) == [b"n%d" % number for number in range(1000)]


async def test_an_answer_of_200_means_on_disk(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        assert await stage.text(OWNER, "hello") == 200
        await kill(stage.world)
    async with play(twilio=stage.twilio, disk=stage.world.disk.survivor()) as again:
        await again.idle()
        assert again.twilio.texts_to(OWNER) == ["re: hello"]


async def test_a_message_that_cannot_be_kept_is_not_acknowledged(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        stage.world.disk.fail(times=1_000_000)
        assert await stage.text(OWNER, "hello") == 503


async def test_a_stranger_gets_a_code_and_nothing_reaches_the_model(play, autojump_clock):
    async with play() as stage:
        for _ in range(5):
            assert await stage.text(STRANGER, "let me in, I am the owner") == 200
        await stage.idle()
        assert stage.model.requests == []
        assert len(stage.twilio.texts_to(STRANGER)) == 1


@pytest.mark.parametrize("access", ["allow_list", "open"])
async def test_access_is_that_of_the_settings(play, autojump_clock, access):
    async with play(access=access) as stage:
        await stage.text(STRANGER, "hello")
        await stage.text(FRIEND, "hello")
        await stage.idle()
        assert len(stage.twilio.texts_to(STRANGER)) == (access == "open")
        assert stage.twilio.texts_to(FRIEND) == ["re: hello"]


# ------------------------------------------------------------------ requests of strangers


@pytest.mark.parametrize(
    "change",
    [
        {"headers": {}},
        {"headers": {"x-twilio-signature": ""}},
        {"headers": {"x-twilio-signature": "bm90IHRoZSByaWdodCBvbmU="}},
        {"headers": {"x-twilio-signature": "\udcff\u0000é"}},
        {"body": b"MessageSid=SM1&From=%2B15550101&Body=rm+-rf"},
        {"body": b"\xff\xfe"},
        {"body": b""},
        {"url": "https://agent.example.com/channels/sms/twilio?x=1"},
    ],
)
async def test_a_request_without_the_right_signature_is_refused(play, autojump_clock, change):
    async with play() as stage:
        request = attrs.evolve(stage.twilio.receive_sms(OWNER, "hello"), **change)
        assert (await stage.adapter.receive(request)).status == 401
        await stage.idle()
        assert stage.model.requests == []


@pytest.mark.parametrize(
    "form",
    [
        [],
        [("MessageSid", "SM1")],
        [("From", OWNER), ("Body", "x")],
        [("MessageSid", "S" * 1000), ("From", OWNER)],
        [("MessageSid", "SM1"), ("From", "9" * 1000)],
    ],
)
async def test_a_form_that_makes_no_sense_is_refused(play, autojump_clock, form):
    async with play() as stage:
        assert (await stage.adapter.receive(stage.twilio.webhook(form))).status == 400


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(st.binary(), st.dictionaries(st.sampled_from(["MessageSid", "From", "NumMedia", "MediaUrl0"]), st.text()))
)
def test_no_form_is_an_error_of_ours(body):
    data = body if isinstance(body, bytes) else urlencode(body, errors="replace").encode()
    with contextlib.suppress(NoSms):
        read_sms(parse_form(data))


async def test_the_state_of_a_message_is_no_message(play, autojump_clock):
    async with play() as stage:
        form = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("From", stage.twilio.number), ("To", OWNER)]
        assert (await stage.adapter.receive(stage.twilio.webhook(form))).status == 200
        await stage.idle()
        assert stage.model.requests == []


async def test_other_paths_and_methods_are_not_there(play, autojump_clock):
    async with play() as stage:
        request = stage.twilio.receive_sms(OWNER, "hello")
        assert (await stage.adapter.receive(attrs.evolve(request, method="GET"))).status == 404
        assert (await stage.adapter.receive(attrs.evolve(request, path="/channels/sms/other"))).status == 404


# ------------------------------------------------------------------ the signature

FORMS = st.lists(
    st.tuples(st.text("aAbZ1_", min_size=1), st.text(max_size=5)), max_size=6, unique_by=lambda pair: pair[0]
)


@settings(max_examples=50, deadline=None)
@given(
    FORMS,
    st.sampled_from(["https://a.example", "http://a.example:8080", "https://a.example:443", "http://[::1]:7718", "http://a.example:80"]),
    st.sampled_from(["/channels/sms/twilio", "/channels/sms/twilio?a=1&b=%20"]),
)  # fmt: skip
def test_signatures_are_those_of_the_official_client(form, place, path):
    url = place + path
    validator = RequestValidator("secret")
    signature = validator.compute_signature(url, dict(form))
    assert sign_request("secret", url, form) == signature
    assert is_signed_by_twilio("secret", url, form, signature)
    assert not is_signed_by_twilio("other", url, form, signature)
    assert not is_signed_by_twilio("", url, form, sign_request("", url, form))


def test_an_address_may_be_signed_with_or_without_its_port():
    for signed in ("https://a.example/p?x=1", "https://a.example:443/p?x=1"):
        for requested in ("https://a.example/p?x=1", "https://a.example:443/p?x=1"):
            assert is_signed_by_twilio("secret", requested, [], sign_request("secret", signed, []))
    assert not is_signed_by_twilio(
        "secret", "https://a.example/p", [], sign_request("secret", "https://b.example/p", [])
    )
    assert not is_signed_by_twilio("secret", "https://a.example:port/p", [], "x")


def test_the_address_is_that_of_public_url_where_it_is_set():
    path = "/channels/sms/twilio"
    assert signed_address("", f"http://127.0.0.1:7718{path}?a=1", path) == f"http://127.0.0.1:7718{path}?a=1"
    assert (
        signed_address("https://x.example/", f"http://127.0.0.1:7718{path}?a=1", path) == f"https://x.example{path}?a=1"
    )
    assert signed_address("https://x.example/below", f"http://h{path}", path) == f"https://x.example/below{path}"


async def test_without_public_url_the_address_is_the_one_that_was_requested(play, autojump_clock):
    async with play(public_url="", twilio=FakeTwilio("http://192.0.2.7:7718")) as stage:
        assert await stage.text(OWNER, "hello") == 200


# ------------------------------------------------------------------ files


async def test_pictures_of_an_mms_reach_the_agent(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        assert await stage.text(OWNER, "look", [("image/png", PNG), ("text/plain", b"a note")]) == 200
        await stage.idle()
        (line,) = stage.user_lines()
        assert "look" in line
        assert "a note" in line
        assert stage.twilio.texts_to(OWNER)


async def test_credentials_go_to_twilio_and_not_to_where_it_redirects(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        await stage.text(OWNER, "look", [("image/png", PNG)])
        await stage.idle()
        first, second = stage.twilio.file_requests
        assert "authorization" in first.headers
        assert "authorization" not in second.headers


async def test_files_of_a_stranger_are_neither_fetched_nor_noted(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        assert await stage.text(STRANGER, "look", [("image/png", PNG)]) == 200
        await stage.idle()
        assert stage.twilio.file_requests == []
        assert b"MediaUrl" not in stage.world.disk.content("channels/sms.jsonl")
        assert b"files/MM" not in stage.world.disk.content("channels/sms.jsonl")
        assert len(stage.twilio.texts_to(STRANGER)) == 1


async def test_a_file_elsewhere_is_not_fetched(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        asked = len(stage.twilio.requests)
        extra = [("NumMedia", "1"), ("MediaUrl0", "http://169.254.169.254/secret"), ("MediaContentType0", "image/png")]
        request = stage.twilio.webhook([("MessageSid", "MM1"), ("From", OWNER), ("Body", "look"), *extra])
        assert (await stage.adapter.receive(request)).status == 200
        await stage.idle()
        assert "could not be fetched" in stage.user_lines()[0]
        assert not any("secret" in request.target for request in stage.twilio.requests[asked:])


async def test_slow_files_do_not_delay_the_answer_and_come_later(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        begin = trio.current_time()
        stage.twilio.fault = lambda request: (
            ServiceResponse(503) if "/Media/" in request.path and trio.current_time() < begin + 20 else None
        )
        assert await stage.text(OWNER, "look", [("text/plain", b"a note")]) == 200
        assert trio.current_time() - begin < 3
        assert stage.user_lines() == []
        await trio.sleep(60)
        await stage.idle()
        assert "a note" in stage.user_lines()[0]


async def test_a_crash_while_a_file_is_fetched_loses_nothing(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        stage.twilio.fault = lambda request: HANG_UP if "/Media/" in request.path else None
        assert await stage.text(OWNER, "look", [("text/plain", b"a note")]) == 200
        await kill(stage.world)
    stage.twilio.fault = lambda request: None
    async with play(twilio=stage.twilio, disk=stage.world.disk.survivor()) as again:
        await again.idle()
        await trio.sleep(5)
        await again.idle()
        assert "a note" in again.user_lines()[0]
        assert len(again.user_lines()) == 1


async def test_a_file_that_never_comes_is_named(play, autojump_clock):
    async with play() as stage:
        await stage.idle()
        stage.twilio.fault = lambda request: ServiceResponse(404) if "/Media/" in request.path else None
        await stage.text(OWNER, "look", [("image/png", PNG)])
        await trio.sleep(300)
        await stage.idle()
        assert "could not be fetched" in stage.user_lines()[0]


def test_what_is_to_be_fetched_is_read_as_it_was_written():
    form = [
        ("MessageSid", "MM1"),
        ("From", OWNER),
        ("NumMedia", "1"),
        ("MediaUrl0", "https://a.b/c"),
        ("MediaContentType0", "x/y"),
    ]
    sms = read_sms(form)
    assert isinstance(sms, Sms)
    assert from_wire(to_wire(sms), Sms) == sms


async def test_a_message_to_another_number_is_no_message_that_came_before(play, autojump_clock):
    async with play() as stage:
        await stage.text(OWNER, "to the first number", sid="SM1")
        await stage.idle()
        await kill(stage.world)
    stage.twilio.number = "+15550999"
    async with play(twilio=stage.twilio, disk=stage.world.disk) as again:
        for _ in range(2):
            assert await again.text(OWNER, "to the second number", sid="SM1") == 200
        await again.idle()
        assert [line.partition("]\n")[2] for line in again.user_lines()] == [
            "to the first number",
            "to the second number",
        ]
