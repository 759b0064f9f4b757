"""The Main Agent with a window that is too small: it goes on talking, whatever has to be put aside."""

from functools import partial

import pytest
import trio

from actors import Child, Mailbox, open_supervisor
from pegasus.identity import BUILT_IN, MainPrompts
from pegasus.intake import Intake
from pegasus.main_agent import AgentServices, AgentToolset, Compactor, main_agent
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models import PromptSize
from pegasus.settings import LiveValue
from pegasus.storage import LastSeq, Unacknowledged, Waiting, run_journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, ScriptedModel, down, reply, say
from pegasus.testing.world import wall_clock
from pegasus.tools import ToolExecutor
from tests.pegasus.conversation.test_projection import is_valid

from .kit import GOOD

CLI = ChannelInfo("cli", "main")
WINDOW = 3_000


def characters(request):
    return sum(
        len(turn.text) + sum(len(str(c.arguments)) for c in getattr(turn, "calls", ())) for turn in request.turns
    )


def voice(request):
    """Answers each message with its number; a provider whose window is what it is."""
    assert is_valid(request.turns)
    if request.label.role == "compact":
        return After(3, say(GOOD))
    if characters(request) > WINDOW * 3:
        return down("overflow")
    number = request.turns[-1].text.rpartition("message ")[2].split()[0]
    return say("", reply("c", f"answer {number} " + "y" * 300))


async def talk(disk, model, first, last, *, count, size=300):
    """count: whether tokens are counted before a call; else only the provider says that it is too long."""

    async def tokens(request, share):
        return PromptSize(characters(request) // 3 if count else 0, WINDOW)

    window = {"default": WINDOW, "compact": 100_000}.__getitem__
    compactor = Compactor(model, window, wall_clock, tokens)
    toolset = AgentToolset(MainPrompts(BUILT_IN), ToolExecutor(()))
    services = AgentServices(model, LiveValue(toolset), wall_clock, compactor=lambda: compactor, context_window=window)
    async with open_supervisor(
        [Child("journal", partial(run_journal, clock=wall_clock), disk, mailbox=Mailbox(64))]
    ) as root:
        ref = root.ref("journal")
        await root.start_child(Child("agent", main_agent, ref, services))
        for n in range(first, last):
            await Intake(ref).submit(InboundMessage(f"message {n} " + "x" * size, CLI, f"m{n}"))
            with trio.fail_after(600):
                while await ref.ask(Waiting):  # noqa: ASYNC110 virtual time
                    await trio.sleep(0.1)
        assert await ref.ask(LastSeq, CLI.address) == last
        replies = await ref.ask(Unacknowledged, "cli", "main", (), 1_000)
        await trio.sleep(1)
    return [message.text.split()[1] for message in replies]


def archives(disk):
    return [path for path in disk.paths() if path.startswith("main/2")]


@pytest.mark.parametrize("count", [True, False])
async def test_every_message_gets_its_own_answer_over_many_compactions_and_a_restart(autojump_clock, count):
    disk, model = MemoryDisk(), ScriptedModel(voice)
    await talk(disk, model, 0, 40, count=count)
    before = len(archives(disk))
    assert before > 2
    assert await talk(disk, model, 40, 80, count=count) == [str(n) for n in range(80)]
    assert len(archives(disk)) > before
    text = b"".join(disk.content(path) for path in [*archives(disk), "main/current.jsonl"])
    assert all(b"message %d x" % n in text for n in range(80))


async def test_a_message_that_is_longer_than_the_window_is_answered_all_the_same(autojump_clock):
    disk = MemoryDisk()
    assert await talk(disk, ScriptedModel(voice), 0, 2, count=False, size=50_000) == ["0", "1"]
    assert any(disk.content(path).count(b"x") >= 50_000 for path in archives(disk))
