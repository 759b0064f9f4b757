"""Examples as modules, beside a gateway on a real socket."""

from __future__ import annotations

import importlib.util
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


def texts_of(gateway):
    return [message.text for message, _ in gateway.journal.accepted]
