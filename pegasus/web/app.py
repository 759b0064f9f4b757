"""The application: Starlette's routes made of the operations, behind the checks that every request passes.

The order of the checks: the Host, then the route (404, 405), then who sends it and with which rights, then the handler. Whatever goes
wrong leaves as `{"error": …}` with a fitting status, and every response has the header fields of SECURITY_HEADERS.

Errors are answered here and not by Starlette's middleware, which answers some in plain text. The Host comes before everything: a page
that has pointed its own name at this machine must learn nothing, not even which paths exist (see `visitors`). A response that fails
after it has begun cannot get another status; then the connection is cut, by which clients see that it is incomplete.

A request has the rights of its sender until it is answered. When the token is revoked or the browser is signed out meanwhile, the
handler is cancelled at once: what a long poll, a turn or a stream would still bring is not for this client any more. A stream that
has begun ends with the error as an event. So it is when the server stops before a request has been answered.

Each operation is a Starlette route of its own, also where two share a path. So Starlette knows the methods of one of them only, and
the `Allow` of a 405 (RFC 9110, section 15.5.6) is gathered over all routes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import trio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from pegasus.observe import get_logger
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors, json_response
from pegasus.web.routes import (
    ClientTurns,
    Conversations,
    EventFeed,
    audio_operations,
    completion_operations,
    control_operations,
    embedding_operations,
    event_operations,
    load_static_files,
    message_operations,
    openapi_operation,
    page_operations,
    response_operations,
    webhook_operations,
)
from pegasus.web.visitors import AccessRules, ApiError, RequestIdentity
from pegasus.wire import encode_json

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types pegasus-markdown pegasus-worker",
    )
)
"""Content-Security-Policy: scripts and styles of the server's own files only, and nothing from elsewhere."""
SECURITY_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Header fields of every response."""
Doors: TypeAlias = Callable[[Conversations], Sequence[Operation]]
"""Returns the routes of the protocols that stand above this package. Called once, when the first client connects."""
_STATUS_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
"""Codes of the errors that Starlette's router raises by itself. All other errors are ApiErrors with a code of
their own."""

RETRY_AFTER: Final = "10"
"""Seconds after which a client may send again what was refused for being too much."""
_CLIENT_PATHS: Final = ("/models", "/chat/completions", "/responses", "/api/tags", "/api/chat")
"""Ends of the paths that a client of OpenAI or Ollama asks for when its base URL is not the one here."""
_CHALLENGE: Final = "challenge"
"""Key in the `state` of a request's scope: the `challenge` of its operation."""
_WATCH: Final = "end_with_rights"
"""Key in the `state` of a request's scope: a function that ends the work for the request when the rights of a visitor end."""

LOST_RIGHTS: Final = ApiError(
    401, "unauthorized", "the token was revoked, or the session has ended, while this was under way"
)
"""Answer to a request whose sender has lost its rights."""
STOPPED: Final = ApiError(
    503,
    "unavailable",
    "the agent is being stopped, and has not answered yet; a message that it has accepted is worked on after that. Send it again "
    "with the same id, or ask for its replies",
)
"""Answer to a request that was under way when the server stopped."""

_log = get_logger("web")


def _hint(path: str) -> str:
    """Return what to ask for instead of a path that does not exist, for clients of OpenAI's API; "" for other paths."""
    if path.startswith("/v1/"):
        return "; there are /v1/models, /v1/chat/completions, /v1/responses, /v1/embeddings and /v1/audio/…"
    return "; the base URL of clients of OpenAI's API ends with /v1" if path.endswith(_CLIENT_PATHS) else ""


class WebApplication:
    """The ASGI application.

    Each request is answered exactly once, with a response of a handler or with an error object. After the first
    byte of a response nothing else can be sent; an error then ends the connection.
    """

    def __init__(self, services: WebServices, rules: AccessRules, operations: Sequence[Operation]) -> None:
        self._services = services
        self._rules = rules
        self.nursery: trio.Nursery
        """Tasks that outlive a request. They end when the server stops; set by the server."""
        self._under_way: set[trio.CancelScope] = set()
        """Scopes around the work for the requests that are not answered."""
        self._is_ended = False
        """Requests end with STOPPED."""
        self._routes = [self._route(operation) for operation in operations]
        self._fixed: dict[str, dict[str, Route]] = {}
        """Routes of paths without parameters, by their methods. Such a path is no value of a parameter of another one."""
        for route in self._routes:
            if not route.param_convertors:
                self._fixed.setdefault(route.path, {}).update(dict.fromkeys(route.methods or (), route))
        self._router = Router(self._routes, redirect_slashes=False)
        """A path with a slash too many is 404 and not redirected."""

    def _route(self, operation: Operation) -> Route:
        """Return the route of an operation. Starlette answers HEAD wherever it answers GET; only some operations are to."""

        async def endpoint(request: Request) -> Response:
            """Check the request, then hand it to the handler of the operation."""
            # The log names the route of a request that fails, and never its path, which may hold a secret.
            request.scope["route"] = route
            request.scope["state"][_CHALLENGE] = operation.challenge
            return await operation.handler(await self._check(request, operation))

        route = Route(operation.path, endpoint, methods=[operation.method])
        if not operation.allows_head and route.methods is not None:
            route.methods.discard("HEAD")
        return route

    def _methods_at(self, scope: Scope) -> list[str]:
        """Return the methods that the path of a request allows."""
        if scope["path"] in self._fixed:
            return sorted(self._fixed[scope["path"]])
        # A route matches in part if its path fits and its method does not.
        found = [route.methods or () for route in self._routes if route.matches(scope)[0] is not Match.NONE]
        return sorted({method for methods in found for method in methods})

    async def _check(self, request: Request, operation: Operation) -> ApiRequest:
        """Return the request for the handler. Raises ApiError if its sender may not send it.

        The token is looked at before the body is read, so that somebody without rights costs no more than a
        header.
        """
        # Signed requests (webhooks), the page's files and health checks are open: a wrong token there is not
        # even looked at.
        if operation.scope is None:
            return ApiRequest(request, self._services, self._rules, RequestIdentity(), operation.body)
        with failures_as_errors():
            visitor = await self._rules.identify(request.headers.raw, request.method)
        checked = ApiRequest(request, self._services, self._rules, visitor, operation.body)
        if not operation.outlives_rights:
            request.scope["state"][_WATCH](visitor)
        if operation.scope:
            checked.require(operation.scope)
        return checked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; see ASGI. Anything but HTTP is left alone. Raises nothing but what `send` raises."""
        if scope["type"] != "http":
            return
        # Tells whether a status was sent: until then an error can still have one of its own.
        is_started = is_stream = False

        async def send_safely(message: Message) -> None:
            """Send an event of ASGI. Add the header fields of all responses, and note that the response has begun."""
            nonlocal is_started, is_stream
            if message["type"] == "http.response.start":
                is_started = True
                is_stream = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            await send(message)

        scope["app"] = self  # the router then raises HTTPException
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as work:

                def watch(visitor: RequestIdentity) -> None:
                    nursery.start_soon(self._end_with_rights, visitor, work)

                scope["state"][_WATCH] = watch
                self._under_way.add(work)
                try:
                    response = await self._answer(scope, receive, send_safely)
                finally:
                    self._under_way.discard(work)
            if work.cancelled_caught:
                error = STOPPED if self._is_ended else LOST_RIGHTS
                response = _error_response(error)
                if is_stream:
                    body = f"data: {encode_json(error.body)}\n\n".encode()
                    await send({"type": "http.response.body", "body": body, "more_body": False})
            # Otherwise the connection ends, by which the client sees that the response is incomplete.
            if response is not None and not is_started:
                await response(scope, receive, send_safely)
            nursery.cancel_scope.cancel()

    def end_requests(self) -> None:
        """End what is under way, since the server stops. Its clients are told so."""
        self._is_ended = True
        for work in self._under_way:
            work.cancel()

    def _challenge(self, scope: Scope) -> dict[str, str]:
        """Return the header field that tells a client without a token how to get one."""
        path, public = scope["state"].get(_CHALLENGE, ""), self._services.config.now.public_url
        more = f' resource_metadata="{public.rstrip("/")}{path}"' if path and public else ""
        return {"www-authenticate": f"Bearer{more}"}

    async def _end_with_rights(self, visitor: RequestIdentity, work: trio.CancelScope) -> None:
        """End the work for a request when its sender may not have the answer any more."""
        await self._rules.until_ended(visitor)
        work.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Answer a request, and return the error object that is to be sent instead; None if there was no error."""
        try:
            self._rules.check_host(scope["headers"])
            if (routes := self._fixed.get(scope["path"])) is None:
                await self._router(scope, receive, send)
            elif (route := routes.get(scope["method"])) is None:
                raise HTTPException(405)
            else:  # the router would walk all routes
                scope["path_params"] = {}
                await route.handle(scope, receive, send)
        except ApiError as error:
            return _error_response(error, self._challenge(scope) if error.status == 401 else {})
        except HTTPException as error:
            code = _STATUS_CODES.get(error.status_code, "bad_request")
            path = scope["path"]
            hint = _hint(path) if error.status_code == 404 else ""
            refusal = ApiError(error.status_code, code, f"{scope['method']} {path[:200]}: {error.detail}{hint}")
            # A 405 must name the methods that the path has. Computed only here, since it matches every route
            # again.
            headers = {"allow": ", ".join(self._methods_at(scope))} if error.status_code == 405 else {}
            return _error_response(refusal, headers)
        except Exception as error:  # the path may hold a secret, so only the route is logged
            route = scope.get("route")
            _log.exception("a request failed", error=error, method=scope["method"], route=getattr(route, "path", ""))
            return _error_response(ApiError(500, "internal", "this failed unexpectedly; the log has the details"))
        return None


def _error_response(error: ApiError, headers: dict[str, str] | None = None) -> Response:
    more = {
        401: {"www-authenticate": "Bearer"},
        429: {"retry-after": RETRY_AFTER},
        503: {"retry-after": RETRY_AFTER},
    }.get(error.status, {})
    return json_response(error.body, error.status, {**more, **(headers or {})})


def build_application(services: WebServices, rules: AccessRules, feed: EventFeed, doors: Doors) -> WebApplication:
    """Return the application with all operations. Reads the files of the page. feed: what `/api/events` streams.

    doors: returns the routes of other protocols. The order of the operations counts where two paths match the same request.

    Raises OSError if a file of the page cannot be read.
    """
    conversations = Conversations(services.intake, services.listeners, services.was_stopped)
    turns = ClientTurns(conversations, services)
    operations = (
        *page_operations(load_static_files()),
        *message_operations(conversations),
        *completion_operations(turns),
        *response_operations(turns),
        *embedding_operations(services),
        *audio_operations(services),
        *event_operations(feed),
        *control_operations(feed),
        *webhook_operations(services),
        *doors(conversations),
    )
    return WebApplication(services, rules, (*operations, openapi_operation(operations)))
