"""Tests that CI tries once more: those of real time alone, and each is named at the end."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "test-ci"
TESTS = """
from pathlib import Path
import pytest

def fails_at_first(name):
    path = Path(name)
    seen = path.exists()
    path.touch()
    assert seen

@pytest.mark.real_time
def test_slow():
    fails_at_first("slow")

def test_exact():
    if Path("exact-fails").exists():
        fails_at_first("exact")

@pytest.mark.real_time
def test_broken():
    assert not Path("broken").exists()
"""


@pytest.fixture
def run(tmp_path):
    """Run the script over three tests of its own; return its exit code and output."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(SCRIPT, scripts)
    (scripts / "test").write_text(
        f"""#!{sys.executable}
import sys
import pytest
arguments = [each for each in sys.argv[1:] if each not in ("-n", "0")]
sys.exit(pytest.main(["-q", "-W", "ignore", *arguments]))
"""
    )
    (scripts / "test").chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real_time\n")
    (tmp_path / "test_three.py").write_text(TESTS)

    def call():
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and to import them is most of the time
        done = subprocess.run(
            [scripts / "test-ci"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        return done.returncode, done.stdout

    return call


def test_a_test_of_real_time_that_fails_is_tried_once_more_and_named(run):
    code, output = run()
    assert code == 0
    end = output.split("== tried once more, alone, in this order (PYTHONHASHSEED=")[1]
    assert "test_three.py::test_slow" in end
    assert "test_exact" not in end
    code, output = run()
    assert (code, "once more" in output) == (0, False)


def test_a_test_of_real_time_that_fails_twice_is_red(run, tmp_path):
    (tmp_path / "broken").touch()
    code, output = run()
    assert code == 1
    assert "test_three.py::test_broken" in output.split("== tried once more")[1]


def test_a_deterministic_test_that_fails_is_red_at_once(run, tmp_path):
    (tmp_path / "exact-fails").touch()
    code, output = run()
    assert code == 1
    assert "== failed, and deterministic" in output
    assert "== again" not in output
