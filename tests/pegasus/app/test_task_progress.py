"""States of tasks for people: each change once, a single end, nothing that waits."""

import attrs
import trio

from actors import ActorError, Child, open_supervisor
from pegasus.app.task_services import TaskProgressSender, observe_tasks
from pegasus.events import Emit, Event, EventType, event_bus
from pegasus.messages import ChannelInfo
from pegasus.tasks import Notification, TaskState, TaskUpdate, TaskView

CHANNEL = ChannelInfo("web", "c1", reply_to="7")
VIEW = TaskView(
    "t1",
    TaskState.IDLE,
    "find\npapers " + "x" * 200,
    "find them",
    "general",
    "main-agent",
    0,
    1000,
    1000,
    number=3,
    channel=CHANNEL,
)


class Switchboard:
    def __init__(self):
        self.sent = []
        self.is_full = False

    def tell_nowait(self, progress):
        if self.is_full:
            raise ActorError("full", target="switchboard", message_type="TaskProgress")
        self.sent.append(progress)


def moved(view=VIEW, **changes):
    return attrs.evolve(view, **changes)


def test_a_state_names_channel_number_tool_step_and_time():
    acting = moved(state=TaskState.ACTING, doing="shell_exec", iteration=2, created_at=2000, updated_at=2500)
    progress = acting.progress(10_000)
    assert (progress.channel, progress.number, progress.state) == (CHANNEL, 3, "ACTING")
    assert (progress.tool, progress.step, progress.elapsed_ms) == ("shell_exec", 2, 8000)
    assert progress.description.startswith("find papers")
    assert len(progress.description) == 80


def test_the_step_counts_the_model_call_that_runs_and_thinking_is_no_tool():
    progress = moved(state=TaskState.REASONING, doing="thinking", iteration=1, created_at=2000).progress(2000)
    assert (progress.step, progress.tool) == (2, "")


def test_a_task_that_waits_has_no_time_and_one_that_is_over_has_its_whole_time():
    assert VIEW.progress(9000).elapsed_ms == 0
    over = moved(state=TaskState.FAILED, error="no", created_at=2000, updated_at=2500)
    assert over.progress(9000).elapsed_ms == 500


def test_a_task_that_nobody_on_a_channel_asked_for_belongs_to_the_terminal():
    assert moved(channel=None).progress(0).channel == ChannelInfo("cli", "main")


def test_each_change_is_sent_once_and_the_end_once():
    board = Switchboard()
    sender = TaskProgressSender(board, lambda: 5000)
    thinking = moved(state=TaskState.REASONING, doing="thinking", created_at=2000)
    done = moved(state=TaskState.COMPLETED, iteration=1, result="42", created_at=2000, updated_at=4000)
    for view in (
        VIEW,
        thinking,
        thinking,
        moved(thinking, updated_at=3000),
        moved(done, result=None),  # the answer is given and not recorded
        done,
        moved(done, doing="reflecting"),
        done,
    ):
        sender.observe(view)
    assert [progress.state for progress in board.sent] == ["IDLE", "REASONING", "COMPLETED"]


def test_the_end_of_a_task_that_was_not_shown_before_is_sent_once():
    board = Switchboard()
    sender = TaskProgressSender(board, lambda: 5000)
    failed = moved(state=TaskState.FAILED, error="process restarted", created_at=2000, updated_at=2500)
    sender.observe(failed, True)
    sender.observe(failed, False)
    assert [(progress.state, progress.elapsed_ms) for progress in board.sent] == [("FAILED", 500)]


def test_a_task_that_goes_on_after_its_end_is_shown_again():
    board = Switchboard()
    sender = TaskProgressSender(board, lambda: 5000)
    for state in (TaskState.REASONING, TaskState.FAILED, TaskState.REASONING, TaskState.FAILED):
        sender.observe(moved(state=state))
    assert [progress.state for progress in board.sent] == ["REASONING", "FAILED", "REASONING", "FAILED"]


async def test_a_switchboard_without_room_costs_the_task_nothing():
    board = Switchboard()
    board.is_full = True
    TaskProgressSender(board, lambda: 0).observe(VIEW)


async def test_what_was_asked_is_withdrawn_for_tasks_that_may_have_asked(autojump_clock):
    withdrawn = []

    async def keeper(inbox):
        async for message in inbox:
            withdrawn.extend(message.task_ids)

    async with open_supervisor(name="services") as root:
        bus = await root.start_child(Child("bus", event_bus))
        approvals = await root.start_child(Child("approvals", keeper))
        await root.start_child(Child("observer", observe_tasks, bus, Switchboard(), approvals, lambda: 0))
        for number, update in enumerate(
            (
                TaskUpdate(moved(state=TaskState.COMPLETED, result="42"), run=7, may_have_asked=False),
                TaskUpdate(moved(state=TaskState.COMPLETED, result="42"), run=7),
                TaskUpdate(moved(state=TaskState.FAILED, error="stopped"), run=7),
                TaskUpdate(moved(state=TaskState.SUSPENDED), run=7),
            )
        ):
            task_id = f"t{number}"
            view, told = attrs.evolve(update.task, task_id=task_id), Notification(task_id, 1, "", "")
            data = attrs.evolve(update, task=view, notifications=(told,))
            await bus.tell(Emit((Event(EventType.TASK_UPDATED, 0, "task", task_id, data=data),)))
        await trio.sleep(1)
        assert withdrawn == ["t1", "t2"]
