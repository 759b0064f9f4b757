"""State of a provider for tests: its script, what it has been asked, and the checks that come before the script.

The state is apart from the connections (`serving`): a test holds a `ProviderServer` and changes it while clients are
connected. The script may be replaced, a page added, the key revoked; the next request meets the change.

A request passes three checks before the script sees it: path and key, the peculiarities of a service (`Dialect`, Ollama),
and the format. Each has the words of the service. A request that fails is counted in `count`, its message is in `invalid`.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable

import attrs
import trio

from pegasus.messages import Json
from pegasus.testing.provider.answers import ProviderAnswer, Script, refuse
from pegasus.testing.provider.audio import AudioCall, read_audio
from pegasus.testing.provider.dialects import PLAIN, Dialect
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.ollama import OllamaHost
from pegasus.testing.provider.requests import Invalid, ProviderRequest, require

AsyncScript = Callable[[ProviderRequest], Awaitable[ProviderAnswer]]
"""Script that may wait, for answers that a test releases later. It is cancelled if the client hangs up."""

_COUNT = "/count_tokens"
"""End of the path that counts the tokens of a request instead of answering it."""
_PATHS = (
    "/v1/messages",
    f"/v1/messages{_COUNT}",
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/responses",
    "/responses",
)
"""Paths of the APIs. OpenAI's are accepted without `/v1` too, since base URLs are given with and without it."""
_OLLAMA_PATHS = ("/api/chat", "/api/show")
"""Paths of Ollama's own API that take a body; served if the server has an `OllamaHost`."""


class ProviderServer:
    """State of a provider, for tests to look at and to change while it runs.

    api_key: if given, the only key that is accepted. keep: requests to remember. ollama: models of an Ollama, whose own API is served
    then.

    The counters and lists only grow. A test that waits for something uses `until` instead of sleeping.

    Example::

        async with open_provider(lambda request: hang()) as server:
            nursery.start_soon(client.generate, request)
            await server.until(lambda server: server.count == 1)   # the request has arrived
    """

    def __init__(
        self,
        script: Script | AsyncScript,
        *,
        api_key: str = "",
        keep: int = 1000,
        ollama: OllamaHost | None = None,
        dialect: Dialect = PLAIN,
    ) -> None:
        self.dialect = dialect
        """Service that it stands for, in Chat Completions."""
        self.script = script
        """Function that answers requests; may be replaced at any time."""
        self.ollama = ollama
        """Models of an Ollama; None for a server that does not speak its API."""
        self.pages: dict[str, Json] = {}
        """Answers to GET by path, as llama.cpp and others describe themselves. With one of them, other paths do not exist."""
        self.audio: Callable[[AudioCall], ProviderAnswer | Awaitable[ProviderAnswer]] | None = None
        """Function that answers requests of speech; None for a provider without these endpoints."""
        self.audio_calls: list[AudioCall] = []
        """Valid requests of speech."""
        self.tokens: Callable[[ProviderRequest], int] | None = None
        """Function that answers `count_tokens`; None for a provider without this endpoint."""
        self.on_send: Callable[[bytes], None] | None = None
        """Called with each event of a stream just before it is sent, where events are sent one by one."""
        self.counted = 0
        """Requests for a count of tokens."""
        self.requests: deque[ProviderRequest] = deque(maxlen=keep)
        """The last valid requests."""
        self.invalid: list[str] = []
        """Messages of the refusals of invalid requests."""
        self.count = 0
        """All requests."""
        self.answered = 0
        """Answers that were sent to their end."""
        self.hung_up = 0
        """Connections that a client closed while an answer was due."""
        self.connections = 0
        """Connections on which a model was called. Questions about the server itself are not counted."""
        self.url = ""
        """Base URL for a provider of type anthropic."""
        self._api_key = api_key
        # Random, so that ids of two servers in one test differ: a client which mixes them up is noticed.
        self._token = secrets.token_hex(5)
        self._ids = 0
        self._changed = trio.Event()

    @property
    def openai_url(self) -> str:
        """Base URL for a provider of type openai."""
        return f"{self.url}/v1"

    async def until(self, condition: Callable[[ProviderServer], bool]) -> None:
        """Wait until a condition holds. It is checked again whenever anything happens.

        There is no deadline; the test puts its own around the call.
        """
        while not condition(self):
            await self._changed.wait()

    def new_id(self) -> str:
        """Return the rest of a tool call's id, unique over all servers."""
        self._ids += 1
        return f"{self._token}{self._ids:06x}"

    def notify(self) -> None:
        """Let `until` check its condition again."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def read(
        self, path: str, headers: dict[str, str], body: bytes, query: str = ""
    ) -> ProviderRequest | ProviderAnswer:
        """Return the parsed request, or the refusal of an invalid one.

        headers: names in lower case. Invalid requests are kept in `invalid` by their message, so that a test
        can assert at its end that there were none, even if the client hid the error by a retry.
        """
        self.count += 1
        refusal = self._refusal(path, headers)
        if refusal is not None:
            return refusal
        try:
            if path.endswith(_COUNT):
                return self._count(path, headers, body, query)
            if path == "/api/show" and self.ollama is not None:
                self.count -= 1
                return self.ollama.show(body)
            if path.endswith("/chat/completions") and (refusal := self.dialect.refusal(json.loads(body))) is not None:
                return refusal
            request = attrs.evolve(parse(path, headers, body, self.count, self.dialect), query=query)
            if request.format == "ollama" and self.ollama is not None:
                refusal = self.ollama.refusal(request.raw)
                if refusal is not None:
                    return refusal
        except Invalid as error:
            self.invalid.append(str(error))
            return refuse(400, str(error))
        self.requests.append(request)
        return request

    def read_audio(self, path: str, headers: dict[str, str], body: bytes) -> AudioCall | ProviderAnswer:
        """Return a request of speech, or the refusal of an invalid one.

        A refusal of the format is kept in `invalid`, as that of a text request is.
        """
        self.count += 1
        call = read_audio(path, headers, body, self._api_key)
        if not isinstance(call, AudioCall):
            self.invalid.append(call.message)
            return call
        self.audio_calls.append(call)
        return call

    def _count(self, path: str, headers: dict[str, str], body: bytes, query: str) -> ProviderAnswer:
        """Answer a request for the number of tokens: the body of a call without the parameters of the answer.

        A count has no `max_tokens` and must not have it, but the checks of a call require it; so it is added
        before they run.
        """
        self.count, self.counted = self.count - 1, self.counted + 1
        if self.tokens is None:
            return refuse(404, f"no such path: {path}")
        raw = json.loads(body)
        require(not {"max_tokens", "stream"} & set(raw), "max_tokens, stream: Extra inputs are not permitted")
        whole = json.dumps({**raw, "max_tokens": 1}).encode()
        found = self.tokens(attrs.evolve(parse(path.removesuffix(_COUNT), headers, whole), query=query))
        return ProviderAnswer(body=json.dumps({"input_tokens": found}).encode(), content_type="application/json")

    def _refusal(self, path: str, headers: dict[str, str]) -> ProviderAnswer | None:
        """Return the refusal of a wrong path or key, None for a request that may be read.

        The order of the checks is that of the services: path, key, version.
        """
        if path in _OLLAMA_PATHS and self.ollama is not None:
            return None  # it has no keys
        own = self.dialect.root
        paths = _PATHS if self.dialect is PLAIN else (f"{own}/chat/completions", f"{own}/responses")
        if path not in paths:
            return refuse(404, f"no such path: {path}")
        if not self.dialect.key_headers:
            return None
        given = {
            headers.get("x-api-key", ""),
            headers.get("api-key", ""),
            headers.get("authorization", "").removeprefix("Bearer "),
        } - {""}
        if not given or (self._api_key and given != {self._api_key}):
            return refuse(401, "invalid x-api-key")
        if path.endswith("/messages") and "anthropic-version" not in headers:
            return refuse(400, "anthropic-version: header is required")
        return None
