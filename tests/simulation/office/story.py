"""A year in an office, decided by the seed before anything runs: twenty people on three channels, and the owner at a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import attrs

from pegasus.messages import ChannelInfo
from tests.simulation.thirty_days.story import DAY, HOUR, TROUBLE, Story

OWNER = ChannelInfo("cli", "main", "ann")
PEOPLE = [f"p{number:02}" for number in range(20)]
ROOMS = (ChannelInfo("slack", "#general", "p00"), ChannelInfo("slack", "#dev", "p03", "thread-1"))
PRIVATE = (
    *(ChannelInfo("slack", f"D-{name}", name) for name in PEOPLE[:8]),
    *(ChannelInfo("telegram", f"100{number}", name) for number, name in enumerate(PEOPLE[8:16])),
    *(ChannelInfo("sms", f"+49 151 {number}", name) for number, name in enumerate(PEOPLE[16:])),
)
FIRST_JOB = 900_001
ANY_CHAT = "main-agent/chats/*"
"""The agent of some chat that is in memory."""


@attrs.frozen
class OfficeJob:
    """A job of the office: every day, or every working day, at a time of a place. number: stands in its prompt."""

    number: int
    channel: ChannelInfo
    at: time
    tz: str
    working_days: bool

    @property
    def cron(self) -> str:
        return f"{self.at.minute} {self.at.hour} * * {'1-5' if self.working_days else '*'}"

    @property
    def prompt(self) -> str:
        return f"#{self.number}: stretch your legs"

    def dues(self, begin: int, end: int):
        """The moments between two of the wall clock, ms, found by the calendar and not by the product."""
        zone = ZoneInfo(self.tz)
        day = datetime.fromtimestamp(begin / 1000, zone).date() - timedelta(days=1)
        while True:
            moment = int(datetime.combine(day, self.at, zone).astimezone(UTC).timestamp() * 1000)
            if moment >= end:
                return
            if moment > begin and (not self.working_days or day.weekday() < 5):
                yield moment
            day += timedelta(days=1)


JOBS = (
    OfficeJob(FIRST_JOB, ROOMS[0], time(9, 0), "Europe/Berlin", working_days=True),
    OfficeJob(FIRST_JOB + 1, PRIVATE[9], time(8, 30), "America/New_York", working_days=False),
    OfficeJob(FIRST_JOB + 2, PRIVATE[17], time(16, 45), "Asia/Kolkata", working_days=True),
    OfficeJob(FIRST_JOB + 3, OWNER, time(7, 0), "UTC", working_days=False),
)


class OfficeStory(Story):
    """days: how long it goes on. outages: spans of time, in seconds, in which the provider of the conversations answers nobody."""

    places = (OWNER, *ROOMS, *PRIVATE)
    tellers = (OWNER, PRIVATE[0], PRIVATE[1], PRIVATE[9], PRIVATE[14], PRIVATE[17])
    owners = OWNER
    actors = (
        *("main-agent/chats", "main-agent/notifications", "journal", "channels/switchboard", "channels/telegram/fake"),
        *("tasks/agent", "tasks/bus", "tasks/persister", "schedule/keeper"),
        *(ANY_CHAT, ANY_CHAT, ANY_CHAT),
    )

    def __init__(self, random, days=365, talks=20.0, facts=4, troubles=1.0):
        self.days = days
        share = days / 30 * troubles
        # The clock is that of the office: what happens when it jumps is for the thirty days, and for the tests of the schedule.
        self.trouble = {kind: round(count * share) for kind, count in TROUBLE.items() if kind != "clock"}
        super().__init__(random, talks, facts, troubles=1)
        self.when_busy, self.burst_cap = "followup", 1
        self.outages = sorted(self._outage() for _ in range(max(2, days // 14)))

    def _outage(self):
        begin = self.random.uniform(DAY, (self.days - 1) * DAY)
        if self.random.random() < 0.7:  # while people talk
            begin = self.random.choice(self.messages).at - 1
        return begin, begin + self.random.choice([60.0, 600.0, 4 * HOUR])

    def _of_new(self):
        """Each chat has a conversation of its own, so anybody may begin a new one."""
        return self.random.choice(self.places)
