"""From a run that fails to one that fails for as little reason as possible."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from actors.testing._plan import AFTER, Perturbation

Schedule = tuple[Perturbation, ...]


class Shrinker:
    """Leaves out perturbations, by halves and then one by one, and makes those smaller that have to stay.

    fails: runs a schedule, and returns what took effect if it failed in the same way, else None.
    """

    def __init__(self, fails: Callable[[Schedule], Schedule | None], most: int) -> None:
        self._fails = fails
        self.left = most

    def shrink(self, schedule: Schedule) -> Schedule:
        """The smallest schedule that was found; `schedule` itself is known to fail."""
        before = None
        while schedule != before and self.left > 0:
            before = schedule
            schedule = self._fewer(schedule)
            for index in reversed(range(len(schedule))):
                schedule = self._smaller(schedule, index)
        return schedule

    def _fewer(self, schedule: Schedule) -> Schedule:
        size = len(schedule)
        while size > 0:
            start = 0
            while start < len(schedule):
                without = self._try(schedule[:start] + schedule[start + size :])
                if without is None:
                    start += size
                else:
                    schedule = without
            size = min(size // 2, len(schedule))
        return schedule

    def _smaller(self, schedule: Schedule, index: int) -> Schedule:
        """Look for the least amount that still fails, as if all smaller ones did not."""
        if index >= len(schedule) or schedule[index].amount != int(schedule[index].amount):
            return schedule
        one = schedule[index]
        low, high = (0 if one.kind in AFTER else 1), int(one.amount)
        while low < high:
            middle = (low + high) // 2
            smaller = self._try((*schedule[:index], attrs.evolve(one, amount=middle), *schedule[index + 1 :]))
            if smaller is not None and len(smaller) == len(schedule):
                schedule, high = smaller, middle
                index = next((i for i, p in enumerate(schedule) if p.task == one.task and p.step == one.step), index)
            else:
                low = middle + 1
        return schedule

    def _try(self, schedule: Schedule) -> Schedule | None:
        if self.left <= 0:
            return None
        self.left -= 1
        return self._fails(schedule)
