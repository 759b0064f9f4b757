"""Commands in the background: real ones, as a model uses them."""

import json
import os
import random
from pathlib import Path

import pytest
import trio

from pegasus.sandbox import BackgroundCommands, CommandLimits
from pegasus.tools import ToolContext
from pegasus.tools.background import background_tools
from tests.pegasus.sandbox.processes import PYTHON, alive, guards
from tests.pegasus.tools.calling import run_tool

TOOLS = {tool.name: tool for tool in background_tools(CommandLimits(grace=0.2, flood=20_000_000))}
WAIT = 20.0


def own_children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


class Task:
    """The calls of one task."""

    def __init__(self, commands, workspace):
        self.commands = commands
        self.workspace = workspace
        self.env = {"TASK_MARK": f"{workspace}-{os.getpid()}"}
        self.room = 25_600
        self.said = {}
        """What each command has said so far."""

    @property
    def left(self):
        """Its processes that are alive."""
        return alive(f"TASK_MARK={self.env['TASK_MARK']}")

    async def __call__(self, name, within=60.0, **arguments):
        folders = (self.workspace,)
        context = ToolContext(
            workspace=self.workspace, allowed_paths=folders, env=self.env, commands=self.commands, max_result=self.room
        )
        outcome = await run_tool(TOOLS[f"command_{name}"], arguments, within, context)
        if outcome.failed:
            return outcome.content
        result = json.loads(outcome.content)
        if "output" in result:
            self.said[result["commandId"]] = self.said.get(result["commandId"], "") + result["output"]
        return result

    async def until(self, wanted, command="c1"):
        """All that a command has said, once that has a text."""
        with trio.fail_after(WAIT):
            while wanted not in self.said[command]:
                result = await self("output", commandId=command, wait=WAIT)
                assert wanted in self.said[command] or result["running"] or "are waiting" in result["note"]
        return self.said[command]

    async def end(self, command="c1"):
        """Wait until a command has ended by itself. Its output is not read."""
        with trio.fail_after(WAIT):
            await self.commands.get(command).ended.wait()


@pytest.fixture
async def task(tmp_path):
    async with trio.open_nursery() as nursery:
        task = Task(BackgroundCommands(nursery), tmp_path.resolve())
        yield task
        await task.commands.end_all()
        assert task.left == {}
        assert guards() == []


# ------------------------------------------------------------------ start, output, input, stop


async def test_a_command_goes_on_between_calls(task):
    result = await task("start", command='echo ready; while read line; do echo "got $line"; done; exit 3')
    assert (result["commandId"], result["running"], result["output"]) == ("c1", True, "ready\n")
    assert (await task("input", commandId="c1", text="one\n"))["output"] == "got one\n"
    assert (await task("input", commandId="c1", text="two\n"))["output"] == "got two\n"
    result = await task("input", commandId="c1", text="", end=True)
    assert (result["running"], result["exitCode"], result["output"]) == (False, 3, "")


async def test_a_start_that_fails_at_once_shows_it(task):
    result = await task("start", command="echo 'address in use' >&2; exit 1", wait=WAIT)
    assert (result["running"], result["exitCode"], result["output"]) == (False, 1, "address in use\n")


async def test_both_streams_come_in_the_order_of_writing(task):
    await task("start", command="for n in 1 2; do echo out $n; echo err $n >&2; done", wait=0)
    assert await task.until("err 2") == "out 1\nerr 1\nout 2\nerr 2\n"


async def test_a_stop_ends_it_and_returns_its_last_words(task):
    await task("start", command="trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", wait=WAIT)
    result = await task("stop", commandId="c1")
    assert (result["running"], result["exitCode"]) == (False, 0)
    assert result["output"].endswith("bye\n")
    assert task.left == {}
    assert (await task("stop", commandId="c1"))["running"] is False


async def test_the_list_names_them(task):
    await task("start", command="sleep 100", wait=0)
    await task("start", command="exit 4", wait=WAIT)
    running, ended = await task("list")
    assert (running["commandId"], running["command"], running["running"]) == ("c1", "sleep 100", True)
    assert (ended["commandId"], ended["running"], ended["exitCode"]) == ("c2", False, 4)


async def test_a_wait_ends_without_news(task):
    await task("start", command="sleep 100", wait=0)
    result = await task("output", commandId="c1", wait=0.05)
    assert (result["running"], result["output"]) == (True, "")


async def test_a_wait_ends_before_the_deadline_of_the_call(task):
    await task("start", command="sleep 100", wait=0)
    result = await task("output", commandId="c1", within=0.4, wait=60)
    assert (result["running"], result["output"]) == (True, "")


async def test_a_wait_ends_with_the_command(task):
    await task("start", command="read line", wait=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: task("input", commandId="c1", text="go\n"))
        assert (await task("output", commandId="c1", wait=60))["exitCode"] == 0


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("start", {"command": " "}, "command is empty"),
        ("start", {"command": "true", "cwd": "/"}, "/"),
        ("start", {"command": "true", "env": {"A=B": ""}}, "env"),
        ("output", {"commandId": "c7"}, "there is no background command 'c7' of this task; there are: none"),
        ("output", {"commandId": "c1", "wait": 1000}, "wait"),
    ],
)
async def test_wrong_calls_name_the_reason(task, name, arguments, reason):
    result = await task(name, **arguments)
    assert result.startswith("Error: ")
    assert reason in result


async def test_a_caller_that_can_have_none(task):
    task.commands, kept = None, task.commands
    assert "only background tasks can have background commands" in await task("start", command="true")
    task.commands = kept


async def test_input_for_a_command_that_has_ended(task):
    await task("start", command="true", wait=WAIT)
    assert "c1 has ended" in await task("input", commandId="c1", text="x")


async def test_input_for_a_command_that_has_closed_it(task):
    await task("start", command="exec <&-; echo closed; sleep 100", wait=WAIT)
    assert "has closed its input" in await task("input", commandId="c1", text="x")


async def test_input_that_nobody_reads(task, monkeypatch):
    monkeypatch.setattr("pegasus.sandbox.background._INPUT_LIMIT", 0.1)
    await task("start", command="sleep 100", wait=0)
    assert "does not read its input" in await task("input", commandId="c1", text="x" * 1_000_000)


async def test_a_task_may_have_so_many(task):
    for _ in range(8):
        await task("start", command="sleep 100", wait=0)
    assert "8 background commands are running (c1, c2" in await task("start", command="sleep 100")
    await task("stop", commandId="c3")
    assert (await task("start", command="sleep 100", wait=0))["commandId"] == "c9"


async def test_commands_that_a_former_actor_had(task):
    task.commands.remember_lost({"c1": "npm run dev", "c2": "sleep 1"})
    assert "c1 (npm run dev) does not run any more" in await task("output", commandId="c1")
    assert (await task("start", command="true"))["commandId"] == "c3"


# ------------------------------------------------------------------ much, strange and broken output


async def test_long_output_is_read_in_parts(task):
    task.room = 4_000
    await task("start", command=f"{PYTHON} -c 'for n in range(9000): print(n)'", wait=0)
    await task.end()
    text, waiting = "", True
    while waiting:
        result = await task("output", commandId="c1", wait=0)
        text, waiting = text + result["output"], "are waiting" in result.get("note", "")
    assert text == "".join(f"{n}\n" for n in range(9000))


async def test_a_reader_that_comes_late_is_told_what_is_lost(task):
    await task(
        "start",
        command="until [ -e go ]; do sleep 0.02; done; head -c 1000000 /dev/zero | tr '\\0' x; echo END",
        wait=0,
    )
    (task.workspace / "go").touch()  # nothing is written before the start has returned
    await task.end()
    task.room = 200_000
    result = await task("output", commandId="c1")
    lost = 1_000_004 - 65_536
    assert f"{lost:,} bytes before this output are lost" in result["note"]
    assert len(result["output"]) == 65_536
    assert result["output"].endswith("xEND\n")


async def test_a_flood_ends_it(task):
    result = await task("start", command="trap '' TERM; yes", wait=0)
    with trio.fail_after(WAIT):
        while result["running"]:
            result = await task("output", commandId="c1", wait=WAIT)
    assert "ended because it wrote more than 19 MiB" in result["note"]


async def test_output_without_a_line_break(task):
    assert (await task("start", command="printf 'name? '; read x", wait=WAIT))["output"] == "name? "


async def test_binary_output(task):
    task.room = 4_000
    await task("start", command="head -c 3000 /dev/zero; printf '\\377end'", wait=WAIT)
    assert (await task.until("end")).replace("\0", "") == "\ufffdend"


async def test_a_character_in_two_pieces(task):
    await task("start", command="printf 'a\\303'; read x; printf '\\244b\\n'", wait=WAIT)
    assert (await task("input", commandId="c1", text="\n"))["output"] == "äb\n"


# ------------------------------------------------------------------ hostile commands

HOSTILE = {
    "two hundred children": "for n in $(seq 200); do sleep 100 & done; echo up; wait",
    "closes its output": "echo up; exec >/dev/null 2>&1; sleep 100",
    "ignores its end": "trap '' TERM HUP INT; echo up; while :; do sleep 100; done",
    "new sessions": "(setsid sh -c 'trap \"\" TERM HUP; echo up; sleep 100; sleep 100' &) ; sleep 100",
    "stopped": "echo up; kill -STOP $$",
    "children that are stopped": "sleep 100 & kill -STOP $!; echo up; wait",
    "deletes its folder": "mkdir -p own && cd own && rmdir ../own; echo up; sleep 100",
    "clears its environment": "echo up; exec env -i setsid sleep 100",
}


@pytest.mark.parametrize("pty", [False, True])
async def test_hostile_commands_end_together(task, pty):
    """All of them at the same time: when `end_all` returns, no process of any is left."""
    for command in HOSTILE.values():
        await task("start", command=command, wait=0, pty=pty)
    for number in range(len(HOSTILE)):
        await task.until("up", f"c{number + 1}")
    assert len(task.left) > 200
    await task.commands.end_all()
    assert task.left == {}
    assert guards() == []
    assert all(not command["running"] for command in await task("list"))


async def test_the_cancel_of_the_owner_ends_them(tmp_path):
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            task = Task(BackgroundCommands(nursery), tmp_path.resolve())
            for command in HOSTILE.values():
                await task("start", command=command, wait=0)
            await task.until("up", "c4")
            scope.cancel()
    assert task.left == {}
    assert guards() == []


async def test_a_start_that_is_cancelled_leaves_nothing(task):
    chance = random.Random(2)
    for _ in range(25):
        with trio.move_on_after(chance.uniform(0, 0.05)):
            await task("start", command="setsid sleep 100 & sleep 100", wait=5)
        await task.commands.end_all()
        assert task.left == {}


async def test_many_commands_leave_no_descriptor_and_no_zombie(task):
    await task("start", command="true", wait=WAIT)
    children = own_children()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        result = await task("start", command="echo hello", wait=WAIT, pty=number % 4 == 0)
        assert (result["exitCode"], result["output"].strip()) == (0, "hello")
    assert len(os.listdir("/proc/self/fd")) == before
    assert own_children() == children
    assert len(await task("list")) <= 17


# ------------------------------------------------------------------ terminals


async def test_a_program_that_talks_to_a_terminal(task):
    result = await task("start", command=f"{PYTHON} -q", pty=True, wait=WAIT)
    text = result["output"] if ">>>" in result["output"] else await task.until(">>>")
    assert text.endswith(">>>")
    assert "\n42\n>>>" in (await task("input", commandId="c1", text="6*7\n"))["output"]
    await task("input", commandId="c1", text="\x04")
    assert (await task("output", commandId="c1", wait=WAIT))["exitCode"] == 0


async def test_a_password_is_not_echoed(task):
    command = 'bash -c \'read -s -p "Password: " word; echo; echo "${#word} characters"\''
    await task("start", command=command, pty=True, wait=WAIT)
    text = (await task("input", commandId="c1", text="hunter2\n", wait=WAIT))["output"]
    assert "7 characters" in text
    assert "hunter2" not in text


async def test_a_pager_shows_its_page(task):
    (task.workspace / "long").write_text("".join(f"line {n}\n" for n in range(200)))
    await task("start", command="less long", pty=True, wait=WAIT)
    page = (await task("input", commandId="c1", text=" "))["output"]
    assert "line 60" in page
    await task("input", commandId="c1", text="q", wait=WAIT)
    assert (await task("output", commandId="c1", wait=WAIT))["exitCode"] == 0


async def test_the_interrupt_key(task):
    await task("start", command="echo up; exec sleep 100", pty=True, wait=WAIT)
    result = await task("input", commandId="c1", text="\x03", wait=WAIT)
    while result["running"]:
        result = await task("output", commandId="c1", wait=WAIT)
    assert result["signal"] == "SIGINT"
