"""The model of the Main Agent: decides by what it is shown and by nothing else, as a real one does, so that it can be asked again.

Whatever it writes as text is private and has the mark PRIVATE in it; it keeps facts in memory only, and looks them up there.
"""

from __future__ import annotations

import json
import re

import attrs
import trio

from pegasus.models.base import (
    AssistantTurn,
    ModelError,
    ModelResponse,
    ToolCall,
    Usage,
    UserTurn,
    without_request_fences,
)
from tests.pegasus.conversation.test_projection import is_valid

PRIVATE = "(nobody-may-see-this)"
_LINE = re.compile(r"^\[channel: (.+?) \| id: (.+?)(?: \| thread: (.+?))?(?: \| user: .+?)?\]\n", re.MULTILINE)
_NOTICE = re.compile(r"\[Task (\w+) (completed|failed|stopped|needs information|update)\]\n")
_NUMBER = re.compile(r"#(\d+)")
_STOPPED = "(Work on the message above was stopped"
_SEEN = 8
"""Messages that it has an eye on: the newest, and those it may have been cut off from."""
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

    def ok(self, name, **wanted):
        """The content of the last result of this tool, called with these arguments among others, that did not fail."""
        return next((r.content for call, r in reversed(self.done) if _is(call, name, wanted) and not _failed(r)), None)

    def said(self, text):
        """Long texts may have been shortened meanwhile."""
        return any(
            c.name == "reply" and c.arguments.get("text", "")[:80] == text[:80] and not _failed(r) for c, r in self.done
        )

    def reply(self, text, **where):
        return () if self.said(text) else (("reply", {"text": text, **(where or self.where)}),)


def _is(call, name, wanted):
    return call.name == name and wanted.items() <= dict(call.arguments).items()


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
        request = without_request_fences(request)
        if self.window and tokens > self.window:
            self.overflows += 1
            raise ModelError("scripted: the conversation is too long", kind="overflow", status=400)
        if not is_main:
            return await self._summarise(request, tokens)
        try:
            assert is_valid(request.turns)
            moments = moments_of(request.turns)
            moment = moments[-1]
        except (AssertionError, LookupError) as error:
            self._wrong.append(f"a request is no valid projection: {error!r} {request.turns[-3:]}")
            raise
        await trio.sleep(self._takes(moment.number, len(moment.done)))
        if moment.number in self._fails and not moment.text.startswith("["):
            raise ModelError("scripted: out of order", kind="server")
        wanted = [call for one in moments for call in decide(one, request.turns)]
        calls = tuple(ToolCall(f"call_{i}", *call) for i, call in enumerate(wanted))
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


def moments_of(turns):
    """The newest messages that nobody has called off, oldest first, each with all that was done since; others may have joined it."""
    found = []
    first = next((i for i, turn in _backwards(turns) if _heard(turn) and (i < len(turns) - 40 or not i)), 0)
    for i in range(first, len(turns)):
        turn = turns[i]
        if isinstance(turn, AssistantTurn):
            if "(I told the user:" in turn.text and found:
                found.pop()
            continue
        lines = list(_LINE.finditer(turn.text))
        before = turn.text[: lines[0].start()] if lines else turn.text
        if _STOPPED in before and found:
            found.pop()
        for line, following in zip(lines, [*lines[1:], None], strict=False):
            text = turn.text[line.end() : following.start() if following else None]
            if _STOPPED not in text:
                found.append((i, line.groups(), text.strip()))
    if not found:
        raise LookupError("nobody has said anything")
    return [Moment(_where(*groups), text, _done_since(turns, i)) for i, groups, text in found[-_SEEN:]]


def _backwards(turns):
    return ((i, turns[i]) for i in range(len(turns) - 1, -1, -1))


def _heard(turn):
    return isinstance(turn, UserTurn) and _LINE.search(turn.text) is not None


def _where(kind, channel_id, thread):
    return {"channelId": channel_id, "channelType": kind, **({"replyTo": thread} if thread else {})}


def _done_since(turns, i):
    after = zip(turns[i + 1 :], turns[i + 2 :], strict=False)
    return [pair for turn, next in after if isinstance(turn, AssistantTurn) for pair in _pairs(turn, next)]


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
    if word in ("failed", "stopped"):
        task = moment.ok("task_status", taskId=task_id)
        if task is None:
            return (("task_status", {"taskId": task_id}),)
        found = _NUMBER.search(json.loads(task)["description"])
        return moment.reply(f"#{found[1]} failed: {text}")
    return moment.reply(f"#{moment.number} {'asks' if word == 'needs information' else 'progress'}: {text}")


def _remember(moment, key, value):
    path = f"facts/user-{key.partition(chr(39))[0]}.md"
    if moment.ok("memory_append", why=f"#{moment.number}") is None:
        return (("memory_append", {"path": path, "entry": f"- {key}: {value}", "why": f"#{moment.number}"}),)
    return moment.reply(f"#{moment.number} noted: {key}")


def _correct(moment, key, value):
    path, why = f"facts/user-{key.partition(chr(39))[0]}.md", f"#{moment.number}"
    if any(moment.ok(name, why=why) is not None for name in ("memory_patch", "memory_write", "memory_append")):
        return moment.reply(f"#{moment.number} corrected: {key}")
    made = [(c, r) for c, r in moment.done if _is(c, "memory_read", {"path": path}) or c.arguments.get("why") == why]
    last, result = made[-1] if made else (None, None)
    if last is None or last.name != "memory_read" or '"cancelled":true' in result.content:
        return (("memory_read", {"path": path}),)
    content = "" if _failed(result) else json.loads(result.content)["content"]
    lines = [line for line in content.splitlines() if line.startswith(f"- {key}: ")]
    new = f"- {key}: {value}"
    if len(lines) == 1:
        return (("memory_patch", {"path": path, "old_str": lines[0], "new_str": new, "why": why}),)
    if lines:  # it was noted twice, by a call that a crash had hidden
        return (("memory_write", {"path": path, "content": content.replace(lines[0], new), "why": why}),)
    return (("memory_append", {"path": path, "entry": new, "why": why}),)


def _recall(moment, key):
    path = f"facts/user-{key.partition(chr(39))[0]}.md"
    if moment.ok("memory_list") is None:
        return (("memory_list", {}),)
    reads = [result for call, result in moment.done if _is(call, "memory_read", {"path": path})]
    if not reads or '"cancelled":true' in reads[-1].content:
        return (("memory_read", {"path": path}),)
    content = "" if _failed(reads[-1]) else json.loads(reads[-1].content)["content"]
    values = re.findall(rf"^- {re.escape(key)}: (.*)$", content, re.MULTILINE)
    return () if _told(moment, key) else moment.reply(f"#{moment.number} {key}: {values[-1] if values else 'unknown'}")


def _told(moment, key, mark=": "):
    """Whether it was answered already, whatever memory or the clock has said since."""
    start = f"#{moment.number} {key}{mark}"
    return any(
        c.name == "reply" and c.arguments.get("text", "").startswith(start) and not _failed(r) for c, r in moment.done
    )


def _delegate(moment):
    spawn = {"description": f"#{moment.number} the harbour", "input": f"#{moment.number}: find out how the harbour is"}
    begun = () if moment.ok("spawn_subagent", **spawn) else (("spawn_subagent", spawn),)
    return (*moment.reply(f"#{moment.number} I'll find out and let you know"), *begun)


def _answer(moment, about, value, turns):
    passing = moment.reply(f"#{moment.number} I pass it on")
    told = f"#{moment.number}: the answer is {value}"
    tried = [
        r for c, r in moment.done if _is(c, "resume_task", {"input": told}) and '"cancelled":true' not in r.content
    ]
    if tried and not _failed(tried[-1]):
        return passing
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
    return (*passing, ("resume_task", {"taskId": task_id, "input": told}))


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
    if now is None:
        return (("current_time", {}),)
    return () if _told(moment, "it is", "") else moment.reply(f"#{moment.number} it is {now}")


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
