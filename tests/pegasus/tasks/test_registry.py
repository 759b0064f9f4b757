"""The tasks in memory, and that it stays small."""

import pytest

from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.registry import TaskNotFound, TaskRegistry
from pegasus.tasks.views import view_of
from tests.pegasus.tasks.lives import E, created, event, failed, reasoned


def task(name, *events):
    first = created()
    made = TaskFSM.from_event(event(first.type, first.payload, task_id=name))
    for it in events:
        made.transition(event(it.type, it.payload, task_id=name))
    return made


def test_a_task_is_found_by_its_id():
    registry = TaskRegistry()
    one = task("one")
    registry.register(one)
    assert registry.get("one") is one is registry.get_or_none("one")
    assert "one" in registry
    assert registry.get_or_none("two") is None
    with pytest.raises(TaskNotFound, match="'two'"):
        registry.get("two")
    assert registry.remove("one") is one
    assert registry.remove("one") is None
    assert len(registry) == 0


def test_tasks_are_listed_by_what_they_are_at():
    registry = TaskRegistry()
    for made in (
        task("idle"),
        task("thinking", created()),
        task("acting", created(), reasoned()),
        task("failed", failed()),
    ):
        registry.register(made)
    assert [it.task_id for it in registry.all()] == ["idle", "thinking", "acting", "failed"]
    assert [it.task_id for it in registry.active()] == ["thinking", "acting"]
    assert [it.task_id for it in registry.by_state(TaskState.FAILED)] == ["failed"]
    assert [it.task_id for it in registry] == ["idle", "thinking", "acting", "failed"]


def test_memory_stays_flat_over_two_thousand_finished_tasks():
    registry = TaskRegistry(keep=10)
    for n in range(2000):
        registry.register(task(f"t{n}", failed(f"error {n}")))
        assert registry.cleanup(view_of) == 1
    registry.register(task("last"))
    assert registry.cleanup(view_of) == 0
    assert len(registry) == 1
    assert [view.task_id for view in registry.finished()] == [f"t{n}" for n in range(1990, 2000)]
    assert registry.finished()[-1].error == "error 1999"
    assert registry.counts() == {TaskState.FAILED: 2000, TaskState.IDLE: 1}


def test_what_is_finished_can_be_decided_otherwise():
    registry = TaskRegistry()
    registry.register(task("failed", failed()))
    assert registry.cleanup(view_of, over=lambda it: False) == 0
    assert E.TASK_FAILED in {it.trigger_type for it in registry.get("failed").history}
