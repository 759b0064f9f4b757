"""Public test kit: models, a provider, channels, a disk and a whole agent that a test controls completely.

* `scripted`: `ScriptedModel`, a model in the process that answers from a list or a function.
* `provider`: `open_provider`, an HTTP server on loopback that speaks the wire formats of Anthropic, OpenAI and Ollama
  and refuses what the services refuse.
* `weak_models`: ways in which small models and their servers answer badly.
* `fake_channel`: `FakeChannel`, an adapter that keeps the replies which it is given and fails on demand.
* `services`: fakes of Telegram, Slack and Twilio.
* `bridges`: the conformance suite for bridges. `__main__`: its command, `python -m pegasus.testing bridge COMMAND`.
* `memory_disk`: `MemoryDisk`, a disk that keeps only what was synced, and can be full, slow, failing or torn.
* `memory_database`: `MemoryDatabase`, a database that nodes share, whose links lose and delay. `memory_tables`: all that it holds.
* `world`: `open_world`, the whole supervision tree in virtual time out of these parts, and `kill`, a power
  failure.

Everything but provider, services and bridges runs without threads, sockets and real time, so that a test repeats exactly and an
hour of waiting costs nothing. Those are real servers because they exist to test clients.

Of the product only `pegasus.update` imports from here, since it replays a home in virtual time: the names that this package exports.
Tests import each module, and the package `provider`, for itself, so that one which needs only a model does not load the HTTP server.

    from pegasus.testing.scripted import ScriptedModel, reply, say
    from pegasus.testing.world import open_world

    async def test_hello(autojump_clock):
        async with open_world(ScriptedModel([say("", reply("c1", "hello"))])) as world:
            await world.say("hi")
            assert (await world.next_reply()).text == "hello"
"""

from typing import TYPE_CHECKING

from pegasus.late import late_names

if TYPE_CHECKING:
    from pegasus.testing.fake_channel import FakeChannel
    from pegasus.testing.memory_disk import DiskFolder, MemoryDisk
    from pegasus.testing.world import DiskArchives, DiskMemoryFolder, files_on
else:
    __getattr__ = late_names(__name__)

__all__ = ["DiskArchives", "DiskFolder", "DiskMemoryFolder", "FakeChannel", "MemoryDisk", "files_on"]
