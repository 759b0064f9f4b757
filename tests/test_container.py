"""The Dockerfile and the compose file, as far as they can be checked without a container: what they name exists and is accepted."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import yaml

from pegasus.cli import main
from pegasus.observe import stop_logging

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LAST_STAGE = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]


def test_what_is_copied_exists_and_is_not_kept_out():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in kept), f"{name} is kept out by .dockerignore"
    assert set(kept) == set(copied), "nothing else, such as keys in .env, reaches the build"


def test_it_runs_without_rights_and_is_asked_how_it_is():
    user = re.search(r"^USER (\S+)$", LAST_STAGE, re.MULTILINE)
    assert user is not None
    assert user[1] not in ("root", "0")
    assert "/healthz" in LAST_STAGE
    assert re.search(r"^VOLUME /data$", LAST_STAGE, re.MULTILINE)
    assert '"python3", "-c"' in LAST_STAGE, "the image has no curl"


def test_its_settings_are_accepted(tmp_path, monkeypatch, capsys):
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["pegasus"]
    variables = dict(re.findall(r"(PEGASUS__\w+)=(\S+)", LAST_STAGE)) | service["environment"]
    assert "PEGASUS__HTTP__HOST" in variables
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        assert main(["--home", str(tmp_path), "config", "check"]) == 0, capsys.readouterr().err
    finally:
        stop_logging()


def test_the_compose_file_opens_the_page_to_this_machine_only():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = compose["services"]["pegasus"]
    assert all(str(port).startswith("127.0.0.1:") for port in service["ports"])
    assert [volume.split(":")[1] for volume in service["volumes"]] == ["/data"]
    assert {volume.split(":")[0] for volume in service["volumes"]} == set(compose["volumes"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
