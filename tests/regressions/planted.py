"""Regressions of all kinds, each a small change of the product that a check of an update has to find.

A change is the text that is replaced and what takes its place. A text that is not found exactly once is an error, so the list stays
applicable. The list was written before the check was tried with it, by what has gone wrong in other agents' updates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs


@attrs.frozen
class Regression:
    """A change that makes something worse: `Regression("a reply goes twice", "pegasus/…/replies.py", "old", "new")`."""

    name: str
    """What is worse."""
    path: str
    """File of the product."""
    old: str
    """Text that is replaced; it stands there exactly once."""
    new: str
    """Text that takes its place."""
    also: tuple[tuple[str, str, str], ...] = ()
    """Further changes that belong to it: path, old, new."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that are changed."""
        return (self.path, *(path for path, _, _ in self.also))

    def plant(self, root: Path) -> None:
        """Make the change in a copy of the product. Raises ValueError if a text is not there exactly once."""
        for path, old, new in ((self.path, self.old, self.new), *self.also):
            text = (root / path).read_text()
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: found {text.count(old)} times in {path}, allowed: once: {old!r}")
            (root / path).write_text(text.replace(old, new))


_FORMAT: Final = ("pegasus/host/data_format.py", "FORMAT: Final = 2\n", "FORMAT: Final = 3\n")
_MIGRATIONS: Final = "MIGRATIONS: Final[Mapping[int, Callable[[Path], None]]] = {}"


def _migration(body: str) -> str:
    return f"def _broken(data: Path) -> None:\n    {body}\n\n\nMIGRATIONS: Final = {{2: _broken}}"


REGRESSIONS: Final = (
    # ---------------------------------------------------------------- replies
    Regression(
        "the last line of a reply is missing",
        "pegasus/main_agent/replies.py",
        'text, paths = str(arguments.get("text") or ""), media_paths(call)',
        'text, paths = str(arguments.get("text") or "").rpartition("\\n")[0] or str(arguments["text"]), media_paths(call)',
    ),
    Regression(
        "a reply goes to whoever has asked, whatever channel the model names",
        "pegasus/main_agent/replies.py",
        "    if channel_id is None:\n        channel_id, kind, thread =",
        "    if True:\n        channel_id, kind, thread =",
    ),
    Regression(
        "a reply leaves its thread",
        "pegasus/main_agent/replies.py",
        "        channel_type=channel_type,\n        reply_to=reply_to,\n",
        "        channel_type=channel_type,\n        reply_to=None,\n",
    ),
    Regression(
        "the second reply of an answer is not sent",
        "pegasus/main_agent/think_loop.py",
        "posts = [reply.post for reply in replies.values() if reply.post is not None]",
        "posts = [reply.post for reply in replies.values() if reply.post is not None][:1]",
    ),
    Regression(
        "every reply is sent twice",
        "pegasus/main_agent/think_loop.py",
        "        notes = () if answer.is_final else _notes(item, answer.response, thought.ts)\n",
        "        posts += [attrs.evolve(post, key=post.key + '-2') for post in posts]\n"
        "        notes = () if answer.is_final else _notes(item, answer.response, thought.ts)\n",
    ),
    Regression(
        "a reply does not say what it answers",
        "pegasus/main_agent/replies.py",
        "{} if message.is_internal else {IN_REPLY_TO: message.id}",
        "{}",
    ),
    Regression(
        "an apology is not sent",
        "pegasus/main_agent/item_endings.py",
        "await session.commit((*before, note), () if is_repeated else (reply_to_sender(item, text, APOLOGY),))",
        "await session.commit((*before, note), ())",
    ),
    # ---------------------------------------------------------------- messages
    Regression(
        "a message loses its capital letters",
        "pegasus/main_agent/think_loop.py",
        '(invocation.text, invocation.skill_in_force) if invocation else (message.text, "")',
        '(invocation.text, invocation.skill_in_force) if invocation else (message.text.lower(), "")',
    ),
    Regression(
        "commands that pass the queue wait in it",
        "pegasus/intake/commands.py",
        'return "control" if command_of(text) in CONTROL_COMMANDS else "main"',
        'return "main"',
    ),
    Regression(
        "an unknown command is asked of the model",
        "pegasus/main_agent/actor.py",
        "        return bool(refusal)\n",
        "        return False\n",
    ),
    Regression(
        "a second message of a burst is answered alone",
        "pegasus/main_agent/think_loop.py",
        "await self._join_waiting(turn, self._config.burst_cap, may_join)",
        "await self._join_waiting(turn, 1, may_join)",
    ),
    Regression(
        "a message that joins a turn is forgotten",
        "pegasus/main_agent/think_loop.py",
        "            await self.record(taken, turn.sender(taken))\n            turn.join(taken)\n",
        "            turn.join(taken)\n",
    ),
    Regression(
        "a guest counts as the owner",
        "pegasus/intake/submission.py",
        "(Priority.OWNER, 0) if sender.is_owner else (Priority.PERSON, self.limits.now.waiting)\n"
        "        return await self.journal.request(Accept, message, lane, priority, sender.is_owner,",
        "Priority.OWNER, 0\n        return await self.journal.request(Accept, message, lane, priority, True,",
    ),
    Regression(
        "the words of a guest are not fenced",
        "pegasus/main_agent/think_loop.py",
        "            is_guest = not principal.is_owner\n",
        "            is_guest = False\n",
    ),
    Regression(
        "a message is never done",
        "pegasus/main_agent/actor.py",
        "                await self._journal.tell(CompleteItem(done.n, self._session.lease))\n                self._turns += 1\n",
        "                self._turns += 1\n",
    ),
    # ---------------------------------------------------------------- thinking
    Regression(
        "the result of a tool is not written",
        "pegasus/main_agent/tool_calls.py",
        "            await (session.note(result) if call.id in reply_outcomes else session.add(result))\n",
        "            if not outcome.failed or call.name == 'reply':\n                await session.add(result)\n",
    ),
    Regression(
        "a failed call does not lead to another thought",
        "pegasus/main_agent/session/session.py",
        "    if result.failed:\n        return True\n",
        "    if result.failed:\n        return False\n",
    ),
    Regression(
        "the model is not shown the results of its calls",
        "pegasus/conversation/projection.py",
        "                self._add_user(results=(result,))\n",
        "                self._add_user(results=(attrs.evolve(result, content='(no output)'),))\n",
    ),
    Regression(
        "the model is not shown what people wrote before",
        "pegasus/conversation/projection.py",
        "        for entry in entries:\n            self.append(entry)\n",
        "        for entry in entries[-1:]:\n            self.append(entry)\n",
    ),
    Regression(
        "arguments of a call are taken for broken JSON",
        "pegasus/models/json_text.py",
        "    if raw is None:\n        return {}, None\n    if not",
        "    if raw is None or len(raw) > 2:\n        return {}, 'the arguments are not valid JSON'\n    if not",
    ),
    Regression(
        "a call with an optional null is refused",
        "pegasus/tools/executor.py",
        "for name, value in arguments.items() if value is not None or _allows_null(known.get(name))}",
        "for name, value in arguments.items()}",
    ),
    Regression(
        "only the first call of an answer is carried out",
        "pegasus/main_agent/think_loop.py",
        "calls = with_unique_ids(response.calls[:MOST_CALLS], self._session.call_ids)",
        "calls = with_unique_ids(response.calls[:1], self._session.call_ids)",
    ),
    # ---------------------------------------------------------------- tasks
    Regression(
        "a task is not begun",
        "pegasus/tasks/agent/scheduler.py",
        "        while registry.active < limits.max_active:\n",
        "        while registry.active < 0:\n",
    ),
    Regression(
        "the result of a task is not reported",
        "pegasus/main_agent/queue_items.py",
        'return A2A_CLIENT in metadata or (notification.type == "failed" and metadata.get(QUIET_FAILURE) is True)',
        'return notification.type == "completed"',
    ),
    Regression(
        "what a task says on its way is lost",
        "pegasus/tasks/run/stages.py",
        "                if call.name == NOTIFY.name:  # before",
        "                if call.name == NOTIFY.name and not call.arguments:  # before",
    ),
    Regression(
        "a task ends after its first thought",
        "pegasus/tasks/run/stages.py",
        "        if context.iteration >= limit:\n",
        "        if context.iteration >= 1:\n",
    ),
    Regression(
        "the results of calls are missing in a task's log",
        "pegasus/tasks/run/stages.py",
        "messages = (result,) if note is None else (result, note)",
        "messages = () if note is None else (note,)",
    ),
    Regression(
        "a failed call of a task counts as done",
        "pegasus/tasks/run/stages.py",
        "                if has_failed:\n",
        "                if False:\n",
    ),
    Regression(
        "only the first of a task's calls is made",
        "pegasus/tasks/run/stages.py",
        "        return tuple(step.call for step in steps if step.call is not None)\n",
        "        return tuple(step.call for step in steps if step.call is not None)[:1]\n",
    ),
    Regression(
        "a task that is answered does not go on",
        "pegasus/tasks/core/fsm.py",
        "        (SUSPENDED, _E.TASK_RESUMED): _after_resume,\n",
        "        (SUSPENDED, _E.TASK_RESUMED): SUSPENDED,\n",
    ),
    Regression(
        "the question of a task is lost",
        "pegasus/tasks/run/stages.py",
        "            return [NeedMoreInfo(reasoning, thought.question)]\n",
        '            return [NeedMoreInfo(reasoning, "")]\n',
    ),
    Regression(
        "a task does not go on after a restart",
        "pegasus/app/task_services.py",
        "        recovery=settings.tasks.recovery,\n",
        '        recovery="fail",\n',
    ),
    Regression(
        "/stop leaves tasks running",
        "pegasus/main_agent/delegation.py",
        "            stopped = await self.agent.ask(CancelAll, by, place, guests_only)\n",
        "            stopped = ()\n",
    ),
    # ---------------------------------------------------------------- memory
    Regression(
        "an entry of memory takes the place of the page",
        "pegasus/memory/pages.py",
        '    return f"{text}{between}{entry}\\n"\n',
        '    return f"{entry}\\n"\n',
    ),
    Regression(
        "a correction of memory is not made",
        "pegasus/memory/memory.py",
        "            after = text[:first] + piece + text[first + len(old) :]\n",
        "            after = text\n",
    ),
    Regression(
        "memory is not mentioned in a fresh conversation",
        "pegasus/main_agent/think_loop.py",
        "        if session.is_fresh and services.memory_index is not None:\n",
        "        if False and services.memory_index is not None:\n",
    ),
    Regression(
        "changes of memory do not say who made them",
        "pegasus/tools/memory.py",
        '        kind=context.role or ("task" if context.task_id else "main-agent"),\n',
        '        kind="",\n',
    ),
    # ---------------------------------------------------------------- schedule
    Regression(
        "a job runs an hour late",
        "pegasus/schedule/times.py",
        "        return moment if moment > after else None\n",
        "        return moment + 3_600_000 if moment > after else None\n",
    ),
    Regression(
        "a repeated job runs once",
        "pegasus/schedule/scheduler.py",
        "        next = next_run(job.schedule, begin)\n        return attrs.evolve(job, next=next, enabled=next is not None)\n",
        "        return attrs.evolve(job, next=None, enabled=False)\n",
    ),
    Regression(
        "the interval of a job is cut in half",
        "pegasus/schedule/times.py",
        "    return round(min(max(SHORTEST_INTERVAL, schedule.every), LONGEST_INTERVAL) * 1000)\n",
        "    return round(min(max(SHORTEST_INTERVAL, schedule.every), LONGEST_INTERVAL) * 500)\n",
    ),
    Regression(
        "a job that was removed stays",
        "pegasus/schedule/scheduler.py",
        "                    await self._save(remove=id)\n",
        "                    await self._save()\n",
    ),
    Regression(
        "a job speaks in the terminal",
        "pegasus/schedule/jobs.py",
        "        channel=str(channel.address),\n",
        '        channel="cli:main",\n',
    ),
    # ---------------------------------------------------------------- conversations
    Regression(
        "a compaction loses what it should keep",
        "pegasus/main_agent/compaction/compactor.py",
        "            return (opening, *memory, *plan.kept)\n",
        "            return (opening, *memory, *plan.kept[-1:])\n",
    ),
    Regression(
        "a conversation is never compacted",
        "pegasus/main_agent/compaction/compactor.py",
        "        if has_grown and tokens >= threshold:\n",
        "        if has_grown and tokens >= 100 * threshold:\n",
    ),
    Regression(
        "/new does not begin a conversation",
        "pegasus/main_agent/item_endings.py",
        "    if not is_begun_by(session.entries, item.n, item.message.id):\n",
        "    if False:\n",
    ),
    Regression(
        "a call that a crash has cut off gets no result",
        "pegasus/conversation/entry.py",
        "    return RepairedLog(tuple(entries), ()) if is_well_formed(entries) else rebuild_log(entries, recorded, now)\n",
        "    return RepairedLog(tuple(entries), ())\n",
    ),
    # ---------------------------------------------------------------- approvals
    Regression(
        "nobody is asked",
        "pegasus/tools/gate.py",
        "        if ruling.decision is Decision.ALLOW:\n            # Between",
        "        if ruling.decision is not Decision.DENY:\n            # Between",
    ),
    Regression(
        "a no counts as a yes",
        "pegasus/access/approval_store.py",
        "            denied = attrs.evolve(approval, state=ApprovalState.DENIED, by=answer.by, reason=reason)\n",
        "            denied = attrs.evolve(approval, state=ApprovalState.ALLOWED, by=answer.by, reason=reason)\n",
    ),
    # ---------------------------------------------------------------- migrations
    Regression(
        "a migration loses the facts",
        "pegasus/host/data_format.py",
        _MIGRATIONS,
        _migration('[path.unlink() for path in data.glob("memory/facts/*.md")]'),
        (_FORMAT,),
    ),
    Regression(
        "a migration loses the last line of each conversation",
        "pegasus/host/data_format.py",
        _MIGRATIONS,
        _migration(
            '[path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-1])) for path in data.glob("*/*.jsonl") '
            'if path.parent.name in ("main", "sessions")]'
        ),
        (_FORMAT,),
    ),
)
