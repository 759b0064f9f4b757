"""A real model that is far too small: 135 million parameters behind llama.cpp, in each way of speaking.

What it says is nonsense. So only what holds for any model is asserted: every message is answered or ends in a documented sentence,
nothing of the machinery is shown, the session stays well-formed, and the window is the server's.
"""

from __future__ import annotations

import re

import pytest
import trio

from tests.blackbox.support import open_calls, session
from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.small_model import is_available, small_model

WINDOW = 4096
MACHINERY = re.compile(r"</?think|</?tool_call|<\|im_|\[channel:|\"(?:name|arguments|channelId)\"\s*:")
"""What a person must never see: tags, metadata lines, calls as JSON."""
MESSAGES = (
    "Hello! Who are you?",
    "What is the capital of France?",
    "Thank you. Count to three. 一二三 🙂",
)


@pytest.mark.skipif(not is_available(), reason="xllamacpp has no wheel for this platform")
@pytest.mark.deadline(300)
async def test_three_turns_in_each_way_of_speaking(tmp_path):
    with small_model(WINDOW) as url:
        options = {"temperature": 0.0, "max_tokens": 30}
        settings = {f'models.options."default".{name}': value for name, value in options.items()}
        daemon = Daemon(tmp_path / "home", settings, env={"LLAMACPP_BASE_URL": url})
        await daemon.start()
        async with daemon.client("cli", "main") as client:
            for speech in ("auto", "direct", "monologue"):
                if speech != "auto":  # the default
                    await client.ask("/new")
                    assert "chosen with /speech" in await client.ask(f"/speech {speech}")
                for message in MESSAGES:
                    answers = await converse(client, message)
                    assert not any(MACHINERY.search(answer) for answer in answers), (speech, message, answers)
                    # Text is never delivered in an explicit monologue, and this model hardly ever calls anything.
                    assert answers or speech == "monologue", (speech, message)
                    assert all(answer.strip() for answer in answers)
                assert open_calls(session(daemon.home)) == []
            assert "SmolLM2" in await client.ask("/model")
            assert (await client.call("status"))["window"] == WINDOW
        assert "traceback" not in daemon.stderr.lower()
        daemon.kill()


async def converse(client, message):
    """Send a message; the replies that came until the work on it had ended."""
    before = len(client.texts())
    await client.say(message)
    while (await client.call("status"))["waiting"]:  # noqa: ASYNC110 no frame tells that a turn has ended in silence
        await trio.sleep(0.1)
    return [frame["text"] for frame in await client.replies(len(client.texts()) - before)]
