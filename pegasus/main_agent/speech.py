"""Ways of speaking with a model, and the judgement of answers that call nothing. Everything here is pure.

There are two ways. In a monologue the model's text is private, and only `reply` speaks. In direct speech its text is the reply.
Large models keep to either; many small ones write text whatever they are told, and in a monologue nobody would hear it. So
`agent.speech = "auto"` finds out with each model:

* One that has called a tool is trusted. It speaks as a monologue, and its silence is deliberate.
* One that has not, and answers a person with text alone, is told once that nobody heard it (the nudge). If it writes text again, it
  speaks directly from then on, and its first text is delivered: the second one usually apologises to the program.
* One that gives no text either is nudged as well. If nothing comes of that, the person is told that the model gave no answer.
* One whose server refuses tools speaks directly, without tools.

The nudge and the answer to it are never written to the session. The first answer is held back until it is decided, so a crash
meanwhile leaves the session as it was, and the model is simply asked again.

With an explicit "monologue" or "direct" nothing is found out: a monologue is never delivered, and an empty answer is silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from pegasus.conversation import parse_metadata_line
from pegasus.formatting import truncate
from pegasus.identity import SILENCE
from pegasus.main_agent.queue_items import TASK_NOTIFICATION
from pegasus.messages import InboundMessage
from pegasus.models import AssistantTurn, ModelResponse, ModelTraits, Turn, UserTurn
from pegasus.schedule import SCHEDULED
from pegasus.wire import WireError, decode_object, encode_json

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
_AROUND_SILENCE: Final = "`\"'*."
"""Characters that models put around the word for silence."""
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


@attrs.frozen(eq=False, repr=False)
class SpeechMode:
    """Way of speaking with one model at this moment.

    Example: `choose_speech_mode("auto", ModelTraits(writes_text=True))` is `SpeechMode(is_direct=True, is_watched=True)`.
    """

    is_direct: bool
    """Its text is the reply."""
    has_tools: bool = True
    """True if it is offered tools."""
    is_watched: bool = False
    """True while nobody knows whether its silence is deliberate (only with "auto")."""

    @property
    def speech(self) -> str:
        """Version of the prompt: "monologue" or "direct"."""
        return "direct" if self.is_direct else "monologue"


def choose_speech_mode(setting: str, traits: ModelTraits) -> SpeechMode:
    """Return how to speak with a model. setting: `agent.speech`; the owner's choice for the model goes before it.

    An explicit "monologue" for a model that refuses tools has no way to speak; the caller says so.
    """
    choice = traits.speech or setting
    if choice != "auto":
        return SpeechMode(choice == "direct", not traits.refuses_tools)
    is_direct = traits.writes_text or traits.refuses_tools
    return SpeechMode(is_direct, not traits.refuses_tools, is_watched=is_direct or not traits.calls_tools)


def describe_speech(setting: str, traits: ModelTraits) -> str:
    """Return the sentence by which `/model` and `/speech` say how a model speaks, and why."""
    manner = choose_speech_mode(setting, traits)
    how = "It speaks directly: its text is the reply" if manner.is_direct else "It speaks only through the tool reply"
    if traits.refuses_tools:
        why = "its server refuses tools"
    elif traits.speech in ("monologue", "direct"):
        why = "chosen with /speech"
    elif (traits.speech or setting) != "auto":
        why = "agent.speech of the settings"
    elif traits.writes_text:
        why = "found out: it writes text instead of calling reply"
    elif traits.calls_tools:
        why = "found out: it calls tools"
    else:
        why = "auto: it has not called a tool yet; if it only writes text, that becomes the reply"
    return f"{how} ({why})."


# ------------------------------------------------------------------ answers that call nothing


def must_speak(message: InboundMessage) -> bool:
    """Return whether somebody waits for an answer to this item: a person, or whoever asked for the task or the job that reports."""
    if not message.is_internal:
        return True
    kind = message.metadata.get("type")
    return kind == SCHEDULED or (kind == TASK_NOTIFICATION and message.metadata.get("notification") in _AWAITED)


def is_silence(text: str) -> bool:
    """Return whether a text is the word for deliberate silence."""
    return text.strip().strip(_AROUND_SILENCE) == SILENCE


def may_become_silence(text: str) -> bool:
    """Return whether a text that is still being written may end as the word for silence; "" may."""
    return SILENCE.startswith(text.strip().strip(_AROUND_SILENCE))


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
