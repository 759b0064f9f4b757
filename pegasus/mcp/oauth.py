"""OAuth 2.1 for servers at an address: how a request gets its access token.

The flows are the SDK's: discovery of the authorization server, registration, authorization code with PKCE, client credentials, and
refreshing. Here they get a memory: tokens, the registration and the discovered addresses are in a file of the home, so that they are
used and refreshed after a restart without a person. A token is refreshed a minute early, so that none expires on its way.

The memory is needed for more than the tokens. Without the time of expiry the SDK takes a stored token for valid until the server
says 401, and then begins the whole flow, which needs a person. Without the metadata it asks for the new token at `/token` of the MCP
server, which is the wrong place where another service gives the tokens. So `_KeptTokens` restores both before the first request of a
process, and keeps both after each answer with a token. It does so in private methods of the SDK's classes, which have no other hook.

    PersonAuth     a person has signed in; a refresh token gives the next access token
    ProgramAuth    a secret of the settings; there is no refresh token (RFC 6749, section 4.4.3), so a 401 gets a new access token
    KeyAuth        the same with a private key

A refresh that is refused leaves the file as it is: the SDK forgets the tokens in memory only. The request then goes out without a
token, the server answers 401, and the daemon reports that a person must sign in. Each connection begins with the file, so a sign-in
that is made later is found without a restart of the daemon.

A person signs in with `pegasus mcp login` (`sign_in`). The daemon never asks: where a person is needed, it says so.

Imports the SDK, so it is imported late (see `server`).
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import httpx2
import trio
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from pegasus.host import command_name
from pegasus.mcp.faults import ServerDown
from pegasus.mcp.tokens import TokenFile
from pegasus.settings import McpServerSettings

EARLY: Final = 60.0
"""Seconds before its end from which a token is refreshed."""
CLIENT_NAME: Final = "Pegasus"
"""Name under which this program registers."""
BASIC: Final = "client_secret_basic"
"""Way of a secret to the service that every service takes, unless it says otherwise."""
_CURVES: Final = {SECP256R1: "ES256", SECP384R1: "ES384", SECP521R1: "ES512"}
"""Algorithm of a signature by the curve of its key (RFC 7518, section 3.4)."""


class StoredTokens:
    """The SDK's storage of tokens, in a file.

    The SDK calls the four asynchronous methods; `_KeptTokens` calls `restore` and `keep`.

    Example::

        tokens = StoredTokens(TokenFile(home.path / "mcp" / "tracker.json"), settings)
        await tokens.get_tokens()   # None before the first sign-in
    """

    def __init__(self, file: TokenFile, settings: McpServerSettings) -> None:
        self.file = file
        """The memory: `tokens`, `refreshAt` (wall clock, seconds; 0: never), `client`, `authorization` and `resource`."""
        self._settings = settings

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens of the file.

        A file that cannot be read counts as none: a person has to sign in again, a program asks for a new token.
        """
        return _parse(OAuthToken, self.file.read().get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with the time when they should be refreshed."""
        life = tokens.expires_in
        refresh = time.time() + life - early(life) if life is not None else 0
        self.file.update(tokens=metadata_of(tokens), refreshAt=round(refresh))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration: that of the settings, else the one of the file.

        A client id that is an address is no registration: the SDK gives it to services that read such documents.
        """
        if self._settings.client_id and not is_address(self._settings.client_id):
            secret = self._settings.client_secret or None
            method = BASIC if secret else "none"
            return OAuthClientInformationFull(
                client_id=self._settings.client_id, client_secret=secret, token_endpoint_auth_method=method
            )
        return _parse(OAuthClientInformationFull, self.file.read().get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration that the server has given this program, so that it is made once."""
        self.file.update(client=metadata_of(client_info))

    def restore(self, context: OAuthContext) -> None:
        """Give a flow what was found out before a restart."""
        found = self.file.read()
        refresh = found.get("refreshAt")
        if isinstance(refresh, int | float) and refresh:
            context.token_expiry_time = refresh
        context.oauth_metadata = context.oauth_metadata or _parse(OAuthMetadata, found.get("authorization"))
        context.protected_resource_metadata = context.protected_resource_metadata or _parse(
            ProtectedResourceMetadata, found.get("resource")
        )

    def keep(self, context: OAuthContext) -> None:
        """Keep what a flow has found out, and let the token end early. Call it once after each answer with a token."""
        if context.token_expiry_time is not None and context.current_tokens is not None:
            context.token_expiry_time -= early(context.current_tokens.expires_in or 0)
        facts = {"authorization": context.oauth_metadata, "resource": context.protected_resource_metadata}
        known = {key: metadata_of(value) for key, value in facts.items() if value}
        self.file.update(**known)


def early(life: float) -> float:
    """Return how many seconds before its end a token that lives so long is refreshed.

    Of a token that lives two minutes or less it is half of its life: a minute would leave nothing of it.
    """
    return min(EARLY, life / 2)


Model = TypeVar("Model", bound=BaseModel)


def is_address(client_id: str) -> bool:
    """Return whether a client id is the address of a document about this program, which some services read to know it."""
    return client_id.startswith("https://")


def _parse(model: type[Model], value: object) -> Model | None:
    """Return a value of the file as the SDK's model, None if it is none."""
    try:
        return model.model_validate(value) if value is not None else None
    except ValidationError:
        return None


async def _refuse(*_: str) -> NoReturn:
    """Say that a person is needed; the daemon opens no browser. The reason is shown to owners, who can type the command."""
    raise ServerDown(f"a person must sign in first: {command_name()} mcp login")


class _KeptTokens(OAuthClientProvider):
    """The part of the classes below that keeps tokens."""

    @property
    def _tokens(self) -> StoredTokens:
        """The tokens that `make_auth` has given to the SDK."""
        return cast("StoredTokens", self.context.storage)

    async def _initialize(self) -> None:
        await super()._initialize()
        self._tokens.restore(self.context)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._tokens.keep(self.context)


class PersonAuth(_KeptTokens):
    """Tokens for a person who has signed in.

    Without handlers a request that needs a person raises ServerDown.

    Example::

        auth = PersonAuth(settings, StoredTokens(file, settings))
        async with httpx2.AsyncClient(auth=auth) as client: ...
    """

    def __init__(
        self,
        settings: McpServerSettings,
        tokens: StoredTokens,
        redirect_uri: str = "http://127.0.0.1/callback",
        **handlers: Any,
    ) -> None:
        """Make the client of the settings. redirect_uri and handlers: of a sign-in; without them nobody can be asked."""
        metadata = OAuthClientMetadata(
            client_name=CLIENT_NAME, redirect_uris=[AnyUrl(redirect_uri)], scope=settings.scopes or None
        )
        handlers["client_metadata_url"] = settings.client_id if is_address(settings.client_id) else None
        handlers = {"redirect_handler": _refuse, "callback_handler": _refuse, **handlers}
        super().__init__(settings.url, metadata, tokens, **handlers)

    async def _perform_authorization(self) -> httpx2.Request:
        """Return the request for a token. A service that does not take a secret in the header gets it in the body.

        The SDK follows the registration, and one of the settings does not say which way its service wants.
        """
        known, client = self.context.oauth_metadata, self.context.client_info
        methods = known.token_endpoint_auth_methods_supported if known is not None else None
        if client is not None and client.token_endpoint_auth_method == BASIC and methods and BASIC not in methods:
            client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105
        return await super()._perform_authorization()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        refreshed = await super()._handle_refresh_response(response)
        if refreshed:
            self._tokens.keep(self.context)
        return refreshed


class ProgramAuth(_KeptTokens, ClientCredentialsOAuthProvider):
    """Tokens by a secret of this program. No person is needed, neither at the start nor later."""


class KeyAuth(_KeptTokens, PrivateKeyJWTOAuthProvider):
    """Tokens by a private key of this program (RFC 7523, section 2.2). The key never leaves this machine."""


async def _sign(settings: McpServerSettings, audience: str) -> str:
    """Return a signed statement for a service that this program is the client of the settings. Raises OAuthFlowError.

    The key is read each time, so that one that is replaced counts at once.
    """
    pem, algorithm = await trio.to_thread.run_sync(_read_key, settings.client_key)
    signer = SignedJWTParameters(
        issuer=settings.client_id, subject=settings.client_id, signing_key=pem, signing_algorithm=algorithm
    )
    return await signer.create_assertion_provider()(audience)


def _read_key(file: str) -> tuple[str, str]:
    """Return a private key as it stands in its file, and the algorithm for its kind. Raises OAuthFlowError."""
    path = Path(file).expanduser()
    try:
        pem = path.read_bytes()
        key = load_pem_private_key(pem, None)
    except (OSError, ValueError, TypeError) as error:  # TypeError: the key has a password
        raise OAuthFlowError(f"client_key: {path} holds no private key without a password ({error})") from None
    algorithm = "RS256"
    if isinstance(key, EllipticCurvePrivateKey):
        algorithm = _CURVES.get(type(key.curve), "ES256")
    elif isinstance(key, Ed25519PrivateKey):
        algorithm = "EdDSA"
    return pem.decode(), algorithm


def make_auth(settings: McpServerSettings, file: TokenFile) -> httpx2.Auth | None:
    """Return what adds access tokens to requests, None for a server without."""
    tokens = StoredTokens(file, settings)
    if settings.auth == "oauth":
        return PersonAuth(settings, tokens)
    if settings.auth != "client_credentials":
        return None
    provider: Any = KeyAuth if settings.client_key else ProgramAuth
    proof = partial(_sign, settings) if settings.client_key else settings.client_secret
    scope, issuer = settings.scopes or None, settings.issuer or None
    with warnings.catch_warnings():  # the SDK warns without an issuer; the settings explain it
        warnings.simplefilter("ignore")
        auth: httpx2.Auth = provider(settings.url, tokens, settings.client_id, proof, scope=scope, issuer=issuer)
    return auth


def metadata_of(model: BaseModel) -> dict[str, Any]:
    """Return a model of the SDK as JSON for the file."""
    return model.model_dump(mode="json", exclude_none=True)
