"""Requests of clients, as classes. Unknown fields are ignored, as the protocol asks for; a wrong value names its field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import attrs

from pegasus.a2a.errors import bad_params
from pegasus.a2a.record import TASK_STATES
from pegasus.conversation import clean_text
from pegasus.formatting import quote
from pegasus.intake import NAME_RULE, is_name
from pegasus.messages import Json
from pegasus.wire import WireError, camel, encode_json, from_wire

MOST_PARTS: Final = 100
"""Parts of a message."""
LONGEST_TEXT: Final = 200_000
"""Characters of all text of a message."""
DEFAULT_PAGE: Final = 50
"""Tasks of a page, where the client names no number."""
LARGEST_PAGE: Final = 100
"""Tasks of a page, at most."""
_CONTENTS: Final = ("text", "raw", "url", "data")
_ROLES: Final = ("ROLE_USER", "user")
"""Role of a client's message; the second is that of earlier versions, which some clients send."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")

T = TypeVar("T")


@attrs.frozen
class AuthenticationForm:
    """Proof for a push target that a notification is ours."""

    scheme: str = ""
    credentials: str = ""


@attrs.frozen
class PushForm:
    """A push target, TaskPushNotificationConfig."""

    url: str = ""
    id: str = ""
    task_id: str = ""
    token: str = ""
    authentication: AuthenticationForm = AuthenticationForm()


@attrs.frozen
class SendOptions:
    """SendMessageConfiguration."""

    history_length: int | None = None
    return_immediately: bool = False
    task_push_notification_config: PushForm | None = None
    accepted_output_modes: tuple[str, ...] = ()


@attrs.frozen
class MessageForm:
    """The message of a client."""

    message_id: str = ""
    role: str = ""
    parts: tuple[Mapping[str, Json], ...] = ()
    context_id: str = ""
    task_id: str = ""


@attrs.frozen
class SendForm:
    """SendMessageRequest."""

    message: MessageForm
    configuration: SendOptions = SendOptions()


@attrs.frozen
class TaskForm:
    """A request about one task: its id, and what is to be shown of it."""

    id: str = ""
    history_length: int | None = None


@attrs.frozen
class ListForm:
    """ListTasksRequest."""

    context_id: str = ""
    status: str = ""
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: str = ""
    include_artifacts: bool = False


@attrs.frozen
class ConfigForm:
    """A request about the push targets of a task."""

    task_id: str = ""
    id: str = ""
    page_size: int | None = None
    page_token: str = ""


@attrs.frozen
class MessageContent:
    """Content of a message: `MessageContent("read this", ({"name": "a.pdf", …},))`."""

    text: str
    """All text, with data as JSON and the addresses of files."""
    media: tuple[Json, ...]
    """Files that came with it, as the agent's own protocol has them."""


def read_form(params: Json, form: type[T]) -> T:
    """Return the parameters of a request. Raises A2aError for a value that does not fit."""
    try:
        return from_wire(_plain(params if params is not None else {}), form, is_foreign=True)
    except WireError as error:
        raise bad_params(error.path, error.problem) from None


def _plain(value: Json) -> Json:
    """Return ProtoJSON in one form: null means missing, and names may be in snake_case. Data stays as it is."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    return {
        camel(key): inner if key in ("data", "metadata") else _plain(inner)
        for key, inner in value.items()
        if inner is not None or key == "data"
    }


def check_history(length: int | None) -> None:
    """Raise A2aError for a length of the history that is none."""
    if length is not None and not 0 <= length < 2**31:
        raise bad_params("historyLength", f"found {length}, allowed: a whole number from 0")


def check_message(message: MessageForm) -> None:
    """Raise A2aError for a message without what each must have."""
    if not is_name(message.message_id):
        raise bad_params("message.messageId", f"found {quote(message.message_id, 80)}, allowed: {NAME_RULE}")
    if message.role not in _ROLES:
        raise bad_params("message.role", f"found {quote(message.role, 40)}, allowed: ROLE_USER")
    if not 0 < len(message.parts) <= MOST_PARTS:
        raise bad_params("message.parts", f"found {len(message.parts)} parts, allowed: 1 to {MOST_PARTS}")
    if message.context_id and (not is_name(message.context_id) or "/" in message.context_id):
        raise bad_params(
            "message.contextId", f'found {quote(message.context_id, 80)}, allowed: {NAME_RULE}, without "/"'
        )


def content_of(parts: Sequence[Mapping[str, Json]]) -> MessageContent:
    """Return what the parts of a message say. Raises A2aError for a part that is none.

    The address of a file is handed on as text: a task that wants the file fetches it by its own tools, within their bounds.
    """
    texts: list[str] = []
    media: list[Json] = []
    for n, part in enumerate(parts):
        match [(key, part[key]) for key in _CONTENTS if part.get(key) is not None or (key == "data" and key in part)]:
            case [("text", str(text))]:
                texts.append(text)
            case [("url", str(url))]:
                texts.append(f"({_label(part, n)}: {url})")
            case [("raw", str(raw))]:
                # Both alphabets of base64 are allowed.
                name, mime = _name(part, n), _mime(part)
                media.append({"name": name, "mime": mime, "data": raw.replace("-", "+").replace("_", "/")})
            case [("data", data)]:
                texts.append(encode_json(data, indent=1))
            case _:
                raise bad_params(f"message.parts[{n}]", "allowed: exactly one of text, raw, url (texts) and data")
    text = clean_text("\n\n".join(texts))
    if len(text) > LONGEST_TEXT:
        raise bad_params("message.parts", f"found {len(text):,} characters, allowed: {LONGEST_TEXT:,}")
    return MessageContent(text, tuple(media))


def _name(part: Mapping[str, Json], n: int) -> str:
    name = part.get("filename")
    return name if isinstance(name, str) and name else f"file-{n + 1}"


def _mime(part: Mapping[str, Json]) -> str:
    mime = part.get("mediaType")
    return mime if isinstance(mime, str) and mime else "application/octet-stream"


def _label(part: Mapping[str, Json], n: int) -> str:
    return f"file {_name(part, n)}, {_mime(part)}"


@attrs.frozen
class TaskPage:
    """Tasks that a list is to show."""

    size: int
    states: frozenset[str]
    """States of the protocol; empty: all."""
    since: int
    """Wall clock, ms."""


def page_of(form: ListForm) -> TaskPage:
    """Return what a list is to show. Raises A2aError for what it cannot."""
    check_history(form.history_length)
    size = DEFAULT_PAGE if form.page_size is None else form.page_size
    if not 1 <= size <= LARGEST_PAGE:
        raise bad_params("pageSize", f"found {size}, allowed: 1 to {LARGEST_PAGE}")
    if form.status and form.status not in TASK_STATES:
        raise bad_params("status", f"found {quote(form.status, 40)}, allowed: {', '.join(TASK_STATES)}")
    return TaskPage(size, frozenset({form.status} if form.status else ()), _time_of(form.status_timestamp_after))


def _time_of(text: str) -> int:
    if not text:
        return 0
    error = bad_params("statusTimestampAfter", f"found {quote(text, 40)}, allowed: a time as 2026-01-31T10:00:00Z")
    if not _TIME.fullmatch(text):
        raise error
    try:
        # Python reads at most six digits of a second.
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
        return int(found.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):  # in UTC it may be beyond the last year
        raise error from None


def query_params(query: Mapping[str, str]) -> dict[str, Json]:
    """Return the parameters that a request without a body has in its query. Raises A2aError."""
    params: dict[str, Json] = {}
    for key, text in query.items():
        if key in ("historyLength", "pageSize"):
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
                raise bad_params(key, f"found {quote(text, 40)}, allowed: a whole number")
            params[key] = int(text)
        elif key == "includeArtifacts":
            if text not in ("true", "false"):
                raise bad_params(key, f"found {quote(text, 40)}, allowed: true or false")
            params[key] = text == "true"
        else:
            params[key] = text
    return params
