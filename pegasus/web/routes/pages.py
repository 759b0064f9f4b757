"""The web page and its files, signing in and out, and whether the server is alive.

The files are those of `pegasus/web/static`, read once into memory: a request can name only what was found there, so there is no path
that leads out of the folder. They are sent without sign-in, since they hold nothing but the program; the page asks for a token itself.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import attrs
from starlette.responses import Response

from pegasus.access import OWNER_GRANT, SCOPES
from pegasus.host import command_name
from pegasus.web.bodies import AliveAnswer, CodeBody, EmptyAnswer, SignedInAnswer, SignInAnswer, TokenBody
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest, failures_as_errors, json_response
from pegasus.web.visitors import ApiError
from pegasus.wire import encode_json

STATIC_FOLDER: Final = Path(__file__).parents[1] / "static"
"""Folder of the page's files, part of the package."""
FORM: Final = "application/x-www-form-urlencoded"
"""Type of what the button sends."""
SIGN_IN: Final = "login.html"
"""Name of the page with the button, whose `{code}` is filled in."""
INDEX: Final = "index.html"
"""File that is sent for "/"."""
WORKER: Final = "sw.js"
"""The service worker, whose `{shell}` is filled in. It is sent from "/", since a worker is in charge of what is below its address."""
WORTH_PACKING: Final = 512
"""Bytes from which a file is sent compressed, if the browser takes that."""
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/vnd.microsoft.icon",
    ".woff2": "font/woff2",
}
"""Content types by the ending of the name. The system's table is not asked, because it differs between machines."""
PACKED_ALREADY: Final = (".png", ".woff2")
"""Endings of files that gzip does not make smaller."""


@attrs.frozen
class StaticFile:
    """A file of the page."""

    content: bytes = attrs.field(repr=False)
    """The bytes of the file."""
    packed: bytes = attrs.field(repr=False)
    """The content as gzip; b"" where that is not worth it."""
    mime: str
    """Its Content-Type."""
    etag: str
    """Changes with the content."""


def load_static_files(folder: Path = STATIC_FOLDER) -> dict[str, StaticFile]:
    """Return the files below the folder by their paths with "/".

    Links are left out: one could lead out of the folder. Blocks while it reads and packs. The packed form has
    no time in it, so that it is the same at each start.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            files[path.relative_to(folder).as_posix()] = _static_file(path.read_bytes(), path.suffix)
    files[WORKER] = _with_shell(files)
    return files


def _static_file(content: bytes, suffix: str) -> StaticFile:
    is_worth_it = len(content) >= WORTH_PACKING and suffix not in PACKED_ALREADY
    packed = gzip.compress(content, mtime=0) if is_worth_it else b""
    mime = TYPES.get(suffix, "application/octet-stream")
    return StaticFile(content, packed, mime, f'"{sha256(content).hexdigest()[:20]}"')


def _with_shell(files: dict[str, StaticFile]) -> StaticFile:
    """Return the service worker with the files that it keeps, and a version that changes with any of them."""
    names = sorted(files.keys() - {SIGN_IN, INDEX, WORKER})
    version = sha256("".join(files[name].etag for name in (INDEX, *names)).encode()).hexdigest()[:20]
    shell = encode_json({"version": version, "paths": ["/", *(f"/static/{name}" for name in names)]})
    return _static_file(files[WORKER].content.replace(b"{shell}", shell.encode()), ".js")


class Pages:
    """The handlers of the page's files. files: by name."""

    def __init__(self, files: dict[str, StaticFile]) -> None:
        self._files = files

    async def index(self, request: ApiRequest) -> Response:
        """Return the page."""
        return self._file(request, INDEX)

    async def worker(self, request: ApiRequest) -> Response:
        """Return the service worker."""
        return self._file(request, WORKER)

    async def static(self, request: ApiRequest) -> Response:
        """Return a file of the page."""
        return self._file(request, request.path["path"])

    async def ask_to_sign_in(self, request: ApiRequest) -> Response:
        """Return a button for somebody who comes with a code of `pegasus open`.

        The code is not used up by this: programs that look ahead at links, such as a chat's previews, ask for it, too. They press no
        button.
        """
        code = request.http.query_params.get("code", "")
        with failures_as_errors():
            counts = await request.services.sessions.is_code(code)
        if not counts:
            return _used_link(request)
        text = self._files[SIGN_IN].content.decode().replace("{code}", code)
        return Response(text, headers={"cache-control": "no-store"}, media_type="text/html")

    def _file(self, request: ApiRequest, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise ApiError(404, "not_found", "there is no such file")
        # `no-cache` lets a browser keep the file but ask each time, so that a page never runs with files of two
        # versions.
        headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        # The header may hold several tags, or a weak one (`W/"…"`) that a proxy has made of ours.
        if file.etag in request.http.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        takes_gzip = "gzip" in request.http.headers.get("accept-encoding", "")
        if file.packed and takes_gzip:
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.mime)
        return Response(file.content, headers=headers, media_type=file.mime)


async def show_alive(request: ApiRequest) -> Response:
    """Return that the process answers, and what it waits for, if it does: to start it again would be of no use."""
    return json_response(AliveAnswer("ok", request.services.activity.waits_for))


async def show_ready(request: ApiRequest) -> Response:
    """Return whether all permanent parts run; 503 if not. Channels that are parked are named, and make no difference.

    It has no token, so it names parts and says nothing about their errors.
    """
    health = request.services.health()
    return json_response(health, 200 if health.get("ready") else 503)


# ------------------------------------------------------------------ signing in


async def show_sign_in(request: ApiRequest) -> Response:
    """Return the command that signs a browser in without a token, as it can be typed.

    With the options that lead to this home for a request from this machine only: a path is nothing for strangers.
    """
    command = command_name() if request.is_local else "pegasus"
    return json_response(SignInAnswer(f"{command} open"))


async def sign_in(request: ApiRequest) -> Response:
    """Set the cookie for somebody who shows a token.

    The origin is checked although there is no cookie yet: a page of others must not sign a browser in, either,
    as somebody else.

    Raises ApiError 401 for a token that does not count; the answer tells where the owner's is. Tokens are long
    random texts, so attempts need not be counted.
    """
    request.rules.check_origin(request.fields)
    token = str((await request.json())["token"])
    with failures_as_errors():
        grant = await request.services.gateway_config.now.find_grant(token)
    if grant is None:
        raise ApiError(
            401, "unauthorized", "this token does not count; the owner's is in the file `token` of the agent's home"
        )
    with failures_as_errors():
        session = await request.services.sessions.open(grant)
    scopes = tuple(scope for scope in SCOPES if grant.allows(scope))
    return json_response(SignedInAnswer(grant.name, scopes), headers=_cookie(request, session))


async def sign_in_by_link(request: ApiRequest) -> Response:
    """Set the cookie for somebody who has come with the code of `pegasus open` and pressed the button, and lead to the page.

    The code counts once, so a link in the browser's history is worth nothing. It stands in the body of a form, and its answer leads
    to the page without it. No Origin is looked at: a page of others does not know a code, and the form sends none.
    """
    form = parse_qs((await request.body()).decode("latin-1"))
    with failures_as_errors():
        if not await request.services.sessions.redeem(form.get("code", [""])[0]):
            return _used_link(request)
        session = await request.services.sessions.open(OWNER_GRANT)
    return Response(
        status_code=303, headers={"location": "/", "cache-control": "no-store", **_cookie(request, session)}
    )


def _used_link(request: ApiRequest) -> Response:
    """Lead a browser whose code does not count to the page.

    The page then says so and asks for a token, or is shown if the browser is signed in already. Raises ApiError 401 for such a code
    from any other program.
    """
    if "text/html" in request.http.headers.get("accept", ""):
        return Response(status_code=303, headers={"location": "/?link=used", "cache-control": "no-store"})
    message = "this link was used already or is older than 5 minutes; the command `open` makes another one"
    raise ApiError(401, "unauthorized", message)


async def sign_out(request: ApiRequest) -> Response:
    """End the session, and take the cookie back.

    Without a session nothing is closed, and the cookie is taken back all the same. Raises ApiError 503 if the
    disk refuses; then the session still counts.
    """
    with failures_as_errors():
        await request.services.sessions.close(request.visitor.session)
    return json_response(EmptyAnswer(), headers=_cookie(request, ""))


def _cookie(request: ApiRequest, session: str) -> dict[str, str]:
    return {"set-cookie": request.rules.cookie_header(session, request.fields)}


async def refuse_plain_request(request: ApiRequest) -> Response:
    """Answer a request to `/ws` that is no WebSocket handshake, or a refused one.

    A handshake that is refused comes here, too, and gets the reason from `admit_socket`: 403 or 421 with an
    error object.
    """
    request.rules.admit_socket(request.fields)
    message = "this is the WebSocket of the protocol pegasus.v1; found a plain request"
    raise ApiError(426, "upgrade_required", message)


def page_operations(files: dict[str, StaticFile]) -> tuple[Operation, ...]:
    """Return the operations of this file."""
    pages = Pages(files)
    return (
        Operation("GET", "/", pages.index, "The web page", None, allows_head=True),
        Operation("GET", "/sw.js", pages.worker, "The service worker of the web page", None, allows_head=True),
        Operation("GET", "/static/{path:path}", pages.static, "A file of the web page", None, allows_head=True),
        Operation("GET", "/healthz", show_alive, "Whether the process answers", None, allows_head=True),
        Operation("GET", "/readyz", show_ready, "Whether all permanent parts run", None, allows_head=True),
        Operation("GET", "/ws", refuse_plain_request, "WebSocket of the protocol pegasus.v1", None),
        Operation("GET", "/api/login", show_sign_in, "The command that signs a browser in", None),
        Operation("POST", "/api/login", sign_in, "Sign a browser in with a token", None, body=TokenBody),
        Operation(
            "GET", "/login", pages.ask_to_sign_in, "The link of `pegasus open`: a button", None, query={"code": str}
        ),
        Operation(
            "POST",
            "/login",
            sign_in_by_link,
            "Sign a browser in with that button",
            None,
            body=CodeBody,
            body_media=FORM,
        ),
        Operation("POST", "/api/logout", sign_out, "Sign a browser out", "", outlives_rights=True),
    )
