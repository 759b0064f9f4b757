"""Versions of the product as wheels, with deliberate differences, and an installation of one of them.

A wheel brings a `.pth` file that names the packages of the tests' environment. So pip installs it without a network, and the product
that runs is the one in the wheel.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "0"}
"""Variables with which pip installs what it is given. 0 has it compile nothing: pip takes the value for that of `compile`."""


@cache
def _product() -> Mapping[str, bytes]:
    """The files of this working copy, by name in the wheel."""
    names = subprocess.check_output(
        ["git", "ls-files", "-co", "--exclude-standard", "--", "pegasus", "actors"], cwd=ROOT, text=True
    ).splitlines()
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


def _compiled(name: str, content: bytes) -> bytes:
    """A module as Python would write it into __pycache__; it is not compared with the source."""
    code = compile(content, name, "exec", dont_inherit=True)
    from importlib._bootstrap_external import _code_to_hash_pyc

    return bytes(_code_to_hash_pyc(code, importlib.util.source_hash(content), False))


@cache
def _all_compiled() -> Mapping[str, bytes]:
    return {cached(name): _compiled(name, content) for name, content in _product().items() if name.endswith(".py")}


def cached(name: str) -> str:
    """Name of the compiled file of a module."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"


def make_version(folder: Path, version: str, changes: Mapping[str, tuple[str, str]] | None = None) -> Path:
    """Make a wheel of the product with this version; changes: by file, the text to replace, and the text in its place."""
    files = dict(_product())
    found = {"pegasus/__init__.py": ('__version__ = "0.1.0"', f'__version__ = "{version}"'), **(changes or {})}
    compiled = dict(_all_compiled())
    for name, (old, new) in found.items():
        text = files[name].decode()
        assert old in text, f"{name} has no {old!r}"
        files[name] = text.replace(old, new).encode()
        compiled[cached(name)] = _compiled(name, files[name])
    info = f"pegasus_agent-{version}.dist-info"
    files |= compiled
    files["packages.pth"] = f"{sysconfig.get_path('purelib')}\n".encode()
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: pegasus-agent\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\npegasus = pegasus.__main__:main\n"
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}"
        for name, content in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"pegasus_agent-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def install_version(wheel: Path, folder: Path) -> Path:
    """Install a wheel in a new environment, as pipx would; return its `pegasus`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, env={**os.environ, **NO_INDEX})
    return folder / "bin" / "pegasus"
