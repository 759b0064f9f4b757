"""What is going to happen to some nodes and the people who write to them, decided by the seed before anything runs."""

from __future__ import annotations

from math import inf
from random import Random

import attrs

from pegasus.messages import ChannelInfo
from pegasus.testing.memory_database import Fate

PLACES = (ChannelInfo("web", "c1"), ChannelInfo("web", "c2"), ChannelInfo("mail", "m|1"))
LEASE = 5.0
"""Seconds of a node's lease."""
TROUBLE_ENDS = 16.0
"""Seconds after which no trouble begins."""


@attrs.frozen
class Saying:
    """A message: when it is sent after the one before, how often again, and how long the model thinks about it each time."""

    id: str
    text: str
    pause: float
    again: tuple[float, ...]
    takes: tuple[float, ...]


@attrs.frozen
class Job:
    """A job that is due once, at so many seconds. It belongs to the chat of a place, and speaks at another or the same."""

    name: str
    due: float
    place: ChannelInfo
    to: ChannelInfo


@attrs.frozen
class Trouble:
    """Something that happens to a node, for so many seconds.

    kind: "kill" (of the process), "stuck" (the same, and what it has sent just before is done long after), "stop" (in order),
    "pause" (SIGSTOP), "cut" (of its way to the database), "server" (the database is stopped), "full" (the database writes nothing).
    """

    at: float
    kind: str
    node: str
    seconds: float


class Story:
    """All that is decided by the seed. random: for what is decided while it runs."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes = ("a", "b", "c")[: random.choice([2, 2, 3])]
        self.skews = {name: random.choice([0, 0, -30_000, 30_000]) for name in self.nodes}
        self.sayings = {
            place: [self._saying(f"{place.channel_id}-{n}") for n in range(random.randint(1, 5))] for place in PLACES
        }
        self.jobs = [
            Job(f"j{n}", random.choice([1.0, random.uniform(0, 14)]), random.choice(PLACES), random.choice(PLACES))
            for n in range(random.choice([0, 1, 3, 6]))
        ]
        count = random.choice([0, 1, 2, 3, 5])
        self.troubles = sorted((self._trouble() for _ in range(count)), key=lambda trouble: trouble.at)
        self.latency = random.choice([0.0, 0.002, 0.05])
        rate = random.choice([0.0, 0.0, 0.01, 0.05])
        self.rates = {Fate.LOST: rate, Fate.UNANSWERED: rate, Fate.LATE: rate / 2}
        self.lost_notices = random.choice([0.0, 0.2, 1.0])
        self.acks = {place: random.choice([1, 1, 2, 0]) for place in PLACES}
        self.stays = {place: random.choice([3.0, 8.0, inf]) for place in PLACES}

    def _saying(self, id: str) -> Saying:
        random = self.random
        return Saying(
            id,
            f"{random.choice(['say', 'say', 'twice'])} {id}",
            random.choice([0, 0.01, 1, 5]),
            tuple(random.choice([0, 0.02, 3, 10]) for _ in range(random.choice([0, 0, 1, 2]))),
            tuple(random.choice([0, 0.01, 0.3, 2, 7]) for _ in range(3)),
        )

    def _trouble(self) -> Trouble:
        random = self.random
        kind = random.choice(["kill", "stuck", "stop", "pause", "pause", "cut", "cut", "server", "full"])
        return Trouble(
            random.uniform(0, TROUBLE_ENDS), kind, random.choice(self.nodes), random.choice([0.3, 2, 4.5, 6, 9])
        )
