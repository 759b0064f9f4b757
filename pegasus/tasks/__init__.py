"""Background tasks: state machines that are driven by events, logged, replayed, resumed and cancelled.

This package is the task system and its only door: other packages import the names below and nothing from inside. It knows
neither the Main Agent nor channels, so it can be used alone (`tests/pegasus/tasks/world.py` does).

The composition root starts `task_persister` and `task_agent` as actors and gives the agent `TaskDeps`. Everybody else
sends messages to the agent (`Submit`, `Wait`, `Cancel`, …) and receives `Notify` messages about the tasks it submitted.

Three rules hold everywhere in the package:

* An event of a task is on disk before it moves the task, is published or is reported. So a crash never takes back what others
  have seen of a task.
* There is one writer for a task at a time: its actor while there is one, the agent otherwise.
* The task after a replay of its log equals the task in memory, since both are made by the same pure code in `core`.

The sub-packages import downward only:

    agent  accepts work, gives out slots, notifies, recovers after a restart
    run    the actor of one task and its stages
    log    the files: writing, reading, replaying
    core   the task as a value: context, events, state machine

`subagents/` has the instructions of the types of tasks that are built in.

Example:
    task_id = await agent.ask(Submit, "find papers about otters", "cli:main")
    view = await agent.ask(Wait, task_id)
    print(view.result or view.error)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.tasks.agent.messages import (
    LATELY,
    Cancel,
    CancelAll,
    Continue,
    GetContext,
    GetEvents,
    GetTask,
    LatestTasks,
    LimitsChanged,
    ListPending,
    ListTasks,
    Notify,
    Resume,
    ResumeApproved,
    StoppedTask,
    Submit,
    Suspend,
    TaskAgentMessage,
    Wait,
    task_id_of,
)
from pegasus.tasks.agent.tools import is_visible, task_tools, wait_until_running
from pegasus.tasks.core.task_states import (
    DEFAULT_CHANNEL,
    FOR_APPROVAL,
    FOR_PERSON,
    REFLECTING,
    STOPPED,
    TaskError,
    TaskState,
)
from pegasus.tasks.core.task_types import BUILT_IN_TYPES, DEFAULT_TASK_TYPE, TaskTypes, load_task_types

if TYPE_CHECKING:
    from pegasus.tasks.agent.agent import task_agent
    from pegasus.tasks.agent.state import HOOK
    from pegasus.tasks.core.fsm import fail_reason
    from pegasus.tasks.core.views import Notification, TaskView, task_json, task_view
    from pegasus.tasks.log.format import is_date
    from pegasus.tasks.log.persister import task_persister
    from pegasus.tasks.log.replay import ReplayedTask
    from pegasus.tasks.log.task_logs import TaskLogs, read_events, read_numbers, read_task, read_tasks_of_day
    from pegasus.tasks.run.deps import TaskDeps, TaskLimits
    from pegasus.tasks.run.task import TaskUpdate
    from pegasus.tasks.run.thinker import Reflector, Thinker
else:
    # Tasks begin behind the ready line, and so does what runs them.
    __getattr__ = late_names(__name__)

__all__ = [
    "BUILT_IN_TYPES",
    "DEFAULT_CHANNEL",
    "DEFAULT_TASK_TYPE",
    "FOR_APPROVAL",
    "FOR_PERSON",
    "HOOK",
    "LATELY",
    "REFLECTING",
    "STOPPED",
    "Cancel",
    "CancelAll",
    "Continue",
    "GetContext",
    "GetEvents",
    "GetTask",
    "LatestTasks",
    "LimitsChanged",
    "ListPending",
    "ListTasks",
    "Notification",
    "Notify",
    "Reflector",
    "ReplayedTask",
    "Resume",
    "ResumeApproved",
    "StoppedTask",
    "Submit",
    "Suspend",
    "TaskAgentMessage",
    "TaskDeps",
    "TaskError",
    "TaskLimits",
    "TaskLogs",
    "TaskState",
    "TaskTypes",
    "TaskUpdate",
    "TaskView",
    "Thinker",
    "Wait",
    "fail_reason",
    "is_date",
    "is_visible",
    "load_task_types",
    "read_events",
    "read_numbers",
    "read_task",
    "read_tasks_of_day",
    "task_agent",
    "task_id_of",
    "task_json",
    "task_persister",
    "task_tools",
    "task_view",
    "wait_until_running",
]
