"""Each kind of broken promise is found, in a history that is right without it."""

import attrs
import pytest

from tests.faults.checker import Conversation, Stored, StoredItem, find_anomalies

ADDRESS = "web:c1"


def thought(id, text):
    return {"role": "assistant", "toolCalls": [{"id": id, "name": "reply", "arguments": {"text": text}}]}


def result(id):
    return {"role": "tool", "toolCallId": id, "content": '{"queued":true}'}


def question(n):
    return {"role": "user", "content": "…", "metadata": {"item": n}}


def history():
    """Two messages that were accepted and answered."""
    seen = Conversation(ADDRESS, {"m-1": "say m-1", "m-2": "say m-2"}, {"m-1", "m-2"})
    seen.heard = {n: {"text": f"echo: say m-{n}", "seq": n} for n in (1, 2)}
    lines = [line for n in (1, 2) for line in (question(n), thought(f"c{n}", f"echo: say m-{n}"), result(f"c{n}"))]
    stored = Stored(
        {ADDRESS: [StoredItem(1, "m-1", True), StoredItem(2, "m-2", True)]},
        {ADDRESS: [(1, "main/1/c1", "echo: say m-1"), (2, "main/2/c2", "echo: say m-2")]},
        {ADDRESS: lines},
        {ADDRESS: list(range(1, 7))},
    )
    return seen, stored


def put(stored, field, values):
    return attrs.evolve(stored, **{field: {ADDRESS: values}})


def lost_reply(seen, stored):
    del seen.heard[1]
    return stored


def doubled_reply(seen, stored):
    seen.heard[3] = {"text": "echo: say m-1", "seq": 3}
    return put(stored, "replies", [*stored.replies[ADDRESS], (3, "main/1/c3", "echo: say m-1")])


def doubled_key(seen, stored):
    (_, key, _), (seq, _, text) = stored.replies[ADDRESS]
    return put(stored, "replies", [stored.replies[ADDRESS][0], (seq, key, text)])


def other_text(seen, stored):
    return put(stored, "replies", [(1, "a", "echo: say m-2"), (2, "b", "echo: say m-1")])


def lost_message(seen, stored):
    return put(stored, "items", stored.items[ADDRESS][1:])


def doubled_message(seen, stored):
    return put(stored, "items", [*stored.items[ADDRESS], StoredItem(3, "m-2", True)])


def not_done(seen, stored):
    return put(stored, "items", [stored.items[ADDRESS][0], StoredItem(2, "m-2", False)])


def doubled_thought(seen, stored):
    lines = [*stored.lines[ADDRESS], thought("c9", "echo: say m-2"), result("c9")]
    return attrs.evolve(put(stored, "lines", lines), numbers={})


def doubled_lines(seen, stored):
    return attrs.evolve(put(stored, "lines", stored.lines[ADDRESS] * 2), numbers={})


def other_order(seen, stored):
    lines = stored.lines[ADDRESS]
    return put(stored, "lines", lines[3:] + lines[:3])


def open_call(seen, stored):
    return put(stored, "lines", stored.lines[ADDRESS][:-1])


def gap_in_lines(seen, stored):
    return put(stored, "numbers", [1, 2, 3, 5, 6, 7])


def task_of_two_nodes(seen, stored):
    events = ["TASK_CREATED", "REASON_DONE", "TOOL_CALL_COMPLETED", "TASK_COMPLETED", "TOOL_CALL_FAILED"]
    return put(stored, "tasks", {"t1": events})


def job_that_did_not_run(seen, stored):
    seen.jobs.append("night")
    return stored


def test_a_history_without_a_fault_has_no_anomaly():
    seen, stored = history()
    assert find_anomalies([seen], stored) == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (lost_reply, "replies [1] were never heard"),
        (doubled_reply, "'echo: say m-1' was heard 2 times"),
        (doubled_key, "key main/1/c1 is in the outbox 2 times"),
        (other_text, "was heard as"),
        (lost_message, "m-1 was accepted and is not in the inbox"),
        (doubled_message, "m-2 is in the inbox 2 times"),
        (not_done, "item 2 (m-2) is not done"),
        (doubled_thought, "was thought twice"),
        (doubled_lines, "item 1 was taken up 2 times"),
        (other_order, "turns are in the order [2, 1]"),
        (open_call, "call c2 is not followed by its one result"),
        (gap_in_lines, "have the numbers … 3, 5 …"),
        (task_of_two_nodes, "task t1 has 2 events TOOL_CALL_"),
        (job_that_did_not_run, "'job night' was heard 0 times"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_anomaly_is_found(fault, found):
    seen, stored = history()
    anomalies = find_anomalies([seen], fault(seen, stored))
    assert any(found in anomaly for anomaly in anomalies), anomalies
