"""The HTTP server as a child of the channels, the address that it has, and the state of the tree as health checks see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from actors import ActorError, ActorInfo, Child, Ref, Supervisor
from pegasus.app.environment import APPROVALS, BUS, GATEWAY, SWITCHBOARD, TASK_AGENT, TASK_LISTENER
from pegasus.app.tree import CHILD_BACKOFF
from pegasus.channels import ServiceAdapter
from pegasus.gateway import BadParams, Caller, NotAllowed, Params
from pegasus.main_agent import MainAgentMessage, Withdraw
from pegasus.messages import InboundMessage, Json
from pegasus.policy import CONTROL
from pegasus.settings import HttpSettings, InForce
from pegasus.web import HttpConfig, WebServices, WebSessions, run_http

PERMANENT: Final = (
    "journal",
    APPROVALS,
    "tasks/persister",
    BUS,
    TASK_AGENT,
    TASK_LISTENER,
    SWITCHBOARD,
    GATEWAY,
)
"""Actors without which the agent is not ready, beside the Main Agent."""
_CHANNELS: Final = "channels/"


def http_config(settings: HttpSettings, listeners: Sequence[trio.SocketListener], connections: int) -> HttpConfig:
    """Return the server's behaviour by the settings. connections: how many it may have open."""
    return HttpConfig(
        host=settings.host,
        port=listeners[0].socket.getsockname()[1] if listeners else 0,
        public_url=settings.public_url,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=settings.max_body_bytes,
        max_connections=connections,
    )


def http_child(services: WebServices, listeners: Sequence[trio.SocketListener]) -> Child[object]:
    """Return the HTTP server as a child of the supervisor that parks it."""
    return Child("server", run_http, services, listeners, backoff=CHILD_BACKOFF)


def health_of(
    root: Supervisor, main_agent: str, may_work: trio.Event, adapters: Iterable[ServiceAdapter]
) -> Mapping[str, Json]:
    """Return `ready`, the permanent actors that do not run in `down`, and the channels that are parked in `parked`.

    The daemon is not ready before people can connect, nor while a permanent actor does not run. A parked channel makes no difference:
    the rest runs on. main_agent: path of the Main Agent.
    """
    states = {info.path: info.state for info in _walk(root.tree())}
    down = [path for path in (*PERMANENT, main_agent) if states.get(path) != "up"]
    parked = [
        path.removeprefix(_CHANNELS)
        for path, state in states.items()
        if path.startswith(_CHANNELS) and path.count("/") == 1 and state == "down" and path not in PERMANENT
    ]
    parked += [adapter.state.type for adapter in adapters if adapter.state.state == "parked"]
    return {"ready": may_work.is_set() and not down, "down": list(down), "parked": [*sorted(set(parked))]}


def _walk(info: ActorInfo) -> list[ActorInfo]:
    return [info, *(below for child in info.children for below in _walk(child))]


def withdraw_message(main_agent: Ref[MainAgentMessage], message: InboundMessage) -> None:
    """Tell the Main Agent that the sender of a message has gone. An agent that is being restarted works on it all the same."""
    with suppress(ActorError):
        main_agent.tell_nowait(Withdraw(message.channel.address, message.id))


def url_of(scheme: str, host: str, listeners: Sequence[trio.SocketListener]) -> str:
    """Return the address that clients connect to, with the port that was chosen if the setting is 0."""
    port = listeners[0].socket.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class SignInMethod:
    """The method `http.link`: an address that signs a browser in, once. For `pegasus open`."""

    def __init__(self, sessions: WebSessions | None, url: InForce[str]) -> None:
        """Prepare. sessions: None if there is no HTTP server. url: address of the page."""
        self._sessions = sessions
        self._url = url

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return `url`. Only the owner's own token may ask, since whoever opens the link has all rights."""
        await trio.lowlevel.checkpoint()
        if self._sessions is None:
            raise BadParams("there is no web page: http.enabled is false")
        if not (caller.grant.is_home and caller.grant.allows(CONTROL)):
            raise NotAllowed("only the token of the home may open the page")
        return {"url": f"{self._url.now}/login?code={self._sessions.make_code()}"}
