"""`EditorAgent`: the methods of the Agent Client Protocol that one editor calls."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import trio

from pegasus import __version__
from pegasus.acp.content import read_prompt, text_block
from pegasus.acp.link import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Answered,
    EditorLink,
    RpcError,
)
from pegasus.acp.requests import (
    PROTOCOL,
    EditorCapabilities,
    Initialize,
    ListSessions,
    OfSession,
    OpenSession,
    Prompt,
    SetMode,
    SetOption,
    read_params,
)
from pegasus.acp.session import CHANNEL, PREFIX, TERMINAL, WALLS, EditorSession, channel_of
from pegasus.client import Client, ClientError, FindEndpoint, open_client, read_lines, write_line
from pegasus.formatting import quote
from pegasus.messages import ChannelInfo, Json

MOST_SESSIONS: Final = 100
"""Sessions that one editor may have open."""
LONGEST_ID: Final = 64
"""Characters of the id of a session."""
PAGE: Final = 200
"""Messages of a page of the history."""
LISTED: Final = 50
"""Sessions of a page of the list."""
MODEL: Final = "model"
"""Id of the option that chooses the model."""
MODE: Final = "mode"
"""Id of the option that chooses where commands run."""
MODES: Final[Mapping[str, dict[str, Json]]] = {
    TERMINAL: {
        "name": "In the editor's terminal",
        "description": "Commands run in a terminal of the editor, without walls, and each is asked for",
    },
    WALLS: {
        "name": "Within walls",
        "description": "Commands run in the background, within the walls around the agent's commands",
    },
}
"""Name and description of each mode."""
TAKES_WORDS: Final = frozenset(
    {"model", "speech", "compact", "resume", "rename", "approve", "deny", "pause", "continue"}
)
"""Commands behind which something may be typed."""

FolderProblem = Callable[[str], str]


class EditorAgent:
    """Sessions of one editor, and the methods that it may call. It is the handler of an `EditorLink`."""

    def __init__(
        self,
        link: EditorLink,
        nursery: trio.Nursery,
        find: FindEndpoint,
        start: Callable[[], Awaitable[None]],
        folder_problem: FolderProblem,
        room: int,
    ) -> None:
        """Take what the command line knows.

        find: looks the daemon up. start: starts one if none runs; raises ClientError. folder_problem: says why tasks cannot work in
        a folder. room: bytes that a message may have with its files.
        """
        self._link = link
        self._nursery = nursery
        self._find = find
        self._start = start
        self._folder_problem = folder_problem
        self._room = room
        self._editor: EditorCapabilities | None = None
        """Methods of the editor; None before it has named them."""
        self._sessions: dict[str, tuple[EditorSession, trio.CancelScope]] = {}
        """Open sessions by id."""
        self._methods: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Json | Answered]]] = {
            "session/new": lambda params: self._new(read_params(params, OpenSession)),
            "session/load": lambda params: self._load(read_params(params, OpenSession)),
            "session/resume": lambda params: self._resume(read_params(params, OpenSession)),
            "session/list": lambda params: self._list(read_params(params, ListSessions)),
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/close": lambda params: self._close(read_params(params, OfSession)),
            "session/set_config_option": lambda params: self._set_option(read_params(params, SetOption)),
            "session/set_mode": lambda params: self._set_mode(read_params(params, SetMode)),
            "authenticate": self._authenticate,
        }

    def begin(self, method: str, params: Mapping[str, Any]) -> Awaitable[Json | Answered]:
        """Note that a request has come; what is returned carries it out. Both may raise RpcError."""
        if method == "initialize":
            # At once: an editor may send its next request without waiting.
            self._editor = read_params(params, Initialize).client_capabilities
            return self._initialize()
        if method not in self._methods:
            raise RpcError(METHOD_NOT_FOUND, f"method: found {quote(method, 60)}, which this agent does not have")
        if self._editor is None:
            raise RpcError(INVALID_REQUEST, f"{method}: allowed only after initialize")
        return self._methods[method](params)

    # ---------------------------------------------------------------- the connection

    async def _initialize(self) -> Json:
        """Agree on the version: the editor's if it is spoken here, else the one that is."""
        return {
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "agentInfo": {"name": "pegasus", "title": "Pegasus", "version": __version__},
            "authMethods": [],
        }

    async def _authenticate(self, params: Mapping[str, Any]) -> Json:
        raise RpcError(INVALID_PARAMS, "methodId: none is needed; the agent's own token in its home is used")

    # ---------------------------------------------------------------- sessions

    async def _new(self, params: OpenSession) -> Json | Answered:
        session = await self._open(secrets.token_hex(8), await self._check(params), None)
        options = await self._options(session)
        return Answered({"sessionId": session.id, **options}, partial(self._greet, session, params))

    async def _load(self, params: OpenSession) -> Json | Answered:
        """Open a session again, and show all that was said in it before anything new comes."""
        folder, id = await self._check(params, is_new=False), params.session_id
        async with self._daemon() as client:
            messages, last_seq = await _read_history(client, id)
        if not messages:
            raise RpcError(NOT_FOUND, f"sessionId: there is no session {quote(id, 60)}")
        for number, message in enumerate(messages):
            kind = "user_message_chunk" if message["from"] == "user" else "agent_message_chunk"
            names = "".join(f"\n({name})" for name in message.get("media") or ())
            content = text_block(f"{message['text']}{names}".strip())
            update: Json = {"sessionUpdate": kind, "messageId": f"history-{number}", "content": content}
            await self._link.notify("session/update", {"sessionId": id, "update": update})
        session = await self._open(id, folder, last_seq)
        return Answered(await self._options(session), partial(self._greet, session, params))

    async def _resume(self, params: OpenSession) -> Json | Answered:
        """Open a session again; what was said since the editor was there comes as it comes."""
        session = await self._open(params.session_id, await self._check(params, is_new=False), None)
        return Answered(await self._options(session), partial(self._greet, session, params))

    async def _check(self, params: OpenSession, *, is_new: bool = True) -> str:
        """Return the real path of the folder that a session works in. Raises RpcError if it cannot be opened."""
        id = params.session_id
        if not is_new and not (id.isascii() and id.isalnum() and len(id) <= LONGEST_ID):
            raise RpcError(NOT_FOUND, f"sessionId: there is no session {quote(id, 60)}")
        if not os.path.isabs(params.cwd):
            raise RpcError(INVALID_PARAMS, f"cwd: found {quote(params.cwd, 80)}, allowed: an absolute path")
        if params.additional_directories:
            raise RpcError(INVALID_PARAMS, "additionalDirectories: allowed: none; a session has one folder")
        if id not in self._sessions and len(self._sessions) >= MOST_SESSIONS:
            raise RpcError(INVALID_REQUEST, f"{MOST_SESSIONS} sessions are open; close one first")
        folder = await _real_path(params.cwd)
        if problem := await trio.to_thread.run_sync(self._folder_problem, folder):
            raise RpcError(INVALID_PARAMS, f"cwd: {problem}")
        return folder

    async def _open(self, id: str, folder: str, last_seq: int | None) -> EditorSession:
        """Start a session, in place of one with this id that is open here. Raises RpcError."""
        await self._ensure_daemon()
        self._shut(id)
        editor = self._editor or EditorCapabilities()
        session = EditorSession(id, folder, self._link, editor, self._find, self._nursery, last_seq, self._room)
        scope = trio.CancelScope()
        self._sessions[id] = session, scope
        self._nursery.start_soon(_run_within, session, scope)
        try:
            await session.connect()
        except RpcError:
            self._shut(id)
            raise
        return session

    async def _greet(self, session: EditorSession, params: OpenSession) -> None:
        """Tell the person what is not used, and the editor what may be typed."""
        if params.mcp_servers:
            names = ", ".join(server.name for server in params.mcp_servers)
            instead = "`pegasus mcp add` gives the agent servers of its own"
            await session.say(f"The editor's MCP servers are not used here: {names}. {instead}.")
        with suppress(ClientError):
            answer = await session.call("completions")
            commands: list[Json] = [_command(each) for each in (*answer["commands"], *answer["skills"])]
            await session.update({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    async def _close(self, params: OfSession) -> Json:
        """Close a session, and end what runs in it. An editor that ends without closing its sessions ends nothing."""
        await self._session(params.session_id).close()
        self._shut(params.session_id)
        return {}

    def _shut(self, id: str) -> None:
        if id in self._sessions:
            _, scope = self._sessions.pop(id)
            scope.cancel()

    def _session(self, id: str) -> EditorSession:
        """Return an open session. Raises RpcError."""
        if id not in self._sessions:
            raise RpcError(NOT_FOUND, f"sessionId: no session {quote(id, 60)} is open here; load or resume it first")
        return self._sessions[id][0]

    async def _list(self, params: ListSessions) -> Json:
        """Return sessions in which something was said, those that changed last first."""
        offset = 0
        if params.cursor is not None:
            if not params.cursor.isascii() or not params.cursor.isdigit() or len(params.cursor) > 9:
                raise RpcError(INVALID_PARAMS, f"cursor: found {quote(params.cursor, 40)}, allowed: that of an answer")
            offset = int(params.cursor)
        sessions: list[Json] = []
        folder = None if params.cwd is None else await _real_path(params.cwd)
        async with self._daemon() as client:
            while len(sessions) < LISTED:
                page = await _ask(client, "history.list", {"offset": offset, "limit": LISTED})
                listed = filter(None, map(_listed, page["conversations"]))
                sessions += [each for each in listed if folder in (None, each["cwd"])]
                offset = page["next"]
                if offset is None:
                    return {"sessions": sessions}
        return {"sessions": sessions, "nextCursor": str(offset)}

    # ---------------------------------------------------------------- prompts

    def _prompt(self, params: Mapping[str, Any]) -> Awaitable[Json]:
        """Begin a prompt at once, so that a cancellation behind it finds it."""
        prompt = read_params(params, Prompt)
        session = self._session(prompt.session_id)
        text, media = read_prompt(prompt.prompt, session.folder)
        size = len(text.encode("utf-8", "replace")) + sum(len(file.data) for file in media)
        if size > self._room:
            found = f"found {size:,} bytes with its files"
            raise RpcError(
                INVALID_PARAMS, f"prompt: {found}, allowed: {self._room:,} (gateway.max_frame_bytes of the settings)"
            )
        is_typed = all(block.get("type") == "text" for block in prompt.prompt)
        return session.prompt(session.begin_prompt(), text, media, self._ensure_daemon, is_typed=is_typed)

    def _cancel(self, params: Mapping[str, Any]) -> Awaitable[Json]:
        self._session(read_params(params, OfSession).session_id).cancel()
        return _nothing()

    # ---------------------------------------------------------------- options

    async def _models(self, session: EditorSession) -> tuple[list[str], str]:
        """Return the models that may be chosen, and that of the session, ([], "") if the daemon does not say so."""
        try:
            answer = await session.call("completions")
        except ClientError:
            return [], ""
        current = str(answer["model"])
        return list(dict.fromkeys([current, *map(str, answer["models"])])), current

    async def _options(self, session: EditorSession) -> dict[str, Json]:
        """Return what a person may choose for a session."""
        names, current = await self._models(session)
        choices: list[Json] = [{"value": name, "name": name} for name in names]
        option: dict[str, Json] = {"id": MODEL, "name": "Model", "category": "model", "type": "select"}
        options: list[Json] = [{**option, "currentValue": current, "options": choices}] if names else []
        if len(session.modes) == 1:
            return {"configOptions": options}
        modes: list[Json] = [{"value": id, **MODES[id]} for id in session.modes]
        option = {"id": MODE, "name": "Commands", "category": "mode", "type": "select"}
        options.append({**option, "currentValue": session.mode, "options": modes})
        # For editors that do not know options yet.
        known: list[Json] = [{"id": id, **MODES[id]} for id in session.modes]
        return {"configOptions": options, "modes": {"currentModeId": session.mode, "availableModes": known}}

    async def _set_option(self, params: SetOption) -> Json:
        session = self._session(params.session_id)
        if params.config_id == MODE:
            await session.set_mode(params.value)
            await session.update({"sessionUpdate": "current_mode_update", "currentModeId": session.mode})
            return await self._config(session)
        if params.config_id != MODEL or not params.value.strip():
            raise RpcError(
                INVALID_PARAMS, f"configId: found {quote(params.config_id, 40)}, allowed: {MODEL}, with a text"
            )
        said = await session.command(f"/model {' '.join(params.value.split())}")
        if params.value != (await self._models(session))[1]:
            raise RpcError(INVALID_PARAMS, f"value: {said}")
        return await self._config(session)

    async def _config(self, session: EditorSession) -> dict[str, Json]:
        """Return the options alone, as an answer to a change has them."""
        return {"configOptions": (await self._options(session))["configOptions"]}

    async def _set_mode(self, params: SetMode) -> Json:
        session = self._session(params.session_id)
        await session.set_mode(params.mode_id)
        await session.update({"sessionUpdate": "config_option_update", **await self._config(session)})
        return {}

    # ---------------------------------------------------------------- the daemon

    async def _ensure_daemon(self) -> None:
        """Start the agent if it does not run. Raises RpcError."""
        try:
            await self._start()
        except ClientError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from None

    @asynccontextmanager
    async def _daemon(self) -> AsyncIterator[Client]:
        """Yield a connection for calls. Raises RpcError, also for what the block raises of the daemon's."""
        await self._ensure_daemon()
        try:
            endpoint = self._find()
            async with open_client(endpoint.url, endpoint.token, ChannelInfo("cli", "acp"), calls_only=True) as client:
                yield client
        except ClientError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from None


async def _run_within(session: EditorSession, scope: trio.CancelScope) -> None:
    with scope:
        await session.run()


async def _real_path(path: str) -> str:
    """Return a path without links: sessions are known by that. Raises RpcError for what is none."""
    if "\0" in path:
        raise RpcError(INVALID_PARAMS, f"cwd: found {quote(path, 80)}, allowed: an absolute path")
    return await trio.to_thread.run_sync(os.path.realpath, path)


async def _nothing() -> Json:
    return {}


async def _ask(client: Client, method: str, params: Mapping[str, Json]) -> Mapping[str, Any]:
    """Return the daemon's answer, which is an object. Raises ClientError."""
    answer = await client.call(method, params)
    return answer if isinstance(answer, Mapping) else {}


async def _read_history(client: Client, session_id: str) -> tuple[list[Mapping[str, Any]], int]:
    """Return all that was said in a session, oldest first, and the number of its last reply. Raises ClientError."""
    channel = channel_of(session_id)
    named: dict[str, Json] = {"type": channel.type, "channelId": channel.channel_id}
    last_seq = (await _ask(client, "conversation", named))["seq"]
    messages: list[Mapping[str, Any]] = []
    before: Json = None
    while True:
        page = await _ask(client, "history", {**named, "limit": PAGE, **({} if before is None else {"before": before})})
        messages[:0] = page["messages"]
        before = page["before"]
        if before is None:
            return messages, max([last_seq, *(message.get("seq") or 0 for message in messages)])


def _listed(row: Mapping[str, Any]) -> dict[str, Json] | None:
    """Return a conversation of the list as a session, None if it is none of an editor, or an archive of one."""
    prefix = f"{CHANNEL}:{PREFIX}"
    chat, folder = row.get("chat"), row.get("folder")
    if not isinstance(chat, str) or not chat.startswith(prefix) or row.get("archived") or not folder:
        return None
    return {
        "sessionId": chat.removeprefix(prefix),
        "cwd": folder,
        "title": row["title"],
        "updatedAt": datetime.fromtimestamp(row["last"] / 1000, UTC).isoformat().replace("+00:00", "Z"),
    }


def _command(known: Mapping[str, Any]) -> dict[str, Json]:
    """Return a command or a skill as editors list it."""
    name = str(known["name"]).removeprefix("/")
    is_open = not str(known["name"]).startswith("/") or name in TAKES_WORDS
    return {"name": name, "description": known["description"], **({"input": {"hint": "…"}} if is_open else {})}


async def serve_editor(
    find: FindEndpoint,
    start: Callable[[], Awaitable[None]],
    folder_problem: Callable[[str], str],
    room: int,
    *,
    stdin: int = 0,
    stdout: int = 1,
) -> None:
    """Serve the editor until it closes its end. What was accepted goes on in the daemon. The parameters are those of `EditorAgent`."""
    link = EditorLink(read_lines(stdin), partial(write_line, stdout))
    async with trio.open_nursery() as nursery:
        await link.run(EditorAgent(link, nursery, find, start, folder_problem, room))
        nursery.cancel_scope.cancel()
