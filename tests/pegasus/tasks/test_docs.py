"""What the pages on events, the state machine and the logs show is how it is."""

import json
import re
from pathlib import Path

import attrs

from pegasus.events import EventType
from pegasus.tasks.core.fsm import TRANSITIONS
from pegasus.tasks.core.task_events import EVENT_DATA
from pegasus.tasks.core.task_states import TaskState
from pegasus.tasks.log.format import create_event, parse_task_line
from pegasus.tasks.log.replay import replay
from pegasus.wire import camel

DOCS = Path(__file__).parents[3] / "docs"


def block(page, language):
    [text] = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return text


def test_the_table_is_the_one_that_is_shown():
    shown = {}
    for row in block("task-fsm.md", "table").splitlines():
        state, event, to = row.split(maxsplit=2)
        shown[TaskState[state], EventType[event]] = None if to.startswith("(") else TaskState[to]
    assert shown == {key: to if isinstance(to, TaskState) else None for key, to in TRANSITIONS.items()}


def test_the_log_that_is_shown_is_a_life():
    text = block("task-persistence.md", "jsonl")
    found = replay(text.encode(), "00112233aabbccdd")
    assert found.problems == ()
    assert found.is_over
    assert found.task.context.final_result["response"] == "Half past two."
    for line in text.splitlines():
        event = parse_task_line(json.loads(line))
        assert list(event.payload) == [camel(field.name) for field in attrs.fields(EVENT_DATA[event.type])]
        assert create_event(event.data, event.task_id, "task", event.timestamp).line.decode() == line + "\n"


def test_the_numbers_of_the_events_are_as_shown():
    shown = dict(re.findall(r"([A-Z_]+) (\d+)", (DOCS / "events.md").read_text("utf-8")))
    assert {name: int(number) for name, number in shown.items()} == {type.name: type.value for type in EventType}
