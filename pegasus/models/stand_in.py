r"""The stand-in: a few fixed rules instead of a model, so that a fresh installation answers and says what is missing.

Without an API key a newcomer can still try everything: a message, the clock, a task with its tools, a skill. The stand-in needs no
network and is deterministic: the same conversation gives the same answer. It keeps nothing between calls. What it must know (whether
it has introduced itself, whether its reply was interrupted) it reads in the conversation, as a model does.

A message comes with a line `[channel: web | id: c1]`, which says where the reply must go. Each message of the last turn is answered,
always through the tools that a model would use, so whatever works with the stand-in works with a model:

    UserTurn("[channel: web | id: c1]\nhello")
    → ModelResponse("A greeting; I greet back.", (ToolCall(…, "reply", {"text": "Hello! …", "channelId": "c1"}),))

A message that is a job ("run uname -a") needs a task. In the task the stand-in finds the same job in the input, makes its one tool
call, and reports the result, which comes back as a notification and is passed on to the user:

    message "run `uname -a`"
    → spawn_subagent {"input": "run: uname -a"}
    → in the task: shell_exec {"command": "uname -a"} → "Linux …"
    → notification "[Task ab completed] …" → reply "Linux …"

It remembers what it is told to through the real memory tools ("remember that …", "what do you remember?").

`demo` shows in about a minute a background task with visible steps, memory with undo, and how to try a crash. Everything in it is
real: the task is one like any other and its steps are calls of its tools, the fact goes through the memory tools into the log of
memory, and the commands that are shown work in the terminal of the person. How far the demo is, the stand-in reads in the
conversation, so it goes on after a `kill -9` as any work does:

    "demo" → spawn_subagent {"input": "demo"} → in the task: DEMO_STEPS, one call after the other
    → notification "[Task … completed]" with DEMO_DONE → memory_append, memory_write → the last words
"""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import Final, TypeAlias

import attrs
import trio

from pegasus.formatting import truncate
from pegasus.host import command_name
from pegasus.messages import Json, Metadata
from pegasus.models.base import (
    AssistantTurn,
    CallPiece,
    ModelError,
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

PlannedCall: TypeAlias = tuple[str, Metadata]
"""Tool and arguments of a call. A reply without a channel goes to the newest message."""
Decision: TypeAlias = tuple[str, list[PlannedCall]]
"""A thought, and the calls in the order in which they are to be carried out. Without calls the work on the message ends."""

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
_RESULT_LENGTH: Final = 1500
"""Characters of a tool's output that a reply shows. It fits into one message of the usual channels."""
_USER_FACTS: Final = "facts/user.md"
"""Memory file of what people say about themselves."""


class StandIn:
    """`LanguageModel` without a model. Its usage is always zero. It raises ModelError only to end a task whose job has failed.

    It follows the same contract as a model, because everything that tests and newcomers see with it must hold with a model too: calls
    have ids that are unique in the conversation, the answer is streamed, and only tools that the request offers are called.

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
    from pegasus.models.answers import pieces_of

    pieces = list(pieces_of(response))
    length = sum(len(piece.text) for piece in pieces if isinstance(piece, TextPiece | CallPiece))
    # A long answer comes in larger pieces, so that no answer takes longer than about a second.
    size = max(_PIECE, length // int(_WRITING / _PAUSE))
    for piece in pieces:
        if isinstance(piece, TextPiece | CallPiece):
            for start in range(0, len(piece.text), size):
                on_pieces([attrs.evolve(piece, text=piece.text[start : start + size])])
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
        return _task_step(inputs[0].text, last, calls, tools)
    sources = [line for turn in inputs for line in re.finditer(_METADATA, turn.text)]
    messages = list(re.finditer(_METADATA, last.text))
    # No message from a channel: somebody wants a summary, or a judgement, which rules cannot give.
    if not sources or not (last.results or messages):
        return f"{INTRODUCTION}\n\nOnly a language model can answer this: {truncate(last.text, 2000)}", []
    if messages:
        ends = [*(message.start() for message in messages[1:]), len(last.text)]
        texts = [last.text[message.end() : end].strip() for message, end in zip(messages, ends, strict=True)]
        decisions = [(message, *_answer(text, tools)) for message, text in zip(messages, texts, strict=True)]
    else:
        # The newest message says where the reply goes. Several may have come while a call was under way.
        decisions = [(sources[-1], *_continue(last.results, calls))]
    # The first reply of a conversation ends with the introduction.
    ending = "" if _is_introduced(request, calls) else f"\n\n{INTRODUCTION}"
    decided: list[PlannedCall] = []
    for source, _, planned in decisions:
        channel: Metadata = {"channelId": source["id"], "channelType": source["type"]}
        if source["thread"]:
            channel = {**channel, "replyTo": source["thread"]}
        for tool, arguments in planned:
            if tool == "reply":
                decided.append((tool, {**channel, **arguments, "text": f"{arguments['text']}{ending}"}))
                ending = ""
            else:
                decided.append((tool, arguments))
    return "\n".join(thought for _, thought, _ in decisions), decided


def _is_introduced(request: ModelRequest, calls: list[ToolCall]) -> bool:
    """Return whether the stand-in has said what it is. In direct speech the text of a turn is the reply, and there is no call."""
    said = (turn.text for turn in request.turns if isinstance(turn, AssistantTurn))
    return any(call.name == "reply" for call in calls) or any(_INTRODUCES in text for text in said)


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
        return "I show what I can do.", [_reply(DEMO_INTRODUCTION), _spawn("demo: eight small steps", DEMO)]
    if "memory_append" in tools and (remembered := _remember(text)):
        return remembered
    if "spawn_subagent" in tools and (command := find_job(text)):
        line = f"run: {command}"
        return "This needs a task.", [_reply(f"I have given that to a background task: {line}"), _spawn(line, line)]
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


def _spawn(description: str, text: str) -> PlannedCall:
    """Return the call that begins a task."""
    return "spawn_subagent", {"description": description, "input": text}


def _pass_on(kind: str, text: str) -> Decision:
    """Pass a task's notification on. Whoever stopped a task knows it and gets no reply."""
    if kind == "stopped":
        return "The person who stopped that task knows it.", []
    if kind == "completed":
        # The result of a task is JSON, of which people see the text.
        result = _parse_object(text)
        text = text if result is None else str(result.get("response") or "The task is done; it had nothing to report.")
        if text.startswith(DEMO_DONE):
            fact: Metadata = {"path": FACT_PATH, "entry": _FACT, "why": "the demo"}
            said = _reply(f"{text}\n\nMemory: I remember a fact, and take it back.")
            return "The demo goes on.", [said, ("memory_append", fact)]
    beginning = {"failed": "The task failed: ", "needs information": "The task asks: "}.get(kind, "")
    return "A task has sent something; I pass it on.", [_reply(f"{beginning}{text}")]


def _continue(results: tuple[ToolResult, ...], calls: list[ToolCall]) -> Decision:
    """Return the decision after the results of own calls: report the time, and repeat a reply that was interrupted.

    A reply that failed in another way is given up, because it could fail for the same reason for ever.
    """
    call_by_id = {call.id: call for call in calls}
    pairs = ((call_by_id.get(result.call_id), result) for result in results)
    planned = [after for call, result in pairs if call is not None and (after := _after(call, result)) is not None]
    return "I go on with the results." if planned else "That is done.", planned


def _after(call: ToolCall, result: ToolResult) -> PlannedCall | None:
    """Return the call behind a call that has this result; None if there is nothing more to do."""
    value = _parse_object(result.content) or {}
    # A cancelled call was given up by a person, who knows it.
    is_cancelled = '"cancelled"' in result.content
    match call.name:
        case "current_time":
            found = f"{value['formatted']} ({value['timezone']})" if value else truncate(result.content, 200)
            return _reply(f"It is {found}.")
        case "memory_read" if result.is_error and "there is no" in result.content.lower():
            return _reply("Nothing so far.")
        case "memory_read" | "memory_append" | "memory_write" if result.is_error:
            return _reply(_failure_text(result))
        case "memory_append" if call.arguments.get("path") == FACT_PATH:
            return "memory_write", {"path": FACT_PATH, "content": "", "why": "the demo takes it back"}
        case "memory_write" if call.arguments.get("path") == FACT_PATH:
            return _reply(_last_words())
        case "memory_append":
            fact = str(call.arguments["entry"]).removeprefix("- ")
            log = f"`{command_name()} memory log` shows it, `memory undo` takes it back"
            return _reply(f"Noted: {fact} ({_USER_FACTS}; {log}).")
        case "memory_read":
            lines = str(value.get("content") or "").splitlines()
            facts = "\n".join(line for line in lines if not line.startswith(("# ", "> Summary:"))).strip()
            return _reply(_shorten(facts or "Nothing so far."))
        case "cron":
            due = value.get("next")
            return _reply(f"I will remind you at {due}." if due else f"That did not work: {result.content}")
        case "spawn_subagent" if result.is_error and not is_cancelled:
            return _reply(_failure_text(result))
        case "reply" if result.is_error and is_cancelled:
            return call.name, call.arguments
    return None


# ------------------------------------------------------------------ in a task

JOB: Final = "shell_exec"
"""Tool of the job."""


def find_job(text: str) -> str | None:
    """Return the command that a message asks to run, None if it asks for something else.

    It accepts little: a message that is taken for a job by mistake would run a command that nobody wanted.
    Example: `find_job("please run uname -a")` is "uname -a", and so is `find_job("run: uname -a")`.
    """
    match = re.fullmatch(r"(?i)(?:please )?run[: ]\s*(\S[^\n]*)", text.strip())
    return match[1].strip().strip("`") if match else None


def _task_step(first: str, last: UserTurn, calls: list[ToolCall], tools: set[str]) -> Decision:
    """Return text and calls of a task's next step: first the call of its job, then a report of the result.

    A step without calls ends the task, and its text is the task's result. A later message to the task is a new job. Only the first
    line of the input is read: what follows is memory and other context, which is meant for a model.
    """
    if first.strip().partition("\n")[0] == DEMO:
        if len(calls) >= len(DEMO_STEPS):
            return f"{DEMO_DONE}: {len(DEMO_STEPS)} steps, and {_REPORT} in the workspace is what is left of it.", []
        thought, tool, arguments = DEMO_STEPS[len(calls)]
        return (thought, [(tool, arguments)]) if tool in tools else (f"A task of this type may not use {tool}.", [])
    if last.results and not last.text:
        report = "\n\n".join(map(_describe, last.results))
        if any(map(_has_failed, last.results)):
            raise ModelError(report, kind="request")
        return report, []
    command = find_job((last.text or first).strip().partition("\n")[0])
    if command is None:
        return "I am a stand-in without a language model: I can run a command, one in a task.", []
    if JOB not in tools:
        return f"A task of this type may not use {JOB}.", []
    return "I run what was asked.", [(JOB, {"command": command})]


# ------------------------------------------------------------------ results of tools, for people


def _has_failed(result: ToolResult) -> bool:
    """Return whether the call did not do what was asked for: it has failed, or its command ended with another code than 0."""
    return result.is_error or bool((_parse_object(result.content) or {}).get("exitCode"))


def _describe(result: ToolResult) -> str:
    """Return the result of a command as text for a person: its output, and its exit code if that is not 0."""
    value = _parse_object(result.content)
    if result.is_error or value is None:
        return _failure_text(result) if result.is_error else _shorten(result.content)
    output = "\n".join(str(value[key]).rstrip() for key in ("stdout", "stderr") if value.get(key))
    code = value.get("exitCode")
    return _shorten((output or "(no output)") + (f"\n(exit code {code})" if code else ""))


def _parse_object(content: str) -> dict[str, Json] | None:
    """Return the JSON object in a text, None if it is something else."""
    try:
        value: Json = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _failure_text(result: ToolResult) -> str:
    """Return what is said of a call that has failed, without the mark that is meant for models."""
    return f"That did not work: {_shorten(result.content.removeprefix('Error: '))}"


def _shorten(text: str) -> str:
    """Cut a long output; the report says how long it was."""
    return text if len(text) <= _RESULT_LENGTH else f"{text[:_RESULT_LENGTH]}… ({len(text):,} characters in all)"


# ------------------------------------------------------------------ the demo

DEMO: Final = "demo"
"""Message that starts the demo, and input of its task."""
DEMO_DONE: Final = "The demo task is done"
"""Beginning of the task's result."""
FACT_PATH: Final = "facts/demo.md"
"""Memory file that the demo writes and forgets."""
_FACT: Final = "The demo ran here, and this fact is taken back at once."
_REPORT: Final = "demo/report.md"

DEMO_STEPS: Final[tuple[tuple[str, str, Metadata], ...]] = (
    ("I look at this machine.", "shell_exec", {"command": "uname -sr; date"}),
    ("I look around in the workspace.", "list_files", {"path": "."}),
    ("I wait, so that you can watch.", "sleep", {"duration": 6}),
    (
        "I write a report.",
        "write_file",
        {"path": _REPORT, "content": "# Report\n\nstep: looked around\nstep: waited\n"},
    ),
    ("I say how far I am.", "notify", {"message": f"The demo is half done: the report is in {_REPORT}."}),
    ("I wait once more.", "sleep", {"duration": 6}),
    ("I search my report.", "grep_files", {"pattern": "step", "path": "demo"}),
    ("I read what I wrote.", "read_file", {"path": _REPORT}),
)
"""Thought, tool and arguments of each step. With the answer they are one less than the model calls that a task may make."""

DEMO_INTRODUCTION: Final = (
    "Demo, about a minute. A background task works in steps: it runs a command, waits, writes and searches a file. "
    "Watch its line, or see `/tasks`; you can go on talking to me meanwhile."
)


def _last_words() -> str:
    """Return the end of the demo: what it has done to memory, and how to try a crash."""
    command = command_name()
    return (
        f"Remembered and forgotten. `{command} memory log` shows both changes with their author and reason, and "
        f"`{command} memory undo N` takes back any of them.\n\n"
        "Recovery: say `demo` again, and while its task works, type in another terminal:\n\n"
        f"```sh\nkill -9 {os.getpid()}\n{command}\n```\n\n"
        "The task goes on with the step it was at, you get its result, and nothing is done twice."
    )
