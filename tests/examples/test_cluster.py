"""The files for two nodes: what they name exists, their settings are accepted, and nginx passes a dead node over."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
import yaml

from pegasus.cli import main
from pegasus.observe import stop_logging
from pegasus.testing.provider import open_provider
from tests.blackbox.support import Book, connect, running, thinks_with
from tests.blackbox.support.ports import free_port, until_listening

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples" / "cluster"
COMPOSE = yaml.safe_load((CLUSTER / "compose.yaml").read_text())
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())}
IMAGE = dict(re.findall(r"(PEGASUS__\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
NGINX = shutil.which("nginx")
TOKEN = "token-of-the-cluster"


def pod():
    [container] = MANIFESTS["Deployment"]["spec"]["template"]["spec"]["containers"]
    return container


def of_pod():
    """The environment of a pod, as Kubernetes makes it."""
    fields = {"metadata.name": "pegasus-1", "status.podIP": "10.0.0.5"}
    found = {**MANIFESTS["ConfigMap"]["data"], **MANIFESTS["Secret"]["stringData"]}
    for each in pod()["env"]:
        value = each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


ENVIRONMENTS = {name: COMPOSE["services"][name]["environment"] for name in ("node-a", "node-b")} | {"pod": of_pod()}


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=list(ENVIRONMENTS))
def test_the_settings_of_a_node_are_accepted(environment, tmp_path, monkeypatch, capsys):
    for name, value in {**IMAGE, **environment}.items():
        monkeypatch.setenv(name, value)
    try:
        assert main(["--home", str(tmp_path), "config", "check"]) == 0, capsys.readouterr().err
    finally:
        stop_logging()
    assert environment["PEGASUS__STORAGE__URL"].startswith("postgresql://")
    assert ":" not in environment["PEGASUS__STORAGE__URL"].partition("//")[2].partition("@")[0], "no password in it"


def test_no_two_nodes_have_the_same_name_home_or_port_to_the_outside():
    services = COMPOSE["services"]
    nodes = [services["node-a"], services["node-b"]]
    for part in ("NAME", "ADDRESS"):
        assert len({node["environment"][f"PEGASUS__NODE__{part}"] for node in nodes}) == 2
    assert len({node["volumes"][0] for node in nodes}) == 2
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert [str(port).startswith("127.0.0.1:") for port in published] == [True]
    named = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert all((CLUSTER / name).exists() for name in named if name.startswith("."))
    assert (CLUSTER / services["node-a"]["build"]).resolve() == ROOT


def test_the_manifests_belong_together():
    template = MANIFESTS["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    selectors = [MANIFESTS[kind]["spec"]["selector"] for kind in ("Deployment", "PodDisruptionBudget")]
    assert [each["matchLabels"] for each in selectors] == [labels, labels]
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    refs = {kind: ref["name"] for each in pod()["envFrom"] for kind, ref in each.items()}
    assert refs == {
        kind: MANIFESTS[name]["metadata"]["name"]
        for kind, name in (("configMapRef", "ConfigMap"), ("secretRef", "Secret"))
    }
    assert {each["name"] for each in pod()["volumeMounts"]} == {each["name"] for each in template["spec"]["volumes"]}
    [port] = pod()["ports"]
    assert re.search(rf"^EXPOSE {port['containerPort']}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


SETTINGS = {"models.default": "offline/stand-in", "http.enabled": True, "http.port": 0, "gateway.token": TOKEN}


async def test_the_probes_are_answered(tmp_path):
    async with running(tmp_path / "a", SETTINGS) as daemon, httpx.AsyncClient(base_url=daemon.at.http) as kubelet:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = pod()[name]["httpGet"]
            headers = {each["name"]: each["value"] for each in probe["httpHeaders"]}
            assert (await kubelet.get(probe["path"], headers=headers)).status_code == 200


def start(command):
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@asynccontextmanager
async def proxied(tmp_path, settings):
    """Two daemons, and the port of nginx in front of them."""
    port = free_port()
    settings = {**settings, "http.public_url": f"http://127.0.0.1:{port}"}
    async with (
        running(tmp_path / "a", settings) as first,
        running(tmp_path / "b", settings) as second,
        nginx(tmp_path, port, first, second),
    ):
        yield (first, second), port


@asynccontextmanager
async def nginx(tmp_path, port, *daemons):
    text = (CLUSTER / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for name, daemon in zip(("node-a:7718", "node-b:7718"), daemons, strict=True):
        text = text.replace(name, daemon.at.http.removeprefix("http://"))
    text = text.replace("/tmp/", f"{tmp_path}/").replace("worker_processes auto", "daemon off; master_process off")
    config = tmp_path / "nginx.conf"
    config.write_text(text)
    command = [NGINX, "-p", str(tmp_path), "-e", str(tmp_path / "error.log"), "-c", str(config)]
    await trio.run_process([*command, "-t"], capture_stderr=True)
    proxy = start(command)
    try:
        await until_listening(port)
        yield
    finally:
        proxy.terminate()
        proxy.wait(10)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_clients_behind_nginx_reach_the_node_that_lives(tmp_path):
    async with proxied(tmp_path, SETTINGS) as (daemons, port):
        for _ in range(2):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert [(await client.get("/healthz")).status_code for _ in range(6)] == [200] * 6
            async with connect(f"ws://127.0.0.1:{port}/ws") as peer:
                await peer.hello(TOKEN, "web", "c1")
                assert await peer.ask("hello")
            daemons[0].kill()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_who_waits_at_a_node_that_is_stopped_is_told_so_and_the_other_one_takes_what_comes(tmp_path):
    book = Book()
    async with open_provider(book, keep=1) as provider:
        settings = {**SETTINGS, **thinks_with(provider.url)}
        async with proxied(tmp_path, settings) as (daemons, port):
            rights = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=rights, timeout=30) as client:

                async def ask():
                    answers.append(await client.post("/api/messages?wait=60", json={"text": "think", "id": "m-1"}))

                answers = []
                book.hold()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
                    await book.waiting()
                    [asked] = [each for each in daemons if (each.home / "data/inbox/inbox.jsonl").exists()]
                    asked.signal(signal.SIGTERM)
                    for _ in range(20):
                        assert (await client.post("/api/messages", json={"text": "hello"})).status_code == 202
                    assert answers == []
                [answer] = answers
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
                assert "is being stopped" in answer.text
                assert await asked.exit() == 0
