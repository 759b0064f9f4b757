"""Resources: files of memory, archived conversations, and the logs of tasks.

They are read through the control plane, as the command line and the web page read them. A client sees those that its token reaches;
any other one does not exist for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import attrs
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from pegasus.mcp_server.reach import TokenReach
from pegasus.messages import Json
from pegasus.web import ApiError, ApiRequest, failures_as_errors

MEMORY: Final = "pegasus://memory/"
"""Beginning of the addresses of memory's files; their path follows."""
ARCHIVES: Final = "pegasus://archives/"
"""Beginning of the addresses of archived conversations; their key follows."""
TASKS: Final = "pegasus://tasks/"
"""Beginning of the addresses of logs of tasks; id and "/log" follow."""
PAGE: Final = 100
"""Conversations that are looked through for the archives of one page."""
LONGEST_ARCHIVE: Final = 1000
"""Messages of an archive that are shown, the last ones."""
_RESOURCE_NOT_FOUND: Final = -32002
"""Error code of an address that does not exist, before 2026-07-28."""
_MARKDOWN, _JSON = "text/markdown", "application/json"


def log_address(task_id: str) -> str:
    """Return the address of the log of a task."""
    return f"{TASKS}{quote(task_id, safe='')}/log"


def memory_address(path: str) -> str:
    """Return the address of a file of memory."""
    return f"{MEMORY}{quote(path)}"


@attrs.frozen(eq=False, repr=False)
class ServedResources:
    """The resources that the client of a request may see."""

    request: ApiRequest

    @property
    def _reach(self) -> TokenReach:
        return TokenReach(self.request.grant)

    async def _ask(self, method: str, **params: Json) -> Mapping[str, Any]:
        with failures_as_errors():
            return await self.request.call_raw(method, params)

    # ---------------------------------------------------------------- the list

    async def list(self, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """Return a page: memory and tasks on the first one, archives on all of them."""
        cursor = params.cursor if params is not None else None
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise MCPError(INVALID_PARAMS, "cursor: found what no earlier answer has given")
        found: list[Resource] = []
        if cursor is None:
            found += [*await self._memory(), *await self._logs()]
        archives, following = await self._archives(int(cursor or 0))
        return ListResourcesResult(resources=[*found, *archives], next_cursor=following)

    async def _memory(self) -> Sequence[Resource]:
        if not self._reach.sees_everything:
            return ()
        files = (await self._ask("memory.list"))["files"]
        return [
            Resource(
                uri=memory_address(file["path"]),
                name=file["path"],
                title=f"Memory: {file['path']}",
                description=file["summary"] or "a file of the agent's memory",
                mime_type=_MARKDOWN,
                size=file["size"],
            )
            for file in files
        ]

    async def _logs(self) -> Sequence[Resource]:
        if not self._reach.grant.gets_replies:
            return ()
        tasks = (await self._ask("tasks.list"))["tasks"]
        return [
            Resource(
                uri=log_address(task["taskId"]),
                name=f"task {task.get('number') or task['taskId']}",
                title=f"Log of task {task.get('number') or task['taskId']}",
                description=task["description"] or task["inputText"][:200],
                mime_type=_JSON,
            )
            for task in tasks
            if self._reach.sees(task)
        ]

    async def _archives(self, offset: int) -> tuple[Sequence[Resource], str | None]:
        if not self._reach.grant.sees_all_conversations:
            return (), None
        page = await self._ask("history.list", offset=offset, limit=PAGE)
        found = [
            Resource(
                uri=f"{ARCHIVES}{quote(row['key'], safe='')}",
                name=row["key"],
                title=f"Conversation: {row['title']}",
                description=f"an archived conversation of {row['messages']} messages",
                mime_type=_JSON,
            )
            for row in page["conversations"]
            if row["archived"]
        ]
        return found, None if page["next"] is None else str(page["next"])

    def templates(self) -> ListResourceTemplatesResult:
        """Return the forms of addresses."""
        reach = self._reach
        rows = (
            (reach.sees_everything, f"{MEMORY}{{+path}}", "memory", "A file of the agent's memory", _MARKDOWN),
            (reach.grant.gets_replies, f"{TASKS}{{taskId}}/log", "task-log", "The events of a background task", _JSON),
            (reach.grant.sees_all_conversations, f"{ARCHIVES}{{key}}", "archive", "An archived conversation", _JSON),
        )
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(uri_template=form, name=name, description=text, mime_type=mime)
                for is_seen, form, name, text, mime in rows
                if is_seen
            ]
        )

    # ---------------------------------------------------------------- one of them

    async def read(
        self, context: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """Return the content of a resource. Raises MCPError for one that does not exist, or not for this client."""
        mime, text = await self.content(context, params.uri)
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=mime, text=text)])

    async def content(self, context: ServerRequestContext[Any, Any], uri: str) -> tuple[str, str]:
        """Return type and text of a resource. Raises as `read`."""
        for prefix, read in ((MEMORY, self._read_memory), (TASKS, self._read_log), (ARCHIVES, self._read_archive)):
            if uri.startswith(prefix):
                try:
                    if (found := await read(unquote(uri.removeprefix(prefix)))) is not None:
                        return found
                except ApiError as error:
                    if error.status >= 500:
                        raise
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        raise MCPError(INVALID_PARAMS if is_modern else _RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})

    async def _read_memory(self, path: str) -> tuple[str, str] | None:
        if not self._reach.sees_everything:
            return None
        return _MARKDOWN, (await self._ask("memory.show", path=path))["content"]

    async def _read_log(self, rest: str) -> tuple[str, str] | None:
        id, slash, what = rest.rpartition("/")
        if not slash or what != "log" or not self._reach.sees(await self._ask("tasks.show", taskId=id)):
            return None
        return _JSON, _format(await self._ask("tasks.log", taskId=id))

    async def _read_archive(self, key: str) -> tuple[str, str] | None:
        if not self._reach.grant.sees_all_conversations:
            return None
        return _JSON, _format(await self._ask("history.show", key=key, limit=LONGEST_ARCHIVE))


def _format(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
