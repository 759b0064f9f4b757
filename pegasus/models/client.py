"""One model call, from the request to the answer: the client, its middleware, and the relay for streamed text.

A `ModelClient` is what the rest of Pegasus calls. It belongs to a role ("default", "compact", …) or to a model by name. It stays valid
when settings are reloaded or another model is chosen: each call asks the service which model that is at this moment.

The call then passes a list of middleware, outermost first, and ends at a provider:

    ModelClient → Routing → Fallback → UsageTracker → CallLimit → HttpModel or StandIn

* `Routing` sends a call to another model where a rule of the settings says so.
* `Fallback` tries the models of `models.fallback` when the first is down. It calls the rest of the list once for each model.
* `UsageTracker` refuses calls that would exceed a budget, and records what was used.
* `CallLimit` holds back calls above `models.max_concurrent_calls`.

A middleware is an async function of a call and the next step. It may change the call (`attrs.evolve`), call `next` zero or more
times, and handle the ModelError that comes back. To add one, write it and name it in `service.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import attrs
import trio

from pegasus.messages import ChannelInfo
from pegasus.models.base import LanguageModel, ModelError, ModelRequest, ModelResponse, OnText, UserTurn
from pegasus.models.catalog import DEFAULT_WINDOW
from pegasus.models.roles import ModelConfigError
from pegasus.models.tokens import TokenCounter
from pegasus.models.wire_format import join_surrogates
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.settings import RouteSettings

_log = get_logger("models")

Lane: TypeAlias = Literal["work", "conversation"]
"""Priority of a call: one that a person waits for is in the lane "conversation", background work in "work"."""


# ------------------------------------------------------------------ streamed text


class TextRelay:
    """Relay of streamed text from a provider to the listener of a request. There is one for each call, whatever it takes.

    Every attempt of a call, and every model of a fallback chain, sends its text here: pieces of text, or None to retract what this
    attempt has sent. The relay makes of that what `ModelRequest.on_text` promises:

    * None is only forwarded if there is something to retract.
    * A character outside the basic plane that a provider cut into two surrogates is forwarded as one.
    * A listener that raises is logged and gets nothing more; the call goes on.

    It also counts characters, retracted ones too: an answer that broke off has to be paid all the same.

        relay = TextRelay(print)
        relay("Hel"); relay(None); relay("Hello"); relay.finish()
    """

    def __init__(self, listener: OnText | None = None) -> None:
        self._listener = listener
        self._half = ""
        """First surrogate of a character whose second one is still to come."""
        self._has_sent = False
        self.characters = 0
        """Characters received so far, over all attempts."""

    def __call__(self, piece: str | None) -> None:
        """Take a piece of text, or None: the text so far will not be part of the answer."""
        if piece is None:
            self._half = ""
            if self._has_sent:
                self._has_sent = False
                self._send(None)
            return
        self.characters += len(piece)
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text[: len(text) - len(self._half)]
        if text:
            self._has_sent = True
            self._send(join_surrogates(text))

    def finish(self) -> None:
        """Note that the answer is complete. Half a character that is left over is forwarded as U+FFFD."""
        if self._half:
            self._half = ""
            self._send("\N{REPLACEMENT CHARACTER}")

    def _send(self, piece: str | None) -> None:
        if self._listener is None:
            return
        try:
            self._listener(piece)
        except Exception as error:
            self._listener = None
            _log.exception("a listener of streamed text failed; streaming to it has ended", error=error)


# ------------------------------------------------------------------ a call and its middleware


@attrs.frozen(eq=False)
class ModelTarget:
    """A model of a provider, with what is kept about it while settings do not change."""

    name: str
    """`<provider>/<model>` as in the settings."""
    model: LanguageModel
    """Makes the call. Its `generate` gets the relay as `on_text`."""
    counter: TokenCounter
    context_window: int = DEFAULT_WINDOW
    """Tokens that fit into the model."""
    is_offline: bool = False
    """True for the stand-in: it costs nothing and is not counted."""


@attrs.frozen(eq=False)
class ModelCall:
    """A call on its way through the middleware."""

    target: ModelTarget
    """The model to ask; a middleware may replace it."""
    role: str
    """Role or model name of the client."""
    lane: Lane
    request: ModelRequest
    """The request as the caller made it. Streamed text goes to `relay`, not to its `on_text`."""
    relay: TextRelay = attrs.field(factory=TextRelay)


Next: TypeAlias = Callable[[ModelCall], Awaitable[ModelResponse]]
"""The rest of the way. Raises ModelError."""


class Middleware(Protocol):
    """A step on the way of a call.

        async def log_calls(call: ModelCall, next: Next) -> ModelResponse:
            response = await next(call)
            print(call.target.name, response.usage)
            return response

    An exception other than ModelError is a defect of the step: the turn or task that made the call fails with it.
    """

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Return the response for the call, usually that of `next(call)`. Raises ModelError."""


def compose(middleware: Sequence[Middleware]) -> Next:
    """Return the whole way of a call: through the middleware, the first one outermost, and on to the target's model.

        run = compose([Routing(routes), CallLimit(3)])
        response = await run(ModelCall(target, "default", "work", request))

    It is composed once for each version of the settings, not for each call.
    """
    step: Next = ask_target
    for outer in reversed(middleware):
        step = partial(outer, next=step)
    return step


async def ask_target(call: ModelCall) -> ModelResponse:
    """Ask the call's model: the last step. Its counter learns from the usage. Raises ModelError.

    On failure and on cancellation the text that was streamed is retracted.
    """
    try:
        response = await call.target.model.generate(attrs.evolve(call.request, on_text=call.relay))
    except BaseException:
        call.relay(None)
        raise
    call.target.counter.learn(call.request, response.usage)
    return response


class CallLimit:
    """Middleware that bounds the calls running at the same time (`models.max_concurrent_calls`).

    One place is kept for conversations, so that a person never waits behind background work: of three places, tasks use at most two.
    A single place is shared; then a conversation waits for at most the one call of a task that is running, because all others wait
    outside. Within a lane, places are given in the order in which calls asked for them.

    The wait does not count for `models.timeout`. A cancelled call gives its place back.
    """

    def __init__(self, places: int) -> None:
        self._all = trio.Semaphore(places)
        self._work = trio.Semaphore(max(1, places - 1))
        """Places of `_all` that background work may hold, or wait for, at the same time."""

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Wait for a place, then go on. Cancelled while waiting, the call has not been made."""
        if call.lane == "work":
            async with self._work, self._all:
                return await next(call)
        async with self._all:
            return await next(call)


# ------------------------------------------------------------------ routing rules


def matches(route: RouteSettings, role: str, channel: ChannelInfo | None, *, has_image: bool, tokens: int) -> bool:
    """Return True if all conditions of the rule hold for a call. A rule without conditions always matches.

    channel: of the call. A condition names it as "slack" or "slack:C1"; a channelId may contain colons itself. has_image: whether a
    picture is anywhere in the conversation. tokens: estimate of the prompt's size.
    """
    names = () if channel is None else (channel.type, f"{channel.type}:{channel.channel_id}")
    return (
        route.role in ("", role)
        and route.channel in ("", *names)
        and (route.media != "image" or has_image)
        and tokens >= route.min_tokens
        and (not route.max_tokens or tokens <= route.max_tokens)
    )


class Routing:
    """Middleware for the rules in `[models.routes]`: some calls go to another model, by role, channel, pictures or size.

        [models.routes.pictures]
        model = "anthropic/claude-opus-5-5"
        media = "image"

    The first rule whose conditions all hold wins. Rules apply to roles only: a model that a task type or a skill names itself is never
    replaced. The size in a rule's condition is the estimate of the role's own model, before the rule is applied.

    It stands outside of the fallbacks, so that a call that is repeated with another model is not sent back by a rule.

    routes: rules with their targets, in the order of the settings file.
    """

    def __init__(self, routes: Sequence[tuple[RouteSettings, ModelTarget]]) -> None:
        self._routes = tuple(routes)

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Go on with the model that the rules name."""
        target = self.pick(call)
        if target is not call.target:
            _log.debug("a rule names another model", model=target.name, role=call.role)
            call = attrs.evolve(call, target=target)
        return await next(call)

    def pick(self, call: ModelCall) -> ModelTarget:
        """Return the target for this call."""
        if call.role not in MODEL_ROLES:
            return call.target
        request = call.request
        tokens = call.target.counter.estimate(request)
        has_image = any(isinstance(turn, UserTurn) and turn.images for turn in request.turns)
        for route, target in self._routes:
            if matches(route, call.role, request.label.channel, has_image=has_image, tokens=tokens):
                return target
        return call.target


# ------------------------------------------------------------------ the client


class ClientSource(Protocol):
    """Source of a client's model, asked anew for each call."""

    def resolve(self, role: str) -> tuple[ModelTarget, Next]:
        """Return the model of a role or name, and the way of a call at this moment (see `compose`). Raises ModelConfigError."""


class ModelClient:
    """`LanguageModel` of a role. It follows reloads of the settings and `/model` by itself, so it can be kept for good.

    A call that is under way when the settings change ends with the model it began with.
    """

    def __init__(self, source: ClientSource, role: str, lane: Lane = "work") -> None:
        self._source = source
        self._role = role
        self._lane: Lane = lane

    @property
    def name(self) -> str:
        """`<provider>/<model>` that would be asked now, before routing rules and fallbacks. Raises ModelConfigError."""
        return self._source.resolve(self._role)[0].name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer. Raises ModelError.

        On cancellation the connection is closed and streamed text is retracted.
        """
        relay = TextRelay(request.on_text)
        try:
            target, run = self._source.resolve(self._role)
        except ModelConfigError as error:  # after a reload of the settings
            raise ModelError(str(error), kind="request") from error
        response = await run(ModelCall(target, self._role, self._lane, request, relay))
        relay.finish()
        return response
