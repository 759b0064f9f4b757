"""Approvals between people and tasks: showing a call to an owner, taking the answer, and letting the task go on.

The keeper (`pegasus.access`) has the approvals, on disk. This module has the ways to people. An approval that is new is shown to all
owners who are connected (a frame of the gateway; the terminal and the page show it with its answers) and written as a reply to

* the channel that the work was asked for on, if an owner is there,
* otherwise `policy.owner_channel`, if there is one,

unless that is a terminal or a page, which shows it anyway. An owner answers with `/approve ID [always]` or `/deny ID [reason]` on any
channel (`/approve ID name=value …` if a server asks for values), with the control call `approvals.answer`, or with
`pegasus approvals`. Nothing waits for the answer but the task.

An owner is asked in the same way about a file that is part of the prompt and was changed while a program ran (`WorkspaceFiles`). That
is an approval without a task: its arguments are the name of the file and the text that would count. It is asked once for each text. A
new text of the same file takes the place of the question before, so at most one
question for each file waits, however often a program changes it.

An answer has two steps, and a crash may come between them. The keeper first writes the answer to disk, then it calls
`ApprovalFlow.changed`, which lets the task go on. The keeper calls it again after a restart for what was not carried
out; all that it does may be done twice. A message to an owner has an id that is made of the approval's, and a task that
was resumed already refuses the second time.

All answers, whichever way they come, go through `ApprovalFlow._answer`. So the rules about expiry and about
a second answer stand in the keeper alone. Each way checks that an owner asks, and has its own form for errors: a
sentence in a chat, `BadParams` for a program.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from types import MappingProxyType
from typing import Final, ParamSpec

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import (
    APPROVALS,
    APPROVE,
    DENY,
    DOOR,
    PROMPT_FILE,
    ROLE,
    SCOPE_WORDS,
    AnswerApproval,
    AnswerScope,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalState,
    ListApprovals,
    ListGrants,
    OwnerRequest,
    Principal,
    RequestBook,
    RequestRefused,
    RevokeGrant,
    WithdrawApprovals,
    describe_revoked,
    parse_scope,
    principal_of,
    question_text,
    read_answer,
)
from pegasus.app.approval_texts import (
    OWNERS_ONLY,
    UNREACHABLE,
    described_answer,
    full_id,
    grants_text,
    notice_of,
    places_of,
    waiting_line,
)
from pegasus.app.file_questions import accept_text
from pegasus.channels import AdapterMessage
from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import quote, truncate
from pegasus.gateway import BadParams, Caller, Method, Params, bad_params_for, notice_for, require_owner, require_text
from pegasus.identity import WorkspaceFiles
from pegasus.main_agent import task_name
from pegasus.messages import Address, ApprovalNotice, ChannelInfo, InboundMessage, Json, Metadata
from pegasus.observe import get_logger
from pegasus.policy import FormError, parse_answer
from pegasus.redaction import KnownSecrets
from pegasus.settings import LiveValue, PolicySettings
from pegasus.storage import Commit, JournalMessage, Post, StorageError, Unroutable
from pegasus.tasks import (
    GetTask,
    ResumeApproved,
    TaskAgentMessage,
    TaskError,
    wait_until_running,
)
from pegasus.wire import to_wire

ANSWER_TIMEOUT: Final = 5.0
"""Seconds that an actor may take to answer what a client or an owner asks."""

_NO_VALUES: Final[Metadata] = MappingProxyType({})
P = ParamSpec("P")
_log = get_logger("approvals")


def _as_sentence(command: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """Return the command with its refusals as answers: sentences for the person."""

    @wraps(command)
    async def answered(*args: P.args, **more: P.kwargs) -> str:
        try:
            return await command(*args, **more)
        except FormError as error:
            return f"{APPROVE}: {error}."
        except ApprovalError as error:
            return str(error)
        except ActorError:
            return UNREACHABLE

    return answered


@attrs.frozen(eq=False, repr=False)
class ApprovalFlow:
    """Shows approvals to owners and carries out their answers.

    The keeper calls `changed`; commands in a chat, buttons of a service and programs call the methods below it. It has no state of its
    own.

    Example::

        keeper = partial(serve_approvals, on_change=flow.changed)
        text = await flow.answer_command(message, person)  # of a message "/approve a-7kq2 always"
        sentence = await flow.decide("a-7kq2", "once", "telegram:42")  # a button
    """

    journal: Ref[JournalMessage]
    """Writes the messages to owners."""
    approvals: Ref[ApprovalMessage]
    """The keeper."""
    tasks: Ref[TaskAgentMessage]
    """The task system."""
    gateway: Ref[AdapterMessage]
    """Shows approvals to owners who are connected."""
    clock: Callable[[], int]
    """Wall clock, ms."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""
    policy: LiveValue[PolicySettings] = attrs.field(factory=lambda: LiveValue(PolicySettings()))
    """The settings [policy], for `owner_channel`."""
    adapters: LiveValue[Collection[Ref[AdapterMessage]]] = attrs.field(factory=lambda: LiveValue(()))
    """Adapters of chat services, which show answers."""
    secrets: KnownSecrets = attrs.field(factory=KnownSecrets)
    """The texts that no service of others may get."""
    files: WorkspaceFiles | None = None
    """The owner's files that are part of the prompt."""
    shown_on: Collection[str] = ("cli", "web")
    """Channel types whose clients show approvals by themselves."""
    books: Sequence[RequestBook] = ()
    """The requests beside approvals, which the same commands show and answer."""

    # ---------------------------------------------------------------- from the keeper

    async def changed(self, approval: Approval) -> bool:
        """Show an approval that is new, or carry out one that is not open any more. Raises ActorError, StorageError.

        The keeper calls it in a task of its own for each change, and again after an error or a crash. So everything here may
        be done twice for the same state. Return False if another node has the task, and carries it out.
        """
        with suppress(ActorError):  # nobody is connected while the gateway does not run
            self.gateway.tell_nowait(notice_of(approval))
        if not approval.is_open:
            for adapter in self.adapters.now:  # the message with the buttons shows the answer
                with suppress(ActorError):
                    adapter.tell_nowait(notice_of(approval))
        if approval.request.task_id:
            return await self._changed_about_task(approval)
        if approval.is_open:
            await self._write_to_owner(approval)
        elif approval.request.first.tool == PROMPT_FILE:  # its text counts from the next prompt on
            if self.files is not None:
                await accept_text(self.files, approval)
        elif approval.is_allowed:  # a reply, which goes out once, by its key, however often it is sent
            from pegasus.main_agent import post_of_held

            await self.journal.ask(Commit, (), (post_of_held(approval.request.first, approval.request.channel),))
        return True

    async def _changed_about_task(self, approval: Approval) -> bool:
        """Show a question about calls of a task, or resume the task, which then makes its call again and finds the answer.

        The answer may come before the task is suspended; the task system hears of that.
        """
        task_id = approval.request.task_id
        if approval.state is ApprovalState.WITHDRAWN and approval.request.question is None:
            return True  # its task is over, or is making the call again with other arguments
        await wait_until_running(self.tasks)
        if not approval.is_open:
            with suppress(TaskError):  # nothing is known of it any more
                return await self.tasks.ask(ResumeApproved, task_id, f"approval/{approval.id}")
            return True
        task = await self.tasks.ask(GetTask, task_id)
        if task is None or task.is_over:  # it has ended while the keeper did not run
            await self.approvals.tell(WithdrawApprovals((task_id,)))
            return True
        await self._write_to_owner(approval, task_name(task.number, task.task_id))
        return True

    async def _write_to_owner(self, approval: Approval, task: str = "") -> None:
        """Write to the channel where an owner is asked, if its clients do not show approvals anyway. Written once per approval.

        A channel that does not exist any more is logged and not retried: `pegasus approvals list` shows the call all the same.
        """
        channel = self._channel_of(approval)
        if channel is None or channel.type in self.shown_on:
            return
        notice = notice_of(approval)
        # The service behind the channel keeps what it is told.
        text = question_text(notice, task, self.clock(), self.secrets.redact)
        # Adapters with buttons put them below the text, and find the message again by this.
        metadata: Metadata = {"approval": approval.id, "scopes": list(notice.scopes)}
        post = Post(
            f"approval/{approval.id}", text, channel.channel_id, channel, channel.type, channel.reply_to, metadata
        )
        [result] = await self.journal.ask(Commit, (), (post,))
        if isinstance(result, Unroutable):
            _log.warning(
                "an approval could not be written to its channel",
                id=approval.id,
                channel=str(channel.address),
                reason=result.reason,
            )

    def _channel_of(self, approval: Approval) -> ChannelInfo | None:
        """Return the channel where an owner is asked, None if only those who are connected are.

        The channel of the work counts only if an owner is there. A guest who asked for the work must not be asked whether it
        may be done.
        """
        channel = approval.request.channel
        if principal_of(channel, self.owners.now, {ROLE: approval.request.who}).is_owner:
            return channel
        owner = Address.parse(self.policy.now.owner_channel)
        return ChannelInfo(owner.type, owner.channel_id) if owner is not None else None

    async def open_notices(self) -> Sequence[ApprovalNotice]:
        """Return the approvals that wait, for a client that connects; () if the keeper does not answer."""
        with trio.move_on_after(ANSWER_TIMEOUT), suppress(ActorError):
            return [notice_of(approval) for approval in await self.approvals.ask(ListApprovals)]
        return ()

    async def count_grants(self) -> int:
        """Return how many grants are in force; 0 if the keeper does not answer."""
        with trio.move_on_after(ANSWER_TIMEOUT), suppress(ActorError):
            return len(await self.approvals.ask(ListGrants))
        return 0

    # ---------------------------------------------------------------- chat commands

    @_as_sentence
    async def answer_command(self, message: InboundMessage, person: Principal) -> str:
        """Return the answer to /approve or /deny. Raises StorageError.

        Without an id the answer is the list of what waits. Refusals are answers too, as sentences for the person.
        """
        if not person.is_owner:
            return OWNERS_ONLY
        command, *words = sanitize_for_prompt(message.text).split(None, 2)
        if not words:
            return await self._list_text()
        id, rest, by = words[0], words[1].strip() if words[1:] else "", message.channel.written_by
        is_allowed = command != DENY
        if other := await self._answer_other(id, by, is_allowed=is_allowed, more=rest if is_allowed else ""):
            return other.text
        if not is_allowed:
            return described_answer(await self._answer(id, by, is_allowed=False, reason=rest))
        scope, calls, rest = read_answer(rest)
        values = await self._typed_values(id, rest) if rest else {}
        own = DOOR not in message.metadata
        answer = self._answer(id, by, is_allowed=True, scope=scope, values=values, calls=calls, is_own_door=own)
        return described_answer(await answer)

    @_as_sentence
    async def list_command(self, message: InboundMessage, person: Principal) -> str:
        """Return the answer to /approvals: what waits and what was granted, or what /approvals revoke ID has ended."""
        if not person.is_owner:
            return OWNERS_ONLY
        match sanitize_for_prompt(message.text).split()[1:]:
            case []:
                grants = await self.approvals.ask(ListGrants, timeout=ANSWER_TIMEOUT)
                return f"{await self._list_text()}\n\n{grants_text(grants)}"
            case ["revoke", id]:
                revoked = self.approvals.ask(
                    RevokeGrant, id.lower(), message.channel.written_by, timeout=ANSWER_TIMEOUT
                )
                return describe_revoked(await revoked)
        return f"{APPROVALS}, or {APPROVALS} revoke ID, where ID is that of a grant."

    @_as_sentence
    async def decide(self, id: str, decision: str, by: str) -> str:
        """Answer an approval or another request for an owner who has clicked a button; return a sentence for them.

        Never raises what is expected. The adapter has checked that an owner has clicked. decision: "deny", or the scope of a yes.
        """
        scope = parse_scope(decision)
        is_allowed, scope = scope is not None, scope or AnswerScope.ONCE
        try:
            if other := await self._answer_other(id, by, is_allowed=is_allowed):
                return other.text
            return described_answer(await self._answer(id, by, is_allowed=is_allowed, scope=scope, is_own_door=True))
        except StorageError as error:
            return f"This did not work: {error}. Click again when the problem is solved."

    async def _answer(
        self,
        id: str,
        by: str,
        *,
        is_allowed: bool,
        scope: AnswerScope = AnswerScope.ONCE,
        reason: str = "",
        values: Metadata = _NO_VALUES,
        calls: tuple[int, ...] | None = None,
        is_own_door: bool = False,
    ) -> Approval:
        """Return the approval with this answer. Raises ApprovalError, ActorError."""
        request = (full_id(id), is_allowed, by, scope, reason, values, calls, is_own_door)
        return await self.approvals.ask(AnswerApproval, *request, timeout=ANSWER_TIMEOUT)

    async def _typed_values(self, id: str, text: str) -> Metadata:
        """Return the values of a form as somebody has typed them. Raises FormError, also where there is no form; and ActorError."""
        waiting = await self.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        asked = next((each.request for each in waiting if each.id == full_id(id)), None)
        if asked is None or asked.question is None:
            raise FormError(f"found {quote(text, 40)}; allowed behind the id: {SCOPE_WORDS}")
        return parse_answer(asked.question.fields, text)

    async def _answer_other(self, id: str, by: str, *, is_allowed: bool, more: str = "") -> OwnerRequest | None:
        """Answer the request with this id that is no approval, and return it as it is then; None if there is none.

        more: what stands behind a yes, which such a request does not take. Raises ApprovalError, StorageError, ActorError.
        """
        for book in self.books:
            if book.has_request(id):
                if more:
                    found = quote(truncate(more, 40))
                    raise ApprovalError(f"{id} takes a yes or a no alone; found behind the id: {found}.")
                try:
                    return await book.answer(id, is_allowed=is_allowed, by=by)
                except RequestRefused as error:
                    raise ApprovalError(error.sentence) from error
        return None

    async def _others(self) -> Sequence[OwnerRequest]:
        """Return the requests beside approvals that wait; () if they cannot be read, which must not hide the approvals."""
        with suppress(StorageError, ActorError):
            return [request for book in self.books for request in await book.waiting()]
        return ()

    async def _list_text(self) -> str:
        """Return what waits, for a person."""
        waiting = await self.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        lines = [waiting_line(each) for each in waiting]
        lines += [f"{each.id}  {truncate(each.text, 600)}" for each in await self._others()]
        lines.insert(0, "Waiting for your answer:" if lines else "Nothing waits for your answer.")
        return "\n".join([*lines, f"{APPROVE} ID, {APPROVE} ID always, or {DENY} ID and a reason."])

    # ---------------------------------------------------------------- control calls

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "approvals.list": self.list,
            "approvals.answer": self.answer,
            "approvals.allow": self.allow,
            "approvals.deny": self.deny,
            "approvals.granted": self.granted,
            "approvals.revoke": self.revoke,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.list`: all calls that wait, and in `requests` the rest that does, for owners only.

        Raises NotAllowed for others, and ActorError while the keeper does not run.
        """
        self._require_owner(caller)
        waiting = await self.approvals.ask(ListApprovals, timeout=ANSWER_TIMEOUT)
        notices = [notice_of(approval) for approval in waiting]
        shown: list[Json] = [to_wire(notice_for(notice, is_own_door=caller.has_own_door)) for notice in notices]
        return {"approvals": shown, "requests": [to_wire(each) for each in await self._others()]}

    async def answer(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.answer`: allow or deny the calls of `id`, or another request that waits.

        A yes has a `scope` (see `AnswerScope`), the `calls` that it is for by their places from 0, and the `values` of a question's
        form by name; a no may have a `reason`.

        Raises BadParams for a mistake in the params, and for an id that does not wait any more.
        """
        self._require_owner(caller)
        decision, scope = params.get("decision"), parse_scope(str(params.get("scope") or AnswerScope.ONCE))
        if decision not in ("allow", "deny"):
            raise BadParams(f'decision: found {quote(decision, 40)}, allowed: "allow" or "deny"')
        if scope is None:
            allowed = ", ".join(f'"{each}"' for each in AnswerScope)
            raise BadParams(f"scope: found {quote(params['scope'], 40)}, allowed: {allowed}")
        values = params.get("values") or {}
        if not isinstance(values, Mapping):
            raise BadParams(f"values: found {quote(values, 40)}, allowed: an object with the value of each field")
        id, calls = require_text(params, "id"), places_of(params.get("calls"))
        with bad_params_for(ApprovalError, key="id"):
            by, is_allowed = _name_of(caller), decision == "allow"
            more = scope if scope is not AnswerScope.ONCE else "values" if values else "calls" if calls else ""
            if other := await self._answer_other(id, by, is_allowed=is_allowed, more=more):
                return {"request": to_wire(other)}
            # The keeper checks values against the form of the question; a mistake in them is an ApprovalError as well.
            approval = await self._answer(
                id,
                by,
                is_allowed=is_allowed,
                scope=scope,
                reason=str(params.get("reason") or ""),
                values=values,
                calls=calls,
                is_own_door=caller.has_own_door,
            )
        return {"approval": to_wire(notice_of(approval))}

    async def granted(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.granted`: what was allowed beyond single calls, oldest first."""
        self._require_owner(caller)
        grants = await self.approvals.ask(ListGrants, timeout=ANSWER_TIMEOUT)
        return {"granted": [to_wire(grant) for grant in grants]}

    async def revoke(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.revoke`: end the grant `id`. Calls that were allowed by it before are not undone."""
        self._require_owner(caller)
        with bad_params_for(ApprovalError, key="id"):
            id = require_text(params, "id")
            grant = await self.approvals.ask(RevokeGrant, id, _name_of(caller), timeout=ANSWER_TIMEOUT)
        return {"revoked": to_wire(grant)}

    def _require_owner(self, caller: Caller) -> None:
        require_owner(caller, self.owners.now, "may see and decide about approvals")

    async def allow(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.allow`: `approvals.answer` with a yes."""
        return await self.answer(caller, {**params, "decision": "allow"})

    async def deny(self, caller: Caller, params: Params) -> Json:
        """Answer `approvals.deny`: `approvals.answer` with a no."""
        return await self.answer(caller, {**params, "decision": "deny"})


def _name_of(caller: Caller) -> str:
    """Return the author of an answer, for the record."""
    return f"{caller.type}:{caller.channel_id or '*'}"
