"""The tool web_fetch: a page of the web as Markdown that a model can read, in parts where it is long.

HTML is converted by a program of its own (`page_markdown`), below a guard and with limits of time and memory: a page may be written to
make its reader slow. If it is, the text between its tags is returned, and the result says so. JSON, Markdown and other texts are
returned as they are. Anything that is no text is described, with the tool that can keep it.

What the network may cost is bounded too: `MAX_PAGE` bytes, decompressed no further than that, and `MAX_SECONDS` for the body. A page
that is larger or slower is cut there, which is no error.

The page is fetched anew for each part. A copy would have to be kept for nobody knows how long, and most pages fit into one part.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.formatting import truncate
from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.sandbox import CommandLimits, run_process
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import FetchLimits, HttpAnswer, fetch
from pegasus.tools.web.http_tools import declared_charset, decode_body, fitting, is_text

MAX_PAGE: Final = 4 << 20
"""Bytes of a page, decompressed, that are read."""
MAX_SECONDS: Final = 20.0
"""Seconds for the body of an answer, once its headers are there."""
_CONVERSION_SECONDS: Final = 10.0
"""Seconds for the conversion of a page."""
_LIMITS: Final = CommandLimits(memory=1 << 30, processes=4, output=16 << 20, flood=32 << 20, file_size=0, grace=0.1)
"""Limits of the conversion. It writes to its pipes only."""
_CONVERTER: Final = Path(__file__).with_name("page_markdown.py")
"""The program; started as a file, so that it imports nothing of this package."""
_ROOM_FOR_FIELDS: Final = 2000
"""Characters of a result that are left for what is not the content."""
_LONGEST_URL: Final = 1000
"""Characters of the address that are shown."""
_LONGEST_TITLE: Final = 300
"""Characters of the title that are shown."""
_SHORTEST_PART: Final = 500
"""Characters that a part has at least, whatever the model asks for."""
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_LOOKS_LIKE_HTML: Final = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
"""Beginning of a page that a server sends as plain text or without a type."""
_ACCEPT: Final = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,application/json;q=0.8,*/*;q=0.5"
"""Types that are asked for. Some servers send Markdown to those who take it."""

_SPEC: Final = ToolSpec(
    "web_fetch",
    "Read a web page as Markdown: main content first, with tables, code and links. JSON and other texts come as they are. "
    "A long page comes in parts: go on with offset. Only public addresses are reached.",
    parameters(
        {
            "url": {"type": "string", "description": "http:// or https:// address"},
            "offset": {"type": "integer", "minimum": 0, "description": "Character to begin at; 0 by default"},
            "max_chars": {"type": "integer", "minimum": 1, "description": "Characters to return, at most"},
        },
        "url",
    ),
)


@attrs.frozen(eq=False, repr=False)
class _ReadPage:
    """A page that was read."""

    content: str
    """Markdown of an HTML page, or the text as it is."""
    title: str = ""
    """Title of an HTML page, "" if it has none."""
    notice: str = ""
    """Remark for the model about how it was read; "" = nothing to say."""


def page_tool(guard: AddressGuard) -> Tool:
    """Return the tool `web_fetch(url, offset?, max_chars?)`. guard: decides which addresses are reached.

    tool = page_tool(AddressGuard())
    """

    async def run(arguments: Any, context: ToolContext) -> Json:
        """Fetch the page, read it, and return the part that is asked for."""
        limits = FetchLimits(max_body=MAX_PAGE, seconds=MAX_SECONDS)
        answer = await fetch(guard, "GET", arguments["url"], {"accept": _ACCEPT}, limits=limits)
        page = await _read_page(answer)
        room = max(context.max_result - _ROOM_FOR_FIELDS, context.max_result // 2)
        # A model that asks for very little would need a call for each line.
        wanted = min(max(arguments.get("max_chars", room), _SHORTEST_PART), room)
        return _part_of(answer, page, arguments.get("offset", 0), wanted)

    return Tool(_SPEC, run, "network", Effect.PURE, more="Go on with offset.", reach=Reach.FETCH, source=Untrusted.WEB)


def _part_of(answer: HttpAnswer, page: _ReadPage, offset: int, room: int) -> Json:
    """Return a part of a page as the result of the tool.

    Positions count characters of the Markdown. They fit the next call only if the page has not changed meanwhile, which
    the total shows.
    """
    total = len(page.content)
    if offset and offset >= total:
        # An empty part would look like the end of the page, also of one that has become shorter.
        raise ToolError(f"offset is {offset:,}, but the page has {total:,} characters")
    part = fitting(page.content[offset : offset + room], room)
    if offset + len(part) < total and (end := part.rfind("\n")) > len(part) // 2:
        # Only where that costs less than half of the part: a page may be one huge line.
        part = part[: end + 1]  # whole lines
    result: dict[str, Json] = {"url": truncate(answer.url, _LONGEST_URL), "status": answer.status}
    if page.title:
        result["title"] = truncate(page.title, _LONGEST_TITLE)
    notices = [page.notice] if page.notice else []
    if not answer.complete:
        notices.append(answer.note or f"only the first {MAX_PAGE >> 20} MiB of the page were read")
    if offset or len(part) < total:
        result |= {"offset": offset, "totalChars": total}
    if offset + len(part) < total:
        result["nextOffset"] = offset + len(part)
    if notices:
        result["notice"] = "; ".join(notices)
    return {**result, "content": part}


async def _read_page(answer: HttpAnswer) -> _ReadPage:
    """Return the content of an answer. Raises ToolError for what is no text."""
    content_type = answer.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    # The body could not be read at all; the note says why.
    if answer.note and not answer.body:
        return _ReadPage("")
    if media_type == "application/pdf" or answer.body.startswith(b"%PDF-"):
        raise ToolError(f"{answer.url} is a PDF, which is not read; keep it with download and use a program for PDFs")
    if not is_text(media_type, answer.body):
        raise ToolError(
            f"{answer.url} is no text ({media_type or 'of unknown type'}); keep it in the workspace with download"
        )
    is_html = media_type in _HTML_TYPES or (
        media_type in ("", "text/plain", "application/octet-stream") and _LOOKS_LIKE_HTML.match(answer.body[:1000])
    )
    text = _decode(answer.body, "text/html" if is_html else media_type, content_type)
    return await to_markdown(text, answer.url) if is_html else _ReadPage(text)


def _decode(data: bytes, media_type: str, content_type: str) -> str:
    """Return the text of a body. One that names no encoding and is not UTF-8 is taken for Windows 1252, as browsers do."""
    text = decode_body(data, media_type, declared_charset(content_type))
    is_declared = bool(declared_charset(content_type)) or b"charset" in data[:4096].lower() or b"encoding" in data[:200]
    # The last characters may be cut in two, so only � before them speaks against UTF-8.
    if "\ufffd" in text[:-4] and not is_declared:
        return data.decode("cp1252", "replace")
    return text.removeprefix("\ufeff")


async def to_markdown(page: str, address: str) -> _ReadPage:
    """Return an HTML page as Markdown. One that cannot be converted within its limits is returned as the text between its tags.

    address: where it was found, for its links. Raises ToolError if even that fails. Cancelled: the converter is ended first.
    """
    data = f"{address}\n{page}".encode("utf-8", "replace")
    for flags, notice in (((), ""), (("--plain",), "the page is too intricate to be converted: this is its text")):
        command = [sys.executable, "-I", str(_CONVERTER), *flags]
        # A cancel ends the converter first, so that no hostile page goes on computing for nobody.
        ended = await run_process(
            command, cwd=tempfile.gettempdir(), env={}, timeout=_CONVERSION_SECONDS, limits=_LIMITS, stdin=data
        )
        # A limit shows as an exit code: of seconds as that of a signal, of memory as that of an error.
        if ended.exit_code == 0 and not ended.truncated:
            title, _, content = ended.stdout.partition("\n")
            return _ReadPage(content, title, notice)
    raise ToolError(
        f"{address} cannot be converted to text: {ended.stderr.strip()[-200:] or f'exit code {ended.exit_code}'}"
    )
