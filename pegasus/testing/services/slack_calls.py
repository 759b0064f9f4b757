"""Calls of the fake Slack's Web API: how they arrive, what makes them invalid, and the faults that a test can choose.

    slack.fault = lambda call: rate_limited(30) if call.method == "chat.postMessage" else None

A call is a request of HTTP whose path names a method. Its parameters come in three forms, which the service accepts for
all methods, so a test that looks at `SlackCall.params` need not know which one a client uses.

Slack answers a call that it refuses with status 200 and an error code in the JSON. Other statuses come only from faults
of the service itself. The two need different reactions of a client, so that they are separate here: `SlackRefusal` is
raised by the methods of the workspace, and a `SlackHttpAnswer` is chosen by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import attrs

from pegasus.messages import Json
from pegasus.wire import decode_json, decode_object, encode_json

LONGEST_SECTION: Final = 3_000
"""Characters of the text of a section block."""


@attrs.frozen
class SlackCall:
    """A call of the Web API as it arrived.

    Example::

        [call] = slack.called("chat.postMessage")
        call.params["text"]  # "hello"
    """

    method: str
    """Such as "chat.postMessage"."""
    params: Mapping[str, Any]
    """Parameters; lists and objects that came as JSON text are parsed."""
    at: float
    """Trio's clock."""


@attrs.frozen
class SlackHttpRequest:
    """A request as the shells hand it over.

    Example::

        headers = {"authorization": f"Bearer {BOT_TOKEN}", "content-type": "application/json"}
        slack.handle(SlackHttpRequest("POST", "https://slack.com/api/auth.test", headers, b"{}"))
    """

    method: str
    """Method of HTTP, such as "POST"."""
    url: str
    """Path with query; a full address where the client was given one."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    """Form, JSON or the content of an upload."""


@attrs.frozen
class SlackHttpAnswer:
    """An answer, or a fault: `hang_up` closes the connection instead.

    Example::

        SlackHttpAnswer(200, b'{"ok":true}', {"content-type": "application/json"})
        slack.fault = lambda call: broken(503, is_late=True)  # every call takes effect, and its answer is lost
    """

    status: int = 200
    """Status of HTTP."""
    body: bytes = b""
    """Content."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Headers by name."""
    hang_up: bool = False
    """The connection ends without an answer."""
    is_late: bool = False
    """As a fault: the call takes effect, and this is answered instead of its result."""


class SlackRefusal(Exception):
    """An error code of the Web API, which comes with status 200.

    Raised by a method of the workspace; `SlackWorkspace.handle` makes the answer of it.

    Example::

        raise SlackRefusal("unknown_method", req_method="chat.sing")  # {"ok":false,"error":"unknown_method","req_method":"chat.sing"}
    """

    def __init__(self, code: str, **details: Json) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


# ------------------------------------------------------------------ reading calls


def parse_parameters(request: SlackHttpRequest) -> dict[str, Any]:
    """Return the parameters of a call: those of the query, and a form or a JSON object in the body.

    Lists and objects in a form are JSON text, as `blocks` and `files` are.
    """
    params: dict[str, Any] = dict(parse_qsl(urlsplit(request.url).query))
    if request.headers.get("content-type", "").startswith("application/json"):
        return params | decode_object(request.body or b"{}")
    for key, value in parse_qsl(request.body.decode()):
        params[key] = decode_json(value) if key in ("blocks", "files", "metadata") else value
    return params


def check_block(block: Mapping[str, Any]) -> None:
    """Raise SlackRefusal for a block that Block Kit does not allow; of kinds the fake knows what the adapter uses."""
    kind = block.get("type")
    if kind == "section":
        if not 0 < len(block["text"]["text"]) <= LONGEST_SECTION:
            raise SlackRefusal("invalid_blocks")
    elif kind == "actions":
        elements = block["elements"]
        # Limits of https://docs.slack.dev/reference/block-kit/block-elements/button-element
        names = [element["action_id"] for element in elements]
        texts = [element["text"]["text"] for element in elements]
        if not 0 < len(elements) <= 25 or len(set(names)) < len(names) or any(len(text) > 75 for text in texts):
            raise SlackRefusal("invalid_blocks")
        if any(len(element.get("value", "")) > 2000 for element in elements):
            raise SlackRefusal("invalid_blocks")
    else:
        raise SlackRefusal("invalid_blocks")


# ------------------------------------------------------------------ faults


def refused(code: str, **details: Json) -> SlackHttpAnswer:
    """Return the answer with an error code."""
    body: dict[str, Json] = {"ok": False, "error": code, **details}
    return SlackHttpAnswer(200, encode_json(body).encode(), {"content-type": "application/json"})


def rate_limited(seconds: int) -> SlackHttpAnswer:
    """Return the answer to a client that calls too often."""
    return attrs.evolve(refused("ratelimited"), status=429, headers={"retry-after": str(seconds)})


def broken(status: int = 503, *, is_late: bool = False) -> SlackHttpAnswer:
    """Return the answer of a service that is down. is_late: the call has taken effect."""
    return SlackHttpAnswer(status, b"<html>upstream error</html>", {"content-type": "text/html"}, is_late=is_late)


def hung_up(*, is_late: bool = False) -> SlackHttpAnswer:
    """Return the fault that closes the connection without an answer. is_late: the call has taken effect."""
    return SlackHttpAnswer(hang_up=True, is_late=is_late)
