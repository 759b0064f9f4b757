"""Background commands of a task, with the real process: they go on between thoughts, and nothing that is ended leaves one behind."""

from __future__ import annotations

import json

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving, until
from tests.blackbox.support.work import Effects, Office, TaskView, act, answer, heard, rest, task_id

STUBBORN = (
    "trap '' TERM HUP; setsid sh -c \"trap '' TERM HUP; sleep 600\" & sleep 600 & echo up; while :; do sleep 600; done"
)
"""Children that ignore every request to end, one of them in a session of its own."""


def start(work: Effects, command: str = STUBBORN, **more: object) -> Call:
    """Start a command in the background whose processes carry the mark of the test."""
    name, _, value = work.mark.partition("=")
    return Call("command_start", {"command": command, "env": {name: value}, "wait": 20, **more})


async def test_stop_ends_the_commands_of_a_task_that_thinks(workplace, name, tmp_path):
    """`/status` and `tasks show` name them before; the answer to /stop says that they have ended."""
    work = Effects(tmp_path)
    book = Office({"serve": [act(start(work), start(work, pty=True)), answer("never said")]})
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        book.hold(only=lambda view: isinstance(view, TaskView) and view.thoughts > 0)
        await client.say("do serve")
        await book.thought("serve", 2)
        assert len(work.processes()) >= 6
        assert "(running: c1 trap '' TERM HUP; setsid" in await client.ask("/status")
        shown = await daemon.command("tasks", "show", task_id(daemon.home, "serve"))
        assert "Commands" in shown.out
        assert "c2 trap" in shown.out
        await client.say("/stop")
        stopped = await client.reply()
        assert work.processes() == [], "the answer says that they have ended"
        assert "serve" in stopped["text"]
        book.release()
        assert (await client.reply())["text"].startswith("stopped: stopped by")


async def test_a_killed_daemon_leaves_no_command_and_the_task_is_told(tmp_path):
    """After kill -9 the guards end them; the task that goes on reads which ones it has lost, and starts another."""
    work = Effects(tmp_path)

    def go_on(view: TaskView):
        told = [text for text in view.said("user") if "These background commands have ended" in text]
        return answer(f"told {len(told)} times: {'c1' in told[0]}" if told else "never told")

    book = Office({"serve": [act(start(work)), go_on, go_on]})
    async with serving(tmp_path, book, {"tasks.recovery": "resume"}) as daemon:
        async with daemon.client() as client:
            book.hold(only=lambda view: isinstance(view, TaskView) and view.thoughts > 0)
            await client.say("do serve")
            await book.thought("serve", 2)
            assert len(work.processes()) >= 3
            daemon.kill()
        await until(lambda: work.processes() == [], "the end of what the killed daemon ran")
        book.release()
        await daemon.start()
        async with daemon.client() as client:
            assert await heard(client) == ["completed: told 1 times: True"]
        await rest(daemon)
        assert work.processes() == []


async def test_a_shutdown_ends_them(tmp_path):
    work = Effects(tmp_path)
    book = Office({"serve": [act(start(work)), answer("served")]})
    async with serving(tmp_path, book) as daemon:
        async with daemon.client() as client:
            book.hold(only=lambda view: isinstance(view, TaskView) and view.thoughts > 0)
            await client.say("do serve")
            await book.thought("serve", 2)
        assert await daemon.stop() == 0
        assert work.processes() == []


async def test_a_result_comes_when_its_commands_have_ended(workplace, name, tmp_path):
    """A conversation with a program, over several thoughts of the task."""
    work = Effects(tmp_path)
    book = Office(
        {
            "talk": [
                act(start(work, f'echo ready; while read line; do echo "<$line>"; done; {STUBBORN}')),
                act(Call("command_input", {"commandId": "c1", "text": "hello\n", "wait": 20})),
                lambda view: answer(json.loads(view.last)["output"].strip()),
            ]
        }
    )
    async with workplace.play(book, name) as daemon, daemon.client() as client:
        await client.say("do talk")
        assert await heard(client) == ["completed: <hello>"]
        assert work.processes() == []
