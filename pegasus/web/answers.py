"""Bodies and answers of the HTTP API that are no values of the agent itself. Imported when somebody asks for its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from pegasus.access import CallGrant, OwnerRequest
from pegasus.channels import ChannelState
from pegasus.mcp import ServerState
from pegasus.messages import Address, ApprovalNotice, ChannelInfo, Json, Metadata, TaskProgress
from pegasus.schedule import Job
from pegasus.tasks import TaskView
from pegasus.wire import SnakeCase


@attrs.frozen
class EndedJson:
    """Work that was ended."""

    kind: str
    what: str
    seconds: float
    number: int | None = None


@attrs.frozen
class InterruptAnswer:
    """The answer that was ended, and what goes on."""

    interrupted: bool
    text: str
    tasks: tuple[TaskProgress, ...]
    waiting: int
    ended: EndedJson | None = None


# ------------------------------------------------------------------ OpenAI's interfaces


@attrs.frozen
class VectorJson(SnakeCase):
    """A vector: numbers, or these as base64."""

    object: Literal["embedding"]
    index: int
    embedding: str | tuple[float, ...]


@attrs.frozen
class EmbeddingsAnswer(SnakeCase):
    """Vectors, in the order of the texts."""

    object: Literal["list"]
    data: tuple[VectorJson, ...]
    model: str
    usage: Metadata


@attrs.frozen
class TranscriptionAnswer(SnakeCase):
    """The words of a recording, and what else the model tells."""

    text: str


# ------------------------------------------------------------------ the agent


@attrs.frozen
class StatusAnswer:
    """The work and the state of the agent; `tasks` is null while the task system starts."""

    agent: str
    version: str
    started_at: int
    code_changed: bool
    uptime: float
    model: str
    speech: str
    window: int | None
    thinking: Metadata | None
    waiting: int
    in_hand: int
    tasks: Mapping[str, int] | None
    running: tuple[TaskProgress, ...]
    handled: int
    session_entries: int
    mcp: tuple[ServerState, ...]
    channels: tuple[ChannelState, ...]
    sandbox: Metadata
    approvals: int
    granted: int
    usage: Metadata
    failing_models: tuple[Metadata, ...]
    node: str = ""


@attrs.frozen
class ActorJson:
    """An actor or a supervisor, with what is below it."""

    name: str
    path: str
    state: str
    attempt: int
    restarts: int
    depth: int
    handled: int
    children: tuple[ActorJson, ...] = ()
    reason: str = ""


@attrs.frozen
class UsedJson:
    """Sum of calls of models."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: float
    unpriced_calls: int
    estimated_calls: int
    model: str | None = None
    channel: str | None = None
    task_id: str | None = None
    item: int | None = None
    day: str | None = None


@attrs.frozen
class BudgetJson:
    """A budget of the settings, and what is used of it."""

    key: str
    what: str
    cost: float
    tokens: int
    cost_used: float
    tokens_used: int


@attrs.frozen
class UsageAnswer:
    """Calls of models, with days if they were asked for."""

    day: str
    today: UsedJson
    month: str
    this_month: UsedJson
    models: tuple[UsedJson, ...]
    channels: tuple[UsedJson, ...]
    tasks: tuple[UsedJson, ...]
    messages: tuple[UsedJson, ...]
    budgets: tuple[BudgetJson, ...]
    counting: str = ""
    days: tuple[UsedJson, ...] = ()


@attrs.frozen
class ChannelsAnswer:
    """Adapters of chat services."""

    channels: tuple[ChannelState, ...]


@attrs.frozen
class NodeJson:
    """A node, with what it owns; `state` is "up", "draining", or "gone" when its lease has ended."""

    name: str
    address: str
    version: str
    settings: str
    state: str
    lease_left: float
    chats: int
    tasks: int
    owns: tuple[str, ...]


@attrs.frozen
class NodesAnswer:
    """The nodes that share the database, and the one that answers; none where everything is in files."""

    here: str
    nodes: tuple[NodeJson, ...]


@attrs.frozen
class ServersAnswer:
    """MCP servers of the settings."""

    servers: tuple[ServerState, ...]


@attrs.frozen
class SortingAnswer:
    """The settings about the tools of an MCP server."""

    name: str
    trust: str
    reads: tuple[str, ...]
    fetches: tuple[str, ...]
    acts: tuple[str, ...]
    asks: tuple[str, ...]


@attrs.frozen
class ServerTool:
    """A tool of an MCP server, with its kind."""

    name: str
    kind: str
    if_trusted: str
    says: Json = None


@attrs.frozen
class ServerToolsAnswer(SortingAnswer):
    """The tools of an MCP server."""

    is_sorted: bool
    total: int
    counts: Mapping[str, int]
    tools: tuple[ServerTool, ...]


# ------------------------------------------------------------------ tasks, memory, skills


@attrs.frozen
class TasksAnswer:
    """Background tasks."""

    tasks: tuple[TaskView, ...]


@attrs.frozen
class EventJson:
    """An event of a task."""

    type: str
    ts: int
    data: Metadata
    source: str = ""
    task_id: str = ""


@attrs.frozen
class TaskLogAnswer:
    """A task and its last events."""

    task: TaskView
    events: tuple[EventJson, ...]


@attrs.frozen
class TaskChangeAnswer:
    """A change of a task: `status` is resumed, suspended, suspending or continued."""

    task_id: str
    status: str
    text: str = ""


@attrs.frozen
class FileJson:
    """A file of memory."""

    path: str
    summary: str
    size: int
    marked: tuple[str, ...]


@attrs.frozen
class FilesAnswer:
    """The files of memory."""

    files: tuple[FileJson, ...]


@attrs.frozen
class FileAnswer:
    """A file of memory as a whole."""

    path: str
    content: str


@attrs.frozen
class SearchAnswer:
    """Passages, the best first. `notice` says so if the search was incomplete, or found nothing."""

    results: tuple[Metadata, ...]
    notice: str = ""


@attrs.frozen
class WrittenAnswer:
    """A file that was written."""

    path: str
    size: int


@attrs.frozen
class ChangeJson:
    """A change of memory, with the lines that went and came; null if they are not kept."""

    n: int
    ts: int
    path: str
    how: str
    by: Metadata
    removed: str | None
    added: str | None
    undoes: int = 0


@attrs.frozen
class ChangesAnswer:
    """Changes of memory, newest first."""

    changes: tuple[ChangeJson, ...]


@attrs.frozen
class UndoAnswer:
    """The change that undoes another one."""

    change: ChangeJson


@attrs.frozen
class SkillJson:
    """A skill; null where it leaves a value to the agent."""

    name: str
    description: str
    source: str
    installed_from: str | None
    revision: str | None
    context: str
    model: str | None
    allowed_tools: tuple[str, ...] | None
    user_invocable: bool
    model_invocable: bool
    text: str


@attrs.frozen
class WaitingSkill:
    """A skill that waits to be accepted."""

    name: str
    changed: bool
    problem: str | None


@attrs.frozen
class SkillsAnswer:
    """Skills, what waits to be accepted, and mistakes in files."""

    skills: tuple[SkillJson, ...]
    proposed: tuple[WaitingSkill, ...]
    problems: tuple[str, ...]


# ------------------------------------------------------------------ conversations


@attrs.frozen
class SessionJson:
    """A session or an archive; `chat` is null for that of all channels."""

    file: str
    chat: str | None
    archive: bool
    bytes: int
    changed: int
    lines: int | None
    began: int | None
    ended: int | None
    previous_session: str | None
    summary: bool


@attrs.frozen
class SessionsAnswer:
    """Sessions, and the offset of the rest."""

    sessions: tuple[SessionJson, ...]
    total: int
    next: int | None


@attrs.frozen
class SessionAnswer:
    """Lines of a session, and where the rest begins."""

    file: str
    chat: str | None
    lines: tuple[Metadata, ...]
    next: int | None


@attrs.frozen
class ConversationJson:
    """A conversation or an archive; `chat` is null for that of all channels. Its last message is worked on in `folder`."""

    key: str
    title: str
    named: bool
    last: int
    messages: int | None
    archived: bool
    chat: str | None
    folder: str = ""


@attrs.frozen
class ConversationsAnswer:
    """Conversations, and the offset of the rest."""

    conversations: tuple[ConversationJson, ...]
    next: int | None


@attrs.frozen
class SaidJson:
    """A message or a reply, as it was said."""

    from_: Literal["user", "agent"]
    text: str
    ts: int
    id: str = ""
    seq: int = 0
    media: tuple[str, ...] = ()
    cut: bool = False
    begins: bool = False
    channel: ChannelInfo | None = None


@attrs.frozen
class MessagesAnswer:
    """A page of a conversation, oldest first, and what to ask with for the one before."""

    messages: tuple[SaidJson, ...]
    before: str | None
    begins: bool = False


@attrs.frozen
class GoneBackAnswer:
    """The message that is answered now, and the one in whose place it is."""

    id: str
    replaces: str


# ------------------------------------------------------------------ approvals, jobs, signing in


@attrs.frozen
class ApprovalsAnswer:
    """Calls that wait for an owner, and what else does."""

    approvals: tuple[ApprovalNotice, ...]
    requests: tuple[OwnerRequest, ...]


@attrs.frozen
class GrantsAnswer:
    """Grants for later calls."""

    granted: tuple[CallGrant, ...]


@attrs.frozen
class RevokedAnswer:
    """A grant that counts no more."""

    revoked: CallGrant


@attrs.frozen
class DecisionAnswer:
    """The approval, or another request, that was answered."""

    approval: ApprovalNotice | None = None
    request: OwnerRequest | None = None


@attrs.frozen
class JobsAnswer:
    """Scheduled jobs."""

    jobs: tuple[Job, ...]


@attrs.frozen
class AddressesAnswer:
    """Conversations that the agent may write to."""

    conversations: tuple[Address, ...]


@attrs.frozen
class PersonJson:
    """Somebody who was let in: since when (ms), and by whom."""

    who: str
    since: int
    by: str


@attrs.frozen
class CodeJson:
    """A code of somebody who wants to write, and the time until which it counts (ms)."""

    code: str
    who: str
    channel_id: str
    expires: int


@attrs.frozen
class PeopleAnswer:
    """People who were let in, and open codes."""

    people: tuple[PersonJson, ...]
    codes: tuple[CodeJson, ...]


@attrs.frozen
class PersonAnswer:
    """The person whom a change was about."""

    who: str


@attrs.frozen
class SettingJson:
    """A key of the settings. `fixed` says why it cannot be changed here; `origin` is empty where the default counts."""

    key: str
    value: str
    origin: str = ""
    restart: bool = False
    doc: str = ""
    allowed: str = ""
    choices: tuple[str, ...] = ()
    fixed: str = ""


@attrs.frozen
class SettingsTable:
    """A table of the settings."""

    name: str
    path: tuple[str, ...]
    keys: tuple[SettingJson, ...]


@attrs.frozen
class SettingsAnswer:
    """The settings in force. `mayEdit`: the caller may change those that are not fixed."""

    sections: tuple[SettingsTable, ...]
    may_edit: bool


@attrs.frozen
class ReloadAnswer:
    """The keys that have changed now, and those that change at the next start."""

    changed: tuple[str, ...]
    after_restart: tuple[str, ...]


@attrs.frozen
class SettingAnswer(ReloadAnswer):
    """The new value of a key as well."""

    value: str


@attrs.frozen
class LogAnswer:
    """Lines of the log, and the byte behind them."""

    lines: tuple[str, ...]
    end: int


@attrs.frozen
class DescribedName:
    """A command or a skill."""

    name: str
    description: str


@attrs.frozen
class CompletionsAnswer:
    """Commands, skills and models that a person may type, and the model of the conversation."""

    commands: tuple[DescribedName, ...]
    skills: tuple[DescribedName, ...]
    models: tuple[str, ...]
    model: str


@attrs.frozen
class HtmlAnswer:
    """HTML that a page may insert as it is, one for each text."""

    html: tuple[str, ...]


@attrs.frozen
class ReadyAnswer:
    """Parts that do not run."""

    ready: bool
    down: tuple[str, ...]
    parked: tuple[str, ...]


# ------------------------------------------------------------------ notifications of browsers


@attrs.frozen
class PushJson:
    """A subscription of the browser: `service` is the host of its push service, `about` is "all" or "approvals"."""

    id: str
    service: str
    about: Literal["all", "approvals"]
    text: bool
    since: int


@attrs.frozen
class PushAnswer:
    """The key that a browser subscribes with (`applicationServerKey`), and its subscriptions."""

    key: str
    subscriptions: tuple[PushJson, ...]
