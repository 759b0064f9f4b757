"""`POST /v1/embeddings`: texts as vectors, by the model that `models.embed` names, counted within the budgets of the settings.

A client may name any model. The vectors are those of the one that there is, so their length is its own (`dimensions` is refused).
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from pegasus.access import MESSAGE
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.web.bodies import EmbeddingsBody
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, json_response
from pegasus.web.routes.client_turns import label_of, model_failure, model_of
from pegasus.web.visitors import ApiError

MOST_TEXTS: Final = 2_048
"""Texts of a request, as in OpenAI's API."""
WITHIN: Final = 60.0
"""Seconds that the model may take."""


def read_texts(input: Json) -> list[str]:
    """Return the texts of a request. Raises ApiError; tokens of another model's alphabet are no texts."""
    texts = [input] if isinstance(input, str) else input
    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_TEXTS:
        raise ApiError(400, "bad_request", f"input: allowed: a text or a list of 1 to {MOST_TEXTS:,} texts")
    found = [text for text in texts if isinstance(text, str) and text]
    if len(found) < len(texts):
        raise ApiError(400, "bad_request", "input: found something that is no text, or an empty one; allowed: texts")
    return found


def _packed(vector: array[float]) -> str:
    """Return a vector in base64: 32-bit numbers, the lowest byte first."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


class EmbeddingRoutes:
    """Handler of embeddings."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def create(self, request: ApiRequest) -> Response:
        """Return a vector for each text. Raises ApiError, 501 if no model makes vectors here."""
        fields = await request.json()
        texts, form = read_texts(fields.get("input")), fields.get("encoding_format") or "float"
        if fields.get("dimensions") is not None:
            raise ApiError(400, "bad_request", "dimensions: the length is that of the model; leave it out")
        model = self._services.embedder()
        if model is None:
            raise ApiError(
                501, "not_implemented", "no model makes vectors here; models.embed of the settings names one"
            )
        try:
            vectors = await model.embed(texts, label_of(request, "embed"), within=WITHIN)
        except ModelError as error:
            raise model_failure(error) from None
        return json_response(_answer(model_of(fields), vectors, packed=form == "base64"))


def _answer(model: str, vectors: Sequence[array[float]], *, packed: bool) -> dict[str, Json]:
    data: list[Json] = [
        {"object": "embedding", "index": n, "embedding": _packed(vector) if packed else list(vector)}
        for n, vector in enumerate(vectors)
    ]
    # The model's own server counts the tokens; the agent's counts are in /api/usage.
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": 0, "total_tokens": 0}}


def embedding_operations(services: WebServices) -> tuple[Operation, ...]:
    """Return the operation of this file."""
    return (
        Operation(
            "POST",
            "/v1/embeddings",
            EmbeddingRoutes(services).create,
            "Texts as vectors",
            MESSAGE,
            body=EmbeddingsBody,
        ),
    )
