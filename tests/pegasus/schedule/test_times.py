"""Times of jobs: what is allowed, and what comes next, also when clocks are set for daylight saving."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from pegasus.schedule import ScheduleError, next_run, schedule_text
from pegasus.schedule.heartbeat import is_active, things_to_do
from pegasus.schedule.times import Schedule, make_schedule

BERLIN = ZoneInfo("Europe/Berlin")
NOW = round(datetime(2026, 2, 25, 12, tzinfo=UTC).timestamp() * 1000)


def ms(*moment, tz=BERLIN):
    return round(datetime(*moment, tzinfo=tz).timestamp() * 1000)


def following(schedule, after, count):
    found = []
    for _ in range(count):
        after = next_run(schedule, after)
        found.append(datetime.fromtimestamp(after / 1000, BERLIN).isoformat(" ", "minutes"))
    return found


def test_a_cron_expression_is_read_in_its_time_zone():
    schedule = make_schedule(NOW, cron="0 9 * * 1-5", tz="Europe/Berlin")
    assert following(schedule, ms(2026, 2, 27, 8), 2) == ["2026-02-27 09:00+01:00", "2026-03-02 09:00+01:00"]
    assert schedule_text(schedule) == "0 9 * * 1-5 (Europe/Berlin)"


def test_an_hour_that_does_not_exist_comes_at_the_end_of_the_gap():
    schedule = Schedule(cron="30 2 * * *", tz="Europe/Berlin")
    assert following(schedule, ms(2026, 3, 28, 12), 2) == ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]


def test_an_hour_that_occurs_twice_comes_once():
    schedule = Schedule(cron="30 2 * * *", tz="Europe/Berlin")
    assert following(schedule, ms(2026, 10, 24, 12), 2) == ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"]


def test_every_hour_means_every_hour_also_when_clocks_are_set():
    schedule = Schedule(cron="0 * * * *", tz="Europe/Berlin")
    times = [next_run(schedule, ms(2026, 10, 25, 0, 30) + hour * 3_600_000) for hour in range(5)]
    assert [after - before for before, after in pairwise(times)] == [3_600_000] * 4


def test_a_point_in_time_without_an_offset_is_in_the_named_zone():
    schedule = make_schedule(NOW, at="2026-12-01T09:00", tz="Europe/Berlin")
    assert schedule == Schedule(at="2026-12-01T09:00:00+01:00")
    assert next_run(schedule, NOW) == ms(2026, 12, 1, 9)
    assert next_run(schedule, ms(2026, 12, 1, 9)) is None
    assert schedule_text(schedule) == "at 2026-12-01 09:00:00+01:00"
    assert schedule_text(Schedule(at="2026-12-01T09:00:00.288000+01:00")) == "at 2026-12-01 09:00:00+01:00"
    assert schedule_text(Schedule(at="tomorrow")) == "at tomorrow", "as somebody may have written into the file"


def test_a_point_in_time_in_a_gap_is_the_moment_behind_it():
    assert make_schedule(NOW, at="2026-03-29T02:30", tz="Europe/Berlin").at == "2026-03-29T03:30:00+02:00"


def test_an_interval_is_counted_from_the_run_before():
    assert next_run(make_schedule(NOW, every=900), NOW) == NOW + 900_000
    assert next_run(make_schedule(NOW, every=0.0001), NOW) == NOW + 1000, "no flood of runs"
    assert schedule_text(Schedule(every=0.0001)) == "every 1 s"


@pytest.mark.parametrize("every", [float("inf"), float("nan"), 10**400, -5.0])
def test_an_interval_that_somebody_has_written_into_the_file_is_one(every):
    assert NOW < next_run(Schedule(every=every), NOW) <= NOW + 10 * 366 * 86_400_000
    assert schedule_text(Schedule(every=every)).startswith("every ")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({}, "exactly one"),
        ({"cron": "* * * * *", "every": 5}, "exactly one"),
        ({"cron": "0 9 30 2 *"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "nonsense"}, "cron"),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, "tz"),
        ({"cron": "* * * * *", "tz": "../../etc/passwd"}, "tz"),
        ({"every": -1}, "every"),
        ({"every": float("nan")}, "every"),
        ({"every": 1e12}, "every"),
        ({"at": "tomorrow"}, "at"),
        ({"at": "2020-01-01T00:00"}, "future"),
        ({"at": "9999-12-31T23:59"}, "before the year 9999"),
    ],
)
def test_what_cannot_be_is_refused(asked, problem):
    with pytest.raises(ScheduleError, match=problem):
        make_schedule(NOW, **asked)


def test_the_last_day_of_february_in_leap_years_is_found():
    assert following(Schedule(cron="0 9 29 2 *", tz="Europe/Berlin"), NOW, 1) == ["2028-02-29 09:00+01:00"]


# ------------------------------------------------------------------ heartbeat


@pytest.mark.parametrize(
    ("hours", "time", "active"),
    [
        ("", (3, 0), True),
        ("08:00-22:00", (8, 0), True),
        ("08:00-22:00", (22, 0), False),
        ("22:00-06:00", (23, 30), True),
        ("22:00-06:00", (12, 0), False),
        ("00:00-24:00", (23, 59), True),
    ],
)
def test_active_hours_may_go_over_midnight(hours, time, active):
    assert is_active(hours, datetime(2026, 2, 25, *time)) is active


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# Things\n\n## More\n", "<!-- nothing\nyet -->\n# A", "<!-- not closed\n- x"]
)
def test_headings_comments_and_blank_lines_ask_for_nothing(text):
    assert things_to_do(text) == ""


def test_anything_else_is_something_to_look_after():
    assert things_to_do("# Things\n- Is the backup there?\n") == "# Things\n- Is the backup there?"
