"""Calls of Telegram's Bot API, and what it refuses as exceptions (https://core.telegram.org/bots/api#making-requests).

An answer is `{"ok":true,"result":…}`, or with the code as status `{"ok":false,"error_code":429,"description":"…",
"parameters":{"retry_after":…}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.service_contract import CredentialsRefused, RateLimited, ServiceDown
from pegasus.channels.service_http import GATEWAY_TIMEOUT, LONGEST_REASON, TIMEOUT, open_service_http, wait_seconds
from pegasus.formatting import truncate
from pegasus.messages import Json
from pegasus.wire import decode_object

MOST_FILE_BYTES: Final = 20 << 20
"""Bytes of a file that bots can download (https://core.telegram.org/bots/api#getfile)."""
_FORMAT_WORDS: Final = ("can't parse entities", "can't parse message text", "unsupported start tag", "entity")
"""Words of refusals that are about the markup of a text."""


class FormatRefused(ReplyRefused):
    """Telegram cannot read the markup of a text. It is to be sent as plain text."""


class GroupMoved(ReplyRefused):
    """The group has become a supergroup with another id.

    Example: `raise GroupMoved(-1001234)`. The sender remembers the new id and repeats the call there.
    """

    def __init__(self, chat_id: int) -> None:
        super().__init__(f"the group has become the supergroup {chat_id}")
        self.chat_id = chat_id


class BotApi:
    """The Bot API of one bot."""

    def __init__(self, base_url: str, token: str, transport: Any = None) -> None:
        self._path = f"/bot{token}"
        self._file_path = f"/file/bot{token}"
        self.http = open_service_http(base_url, transport)

    async def call(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        files: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Return the `result` of a call.

        files: by field, as (name, bytes, MIME type); params then travel as fields of a form, nested ones as JSON. timeout: seconds.

        Raises ServiceDown, RateLimited, CredentialsRefused, and ReplyRefused for every other refusal, with FormatRefused and
        GroupMoved for two that can be helped.
        """
        body: dict[str, Any] = {"json": dict(params or {})} if files is None else {"data": params, "files": files}
        response = await self.http.request("POST", f"{self._path}/{method}", timeout=timeout, **body)
        try:
            answer = decode_object(response.content)
        except ValueError:
            raise ServiceDown(f"it answers with something that is no JSON (status {response.status_code})") from None
        if answer.get("ok") is True:
            return answer.get("result")
        raise _refusal(method, response.status_code, answer)

    async def download(self, file_path: str) -> bytes:
        """Return the content of a file that `getFile` has named. Raises ServiceDown, ReplyRefused."""
        response = await self.http.request("GET", f"{self._file_path}/{file_path}", most_bytes=MOST_FILE_BYTES)
        if response.status_code != 200:
            raise ReplyRefused(f"the file is not there (status {response.status_code})")
        return response.content


def _refusal(method: str, status: int, answer: Mapping[str, Json]) -> Exception:
    code = answer.get("error_code")
    code = code if isinstance(code, int) else status
    description = truncate(str(answer.get("description") or f"status {status}"), LONGEST_REASON)
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    moved, seconds = parameters.get("migrate_to_chat_id"), parameters.get("retry_after")
    if code == 401 or (code == 404 and method == "getMe"):  # 404: what is no token at all
        return CredentialsRefused(f"Telegram refuses the bot token ({description})")
    if code == 429:
        return RateLimited(wait_seconds(seconds, 5.0))
    if isinstance(moved, int):
        return GroupMoved(moved)
    if code >= 500 or code == 409:  # 409: another program polls with this token
        return ServiceDown(f"Telegram answers: {description}", may_have_acted=code == GATEWAY_TIMEOUT)
    # Telegram has one code for all of these, so its words decide.
    if code == 400 and any(word in description.lower() for word in _FORMAT_WORDS):
        return FormatRefused(description)
    return ReplyRefused(f"Telegram refuses it: {description}")
