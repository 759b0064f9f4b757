"""Wheels that are made by hand, so that an installation needs neither a network nor a build."""

from __future__ import annotations

import zipfile
from pathlib import Path

NAME = "pegasus_agent"


def make_wheel(folder: Path, files: dict[str, str | bytes], version="0.2.0", needs=()):
    """Make a wheel of these files, by name; return its path."""
    info = f"{NAME}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: pegasus-agent\nVersion: {version}",
        *(f"Requires-Dist: {name}" for name in needs),
    ]
    files = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
