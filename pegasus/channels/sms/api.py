"""Calls of Twilio's Messages API, and what it refuses as exceptions.

An answer is JSON: a message with its `sid`, or `{"code":21610,"message":"…","status":400}`; the codes are listed on
https://www.twilio.com/docs/api/errors.

The API has no key by which a repeated call is recognised. `sent_to` asks instead which messages a number was sent lately, so that a
call whose answer was lost need not be made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import httpx2

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.service_contract import CredentialsRefused, RateLimited, ServiceDown
from pegasus.channels.service_http import LONGEST_REASON, HttpReply, open_service_http, wait_seconds
from pegasus.channels.sms.webhook import RemoteFile
from pegasus.formatting import truncate
from pegasus.loopback import is_loopback
from pegasus.messages import Json
from pegasus.wire import decode_object

MOST_FILE_BYTES: Final = 20 << 20
"""Bytes of a file that are fetched."""
MOST_REDIRECTS: Final = 3
"""Redirects that are followed for one file. Twilio makes one, to the store of its files."""
PAGE: Final = 50
"""Messages that are looked at to find one that was sent."""
ACCOUNT_CODES: Final = frozenset({10001, 20003, 20005, 20006, 20404, 20008})
"""The account, its token or its state is the reason, so that no message can be sent."""
SENDER_CODES: Final = frozenset({21212, 21603, 21659, 21660})
"""The number of `from_number` cannot send at all."""
BUSY_CODES: Final = frozenset({20429, 21611, 14107})
"""Too many requests or messages at the moment: the account waits and tries again."""
FILE_CODES: Final = frozenset({21620, 21623, 21628, 21612, 12300, 11200, 19003, 30008, 21635})
"""A file that was attached may be the reason. Its link in the text is enough then."""


class FileRefused(ReplyRefused):
    """Twilio refuses a message because of a file that is attached to it."""


@attrs.frozen
class SentSms:
    """A message that Twilio has taken: its id, text and time."""

    sid: str
    """Id of the message at Twilio."""
    body: str
    """Its text, exactly as it was given to Twilio."""
    date_created: str
    """Time at which Twilio has taken it, in the form of RFC 2822."""

    @property
    def created(self) -> datetime | None:
        """Return its time, None if that cannot be read."""
        try:
            return parsedate_to_datetime(self.date_created)
        except ValueError:
            return None


class TwilioApi:
    """The Messages API of one account."""

    def __init__(self, base_url: str, account_sid: str, auth_token: str, sender: str, transport: Any = None) -> None:
        self._base_url = base_url.rstrip("/")
        self._account = f"/2010-04-01/Accounts/{account_sid}"
        self._auth = (account_sid, auth_token)
        self._sender = sender
        # A messaging service is a pool of numbers, which Twilio chooses from.
        self._sender_key = "MessagingServiceSid" if sender.startswith("MG") else "From"
        self.http = open_service_http(self._base_url, transport)

    async def check(self) -> None:
        """Find out whether the service is there and takes the token. Raises ServiceDown, RateLimited, CredentialsRefused.

        A key that may only send messages is refused here by another status than 401, and is good enough.

        Called when the actor starts, so that wrong credentials park the channel before the first reply needs
        them.
        """
        response = await self.http.request("GET", f"{self._account}.json", auth=self._auth)
        if response.status_code in (401, 429):
            raise _refusal_of(response)

    async def send(self, to: str, body: str, media: Sequence[str] = ()) -> str:
        """Send a message; return its id. media: addresses from which Twilio fetches files.

        Raises ServiceDown (the message may have been sent), RateLimited, CredentialsRefused, and ReplyRefused for every other refusal.
        """
        form: dict[str, Any] = {"To": to, self._sender_key: self._sender, "Body": body}
        if media:
            form["MediaUrl"] = list(media)
        response = await self.http.request("POST", f"{self._account}/Messages.json", data=form, auth=self._auth)
        if response.status_code >= 400:
            raise _refusal_of(response, has_files=bool(media))
        sid = _object(response.content).get("sid")
        if not isinstance(sid, str) or not sid:
            raise ServiceDown("it answers without the id of the message")
        return sid

    async def sent_to(self, to: str) -> list[SentSms] | None:
        """Return the messages that this number was sent lately, the newest first. Raises ServiceDown, RateLimited.

        None if the service does not tell, as for a key that may not read.
        """
        # With a pool the number that a message was sent from is not known beforehand.
        only = {"From": self._sender} if self._sender_key == "From" else {}
        query = str(httpx2.QueryParams({"To": to, **only, "PageSize": str(PAGE)}))
        response = await self.http.request("GET", f"{self._account}/Messages.json?{query}", auth=self._auth)
        if response.status_code == 429:
            raise _refusal_of(response)
        messages = _object(response.content).get("messages") if response.status_code == 200 else None
        return [_sent(entry) for entry in messages if isinstance(entry, dict)] if isinstance(messages, list) else None

    async def fetch(self, file: RemoteFile) -> bytes:
        """Return the content of a file that somebody has sent.

        The credentials go to Twilio's own host only. Twilio redirects to where the file is stored, which is asked without them.

        Raises ServiceDown, after which it may be tried again, and ReplyRefused for a file that cannot be fetched.
        """
        url = file.url
        for _ in range(MOST_REDIRECTS + 1):
            is_ours = self._is_twilio(url)
            if not is_ours and (url == file.url or urlsplit(url).scheme != "https") and not self._is_local(url):
                raise ReplyRefused("its address is not one of Twilio's")
            response = await self._get(url, self._auth if is_ours else None)
            if isinstance(response, bytes):
                return response
            url = response
        raise ReplyRefused("too many redirects")

    async def _get(self, url: str, auth: tuple[str, str] | None) -> bytes | str:
        """Return the content of an address, or the address that it redirects to."""
        try:
            async with self.http.stream("GET", url, auth=auth) as response:
                if response.has_redirect_location:
                    return str(response.url.join(response.headers["location"]))
                # A message may come before its file can be fetched, so a 404 is worth another try.
                if response.status_code == 404 or response.status_code >= 500 or response.status_code == 429:
                    raise ServiceDown(f"the file is not there (status {response.status_code})")
                if response.status_code != 200:
                    raise ReplyRefused(f"the file is not there (status {response.status_code})")
                content = bytearray()
                # Counted as it comes: the length in the header may be missing or wrong.
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MOST_FILE_BYTES:
                        raise ReplyRefused(f"the file has more than {MOST_FILE_BYTES >> 20} MiB")
                return bytes(content)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ServiceDown(f"the file cannot be fetched ({type(error).__name__})") from None
        except (httpx2.InvalidURL, ValueError):
            raise ReplyRefused("its address makes no sense") from None

    def _is_twilio(self, url: str) -> bool:
        """Return whether the credentials may go to this address: the API's own, or another one of Twilio's.

        A name before the host ("https://api.twilio.com@evil.example") is refused by the comparison of hosts;
        one with a user name is refused altogether.
        """
        own, other = urlsplit(self._base_url), urlsplit(url)
        if (own.scheme, own.netloc) == (other.scheme, other.netloc):
            return True
        return other.scheme == "https" and (other.hostname or "").endswith(".twilio.com") and not other.username

    def _is_local(self, url: str) -> bool:
        """Return whether this is an address on this machine, for a service that runs on it, too."""
        own, other = urlsplit(self._base_url), urlsplit(url)
        return all(part.scheme == "http" and is_loopback(part.hostname or "") for part in (own, other))


def _refusal_of(response: HttpReply, *, has_files: bool = False) -> Exception:
    """Return the exception for an answer that says no. has_files: files are attached, which may be the reason."""
    try:
        answer = decode_object(response.content)
    except ValueError:
        answer = {}
    code, status = answer.get("code"), response.status_code
    reason = truncate(str(answer.get("message") or f"status {status}"), LONGEST_REASON)
    if isinstance(code, int) and code:
        reason += f" ({code})"
    # The order of these checks matters: a code says more than the status, which is 400 for most refusals.
    if status == 429 or code in BUSY_CODES:
        return RateLimited(wait_seconds(response.headers.get("retry-after"), 1.0), for_all=True)
    if status == 401 or code in ACCOUNT_CODES:
        return CredentialsRefused(f"Twilio refuses account_sid or auth_token: {reason}")
    if code in SENDER_CODES:
        return CredentialsRefused(f"Twilio refuses from_number: {reason}")
    if status in (408, 425):
        return ServiceDown(reason)
    # Some of these codes have other causes as well. A second try without the files finds out.
    kind = FileRefused if has_files and code in FILE_CODES else ReplyRefused
    return kind(f"Twilio refuses it: {reason}")


def _object(content: bytes) -> dict[str, Json]:
    try:
        return decode_object(content)
    except ValueError:
        raise ServiceDown("it answers with something that is no JSON") from None


def _sent(entry: Mapping[str, Json]) -> SentSms:
    return SentSms(str(entry.get("sid")), str(entry.get("body")), str(entry.get("date_created")))
