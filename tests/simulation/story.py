"""What is going to happen in a life: decided by the seed before anything runs, so that a failing run can be shrunk."""

from __future__ import annotations

import attrs

from pegasus.messages import ChannelInfo

PLACES = (
    ChannelInfo("cli", "main"),
    ChannelInfo("web", "c1", "ann"),
    ChannelInfo("web", "c2", "bob", "thread-1"),
    ChannelInfo("mail", "m1"),
)
COMMANDS = ("/help", "/status", "/stop", "/new")


@attrs.frozen
class Step:
    """One call of the model. kind: "say" (a reply to `to`), "time", "nowhere" (a reply to nobody), "unknown" (no such tool)."""

    kind: str
    text: str
    to: ChannelInfo


@attrs.frozen
class Plan:
    """A message: who sends it when, and what the model makes of it.

    thoughts: the calls of each. errors, bugs: at which of its calls the model raises a ModelError, or something else.
    takes: seconds of each call, in turn. again: how often it is sent, and seconds between. impatient: seconds after
    which its sender gives up.
    """

    number: int
    text: str
    channel: ChannelInfo
    id: str
    pause: float
    thoughts: tuple[tuple[Step, ...], ...]
    errors: frozenset[int]
    bugs: frozenset[int]
    takes: tuple[float, ...]
    again: tuple[float, ...]
    impatient: float | None

    @property
    def command(self):
        word = self.text.split()[0]
        return word if word in COMMANDS else None

    @property
    def says(self):
        """The texts of all its replies."""
        return {step.text for thought in self.thoughts for step in thought if step.kind == "say"}

    @property
    def ends_by_speaking(self):
        """Whether no thought is due once all is said."""
        return bool(self.thoughts) and only_speaks(self.thoughts[-1])


@attrs.frozen
class Question:
    """A reply that owners are asked about before it is sent. answers: where and when each is given, and whether it is a yes."""

    number: int
    to: ChannelInfo
    pause: float
    answers: tuple[tuple[ChannelInfo, float, bool], ...]

    @property
    def text(self):
        return f"#{self.number}.0.0"


@attrs.frozen
class Disaster:
    """How a world ends. kind: "power" (what was not synced is gone), "kill" (of the process). operation: of the disk, at
    which it happens, if it is not `after` so many seconds."""

    kind: str
    after: float
    operation: int
    torn: int


class Story:
    """All that is decided by the seed."""

    def __init__(self, random):
        self.random = random
        numbers = iter(range(1, 1000))
        self.plans = [
            self._plan(next(numbers), place, f"m-{n}") for place in PLACES for n in range(random.randint(1, 6))
        ]
        self.disasters = [self._disaster() for _ in range(random.choice([0, 0, 1, 2, 3]))]
        self.refusals = [
            (random.uniform(0, 10), random.choice(["full", "error", "errors"]), random.uniform(0.1, 8))
            for _ in range(random.choice([0, 0, 1, 3]))
        ]
        self.stops = [random.uniform(0, 12) for _ in range(random.choice([0, 0, 1]))]
        self.slow_disk = random.choice([0, 0, 0.001, 0.03])
        self.acks = {place.type: random.choice([1, 1, 2, 5, 0]) for place in PLACES}
        self.forgetful = {place.type: random.random() < 0.3 for place in PLACES}
        self.interrupts = [(random.uniform(0, 12), random.choice(PLACES)) for _ in range(random.choice([0, 0, 1, 3]))]
        self.jobs = [self._job(next(numbers), place) for place in random.sample(PLACES, random.choice([0, 0, 1, 2]))]
        self.questions = [self._question(next(numbers)) for _ in range(random.choice([0, 0, 1, 2]))]

    def _job(self, number, channel):
        """A message that nobody sends: it is due some seconds after it was made."""
        plan = self._plan(number, channel, None)
        return attrs.evolve(plan, text=f"#{number}", pause=self.random.choice([0, 1, 4]), again=(), impatient=None)

    def _question(self, number):
        random = self.random
        answers = [
            (random.choice(PLACES), random.choice([0, 0, 0.02, 1]), random.random() < 0.6)
            for _ in range(random.choice([1, 2, 2, 3]))
        ]
        return Question(number, random.choice(PLACES), random.choice([0, 0.5, 3]), tuple(answers))

    def _plan(self, number, channel, id):
        random = self.random
        chance = random.random()
        text = f"#{number}"
        if chance < 0.25:
            text = f"{random.choice(COMMANDS)} #{number}"
        thoughts = [self._thought(number, n, channel) for n in range(random.choice([0, 1, 1, 1, 2, 3]))]
        bugs = {0.05: range(100), 0.15: range(2)}
        return Plan(
            number,
            text,
            channel,
            id,
            pause=random.choice([0, 0, 0.01, 1, 3]),
            thoughts=_up_to_the_last(thoughts),
            errors=frozenset({random.randrange(3)} if random.random() < 0.1 else ()),
            bugs=frozenset(next((calls for limit, calls in bugs.items() if random.random() < limit), ())),
            takes=tuple(random.choice([0, 0.01, 0.3, 2, 15]) for _ in range(3)),
            again=tuple(random.choice([0, 0, 0.02, 1, 20]) for _ in range(random.choice([0, 0, 0, 1, 2]))),
            impatient=random.uniform(0, 5) if random.random() < 0.1 else None,
        )

    def _thought(self, number, n, channel):
        random = self.random
        kinds = [random.choice(["say", "say", "time", "nowhere", "unknown"]) for _ in range(random.randint(1, 3))]
        return tuple(
            Step(kind, f"#{number}.{n}.{i}", random.choice([channel, channel, *PLACES])) for i, kind in enumerate(kinds)
        )

    def _disaster(self):
        random = self.random
        at_operation = random.random() < 0.5
        return Disaster(
            random.choice(["power", "power", "kill"]),
            after=100.0 if at_operation else random.uniform(0, 6),
            operation=random.randint(1, 60) if at_operation else 0,
            torn=random.choice([0, 0, 10, 300]),
        )


def _up_to_the_last(thoughts):
    """The first of them that only speaks is the last: there will be no other."""
    for i, thought in enumerate(thoughts):
        if only_speaks(thought):
            return tuple(thoughts[: i + 1])
    return tuple(thoughts)


def only_speaks(steps):
    return all(step.kind == "say" for step in steps)
