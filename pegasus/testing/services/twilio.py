"""Fake of Twilio: the Messages API, files of messages, opt-outs, and the webhooks that it makes, signed.

It refuses what Twilio refuses, with its codes (https://www.twilio.com/docs/api/errors). Held against the official client in
tests/pegasus/testing/test_twilio_server.py.

What it does not do: a message stays "queued" for ever, and no report of its delivery is made; its number of segments and its price
are not calculated; pictures of an MMS are not fetched from us; nothing is limited. Somebody who has written STOP is sent nothing any
more (21610), but gets no confirmation. Faults of the network come from `FakeService`.

    twilio = FakeTwilio()
    settings = SmsSettings(account_sid=twilio.account_sid, auth_token=twilio.auth_token, from_number=twilio.number)
    request = twilio.receive_sms("+15550101", "hello")          # somebody has written; this is what Twilio calls us with
    answer = await adapter.receive(request)
    twilio.messages[-1].body                                     # what we have sent

Twilio calls an app by webhooks, and an app calls Twilio by HTTP. The fake makes the requests of the first kind and hands
them to the test, which gives them to the adapter as the web server would. So no server of the app is needed. Requests are
signed with the account's token over the public address, so an adapter that checks signatures is tested as well.

Checks of a message have a fixed order, and a message with two mistakes gets the code of the first.
"""

from __future__ import annotations

import base64
import hmac
import itertools
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode

import attrs

from pegasus.channels import WebhookRequest
from pegasus.testing.services.server import FakeService, ServiceRequest, ServiceResponse, json_response

LONGEST_BODY: Final = 1600
"""UTF-16 code units of a message (error 21617)."""
MOST_MEDIA: Final = 10
"""Files of a message (error 21623)."""
STOP_WORDS: Final = frozenset({"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT"})
START_WORDS: Final = frozenset({"START", "YES", "UNSTOP"})
"""Messages of a single word by which somebody wants to be written to no more, or again."""
_E164: Final = re.compile(r"\+[1-9]\d{6,14}")
_PAGE: Final = 50


@attrs.frozen(eq=False)
class TwilioMessage:
    """A message that we have sent.

    Example::

        message = twilio.messages[-1]
        message.to, message.body  # ("+15550101", "hello")
    """

    sid: str
    """Id, which begins with "MM" if there are files and with "SM" otherwise."""
    to: str
    """Number of the receiver, in the form +15550101 (E.164)."""
    sender: str
    """Number of the account that it comes from."""
    body: str
    """Text, "" for files alone."""
    media: tuple[str, ...]
    """Addresses of its files."""
    created: datetime
    """Time at which it was accepted, by the fake's clock."""

    def to_json(self, account_sid: str) -> dict[str, Any]:
        """Return it as the API shows it."""
        path = f"/2010-04-01/Accounts/{account_sid}/Messages/{self.sid}"
        return {
            "account_sid": account_sid,
            "api_version": "2010-04-01",
            "body": self.body,
            "date_created": format_datetime(self.created),
            "date_sent": None,
            "date_updated": format_datetime(self.created),
            "direction": "outbound-api",
            "error_code": None,
            "error_message": None,
            "from": self.sender,
            "messaging_service_sid": None,
            "num_media": str(len(self.media)),
            "num_segments": "1",
            "price": None,
            "price_unit": "USD",
            "sid": self.sid,
            "status": "queued",
            "subresource_uris": {"media": f"{path}/Media.json"},
            "to": self.to,
            "uri": f"{path}.json",
        }


class FakeTwilio(FakeService):
    """An account with one number.

    public_url: where it calls the webhook. clock: wall clock, ms since the epoch.

    Example::

        twilio = FakeTwilio(public_url="https://agent.example.com")
        request = twilio.receive_sms("+15550101", "hello")
        await adapter.receive(request)
        assert twilio.texts_to("+15550101") == ["hi"]
    """

    def __init__(
        self, public_url: str = "https://agent.example.com", clock: Callable[[], int] = lambda: 1_790_000_000_000
    ) -> None:
        super().__init__()
        self.account_sid = "AC" + "0" * 32
        self.auth_token = "twilio-auth-token"  # noqa: S105 the fake's own
        self.number = "+15550100"
        self.public_url = public_url
        self.messages: list[TwilioMessage] = []
        """Messages that were sent to people, in order."""
        self.opted_out: set[str] = set()
        """Numbers that have written STOP. Nothing is sent to them."""
        self.refuses: dict[str, tuple[int, str]] = {}
        """By number, the code and text with which a message there is refused."""
        self.refuses_media = False
        """Messages with files are refused, as in countries without MMS."""
        self.files: dict[str, tuple[str, bytes]] = {}
        """Files that people have sent: by id, the MIME type and content."""
        self.file_requests: list[ServiceRequest] = []
        """Requests for files, first here and then at the place that these redirect to."""
        self._clock = clock
        self._ids = itertools.count(1)

    # ---------------------------------------------------------------- people

    def texts_to(self, number: str) -> list[str]:
        """Return what this person was sent."""
        return [message.body for message in self.messages if message.to == number]

    def receive_sms(
        self,
        sender: str,
        text: str,
        files: Sequence[tuple[str, bytes]] = (),
        *,
        sid: str = "",
        extra: Sequence[tuple[str, str]] = (),
    ) -> WebhookRequest:
        """Let somebody write, and return the request that Twilio makes for it.

        files: MIME types and contents. sid: of a message that comes again. extra: further parameters.

        A word of STOP_WORDS or START_WORDS takes effect at once, as at the service; the webhook is made all the same.
        """
        word = text.strip().upper()
        if word in STOP_WORDS:
            self.opted_out.add(sender)
        elif word in START_WORDS:
            self.opted_out.discard(sender)
        sid = sid or self._new_id("MM" if files else "SM")
        # Empty fields are sent as the service sends them: the signature covers them, too.
        form = [
            ("ToCountry", "US"),
            ("MessageSid", sid),
            ("SmsSid", sid),
            ("SmsMessageSid", sid),
            ("SmsStatus", "received"),
            ("AccountSid", self.account_sid),
            ("From", sender),
            ("To", self.number),
            ("Body", text),
            ("FromCity", ""),
            ("NumSegments", "1"),
            ("NumMedia", str(len(files))),
            ("ApiVersion", "2010-04-01"),
        ]
        for number, (mime, content) in enumerate(files):
            id = self._new_id("ME")
            self.files[id] = (mime, content)
            url = f"{self.base_url}/2010-04-01/Accounts/{self.account_sid}/Messages/{sid}/Media/{id}"
            form += [(f"MediaUrl{number}", url), (f"MediaContentType{number}", mime)]
        return self.webhook([*form, *extra])

    def webhook(self, form: Sequence[tuple[str, str]], path: str = "/channels/sms/twilio") -> WebhookRequest:
        """Return a signed request with this form.

        It is a request as the web server hands it over. Its signature is valid for this path of `public_url` only.
        """
        url = self.public_url + path
        headers = {
            "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
            "user-agent": "TwilioProxy/1.1",
            "x-twilio-signature": self.sign(url, form),
            "i-twilio-idempotency-token": self._new_id("IT"),
        }
        return WebhookRequest("POST", path, headers, urlencode(form).encode(), url)

    def sign(self, url: str, form: Sequence[tuple[str, str]]) -> str:
        """Return the signature of a request (https://www.twilio.com/docs/usage/security#validating-requests).

        The form's fields are sorted by their names, so that their order in the body does not matter.
        """
        text = url + "".join(f"{name}{value}" for name, value in sorted(form))
        return base64.b64encode(hmac.digest(self.auth_token.encode(), text.encode(), "sha1")).decode()

    # ---------------------------------------------------------------- the API

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a call of the API, or hand out a file."""
        account = f"/2010-04-01/Accounts/{self.account_sid}"
        if request.path.startswith("/stored/"):
            return self._stored_file(request)
        if request.headers.get("authorization") != self._credentials():
            return refuse(20003, "Authenticate", 401)
        if request.path == f"{account}.json":
            return json_response({"sid": self.account_sid, "status": "active", "friendly_name": "Fake"})
        if request.path == f"{account}/Messages.json":
            return self._create(request) if request.method == "POST" else self._list(request)
        if "/Media/" in request.path:
            return self._file(request)
        found = [m for m in self.messages if request.path == f"{account}/Messages/{m.sid}.json"]
        if found:
            return json_response(found[0].to_json(self.account_sid))
        return refuse(20404, f"The requested resource {request.path} was not found", 404)

    def _create(self, request: ServiceRequest) -> ServiceResponse:
        """Answer a request to send a message: keep it, or refuse it with the service's code."""
        form = parse_qs(request.body.decode(), keep_blank_values=True)
        to, sender, body = (form.get(name, [""])[0] for name in ("To", "From", "Body"))
        media = tuple(form.get("MediaUrl", ()))
        refusal = self._refusal(to, sender, body, media)
        if refusal is not None:
            return refuse(*refusal)
        created = datetime.fromtimestamp(self._clock() / 1000, UTC)
        message = TwilioMessage(self._new_id("MM" if media else "SM"), to, sender, body, media, created)
        self.messages.append(message)
        return json_response(message.to_json(self.account_sid), 201)

    def _refusal(self, to: str, sender: str, body: str, media: Sequence[str]) -> tuple[int, str] | None:
        """Return code and text of the refusal of a message, None if it is sent."""
        if not to:
            return 21604, "A 'To' phone number is required."
        if not _E164.fullmatch(to):
            return 21211, f"Invalid 'To' Phone Number: {to}"
        if not sender:
            return 21603, "A 'From' phone number is required."
        if sender != self.number:
            return 21659, f"'From' {sender} is not a Twilio phone number or Short Code country mismatch"
        if not body and not media:
            return 21602, "Message body is required."
        if len(body.encode("utf-16-le")) // 2 > LONGEST_BODY:
            return 21617, "The concatenated message body exceeds the 1600 character limit"
        if len(media) > MOST_MEDIA:
            return 21623, "Number of media files exceeds allowed limit"
        if media and self.refuses_media:
            return 21612, f"Message cannot be sent with the current combination of 'To' ({to}) and/or 'From' parameters"
        if any(not url.startswith(("http://", "https://")) for url in media):
            return 21620, "Invalid media URL(s)"
        if to in self.opted_out:
            return 21610, "Attempt to send to unsubscribed recipient"
        return self.refuses.get(to)

    def _list(self, request: ServiceRequest) -> ServiceResponse:
        """Answer with sent messages, the newest first, a page at a time."""
        query = dict(parse_qsl(request.target.partition("?")[2]))
        to, sender = query.get("To"), query.get("From")
        found = [m for m in reversed(self.messages) if to in (None, m.to) and sender in (None, m.sender)]
        # Pages are counted from 0.
        size, page = int(query.get("PageSize", _PAGE)), int(query.get("Page", 0))
        part = [message.to_json(self.account_sid) for message in found[page * size : (page + 1) * size]]
        uri = f"/2010-04-01/Accounts/{self.account_sid}/Messages.json"
        more = (page + 1) * size < len(found)
        return json_response(
            {
                "messages": part,
                "page": page,
                "page_size": size,
                "start": page * size,
                "end": page * size + max(len(part) - 1, 0),
                "uri": uri,
                "first_page_uri": f"{uri}?PageSize={size}&Page=0",
                "previous_page_uri": None,
                "next_page_uri": f"{uri}?{urlencode({**query, 'PageSize': size, 'Page': page + 1})}" if more else None,
            }
        )

    def _file(self, request: ServiceRequest) -> ServiceResponse:
        """Redirect to where the file is stored, as Twilio does.

        Files lie on another host than the API, so a client must follow without its credentials.
        """
        self.file_requests.append(request)
        id = request.path.rpartition("/")[2]
        if id not in self.files:
            return refuse(20404, "The requested resource was not found", 404)
        # Another host name for the same server: clients drop credentials only where the host changes.
        on_loopback = "127.0.0.1" in self.base_url
        place = self.base_url.replace("127.0.0.1", "localhost") if on_loopback else "https://stored.invalid"
        return ServiceResponse(307, b"", {"location": f"{place}/stored/{id}"})

    def _stored_file(self, request: ServiceRequest) -> ServiceResponse:
        """Hand out a file without asking for credentials, which must not be sent to this place (see `file_requests`)."""
        self.file_requests.append(request)
        mime, content = self.files[request.path.rpartition("/")[2]]
        return ServiceResponse(200, content, {"content-type": mime})

    def _credentials(self) -> str:
        """Return the header that a client must send: account and token, as HTTP Basic has them."""
        return "Basic " + base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()

    def _new_id(self, prefix: str) -> str:
        """Return an id in the form of Twilio's: two letters for the kind, and 32 hexadecimal digits."""
        return f"{prefix}{next(self._ids):032x}"


def refuse(code: int, message: str, status: int = 400) -> ServiceResponse:
    """Return a refusal as Twilio words it.

    Example: `refuse(21610, "Attempt to send to unsubscribed recipient")`. The code is what a client decides by.
    """
    more = f"https://www.twilio.com/docs/errors/{code}"
    return json_response({"code": code, "message": message, "more_info": more, "status": status}, status)
