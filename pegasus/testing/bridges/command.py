"""Command line of the conformance suite: `python -m pegasus.testing bridge [--service SERVICE] COMMAND …`.

The last line on stdout is the class that was proved; everything else is on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import trio

from pegasus.testing.bridges.service import BridgeService
from pegasus.testing.bridges.suite import BridgeStuck, examine_bridge
from pegasus.testing.bridges.verdict import DeliveryClass

SERVICES: Final = {
    "plain": "pegasus.testing.bridges.plain:PlainService",
    "mail": "pegasus.testing.bridges.mail:MailService",
    "debian-mail": "pegasus.testing.bridges.mail:DebianMailService",
    "discord": "pegasus.testing.bridges.discord:DiscordService",
    "matrix": "pegasus.testing.bridges.matrix:MatrixService",
    "folder": "pegasus.testing.bridges.folder:FolderService",
}
"""Services of the test kit by name."""


def load_service(name: str) -> BridgeService:
    """Return a service by its name, or by MODULE:CLASS. Modules are looked for in the current folder, too. Raises ValueError."""
    module, colon, cls = SERVICES.get(name, name).partition(":")
    allowed = f"allowed: {', '.join(SERVICES)}, or MODULE:CLASS"
    if not colon:
        raise ValueError(f"found the service {name}, {allowed}")
    sys.path.insert(0, os.getcwd())
    try:
        service: Callable[[], object] = getattr(importlib.import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"found the service {name} ({error}), {allowed}") from None
    made = service()
    if not isinstance(made, BridgeService):
        raise ValueError(f"found the service {name}, which is no BridgeService, {allowed}")
    return made


def main(arguments: Sequence[str]) -> int:
    """Examine a bridge; return the exit code: 1 if it keeps less than it declares, 2 if it could not be examined."""
    parser = argparse.ArgumentParser(prog="python -m pegasus.testing bridge", description=__doc__)
    parser.add_argument("--service", default="plain", help=f"{', '.join(SERVICES)}, or MODULE:CLASS of your own")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="starts the bridge")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("found no COMMAND")
    try:
        service = load_service(options.service)
    except ValueError as error:
        parser.error(str(error))
    try:
        found = trio.run(examine_bridge, command, service, _report)
    except BridgeStuck as error:
        _report(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    for complaint in found.complaints:
        _report(f"wrong: {complaint}")
    if found.declared is not None and not found.delivery.keeps(found.declared):
        _report(f"declared {found.declared.value}, proved {found.delivery.value}")
    elif found.delivery is DeliveryClass.NONE:
        _report("some messages were lost, and some arrived twice")
    print(found.delivery.value)  # noqa: T201
    return 0 if found.is_passed else 1


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
