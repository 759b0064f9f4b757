"""Whether a year in an office was as it should be: everything that thirty days must be, and that no chat knows of another."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from urllib.parse import unquote

from pegasus.conversation import parse_metadata_line
from pegasus.messages import Address, escape_field
from pegasus.schedule import SCHEDULED
from tests.simulation.office.life import is_apology
from tests.simulation.office.story import JOBS, ROOMS
from tests.simulation.thirty_days.verdict import Verdict

_NOTE = re.compile(r"<!-- (\w+) -->")
LEFT_BEHIND = re.compile(r"\.(tmp|next)$")


class OfficeVerdict(Verdict):
    """doubtful: keys of facts that somebody tried to tell while the provider was away."""

    session_files = r"sessions/[\w%-]+(\.\d{4}-[-\d]+)?\.jsonl"

    def __init__(self, life):
        plans = life.plans.values()
        self.hit = life.agent.hit
        self.doubtful = {
            plan.fact[1] for plan in plans if plan.kind in ("remember", "correct") and plan.number in self.hit
        }
        super().__init__(life)
        self._look_at_chats()
        self._look_at_jobs()
        self._look_at_notes()
        self._look_at_what_grows()

    # ---------------------------------------------------------------- provider outages

    def _judge(self, plan):
        """Somebody whose message met an outage has been told so, once. Where it was got over, all is as usual."""
        if plan.number in self.hit:
            own = self.answers.get((plan.channel.address, plan.id), [])
            if len(own) == 1 and is_apology(own[0].text):
                return ""
            if plan.kind == "errand":  # the report of its task met it
                return "" if self._apologies(plan.channel.address) else "there is no apology"
        return super()._judge(plan)

    def _apologies(self, address):
        return [
            r for found in self.answers.values() for r in found if r.channel.address == address and is_apology(r.text)
        ]

    def _missing(self, plan, texts):
        if plan.kind == "recall" and plan.fact[1] in self.doubtful and plan.channel not in ROOMS:
            return "" if len(texts) == 1 else f"it was answered by {texts}"
        if plan.kind == "answer" and plan.about in self.hit:
            return ""
        return super()._missing(plan, texts)

    def _value(self, asked):
        """Where several people read along, nothing is known of what somebody has told in private."""
        return "unknown" if asked.channel in ROOMS else super()._value(asked)

    def _look_at_memory(self):
        facts = self.life.story.messages
        self.life.story.messages = [plan for plan in facts if plan.fact[1] not in self.doubtful]
        try:
            super()._look_at_memory()
        finally:
            self.life.story.messages = facts

    # ---------------------------------------------------------------- chats

    def _look_at_chats(self):
        """What stands in a session was said in its chat, in the order in which it was accepted."""
        self.tasks = self._places_of_tasks()
        for path, entries in sorted(self._sessions().items()):
            chat = unquote(path.removeprefix("sessions/").split(".")[0])
            last = 0
            carried = json.dumps(entries[0].get("metadata", {})) if entries else ""
            if others := [task for task, where in self.tasks.items() if task in carried and where != chat]:
                self.wrong.append(f"{path} begins with tasks of other chats: {others}")
            for entry in entries:
                metadata = entry.get("metadata", {})
                if entry["role"] != "user" or "item" not in metadata:
                    continue
                where = parse_metadata_line(entry["content"].split("\n")[0] + "\n")
                wanted = Address.parse(chat)
                if where != Address(escape_field(wanted.type), escape_field(wanted.channel_id)):
                    self.wrong.append(f"{path} has words of {where}: {entry['content'][:200]!r}")
                if "type" not in metadata:
                    if metadata["item"] < last:
                        self.wrong.append(f"{path}: item {metadata['item']} came behind item {last}")
                    last = metadata["item"]

    def _places_of_tasks(self):
        """The chat of each task that a person's work has begun, by its id."""
        found = {}
        for path in self.life.disk.paths():
            if match := re.fullmatch(r"tasks/[\d-]+/(\w+)\.jsonl", path):
                created = json.loads(self.life.disk.content(path).partition(b"\n")[0])["data"]
                channel = created["inputMetadata"]["channel"]
                found[match[1]] = f"{channel['type']}:{channel['channelId']}"
        return found

    # ---------------------------------------------------------------- jobs

    def _look_at_jobs(self):
        """Each job was run at each of its times, once: between each of them and the next. And something was said to each run."""
        entries = [entry for session in self._sessions().values() for entry in session if entry["role"] == "user"]
        scheduled = [entry for entry in entries if entry.get("metadata", {}).get("type") == SCHEDULED]
        # What stays when older messages leave a session stands in its archive as well.
        runs = list({entry["metadata"]["item"]: (entry["ts"], entry["content"]) for entry in scheduled}.values())
        self.fired = len(runs)
        for job in JOBS:
            dues = list(job.dues(self.life.jobs_at.get(job.number, 0), self.life.ended_at))
            times = [ts for ts, content in runs if job.prompt in content]
            counts = Counter(bisect_right(dues, ts) for ts in times)
            wrong = {due: counts[place] for place, due in enumerate(dues, 1) if counts[place] != 1}
            if wrong or counts[0]:
                self.wrong.append(
                    f"job {job.number} ran so often when it was due: {wrong}, and {counts[0]} times before"
                )
            said = len(self.spoken.get(job.number, ()))
            if not len(times) - self.hit[job.number] <= said <= len(times):
                self.wrong.append(f"job {job.number} ran {len(times)} times, {said} times something was said")

    # ---------------------------------------------------------------- notes

    def _look_at_notes(self):
        """Each part of a conversation that left its session is in the history once, and in that of its month."""
        firsts = [session[0].get("metadata", {}) for session in self._sessions().values() if session]
        wanted = {metadata["consolidation"]["id"] for metadata in firsts if "consolidation" in metadata}
        self.consolidations = len(wanted)
        for name in ("", "-[0-9]{4}-[0-9]{2}"):
            files = [p for p in self.life.disk.paths() if re.fullmatch(rf"workspace/memory/HISTORY{name}\.md", p)]
            found = Counter(id for path in files for id in _NOTE.findall(self.life.disk.content(path).decode()))
            if twice := [id for id, count in found.items() if count > 1]:
                self.wrong.append(f"{files} have {twice} twice")
            if lost := wanted - found.keys():
                self.wrong.append(f"{files} lack {lost}")

    # ---------------------------------------------------------------- what grows

    def _look_at_what_grows(self):
        """No more tasks run in the last part of the year than in the first one, and nothing is left lying about."""
        counts = self.life.counts
        part = max(1, len(counts) // 4)
        first, last = max(tasks for tasks, _ in counts[:part]), max(tasks for tasks, _ in counts[-part:])
        open_errands = sum(plan.kind == "errand" for plan in self.life.plans.values())
        if last > first * 1.5 + 20 + open_errands:
            self.wrong.append(f"{first} tasks of Trio became {last}")
        if left := [path for path in self.life.disk.paths() if LEFT_BEHIND.search(path)]:
            self.wrong.append(f"files are left behind: {left}")
        lines = self.life.disk.content("tasks/index.jsonl").splitlines()
        indexed = [
            json.loads(line) for line in lines if line
        ]  # an empty one stands behind what a power failure had torn
        if len(indexed) != len({line["taskId"] for line in indexed}):
            self.wrong.append("a task is in the index twice")
