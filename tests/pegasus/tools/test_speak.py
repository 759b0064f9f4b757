"""The tool `speak`: a recording as a file of the workspace, whoever it is for."""

import trio

from pegasus.access import Principal, Role
from pegasus.messages import ChannelInfo
from pegasus.models import ModelError
from pegasus.tools import ToolContext, ToolExecutor, base_context, speak_tool

GUEST = Principal(Role.GUEST, ChannelInfo("slack", "#general", "U9"))


class Mouth:
    """A model that speaks, by a script."""

    name = "openai/tts"

    def __init__(self, audio=b"OggS hello"):
        self.audio, self.calls = audio, []

    async def speak(self, text, label, *, voice, format="opus"):
        self.calls.append((text, voice, label.guest))
        if isinstance(self.audio, Exception):
            raise self.audio
        return self.audio


async def run(tmp_path, mouth, principal=GUEST, **arguments):
    tool = speak_tool(lambda: mouth, "alloy", base_context(tmp_path, (), 0))
    with trio.fail_after(20):
        return await ToolExecutor([tool]).run(tool, arguments, ToolContext(principal=principal, key="k"))


async def test_a_recording_is_a_file_of_the_workspace_and_counts_for_who_wanted_it(tmp_path):
    mouth = Mouth()
    outcome = await run(tmp_path, mouth, text="Hello", voice="nova")
    [file] = (tmp_path / "speech").iterdir()
    assert file.read_bytes() == b"OggS hello"
    assert f'"path":"speech/{file.name}"' in outcome.content
    assert mouth.calls == [("Hello", "nova", "slack:U9")]


async def test_the_same_recording_is_one_file(tmp_path):
    mouth = Mouth()
    for _ in range(2):
        assert not (await run(tmp_path, mouth, text="Hello")).failed
    assert len(list((tmp_path / "speech").iterdir())) == 1
    assert mouth.calls[0][1] == "alloy"


async def test_what_goes_wrong_is_told_and_leaves_nothing(tmp_path):
    broken = Mouth(ModelError("openai/tts: it is down", kind="server"))
    for mouth, text, words in [
        (broken, "hi", "it is down"),
        (None, "hi", "found no models.speech"),
        (Mouth(), " ", "text is empty"),
    ]:
        outcome = await run(tmp_path, mouth, text=text)
        assert outcome.failed
        assert words in outcome.content
    assert not (tmp_path / "speech").exists()
