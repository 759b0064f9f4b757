"""`pegasus tasks follow`: the log of a task in lines, and its exit code."""

import json
from contextlib import asynccontextmanager
from importlib.resources import files

import pytest
import trio

from pegasus.cli.follow import _LINES, _WORDS, LogPrinter, event_lines
from pegasus.cli.work import run_follow, run_list, run_show
from pegasus.events import Event, EventType, event_json
from pegasus.gateway import BadParams, EventStream
from pegasus.tasks.core.task_events import EVENT_DATA
from pegasus.tasks.log.format import INDEX, create_event, index_line, parse_payload, task_path
from tests.pegasus.cli.test_send_and_status import home, run, write_daemon  # noqa: F401
from tests.pegasus.gateway.world import world

ID = "1d3af0ebec7cb0d8"
DATE = "2026-02-25"
BEGAN = 1_772_020_800_000
TASK = {
    "taskId": ID,
    "number": 3,
    "description": "find papers",
    "taskType": "general",
    "state": "acting",
    "createdAt": BEGAN,
    "updatedAt": BEGAN,
}


def made(kind, **payload):
    return Event(kind, BEGAN, "task", ID, payload)


def line_of(event):
    """The line of an event in a log."""
    return create_event(parse_payload(event.type, event.payload), ID, "task", BEGAN).line


CREATED = made(
    EventType.TASK_CREATED, inputText="find papers\nabout otters", source="main-agent", description="find papers"
)
PLAN = {"goal": "g", "steps": [{"index": 0, "description": "d", "actionType": "tool_call"}]}
CALLS = [{"id": "c1", "name": "web_search", "arguments": {"query": "otters"}}]
THOUGHT = made(
    EventType.REASON_DONE,
    reasoning={"response": "I search.", "approach": "tool_use", "toolCalls": CALLS},
    plan=PLAN,
)
FOUND = made(
    EventType.TOOL_CALL_COMPLETED,
    toolName="web_search",
    durationMs=1200,
    newMessages=[{"role": "tool", "content": "three\nhits " + "x" * 500, "ts": BEGAN, "toolCallId": "c1"}],
)
DONE = made(EventType.TASK_COMPLETED, finalResult={"response": "Three\npapers."}, iterations=2)
FAILED = made(EventType.TASK_FAILED, error="broken")


@asynccontextmanager
async def daemon(home, log, then=()):  # noqa: F811
    """A gateway whose task has this log, and whose stream has these events."""

    async def subscribe(caller, params):
        async def run(push):
            for n, event in enumerate(then, 1):
                await push(n, event_json(event))

        return EventStream({"n": 0, "oldest": 1}, run)

    async def show_log(caller, params):
        if params["taskId"] == "7":
            raise BadParams("there is no task 7; the newest is 3")
        return {"task": TASK, "events": [event_json(event) for event in log]}

    async with world(methods={"events.subscribe": subscribe, "tasks.log": show_log}) as gate:
        write_daemon(home, gate.url)
        yield gate


def texts(out):
    return [line[10:] if line[2:3] == ":" or not line.strip() else line for line in out.splitlines()]


async def test_a_running_task_is_followed_to_its_end_and_nothing_is_shown_twice(home, capsys):  # noqa: F811
    async with daemon(home, [CREATED, THOUGHT], [THOUGHT, FOUND, DONE]):
        assert await run(run_follow, home, task_id="3", as_json=False) == 0
    lines = texts(capsys.readouterr().out)
    assert lines[:4] == [
        "Task 3: find papers",
        "created: find papers about otters",
        "thought: I search.",
        '          → web_search {"query":"otters"}',
    ]
    assert lines[4].startswith("✓ web_search (1.2 s): three hits xxx")
    assert len(lines[4]) < 200
    assert [line.strip() for line in lines[5:]] == ["completed:", "Three", "papers."]


@pytest.mark.parametrize(("end", "code"), [(DONE, 0), (FAILED, 1)])
async def test_a_task_that_has_ended_is_shown_at_once(home, capsys, end, code):  # noqa: F811
    async with daemon(home, [CREATED, end]):
        assert await run(run_follow, home, task_id=ID, as_json=False) == code
    out = capsys.readouterr().out
    assert ("failed: broken" in out) is bool(code)


@pytest.mark.parametrize("reason", [{"reason": "stopped"}, {}], ids=["now", "before"])
async def test_a_task_that_a_person_has_ended_has_not_failed(home, capsys, reason):  # noqa: F811
    end = made(EventType.TASK_FAILED, error="stopped by the user (cli)", **reason)
    async with daemon(home, [CREATED, end]):
        assert await run(run_follow, home, task_id=ID, as_json=False) == 1
    assert texts(capsys.readouterr().out)[-1] == "stopped by the user (cli)"


async def test_a_task_that_was_resumed_has_not_ended(home, capsys):  # noqa: F811
    resumed = made(EventType.TASK_RESUMED, newInput="more", previousState="completed")
    async with daemon(home, [CREATED, DONE, resumed], [FAILED]):
        assert await run(run_follow, home, task_id="3", as_json=False) == 1
    assert "resumed: more" in capsys.readouterr().out


async def test_events_for_programs(home, capsys):  # noqa: F811
    async with daemon(home, [CREATED, DONE]):
        assert await run(run_follow, home, task_id="3", as_json=True) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["TASK_CREATED", "TASK_COMPLETED"]


async def test_an_unknown_number_is_answered_without_terms_of_the_protocol(home, capsys):  # noqa: F811
    async with daemon(home, []):
        assert await run(run_follow, home, task_id="7", as_json=False) == 1
    assert capsys.readouterr().err == "pegasus: there is no task 7; the newest is 3\n"


async def test_a_daemon_that_goes_away_is_a_failure(home, capsys):  # noqa: F811
    async with daemon(home, [CREATED]) as gate, trio.open_nursery() as nursery:
        nursery.start_soon(expect_failure, home)
        await gate.journal.until(lambda: True)
        await trio.sleep(0.3)
        await gate.supervisor.stop()
    assert "goes on at the next start" in capsys.readouterr().err


async def expect_failure(home):  # noqa: F811
    assert await run(run_follow, home, task_id="3", as_json=False) == 1


def test_each_event_says_something_to_a_person():
    assert event_lines(event_json(made(EventType.TASK_NOTIFY, message="half way"))) == ["says: half way"]
    assert event_lines(event_json(made(EventType.NEED_MORE_INFO, question="Which?"))) == ["asks: Which?"]
    assert event_lines(event_json(made(EventType.TASK_SUSPENDED, suspendReason="later"))) == ["suspended: later"]
    assert event_lines(event_json(made(EventType.TASK_STATE_CHANGED, fromState="reasoning", toState="acting"))) == [
        "reasoning → acting"
    ]
    assert event_lines(event_json(made(EventType.REFLECTION_COMPLETE))) == []
    assert event_lines({"type": "gap"}) == ["(some events were missed)"]


@pytest.mark.parametrize("data", [{}, {"reasoning": 7}, {"newMessages": None}, {"finalResult": None}])
def test_an_event_of_another_version_ends_nobody(data):
    for kind in EventType:
        event_lines({"type": kind.name, "data": data})


def test_an_event_that_really_happened_twice_is_shown_twice(capsys):
    printer = LogPrinter(TASK, as_json=True)
    note = event_json(made(EventType.TASK_NOTIFY, message="again"))
    printer.print_all([note])
    for _ in range(2):
        printer.print_new(note)
    assert len(capsys.readouterr().out.splitlines()) == 2


# ------------------------------------------------------------------ without a daemon


@pytest.fixture
def stored(home):  # noqa: F811
    path = home.data / task_path(ID, DATE)
    path.parent.mkdir(parents=True)
    path.write_bytes(line_of(CREATED))
    (home.data / INDEX).write_bytes(index_line("a" * 16, DATE) + index_line(ID, DATE))
    return home


async def test_the_log_of_a_task_is_read_from_its_file(stored, capsys):
    assert await run(run_follow, stored, task_id="2", as_json=False) == 1
    out, err = capsys.readouterr()
    assert "created: find papers about otters" in out
    assert err.startswith("pegasus: no agent is running; the task goes on at the next start: pegasus run")
    with (stored.data / task_path(ID, DATE)).open("ab") as log:
        log.write(line_of(FAILED))
    assert await run(run_follow, stored, task_id="2", as_json=False) == 1


async def test_numbers_are_shown_and_accepted_without_a_daemon(stored, capsys):
    assert await run(run_list, stored, date=DATE) == 0
    assert capsys.readouterr().out.startswith("2  reasoning  general")
    assert await run(run_show, stored, task_id="2", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["number"] == 2


SILENT = {EventType.STEP_COMPLETED, EventType.REFLECTION_COMPLETE}
"""Events of a log that say nothing to a person who follows a task."""
SILENT_ON_THE_PAGE = {EventType.STEP_COMPLETED}


def test_each_event_of_a_log_has_its_words_here_and_on_the_page():
    """A new one is easily forgotten in both places: it would be left out without a word."""
    has_words = {type for type in EVENT_DATA if type.name in {*_LINES, *_WORDS}}
    assert has_words == EVENT_DATA.keys() - SILENT
    page = (files("pegasus") / "web/static/js/pages/tasks.js").read_text("utf-8")
    shown = {type for type in EVENT_DATA if f'case "{type.name}":' in page}
    assert shown == EVENT_DATA.keys() - SILENT_ON_THE_PAGE
