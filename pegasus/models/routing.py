"""Rules that send some calls to another model: by role, by channel, by what is attached, by size. The first that fits counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pegasus.models.base import LanguageModel, ModelRequest, ModelResponse, UserTurn
from pegasus.observe import get_logger

if TYPE_CHECKING:
    from pegasus.messages import ChannelInfo
    from pegasus.settings import RouteSettings

_log = get_logger("models")


class Facts(NamedTuple):
    """What rules look at. tokens: about how large the prompt is. image: whether one is in the conversation."""

    role: str = "default"
    channel: ChannelInfo | None = None
    image: bool = False
    tokens: int = 0


def fits(route: RouteSettings, facts: Facts) -> bool:
    """Whether all conditions of the rule hold."""
    return (
        route.role in ("", facts.role)
        and (not route.channel or _is_channel(route.channel, facts.channel))
        and (route.media != "image" or facts.image)
        and facts.tokens >= route.min_tokens
        and (not route.max_tokens or facts.tokens <= route.max_tokens)
    )


def choose(routes: Iterable[RouteSettings], facts: Facts) -> str | None:
    """The model of the first rule that fits, None if none does."""
    return next((route.model for route in routes if fits(route, facts)), None)


def _is_channel(wanted: str, channel: ChannelInfo | None) -> bool:
    """wanted: "slack", or "slack:C1" (a channelId may have colons itself)."""
    return channel is not None and wanted in (channel.type, f"{channel.type}:{channel.channel_id}")


class RoutedModel:
    """A LanguageModel: the one of its role, or another where a rule says so. Its name is that of the role's.

    model_of: by `<provider>/<model>`. size: about how many tokens a request has; asked only if a rule wants to know.
    """

    def __init__(
        self,
        model: LanguageModel,
        role: str,
        routes: Iterable[RouteSettings],
        model_of: Callable[[str], LanguageModel],
        size: Callable[[ModelRequest], int],
    ) -> None:
        self._model = model
        self._role = role
        self._routes = tuple(routes)
        self._model_of = model_of
        self._size = size if any(route.min_tokens or route.max_tokens for route in self._routes) else None

    @property
    def name(self) -> str:
        """`<provider>/<model>` of the role."""
        return self._model.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the model that the rules name for this request. Raises ModelError."""
        return await self.pick(request).generate(request)

    def pick(self, request: ModelRequest) -> LanguageModel:
        """The model for this request."""
        tokens = self._size(request) if self._size is not None else 0
        spec = choose(self._routes, Facts(self._role, request.label.channel, _has_image(request), tokens))
        if spec is None or spec == self._model.name:
            return self._model
        _log.debug("a rule names another model", model=spec, role=self._role, tokens=tokens)
        return self._model_of(spec)


def _has_image(request: ModelRequest) -> bool:
    return any(isinstance(turn, UserTurn) and turn.images for turn in request.turns)
