"""The parts of a tool: its description, its effect, the context of one call, and the outcome.

A tool is a value (`Tool`), not a subclass: a `ToolSpec` that the model sees, an async function, and
an `Effect`. Tools know nothing of tasks, conversations or the registry. They receive the checked
arguments and a `ToolContext`, and either return JSON or raise `ToolError`. Everything around a call
(checking the arguments, the deadline, masking secrets, cutting long results) is done by
`pegasus.tools.executor`, so that no tool has to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import (
    NOBODY,
    Approval,
    ApprovalMessage,
    ApprovalRequest,
    AskedCall,
    AwaitApproval,
    FindApproval,
    Principal,
    SeekApproval,
    WithdrawApprovals,
)
from pegasus.messages import ChannelInfo, FileEdit, Json, Media, Metadata, OwnerQuestion
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage, ToolKind, ValueCall
from pegasus.tools.client_tools import ClientOffer
from pegasus.tools.kept_changes import KeptChanges
from pegasus.wire import encode_json

if TYPE_CHECKING:
    from pegasus.sandbox import BackgroundCommands

ERROR: Final = "Error: "
"""Beginning of the content of a failed call."""
WITHDRAWN_WITHIN: Final = 1.0
"""Seconds that a question which nobody waits for any more may take to be found."""
MAX_RESULT: Final = 25_600
"""Characters of a result if the context window is not known: 5 % of 128,000 tokens (see
`pegasus.tools.standard.base_context`)."""


class ToolError(Exception):
    """A failure that the model should understand. The text names the reason and a way that works.

    Example::

        raise ToolError(f"{path} is a folder, not a regular file; list_files shows what is in it")

    The executor makes `ToolOutcome.failure` of it. Any other exception that a tool raises is a defect.
    """


@contextmanager
def as_tool_error(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds within the block into ToolErrors with the same text.

    Example: `with as_tool_error(ProcessError): await run_process(…)`.
    """
    try:
        yield
    except kinds as error:
        raise ToolError(str(error)) from error


class Effect(StrEnum):
    """The consequence of running a call a second time. It decides what happens to a call that a crash interrupted.

    Example::

        Tool(SPEC, read_file, effect=Effect.PURE)       # run again after a crash
        Tool(SPEC, send_mail, effect=Effect.ONCE)       # the model is told that the outcome is unknown
    """

    PURE = "pure"
    """The call only reads. It is run again after a crash, and may run at the same time as other
    pure calls."""
    IDEMPOTENT = "idempotent"
    """The call has its effect once per `ToolContext.key`. It is run again after a crash with the
    same key."""
    ONCE = "once"
    """Every run may have its effect. It is never repeated; the model is informed that the outcome
    is unknown."""


class Reach(StrEnum):
    """Distance that the effect of a call goes. Policy asks for it where text from outside may have asked for the call.

    Example::

        Tool(SPEC, current_time, reach=Reach.INSIDE)
        Tool(SPEC, fetch_page, reach=Reach.FETCH)
    """

    INSIDE = "inside"
    """The call only looks, or changes what the agent keeps itself: memory, tasks, its environment."""
    WORKSPACE = "workspace"
    """The call changes files of the workspace, or runs a program that the sandbox keeps there."""
    FETCH = "fetch"
    """The call asks a server for something. It changes nothing, but the address it names can carry data out."""
    OUTSIDE = "outside"
    """The call sends data out, or changes something outside of the workspace."""


@attrs.frozen(eq=False, repr=False)
class LabelledResult:
    """A result whose own text says where it comes from, for tools that hand on what others have written.

    Example: `return LabelledResult({"content": page}, (Untrusted.WEB,))`. The label of the tool itself (`Tool.source`) is added to it.
    """

    result: Json
    """The result as a tool returns it."""
    outside: tuple[Untrusted, ...]
    """Sources of its text."""


@attrs.frozen(eq=False, repr=False)
class ResultWithImages:
    """A result with pictures, which models that see are shown beside it.

    Example: `return ResultWithImages({"files": [...]}, (Media("page.png", "image/png", data),))`.
    """

    result: Json
    """The result as a tool returns it; it should name the pictures."""
    pictures: tuple[Media, ...]
    """The pictures, unchecked. Those that no model takes are left out when they are kept."""


@attrs.frozen(eq=False, repr=False)
class AwaitsOwner:
    """Return value of a tool whose call waits for the answer to a question.

    Example::

        id = await context.questions.ask(question, 1)
        return AwaitsOwner(id)   # the task is suspended, and calls the tool again with the same key
    """

    approval: str
    """Id of the approval."""


@attrs.frozen(eq=False, repr=False)
class CallQuestions:
    """Asks owners on behalf of one call of a task, for a call that runs: an MCP server asks the person something before it goes on.

    Each question is an approval (`pegasus.policy`) with a key of its own behind the key of the call. While it is open the task of the
    call is suspended: the tool returns `AwaitsOwner`, and is called again with the same key when the question is over. The tool keeps
    what it has begun until then.

    Example: `id = await context.questions.ask(question, 1); approval = await context.questions.wait(id)`.
    """

    approvals: Ref[ApprovalMessage]
    """The keeper of approvals."""
    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Arguments of the call."""
    key: str
    """Key of the call."""
    task_id: str
    """The task that makes it."""
    principal: Principal
    """The person that it is made for."""

    async def ask(self, question: OwnerQuestion, number: int) -> str:
        """Ask, and return the id of the approval, which is on disk. number: 1 for the first question of the call.

        Raises ApprovalError if too many wait already, StorageError and ActorError. Cancelled: nobody is asked, or not any more.
        """
        why = f"the {question.source} asks before it goes on"
        call = AskedCall(self._key(number), self.tool, self.arguments, why)
        request = ApprovalRequest((call,), self.principal.role, self.principal.channel, self.task_id, question)
        try:
            return (await self.approvals.ask(SeekApproval, request)).id
        except trio.Cancelled:  # the question may be on its way to the disk
            with trio.move_on_after(WITHDRAWN_WITHIN) as scope, suppress(ActorError):
                scope.shield = True
                if approval := await self.approvals.ask(FindApproval, call.key):
                    self.withdraw(approval.id)
            raise

    async def wait(self, id: str) -> Approval:
        """Return the approval when it is not open any more. Raises ApprovalError, ActorError."""
        return await self.approvals.ask(AwaitApproval, id)

    async def were_asked(self) -> bool:
        """Return whether the call has asked before, in this run of the program or an earlier one. Raises ActorError."""
        return await self.approvals.ask(FindApproval, self._key(1)) is not None

    def withdraw(self, id: str) -> None:
        """Withdraw a question that nobody waits for any more."""
        with suppress(ActorError):  # the keeper withdraws it when it starts again
            self.approvals.tell_nowait(WithdrawApprovals((self.task_id,), id))

    def _key(self, number: int) -> str:
        """Return the key of a question of this call. It is the same after a restart, so the question is found again."""
        return f"{self.key}/question-{number}"


@attrs.frozen(eq=False, repr=False)
class ToolContext:
    """Permissions and origin of one call. The model chooses the arguments; it never chooses anything in here.

    An installation makes one context from its settings (`base_context`), and each call derives its
    own.

    Example::

        base = base_context(home.workspace, settings.tools.allowed_paths, context_window=200_000)
        context = attrs.evolve(base, task_id="t-1", key="t-1/call_7", env=environment_of_the_task)
    """

    task_id: str = ""
    """The task that makes the call; "" for the Main Agent."""
    key: str = ""
    """Identifier of the call. A call that is repeated after a crash has the same key."""
    cause: str = ""
    """Message, job, hook or task that the call comes of, e.g. "message telegram:42 17"; for a task that it begins."""
    principal: Principal = NOBODY
    """The person that the call is made for, with their rights."""
    user_id: str | None = None
    """The person that the call is made for, if known."""
    workspace: Path = Path()
    """The folder where relative paths start."""
    folder: str = ""
    """Folder of an owner's own that the work is done in, a real path, in place of the workspace; "": it has none."""
    desk: Path | None = None
    """The agent's workspace, where `folder` takes its place; else None."""
    allowed_paths: tuple[Path, ...] = ()
    """Folders, as real paths. Files in and below them may be read and written; () allows none."""
    closed_paths: tuple[Path, ...] = ()
    """Files and folders, as real paths, that are never allowed, whatever allowed folder they are in; but the workspace is."""
    open_paths: tuple[Path, ...] = ()
    """Folders in closed ones that are allowed all the same."""
    guests: Path | None = None
    """Folder with one for each guest (`places`); None: guests have no files."""
    guest_bytes: int = 0
    """Bytes that a guest's folder may hold; 0 = any number."""
    origin: ChannelInfo | None = None
    """The channel of the message that the call is made for, if there is one."""
    env: dict[str, str] = attrs.field(factory=dict)
    """Variables set by `set_env`. All calls of a task share this mapping; commands receive them."""
    commands: BackgroundCommands | None = None
    """Background commands of the task, which end with it; None for callers that cannot have any."""
    max_result: int = MAX_RESULT
    """Characters that a result may have. The executor cuts longer ones, unless the tool limits
    itself."""
    role: str = ""
    """The caller's role if `task_id` does not tell it, such as "reflection"."""
    outside: tuple[Untrusted, ...] = ()
    """Kinds of outside sources that the caller has read before. Policy asks for them, memory notes them with
    what it stores, and a task that the call begins inherits them."""
    has_seen: Callable[[str], bool] = lambda text: False
    """Return whether a text stands in the conversation, other than in what the model itself has written. An address that does
    carries nothing out when it is fetched."""
    owner_messages: tuple[OwnerMessage, ...] = ()
    """Messages that an owner has typed and that the call comes of."""
    earlier: Callable[[], Sequence[ValueCall]] = tuple
    """Returns the calls that the caller has made before this one."""
    will_hold: Callable[[str, bytes, bytes | None], None] = lambda path, after, before: None
    """Told in a thread, before a file is changed, its real path, the content after and, if that is made of it, the one before."""
    changes: KeptChanges | None = None
    """Keeps what file tools change, so that a person can take it back; None: nothing is kept."""
    show_edit: Callable[[FileEdit], None] | None = None
    """Shows people that a file was changed. Called in a thread. None: nobody watches."""
    questions: CallQuestions | None = None
    """Asks an owner while the call runs. None: nobody can be asked, since only a task can wait for the answer."""
    holds: bool = False
    """The caller keeps what it wants to do until an owner has answered, although it is no task that could wait."""
    client: ClientOffer | None = None
    """Tools that the client of the conversation carries out in place of ours; None: it offers none. Set by the gate."""
    answer_calls: Callable[[], Sequence[PlannedCall]] = tuple
    """Returns the calls of the same answer of the model that were not made yet, this one among them, in their order."""

    @property
    def places(self) -> tuple[Path, ...]:
        """Folders in which the work is at home: `workspace`, and the agent's own if that is another one."""
        return (self.workspace,) if self.desk is None else (self.workspace, self.desk)


@attrs.frozen(eq=False, repr=False)
class PlannedCall:
    """A call that is not made yet, with everything that is known of it.

    Example: `PlannedCall(tool, {"to": "ann@example.com"}, context)`, where the context has the key of that call.
    """

    tool: Tool
    """The tool."""
    arguments: Metadata
    """Arguments, checked against the schema of the tool."""
    context: ToolContext
    """Context in which it will be made."""


NO_CONTEXT: Final = ToolContext()
"""A context that allows no files, for tools that need none."""


@attrs.frozen(eq=False, repr=False)
class Tool:
    """A tool that can be registered and run.

    Example::

        SPEC = ToolSpec("reverse", "Reverse a text.", parameters({"text": {"type": "string"}}, "text"))

        async def reverse(arguments: Metadata, context: ToolContext) -> Json:
            return {"text": arguments["text"][::-1]}

        REVERSE = Tool(SPEC, reverse, effect=Effect.PURE, reach=Reach.INSIDE)
    """

    spec: ToolSpec
    """Name, description and JSON Schema as the model sees them. Arguments are checked against this
    schema before `run`."""
    run: Callable[
        [Metadata, ToolContext], Awaitable[Json | LabelledResult | ResultWithImages | AwaitsOwner | ToolOutcome]
    ]
    """The work. Returns JSON (`LabelledResult` if its origin depends on the call, `ResultWithImages` with pictures). Raises ToolError.
    `ToolOutcome`: a result as it was recorded before.
    `AwaitsOwner`: it has asked an owner (`ToolContext.questions`), and will be called again with the same key when the question is
    over. It is cancelled at the deadline of the call, so it must clean up on cancel."""
    category: str = "custom"
    """One of system, file, network, data, memory, code, task, mcp, media, custom."""
    effect: Effect = Effect.ONCE
    """The default is the cautious one."""
    more: str = "Ask for less at a time."
    """A sentence for the model: how to get the rest of a result that was cut."""
    reach: Reach = Reach.OUTSIDE
    """Reach of a call. The default is the cautious one."""
    source: Untrusted | None = None
    """The kind of source that its results come from; None if they are the program's own words."""
    repeats: bool = False
    """True if the same call may be made again and again, because it waits for something."""
    timeout: float = 0.0
    """Seconds for one call, unless the settings name this tool; 0 = `tools.timeout`."""
    kind: ToolKind | None = None
    """Kind of a tool of another program; None for one of this program, which category and reach describe."""
    server: str = ""
    """Name of the MCP server that has it, "" for a tool of this program."""
    identity: str = ""
    """Command or URL of its server and what the server says about the tool beside `spec`; "" for a tool of this program. A grant
    is bound to it."""

    advice: Callable[[], str] = lambda: ""
    """Returns a sentence for the owner who is asked about a call, on how to be asked less; "" where there is none."""

    @property
    def fingerprint(self) -> str:
        """Hash of what a grant for this tool is bound to: a tool that was changed has another one."""
        told: list[Json] = [self.identity, self.name, self.spec.description, self.spec.parameters]
        return blake2b(encode_json(told).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.spec.name

    def value_call(self, arguments: Metadata) -> ValueCall:
        """Return a call of it, as far as the values matter."""
        return ValueCall(self.name, self.kind, arguments, self.spec.parameters)


@attrs.frozen(eq=False, repr=False)
class ToolOutcome:
    """The result of one call as the conversation stores it.

    Example::

        outcome = await executor.run(REVERSE, {"text": "abc"}, context)
        outcome.content                           # '{"text":"cba"}'
        ToolOutcome.failure("text is empty").why  # "text is empty"
    """

    content: str
    """The result as JSON, or `Error: …`."""
    failed: bool
    """True if `content` is an error."""
    duration_ms: int = 0
    """Time that the call took; 0 if it was not measured."""
    outside: tuple[Untrusted, ...] = ()
    """Sources of the text of `content`; () if it is the program's own."""
    pictures: tuple[Media, ...] = attrs.field(default=(), repr=False)
    """Pictures that belong to the result."""
    approval: str = ""
    """Id of the approval that the call waits for, so that it has no result yet; otherwise ""."""

    @classmethod
    def failure(cls, why: str) -> Self:
        """Return the outcome of a call that failed or was not made. Its content begins with `Error:`, which models recognise."""
        return cls(f"{ERROR}{why}", failed=True)

    @property
    def why(self) -> str:
        """Reason of a failure, without the word that a model recognises it by; "" if the call succeeded."""
        return self.content.removeprefix(ERROR) if self.failed else ""


def parameters(properties: Mapping[str, Json], *required: str) -> Metadata:
    """Return the JSON Schema of a tool's arguments: an object with these properties and no others.

    `parameters({"text": {"type": "string"}}, "text")` has one property, which must be given.
    """
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}
