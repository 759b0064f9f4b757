"""Chat commands: the texts that are answered without asking a model, and the messages by which programs ask for the same.

The actor carries out /stop, /new, /status and /help itself, with the texts made here. Other commands are answered by functions that
the composition root hands in, such as `persona_answer` and `skills_answer`. So a command works also while the model, its provider or
the network is down, which is when people need /stop and /status most.

The functions here format facts and decide nothing, except who may see /persona and accept a skill. They are pure, apart from these
two, so the actor collects all facts first and calls them last. The texts are plain, without markup, since every kind of channel shows
them, and have one fact per line, since people read them on a phone.

Programs in the same process, such as the control plane, use the actor's mailbox. What people write never comes through the mailbox:
the agent takes it from the journal, so that nothing is lost with a mailbox.

    status = await main_agent_ref.ask(GetStatus)
    ended = await main_agent_ref.ask(Stop, "a control call")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.access import Principal, RequestRefused
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import format_duration, plural
from pegasus.identity import (
    Persona,
    PersonaChanges,
    PersonaError,
    format_decision,
    format_persona,
    persona_view,
)
from pegasus.intake import COMMAND_ALIASES, COMMAND_WITHIN, COMMANDS, describe_unknown, find_unknown
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, TaskProgress
from pegasus.skills import NotAcceptable, Skill, SkillCatalog, format_accepted, format_help, format_proposed
from pegasus.storage import StorageError
from pegasus.tasks import FOR_APPROVAL, FOR_PERSON

PERSONA: Final = "/persona"
"""Command that shows the persona and decides about proposals to change it."""
SKILLS: Final = "/skills"
"""Command that lists skills, and accepts one of the workspace."""

_HELP: Final = {
    "/stop": "end what I am working on right now, and say what was ended; /stop all also discards the messages that wait here",
    "/new": "put this conversation aside (it is archived) and begin a fresh one",
    "/clear": "the same as /new",
    "/compact": "put a summary in the place of this conversation (all of it is archived); /compact WORDS says what matters",
    "/retry": "answer your last message here once more",
    "/resume": "earlier conversations; /resume N or /resume NAME goes on with one of them",
    "/rename": "for my owner: /rename NAME gives this conversation a name, by which /resume finds it",
    "/undo": "take back the last change of memory or of a file that a task made, /undo 2 the last two",
    "/context": "what fills my context window",
    "/status": "what I am doing, and with which model",
    "/tasks": "my background tasks; /tasks show N tells more about one, /tasks cancel N ends it",
    "/pause": "let my background tasks here rest, /pause N one of them; /continue lets them go on",
    "/continue": "let paused tasks here go on, /continue N one of them",
    "/usage": "what my model calls have used, and what is left of the budgets",
    "/cost": "the same as /usage",
    "/model": "which model thinks; my owner can choose another: /model provider/name, /model default",
    "/speech": "how the model speaks; my owner can choose: /speech auto, monologue or direct",
    SKILLS: "the skills there are; my owner can accept one of the workspace: /skills accept NAME",
    "/approve": "which of my calls wait for my owner's yes; /approve ID [hour] [1,3] allows one, ID NAME=VALUE answers a server",
    "/deny": "for my owner: /deny ID and a reason refuses a call that waits",
    "/approvals": "for my owner: what waits, and what was allowed for later calls; /approvals revoke ID ends that",
    PERSONA: "who I am, and what I propose to change about that (for my owner to accept or reject)",
    "/pair": "who wants to write to me; /pair CODE lets them in (for my owner)",
    "/help": "this list",
}
"""By command, its line in /help and in menus, those that are used most first.

Commands that nobody answers in this installation are left out."""
_OWN: Final = frozenset(
    {"/stop", "/new", "/clear", "/compact", "/retry", "/resume", "/rename", "/context", "/status", "/help"}
)
"""Commands that the actor answers itself."""
OTHERS_GO_ON: Final = "What I do for others goes on; only my owner can stop that."
"""End of the answer to a guest's /stop that has spared work for somebody else."""
CHANGES_ARE_THE_OWNERS: Final = {
    "/new": "begin a fresh conversation",
    "/compact": "compact this conversation",
    "/resume": "go on with another conversation",
    "/retry": "have an answer taken back",
    "/rename": "name this conversation",
}
"""By command, what only an owner can do where all channels share one session."""
_NAMED: Final = 3
"""Tasks that the receipt of an interrupt names. Of the others only the number is told."""
_PERSONA_USAGE: Final = f"{PERSONA}, {PERSONA} accept N, or {PERSONA} reject N, where N is the number of a proposal."
"""Answer to a /persona that says something else."""
_SKILLS_USAGE: Final = f"{SKILLS}, or {SKILLS} accept NAME, where NAME is the folder of a skill in the workspace."
"""Answer to a /skills that says something else."""
_OWNER_ONLY: Final = "Only my owner can see and decide what becomes of me."
"""Answer to the /persona of a guest."""


@attrs.frozen
class EndedWork:
    """Work that /stop has ended, or is ending."""

    kind: str
    """"thought", "task", or "reflection" on a task that is over."""
    what: str
    """Short description: the beginning of the message, or what the task is about."""
    seconds: float
    """Time for which it had run; 0 for a reflection and for a task that waited."""
    number: int = 0
    """Number of a task, 0 for a thought."""

    @property
    def text(self) -> str:
        """Return the work as a person reads it, e.g. "task 3: fetch the report (ran 12 s)"."""
        number = f" {self.number}" if self.number else ""
        if self.kind == "reflection":
            return f"reflection on task{number}: {self.what}"
        # It waited: for a yes, for an answer, or for its turn.
        ran = f"ran {format_duration(self.seconds)}" if self.seconds or self.kind != "task" else "was waiting"
        return f"{self.kind}{number}: {self.what} ({ran})"


@attrs.frozen(eq=False, repr=False)
class Stop:
    """End the running thought and all tasks. Answered with what was ended, when nothing of it runs any more.

    The control plane sends it for its call `stop`. What people write as /stop comes through the journal.

    Example::

        ended = await main_agent_ref.ask(Stop, "a control call", timeout=10)
        [work.what for work in ended]  # ["Book a table for …", "find papers"]
    """

    reply: Reply[tuple[EndedWork, ...]]
    """Gets what was ended: the thought first, then tasks."""
    by: str
    """Author of the request, as it will stand in the session."""


@attrs.frozen(eq=False, repr=False)
class Interrupt:
    """End the answer that is being made for a conversation, and nothing else: tasks and messages that wait go on.

    The control plane sends it for its call `interrupt`. A draft that the people there see stays as it is, marked as cut off.

    Example::

        ended = await main_agent_ref.ask(Interrupt, Address("cli", "main"), person, "the user (cli)")
        ended.what if ended is not None else "no answer was being made"
    """

    reply: Reply[EndedWork | None]
    """Gets the thought that was ended, when nothing of it runs and the session says so; None if there was none."""
    address: Address
    """The conversation."""
    person: Principal
    """Author of the request. A guest ends only work that is for them alone."""
    by: str
    """Their name, as it will stand in the session."""


@attrs.frozen(eq=False, repr=False)
class Withdraw:
    """Note: the sender of a message does not wait for an answer any more.

    The turn that works for this message ends as by /stop, but its tasks go on. If the message still waits, its turn ends when it
    begins. A turn that works for other messages, too, goes on until all of them are withdrawn.

    It has no answer, and may come for a message that is unknown or done: then nothing happens.

    Example: `main_agent_ref.tell_nowait(Withdraw(Address("api", "c1"), message.id))` when an HTTP client has hung up.
    """

    address: Address
    """Conversation of the message."""
    message_id: str
    """Id that the sender gave the message."""


@attrs.frozen(eq=False, repr=False)
class AgentStatus:
    """Answer to GetStatus.

    It is made from memory alone, so that it can be had while the model or the disk hangs.

    Example: `(await main_agent_ref.ask(GetStatus)).model` is "anthropic/claude-sonnet-4-5".
    """

    model: str
    """Name of the model that thinks."""
    entries: int
    """Entries of the session."""
    turns: int
    """Queue items finished since the start."""
    thinking_about: str | None
    """Beginning of the message that is being thought about; None if there is none."""
    thinking_for: float
    """Seconds since that began, 0 if there is none."""
    in_hand: int = 0
    """Messages that are being worked on: more than one if messages of a chat were taken together."""
    speech: str = ""
    """Way in which the model speaks: "monologue" or "direct"; "" if that is not known."""
    window: int = 0
    """Tokens that fit into the model; 0 if that is not known."""
    chats: int = 0
    """Chats that have an agent in memory, where each chat has one of its own."""


@attrs.frozen(eq=False, repr=False)
class GetStatus:
    """Ask for the status of the Main Agent.

    Example: `status = await main_agent_ref.ask(GetStatus)`; it is answered at once, also during a thought.
    """

    reply: Reply[AgentStatus]
    """Gets the status at this moment."""


MainAgentMessage: TypeAlias = Stop | Interrupt | Withdraw | GetStatus
"""Everything that the mailbox of the Main Agent accepts. Messages of people come from the journal instead."""


# ------------------------------------------------------------------ texts


def describe_commands(answered: Collection[str]) -> dict[str, str]:
    """Return the line of each command that is answered in this installation, those that are used most first.

    answered: commands that functions of the composition root answer; those of the actor itself are always there.
    """
    there = {*_OWN, *answered}
    return {name: text for name, text in _HELP.items() if COMMAND_ALIASES.get(name, name) in there}


async def refuse_unknown(
    text: str, answered: Collection[str], skills: Callable[[], Awaitable[Iterable[Skill]]] | None
) -> str:
    """Return the answer to a command that does not exist, "" for any other message.

    answered: as for `describe_commands`. skills: returns those that people may call; None: there are none.
    """
    known = {*COMMANDS, *describe_commands(answered)}
    if not find_unknown(text, known):
        return ""
    if skills is not None:
        known |= {f"/{skill.name}" for skill in await skills()}
    name = find_unknown(text, known)
    return describe_unknown(name, known) if name else ""


def help_text(answered: Collection[str], skills: str = "") -> str:
    """Return the answer to /help.

    What is used most stands first, as in every list of commands that people know.

    answered: as for `describe_commands`. skills: a line for each skill that can be called, "" for none.
    """
    lines = [f"{command} — {text}" for command, text in describe_commands(answered).items()]
    lines.append("Anything else you write is a message to me.")
    if skills:
        lines += ["", "Skills:", skills]
    return "\n".join(lines)


def stops_all(text: str) -> bool:
    """Return whether a /stop is `/stop all`, which also discards the messages that wait."""
    return sanitize_for_prompt(text[:COMMAND_WITHIN]).casefold().split()[1:2] == ["all"]


def stop_text(
    ended: Sequence[EndedWork],
    waiting: int,
    still_ending: Sequence[str] = (),
    *,
    waiting_here: int = 0,
    discarded: str = "",
    others_go_on: bool = False,
) -> str:
    """Return the answer to /stop.

    others_go_on: work for somebody else is running; a guest's /stop does not end it.

    ended: work that does not run any more. waiting: messages that are still in the queue; /stop does not remove them, because they
    were accepted and their senders wait. here: those of this conversation, which /stop all would discard. discarded: what became of
    them. still_ending: descriptions of the work that was cancelled and still runs.
    """
    lines = [f"- {work.text}" for work in ended]
    nothing = "Nothing of yours was running." if others_go_on else "Nothing was running."
    lines.insert(0, "Stopped:" if ended or still_ending else nothing)
    if others_go_on:
        lines.append(OTHERS_GO_ON)
    lines += [f"- still ending: {description}" for description in still_ending]
    notes = [discarded] if discarded else []
    if waiting:
        verb = "is" if waiting == 1 else "are"
        theirs = "yours" if others_go_on else "it" if waiting == 1 else "them"
        theirs = theirs if waiting_here >= waiting or others_go_on else "those of this conversation"
        hint = f"; /stop all discards {theirs}" if waiting_here and not discarded else ""
        notes.append(f"{plural(waiting, 'message')} {verb} still waiting and will be taken up next{hint}.")
    for note in notes:
        # Without an empty line Markdown takes a line behind a list for a part of its last item.
        lines.append(f"\n{note}" if lines[-1].startswith("- ") else note)
    return "\n".join(lines)


def interrupt_text(ended: EndedWork | None, tasks: Sequence[TaskProgress], waiting: int) -> str:
    """Return what a person is told who has interrupted an answer. tasks: that go on. waiting: number of messages that come next."""
    if ended is None:
        return "No answer was being made."
    lines = [f"Ended the answer to “{ended.what}” ({format_duration(ended.seconds)})."]
    if tasks:
        named = [f"{task.number} ({task.description}{_rest_of(task)})" for task in tasks[:_NAMED]]
        *others, last = [*named, f"{len(tasks) - _NAMED} more"] if len(tasks) > _NAMED else named
        goes_on = " and ".join([", ".join(others), last] if others else [last])
        lines.append(f"{'Tasks' if others else 'Task'} {goes_on} {'go' if others else 'goes'} on.")
    if waiting:
        lines.append(f"{plural(waiting, 'message')} waited and {'comes' if waiting == 1 else 'come'} next.")
    if tasks or waiting:
        ends = (
            f"/stop ends {'the task' if len(tasks) == 1 else 'the tasks'}, too"
            if tasks
            else "/stop all discards what waits"
        )
        lines.append(f"{ends}.")
    return " ".join(lines)


def _rest_of(task: TaskProgress) -> str:
    """Return why a task does not work at the moment, "" if it does."""
    if task.state != "SUSPENDED":
        return ""
    waits = {FOR_APPROVAL: "; waits for your yes", FOR_PERSON: "; paused"}
    return waits.get(task.waits_for, "; waits for an answer")


def ended_json(work: EndedWork) -> Json:
    """Return ended work on the wire. A thought has no number."""
    number: dict[str, Json] = {"number": work.number} if work.number else {}
    return {"kind": work.kind, "what": work.what, "seconds": round(work.seconds, 2), **number}


# ------------------------------------------------------------------ /persona, /skills


async def persona_answer(
    persona_changes: PersonaChanges, persona: Persona, text: str, channel: ChannelInfo, *, is_by_owner: bool
) -> str:
    """Return the answer to /persona: who the agent is, what it proposes to become, or what the owner's decision has changed.

    persona: the persona that the running agent was started with, which may differ from the accepted one until the next start.
    text: the command as it was written. channel: place and writer of the command, recorded with a decision. is_by_owner: an owner has
    written it; anybody else gets a refusal.

    Storage errors and refused decisions become text for the owner, so this never raises. Cancelled during a decision: it is recorded
    or not, and /persona shows which.
    """
    if not is_by_owner:
        return _OWNER_ONLY
    try:
        match text.split()[1:]:
            case [] | ["list"]:
                return format_persona(persona_view(await persona_changes.read_state(), persona), PERSONA)
            # The length is bounded because int() of thousands of digits raises an error of its own.
            case ["accept" | "reject" as verb, number] if number.isdecimal() and len(number) < 10:
                by, is_accepted = channel.written_by, verb == "accept"
                return format_decision(await persona_changes.decide(int(number), accept=is_accepted, by=by))
    except (RequestRefused, PersonaError, StorageError) as error:
        return f"{PERSONA} did not work: {error}"
    return _PERSONA_USAGE


async def skills_answer(
    catalog: SkillCatalog, clock: Callable[[], int], message: InboundMessage, person: Principal
) -> str:
    """Return the answer to /skills: a line for each skill, or what an owner has accepted.

    person: others than owners see the skills that people may call, and accept nothing. clock: returns the wall clock, ms.
    Never raises. Cancelled: the acceptance is on disk or not, and /skills shows which.
    """
    match message.text.split()[1:]:
        case []:
            await catalog.refresh()
            lines = [format_help(catalog.all()) or "There are no skills."]
            if person.is_owner:
                lines += [
                    format_proposed(skill.name, skill.problem, was_accepted=skill.was_accepted)
                    for skill in catalog.proposed()
                ]
            return "\n".join(lines)
        case ["accept", name]:
            if not person.is_owner:
                return "Only my owner can accept a skill."
            try:
                return format_accepted(await catalog.accept(name, clock()))
            except (NotAcceptable, OSError) as error:
                return f"{SKILLS} did not work: {error}"
    return _SKILLS_USAGE
