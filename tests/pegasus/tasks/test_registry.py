from pegasus.events import Event, EventType
from pegasus.tasks import TaskState
from pegasus.tasks.agent.state import TaskEntry, TaskRegistry
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_events import TaskCreated
from pegasus.tasks.core.views import task_view


def entry(task_id, *, priority=None, state=None):
    data = TaskCreated(input_text="do it")
    fsm = TaskFSM.from_event(Event(EventType.TASK_CREATED, 1, "t", task_id, priority=priority, data=data))
    if state is not None:
        fsm.state = state
    return TaskEntry(task_view(fsm), fsm)


def test_a_task_is_found_by_its_id():
    registry = TaskRegistry()
    one = registry.register(entry("a"))
    assert registry.tasks.get("a") is one is registry.tasks["a"]
    assert registry.tasks.get("b") is None


def test_one_that_is_held_already_is_kept():
    registry = TaskRegistry()
    one = registry.register(entry("a"))
    assert registry.register(entry("a")) is one


def test_the_most_urgent_comes_first_and_among_equals_the_first():
    registry = TaskRegistry()
    for task_id, priority in [("a", None), ("b", 5), ("c", None), ("d", 5)]:
        registry.enqueue(registry.register(entry(task_id, priority=priority)), Event(EventType.TASK_CREATED, 1, "t"))
    registry.withdraw(registry.tasks.get("d"))
    order = [registry.dequeue().task_id for _ in range(3)]
    assert (order, registry.dequeue()) == (["b", "a", "c"], None)


def test_only_the_last_finished_tasks_are_remembered():
    registry = TaskRegistry(remembered=2)
    for task_id in "abcd":
        registry.finished(registry.register(entry(task_id, state=TaskState.FAILED)))
    assert [one.task_id for one in registry] == ["c", "d"]


def test_a_finished_task_that_goes_on_is_not_forgotten():
    registry = TaskRegistry(remembered=1)
    registry.finished(registry.register(entry("a", state=TaskState.REASONING)))
    registry.finished(registry.register(entry("b", state=TaskState.FAILED)))
    assert registry.tasks.get("a")


def test_places_and_those_who_wait_for_one_are_counted():
    registry = TaskRegistry()
    working = registry.register(entry("a"))
    working.holds_slot = True
    registry.register(entry("b"))
    registry.register(entry("c", state=TaskState.SUSPENDED))
    assert (registry.active, registry.count_waiting(guests=False)) == (1, 1)


def test_a_finished_task_whose_actor_lives_is_removed_once_the_actor_has_ended():
    registry = TaskRegistry(remembered=2)
    reflecting = [registry.register(entry(task_id, state=TaskState.FAILED)) for task_id in "abcd"]
    for one in reflecting:
        one.ref = object()
        registry.finished(one)
    assert len(registry.tasks) == 4
    for one in reflecting:
        one.ref = None
    registry.finished(registry.register(entry("e", state=TaskState.FAILED)))
    assert list(registry.tasks) == ["d", "e"]


def test_a_finished_task_that_could_not_be_resumed_is_removed():
    registry = TaskRegistry(remembered=1)
    resuming = registry.register(entry("a", state=TaskState.FAILED))
    registry.finished(resuming)
    resuming.is_resuming = True
    registry.finished(registry.register(entry("b", state=TaskState.FAILED)))
    assert list(registry.tasks) == ["a", "b"]
    resuming.is_resuming = False
    registry.finished(registry.register(entry("c", state=TaskState.FAILED)))
    assert list(registry.tasks) == ["c"]
