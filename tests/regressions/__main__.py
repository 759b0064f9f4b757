"""`./scripts/regressions`: plant each regression in a copy of the product, and see whether a check of the update finds it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from pegasus.cli.control import stored_data
from pegasus.host import Home
from pegasus.settings import SettingsSource, load_settings
from pegasus.update import CheckReport, UpdateError, check_update
from tests.regressions.homes import make_homes
from tests.regressions.planted import REGRESSIONS, Regression

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = 48
"""Regressions that must be found."""


def copy_product(folder: Path) -> Path:
    """Copy the packages, so that they can be changed."""
    for name in ("actors", "pegasus"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


async def check(path: Path, command: Sequence[str], limit: float) -> CheckReport:
    """Check a home as `pegasus update --check` does, wherever its data is. Raises UpdateError."""
    home = Home(path)
    source = SettingsSource(home.config, False, ())

    def work() -> CheckReport:
        with stored_data(home, load_settings(source)):
            return trio.run(partial(check_update, home, source, command, limit=limit))

    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def find(regression: Regression | None, homes: Sequence[Path], product: Path) -> str:
    """Return the first thing that a check finds with this regression in the product, "" if it finds nothing."""
    before = {path: (product / path).read_text() for path in regression.paths} if regression else {}
    try:
        if regression is not None:
            regression.plant(product)
        for path in homes:
            try:
                # With -P the folder of the copy would not be looked at first.
                command = ["env", f"PYTHONPATH={product}", sys.executable]
                report = await check(path, command, limit=120)
            except UpdateError as error:
                return f"{path.parent.name}: {error}"
            if report.different:
                return (
                    f"{path.parent.name}: {report.different[0].what} and {len(report.different) - 1 + report.more} more"
                )
        return ""
    finally:
        for path, text in before.items():
            (product / path).write_text(text)


async def try_all(names: Sequence[str], homes: Sequence[Path]) -> int:
    """Make homes, check that the version as it is finds no difference, and plant the regressions. Return the exit code."""
    chosen = [each for each in REGRESSIONS if not names or any(name in each.name for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        product = copy_product(Path(folder) / "product")
        homes = homes or await make_homes(Path(folder) / "homes")
        if same := await find(None, homes, product):
            print(f"the version as it is finds differences: {same}")
            return 1
        missed = []
        for regression in chosen:
            found = await find(regression, homes, product)
            print(f"{'found ' if found else 'MISSED'} {regression.name}{f' ({found})' if found else ''}", flush=True)
            missed += [] if found else [regression.name]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} found")
    return 1 if len(missed) > max(0, len(chosen) - REQUIRED if not names else 0) else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/regressions", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all by default")
    parser.add_argument("--homes", type=Path, help="a folder with homes that were made before")
    given = parser.parse_args()
    homes = sorted(path.parent for path in given.homes.glob("*/home/data")) if given.homes else []
    return trio.run(try_all, given.names, homes)


if __name__ == "__main__":
    sys.exit(main())
