"""Exact counts of tokens: by asking Anthropic, and by OpenAI's own tables where they are on this machine."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import tempfile
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from pegasus.models.base import ModelError, ModelRequest
from pegasus.models.tokens import Gauge, head_texts, texts_of
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.models.sdk import Sdk, SdkHandle

_log = get_logger("models")

_PATIENCE: Final = 5.0  # seconds
_PAUSE: Final = 300.0  # seconds without asking again, after it failed


class ByProvider:
    """Asks `count_tokens` (https://platform.claude.com/docs/en/build-with-claude/token-counting), which is free of charge.

    A server that does not know it is not asked again; one that fails is left in peace for five minutes.
    """

    def __init__(self, sdk: Sdk, path: str, body: Callable[[ModelRequest], bytes]) -> None:
        self._sdk = sdk
        self._path = path
        self._body = body
        self._not_before = -math.inf

    async def __call__(self, request: ModelRequest, gauge: Gauge) -> int | None:
        """Tokens of the prompt; None if that cannot be known now. Never raises, at most 5 s."""
        if trio.current_time() < self._not_before:
            return None
        pause = _PAUSE
        with trio.move_on_after(_PATIENCE):
            try:
                handle = await self._sdk.get()
                return await self._ask(handle, request)
            except ModelError as error:
                why: object = error
            except Exception as error:
                status = getattr(error, "status_code", 0)
                pause = math.inf if status in (404, 405, 501) else _PAUSE
                why = f"{type(error).__name__} {status or ''}"
            _log.warning("tokens cannot be counted by the provider, they are estimated", why=str(why))
        self._not_before = trio.current_time() + pause
        return None

    async def _ask(self, handle: SdkHandle, request: ModelRequest) -> int:
        response = await handle.post(self._path, self._body(request), max_retries=0)
        try:
            count = json.loads(await response.aread())["input_tokens"]
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await response.aclose()
        if not isinstance(count, int) or count <= 0:
            raise ValueError("no count")
        return count


# ------------------------------------------------------------------ tables

_TABLES: Final = "https://openaipublic.blob.core.windows.net/encodings/"
_HASHES: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""Where tiktoken gets its tables, and their SHA-256 (tiktoken_ext/openai_public.py)."""
_BLOCK: Final = 20_000  # characters encoded at a time, so that no text takes more than linear time


def encoding_name(model: str) -> str:
    """The encoding of an OpenAI model; that of the newest where nothing else is known."""
    old = model in ("gpt-4", "gpt-4-turbo") or model.startswith(("gpt-4-", "gpt-3.5", "gpt-35"))
    return "cl100k_base" if old else "o200k_base"


def table_file(encoding: str) -> Path | None:
    """The file in which tiktoken keeps the table of an encoding, if it is on this machine, whole and unchanged.

    tiktoken itself would download what is missing or damaged, in the middle of a conversation: so it is only given the table
    when this says that it is there. Blocking.
    """
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    name = hashlib.sha1(f"{_TABLES}{encoding}.tiktoken".encode(), usedforsecurity=False).hexdigest()
    path = Path(folder) / name
    try:
        whole = bool(folder) and hashlib.sha256(path.read_bytes()).hexdigest() == _HASHES[encoding]
    except OSError:
        return None
    return path if whole else None


def load_encoding(encoding: str) -> Any:
    """The encoding, for tiktoken, from a table on this machine; None if there is none. Never downloads. Blocking: half a second."""
    path = table_file(encoding)
    if path is None:
        return None
    from tiktoken import Encoding

    openai_public: Any = importlib.import_module("tiktoken_ext.openai_public")

    lines = path.read_bytes().splitlines()
    ranks = {b64decode(token): int(rank) for token, _, rank in (line.partition(b" ") for line in lines if line)}
    # The constructor of the package reads the table by a function of its module: here it gets the one that was read.
    make = getattr(openai_public, encoding)
    names = {**make.__globals__, "load_tiktoken_bpe": lambda *_, **__: ranks}
    parameters = type(make)(make.__code__, names)()
    return Encoding(**{**parameters, "special_tokens": {}})


class ByTable:
    """Counts with tiktoken; what came before is known from the provider, as it is in the estimate."""

    def __init__(self, model: str) -> None:
        self._encoding_name = encoding_name(model)
        self._encoding: Any = None
        self._tried = False

    async def __call__(self, request: ModelRequest, gauge: Gauge) -> int | None:
        """Tokens of the prompt; None where there is no table. Never raises, at most 5 s."""
        known, new = gauge.since(request)
        parts = [texts_of(turn) for turn in new]
        if known is None:
            parts.append(head_texts(request.system, request.tools))
        with trio.move_on_after(_PATIENCE):
            try:
                return await trio.to_thread.run_sync(self._count, known or 0, parts, abandon_on_cancel=True)
            except Exception as error:  # a package of another version, memory
                self._tried, self._encoding = True, None
                _log.warning("tiktoken cannot be used, tokens are estimated", why=str(error))
        return None

    def _count(self, known: int, parts: list[tuple[list[str], float]]) -> int | None:
        if not self._tried:
            self._encoding = load_encoding(self._encoding_name)
            self._tried = True
        if self._encoding is None:
            return None
        return known + sum(self._length(text) for texts, _ in parts for text in texts) + round(sum(n for _, n in parts))

    def _length(self, text: str) -> int:
        encode = self._encoding.encode_ordinary
        return sum(len(encode(text[n : n + _BLOCK])) for n in range(0, len(text), _BLOCK))
