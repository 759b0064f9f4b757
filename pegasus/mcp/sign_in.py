"""Signing in to a server: `pegasus mcp login NAME`.

The person opens an address in a browser and says yes there; the browser is sent back to a port of this machine, which this process
listens on, with a code for a token (authorization code with PKCE). Where the browser is on another machine, the service may offer a
short code to type in there instead (device code, RFC 8628).

**With a browser** the flow is the SDK's. The token file is removed first, so that the SDK finds no token and begins at the server's
first 401. The listener is open before the address is shown, because the address names its port; services accept any port of
127.0.0.1 (RFC 8252, section 7.3). The listener hands on the first visit to `/callback` and judges nothing: the SDK compares `state`
and the issuer (RFC 9207) before it exchanges the code. Other visits, such as that of a browser for its icon, are answered with 404.

**With a code** the flow is written here, because the SDK has none: discovery, registration, a code, and one question after the other
until the service gives the token. The token is kept, and then used for a connection, by the same class as in the daemon.

Either way the sign-in ends with a list of the server's tools: it proves that the server takes the token. Cancelled before that, the
file may hold the registration of this program, or tokens that work; a second sign-in begins with an empty file again.

Imports the SDK, so it is imported late.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import trio
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    handle_registration_response,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from pegasus.mcp.connection import McpConnection, explain, open_connection
from pegasus.mcp.faults import ServerDown, first_fault
from pegasus.mcp.listing import clean
from pegasus.mcp.oauth import CLIENT_NAME, PersonAuth, StoredTokens, metadata_of
from pegasus.mcp.remote import RemoteServer, open_remote
from pegasus.mcp.tokens import TokenFile
from pegasus.settings import McpServerSettings

PATIENCE: Final = 600.0
"""Seconds that a person may take."""
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
"""Name of the grant in requests."""
_PAGE: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"<!doctype html><title>Pegasus</title><p>You can close this page and go back to the terminal.</p>"
)
"""Answer to the browser when it has brought the code. It is the same for a refusal, which the terminal explains."""
_NOT_THAT: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def count_tools(connection: McpConnection) -> int:
    """Return the number of a server's tools: a list is the cheapest request that a server refuses without a valid token."""
    return len(await connection.list_tools())


async def sign_in_by_browser(
    settings: McpServerSettings,
    file: TokenFile,
    show: Callable[[str], None],
    work: Callable[[McpConnection], Awaitable[int]] = count_tools,
) -> int:
    """Let a person sign in in a browser on this machine; return the number of the server's tools.

    show: shows a line to the person. work: what to do with the connection, whose requests may ask the person for more. Raises
    ServerDown. What was kept for the server before is dropped.

    The callback is on this machine, so the browser must be, too; `sign_in_by_code` is for all others.
    """
    # A token from before would be used, and no person be asked.
    file.remove()
    with _explained():
        async with _callback() as (address, result):

            async def redirect(url: str) -> None:
                """Show the address. No browser is opened from here: the terminal may be on another machine."""
                show("Open this address in a browser on this machine, and agree there:")
                show(url)

            tokens, handlers = StoredTokens(file, settings), {"redirect_handler": redirect, "callback_handler": result}
            return await _connect(settings, PersonAuth(settings, tokens, address, **handlers), work)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the SDK raises for an expected reason, such as a service that refuses, into ServerDown."""
    try:
        yield
    except Exception as error:
        reason = explain(first_fault(error))
        if reason is None:
            raise
        raise ServerDown(reason) from None


async def _connect(
    settings: McpServerSettings, auth: httpx2.Auth, work: Callable[[McpConnection], Awaitable[int]] = count_tools
) -> int:
    """Connect with these tokens, and return what `work` returns. Raises ServerDown.

    The time for it includes what the person takes: the SDK asks them in the middle of the connection's first request.
    """
    remote = RemoteServer(settings.url, settings.headers, auth)
    with trio.move_on_after(PATIENCE):
        async with open_connection(open_remote(remote, sse=False), lambda: None, legacy=False) as connection:
            return await work(connection)
    raise ServerDown(f"nobody has signed in within {PATIENCE / 60:g} minutes")


@asynccontextmanager
async def _callback() -> AsyncIterator[tuple[str, Callable[[], Any]]]:
    """Listen on a free port of this machine; yield the address for the browser, and the function that waits for its visit."""
    visits, visited = trio.open_memory_channel[AuthorizationCodeResult](1)

    async def visit(stream: trio.SocketStream) -> None:
        """Answer one visit of the browser, within ten seconds. The first fitting one is handed on, later ones are dropped."""
        with trio.move_on_after(10):
            line = (await stream.receive_some(16_384)).split(b"\r\n", 1)[0].decode("latin-1")
            _, _, rest = line.partition(" ")
            parts = urlsplit(rest.partition(" ")[0])
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            # A refusal is a visit as well. The SDK turns it into an error, which `_explained` words.
            fits = parts.path == "/callback" and ("code" in query or "error" in query)
            if fits:
                # The channel holds one visit. A browser that loads the page again must not block this.
                with suppress(trio.WouldBlock):
                    visits.send_nowait(
                        AuthorizationCodeResult(
                            code=query.get("code", ""), state=query.get("state"), iss=query.get("iss")
                        )
                    )
            await stream.send_all(_PAGE if fits else _NOT_THAT)
        # The answer was sent with "connection: close", so there is nothing to wait for.
        await trio.aclose_forcefully(stream)

    async def result() -> AuthorizationCodeResult:
        """Wait for the visit that brings the code, or the refusal."""
        return await visited.receive()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, visit, [listener])
        yield f"http://127.0.0.1:{port}/callback", result
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------ device code


async def sign_in_by_code(settings: McpServerSettings, file: TokenFile, show: Callable[[str], None]) -> int:
    """Let a person sign in on any machine with a short code; return the number of the server's tools. As `sign_in_by_browser`.

    The tokens are kept only when the service has given them. The connection behind that gets a PATIENCE of its own.
    """
    file.remove()
    with _explained():
        return await _sign_in_by_code(settings, file, show)


async def _sign_in_by_code(settings: McpServerSettings, file: TokenFile, show: Callable[[str], None]) -> int:
    tokens = StoredTokens(file, settings)
    async with RemoteServer(settings.url, settings.headers).open_client() as client:
        authorization, resource = await _discover(client, settings.url)
        endpoint = authorization.get("device_authorization_endpoint")
        # RFC 8628 makes it optional. Not every service has it.
        if not isinstance(endpoint, str):
            raise ServerDown("its service offers no codes for devices; sign in without --device")
        metadata = OAuthMetadata.model_validate(authorization)
        # The settings may name a client id, as services without open registration require.
        registered = await tokens.get_client_info() or await _register(client, metadata, settings, tokens)
        data = {"client_id": registered.client_id, "resource": resource}
        if settings.scopes:
            data["scope"] = settings.scopes
        if registered.client_secret:
            data["client_secret"] = registered.client_secret
        begun = await _post(client, endpoint, data)
        # Both texts are the service's, so what a terminal could act on is removed from them.
        show(f"Open {clean(str(begun.get('verification_uri')), 300)} on any machine, and enter the code:")
        show(clean(str(begun.get("user_code")), 40))
        data |= {"grant_type": DEVICE_GRANT, "device_code": str(begun.get("device_code"))}
        token = await _poll(client, str(metadata.token_endpoint), data, begun)
    # Kept before the token: whoever refreshes it needs to know where. A crash in between leaves a file without a token.
    file.update(authorization=metadata_of(metadata))
    await tokens.set_tokens(token)
    return await _connect(settings, PersonAuth(settings, tokens))


async def _discover(client: httpx2.AsyncClient, url: str) -> tuple[dict[str, Any], str]:
    """Return the metadata of the authorization server (RFC 8414), and the name of the resource (RFC 8707). Raises ServerDown.

    The server names both in its own metadata (RFC 9728). One without such metadata is taken for its own authorization server, as in
    older versions of the protocol.

    The places are tried in the order of the SDK, from the one for this very address to the one for the host.
    """
    server, resource = "", url
    for place in build_protected_resource_metadata_discovery_urls(None, url):
        if found := await _get(client, place):
            servers = found.get("authorization_servers")
            server = str(servers[0]) if isinstance(servers, list) and servers else ""
            resource = str(found.get("resource") or url)
            break
    for place in build_oauth_authorization_server_metadata_discovery_urls(server or None, url):
        if found := await _get(client, place):
            return found, resource
    raise ServerDown("it names no service to sign in to")


async def _get(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    """Return a JSON object, {} if there is none.

    A status other than 200 is an answer: the next place of the list is tried.
    """
    try:
        answer = await client.get(url)
        found = json.loads(answer.content) if answer.status_code == 200 else {}
    except (httpx2.HTTPError, ValueError) as error:
        raise ServerDown(f"its service cannot be reached ({type(error).__name__})") from None
    return found if isinstance(found, dict) else {}


async def _register(
    client: httpx2.AsyncClient, metadata: OAuthMetadata, settings: McpServerSettings, tokens: StoredTokens
) -> Any:
    """Register this program (RFC 7591), and keep the registration. Raises what the SDK raises for a service that refuses.

    The address of a callback must be named, though a code for devices leads to none.
    """
    wanted = OAuthClientMetadata(
        client_name=CLIENT_NAME,
        redirect_uris=[AnyUrl("http://127.0.0.1/callback")],
        grant_types=[DEVICE_GRANT, "refresh_token"],
        token_endpoint_auth_method="none",  # noqa: S106
        scope=settings.scopes or None,
    )
    parts = urlsplit(settings.url)
    request = create_client_registration_request(metadata, wanted, f"{parts.scheme}://{parts.netloc}")
    registered = await handle_registration_response(await client.send(request))
    registered.issuer = str(metadata.issuer)
    await tokens.set_client_info(registered)
    return registered


async def _post(client: httpx2.AsyncClient, url: str, data: dict[str, str]) -> dict[str, Any]:
    """Return the JSON object that answers a form, whatever its status."""
    try:
        found = json.loads((await client.post(url, data=data, headers={"accept": "application/json"})).content)
    except (httpx2.HTTPError, ValueError) as error:
        raise ServerDown(f"its service cannot be used ({type(error).__name__})") from None
    return found if isinstance(found, dict) else {}


async def _poll(client: httpx2.AsyncClient, url: str, data: dict[str, str], begun: dict[str, Any]) -> OAuthToken:
    """Ask for the token until the person has entered the code. Raises ServerDown.

    begun: the answer that has brought the code, with the pause between two questions and the life of the code. The pause is 5 seconds
    where the service names none, and grows by 5 with each `slow_down` (RFC 8628, section 3.5).
    """
    pause, patience = _seconds(begun.get("interval"), 5.0), min(_seconds(begun.get("expires_in"), PATIENCE), PATIENCE)
    with trio.move_on_after(patience):
        while True:
            # The pause comes first: nobody types a code in no time, and a question that comes too early is answered with slow_down.
            await trio.sleep(pause)
            answer = await _post(client, url, data)
            error = answer.get("error")
            if error == "slow_down":
                pause += 5
            elif error is not None and error != "authorization_pending":
                raise ServerDown(f"its service refuses: {clean(str(error), 100)}")
            elif error is None:
                try:
                    return OAuthToken.model_validate(answer)
                except ValidationError:
                    raise ServerDown("its service answers with no token") from None
    raise ServerDown("the code was not entered in time")


def _seconds(value: object, default: float) -> float:
    """Return a time that a service names, within bounds."""
    return min(max(float(value), 1.0), PATIENCE) if isinstance(value, int | float) else default
