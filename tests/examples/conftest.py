"""Examples as modules, beside a gateway on a real socket."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_without_variables(name: str) -> tuple[int, str]:
    """Run an example as a program whose environment is empty; return its exit code and stderr."""
    program = [sys.executable, str(EXAMPLES / f"{name}.py")]
    ended = subprocess.run(program, env={}, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr


def texts_of(gateway):
    return [message.text for message, _ in gateway.journal.accepted]
