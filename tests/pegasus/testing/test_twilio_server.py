"""The fake of Twilio, held against Twilio's own client."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from functools import partial

import pytest
import trio
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.request_validator import RequestValidator
from twilio.rest import Client

from pegasus.testing.services.server import ServiceResponse, open_service
from pegasus.testing.services.twilio import FakeTwilio, refuse


class LoopbackClient(TwilioHttpClient):
    """The official HTTP client with the fake in place of api.twilio.com."""

    def __init__(self, base_url: str) -> None:
        super().__init__()
        self.base_url = base_url

    def request(self, method, url, *args, **kwargs):
        return super().request(method, url.replace("https://api.twilio.com", self.base_url), *args, **kwargs)


async def with_client(
    use: Callable[[FakeTwilio, Client], object], twilio: FakeTwilio | None = None, token: str = ""
) -> object:
    async with open_service(twilio or FakeTwilio()) as service:
        http = LoopbackClient(service.base_url)
        client = Client(service.account_sid, token or service.auth_token, http_client=http)
        try:
            return await trio.to_thread.run_sync(use, service, client)
        finally:
            http.session.close()


async def test_the_official_client_sends_and_reads_messages():
    def use(twilio: FakeTwilio, client: Client) -> None:
        sent = client.messages.create(
            to="+15550101", from_=twilio.number, body="hello", media_url=["https://a.b/c.png"]
        )
        assert sent.sid.startswith("MM")
        assert (sent.status, sent.body, sent.num_media, sent.from_) == ("queued", "hello", "1", twilio.number)
        assert client.messages(sent.sid).fetch().date_created.year == 2026
        assert client.api.v2010.accounts(twilio.account_sid).fetch().status == "active"

    await with_client(use)


async def test_the_official_client_lists_the_newest_first_over_pages():
    def use(twilio: FakeTwilio, client: Client) -> None:
        for number in range(5):
            client.messages.create(to=f"+1555010{number % 2}", from_=twilio.number, body=str(number))
        assert [m.body for m in client.messages.list(page_size=2)] == ["4", "3", "2", "1", "0"]
        assert [m.body for m in client.messages.list(to="+15550101", page_size=2)] == ["3", "1"]

    await with_client(use)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"to": "nobody"}, 21211),
        ({"from_": "+15559999"}, 21659),
        ({"body": "x" * 1601}, 21617),
        ({"body": "😀" * 801}, 21617),
        ({"body": ""}, 21602),
        ({"media_url": ["ftp://a.b"]}, 21620),
        ({"media_url": ["https://a.b"] * 11}, 21623),
        ({"to": "+15550199"}, 21610),
        ({"to": "+15550198"}, 21614),
    ],
)
async def test_the_official_client_reads_refusals(changes: dict[str, object], code: int):
    def use(twilio: FakeTwilio, client: Client) -> None:
        twilio.receive_sms("+15550199", " stop ")
        twilio.refuses["+15550198"] = 21614, "is not a mobile number"
        message = {"to": "+15550101", "from_": twilio.number, "body": "x", **changes}
        with pytest.raises(TwilioRestException) as caught:
            client.messages.create(**message)
        assert (caught.value.code, caught.value.status) == (code, 400)
        assert not twilio.messages

    await with_client(use)


async def test_a_wrong_token_is_refused():
    def use(twilio: FakeTwilio, client: Client) -> None:
        with pytest.raises(TwilioRestException) as caught:
            client.messages.create(to="+15550101", from_=twilio.number, body="x")
        assert (caught.value.code, caught.value.status) == (20003, 401)

    await with_client(use, token="wrong")


async def test_a_rate_limit_is_one_for_the_official_client():
    twilio = FakeTwilio()
    twilio.fault = lambda request: refuse(20429, "Too Many Requests", 429)

    def use(twilio: FakeTwilio, client: Client) -> None:
        with pytest.raises(TwilioRestException) as caught:
            client.messages.create(to="+15550101", from_=twilio.number, body="x")
        assert caught.value.status == 429

    await with_client(use, twilio)


@pytest.mark.parametrize("text", ["hello", "", "Grüße & mehr = 100% 👍+", "a\nb\x00c"])
def test_webhooks_have_the_signature_that_the_official_validator_wants(text: str):
    twilio = FakeTwilio()
    request = twilio.receive_sms("+15550101", text, [("image/png", b"x")])
    form = dict(urllib.parse.parse_qsl(request.body.decode(), keep_blank_values=True))
    validate = partial(RequestValidator(twilio.auth_token).validate, request.url)
    assert validate(form, request.headers["x-twilio-signature"])
    assert not validate({**form, "Body": "other"}, request.headers["x-twilio-signature"])


async def test_a_file_needs_the_credentials_and_is_stored_elsewhere():
    def use(twilio: FakeTwilio, client: Client) -> ServiceResponse:
        twilio.receive_sms("+15550101", "", [("image/png", b"picture")])
        (id,) = twilio.files
        account = f"{twilio.base_url}/2010-04-01/Accounts/{twilio.account_sid}"
        answer = client.http_client.request("GET", f"{account}/Messages/MM1/Media/{id}", auth=client.auth)
        assert answer.status_code == 307
        return client.http_client.request("GET", answer.headers["location"])

    stored = await with_client(use)
    assert (stored.status_code, stored.text) == (200, "picture")
