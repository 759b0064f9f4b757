"""Calls of Slack's Web API: parameters out, results in, and errors sorted into what the adapter does about them.

    api = SlackApi("https://slack.com/api", bot_token="xoxb-…", app_token="xapp-…")
    sent = await api.call("chat.postMessage", channel="C1", text="hello")
    sent["ts"]

An answer that is no success raises

* `CredentialsRefused`: the token does not count (any more). Nothing that is tried again would help.
* `RateLimited`: 429, with the seconds of `Retry-After`.
* `ServiceDown`: no connection, no answer in time, 5xx, or an error of Slack's own. What was asked for may have happened.
* `SlackRefused`: any other error code. The same call would fail again.

The token goes to Slack's hosts only: to that of the base address and, where that is slack.com, to its subdomains over https. No
redirect is followed.

Sources: https://docs.slack.dev/apis/web-api, https://docs.slack.dev/messaging/working-with-files
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx2

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.service_contract import CredentialsRefused, RateLimited, ServiceDown
from pegasus.channels.service_http import HttpReply, open_service_http, wait_seconds
from pegasus.formatting import truncate
from pegasus.wire import decode_object, encode_json

FILE_TIMEOUT: Final = 60.0
"""Seconds without a byte of a file."""
DEFAULT_PAUSE: Final = 30.0
"""Seconds to leave Slack alone after a 429 that names no time."""

_REVOKED: Final = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_authed",
        "not_allowed_token_type",
        "org_login_required",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
        "user_removed_from_team",
    }
)
"""Error codes that say that the token does not count."""
_TRANSIENT: Final = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
"""Error codes of a service that has trouble of its own."""
_LIMITED: Final = frozenset({"ratelimited", "rate_limited"})
"""Error codes by which some methods say what others say by 429."""


class SlackRefused(ReplyRefused):
    """An error code of the Web API which the same call would get again. str() is one line with the code."""

    def __init__(self, method: str, code: str, needed: str = "") -> None:
        scope = f"; the app needs the scope {needed}" if needed else ""
        super().__init__(f"Slack refuses {method}: {code}{scope}")
        self.code = code


class SlackApi:
    """The Web API with the tokens of one app."""

    def __init__(
        self, base_url: str, bot_token: str, app_token: str = "", transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """transport: in place of the network, for tests."""
        self._base_url = base_url.rstrip("/")
        self._bot_token = bot_token
        self._app_token = app_token
        self.http = open_service_http(self._base_url, transport)

    # ---------------------------------------------------------------- methods

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Call a method and return its result. Parameters that are None are left out.

        `apps.connections.open` is called with the app's token, everything else with the bot's. Raises as the top of this file says.
        Cancelled, the call may have taken effect.
        """
        is_app = method == "apps.connections.open"
        token, setting = (self._app_token, "app_token") if is_app else (self._bot_token, "bot_token")
        given = {key: value for key, value in params.items() if value is not None}
        if method.startswith("chat."):  # methods that write take JSON; those that read take forms only
            body, kind = encode_json(given), "application/json; charset=utf-8"
        else:
            body = urlencode({key: _form_value(value) for key, value in given.items()})
            kind = "application/x-www-form-urlencoded"
        headers = {"authorization": f"Bearer {token}", "content-type": kind}
        response = await self.http.request("POST", f"/{method}", content=body.encode(), headers=headers)
        if response.status_code == 429:
            raise RateLimited(wait_seconds(response.headers.get("retry-after"), DEFAULT_PAUSE))
        try:
            return _read_result(method, response)
        except CredentialsRefused as error:
            raise CredentialsRefused(f"{error} (channels.slack.{setting})") from None

    async def open_socket_url(self) -> str:
        """Return a new address for Socket Mode. Raises as `call`, and CredentialsRefused for everything that Slack refuses."""
        try:
            return str((await self.call("apps.connections.open"))["url"])
        except SlackRefused as error:
            raise CredentialsRefused(f"{error} (channels.slack.app_token)") from None

    # ---------------------------------------------------------------- files

    async def upload(self, name: str, data: bytes) -> str:
        """Upload a file, which nobody sees before it is shared; return its id. Raises as `call`."""
        ticket = await self.call("files.getUploadURLExternal", filename=name, length=len(data))
        # The address holds a secret of its own, so the upload needs no token, and none is sent there.
        response = await self.http.request("POST", str(ticket["upload_url"]), content=data, timeout=FILE_TIMEOUT)
        if response.status_code != 200:
            raise ServiceDown(f"an upload is answered with status {response.status_code}")
        return str(ticket["file_id"])

    async def share(self, id: str, title: str, channel: str, thread_ts: str | None) -> str:
        """Share an uploaded file in a conversation; return its id. Raises as `call`.

        Until this call nobody sees the file. A call whose outcome is not known can be looked up by the file's
        id.
        """
        files = [{"id": id, "title": title}]
        await self.call("files.completeUploadExternal", files=files, channel_id=channel, thread_ts=thread_ts)
        return id

    async def download(self, url: str, limit: int) -> bytes:
        """Return the content of a file at its `url_private`.

        limit: bytes. Raises SlackRefused if Slack does not give it to this app or if it is not on Slack's host; ServiceDown if it is
        larger, redirected or cannot be reached, and RateLimited.
        """
        if not self._is_slack(url):
            raise SlackRefused("files", "not_on_slack")
        headers = {"authorization": f"Bearer {self._bot_token}"}
        response = await self.http.request("GET", url, headers=headers, timeout=FILE_TIMEOUT, most_bytes=limit)
        if response.status_code == 429:
            raise RateLimited(wait_seconds(response.headers.get("retry-after"), DEFAULT_PAUSE))
        if response.status_code != 200:
            raise SlackRefused("files", f"http_{response.status_code}")
        # Where the token lacks a scope, Slack answers 200 with its page for signing in. That must not be taken
        # for the file.
        if response.headers.get("content-type", "").startswith("text/html"):  # the page to sign in
            raise SlackRefused("files", "no_access", "files:read")
        return response.content

    def _is_slack(self, url: str) -> bool:
        """Return whether the token may be sent to this address."""
        try:
            asked, own = urlsplit(url), urlsplit(self._base_url)
            if (asked.scheme, asked.netloc) == (own.scheme, own.netloc):
                return True
            host = asked.hostname or ""
            return own.hostname == "slack.com" and asked.scheme == "https" and host.endswith(".slack.com")
        except ValueError:
            return False


def _form_value(value: Any) -> str:
    """Return a parameter as it stands in a form. Lists and objects are JSON there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return encode_json(value) if isinstance(value, list | dict) else str(value)


def _read_result(method: str, response: HttpReply) -> dict[str, Any]:
    """Return the result in a response. Raises what stands for its error code."""
    try:
        result: dict[str, Any] = decode_object(response.content)
    except ValueError:
        raise ServiceDown(f"what answers is not Slack's Web API (HTTP {response.status_code})") from None
    if result.get("ok") is True:
        return result
    code = truncate(str(result.get("error") or "unknown_error"), 80)
    # Sorted by code and not by status: Slack answers 200 for most errors.
    if code in _REVOKED:
        raise CredentialsRefused(f"Slack refuses the token: {code}")
    if code in _LIMITED:
        raise RateLimited(wait_seconds(response.headers.get("retry-after"), DEFAULT_PAUSE))
    if code in _TRANSIENT:
        raise ServiceDown(f"Slack has an error of its own: {code}", may_have_acted=False, says_failed=True)
    raise SlackRefused(method, code, truncate(str(result.get("needed") or ""), 80))
