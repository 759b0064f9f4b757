"""The model of the Main Agent: decides by what it is shown and by nothing else, as a real one does, so that it can be asked again.

Whatever it writes as text is private and has the mark PRIVATE in it; it keeps facts in memory only, and looks them up there.
"""

from __future__ import annotations

import json
import re

import attrs
import trio

from pegasus.models.base import AssistantTurn, ModelError, ModelResponse, ToolCall, Usage, UserTurn
from tests.pegasus.conversation.test_projection import is_valid

PRIVATE = "(nobody-may-see-this)"
_LINE = re.compile(r"^\[channel: (.+?) \| id: (.+?)(?: \| thread: (.+?))?\]\n", re.MULTILINE)
_NOTICE = re.compile(r"\[Task (\w+) (completed|failed|needs information|update)\]\n")
_NUMBER = re.compile(r"#(\d+)")
_TASK = re.compile(r"\b[0-9a-f]{16}\b")


@attrs.frozen
class Moment:
    """What there is to think about. where: the arguments that reply there; done: calls since then, with their results."""

    where: dict[str, str]
    text: str
    done: list

    @property
    def number(self):
        found = _NUMBER.search(self.text)
        return int(found[1]) if found else 0

    def ok(self, name):
        """The content of the last result of this tool that did not fail."""
        return next((r.content for call, r in reversed(self.done) if call.name == name and not _failed(r)), None)

    def said(self, text):
        return any(
            call.name == "reply" and call.arguments.get("text") == text and not _failed(r) for call, r in self.done
        )

    def reply(self, text, **where):
        return () if self.said(text) else (("reply", {"text": text, **(where or self.where)}),)


class Agent:
    """size: gives the bytes of a request, and checks it. window: tokens that fit, 0 = any; takes: seconds to think, by number.

    fails: numbers for which it cannot be asked.
    """

    name = "anthropic/claude-test"

    def __init__(self, send, takes, fails, wrong):
        self._send, self._takes, self._fails, self._wrong = send, takes, fails, wrong
        self.window = 0
        self.calls = 0
        self.summaries = 0
        self.overflows = 0

    async def generate(self, request):
        is_main = request.label.role != "compact"
        size = self._send(request, is_main=is_main)
        tokens = size // 4
        self.calls += 1
        if self.window and tokens > self.window:
            self.overflows += 1
            raise ModelError("scripted: the conversation is too long", kind="overflow", status=400)
        if not is_main:
            return await self._summarise(request, tokens)
        try:
            assert is_valid(request.turns)
            moment = moment_of(request.turns)
        except (AssertionError, LookupError) as error:
            self._wrong.append(f"a request is no valid projection: {error!r} {request.turns[-3:]}")
            raise
        await trio.sleep(self._takes(moment.number, len(moment.done)))
        if moment.number in self._fails and not moment.text.startswith("["):
            raise ModelError("scripted: out of order", kind="server")
        calls = tuple(ToolCall(f"call_{i}", *call) for i, call in enumerate(decide(moment, request.turns)))
        text = f"{PRIVATE} I look at #{moment.number}, and {len(calls)} things are to be done."
        thinking = ({"type": "thinking", "thinking": f"{PRIVATE} hm", "signature": "c2ln"},) if self.calls % 3 else ()
        return ModelResponse(
            text,
            calls,
            Usage(tokens, 40),
            "tool_calls" if calls else "end",
            thinking,
            "anthropic" if thinking else None,
        )

    async def _summarise(self, request, tokens):
        """As good as one can; every third time it is no good, and every ninth it never is."""
        self.summaries += 1
        await trio.sleep(20)
        text = "" if self.summaries % 3 == 0 else summary_of(request.turns)
        return ModelResponse(text, (), Usage(tokens, len(text) // 4), "end")


def moment_of(turns):
    """What the agent was told last, and all that it has done about it since."""
    for i in range(len(turns) - 1, -1, -1):
        lines = list(_LINE.finditer(turns[i].text)) if isinstance(turns[i], UserTurn) else ()
        if lines:
            kind, channel_id, thread = lines[-1].groups()
            where = {"channelId": channel_id, "channelType": kind, **({"replyTo": thread} if thread else {})}
            after = zip(turns[i + 1 :], turns[i + 2 :], strict=False)
            done = [pair for turn, next in after if isinstance(turn, AssistantTurn) for pair in _pairs(turn, next)]
            return Moment(where, turns[i].text[lines[-1].end() :].strip(), done)
    raise LookupError("nobody has said anything")


def _pairs(turn, following):
    return zip(turn.calls, following.results, strict=True)


def _failed(result):
    return result.is_error or '"cancelled":true' in result.content


# ------------------------------------------------------------------ what to do


def decide(moment, turns):
    """The calls to make now; none: nothing more is to be done or said."""
    n, text = moment.number, moment.text
    if notice := _NOTICE.match(text):
        return _about_task(moment, notice[1], notice[2], text[notice.end() :])
    if text.startswith("[Reply "):
        return moment.reply(f"#{n} reached nobody", channelId="main", channelType="cli")
    for pattern, act in _WISHES:
        if found := re.match(rf"#\d+: {pattern}", text, re.DOTALL):
            return act(moment, *found.groups(), **({"turns": turns} if act is _answer else {}))
    if text.startswith("/"):
        return moment.reply(f"#{n} {text.split()[0]}: tides come twice a day")
    return moment.reply(f"#{n} fine, thank you")


def _about_task(moment, task_id, word, text):
    if word == "completed":
        return moment.reply(f"#{moment.number} result: {json.loads(text)['response']}")
    if word == "failed":
        task = moment.ok("task_status")
        if task is None:
            return (("task_status", {"taskId": task_id}),)
        found = _NUMBER.search(json.loads(task)["description"])
        return moment.reply(f"#{found[1]} failed: {text}")
    return moment.reply(f"#{moment.number} {'asks' if word == 'needs information' else 'progress'}: {text}")


def _remember(moment, key, value):
    path = f"facts/user-{key.partition(chr(39))[0]}.md"
    if moment.ok("memory_append") is None:
        return (("memory_append", {"path": path, "entry": f"- {key}: {value}"}),)
    return moment.reply(f"#{moment.number} noted: {key}")


def _correct(moment, key, value):
    path = f"facts/user-{key.partition(chr(39))[0]}.md"
    if any(moment.ok(name) is not None for name in ("memory_patch", "memory_write", "memory_append")):
        return moment.reply(f"#{moment.number} corrected: {key}")
    last, result = moment.done[-1] if moment.done else (None, None)
    if last is None or last.name != "memory_read" or '"cancelled":true' in result.content:
        return (("memory_read", {"path": path}),)
    content = "" if _failed(result) else json.loads(result.content)["content"]
    lines = [line for line in content.splitlines() if line.startswith(f"- {key}: ")]
    new = f"- {key}: {value}"
    if len(lines) == 1:
        return (("memory_patch", {"path": path, "old_str": lines[0], "new_str": new}),)
    if lines:  # it was noted twice, by a call that a crash had hidden
        return (("memory_write", {"path": path, "content": content.replace(lines[0], new)}),)
    return (("memory_append", {"path": path, "entry": new}),)


def _recall(moment, key):
    path = f"facts/user-{key.partition(chr(39))[0]}.md"
    if moment.ok("memory_list") is None:
        return (("memory_list", {}),)
    reads = [result for call, result in moment.done if call.name == "memory_read"]
    if not reads or '"cancelled":true' in reads[-1].content:
        return (("memory_read", {"path": path}),)
    content = "" if _failed(reads[-1]) else json.loads(reads[-1].content)["content"]
    values = re.findall(rf"^- {re.escape(key)}: (.*)$", content, re.MULTILINE)
    return moment.reply(f"#{moment.number} {key}: {values[-1] if values else 'unknown'}")


def _delegate(moment):
    spawn = {"description": f"#{moment.number} the harbour", "input": f"#{moment.number}: find out how the harbour is"}
    begun = () if moment.ok("spawn_subagent") else (("spawn_subagent", spawn),)
    return (*moment.reply(f"#{moment.number} I'll find out and let you know"), *begun)


def _answer(moment, about, value, turns):
    passing = moment.reply(f"#{moment.number} I pass it on")
    if moment.ok("resume_task"):
        return passing
    tried = [
        result
        for call, result in moment.done
        if call.name == "resume_task" and '"cancelled":true' not in result.content
    ]
    if tried:
        return moment.reply(f"#{moment.number} could not be passed on: {tried[-1].content}")
    task_id = task_in_sight(turns, about)
    listed = moment.ok("task_list")
    if task_id is None and listed is None:
        return (("task_list", {}),)
    if task_id is None:
        task_id = next((t["taskId"] for t in json.loads(listed) if t["description"].startswith(f"#{about} ")), None)
    if task_id is None:
        return moment.reply(f"#{moment.number} could not be passed on: there is no such task")
    return (*passing, ("resume_task", {"taskId": task_id, "input": f"The answer is {value}"}))


def task_in_sight(turns, number):
    """The id of the task about #number, from a line that names both."""
    name = re.compile(rf"#{number}\b")
    for turn in reversed(turns):
        texts = (turn.text, *(result.content for result in turn.results)) if isinstance(turn, UserTurn) else ()
        for line in (line for text in texts for line in text.replace("]\n", "] ").splitlines()):
            if "#" in line and name.search(line) and "task_list" not in line and (found := _TASK.findall(line)):
                return found[0] if len(set(found)) == 1 else None
    return None


def _tell(moment, kind, channel_id, words):
    told = moment.reply(f"#{moment.number} told to you: {words}", channelId=channel_id, channelType=kind)
    return (*told, *moment.reply(f"#{moment.number} I told them"))


def _time(moment):
    now = moment.ok("current_time")
    return (("current_time", {}),) if now is None else moment.reply(f"#{moment.number} it is {now}")


_WISHES = (
    (r"please remember: (.+?) is (.+)\.", _remember),
    (r"correction: (.+?) is now (.+)\.", _correct),
    (r"what time is it", _time),
    (r"what is (.+)\?", _recall),
    (r"please find out", _delegate),
    (r"about #(\d+): (\w+)", _answer),
    (r"tell (\S+) (.+) \| (.+)", _tell),
    (r"thanks", lambda moment: ()),
)


# ------------------------------------------------------------------ what is left of it all


def summary_of(turns):
    """One that passes the checks: all headings, and every place that is named in what is to be summarised."""
    places = {
        f"{kind}:{name}" for kind, name in re.findall(r"\b(cli|slack|sms|web):(#?[\w+-]+(?: \d+)*)", turns[0].text)
    }
    people = "\n".join(sorted(places)) or "nobody"
    return f"## Now\nPeople ask about harbours.\n## People\n{people}\n## Decisions and facts\nnone\n## Open\nsee below"
