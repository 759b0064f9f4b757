"""The other end: an agent of `[agents.NAME]`, which is sent a message and asked for its task until that is done.

Nothing of what the other agent says is believed. Its card may be as large as `MAX_CARD`, and only tells how to speak to it: an address
on another host than the one in the settings is refused, so its card can neither lead into this network nor have the token sent
elsewhere. A signature of the card proves nothing here, since the settings name no key for it. Its answer is text from outside, and
what it sends is bounded: `MAX_ANSWER` bytes of a response, `MAX_FILES` files.

The message's id is made of the key of the call. When the call is stopped, or its time is over, the other's task is cancelled.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote as quote_path
from urllib.parse import urlsplit

import attrs
import trio

from pegasus.a2a.card import VERSION
from pegasus.a2a.record import AUTH_REQUIRED, CANCELED, COMPLETED, INPUT_REQUIRED, INTERRUPTED, OVER
from pegasus.formatting import quote, truncate
from pegasus.messages import Json, Metadata
from pegasus.retry import Pauses
from pegasus.settings import RemoteAgentSettings
from pegasus.tools import AddressGuard, FetchLimits, ToolContext, ToolError, fetch, own_place, save_incoming
from pegasus.wire import decode_json, encode_json

MAX_CARD: Final = 256 << 10
"""Bytes of a card."""
MAX_ANSWER: Final = 16 << 20
"""Bytes of a response."""
MAX_FILES: Final = 20
"""Files of an answer that are kept."""
ANSWER_WITHIN: Final = 60.0
"""Seconds for one response."""
CANCEL_WITHIN: Final = 5.0
"""Seconds that cancelling the other's task may take when ours is stopped."""
MAX_FAILURES: Final = 30
"""Questions about the other's task in a row that may fail: some minutes."""
CARD_PATH: Final = "/.well-known/agent-card.json"
_FOLDER: Final = "agents"
"""Folder of the workspace for files of other agents."""
_LONGEST_PROBLEM: Final = 500
"""Characters of an error of the other agent that are shown."""
_WORDS: Final = {
    COMPLETED: "completed",
    CANCELED: "canceled",
    INPUT_REQUIRED: "input-required",
    AUTH_REQUIRED: "auth-required",
}


@attrs.frozen
class AgentEndpoint:
    """Address and binding by which an agent is spoken to."""

    url: str
    is_rpc: bool
    """JSON-RPC; otherwise HTTP+JSON."""


class RemoteAgent:
    """An agent of the settings. Example: `await RemoteAgent("helper", settings, ()).delegate("find papers", "", context)`."""

    def __init__(self, name: str, settings: RemoteAgentSettings, allowed: Sequence[str]) -> None:
        """allowed: hosts beside public ones that the settings permit; the agent's own is among them."""
        self._name = name
        self._settings = settings
        self._guard = AddressGuard((*allowed, urlsplit(settings.url).hostname or ""))

    async def delegate(self, text: str, task_id: str, context: ToolContext) -> Json:
        """Send a message and return the answer when the other's task is done, or waits for something. Raises ToolError.

        task_id: of a task of the other agent that has asked; "" for a new one.
        """
        endpoint = await self._find()
        message: dict[str, Json] = {
            "messageId": sha256(context.key.encode()).hexdigest()[:32],
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
        if task_id:
            message["taskId"] = task_id
        options: Json = {"returnImmediately": True, "acceptedOutputModes": ["text/plain", "application/json"]}
        answer = await self._call(endpoint, "SendMessage", {"message": message, "configuration": options})
        if isinstance(said := answer.get("message"), Mapping):
            return {"agent": self._name, "state": "completed", **await self._said(said.get("parts"), context)}
        task = answer.get("task")
        if not isinstance(task, Mapping):
            raise ToolError(f"{self._name} answered with neither a task nor a message")
        return await self._shown(await self._followed(endpoint, task), context)

    # ---------------------------------------------------------------- the card

    async def _find(self) -> AgentEndpoint:
        """Return where the agent is spoken to, by its card."""
        base = self._settings.url
        url = base if base.endswith(".json") else base.rstrip("/") + CARD_PATH
        with _deadline(self._name):
            answer = await fetch(self._guard, "GET", url, self._headers, limits=FetchLimits(MAX_CARD, ANSWER_WITHIN))
        if answer.status != 200:
            raise ToolError(f"{self._name}: its card at {url} cannot be had: HTTP status {answer.status}")
        if not answer.complete:
            raise ToolError(
                f"{self._name}: its card is refused: it has more than {MAX_CARD:,} bytes, or ends too early"
            )
        card = _object_of(answer.body, self._name, "its card")
        interfaces = card.get("supportedInterfaces")
        found: list[str] = []
        for entry in interfaces if isinstance(interfaces, list) else ():
            if not isinstance(entry, Mapping):
                continue
            binding, version, place = (str(entry.get(key)) for key in ("protocolBinding", "protocolVersion", "url"))
            found.append(f"{binding} {version}"[:40])
            if binding in ("JSONRPC", "HTTP+JSON") and version.split(".")[:2] == VERSION.split("."):
                if _origin(place) != _origin(base):
                    raise ToolError(
                        f"{self._name}: its card leads to {place[:200]}, another host than that of agents.{self._name}.url; "
                        "the owner can name that one in the settings"
                    )
                return AgentEndpoint(place.rstrip("/"), binding == "JSONRPC")
        raise ToolError(
            f"{self._name}: found {', '.join(found[:10]) or 'no interfaces'} in its card, "
            f"allowed: JSONRPC or HTTP+JSON of version {VERSION}"
        )

    @property
    def _headers(self) -> dict[str, str]:
        token = {"authorization": f"Bearer {self._settings.token}"} if self._settings.token else {}
        return {"a2a-version": VERSION, "accept": "application/json", **token}

    # ---------------------------------------------------------------- requests

    async def _call(self, endpoint: AgentEndpoint, method: str, params: Metadata) -> Mapping[str, Json]:
        """Return the result of an operation. Raises ToolError."""
        http, url, content = "POST", endpoint.url, params
        if endpoint.is_rpc:
            content = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        else:
            task = quote_path(str(params.get("id", "")), safe="")
            http, path = {
                "SendMessage": ("POST", "/message:send"),
                "GetTask": ("GET", f"/tasks/{task}"),
                "CancelTask": ("POST", f"/tasks/{task}:cancel"),
            }[method]
            url += path
        body = encode_json(content).encode("utf-8", "replace") if http == "POST" else None
        headers = {**self._headers, "content-type": "application/json"} if body is not None else self._headers
        with _deadline(self._name):
            answer = await fetch(self._guard, http, url, headers, body, limits=FetchLimits(MAX_ANSWER, ANSWER_WITHIN))
        if not answer.complete:
            raise ToolError(f"{self._name}: its answer has more than {MAX_ANSWER:,} bytes, or ends too early")
        if answer.status in (401, 403):
            raise ToolError(f"{self._name} refuses the token of agents.{self._name} (HTTP status {answer.status})")
        found = _object_of(answer.body, self._name, f"its answer (HTTP status {answer.status})")
        if isinstance(error := found.get("error"), Mapping):
            problem = truncate(str(error.get("message", "no reason")), _LONGEST_PROBLEM)
            raise ToolError(f"{self._name} refuses: {problem}")
        result = found.get("result") if endpoint.is_rpc else found
        if not isinstance(result, Mapping):
            raise ToolError(f"{self._name} answered with no result (HTTP status {answer.status})")
        return result

    async def _followed(self, endpoint: AgentEndpoint, task: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the other's task when it is over or waits for something. Cancelled: it is cancelled, too."""
        id, pauses, failures, is_at_rest = str(task.get("id")), Pauses(0.5, 10.0), 0, False
        try:
            while not (is_at_rest := _state_of(task) in OVER | INTERRUPTED):
                await trio.sleep(pauses.next())
                try:
                    task, failures = await self._call(endpoint, "GetTask", {"id": id}), 0
                except ToolError:  # it may be restarted at this moment
                    failures += 1
                    if failures > MAX_FAILURES:
                        raise
            return task
        finally:
            if not is_at_rest:
                with trio.move_on_after(CANCEL_WITHIN, shield=True):
                    with suppress(ToolError):  # it is over, or cannot be reached
                        await self._call(endpoint, "CancelTask", {"id": id})

    # ---------------------------------------------------------------- the answer

    async def _shown(self, task: Mapping[str, Json], context: ToolContext) -> Json:
        """Return the result of the tool for a task that is over, or waits."""
        state = _state_of(task)
        shown: dict[str, Json] = {
            "agent": self._name,
            "task": str(task.get("id")),
            "state": _WORDS.get(state, "failed"),
        }
        status = task.get("status")
        message = status.get("message") if isinstance(status, Mapping) else None
        if state != COMPLETED and isinstance(message, Mapping):
            shown["says"] = (await self._said(message.get("parts"), context)).get("text", "")
        if state == INPUT_REQUIRED:
            shown["next"] = "call delegate_to_agent again with this task and the answer as text"
        artifacts = task.get("artifacts")
        parts: list[Json] = []
        for artifact in artifacts if isinstance(artifacts, list) else ():
            if isinstance(artifact, Mapping) and isinstance(inner := artifact.get("parts"), list):
                parts += inner
        return {**shown, **await self._said(parts, context)}

    async def _said(self, parts: Json, context: ToolContext) -> dict[str, Json]:
        """Return parts as text, and files, which are saved in the workspace."""
        texts: list[str] = []
        files: list[Json] = []
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, Mapping):
                continue
            name, has_room = str(part.get("filename") or ""), len(files) < MAX_FILES
            if isinstance(text := part.get("text"), str):
                texts.append(text)
            elif isinstance(raw := part.get("raw"), str) and has_room:
                files.append(await self._saved(raw, name, context))
            elif isinstance(url := part.get("url"), str) and has_room:
                files.append({"url": url[:2048], "name": name[:256]})
            elif "data" in part:
                texts.append(encode_json(part["data"]))
        return {**({"text": "\n\n".join(texts)} if texts else {}), **({"files": files} if files else {})}

    async def _saved(self, raw: str, name: str, context: ToolContext) -> Json:
        """Save a file in the folder for this agent's files. Its name is that of the other agent, less any folder."""
        try:
            plain = raw.replace("-", "+").replace("_", "/").rstrip("=")
            content = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            return {"name": name[:256], "problem": "its content is no base64"}
        # The hash keeps files of the same name apart, and the same file is kept once.
        own = PurePosixPath(name.replace("\\", "/")).name.lstrip(".")[-100:] or "file"
        path = f"{_FOLDER}/{self._name}/{sha256(content).hexdigest()[:8]}-{own}"
        place = own_place(attrs.evolve(context, allowed_paths=(context.workspace,)))
        try:
            save = partial(save_incoming, place, path, own, content, replace=True)
            saved = await trio.to_thread.run_sync(save)
        except ToolError as error:
            return {"name": own, "problem": str(error)}
        return {"path": saved, "size": len(content)}


def find_agent(agents: Mapping[str, RemoteAgentSettings], wanted: str) -> tuple[str, RemoteAgentSettings]:
    """Return name and settings of an agent, by its name or its address. Raises ToolError for any other."""
    for name, agent in agents.items():
        if wanted.rstrip("/") in (name, agent.url.rstrip("/")):
            return name, agent
    raise ToolError(f"found {quote(wanted, 200)}, allowed: {', '.join(agents)} (the agents of the settings)")


@contextmanager
def _deadline(name: str) -> Iterator[None]:
    """End a request that takes too long. Raises ToolError."""
    with trio.move_on_after(ANSWER_WITHIN) as scope:
        yield
    if scope.cancelled_caught:
        raise ToolError(f"{name} does not answer within {ANSWER_WITHIN:g} s")


def _object_of(body: bytes, name: str, what: str) -> Mapping[str, Json]:
    try:
        value = decode_json(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise ToolError(f"{name}: {what} is no JSON object")
    return value


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None
    return parts.scheme, (parts.hostname or "").lower(), port


def _state_of(task: Mapping[str, Json]) -> str:
    status = task.get("status")
    return str(status.get("state")) if isinstance(status, Mapping) else ""
