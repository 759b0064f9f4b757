"""Shrinking of a schedule that fails to one with as few and as simple perturbations as possible."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from actors.testing._faults import AFTER, SIMPLER, Perturbation

Schedule = tuple[Perturbation, ...]
"""Perturbations of one run. Together with the seed they determine it."""


class Shrinker:
    """Search for a schedule that fails in the same way with fewer and simpler perturbations.

    It leaves out perturbations, by halves and then one by one; replaces those that have to stay by simpler kinds; and
    makes their amounts smaller. That is repeated until nothing changes, or the number of runs is used up.

    fails: runs a schedule, and returns the perturbations that took effect if it failed in the same way, else None.

    Example::

        smallest = Shrinker(fails, max_runs=1000).shrink(simulation.perturbations)
    """

    def __init__(self, fails: Callable[[Schedule], Schedule | None], max_runs: int) -> None:
        self._fails = fails
        self.left = max_runs
        """Number of runs that may still be made. When none is left, the best schedule so far is the result."""

    def shrink(self, schedule: Schedule) -> Schedule:
        """Return the smallest schedule that was found. The given one is known to fail."""
        before = None
        while schedule != before and self.left > 0:
            before = schedule
            schedule = self._fewer(schedule)
            # From the end, since a change at one place can only move those behind it.
            for index in reversed(range(len(schedule))):
                schedule = self._smaller(self._simpler(schedule, index), index)
        return schedule

    def _fewer(self, schedule: Schedule) -> Schedule:
        """Leave out perturbations: all, halves, quarters, and so on to single ones.

        What a run returns is what took effect, which can be fewer than were left in: later places may not be reached.
        """
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

    def _simpler(self, schedule: Schedule, index: int) -> Schedule:
        """Replace one perturbation by the simplest kind that still fails at the same place."""
        if index >= len(schedule):
            return schedule
        for kind, amount in SIMPLER[schedule[index].kind]:
            replaced = attrs.evolve(schedule[index], kind=kind, amount=amount)
            simpler = self._try((*schedule[:index], replaced, *schedule[index + 1 :]))
            if simpler is not None and len(simpler) <= len(schedule):
                return simpler
        return schedule

    def _smaller(self, schedule: Schedule, index: int) -> Schedule:
        """Make one amount smaller, by bisection: as if every amount below one that passes passed, too."""
        if index >= len(schedule) or schedule[index].amount != int(schedule[index].amount):
            return schedule
        perturbation = schedule[index]
        low, high = (0 if perturbation.kind in AFTER else 1), int(perturbation.amount)
        while low < high:
            middle = (low + high) // 2
            smaller = self._try((*schedule[:index], attrs.evolve(perturbation, amount=middle), *schedule[index + 1 :]))
            if smaller is not None and len(smaller) == len(schedule):
                schedule, high = smaller, middle
                place = (perturbation.task, perturbation.step)  # the schedule may have come back in another order
                index = next((i for i, item in enumerate(schedule) if (item.task, item.step) == place), index)
            else:
                low = middle + 1
        return schedule

    def _try(self, schedule: Schedule) -> Schedule | None:
        """Run a schedule if a run is left. Return what took effect if it failed in the same way, else None."""
        if self.left <= 0:
            return None
        self.left -= 1
        return self._fails(schedule)
