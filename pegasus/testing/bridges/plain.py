"""A plain messenger as a service: the one that `examples/plain_bridge.py` speaks with, and that a bridge of your own may begin with.

GET /updates?after=N&seconds=S
    holds the call until there is something, at most S seconds. The answer is
    {"updates": [{"number": 1, "room": "kitchen", "person": "anna", "people": 2, "text": "…", "files": [{"name", "mime", "data"}]}]},
    and N says that the bridge has everything up to it.
POST /messages {"room", "text", "key", "files", "buttons": [{"label", "text"}]}
    shows a message of at most 500 characters. One whose key is known was shown already, and is answered in the same way.
POST /typing {"room", "active"}

`Authorization: Bearer SERVICE_TOKEN` belongs to each call. SERVICE_URL and SERVICE_TOKEN are in the environment of the bridge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import attrs
import trio

from pegasus.testing.bridges.service import HttpBridgeService
from pegasus.testing.bridges.steps import Step
from pegasus.testing.services.server import HANG_UP, ServiceRequest, ServiceResponse, json_response
from pegasus.wire import decode_json

MOST_CHARACTERS: Final = 500
_TOKEN: Final = "token-of-the-service"  # noqa: S105 of a fake


@attrs.define
class PlainPost:
    """A message of the bridge, as people see it."""

    text: str
    files: list[dict[str, str]]
    buttons: list[dict[str, str]]


class PlainService(HttpBridgeService):
    """The messenger with one room."""

    channel_type = "plain"
    most_characters = MOST_CHARACTERS

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[PlainPost] = []
        """Messages that people see."""
        self._keys: set[str] = set()
        self._updates: list[dict[str, object]] = []
        self._confirmed = 0
        self._polls = 0
        self._changed = trio.Event()

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the variables of the bridge."""
        return {"SERVICE_URL": self.base_url, "SERVICE_TOKEN": _TOKEN}

    async def write(self, text: str, files: Sequence[Mapping[str, str]] = ()) -> None:
        """Let Anna write."""
        number = len(self._updates) + 1
        update = {"number": number, "room": "kitchen", "person": "anna", "people": 2, "text": text}
        self._updates.append({**update, "files": list(files)})
        self._notify()

    def seen(self) -> Sequence[str]:
        """Return the texts of the messages that people see."""
        return [post.text for post in self.posts]

    async def answer(self, request: ServiceRequest) -> ServiceResponse:
        """Answer one of the three calls."""
        if request.headers.get("authorization") != f"Bearer {_TOKEN}":
            return json_response({"error": "unknown token"}, 401)
        match request.method, request.path:
            case "GET", "/updates":
                query = parse_qs(urlsplit(request.target).query)
                return await self._poll(int(query["after"][0]), float(query.get("seconds", ["0"])[0]))
            case "POST", "/messages":
                return await self._post(decode_json(request.body))
            case "POST", "/typing":
                return json_response({})
        return json_response({"error": "unknown call"}, 404)

    async def _poll(self, after: int, seconds: float) -> ServiceResponse:
        # The newest call counts. An older one is of a bridge that is gone, which must not meet the next step.
        self._polls += 1
        mine = self._polls
        self._notify()
        if after > self._confirmed:
            await self.points.reach(Step.CONFIRMING)
            self._confirmed = after
            await self.points.reach(Step.CONFIRMED)
        with trio.move_on_after(seconds):
            while len(self._updates) <= after and mine == self._polls:
                await self._changed.wait()
        if mine != self._polls:
            return HANG_UP
        if due := self._updates[after:]:
            await self.points.reach(Step.HANDING_OUT)
        return json_response({"updates": due})

    async def _post(self, message: Any) -> ServiceResponse:
        if len(message["text"]) > MOST_CHARACTERS:
            return json_response({"error": f"at most {MOST_CHARACTERS} characters"}, 400)
        await self.points.reach(Step.SENDING)
        key = message.get("key")
        if key is None or key not in self._keys:
            self._keys |= {key} if key is not None else set()
            self.posts.append(PlainPost(message["text"], message.get("files", []), message.get("buttons", [])))
        await self.points.reach(Step.SENT)
        return json_response({})

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
