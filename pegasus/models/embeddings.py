"""Embeddings: texts as vectors, over the endpoint in OpenAI's format that model servers have.

    POST <base_url>/embeddings    {"model", "input": [text, …]}  → {"data": [{"index", "embedding"}, …], "usage"?}

Calls are counted with the role "embed". Nobody waits for a server that does not work: after a failure the breaker is open, and calls
fail at once until it is time for a probe. An answer that is not one vector of finite numbers for each text, all of one length, is a
failure of the server.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import attrs
import trio

from pegasus.models.base import Label, ModelError, Usage
from pegasus.models.endpoint_model import EndpointModel
from pegasus.models.fallback import CircuitBreaker
from pegasus.models.formats import encode_json, usage_of
from pegasus.models.tokens import text_tokens
from pegasus.wire import WireError, decode_object

MOST_NUMBERS: Final = 8_192
"""Numbers of a vector. The largest models have half of it."""
MOST_ANSWERED: Final = 32 << 20
"""Bytes of an answer."""


@attrs.frozen(eq=False, repr=False)
class EmbeddingModel(EndpointModel):
    """A model that makes vectors of texts."""

    path: str = "/embeddings"
    """Path of the endpoint below the address of the client."""
    breaker: CircuitBreaker = attrs.field(factory=lambda: CircuitBreaker(after=1))
    """Opens at the first failure: whoever asks can do without."""

    async def embed(self, texts: Sequence[str], label: Label, *, within: float) -> Sequence[array[float]]:
        """Return a vector for each text. Raises ModelError, after `within` seconds at most.

        Of the kind "request" or "overflow" if the server does not take these texts; others may pass. Cancelled: the connection is
        closed, and nothing is counted.
        """
        if not self.breaker.lets_through:
            raise ModelError(f"{self.name}: it has failed a moment ago: {self.breaker.status.why}", kind="network")
        is_probe = self.breaker.begin_probe()
        try:
            with trio.move_on_after(within):
                vectors = await self._embed(texts, label)
                self.breaker.succeeded()
                return vectors
            raise ModelError(f"{self.name}: no answer within {within:g} seconds", kind="timeout")
        except ModelError as error:
            if error.kind not in ("request", "overflow", "budget"):
                self.breaker.failed(str(error), is_probe=is_probe)
            elif is_probe:
                self.breaker.succeeded()
            raise
        except BaseException:
            if is_probe:
                self.breaker.abandon_probe()
            raise

    async def _embed(self, texts: Sequence[str], label: Label) -> Sequence[array[float]]:
        tokens = round(sum(map(text_tokens, texts)))
        await self._admit(label, tokens)
        body = encode_json({"model": self.model_id, "input": list(texts)})
        answer = await self._call(self.path, body, {}, MOST_ANSWERED)
        # In a thread: a batch is some megabytes of numbers.
        vectors, counted = await trio.to_thread.run_sync(_read, answer, len(texts), self.name)
        self._count(label, Usage(counted, 0) if counted else None, tokens)
        return vectors


def _read(answer: bytes, count: int, name: str) -> tuple[Sequence[array[float]], int]:
    """Return the vectors of an answer, and the tokens that the server has counted, 0 if it has not. Raises ModelError."""
    try:
        facts = decode_object(answer.decode("utf-8", "replace"))
        data: Any = facts.get("data")
        found = {each.get("index", place): each["embedding"] for place, each in enumerate(data)}
        vectors = [_vector(found[place]) for place in range(count)]
        if len(data) != count or len({len(vector) for vector in vectors}) > 1:
            raise ValueError("another number of vectors, or of different lengths")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, WireError):
        raise ModelError(
            f"{name}: its server answered with something else than vectors of the texts", kind="server"
        ) from None
    usage: Any = facts.get("usage")
    return vectors, usage_of(usage, "prompt_tokens", "completion_tokens").prompt_tokens


def _vector(numbers: object) -> array[float]:
    """Return the numbers of a vector. Raises ValueError for what is none: no numbers, NaN, or nothing but zeros."""
    if not isinstance(numbers, list) or len(numbers) > MOST_NUMBERS or bool in map(type, numbers):
        raise ValueError("no vector")
    vector = array("f", numbers)
    if not all(map(isfinite, vector)) or not any(vector):
        raise ValueError("no direction")
    return vector
