"""The outside world of a replay: models and tools that answer as they did, and the home in memory.

The tree is the product's own, as in a simulation (`pegasus.testing`). Tools that work on what the agent itself keeps (memory, tasks,
jobs, conversations) are carried out; all others give the result that was recorded.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import trio

from actors import Child, Strategy, open_supervisor
from pegasus.access import OWNER_GRANT, TokenGrant
from pegasus.app import (
    CHILD_BACKOFF,
    ROOT_INTENSITY,
    AgentTree,
    Environment,
    open_intake,
    start_channels,
    start_tree,
)
from pegasus.identity import NOTES_FILE, OWNER_FILES, SILENCE, WorkspaceFiles, persona_of_settings, read_persona_state
from pegasus.intake import Intake
from pegasus.main_agent import ConversationNames, model_failure, session_files_of
from pegasus.mcp import McpServers
from pegasus.memory import Memory, NotesFile
from pegasus.messages import Address, ChannelInfo, InboundMessage
from pegasus.models import (
    CallBegun,
    CallPiece,
    ChatChoices,
    Lane,
    LanguageModel,
    ModelConfigError,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelService,
    ModelSwitch,
    PromptSize,
    StreamPiece,
    TextPiece,
    ToolCall,
    ToolSpec,
    TraitStore,
    Usage,
    UserTurn,
    pieces_of,
    read_again,
    without_request_fences,
)
from pegasus.outside import parse_outside
from pegasus.sandbox import NO_SANDBOX, Sandbox, landlock_version
from pegasus.settings import LiveSettings, LiveValue, Settings
from pegasus.skills import BUILT_IN as BUILT_IN_SKILLS
from pegasus.skills import AcceptedSkills, InstalledSkills, SkillCatalog
from pegasus.storage import ROW_FILES
from pegasus.testing import DiskArchives, DiskFolder, DiskMemoryFolder, FakeChannel, MemoryDisk, files_on
from pegasus.tools import Effect, Reach, Tool, ToolError, ToolOutcome, standard_tools
from pegasus.update.comparison import JOINED, Comparison
from pegasus.update.record import Line, calls_of, facts_of, message_id, parse_lines
from pegasus.update.recorded_answers import AnswersOfPlace, RecordedAnswer, RecordedAnswers

REPLY_TOOL: Final = "reply"
WORKSPACE: Final = "workspace"
"""Folder on the disk in memory that stands for the workspace."""
_NUMBERS: Final = re.compile(r"\d+")
_TRIES: Final = 5
"""Times that a compaction is tried: because of the size, and because the provider has refused the request."""
_WINDOW: Final = 100_000
"""Tokens of a window that nobody knows here."""
_CARRIED_OUT: Final = (
    "memory_",
    "task_",
    "spawn_",
    "sessions_spawn",
    "resume_task",
    "cancel_task",
    "cron",
    "use_skill",
    "session_archive",
    "persona",
    "update_persona",
    "reply",
    "send_file",
    "set_env",
    "get_env",
)
"""Beginnings of the names of tools that work on what the agent keeps."""


@attrs.define(eq=False)
class Stage:
    """Knowledge of a replay while it runs: the record, the clock, and what was asked for in vain."""

    answers: RecordedAnswers
    """Answers of models and tools."""
    disk: MemoryDisk
    """The home in memory."""
    begin: float
    """Wall clock at virtual time 0, ms."""
    found: Comparison
    """Takes what was asked for and is not recorded."""
    nearly_full: float = float("inf")
    """Tokens of a request from which on a conversation is compacted because of its size."""
    starts: Sequence[int] = ()
    """Times at which the process was started, but the first; ms."""
    ends: float = float("inf")
    """Time at which the process that runs was killed, ms: what comes later is for the next one, also while this one stops."""
    _known: dict[int, str] = attrs.field(factory=dict)
    """Ids of the items of the replay, by number."""
    _archives: dict[str, int] = attrs.field(factory=dict)
    """Files of conversations that are to be compacted, as they were when that was due."""
    _tries: dict[str, int] = attrs.field(factory=dict)
    """Times that it was tried."""
    _read: int = 0
    """Bytes of the inbox that were read for that."""

    def clock(self) -> int:
        """Return the wall clock of the replay, ms."""
        return int(self.begin + trio.current_time() * 1000 + 1e-6)

    async def until(self, at: float) -> None:
        """Wait until a time of the record, ms; for ever if the process did not live to see it."""
        if at > self.ends:
            await trio.sleep_forever()
        await trio.sleep_until((at - self.begin) / 1000)

    def number_of_items(self) -> int:
        """Return the number of the last item that was accepted."""
        self._look()
        return max(self._known, default=0)

    def id_of(self, item: int | None) -> str:
        """Return the id of the message of an item."""
        if item not in self._known:
            self._look()
        return self._known.get(item or 0, "")

    def has(self, id: str) -> bool:
        """Return whether a message was accepted."""
        self._look()
        return id in self._known.values()

    def _look(self) -> None:
        """Read what was appended to the inbox."""
        node = self.disk.files.names.get("inbox/inbox.jsonl")
        if node is None or len(node.data) == self._read:
            return
        if len(node.data) < self._read:
            self._read = 0
        new = bytes(node.data[self._read :])
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        for line in parse_lines(new):
            if line.get("type") == "message" and isinstance(line.get("message"), dict):
                self._known[int(line["n"])] = self.answers.recorded_id(message_id(line))

    @property
    def will_be_cut_off(self) -> bool:
        """True if the process was started anew later: what came of a call that runs now may be recorded nowhere."""
        return any(start > self.clock() for start in self.starts)

    def is_too_long(self, path: str) -> bool:
        """Return whether a conversation was compacted before its next thought, and is not yet."""
        due = self.answers.compactions.get(path, [])
        if not due or due[0] > self.answers.thoughts[path]:
            return False
        self._tries[path] = self._tries.get(path, 0) + 1
        archives = sum(
            name.startswith(path.removesuffix("current.jsonl").removesuffix(".jsonl")) for name in self.disk.paths()
        )
        tries = 1 if self.answers.is_near_limit(path, due[0], self.nearly_full) else _TRIES
        if self._archives.setdefault(path, archives) == archives and self._tries[path] <= tries:
            return True
        due.pop(0)
        self._archives.pop(path), self._tries.pop(path)
        return self.is_too_long(path)

    def miss(self, what: str, asked: str) -> None:
        """Note that something was asked for that is not recorded."""
        self.found.add(what, None, {"asked": asked[-400:]})


# ------------------------------------------------------------------ models


class RecordedModel:
    """A model that answers as the models of the record did, at the same times."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.name = name
        """Name of the model of the settings, whose traits are known."""
        self._repeated: dict[str, ModelResponse] = {}

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the next answer of the request's place. Raises the ModelError that was recorded; waits where nothing came."""
        await trio.lowlevel.checkpoint()
        label, stage = request.label, self._stage
        if label.role == "compact":
            return await self._summary(request)
        if label.role == "reflection":
            return await self._reflection(request)
        place, key = self._place(request)
        if not label.task_id and stage.is_too_long(stage.answers.session_of.get(key, "")):
            raise ModelError("the conversation was too long then", kind="overflow")
        if request.asks_again and key in self._repeated:
            return self._repeated[key]
        if not place.answers and place.cut and request.on_pieces is not None:
            offers_reply = any(tool.name == REPLY_TOOL for tool in request.tools)
            start = json.dumps({"text": place.cut})[:-2]
            said: list[StreamPiece] = [CallBegun(0, REPLY_TOOL), CallPiece(0, start)] if offers_reply else []
            request.on_pieces(said or [TextPiece(place.cut)])
        if not place.answers:
            if key in stage.answers.joined:  # it was answered with the next message, which comes now by itself
                return ModelResponse(SILENCE, (), Usage(), JOINED)
            if place.hangs or stage.will_be_cut_off or (not label.task_id and stage.answers.is_unfinished(key)):
                await trio.sleep_forever()
            stage.miss(f"answer of a model for {key}", _last_text(request))
            raise ModelError("the model was asked once more than is recorded", kind="replay")
        answer = place.answers[0]
        await stage.until(answer.at)
        if not label.task_id:
            stage.answers.thoughts[stage.answers.session_of.get(key, "")] += 1
        place.answers.popleft()
        if not answer.entry:
            raise _error_of(answer.error, is_task=bool(label.task_id))
        self._check_seen(request, key, answer)
        response = read_again(_response(answer.entry), request)
        self._repeated[key] = response
        if request.on_pieces is not None and (pieces := list(pieces_of(response))):
            request.on_pieces(pieces)
        return response

    def _place(self, request: ModelRequest) -> tuple[AnswersOfPlace, str]:
        label, answers = request.label, self._stage.answers
        if label.task_id:
            return answers.tasks[label.task_id], label.task_id
        id = self._stage.id_of(label.item)
        return answers.items[id], id

    def _check_seen(self, request: ModelRequest, key: str, answer: RecordedAnswer) -> None:
        """Check that the model is shown what was new to it: the message that it is asked about, the results of its calls."""
        turns = without_request_fences(request).turns[-2 * len(answer.shown) - 2 :]
        seen = "\n".join(
            part
            for turn in turns
            for part in (
                turn.text,
                *(result.content for result in (turn.results if isinstance(turn, UserTurn) else ())),
            )
        )
        seen = _NUMBERS.sub("#", seen)  # some are times
        missing = [text for text in answer.shown if _NUMBERS.sub("#", text) not in seen]
        self._stage.found.sequences(f"shown to the model for {key}", [(0, text) for text in missing], [])

    async def _summary(self, request: ModelRequest) -> ModelResponse:
        label, answers = request.label, self._stage.answers
        if label.channel is not None:
            path = f"sessions/{_file_key(label.channel)}.jsonl"
        else:
            path = answers.session_of.get(self._stage.id_of(label.item), "main/current.jsonl")
        waiting = answers.summaries[path]
        # One that is written in several parts is asked for several times; it is over when its time has passed.
        while len(waiting) > 1 and waiting[0].at < self._stage.clock() - 1:
            waiting.popleft()
        if not waiting:
            if label.channel is None:
                self._stage.miss(f"summary of {path}", _last_text(request))
            raise ModelError("no summary is recorded", kind="replay")
        opening = waiting[0]
        facts = facts_of(opening.entry)
        await self._stage.until(opening.at)
        if facts.get("mechanical") and "consolidation" not in facts:
            raise ModelError("the summary was made without a model", kind="replay")
        notes = facts.get("consolidation")
        if label.channel is not None and isinstance(notes, dict):
            said: dict[str, Any] = {"historyEntry": notes.get("text", "")}
            if isinstance(notes.get("wanted"), str):
                said["memoryUpdate"] = notes["wanted"]
            return ModelResponse(json.dumps(said), (), Usage(), "end")
        return ModelResponse(str(facts.get("summary", "")), (), Usage(), "end")

    async def _reflection(self, request: ModelRequest) -> ModelResponse:
        answer = self._stage.answers.reflections.get(request.label.task_id or "")
        if answer is None:
            await trio.sleep_forever()
            raise AssertionError
        await self._stage.until(answer.at)
        return ModelResponse(str(answer.entry["content"]), (), Usage(), "end")


def _last_text(request: ModelRequest) -> str:
    return request.turns[-1].text if request.turns else ""


def _file_key(channel: ChannelInfo) -> str:
    return session_files_of("chat", channel.address).current.removesuffix(".jsonl")


def _response(entry: Line) -> ModelResponse:
    """Return an entry of the record as the answer of a model."""
    facts = facts_of(entry)
    calls = tuple(
        ToolCall(str(call.get("id", "")), str(call.get("name", "")), call.get("arguments") or {}, call.get("error"))
        for call in calls_of(entry)
    )
    used = facts.get("usage") or {}
    thinking = facts.get("thinking") or ()
    return ModelResponse(
        str(entry.get("content", "")),
        calls,
        Usage(int(used.get("promptTokens") or 0), int(used.get("completionTokens") or 0)),
        str(facts.get("stopReason") or ("tool_calls" if calls else "end")),
        tuple(thinking),
        facts.get("thinkingOf"),
    )


_KINDS: Final = ("server", "auth", "request", "overflow", "budget")
"""Kinds of errors that people are told about in different words."""


def _error_of(text: str, *, is_task: bool) -> ModelError:
    """Return the error that people were told about with this text."""
    if is_task:
        return ModelError(text, kind="server")
    words = text.removeprefix("The model did not answer: ")
    for kind in _KINDS:
        hint = model_failure(ModelError("x", kind=kind)).partition("x.")[2]
        if hint and words.endswith(hint):
            return ModelError(words[: -len(hint)].removesuffix("."), kind=kind)
        if text == model_failure(ModelError("x", kind=kind), is_owner=False):
            return ModelError("x", kind=kind)
    return ModelError(words.removesuffix("."), kind="silent")


@attrs.frozen(eq=False)
class RecordedModels:
    """The models of a replay: all answer from the record, and have the names and windows of the settings."""

    stage: Stage
    real: ModelService | None
    """Knows names and windows; never asked for an answer. None if the settings need keys for it."""
    model: RecordedModel
    traits: TraitStore = attrs.field(factory=TraitStore)
    chat_choices: ChatChoices = attrs.field(factory=ChatChoices)
    usage: None = None

    @property
    def embedder(self) -> None:
        """None: nothing is made a vector."""

    def audio(self, role: str) -> None:
        """Return None: nothing is heard or spoken."""

    def client(self, role: str = "default", lane: Lane = "work") -> LanguageModel:
        """Return the model that answers from the record."""
        return self.model

    def for_chat(self, chat: Address) -> RecordedModels:
        """Return the same models."""
        return self

    def context_window(self, role: str = "default") -> int:
        """Return the window that the settings give a model."""
        if self.real is None:
            return _WINDOW
        with suppress(ModelConfigError, ValueError):
            return self.real.context_window(role) or _WINDOW
        return _WINDOW

    async def measure(self, request: ModelRequest, share: float) -> PromptSize:
        """Return that the conversation is too long where it was compacted, and short everywhere else."""
        await trio.lowlevel.checkpoint()
        window, answers = self.context_window(), self.stage.answers
        path = answers.session_of.get(self.stage.id_of(request.label.item), "")
        return PromptSize(window if self.stage.is_too_long(path) else 0, window)

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return that nothing is counted."""
        return "Usage is not counted."


# ------------------------------------------------------------------ tools


def recorded_tool(stage: Stage, tool: Tool) -> Tool:
    """Return a tool that gives the recorded results, or the tool itself if it works on what the agent keeps."""
    if tool.name.startswith(_CARRIED_OUT) and tool.name != "memory_search":  # its index is no part of the record
        return tool
    return attrs.evolve(tool, run=partial(_recorded_result, stage, tool.name))


async def _recorded_result(stage: Stage, name: str, arguments: Any, context: Any) -> Any:
    """Return the recorded result of a call, when it came. Waits for ever where the call was cut off."""
    owner, _, call_id = context.key.rpartition("/")
    if not context.task_id:
        number = owner.rpartition("/")[2]
        owner = stage.id_of(int(number)) if number.isdigit() else owner
    result = stage.answers.results.get((owner if not context.task_id else context.task_id, call_id))
    if result is None:
        if stage.will_be_cut_off or (context.task_id and stage.answers.tasks[context.task_id].hangs):
            await trio.sleep_forever()
        stage.miss(f"result of {name}", json.dumps(arguments, default=str))
        raise ToolError("no result is recorded for this call")
    content, facts = str(result.get("content", "")), facts_of(result)
    if '"cancelled":true' in content[:40]:
        await trio.sleep_forever()
    await stage.until(float(result.get("ts", 0)))
    return ToolOutcome(content, facts.get("error") is True, outside=parse_outside(facts))


class RecordedServers(McpServers):
    """The tools of MCP servers that the record has results of. No server is started."""

    def __init__(self, stage: Stage, names: Collection[str]) -> None:
        super().__init__()
        self._recorded = {name: _server_tool(stage, name) for name in names}

    def get(self, name: str) -> Tool | None:
        """Return a tool that was called."""
        return self._recorded.get(name)


def _server_tool(stage: Stage, name: str) -> Tool:
    spec = ToolSpec(name, "A tool of a server.", {"type": "object"})
    run = partial(_recorded_result, stage, name)
    return Tool(spec, run, "mcp", Effect.ONCE, reach=Reach.OUTSIDE, server=name.partition("__")[0])


def _names_of_servers_tools(answers: RecordedAnswers) -> set[str]:
    record = answers.record
    entries = [
        *record.entries,
        *(
            {"toolCalls": (ev.get("data") or {}).get("reasoning", {}).get("toolCalls")}
            for events in record.tasks.values()
            for ev in events
            if ev["event"] == "REASON_DONE"
        ),
    ]
    return {str(call.get("name")) for entry in entries for call in calls_of(entry) if "__" in str(call.get("name"))}


# ------------------------------------------------------------------ the tree


@attrs.frozen(eq=False)
class Everybody(TokenGrant):
    """Rights of whoever has written a recorded message: it was let in then, and its metadata says with which role."""

    def owners_for(self, type: str, owners: Collection[str]) -> Collection[str]:
        """Return that everybody may write."""
        return (*owners, f"{type}:*")

    def attest(self, message: InboundMessage, *, is_bridge: bool) -> InboundMessage:
        """Return the message as it was recorded."""
        return message


EVERYBODY: Final = Everybody(OWNER_GRANT.token)


@attrs.frozen(eq=False)
class ReplayWorld:
    """A running tree of a replay."""

    tree: AgentTree
    intake: Intake
    """The way in."""
    stop: Callable[[], Awaitable[object]]
    """Ends all actors."""


def make_environment(stage: Stage, settings: Settings, copy: Path, random: Random) -> Environment:
    """Return the environment of a replay. copy: the copied home."""
    settings = attrs.evolve(
        settings,
        schedule=attrs.evolve(settings.schedule, heartbeat=0),
        mcp=attrs.evolve(settings.mcp, servers={}),
    )
    try:
        real: ModelService | None = ModelService(settings.models, settings.providers, rng=Random(0))  # noqa: S311
        name = real.target("default").name if real is not None else ""
    except (ModelConfigError, ValueError):
        real, name = None, settings.models.default
    models = RecordedModels(stage, real, RecordedModel(stage, name))
    stage.nearly_full = 0.6 * settings.session.compact_threshold * models.context_window()
    known = list(json.loads(stage.disk.content(ROW_FILES["model-traits"][0]) or b"{}"))
    if real is not None and real.target("default").is_offline and known:
        name = known[-1]
    names = (*OWNER_FILES, NOTES_FILE) if settings.agent.scope == "chat" else OWNER_FILES
    files = WorkspaceFiles(Path(WORKSPACE), in_thread=False, names=names, read=files_on(stage.disk).read)
    base = persona_of_settings(settings.agent.persona, lambda path: copy / path)
    walls = _walls(settings)
    clock, disk, workspace = stage.clock, stage.disk, copy / WORKSPACE
    environment = Environment(
        in_force=LiveSettings(settings),
        disk=disk,
        models=attrs.evolve(models, model=RecordedModel(stage, name)),
        persona=LiveValue(read_persona_state(base, copy / "data").persona),
        base_persona=LiveValue(base),
        clock=clock,
        random=random,
        workspace=workspace,
        guests=copy / "guests",
        subagent_folders=(copy / "subagents",),
        skills=SkillCatalog(
            BUILT_IN_SKILLS,
            copy / "skills",
            accepted=AcceptedSkills(copy / "accepted-skills.json", workspace / "skills"),
            installed=InstalledSkills(copy / "installed-skills"),
            in_thread=False,
        ),
        files=files,
        notes_disk=DiskFolder(disk, WORKSPACE),
        open_memory=lambda journal: Memory(
            journal, DiskMemoryFolder(disk), clock, notes=NotesFile(DiskFolder(disk, WORKSPACE))
        ),
        make_tools=lambda memory: standard_tools(settings.tools, memory, clock=clock, sandbox=walls),
        conversation_names=(names_given := ConversationNames()),
        archives=partial(DiskArchives, disk, names_given),
        sandbox=walls,
        mcp=RecordedServers(stage, _names_of_servers_tools(stage.answers)),
        adapt_tool=partial(recorded_tool, stage),
        switch=None if real is None else ModelSwitch(real, _keep_choice),
    )
    environment.may_work.set()
    return environment


async def _keep_choice(spec: str) -> None:
    """Keep a choice of a model nowhere: all answers are recorded ones."""
    await trio.lowlevel.checkpoint()


def _walls(settings: Settings) -> LiveValue[Sandbox]:
    """Return the walls that this machine probably has. None is built, since no command runs."""
    if settings.sandbox.mode == "off":
        return LiveValue(NO_SANDBOX)
    if shutil.which("bwrap"):
        return LiveValue(Sandbox(settings.sandbox.mode, bubblewrap=("bwrap",), network=settings.sandbox.network))
    # As they are for a user without rights: nothing can be tried out here, and only root's Landlock may stop more.
    if version := landlock_version():
        return LiveValue(
            Sandbox(
                settings.sandbox.mode,
                landlock=version,
                gaps=("files",),
                problem="bubblewrap is not installed",
                network=settings.sandbox.network,
            )
        )
    return LiveValue(NO_SANDBOX)


@asynccontextmanager
async def open_replay(environment: Environment, types: Sequence[str]) -> AsyncIterator[ReplayWorld]:
    """Start the tree, with a channel for each type, and stop it behind the block."""
    async with open_supervisor(strategy=Strategy.REST_FOR_ONE, intensity=ROOT_INTENSITY, name="pegasus") as root:
        tree = await start_tree(root, environment)
        intake = await open_intake(tree, environment)
        adapters = {type: Child("replay", FakeChannel(type).run, tree.journal, backoff=CHILD_BACKOFF) for type in types}
        await start_channels(tree, Child("gateway", FakeChannel("").run, tree.journal), adapters)
        yield ReplayWorld(tree, intake, root.stop)
