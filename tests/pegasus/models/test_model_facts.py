"""The window of a model: which source wins, what refusals say, and prompts that a server cuts without a word."""

from __future__ import annotations

from typing import Any

import pytest

from pegasus.models import AssistantTurn, Image, ModelError, ModelRequest, TokenCounter, Usage, UserTurn
from pegasus.models.errors import status_error
from pegasus.models.model_facts import LOCAL_WINDOW, ModelFacts
from pegasus.models.providers.local_servers import LocalModel
from pegasus.models.refusals import window_in_refusal
from tests.pegasus.models.conftest import request

CHINESE = "这是一段很长的中文文字，没有人会读它。" * 400
ENGLISH = "a long text that nobody will ever read, with some words " * 600
CODE = "for (int i = 0; i < n; i++) { a[i] += b[i] * c[i]; }\n" * 400


def described(window: int, server: str = "llama.cpp", **more: Any) -> Any:
    async def describe() -> LocalModel:
        return LocalModel("lab", "m", server, "http://localhost:1/v1", window, **more)

    return describe


@pytest.mark.parametrize(
    ("more", "window"),
    [
        ({}, 128_000),
        ({"is_local": True}, LOCAL_WINDOW),
        ({"is_local": True, "known": 200_000}, 200_000),
        ({"known": 200_000, "configured": 5000}, 5000),
        ({"is_local": True, "known": 200_000, "describe": described(2048)}, 2048),
        ({"configured": 5000, "describe": described(2048)}, 5000),
        ({"is_local": True, "describe": described(0)}, LOCAL_WINDOW),
        ({"describe": described(131_072, "Ollama")}, 32_768),
        ({"describe": described(131_072, "Ollama", default_window=65_536)}, 65_536),
    ],
)
async def test_the_first_source_that_says_something_wins(more: dict[str, Any], window: int) -> None:
    facts = ModelFacts("lab/m", **more)
    await facts.ask_server()
    assert facts.context_window == window


@pytest.mark.parametrize(
    ("more", "is_assumed"),
    [
        ({}, True),
        ({"is_local": True}, True),
        ({"is_local": True, "describe": described(0)}, True),
        ({"describe": described(2048)}, False),
        ({"known": 200_000}, False),
        ({"configured": 5000}, False),
    ],
)
async def test_a_window_that_nobody_has_told_is_assumed(more: dict[str, Any], is_assumed: bool) -> None:
    facts = ModelFacts("lab/m", **more)
    await facts.ask_server()
    assert facts.is_assumed is is_assumed


async def test_an_assumption_counts_once_the_model_has_answered_or_named_its_window() -> None:
    refused, answered = ModelFacts("lab/m", is_local=True), ModelFacts("lab/m", is_local=True)
    refused.note_failure(ModelError("gone", kind="network"))
    assert refused.is_assumed
    refused.note_failure(ModelError("too long", kind="overflow", context_window=4096))
    answered.note_taken(100)
    assert not refused.is_assumed
    assert not answered.is_assumed


async def test_a_refusal_wins_over_everything_until_the_server_says_otherwise() -> None:
    told = [LocalModel("lab", "m", "llama.cpp", "", 8192), LocalModel("lab", "m", "llama.cpp", "", 16_384)]

    async def describe() -> LocalModel:
        return told[0]

    facts = ModelFacts("lab/m", configured=100_000, describe=describe)
    await facts.ask_server()
    facts.note_failure(ModelError("too long", kind="overflow", context_window=4096))
    assert facts.context_window == 4096
    facts.note_failure(ModelError("gone", kind="network"))
    await facts.ask_server()
    assert facts.context_window == 4096  # the same server again
    told.pop(0)
    facts.note_failure(ModelError("gone", kind="network"))
    await facts.ask_server()
    assert facts.context_window == 100_000


async def test_what_was_learned_in_an_earlier_run_gives_way_to_the_server() -> None:
    answers = [None, await described(16_384)()]

    async def describe() -> LocalModel | None:
        return answers.pop(0)

    facts = ModelFacts("lab/m", is_local=True, describe=describe)
    assert await facts.ask_server(4096) == facts.context_window == 4096
    facts.forget()
    await facts.ask_server()
    assert await facts.ask_server(4096) == facts.context_window == 16_384


def test_a_number_that_is_no_window_is_not_believed() -> None:
    facts = ModelFacts("lab/m")
    for tokens in (0, -5, 31):
        facts.limit(tokens)
    assert facts.context_window == 128_000


async def test_a_server_that_does_not_answer_is_asked_again_later(mock_clock: Any) -> None:
    asked: list[bool] = []

    async def describe() -> None:
        asked.append(True)

    facts = ModelFacts("lab/m", is_local=True, describe=describe)
    for _ in range(3):
        await facts.ask_server()
    assert len(asked) == 1
    mock_clock.jump(5)
    await facts.ask_server()
    assert len(asked) == 2
    facts.note_taken(100)  # it answers calls, so it will never tell more
    for _ in range(3):
        mock_clock.jump(5)
        await facts.ask_server()
    assert len(asked) == 3
    facts.note_failure(ModelError("gone", kind="network"))
    await facts.ask_server()
    assert len(asked) == 4


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("body", "window"),
    [
        ({"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 4031, "n_ctx": 2048}}, 2048),
        ({"error": '{"error":{"code":400,"n_prompt_tokens":8889,"n_ctx":4096}}'}, 4096),
        ("request (4031 tokens) exceeds the available context size (2048 tokens), try increasing it", 2048),
        ("This model's maximum context length is 131,072 tokens. However, your messages resulted in 200,000", 131_072),
        ("The prompt (total length 25938) is too long to fit into the model (context length 4096).", 4096),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
        ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
        ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ("the model is loaded with context length of only 4096 tokens, which is not enough", 4096),
        ("prompt too long; exceeded max context length by 31 tokens", 0),
        ("Invalid 'messages[3].content': string too long. Expected a string with maximum length 10485760", 0),
        ("Requested token count exceeds the model's maximum context length of 8 tokens", 0),
        ("context length is 99999999999999999999999", 0),
        ({"error": {"n_ctx": -7}}, 0),
        (None, 0),
    ],
)
def test_the_window_in_the_words_of_a_refusal(body: object, window: int) -> None:
    assert window_in_refusal(body) == window


def test_only_a_prompt_that_is_too_long_tells_the_window() -> None:
    assert status_error("lab/m", 400, "maximum context length is 8192 tokens").context_window == 8192
    assert status_error("lab/m", 401, "maximum context length is 8192 tokens").context_window == 0


# ------------------------------------------------------------------ prompts that are cut


def check(
    text: str, read: int, *, counter: TokenCounter | None = None, facts: ModelFacts | None = None, cached: int = 0
) -> str:
    asked = request(text=text, system="", tools=())
    return check_request(asked, Usage(read, 5, cache_read_tokens=cached), counter, facts)


def check_request(
    asked: ModelRequest, usage: Usage, counter: TokenCounter | None = None, facts: ModelFacts | None = None
) -> str:
    counter = counter or TokenCounter()
    estimate = counter.learn(asked, usage)
    facts = facts or ModelFacts("lab/m", is_local=True)
    return facts.check_prompt(asked, usage.prompt_tokens, estimate, counter)


@pytest.mark.parametrize("read", [2048, 2050, 4096, 4090, 1026, 1900])
def test_a_prompt_of_which_half_is_missing_is_noticed(read: int) -> None:
    assert "without saying so" in check(ENGLISH, read)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [(ENGLISH, 6900), (ENGLISH, 6100), (CODE, 6000), (CHINESE, 4200), (CHINESE, 8000), ("short", 4)],
)
def test_a_prompt_that_was_read_is_not(text: str, tokens: int) -> None:
    assert check(text, tokens) == ""


class LookingCounter(TokenCounter):
    """A counter that counts how often it has looked at a whole prompt."""

    looks = 0

    def at_least(self, request: ModelRequest) -> int:
        self.looks += 1
        return super().at_least(request)


@pytest.mark.parametrize(("read", "looks"), [(0, 0), (37, 0), (6900, 0), (9000, 0), (2050, 1)])
def test_a_whole_prompt_is_looked_at_only_where_much_of_it_seems_to_be_missing(read: int, looks: int) -> None:
    counter = LookingCounter()
    check(ENGLISH, read, counter=counter)
    assert counter.looks == looks  # it takes time that grows with the conversation, between an answer and its reply


def test_a_server_that_does_not_count_or_counts_only_what_is_new_is_not_suspected() -> None:
    assert check(ENGLISH, 0) == ""
    assert check(ENGLISH, 37) == ""
    counter, asked = TokenCounter(), request(text=ENGLISH, system="", tools=())
    counter.learn(asked, Usage(8600, 5))
    longer = request(*asked.turns, AssistantTurn("ok"), UserTurn(text="and now?"), system="", tools=())
    assert check_request(longer, Usage(1500, 5), counter, ModelFacts("lab/m")) == ""


def test_a_notice_comes_once_and_sets_the_window() -> None:
    facts = ModelFacts("lab/m", configured=32_768)
    assert "4,096 tokens from now on" in check(ENGLISH, 2050, facts=facts)
    assert facts.context_window == 4096
    assert check(ENGLISH, 2050, facts=facts) == ""


@pytest.mark.parametrize(
    ("server", "advice"),
    [("llama.cpp", "llama-server -c 32768"), ("LM Studio", "Context Length"), ("", 'type "ollama"')],
)
async def test_a_notice_names_the_setting_of_the_server(server: str, advice: str) -> None:
    facts = ModelFacts("lab/m", is_local=True, describe=described(0, server))
    await facts.ask_server()
    assert advice in check(ENGLISH, 2050, facts=facts)


def test_pictures_do_not_count_as_missing_text() -> None:
    asked = request(UserTurn(text="look " * 300, images=(Image("image/png", "iVBORw0KGgo="),) * 5), system="", tools=())
    assert check_request(asked, Usage(600, 5), facts=ModelFacts("lab/m")) == ""
