r"""The stand-in: a few fixed rules instead of a model, so that a fresh installation answers and says what is missing.

Without an API key a newcomer can still try everything: a message, the clock, a task with its tools, a skill. The stand-in needs no
network and is deterministic: the same conversation gives the same answer. It keeps nothing between calls. What it must know (whether
it has introduced itself, whether its reply was interrupted) it reads in the conversation, as a model does.

A message comes with a line `[channel: web | id: c1]`, which says where the reply must go. The last message of the conversation is
answered, always through the tools that a model would use, so whatever works with the stand-in works with a model:

    UserTurn("[channel: web | id: c1]\nhello")
    → ModelResponse("A greeting; I greet back.", (ToolCall(…, "reply", {"text": "Hello! …", "channelId": "c1"}),))

A message that is a job ("run uname -a") needs a task. In the task the stand-in finds the same job in the input, makes its one tool
call, and reports the result, which comes back as a notification and is passed on to the user:

    message "run `uname -a`"
    → spawn_subagent {"input": "run: uname -a"}
    → in the task: shell_exec {"command": "uname -a"} → "Linux …"
    → notification "[Task ab completed] …" → reply "Linux …"

It remembers what it is told to through the real memory tools ("remember that …", "what do you remember?"), and `demo` shows the
rest in a minute (`stand_in_tasks`, which has the job as well).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

import trio

from pegasus.formatting import truncate
from pegasus.host import command_name
from pegasus.messages import Metadata
from pegasus.models.answers import pieces_of
from pegasus.models.base import (
    AssistantTurn,
    CallPiece,
    ModelRequest,
    ModelResponse,
    OnPieces,
    TextPiece,
    ToolCall,
    ToolResult,
    Usage,
    UserTurn,
    without_request_fences,
)
from pegasus.models.stand_in_tasks import (
    DEMO_DONE,
    FACT_PATH,
    Decision,
    PlannedCall,
    begin_demo,
    continue_demo,
    demo_memory_call,
    failure_text,
    find_job,
    parse_object_or_none,
    shorten,
    task_step,
)

_INTRODUCES: Final = "I am only a stand-in:"
"""Beginning of the introduction. The rest names a command, which another start may call otherwise."""
INTRODUCTION: Final = (
    f"{_INTRODUCES} a few fixed rules, not a language model; `demo` shows what Pegasus does. To give me a real one, "
    "start Ollama, llama.cpp or LM Studio on this machine: I notice it with your next message. "
    f"Or run `{command_name()} init`, or set ANTHROPIC_API_KEY, OPENAI_API_KEY or another key, "
    'or name a model in pegasus.toml ([models] default, as in "ollama/<model>"), and start Pegasus again.'
)
"""End of the first reply in each conversation, because people must not take the rules below for a language model."""
_ABILITIES: Final = (
    'I can greet you, tell the time, and do these: "run uname -a" (in a background task), "remember that I like tea", '
    '"what do you remember?", "remind me in 10 minutes to drink tea". "demo" shows me at work.'
)
"""Part of the reply where no rule matches a message. It must name only what the rules below can do."""
_REMIND: Final = r"(?i)(?:please )?remind me in (?P<number>\d{1,6}) (?P<unit>seconds?|minutes?|hours?)[: ](?:to |that )?(?P<what>\S.*)"
"""Message that asks for a reminder."""
_ACKNOWLEDGEMENTS: Final = ("", "ok", "okay", "thanks", "thank you", "got it")
"""Messages that are not answered, without signs and emoji (nothing is left of a thumbs-up): a reply to each of them could start an
endless exchange of politeness."""
_PIECE, _PAUSE, _WRITING = 8, 0.02, 0.8
"""Characters of a piece of a streamed answer at least, seconds behind each, and seconds of the whole answer at most (about)."""
_USER_FACTS: Final = "facts/user.md"
"""Memory file of what people say about themselves."""


class StandIn:
    """`LanguageModel` without a model. Its usage is always zero. It raises ModelError only to end a task whose job has failed.

    It follows the same contract as a model, because everything that tests and newcomers see with it must hold with a model too: calls
    have ids that are unique in the conversation, the answer is streamed, and only tools that the request offers are called.

    Example: `response = await StandIn().generate(request)`.

    Nothing is kept between calls, so one object may serve any number of conversations at the same time.
    """

    def __init__(self, name: str = "offline/stand-in") -> None:
        self.name = name
        """`offline/stand-in`."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer by the rules.

        Calls of tools that the request does not offer become text: with direct speech, for example, there is no `reply`, and the text
        is the answer. Takes at least one checkpoint, so that a cancel reaches also an agent that talks to itself without end; with a
        listener it takes up to a second, because the answer is written bit by bit, as a model writes.
        """
        await trio.lowlevel.checkpoint()
        request = without_request_fences(request)  # rules do not obey what they read
        # Text and calls are decided as if all tools were there; what is not offered is left out below.
        text, planned = _decide(request)
        offered = {tool.name for tool in request.tools} if request.tool_choice != "none" else set()
        mark = _checksum(request)
        calls = tuple(
            ToolCall(f"standin_{mark}_{index}", tool, arguments)
            for index, (tool, arguments) in enumerate(planned)
            if tool in offered
        )
        # With direct speech there is no `reply`: its text is the answer itself.
        if planned and not calls:
            text = "\n\n".join(str(arguments.get("text", "")) for _, arguments in planned) or text
        response = ModelResponse(text, calls, Usage(), "tool_calls" if calls else "end")
        if request.on_pieces is not None:
            await _write(response, request.on_pieces)
        return response


async def _write(response: ModelResponse, on_pieces: OnPieces) -> None:
    """Stream a response in small pieces with pauses, so that a newcomer sees what streaming looks like.

    Cancelled, the pieces so far are retracted by whoever has made the call.
    """
    pieces = list(pieces_of(response))
    length = sum(len(piece.text) for piece in pieces if isinstance(piece, TextPiece))
    length += sum(len(piece.json) for piece in pieces if isinstance(piece, CallPiece))
    # A long answer comes in larger pieces, so that no answer takes longer than about a second.
    size = max(_PIECE, length // int(_WRITING / _PAUSE))
    for piece in pieces:
        if isinstance(piece, TextPiece):
            for start in range(0, len(piece.text), size):
                on_pieces([TextPiece(piece.text[start : start + size])])
                await trio.sleep(_PAUSE)
        elif isinstance(piece, CallPiece):
            for start in range(0, len(piece.json), size):
                on_pieces([CallPiece(piece.number, piece.json[start : start + size])])
                await trio.sleep(_PAUSE)
        else:
            on_pieces([piece])


def _checksum(request: ModelRequest) -> str:
    """Return a mark of this point of the conversation, which makes the ids of calls unique and reproducible.

    The last turns are enough, as the number of turns is part of the mark.
    """
    texts = "\n".join(turn.text for turn in request.turns[-3:])
    return f"{len(request.turns):x}_{zlib.crc32(texts.encode('utf-8', 'replace')):08x}"


# ------------------------------------------------------------------ deciding

_METADATA: Final = (
    r"(?m)^\[channel: (?P<type>[^|\[\]\n]*) \| id: (?P<id>[^|\[\]\n]*?)(?: \| thread: (?P<thread>[^|\[\]\n]*))?"
    r"(?: \| user: [^|\[\]\n]*)?\]$"
)
"""Line before each message."""


def _decide(request: ModelRequest) -> Decision:
    """Return the answer to the end of the conversation.

    The conversation may end in four ways: in a task, with a message from a channel, with the results of own calls, or with something
    that only a model can answer (a summary for compaction, say). They are checked in an order that a text cannot influence: first
    who asks (a task has other tools), then whether a metadata line is there, which nobody but the program can write.

    Where a reply goes is added here, at the end, so that no rule has to know the channel.
    """
    tools = {tool.name for tool in request.tools}
    inputs = [turn for turn in request.turns if isinstance(turn, UserTurn)]
    last = inputs[-1]
    calls = [call for turn in request.turns if isinstance(turn, AssistantTurn) for call in turn.calls]
    # Only tasks have `notify` and no `reply`.
    if "notify" in tools and "reply" not in tools:
        return task_step(inputs[0].text, last, calls, tools)
    sources = [line for turn in inputs for line in re.finditer(_METADATA, turn.text)]
    # No message from a channel: somebody wants a summary, or a judgement, which rules cannot give.
    if not sources or not (last.results or re.search(_METADATA, last.text)):
        return f"{INTRODUCTION}\n\nOnly a language model can answer this: {truncate(last.text, 2000)}", []
    # The newest message says where the reply goes. Several may have come while a call was under way.
    source = sources[-1]
    if re.search(_METADATA, last.text):
        thought, planned = _answer(last.text[source.end() :].strip(), tools)
    else:
        thought, planned = _continue(last.results, calls)
    channel: Metadata = {"channelId": source["id"], "channelType": source["type"]}
    if source["thread"]:
        channel = {**channel, "replyTo": source["thread"]}
    # In direct speech the text of a turn is the reply, and there is no call.
    is_introduced = any(call.name == "reply" for call in calls) or any(
        _INTRODUCES in turn.text for turn in request.turns if isinstance(turn, AssistantTurn)
    )
    for index, (tool, arguments) in enumerate(planned):
        if tool == "reply":
            ending = "" if is_introduced else f"\n\n{INTRODUCTION}"
            planned[index] = tool, {**channel, **arguments, "text": f"{arguments['text']}{ending}"}
            is_introduced = True
    return thought, planned


def _answer(text: str, tools: set[str]) -> Decision:
    """Return the decision of the first rule that matches a message. Without one the reply lists the abilities.

    tools: names of those that are offered.

    The order counts. Rules for notices of the program come first, then wishes with a tool of their own, then
    work for a task; small talk comes last, because its words also stand in wishes ("what time …").
    """
    # Notifications and jobs come first, since their text may match any of the other rules.
    if notification := re.match(r"(?s)\[Task \S+ (completed|failed|stopped|update|needs information)\]\n?(.*)", text):
        return _pass_on(notification[1], notification[2].strip())
    if due := re.match(r"(?s)\[Scheduled job \S+ is due\]\n?(.*)", text):
        text = due[1].strip()
        # A job that is due and names work falls through to the rule for work below.
        if not find_job(text):
            return "A job is due; I remind of it.", [_reply(f"Reminder: {text}")]
    # Every rule asks whether its tool is offered, as a model can only call what it is given.
    if "cron" in tools and (wish := re.fullmatch(_REMIND, text.partition("\n")[0])):
        seconds = int(wish["number"]) * {"s": 1, "m": 60, "h": 3600}[wish["unit"][0].lower()]
        return "I schedule that.", [("cron", {"action": "add", "prompt": wish["what"], "delay": seconds})]
    if " ".join(re.sub(r"[^\w\s]", " ", text).lower().split()) in _ACKNOWLEDGEMENTS:
        return "An acknowledgement; it needs no answer.", []
    if "spawn_subagent" in tools and re.fullmatch(r"(?i)/?(?:(?:show|run|start) )?(?:me )?(?:the |a )?demo[.!]?", text):
        return "I show what I can do.", begin_demo()
    if "memory_append" in tools and (remembered := _remember(text)):
        return remembered
    if "spawn_subagent" in tools and (command := find_job(text)):
        line = f"run: {command}"
        spawn = "spawn_subagent", {"description": line, "input": line}
        return "This needs a task.", [_reply(f"I have given that to a background task: {line}"), spawn]
    asking = re.search(r"(?i)\b(?:what|current|tell)\b.*", text.partition("\n")[0])
    if asking and re.search(r"(?i)\b(?:time|date|day)\b", asking[0]):
        return "I look at the clock.", [("current_time", {})]
    if greeting := re.match(r"(?i)(hi|hello|hey)\b", text):
        return "A greeting; I greet back.", [_reply(f"{greeting[1].capitalize()}! What can I do for you?")]
    sentence = f'That is beyond my rules. {_ABILITIES} You wrote: "{truncate(text, 300)}"'
    return "I have no rule for this, and say so.", [_reply(sentence)]


def _remember(text: str) -> Decision | None:
    """Return the decision about a message that is about memory, None for any other."""
    line = text.partition("\n")[0]
    if wish := re.fullmatch(r"(?i)(?:please )?remember[: ]\s*(?:that )?(?P<fact>(?!that$)\S.*)", line):
        return "I note that.", [("memory_append", {"path": _USER_FACTS, "entry": f"- {wish['fact']}"})]
    if re.fullmatch(r"(?i)what (?:do|have) you (?:remember|remembered|know about me)(?: so far)?[?.]*", line):
        return "I look into memory.", [("memory_read", {"path": _USER_FACTS})]
    return None


def _reply(text: str) -> PlannedCall:
    """Return the call that says a text. Where it goes is added by `_decide`."""
    return "reply", {"text": text}


def _pass_on(kind: str, text: str) -> Decision:
    """Pass a task's notification on. Whoever stopped a task knows it and gets no reply."""
    if kind == "stopped":
        return "The person who stopped that task knows it.", []
    if kind == "completed":
        # The result of a task is JSON, of which people see the text.
        result = parse_object_or_none(text)
        text = text if result is None else str(result.get("response") or "The task is done; it had nothing to report.")
        if text.startswith(DEMO_DONE):
            return "The demo goes on.", continue_demo(text)
    beginning = {"failed": "The task failed: ", "needs information": "The task asks: "}.get(kind, "")
    return "A task has sent something; I pass it on.", [_reply(f"{beginning}{text}")]


def _continue(results: tuple[ToolResult, ...], calls: list[ToolCall]) -> Decision:
    """Return the decision after the results of own calls: report the time, and repeat a reply that was interrupted.

    A reply that failed in another way is given up, because it could fail for the same reason for ever.
    """
    call_by_id = {call.id: call for call in calls}
    planned: list[PlannedCall] = []
    for result in results:
        call = call_by_id.get(result.call_id)
        if call is not None and call.name == "current_time":
            time = parse_object_or_none(result.content) or {}
            found = f"{time['formatted']} ({time['timezone']})" if time else truncate(result.content, 200)
            planned.append(_reply(f"It is {found}."))
        elif call is not None and call.name.startswith("memory_"):
            planned.append(_after_memory(call, result))
        elif call is not None and call.name == "cron":
            due = (parse_object_or_none(result.content) or {}).get("next")
            planned.append(_reply(f"I will remind you at {due}." if due else f"That did not work: {result.content}"))
        elif call is not None and call.name == "spawn_subagent" and result.is_error:
            # A cancelled call was given up by a person, who knows it.
            if '"cancelled"' not in result.content:
                planned.append(_reply(failure_text(result)))
        elif call is not None and call.name == "reply" and result.is_error and '"cancelled"' in result.content:
            planned.append((call.name, call.arguments))
    return "I go on with the results." if planned else "That is done.", planned


def _after_memory(call: ToolCall, result: ToolResult) -> PlannedCall:
    """Return the call behind a call of a memory tool: a reply that says what came of it, or the next step of the demo."""
    if result.is_error:
        missing = call.name == "memory_read" and "there is no" in result.content.lower()
        return _reply("Nothing so far." if missing else failure_text(result))
    if call.arguments.get("path") == FACT_PATH and call.name in ("memory_append", "memory_write"):
        return demo_memory_call(call.name)
    value: Mapping[str, Any] = parse_object_or_none(result.content) or {}
    if call.name == "memory_append":
        fact = str(call.arguments["entry"]).removeprefix("- ")
        return _reply(
            f"Noted: {fact} ({_USER_FACTS}; `{command_name()} memory log` shows it, `memory undo` takes it back)."
        )
    return _reply(shorten(str(value.get("content") or "Nothing so far.")))
