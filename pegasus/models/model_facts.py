"""Facts about models that are found out while they are used: their windows (`ModelFacts`), and their behaviour (`TraitStore`).

**The window** decides how large the prompt may be, when a conversation is summarised, and how long results of tools may be. So there
is one number for each model, in one place, and everybody reads it anew each time. Where it comes from, the first that says something
wins:

1. A refusal that names the window: with a larger number every request would be refused.
2. The settings (`models.options."<provider>/<model>".context_window`, `models.context_window`).
3. The server, which is asked once before the first call (`describe_models`), or whatever its behaviour tells: a prompt of which it
   read only a part.
4. What is known of the model by its name (`catalog`).
5. 8,192 tokens for a server on one's own machine, 128,000 for others.

    facts = ModelFacts(name="lab/qwen", known=0, is_local=True, describe=describe)
    facts.context_window  # 8,192
    await facts.ask_server()
    facts.context_window  # 32,768, as the server says

**Traits** decide how a model is spoken with. A small local model behaves differently from a large hosted one, and no table could
know them all. So each is observed. One that has called a tool is expected to do so again. The text of one that only writes text is
taken for its reply. One whose server refuses tools is asked without them. The owner's choice with `/speech` is kept beside these
facts. All of it is remembered by `<provider>/<model>` in `data/models/traits.json`, so that a restart does not have to find
out again:

    {"ollama/qwen3:0.6b": {"callsTools": false, "writesText": true, "refusesTools": false, "speech": "", "contextWindow": 0}}

Reading is immediate, since the facts are needed before each model call. A trait that was learned holds at once and is written behind
it; if the disk refuses, that is logged, and the next change writes it. A choice of the owner is written first, so that the answer to
`/speech` is still true after a crash. A crash before a write costs one more question to the model, nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.models.base import AssistantTurn, ModelError, ModelRequest
from pegasus.models.catalog import DEFAULT_WINDOW
from pegasus.models.providers import SMALLEST_WINDOW, LocalModel
from pegasus.models.tokens import PromptEstimate, TokenCounter
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, KeyedStore, StorageError
from pegasus.wire import from_wire

_log = get_logger("models")

# ------------------------------------------------------------------ the window of a model

LOCAL_WINDOW: Final = 8_192
"""Tokens of a model on one's own machine whose server does not tell its window."""
_AGAIN: Final = 5.0
"""Seconds after which a server that did not answer is asked again, before the next call."""

# A prompt counts as cut if the server has read less than this share of a cautious estimate, and at least so many tokens less.
# The smaller share is for servers that read exactly as much as a usual window holds.
_SHARE, _SHARE_AT_A_LIMIT, _LEAST_MISSING = 0.5, 0.8, 400
_FEWEST: Final = 500
"""Tokens. A smaller count is not that of a cut prompt: some servers only count what is not in their cache."""
_LIMITS: Final = tuple(1024 << shift for shift in range(10))
"""Usual windows."""
_NEAR: Final = 16
"""Tokens between a count and the usual window, or half of it, that it stands for."""


class ModelFacts:
    """Window of one model. All roles and calls share one; what it learns is kept until the settings change.

    name: `<provider>/<model>`. configured: window of the settings, 0 for none. known: window by the model's name, 0 if that is not
    known. describe: asks the server about the model, None if it does not answer; it takes at most two seconds and never raises.
    None for servers that do not tell.
    """

    def __init__(
        self,
        name: str = "",
        *,
        configured: int = 0,
        known: int = 0,
        is_local: bool = False,
        describe: Callable[[], Awaitable[LocalModel | None]] | None = None,
    ) -> None:
        self.server = ""
        """Program that serves the model ("Ollama", "llama.cpp", …), "" if that is not known."""
        self.context_window = 0
        """Tokens that fit into the model, as far as is known at this moment."""
        self.is_assumed = True
        """True while nobody has told the window and the model has not answered: it may be out of reach, or not exist."""
        self._name = name
        self._configured = configured
        self._known = known
        self._is_local = is_local
        self._describe = describe
        self._stated = 0
        """Window that the server told or showed."""
        self._described = 0
        """Window of the server's last description."""
        self._limit = 0
        """Window that a refusal named."""
        self._lock = trio.Lock()
        self._not_before = 0.0 if describe is not None else float("inf")
        """Trio time from which the server may be asked; infinite once it has answered."""
        self.has_answered = False
        """The server has answered a call. What it does not tell then, it never will."""
        self._shortest_taken = self._longest_taken = 0
        """Tokens of prompts that were answered; 0 before the first."""
        self._has_remembered = False
        """A window of an earlier run was taken over."""
        self._has_warned = False
        self._conclude()

    def _conclude(self) -> None:
        """Set the window after something was learned. It is read far more often."""
        stated = self._configured or self._stated or self._known
        window = stated or (LOCAL_WINDOW if self._is_local else DEFAULT_WINDOW)
        self.context_window = min(window, self._limit) if self._limit else window
        self.is_assumed = not (stated or self._limit or self.has_answered)

    # ------------------------------------------------------------ learning

    async def ask_server(self, remembered: int = 0) -> int:
        """Ask the server for the context window, if that has not been done, and return the window. At most two seconds; never raises.

        A caller who comes meanwhile waits for the answer.

        remembered: window that was learned in an earlier run, 0 for none. It counts unless the server tells its window.
        """
        if self._describe is not None and trio.current_time() >= self._not_before:
            async with self._lock:
                if trio.current_time() >= self._not_before:
                    model = await self._describe()
                    is_over = model is not None or self.has_answered
                    self._not_before = float("inf") if is_over else trio.current_time() + _AGAIN
                    if model is not None:
                        self._take(model)
        if remembered and not self._has_remembered:
            self._has_remembered = True
            if not self._described:
                self.limit(remembered)
        return self.context_window

    def _take(self, model: LocalModel) -> None:
        """Take over what the server tells."""
        self.server = model.server
        is_ollama = model.server == "Ollama"
        from pegasus.models.formats import usual_window

        stated = usual_window(model.context_window, model.default_window) if is_ollama else model.context_window
        if stated != self._described:  # a server that was started anew, maybe with another window
            self._described, self._stated, self._limit = stated, stated, 0
            self._conclude()
        _log.info(
            "a local server describes its model", model=self._name, server=model.server, window=self.context_window
        )

    def forget(self) -> None:
        """Ask the server again before the next call: it was not there, and may come back with another window."""
        if self._describe is not None:
            self._not_before, self.has_answered = min(self._not_before, trio.current_time()), False
            self._conclude()

    def note_failure(self, error: ModelError) -> None:
        """Learn from a failed call: the window that a refusal names; and a server that was not there is asked again."""
        if error.context_window:
            self.limit(error.context_window)
        elif error.kind in ("network", "timeout"):
            self.forget()

    def limit(self, tokens: int) -> None:
        """Note the window that a refusal named."""
        if tokens >= SMALLEST_WINDOW and tokens != self._limit:
            self._limit = tokens
            self._stated = self._stated or tokens
            self._conclude()
            _log.info("the window of a model was learned", model=self._name, window=self.context_window)

    # ------------------------------------------------------------ refusals that do not say why

    def note_taken(self, tokens: int) -> None:
        """Note that a prompt of so many tokens was answered, as its server has counted them, else as they were estimated.

        After its first answer the server is asked again: it may tell more now that it has loaded the model.
        """
        self._shortest_taken = min(tokens, self._shortest_taken or tokens)
        self._longest_taken = max(tokens, self._longest_taken)
        if not self.has_answered:
            self.has_answered = True
            if self._not_before < float("inf"):
                self._not_before = trio.current_time()
            self._conclude()

    def may_be_too_long(self, request: ModelRequest, tokens: int) -> bool:
        """Return whether a refusal without a known reason may mean the length of the prompt, in whatever words or language.

        So it is after a shorter prompt was answered, if this one is the longest so far or fills more than half of the window. An
        answer in the conversation shows that a shorter one was answered, also after a restart.

        tokens: estimate of the prompt's size. It begins with what the server has counted of this conversation, so it is above all of
        the conversation's earlier prompts.
        """
        has_answer = any(isinstance(turn, AssistantTurn) for turn in request.turns)
        is_shorter_known = has_answer or 0 < self._shortest_taken < tokens
        return is_shorter_known and (tokens > self._longest_taken or 2 * tokens > self.context_window)

    # ------------------------------------------------------------ prompts that the server cuts

    def check_prompt(self, request: ModelRequest, read: int, estimate: PromptEstimate, counter: TokenCounter) -> str:
        """Return a notice if the server has read only a part of a prompt without saying so, once for each model; else "".

        read: tokens that the server has counted, those of its cache included. estimate: of the prompt, before this answer. counter: of
        the model. It looks at the whole prompt (`TokenCounter.at_least`) only where the estimate leaves a doubt.

        The check is cautious, because a wrong notice costs trust: it compares with the least that the text can be, and ignores numbers
        that look like those of servers which count only what is not in their cache. It sets the window, too, so that the next prompt
        fits.
        """
        if (
            self._has_warned
            or read < _FEWEST
            or read >= estimate.tokens * _SHARE_AT_A_LIMIT
            or estimate.known > 2 * read
        ):
            return ""
        sent = counter.at_least(request)
        limit = next((size for size in _LIMITS if size - _NEAR <= read <= size), 0)
        half = next((size for size in _LIMITS if abs(read - size // 2) <= _NEAR), 0)
        share = _SHARE_AT_A_LIMIT if limit or half else _SHARE
        if read >= sent * share or sent - read < _LEAST_MISSING:
            return ""
        # A server that cuts may keep only half of its window, so that there is room for the answer.
        window = limit or half or next((size for size in _LIMITS if size >= read), read)
        self._stated = self._limit = window
        self._has_warned = True
        self._conclude()
        _log.warning("the server cuts the prompt", model=self._name, read=read, sent=sent, window=window)
        return (
            f"The server of {self._name} has read only {read:,} of about {estimate.tokens:,} tokens that I sent, "
            f"and dropped the rest without saying so. I keep to {window:,} tokens from now on. For more, {self._advice()}."
        )

    def _advice(self) -> str:
        """Return the setting to change, by the program if it is known."""
        by_server = {
            "llama.cpp": "start it with a larger window: `llama-server -c 32768 …`",
            "LM Studio": "load the model with a larger Context Length",
        }
        general = 'give the server a larger window; for Ollama use a provider of type "ollama", or set OLLAMA_CONTEXT_LENGTH=32768'
        return by_server.get(self.server, general)


# ------------------------------------------------------------------ the manners of models

SPEECHES: Final = ("auto", "monologue", "direct")
"""Ways of speaking that `agent.speech` and `/speech` allow."""
_OFFLINE: Final = "offline/"
"""Beginning of the stand-in's name. It calls tools by fixed rules, so its silence is deliberate from the first message on."""


@attrs.frozen
class ModelTraits:
    """Facts about one model."""

    calls_tools: bool = False
    """True if it has called a tool that it was offered."""
    writes_text: bool = False
    """True if it writes text where it should call `reply`, so that its text is taken for the reply."""
    refuses_tools: bool = False
    """Its server refuses requests with tools."""
    speech: str = ""
    """Choice of the owner by `/speech`, one of SPEECHES; "" for the setting `agent.speech`."""
    context_window: int = 0
    """Tokens of its window, as a refusal of its server told it; 0 if none did."""


class TraitStore:
    """The traits of all models, in memory and on disk."""

    def __init__(self) -> None:
        self._store = KeyedStore("model-traits", _read_traits)
        """On disk, by `<provider>/<model>`."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._learned: dict[str, ModelTraits] = {}
        """Traits that hold and may not be on disk yet."""

    def get(self, model: str) -> ModelTraits:
        """Return what is known of a model, `<provider>/<model>`."""
        return (
            self._learned.get(model)
            or self._store.rows.get(model)
            or ModelTraits(calls_tools=model.startswith(_OFFLINE))
        )

    async def load(self, journal: Ref[JournalMessage]) -> None:
        """Read the traits of earlier runs, and write changes to this journal from now on. Never raises."""
        await self._store.open(journal)

    async def learn(self, model: str, **facts: Any) -> ModelTraits:
        """Change traits of a model, fields of `ModelTraits`, and return all. They hold at once; a disk that refuses is only logged."""
        known = self.get(model)
        changed = attrs.evolve(known, **facts)
        if changed == known:
            return known
        _log.info("learned about a model", model=model, **facts)
        self._learned[model] = changed
        try:
            async with self._store.change():
                await self._save()
        except (StorageError, ActorError) as error:
            _log.error("the traits of a model are not on disk", model=model, error=str(error))
        return changed

    async def choose_speech(self, model: str, speech: str) -> None:
        """Keep the owner's choice for a model; one of SPEECHES. Raises StorageError, and nothing has changed then.

        Everything that was learned about its manners is forgotten, so "auto" finds out anew.
        """
        async with self._store.change():
            fresh = ModelTraits(calls_tools=model.startswith(_OFFLINE))
            await self._save({model: attrs.evolve(fresh, speech=speech, context_window=self.get(model).context_window)})

    async def _save(self, chosen: Mapping[str, ModelTraits] | None = None) -> None:
        """Write what was chosen, and what was learned before."""
        learned = dict(self._learned)
        await self._store.save({**learned, **(chosen or {})})
        for model, traits in learned.items():
            if self._learned[model] is traits or model in (chosen or {}):
                del self._learned[model]


def _read_traits(model: str, value: Json) -> tuple[str, ModelTraits]:
    """Return name and traits of a model in the file. Raises ValueError."""
    traits = from_wire(value, ModelTraits)
    if traits.speech not in ("", *SPEECHES):
        raise ValueError(f"{model}: speech: found {traits.speech!r}; allowed: {', '.join(SPEECHES)}")
    return model, traits
