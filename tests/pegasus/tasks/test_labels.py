"""Model calls of tasks say what they are for."""

from __future__ import annotations

import pytest

from pegasus.conversation import Entry
from pegasus.identity import BUILT_IN as PERSONA
from pegasus.messages import ChannelInfo
from pegasus.settings import LiveValue
from pegasus.tasks.core.fsm import TaskContext
from pegasus.tasks.core.task_types import BUILT_IN_TYPES, load_task_types
from pegasus.tasks.run.thinker import Reflector, Thinker, label_of
from pegasus.testing.scripted import ScriptedModel

CHANNEL = {"type": "slack", "channelId": "C1", "userId": "u1"}


def test_a_call_is_for_the_task_the_chat_and_the_message_it_came_from():
    label = label_of(TaskContext("t1", input_metadata={"channel": CHANNEL, "item": 7}))
    assert (label.role, label.channel, label.item, label.task_id) == (
        "subagent",
        ChannelInfo("slack", "C1", "u1"),
        7,
        "t1",
    )


@pytest.mark.parametrize("metadata", [{}, {"channel": None}, {"channel": "slack"}, {"channel": {}}, {"item": "7"}])
def test_a_task_that_nobody_on_a_channel_asked_for(metadata):
    label = label_of(TaskContext("t1", input_metadata=metadata), "reflection")
    assert (label.role, label.channel, label.item, label.task_id) == ("reflection", None, None, "t1")


async def test_thinking_and_looking_back_have_the_label_of_their_task():
    model = ScriptedModel(["done", "nothing to keep"])
    context = TaskContext("t9", input_metadata={"channel": CHANNEL}, messages=[Entry(1, "user", "find it")])
    await Thinker(LiveValue(PERSONA), lambda: 7).think(
        context, model, load_task_types(BUILT_IN_TYPES)[0].get("general"), ()
    )
    await Reflector(LiveValue(PERSONA)).reflect(context, "", (), model, 1000, None)
    assert [(asked.label.role, asked.label.task_id) for asked in model.requests] == [
        ("subagent", "t9"),
        ("reflection", "t9"),
    ]
    assert {asked.label.channel.channel_id for asked in model.requests} == {"C1"}
