"""A task as the protocol sees it, made of the events in its log.

Everything that clients are told comes of this one function of the log: the task itself, the updates of a stream and those that are
pushed. So all streams of a task have the same updates in the same order, after a restart as before, and an update is named by its
number.

States are mapped so:

    IDLE                           SUBMITTED
    REASONING, ACTING, paused      WORKING
    SUSPENDED by a question        INPUT_REQUIRED
    SUSPENDED by an approval       AUTH_REQUIRED
    COMPLETED with its result      COMPLETED
    FAILED                         FAILED; CANCELED if a person or the client has ended it

A task that is over stays so for its client, though its owner may let it go on here: the protocol knows no way back from such a state.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs

from pegasus.events import Event, EventType
from pegasus.messages import A2A_CLIENT, Json, Metadata
from pegasus.tasks import FOR_APPROVAL, FOR_PERSON, STOPPED
from pegasus.wire import decode_json

SUBMITTED: Final = "TASK_STATE_SUBMITTED"
WORKING: Final = "TASK_STATE_WORKING"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
REJECTED: Final = "TASK_STATE_REJECTED"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"
TASK_STATES: Final = (SUBMITTED, WORKING, COMPLETED, FAILED, CANCELED, INPUT_REQUIRED, REJECTED, AUTH_REQUIRED)
"""All states of the protocol."""
OVER: Final = frozenset({COMPLETED, FAILED, CANCELED, REJECTED})
"""States that no task leaves."""
INTERRUPTED: Final = frozenset({INPUT_REQUIRED, AUTH_REQUIRED})
"""States in which a task waits for somebody."""

ARTIFACT: Final = "result"
"""Id of the one artifact of a task."""
PAUSED: Final = "Paused by the owner of this agent."
TELLING: Final = frozenset(
    {
        EventType.NEED_MORE_INFO,
        EventType.TASK_SUSPENDED,
        EventType.TASK_RESUMED,
        EventType.TASK_NOTIFY,
        EventType.TASK_COMPLETED,
        EventType.TASK_FAILED,
    }
)
"""Events that tell a client something; so does the first thought of a task."""
_FENCE: Final = re.compile(r"```(?:json)?[^\S\n]*\n(.*)```", re.DOTALL)
_FILE: Final = re.compile(
    r"!?\[([^\[\]\n]{1,256})\]\((data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)|https?://[^\s()\[\]]+)\)"
)
"""A link of Markdown that is a file: its content, or its address. No part of it may hold the beginning of another link, so that the
search takes time in proportion to the text, which a client can have the model say."""


@attrs.frozen
class TaskClient:
    """The client that a task belongs to, as the metadata of the task has it."""

    token: str
    """Name of its token; "" for the owner's."""
    context: str
    """Its contextId."""
    message: str
    """Id of the message that has begun it."""


@attrs.define(eq=False, repr=False)
class TaskRecord:
    """A task after some events. Made by `record_of`; changed by nobody else."""

    task_id: str
    client: TaskClient
    state: str = SUBMITTED
    at: int = 0
    """Wall clock of the state, ms."""
    message: Json = None
    """Message of the state; None if it has none."""
    history: list[Json] = attrs.field(factory=list)
    artifacts: list[Json] = attrs.field(factory=list)
    updates: list[Json] = attrs.field(factory=list)
    """Updates for streams, StreamResponse objects, oldest first."""
    times: list[int] = attrs.field(factory=list)
    """Wall clock of each update, ms."""
    heard: set[str] = attrs.field(factory=set)
    """Ids of the messages that it has got since."""

    @property
    def is_over(self) -> bool:
        """True if nothing comes any more."""
        return self.state in OVER

    @property
    def is_at_rest(self) -> bool:
        """True if it is over, or waits for somebody."""
        return self.is_over or self.state in INTERRUPTED

    def json(self, history_length: int | None = None, *, artifacts: bool = True) -> dict[str, Json]:
        """Return the task of the protocol. history_length: messages that are shown at most; None: all."""
        shown: dict[str, Json] = {"id": self.task_id, "contextId": self.client.context, "status": self._status()}
        if artifacts and self.artifacts:
            shown["artifacts"] = list(self.artifacts)
        kept = self.history if history_length is None else self.history[-history_length:] if history_length else []
        if kept:
            shown["history"] = list(kept)
        return shown

    def _status(self) -> dict[str, Json]:
        status: dict[str, Json] = {"state": self.state, "timestamp": format_time(self.at)}
        return status if self.message is None else {**status, "message": self.message}

    # ---------------------------------------------------------------- events

    def take(self, event: Event) -> None:
        """Apply an event of the log."""
        payload, at = event.payload, event.timestamp
        match event.type:
            case EventType.TASK_CREATED:
                self.at = at
                self._hear(self.client.message, _text(payload, "inputText"))
            case _ if self.is_over:
                return
            case EventType.REASON_DONE if self.state == SUBMITTED:
                self._tell(WORKING, at)
            case EventType.NEED_MORE_INFO:
                self._tell(INPUT_REQUIRED, at, _text(payload, "question"))
            case EventType.TASK_SUSPENDED if payload.get("suspendReason") == FOR_APPROVAL:
                self._tell(AUTH_REQUIRED, at, _who_is_asked(payload))
            case EventType.TASK_SUSPENDED if payload.get("suspendReason") == FOR_PERSON:
                self._tell(WORKING, at, PAUSED)
            case EventType.TASK_RESUMED:
                key, text = _key_of(payload), _text(payload, "newInput")
                if key:
                    self.heard.add(key)
                if text:
                    self._hear(key or f"{self.task_id}-in-{len(self.history)}", text)
                self._tell(WORKING, at)
            case EventType.TASK_NOTIFY:
                self._tell(WORKING, at, _text(payload, "message"))
            case EventType.TASK_COMPLETED:
                result = payload.get("finalResult")
                response = result.get("response") if isinstance(result, Mapping) else None
                self._give(str(response or ""), at)
                self._tell(COMPLETED, at)
            case EventType.TASK_FAILED:
                is_stopped = payload.get("reason") == STOPPED
                self._tell(CANCELED if is_stopped else FAILED, at, _text(payload, "error"))

    def _hear(self, message_id: str, text: str) -> None:
        self.history.append(self._message("ROLE_USER", message_id, text))

    def _tell(self, state: str, at: int, text: str = "") -> None:
        """Change the state, and tell so."""
        self.state, self.at, self.message = state, at, None
        if text:
            self.message = self._message("ROLE_AGENT", f"{self.task_id}-{len(self.updates)}", text)
            if not self.is_over:
                self.history.append(self.message)
        self._update("statusUpdate", at, {"status": self._status()})

    def _give(self, response: str, at: int) -> None:
        """Add the result."""
        parts: list[Json] = list(parts_of(response))
        artifact: dict[str, Json] = {"artifactId": ARTIFACT, "name": ARTIFACT, "parts": parts}
        self.artifacts.append(artifact)
        self._update("artifactUpdate", at, {"artifact": artifact, "lastChunk": True})

    def _update(self, kind: str, at: int, facts: Mapping[str, Json]) -> None:
        self.updates.append({kind: {"taskId": self.task_id, "contextId": self.client.context, **facts}})
        self.times.append(at)

    def _message(self, role: str, message_id: str, text: str) -> dict[str, Json]:
        return {
            "messageId": message_id,
            "role": role,
            "parts": [{"text": text}],
            "contextId": self.client.context,
            "taskId": self.task_id,
        }


def record_of(task_id: str, events: Sequence[Event]) -> TaskRecord | None:
    """Return the task of a log; None if no client of this protocol has begun it."""
    if not events or events[0].type is not EventType.TASK_CREATED:
        return None
    metadata = events[0].payload.get("inputMetadata")
    client = client_of(metadata) if isinstance(metadata, Mapping) else None
    if client is None:
        return None
    record = TaskRecord(task_id, client)
    for event in events:
        record.take(event)
    return record


def client_of(metadata: Metadata) -> TaskClient | None:
    """Return the client that a task belongs to; None if it is none of this protocol."""
    found = metadata.get(A2A_CLIENT)
    if not isinstance(found, Mapping):
        return None
    token, context, message = found.get("token"), found.get("context"), found.get("message")
    if not (isinstance(token, str) and isinstance(context, str) and isinstance(message, str)):
        return None
    return TaskClient(token, context, message)


def parts_of(response: str) -> list[Json]:
    """Return an answer as parts of an artifact: data if it is JSON as a whole, else its text, and the files that it links.

    >>> parts_of('{"n": 1}')
    [{'data': {'n': 1}, 'mediaType': 'application/json'}]
    """
    whole = response.strip()
    fenced = _FENCE.fullmatch(whole)
    if (found := _data_of(fenced[1].strip() if fenced else whole)) is not None:
        return [{"data": found, "mediaType": "application/json"}]
    files: list[Json] = [part for match in _FILE.finditer(whole) if (part := _file_of(match)) is not None]
    left = _FILE.sub("", whole).strip() if files else whole
    return [{"text": response}, *files] if left or not files else files


def _data_of(text: str) -> Json:
    """Return the object or list that a text is; None for any other text."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _file_of(match: re.Match[str]) -> Json:
    """Return a link as the part of a file; None for one that is no file."""
    name, target, mime, content = match.groups()
    if content is None:
        kind = mimetypes.guess_type(name)[0]
        return {"url": target, "filename": name, "mediaType": kind} if kind else None
    try:
        raw = base64.b64encode(base64.b64decode(content)).decode()
    except (binascii.Error, ValueError):
        return None
    return {"raw": raw, "filename": name, "mediaType": mime}


def format_time(at: int) -> str:
    """Return a wall clock in ms as the protocol writes it: "2026-02-25T12:00:00.000Z"."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(payload: Metadata, key: str) -> str:
    text = payload.get(key)
    return text if isinstance(text, str) else ""


def _key_of(payload: Metadata) -> str:
    """Return the id of the message that a task was resumed with, "" if it was no message."""
    entries = payload.get("newMessages")
    for entry in entries if isinstance(entries, list) else ():
        metadata = entry.get("metadata") if isinstance(entry, Mapping) else None
        key = metadata.get("key") if isinstance(metadata, Mapping) else None
        if isinstance(key, str):
            return key
    return ""


def _who_is_asked(payload: Metadata) -> str:
    """Return the sentence of a task that waits for an approval, with the tools that it wants to call."""
    plan = payload.get("plan")
    steps = plan.get("steps") if isinstance(plan, Mapping) else None
    names: list[str] = []
    for step in steps if isinstance(steps, list) else ():
        call = step.get("call") if isinstance(step, Mapping) and not step.get("completed") else None
        if isinstance(call, Mapping) and isinstance(name := call.get("name"), str) and name not in names:
            names.append(name)
    what = f": {', '.join(names)}" if names else ""
    return f"The owner of this agent has to allow a call first{what}. They are asked by the agent itself; nothing has to be sent here."
