"""The models of a process: lazily made, sharing clients, with fallbacks."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial

import attrs
import pytest
import trio

from pegasus.models import Label, LanguageModel, ModelConfigError, ModelError, ModelResponse, ModelService
from pegasus.models.client import CallLimit
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import ProviderAnswer, refuse
from pegasus.testing.provider.requests import ProviderRequest
from pegasus.testing.scripted import say
from tests.pegasus.models.conftest import client, provider_of, request

ANTHROPIC = {"anthropic": ProviderSettings(api_key="k")}


def models(settings: ModelSettings, providers: dict[str, ProviderSettings] | None = None) -> ModelService:
    return ModelService(settings, providers or {}, rng=random.Random(1))


async def ask(model: LanguageModel) -> ModelResponse:
    return await model.generate(request())


async def test_without_a_key_it_answers_offline() -> None:
    model = models(ModelSettings()).client()
    assert model.name == "offline/stand-in"
    assert "stand-in" in (await ask(model)).text


async def test_each_role_has_its_model_and_names_of_models_are_roles() -> None:
    made = models(ModelSettings(default="anthropic/a", subagent="anthropic/b"), ANTHROPIC)
    assert made.client().name == made.client("compact").name == "anthropic/a"
    assert made.client("subagent").name == "anthropic/b"
    assert made.client("anthropic/c").name == "anthropic/c"


async def test_models_of_one_provider_share_its_connections(server: ProviderServer) -> None:
    made = models(ModelSettings(default="openai/a", compact="openai/b"), {"openai": provider_of("openai", server)})
    assert (await ask(made.client())).text
    assert (await ask(made.client("compact"))).text
    assert [seen.model for seen in server.requests] == ["a", "b"]
    assert server.connections == 1
    await made.aclose()


async def test_a_call_during_the_import_waits_for_it(server: ProviderServer) -> None:
    made = models(ModelSettings(default="anthropic/a"), {"anthropic": provider_of("anthropic", server)})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.warm_up)
        nursery.start_soon(ask, made.client())
    assert server.count == 1
    await made.aclose()


async def test_after_closing_a_call_opens_a_new_connection(server: ProviderServer) -> None:
    made = models(ModelSettings(default="openai/a"), {"openai": provider_of("openai", server)})
    await ask(made.client())
    await made.aclose()
    await ask(made.client())
    assert server.connections == 2
    await made.aclose()


async def test_another_provider_answers_when_the_first_is_overloaded(server: ProviderServer) -> None:
    server.script = lambda _: refuse(529, retry_after=3600)
    async with open_provider(lambda _: ProviderAnswer("from the second")) as second:
        made = models(
            ModelSettings(default="anthropic/a", fallback=("openai/b",)),
            {"anthropic": provider_of("anthropic", server), "openai": provider_of("openai", second)},
        )
        assert (await ask(made.client())).text == "from the second"
        assert made.client().name == "anthropic/a"
        await made.aclose()


async def test_the_context_window_is_the_setting_or_what_is_known() -> None:
    assert (
        models(ModelSettings(default="openai/gpt-4o"), {"openai": ProviderSettings(api_key="k")}).context_window()
        == 128_000
    )
    assert models(ModelSettings(context_window=5)).context_window("compact") == 5


async def test_an_sdk_that_cannot_be_imported_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    made = models(ModelSettings(default="anthropic/x"), {"anthropic": ProviderSettings(api_key="k")})
    await made.warm_up()
    with pytest.raises(ModelError, match="the package anthropic cannot be used"):
        await ask(made.client())


def imported(code: str, *modules: str) -> list[str]:
    """Which of these modules a fresh process imports. code: uses `make(settings, accounts)` to make a service."""
    begin = (
        "import functools, random, sys, trio; from pegasus.models import ModelService\n"
        "from pegasus.settings import ModelSettings as S, ProviderSettings as P\n"
        "make = functools.partial(ModelService, rng=random.Random(1))\n"
    )
    script = f"{begin}{code}\nprint(*sorted({set(modules)!r} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_nothing_heavy_is_imported_before_a_provider_is_used() -> None:
    """Start-up must not pay for an SDK."""
    heavy = ("anthropic", "openai", "httpx", "httpx2", "pydantic", "asyncio", "tiktoken")
    assert imported("make(S(), {}).client()", *heavy) == []


def test_only_what_the_configured_provider_needs_is_imported() -> None:
    accounts = "{'anthropic': P(api_key='k'), 'openai': P(api_key='k')}"
    code = f"made = make(S(default='openai/x', fallback=('anthropic/y',)), {accounts}); made.client(); trio.run(made.warm_up)"
    assert imported(code, "anthropic", "httpx2", "openai") == ["httpx2"]


def test_a_local_model_needs_no_sdk() -> None:
    code = "trio.run(make(S(default='ollama/x'), {'ollama': P(base_url='http://127.0.0.1:1')}).warm_up)"
    assert imported(code, "anthropic", "openai", "pydantic") == []


# ------------------------------------------------------------------ calls at the same time


class Counting:
    """A model whose calls end when `gate` is set. running, most: how many are under way, and were at most."""

    name = "lab/counting"

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.running: list[str] = []
        self.most = 0

    async def generate(self, request):
        self.running.append(request.label.role)
        self.most = max(self.most, len(self.running))
        await self.gate.wait()
        self.running.remove(request.label.role)
        return say("x")


@pytest.mark.parametrize("places", [1, 2, 3])
async def test_calls_of_both_lanes_share_one_limit(autojump_clock, places: int) -> None:
    model, limit = Counting(), CallLimit(places)
    async with trio.open_nursery() as nursery:
        for lane in ("work", "conversation") * 5:
            nursery.start_soon(client(model, limit, lane=lane).generate, request())
        await trio.sleep(1)
        assert len(model.running) == places
        model.gate.set()
    assert model.most == places


async def test_nodes_share_the_places_and_each_has_one(autojump_clock) -> None:
    model, limit = Counting(), CallLimit(4)
    async with trio.open_nursery() as nursery:
        for nodes, running in ((9, 1), (2, 2), (1, 4), (2, 4)):
            limit.share(nodes)
            for _ in range(4):
                nursery.start_soon(client(model, limit, lane="conversation").generate, request())
            await trio.sleep(1)
            assert len(model.running) == running, "calls that run go on"
        model.gate.set()


async def test_a_place_is_kept_for_conversations(autojump_clock) -> None:
    model, limit = Counting(), CallLimit(3)
    work, talk = client(model, limit), client(model, limit, lane="conversation")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(work.generate, request(label=Label("subagent")))
        await trio.sleep(1)
        assert model.running == ["subagent"] * 2
        nursery.start_soon(talk.generate, request(label=Label("default")))
        await trio.sleep(1)
        assert model.running == ["subagent", "subagent", "default"]
        model.gate.set()


async def test_guests_leave_a_place_to_owners(autojump_clock) -> None:
    model, limit = Counting(), CallLimit(3)
    talk = client(model, limit, lane="conversation")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(talk.generate, request(label=Label("default", guest="slack:U7")))
        await trio.sleep(1)
        assert len(model.running) == 2
        nursery.start_soon(talk.generate, request(label=Label("default")))
        await trio.sleep(1)
        assert len(model.running) == 3
        model.gate.set()


async def test_guests_and_tasks_together_leave_a_place_to_owners(autojump_clock) -> None:
    """Whoever comes first; and a guest waits for tasks that run, not for those that wait."""
    model, limit = Counting(), CallLimit(3)
    work, talk = client(model, limit), client(model, limit, lane="conversation")
    for order in ("work first", "guests first"):
        async with trio.open_nursery() as nursery:
            guest = partial(nursery.start_soon, talk.generate, request(label=Label("default", guest="slack:U7")))
            task = partial(nursery.start_soon, work.generate, request(label=Label("subagent")))
            for start in (task, guest) if order == "work first" else (guest, task):
                for _ in range(4):
                    start()
                await trio.sleep(1)
            assert model.running == ["subagent" if order == "work first" else "default"] * 2
            nursery.start_soon(talk.generate, request(label=Label("summary")))
            await trio.sleep(1)
            assert model.running[2:] == ["summary"], order
            model.gate.set()
        model.gate = trio.Event()
        assert model.running == []


class Slow:
    """A model that answers after a second, and notes for whom."""

    name = "lab/slow"

    def __init__(self, order: list[str]) -> None:
        self.order = order

    async def generate(self, request):
        await trio.sleep(1)
        self.order.append(request.label.role)
        return say("x")


async def test_a_guest_goes_before_tasks_that_wait(autojump_clock) -> None:
    limit, order = CallLimit(3), list[str]()
    work, talk = client(Slow(order), limit), client(Slow(order), limit, lane="conversation")
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(work.generate, request(label=Label("subagent")))
        await trio.sleep(0.5)
        nursery.start_soon(talk.generate, request(label=Label("default", guest="slack:U7")))
    assert order.index("default") in (2, 3)


async def test_with_one_place_a_conversation_waits_for_one_call_of_work_at_most(autojump_clock) -> None:
    limit, order = CallLimit(1), list[str]()
    work, talk = client(Slow(order), limit), client(Slow(order), limit, lane="conversation")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(work.generate, request(label=Label("subagent")))
        await trio.sleep(0.5)
        nursery.start_soon(talk.generate, request(label=Label("default")))
    assert order == ["subagent", "default", "subagent", "subagent"]


async def test_a_call_that_is_cancelled_gives_its_place_back(autojump_clock) -> None:
    model, limit = Counting(), CallLimit(1)
    with trio.move_on_after(1):
        await client(model, limit).generate(request())
    model.gate.set()
    assert (await client(model, limit).generate(request())).text == "x"


# ------------------------------------------------------------------ reloads


async def test_a_client_follows_reloads_and_choices() -> None:
    made = models(ModelSettings(default="ollama/a"))
    client = made.client("default", "conversation")
    made.reload(ModelSettings(default="ollama/b"), {})
    assert client.name == "ollama/b"
    made.choose("ollama/c")
    assert client.name == "ollama/c"
    made.reload(ModelSettings(default="ollama/b", choices=("ollama/b",)), {})
    assert client.name == "ollama/b"


async def test_connections_of_an_unchanged_provider_outlive_a_reload(server: ProviderServer) -> None:
    accounts = {"openai": provider_of("openai", server)}
    made = models(ModelSettings(default="openai/a"), accounts)
    await ask(made.client())
    made.reload(ModelSettings(default="openai/b"), accounts)
    await ask(made.client())
    assert [seen.model for seen in server.requests] == ["a", "b"]
    assert server.connections == 1
    await made.aclose()


async def test_connections_of_a_changed_account_are_closed_before_the_next_call(server: ProviderServer) -> None:
    account = provider_of("openai", server)
    made = models(ModelSettings(default="openai/a"), {"openai": account})
    await ask(made.client())
    replaced = made._setup.http_client("openai/a")
    made.reload(ModelSettings(default="openai/a"), {"openai": attrs.evolve(account, headers={"x-team": "blue"})})
    assert replaced is not None
    assert replaced.is_ready
    await ask(made.client())
    assert not replaced.is_ready
    assert server.connections == 2
    await made.aclose()


async def test_connections_of_a_changed_account_stay_open_for_the_calls_under_way(server: ProviderServer) -> None:
    gate = trio.Event()

    async def held(asked: ProviderRequest) -> ProviderAnswer:
        if asked.model == "a":
            await gate.wait()
        return ProviderAnswer(f"from {asked.model}")

    server.script = held
    account = provider_of("openai", server)
    made = models(ModelSettings(default="openai/a"), {"openai": account})
    answers: list[str] = []

    async def call() -> None:
        answers.append((await ask(made.client())).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await server.until(lambda it: it.count == 1)
        replaced = made._setup.http_client("openai/a")
        made.reload(ModelSettings(default="openai/b"), {"openai": attrs.evolve(account, headers={"x-team": "blue"})})
        await call()
        gate.set()
    assert answers == ["from b", "from a"]
    assert replaced is not None
    assert replaced.is_ready
    await call()
    assert not replaced.is_ready
    await made.aclose()


async def test_closing_the_service_closes_the_connections_of_earlier_settings_too(server: ProviderServer) -> None:
    made = models(ModelSettings(default="openai/a"), {"openai": provider_of("openai", server)})
    await ask(made.client())
    replaced = made._setup.http_client("openai/a")
    made.reload(ModelSettings(), {})
    await made.aclose()
    assert replaced is not None
    assert not replaced.is_ready


async def test_settings_that_cannot_work_change_nothing() -> None:
    made = models(ModelSettings(default="ollama/a"))
    for wrong in (
        ModelSettings(default="openai/x"),
        ModelSettings(default="ollama/a", compact="openai/x"),
        ModelSettings(default="ollama/a", fallback=("openai/x",)),
    ):
        with pytest.raises(ModelConfigError):
            made.reload(wrong, {})
    assert made.client().name == "ollama/a"


async def test_a_named_model_that_a_reload_made_impossible_is_an_error_of_the_call() -> None:
    made = models(
        ModelSettings(default="ollama/a"), {"lab": ProviderSettings(type="openai", base_url="http://127.0.0.1:1")}
    )
    client = made.client("lab/x")
    made.reload(ModelSettings(default="ollama/a"), {})
    with pytest.raises(ModelError, match='there is no provider "lab"'):
        await ask(client)


async def test_a_call_that_is_under_way_ends_with_the_model_it_began_with(server: ProviderServer) -> None:
    gate = trio.Event()

    async def held(_: object) -> ProviderAnswer:
        await gate.wait()
        return ProviderAnswer("from the old one")

    server.script = held
    made = models(ModelSettings(default="openai/a"), {"openai": provider_of("openai", server)})
    answers: list[str] = []

    async def call() -> None:
        answers.append((await ask(made.client())).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await server.until(lambda it: it.count == 1)
        old = made._setup
        made.reload(ModelSettings(), {})
        gate.set()
    await old.aclose()
    assert answers == ["from the old one"]
