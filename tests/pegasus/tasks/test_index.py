"""index.jsonl and pending.json, whole and in ruins; and a data folder without a daemon."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.formatting import format_day
from pegasus.tasks import read_task, read_tasks_of_day
from pegasus.tasks.log.format import (
    IndexEntry,
    PendingList,
    PendingTask,
    find_date,
    index_line,
    pending_content,
    read_index,
    read_pending,
    task_path,
)
from tests.pegasus.tasks.lives import BEGAN, ID, created, event, task_lines

ids = st.from_regex(r"[a-z0-9_-]{1,16}", fullmatch=True)
entries = st.lists(st.builds(PendingTask, ids, st.integers(0, 2**53)), unique_by=lambda it: it.task_id, max_size=6)


def test_an_index_line_is_as_the_interface_says():
    assert index_line("ab", "2026-02-25") == b'{"taskId":"ab","date":"2026-02-25"}\n'


@given(st.lists(ids, max_size=8))
def test_a_task_is_found_in_the_index(names):
    data = b"".join(index_line(name, f"2026-01-{n + 1:02}") for n, name in enumerate(names))
    found, problems = read_index(data)
    assert ([entry.task_id for entry in found], problems) == (names, [])
    for name in names:
        assert find_date(data, name) == {entry.task_id: entry.date for entry in found}[name]
    assert find_date(data, "other than those") is None


def test_bad_lines_of_an_index_hide_no_others():
    good = index_line("a", "2026-01-01")
    data = b'{"taskId":"../x","date":"2026-01-01"}\n{"taskId":7}\n\0\0\0\n' + good + b'{"taskId":"b","da'
    found, problems = read_index(data)
    assert found == [IndexEntry("a", "2026-01-01")]
    assert len(problems) == 4
    assert find_date(data, "a") == "2026-01-01"
    assert find_date(data, "b") is None


LINES = (
    index_line("a", "2026-01-01"),
    index_line("b-_9", "2026-01-02"),
    b'{"taskId": "c", "date": "2026-01-01"}\n',
    b'{"taskId":"d","date":"2026-01-01","more":1}\n',
    b'\0\0{"taskId":"e","date":"2026-01-01"}\n',
    b'x{"taskId":"f","date":"2026-01-01"}\n',
    b'{"taskId":"../g","date":"2026-01-01"}\n',
    b"\r\n",
    b"\n",
)


@given(st.lists(st.sampled_from(LINES), max_size=6), st.booleans())
def test_an_index_says_the_same_whether_it_is_parsed_or_not(lines, torn):
    """Each line for itself is parsed, or not, by what stands in it; a whole index of good lines is not."""
    data = b"".join(lines) + (LINES[0][:-1] if torn else b"")
    alone = [entry for line in lines for entry in read_index(line)[0]]
    assert read_index(data)[0] == alone
    assert [entry for entry in alone if entry.task_id in ("f", "../g")] == []


@given(entries)
def test_what_is_pending_is_read_back(pending):
    content = pending_content(pending)
    assert json.loads(content) == [{"taskId": entry.task_id, "ts": entry.ts} for entry in pending]
    assert read_pending(content) == PendingList(tuple(pending))


@given(entries.filter(bool), st.data())
def test_a_half_written_list_is_never_an_empty_one_in_silence(pending, data):
    content = pending_content(pending).rstrip()
    cut = data.draw(st.integers(0, len(content) - 1))
    found = read_pending(content[:cut])
    assert found.problem
    assert {entry.task_id for entry in found.entries} <= {entry.task_id for entry in pending}


@pytest.mark.parametrize(
    ("content", "known"),
    [
        (b"", []),
        (b"\0\0\0", []),
        (b'{"version":2,"tasks":[{"taskId":"a","ts":1}]}', ["a"]),
        (b'[{"taskId":"a","ts":1},{"taskId":"b","t', ["a", "b"]),
        (b'[{"taskId":"a","ts":1,"owner":"x"},{"taskId":"../b","ts":1},7]', ["a"]),
        (b'[{"taskId":"a"},{"taskId":"a"}]', ["a"]),
        (b'[{"taskId":"a"},{"taskId":"b","ts":1e400},{"taskId":"c","ts":%s}]' % (b"1" * 400), ["a"]),
    ],
)
def test_a_list_in_ruins_says_so_and_gives_what_is_left(content, known):
    found = read_pending(content)
    assert [entry.task_id for entry in found.entries] == known
    assert found.problem


# ------------------------------------------------------------------ a data folder


@pytest.fixture
def data(tmp_path):
    date = format_day(BEGAN)
    for n, name in enumerate((ID, "other")):
        path = tmp_path / task_path(name, date)
        path.parent.mkdir(parents=True, exist_ok=True)
        first = created(f"task {n}")
        path.write_bytes(task_lines(event(first.type, first.payload, task_id=name)))
    (tmp_path / "tasks" / "index.jsonl").write_bytes(index_line(ID, date))
    return tmp_path


def test_tasks_can_be_read_without_a_daemon(data):
    assert read_task(data, ID).task.context.input_text == "task 0"
    assert [found.task.task_id for found in read_tasks_of_day(data, format_day(BEGAN))] == [ID, "other"]


def test_a_task_that_the_index_does_not_name_is_found(data):
    assert read_task(data, "other").task.context.input_text == "task 1"
    (data / "tasks" / "index.jsonl").unlink()
    assert read_task(data, ID) is not None


@pytest.mark.parametrize("bad", ["nobody", "../../etc/passwd", "", "*"])
def test_there_is_no_such_task(data, bad):
    assert read_task(data, bad) is None
    assert read_tasks_of_day(data, bad) == ()


def test_an_empty_home_has_no_tasks(tmp_path):
    assert read_task(tmp_path, ID) is None
    assert read_tasks_of_day(tmp_path, "2026-01-01") == ()
