"""Approvals between people and tasks: showing a call to an owner, taking the answer, and letting the task go on.

The keeper (`pegasus.policy`) has the approvals, on disk. This module has the ways to people. An approval that is new is shown to all
owners who are connected (a frame of the gateway; the terminal and the page show it with its answers) and written as a reply to

* the channel that the work was asked for on, if an owner is there,
* otherwise `policy.owner_channel`, if there is one,

unless that is a terminal or a page, which shows it anyway. An owner answers with `/approve ID [always]` or `/deny ID [reason]` on any
channel, with the control call `approvals.answer`, or with `pegasus approvals`. Nothing waits for the answer but the task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.app.params import require_text
from pegasus.channels import AdapterMessage
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import truncate
from pegasus.gateway import BadParams, Caller, Params
from pegasus.main_agent import task_name
from pegasus.messages import ApprovalNotice, ChannelInfo, InboundMessage, Json
from pegasus.observe import get_logger
from pegasus.policy import (
    APPROVE,
    DENY,
    AnswerApproval,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalState,
    ListApprovals,
    Role,
    WithdrawApprovals,
    is_owner,
    question_text,
    sender_of,
    shown_arguments,
)
from pegasus.redaction import Redactor
from pegasus.storage import Commit, JournalMessage, Post
from pegasus.tasks import (
    FOR_APPROVAL,
    AgentMessage,
    GetTask,
    Resume,
    TaskError,
    TaskState,
    TaskView,
    wait_until_running,
)
from pegasus.wire import to_wire

ANSWER_TIMEOUT: Final = 5.0
"""Seconds that the keeper may take to answer."""

_SEEN: Final = ("cli", "web")
"""Channel types whose clients show approvals by themselves."""
_RECHECK: Final = 0.05
"""Seconds until a task that is about to suspend itself is looked at again, at first."""
_log = get_logger("approvals")


@attrs.frozen(eq=False)
class ApprovalDesk:
    """Shows approvals to owners and carries out their answers.

    Example: `Child("approvals", approvals_keeper, journal, clock, random, 3600.0, desk.changed)`.
    """

    journal: Ref[JournalMessage]
    """Writes the messages to owners."""
    approvals: Ref[ApprovalMessage]
    """The keeper."""
    tasks: Ref[AgentMessage]
    """The task system."""
    gateway: Ref[AdapterMessage]
    """Shows approvals to owners who are connected."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    owners: Collection[str]
    """The setting `agent.owners`."""
    owner_channel: str = ""
    """The setting `policy.owner_channel`."""
    secrets: Callable[[], Iterable[str]] = tuple
    """Returns the texts that no service of others may get; a reload may change them."""

    # ---------------------------------------------------------------- from the keeper

    async def changed(self, approval: Approval) -> None:
        """Show an approval that is new, or carry out one that is not open any more. Raises ActorError, StorageError."""
        with suppress(ActorError):  # nobody is connected while the gateway does not run
            self.gateway.tell_nowait(notice_of(approval))
        if not approval.is_open:
            await self._let_task_go_on(approval)
            return
        await wait_until_running(self.tasks)
        task = await self._task_of(approval)
        if task is None or task.is_over:  # it has ended while the keeper did not run
            await self.approvals.tell(WithdrawApprovals(approval.request.task_id))
            return
        await self._write_to_owner(approval, task)

    async def _let_task_go_on(self, approval: Approval) -> None:
        """Resume the task of an answered approval, which then makes its call again and finds the answer.

        The answer may come before the suspension of the task is on disk, so a task at work is looked at again.
        """
        if approval.state is ApprovalState.WITHDRAWN:
            return
        await wait_until_running(self.tasks)
        pause = _RECHECK
        while (task := await self._task_of(approval)) is not None and not task.is_over:
            if task.state is TaskState.SUSPENDED and task.waits_for != FOR_APPROVAL:
                return
            if task.state is TaskState.SUSPENDED:
                with suppress(TaskError):  # somebody else has resumed it
                    await self.tasks.ask(Resume, task.task_id, "", f"approval/{approval.id}")
                    return
            await trio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _task_of(self, approval: Approval) -> TaskView | None:
        return await self.tasks.ask(GetTask, approval.request.task_id)

    async def _write_to_owner(self, approval: Approval, task: TaskView) -> None:
        """Write to the channel where an owner is asked, if its clients do not show approvals anyway. Written once per approval."""
        channel = self._channel_of(approval)
        if channel is None or channel.type in _SEEN:
            return
        shown = sanitize_for_prompt(shown_arguments(approval.request.arguments))
        arguments = Redactor(tuple(self.secrets())).apply(shown)  # the service behind the channel keeps what it is told
        text = question_text(notice_of(approval), arguments, task_name(task.number, task.task_id), self.clock())
        post = Post(f"approval/{approval.id}", text, channel.channel_id, channel, channel.type, channel.reply_to)
        [result] = await self.journal.ask(Commit, (), (post,))
        if hasattr(result, "reason"):
            _log.warning(
                "an approval could not be written to its channel", id=approval.id, channel=str(channel.address)
            )

    def _channel_of(self, approval: Approval) -> ChannelInfo | None:
        """Return the channel where an owner is asked, None if only those who are connected are."""
        channel = approval.request.channel
        if channel is not None and approval.request.who is Role.OWNER and is_owner(channel, self.owners):
            return channel
        kind, _, name = self.owner_channel.partition(":")
        return ChannelInfo(kind, name) if name else None

    async def open_notices(self) -> Sequence[ApprovalNotice]:
        """Return the approvals that wait, for a client that connects; () if the keeper does not answer."""
        with trio.move_on_after(ANSWER_TIMEOUT), suppress(ActorError):
            return [notice_of(approval) for approval in await self.approvals.ask(ListApprovals)]
        return ()

    # ---------------------------------------------------------------- chat commands

    async def answer_command(self, message: InboundMessage) -> str:
        """Return the answer to /approve or /deny. Raises StorageError."""
        if not sender_of(message, self.owners).is_owner:
            return "Only my owner may decide about that."
        command, *words = sanitize_for_prompt(message.text).split()
        is_allowed = command == APPROVE
        if not words:
            return await self._list_text()
        rest = words[1:]
        if is_allowed and rest not in ([], ["always"]):
            return f"{APPROVE}: found {truncate(' '.join(rest), 40)!r} behind the id; allowed: nothing, or always."
        channel = message.channel
        by = f"{channel.type}:{channel.channel_id}" + (f" ({channel.user_id})" if channel.user_id else "")
        try:
            return _done_text(await self._answer(words[0], by, is_allowed, bool(rest), " ".join(rest)))
        except ApprovalError as error:
            return str(error)
        except ActorError:
            return "The approvals cannot be reached at the moment. Send it again in a few seconds."

    async def _answer(self, id: str, by: str, is_allowed: bool, is_for_ever: bool, reason: str) -> Approval:
        name = id.lower() if id.lower().startswith("a-") else f"a-{id.lower()}"
        request = (name, is_allowed, by, is_allowed and is_for_ever, "" if is_allowed else reason)
        return await self.approvals.ask(AnswerApproval, *request, timeout=ANSWER_TIMEOUT)

    async def _list_text(self) -> str:
        """Return the calls that wait, for a person."""
        waiting = await self.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        lines = [
            f"{each.id}  {each.request.tool}: {truncate(shown_arguments(each.request.arguments), 200)}"
            for each in waiting
        ]
        lines.insert(0, "Waiting for your answer:" if lines else "Nothing waits for your answer.")
        return "\n".join([*lines, f"{APPROVE} ID, {APPROVE} ID always, or {DENY} ID and a reason."])

    # ---------------------------------------------------------------- control calls

    async def list(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.list`: all calls that wait, for owners only."""
        self._check_owner(caller)
        waiting = await self.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        return {"approvals": [to_wire(notice_of(approval)) for approval in waiting]}

    async def answer(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.answer`: allow or deny the call `id`, `scope` "once" or "always", with a `reason` to a no."""
        self._check_owner(caller)
        decision, scope = params.get("decision"), params.get("scope") or "once"
        if decision not in ("allow", "deny"):
            raise BadParams(f'decision: found {decision!r:.40}, allowed: "allow" or "deny"')
        if scope not in ("once", "always"):
            raise BadParams(f'scope: found {scope!r:.40}, allowed: "once" or "always"')
        reason = str(params.get("reason") or "")
        by = f"{caller.type}:{caller.channel_id or '*'}"
        try:
            approval = await self._answer(
                require_text(params, "id"), by, decision == "allow", scope == "always", reason
            )
        except ApprovalError as error:
            raise BadParams(f"id: {error}") from None
        return {"approval": to_wire(notice_of(approval))}

    async def allow(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.allow`: `approvals.answer` with a yes."""
        return await self.answer(caller, {**params, "decision": "allow"})

    async def deny(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.deny`: `approvals.answer` with a no."""
        return await self.answer(caller, {**params, "decision": "deny"})

    def _check_owner(self, caller: Caller) -> None:
        if not caller.is_owner(self.owners):
            raise BadParams("only an owner may see and decide about approvals (agent.owners of the settings)")


# ------------------------------------------------------------------ texts


def notice_of(approval: Approval) -> ApprovalNotice:
    """Return an approval as the gateway shows it."""
    request = approval.request
    return ApprovalNotice(
        approval.id,
        request.tool,
        request.arguments,
        request.why,
        request.who.value,
        approval.expires,
        approval.state.value,
        request.task_id or None,
        request.channel,
        approval.by,
    )


def _done_text(approval: Approval) -> str:
    """Return the confirmation of an answer."""
    tool = approval.request.tool
    if approval.state is ApprovalState.DENIED:
        return f"{approval.id} is denied: {tool} will not be run."
    always = ", and whenever it is called with exactly these arguments" if approval.scope == "always" else ""
    return f"{approval.id} is allowed: {tool} will be run{always}."
