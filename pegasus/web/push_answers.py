"""Bodies and answers of the routes by which browsers are notified: for the description of the API, as `answers`."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class PushJson:
    """A subscription of the browser: `service` is the host of its push service, `about` is "all" or "approvals"."""

    id: str
    service: str
    about: Literal["all", "approvals"]
    text: bool
    since: int


@attrs.frozen
class PushAnswer:
    """The key that a browser subscribes with (`applicationServerKey`), and its subscriptions."""

    key: str
    subscriptions: tuple[PushJson, ...]


@attrs.frozen
class PushKeys:
    """Keys of a browser's subscription, in base64url."""

    p256dh: str
    auth: str


@attrs.frozen
class PushBody:
    """A subscription, as the browser's `toJSON` gives it, and what it is told."""

    endpoint: str
    keys: PushKeys
    about: Literal["all", "approvals"] = "all"
    text: bool = True


@attrs.frozen
class SeenBody:
    """Ids of approvals that an owner has in front of them."""

    approvals: tuple[str, ...]
