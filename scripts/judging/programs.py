"""Judges that are programs of npm or PyPI: run from a folder of their own, within a deadline, in a pinned version."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.processes import environment

from judging.verdict import NotHereError

SETUP_SECONDS: Final = 300
"""Seconds that an installation may take."""


def install_npm(folder: Path, *packages: str) -> Path:
    """Install packages, such as "acpx@0.19.1", and return the folder of their programs. folder: is made if it is not there.

    Raises NotHereError without Node.js, or where the packages cannot be had.
    """
    if not shutil.which("npm"):
        raise NotHereError("Node.js with npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    _install(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages], folder)
    return folder / "node_modules" / ".bin"


def install_python(folder: Path, *packages: str) -> Path:
    """Install packages, such as "skills-ref==0.1.1", into a new virtual environment; return the folder of its programs.

    Raises NotHereError where the packages cannot be had.
    """
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    python = str(programs / "python")
    _install([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-q", *packages], folder)
    return programs


def run_program(
    command: Sequence[str], *, seconds: float, folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a judge and return what it wrote, whatever its exit code is. env: variables beside those of this process.

    Its temporary files are in `folder`, too, since not every judge removes them.

    Raises TimeoutExpired after `seconds`; the program has ended then.
    """
    variables = environment(TMPDIR=str(folder), **(env or {}))
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=seconds, check=False
    )


def _install(command: Sequence[str], folder: Path) -> None:
    try:
        ran = run_program(command, seconds=SETUP_SECONDS, folder=folder)
    except subprocess.TimeoutExpired:
        raise NotHereError(f"its installation took longer than {SETUP_SECONDS} s") from None
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines()
        raise NotHereError(lines[-1] if lines else f"its installation ended with exit code {ran.returncode}")
