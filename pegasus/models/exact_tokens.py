"""Exact counts of a prompt's tokens: Anthropic is asked, and OpenAI's own tokenizer is used once its table is on this machine.

The table (about 4 MB) is fetched by tiktoken itself, in the background after the daemon is ready, into tiktoken's own cache folder
(`TIKTOKEN_CACHE_DIR`). Without a network the estimate is used, and `/usage` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import trio

from pegasus.models.base import NO_OPTIONS, CallOptions, ModelError, ModelRequest
from pegasus.models.providers import ProviderClient
from pegasus.models.tokens import PromptParts
from pegasus.observe import get_logger

_log = get_logger("models")

_PATIENCE: Final = 5.0
"""Seconds for one count."""
_PAUSE: Final = 300.0
"""Seconds without another try after a count by the provider failed."""


class CountByProvider:
    """`ExactCount` that asks the provider, free of charge (https://platform.claude.com/docs/en/build-with-claude/token-counting).

    A server that does not have this endpoint is not asked again; one that fails is not asked for five minutes.
    """

    def __init__(
        self,
        client: ProviderClient,
        path: str,
        body: Callable[[ModelRequest], bytes],
        options: Mapping[str, CallOptions] = MappingProxyType({}),
    ) -> None:
        """Prepare. body: returns the body of a count. options: of calls by role; a count has their headers and query."""
        self._client = client
        self._path = path
        self._body = body
        self._options = options
        self._not_before = -math.inf

    @property
    def method(self) -> str:
        """Description for people."""
        return "counted by the provider" if self._not_before < math.inf else ""

    async def count(self, request: ModelRequest, known: int, new: Sequence[PromptParts]) -> int | None:
        """Return the provider's count, None if it gives none."""
        if trio.current_time() < self._not_before:
            return None
        pause = _PAUSE
        with trio.move_on_after(_PATIENCE):
            try:
                await self._client.load()
                return await self._ask(request)
            except ModelError as error:
                reason = str(error)
            except Exception as error:  # of the SDK, or a senseless answer
                status = getattr(error, "status_code", 0)
                pause = math.inf if status in (404, 405, 501) else _PAUSE
                reason = f"{type(error).__name__} {status or ''}"
            _log.warning("the provider does not count tokens; they are estimated", reason=reason)
        self._not_before = trio.current_time() + pause
        return None

    async def _ask(self, request: ModelRequest) -> int:
        """Return the count. Raises exceptions of the SDK, or ValueError, KeyError and TypeError for a senseless answer."""
        options = self._options.get(request.label.role, NO_OPTIONS)
        body = self._body(request)
        response = await self._client.post(self._path, body, headers=options.headers, query=options.query)
        try:
            count = json.loads(await response.aread())["input_tokens"]
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await response.aclose()
        if not isinstance(count, int) or count <= 0:
            raise ValueError("no count")
        return count


_FETCHING: Final = 60.0
"""Seconds for fetching a table. No call waits for it."""
_BLOCK: Final = 20_000
"""Characters that are encoded at a time: tiktoken takes more than linear time for some long texts."""


class CountByTable:
    """`ExactCount` by OpenAI's own tokenizer, for OpenAI's own models.

    Until `load` has succeeded it gives no counts. It only counts text: what came before is known from the provider.
    """

    def __init__(self, model: str) -> None:
        is_old = model in ("gpt-4", "gpt-4-turbo") or model.startswith(("gpt-4-", "gpt-3.5", "gpt-35"))
        self.encoding_name = "cl100k_base" if is_old else "o200k_base"
        self._encoding: Any = None

    @property
    def method(self) -> str:
        """Description for people."""
        return f"counted by tiktoken ({self.encoding_name})" if self._encoding is not None else ""

    async def load(self) -> None:
        """Load the table, from tiktoken's cache or else from the network; give up after a minute. Never raises.

        The download has no timeout of its own, so its thread may outlive this call; a table that comes too late is used next time.
        """
        if self._encoding is not None:
            return
        with trio.move_on_after(_FETCHING) as scope:
            try:
                self._encoding = await trio.to_thread.run_sync(
                    _load_encoding, self.encoding_name, abandon_on_cancel=True
                )
            except Exception as error:  # no network, no disk space, another version of the package
                _log.info("no table for tiktoken; tokens are estimated", encoding=self.encoding_name, reason=str(error))
        if scope.cancelled_caught:
            _log.info(
                "fetching the table for tiktoken takes too long; tokens are estimated", encoding=self.encoding_name
            )

    async def count(self, request: ModelRequest, known: int, new: Sequence[PromptParts]) -> int | None:
        """Return the known tokens and the count of the new text, None without a table."""
        if self._encoding is None:
            return None
        with trio.move_on_after(_PATIENCE):
            return known + await trio.to_thread.run_sync(self._count, new, abandon_on_cancel=True)
        return None

    def _count(self, parts: Sequence[PromptParts]) -> int:
        """Count in a thread. tiktoken releases the interpreter's lock while it works."""
        texts = sum(self._length(text) for part in parts for text in part.texts)
        return texts + round(sum(part.fixed for part in parts))

    def _length(self, text: str) -> int:
        """Return the tokens of a text, encoded in blocks."""
        encode = self._encoding.encode_ordinary
        return sum(len(encode(text[start : start + _BLOCK])) for start in range(0, len(text), _BLOCK))


def _load_encoding(name: str) -> Any:
    """Return a tiktoken encoding. Blocking: half a second from the cache, else a download of about 4 MB."""
    import tiktoken

    return tiktoken.get_encoding(name)
