"""Pictures that tools return: models are shown them beside the result, also when the task goes on in another process.

On the real clock: pictures are decoded in a thread, and virtual time would pass meanwhile.
"""

from __future__ import annotations

from base64 import b64encode

from pegasus.messages import Media
from pegasus.models import ToolSpec, UserTurn
from pegasus.tasks import Resume, TaskState, wait_until_running
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.world import open_world
from pegasus.tools import ResultWithImages, Tool, parameters
from tests.pegasus.app.test_approvals import look, outcome, submit
from tests.pegasus.models.formats.pictures import png


def camera(*pictures):
    async def run(arguments, context):
        return ResultWithImages({"files": [each.name for each in pictures]}, pictures)

    return Tool(ToolSpec("camera", "Take a picture.", parameters({})), run, "mcp")


def picture(data, name="dot.png"):
    return Media(name, "image/png", b64encode(data).decode())


def images_of(request):
    return [image.name for turn in request.turns if isinstance(turn, UserTurn) for image in turn.images]


def photographer(*, asks=False):
    """The model of a task: it takes a picture, perhaps asks something, and names the pictures that it is shown."""

    def think(request):
        results = [result for turn in request.turns for result in getattr(turn, "results", ())]
        if not results:
            return say("", call("camera", "c1"))
        if asks and "go on" not in str([getattr(turn, "text", "") for turn in request.turns]):
            return say("", call("ask_user", "c2", question="And now?"))
        return f"I see {images_of(request)}"

    return ScriptedModel(think)


def opened(tool, model, disk=None):
    return open_world(ScriptedModel(lambda request: say()), task_model=model, tools=(tool,), disk=disk)


async def test_a_task_is_shown_the_picture_of_a_tool():
    async with opened(camera(picture(png())), photographer()) as world:
        task = await outcome(world, await submit(world))
        assert (task.error, task.result) == (None, "I see ['dot.png']")


async def test_what_no_model_takes_is_left_out():
    """One bad picture would make a provider refuse the whole request."""
    async with opened(camera(picture(b"nonsense", "bad.png"), picture(png())), photographer()) as world:
        task = await outcome(world, await submit(world))
        assert (task.error, task.result) == (None, "I see ['dot.png']")


async def test_a_task_that_goes_on_in_another_process_sees_it_again():
    disk = MemoryDisk()
    async with opened(camera(picture(png())), photographer(asks=True), disk) as world:
        task_id = await submit(world)
        while (await look(world, task_id)).state is not TaskState.SUSPENDED:
            pass
    async with opened(camera(), photographer(asks=True), disk) as world:
        assert await wait_until_running(world.root.ref("tasks/agent"))
        await world.root.ref("tasks/agent").ask(Resume, task_id, "go on")
        assert (await outcome(world, task_id)).result == "I see ['dot.png']"
