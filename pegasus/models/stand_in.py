r"""The stand-in: a few fixed rules instead of a model, so that a fresh installation answers and says what is missing.

Without an API key a newcomer can still try everything: a message, a reply to another channel, a task with its tools, a skill. The
stand-in needs no network and is deterministic: the same conversation gives the same answer. It keeps nothing between calls. What it
must know (whether it has introduced itself, whether its reply failed) it reads in the conversation, as a model does.

A message comes with a line `[channel: web | id: c1]`, which says where the reply must go. The last message of the conversation is
matched against `_RULES`, in order; jobs for background tasks are in `stand_in_tasks.py`. To add a rule, write a function that
returns a `Decision`, and put it into `_RULES` with a pattern for the beginning of a message.

The answer always goes through the same tools that a model would use. A reply is a call of `reply`, the time comes from
`current_time`, and a job becomes a call of `spawn_subagent`. So whatever works with the stand-in works with a model:

    UserTurn("[channel: web | id: c1]\nhello")
    → ModelResponse("A greeting; I greet back.", (ToolCall(…, "reply", {"text": "Hello! …", "channelId": "c1"}),))
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs
import trio

from pegasus.formatting import truncate
from pegasus.messages import Json
from pegasus.models.base import (
    AssistantTurn,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolResult,
    Usage,
    UserTurn,
)
from pegasus.models.stand_in_tasks import PlannedCall, find_job, is_task, next_step, parse_notification, spawn_call

# Part of the first reply in each conversation, because people must not take the rules below for a language model.
INTRODUCTION: Final = (
    "I am only a stand-in: a few fixed rules, not a language model. To give me a real one, set ANTHROPIC_API_KEY or "
    "OPENAI_API_KEY, or name a model in pegasus.toml ([models] default; a local Ollama, for example, is "
    '"ollama/<model>"), and start Pegasus again.'
)
_INTRODUCTION_ZH: Final = (
    "我只是一个替身：几条固定的规则，不是语言模型。请设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY，然后重新启动 Pegasus。"
)
# Shown with the introduction, and where no rule matches a message. It must name only what `_RULES` and `stand_in_tasks` can do.
_ABILITIES: Final = (
    'I can greet you, tell the time, pass on messages ("tell main that dinner is ready"), and give small jobs to background '
    'tasks: "list files", "read notes.txt", "run uname -a", "search for TODO", "fetch https://example.org".'
)


@attrs.frozen
class MessageSource:
    """Channel that a message came from, its fields as they stand in the metadata line.

    Example: `MessageSource("web", "c1", None).reply("hello")` is `("reply", {"text": "hello", "channelId": "c1", …})`.
    """

    type: str
    """Type of the channel, such as "web"; still escaped."""
    channel_id: str
    """Id of the channel within its type; still escaped."""
    thread: str | None
    """Message that the reply belongs to, if the channel has threads."""

    def reply(self, text: str) -> PlannedCall:
        """Return the call that answers there."""
        arguments: dict[str, Json] = {"text": text, "channelId": self.channel_id, "channelType": self.type}
        if self.thread:
            arguments["replyTo"] = self.thread
        return "reply", arguments


@attrs.frozen
class Decision:
    """Answer of the stand-in: a thought and tool calls."""

    thought: str
    """Text beside the calls. It is the whole answer where no tool is offered."""
    calls: tuple[PlannedCall, ...] = ()
    """Calls in the order in which they are to be carried out. Without calls the work on the message ends."""


class StandIn:
    """`LanguageModel` without a model. It never raises and does not wait, and its usage is always zero.

    It follows the same contract as a model, because everything that tests and newcomers see with it must hold with a model too: calls
    have ids that are unique in the conversation, text is streamed to `on_text`, and only tools that the request offers are called.

    Example: `response = await StandIn().generate(request)`.
    """

    def __init__(self, name: str = "offline/stand-in") -> None:
        self._name = name

    @property
    def name(self) -> str:
        """`offline/stand-in`."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer by the rules.

        Calls of tools that the request does not offer become text: with direct speech, for example, there is no `reply`, and the text
        is the answer. Takes one checkpoint, so that a cancel reaches also an agent that talks to itself without end.
        """
        await trio.lowlevel.checkpoint()
        decision = decide(request)
        offered = {tool.name for tool in request.tools} if request.tool_choice != "none" else set()
        mark = _checksum(request)
        calls = tuple(
            ToolCall(f"standin_{mark}_{index}", tool, arguments)
            for index, (tool, arguments) in enumerate(decision.calls)
            if tool in offered
        )
        text = decision.thought
        if decision.calls and not calls:
            text = "\n\n".join(str(arguments.get("text", "")) for _, arguments in decision.calls) or text
        if text and request.on_text is not None:
            request.on_text(text)
        return ModelResponse(text, calls, Usage(), "tool_calls" if calls else "end")


def _checksum(request: ModelRequest) -> str:
    """Return a mark of this point of the conversation, which makes the ids of calls unique and reproducible.

    It consists of the number of turns and a checksum of the last three. Random ids would make two runs of a test differ.
    """
    checksum = 0
    for turn in request.turns[-3:]:
        parts = (turn.text, *(call.id for call in turn.calls)) if isinstance(turn, AssistantTurn) else (turn.text,)
        for part in parts:
            checksum = zlib.crc32(part.encode("utf-8", "replace"), checksum)
    return f"{len(request.turns):x}_{checksum:08x}"


# ------------------------------------------------------------------ deciding


def decide(request: ModelRequest) -> Decision:
    """Return the answer to the end of the conversation.

    The conversation may end in five ways: in a task, with the results of own calls, with a message from a channel, with the
    notification of a task, or with something that only a model can answer (a summary for compaction, say). They are checked in an
    order that a text cannot influence: first who asks (a task has other tools), then whether a metadata line is there, which nobody
    but the program can write.
    """
    last = request.turns[-1]
    if not isinstance(last, UserTurn):
        return Decision("There is no message.")
    if is_task(request):
        return Decision(*next_step(request))
    source, text = _parse_message(last.text)
    if source is None and last.results:
        return _continue(request, last.results)
    if source is None:
        question = truncate(last.text, 2000)
        return Decision(f"{INTRODUCTION}\n\nOnly a language model can answer this: {question}")
    decision = _delegate(request, source, text) or _answer(source, text)
    return decision if _is_introduced(request) else _introduce(source, decision)


def _delegate(request: ModelRequest, source: MessageSource, text: str) -> Decision | None:
    """Return the decision for a job or for the notification of a task; None for any other message.

    A job is recognised only if the request offers `spawn_subagent`. Its sender gets a note at once, since the result takes a while.
    """
    notification = parse_notification(text)
    if notification == "":
        return Decision("The person who stopped that task knows it.")
    if notification is not None:
        return Decision("A task has sent something; I pass it on.", (source.reply(notification),))
    job = find_job(text) if any(tool.name == "spawn_subagent" for tool in request.tools) else None
    if job is None:
        return None
    note = source.reply(f"I have given that to a background task: {job.line}")
    return Decision("This needs files, a shell or the web: a task for a subagent.", (note, spawn_call(job)))


def _answer(source: MessageSource, text: str) -> Decision:
    """Return the decision of the first rule that matches a message.

    Punctuation and case make no difference for acknowledgements. Without a matching rule the reply lists the abilities.
    """
    words = " ".join(re.sub(r"[^\w\s]|_", " ", text).lower().split())
    if words in _ACKNOWLEDGEMENTS:
        return Decision("An acknowledgement; it needs no answer.")
    for pattern, rule in _RULES:
        match = re.match(pattern, text)
        if match:
            return rule(source, match)
    sentence = f'That is beyond my rules. {_ABILITIES} You wrote: "{truncate(text, 300)}"'
    return Decision("I have no rule for this, and say so.", (source.reply(sentence),))


# ------------------------------------------------------------------ rules


def _greet(source: MessageSource, match: re.Match[str]) -> Decision:
    """Greet back in the same words."""
    return Decision("A greeting; I greet back.", (source.reply(f"{match[1].capitalize()}! What can I do for you?"),))


def _greet_in_chinese(source: MessageSource, match: re.Match[str]) -> Decision:
    """Greet back in Chinese."""
    return Decision("A greeting in Chinese; I greet back.", (source.reply(f"{match[1]}！有什么可以帮您？"),))


def _ask_clock(source: MessageSource, match: re.Match[str]) -> Decision:
    """Call `current_time`, for the time zone in the message if it has one. The result is reported in `_report_time`."""
    zone = re.search(r"\b[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z_]+)?\b", match.string)
    return Decision("I look at the clock.", (("current_time", {"timezone": zone[0]} if zone else {}),))


def _pass_on(source: MessageSource, match: re.Match[str]) -> Decision:
    """Send the words of a message to another channel, and tell the sender. The target is `#general`, or `cli:main` with its type."""
    text, to = match["text"].strip().strip("\"'“”"), match["to"].strip().rstrip(".,:;!?")
    channel_type, colon, channel_id = to.partition(":")
    arguments: dict[str, Json] = {"text": text, "channelId": channel_id if colon and channel_id else to}
    if colon and channel_id:
        arguments["channelType"] = channel_type
    note = source.reply(f"I am passing that on to {to}.")
    return Decision(f"I pass this on to {to}, and say so.", (("reply", arguments), note))


def _introduce_again(source: MessageSource, match: re.Match[str]) -> Decision:
    """Say what the stand-in is and can do."""
    return Decision("I say what I am.", (source.reply(f"{INTRODUCTION} {_ABILITIES}"),))


def _show_skill(source: MessageSource, match: re.Match[str]) -> Decision:
    """Show the instructions of a skill that the user called by `/name`."""
    body = match["body"].strip()
    excerpt = body if len(body) <= 1500 else f"{body[:1500].rstrip()}…"
    text = f"/{match['name']} is a skill: instructions for a language model, which I am not. A model would get:\n\n{excerpt}"
    return Decision("A skill; I can only show its instructions.", (source.reply(text),))


_RULES: Final[tuple[tuple[str, Callable[[MessageSource, re.Match[str]], Decision]], ...]] = (
    (
        r"(?s)/(?P<name>[a-z0-9-]+)(?: [^\n]*)?\n\n\(The skill (?P=name) is in force\. It says:\)\n\n(?P<body>.+)",
        _show_skill,
    ),
    (r"(?is)(?:please )?(?:say|send|post|write) (?P<text>.+?) (?:to|in|on) (?P<to>[#@]?\S+)", _pass_on),
    (
        r"(?i).*(?:\b(?:what|current|tell me|now|know)\b.*\b(?:time|date|day)\b|what'?s the time\b|几点|现在时间)",
        _ask_clock,
    ),
    (r"(?is)(?:please )?tell (?P<to>[#@]?\S+) (?:that )?(?P<text>.+)", _pass_on),
    (r"(?i)(?:who|what) are you\b|what can you do\b|help\b", _introduce_again),
    (r"(?i)(hi|hello|hey|hallo|greetings|good (?:morning|afternoon|evening|day))\b", _greet),
    (r"(你好|您好|嗨|早上好|晚上好)", _greet_in_chinese),
)
"""Patterns for the beginning of a message, with their rules. The first match wins."""

# "Thanks!" is not answered: a stand-in that replied to every acknowledgement would start an endless exchange of politeness.
_PHRASES: Final = ("thank you", "thank you very much", "thanks a lot", "got it", "all right", "alright", "sounds good")
_SINGLE_WORDS: Final = "ok okay k kk thanks thx ty cool great nice fine perfect danke merci gracias 谢谢 好的 好 嗯"
_ACKNOWLEDGEMENTS: Final = frozenset(("", *_PHRASES, *_SINGLE_WORDS.split()))
"""Messages that need no answer, without signs and emoji: nothing is left of a thumbs-up."""


# ------------------------------------------------------------------ after tool results


def _continue(request: ModelRequest, results: tuple[ToolResult, ...]) -> Decision:
    """Return the decision after the results of the stand-in's own calls.

    Two results lead to a call: the time is reported, and a reply that failed is tried again. Everything else is done with its result.
    The source is the newest message in the conversation; results without their call, or without a source, are ignored.
    """
    source = next((found for found, _ in _messages_backward(request)), None)
    before = request.turns[-2]
    call_by_id = {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}
    calls: list[PlannedCall] = []
    for result in results:
        call = call_by_id.get(result.call_id)
        if call is None or source is None:
            continue
        if call.name == "current_time":
            calls.append(_report_time(request, source, result))
        elif call.name == "reply" and result.is_error:
            calls += _retry_reply(request, source, call, result)
    return Decision("I go on with the results." if calls else "That is done.", tuple(calls))


def _report_time(request: ModelRequest, source: MessageSource, result: ToolResult) -> PlannedCall:
    """Return the reply with the result of `current_time`."""
    time = truncate(_parse_time(result.content), 200)
    text = f"I could not read the clock: {time}" if result.is_error else f"It is {time}."
    return source.reply(text if _is_introduced(request) else f"{text}\n\n{INTRODUCTION}")


def _parse_time(content: str) -> str:
    """Return the text of a result of current_time, also of an unexpected one."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if not isinstance(value, Mapping):
        return str(value)
    time, zone = value.get("formatted") or value.get("iso"), value.get("timezone")
    return f"{time} ({zone})" if time and zone else str(time or content)


def _retry_reply(
    request: ModelRequest, source: MessageSource, call: ToolCall, result: ToolResult
) -> Iterator[PlannedCall]:
    """Yield the call after a failed reply: the same again if it was interrupted, else one report to the source.

    A second failure since the last message is given up, because the report could fail for the same reason for ever.
    """
    if '"cancelled"' in result.content:
        yield call.name, call.arguments
        return
    failures = 0
    for turn in reversed(request.turns):
        if isinstance(turn, UserTurn):
            if re.search(_METADATA, turn.text):
                break
            failures += any(result.is_error for result in turn.results)
    if failures > 1:
        return
    if call.arguments.get("channelId") == source.channel_id:
        yield source.reply(str(call.arguments.get("text", "")))
    else:
        reason = truncate(result.content, 300)
        yield source.reply(f"I could not say that in {call.arguments.get('channelId')}: {reason}")


# ------------------------------------------------------------------ reading the conversation

_METADATA: Final = (
    r"(?m)^\[channel: (?P<type>[^|\[\]\n]*) \| id: (?P<id>[^|\[\]\n]*?)(?: \| thread: (?P<thread>[^|\[\]\n]*))?"
    r"(?: \| user: [^|\[\]\n]*)?\]$"
)
"""Line before each message."""


def _parse_message(text: str) -> tuple[MessageSource | None, str]:
    """Return source and text of the last message in a turn; several may have been merged into one turn."""
    lines = list(re.finditer(_METADATA, text))
    if not lines:
        return None, text
    line = lines[-1]
    return MessageSource(line["type"], line["id"], line["thread"]), text[line.end() :].strip()


def _messages_backward(request: ModelRequest) -> Iterator[tuple[MessageSource, str]]:
    """Yield source and text of the messages, newest first."""
    for turn in reversed(request.turns):
        if isinstance(turn, UserTurn):
            source, text = _parse_message(turn.text)
            if source is not None:
                yield source, text


def _is_introduced(request: ModelRequest) -> bool:
    """Return True if the conversation already contains a reply."""
    return any(
        isinstance(turn, AssistantTurn) and any(call.name == "reply" for call in turn.calls) for turn in request.turns
    )


def _introduce(source: MessageSource, decision: Decision) -> Decision:
    """Append the introduction to the first reply to the source, if there is one.

    The rule's own answer stays in front, so that the newcomer sees that the message was understood.
    """
    calls = list(decision.calls)
    for index, (tool, arguments) in enumerate(calls):
        if tool == "reply" and arguments.get("channelId") == source.channel_id:
            text = str(arguments["text"])
            if INTRODUCTION not in text:
                is_chinese = re.match(r"你好|您好|嗨|早上好|晚上好", text)
                introduction = f"{INTRODUCTION}\n{_INTRODUCTION_ZH}" if is_chinese else INTRODUCTION
                calls[index] = (tool, {**arguments, "text": f"{text}\n\n{introduction}"})
            return attrs.evolve(decision, calls=tuple(calls))
    return decision
