"""What tests of the Main Agent have in common."""

import pytest
import trio


@pytest.fixture
def write(tmp_path):
    """Writes a skill below tmp_path; gives its folder."""

    def write(name, body="Do $ARGUMENTS.", **front):
        lines = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in {"description": "d", **front}.items())
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "SKILL.md").write_text(f"---\n{lines}---\n{body}", "utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def threads_in_place(monkeypatch):
    """Functions for threads run in place: virtual time would pass a deadline while a thread reads a file."""

    async def run_sync(function, *arguments, **options):
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
