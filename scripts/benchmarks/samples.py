"""Summaries of samples. Medians, because the machine is shared and noise only ever adds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import attrs

__all__ = ["Spread", "median", "quantile", "ratios", "spread"]


@attrs.frozen
class Spread:
    """The middle half of the samples lies between low and high; count: how many samples there are."""

    low: float
    high: float
    count: int


def quantile(samples: Sequence[float], q: float) -> float:
    """The smallest sample that at least the part q of all samples do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]


def spread(samples: Sequence[float]) -> Spread:
    return Spread(quantile(samples, 0.25), quantile(samples, 0.75), len(samples))


def ratios(measured: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Round by round: what slows a whole round down falls out."""
    return [value / base for value, base in zip(measured, floor, strict=True)]
