"""What its submitter hears of a task whose actor crashes: every word that is on disk, each by its own number, and the end."""

import pytest
import trio

from pegasus.events import EventType
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, open_desk


class Crashing(MemoryFolder):
    """The actor of a task is gone when its word is being written. pause: until a log is read, by when more may be in it."""

    def __init__(self, at, pause):
        super().__init__()
        self.at = at
        self.pause = pause
        self.crash = None

    async def gate(self, inbox):
        async for message in inbox:
            speaks = any(event.type is EventType.TASK_NOTIFY for event in message.events)
            async with self.lock:
                if speaks and self.at == "before":
                    self.crash()
                    await trio.sleep(1)
                self.write(message.events)
            if speaks and self.at == "behind":
                self.crash()
            message.reply.send({})

    async def replay(self, task_id):
        await trio.sleep(self.pause)
        return await super().replay(task_id)


@pytest.mark.parametrize("pause", [0, 5])
@pytest.mark.parametrize("at", ["before", "behind"])
async def test_what_it_has_said_is_told_and_that_it_has_failed(at, pause, autojump_clock):
    shelf = Crashing(at, pause)
    model = ScriptedModel([say("", call("notify", "n", message="half way")), Hang()])
    async with open_desk(model, shelf=shelf) as desk:
        task_id = await desk.submit()
        shelf.crash = lambda: desk.root.ref(f"agent/tasks/task:{task_id}")._cell.incarnation.kill("a test")
        await trio.sleep(100)
        assert [(told.type, told.n) for told in desk.listener.heard] == [("notify", 1), ("failed", 2)]
        assert shelf.forgotten == [task_id]
