"""What the stand-in says to what: patterns and plain functions over the conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from pegasus.formatting import truncate
from pegasus.messages import Json, Metadata
from pegasus.models.base import AssistantTurn, ModelRequest, ToolCall, ToolResult, UserTurn
from pegasus.models.offline_tasks import is_task, job_in, notification_in, spawn, work

INTRODUCTION: Final = (
    "I am only a stand-in: a few fixed rules, not a language model. To give me a real one, set ANTHROPIC_API_KEY or "
    "OPENAI_API_KEY, or name a model in pegasus.toml ([models] default; a local Ollama, for example, is "
    '"ollama/<model>"), and start Pegasus again.'
)
_ABILITIES = (
    'I can greet you, tell the time, pass on words ("tell main that dinner is ready"), and give small jobs to background tasks: '
    '"list files", "read notes.txt", "run uname -a", "search for TODO", "fetch https://example.org".'
)
_INTRODUCTION_ZH = (
    "我只是一个替身：几条固定的规则，不是语言模型。请设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY，然后重新启动 Pegasus。"
)

_METADATA = re.compile(
    r"^\[channel: (?P<type>[^|\[\]\n]*) \| id: (?P<id>[^|\[\]\n]*?)(?: \| thread: (?P<thread>[^|\[\]\n]*))?\]$",
    re.MULTILINE,
)
_GREETING = re.compile(r"(hi|hello|hey|hallo|greetings|good (morning|afternoon|evening|day))\b", re.IGNORECASE)
_GREETING_ZH = re.compile(r"(你好|您好|嗨|早上好|晚上好)")
_TIME = re.compile(
    r"\b(what|current|tell me|now|know)\b.*\b(time|date|day)\b|\bwhat'?s the time\b|几点|现在时间", re.IGNORECASE
)
_ZONE = re.compile(r"\b[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z_]+)?\b")
_SAY = re.compile(
    r"(?:please )?(?:say|send|post|write) (?P<text>.+?) (?:to|in|on) (?P<to>[#@]?\S+)", re.IGNORECASE | re.DOTALL
)
_TELL = re.compile(r"(?:please )?tell (?P<to>[#@]?\S+) (?:that )?(?P<text>.+)", re.IGNORECASE | re.DOTALL)
_WHO = re.compile(r"(who|what) are you\b|what can you do\b|help\b", re.IGNORECASE)
_SKILL = re.compile(
    r"/(?P<name>[a-z0-9-]+)(?: [^\n]*)?\n\n\(The skill (?P=name) is in force\. It says:\)\n\n(?P<body>.+)", re.DOTALL
)
_WORDS = re.compile(r"[^\w\s]|_", re.UNICODE)
_SIMPLE: Final = "ok okay k kk thanks thx ty cool great nice fine perfect danke merci gracias 谢谢 好的 好 嗯"
_PHRASES: Final = (
    "",
    "thank you",
    "thank you very much",
    "thanks a lot",
    "got it",
    "all right",
    "alright",
    "sounds good",
)
_ACKNOWLEDGEMENTS: Final = frozenset((*_PHRASES, *_SIMPLE.split()))
"""What is left of such a message without signs and emoji; of a thumbs-up, nothing is left."""


@attrs.frozen
class _Source:
    """The channel a message came from, its fields as the metadata line shows them."""

    type: str
    channel_id: str
    thread: str | None


@attrs.frozen
class Plan:
    """What to do: a thought, and calls as (tool, arguments)."""

    thought: str
    calls: tuple[tuple[str, Metadata], ...] = ()


# ------------------------------------------------------------------ deciding


def decide(request: ModelRequest) -> Plan:
    """The answer to the end of the conversation."""
    last = request.turns[-1]
    if not isinstance(last, UserTurn):
        return Plan("Nothing was said.")
    if is_task(request):
        return Plan(*work(request))
    source, text = _last_message(last.text)
    if source is None and last.results:
        return _go_on(request, last.results)
    if source is None:
        return Plan(
            f"{INTRODUCTION}\n\nThis was asked, and only a real model can answer it: {truncate(last.text, 2000)}"
        )
    plan = _delegate(request, source, text) or _answer(source, text)
    return plan if _introduced(request) else _introduce(source, plan)


def _delegate(request: ModelRequest, source: _Source, text: str) -> Plan | None:
    """Work for a background task, or the word of one."""
    told = notification_in(text)
    if told == "":
        return Plan("Somebody stopped that task, and knows it.")
    if told is not None:
        return Plan("A task has something to say; I pass it on.", (_reply(source, told),))
    job = job_in(text) if any(tool.name == "spawn_subagent" for tool in request.tools) else None
    if job is None:
        return None
    note = _reply(source, f"I have given that to a background task: {job.line}")
    return Plan("This needs files, a shell or the web: a task for a subagent.", (note, spawn(job)))


def _answer(source: _Source, text: str) -> Plan:
    bare = " ".join(_WORDS.sub(" ", text).lower().split())
    if bare in _ACKNOWLEDGEMENTS:
        return Plan("An acknowledgement; it needs no answer.")
    for pattern, rule in _RULES:
        match = pattern.match(text) if rule is not _time else pattern.search(text)
        if match:
            return rule(source, match)
    words = f'{_ABILITIES} You wrote: "{truncate(text, 300)}"'
    return Plan("I have no rule for this, and say so.", (_reply(source, f"That is beyond my rules. {words}"),))


def _greet(source: _Source, match: re.Match[str]) -> Plan:
    return Plan("A greeting; I greet back.", (_reply(source, f"{match[1].capitalize()}! What can I do for you?"),))


def _greet_zh(source: _Source, match: re.Match[str]) -> Plan:
    return Plan("A greeting in Chinese; I greet back.", (_reply(source, f"{match[1]}！有什么可以帮您？"),))


def _time(source: _Source, match: re.Match[str]) -> Plan:
    zone = _ZONE.search(match.string)
    return Plan("I look at the clock.", (("current_time", {"timezone": zone[0]} if zone else {}),))


def _pass_on(source: _Source, match: re.Match[str]) -> Plan:
    text, to = match["text"].strip().strip("\"'“”"), match["to"].strip().rstrip(".,:;!?")
    kind, colon, channel_id = to.partition(":")
    target: dict[str, Json] = {"text": text, "channelId": channel_id if colon and channel_id else to}
    if colon and channel_id:
        target["channelType"] = kind
    note = _reply(source, f"I am passing that on to {to}.")
    return Plan(f"I pass this on to {to}, and say so.", (("reply", target), note))


def _explain(source: _Source, match: re.Match[str]) -> Plan:
    return Plan("I say what I am.", (_reply(source, f"{INTRODUCTION} {_ABILITIES}"),))


def _show_skill(source: _Source, match: re.Match[str]) -> Plan:
    body = match["body"].strip()
    shown = body if len(body) <= 1500 else f"{body[:1500].rstrip()}…"
    words = f"/{match['name']} is a skill: instructions for a language model, which I am not. One would now be told:\n\n{shown}"
    return Plan("A skill; I can only show what it says.", (_reply(source, words),))


_RULES: Final[tuple[tuple[re.Pattern[str], Callable[[_Source, re.Match[str]], Plan]], ...]] = (
    (_SKILL, _show_skill),
    (_SAY, _pass_on),
    (_TIME, _time),
    (_TELL, _pass_on),
    (_WHO, _explain),
    (_GREETING, _greet),
    (_GREETING_ZH, _greet_zh),
)


# ------------------------------------------------------------------ going on after tool results


def _go_on(request: ModelRequest, results: tuple[ToolResult, ...]) -> Plan:
    source = next((found for found, _ in _messages_backward(request)), None)
    before = request.turns[-2]
    calls = {call.id: call for call in before.calls} if isinstance(before, AssistantTurn) else {}
    again: list[tuple[str, Metadata]] = []
    for result in results:
        call = calls.get(result.call_id)
        if call is None or source is None:
            continue
        if call.name == "current_time":
            again.append(_tell_time(request, source, result))
        elif call.name == "reply" and result.is_error:
            again += _once_more(request, source, call, result)
    return Plan("I go on with what came back." if again else "That is done.", tuple(again))


def _tell_time(request: ModelRequest, source: _Source, result: ToolResult) -> tuple[str, Metadata]:
    words = truncate(_time_of(result.content), 200)
    text = f"I could not read the clock: {words}" if result.is_error else f"It is {words}."
    return _reply(source, text if _introduced(request) else f"{text}\n\n{INTRODUCTION}")


def _time_of(content: str) -> str:
    """The words in a result of current_time, also of one that is not as expected."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if not isinstance(value, Mapping):
        return str(value)
    time, zone = value.get("formatted") or value.get("iso"), value.get("timezone")
    return f"{time} ({zone})" if time and zone else str(time or content)


def _once_more(
    request: ModelRequest, source: _Source, call: ToolCall, result: ToolResult
) -> Iterator[tuple[str, Metadata]]:
    """After a failed reply: the same again if it was only interrupted; else one try at where the message came from."""
    if '"cancelled"' in result.content:
        yield call.name, call.arguments
        return
    failures = 0
    for turn in reversed(request.turns):
        if isinstance(turn, UserTurn):
            if _METADATA.search(turn.text):
                break
            failures += any(result.is_error for result in turn.results)
    if failures > 1:
        return
    if call.arguments.get("channelId") == source.channel_id:
        yield _reply(source, str(call.arguments.get("text", "")))
    else:
        why = truncate(result.content, 300)
        yield _reply(source, f"I could not say that in {call.arguments.get('channelId')}: {why}")


# ------------------------------------------------------------------ reading the conversation


def _last_message(text: str) -> tuple[_Source | None, str]:
    """Where the last message of a turn came from, and its text; several may have been merged into one turn."""
    found = list(_METADATA.finditer(text))
    if not found:
        return None, text
    line = found[-1]
    return _Source(line["type"], line["id"], line["thread"]), text[line.end() :].strip()


def _messages_backward(request: ModelRequest) -> Iterator[tuple[_Source, str]]:
    for turn in reversed(request.turns):
        if isinstance(turn, UserTurn):
            source, text = _last_message(turn.text)
            if source is not None:
                yield source, text


def _introduced(request: ModelRequest) -> bool:
    return any(isinstance(turn, AssistantTurn) and any(c.name == "reply" for c in turn.calls) for turn in request.turns)


def _introduce(source: _Source, plan: Plan) -> Plan:
    """The first words in a conversation say who speaks: behind the first reply to the source, if there is one."""
    calls = list(plan.calls)
    for index, (tool, arguments) in enumerate(calls):
        if tool == "reply" and arguments.get("channelId") == source.channel_id:
            text = str(arguments["text"])
            if INTRODUCTION not in text:
                own = f"{INTRODUCTION}\n{_INTRODUCTION_ZH}" if _GREETING_ZH.match(text) else INTRODUCTION
                calls[index] = (tool, {**arguments, "text": f"{text}\n\n{own}"})
            return attrs.evolve(plan, calls=tuple(calls))
    return plan


def _reply(source: _Source, text: str) -> tuple[str, Metadata]:
    arguments: dict[str, Json] = {"text": text, "channelId": source.channel_id, "channelType": source.type}
    if source.thread:
        arguments["replyTo"] = source.thread
    return "reply", arguments
