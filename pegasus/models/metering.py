"""A model whose calls are counted, and refused before they are made where a limit says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse, Usage


class Ticket(Protocol):
    """What a call may use is set aside for it; exactly one of these ends that."""

    def used(self, usage: Usage, text: str) -> None:
        """It was answered. usage: as the provider counted it, all 0 where it did not; text: the answer's."""

    def broke_off(self, said: int, why: str) -> None:
        """It failed or was cancelled after so many characters; why: the ModelError's kind or "cancelled"."""


class Meter(Protocol):
    """Keeps count of calls."""

    async def admit(self, model: str, request: ModelRequest) -> Ticket:
        """Let a call begin. Raises ModelError of kind "budget" if a limit forbids it; nothing is set aside then."""


class MeteredModel:
    """A LanguageModel. meter: gives the meter; called for every call, so that making it can wait for the first one."""

    def __init__(self, model: LanguageModel, meter: Callable[[], Meter]) -> None:
        self.inner = model
        self._meter = meter

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""
        return self.inner.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask, if no limit forbids it. Raises ModelError. Cancelled: what was said until then is counted."""
        ticket = await self._meter().admit(self.inner.name, request)
        said = _Said(request.on_text)
        try:
            response = await self.inner.generate(request.telling(said))
        except ModelError as error:
            ticket.broke_off(said.characters, error.kind)
            raise
        except BaseException:
            ticket.broke_off(said.characters, "cancelled")
            raise
        ticket.used(response.usage, response.text)
        return response


class _Said:
    """Counts the text that comes, over all attempts: each was paid for."""

    def __init__(self, on_text: Callable[[str | None], None] | None) -> None:
        self._on_text = on_text
        self.characters = 0

    def __call__(self, piece: str | None) -> None:
        self.characters += len(piece or "")
        if self._on_text is not None:
            self._on_text(piece)
