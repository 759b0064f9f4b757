"""Tools that speak HTTP: http_get, http_post, http_request, and the conversion of a body into something a model can read.

Text is decoded in whatever encoding it has. Small binary bodies are returned as base64, larger ones
are only described, because a model can do little with them and they would fill its window.

Every HTTP status is a result and not an error: a page that says 404 tells the model something. An
error means that there was no answer. Requests that change something are not repeated after a crash.
They carry the key of the call as `Idempotency-Key` though, so that a server which knows the header
ignores a repetition that happens further down, for instance in a proxy.

The character set of a page is a claim of a stranger. A wrong or unknown one costs some replacement
characters and never an error, and only the encodings of `pegasus.tools.text` are used.

The result is cut to the room that the conversation has, and says so. The connection itself (which addresses,
redirects, compression, size) is the matter of `http_client`; this file only translates.
"""

from __future__ import annotations

import base64
import codecs
import re
from typing import Any, Final

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.text import PROBE, detect_encoding, find_codec
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import HttpAnswer, fetch
from pegasus.wire import decode_json, encode_json

# ------------------------------------------------------------------ the tools

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
"""Methods that http_request offers. CONNECT and TRACE are for proxies."""
_CHANGING_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods that get the key of the call."""
_MAX_HEADER: Final = 1000
"""Characters of one response header that are shown."""
_ROOM_FOR_HEADERS: Final = 3000
"""Characters of a result that are left for what is not the body."""

_URL: Final[Json] = {"type": "string", "description": "http:// or https:// address"}
"""Schema of an address."""
_HEADERS: Final[Json] = {"type": "object", "description": "Request headers", "additionalProperties": {"type": "string"}}
"""Schema of request headers."""
_BODY: Final[Json] = {
    "type": ["string", "object", "array"],
    "description": "Text as it is to be sent, or an object or array, which is sent as JSON",
}
"""Schema of a body. Objects are allowed because models pass them anyway."""
_COMMON: Final = (
    "Returns url, status, statusText, headers and body; redirects are followed. Only public addresses are reached. "
    "Long bodies are cut."
)
"""Part of all three descriptions."""
_GET: Final = ToolSpec(
    "http_get", f"Fetch a web address by GET. {_COMMON}", parameters({"url": _URL, "headers": _HEADERS}, "url")
)
_POST: Final = ToolSpec(
    "http_post",
    f"Send a body to a web address by POST. {_COMMON}",
    parameters({"url": _URL, "body": _BODY, "headers": _HEADERS}, "url"),
)
_REQUEST: Final = ToolSpec(
    "http_request",
    f"Send any HTTP request. {_COMMON}",
    parameters(
        {"method": {"type": "string", "enum": list(_METHODS)}, "url": _URL, "body": _BODY, "headers": _HEADERS},
        *("method", "url"),
    ),
)
_MORE: Final = "Ask for a part of it, if the server offers that."
"""Advice of a result that was cut."""


def fetch_tools(guard: AddressGuard) -> tuple[Tool, ...]:
    """Return http_get, http_post and http_request. Only a GET may be repeated after a crash without asking.

    guard: refuses inner addresses.

        tools = fetch_tools(AddressGuard())
    """

    def tool(spec: ToolSpec, method: str, effect: Effect) -> Tool:
        """Return a tool. method: "" if the model gives it."""

        async def run(arguments: Any, context: ToolContext) -> Json:
            """Send the request. Only http_request takes its method from the model."""
            return await _send(guard, method or arguments["method"], arguments, context)

        reach = Reach.FETCH if method == "GET" else Reach.OUTSIDE
        return Tool(spec, run, "network", effect, more=_MORE, reach=reach, source=Untrusted.WEB)

    return (
        tool(_GET, "GET", Effect.PURE),
        tool(_POST, "POST", Effect.ONCE),
        tool(_REQUEST, "", Effect.ONCE),
    )


async def _send(guard: AddressGuard, method: str, arguments: Any, context: ToolContext) -> Json:
    """Send a request with the arguments of a tool and return the answer as JSON."""
    headers = {name.lower(): value for name, value in (arguments.get("headers") or {}).items()}
    body = _encode_body(arguments.get("body"), headers)
    if method in _CHANGING_METHODS and context.key:
        headers.setdefault("idempotency-key", context.key)  # servers that know this header do the same thing only once
    answer = await fetch(guard, method, arguments["url"], headers, body)
    # Half of the result at least is for the body, however small the result may be.
    room = max(context.max_result - _ROOM_FOR_HEADERS, context.max_result // 2)
    return {
        "url": answer.url,
        "status": answer.status,
        "statusText": answer.reason,
        "headers": {name: value[:_MAX_HEADER] for name, value in answer.headers.items()},
        **describe_body(answer, room),
    }


def _encode_body(body: Json, headers: dict[str, str]) -> bytes | None:
    """Return the bytes to send, and set the content type unless the caller has. Objects and arrays are sent as JSON."""
    if body is None:
        return None
    if not isinstance(body, str):
        headers.setdefault("content-type", "application/json")
        body = encode_json(body)
    elif "content-type" not in headers:
        headers["content-type"] = "application/json" if _is_json(body) else "text/plain; charset=utf-8"
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the body holds characters that are not text: {error}") from error


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or array. Models pass JSON as text more often than as an object."""
    try:
        return isinstance(decode_json(text), dict | list)
    except ValueError:
        return False


# ------------------------------------------------------------------ bodies

MAX_BINARY: Final = 16 * 1024
"""Bytes of a binary body that are still returned, as base64."""

_TEXT_TYPES: Final = re.compile(
    r"text/.*|.*\+(json|xml|yaml)|application/(json|xml|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|graphql|sql"
    r"|x-ndjson|ndjson|x-www-form-urlencoded|x-sh|rtf)|image/svg\+xml|message/.*|multipart/.*"
)
"""Media types that are text, though some do not begin with `text/`."""
_UNSPECIFIC_TYPES: Final = ("", "application/octet-stream", "binary/octet-stream", "application/unknown")
"""Media types that say nothing; then the bytes decide."""
_CHARSET_IN_HEADER: Final = re.compile(r"""charset\s*=\s*["']?([^"';\s]+)""", re.IGNORECASE)
"""Parameter of the header Content-Type."""
_CHARSET_IN_HTML: Final = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
"""Declaration in a `meta` tag. All parts are bounded, so that hostile pages take linear time."""
_CHARSET_IN_XML: Final = re.compile(rb"""^\s{0,20}<\?xml[^>]{0,200}encoding\s*=\s*["']([\w.:-]{1,40})""")
"""Declaration in the first line of XML."""
_WINDOWS_1252: Final = ("iso8859-1", "ascii")
"""Encodings that mean Windows 1252 on the web (WHATWG Encoding)."""


def describe_body(answer: HttpAnswer, room: int) -> dict[str, Json]:
    """Return `body` and what has to be known about it: `encoding` ("base64"), `truncated`, `notice`.

    room: characters that the body may have.
    """
    if answer.note and not answer.body:
        return {"body": "", "notice": answer.note}
    content_type = answer.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if not is_text(media_type, answer.body):
        return _describe_binary(media_type, answer)
    text = decode_body(answer.body, media_type, declared_charset(content_type))
    notices = [answer.note] if answer.note else []
    shown = fitting(text[:room], room)
    fields: dict[str, Json] = {"body": shown}
    if not answer.complete or len(shown) < len(text):
        fields["truncated"] = True
        notices.append(f"only the first {len(shown):,} characters of the body are here")
    return {**fields, "notice": "; ".join(notices)} if notices else fields


def fitting(text: str, room: int) -> str:
    """Return as much of a text as has this many characters in a result, where JSON writes quotation marks and line ends as two.

    Each round cuts in proportion, so a few rounds suffice; by one character at least, so that it ends.
    """
    while (length := len(encode_json(text)) - 2) > room:
        text = text[: min(len(text) - 1, len(text) * room // length)]
    return text


def declared_charset(content_type: str) -> str:
    """Return the character set that a header Content-Type names, "" if it names none."""
    charset = _CHARSET_IN_HEADER.search(content_type)
    return charset[1] if charset else ""


def is_text(media_type: str, data: bytes) -> bool:
    """Return whether a body is text: by its media type, or by its first bytes if the type says nothing.

    The incremental decoder accepts a character that is cut by the end of the sample.
    """
    if media_type not in _UNSPECIFIC_TYPES:
        return _TEXT_TYPES.fullmatch(media_type) is not None
    encoding = detect_encoding(data)
    if encoding != "utf-8":
        return encoding is not None
    try:
        codecs.getincrementaldecoder(encoding)().decode(data[:PROBE])
    except UnicodeDecodeError:
        return False
    return True


def decode_body(data: bytes, media_type: str, charset: str) -> str:
    """Return the text. The encoding is named by a byte order mark, the header, or the HTML or XML itself; else it is UTF-8.

    Names that are unknown or not allowed (see `pegasus.tools.text`) are skipped. Bytes that do not
    fit become �.
    """
    if (marked := detect_encoding(data)) and marked != "utf-8":
        return data.decode(marked, "replace")
    declared = _CHARSET_IN_XML.search(data[:1024]) if "xml" in media_type else None
    declared = declared or (_CHARSET_IN_HTML.search(data[:4096]) if "html" in media_type else None)
    for name in (charset, declared.group(1).decode("ascii", "replace") if declared else ""):
        if codec := find_codec(name):
            # Pages that name ISO 8859-1 mean Windows 1252, as every browser reads them.
            return data.decode("cp1252" if codec in _WINDOWS_1252 else codec, "replace")
    return data.decode("utf-8", "replace")


def _describe_binary(media_type: str, answer: HttpAnswer) -> dict[str, Json]:
    """Return a small binary body as base64, or a sentence about a large one."""
    size = len(answer.body)
    if answer.complete and size <= MAX_BINARY:
        return {"body": base64.b64encode(answer.body).decode(), "encoding": "base64"}
    length = answer.headers.get("content-length", "")
    is_number = length.isascii() and length.isdigit() and len(length) < 20
    amount = f"{int(length):,}" if is_number else f"more than {size:,}"
    notice = f"binary data ({media_type or 'of unknown type'}, {amount} bytes) is not shown"
    return {"body": "", "notice": f"{answer.note}; {notice}" if answer.note else notice}
