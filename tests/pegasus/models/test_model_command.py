"""Changing the model while the agent runs: /model, kept over restarts."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from actors import Child, open_supervisor
from pegasus.app.reload import Reloader
from pegasus.host import Home
from pegasus.models import ModelConfigError, ModelService, ModelSwitch, PriceList, UsageTracker
from pegasus.observe import stop_logging
from pegasus.settings import (
    LiveSettings,
    ModelSettings,
    ProviderSettings,
    RouteSettings,
    Settings,
    SettingsSource,
    load_settings,
)
from pegasus.storage import FileDisk, StorageError, run_journal
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel

PROVIDERS = {"lab": ProviderSettings(type="openai", base_url="http://127.0.0.1:1/v1")}


def models(settings: ModelSettings | None = None, **more: ProviderSettings) -> ModelService:
    return ModelService(settings or ModelSettings(default="lab/a"), {**PROVIDERS, **more}, rng=random.Random(1))


# ------------------------------------------------------------------ what can be chosen


def test_a_choice_takes_the_place_of_the_default_of_the_settings() -> None:
    made = models(ModelSettings(default="lab/a", compact="lab/c"))
    assert made.choose("lab/b") == "lab/b"
    assert [made.client(role).name for role in ("default", "subagent", "compact")] == ["lab/b", "lab/b", "lab/c"]
    assert made.choose("") == "lab/a"
    assert made.client().name == "lab/a"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("b", "<provider>/<model>"),
        ("lab/", "<provider>/<model>"),
        ("nobody/x", 'there is no provider "nobody", only anthropic, azure, bedrock, '),
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("anthropic/claud-5", 'begin with "claude-"'),
        ("lab/x y", "<provider>/<model>"),
        ("lab/x\x00", "<provider>/<model>"),
        ("lab/x\ud800", "<provider>/<model>"),
        ("lab/" + "x" * 500, "<provider>/<model>"),
    ],
)
def test_what_cannot_work_is_refused_with_what_is_allowed(spec: str, says: str) -> None:
    made = models(anthropic=ProviderSettings(api_key="k"))
    with pytest.raises(ModelConfigError) as caught:
        made.choose(spec)
    assert says in str(caught.value)
    assert made.client().name == "lab/a"


def test_a_server_of_ones_own_may_call_its_models_what_it_likes() -> None:
    assert models().choose("lab/org/../modèle:8b-q4@1") == "lab/org/../modèle:8b-q4@1"


def test_only_choices_of_the_settings_if_there_are_some() -> None:
    made = models(ModelSettings(default="lab/a", choices=("lab/b", "lab/c")))
    with pytest.raises(ModelConfigError, match="lab/b, lab/c"):
        made.choose("lab/d")
    assert made.choose("lab/c") == "lab/c"
    assert made.choices() == ("lab/b", "lab/c")


def test_the_list_has_the_models_of_the_settings_first_and_known_ones_of_usable_providers() -> None:
    settings = ModelSettings(
        default="lab/a", compact="openai/x", fallback=("lab/f",), routes={"r": RouteSettings("lab/r")}
    )
    listed = models(settings, anthropic=ProviderSettings(api_key="k")).choices()
    assert listed[:3] == ("lab/a", "lab/f", "lab/r")
    assert "anthropic/claude-sonnet-5-5" in listed
    assert not [spec for spec in listed if spec.startswith(("openai/", "gemini/"))]


# ------------------------------------------------------------------ the command


def switch_of(service: ModelService) -> ModelSwitch:
    """The switch of all chats, without a disk."""

    async def keep(spec: str) -> None:
        service.choose(spec)

    return ModelSwitch(service, keep)


async def test_the_command_shows_the_model_and_what_can_be_chosen() -> None:
    switch = switch_of(models(ModelSettings(default="lab/a", fallback=("lab/f",))))
    text = await switch.answer("")
    assert text.splitlines()[0] == "I use lab/a (as in the settings)."
    assert text.splitlines()[-2:] == ["- lab/a", "- lab/f"]


async def test_rules_that_send_calls_elsewhere_are_named() -> None:
    long = RouteSettings(
        "lab/long", role="subagent", channel="sms", media="image", min_tokens=50_000, max_tokens=90_000
    )
    routes = {"a": RouteSettings("lab/echo"), "long": long}
    switch = switch_of(models(ModelSettings(default="lab/a", routes=routes)))
    rules = [
        "Rule a sends every call to lab/echo.",
        "Rule long sends calls of role subagent for sms with an image of at least 50,000 and at most 90,000 tokens "
        "to lab/long.",
    ]
    assert (await switch.answer("")).splitlines()[1:3] == rules
    assert (await switch.answer("lab/b")).splitlines()[1:] == rules


async def test_the_owner_changes_the_model_and_goes_back() -> None:
    switch = switch_of(models())
    said = await switch.answer(" lab/b ")
    assert said.startswith("Now using lab/b (before: lab/a). /model default goes back")
    assert "chosen with /model" in await switch.answer("")
    assert await switch.answer("Default") == "Now using lab/a (before: lab/b)."
    assert await switch.answer("default") == "Still using lab/a."


async def test_the_command_looks_for_local_models_and_uses_one_in_place_of_the_stand_in() -> None:
    async with open_provider(
        ollama=OllamaHost(OllamaModel("qwen3:8b"), OllamaModel("plain", 4096, ("completion",)))
    ) as server:
        switch = switch_of(models(ModelSettings(), ollama=ProviderSettings(base_url=server.url)))
        said = await switch.answer("")
        assert said.startswith("I use ollama/qwen3:8b (found on this machine).")
        assert "- ollama/plain" in said
        assert "Now using ollama/plain" in await switch.answer("ollama/plain")


async def test_a_mistake_changes_nothing_and_names_what_is_allowed() -> None:
    said = await switch_of(models()).answer("nobody/x")
    assert 'there is no provider "nobody"' in said
    assert "- lab/a" in said
    assert said.endswith("- lab/a\n\nStill using lab/a."), "behind a list Markdown needs an empty line"


# ------------------------------------------------------------------ in the daemon


SETTINGS = Settings(models=ModelSettings(default="lab/a"), providers=PROVIDERS)


@pytest.fixture(autouse=True)
def log_of_each_test() -> Iterator[None]:
    """A reloader opens the log of its home."""
    yield
    stop_logging()


def nothing_changed(settings: Settings) -> frozenset[str]:
    return frozenset()


def reloader(
    folder: Path, settings: Settings = SETTINGS, changed: Callable[[Settings], frozenset[str]] = nothing_changed
) -> Reloader:
    home = Home(folder)
    home.log.parent.mkdir(parents=True, exist_ok=True)
    usage = UsageTracker(lambda: 0, random.Random(1), settings.budget, PriceList(settings.prices, settings.providers))
    service = ModelService(settings.models, settings.providers, rng=random.Random(1), usage=usage)
    return Reloader(home, LiveSettings(settings), "token", service, changed)


@asynccontextmanager
async def running(folder: Path, settings: Settings = SETTINGS) -> AsyncIterator[Reloader]:
    """With a journal on a real disk."""
    made = reloader(folder, settings)
    made._home.data.mkdir(parents=True, exist_ok=True)
    async with open_supervisor() as root:
        disk = FileDisk(made._home.data)
        made.journal = await root.start_child(Child("journal", partial(run_journal, clock=lambda: 0), disk))
        yield made


async def test_a_choice_is_kept_over_restarts_until_it_is_taken_back(tmp_path: Path) -> None:
    async with running(tmp_path) as made:
        await made.choose("lab/b")
        assert (made.models.client().name, made.models.chosen) == ("lab/b", "lab/b")
    async with running(tmp_path) as made:
        assert (made.models.client().name, made.models.client("subagent").name) == ("lab/b", "lab/b")
        await made.choose("")
    assert reloader(tmp_path).models.client().name == "lab/a"


@pytest.mark.parametrize("override", ["models.default=lab/a", " models . default = lab/a"])
async def test_the_command_line_wins_over_a_choice_of_an_earlier_day(tmp_path: Path, override: str) -> None:
    async with running(tmp_path) as made:
        await made.choose("lab/b")
    settings = attrs.evolve(SETTINGS, source=SettingsSource(overrides=(override,)))
    async with running(tmp_path, settings) as made:
        assert (made.models.client().name, made.models.chosen) == ("lab/a", "")
        await made.choose("lab/c")
        assert made.models.client().name == "lab/c"
    other = attrs.evolve(SETTINGS, source=SettingsSource(overrides=("models.compact=lab/a",)))
    assert reloader(tmp_path, other).models.client().name == "lab/c"


@pytest.mark.parametrize("origin", ["file", "variable"])
async def test_settings_that_are_newer_than_a_choice_win_at_a_start(tmp_path: Path, origin: str) -> None:
    """Whether the file or a variable says it: what counts is that it was not said when the choice was made."""
    async with running(tmp_path) as made:
        await made.choose("lab/b")
    assert reloader(tmp_path).models.client().name == "lab/b"
    file = tmp_path / "pegasus.toml"
    file.write_text(
        '[models]\ndefault = "lab/c"\n[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    environ = {"PEGASUS__MODELS__DEFAULT": "lab/d"} if origin == "variable" else {}
    settings = load_settings(SettingsSource(file), environ)
    made = reloader(tmp_path, settings)
    assert (made.models.client().name, made.models.chosen) == ({"file": "lab/c", "variable": "lab/d"}[origin], "")


async def test_a_choice_that_is_newer_than_the_settings_wins_at_every_start(tmp_path: Path) -> None:
    settings = attrs.evolve(SETTINGS, models=ModelSettings(default="lab/c"))
    async with running(tmp_path, settings) as made:
        await made.choose("lab/b")
    assert reloader(tmp_path, settings).models.client().name == "lab/b"


async def test_a_reload_with_another_default_model_ends_a_choice_for_good(tmp_path: Path) -> None:
    file = tmp_path / "pegasus.toml"
    lines = '[models]\ndefault = "lab/a"\n[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
    file.write_text(lines)
    source = SettingsSource(file)
    async with running(tmp_path, load_settings(source, {})) as made:
        await made.choose("lab/b")
        await made.reload()
        assert made.models.client().name == "lab/b", "nothing has changed in the file"
        file.write_text(lines.replace("lab/a", "lab/c"))
        await made.reload()
        assert (made.models.client().name, made.models.chosen) == ("lab/c", "")
        file.write_text(lines)
        await made.reload()
        assert made.models.client().name == "lab/a"
    assert reloader(tmp_path, load_settings(source, {})).models.client().name == "lab/a"


async def test_a_choice_that_cannot_work_any_more_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as made:
        await made.choose("lab/b")
    settings = attrs.evolve(SETTINGS, models=ModelSettings(default="lab/a", choices=("lab/a",)))
    assert reloader(tmp_path, settings).models.client().name == "lab/a"
    assert reloader(tmp_path).models.client().name == "lab/b"


async def test_a_mistake_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path) as made:
        answer = await ModelSwitch(made.models, made.choose).answer("nobody/b")
    assert 'there is no provider "nobody"' in answer
    assert not (tmp_path / "data" / "models/choice.json").exists()


class FullDisk:
    async def ask(self, make, *args):
        raise StorageError("the disk is full")


async def test_what_cannot_be_kept_is_not_in_force(tmp_path: Path) -> None:
    made = reloader(tmp_path)
    made.journal = FullDisk()
    with pytest.raises(StorageError):
        await made.choose("lab/b")
    assert made.models.client().name == "lab/a"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"default":5}', b"\xff", b'{"default":"nobody/x"}', b"[" * 5000, b"{}"]
)
def test_a_file_that_makes_no_sense_is_left_out(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "data" / "models/choice.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert reloader(tmp_path).models.client().name == "lab/a"


async def test_a_reload_that_is_asked_for_along_with_a_choice_is_not_forgotten(tmp_path: Path) -> None:
    made = reloader(tmp_path)
    await made.choose("lab/b")
    made.request()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        with trio.fail_after(30):
            while made.in_force.now is SETTINGS:
                await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert made.in_force.now is not SETTINGS


async def test_of_two_reloads_at_once_the_one_with_the_newer_file_counts(tmp_path: Path) -> None:
    """The first has read an older file and is slow; it must not put that in force behind the second."""
    file = tmp_path / "config.toml"
    file.write_text("[agent]\nmax_replies = 1\n")
    gate, has_read = threading.Event(), threading.Event()

    def look(settings: Settings) -> frozenset[str]:
        if settings.agent.max_replies == 2:
            has_read.set()
            gate.wait(30)
        return frozenset()

    made = reloader(tmp_path, load_settings(SettingsSource(file)), look)
    made.in_force.follow(lambda settings: settings.agent, "agent.")
    file.write_text("[agent]\nmax_replies = 2\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.reload)
        await trio.to_thread.run_sync(has_read.wait, 30)
        file.write_text("[agent]\nmax_replies = 3\n")
        nursery.start_soon(made.reload)
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.set()
    assert made.in_force.now.agent.max_replies == 3


@pytest.mark.parametrize("error", [OSError("the disk is gone"), StorageError("the disk is full")])
async def test_a_signal_for_a_reload_that_fails_ends_nothing(tmp_path: Path, error: Exception) -> None:
    made = reloader(tmp_path)
    failed = trio.Event()

    async def fail() -> None:
        failed.set()
        raise error

    made.reload = fail  # type: ignore[assignment,method-assign]
    made.request()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        with trio.fail_after(30):
            await failed.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()


async def test_a_key_that_a_reload_brings_counts_as_a_secret_from_then_on_and_the_old_one_too(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers.cloud]\ntype = "openai"\napi_key = "sk-first-12345678"\n', "utf-8")
    file.chmod(0o600)
    made = reloader(tmp_path, attrs.evolve(SETTINGS, source=attrs.evolve(SETTINGS.source, file=file)))
    assert "sk-first-12345678" not in made.secrets.all()
    await made.reload()
    assert {"token", "sk-first-12345678"} <= set(made.secrets.all())
    file.write_text(file.read_text("utf-8").replace("first", "second"), "utf-8")
    await made.reload()
    assert {"sk-first-12345678", "sk-second-12345678"} <= set(made.secrets.all()), (
        "a key that was replaced may still be valid"
    )


@pytest.mark.parametrize("spec", ["loud", "a b", "nobody/x"])
async def test_what_was_found_stands_between_double_quotes(spec: str) -> None:
    assert (await switch_of(models()).answer(spec)).startswith(f'/model: found "{spec}"; ')
