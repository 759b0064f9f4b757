"""Vectors for the search of memory, by the model of `models.embed`, which gets texts without secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pegasus.models import Label, ModelError
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.models import EmbeddingModel

_REFUSALS = ("request", "overflow")
"""Kinds of errors that are about the texts of a call."""

_log = get_logger("memory")


class MemoryEmbedder:
    """`TextEmbedder` by the model that the settings name. model: returns it. redact: removes secrets.

    Example: `memory_in(data, journal, clock, embedder=MemoryEmbedder(lambda: models.embedder, secrets.redact))`.
    """

    def __init__(self, model: Callable[[], EmbeddingModel | None], redact: Callable[[str], str]) -> None:
        self._model, self._redact = model, redact
        self._fails = False

    @property
    def name(self) -> str:
        """Name of the model, "" if there is none."""
        return "" if (model := self._model()) is None else model.name

    async def embed(self, texts: Sequence[str], within: float) -> Sequence[Sequence[float]] | None:
        """Return a vector for each text, () for one that the model does not take; None if it does not work. Never raises."""
        if (model := self._model()) is None:
            return None
        try:
            vectors = await model.embed([self._redact(text) for text in texts], Label("embed"), within=within)
        except ModelError as error:
            if error.kind in _REFUSALS:
                return await self._each(texts, within) if len(texts) > 1 else [()]
            if not self._fails:
                _log.warning("memory is searched by words until embeddings work again", error=str(error))
            self._fails = True
            return None
        if self._fails:
            _log.info("embeddings work again", model=model.name)
        self._fails = False
        return vectors

    async def _each(self, texts: Sequence[str], within: float) -> Sequence[Sequence[float]] | None:
        """Return the vectors of texts that are not taken together: one of them is too long, or too much for one call."""
        vectors: list[Sequence[float]] = []
        for text in texts:
            made = await self.embed((text,), within)
            if made is None:
                return None
            vectors += made
        return vectors
