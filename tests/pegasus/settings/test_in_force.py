"""The handle of the settings in force, and those of values that are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pegasus.settings import (
    RESTART_KEYS,
    AgentSettings,
    LimitSettings,
    LiveSettings,
    LiveValue,
    ReloadResult,
    Settings,
    find_key,
)
from pegasus.settings.sections import GatewaySettings, LogSettings


def debug() -> Settings:
    return Settings(log=LogSettings(level="debug"))


async def test_what_follows_the_settings_has_their_present_values():
    in_force = LiveSettings()
    log = in_force.follow(lambda settings: settings.log, "log.")
    assert log.now.level == "info"
    assert await in_force.replace(debug()) == ReloadResult(("log.level",), ())
    assert log.now.level == "debug"
    assert in_force.now.log.level == "debug"


async def test_all_handles_change_together_and_what_was_taken_before_stays_as_it_was():
    in_force = LiveSettings()
    owners = in_force.follow(lambda settings: settings.agent.owners, "agent.owners")
    agent = in_force.follow(lambda settings: settings.agent, "agent.")
    taken = agent.now
    await in_force.replace(Settings(agent=AgentSettings(owners=("sms:+1",), max_replies=7)))
    assert (owners.now, agent.now.owners, agent.now.max_replies) == (("sms:+1",), ("sms:+1",), 7)
    assert taken.max_replies != 7


def test_a_handle_can_be_of_a_value_that_stays():
    assert LiveValue(AgentSettings(max_replies=7)).now.max_replies == 7


async def test_a_value_is_made_anew_only_when_a_key_of_its_own_has_changed():
    in_force = LiveSettings()
    made = []
    in_force.follow(lambda settings: made.append(settings.log.level), "log.")
    await in_force.replace(Settings(limits=LimitSettings(guest_tasks=3)))
    assert made == ["info"]
    await in_force.replace(debug())
    assert made == ["info", "debug"]


async def test_a_key_that_needs_a_restart_keeps_its_value_and_its_source():
    start = Settings(gateway=GatewaySettings(port=1111), origins={"gateway.port": "the file"})
    in_force = LiveSettings(start)
    in_force.follow(lambda settings: settings.gateway, "gateway.")
    new = Settings(gateway=GatewaySettings(port=2222, max_frame_bytes=4096), origins={"gateway.port": "a variable"})
    assert await in_force.replace(new) == ReloadResult(("gateway.max_frame_bytes",), ("gateway.port",))
    assert (in_force.now.gateway.port, in_force.now.gateway.max_frame_bytes) == (1111, 4096)
    assert in_force.now.origins == {"gateway.port": "the file"}
    assert await in_force.replace(new) == ReloadResult((), ("gateway.port",)), "it still needs one"


async def test_a_key_that_nobody_follows_is_said_to_need_a_restart():
    assert await LiveSettings().replace(debug()) == ReloadResult((), ("log.level",))


@pytest.mark.parametrize("where", ["value", "thread", "guard"])
async def test_settings_that_cannot_work_change_nothing(where):
    in_force = LiveSettings()
    level = in_force.follow(lambda settings: settings.log, "log.")
    acted = []
    in_force.when_changed(acted.append, "log.")

    def refuse(settings: Settings) -> None:
        if settings.log.level == "debug":
            raise ValueError("cannot work")

    if where == "guard":
        in_force.guard(refuse, "log.")
    else:
        in_force.follow(refuse, "log.", in_thread=where == "thread")
    with pytest.raises(ValueError, match="cannot work"):
        await in_force.replace(debug())
    assert (level.now.level, in_force.now.log.level, acted) == ("info", "info", [])
    await in_force.replace(Settings(log=LogSettings(level="error")))
    assert level.now.level == "error"


async def test_a_value_may_be_made_of_another_one_and_sees_its_new_one():
    in_force = LiveSettings()
    log = in_force.follow(lambda settings: settings.log, "log.")
    shown = in_force.follow(lambda settings: (log.now.level,), "log.")
    await in_force.replace(debug())
    assert shown.now == ("debug",)


async def test_actions_get_the_changed_keys_that_concern_them():
    in_force = LiveSettings()
    acted = []
    in_force.when_changed(acted.append, "log.")
    in_force.when_changed(acted.append, "budget.")
    await in_force.replace(debug())
    assert acted == [frozenset({"log.level"})]


async def test_a_file_that_a_key_names_counts_as_a_change_of_the_key():
    in_force = LiveSettings()
    texts = iter(["old", "new"])
    persona = in_force.follow(lambda settings: (next(texts),), "agent.persona", in_thread=True)
    assert await in_force.replace(Settings(), frozenset({"agent.persona"})) == ReloadResult(("agent.persona",), ())
    assert persona.now == ("new",)


async def test_a_replacement_that_is_cancelled_changes_nothing(autojump_clock):
    in_force = LiveSettings()
    in_force.follow(lambda settings: settings.log, "log.", in_thread=True)
    with trio.CancelScope() as scope:
        scope.cancel()
        await in_force.replace(debug())
    assert in_force.now.log.level == "info"


async def test_waiting_for_a_replacement_ends_with_it(autojump_clock):
    in_force = LiveSettings()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_force.wait_replaced)
        await trio.testing.wait_all_tasks_blocked()
        await in_force.replace(Settings())


def test_the_keys_that_need_a_restart_are_few_and_exist():
    assert all(find_key(key.split(".")) is not None for key in RESTART_KEYS)
    assert {
        "agent.scope",
        "tasks.recovery",
        *(f"telemetry.{name}" for name in ("otlp_endpoint", "headers", "content")),
        *(f"gateway.{name}" for name in ("host", "port", "token", "allow_remote")),
        *(f"http.{name}" for name in ("enabled", "host", "port", "allow_remote")),
        *("storage.url", "node.name", "node.address", "node.lease"),
    } == RESTART_KEYS


def test_the_page_marks_the_keys_that_need_a_restart():
    page = (Path(__file__).parents[3] / "docs" / "user" / "settings.md").read_text()
    marked, section = set(), ""
    for line in page.splitlines():
        if line.startswith("## `["):
            section = line[5:-2]
        elif line.startswith("| `") and line.endswith("Needs a restart. |"):
            marked.add(f"{section}.{line.split('`')[1]}")
    assert marked == RESTART_KEYS


async def test_what_comes_last_comes_after_every_replacement():
    in_force, order = LiveSettings(), []
    in_force.follow(lambda settings: settings.log, "log.")
    in_force.after_replacement(lambda: order.append(f"last: {in_force.now.log.level}"))
    in_force.when_changed(lambda changed: order.append(*changed), "log.")
    await in_force.replace(debug())
    await in_force.replace(debug())
    assert order == ["log.level", "last: debug", "last: debug"]
