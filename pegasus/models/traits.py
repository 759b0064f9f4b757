"""Traits of models: facts that were learned about a model and decide how it is spoken with.

A small local model behaves differently from a large hosted one, and no table could know them all. So each is observed: one that
has called a tool is trusted to do so again; one that only writes text is listened to; one whose server refuses tools is asked
without them. The owner's choice with `/speech` is kept beside these facts. All of it is remembered by `<provider>/<model>` in the
file TRAITS_FILE below data/, so that a restart does not have to find out again:

    {"ollama/qwen3:0.6b": {"callsTools": false, "writesText": true, "refusesTools": false, "speech": "", "contextWindow": 0}}

Reading is immediate, since the facts are needed before each model call. A fact that was learned holds at once and is written behind
it; if the disk refuses, that is logged, and the next change writes it. A choice of the owner is written first, so that the answer to
`/speech` is still true after a crash. A crash before a write costs one more question to the model, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, ReadFile, ReplaceFile, StorageError
from pegasus.wire import decode_object, encode_line, from_wire, to_wire

_log = get_logger("models")

TRAITS_FILE: Final = "models/traits.json"
"""File of all traits, below data/."""
SPEECHES: Final = ("auto", "monologue", "direct")
"""Ways of speaking that `agent.speech` and `/speech` allow."""
_OFFLINE: Final = "offline/"
"""Beginning of the stand-in's name. It calls tools by fixed rules, so its silence is deliberate from the first message on."""


@attrs.frozen
class ModelTraits:
    """Facts about one model.

    Example: `ModelTraits(calls_tools=True)` for a model whose silence is deliberate.
    """

    calls_tools: bool = False
    """It has called a tool that it was offered."""
    writes_text: bool = False
    """It writes text where it should call `reply`, so its text is taken for the reply."""
    refuses_tools: bool = False
    """Its server refuses requests with tools."""
    speech: str = ""
    """Choice of the owner by `/speech`, one of SPEECHES; "" for the setting `agent.speech`."""
    context_window: int = 0
    """Tokens of its window, as a refusal of its server told it; 0 if none did."""


class TraitStore:
    """The traits of all models, in memory and on disk.

    Example:
        traits = TraitStore()
        await traits.load(journal, clock)
        await traits.learn("ollama/qwen3:0.6b", writes_text=True)
        traits.get("ollama/qwen3:0.6b").writes_text  # True, also after a restart
    """

    def __init__(self) -> None:
        self._traits: dict[str, ModelTraits] = {}
        """By `<provider>/<model>`."""
        self._journal: Ref[JournalMessage] | None = None
        """Writes the file; None before `load`, and then nothing is kept."""
        self._lock = trio.Lock()
        """Held while the file is written, so that an older state never replaces a newer one."""

    def get(self, model: str) -> ModelTraits:
        """Return what is known of a model, `<provider>/<model>`."""
        return self._traits.get(model) or ModelTraits(calls_tools=model.startswith(_OFFLINE))

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the traits of earlier runs, and write changes to this journal from now on.

        clock: returns the wall clock, ms. A file that cannot be understood is set aside beside its place, which is logged; the facts
        are then learned anew. Never raises.
        """
        self._journal = journal
        try:
            content = await journal.ask(ReadFile, TRAITS_FILE)
            try:
                self._traits = _decode(content) if content else {}
            except ValueError as error:
                aside = f"{TRAITS_FILE}.bad-{clock()}"
                _log.warning("set the file of model traits aside: it is damaged", file=aside, error=str(error))
                await journal.ask(ReplaceFile, aside, content)
        except (StorageError, ActorError) as error:
            _log.warning("the file of model traits cannot be read", file=TRAITS_FILE, error=str(error))

    async def learn(self, model: str, **facts: Any) -> None:
        """Change traits of a model: fields of `ModelTraits`. They hold at once; a disk that refuses is only logged."""
        known = self.get(model)
        changed = attrs.evolve(known, **facts)
        if changed == known:
            return
        _log.info("learned about a model", model=model, **facts)
        self._traits[model] = changed
        try:
            async with self._lock:
                await self._write(self._traits)
        except (StorageError, ActorError) as error:
            _log.error("the traits of a model are not on disk", model=model, error=str(error))

    async def choose_speech(self, model: str, speech: str) -> None:
        """Keep the owner's choice for a model; one of SPEECHES. Raises StorageError, and nothing has changed then.

        Everything that was learned about its manners is forgotten, so "auto" finds out anew.
        """
        async with self._lock:
            fresh = ModelTraits(calls_tools=model.startswith(_OFFLINE))
            chosen = attrs.evolve(fresh, speech=speech, context_window=self.get(model).context_window)
            await self._write({**self._traits, model: chosen})
            self._traits[model] = chosen

    async def _write(self, traits: Mapping[str, ModelTraits]) -> None:
        """Replace the file. Raises StorageError and ActorError."""
        if self._journal is not None:
            record: dict[str, Json] = {model: to_wire(facts) for model, facts in traits.items()}
            await self._journal.ask(ReplaceFile, TRAITS_FILE, encode_line(record))


def _decode(content: bytes) -> dict[str, ModelTraits]:
    """Return the traits in the content of the file. Raises ValueError."""
    traits = {model: from_wire(facts, ModelTraits) for model, facts in decode_object(content).items()}
    for model, facts in traits.items():
        if facts.speech not in ("", *SPEECHES):
            raise ValueError(f"{model}: speech: found {facts.speech!r}; allowed: {', '.join(SPEECHES)}")
    return traits
