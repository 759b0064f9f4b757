"""Services: everything the Main Agent works with, built by the composition root and handed over once.

All of it are finished objects. Some depend on the settings, which a reload may replace while the process runs: these are handles
(`LiveValue`), whose `now` is what counts at the moment. A `LanguageModel` asks for the present target at each call by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from actors import ActorError, Ref
from pegasus.access import Principal
from pegasus.conversation import Entry, new_fence, to_json
from pegasus.events import BusMessage, Emit, Event, EventType
from pegasus.formatting import CHARACTERS_PER_TOKEN
from pegasus.main_agent.chat_prompt import ChatPrompts
from pegasus.main_agent.delegation import TaskDelegation
from pegasus.main_agent.queue_items import cause_of
from pegasus.main_agent.session import ConversationNames, SessionArchives, SessionFiles
from pegasus.main_agent.toolset import AgentToolset
from pegasus.media import AttachmentReader
from pegasus.messages import Address, InboundMessage, Json, Metadata
from pegasus.models import LanguageModel, TraitStore
from pegasus.settings import AgentSettings, LiveValue, Settings
from pegasus.storage import Disk, FileDisk, GuardedFiles
from pegasus.tools import MIN_RESULT, ToolContext, base_context
from pegasus.wire import to_wire

if TYPE_CHECKING:
    from pegasus.main_agent.compaction import Compactor
    from pegasus.main_agent.consolidation import Consolidator

MOST_STOPPED: Final = 1000
"""Stopped turns that are remembered."""
LONGEST_RESULT: Final = 70_000
"""Characters of a tool's result: the body of the largest skill, and what JSON adds to it. The replay of a task may be megabytes."""

CommandAnswers: TypeAlias = Mapping[str, Callable[[InboundMessage, Principal], Awaitable[str]]]
"""By command ("/usage"), the function that answers it. It may raise StorageError, whose text is then the answer."""


PublishMessage: TypeAlias = Callable[[InboundMessage, Iterable[Entry]], None]
"""Makes a message, and the tool calls among the entries that followed it, known to observers. Never waits, never fails."""


@attrs.frozen(eq=False, repr=False)
class FileAccess:
    """Files that replies may send: `FileAccess(base_context(workspace, (), 0), 20 << 20)`.

    Example::

        files = FileAccess.within(workspace, settings, closed_paths=(home.root,))
        files.max_bytes  # 20 MiB, by the setting
    """

    context: ToolContext
    """Folders that they may be in."""
    max_bytes: int
    """Bytes of all files of one reply: the setting `media.max_bytes`."""

    @classmethod
    def within(
        cls, workspace: Path, settings: Settings, closed_paths: Sequence[Path], guests: Path | None = None
    ) -> FileAccess:
        """Return the access that the settings give. closed_paths: never allowed. guests: folder with one for each guest.

        Reads the file system briefly.
        """
        context = base_context(workspace, settings.tools.allowed_paths, 0, closed_paths, guests=guests)
        return cls(context, settings.media.max_bytes)


class StoppedTurns:
    """The messages whose turns were stopped, for whoever waits for their ends: the last MOST_STOPPED, in memory."""

    def __init__(self) -> None:
        self._items: deque[int] = deque(maxlen=MOST_STOPPED)

    def add(self, items: Iterable[int]) -> None:
        """Note these, before anybody hears that they are done. items: their numbers in the queue."""
        self._items.extend(items)

    def has(self, item: int) -> bool:
        """Return whether the turn of a message was stopped."""
        return item in self._items


@attrs.frozen(eq=False, repr=False)
class AgentServices:
    """Everything that the Main Agent is given when it starts.

    Example: `AgentServices(model=client, toolset=LiveValue(AgentToolset(prompt, executor)), clock=wall_clock)`. The rest is optional.
    """

    model: LanguageModel
    """Model that thinks."""
    toolset: LiveValue[AgentToolset]
    """Prompt, tools and skills; a reload replaces it where they depend on settings."""
    clock: Callable[[], int]
    """Returns the wall-clock time in ms."""
    started: float = 0.0
    """Trio's clock (seconds) when the program started, for the uptime in /status. The agent of a chat may have begun just now."""
    config: LiveValue[AgentSettings] = attrs.field(factory=lambda: LiveValue(AgentSettings()))
    """Limits and manners: the settings [agent]."""
    memory_index: Callable[[bool], Awaitable[str]] | None = None
    """Returns the text about long-term memory for a session that begins, "" for none. Its argument: guests are heard in it."""
    model_for: Callable[[str], LanguageModel] | None = None
    """Returns the model of a name `<provider>/<model>` or a role, for skills that want another one. Raises ValueError."""
    work: TaskDelegation | None = None
    """Tasks that the tools delegate to; None: there are none."""
    compactor: Callable[[], Compactor | None] = lambda: None
    """Returns what keeps the session within the model's window, always the same object; None if nothing does."""
    consolidator: Consolidator | None = None
    """Makes notes of what leaves the window of a chat's messages; None: nothing leaves it."""
    chat_prompts: ChatPrompts | None = None
    """Makes the ends of prompts where each chat has its own session; None: there are none."""
    context_window: Callable[[str], int] = lambda role: 0
    """Returns how many tokens fit into the model of a role now; 0 if that is not known."""
    traits: TraitStore = attrs.field(factory=TraitStore)
    """Known traits of each model, such as how it speaks."""
    usage_of: Callable[[int], Metadata] | None = None
    """Returns what the model calls for an item have used so far, for people; None: nothing counts it."""
    node: str = ""
    """Name of this node, where several share the state."""
    warnings: LiveValue[tuple[str, ...]] = attrs.field(factory=lambda: LiveValue(()))
    """Facts about this installation that /status tells an owner."""
    files: LiveValue[FileAccess | None] = attrs.field(factory=lambda: LiveValue(None))
    """Files that replies may send; a handle of None: none."""
    is_from_guest: Callable[[Address], bool] = lambda address: False
    """Returns whether a client without the rights of an owner may speak as this conversation, and so gets what is said there."""
    reader: AttachmentReader | None = None
    """Reads PDFs and recordings that people attach; None: they are only named."""
    archives: Callable[[SessionFiles], SessionArchives] | None = None
    """Returns the archives of a session, for people who go on with one; None: there are none."""
    names: ConversationNames = attrs.field(factory=ConversationNames)
    """Names that an owner has given to conversations."""
    stopped: StoppedTurns = attrs.field(factory=StoppedTurns)
    """Turns that were stopped."""
    make_fence: Callable[[], str] = new_fence
    """Makes the id for the fences of a conversation. It must not be possible to guess it."""

    _services_of_chat: Callable[[Address], AgentServices] | None = None
    """Returns the services for the agent of one chat: its model may be another one, and its compactor has the state of its session.
    None: all chats are served alike."""

    def result_limit(self) -> int:
        """Return the characters that a tool's result may have: LONGEST_RESULT, or about a quarter of the window if that is less."""
        window = self.context_window("default")
        # A quarter of the window leaves room for prompt, conversation and answer.
        return min(LONGEST_RESULT, max(MIN_RESULT, window * CHARACTERS_PER_TOKEN // 4)) if window else LONGEST_RESULT

    def for_chat(self, chat: Address) -> AgentServices:
        """Return the services for the agent of one chat."""
        return self if self._services_of_chat is None else self._services_of_chat(chat)


def notes_disk(workspace: str) -> Disk:
    """Return the disk that notes are written to. workspace: the folder that commands may write in, too."""
    return FileDisk(workspace, GuardedFiles(workspace))


def message_publisher(bus: Ref[BusMessage], clock: Callable[[], int]) -> PublishMessage:
    """Return a function that emits MESSAGE_RECEIVED for a message, and events for the tool calls that were made for it.

    It does nothing while the bus does not run or has no room.

    Internal messages have no event here: the task system and the schedule have emitted one for each. Their tool calls have.

    The event of a message is marked as handled by the Main Agent, so the task system makes no task of it. All are emitted after the
    `CompleteItem` of the message, so an observer may see them twice after a crash at that moment, or not at all: the bus is for
    observation, and the journal alone holds the truth about messages.

    clock: returns the wall clock, ms.
    """

    def publish(message: InboundMessage, entries: Iterable[Entry]) -> None:
        """Emit the events of a message and its calls. It does nothing while the bus does not run."""
        if not bus.alive:
            return
        received = None
        if not message.is_internal:
            channel = message.channel
            payload: dict[str, Json] = {"text": message.text, "channel": to_wire(channel), "handledBy": "main-agent"}
            payload["cause"] = cause_of(message)  # as tasks that come of it have it
            received = Event(EventType.MESSAGE_RECEIVED, clock(), str(channel.address), payload=payload)
        emitted = (*((received,) if received else ()), *_call_events(entries, received))
        if emitted:
            with suppress(ActorError):
                bus.tell_nowait(Emit(emitted, for_observers=True))

    return publish


def _call_events(entries: Iterable[Entry], cause: Event | None) -> Iterator[Event]:
    """Make the events of tool calls and their results, in the form that those of tasks have. cause: event of the message."""
    requested: dict[str, tuple[str, Event]] = {}
    for entry in entries:
        for call in entry.calls:
            payload: dict[str, Json] = {"callId": call.id, "toolName": call.name, "params": call.arguments}
            parent_id = cause.id if cause is not None else None
            event = Event(EventType.TOOL_CALL_REQUESTED, entry.ts, "main-agent", payload=payload, parent_id=parent_id)
            requested[call.id] = call.name, event
            yield event
        if entry.call_id in requested:
            name, request = requested[entry.call_id]
            type = EventType.TOOL_CALL_FAILED if entry.failed else EventType.TOOL_CALL_COMPLETED
            result: dict[str, Json] = {"toolName": name, "newMessages": [to_json(entry)]}
            yield Event(type, entry.ts, "main-agent", payload=result, parent_id=request.id)
