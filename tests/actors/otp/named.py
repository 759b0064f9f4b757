"""The scenarios of traces.txt: what a title does not say, and their traces as Erlang terms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tests.actors.otp.scenario import LAST, OVER, Batch, ChildSpec, Scenario, Step

FILE = Path(__file__).parents[1] / "traces.txt"


@attrs.frozen
class Named:
    """changed: children that are not just permanent. together: all crashes are in the queue before one is heard of."""

    strategy: str = "one_for_one"
    restarts: int = 1
    auto_shutdown: str = "never"
    changed: tuple[ChildSpec, ...] = ()
    together: bool = False

    def scenario(self, terms: Sequence[str]) -> Scenario:
        """With the crashes that the trace tells of: it is script and expectation in one."""
        changed = {child.name: child for child in self.changed}
        children = tuple(changed.get(name, ChildSpec(name)) for name in "abc")
        found = (re.fullmatch(r"\{crash,(\w),(\w+)\}", term) for term in terms)
        steps = tuple(Step(crash[2], crash[1]) for crash in found if crash)
        batches: tuple[Batch, ...] = (steps,) if self.together else tuple((step,) for step in steps)
        return Scenario(self.strategy, self.restarts, self.auto_shutdown, children, batches)


TRANSIENT_B = (ChildSpec("b", "transient"),)
SIGNIFICANT_B = (ChildSpec("b", "transient", significant=True),)
SCENARIOS = {
    "one_for_one: b crashes": Named(),
    "one_for_all: b crashes": Named("one_for_all"),
    "rest_for_one: b crashes": Named("rest_for_one"),
    "one_for_all with a temporary sibling c: b crashes": Named("one_for_all", changed=(ChildSpec("c", "temporary"),)),
    "one_for_all, transient b exits normally": Named("one_for_all", changed=TRANSIENT_B),
    "one_for_all after that: a crashes (does normal-exited transient b come back?)": Named(
        "one_for_all", changed=TRANSIENT_B
    ),
    "permanent child exits normally": Named(),
    "intensity 2/5s: 3 crashes": Named(restarts=2),
    "one_for_all intensity 1: two children crash in the same instant (credits used?)": Named(
        "one_for_all", together=True
    ),
    "restart start fails for ever, intensity 3": Named(
        restarts=3, changed=(ChildSpec("b", failing=tuple(range(2, 9))),)
    ),
    "one_for_all: b crashes and c's restart fails once": Named(
        "one_for_all", restarts=3, changed=(ChildSpec("c", failing=(2,)),)
    ),
    "first start: c cannot start": Named(changed=(ChildSpec("c", failing=(1,)),)),
    "shutdown: b slow (200ms) with timeout 50ms; c brutal_kill": Named(
        changed=(ChildSpec("b", shutdown=0.05, slow=0.2), ChildSpec("c", shutdown=0.0))
    ),
    "any_significant": Named(auto_shutdown="any_significant", changed=SIGNIFICANT_B),
    "any_significant, significant transient crashes abnormally": Named(
        auto_shutdown="any_significant", changed=SIGNIFICANT_B
    ),
    "significant under never": Named(changed=SIGNIFICANT_B),
}


def recorded() -> Iterator[tuple[str, list[str]]]:
    """Titles and terms, a term in one line."""
    for block in re.split(r"^== ", FILE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        yield title, re.sub(r"\n {4,}", "", body).split()


def as_terms(lines: Sequence[str], first_start_failed: str | None) -> list[str]:
    """The same that a trace of traces.txt tells, from the lines of ours. first_start_failed: child and reason."""
    terms: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        events, _, children = line.partition(": ")[2].partition("; ")
        terms += map(_term, filter(None, events.split(", ")))
        if following.startswith(LAST):
            listed = (f"{{{child.replace(' ', ',')}}}" for child in reversed(children.split(", ")))
            terms += [f"{{children,[{','.join(listed)}]}}", LAST]
        if children == OVER:
            reason = "shutdown"
            if first_start_failed is not None:
                reason = f"{{shutdown,{{failed_to_start_child,{first_start_failed}}}}}"
                terms.append(f"{{start_link,{{error,{reason}}}}}")
            terms.append(f"{{supervisor_exit,{reason}}}")
    return terms


def _term(event: str) -> str:
    what, name = event.split()
    match what:
        case "started" | "start_failed":
            return f"{{{what},{name}}}"
        case "stopping":
            return f"{{{what},{name},shutdown}}"
    return f"{{crash,{name},{what}}}"
