"""The wheel: built, installed into an empty environment, and used by somebody with an empty home.

The packages that it needs come from the environment of the tests, so that no network is wanted; the product itself does not.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    # What git does not know, such as a file that somebody has left in a package, does not get into a release either.
    source = folder / "source"
    for name in run("git", "ls-files", "-co", "--exclude-standard", "--", "pegasus", "actors", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder of the programs of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, str(wheel))
    # Named in a .pth, a folder is searched without its own .pth files, and so without this working copy.
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def newcomer(installed, tmp_path):
    """newcomer(*args): the output of `pegasus ARGS`, called by somebody with an empty home in an empty folder."""
    environ = {"HOME": str(tmp_path), "PATH": f"{installed}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    environ |= dict.fromkeys(("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL"), "http://127.0.0.1:1")
    environ |= {"PEGASUS__GATEWAY__PORT": "0", "PEGASUS__HTTP__PORT": "0"}

    def newcomer(*arguments):
        return run(str(installed / "pegasus"), *arguments, cwd=tmp_path, env=environ)

    newcomer.environ, newcomer.folder = environ, tmp_path
    return newcomer


def test_all_files_of_the_packages_are_in_it_and_nothing_else(wheel):
    known = run("git", "ls-files", "-co", "--exclude-standard", "--", "pegasus", "actors", cwd=ROOT).splitlines()
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {name for name in known if (ROOT / name).is_file()}
    assert any(name.endswith(".css") for name in names)
    assert any(name.endswith("SKILL.md") for name in names)


def test_it_asks_for_ranges_that_the_tested_versions_are_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Requires-Python"] == ">=3.11"
    locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist") if "extra ==" not in text]
    assert needed
    for requirement in needed:
        assert requirement.specifier, f"{requirement.name} of any age is not what was tested"
        assert not requirement.url, "an index takes no wheel that needs an address"
        assert "==" not in str(requirement.specifier), "a pin would keep mends away from those who install it"
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), str(requirement)


def test_a_newcomer_installs_it_and_has_the_command(newcomer, installed):
    program = newcomer.environ["PATH"].partition(":")[0]
    where = run(f"{program}/python", "-P", "-c", "import pegasus; print(pegasus.__file__)", env=newcomer.environ)
    assert where.startswith(str(installed.parent)), "not this working copy"
    assert newcomer("--version").startswith("pegasus ")
    assert "Next: pegasus" in newcomer("init")
    assert "ok" in newcomer("config", "check")
    assert "remember" in newcomer("skills", "list")
    assert f'ExecStart="{installed}/python" "-P" "-m" "pegasus"' in newcomer("service", "install", "--print")
    assert "_pegasus_completion" in newcomer("completion", "bash")


@pytest.mark.real_time
def test_a_newcomer_talks_with_it_and_opens_its_page(newcomer, installed):
    agent = subprocess.Popen(
        [installed / "pegasus", "run", "--no-cli"],
        cwd=newcomer.folder,
        env=newcomer.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        ready = agent.stdout.readline()
        http = re.search(r"http=(\S+)", ready)[1]
        assert newcomer("send", "hello").strip()
        assert "ready" in newcomer("logs")
        link = newcomer("open", "--print").strip()
        with urllib.request.urlopen(link, timeout=30) as page:
            assert "Pegasus" in page.read().decode()
        with urllib.request.urlopen(f"{http}/static/js/main.js", timeout=30) as script:
            assert script.status == 200
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=30)
    assert agent.returncode == 0
    assert not any(Path(newcomer.folder).glob("*.py")), os.listdir(newcomer.folder)
