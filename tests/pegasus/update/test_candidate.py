"""Candidates of an update: what can be installed, and what is said of the rest."""

from __future__ import annotations

import os

import pytest
import trio

from pegasus.update import UpdateError, prepare
from pegasus.update.candidate import _reason
from tests.pegasus.update.wheels import make_wheel

FILES = {"pegasus/__init__.py": "__version__ = '0.2.0'\n", "pegasus/host.py": "FORMAT = 3\n"}
OFFLINE = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1"}


async def refused(what, into, environ=OFFLINE):
    """Return the sentence with which it is refused; nothing is left then."""
    with pytest.raises(UpdateError) as info:
        await prepare(str(what), into, environ)
    assert not into.exists()
    assert "\n" not in str(info.value)
    assert "Traceback" not in str(info.value)
    return str(info.value)


@pytest.mark.real_time
async def test_a_wheel_is_installed_in_an_environment_of_its_own(tmp_path):
    wheel = make_wheel(tmp_path, FILES)
    made = await prepare(str(wheel), tmp_path / "versions" / "1", OFFLINE)
    assert (made.version, made.format, made.source) == ("0.2.0", 3, str(wheel))
    where = await trio.run_process(
        [made.interpreter, "-I", "-c", "import pegasus; print(pegasus.__file__)"], capture_stdout=True
    )
    assert where.stdout.decode().startswith(f"{tmp_path}/versions/1/")
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == ["1"]


@pytest.mark.real_time
async def test_variables_of_another_environment_do_not_lead_astray(tmp_path):
    wheel = make_wheel(tmp_path, FILES)
    astray = {**OFFLINE, "PYTHONPATH": str(tmp_path), "PIP_TARGET": str(tmp_path / "else"), "PIP_USER": "1"}
    (tmp_path / "pegasus.py").write_text("raise SystemExit('astray')")
    assert (await prepare(str(wheel), tmp_path / "env", astray)).version == "0.2.0"
    assert not (tmp_path / "else").exists()


async def test_what_is_neither_a_file_nor_a_version_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").touch()
    for what, expected in {
        tmp_path / "gone": "there is no such file or folder",
        "./gone": "there is no such file or folder",
        tmp_path / "empty": "a folder without the source of Pegasus",
        tmp_path / "text.txt": "neither a wheel nor an sdist",
        "latest; rm -rf": "neither a file nor a version",
        "--index-url=x": "neither a file nor a version",
        "1.0 @ http": "neither a file nor a version",
    }.items():
        assert expected in await refused(what, tmp_path / "env")
    assert not (tmp_path / "env.log").exists()


@pytest.mark.real_time
async def test_what_cannot_be_installed_is_told_in_a_sentence(tmp_path):
    damaged = tmp_path / "pegasus_agent-0.3.0-py3-none-any.whl"
    damaged.write_bytes(b"no zip")
    needing = make_wheel(tmp_path, FILES, needs=["surely-not-there>=7"])
    for what, expected in {
        damaged: "the file is damaged",
        needing: "a package that it needs is not there",
        "9.9.9": "the index has no such version",
    }.items():
        sentence = await refused(what, tmp_path / "env")
        assert expected in sentence
        assert f"{tmp_path}/env.log" in sentence
        assert (tmp_path / "env.log").read_text()


@pytest.mark.real_time
async def test_one_that_does_not_start_is_refused(tmp_path):
    wheel = make_wheel(tmp_path, {**FILES, "pegasus/host.py": "import not_there_at_all\n"})
    assert "does not start: ModuleNotFoundError: No module named 'not_there_at_all'" in await refused(
        wheel, tmp_path / "env"
    )


async def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    wheel = make_wheel(tmp_path, FILES)
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file" in await refused(wheel, tmp_path / "file" / "env")


@pytest.mark.real_time
async def test_one_that_is_cancelled_leaves_nothing(tmp_path):
    wheel = make_wheel(tmp_path, {**FILES, "pegasus/host.py": "import signal; signal.pause()\n"})
    into = tmp_path / "env"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare, str(wheel), into, OFFLINE)
        while not list(into.rglob("pegasus/host.py")):  # noqa: ASYNC110 - of another process
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert not into.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("WARNING: Retrying (Retry(total=0...\nERROR: No matching distribution found for x", "cannot be reached"),
        (
            "error: Package 'pegasus-agent' requires a different Python: 3.11.2 not in '>=3.15'",
            "another version of Python",
        ),
        ("x\n\nERROR: something new.\n", "something new"),
        ("", "exit code 1"),
    ],
)
def test_the_words_of_the_installer_become_a_reason(text, reason):
    assert reason in _reason(text, 1)
