"""A task that sets up a project, command by command, within walls of both kinds, in the real process."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile

import pytest

from tests.blackbox.support import serving
from tests.blackbox.support.walls import WALLS
from tests.blackbox.support.work import Office, act, answer, shell

STEPS = (
    "git init -q . && git config user.name Ada && git config user.email a@example.org && echo a > a && git add a && "
    "git commit -qm one",
    "mkdir in && echo text > in/file && chmod 640 in/file && tar cf in.tar in && rm -r in && tar xpf in.tar && stat -c %a in/file",
    "echo 'int main(void){return 0;}' > a.c && gcc a.c -o a.out && ./a.out && install -m 750 a.out b.out && "
    "cp -p b.out c.out && ./c.out",
    "printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run && touch -d 2020-01-01 run && git add run && git commit -qm two",
    f"{sys.executable} -m venv .venv && .venv/bin/python -c 'import sys; print(sys.prefix)'",
    ".venv/bin/pip install -q --no-index --disable-pip-version-check ./greeting-1-py3-none-any.whl && "
    ".venv/bin/python -c 'import greeting; print(greeting.x)'",
    "git remote add origin ../elsewhere && git checkout -qb other && git log --format=%s",
    'mkdir tool && echo \'{"name":"tool","version":"1.0.0"}\' > tool/package.json && '
    "npm install --silent --offline ./tool && ls node_modules",
)
"""Commands of one task; those behind the first have read the output of others."""


def make_wheel(folder):
    """A package that pip can install without building it."""
    with zipfile.ZipFile(folder / "greeting-1-py3-none-any.whl", "w") as file:
        file.writestr("greeting.py", "x = 1\n")
        file.writestr("greeting-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
        file.writestr("greeting-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("greeting-1.dist-info/RECORD", "")


@pytest.mark.deadline(120)
async def test_a_project_is_set_up_within_walls(tmp_path, walled):
    for program in ("git", "gcc", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    results = []

    def keep(view):
        results.append(json.loads(view.last))
        return act(shell(STEPS[len(results)], timeout=60)) if len(results) < len(STEPS) else answer("done")

    book = Office({"work": [act(shell(STEPS[0])), keep]})
    async with (
        serving(tmp_path, book, {**WALLS, "sandbox.writable": []}, env=walled) as daemon,
        daemon.client() as client,
    ):
        make_wheel(daemon.home / "workspace")
        await client.say("do work")
        assert (await client.get("reply", timeout=100))["text"] == "completed: done"
    failed = [(step, result) for step, result in zip(STEPS, results, strict=True) if result["exitCode"]]
    assert failed == []
