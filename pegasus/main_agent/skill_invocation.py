"""Skill invocation: skills called by people (`/name args`) and by the model (`use_skill`), and the limits while one is in force.

A skill is a text of instructions. An *inline* skill is put into the session and is in force for the rest of its queue item: it may
name the tools that are allowed and the model that thinks. A *forked* skill becomes a task, and the limits are the task's.

Which skills are in force is read from the session, never remembered: the user entry has the name of a skill that a person has called,
and the result of `use_skill` shows which one the model has called. So a crash in the middle of an item lifts no limit. If a skill was
deleted meanwhile, nothing but `reply` is allowed any more, since its limits are not known.

The limits protect people from a skill that does more than it says, so they are applied when a call is carried out, not when the tools
are shown to the model. The list of tools stays the same in every request for the sake of the provider's cache, and a model may also
call a tool that it was not shown.

A person calls a skill with a message, and the skill's text stands in the session behind that message. It is cleaned like any text
from outside: a skill is a file that may have come from a stranger, and it must not imitate the metadata line of another person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from actors import Ref
from pegasus.access import Principal, folder_of
from pegasus.conversation import Entry, escape_imitations, sanitize_for_prompt
from pegasus.formatting import truncate
from pegasus.main_agent.delegation import (
    SPAWN,
    SPAWN_ALIAS,
    number_of_begun,
    skill_task_result,
    submit_task,
)
from pegasus.main_agent.queue_items import cause_of
from pegasus.main_agent.replies import REPLY, reply_key, reply_to_sender
from pegasus.main_agent.session import USE_SKILL, Session, note_of
from pegasus.main_agent.task_status import task_name
from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall, ToolSpec
from pegasus.policy import OwnerMessage
from pegasus.skills import Skill, SkillCatalog, expand, format_help
from pegasus.storage import Item
from pegasus.tasks import TaskAgentMessage
from pegasus.tool_patterns import is_named
from pegasus.tools import Effect, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters

SKILL_NOTE: Final = "skill"
"""`metadata.type` of the note that ends an item whose skill became a task, and end of the keys of that task and its answer."""
SHOWN_FILES: Final = 40_000
"""Characters of the files beside a skill that a task is shown."""
SHOWN_ARGUMENTS: Final = 200
"""Characters of the arguments in the line that says what was called. The whole of them stands in the skill's text."""

# The name is bounded in length, so a long message that begins with a slash is no call. DOTALL: arguments may have several lines.
_CALL: Final = re.compile(r"/([a-z0-9][a-z0-9_-]{0,63})(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)
_SPEC: Final = ToolSpec(
    USE_SKILL,
    "Use a skill by its name. Gives what it says, which you then follow; or it runs as a background task, whose result comes to you "
    "by itself.",
    parameters(
        {
            "skill": {"type": "string", "description": "Its name"},
            "args": {"type": "string", "description": "What it is to work on, if it wants to know"},
            "file": {"type": "string", "description": "Only to read a file that the skill has beside it: its path"},
        },
        "skill",
    ),
)
"""The tool as the model is shown it."""


def parse_skill_call(text: str) -> tuple[str, str] | None:
    """Return name and arguments of a message `/name args`; None for any other message.

    Phones begin a line with a capital letter, and Telegram knows no `-` in commands but `_`: neither makes a difference.
    """
    if "/" not in text:
        return None
    found = _CALL.fullmatch(sanitize_for_prompt(text).strip())
    return (found[1].lower().replace("_", "-"), (found[2] or "").strip()) if found else None


@attrs.frozen(eq=False, repr=False)
class SkillInvocation:
    """A skill that a person has called.

    Example: the message `/review PR 12` gives `SkillInvocation(review, "PR 12", "/review PR 12 …")`.
    """

    skill: Skill
    """The skill as its file was when the message was taken up."""
    arguments: str
    """Text behind the name, "" if there is none."""
    text: str
    """Text of the message as it stands in the session: the call, and behind it what an inline skill says."""
    problem: str = ""
    """Reason why the skill cannot be used, for the person; "" if it can."""

    @property
    def skill_in_force(self) -> str:
        """Name of an inline skill, which is in force from the user entry on; "" for a forked one."""
        return "" if self.skill.fork else self.skill.name

    @property
    def ends_item(self) -> bool:
        """True if there is nothing to think about: the skill runs as a task, or cannot be used."""
        return self.skill.fork or bool(self.problem)


@attrs.frozen(eq=False, repr=False)
class ActiveSkills:
    """The inline skills that are in force for a queue item.

    Several skills may be in force. A call must be allowed by every one of them, so a second skill can only narrow the limits.

    Example: `active_skills(session.progress(item.n).skills, invoker).refusal(call)` is None for a call that is allowed.
    """

    skills: tuple[Skill, ...] = ()
    """In the order in which they came into force."""
    missing: tuple[str, ...] = ()
    """Names of skills that were in force and do not exist any more."""

    @property
    def model(self) -> str:
        """Model that is to think, "<provider>/<model>" or a role, as the latest skill that names one says; "" for the usual one."""
        return next((skill.model for skill in reversed(self.skills) if skill.model), "")

    def refusal(self, call: ToolCall) -> str | None:
        """Return why this call is not allowed now, in words for the model; None if it is. A reply is always allowed."""
        name = SPAWN if call.name == SPAWN_ALIAS else call.name
        if name == REPLY.name or self._reads_own_file(call):
            return None
        if self.missing:
            return f"{call.name}: the skill {self.missing[0]} is not there any more, so nothing but {REPLY.name} is allowed now"
        for skill in self.skills:
            if not is_named(skill.tools, name, call.arguments):
                allowed = ", ".join(dict.fromkeys((*(skill.tools or ()), REPLY.name)))
                return f"{call.name}: not allowed while the skill {skill.name} is in force, which allows {allowed}"
        return None

    def _reads_own_file(self, call: ToolCall) -> bool:
        """Return whether a call reads a file of a skill that is in force, which is part of its instructions."""
        names = [skill.name for skill in self.skills]
        return call.name == USE_SKILL and bool(call.arguments.get("file")) and call.arguments.get("skill") in names


def active_skills(names: Sequence[str], invoker: SkillInvoker | None) -> ActiveSkills | None:
    """Return the skills in force, None if there are none. names: theirs (`ItemProgress.skills`).

    invoker: has all skills; None: there are none.
    """
    if not names or invoker is None:
        return None
    found = {name: invoker.catalog.get(name) for name in names}
    skills = tuple(skill for skill in found.values() if skill is not None)
    return ActiveSkills(skills, tuple(name for name, skill in found.items() if skill is None))


@attrs.frozen(eq=False, repr=False)
class SkillInvoker:
    """Carries out skills for people and for the model.

    Example:
        skills = SkillInvoker(catalog, task_agent, models.check)
        invocation = await skills.resolve("/review PR 12")
    """

    catalog: SkillCatalog
    """All skills there are."""
    agent: Ref[TaskAgentMessage]
    """Actor of the task system, for forked skills."""
    check_model: Callable[[str], object] = lambda spec: None
    """Raises ValueError if there is no such model."""

    # ------------------------------------------------------------------ by people

    async def resolve(self, text: str) -> SkillInvocation | None:
        """Return the skill that a message calls.

        None for any other message, also if it names an unknown skill or one that people may not call. The skills are read
        again before, so that a skill which was just installed can be called at once.
        """
        call = parse_skill_call(text)
        if call is None:
            return None
        await self.catalog.refresh()
        name, arguments = call
        skill = self.catalog.get(name)
        if skill is None or not skill.by_user:
            return None
        text = _call_line(name, arguments)
        if not skill.fork:
            text += f"\n\n(The skill {name} is in force. It says:)\n\n{await self._body(skill, arguments)}"
        return SkillInvocation(skill, arguments, text, self._model_problem(skill))

    async def start(
        self,
        invocation: SkillInvocation,
        item: Item,
        principal: Principal,
        session: Session,
        now: int,
        owner_messages: tuple[OwnerMessage, ...] = (),
    ) -> None:
        """Begin the task of a forked skill, tell the person, and end the item, whose user entry must be there.

        principal: the person that the task works for. now: wall clock, ms. owner_messages: the message, if an owner has typed
        it. A skill that has a problem ends its item with an answer that names it. Called again after a crash, it makes no
        second task and no second answer: the task has the key of the item, and answer and note are one durable step. Cancelled:
        the task may run already; the /stop that cancels the item also ends the tasks of its chat.
        """
        key, channel = reply_key(item.n, SKILL_NOTE), item.message.channel
        context = ToolContext(
            key=key,
            cause=cause_of(item.message),
            principal=principal,
            origin=channel,
            folder=folder_of(item.message.metadata, principal),
            outside=session.outside,
            owner_messages=owner_messages,
        )
        metadata: dict[str, Json] = {"type": SKILL_NOTE, "ends": True}
        name = invocation.skill.name
        try:
            if invocation.problem:
                raise ToolError(invocation.problem)
            task_id = await self._fork(invocation.skill, invocation.arguments, context)
            task = task_name(await number_of_begun(self.agent, task_id), task_id)
            text = f"/{name} runs as task {task}. You will hear what comes of it."
            metadata["taskId"] = task_id
        except ToolError as error:
            text = f"/{name} could not be started: {error}"
        note = Entry(now, "assistant", note_of(text), metadata=metadata)
        await session.commit((note,), (reply_to_sender(item, text, SKILL_NOTE),))

    async def by_people(self) -> list[Skill]:
        """Return the skills that people may call. Reads the folders of skills again before."""
        await self.catalog.refresh()
        return [skill for skill in self.catalog.all() if skill.by_user]

    async def help(self) -> str:
        """Return a line for each skill that people may call; "" if there is none. Reads the folders of skills again before."""
        await self.catalog.refresh()
        return format_help(self.catalog.all())

    # ------------------------------------------------------------------ by the model

    def tool(self) -> Tool:
        """Return use_skill(skill, args?, file?).

        It gives the skill's text, or `{taskId, status, skill}` of a forked one, or `{file, content}` of a file beside the skill.
        """
        return Tool(_SPEC, self._use, "custom", Effect.IDEMPOTENT, reach=Reach.INSIDE)

    async def _use(self, arguments: Metadata, context: ToolContext) -> Json:
        """Carry out a call of use_skill, as `tool` describes its results. Raises ToolError."""
        await self.catalog.refresh()
        name = str(arguments["skill"]).removeprefix("/")
        skill = self.catalog.get(name)
        if skill is None:
            known = ", ".join(skill.name for skill in self.catalog.all() if skill.by_model) or "none"
            raise ToolError(f"there is no skill {name!r}; there are: {known}")
        if path := str(arguments.get("file") or ""):
            with as_tool_error(ValueError):  # the catalog refuses paths that leave the folder
                content = await self.catalog.read(skill, path)
            return {"file": path, "content": escape_imitations(sanitize_for_prompt(content))}
        if not skill.by_model:
            raise ToolError(f"the skill {name} is for people only: they call it by writing /{name}")
        if problem := self._model_problem(skill):
            raise ToolError(problem)
        skill_arguments = str(arguments.get("args") or "")
        if skill.fork:
            return skill_task_result(await self._fork(skill, skill_arguments, context), name)
        return await self._body(skill, skill_arguments)

    # ------------------------------------------------------------------ both

    async def _fork(self, skill: Skill, arguments: str, context: ToolContext) -> str:
        """Begin the task of a skill and return its id. Raises ToolError."""
        line = _call_line(skill.name, sanitize_for_prompt(arguments))
        body = await self._body(skill, arguments)
        return await submit_task(self.agent, context, body, skill.agent, line, skill.model, skill.tools)

    def _model_problem(self, skill: Skill) -> str:
        """Return why the model that a skill wants cannot be used; "" if it can."""
        if not skill.model:
            return ""
        try:
            self.check_model(skill.model)
        except ValueError as error:
            return f"the skill {skill.name} wants a model that there is not: {error}"
        return ""

    async def _shown_files(self, skill: Skill, files: Sequence[str]) -> str:
        """Return the files beside a skill as a text. No tool of a task opens their folder, which is in Pegasus's own home."""
        parts: list[str] = []
        left: list[str] = []
        room = SHOWN_FILES
        for path in files:
            try:
                content = await self.catalog.read(skill, path)
            except ValueError:  # no text, or too large
                content = ""
            if content and len(content) <= room:
                room -= len(content)
                parts.append(f"(file {path} of the skill:)\n{content}\n(end of {path})")
            else:
                left.append(path)
        parts.insert(0, "Files beside this skill follow. Write one into the workspace before you run it.")
        if left:
            parts.append(f"Not shown, for their size or since they are no texts: {', '.join(left)}")
        return "\n\n".join(parts)

    async def _body(self, skill: Skill, arguments: str) -> str:
        """Return the skill's text with the arguments filled in and its files named, cleaned like any text from outside."""
        text = expand(skill, arguments)
        files = await self.catalog.files(skill)
        if files and skill.fork and skill.manifest is None:
            text = f"{text}\n\n{await self._shown_files(skill, files)}"
        elif files:
            reading = "" if skill.fork else f" {USE_SKILL}(skill, file) reads one."
            text = f"Files beside this skill, in {skill.folder}: {', '.join(files)}.{reading}\n\n{text}"
        return escape_imitations(sanitize_for_prompt(text))


def _call_line(name: str, arguments: str) -> str:
    """Return the line that shows which skill was called, with the beginning of its arguments."""
    return f"/{name} {truncate(arguments, SHOWN_ARGUMENTS)}".rstrip()
