"""Routes that show and change what the control plane does: the same methods that the gateway's `call` has.

A handler turns path, query and body into the params of a method, and its result into the response. What a method allows, and which
scope it needs, is said by the method and its table alone.

So a new method of the control plane needs one line in `control_operations` to have a route, an entry in openapi.json, and the same
checks and errors as over the WebSocket. The scope in that line is checked before the handler; `request.call` then checks the method's
own. Params that a request does not give are left out instead of being null, so that the defaults of the method count.

The order of the routes matters: the first that matches is taken. `/api/memory/log` and `/api/memory/undo` therefore stand before
`/api/memory/{path:path}`, which matches both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import attrs
from starlette.responses import Response

from pegasus.access import CONTROL, MESSAGE, READ
from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, NotAllowed, NotFound
from pegasus.messages import Json
from pegasus.web.bodies import (
    DecisionBody,
    EditBody,
    FileBody,
    InputBody,
    InterruptBody,
    JobBody,
    MarkdownBody,
    NameJson,
    PairingBody,
    SettingBody,
    SortingBody,
    UndoBody,
)
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, Handler, failures_as_errors, json_response
from pegasus.web.routes.events import EventFeed
from pegasus.web.visitors import ApiError
from pegasus.wire import wire_name

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of what Prometheus reads."""


def change_task(method: str) -> Handler:
    """Return a handler that changes a task: 409 for one whose state does not allow it.

    It is not made by `_calls`, since there a refusal of params is 400. Here the params are checked first, so that what the method
    refuses is the state of the task. The body may be empty; its `input` is the answer that a task waits for.
    """

    async def handle(request: ApiRequest) -> Response:
        """Call the method for the task of the path."""
        # Before the body is read, as for every operation; `call_raw` below does not look at scopes.
        request.require(CONTROL)
        text = (await request.json_or_nothing()).get("input")
        params: dict[str, Json] = {"taskId": request.path["id"], **({} if text is None else {"input": text})}
        with failures_as_errors():
            try:
                return json_response(await request.call_raw(method, params))
            # Both are BadParams, too. They keep their own status, so they are let through before the one below.
            except (NotFound, NotAllowed):
                raise
            except BadParams as error:
                raise ApiError(409, "conflict", str(error)) from None

    return handle


async def interrupt(request: ApiRequest) -> Response:
    """End the answer that is being made for a conversation. The body may be empty; the conversation is then the client's own."""
    content = await request.json_or_nothing()
    channel = content.get("channel")
    return json_response(await request.call("interrupt", {} if channel is None else {"channel": channel}))


async def show_usage(request: ApiRequest) -> Response:
    """Return what model calls have used; with `days=true` also by day.

    By day it is much longer, so it has to be asked for. A handler of its own, because the query is a text and
    the method wants true or false.
    """
    days = request.text("days") or "false"
    if days not in ("true", "false"):
        raise ApiError(400, "bad_request", f"days: found {quote(days, 40)}, allowed: true, false")
    return json_response(await request.call("usage", {"days": True} if days == "true" else {}))


class MetricsRoutes:
    """The handler of metrics: numbers for Prometheus, made of the same answers as `/api/status`, `/api/usage` and `/api/tree`.

    Open where the server is reached over loopback under a loopback name; with the scope "read" elsewhere. A proxy that passes its own
    name on therefore needs a token.

    The scope of that operation is None, so a token is looked at here and not before: whether one is needed
    depends on where the request comes from.
    """

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    async def show(self, request: ApiRequest) -> Response:
        """Return the metrics."""
        if not request.is_local:
            with failures_as_errors():
                visitor = await request.rules.identify(request.fields, "GET")
            ApiRequest(request.http, request.services, request.rules, visitor).require(READ)
        answers: list[Mapping[str, Json]] = []
        with failures_as_errors():
            for name in ("status", "usage", "tree"):
                method = request.services.methods.get(name)
                # A method that this version does not have gives no metrics, which is better than no answer at
                # all.
                answer = await method(Caller("api", "metrics"), {}) if method is not None else {}
                answers.append(answer if isinstance(answer, Mapping) else {})
        repeats = request.services.deliveries.repeats
        activity = request.services.activity
        from pegasus.web.routes.prometheus import format_metrics

        text = format_metrics(answers[0], answers[1], answers[2], self._feed.readers, repeats, activity)
        return Response(text, headers={"cache-control": "no-store", "content-type": METRICS_TYPE})


NOTHING_ASKED: Final[Mapping[str, type]] = {}
"""Query of an operation that has none."""


def _calls(
    verb: str,
    route: str,
    method: str,
    summary: str,
    scope: str,
    *,
    path: tuple[str, str] | None = None,
    query: Mapping[str, type] = NOTHING_ASKED,
    body: type[attrs.AttrsInstance] | None = None,
    status: int = 200,
) -> Operation:
    """Return an operation that calls a method of the control plane.

    path: name of a part of the path, and of the param that it becomes. query: names of the query that become params, with their
    types. body: class whose fields do; others are ignored. status: that of a success.
    """
    fields = [] if body is None else [wire_name(body, field.name) for field in attrs.fields(body)]

    async def handle(request: ApiRequest) -> Response:
        """Call the method with the params that the request gives."""
        # Later ones replace earlier ones of the same name. The path comes last: no query or body can name
        # another task than the address.
        params: dict[str, Json] = {
            name: request.number(name) if kind is int else request.text(name) for name, kind in query.items()
        }
        if fields:
            content = await request.json()
            params |= {name: content.get(name) for name in fields}
        if path is not None:
            params[path[1]] = request.path[path[0]]
        given = {name: value for name, value in params.items() if value is not None}
        return json_response(await request.call(method, given), status)

    return Operation(verb, route, handle, summary, scope, query=query, body=body)


# Parts of paths, with the params that they become.
TASK = ("id", "taskId")
"""A task's id in the path is `taskId` for the methods."""
ID = ("id", "id")
"""An id that has the same name in both."""
PAGE = ("path", "path")
"""A file of memory. `{path:path}` matches slashes as well."""
CONVERSATION = ("key", "key")
"""A conversation, as its list names it."""
NAME = ("name", "name")
"""An MCP server of the settings, or a node."""
PART = {"offset": int, "limit": int}
"""Query of a long list."""


def control_operations(feed: EventFeed) -> tuple[Operation, ...]:
    """Return the operations of this file. feed: knows how many streams of events are open, for the metrics.

    One line for each method that programs may call. Methods that are not here can only be called over the
    WebSocket.
    """
    cancel, resume = change_task("tasks.cancel"), change_task("tasks.resume")
    return (
        _calls("GET", "/api/status", "status", "What the agent is doing", READ),
        Operation(
            "POST",
            "/api/interrupt",
            interrupt,
            "End the answer that is being made",
            MESSAGE,
            body=InterruptBody,
            needs_body=False,
        ),
        _calls("GET", "/api/tree", "tree", "The supervision tree", READ),
        Operation("GET", "/api/usage", show_usage, "What model calls have used", READ, query={"days": bool}),
        _calls("GET", "/api/channels", "channels.list", "Adapters of chat services", READ),
        _calls("GET", "/api/nodes", "nodes.list", "Nodes that share the database", READ),
        _calls("POST", "/api/nodes/{name}/drain", "nodes.drain", "Take a node out of service", CONTROL, path=NAME),
        _calls("GET", "/api/mcp", "mcp.list", "MCP servers", READ),
        _calls("GET", "/api/mcp/{name}", "mcp.tools", "Tools of an MCP server by kind", READ, path=NAME),
        _calls(
            "POST",
            "/api/mcp/{name}",
            "mcp.trust",
            "Say what the tools of a server do",
            CONTROL,
            path=NAME,
            body=SortingBody,
        ),
        _calls("GET", "/api/tasks", "tasks.list", "Background tasks", READ, query={"date": str}),
        _calls("GET", "/api/tasks/{id}", "tasks.show", "A task", READ, path=TASK),
        _calls("GET", "/api/tasks/{id}/log", "tasks.log", "The events of a task", READ, path=TASK),
        Operation("POST", "/api/tasks/{id}/cancel", cancel, "Cancel a task", CONTROL),
        Operation("POST", "/api/tasks/{id}/suspend", change_task("tasks.suspend"), "Pause a task", CONTROL),
        Operation(
            "POST", "/api/tasks/{id}/continue", change_task("tasks.continue"), "Let a paused task go on", CONTROL
        ),
        Operation("POST", "/api/tasks/{id}/resume", resume, "Resume a task", CONTROL, body=InputBody, needs_body=False),
        _calls("GET", "/api/memory", "memory.list", "The files of memory", READ),
        _calls(
            "GET",
            "/api/memory/log",
            "memory.log",
            "Changes of memory",
            READ,
            query={"path": str, "limit": int, "before": int},
        ),
        _calls(
            "GET",
            "/api/memory/search",
            "memory.search",
            "Passages of memory and of earlier conversations",
            READ,
            query={"query": str, "limit": int, "in": str},
        ),
        _calls("POST", "/api/memory/undo", "memory.undo", "Undo a change of memory", CONTROL, body=UndoBody),
        _calls("GET", "/api/memory/{path:path}", "memory.show", "A file of memory", READ, path=PAGE),
        _calls(
            "PUT",
            "/api/memory/{path:path}",
            "memory.write",
            'Replace a file of memory; "" deletes it',
            CONTROL,
            path=PAGE,
            body=FileBody,
        ),
        _calls("GET", "/api/skills", "skills.list", "Skills", READ),
        _calls(
            "GET",
            "/api/sessions",
            "sessions.list",
            "Sessions",
            CONTROL,
            query={"chat": str, **PART},
        ),
        _calls(
            "GET",
            "/api/sessions/{file}",
            "sessions.show",
            "Lines of a session",
            CONTROL,
            path=("file", "file"),
            query=PART,
        ),
        _calls(
            "GET",
            "/api/conversations",
            "history.list",
            "Conversations and archives",
            CONTROL,
            query={"find": str, **PART},
        ),
        _calls(
            "GET",
            "/api/conversations/{key}/messages",
            "history.show",
            "What was said in a conversation",
            CONTROL,
            path=CONVERSATION,
            query={"before": str, "limit": int},
        ),
        _calls(
            "POST",
            "/api/conversations/{key}/retry",
            "history.retry",
            "Answer the last message again",
            CONTROL,
            path=CONVERSATION,
            status=202,
        ),
        _calls(
            "POST",
            "/api/conversations/{key}/edit",
            "history.edit",
            "Say something else in place of a message",
            CONTROL,
            path=CONVERSATION,
            body=EditBody,
            status=202,
        ),
        _calls(
            "POST",
            "/api/conversations/{key}/rename",
            "history.rename",
            "Give a conversation a name",
            CONTROL,
            path=CONVERSATION,
            body=NameJson,
        ),
        _calls("GET", "/api/approvals", "approvals.list", "Calls that wait for an owner", CONTROL),
        _calls("GET", "/api/approvals/granted", "approvals.granted", "What was allowed for later calls", CONTROL),
        _calls("DELETE", "/api/approvals/granted/{id}", "approvals.revoke", "End a grant", CONTROL, path=ID),
        _calls(
            "POST",
            "/api/approvals/{id}",
            "approvals.answer",
            "Allow or deny a call",
            CONTROL,
            path=ID,
            body=DecisionBody,
        ),
        _calls("GET", "/api/cron", "cron.list", "Scheduled jobs", READ),
        _calls("POST", "/api/cron", "cron.add", "Add a scheduled job", CONTROL, body=JobBody, status=201),
        _calls("DELETE", "/api/cron/{id}", "cron.remove", "Remove a job", CONTROL, path=ID),
        _calls("POST", "/api/cron/{id}/run", "cron.run", "Run a job now", CONTROL, path=ID),
        _calls("POST", "/api/cron/{id}/pause", "cron.pause", "Pause a job", CONTROL, path=ID),
        _calls("POST", "/api/cron/{id}/resume", "cron.resume", "Resume a job", CONTROL, path=ID),
        _calls("GET", "/api/addresses", "conversations.list", "Conversations that the agent may write to", CONTROL),
        _calls("GET", "/api/people", "pair.list", "People who were let in, and open codes", READ),
        _calls("POST", "/api/people", "pair.approve", "Let in whoever has a code", CONTROL, body=PairingBody),
        _calls("DELETE", "/api/people/{who}", "pair.revoke", "Let somebody in no more", CONTROL, path=("who", "who")),
        _calls("GET", "/api/settings", "config.show", "The settings in force", CONTROL),
        _calls("POST", "/api/settings", "config.set", "Change a setting", CONTROL, body=SettingBody),
        _calls("POST", "/api/settings/reload", "config.reload", "Read the settings file again", CONTROL),
        _calls("GET", "/api/log", "log.tail", "The last lines of the log", CONTROL, query={"after": int}),
        _calls("GET", "/api/completions", "completions", "What a person may type", READ),
        _calls("POST", "/api/markdown", "markdown", "The HTML of texts in Markdown", READ, body=MarkdownBody),
        Operation("GET", "/metrics", MetricsRoutes(feed).show, "Metrics for Prometheus", None),
    )


def openapi_operation(operations: Sequence[Operation]) -> Operation:
    """Return the operation that describes these, and itself."""

    @cache
    def document() -> dict[str, Json]:
        """Return the description, made once."""
        from pegasus.web.description import describe_api

        return describe_api([*operations, operation])

    async def show(request: ApiRequest) -> Response:
        """Return the description."""
        return json_response(document())

    # `show` is called later, so the operation can be part of what it describes.
    operation = Operation("GET", "/openapi.json", show, "This description", None)
    return operation
