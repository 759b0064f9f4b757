"""The task system: background work as state machines that are driven by events, logged, replayed, resumed and cancelled.

Usable alone: it knows neither the Main Agent nor channels.
"""

from pegasus.tasks.context import TaskContext, TaskState
from pegasus.tasks.messages import (
    AgentMessage,
    Cancel,
    CancelAll,
    GetContext,
    GetTask,
    ListTasks,
    Notification,
    Notify,
    Resume,
    Stopped,
    Submit,
    Suspend,
    TaskError,
    TaskView,
    Wait,
    task_id_of,
)

__all__ = [
    "AgentMessage",
    "Cancel",
    "CancelAll",
    "GetContext",
    "GetTask",
    "ListTasks",
    "Notification",
    "Notify",
    "Resume",
    "Stopped",
    "Submit",
    "Suspend",
    "TaskContext",
    "TaskError",
    "TaskState",
    "TaskView",
    "Wait",
    "task_id_of",
]
