"""One model call, from the request to the answer, and the middleware that it passes.

The rest of Pegasus calls a `ModelClient` (in `service.py`), which knows what model its role means at this moment. It gives a
`PreparedModel` for one thought: whoever makes a prompt by the model's name and window reads them there, and calls it then.

The call then passes a list of middleware, outermost first, and ends at a provider:

    PreparedModel → Routing → Fallback → UsageTracker → CallLimit → HttpModel or StandIn

* `Routing` sends a call to another model where a rule of the settings says so.
* `Fallback` tries the models of `models.fallback` when the first is down. It calls the rest of the list once for each model.
* `UsageTracker` refuses calls that would exceed a budget, and records what was used.
* `CallLimit` holds back calls above `models.max_concurrent_calls`.

A middleware is an async function of a call and the next step. It may change the call (`attrs.evolve`), call `next` zero or more
times, and handle the ModelError that comes back. To add one, write it and name it in the list in `setup.py`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import attrs
import trio

from pegasus.messages import ChannelInfo
from pegasus.models.base import (
    NO_OPTIONS,
    CallOptions,
    LanguageModel,
    ModelError,
    ModelRequest,
    ModelResponse,
    Usage,
    UserTurn,
)
from pegasus.models.model_facts import ModelFacts
from pegasus.models.tokens import TokenCounter
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.models.answers import AnswerFilter
    from pegasus.settings import RouteSettings

_log = get_logger("models")

Lane: TypeAlias = Literal["work", "conversation"]
"""Priority of a call: one that a person waits for is in the lane "conversation", background work in "work"."""


# ------------------------------------------------------------------ a call and its middleware


@attrs.frozen(eq=False, repr=False)
class ModelTarget:
    """A model of a provider, with what is kept about it while settings do not change."""

    name: str
    """`<provider>/<model>` as in the settings."""
    model: LanguageModel
    """Makes the call."""
    counter: TokenCounter
    """Counts its prompts, and learns from what the provider has counted."""
    facts: ModelFacts = attrs.field(factory=ModelFacts)
    """Window of the model."""
    is_offline: bool = False
    """True for the stand-in: it costs nothing and is not counted."""
    options: Mapping[str, CallOptions] = attrs.field(factory=dict)
    """Options of its calls by role."""


@attrs.frozen(eq=False, repr=False)
class ModelCall:
    """A call on its way through the middleware."""

    target: ModelTarget
    """The model to ask; a middleware may replace it."""
    role: str
    """Role or model name of the client."""
    lane: Lane
    """Priority of the call, by which `CallLimit` gives places."""
    request: ModelRequest
    """The request as the caller made it. The model streams to `stream`, not to its `on_pieces`."""
    stream: AnswerFilter
    """Way of the answer's pieces to the listener."""
    patience: float = math.inf
    """Seconds until the first token at most, however many the settings allow."""
    options: CallOptions = attrs.field(init=False)
    """Options that the settings give this call of the target."""
    max_tokens: int = attrs.field(init=False)
    """Length of the answer at most.

    All services count thinking as a part of the answer. An answer that is cut off while the model thinks says nothing at all, so there
    must be room for both.
    """

    @options.default
    def _find_options(self) -> CallOptions:
        """Return the options by role. A client of a model by its name has the role of its label."""
        role = self.role if self.role in MODEL_ROLES else self.request.label.role
        return self.target.options.get(role, NO_OPTIONS)

    @max_tokens.default
    def _find_max_tokens(self) -> int:
        """Return the length that the settings give the answer, else that of the request and the room to think."""
        return self.options.max_tokens or self.request.max_tokens + self.options.room_to_think

    async def to(self, target: ModelTarget) -> ModelCall:
        """Return the same call of another model. Its server is asked for the window first, if it was not asked yet."""
        await target.facts.ask_server()
        return attrs.evolve(self, target=target)


Next: TypeAlias = Callable[[ModelCall], Awaitable[ModelResponse]]
"""The rest of the way. Raises ModelError."""


class Middleware(Protocol):
    """A step on the way of a call.

    Example::

        async def log_calls(call: ModelCall, next: Next) -> ModelResponse:
            response = await next(call)
            print(call.target.name, response.usage)
            return response

    An exception other than ModelError is a defect of the step: the turn or task that made the call fails with it.

    Its place in the list of `ModelSetup` decides what it sees: a step outside of `Fallback` sees one call, a
    step inside of it one for each model that is asked.
    """

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Return the response for the call, usually that of `next(call)`. Raises ModelError."""


def compose(middleware: Sequence[Middleware]) -> Next:
    """Return the whole way of a call: through the middleware, the first one outermost, and on to the target's model.

        run = compose([Routing(routes), CallLimit(3)])
        response = await run(ModelCall(target, "default", "work", request, AnswerFilter(request, PieceRelay())))

    It is composed once for each version of the settings, not for each call.
    """
    step: Next = ask_target
    for outer in reversed(middleware):
        step = partial(outer, next=step)
    return step


async def ask_target(call: ModelCall) -> ModelResponse:
    """Ask the call's model: the last step. Its counter learns from the usage, its facts from a refusal. Raises ModelError.

    Calls and reasoning that the model wrote as text become such. An answer that is empty although somebody waits for one is usually a
    fault of the server, so the same is asked once more; a second one is the model's silence. On failure and on cancellation what was
    streamed is retracted.
    """
    target, notice = call.target, ""
    timeout = min(call.options.timeout, call.patience)
    options = attrs.evolve(call.options, timeout=timeout, context_window=target.facts.context_window)
    request = attrs.evolve(call.request, max_tokens=call.max_tokens, options=options, on_pieces=call.stream)
    try:
        answer, spent = call.stream.finish(await target.model.generate(request)), Usage()
        if not call.request.asks_again and _is_unlikely(answer, call.request):
            _log.info("an empty answer is asked for once more", model=target.name)
            call.stream((None,))
            spent = answer.usage
            answer = call.stream.finish(await target.model.generate(request))
        read, estimate = answer.usage.prompt_tokens, target.counter.learn(call.request, answer.usage)
        target.facts.note_taken(read or estimate.tokens)
        if 0 < read < estimate.tokens:  # usually by an error of the estimate; the server may also have cut the prompt
            notice = target.facts.check_prompt(call.request, read, estimate, target.counter)
    except BaseException as error:
        call.stream.fail(error)
        if isinstance(error, ModelError):
            error.model = error.model or target.name
            if error.may_be_length:
                size = target.counter.estimate(call.request)
                error.may_be_length = target.facts.may_be_too_long(call.request, size)
            target.facts.note_failure(error)
        raise
    return attrs.evolve(answer, notice=notice, usage=answer.usage + spent) if notice or spent != Usage() else answer


def _is_unlikely(answer: ModelResponse, request: ModelRequest) -> bool:
    """Return whether an answer is empty where a model usually says something.

    It ends its work in silence behind the results of its calls, for which it takes at least a token.
    """
    last, usage = request.turns[-1], answer.usage
    is_behind_results = isinstance(last, UserTurn) and bool(last.results)
    return answer.is_empty and not (is_behind_results and (usage.completion_tokens or not usage.prompt_tokens))


class CallLimit:
    """Middleware that bounds the calls running at the same time (`models.max_concurrent_calls`).

    One place is kept for the conversations of owners, so that an owner waits neither for background work nor for guests, whose calls
    may hang: of three places, tasks and guests together use at most two. A guest goes before tasks that wait for a place: no more
    tasks than may run wait for the places that both share. A single place is shared by all; then an owner waits for at most the one
    call that is running. Within a lane, places are given in the order in which calls asked for them.

    The wait does not count for `models.timeout`. A cancelled call gives its place back.

    Where several nodes share the state, each has the same part of the places, and one at least.
    """

    def __init__(self, places: int, nodes: int = 1) -> None:
        self._places = places
        self._all = trio.CapacityLimiter(1)
        self._others = trio.CapacityLimiter(1)
        """Places of `_all` that guests and background work may hold, or wait for, at the same time."""
        self._work = trio.CapacityLimiter(1)
        """Places of `_others` that background work may hold, or wait for, at the same time."""
        self.nodes = 1
        """Nodes that share the places."""
        self.share(nodes)

    def share(self, nodes: int) -> None:
        """Let so many nodes share the places from now on. Calls that run go on."""
        self.nodes, places = nodes, max(1, self._places // nodes)
        self._all.total_tokens = places
        self._others.total_tokens = self._work.total_tokens = max(1, places - 1)

    async def __call__(self, call: ModelCall, next: Next) -> ModelResponse:
        """Wait for a place, then go on. Cancelled while waiting, the call has not been made."""
        if call.lane == "work":
            async with self._work, self._others, self._all:
                return await next(call)
        if call.request.label.guest:
            async with self._others, self._all:
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
            call = await call.to(target)
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


# ------------------------------------------------------------------ the model of a thought


@attrs.frozen(eq=False, repr=False)
class PreparedModel:
    """`LanguageModel` of a client at one moment: for the calls of one thought, and for what must be known before them.

    It stays the same model when the settings change, while the client has another one then.
    """

    name: str
    """`<provider>/<model>`, before routing rules and fallbacks."""
    facts: ModelFacts
    """Its window, as far as is known at each moment: a refusal may name fewer tokens."""
    _target: ModelTarget
    """Model of the client at the moment when this was prepared."""
    _role: str
    """Role or model name of the client."""
    _lane: Lane
    """Priority of its calls."""
    _run: Next
    """The way of a call."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the model's answer. Raises ModelError.

        On cancellation the connection is closed and what was streamed is retracted. `ModelError.partial` is the longest text of all
        attempts, with fallback models too.
        """
        from pegasus.models.answers import AnswerFilter, PieceRelay

        relay = PieceRelay(request.on_pieces)
        call = ModelCall(self._target, self._role, self._lane, request, AnswerFilter(request, relay))
        try:
            return await self._run(call)
        except ModelError as error:
            error.partial = max(error.partial, relay.longest_text, key=len)
            raise
