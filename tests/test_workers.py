"""Tests that forked workers run (`tests/workers.py`): each once, with all that is known of it, also where a worker dies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
import random
import subprocess
import pytest

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("module")
    yield made
    made.rename(made.with_name(f"torn-down-{__name__}"))

def test_shares_the_folder(folder):
    (folder / "one").touch()

def test_shares_it_too(folder):
    assert (folder / "one").exists()

def test_fails():
    subprocess.run(["echo", "said by a program"])
    assert "one" == "two"

def test_is_skipped():
    pytest.skip("no reason")

@pytest.mark.parametrize("n", range(20))
def test_writes_down_its_process(n):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(f"{__name__}-{n} {os.getpid()} {random.random()}\\n")
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Run the tests of the folder by two workers; return the exit code and the output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "SEEN": str(folder / "seen")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "--workers", "2", "-ra", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--basetemp", str(folder / "tmp"), *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with three files of tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    return tmp_path


def test_each_test_runs_once_and_is_reported(files: Path) -> None:
    code, output = run(files)
    assert code == 1
    assert "3 failed, 66 passed, 3 skipped" in output
    assert output.count("\nsaid by a program\n") == 3
    assert "FAILED test_b.py::test_fails - AssertionError: assert 'one' == 'two'" in output
    assert output.count("SKIPPED [1] test_") == 3
    rows = [line.split() for line in (files / "seen").read_text().splitlines()]
    assert len({name for name, _, _ in rows}) == len(rows) == 60
    assert len({pid for _, pid, _ in rows}) == 2
    assert len({number for _, _, number in rows}) == 60, "workers that draw the same numbers take the same ports"


def test_the_tests_of_a_file_share_its_fixtures_which_are_torn_down(files: Path) -> None:
    run(files)
    assert sorted(path.name for path in files.glob("tmp/*/torn-down-*")) == [f"torn-down-test_{name}" for name in "abc"]


def test_a_worker_that_dies_fails_its_test_and_the_others_are_run(files: Path) -> None:
    (files / "test_b.py").write_text(
        "import os\ndef test_before(): pass\ndef test_dies(): os._exit(7)\ndef test_behind(): pass\n"
    )
    code, output = run(files)
    assert code == 1
    assert re.search(r"worker w\d has died here \(exit code 7\)", output)
    assert "FAILED test_b.py::test_dies" in output
    assert "3 failed, 46 passed, 2 skipped" in output


def test_what_a_test_leaves_to_the_end_of_its_process_is_done(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            f"import atexit\nfrom pathlib import Path\n"
            f"def test(): atexit.register(Path({str(tmp_path)!r}, 'ended-{name}').touch)\n"
        )
    assert run(tmp_path)[0] == 0
    assert sorted(path.name for path in tmp_path.glob("ended-*")) == ["ended-a", "ended-b"]
