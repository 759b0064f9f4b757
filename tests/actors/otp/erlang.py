"""Playing scenarios on the real supervisor, where Erlang is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.actors.otp.scenario import FIRST, LAST, REQUESTS, Batch, ChildSpec, Scenario, Step, line

PROGRAM = Path(__file__).parent / "played.erl"
Term = list[str]


def installed() -> bool:
    return bool(shutil.which("erl") and shutil.which("erlc"))


def release() -> str:
    """As "OTP 25"."""
    output = _erl(".", "-eval", 'io:format("~s", [erlang:system_info(otp_release)]), halt().')
    return f"OTP {output}"


def play_raw(scenarios: Sequence[Scenario]) -> list[list[str]]:
    """What happened, each thing as an Erlang term."""
    terms = "".join(f"{_term(number, scenario)}.\n" for number, scenario in enumerate(scenarios))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["erlc", "-o", folder, PROGRAM], check=True)
        output = _erl(folder, "-s", "played", "main", given=terms)
    return [_split(term[term.index(",") + 2 : -3]) for term in output.splitlines()]


def play(scenarios: Sequence[Scenario]) -> list[list[str]]:
    """What happened, as the lines of tests/actors/otp/scenario.py."""
    seen = [with_looks(scenario) for scenario in scenarios]
    return [_lines(scenario, raw) for scenario, raw in zip(scenarios, play_raw(seen), strict=True)]


def with_looks(scenario: Scenario) -> Scenario:
    """The same, with a look at the children after the start and each batch."""
    looks = [look for batch in scenario.batches for look in (batch, LOOK)]
    return attrs.evolve(scenario, batches=(LOOK, *looks))


LOOK: Batch = (Step("children", ""),)


def _erl(folder: str, *arguments: str, given: str = "") -> str:
    command = ["erl", "-noshell", "-boot", "start_clean", "-pa", folder, *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=600).stdout


# ------------------------------------------------------------ to Erlang


def _term(number: int, scenario: Scenario) -> str:
    children = ",".join(map(_child, scenario.children))
    batches = ",".join(f"[{','.join(map(_step, batch))}]" for batch in scenario.batches)
    return f"{{{number},{{{scenario.strategy},{scenario.restarts},{scenario.auto_shutdown}}},[{children}],[{batches}]}}"


def _child(child: ChildSpec) -> str:
    significant = str(child.significant).lower()
    failing = ",".join(map(str, child.failing))
    shutdown = f"{child.shutdown * 1000:.0f}" if child.shutdown else "brutal_kill"
    nested = str(child.nested).lower()
    return f"{{{child.name},{child.restart},{significant},[{failing}],{shutdown},{child.slow * 1000:.0f},{nested}}}"


def _step(step: Step) -> str:
    if step.do == "children":
        return "children"
    if step.child is not None:
        return f"{{start,{_child(step.child)}}}"
    return f"{{{step.do},{step.name}}}" if step.do in REQUESTS else f"{{crash,{step.name},{step.do}}}"


# ------------------------------------------------------------ from Erlang


def _split(terms: str) -> list[str]:
    """The terms of a list, which stand side by side."""
    found, depth, begin = [], 0, 0
    for at, sign in enumerate(terms + ","):
        depth += (sign in "{[") - (sign in "}]")
        if sign == "," and depth == 0:
            found.append(terms[begin:at])
            begin = at + 1
    return found


def _lines(scenario: Scenario, raw: list[str]) -> list[str]:
    lines: list[str] = []
    events: list[str] = []
    results: list[str] = []
    batches: list[Batch | str] = [FIRST, *scenario.batches, LAST]
    for term in raw:
        kind, *words = re.findall(r"\w+", term)
        match kind:
            case "children":
                pairs = zip(words[::2], words[1::2], strict=True)
                children = reversed([f"{name} {state}" for name, state in pairs])
                lines.append(line(batches.pop(0), events, results, children))
                events, results = [], []
            case "result":
                results += words
            case "crash":
                events.append(f"{words[1]} {words[0]}")
            case "stop_supervisor":
                batches = [LAST]
            case "supervisor_exit":
                lines.append(line(batches.pop(0), events, (), None))
            case "started" | "start_failed" | "stopping":
                events.append(f"{kind} {words[0]}")
    return lines
