"""The gate before each call: what the policy decides about it, and waiting for an owner where it asks.

The executor asks the gate when the arguments of a call are checked and before anything runs. The gate turns the call into facts
(`describe_call`), lets the policy decide, and returns the context in which the call is made, an error for the model, or an outcome
that names the approval which the call waits for. It fails closed: while approvals cannot be asked for, the call is refused. A call of
a file tool that was allowed because it stays in the workspace is confined to it, so that a link which is swapped meanwhile leads
nowhere.

A task that gets such an outcome suspends itself and makes the call again when the approval is answered, with the same key, under which
the gate then finds the answer. The Main Agent does not wait for anything but its model, so it is told to delegate.

What counts as reaching out: a command that can (see `SandboxState`), a file outside the workspace that is written, a request that
changes something on a server, a tool of another program, and fetching an address that the model has made up: its path may carry what
the model has read. An address that stands in the conversation carries nothing, as a whole (a link) or in its two parts: the host that
somebody has named, and the path of a link on a page.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import (
    MOST_CALLS,
    NO_WALLS,
    AnswerScope,
    ApprovalError,
    ApprovalMessage,
    ApprovalRequest,
    AskedCall,
    CallRequest,
    Decision,
    Policy,
    Ruling,
    SandboxState,
    SeekApproval,
)
from pegasus.formatting import truncate
from pegasus.identity import WorkspaceFiles
from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall, ToolSpec
from pegasus.outside import Untrusted, join_outside
from pegasus.policy import REACHES_OUT, ToolKind, ValueCall, doubt_about, is_bare_code, is_bare_line
from pegasus.sandbox import NO_SANDBOX, Sandbox, is_within
from pegasus.settings import LiveValue
from pegasus.storage import StorageError
from pegasus.tools.base import CallQuestions, Effect, PlannedCall, Reach, Tool, ToolContext, ToolOutcome
from pegasus.tools.client_tools import ClientTools
from pegasus.tools.files import is_prompt_file, notes_of_owners, real_path, runs_by_itself
from pegasus.tools.in_client import runs_in_client, with_client
from pegasus.tools.named_files import TooManyNames, named_files
from pegasus.tools.places import has_own_place, own_place, quota_refusal, with_folders_of_guests
from pegasus.tools.walls import is_free, unsearched
from pegasus.wire import encode_json

_LOOKING: Final = ("GET", "HEAD", "OPTIONS")
"""Methods of HTTP that change nothing (RFC 9110, section 9.2.1)."""
MOST_LINKS: Final = 20
"""Different addresses of one host that are fetched in a task without a question, once it has read text from outside."""
LEAST_PATH: Final = 6
"""Characters of a path and query that are recognised in the conversation by themselves."""
_UNESCAPED: Final = ":/?#[]@!$&'()*+,;="
"""Characters beside letters, digits and `-._~` that stand in an address as they are (RFC 3986, section 2.2)."""
MOST_WORDS: Final = 500
"""Characters of what an agent says about its plan."""
_DESTRUCTIVE: Final = ("delete_file", "reply")
"""Tools of this program whose calls cannot be taken back."""
_TEXTS: Final = ("command", "code", "text", "query")
"""Arguments that hold what a command runs, or what is searched for."""
_PATHS: Final = ("path", "from", "to", "source", "target")
"""Arguments that hold a path."""


class Gate(Protocol):
    """Decides about a call before it is made. `PolicyGate` is the real one.

    Example::

        checked = await gate.check(tool, arguments, context)
        if isinstance(checked, ToolOutcome): ...   # refused, or it waits for an owner: checked.approval
    """

    async def check(self, tool: Tool, arguments: Metadata, context: ToolContext) -> ToolContext | ToolOutcome:
        """Return the context in which a call may be made, otherwise its outcome. arguments: checked. Raises nothing but Cancelled."""

    async def judge(self, tool: Tool, arguments: Metadata, context: ToolContext) -> Ruling:
        """Return what the rules say about a call, and ask nobody. arguments: checked."""

    async def ask_beforehand(self, planned: Sequence[PlannedCall], words: str) -> ToolOutcome:
        """Ask an owner for calls that a task plans, and return what may be made, or the approval that the task waits for.

        words: those of the agent about its plan. Raises nothing but Cancelled.
        """


def sending(spec: ToolSpec, category: str) -> Tool:
    """Return a tool that stands for something that the program sends itself, so that the gate can decide about it.

    It is not run: `await executor.judge(sending(REPLY, "media"), arguments, context)`.
    """

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        """Fail: the gate is asked about this tool, and nothing runs it."""
        raise AssertionError(f"{spec.name} is carried out by whoever has asked the gate")

    return Tool(spec, run, category)


@attrs.frozen(eq=False, repr=False)
class PolicyGate:
    """The gate that follows the policy.

    Example: `ToolExecutor(tools, gate=PolicyGate(policy, walls, approvals))`.

    It keeps nothing between calls: what an owner has answered is with the keeper, under the key of the call.
    """

    policy: LiveValue[Policy]
    """The rules."""
    walls: LiveValue[SandboxState]
    """The walls around commands."""
    approvals: Ref[ApprovalMessage]
    """The keeper of approvals."""
    files: WorkspaceFiles | None = None
    """The owner's files that are part of the prompt."""
    sandbox: LiveValue[Sandbox] = attrs.field(factory=lambda: LiveValue(NO_SANDBOX))
    """The same walls, to look whether they keep files of these folders."""

    clients: ClientTools = attrs.field(factory=ClientTools)
    """Tools that clients carry out for their conversations."""

    async def check(self, tool: Tool, arguments: Metadata, context: ToolContext) -> ToolContext | ToolOutcome:
        """Decide about a call, as `Gate` says. A call of a task may ask owners while it runs."""
        context = with_client(self.clients, context)
        is_task = bool(context.task_id) and not context.role  # nobody waits for the Main Agent or a reflection
        can_wait = is_task or context.holds
        if is_task:
            facts = (tool.name, arguments, context.key, context.task_id, context.principal)
            context = attrs.evolve(context, questions=CallQuestions(self.approvals, *facts))
        if has_own_place(context.principal):
            context = await trio.to_thread.run_sync(own_place, context, abandon_on_cancel=True)
            if refusal := await trio.to_thread.run_sync(
                quota_refusal, tool, arguments, context, abandon_on_cancel=True
            ):
                return ToolOutcome.failure(refusal)
        if tool.category == "file" and tool.effect is Effect.PURE:
            context = with_folders_of_guests(context)
        if tool.category == "file" and not context.principal.is_owner:
            closed = await trio.to_thread.run_sync(notes_of_owners, context, abandon_on_cancel=True)
            context = attrs.evolve(context, closed_paths=(*context.closed_paths, *closed))
        ruling, call = await self._judge(tool, arguments, context)
        if ruling.decision is Decision.ALLOW:
            # Between this decision and the call a link may be swapped, so the call gets no more rights than were
            # decided about.
            return attrs.evolve(context, allowed_paths=context.places) if call.stays_inside else context
        if ruling.decision is Decision.DENY:
            return ToolOutcome.failure(
                f"{tool.name} is not allowed here: {ruling.why}. Do not try to get around this; say what you need."
            )
        return await self._seek(PlannedCall(tool, arguments, context), ruling, can_wait=can_wait)

    async def judge(self, tool: Tool, arguments: Metadata, context: ToolContext) -> Ruling:
        """Return what the rules say about a call, as `Gate` says."""
        ruling, _ = await self._judge(tool, arguments, with_client(self.clients, context))
        return ruling

    async def _judge(self, tool: Tool, arguments: Metadata, context: ToolContext) -> tuple[Ruling, CallRequest]:
        """Return what the policy decides about a call, and the facts that it decides from."""
        if tool.category == "file":  # a thread, since paths are followed on disks that may be slow
            describe = partial(describe_call, tool, arguments, context)
            call = await trio.to_thread.run_sync(describe, abandon_on_cancel=True)
        else:
            call = describe_call(tool, arguments, context)
        # Both are read at each call, so settings that have changed count from the next call on.
        walls = self.walls.now
        if runs_in_client(tool.name, context):
            walls = SandboxState()
        elif call.is_command and not is_free(context):
            walls = attrs.evolve(walls, unsearched=await unsearched(self.sandbox.now, context))
        ruling = self.policy.now.decide(call, walls)
        if runs_in_client(tool.name, context) and ruling.why == NO_WALLS:
            ruling = attrs.evolve(ruling, why="it runs in a terminal of the editor, which has no walls")
        if call.is_prompt and ruling.decision is Decision.ASK:
            ruling = attrs.evolve(ruling, why=f"{ruling.why}. The file is part of prompts to come")
        return ruling, call

    async def _seek(self, planned: PlannedCall, ruling: Ruling, *, can_wait: bool) -> ToolContext | ToolOutcome:
        """Return what an owner has answered about this call, or the approval that it waits for."""
        context, name = planned.context, planned.tool.name
        principal = context.principal
        if can_wait and (advice := planned.tool.advice()):
            ruling = attrs.evolve(ruling, why=f"{ruling.why}. {advice}")
        try:
            calls = await self._calls_to_ask(planned, ruling) if can_wait else (await asked_call(planned, ruling.why),)
            read = tuple(label.value for label in context.outside)
            request = ApprovalRequest(calls, principal.role, principal.channel, context.task_id, read=read)
            approval = await self.approvals.ask(SeekApproval, request, context.key, can_wait)
        # It fails closed: no answer is not a yes.
        except (ApprovalError, StorageError, ActorError) as error:
            if not can_wait:
                return _refused_without_task(name, ruling)
            return ToolOutcome.failure(
                f"{name} needs a yes of the owner ({ruling.why}), who cannot be asked now: {error}."
            )
        # The call has not begun. The task makes it again with the same key, and this function finds the answer.
        if approval.is_open:
            return ToolOutcome("", failed=True, approval=approval.id)
        if approval.allows(context.key):
            # What an owner was shown counts as theirs. A yes for any arguments has shown nothing.
            was_shown = approval.id or approval.scope is AnswerScope.ARGUMENTS
            return self._expecting(context) if planned.tool.category == "file" and was_shown else context
        if not can_wait:
            return _refused_without_task(name, ruling)
        return ToolOutcome.failure(f"{name} was not run: {approval.refusal}.")

    def _expecting(self, context: ToolContext) -> ToolContext:
        """Return a context in which a text of the prompt that a tool writes counts as the owner's."""
        if (files := self.files) is None:
            return context

        def expect(path: str, after: bytes, before: bytes | None) -> None:
            """Tell the owner's files what one of them will say. The workspace of the call may be a guest's folder."""
            files.expect(os.path.relpath(path, os.path.realpath(files.folder)), after, before)

        return attrs.evolve(context, will_hold=expect)

    async def ask_beforehand(self, planned: Sequence[PlannedCall], words: str) -> ToolOutcome:
        """Ask for a plan, as `Gate` says: for those of its calls that need a yes now, or will once the task has read from outside."""
        principal, task_id = planned[0].context.principal, planned[0].context.task_id
        try:
            asked, denied = await self._judge_plan(planned)
            if denied:
                return ToolOutcome.failure(f"nobody was asked. {'; '.join(denied)}. Leave it out; say what you need.")
            free: list[Json] = [number for number in range(1, len(planned) + 1) if number not in asked]
            if not asked:
                return ToolOutcome(encode_json({"needNoYes": free}), failed=False)
            request = ApprovalRequest(tuple(asked.values()), principal.role, principal.channel, task_id, is_plan=True)
            # Of all calls together, since tools that reach out have read descriptions of other tools as well.
            read = join_outside(*(call.context.outside for call in planned))
            request = attrs.evolve(
                request, words=truncate(words, MOST_WORDS), read=tuple(label.value for label in read)
            )
            approval = await self.approvals.ask(SeekApproval, request)
        except (ApprovalError, StorageError, ActorError) as error:
            return ToolOutcome.failure(f"the owner cannot be asked now: {error}.")
        if approval.is_open:
            return ToolOutcome("", failed=True, approval=approval.id)
        chosen = {call.key for place, call in enumerate(approval.request.calls) if approval.is_chosen(place)}
        allowed: list[Json] = [number for number, call in asked.items() if call.key in chosen]
        if not allowed:
            return ToolOutcome.failure(f"the plan is not allowed: {approval.refusal}.")
        refused: list[Json] = [number for number in asked if number not in allowed]
        answer: dict[str, Json] = {"allowed": allowed, "refused": refused, "needNoYes": free}
        return ToolOutcome(encode_json({name: numbers for name, numbers in answer.items() if numbers}), failed=False)

    async def _judge_plan(self, planned: Sequence[PlannedCall]) -> tuple[dict[int, AskedCall], list[str]]:
        """Return the calls of a plan that an owner is asked about, by their numbers, and why others are not allowed."""
        asked: dict[int, AskedCall] = {}
        denied: list[str] = []
        for number, call in enumerate(planned, 1):
            call = attrs.evolve(call, context=with_client(self.clients, call.context))
            ruling, _ = await self._judge(call.tool, call.arguments, call.context)
            why = ruling.why
            if ruling.decision is Decision.ALLOW:
                outside = attrs.evolve(call.context, outside=tuple(Untrusted))
                ruling, _ = await self._judge(call.tool, call.arguments, outside)
                why = "it would need a yes as soon as the task has read text from outside"
            elif ruling.decision is Decision.DENY:
                denied.append(f"call {number} ({call.tool.name}) is not allowed here: {why}")
            if ruling.decision is Decision.ASK:
                asked[number] = await asked_call(call, why)
        return asked, denied

    async def _calls_to_ask(self, planned: PlannedCall, ruling: Ruling) -> tuple[AskedCall, ...]:
        """Return this call and those of the same answer that need a yes as well, in their order, judged by what is known now.

        A person is then asked once for all. Each of them is judged again when its turn comes: what the first has read may matter.
        """
        calls: list[AskedCall] = []
        before = True
        for other in planned.context.answer_calls():
            if other.context.key == planned.context.key:
                calls.append(await asked_call(planned, ruling.why))
                before = False
            elif len(calls) < MOST_CALLS - before:
                judged, _ = await self._judge(other.tool, other.arguments, with_client(self.clients, other.context))
                if judged.decision is Decision.ASK:
                    calls.append(await asked_call(other, judged.why))
        return tuple(calls) if not before else (await asked_call(planned, ruling.why),)


async def asked_call(planned: PlannedCall, why: str) -> AskedCall:
    """Return a call as an owner is asked about it, with hashes of the files that a command names. why: reason for asking.

    Raises ApprovalError if there are too many of them.
    """
    tool, context = planned.tool, planned.context
    arguments = _everything_that_counts(tool, planned.arguments, context)
    destroys = tool.kind is ToolKind.DESTRUCTIVE or tool.name in _DESTRUCTIVE
    call = AskedCall(context.key, tool.name, arguments, why, tool.server, tool.fingerprint, destroys)
    if tool.category != "code" or tool.effect is not Effect.ONCE:
        return call
    try:
        files = await trio.to_thread.run_sync(named_files, arguments, context, abandon_on_cancel=True)
    except TooManyNames:
        reason = "it names more than can be looked at. Write it into a file of the workspace, and run that"
        raise ApprovalError(reason) from None
    return attrs.evolve(call, files=files)


def _refused_without_task(name: str, ruling: Ruling) -> ToolOutcome:
    """Return the outcome of a call that needs a yes, and that nobody waits for."""
    return ToolOutcome.failure(
        f"{name} needs a yes of the owner ({ruling.why}). Only a task can wait for one: delegate it."
    )


def _everything_that_counts(tool: Tool, arguments: Metadata, context: ToolContext) -> Metadata:
    """Return the arguments as an owner must see them: of a command, with the variables that the task has set before."""
    if tool.category != "code" or not context.env:
        return arguments
    own = arguments.get("env")
    return {**arguments, "env": {**context.env, **(own if isinstance(own, dict) else {})}}


# ------------------------------------------------------------------ facts


def describe_call(tool: Tool, arguments: Metadata, context: ToolContext) -> CallRequest:
    """Return the facts about a call that the policy decides from."""
    doubt = partial(_doubt, tool, arguments, context)
    call = CallRequest(tool.name, context.principal, sources=context.outside, doubt=doubt)
    match tool.category:
        case "code":
            if tool.effect is not Effect.ONCE:
                return call
            is_bare = _is_bare(arguments, context)
            return attrs.evolve(call, is_command=True, is_bare=is_bare, targets=_texts(arguments))
        case "file":
            return _file_call(call, tool, arguments, context)
        case "network":
            return _network_call(call, arguments, context)
        case "media":
            # A file for the person that the work is for, or for others: it leaves, and nothing is changed by it.
            return attrs.evolve(call, reaches_out=True)
    is_out = tool.reach is Reach.OUTSIDE
    return attrs.evolve(call, is_inner=tool.reach is Reach.INSIDE, reaches_out=is_out, changes_world=is_out)


def _doubt(tool: Tool, arguments: Metadata, context: ToolContext) -> str:
    """Return why a call needs a question because of its kind and its values, "" if it needs none."""
    if tool.kind is None:
        return REACHES_OUT
    return doubt_about(tool.value_call(arguments), context.owner_messages, context.earlier())


class SaidEntry(Protocol):
    """An entry of a conversation, as far as calls matter: `pegasus.conversation.Entry`.

    Example: `earlier_calls(session.entries, "call_7", executor.get)`.
    """

    @property
    def calls(self) -> Sequence[ToolCall]:
        """Tool calls of the entry."""


def earlier_calls(
    conversation: Iterable[SaidEntry], call_id: str, find: Callable[[str], Tool | None]
) -> Sequence[ValueCall]:
    """Return the calls of a conversation before this one, as a restart finds them too. find: returns the tool of a name."""
    found: list[ValueCall] = []
    for call in (call for entry in conversation for call in entry.calls):
        if call.id == call_id:
            break
        if (tool := find(call.name)) is not None:
            found.append(tool.value_call(call.arguments))
    return found


def _is_bare(arguments: Metadata, context: ToolContext) -> bool:
    """Return whether the text of a command says all that it does. Variables and the folder may make another command of it."""
    if context.env or arguments.get("env") or arguments.get("cwd") not in (None, "", ".", str(context.workspace)):
        return False
    line = arguments.get("command")
    if isinstance(line, str):
        return is_bare_line(line)
    return all(is_bare_code(text) for (text,) in _texts(arguments))


def _texts(arguments: Metadata) -> tuple[tuple[str, ...], ...]:
    """Return what a command runs, or what is searched for."""
    return tuple((text,) for name in _TEXTS if isinstance(text := arguments.get(name), str))


def _file_call(call: CallRequest, tool: Tool, arguments: Metadata, context: ToolContext) -> CallRequest:
    """Return the facts about a call of a file tool. Paths are compared where they lead, so a link is no way around a rule."""
    given = [path for name in _PATHS if isinstance(path := arguments.get(name), str)]
    forms = tuple(tuple(_path_forms(path, context)) for path in given or ["."])
    writes = tool.effect is not Effect.PURE
    is_inside = all(_is_in_workspace(path, context) for path in given)
    moved = str(arguments.get("from", ""))
    # What stands in every prompt, or is run by others, acts far beyond the workspace, so it is treated like a file outside of it.
    is_prompt = writes and any(is_prompt_file(context, path) for path in given)
    if is_prompt or (writes and any(runs_by_itself(context, path, moved) for path in given)):
        is_inside = False
    leaves, stays = writes and not is_inside, writes and is_inside
    return attrs.evolve(
        call, targets=forms, reaches_out=leaves, changes_world=leaves, stays_inside=stays, is_prompt=is_prompt
    )


def _path_forms(path: str, context: ToolContext) -> Iterable[str]:
    """Yield a path where it leads and, if that is in the workspace, from there on."""
    real = real_path(context, path)
    yield real
    for place in context.places:
        if is_within(real, str(place)):
            yield os.path.relpath(real, place)


def _is_in_workspace(path: str, context: ToolContext) -> bool:
    """Return whether a path leads to the workspace or below it, or to the folder that the work is done in."""
    real = real_path(context, path)
    return any(is_within(real, str(place)) for place in context.places)


def _network_call(call: CallRequest, arguments: Metadata, context: ToolContext) -> CallRequest:
    """Return the facts about a call of a web tool. A search has no address: its words go to the service of the settings only."""
    url = arguments.get("url")
    if not isinstance(url, str):
        return attrs.evolve(call, targets=_texts(arguments))
    method = str(arguments.get("method") or ("POST" if call.tool == "http_post" else "GET")).upper()
    changes = method not in _LOOKING
    carries = changes or bool(arguments.get("headers") or arguments.get("body")) or not _is_known(url, context.has_seen)
    carries = carries or (bool(context.outside) and _follows_too_many(url, context.earlier()))
    forms = dict.fromkeys((url, _usual_form(url)))
    return attrs.evolve(call, targets=tuple((form,) for form in forms), reaches_out=carries, changes_world=changes)


def _follows_too_many(url: str, earlier: Iterable[ValueCall]) -> bool:
    """Return whether enough other addresses of this host were fetched: each choice among them tells the host something."""
    host = _host_of(url)
    fetched = {
        other for call in earlier if isinstance(other := call.arguments.get("url"), str) and _host_of(other) == host
    }
    return url not in fetched and len(fetched) >= MOST_LINKS


def _host_of(url: str) -> str:
    """Return the host of an address in small letters, the address itself if it has none."""
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _usual_form(url: str) -> str:
    """Return an address as most people write it: small letters in scheme and host, no port that goes without saying, no escapes.

    A pattern is compared with it as well as with the address as it is: an `allow` must fit both, and a refusal either.
    """
    try:
        parts = urlsplit(unicodedata.normalize("NFKC", url))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return url
    is_usual = port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    name = f"[{host}]" if ":" in host else host.rstrip(".")
    path = unquote(parts.path) + (f"?{unquote(parts.query)}" if parts.query else "")
    return f"{parts.scheme}://{name}{'' if is_usual else f':{port}'}{path}"


def _is_known(url: str, has_seen: Callable[[str], bool]) -> bool:
    """Return whether an address stands in the conversation, whole or as its host and what follows it.

    What follows must have LEAST_PATH characters to be recognised by itself: shorter ones stand in any text by chance, so that a model
    could choose among them and tell something by that.
    """
    if any(map(has_seen, {*_plain_forms(url), url.removesuffix("/")})):
        return True
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    rest = parts.path + (f"?{parts.query}" if parts.query else "")
    # A user name in front of the host can carry text out, and is easily mistaken for the host.
    if not parts.netloc or "@" in parts.netloc or not has_seen(parts.netloc):
        return False
    return rest in ("", "/") or (len(rest) >= LEAST_PATH and any(map(has_seen, _plain_forms(rest))))


def _plain_forms(url: str) -> set[str]:
    """Return an address as it is and, if it is escaped in the one usual way, without escapes, as people read it.

    A server sees which characters are escaped. Who might choose them could write a secret into them, a bit for each.
    """
    plain = unquote(url)
    return {url, plain} if quote(plain, safe=_UNESCAPED) == url else {url}
