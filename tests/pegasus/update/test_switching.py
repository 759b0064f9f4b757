"""The trial of a version: what it must do, and what is said of one that does not."""

from __future__ import annotations

import os

import pytest

from pegasus.host import TRIAL_LINE, Home
from pegasus.update import Candidate, UpdateError, UpdateWays, check_candidate
from pegasus.update.switching import _try
from pegasus.update.versions import no_start

pytestmark = pytest.mark.real_time
STARTS = f"echo '{TRIAL_LINE}'"
PROGRAMS = {
    "exit 3": "it ended with exit code 3",
    "echo 'noise' >&2; echo 'pegasus: gateway.port: cannot listen' >&2; echo 'log' >&2; exit 1": (
        "it ended with exit code 1: gateway.port: cannot listen"
    ),
    "exec >&-; sleep 60": "it was not ready within 1 s",
    "kill -9 $$": "it ended with signal 9",
    f"echo 'not {TRIAL_LINE}'; sleep 60": "it was not ready within 1 s",
    f"{STARTS}; exit 9": "it was ready and then ended with exit code 9",
    f"{STARTS}; trap 'exit 4' TERM; while :; do sleep 0.05; done": "it did not stop in order: exit code 4",
    f"{STARTS}; trap '' TERM; while :; do sleep 0.05; done": "it does not stop in order",
    f"{STARTS}; trap 'exit 0' TERM; while :; do sleep 0.05; done": "",
}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    home.versions.mkdir()
    return home


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_version_starts_stays_and_stops_in_order(home, tmp_path, monkeypatch, program):
    monkeypatch.setattr("pegasus.update.switching._ENDS", 0.3)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{program}\n")
    python.chmod(0o700)
    ways = UpdateWays(("--home", str(home)), lambda: None, lambda _: None, grace=0.2, minute=1.0)
    with no_start(home) as lock:
        assert _try(home, Candidate(python, "0.2.0", 2, "x"), "", False, lock, ways) == PROGRAMS[program]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_version_must_know_the_form_of_the_data(home):
    (home.data / "VERSION").write_text("2\n")
    check_candidate(home, Candidate(home.path, "0.2.0", 3, "x"))
    with pytest.raises(UpdateError, match=r"0.0.9 is older than the data: it knows format 1, found 2"):
        check_candidate(home, Candidate(home.path, "0.0.9", 1, "x"))
