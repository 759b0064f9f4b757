"""A model with others behind it, tried in order when the one before is down or overloaded."""

from __future__ import annotations

from typing import Final

from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse
from pegasus.observe import get_logger

_log = get_logger("models")

_PASSING: Final = frozenset({"overloaded", "server", "network", "timeout"})
"""Kinds of errors that say something about the provider's state, not about the request or the key."""


class FallbackModel:
    """A LanguageModel. Each model in the chain has its own time limit; name is the first one's."""

    def __init__(self, chain: tuple[LanguageModel, ...]) -> None:
        self._chain = chain

    @property
    def name(self) -> str:
        """`<provider>/<model>` of the first."""
        return self._chain[0].name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the first that can answer. Raises the ModelError of the first, with what the others said."""
        errors: list[ModelError] = []
        for model in self._chain:
            try:
                return await model.generate(request)
            except ModelError as error:
                errors.append(error)
                if error.kind not in _PASSING:
                    break
                _log.warning("model failed, the next is asked", model=model.name, why=str(error))
        first = errors[0]
        if len(errors) == 1:
            raise first
        words = "; then ".join(str(error) for error in errors)
        raise ModelError(words, kind=first.kind, status=first.status) from first
