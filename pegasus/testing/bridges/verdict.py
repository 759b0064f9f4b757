"""Delivery classes, and the one that follows from what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum


class DeliveryClass(Enum):
    """Promise about each message, whatever fails."""

    EXACTLY_ONCE = "exactly-once"
    """Nothing is lost and nothing arrives twice."""
    AT_LEAST_ONCE = "at-least-once"
    """Nothing is lost."""
    AT_MOST_ONCE = "at-most-once"
    """Nothing arrives twice."""
    NONE = "none"
    """Messages were lost, and others arrived twice."""

    def keeps(self, declared: DeliveryClass) -> bool:
        """Return whether a bridge of this class keeps the promise of another one."""
        return declared is self or self is DeliveryClass.EXACTLY_ONCE or declared is DeliveryClass.NONE


def class_of(arrivals: Iterable[int]) -> DeliveryClass:
    """Return the class of deliveries that arrived so many times each.

    >>> class_of([1, 2, 1])
    <DeliveryClass.AT_LEAST_ONCE: 'at-least-once'>
    """
    counts = list(arrivals)
    is_lossy, is_repeating = 0 in counts, any(count > 1 for count in counts)
    return _CLASSES[is_lossy, is_repeating]


_CLASSES: Mapping[tuple[bool, bool], DeliveryClass] = {
    (False, False): DeliveryClass.EXACTLY_ONCE,
    (False, True): DeliveryClass.AT_LEAST_ONCE,
    (True, False): DeliveryClass.AT_MOST_ONCE,
    (True, True): DeliveryClass.NONE,
}
