"""`A2aDoor`: the handlers for the HTTP server, and the work behind them for the tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

import trio
from starlette.responses import Response

from pegasus.a2a.bindings import Bindings
from pegasus.a2a.card import CardKey, CardKeyError, load_key, make_card
from pegasus.a2a.push import PushDeliveries, PushTargets
from pegasus.a2a.record import TaskRecord, record_of
from pegasus.a2a.service import A2aService
from pegasus.a2a.watch import TaskWatch
from pegasus.access import READ
from pegasus.messages import Json
from pegasus.settings import LiveValue
from pegasus.storage import while_owner
from pegasus.tasks import GetEvents
from pegasus.tools import AddressGuard, FetchLimits, ToolError, fetch
from pegasus.web import ApiError, ApiRequest, WebServices, json_response
from pegasus.wire import encode_json

_CARD_AGE: Final = 300
"""Seconds for which a card may be kept."""
_MOST_SKILLS: Final = 200
"""Skills that the extended card names."""
_LOOK: Final = 2.0
"""Seconds between two looks at tasks of other nodes."""
_ANSWER_BYTES: Final = 4096
"""Bytes of a push target's answer that are read; nobody looks at them."""


class A2aDoor:
    """The door for other agents."""

    def __init__(
        self,
        services: WebServices,
        key_file: LiveValue[Path | None],
        allowed_hosts: LiveValue[tuple[str, ...]],
        *,
        is_shared: bool = False,
    ) -> None:
        """key_file: of the key that cards are signed with; None: they are not signed. allowed_hosts: not public, and permitted.

        is_shared: there may be other nodes, whose tasks are followed too.
        """
        self._is_shared = is_shared
        self._services = services
        self._key_file = key_file
        self._key: tuple[Path, CardKey] | None = None
        self._allowed_hosts = allowed_hosts
        self._targets = PushTargets(services.clock)
        watch = TaskWatch(services.recent, self._read, _LOOK if is_shared else math.inf)
        self._service = A2aService(services, self._targets, watch, self._guard)
        self._watch = watch
        self._deliveries = PushDeliveries(
            self._targets,
            watch,
            services.tasks,
            self._post,
            self._counts,
            services.clock,
            Random(),  # noqa: S311 pauses only
        )
        self._bindings = Bindings(self._service, self._extended)

    async def open(self) -> None:
        """Read the push targets."""
        await self._targets.open(self._services.intake.journal)

    async def run(self) -> None:
        """Wake streams, and deliver push notifications, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch.run)
            # One node delivers, so that each update is sent once.
            nursery.start_soon(while_owner, self._services.intake.journal, "a2a-push", self._deliveries.run)
            if self._is_shared:
                nursery.start_soon(self._targets.follow)

    async def card(self, request: ApiRequest) -> Response:
        """Return the card, which everybody may see and keep for a while."""
        card = await self._card(request)
        tag = f'"{sha256(encode_json(card).encode()).hexdigest()[:16]}"'
        headers = {"cache-control": f"max-age={_CARD_AGE}", "etag": tag}
        if request.http.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return json_response(card, headers=headers)

    async def keys(self, request: ApiRequest) -> Response:
        """Return the public key of the card's signature, a JSON Web Key Set."""
        key = await self._find_key()
        return json_response({"keys": [key.public] if key else []}, headers={"cache-control": f"max-age={_CARD_AGE}"})

    async def rpc(self, request: ApiRequest) -> Response:
        """Answer a request of JSON-RPC."""
        return await self._bindings.rpc(request)

    async def rest(self, request: ApiRequest, method: str) -> Response:
        """Answer a request of HTTP+JSON. method: the operation."""
        return await self._bindings.rest(request, method)

    async def _card(self, request: ApiRequest, skills: tuple[Json, ...] = ()) -> dict[str, Json]:
        # The Host was checked, so it is a name of this server.
        url = self._services.config.now.public_url or f"http://{request.http.headers.get('host', '')}"
        return make_card(self._services.gateway_config.now.agent, url.rstrip("/"), skills, await self._find_key())

    async def _extended(self, request: ApiRequest) -> dict[str, Json]:
        """Return the card for a client that has shown its token: with the skills, if it may read them."""
        skills: list[Json] = []
        if request.grant.allows(READ):
            found = (await request.call("skills.list")).get("skills")
            for skill in found if isinstance(found, list) else ():
                if isinstance(skill, Mapping) and len(skills) < _MOST_SKILLS:
                    name, text = str(skill.get("name", "")), str(skill.get("description", ""))
                    skills.append({"id": f"skill-{name}", "name": name, "description": text or name, "tags": ["skill"]})
        return await self._card(request, tuple(skills))

    async def _find_key(self) -> CardKey | None:
        """Return the key of the settings in force, None if they name none. Raises ApiError."""
        file = self._key_file.now
        if file is None:
            return None
        if self._key is None or self._key[0] != file:
            try:
                self._key = file, await trio.to_thread.run_sync(load_key, file)
            except CardKeyError as error:
                raise ApiError(503, "unavailable", str(error)) from None
        return self._key[1]

    def _guard(self) -> AddressGuard:
        return AddressGuard(self._allowed_hosts.now)

    async def _counts(self, token: str) -> bool:
        """Return whether the token of this name counts, "" for the owner's. Raises StorageError, ActorError."""
        tokens = self._services.gateway_config.now.tokens
        await tokens.ensure_read()
        return not token or tokens.named(token) is not None

    async def _read(self, task_id: str) -> TaskRecord | None:
        """Return a task of this protocol; None if there is none. Raises StorageError, ActorError."""
        return record_of(task_id, await self._services.tasks.ask(GetEvents, task_id))

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send an update to a push target. Raises OSError."""
        try:
            answer = await fetch(self._guard(), "POST", url, headers, body, limits=FetchLimits(_ANSWER_BYTES))
        except ToolError as error:
            raise OSError(str(error)) from None
        return answer.status
