"""Content of prompts and replies: blocks of the protocol on one side, a text with attachments on the other.

Text of a file in the folder that the person works in is theirs: it stands in the message. Text of any other source that the editor
adds is an attachment, so it reaches the model fenced, as text from outside.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pegasus.acp.link import INVALID_PARAMS, RpcError
from pegasus.formatting import code_fence, quote
from pegasus.messages import Json, Media, OutboundMessage
from pegasus.wire import describe

NAME_LENGTH: Final = 200
"""Characters of the name of an attachment that are kept."""
_LANGUAGES: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


def read_prompt(blocks: Sequence[Mapping[str, Any]], folder: str) -> tuple[str, tuple[Media, ...]]:
    """Return the text and the attachments of a prompt. folder: that the session works in. Raises RpcError."""
    words: list[str] = []
    files: list[Media] = []
    below: list[str] = []
    for number, block in enumerate(blocks):
        where, kind = f"prompt[{number}]", block.get("type")
        match kind:
            case "text":
                words.append(_text_of(block, "text", where))
            case "resource_link":
                words.append(_mention(_text_of(block, "uri", where), str(block.get("name") or "")))
            case "image" | "audio":
                mime = _text_of(block, "mimeType", where)
                name = _name(str(block.get("uri") or ""), f"{kind}-{number + 1}.{mime.partition('/')[2]}")
                files.append(Media(name, mime, _text_of(block, "data", where)))
            case "resource":
                resource = block.get("resource")
                if not isinstance(resource, Mapping):
                    raise RpcError(INVALID_PARAMS, f"{where}.resource: found {describe(resource)}, allowed: an object")
                uri = _text_of(resource, "uri", f"{where}.resource")
                words.append(_mention(uri))
                if isinstance(text := resource.get("text"), str) and (path := _path_in(uri, folder)):
                    below.append(_quoted_file(path, text))
                else:
                    files.append(_attached(resource, uri, f"{where}.resource"))
            case _:
                allowed = "text, resource_link, resource, image, audio"
                raise RpcError(INVALID_PARAMS, f"{where}.type: found {quote(kind, 40)}, allowed: {allowed}")
    text = "\n\n".join(filter(str.strip, ["".join(words), *below]))
    if not text and not files:
        raise RpcError(INVALID_PARAMS, "prompt: found nothing to say, allowed: a text, or a file")
    return text, tuple(files)


def text_block(text: str) -> dict[str, Json]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def code_block(text: str, language: str = "") -> str:
    """Return a text as a block of code in Markdown, which it cannot end."""
    fence = code_fence(text)
    return f"{fence}{language}\n{text}\n{fence}"


def reply_blocks(reply: OutboundMessage) -> Iterator[dict[str, Json]]:
    """Yield the files of a reply as blocks."""
    for file in reply.media:
        if file.mime.startswith("image/"):
            yield {"type": "image", "mimeType": file.mime, "data": file.data}
        else:
            resource: dict[str, Json] = {"uri": f"attachment:///{file.name}", "mimeType": file.mime, "blob": file.data}
            yield {"type": "resource", "resource": resource}


def _text_of(block: Mapping[str, Any], key: str, where: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"{where}.{key}: found {describe(value)}, allowed: a text")
    return value


def _attached(resource: Mapping[str, Any], uri: str, where: str) -> Media:
    """Return the content of a resource as an attachment."""
    text = resource.get("text")
    usual = "text/plain" if isinstance(text, str) else "application/octet-stream"
    mime = str(resource.get("mimeType") or usual)
    if not isinstance(text, str):
        return Media(_name(uri, "file"), mime, _text_of(resource, "blob", where))
    return Media(_name(uri, "file"), mime, base64.b64encode(text.encode("utf-8", "replace")).decode())


def _mention(uri: str, name: str = "") -> str:
    """Return how a text names a file or another resource: by its path, where it has one."""
    path = _path_of(uri)
    return f"`{path}`" if path else f"[{name}]({uri})" if name and name != uri else uri


def _path_of(uri: str) -> str:
    """Return the path of a file URI, "" for another URI."""
    parts = _split(uri)
    path = unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
    return "" if "\0" in path else path


def _split(uri: str) -> SplitResult:
    """Return the parts of a URI; none if it is no URI: editors send any text."""
    try:
        return urlsplit(uri)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _path_in(uri: str, folder: str) -> str:
    """Return the path of a file below the folder, "" for everything else. Links are followed before it is compared."""
    path = _path_of(uri)
    return path if path and os.path.realpath(path).startswith(os.path.join(folder, "")) else ""


def _name(uri: str, usual: str) -> str:
    """Return a name for an attachment, without characters that nobody sees."""
    name = "".join(letter for letter in os.path.basename(_path_of(uri) or _split(uri).path) if letter.isprintable())
    return name[-NAME_LENGTH:] or usual


def _quoted_file(path: str, text: str) -> str:
    """Return a file with its content as a block of code."""
    language = os.path.splitext(path)[1][1:].lower()
    return f"{path}:\n{code_block(text, '' if language.strip(_LANGUAGES) else language)}"
