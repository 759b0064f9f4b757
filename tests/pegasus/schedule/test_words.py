"""Times as people say them."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from pegasus.schedule.words import read_words

NOW = datetime(2026, 11, 25, 10, 30, 5, tzinfo=ZoneInfo("Europe/Berlin"))
"""A Wednesday."""


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("in 10 minutes", "2026-11-25T10:40:05+01:00"),
        ("in 1 hour and 30 minutes", "2026-11-25T12:00:05+01:00"),
        ("in 1h30m", "2026-11-25T12:00:05+01:00"),
        ("in half an hour", "2026-11-25T11:00:05+01:00"),
        ("in an hour", "2026-11-25T11:30:05+01:00"),
        ("In 2 Days", "2026-11-27T10:30:05+01:00"),
        ("in 1.5 h", "2026-11-25T12:00:05+01:00"),
        ("tomorrow at 9", "2026-11-26T09:00:00"),
        ("tomorrow 9am", "2026-11-26T09:00:00"),
        ("at 9 tomorrow", "2026-11-26T09:00:00"),
        ("today at 18:30", "2026-11-25T18:30:00"),
        ("at 9", "2026-11-26T09:00:00"),
        ("at 11", "2026-11-25T11:00:00"),
        ("12 pm", "2026-11-25T12:00:00"),
        ("at midnight", "2026-11-26T00:00:00"),
        ("friday at 6:30 pm", "2026-11-27T18:30:00"),
        ("on wed at 9", "2026-12-02T09:00:00"),
        ("wednesday at 11", "2026-11-25T11:00:00"),
        ("next wednesday at 11", "2026-12-02T11:00:00"),
        ("2026-12-01 at 9", "2026-12-01T09:00:00"),
        ("2026-12-01T09:00", "2026-12-01T09:00:00"),
    ],
)
def test_a_point_in_time(text, at):
    assert read_words(text, NOW) == ("at", at)


def test_clocks_that_are_set_make_no_hour_longer_and_no_day_shorter():
    before = datetime(2026, 3, 28, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert read_words("in 1 day", before) == ("at", "2026-03-29T12:00:00+02:00")
    assert read_words("in 24 hours", before) == ("at", "2026-03-29T13:00:00+02:00")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("every 2 hours", "every", 7200.0),
        ("every minute", "every", 60.0),
        ("hourly", "every", 3600.0),
        ("every half an hour", "every", 1800.0),
        ("every weekday at 8:30", "cron", "30 8 * * 1-5"),
        ("weekdays at 8:30", "cron", "30 8 * * 1-5"),
        ("at 8:30 every weekday", "cron", "30 8 * * 1-5"),
        ("daily at noon", "cron", "0 12 * * *"),
        ("every day at 12 am", "cron", "0 0 * * *"),
        ("every monday, wednesday and friday at 9", "cron", "0 9 * * 1,3,5"),
        ("mondays at 7 pm", "cron", "0 19 * * 1"),
        ("every weekend at 10", "cron", "0 10 * * 0,6"),
        ("every month on the 1st at 9", "cron", "0 9 1 * *"),
        ("0 9 * * 1-5", "cron", "0 9 * * 1-5"),
    ],
)
def test_again_and_again(text, kind, value):
    assert read_words(text, NOW) == (kind, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "tomorrow",
        "in",
        "in minutes ten",
        "in 10",
        "in 10 months",
        "tomorrow at 25",
        "tomorrow at 13 pm",
        "at 9:75",
        "every",
        "every 0 minutes",
        "every fortnight",
        "next weekend at 9",
        "in 999999 weeks",
        "2026-13-01 at 9",
        "tomorrow at 9 or 10",
        "in ٣x minutes",
    ],
)
def test_what_may_have_another_meaning_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="allowed: in 10 minutes, tomorrow at 9"):
        read_words(text, NOW)
