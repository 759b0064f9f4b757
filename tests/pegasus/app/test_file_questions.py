"""Questions about files that are part of every prompt and were changed while a program ran: through the whole tree."""

import pytest
import trio

from pegasus.access import ListApprovals, sender_of
from pegasus.app.file_questions import RETRY
from pegasus.identity import TASK_FILES, WorkspaceFiles
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import AgentSettings, PolicySettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, say
from pegasus.testing.world import FakeChannel, open_world

OWNER = ChannelInfo("telegram", "42")
SETTINGS = Settings(agent=AgentSettings(owners=("telegram:42",)), policy=PolicySettings(owner_channel="telegram:42"))


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "workspace").mkdir()
    path = tmp_path / "workspace" / "AGENTS.md"
    path.write_text("Be brief.")
    return path


@pytest.fixture
def files_of(rules):
    def files_of():
        return WorkspaceFiles(rules.parent, rules.parents[1] / "owner-texts.json", in_thread=False)

    return files_of


def opened(files, channel, **more):
    return open_world(ScriptedModel(lambda request: say()), files=files, channels=(channel,), settings=SETTINGS, **more)


async def program_writes(files, rules, text):
    async with files.running_program():
        rules.write_text(text)
    await trio.sleep(1)


async def waiting(world):
    return await world.root.ref("approvals/keeper").ask(ListApprovals)


async def owner_says(world, text):
    message, services = InboundMessage(text, OWNER, "m1"), world.tree.services
    answer = await services.approvals.answer_command(message, sender_of(message, services.environment.owners.now))
    await trio.sleep(1)
    return answer


def rule_in_force(files):
    return files.section(TASK_FILES).rpartition("\n")[2]


async def test_the_owner_is_shown_the_text_and_a_yes_brings_it_into_force(files_of, rules, autojump_clock):
    files, channel = files_of(), FakeChannel("telegram")
    async with opened(files, channel) as world:
        await program_writes(files, rules, "Mention the weather.\n\nBe brief.")
        [approval] = await waiting(world)
        [text] = channel.texts
        assert text.startswith(
            "May this text be part of every prompt, in place of the one before?\n"
            "```\nAGENTS.md\n\nMention the weather.\n\nBe brief.\n```\n"
        )
        assert "Why I ask: the file was changed while a program ran" in text
        answer = await owner_says(world, f"/approve {approval.id}")
        assert answer == f"{approval.id} is allowed: this text of AGENTS.md counts from the next message on."
        assert "Mention the weather." in files.section(TASK_FILES)


async def test_a_no_is_final_for_this_text(files_of, rules, autojump_clock):
    disk = MemoryDisk()
    files = files_of()
    async with opened(files, FakeChannel("telegram"), disk=disk) as world:
        await program_writes(files, rules, "Mention the weather.")
        [approval] = await waiting(world)
        answer = await owner_says(world, f"/deny {approval.id}")
        assert answer == f"{approval.id} is denied: this text of AGENTS.md does not count."
        assert rule_in_force(files) == "Be brief."
    again = files_of()
    async with opened(again, FakeChannel("telegram"), disk=disk) as world:
        await trio.sleep(1)
        assert await waiting(world) == ()
        assert rule_in_force(again) == "Be brief."


async def test_a_new_text_takes_the_place_of_the_question_before(files_of, rules, autojump_clock):
    files = files_of()
    async with opened(files, FakeChannel("telegram")) as world:
        for number in range(5):
            await program_writes(files, rules, f"Version {number}.")
        [approval] = await waiting(world)
        assert approval.request.first.arguments["content"] == "Version 4."


async def test_a_yes_to_a_text_that_is_not_there_any_more_changes_nothing(files_of, rules, autojump_clock):
    files = files_of()
    async with opened(files, FakeChannel("telegram")) as world:
        await program_writes(files, rules, "Mention the weather.")
        [approval] = await waiting(world)
        rules.write_text("Be brief.")
        await files.refresh()
        await owner_says(world, f"/approve {approval.id}")
        assert rule_in_force(files) == "Be brief."


@pytest.mark.parametrize("answer", ["", "/approve"])
async def test_a_question_waits_over_a_restart_and_comes_again_when_nobody_saw_it(
    files_of, rules, autojump_clock, answer
):
    disk = MemoryDisk()

    def clock():
        return round(trio.current_time() * 1000)

    files = files_of()
    async with opened(files, FakeChannel("telegram"), disk=disk, clock=clock) as world:
        await program_writes(files, rules, "Mention the weather.")
        [first] = await waiting(world)
        await trio.sleep(0 if answer else 2 * SETTINGS.policy.timeout)
    again = files_of()
    async with opened(again, FakeChannel("telegram"), disk=disk, clock=clock) as world:
        await trio.sleep(1)
        [approval] = await waiting(world)
        assert (approval.id == first.id) == bool(answer)
        await owner_says(world, f"/approve {approval.id}")
        assert rule_in_force(again) == "Mention the weather."


async def test_a_yes_for_ever_serves_for_the_same_text_again(files_of, rules, autojump_clock):
    files = files_of()
    async with opened(files, FakeChannel("telegram")) as world:
        await program_writes(files, rules, "Mention the weather.")
        [approval] = await waiting(world)
        await owner_says(world, f"/approve {approval.id} always")
        rules.write_text("Be brief.")
        await files.refresh()
        assert rule_in_force(files) == "Be brief."
        await program_writes(files, rules, "Mention the weather.")
        assert await waiting(world) == ()
        assert rule_in_force(files) == "Mention the weather."


async def test_a_question_that_the_disk_refuses_is_asked_later(files_of, rules, autojump_clock):
    disk, files = MemoryDisk(), files_of()
    async with opened(files, FakeChannel("telegram"), disk=disk) as world:
        disk.fail()
        await program_writes(files, rules, "Mention the weather.")
        assert await waiting(world) == ()
        await trio.sleep(2 * RETRY)
        [approval] = await waiting(world)
        assert approval.request.first.arguments["content"] == "Mention the weather."
