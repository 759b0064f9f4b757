"""The set-up of the scripts: how far it is, and a plain sentence when it cannot be done. pip is played by a script."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCK = "".join(f"package{number}==1.0 \\\n    --hash=sha256:00\n" for number in range(10))
PIP = """#!/bin/bash
case "$*" in
  *"import pip"*|*compileall*) exit 0 ;;
  *--editable*) exit 0 ;;
  *"pip install"*) cat "$(dirname "$0")/words"; exit "$(cat "$(dirname "$0")/code")" ;;
esac
"""
WORKS = "".join(f"Collecting package{number}==1.0\n  Downloading package{number}.whl\n" for number in range(10))


@pytest.fixture
def clone(tmp_path):
    """A clone whose environment has a pip that prints `words` and ends with `code`."""
    for folder in ("scripts", "actors", "pegasus", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "_venv", tmp_path / "scripts")
    for name in ("requirements.lock", "requirements-dev.lock"):
        (tmp_path / name).write_text(LOCK)
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(PIP)
    python.chmod(0o755)
    return tmp_path


def set_up(clone, words, code=0):
    (clone / ".venv" / "bin" / "words").write_text(words)
    (clone / ".venv" / "bin" / "code").write_text(str(code))
    script = f'set -euo pipefail; . "{clone}/scripts/_venv"; ensure_venv requirements.lock "{clone}"; echo started'
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "LC_ALL": "C"},
    )


def test_it_says_how_far_it_is_and_is_silent_the_next_time(clone):
    result = set_up(clone, WORKS + "Installing collected packages: a, b\n")
    assert (result.returncode, result.stdout) == (0, "started\n")
    lines = [line.removeprefix("Setting up: ") for line in result.stderr.splitlines()]
    assert lines[0].startswith("installing the 10 pinned packages")
    assert lines[1:6] == [f"{number} of 10 packages" for number in (2, 4, 6, 8, 10)]
    assert lines[6] == "unpacking 10 packages …"
    assert lines[-1] == "done."
    assert set_up(clone, "").stderr == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by "
            "'NewConnectionError('Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'\n"
            "ERROR: Could not find a version that satisfies the requirement package3==1.0 (from versions: none)\n"
            "ERROR: No matching distribution found for package3==1.0\n",
            "the package index (pypi.org) cannot be reached; the first start needs a network",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n",
            "a package is not the one that was pinned",
        ),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))\n",
            "the package index showed a certificate that is not trusted",
        ),
        (
            "ERROR: No matching distribution found for package3==1.0\n",
            "a package is not there for this Python or system",
        ),
        ("ERROR: something else\n\n", "ERROR: something else"),
    ],
)
def test_a_failure_is_one_plain_sentence_and_is_tried_again_the_next_time(clone, words, sentence):
    result = set_up(clone, "Collecting package0==1.0\n" + words, 1)
    assert result.returncode == 1
    assert result.stdout == ""
    assert f"Pegasus could not be set up: {sentence}" in result.stderr
    assert "Retry(" not in result.stderr
    assert "Traceback" not in result.stderr
    log = clone / ".venv" / "setup.log"
    assert str(log) in result.stderr
    assert words.strip() in log.read_text()
    assert set_up(clone, WORKS).returncode == 0
