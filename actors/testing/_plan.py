"""What a simulation does to a program beside running it, as values that can be written down in one line.

A place is a task and how many times it has waited so far: its n-th checkpoint. That stays the same place when things
elsewhere are left out, so a list of perturbations can be shrunk.
"""

from __future__ import annotations

from enum import Enum
from urllib.parse import quote, unquote

import attrs


class Kind(Enum):
    """What is done to a task at a checkpoint."""

    LATE = "late"
    LAG = "lag"
    DELAY = "delay"
    CRASH = "crash"
    CANCEL = "cancel"


WORDS = {
    Kind.LATE: "goes after the others of its round",
    Kind.LAG: "is held back for {0:g} rounds",
    Kind.DELAY: "is held back for {0:g} s",
    Kind.CRASH: "crashes",
    Kind.CANCEL: "is cancelled",
}
AFTER = frozenset({Kind.CRASH, Kind.CANCEL})
"""Kinds whose amount is how many rounds later it happens."""


@attrs.frozen
class Perturbation:
    """One thing that is done to one task at its n-th checkpoint.

    amount: rounds (LAG; CRASH and CANCEL: so many rounds after it began to wait), seconds (DELAY), rank (LATE).
    """

    kind: Kind
    task: str
    step: int
    amount: float

    def __str__(self) -> str:
        return f"{self.kind.value}:{quote(self.task, safe='/.,<>()#-_:')}@{self.step}*{_number(self.amount)}"

    def describe(self) -> str:
        """In words for people."""
        words = WORDS[self.kind].format(self.amount)
        if self.kind in AFTER and self.amount:
            words += f" {self.amount:g} rounds later"
        return f"{self.task} at its checkpoint {self.step} {words}"


def to_token(seed: int, perturbations: tuple[Perturbation, ...]) -> str:
    """All that is needed to run a schedule again, on one line."""
    return " ".join((str(seed), *(str(one) for one in perturbations)))


def from_token(token: str) -> tuple[int, tuple[Perturbation, ...]]:
    """Back from `to_token`. ValueError if it is none."""
    try:
        seed, *words = token.split()
        return int(seed), tuple(_parse(word) for word in words)
    except ValueError as error:
        raise ValueError(f"{token!r} is no schedule to replay: {error}") from None


def _number(amount: float) -> str:
    return str(int(amount)) if amount == int(amount) else repr(amount)


def _parse(word: str) -> Perturbation:
    kind, _, rest = word.partition(":")
    task, _, numbers = rest.rpartition("@")
    step, _, amount = numbers.partition("*")
    return Perturbation(Kind(kind), unquote(task), int(step), float(amount))
