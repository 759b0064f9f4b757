"""Skills out of git repositories, with the program git."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import attrs
import pytest
import trio

from pegasus.installing import SourceError, find_offers, parse_source, read_source
from pegasus.installing import repository as repository_module
from pegasus.tools import AddressGuard
from tests.pegasus.installing.sources import SKILL, commit, git, put, repository, skill

pytestmark = pytest.mark.skipif(
    not any(os.access(f"{path}/git", os.X_OK) for path in os.get_exec_path()), reason="no git"
)


def read(text, guard=None):
    return trio.run(read_source, parse_source(text), guard or AddressGuard())


@pytest.mark.tried("skills", "git repositories", "installed from a branch, a tag or a commit")
def test_a_branch_a_tag_a_commit_and_the_head(tmp_path):
    place = repository(tmp_path / "r")
    first = git(place, "rev-parse", "HEAD")
    git(place, "tag", "-a", "v1", "-m", "one")
    put(place, "skills/pdf/SKILL.md", skill(body="Later."))
    put(place, "skills/pdf/run.sh", b"#!/bin/sh\n").chmod(0o755)
    last = commit(place)
    url = f"git+file://{place}"
    for revision, found in (("@v1", first), (f"@{first}", first), ("@main", last), ("", last)):
        assert read(url + revision).revision == found
    [offer] = find_offers(read(f"{url}@main#subdirectory=skills"))
    assert (offer.name, sorted(offer.files), offer.executables) == ("pdf", ["SKILL.md", "run.sh"], ["run.sh"])
    [old] = find_offers(read(f"{url}@v1#subdirectory=skills/pdf"))
    assert (old.name, dict(old.files)) == ("pdf", {"SKILL.md": SKILL})
    for revision, why in (
        ("@gone", "git could not fetch it: fatal: couldn't find"),
        (f"@{first[:8]}", "all 40 digits"),
    ):
        with pytest.raises(SourceError, match=why):
            read(url + revision)


def test_nothing_of_the_repository_and_of_the_person_is_run(tmp_path, monkeypatch):
    place, home = repository(tmp_path / "r"), tmp_path / "home"
    evil = put(tmp_path, "evil", f"#!/bin/sh\necho ran >> {tmp_path}/ran\n".encode())
    evil.chmod(0o755)
    put(
        home,
        ".gitconfig",
        f'[core]\nhooksPath={tmp_path}\n[filter "x"]\nsmudge={evil}\n[alias]\nfetch=!{evil}\n'.encode(),
    )
    for name in ("reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        os.link(evil, tmp_path / name)
        os.link(evil, place / ".git/hooks" / name)
    git(place, "config", "uploadpack.packObjectsHook", str(evil))
    git(place, "config", "core.fsmonitor", str(evil))
    put(place, ".gitattributes", b"* filter=x ident export-subst\n")
    put(place, "skills/pdf/text", b"$Format:%H$ $Id$\r\n")
    put(place, ".gitmodules", f'[submodule "m"]\npath=m\nurl=ext::{evil}\n'.encode())
    put(place, "m", b"").unlink()
    git(place, "update-index", "--add", "--cacheinfo", f"160000,{git(place, 'rev-parse', 'HEAD')},m")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(evil))
    git(place, "add", "skills", ".gitattributes", ".gitmodules")
    git(place, "-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "x")
    (tmp_path / "ran").unlink(missing_ok=True)
    [offer] = find_offers(read(f"git+file://{place}"))
    assert offer.files["text"] == b"$Format:%H$ $Id$\r\n"
    assert not (tmp_path / "ran").exists()


def test_links_submodules_and_pointers_in_a_skill_are_refused(tmp_path):
    place = repository(tmp_path / "r")
    (place / "skills/pdf/secret").symlink_to("/etc/passwd")
    (place / "CLAUDE.md").symlink_to("README.md")
    commit(place)
    assert find_offers(read(f"git+file://{place}"))[0].problem == "'secret' is a link, allowed: files"
    (place / "skills/pdf/secret").unlink()
    git(place, "update-index", "--add", "--cacheinfo", f"160000,{git(place, 'rev-parse', 'HEAD')},skills/pdf/module")
    git(place, "commit", "-q", "-m", "x")
    assert find_offers(read(f"git+file://{place}"))[0].problem == "'module' is a submodule, allowed: files"
    git(place, "rm", "-q", "--cached", "skills/pdf/module")
    put(place, "skills/pdf/model.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    commit(place)
    assert "large-file storage" in find_offers(read(f"git+file://{place}"))[0].problem
    put(place, os.fsdecode(b"skills/pdf/\xff"), b"x")
    commit(place)
    assert "names in UTF-8" in find_offers(read(f"git+file://{place}"))[0].problem


def test_a_repository_that_unfolds_without_end_is_given_up(tmp_path, monkeypatch):
    place = repository(tmp_path / "r")
    tree = git(place, "rev-parse", "HEAD^{tree}")
    for _ in range(12):
        listed = "".join(f"040000 tree {tree}\t{name}\n" for name in "abcdefghij")
        tree = git(place, "mktree", stdin=listed)
    git(place, "update-ref", "refs/heads/bomb", git(place, "commit-tree", "-m", "x", tree))
    monkeypatch.setattr(repository_module, "_LIMITS", attrs.evolve(repository_module._LIMITS, file_size=1 << 20))
    with pytest.raises(SourceError, match="git was ended"):
        read(f"git+file://{place}@bomb")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "2130706433", "inside.example"])
def test_a_host_of_the_inner_network_is_not_reached(host):
    async def resolve(name, port):
        return ["127.0.0.1" if name == "localhost" else "192.168.0.7"]

    with pytest.raises(SourceError, match="is refused"):
        read(f"git+https://{host}/x", AddressGuard(resolve=resolve))


def test_a_redirect_is_not_followed_and_a_password_stands_in_no_argument(tmp_path, monkeypatch):
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path.partition("?")[0], self.headers["Authorization"]))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{server.server_port}/inside/info/refs")
            self.end_headers()

        def log_message(self, *_):
            pass

    # git speaks plain HTTP here, so that no certificate is needed; the settings that it gets are those of https.
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    made, runs = repository_module._environment, []

    async def plain(url, *rest):
        environment = await made(url, *rest)
        return {**environment, "GIT_ALLOW_PROTOCOL": "http", "GIT_CONFIG_KEY_1": "protocol.http.allow"}

    async def run(folder, environment, script, *arguments):
        runs.append((script, arguments))
        await ran(folder, environment, script, *(each.replace("https://", "http://") for each in arguments))

    ran = repository_module._run
    monkeypatch.setattr(repository_module, "_environment", plain)
    monkeypatch.setattr(repository_module, "_run", run)
    url = f"git+https://me:secret%2Dword@pinned.example:{server.server_port}/x"
    with pytest.raises(SourceError, match="redirects are not followed") as refused:
        # The name is in no name server: git connects to the address that the guard has let through.
        read(url, AddressGuard(["pinned.example"], resolve=lambda name, port: resolved()))
    server.shutdown()
    server.server_close()
    assert asked[-1] == ("/x/info/refs", "Basic bWU6c2VjcmV0LXdvcmQ=")
    assert "secret" not in f"{refused.value} {runs}"


async def resolved():
    return ["127.0.0.1"]


def test_without_git_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="the program git is not installed"):
        read("git+https://example.org/x")
