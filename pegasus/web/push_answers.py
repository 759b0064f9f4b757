"""Answers of the routes by which browsers are notified: for the description of the API, as `answers`."""

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
