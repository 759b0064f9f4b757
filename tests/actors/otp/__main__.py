"""`scripts/otp-traces`: the stored traces against the OTP that is installed, and new ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import attrs

from tests.actors import otp_model
from tests.actors.otp import erlang, named, ours
from tests.actors.otp.scenario import Scenario, dump, invent, load

GENERATED = Path(__file__).parents[1] / "traces-generated.txt"
HEADER = """\
# Traces of the real Erlang/{release} supervisor, recorded by scripts/otp-traces: {count} scenarios at random (seed {seed}).
# == strategy, restarts that are allowed, auto-shutdown: the children; `fails` names the attempts whose start fails.
# Then, a line each: the steps that were in the supervisor's queue together: what happened; the children at the end.
# boom, normal: a child ends by itself; stop, restart, delete, start: somebody asks for that, and gets ok or error.

"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/otp-traces", description=__doc__)
    parser.add_argument("--random", type=int, metavar="N", default=1000, help="scenarios at random (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="where they begin (default: 0)")
    parser.add_argument("--record", type=int, metavar="N", help="put N of them in the place of the stored ones")
    options = parser.parse_args()
    if options.record:
        record(options.record, options.seed)
    return 1 if check_named() + check_stored() + check_random(options.random, options.seed) else 0


def record(count: int, seed: int) -> None:
    scenarios = [invent(Random(f"{seed}/{number}")) for number in range(count)]
    lines = [dump(*pair) for pair in zip(scenarios, erlang.play(scenarios), strict=True)]
    header = HEADER.format(release=erlang.release(), count=count, seed=seed)
    GENERATED.write_text("\n".join([header.strip() + "\n", *lines]))
    print(f"{count} scenarios recorded in {GENERATED.name}")


def check_named() -> int:
    recorded = list(named.recorded())
    scenarios = [_with_look(named.SCENARIOS[title].scenario(trace), trace) for title, trace in recorded]
    real = erlang.play_raw(scenarios)
    return _report(
        named.FILE.name, ((title, trace, found) for (title, trace), found in zip(recorded, real, strict=True))
    )


def _with_look(scenario: Scenario, trace: list[str]) -> Scenario:
    looks = (erlang.LOOK,) if any(term.startswith("{children") for term in trace) else ()
    return attrs.evolve(scenario, batches=scenario.batches + looks)


def check_stored() -> int:
    stored = list(load(GENERATED.read_text()))
    real = erlang.play([scenario for scenario, _ in stored])
    return _report(GENERATED.name, ((str(one), trace, found) for (one, trace), found in zip(stored, real, strict=True)))


def check_random(count: int, seed: int) -> int:
    scenarios = [invent(Random(f"{seed}/{number}")) for number in range(count)]
    real = erlang.play(scenarios)
    pairs = list(zip(scenarios, real, strict=True))
    model = _report("the model", ((str(one), otp_model.play(one), found) for one, found in pairs))
    return model + _report("actors", ((str(one), ours.play(one), found) for one, found in pairs))


def _report(what: str, compared: Iterable[tuple[str, list[str], list[str]]]) -> int:
    """How many differ; the first three in full."""
    total = differ = 0
    for title, expected, found in compared:
        total += 1
        differ += expected != found
        if expected != found and differ <= 3:
            print(
                f"\n== {title}",
                *(f"  {what}: {line}" for line in expected),
                *(f"  OTP: {line}" for line in found),
                sep="\n",
            )
    print(f"{what}: {total} scenarios, {differ} differ from {erlang.release()}")
    return differ


if __name__ == "__main__":
    sys.exit(main())
