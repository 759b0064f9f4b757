"""Skills in the Main Agent: called by people (`/name args`) and by the model (use_skill); and what holds while one is in force.

An inline skill is in force for the rest of its queue item, which is read from the session alone, so that a crash does not lift its
limits. A forked one is a task, with the limits in the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import attrs

from pegasus.conversation import Entry, escape_imitations, sanitize_for_prompt
from pegasus.formatting import truncate
from pegasus.main_agent.apologies import content_of_note
from pegasus.main_agent.calling import parse_skill_call
from pegasus.main_agent.delegation import ALIAS, SPAWN, USE_SKILL, forked, submit_task
from pegasus.main_agent.reply_tool import REPLY, answer_to, post_key
from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall, ToolSpec
from pegasus.skills import Skill, SkillCatalog, expand, format_help
from pegasus.tools import Effect, Tool, ToolContext, ToolError, parameters

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.main_agent.session import Session
    from pegasus.storage import Item
    from pegasus.tasks import AgentMessage

NOTE: Final = "skill"
"""Type of the note that ends an item whose skill became a task; ends the idempotency keys of task and answer, too."""

_SHOWN: Final = 200
"""Characters of the arguments in the line that says what was called; they stand whole in what the skill says."""
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


@attrs.frozen
class SkillInvocation:
    """A skill that a person has called. text: what stands in the session as the text of the message.

    problem: why it cannot be used, for the person, "" if it can.
    """

    skill: Skill
    arguments: str
    text: str
    problem: str = ""

    @property
    def metadata(self) -> Metadata:
        """What the user entry's metadata has beside its own; from it the skill is known to be in force."""
        return {} if self.skill.fork else {"skill": self.skill.name}


@attrs.frozen
class Force:
    """The inline skills of a queue item, in the order they came into force. gone: names of those that are no more."""

    skills: tuple[Skill, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """Who is to think: "<provider>/<model>" or a role as the last one says that says it; "" = as ever."""
        return next((skill.model for skill in reversed(self.skills) if skill.model), "")

    def refusal(self, call: ToolCall) -> str | None:
        """Why this call is not allowed now, in words for the model; None if it is. To reply is always allowed."""
        name = SPAWN if call.name == ALIAS else call.name
        if name == REPLY.name or self._reads(call):
            return None
        if self.gone:
            return f"{call.name}: the skill {self.gone[0]} is not there any more, so nothing but {REPLY.name} is allowed now"
        for skill in self.skills:
            if skill.tools is not None and not any(fnmatchcase(name, pattern) for pattern in skill.tools):
                allowed = ", ".join(dict.fromkeys((*skill.tools, REPLY.name)))
                return f"{call.name}: not allowed while the skill {skill.name} is in force, which allows {allowed}"
        return None

    def _reads(self, call: ToolCall) -> bool:
        """Whether it reads a file that belongs to one of these."""
        return (
            call.name == USE_SKILL
            and bool(call.arguments.get("file"))
            and call.arguments.get("skill") in [skill.name for skill in self.skills]
        )


_NONE = Force()


def in_force(entries: Iterable[Entry], get: Callable[[str], Skill | None]) -> Force:
    """What holds after these entries, which are those of one queue item from its user entry on. get: a skill by its name."""
    names: dict[str, None] = {}
    calls: dict[str, Any] = {}
    for entry in entries:
        called = entry.metadata.get("skill") if entry.role == "user" else None
        if entry.role == "tool" and _gave_body(entry):
            called = calls.get(entry.call_id or "")
        calls.update({call.id: call.arguments.get("skill") for call in entry.calls if call.name == USE_SKILL})
        if isinstance(called, str):
            names[called] = None
    if not names:
        return _NONE
    found = {name: get(name) for name in names}
    skills = tuple(skill for skill in found.values() if skill is not None)
    return Force(skills, tuple(name for name, skill in found.items() if skill is None))


def _gave_body(result: Entry) -> bool:
    """A body is a JSON string; a task, or a file of a skill, is an object."""
    return not result.failed and result.content.startswith('"')


@attrs.frozen(eq=False)
class SkillInvoker:
    """skills: all there are. agent: the task system, for forked ones. check_model: raises ValueError where there is no such model."""

    skills: SkillCatalog
    agent: Ref[AgentMessage]
    check_model: Callable[[str], object] = lambda spec: None

    # ------------------------------------------------------------------ by people

    async def resolve(self, text: str) -> SkillInvocation | None:
        """The skill that a message calls; None for an ordinary message, as one is that calls what people may not call."""
        called = parse_skill_call(text)
        if called is None:
            return None
        await self.skills.refresh()
        name, arguments = called
        skill = self.skills.get(name)
        if skill is None or not skill.by_user:
            return None
        line = f"/{name} {truncate(arguments, _SHOWN)}".rstrip()
        said = line
        if not skill.fork:
            said += f"\n\n(The skill {name} is in force. It says:)\n\n{await self._body(skill, arguments)}"
        return SkillInvocation(skill, arguments, said, self._problem(skill))

    async def start(self, invocation: SkillInvocation, item: Item, session: Session, now: int) -> None:
        """Make a task of a forked skill that a person has called, tell them, and end the item; its user entry is there.

        An inline one that has a problem ends there, too. After a crash the same again makes no second task and no second answer.
        now: wall clock, ms.
        """
        context = ToolContext(key=post_key(item.n, NOTE), origin=item.message.channel)
        metadata: dict[str, Json] = {"type": NOTE, "ends": True}
        name = invocation.skill.name
        try:
            if invocation.problem:
                raise ToolError(invocation.problem)
            task_id = await self._fork(invocation.skill, invocation.arguments, context)
            text = f"/{name} runs as task {task_id}. You will hear what comes of it."
            metadata["taskId"] = task_id
        except ToolError as error:
            text = f"/{name} could not be started: {error}"
        await session.commit((), (answer_to(item, text, NOTE),))
        await session.commit((Entry(now, "assistant", content_of_note(text), metadata=metadata),))

    async def help(self) -> str:
        """A line for each skill that people may call; "" if there is none."""
        await self.skills.refresh()
        return format_help(self.skills.all())

    # ------------------------------------------------------------------ by the model

    def tool(self) -> Tool:
        """use_skill(skill, args?, file?): the body, `{taskId, status, skill}` of a forked one, or `{file, content}`."""
        return Tool(_SPEC, self._use, "custom", Effect.IDEMPOTENT)

    async def _use(self, given: Metadata, context: ToolContext) -> Json:
        await self.skills.refresh()
        name = str(given["skill"]).removeprefix("/")
        skill = self.skills.get(name)
        if skill is None:
            raise ToolError(f"there is no skill {name!r}; there are: {self._known()}")
        if given.get("file"):
            return await self._file(skill, str(given["file"]))
        if not skill.by_model:
            raise ToolError(f"the skill {name} is for people only: they call it by writing /{name}")
        problem = self._problem(skill)
        if problem:
            raise ToolError(problem)
        arguments = str(given.get("args") or "")
        if skill.fork:
            return forked(await self._fork(skill, arguments, context), name)
        return await self._body(skill, arguments)

    def in_force(self, entries: Iterable[Entry]) -> Force:
        """What holds after these entries, which are those of one queue item from its user entry on."""
        return in_force(entries, self.skills.get)

    # ------------------------------------------------------------------ both

    async def _fork(self, skill: Skill, arguments: str, context: ToolContext) -> str:
        line = f"/{skill.name} {truncate(sanitize_for_prompt(arguments), _SHOWN)}".rstrip()
        body = await self._body(skill, arguments)
        return await submit_task(self.agent, context, body, skill.agent, line, skill.model, skill.tools)

    def _problem(self, skill: Skill) -> str:
        if not skill.model:
            return ""
        try:
            self.check_model(skill.model)
        except ValueError as error:
            return f"the skill {skill.name} wants a model that there is not: {error}"
        return ""

    def _known(self) -> str:
        return ", ".join(skill.name for skill in self.skills.all() if skill.by_model) or "none"

    async def _body(self, skill: Skill, arguments: str) -> str:
        """What it says, with the arguments filled in and its files named: clean, and nothing in it imitates a metadata line."""
        text = expand(skill, arguments)
        files = await self.skills.files(skill)
        if files:
            reading = "" if skill.fork else f" {USE_SKILL}(skill, file) reads one."
            text = f"Files beside this skill, in {skill.folder}: {', '.join(files)}.{reading}\n\n{text}"
        return escape_imitations(sanitize_for_prompt(text))

    async def _file(self, skill: Skill, path: str) -> Json:
        try:
            content = await self.skills.read(skill, path)
        except ValueError as error:
            raise ToolError(str(error)) from error
        return {"file": path, "content": escape_imitations(sanitize_for_prompt(content))}
