"""Programs that people work with run within walls of both kinds: they change rights, owners and times of files, and make threads."""

import os
import shutil
import sys

import pytest


@pytest.fixture
def sandbox(each_kind):
    return each_kind


@pytest.fixture
def environment(environment, home):
    return {**environment, "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"}


@pytest.fixture
def works(run):
    """Runs a command that must end well, and returns its output."""

    async def works(command, *programs):
        for program in programs:
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        result = await run(f"set -e; {command}", timeout=120.0)
        assert result.exit_code == 0, result.stdout + result.stderr
        return result.stdout

    return works


IDENTITY = "-c user.name=Ada -c user.email=ada@example.org"


async def test_git(works):
    said = await works(
        f"git init -q work; cd work; echo a > a; git add a; git {IDENTITY} commit -qm one; cd ..; git clone -q work copy; "
        f"cd copy; git checkout -qb other; echo b > b; git add b; git {IDENTITY} commit -qm two; git gc -q; git log --format=%s",
        "git",
    )
    assert said.split() == ["two", "one"]


async def test_tar_and_other_archives(works):
    said = await works(
        "mkdir in; echo text > in/file; chmod 750 in/file; touch -d 2020-01-02 in/file; tar cf in.tar in; mkdir out; "
        "tar xpf in.tar -C out; stat -c '%a %y' out/in/file"
    )
    assert said.startswith("750 2020-01-02")


async def test_rights_owners_and_times_of_its_own_files(works):
    said = await works(
        "echo '#!/bin/sh\necho ran' > script; chmod +x script; ./script; install -m 640 script installed; cp -p script copied; "
        "touch -d 2001-01-01 copied; chown $(id -u):$(id -g) copied; stat -c '%a %Y' installed copied; mkdir -m 700 d; rm -r d; "
        "cd $TMPDIR; touch x; chmod 600 x; mv x y; cd; touch x; chmod 600 x; mv x y"
    )
    lines = said.splitlines()
    assert lines[0] == "ran"
    assert [line.split()[0] for line in lines[1:]] == ["640", "755"]


async def test_attributes_of_its_own_files(works, folder):
    try:
        os.setxattr(folder, "user.test", b"x")
    except OSError:
        pytest.skip("this disk has no attributes")
    code = "import os; open('f', 'w'); os.setxattr('f', 'user.a', b'b'); print(os.getxattr('f', 'user.a'))"
    assert await works(f'{sys.executable} -c "{code}"') == "b'b'\n"


async def test_gcc(works):
    said = await works("echo 'int main(void){return 7;}' > a.c; gcc -O1 -o a a.c; ./a || echo $?", "gcc")
    assert said == "7\n"


async def test_a_virtual_environment_with_a_package_of_the_workspace(works, folder):
    (folder / "package").mkdir()
    (folder / "package/pyproject.toml").write_text('[project]\nname = "greeting"\nversion = "1.0"\n')
    (folder / "package/greeting.py").write_text("text = 'hello'\n")
    backend = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    with (folder / "package/pyproject.toml").open("a") as file:
        file.write(backend)
    (folder / "package/backend.py").write_text(BACKEND)
    said = await works(
        f"{sys.executable} -m venv --without-pip env; "
        f"{sys.executable} -m pip --python env/bin/python install -q --no-index --disable-pip-version-check ./package; "
        "env/bin/python -c 'import greeting; print(greeting.text)'"
    )
    assert said.strip().endswith("hello")


BACKEND = """
import zipfile
def get_requires_for_build_wheel(settings=None): return []
def build_wheel(folder, settings=None, metadata=None):
    name, info = "greeting-1.0-py3-none-any.whl", "greeting-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as file:
        file.write("greeting.py")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(f"{info}/RECORD", "")
    return name
"""
"""The least that pip needs to build a package, so that nothing is fetched."""


async def test_npm_with_a_package_of_the_workspace(works, folder):
    (folder / "greeting").mkdir()
    (folder / "greeting/package.json").write_text(
        '{"name": "greeting", "version": "1.0.0", "bin": {"greet": "index.js"}}'
    )
    (folder / "greeting/index.js").write_text("#!/usr/bin/env node\nconsole.log('hello')\n")
    (folder / "package.json").write_text('{"name": "work", "version": "1.0.0", "private": true}')
    said = await works(
        "npm install --silent --no-audit --no-fund --offline ./greeting; npx --offline greet", "npm", "node"
    )
    assert said.strip().endswith("hello")


async def test_threads_pools_and_processes(works):
    code = (
        "import concurrent.futures as f, multiprocessing as m, os, threading; "
        "print(sum(f.ThreadPoolExecutor(4).map(abs, range(5)))); print(m.get_context('fork').Pool(2).map(abs, [1, -2])); "
        "os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0)); import resource; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert await works(f'{sys.executable} -c "{code}"') == "10\n[1, 2]\n"


async def test_node_with_workers(works):
    code = (
        "const {Worker} = require('worker_threads'); new Worker('console.log(6*7)', {eval: true}); "
        "require('fs').promises.readFile('/etc/hostname').then(() => console.log('read'))"
    )
    assert sorted((await works(f'node -e "{code}"', "node")).split()) == ["42", "read"]


async def test_a_shell_sets_limits_and_priority_of_what_it_starts(works):
    assert await works("ulimit -n 100; nice -n 5 sh -c 'ulimit -n'; ulimit -c 0; taskset 1 true") == "100\n"
