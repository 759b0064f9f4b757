"""The commands for a backup in docs/user/operations.md: what was remembered and said comes back with it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import trio

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "user" / "operations.md").read_text("utf-8").partition("## Backup and upgrade")[2]
BACKUP, RESTORE = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[:2]


class Account:
    """A user of this machine, with a home directory of their own."""

    def __init__(self, folder):
        self.environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        self.environment |= {"HOME": str(folder), "PEGASUS__GATEWAY__PORT": "0"}

    def type(self, text):
        """Run lines of shell and return what they print."""
        done = subprocess.run(
            ["bash", "-ec", text],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def while_it_runs(self, *lines):
        """Start the agent, run lines of shell, and stop it; return what they print."""
        command = ["bash", "-c", "exec ./scripts/run run --no-cli"]
        with subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, text=True) as agent:
            try:
                assert agent.stdout.readline().startswith("pegasus ready ")
                return [self.type(line) for line in lines]
            finally:
                agent.send_signal(signal.SIGTERM)


@pytest.mark.deadline(60)
async def test_a_backup_brings_back_what_was_remembered_and_said(tmp_path):
    await trio.to_thread.run_sync(back_up_and_restore, tmp_path)


def back_up_and_restore(folder):
    user = Account(folder)
    user.while_it_runs("./scripts/run send 'remember that I like tea'")
    user.type(BACKUP)
    user.type(RESTORE)
    said, reply = user.while_it_runs("./scripts/run sessions show", "./scripts/run send 'what do you remember?'")
    assert "remember that I like tea" in said
    assert "I like tea" in reply
