"""Weak models: some forty ways in which small models and their servers answer badly, and what a person must hear all the same.

Each is a script for the test provider. `ask_weak_model` puts the whole agent before it, asks one question, and returns what was heard
and in how many model calls. A test runs all of them in virtual time, and `./scripts/bench first_hour` counts them.

    heard = await ask_weak_model(WEAK_MODELS["plain text"])
    heard.texts   # ("My name is Smol.",)
    heard.calls   # 2: the nudge was one of them

The formats of calls as text are those of `pegasus.models.answers`. To add a kind, add an entry to `_SCRIPTS`.

The HTTP client, the agent, its prompt and its tools are the product's own; around them is the world of `open_world`. A script sees
the whole request and answers by it. Most answer always the same, which is the hardest case: nothing that the agent says to the model
helps. Others answer better once they were nudged, that is, once they were told that nobody heard their text.

`wanted` is what the person must hear at least. Where the model can do nothing, that is the agent's own sentence about what went wrong
and what to do, so those entries hold words of that sentence. `unwanted` is what must never leak: tags, JSON, thoughts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from pegasus.models import ModelService, Usage
from pegasus.settings import AgentSettings, ModelSettings, ProviderSettings, Settings
from pegasus.testing.provider import AsyncScript, open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer, Script, refuse
from pegasus.testing.provider.formats import events
from pegasus.testing.provider.requests import ProviderRequest
from pegasus.testing.world import open_world

QUESTION: Final = "What is your name?"
"""Message that every weak model is asked."""
NAME: Final = "My name is Smol."
"""Text of a good answer."""
MOST_CALLS: Final = 3
"""Model calls in which a sensible reply must have come."""

TICK: Final = 2.0
"""Seconds of virtual time that may pass at once."""
_ARGUMENTS: Final = {"channelId": "main", "text": NAME}
_JSON: Final = json.dumps({"name": "reply", "arguments": _ARGUMENTS})
_LONG: Final = 1_000.0
"""Seconds of virtual time in which every weak model has been answered."""


@attrs.frozen
class WeakModel:
    """A kind of weak answers.

    A script is a function of the request, so an entry can answer otherwise once it was nudged (`_then`).
    """

    name: str
    """Name by which tests and the bench report it."""
    script: Script | AsyncScript
    """Answers of the provider."""
    wanted: tuple[str, ...]
    """Texts that a sensible reply contains."""
    unwanted: tuple[str, ...] = ("<think", "<tool_call", '"arguments"', "[channel:")
    """Texts that no reply may contain."""
    window: int = 0
    """Tokens of the window that the settings name; 0 for none. A server on this machine then counts as small."""


@attrs.frozen
class HeardReplies:
    """Outcome of a question to a weak model.

    Example::

        weak = WEAK_MODELS["plain text"]
        heard = await ask_weak_model(weak)
        assert heard.is_sensible(weak)
    """

    texts: tuple[str, ...]
    """Replies that the person got, in order."""
    calls: int
    """Model calls that they took."""

    def is_sensible(self, weak: WeakModel) -> bool:
        """Return whether the person got what this kind allows, within the calls that it may take."""
        heard = "\n".join(self.texts)
        is_complete = all(text in heard for text in weak.wanted)
        return (
            # An agent that says nothing is never sensible, even if nothing was wanted.
            bool(self.texts)
            and is_complete
            and not any(text in heard for text in weak.unwanted)
            and self.calls <= MOST_CALLS
        )


async def ask_weak_model(weak: WeakModel, question: str = QUESTION, *, speech: str = "auto") -> HeardReplies:
    """Return what a person hears who asks an agent with this model for the first time. speech: the setting `agent.speech`.

    Run it with a clock that jumps only when nothing happens for a moment, since the provider is behind a real socket:
    `MockClock(autojump_threshold=0.05)`. It jumps TICK seconds at most, so that a machine under load does not come to a deadline.
    """
    async with open_provider(weak.script) as server, trio.open_nursery() as nursery:
        nursery.start_soon(_tick)
        service = ModelService(
            ModelSettings(default="lab/smol", context_window=weak.window),
            {"lab": ProviderSettings(type="openai", base_url=server.openai_url, api_key="a-key-of-no-known-shape")},
            rng=random.Random(1),  # noqa: S311 pauses between attempts
        )
        # The SDK is imported before the clock of the question runs.
        await service.warm_up()
        try:
            settings = Settings(agent=AgentSettings(speech=speech))
            async with open_world(service.client("default", "conversation"), settings=settings) as world:
                await world.say(question)
                with trio.fail_after(_LONG):
                    # The first reply may be followed by others, such as a repetition: all that a person hears counts.
                    await world.next_reply()
                    await world.idle()
                return HeardReplies(tuple(world.channels["cli"].texts), server.count)
        finally:
            await service.aclose()
            nursery.cancel_scope.cancel()


async def _tick() -> None:
    """Keep a timer within TICK seconds at all times: a clock that jumps goes to the next timer only."""
    while True:  # noqa: ASYNC110 it waits for nothing but time
        await trio.sleep(TICK)


# ------------------------------------------------------------------ scripts


def _always(answer: ProviderAnswer) -> Script:
    """Return a script with the same answer for every request."""
    return lambda request: answer


def _text(text: str, **fields: object) -> Script:
    """Return a script that always answers with this text, in many pieces."""
    return _always(ProviderAnswer(text, pieces=8, **fields))  # type: ignore[arg-type]


def _calls(*calls: Call) -> Script:
    """Return a script that always makes these calls."""
    return _always(ProviderAnswer("", calls))


def _was_nudged(request: ProviderRequest) -> bool:
    """Return whether the model was told that nobody heard its answer, or that it was empty."""
    return "To stay silent on purpose" in request.last.text


def _then(first: ProviderAnswer, later: ProviderAnswer) -> Script:
    """Return a script that answers otherwise once it was nudged, or sees the result of a call."""
    return lambda request: later if _was_nudged(request) or request.last.results else first


def _without_tools(request: ProviderRequest) -> ProviderAnswer:
    """Refuse requests with tools, as Ollama does."""
    if request.tools:
        return refuse(400, "registry.ollama.ai/library/smol does not support tools")
    return ProviderAnswer(NAME)


def _needs_jinja(request: ProviderRequest) -> ProviderAnswer:
    """Refuse requests with tools, as llama.cpp does that was started without a template."""
    return refuse(500, "tools param requires --jinja flag") if request.tools else ProviderAnswer(NAME)


def _small_window(request: ProviderRequest) -> ProviderAnswer:
    """Refuse prompts above 4,096 tokens, as llama.cpp does."""
    tokens = len(request.body) // 4
    if tokens > 4096:
        message = f"the request exceeds the available context size. n_prompt_tokens={tokens}, n_ctx=4096"
        error = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_ctx": 4096}
        return ProviderAnswer(status=400, body=json.dumps({"error": error}).encode(), content_type="application/json")
    return ProviderAnswer("", (Call("reply", _ARGUMENTS),))


def _tiny_window(request: ProviderRequest) -> ProviderAnswer:
    """Refuse every prompt."""
    error = {
        "code": 400,
        "message": "the request exceeds the available context size",
        "type": "exceed_context_size_error",
        "n_ctx": 512,
    }
    return ProviderAnswer(status=400, body=json.dumps({"error": error}).encode(), content_type="application/json")


def _echo(request: ProviderRequest) -> ProviderAnswer:
    """Repeat what was asked."""
    return ProviderAnswer(request.last.text)


def _noise() -> str:
    """Return 10,000 words that mean nothing, the same ones each time."""
    rng = random.Random(7)  # noqa: S311 a text
    return " ".join("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(10_000))


def _wander(request: ProviderRequest) -> ProviderAnswer:
    """Reply to another room each time, in a service that is not there."""
    arguments = {"channelId": f"room-{len(request.turns)}", "channelType": "sms", "text": NAME}
    return ProviderAnswer("", (Call("reply", arguments),))


def _pausing(request: ProviderRequest) -> ProviderAnswer:
    """Pause for 50 seconds in the middle of a call."""
    answer = ProviderAnswer("", (Call("reply", _ARGUMENTS),), pieces=4)
    # The pause stands between two deltas of one call, when a client knows that the answer has begun.
    first, second, *rest = events(answer, request.format, lambda: "1")
    return ProviderAnswer(stream=(first, second, 50.0, *rest))


async def _slow_load(request: ProviderRequest) -> ProviderAnswer:
    """Load the model for two minutes before the first answer.

    A client with a deadline for the first byte must know that local models load.
    """
    await trio.sleep(120)
    return ProviderAnswer("", (Call("reply", _ARGUMENTS),))


_THOUGHT: Final = "The user wants to know my name. I should tell them."
_SCRIPTS: Final[tuple[WeakModel, ...]] = (
    # In groups, by what is wrong.
    # text in place of a call
    WeakModel("plain text", _text(NAME), (NAME,)),
    WeakModel(
        "plain text, a call after the nudge",
        _then(ProviderAnswer(NAME), ProviderAnswer("", (Call("reply", _ARGUMENTS),))),
        (NAME,),
    ),
    WeakModel(
        "another text after the nudge",
        _then(ProviderAnswer(NAME), ProviderAnswer("Sorry, I cannot.")),
        (NAME,),
        ("Sorry",),
    ),
    # calls as text
    WeakModel("JSON alone", _text(_JSON), (NAME,)),
    WeakModel("JSON behind words", _text(f"Sure! {_JSON}"), (NAME,), ("Sure", '"arguments"')),
    WeakModel("JSON in a code block", _text(f"```json\n{_JSON}\n```"), (NAME,), ("```",)),
    WeakModel("Hermes and Qwen", _text(f"<tool_call>\n{_JSON}\n</tool_call>"), (NAME,)),
    WeakModel(
        "Llama, function tag", _text(f"<function=reply>{json.dumps(_ARGUMENTS)}</function>"), (NAME,), ("<function",)
    ),
    WeakModel(
        "Llama, python tag",
        _text("<|python_tag|>" + json.dumps({"name": "reply", "parameters": _ARGUMENTS})),
        (NAME,),
        ("python_tag",),
    ),
    WeakModel("Mistral", _text(f"[TOOL_CALLS][{_JSON}]"), (NAME,), ("TOOL_CALLS",)),
    WeakModel("Phi", _text(f"functools[{_JSON}]"), (NAME,), ("functools",)),
    WeakModel(
        "DeepSeek",
        _text(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>reply\n```json\n"
            + json.dumps(_ARGUMENTS)
            + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        (NAME,),
        ("tool▁",),
    ),
    WeakModel("Gemma", _text(f'```tool_code\nreply(channelId="main", text="{NAME}")\n```'), (NAME,), ("tool_code",)),
    WeakModel(
        "Qwen3 Coder",
        _text(
            "<tool_call>\n<function=reply>\n<parameter=channelId>\nmain\n</parameter>\n"
            f"<parameter=text>\n{NAME}\n</parameter>\n</function>\n</tool_call>"
        ),
        (NAME,),
    ),
    WeakModel(
        "GLM",
        _text(f"<tool_call>reply\n<arg_key>text</arg_key>\n<arg_value>{NAME}</arg_value>\n</tool_call>"),
        (NAME,),
        ("arg_key",),
    ),
    WeakModel("two calls run together", _text(_JSON + _JSON.replace("name is", "NAME is")), (NAME, "My NAME is")),
    WeakModel("JSON with comments", _text(_JSON.replace("{", "{ // so\n", 1).replace('"}}', '",},}')), (NAME,)),
    WeakModel(
        "arguments as a string", _text(json.dumps({"name": "reply", "arguments": json.dumps(_ARGUMENTS)})), (NAME,)
    ),
    WeakModel("half a call", _then(ProviderAnswer(_JSON[:50]), ProviderAnswer(NAME)), (NAME,)),
    WeakModel("half a call for ever", _text(f"<tool_call>{_JSON[:50]}"), ("reply", "cut off")),
    # reasoning
    WeakModel(
        "thoughts before the text", _text(f"<think>{_THOUGHT}</think>\n\n{NAME}"), (NAME,), ("<think", "The user wants")
    ),
    WeakModel(
        "a call in the thoughts",
        _text(f"<think>Maybe {_JSON.replace('Smol', 'Nobody')}</think>{NAME}"),
        (NAME,),
        ("Nobody",),
    ),
    WeakModel(
        "thoughts that do not end",
        _then(ProviderAnswer(f"<think>{_THOUGHT}"), ProviderAnswer(f"<think>{_THOUGHT}</think>{NAME}")),
        (NAME,),
        ("The user wants",),
    ),
    WeakModel("nothing but thoughts", _text(f"<think>{_THOUGHT}</think>"), ("gave no answer",), ("The user wants",)),
    # calls that are wrong
    WeakModel("no channelId", _calls(Call("reply", {"text": NAME})), (NAME,)),
    WeakModel("wrong channelId", _wander, ("reply", "no channel of type 'sms'")),
    WeakModel(
        "half of the arguments",
        _calls(Call("reply", '{"channelId": "main", "text": "My na')),
        ("reply", "not valid JSON"),
    ),
    WeakModel("an unknown tool", _calls(Call("speak", {"text": NAME})), ("speak", "there is no tool")),
    WeakModel("the same tool for ever", _calls(Call("current_time")), ("current_time", "with the same arguments")),
    # servers
    WeakModel("tools are not supported", _without_tools, (NAME,)),
    WeakModel("tools need a flag", _needs_jinja, (NAME,)),
    WeakModel("the prompt is too large", _small_window, (NAME,), window=32_768),
    WeakModel("no prompt fits", _tiny_window, ("even my shortest prompt does not fit", "512 tokens", "/model")),
    WeakModel(
        "the prompt is cut silently",
        _always(ProviderAnswer("", (Call("reply", _ARGUMENTS),), usage=Usage(1_024, 20))),
        (NAME, "has read only 1,024 of about"),
        window=32_768,
    ),
    WeakModel(
        "silence in the middle", _always(ProviderAnswer(NAME, pieces=4, hang_after=3)), ("models.silence_timeout",)
    ),
    WeakModel("a pause of 50 seconds", _pausing, (NAME,)),
    WeakModel("two minutes to load the model", _slow_load, (NAME,)),
    WeakModel("an unknown model", _always(refuse(404, "model 'smol' not found")), ("smol", "/model")),
    WeakModel(
        "an expired key", _always(refuse(401, "API key expired")), ("API key expired", "api_key of [providers.lab]")
    ),
    # texts without sense
    WeakModel("the prompt echoed back", _echo, (QUESTION,)),
    WeakModel("an empty answer", _text(""), ("gave no answer",)),
    WeakModel("an empty answer, then a text", _then(ProviderAnswer(""), ProviderAnswer(NAME)), (NAME,)),
    WeakModel("one line for ever", _text(f"{NAME}\n" * 2000, stop_reason="length"), (NAME, "repeat itself")),
    WeakModel("10,000 words of noise", _text(_noise(), stop_reason="length"), ("cut off at the token limit",)),
)
WEAK_MODELS: Final[Mapping[str, WeakModel]] = {weak.name: weak for weak in _SCRIPTS}
"""All kinds, by name."""
