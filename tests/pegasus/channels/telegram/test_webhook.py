"""Telegram's webhook: the secret path, the secret header, and an answer only when the message is on disk."""

import attrs
import pytest
import trio

from pegasus.channels import WebhookRequest
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.wire import encode_json
from tests.pegasus.channels.telegram.conftest import OWNER, STRANGER, telegram_settings


def webhook_settings():
    settings = telegram_settings(mode="webhook")
    return attrs.evolve(settings, http=attrs.evolve(settings.http, public_url="https://agent.example"))


@pytest.fixture
def hooked(play):
    return lambda **more: play(settings=webhook_settings(), **more)


async def ready(stage):
    while not stage.telegram.webhook:  # noqa: ASYNC110  virtual time
        await trio.sleep(0.1)
    await trio.sleep(1)


def request_of(stage, update, *, secret=None, path=None, body=None):
    """What Telegram sends."""
    path = stage.telegram.webhook["url"].removeprefix("https://agent.example") if path is None else path
    secret = stage.telegram.webhook["secret_token"] if secret is None else secret
    body = encode_json(update).encode() if body is None else body
    return WebhookRequest("POST", path, {"x-telegram-bot-api-secret-token": secret}, body)


def message(text, number=1, user=OWNER):
    chat = {"id": user, "type": "private"}
    return {"update_id": number, "message": {"message_id": number, "chat": chat, "from": {"id": user}, "text": text}}


async def test_an_update_is_answered_with_200_when_its_message_is_on_disk(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        for _ in range(3):  # however often it comes
            assert (await stage.adapter.receive(request_of(stage, message("hello")))).status == 200
        sent = await stage.telegram.next_message()
        await trio.sleep(10)
        assert (sent.text, len(stage.telegram.messages)) == ("re: hello", 1)


async def test_updates_that_come_in_another_order_and_again_are_each_answered_once(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        for number in (3, 1, 3, 2, 1):
            update = message(f"m{number}", number)
            assert (await stage.adapter.receive(request_of(stage, update))).status == 200
        await stage.world.idle()
        await trio.sleep(30)
        assert [sent.text for sent in stage.telegram.messages] == ["re: m3", "re: m1", "re: m2"]


async def test_a_wrong_secret_is_401_and_nothing_is_read(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        path = "/channels/telegram/" + "0" * 64
        for request in (
            request_of(stage, message("x"), secret=""),
            request_of(stage, message("x"), secret="wrong"),
            request_of(stage, message("x"), secret="wröng"),
            request_of(stage, message("x"), path=path),
            request_of(stage, message("x"), path="/channels/telegram/"),
        ):
            assert (await stage.adapter.receive(request)).status == 401
        await trio.sleep(10)
        assert stage.model.requests == []


async def test_a_body_that_makes_no_sense_is_never_a_5xx(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        for body in (b"", b"[]", b"{", b"\xff", b"null", b'{"update_id":"x"}', b"{}"):
            assert (await stage.adapter.receive(request_of(stage, {}, body=body))).status == 400
        assert (await stage.adapter.receive(request_of(stage, {"update_id": 5, "message": {"x": [1]}}))).status == 200


async def test_without_a_disk_telegram_is_to_come_again(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        stage.world.disk.fail(times=20)
        request = request_of(stage, message("hello"))
        started = trio.current_time()
        assert (await stage.adapter.receive(request)).status == 503
        assert trio.current_time() - started <= 3
        await trio.sleep(400)  # twenty attempts, 15 s apart in the end
        assert (await stage.adapter.receive(request)).status == 200
        await stage.telegram.next_message()
        await trio.sleep(10)
        assert len(stage.telegram.messages) == 1


async def test_where_telegram_is_polled_there_is_no_webhook(play, autojump_clock):
    async with play() as stage:
        await stage.world.idle()
        assert (await stage.adapter.receive(WebhookRequest("POST", "/channels/telegram/x", {}, b"{}"))).status == 404
        assert stage.telegram.webhook == {}


async def test_a_stranger_gets_a_code_by_webhook_too(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        assert (await stage.adapter.receive(request_of(stage, message("hi", 9, STRANGER)))).status == 200
        sent = stage.telegram.messages  # the owner is asked at the same time
        await stage.telegram.until(lambda: any(message.chat_id == STRANGER for message in sent))
        [code] = [message.text for message in sent if message.chat_id == STRANGER]
        assert "code" in code
        assert stage.model.requests == []


async def test_a_token_that_is_revoked_is_noticed_without_polling(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        stage.telegram.token = "another"
        await trio.sleep(600)
        assert stage.adapter.state.state == "parked"


async def test_halves_of_surrogate_pairs_do_no_harm(hooked, autojump_clock):
    async with hooked() as stage:
        await ready(stage)
        body = encode_json(message("BROKEN")).replace("BROKEN", r"x\ud83d").encode()
        assert (await stage.adapter.receive(request_of(stage, {}, body=body))).status == 200
        await stage.telegram.next_message()
        assert "x\ufffd" in stage.model.requests[0].turns[-1].text


async def test_while_the_file_of_people_cannot_be_read_only_somebody_of_the_settings_is_confirmed(
    hooked, autojump_clock
):
    disk = MemoryDisk()
    disk.put(
        "access.json", encode_json({"people": [{"type": "telegram", "userId": str(STRANGER)}], "codes": []}).encode()
    )
    disk.files.unreadable = {"access.json"}
    async with hooked(disk=disk) as stage:
        await ready(stage)
        held = request_of(stage, message("hi", 1, STRANGER))
        assert (await stage.adapter.receive(held)).status == 503
        assert (await stage.adapter.receive(request_of(stage, message("hello", 2)))).status == 200
        disk.files.unreadable = set()
        assert (await stage.adapter.receive(held)).status == 200
        await trio.sleep(30)
        assert sorted(stage.telegram.shown) == [(OWNER, "re: hello"), (STRANGER, "re: hi")]
