"""Whether a month was as it should be: nobody heard a private word, each message was dealt with once, every promise was answered,
and nothing is forgotten."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter

from tests.simulation.thirty_days.agent import PRIVATE
from tests.simulation.thirty_days.worker import EPISODES

CACHED = 0.95
"""The part of all prompts that a provider must be able to take from its cache."""
COMMANDS = {
    "help": "/stop — ",
    "status": "I am ",
    "stop": ("Stopped:", "Nothing was running"),
    "new": "This is a fresh",
}
_NUMBER = re.compile(r"#(\d+)")


PROMPTS = 5
"""Different ones there may be in all runs together: they name the channels, of which there are so many, known after the first hour."""
CARRIED, AT_ONCE = 5, 8
"""Open tasks that a compaction must carry at least, with a small window; entries behind it in which the end of one may come."""


def archive_of(path, name):
    """The path of an archive, by its name in a session of the same conversation."""
    folder, _, file = path.partition("/")
    return f"{folder}/{name}" if folder == "main" else f"{folder}/{file.partition('.')[0]}.{name}"


def open_tasks(sessions, path):
    """The tasks that a session, or one that it goes on with, has begun and not seen ended, oldest first."""
    entries = sessions.get(path, [])
    previous = _previous(entries)
    tasks = dict.fromkeys(open_tasks(sessions, archive_of(path, previous)) if previous else ())
    for entry in entries:
        if entry["role"] == "tool" and (found := re.match(r'\{"taskId":"(\w+)","status":"spawned"', entry["content"])):
            tasks[found[1]] = None
        elif "taskId" in entry.get("metadata", {}) and re.search(
            r"\[Task \w+ (completed|failed|stopped)\]", entry["content"]
        ):
            tasks.pop(entry["metadata"]["taskId"], None)
    return list(tasks)


def _previous(entries):
    """The archive of what was compacted into this session, "" if it began anew."""
    metadata = entries[0].get("metadata", {}) if entries else {}
    return metadata["previousSession"] if metadata.get("type") == "compact" else ""


class Verdict:
    """wrong: what is wrong with a life that has ended, in words. stopped: the numbers that some /stop has named."""

    session_files = r"main/(current|\d{4}-[-\d]+)\.jsonl"

    def __init__(self, life):
        self.life = life
        self.replies = [reply for channel in life.channels.values() for reply in channel.replies]
        self.stopped = self._stopped()
        self.spoken = {}
        self.answers = {}
        for reply in self.replies:
            found = re.match(r"#(\d+) ", reply.text)
            if found:
                self.spoken.setdefault(int(found[1]), []).append(reply)
            else:
                key = (reply.channel.address, reply.metadata.get("inReplyTo"))
                self.answers.setdefault(key, []).append(reply)
        self.wrong = list(life.wrong)
        if not life.finished:
            self.wrong.append("the life did not come to its end")
        self._look_at_channels()
        for plan in life.plans.values():
            if about := self._judge(plan):
                self.wrong.append(f"{plan.text[:60]!r} on {plan.channel}: {about}")
        self._look_at_memory()
        self._look_at_sessions()
        self._look_at_prompts()

    def _stopped(self):
        told = [reply.text for reply in self.replies if reply.text.startswith("Stopped:")]
        return {int(number) for text in (*told, *self._words_cut_off()) for number in _NUMBER.findall(text)}

    def _words_cut_off(self):
        """What tasks were about whose word was not passed on, since somebody said /stop just then."""
        for entries in self._sessions().values():
            for entry, following in itertools.pairwise(entries):
                if following.get("metadata", {}).get("type") == "stopped" and "taskId" in entry.get("metadata", {}):
                    yield self._task(entry["metadata"]["taskId"])

    def _task(self, task_id):
        path = next(path for path in self.life.disk.paths() if path.endswith(f"/{task_id}.jsonl"))
        return json.loads(self.life.disk.content(path).partition(b"\n")[0])["data"]["description"]

    def _sessions(self):
        """The lines of each session, by its file."""
        paths = [path for path in self.life.disk.paths() if re.fullmatch(self.session_files, path)]
        return {path: [json.loads(line) for line in self.life.disk.content(path).splitlines()] for path in paths}

    # ---------------------------------------------------------------- what was heard

    def _look_at_channels(self):
        for reply in self.replies:
            if PRIVATE in reply.text:
                self.wrong.append(f"a private word on {reply.channel}: {reply.text}")
        for channel in self.life.channels.values():
            seqs = {}
            for reply in (*channel.replies, *channel.refused):
                seqs.setdefault(reply.channel.channel_id, set()).add(reply.seq)
            for space, found in seqs.items():
                if found != set(range(1, len(found) + 1)):
                    self.wrong.append(f"{channel.type}:{space} has gaps: {sorted(found)}")

    def _judge(self, plan):
        """What is wrong with what came of one message, "" if nothing is."""
        said = self.spoken.get(plan.number, [])
        own = self.answers.get((plan.channel.address, plan.id), [])
        if plan.number not in self.life.accepted:
            return f"nobody had said it, and yet there is {said or own}" if said or own else self._unsaid(plan)
        twice = [text for text, count in Counter(reply.text for reply in said).items() if count > 1]
        if twice or len(own) > 1:
            return f"it was answered twice: {twice or own}"
        if plan.kind in COMMANDS:
            return (
                ""
                if own and own[0].text.startswith(COMMANDS[plan.kind]) and not said
                else f"its answers were {said, own}"
            )
        if plan.fails and not said:
            return (
                ""
                if own and "The model did not answer" in own[0].text
                else ""
                if plan.number in self.stopped
                else "no apology"
            )
        if own:
            return f"why {own[0].text!r}?"
        if elsewhere := [r for r in said if not self._is_in_place(plan, r)]:
            return f"it was answered elsewhere: {elsewhere}"
        return self._missing(plan, [reply.text.partition(" ")[2] for reply in said])

    def _unsaid(self, plan):
        """Answers are said if they are asked for; everything else is said."""
        return "" if plan.kind == "answer" else "it was never accepted"

    def _is_in_place(self, plan, reply):
        if plan.to is not None and "told to you" in reply.text:
            return reply.channel.address == plan.to.address
        if plan.unwanted and "reached nobody" in reply.text:
            return reply.channel.address == self.life.story.owners.address
        return (reply.channel.address, reply.channel.reply_to) == (plan.channel.address, plan.channel.reply_to)

    def _missing(self, plan, texts):
        if plan.number in self.stopped:
            return ""
        wanted = {
            "remember": ["noted"],
            "correct": ["corrected"],
            "recall": [f"{plan.fact[1]}: {self._value(plan)}"],
            "errand": ["I'll find out"],
            "tell": ["told to you: the boat is in", "I told them"],
            "thanks": [],
            "chat": ["reached nobody" if plan.unwanted else "fine"],
            "time": ["it is "],
            "ponder": ["fine"],
            "skill": ["/"],
            "answer": ["I pass it on"],
        }[plan.kind]
        if plan.kind == "errand":
            return self._errand(plan, texts)
        if plan.kind == "answer" and any("failed:" in reply.text for reply in self.spoken.get(plan.about, ())):
            return "" if texts else "nothing was said to the answer"
        fits = len(texts) == len(wanted) and all(any(text.startswith(want) for text in texts) for want in wanted)
        return "" if fits else f"{wanted} was to be said, and {texts} was"

    # ---------------------------------------------------------------- promises

    def _errand(self, plan, texts):
        """What was promised is kept: there is a result, or an honest word that there is none."""
        kinds = Counter(text.split(":")[0].partition(" and let")[0] for text in texts)
        if kinds.pop("I'll find out", 0) != 1:
            return f"nothing was promised: {texts}"
        ends = [text for text in texts if text.startswith(("result:", "failed:"))]
        if len(ends) == 2 and self.life.story.recovery == "fail" and "restart" in ends[0]:
            ends = ends[1:]  # it was over, and went on all the same when its question was answered
        if len(ends) != 1:
            return "" if self._waits(plan, texts) else f"the promise was not kept: {texts}"
        kinds -= Counter(["result", "failed", "failed", "asks", "progress"])
        if kinds:
            return f"what is {kinds}?"
        return self._ending(plan, ends[0], texts)

    def _waits(self, plan, texts):
        """Whether it still waits for an answer that nobody could give."""
        answer = plan.answer
        return answer is not None and answer.number in self.stopped and len(texts) == 2

    def _ending(self, plan, end, texts):
        if end.startswith("result:"):
            if plan.errand.trouble == "fails":
                return f"it cannot have gone well: {end}"
            colour = f" in {plan.answer.fact[2]}" if plan.errand.trouble == "asks" else ""
            fits = end.startswith(f"result: #{plan.number} the harbour is fine{colour}")
            told = plan.errand.trouble != "notifies" or f"progress: #{plan.number} is half done" in texts
            return "" if fits and told else f"that is not what came of it: {texts}"
        cut_off = self.life.story.recovery == "fail" and "restart" in end
        return "" if cut_off or (plan.errand.trouble == "fails" and "no way to do" in end) else f"why {end!r}?"

    # ---------------------------------------------------------------- what is remembered

    def _value(self, asked):
        """What was true when somebody asked."""
        told = [p for p in self._tellers(asked.fact[1]) if p.at < asked.at]
        return told[-1].fact[2] if told else "unknown"

    def _tellers(self, key):
        tellers = [p for p in self.life.story.messages if p.kind in ("remember", "correct") and p.fact[1] == key]
        return [p for p in tellers if p.number not in self.stopped]

    def _look_at_memory(self):
        disk = self.life.disk
        for key in {plan.fact[1] for plan in self.life.story.messages if plan.kind == "remember"}:
            told = self._tellers(key)
            lines = disk.content(f"memory/{told[-1].fact[0]}").decode().splitlines() if told else []
            values = {line.removesuffix(" [source: guest]") for line in lines if line.startswith(f"- {key}: ")}
            if told and values != {f"- {key}: {told[-1].fact[2]}"}:
                self.wrong.append(f"memory of {key!r} is {values}, and it is {told[-1].fact[2]}")
        episodes = disk.content(f"memory/{EPISODES}").decode()
        lost = [n for n in self.life.worker.learnt if f"## Harbour #{n}\n" not in episodes]
        if lost or not self.life.worker.learnt:
            self.wrong.append(f"what {lost or 'any of them'} has taught is not in memory")

    # ---------------------------------------------------------------- what is kept of the talk

    def _look_at_sessions(self):
        sessions = self._sessions()
        self.sessions, self.compactions = len(sessions), 0
        for path, entries in sessions.items():
            items = Counter(e["metadata"]["item"] for e in entries if "item" in e.get("metadata", {}))
            self.wrong += [f"item {n} is {count} times in {path}" for n, count in items.items() if count > 1]
            if previous := _previous(entries):
                self.compactions += 1
                archive = archive_of(path, previous)
                self._look_at_compaction(path, entries, sessions[archive], open_tasks(sessions, archive))

    def _look_at_compaction(self, path, entries, before, tasks):
        """Work that is not back is still known, if there is not too much of it, or its end was about to be told."""
        stay = max((i for i, entry in enumerate(entries) if entry in before), default=0)
        known = json.dumps([entry.get("content", "") for entry in entries[: stay + AT_ONCE]])
        missing = [task for task in tasks[-CARRIED:] if task not in known]
        if missing:
            self.wrong.append(
                f"{path} knows nothing of the tasks {missing}, which were open: {entries[0]['content'][:2000]}"
            )

    def _look_at_prompts(self):
        if len(self.life.wires.prompts) > PROMPTS * (self.sessions if self.life.wires.per_chat else 1):
            self.wrong.append(f"{self.life.worlds} runs had {len(self.life.wires.prompts)} different prompts")
        for form, cache in self.life.wires.caches.items():
            if cache.share <= CACHED:
                self.wrong.append(f"{form} could take only {cache.share:.1%} of all prompts from its cache")
