"""`pegasus import` with the real program."""

from __future__ import annotations

import json

import pytest

from tests.blackbox.support import Book, serving
from tests.pegasus.importing.foreign_homes import openclaw_home, openclaw_job

CRON = {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Berlin"}


@pytest.mark.files("an import goes into files, which are moved into a database afterwards")
async def test_an_import_waits_for_the_agent_to_be_stopped_and_what_it_brought_is_there_at_the_next_start(tmp_path):
    other = openclaw_home(tmp_path / "other", openclaw_job("daily", CRON))
    async with serving(tmp_path, Book()) as daemon:
        tried = await daemon.command("import", str(other), "--from", "openclaw", "--dry-run")
        assert tried.code == 0
        assert "would import: session agents/main/sessions/s1.jsonl" in tried.out
        refused = await daemon.command("import", str(other), "--from", "openclaw")
        assert refused.code == 75
        await daemon.stop()
        done = await daemon.command("import", str(other), "--from", "openclaw", "--json")
        assert {line["kind"] for line in json.loads(done.out)["lines"] if line["outcome"] == "imported"} == {
            "memory",
            "session",
            "job",
        }
        again = await daemon.command("import", str(other), "--from", "openclaw")
        assert "0 imported" in again.out.splitlines()[-1]
        await daemon.start()
        assert "do daily" in (await daemon.command("cron", "list", "--json")).out
        assert "2026-02-06" in (await daemon.command("sessions", "list")).out
        assert "giraffe" in (await daemon.command("memory", "search", "giraffe", "--json")).out


async def test_a_folder_that_is_no_home_is_refused(tmp_path):
    async with serving(tmp_path, Book(), start=False) as daemon:
        refused = await daemon.command("import", str(tmp_path), "--from", "hermes")
        assert refused.code == 1
        assert "found none of" in refused.err
