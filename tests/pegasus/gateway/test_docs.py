"""What docs/gateway.md and docs/channels.md show is run."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.access import Access, AccessDenied, ChannelRules
from pegasus.app.approvals import ApprovalFlow
from pegasus.app.control_plane import (
    READ_METHODS,
    ClientToolMethods,
    ConversationMethod,
    EventMethods,
    HistoryMethods,
    InterruptMethod,
    MemoryMethods,
    NodeMethods,
    PairingMethods,
    PersonaMethods,
    ServerMethods,
    SettingsMethods,
    StatusMethods,
    TaskMethods,
    TokenMethods,
    ViewMethods,
)
from pegasus.channels import run_switchboard
from pegasus.gateway.requests import read_frame, read_hello
from pegasus.intake import CONTROL_COMMANDS, Intake
from pegasus.messages import ChannelInfo
from pegasus.protocol import ClientChannel
from pegasus.settings import LiveValue
from tests.pegasus.gateway.world import TOKEN, FakeJournal, world

DOCS = Path(__file__).resolve().parents[3] / "docs"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


async def answering(gate, channel, text):
    await gate.journal.until(lambda: gate.journal.accepted)
    await gate.typing(channel, True)
    await gate.say(channel, text)


async def test_the_client_in_fifteen_lines(tmp_path, nursery):
    async with world() as gate:
        (tmp_path / ".pegasus" / "run").mkdir(parents=True)
        (tmp_path / ".pegasus" / "run" / "daemon.json").write_text(json.dumps({"ws": gate.url}))
        (tmp_path / ".pegasus" / "token").write_text(TOKEN + "\n")
        nursery.start_soon(answering, gate, ChannelInfo("web", "me"), "It is 15:25.")
        done = await trio.run_process(
            [sys.executable, "-W", "ignore", "-c", blocks("gateway.md", "python")[0]],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_stdout=True,
        )
        assert done.stdout.decode().split("\n") == ["welcome", "accepted", "typing", "It is 15:25.", ""]
        await gate.journal.until(lambda: gate.journal.acks)


async def test_the_client_that_dials_again(nursery):
    names = {}
    exec(blocks("gateway.md", "python")[1], names)
    async with world() as gate:
        nursery.start_soon(answering, gate, ChannelInfo("web", "me"), "42")
        assert await names["ask"](gate.url, TOKEN, "What is it?") == "42"
        with pytest.raises(ConnectionError, match="wrong token"):
            await names["ask"](gate.url, "wrong", "What is it?")


def test_every_frame_that_is_shown_is_one():
    who = ClientChannel("web", "c1")
    for block in blocks("gateway.md", "json"):
        for line in block.splitlines():
            frame = json.loads(line)
            if frame["type"] == "hello":
                who = read_hello(line).channel
            elif frame["type"] in ("message", "ack", "call"):
                read_frame(line, who)
            else:
                assert frame["type"] in (
                    "welcome",
                    "accepted",
                    "reply",
                    "typing",
                    "progress",
                    "task",
                    "approval",
                    "said",
                    "edit",
                    "result",
                    "event",
                    "error",
                )


async def test_the_adapter(capsys):
    names = {}
    for block in blocks("channels.md", "python"):
        exec(block, names)
    journal = FakeJournal()
    pager = ChannelInfo("pager", "+8613800138000")
    journal.post(pager, "from before")
    async with open_supervisor([Child("journal", journal.run)]) as supervisor:
        ref = supervisor.ref("journal")
        await supervisor.start_child(Child("pager", names["Pager"]("pager").run, ref))
        await supervisor.start_child(Child("switchboard", run_switchboard, ref, {"pager": supervisor.ref("pager")}))
        intake = Intake(ref, LiveValue(Access({"pager": ChannelRules("allow_list", [pager.channel_id])})))
        assert await names["hear"](intake, pager.channel_id, "hi", "1") == "ok"
        with pytest.raises(AccessDenied, match="allow_from"):
            await names["hear"](intake, "+1", "hi", "1")
        journal.post(pager, "and now")
        await journal.until(lambda: journal.acks and journal.acks[-1] == (pager.address, 2))
    assert capsys.readouterr().out == "page to +8613800138000: from before\npage to +8613800138000: and now\n"


def _methods_in(text):
    group, named = "", set()
    for name in re.findall(r"`([a-z.]+)`", text):
        group = name.partition(".")[0] if not name.startswith(".") else group
        named.add(f"{group}{name}" if name.startswith(".") else name)
    return named


def test_every_method_is_named():
    named = _methods_in((DOCS / "gateway.md").read_text().partition("Methods: ")[2].partition(". A call")[0])
    parts = (
        StatusMethods(*[None] * 9),
        TaskMethods(None),
        EventMethods(None, None),
        ConversationMethod(None, None, None),
        InterruptMethod(*[None] * 5),
        MemoryMethods(None),
        PersonaMethods(None, None, ()),
        ApprovalFlow(*[None] * 6),
        ViewMethods(*[None] * 6),
        HistoryMethods(*[None] * 4),
        NodeMethods(None, None),
        ClientToolMethods(None, None),
        TokenMethods(None),
        PairingMethods(None, ()),
        ServerMethods(*[None] * 3),
        SettingsMethods(None, None),
    )
    methods = {name for part in parts for name in part.methods()}
    assert named == {*methods, "config.reload", "usage", "completions", "clients"}


def test_every_method_that_only_shows_something_is_named():
    line = next(line for line in (DOCS / "gateway.md").read_text().splitlines() if line.startswith("| `read` |"))
    assert _methods_in(line.partition("something: ")[2]) == READ_METHODS


def test_the_commands_that_pass_the_queue_are_named():
    [line] = [line for line in (DOCS / "gateway.md").read_text().splitlines() if "pass the queue, so" in line]
    assert set(re.findall(r"`(/[a-z]+)`", line)) == CONTROL_COMMANDS
