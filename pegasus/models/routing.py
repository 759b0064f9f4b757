"""Routing rules (`[models.routes]`): some calls go to another model, by role, channel, attached pictures or size.

The first rule whose conditions all hold wins. Rules apply to roles only: a model that a task type or a skill names itself is never
replaced. A fallback chain starts at the model that the rule names.

    [models.routes.pictures]
    model = "anthropic/claude-opus-5-5"
    media = "image"

The size in a rule's condition is the estimate of the role's own model, before the rule is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from pegasus.messages import ChannelInfo
from pegasus.models.base import ModelRequest, ModelResponse, UserTurn
from pegasus.models.client import ModelCall, ModelTarget, Next
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.settings import RouteSettings

_log = get_logger("models")


@attrs.frozen
class CallFacts:
    """Properties of a call that rules look at."""

    role: str = "default"
    channel: ChannelInfo | None = None
    has_image: bool = False
    """True if a picture is anywhere in the conversation."""
    tokens: int = 0
    """Estimate of the prompt's size."""


def matches(route: RouteSettings, facts: CallFacts) -> bool:
    """Return True if all conditions of the rule hold. A rule without conditions always matches."""
    return (
        route.role in ("", facts.role)
        and (not route.channel or _is_channel(route.channel, facts.channel))
        and (route.media != "image" or facts.has_image)
        and facts.tokens >= route.min_tokens
        and (not route.max_tokens or facts.tokens <= route.max_tokens)
    )


def find_route(routes: Iterable[RouteSettings], facts: CallFacts) -> str | None:
    """Return the model of the first rule that matches, None if none does."""
    return next((route.model for route in routes if matches(route, facts)), None)


def _is_channel(wanted: str, channel: ChannelInfo | None) -> bool:
    """Compare with a condition: "slack", or "slack:C1" (a channelId may contain colons itself)."""
    return channel is not None and wanted in (channel.type, f"{channel.type}:{channel.channel_id}")


class Routing:
    """Middleware that replaces the target of a call by that of the first matching rule.

    It stands outside of the fallbacks, so that a call that is repeated with another model is not sent back by a rule.

    routes: rules with their targets, in the order of the settings file.
    """

    def __init__(self, routes: Sequence[tuple[RouteSettings, ModelTarget]]) -> None:
        self._routes = [route for route, _ in routes]
        self._targets = {route.model: target for route, target in routes}

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Go on with the model that the rules name."""
        target = self.pick(call)
        if target is not call.target:
            _log.debug("a rule names another model", model=target.name, role=call.role)
            call = attrs.evolve(call, target=target)
        return await next(call)

    def pick(self, call: ModelCall) -> ModelTarget:
        """Return the target for this call."""
        if not self._routes or call.role not in MODEL_ROLES:
            return call.target
        request = call.request
        tokens = call.target.counter.estimate(request)
        facts = CallFacts(call.role, request.label.channel, _has_image(request), tokens)
        spec = find_route(self._routes, facts)
        return call.target if spec in (None, call.target.name) else self._targets[spec]


def _has_image(request: ModelRequest) -> bool:
    """Return True if a picture is in any turn, also in an old one: the model must be able to read the whole conversation."""
    return any(isinstance(turn, UserTurn) and turn.images for turn in request.turns)
