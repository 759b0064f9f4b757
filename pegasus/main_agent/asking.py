"""Asking the model: one thought, from the session to an answer that can be acted on.

A request holds the whole session as turns, behind a prompt and tools that stay the same for a way of speaking. That lets the provider
reuse its cache of everything but the newest entries, and it makes a request a pure function of the session and of the model's traits,
so a restart sends the same one again.

Usually one model call gives the answer. More are made, all before anything is written, in these cases:

* The session is too long: it is compacted, and the call repeated.
* The server refuses tools: that is remembered, and the model is asked without them, in direct speech.
* A model that is not proven yet calls nothing: it is nudged once.
* A newer message ends the call (`when_busy = "interrupt"`): there is no answer, and the caller takes the message along.

With `agent.speech = "auto"` the way of speaking (`toolset`) is found out with each model:

* One that has called a tool is trusted. It speaks as a monologue, and its silence is deliberate.
* One that has not, and answers a person with text alone, is told once that nobody heard it (the nudge). If it writes text again, it
  speaks directly from then on, and its first text is delivered: the second one usually apologises to the program.
* One that gives no text either is nudged as well. If nothing comes of that, the person is told that the model gave no answer.
* One whose server refuses tools speaks directly, without tools.

The nudge and the answer to it are never written to the session. The first answer is held back until it is decided, so a crash
meanwhile leaves the session as it was, and the model is simply asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.access import OWN_TYPES
from pegasus.conversation import parse_metadata_line, without_calls
from pegasus.formatting import truncate
from pegasus.identity import SILENCE, SMALL_WINDOW
from pegasus.main_agent.drafts import DraftBoard, DraftWriter
from pegasus.main_agent.queue_items import TASK_NOTIFICATION
from pegasus.main_agent.replies import REPLY
from pegasus.main_agent.reply_decisions import labels_of_reply
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session
from pegasus.main_agent.toolset import AgentToolset, SpeechMode, choose_speech_mode, is_silence
from pegasus.main_agent.turns import AgentTurn, find_newer, may_join
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import (
    AssistantTurn,
    Label,
    LanguageModel,
    ModelClient,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelTraits,
    PreparedModel,
    Turn,
    Usage,
    UserTurn,
    find_calls,
    without_calls_in_text,
)
from pegasus.observe import get_logger
from pegasus.schedule import SCHEDULED
from pegasus.settings import AgentSettings
from pegasus.storage import Item, JournalMessage, KnownAddresses
from pegasus.wire import WireError, decode_object, encode_json

_log = get_logger("main_agent")

TOOLS_REFUSED: Final = (
    "its server refuses tools, so the model cannot call reply, and agent.speech is monologue. "
    "/speech auto lets its text be the reply"
)
"""Reason for a person, where a model has no way to speak."""

LONGEST_ASIDE: Final = 40
"""Characters of text that a model may write beside a call. A longer text of a model that nobody knows yet is probably its reply."""
SHORT_MESSAGE: Final = 4_000
"""Characters. A window that such a message does not fit into is too small; otherwise the message is too long."""


@attrs.frozen(eq=False, repr=False)
class ModelAnswer:
    """An answer of the model, and what of it people are told.

    Example: `ModelAnswer(ModelResponse("Hello", …), spoken="Hello")` for direct speech.
    """

    response: ModelResponse
    """The answer for the session. Its text is `spoken`, where there is one."""
    spoken: str = ""
    """Text that is the reply itself; "" if only calls of `reply` speak."""
    failure: str = ""
    """Text for the person in place of a reply, which ends the work on the item; "" if there is an answer."""
    is_final: bool = False
    """The answer ends the work, although it was cut off."""
    notice: str = ""
    """Sentence for the owner about the model's server, to be shown beside the answer."""


@attrs.define(eq=False, repr=False)
class AgentThought:
    """One thought about an item: asks the model until there is an answer to act on.

    Example:
        thought = AgentThought(session, services, services.config.now, services.toolset.now, journal, board, turn, max_replies=20)
        answer = await thought.ask(wanted="")
    """

    _session: Session
    """Gives the turns of the request, and is compacted if they are too long."""
    _services: AgentServices
    """Gives the models, their traits and windows, and the compactor."""
    _config: AgentSettings
    """The settings of this thought, which sees one version of them."""
    _toolset: AgentToolset
    """Prompt and tools of this thought, in a variant for each kind of model."""
    _journal: Ref[JournalMessage]
    """Asked for newer messages, and for the conversations that drafts may be shown in."""
    _board: DraftBoard
    """Drafts that people see now."""
    _turn: AgentTurn
    """The turn that it belongs to."""
    _max_replies: int
    """Replies that the item may still have."""
    _model: LanguageModel = attrs.field(init=False)
    """Model that is asked."""
    _known: ModelTraits = attrs.field(factory=ModelTraits, init=False)
    """Its traits when it was asked."""
    _offered: frozenset[str] = attrs.field(default=frozenset(), init=False)
    """Names of the tools that the last request has offered."""
    _refused_tools: bool = attrs.field(default=False, init=False)
    """A model that was asked has refused tools. It may be a fallback, so the traits of the model do not say it."""
    _was_shortened: bool = attrs.field(default=False, init=False)
    """The session was compacted because a refusal that gives no known reason may have meant its length."""

    async def ask(self, wanted: str) -> ModelAnswer | None:
        """Return the answer; None if a newer message of the chat has ended the call (`when_busy = "interrupt"`).

        wanted: model that the skills in force want, "" for the agent's own. Raises ModelError.
        """
        self._model, traits = self._model_for(wanted), self._services.traits
        if isinstance(self._model, ModelClient):
            # The prompt depends on the window, which a local server tells, or told by a refusal in an earlier run.
            self._model = await self._model.prepare()
        first: ModelResponse | None = None
        notices: list[str] = []
        while True:
            self._known = known = traits.get(self._model.name)
            if self._refused_tools:
                # It may have been a fallback; the call is repeated without them though the model itself may take them.
                known = attrs.evolve(known, refuses_tools=True)
            manner = choose_speech_mode(self._config.speech, known)
            if not manner.has_tools and not manner.is_direct:
                raise ModelError(f"{self._model.name}: {TOOLS_REFUSED}", kind="silent")
            try:
                response = await self._generate(manner, first)
            except ModelError as error:
                if error.kind == "tools" and manner.has_tools:
                    await traits.learn(error.model or self._model.name, refuses_tools=True)
                    # The nudge belongs to the manner with tools; without them the answer is asked for anew.
                    first, self._refused_tools = None, True
                    continue
                # What a person could be told already is not lost with the error of a later call.
                if (answer := _rest(error, first, manner)) is None:
                    raise
                return attrs.evolve(answer, notice="\n\n".join(notices))
            if response is None:
                return None
            if not manner.has_tools:
                response = attrs.evolve(response, text=_text_of_replies(response.text))
            if response.notice:
                notices.append(response.notice)
            # The answer may be that of a fallback, or of another model by a rule.
            name = response.model or self._model.name
            manner = await self._judge(response, name, manner)
            # Most answers end here. What follows is for a model that has not shown yet how it speaks.
            if response.calls or response.stop_reason == "refusal" or not manner.is_watched:
                answer = _plain(response, manner)
            elif first is None and _must_nudge(response, manner, self._turn.item):
                first = response
                continue
            else:
                answer = await self._decide(first, response, name, manner)
            return attrs.evolve(answer, notice="\n\n".join(notices)) if notices else answer

    # ------------------------------------------------------------------ judging

    async def _judge(self, response: ModelResponse, name: str, asked: SpeechMode) -> SpeechMode:
        """Learn from an answer, and return how it is to be taken. asked: how the model was asked.

        The model may be another one than that of the request, by a rule or as a fallback. A text is the reply if the prompt said so or
        if this model is known to speak directly.
        """
        traits = self._services.traits
        known = self._known if name == self._model.name else traits.get(name)
        # Only a call of a tool that was offered proves that a model calls tools: some write calls of tools that they remember.
        is_new = not asked.is_direct and not known.calls_tools
        if is_new and any(call.name in self._offered and call.error is None for call in response.calls):
            known = await traits.learn(name, calls_tools=True)
        if known is self._known and not self._refused_tools:
            return asked
        manner = choose_speech_mode(self._config.speech, known)
        return attrs.evolve(manner, is_direct=manner.is_direct or asked.is_direct)

    async def _decide(
        self, first: ModelResponse | None, second: ModelResponse, name: str, manner: SpeechMode
    ) -> ModelAnswer:
        """Return the answer to act on, after one without calls. first: the answer before the nudge, None if there was none."""
        if first is None or is_silence(second.text):
            return _plain(first or second, SpeechMode(manner.is_direct))
        if second.text.strip() and not manner.is_direct:
            await self._services.traits.learn(name, writes_text=True)
        chosen = first if first.text.strip() else second
        if chosen.text.strip():
            return _delivered(chosen, chosen.text)
        return ModelAnswer(second, failure=no_answer(self._turn.item.message, is_cut=second.stop_reason == "length"))

    # ------------------------------------------------------------------ one model call

    async def _generate(self, manner: SpeechMode, first: ModelResponse | None) -> ModelResponse | None:
        """Call the model; None if a newer message has ended the call.

        The session is compacted before the call if it is due, and after it if the provider says that it is too long, as often as
        that makes it smaller; once where only the circumstances say so (`ModelError.may_be_length`). If the window turns out to be
        small, the call is repeated with the lean prompt first. Raises ModelError.
        """
        compactor, numbers = self._services.compactor(), [item.n for item in (*self._turn.earlier, self._turn.item)]
        is_lean = self._has_small_window()
        while True:
            request = self._request(manner, first, is_lean=is_lean)
            if compactor is not None and await compactor.fit(self._session, request, numbers):
                request = self._request(manner, first, is_lean=is_lean)
            try:
                return await self._call(request, manner, first)
            except ModelError as error:
                if error.may_be_length and not self._was_shortened:
                    self._was_shortened = True
                    if compactor is None or await compactor.compact(self._session, numbers, forced=True) is None:
                        raise
                    continue
                if error.kind != "overflow":
                    raise
                # The window that a refusal names is remembered, so the next request is measured against it.
                if error.context_window:
                    await self._services.traits.learn(
                        error.model or self._model.name, context_window=error.context_window
                    )
                # Three remedies, the cheapest first: a shorter prompt, a shorter session, and at last the shorter prompt for a
                # window that nobody knows. Each is tried once or makes the session smaller, so the loop ends.
                if not is_lean and self._has_small_window(error):
                    is_lean = True
                elif compactor is None or await compactor.compact(self._session, numbers, forced=True) is None:
                    if is_lean and len(self._turn.item.message.text) < SHORT_MESSAGE:
                        raise _too_small(self._model.name, error) from error
                    if is_lean:
                        raise
                    is_lean = True

    def _has_small_window(self, refusal: ModelError | None = None) -> bool:
        """Return whether the model needs the lean prompt. refusal: may name the window."""
        if refusal is not None and refusal.context_window:
            return refusal.context_window < SMALL_WINDOW
        if isinstance(self._model, PreparedModel):
            return self._model.facts.context_window < SMALL_WINDOW
        return 0 < self._services.context_window("default") < SMALL_WINDOW

    def _request(self, manner: SpeechMode, first: ModelResponse | None, *, is_lean: bool) -> ModelRequest:
        """Return the request: the whole session as turns, behind a prompt and tools that do not change for this manner.

        first: the answer that the model is nudged about. The label counts the usage for the channel and the number of this item.
        """
        shared, specs = self._toolset.profile(manner.is_direct, is_lean, manner.has_tools)
        turn, item = self._turn, self._turn.item
        prompt = shared if turn.prompt is None else turn.prompt.after(shared, lean=is_lean)
        turns = tuple(self._session.projection.turns)
        if not manner.has_tools:
            # Calls and results of earlier turns would be refused by the server as well.
            turns = without_calls(turns)
        if first is not None:
            turns = with_nudge(turns, first, manner)
        label = Label("default", item.message.channel, item.n, guest=turn.principal.guest)
        return ModelRequest(prompt, turns, specs, label=label, asks_again=first is not None)

    def _model_for(self, wanted: str) -> LanguageModel:
        """Return the model that a skill in force wants; the agent's own for "" or if there is no such model."""
        services = self._services
        if not wanted or services.model_for is None:
            return services.model
        try:
            return services.model_for(wanted)
        except ValueError as error:  # the settings have changed since the skill was called
            _log.warning("no such model, using the usual one", wanted=wanted, error=str(error))
            return services.model

    async def _call(
        self, request: ModelRequest, manner: SpeechMode, first: ModelResponse | None
    ) -> ModelResponse | None:
        """Call the model, and show drafts of its replies meanwhile. Raises ModelError.

        The first text of a model that nobody knows yet is shown as well: it becomes the reply if the model calls nothing. What it
        writes after the nudge (first: the answer before it) is not: that answer usually apologises.

        With `when_busy = "interrupt"`, return None as soon as a newer message may join the turn.
        """
        config, turn = self._config, self._turn
        self._offered = frozenset(spec.name for spec in request.tools)
        # The nursery ends as soon as the answer is there, or is cancelled by the task that waits for a newer message; then there
        # is no answer, and the caller takes the message along and asks again.
        response: ModelResponse | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            writer = DraftWriter(
                self._board,
                partial(self._journal.ask, KnownAddresses),
                nursery,
                turn.item.message.channel,
                is_direct=manner.is_direct or (manner.is_watched and first is None),
                shows_from=0 if manner.is_direct else LONGEST_ASIDE,
                max_replies=self._max_replies,
                is_private=not turn.principal.guest and turn.item.message.channel.type in OWN_TYPES,
                shows_reasoning=config.show_reasoning,
                may_leave=self._may_leave,
            )
            # A turn that has as many messages as it may have is not interrupted any more, so it comes to an end.
            if config.when_busy == "interrupt" and len(turn.earlier) < config.steer_cap:
                nursery.start_soon(self._cancel_on_newer, nursery.cancel_scope)
            try:
                response = await self._model.generate(attrs.evolve(request, on_pieces=writer))
            except Exception as error:
                failure = error  # raised below, since the nursery would wrap it in a group
            nursery.cancel_scope.cancel()
        if response is None:
            self._board.withdraw()
        if failure is not None:
            raise failure
        return response

    def _may_leave(self, channel: ChannelInfo) -> bool:
        """Return whether a reply may go to another conversation without the policy being asked about it."""
        turn, outside = self._turn, self._session.outside
        return not labels_of_reply(self._services, channel, turn.item.message, turn.principal, outside)

    async def _cancel_on_newer(self, scope: trio.CancelScope) -> None:
        """Wait for the next message of this chat, and cancel the scope of the model call if it may join the turn.

        A message that may not join ends the waiting: those behind it must not overtake it.
        """
        newer = await find_newer(self._journal, self._turn, wait=True)
        if newer is not None and may_join(newer, self._turn):
            scope.cancel()


# ------------------------------------------------------------------ answers that call nothing

NO_ANSWER: Final = "The model gave no answer. Sending the message again may help; /model chooses another model."
"""Text for a person whose message an unproven model has answered with nothing."""
CUT_OFF: Final = "(The answer was cut off at the token limit; max_tokens in [models.options] sets it.)"
"""Sentence behind a text that reached the limit, where the model is not asked to go on."""
REPEATED: Final = "(The model went on to repeat itself; the rest is left out.)"
"""Sentence behind a text whose end was the same again and again."""

_NUDGE: Final = (
    "(Nobody heard this: text reaches nobody. To answer, call the tool `reply` with the text. "
    f"To stay silent on purpose, write exactly {SILENCE}.)"
)
"""Reminder for a model that has written a text in the monologue and called nothing."""
_NUDGE_EMPTY: Final = (
    "(Your answer was empty. To answer the message above, call the tool `reply` with the text. "
    f"To stay silent on purpose, write exactly {SILENCE}.)"
)
"""Reminder for one that has written nothing at all."""
_NUDGE_DIRECT: Final = (
    f"(Your answer was empty. Answer the message above, or write exactly {SILENCE} to stay silent on purpose.)"
)
"""The same in direct speech, where no tool is needed to answer."""
_AWAITED: Final = ("completed", "failed", "needs_info")
"""Kinds of a task's notifications that somebody waits for. Updates in between may pass in silence."""
_RESULT_LENGTH: Final = 1500
"""Characters of a task's result that are shown where the model said nothing about it."""
_MOST_REPEATS: Final = 6
"""Number of times in a row that the end of a text may come before it counts as running in circles."""
_LONGEST_UNIT: Final = 400
"""Characters of a repeated piece that is looked for."""
_SHORTEST_CIRCLE: Final = 300
"""Characters that all copies together must have. Less is laughter, or a table."""


def must_speak(message: InboundMessage) -> bool:
    """Return whether somebody waits for an answer to this item: a person, or whoever asked for the task or the job that reports."""
    if not message.is_internal:
        return True
    kind = message.metadata.get("type")
    return kind == SCHEDULED or (kind == TASK_NOTIFICATION and message.metadata.get("notification") in _AWAITED)


def with_nudge(turns: Sequence[Turn], first: ModelResponse, manner: SpeechMode) -> tuple[Turn, ...]:
    """Return the conversation with a model's first answer at its end, and a reminder that nobody heard it.

    After an empty answer the reminder is put into the last turn of the user: some servers refuse an assistant's turn without text.
    """
    said, last = first.text.strip(), turns[-1]
    reminder = _NUDGE_DIRECT if manner.is_direct else _NUDGE if said else _NUDGE_EMPTY
    if said or not isinstance(last, UserTurn):
        return (*turns, AssistantTurn(said or SILENCE), UserTurn(text=reminder))
    text = "\n\n".join(part for part in (last.text, reminder) if part)
    return (*turns[:-1], UserTurn(last.results, text, last.images))


def no_answer(message: InboundMessage, *, is_cut: bool) -> str:
    """Return the text for whoever waits, after a model gave no answer. A task's result is shown in its place.

    is_cut: it reached the token limit before it had written anything that can be delivered, in its reasoning.
    """
    if not message.is_internal:
        return f"{NO_ANSWER} {CUT_OFF}" if is_cut else NO_ANSWER
    if message.metadata.get("type") == SCHEDULED:
        return f"{truncate(message.text, _RESULT_LENGTH)}\n\n(A scheduled job is due, and the model gave no answer about it.)"
    try:
        report = decode_object(message.text)
        result = report.get("response") or report.get("error") or message.text
    except (ValueError, WireError):
        result = message.text
    kind = str(message.metadata.get("notification", "")).replace("_", " ")
    text = result if isinstance(result, str) else encode_json(result)
    return f"Task {message.metadata.get('taskId')} {kind}: {truncate(text, _RESULT_LENGTH)}\n\n(The model gave no answer about it.)"


def text_to_deliver(text: str, *, is_cut: bool) -> str:
    """Return the text to deliver: without an end that repeats itself, and with a sentence about what is missing.

    is_cut: it ended at the token limit. A small model may write the same line until it reaches that limit.
    """
    text = text.strip()
    first_line, _, rest = text.partition("\n")
    if parse_metadata_line(first_line) is not None:
        text = rest.strip()  # the line above each message in the prompt, which small models imitate
    shortened = without_repetition(text)
    if shortened != text:
        return f"{shortened}\n\n{REPEATED}"
    return f"{text}\n\n{CUT_OFF}" if is_cut and text else text


def without_repetition(text: str) -> str:
    """Return the text with one copy of what its end repeats; the text itself if nothing comes more than _MOST_REPEATS times.

    The last copy may be incomplete. Pieces of one character (a ruler of dashes) and of blanks alone are not counted.
    """
    for unit in range(2, min(_LONGEST_UNIT, len(text) // (_MOST_REPEATS + 1)) + 1):
        period_holds = text[-unit * _MOST_REPEATS :] == text[-unit * (_MOST_REPEATS + 1) : -unit]
        piece = text[-unit:]
        if not period_holds or len(set(piece.strip())) < 2:
            continue
        start = len(text) - unit * (_MOST_REPEATS + 1)
        while start > 0 and text[start - 1] == text[start - 1 + unit]:
            start -= 1
        if len(text) - start < _SHORTEST_CIRCLE:
            continue
        return text[: start + unit].rstrip()
    return text


def _must_nudge(response: ModelResponse, manner: SpeechMode, item: Item) -> bool:
    """Return whether the model should be told that nobody heard this answer without calls."""
    if not must_speak(item.message) or is_silence(response.text):
        return False
    return not (manner.is_direct and response.text.strip())


def _plain(response: ModelResponse, manner: SpeechMode) -> ModelAnswer:
    """Return an answer as it is. In direct speech its text is the reply, unless it calls something or means silence.

    A text that reached the token limit is not gone on with: each part would be a reply, and small models begin anew every time.
    """
    text = response.text.strip()
    if not manner.is_direct or response.calls or not text or is_silence(text):
        return ModelAnswer(response)
    if response.stop_reason != "length" and text_to_deliver(text, is_cut=False) == text:
        return ModelAnswer(response, spoken=text)
    return _delivered(response, text)


def _rest(error: ModelError, first: ModelResponse | None, manner: SpeechMode) -> ModelAnswer | None:
    """Return what people are told after a call that failed; None if there is nothing but the error.

    That is the text of the first answer, if the model was asked again because of it; or, in direct speech, the text that arrived
    before the failure, with the reason behind it. The error names the setting.
    """
    if first is not None and first.text.strip():
        return _delivered(first, first.text)
    if not manner.is_direct or not error.partial.strip():
        return None
    text = f"{without_repetition(error.partial.strip())}\n\n(The answer ends here. {error})"
    return ModelAnswer(ModelResponse(text, (), Usage(), "error"), spoken=text, is_final=True)


def _too_small(name: str, error: ModelError) -> ModelError:
    """Return the error for a model whose window is too small even for the lean prompt and the newest message."""
    size = f" ({error.context_window:,} tokens)" if error.context_window else ""
    text = (
        f"{name}: even my shortest prompt does not fit into the model's context window{size}. Give its server a larger one "
        f'(Ollama: context_window in [models.options."{name}"]; llama-server -c 16384; LM Studio: Context Length), '
        "or choose another model with /model"
    )
    return ModelError(text, kind="window", status=error.status)


def _text_of_replies(text: str) -> str:
    """Return what a text without tools says: the texts of the replies that it calls, which an earlier prompt may have taught it.

    Calls of other tools are markup that nobody should read, so they are left out.
    """
    calls = find_calls(text, (REPLY,))
    replies = [call for call in calls if call.name == REPLY.name and not call.error]
    texts = [str(call.arguments.get("text") or "") for call in replies]
    spoken = "\n\n".join(part for part in texts if part.strip())
    return spoken or without_calls_in_text(text, calls)


def _delivered(response: ModelResponse, text: str) -> ModelAnswer:
    """Return an answer whose text is delivered, and which ends the work whether it is whole or not."""
    spoken = text_to_deliver(text, is_cut=response.stop_reason == "length")
    return ModelAnswer(attrs.evolve(response, text=spoken, calls=()), spoken=spoken, is_final=True)
