"""`pegasus doctor`: what may keep the agent from working, or make it less safe, on this machine; each finding with what to do.

It works with a home that does not exist, settings with mistakes, and whether or not an agent runs. It changes nothing. A check is a
function that yields findings; one that fails unexpectedly is a finding too, so that the others are still made.

`broken` means that the agent will not start or not answer, or that somebody else can read its keys; then the exit code is 1. A
`note` is something that works less well than it could.

To add a check, write a function that takes the `Examined` and yields findings, and name it in CHECKS. It yields an `ok` where it finds
nothing, so that a reader sees that it was made. A check that needs settings yields nothing while they have mistakes, which `settings`
reports line by line. A finding names what was found, and its `fix` is a command or a sentence that a person can follow as it stands.

The checks look from outside where they can: they bind the port, build the walls of the sandbox, ask the running agent, and make one
short call of the model, since only its answer shows that it answers.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from pegasus import __version__
from pegasus.access import OWN_TYPES, stored_tokens
from pegasus.cli.commands import JSON, Options, pegasus, program_name
from pegasus.cli.control import STATE_SECONDS, Answer, ask_daemon, describe_refusal, find_daemon, json_line, print_text
from pegasus.cli.program import check_settings_in_use
from pegasus.cli.skills import doubts_about, skills_of
from pegasus.cli.status import CODE_CHANGED
from pegasus.client import ClientError, Refused
from pegasus.formatting import format_time, plural
from pegasus.host import SHORTEST_TOKEN, Home, HomeError, check_format, read_daemon, read_token
from pegasus.mcp import TOKENS_FOLDER, risks
from pegasus.models import (
    OFFLINE,
    ModelError,
    ModelRequest,
    ModelService,
    UserTurn,
    find_names,
    find_providers,
    role_spec,
)
from pegasus.sandbox import SandboxError, probe_sandbox
from pegasus.settings import Settings, SettingsError, load_settings
from pegasus.storage import StorageError
from pegasus.terminal import neutralise
from pegasus.update import read_last

if TYPE_CHECKING:
    from pegasus.storage.database import DatabaseFacts

OK: Final = "ok"
NOTE: Final = "note"
BROKEN: Final = "broken"
"""Severities of findings."""
# Bounds in bytes and not in shares of the disk: what a day of messages takes does not depend on the disk.
LITTLE_SPACE: Final = 1 << 30
"""Bytes free on the disk below which it is noted."""
NO_SPACE: Final = 50 << 20
"""Bytes free below which messages may soon not be accepted any more."""
MOST_AHEAD: Final = 2.0
"""Seconds that the clock of a database may differ from this machine's."""
SHARE_OF_LEASE: Final = 20
"""An answer of the database should take less than this part of a lease."""
_PACKAGE: Final = "pegasus-agent"

FEW_CALLS: Final = 10
"""Model calls at once that are few for a conversation with each chat."""


@attrs.frozen
class Finding:
    """The outcome of one check."""

    check: str
    """Name of the check."""
    severity: str
    """"ok", "note" or "broken"."""
    text: str
    """Fact that was found."""
    fix: str = ""
    """Advice; "" if there is nothing to do."""


@attrs.frozen(eq=False, repr=False)
class Examined:
    """The installation that the checks look at. Loaded once, so that all checks judge the same settings."""

    home: Home
    """The home, which may not exist."""
    options: Options
    """The options of the command line."""
    settings: Settings | None
    """The settings; None if they have mistakes."""
    problem: SettingsError | None
    """The mistakes in the settings; None if there are none. Never None where `settings` is."""


@pegasus.declare("doctor", JSON, options_only=True)
def run_doctor(options: Options, *, as_json: bool = False) -> int:
    """Check the installation, and say how to mend what is wrong.

    The exit code is 1 if something is broken.
    """
    findings = examine(options)
    if as_json:
        print_text(
            json_line({"findings": [attrs.asdict(finding) for finding in findings], "ok": not _broken(findings)})
        )
    else:
        print_text(findings_text(findings))
    return 1 if _broken(findings) else 0


def examine(options: Options) -> list[Finding]:
    """Return the findings of all checks, in their order. Raises HomeError for a home that no name leads to.

    Checks are made one after the other, since some of them bind ports or start programs. The longest is
    the question to an agent that does not answer, which takes STATE_SECONDS.
    """
    home = options.home()
    settings, problem = None, None
    try:
        settings = options.load()[1]
        check_settings_in_use(home, settings)
    except SettingsError as error:
        problem = error
    examined = Examined(home, options, settings, problem)
    findings: list[Finding] = []
    for name, check in CHECKS:
        try:
            # A check is a generator: one that fails after its first finding keeps that one.
            findings += check(examined)
        except Exception as error:  # a check that cannot be made must not hide the others
            findings.append(Finding(name, BROKEN, f"the check failed: {type(error).__name__}: {error}", "report this"))
    return findings


def findings_text(findings: Sequence[Finding]) -> str:
    """Return the findings for people: a line each, and below it what to do.

    Notes do not change the exit code, but are counted in the last line.
    """
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity:<7} {finding.check:<13} {finding.text}")
        if finding.fix:
            lines.append(f"{'':<22}→ {finding.fix}")
    broken = len(_broken(findings))
    noted = sum(finding.severity == NOTE for finding in findings)
    return "\n".join([*lines, "", f"{broken} broken, {plural(noted, 'note')}" if broken or noted else "All is well."])


def _broken(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that decide about the exit code."""
    return [finding for finding in findings if finding.severity == BROKEN]


# ------------------------------------------------------------------ checks


def _installation(examined: Examined) -> Iterator[Finding]:
    """Check that the packages are there that this version asks for.

    An installation may be incomplete after an upgrade by hand. The version of a package is not judged: pip does that.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    missing = [name for name in _required_packages() if not _is_installed(name)]
    if missing:
        fix = f"install them: {sys.executable} -m pip install {' '.join(missing)}"
        yield Finding("installation", BROKEN, f"missing packages: {', '.join(missing)}", fix)
    else:
        last = read_last(examined.home)
        is_updated = last is not None and not last.problem and last.version == __version__
        updated = f", updated from {last.before} on {format_time(last.at)}" if last is not None and is_updated else ""
        yield Finding("installation", OK, f"Pegasus {__version__}, Python {python}, {sys.platform}{updated}")
        if last is not None and last.problem:
            text = f"on {format_time(last.at)} the update to {last.version} was not taken: {last.problem}"
            yield Finding(
                "installation", NOTE, text, f"the data from before it is in {last.backup}" if last.backup else ""
            )


def _required_packages() -> list[str]:
    """Return the names of the packages that are asked for on every machine."""
    try:
        wanted = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from a folder, without an installation
        return []
    always = (line for line in wanted if ";" not in line)
    # A requirement is a name with extras and versions behind it, as in `trio[x]>=0.25`. Those with a marker (";") are
    # asked for on some machines only.
    return ["".join(c if c.isalnum() or c in "-_." else " " for c in line).split()[0] for line in always]


def _is_installed(name: str) -> bool:
    """Return whether there is a package of this name, by its metadata; nothing is imported."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _settings(examined: Examined) -> Iterator[Finding]:
    """Check the settings as a start does."""
    if examined.problem is not None:
        # All mistakes at once: who corrects a file wants to know each, and not the first.
        for line in str(examined.problem).splitlines():
            yield Finding("settings", BROKEN, line, f"correct it; {program_name()} config keys explains every key")
        if read_daemon(examined.home) is not None:
            text = "the running agent goes on with the settings it has; it refuses to reload, and cannot start again"
            yield Finding("settings", NOTE, text, "correct the settings before the agent is stopped")
        return
    assert examined.settings is not None  # noqa: S101  there is a problem otherwise
    file = examined.settings.source.file
    # No file is fine: every key has a default.
    there = file is not None and file.exists()
    yield Finding("settings", OK, f"{file}" if there else "there is no settings file, so that all defaults count")


def _models(examined: Examined) -> Iterator[Finding]:
    """Check that the model answers, by asking it, and that its server lists its name."""
    if examined.settings is None or examined.problem is not None:
        return
    settings = examined.settings
    # The same function decides at a start, so the name of the model is that which will answer.
    spec = role_spec("default", settings.models, find_providers(settings.providers))
    if spec == OFFLINE:
        text = "neither a model nor a key is set: a local server answers if there is one, else the stand-in"
        yield Finding("keys", NOTE, text, f"choose a model: {program_name()} init")
    else:
        yield from trio.run(_ask_model, settings, spec)
    calls = settings.models.max_concurrent_calls
    if settings.agent.scope == "chat" and calls < FEW_CALLS:
        text = f'agent.scope is "chat", and {calls} model calls run at once: chats that talk at the same time wait for each other'
        yield Finding("keys", NOTE, text, "raise models.max_concurrent_calls to what the provider allows")


async def _ask_model(settings: Settings, spec: str) -> list[Finding]:
    """Return what a short call of the model shows, and whether its server lists it. Takes PATIENCE seconds and a few more."""
    found: list[Finding] = []
    listed: list[str] = []

    async def call() -> None:
        """Make the call with the options that a chat would have."""
        patience = min(PATIENCE, settings.models.timeout)
        models = ModelService(
            attrs.evolve(settings.models, fallback=(), routes={}, timeout=patience),
            settings.providers,
            rng=random.Random(),  # noqa: S311 jitter only
        )
        request = ModelRequest("Answer briefly.", (UserTurn(text="Say: ok"),), max_tokens=1000)
        try:
            await models.client("default", "conversation").generate(request)
            found.append(Finding("keys", OK, f"{spec} answers"))
        except ModelError as error:
            severity = BROKEN if error.kind in _LASTING else NOTE
            found.append(
                Finding("keys", severity, f"{spec} does not answer: {error}", f"choose a model: {program_name()} init")
            )
        finally:
            await models.aclose()

    async def look() -> None:
        """Ask the server for the names of its models."""
        listed.extend(await find_names(spec, settings))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        nursery.start_soon(look)
    name = spec.partition("/")[2]
    if listed and not any(other == name or other.endswith(f"/{name}") for other in listed):
        some = ", ".join(listed[:_MOST_NAMES]) + (", …" if len(listed) > _MOST_NAMES else "")
        text = f"the server of {spec} does not list {name}; it lists {some}"
        found.append(Finding("keys", NOTE, text, "check the name in models.default"))
    return found


PATIENCE: Final = 20.0
"""Seconds in which the model must have begun to answer."""
_MOST_NAMES: Final = 5
"""Names of a server's models that are shown."""
_LASTING: Final = frozenset({"auth", "request", "network", "timeout"})
"""Kinds of failures that will hardly pass by themselves."""


def _home(examined: Examined) -> Iterator[Finding]:
    """Check that the home is the user's alone.

    It has the token, keys and all conversations, so nobody else may read it, whatever the umask was when it was made.
    """
    path = examined.home.path
    # No finding about rights: there is nothing to be read yet.
    if not path.exists():
        yield Finding("home", NOTE, f"{path} is not there yet", "the first start makes it")
        return
    if not path.is_dir():
        yield Finding("home", BROKEN, f"{path} is not a folder", "move it away or give another --home")
        return
    # The rights of others and the rights of this user are separate findings: both may be wrong.
    problems = list(_private(path, "home", 0o700))
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        fix = "mount it for writing, or give --home a folder on another disk"
        problems.append(Finding("home", BROKEN, f"{path} is on a disk that is mounted read-only", fix))
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        problems.append(Finding("home", BROKEN, f"{path} cannot be written", f"give it back: chown -R $USER {path}"))
    try:
        check_format(examined.home)
    except HomeError as error:
        fix = "use the version that has written it, or restore a backup from before; a restore that was cut off is run again"
        problems.append(Finding("home", BROKEN, str(error), fix))
    yield from problems or [Finding("home", OK, str(path))]


def _private(path: Path, check: str, mode: int) -> Iterator[Finding]:
    """Check that nobody else may use a file or folder.

    A file of somebody else is reported alone: its mode could not be changed anyway.
    """
    status = path.stat()
    if status.st_uid != os.geteuid():
        yield Finding(check, BROKEN, f"{path} belongs to user {status.st_uid}", f"chown {os.geteuid()} {path}")
    # Any right of group or others counts, also that to list a folder.
    elif stat.S_IMODE(status.st_mode) & 0o077:
        found = f"{path} is open to others (mode {stat.S_IMODE(status.st_mode):o})"
        yield Finding(check, BROKEN, found, f"chmod {mode:o} {path}")


def _token(examined: Examined) -> Iterator[Finding]:
    """Check the token that clients show.

    It is a file, so it may have been edited, cut short by a full disk, or copied with other rights.
    """
    token = examined.home.token
    if examined.settings is not None and examined.settings.gateway.token:
        yield Finding("token", OK, "it is gateway.token of the settings")
        return
    if not token.exists():
        yield Finding("token", OK, "it is made at the next start")
        return
    problems = list(_private(token, "token", 0o600))
    fix = f"delete it; the next start makes a new one: rm {token}"
    try:
        length = len(read_token(examined.home))
    except HomeError as error:
        problems.append(Finding("token", BROKEN, str(error), fix))
    else:
        if length < SHORTEST_TOKEN:
            found = f"{token} has {length} characters, allowed: {SHORTEST_TOKEN} or more"
            problems.append(Finding("token", BROKEN, found, fix))
    yield from problems or [Finding("token", OK, str(token))]


def _files(examined: Examined) -> Iterator[Finding]:
    """Check the disk, the rights on what is written, and the files of users."""
    home = examined.home
    # The home may not exist yet; then the disk is that of the first folder above it that does.
    place = next(path for path in (home.path, *home.path.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free < LITTLE_SPACE:
        severity = BROKEN if free < NO_SPACE else NOTE
        yield Finding("files", severity, f"{free >> 20} MB are free on the disk of {place}", "make room")
    for folder in (home.data, home.workspace, home.log.parent):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            yield Finding("files", BROKEN, f"{folder} cannot be written", f"give it back: chown -R $USER {folder}")
    if examined.settings is not None:
        skills = skills_of(home)
        problems = [*map(str, skills.problems)]
        for skill in skills.all():
            problems += doubts_about(skill, home, examined.settings)
        if problems:
            found = f"{plural(len(problems), 'problem')} with skills"
            yield Finding("files", NOTE, found, f"{program_name()} skills check names them")
    if free >= LITTLE_SPACE:
        yield Finding("files", OK, f"{free >> 30} GB free")


def _database(examined: Examined) -> Iterator[Finding]:
    """Check the database that the settings name, and the nodes that live there. Nothing is said where everything is in files."""
    if examined.settings is None or not examined.settings.storage.url:
        return
    settings = examined.settings
    try:
        from pegasus.storage.database import look_at_database

        found = look_at_database(settings.storage.url)
    except ModuleNotFoundError as error:
        fix = f"{sys.executable} -m pip install 'pegasus-agent[postgres]'"
        yield Finding("database", BROKEN, f"storage.url is set, and there is no {error.name}", fix)
        return
    except StorageError as error:
        yield Finding("database", BROKEN, str(error), "check storage.url, the server and the network to it")
        return
    yield from _rights(found)
    if not found.is_synced:
        text = "the server answers a commit before it is on disk: a crash of it loses messages that were accepted"
        yield Finding("database", BROKEN, text, "set synchronous_commit and fsync to on")
    if found.replicas and not found.has_synchronous_replica:
        text = "no replica is synchronous: a fail-over may lose messages that were accepted"
        yield Finding("database", NOTE, text, "set synchronous_standby_names on the server")
    if abs(found.ahead) > MOST_AHEAD:
        where = "ahead of" if found.ahead > 0 else "behind"
        text = f"its clock is {abs(found.ahead):.0f} s {where} this machine's: times in messages and jobs differ between nodes"
        yield Finding("database", NOTE, text, "let both follow the same time servers")
    if found.round_trip > settings.node.lease / SHARE_OF_LEASE:
        text = f"an answer takes {found.round_trip * 1000:.0f} ms, which is much beside a lease of {settings.node.lease:g} s"
        yield Finding("database", NOTE, text, "raise node.lease, or bring the node nearer to the database")
    yield from _nodes(settings, found.others)
    replica = "with a synchronous replica" if found.has_synchronous_replica else "without a synchronous replica"
    yield Finding("database", OK, f"PostgreSQL {found.server} answers in {found.round_trip * 1000:.0f} ms, {replica}")


def _rights(found: DatabaseFacts) -> Iterator[Finding]:
    """Check whether the program can use a database, may write into it, and knows its tables."""
    if found.refusal:
        yield Finding("database", BROKEN, found.refusal)
    if found.is_read_only:
        fix = "name the primary in storage.url, or end default_transaction_read_only; a service sets it when the disk is full"
        yield Finding("database", BROKEN, "it is read-only, as a replica is", fix)
    elif not found.may_write:
        fix = "let its owner run: GRANT ALL ON ALL TABLES IN SCHEMA pegasus TO the user"
        if not found.tables:
            fix = "let its owner run: CREATE SCHEMA pegasus AUTHORIZATION the user; the log of a start says it in full"
        yield Finding("database", BROKEN, "the user may not write into it", fix)
    if found.tables > found.known:
        text = f"its tables have version {found.tables}, and this program knows {found.known}"
        yield Finding("database", BROKEN, text, "use the version of the program that has made them, or a newer one")


def _nodes(settings: Settings, others: Sequence[tuple[str, str, str, bool]]) -> Iterator[Finding]:
    """Check whether the nodes that live have one version and the same settings, and whether somebody works."""
    from pegasus.storage.database import differing_sections, settings_digest

    digest = settings_digest(settings)
    if others and all(is_draining for *_, is_draining in others):
        text = "all nodes that run are drained: messages are accepted, and nobody works on them"
        yield Finding("database", BROKEN, text, "start one of them again, or another one")
    for name, version, settings_there, is_draining in others:
        if is_draining:
            text = f"node {neutralise(name)} is drained: it takes nothing until it is started again"
            yield Finding("database", NOTE, text, "stop it, or start it again")
        if version != __version__:
            text = f"node {neutralise(name)} runs version {neutralise(version)}, and this program is {__version__}"
            yield Finding(
                "database", NOTE, text, "update all nodes; until then the oldest decides what the tables hold"
            )
        elif sections := differing_sections(digest, settings_there):
            text = f"node {neutralise(name)} has other settings than this home, in {neutralise(', '.join(sections))}"
            yield Finding("database", NOTE, text, "give all nodes the same settings, and reload or restart them")


def _ports(examined: Examined) -> Iterator[Finding]:
    """Check that the agent answers or, if none runs, that it could listen. One that runs answers whatever the settings file says.

    A daemon that runs holds the ports itself, so they are bound here only where none does.
    """
    daemon, settings = read_daemon(examined.home), examined.settings
    if settings is None:
        if daemon is None:
            return
        # With mistakes in the file an agent may still run: it is found by its own file, and asked with the defaults.
        settings = load_settings(attrs.evolve(examined.options.source(examined.home), file=None))
    host, port, http = settings.gateway.host, settings.gateway.port, settings.http
    if daemon is not None:
        try:
            status = trio.run(ask_daemon, find_daemon(examined.home, settings), "status", {}, STATE_SECONDS)
        except ClientError as error:
            reason = describe_refusal(error, "status")
            if isinstance(error, Refused) and error.code == "internal":
                found = f"an agent runs (process {daemon.pid}) and lets nobody in: {reason}"
                fix = "mend the disk or the database; the agent then goes on by itself, and to start it again is of no use"
                yield Finding("ports", BROKEN, found, fix)
                return
            found = f"process {daemon.pid} does not answer at {daemon.ws}: {reason}"
            yield Finding("ports", BROKEN, found, f"end it (kill {daemon.pid}), and start it again: {program_name()}")
        else:
            yield Finding("ports", OK, f"an agent runs (process {daemon.pid}) and answers at {daemon.ws}")
            if status.get("database"):
                text = f"the agent waits for its database: {status['database']}"
                yield Finding("database", BROKEN, text, "mend that; nothing is lost, and the agent goes on by itself")
            if status.get("codeChanged"):
                yield Finding("ports", NOTE, f"its code {CODE_CHANGED}", "restart the agent")
            yield from _channels(status.get("channels", ()))
    elif reason := _why_not_listening(host, port):
        fix = f"choose another port, or 0 for any: {program_name()} config set gateway.port 0"
        yield Finding("ports", BROKEN, f"{host}:{port} cannot be listened at: {reason}", fix)
    # One finding for both servers: with the first port taken the start fails, and the second was not tried.
    elif reason := _why_not_listening(http.host, http.port) if http.enabled else "":
        fix = f"choose another port, or 0 for any: {program_name()} config set http.port 0"
        yield Finding("ports", BROKEN, f"{http.host}:{http.port} cannot be listened at: {reason}", fix)
    else:
        yield Finding("ports", OK, f"no agent runs; {host}:{port} is free")


def _channels(channels: Sequence[Answer]) -> Iterator[Finding]:
    """Report the adapters of chat services, as the running agent knows them.

    No adapter is made here: an agent that runs holds the connections, and a second one could take messages from it.
    """
    for channel in channels:
        type, state = channel["type"], channel["state"]
        reason = channel.get("reason")  # left out where there is none
        text = neutralise(f"{type}: {state}" + (f" ({reason})" if reason else ""))
        # Parked means that trying again is of no use, mostly since the service refuses the credentials.
        if state == "parked":
            fix = f"change its credentials in [channels.{type}], and send SIGHUP or start the agent again"
            yield Finding("channels", BROKEN, text, fix)
        elif state == "down":
            yield Finding("channels", NOTE, text, "it is tried again; check the network if it stays like that")
        else:
            yield Finding("channels", OK, text)


def _why_not_listening(host: str, port: int) -> str:
    """Return why nothing can listen there, "" if something can. The port is bound and released at once.

    With SO_REUSEADDR, as servers bind, a port counts as free while connections of an earlier process are still being closed.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _sandbox(examined: Examined) -> Iterator[Finding]:
    """Check which walls there are around commands, by building some.

    The walls of this machine cannot be known from its version: a kernel may forbid namespaces, a container hides them. So a
    command is run behind walls, in the workspace or in a folder that is removed at once.
    """
    if examined.settings is None:
        return
    settings, home = examined.settings, examined.home
    with tempfile.TemporaryDirectory(prefix="pegasus-doctor-") as temporary:
        path, workspace = home.path, home.workspace
        if not workspace.exists():  # walls need a workspace to stand around
            path, workspace = Path(temporary), Path(temporary, "workspace")
            # Both are in the temporary folder, so the walls are tried out as they will stand around the real ones.
            workspace.mkdir()
        try:
            found = probe_sandbox(settings, path, workspace)
        except SandboxError as error:
            fix = "install bubblewrap (apt install bubblewrap), or allow user namespaces"
            yield Finding("sandbox", BROKEN, str(error), fix)
            return
    fix = ""
    if found.mode == "off":
        fix = f"{program_name()} config set sandbox.mode auto"
    elif not found.bubblewrap or found.state != "full":
        fix = "install bubblewrap (apt install bubblewrap), or allow it to make user namespaces"
    severity = NOTE if fix else OK
    yield Finding("sandbox", severity, f"walls around commands: {found.description}", fix)
    for risk in risks(settings, home.path / TOKENS_FOLDER, home.workspace, is_confined=found.kind != "none"):
        yield Finding("sandbox", NOTE, risk)


def _people(examined: Examined) -> Iterator[Finding]:
    """Say who the owners are, since nobody else may decide, and where several people share one conversation."""
    if examined.settings is None:
        return
    agent = examined.settings.agent
    listed = [neutralise(entry) for entry in agent.owners if entry.partition(":")[0] not in OWN_TYPES]
    yield Finding("people", OK, " and ".join(["the owners are those who have shown the owner's token", *listed]))
    if len(listed) > 1 and agent.scope == "global":
        text = f"these owners share one conversation and read what the others have said: {', '.join(listed)}"
        yield Finding("people", NOTE, text, f"{program_name()} config set agent.scope chat")
    by_place: dict[tuple[str, str], list[str]] = {}
    if examined.settings.storage.url:  # `pegasus token list` shows those of the nodes
        return
    for token in stored_tokens(examined.home.data):
        if token.channel_id:
            by_place.setdefault((token.type, token.channel_id), []).append(token.name)
    for (type, id), names in by_place.items():
        if len(names) > 1:
            text = f"the tokens {', '.join(names)} share the conversation {neutralise(f'{type}:{id}')}"
            yield Finding("people", NOTE, text, f"{program_name()} token revoke one, and add it without --channel")


CHECKS: Final[tuple[tuple[str, Callable[[Examined], Iterator[Finding]]], ...]] = (
    ("installation", _installation),
    ("settings", _settings),
    ("keys", _models),
    ("home", _home),
    ("token", _token),
    ("files", _files),
    ("database", _database),
    ("ports", _ports),
    ("sandbox", _sandbox),
    ("people", _people),
)
"""The checks with their names, in the order in which findings are shown."""
