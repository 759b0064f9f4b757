"""The tool download: an address becomes a file in the workspace, whatever its type.

The body goes to disk as it comes in, so its size costs no memory. It is bounded by `tools.max_download_mb` and by the space that is
left. A download that fails, is stopped or is too large leaves nothing.

Where the model names no file, the server proposes a name (`Content-Disposition`) or the address does. Either is text from outside: it
becomes one plain name without folders, control characters and a leading dot or dash (`plain_name`).

The order of a call follows from that. A path that may not be written is refused before anything is fetched. The file is
made by the first bytes of the body, because only then the name is known. It gets its name when all of the body is on
disk, and leaving the call by any other way removes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import attrs
import trio

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.files import IncomingFile
from pegasus.tools.text import find_codec
from pegasus.tools.web.addresses import AddressGuard
from pegasus.tools.web.http_client import FetchLimits, HttpAnswer, fetch

DOWNLOAD_TIMEOUT: Final = 600.0
"""Seconds for one download, unless the settings say otherwise."""
_FOLDER: Final = "downloads/"
"""Folder of the workspace for files without a path."""
_LONGEST_NAME: Final = 150
"""Bytes of a name that was not chosen by the model; file systems allow 255."""
_LONGEST_ENDING: Final = 20
"""Characters of the ending of a name that is shortened."""

_SPEC: Final = ToolSpec(
    "download",
    "Save a web address as a file of the workspace, of any type and size. Returns path, size, type and sha256.",
    parameters(
        {
            "url": {"type": "string", "description": "http:// or https:// address"},
            "path": {"type": "string", "description": f"File, or folder ending in /; {_FOLDER} by default"},
            "overwrite": {"type": "boolean", "description": "Replace a file that exists; false by default"},
        },
        "url",
    ),
)


def download_tool(guard: AddressGuard, max_bytes: int) -> Tool:
    """Return the tool `download(url, path?, overwrite?)`. guard: decides which addresses are reached. max_bytes: of one file.

    tool = download_tool(AddressGuard(), 500 << 20)
    """

    async def run(arguments: Any, context: ToolContext) -> Json:
        """Fetch the address into a file. Cancelled, or failed: nothing is left of it."""
        # The policy asks about calls that change something outside of the workspace; this one cannot.
        context = attrs.evolve(context, allowed_paths=(context.workspace,))
        path, replace = arguments.get("path", _FOLDER), arguments.get("overwrite", False)
        if not path.endswith("/"):  # what is known before is refused before
            await trio.to_thread.run_sync(partial(IncomingFile, context, path, "x", replace=replace))
        download = _Download(context, path, replace, max_bytes)
        try:
            headers = {"accept": "*/*"}
            limits = FetchLimits(max_body=max_bytes)
            answer = await fetch(guard, "GET", arguments["url"], headers, limits=limits, sink=download.take)
            if answer.status != 200:
                raise ToolError(
                    f"{answer.url} was not saved: the server answered {answer.status} {answer.reason}".rstrip()
                )
            if not answer.complete:
                raise ToolError(f"{answer.url} was not saved: {answer.note}")
            saved = await download.finish(answer)
        finally:
            download.close()
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
        return {"url": answer.url, **saved, "type": media_type[:100] or None}

    return Tool(_SPEC, run, "network", Effect.ONCE, reach=Reach.FETCH, source=Untrusted.WEB, timeout=DOWNLOAD_TIMEOUT)


@attrs.define(eq=False, repr=False)
class _Download:
    """A download under way: pieces of the answer on their way into a file."""

    _context: ToolContext
    """Context of the call, confined to the workspace."""
    _path: str
    """File, or folder ending in /, as the model has named it."""
    _replace: bool
    """True if a file of that name may be replaced."""
    _max_bytes: int
    """Bytes that the file may have."""
    _file: IncomingFile | None = None
    """The file; None until the first bytes are there."""

    async def take(self, answer: HttpAnswer, data: bytes) -> None:
        """Write bytes of the body, in a thread. The file is begun by the first of them."""
        file = self._file or await self._begin(answer)
        await trio.to_thread.run_sync(file.write, data)

    async def finish(self, answer: HttpAnswer) -> dict[str, Json]:
        """Give the file its name. Return path, size and digest."""
        file = self._file or await self._begin(answer)  # an empty body
        path = await trio.to_thread.run_sync(file.finish)
        return {"path": path, "size": file.size, "sha256": file.sha256}

    def close(self) -> None:
        """Remove what is not complete. One call of the system, so it is not worth a thread, and a cancel cannot skip it."""
        if self._file is not None:
            self._file.__exit__(None, None, None)

    async def _begin(self, answer: HttpAnswer) -> IncomingFile:
        """Make the file, with a name from the answer if the model named a folder."""
        length = answer.headers.get("content-length", "")
        is_plain = "content-encoding" not in answer.headers and length.isascii() and length.isdigit()
        # Of a compressed body the length says nothing about the file.
        expected = int(length) if is_plain and len(length) < 16 else 0
        if expected > self._max_bytes:
            raise ToolError(
                f"{answer.url} was not saved: it has {expected:,} bytes, allowed are {self._max_bytes:,} "
                "(tools.max_download_mb in pegasus.toml)"
            )
        name = name_of(answer.url, answer.headers)
        make = partial(IncomingFile, self._context, self._path, name, expected=expected, replace=self._replace)
        file = await trio.to_thread.run_sync(make)
        self._file = await trio.to_thread.run_sync(file.__enter__)
        return file


# ------------------------------------------------------------------ names

_EXTENDED: Final = re.compile(r"filename\*\s{0,3}=\s{0,3}([\w.-]{1,20})'[^']{0,20}'([^;\s]{1,1000})", re.IGNORECASE)
"""The form of RFC 8187: `filename*=UTF-8''na%C3%AFve.txt`."""
_QUOTED: Final = re.compile(r'filename\s{0,3}=\s{0,3}(?:"((?:[^"\\]|\\.){1,1000})"|([^;\s"]{1,1000}))', re.IGNORECASE)
"""The plain form: `filename="name.txt"`."""


def name_of(url: str, headers: Mapping[str, str]) -> str:
    """Return the name for a file from this address: that of Content-Disposition, else the last part of the address.

    name_of("https://example.org/a/b.zip?x=1", {}) == "b.zip"
    """
    disposition = headers.get("content-disposition", "")[:4000]
    if (found := _EXTENDED.search(disposition)) and (codec := find_codec(found[1])):
        return plain_name(unquote_to_bytes(found[2]).decode(codec, "replace"))
    if found := _QUOTED.search(disposition):
        return plain_name(re.sub(r"\\(.)", r"\1", found[1] or found[2]))
    return plain_name(unquote(urlsplit(url).path))


def plain_name(text: str) -> str:
    """Return one safe name of a file: no folders, no characters with a meaning for shells or terminals, not hidden, not too long.

    plain_name("../../.ssh/id rsa") == "id rsa"
    """
    text = unicodedata.normalize("NFC", text.replace("\\", "/").rstrip("/ ").rpartition("/")[2])
    letters = (
        c if c.isprintable() and c not in "<>:\"|?*$`;&'" else "_" for c in text if unicodedata.category(c)[0] != "C"
    )
    name = " ".join("".join(letters).split()).lstrip(".-~ ").rstrip(". ")
    if len(name.encode()) > _LONGEST_NAME:
        stem, dot, ending = name.rpartition(".")
        kept = f".{ending}" if dot and len(ending) <= _LONGEST_ENDING else ""
        name = (stem if kept else name).encode()[: _LONGEST_NAME - len(kept.encode())].decode(
            "utf-8", "ignore"
        ).rstrip() + kept
    return name or "download"
