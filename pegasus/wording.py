"""How amounts are said to people."""

from __future__ import annotations


def count(n: int, one: str, many: str | None = None) -> str:
    """`1 message`, `1,204 messages`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """A duration: `3.2 s`, `42 s`, `1.5 min`, `2.0 h`, `11.6 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
