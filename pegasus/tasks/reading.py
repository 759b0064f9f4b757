"""Reading a task event's payload: what is missing is empty, what is of the wrong kind is refused.

By hand and not by `pegasus.wire`, because this is what a replay spends its time on. `to_wire` is the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pegasus.messages import Json
from pegasus.tasks.context import Plan, PlannedCall, PlanStep, Reasoning
from pegasus.wire import kind

Data: TypeAlias = Mapping[str, Any]


class Unfit(ValueError):
    """The event does not fit what the task knows; says why. Nothing has changed."""


def text_in(data: Data, key: str) -> str:
    """A string, "" if there is none."""
    value = data.get(key)
    if type(value) is str:
        return value
    if value is None:
        return ""
    raise _unfit(key, "a string", value)


def count_in(data: Data, key: str) -> int:
    """A number that is not negative, 0 if there is none."""
    value = data.get(key)
    if type(value) is int:
        return max(0, value)
    if value is None:
        return 0
    if type(value) is float and value - value == 0:
        return max(0, round(value))
    raise _unfit(key, "a number", value)


def object_in(data: Data, key: str) -> Mapping[str, Json]:
    """An object, {} if there is none."""
    value = data.get(key)
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise _unfit(key, "an object", value)


def reasoning_in(data: Data) -> Reasoning:
    """What one model call gave."""
    found = object_in(data, "reasoning")
    calls = tuple([_call(call) for call in _list_in(found, "toolCalls")])
    approach = text_in(found, "approach") or ("tool_use" if calls else "direct")
    return Reasoning(text_in(found, "response"), approach, found.get("needsClarification") is True, calls)


def plan_in(data: Data) -> Plan:
    """What it leads to."""
    found = object_in(data, "plan")
    steps = tuple([_step(step, index) for index, step in enumerate(_list_in(found, "steps"))])
    return Plan(text_in(found, "goal"), steps, text_in(found, "reasoning"))


def _step(value: object, index: int) -> PlanStep:
    if not isinstance(value, dict):
        raise _unfit("plan.steps", "objects", value)
    call = value.get("call")
    made = None if call is None else _call(call)
    action_type = text_in(value, "actionType") or ("respond" if made is None else "tool_call")
    number = value.get("index")
    place = number if type(number) is int else index
    return PlanStep(place, text_in(value, "description"), action_type, made, value.get("completed") is True)


def _call(value: object) -> PlannedCall:
    if type(value) is not dict:
        raise _unfit("a tool call", "an object", value)
    id, name, arguments = value.get("id"), value.get("name"), value.get("arguments")
    if type(id) is str and type(name) is str and type(arguments) is dict and "error" not in value:
        return PlannedCall(id, name, arguments)  # as nearly all are
    return PlannedCall(
        text_in(value, "id"), text_in(value, "name"), object_in(value, "arguments"), text_in(value, "error") or None
    )


def _list_in(data: Data, key: str) -> list[object]:
    value = data.get(key)
    if value is None:
        return []
    if type(value) is list:
        return value
    raise _unfit(key, "a list", value)


def _unfit(key: str, wanted: str, found: object) -> Unfit:
    return Unfit(f"{key}: expected {wanted}, found {kind(found)}")
