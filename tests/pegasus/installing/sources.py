"""Sources of skills for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SKILL = b"---\nname: pdf\ndescription: Fills forms.\n---\nFill the form.\n"


def skill(name: str = "pdf", body: str = "Fill the form.", front: str = "") -> bytes:
    return f"---\nname: {name}\ndescription: Fills forms.\n{front}---\n{body}\n".encode()


def put(folder: Path, path: str, content: bytes = SKILL) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(folder)}
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, env=environment, input=stdin.encode(), check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def repository(folder: Path) -> Path:
    """A repository with one skill in skills/pdf."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    put(folder, "skills/pdf/SKILL.md")
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")
    return git(folder, "rev-parse", "HEAD")
