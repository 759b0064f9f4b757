"""The conformance suite for bridges, over those in `examples`: each row names the delivery class that was proved."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio
from benchmarks.workplace import Workplace

from judging.verdict import Judge, Verdict
from pegasus.testing.bridges.command import load_service
from pegasus.testing.bridges.debian_mail import missing_programs
from pegasus.testing.bridges.suite import BridgeStuck, Trial, examine_bridge
from pegasus.testing.bridges.verdict import class_of

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


@attrs.frozen
class Example:
    """A bridge, and the service that the suite plays for it. missing: what keeps it from running here, or ""."""

    service: str
    command: Sequence[str]
    missing: str = ""


def examples() -> list[Example]:
    """Return the bridges of this checkout."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    absent = [name for name in ("bash", "websocat", "jq") if shutil.which(name, path=path) is None]
    mail = _python("email_bridge.py")
    return [
        Example(
            "folder",
            ["env", f"PATH={path}", "bash", "-c", f'exec bash "{EXAMPLES}/folder_bridge.sh" "$BRIDGE_FOLDER"'],
            f"not installed: {', '.join(absent)}" if absent else "",
        ),
        Example("plain", _python("plain_bridge.py")),
        Example("matrix", _python("matrix_bridge.py")),
        Example("discord", _python("discord_bridge.py")),
        Example("mail", mail),
        Example("debian-mail", mail, missing_programs()),
    ]


def _python(name: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name)]


def _judge(place: Workplace) -> Iterator[Verdict]:
    for example in examples():
        if example.missing:
            yield Verdict(example.service, 0, skipped=1, details=example.missing)
            continue
        try:
            found = trio.run(examine_bridge, example.command, load_service(example.service))
        except BridgeStuck as error:
            yield Verdict(example.service, 0, failed=1, details=str(error))
            continue
        trials: list[Trial] = [*found.inward, *found.outward]
        reached = [(trial, trial.arrivals) for trial in trials if trial.arrivals is not None]
        promise = found.declared or found.delivery
        broken = [str(trial) for trial, arrivals in reached if not class_of([arrivals]).keeps(promise)]
        details = "\n".join([*broken, *found.complaints])
        about = f"{example.service}: {found.delivery.value}"
        failed = max(len(broken) + len(found.complaints), 0 if found.is_passed else 1)
        yield Verdict(about, len(reached) - len(broken), failed, len(trials) - len(reached), details)


JUDGE: Final = Judge("bridge", "Bridges", "`python -m pegasus.testing bridge`", _judge)
