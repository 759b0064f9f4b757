"""Adapters of chat services: made from the settings, as children of the tree, and as `status` and `channels.list` show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from actors import Child, Ref
from pegasus.app.environment import ADAPTER
from pegasus.app.services import Services
from pegasus.app.tree import CHILD_BACKOFF, ChannelGroup
from pegasus.channels import AdapterMessage, ChannelState, ServiceAdapter, ServiceContext, make_adapter
from pegasus.intake import Access, GuestLimits, Intake, PairingBook, PairingRefused, SenderRates, rules_of
from pegasus.messages import ChannelInfo, Json
from pegasus.settings import SERVICE_SECTIONS, Settings, SettingsInForce
from pegasus.storage import JournalMessage, StorageError
from pegasus.wire import to_wire

ACCESS_KEYS: Final = ("access", "allow_from", "groups")
"""Keys of a channel's section that its adapter does not depend on: who may write is decided before."""


class ServiceChannels:
    """The adapters that the settings enable. They follow the settings once `follow` was called.

    An adapter is an object that outlives the restarts of its actor. It is the receiver of its service's webhooks, too. A reload puts
    another object in its place if the settings of its type have changed, and restarts the actor of this type alone. What it has not
    delivered waits in the outbox, where the next run finds it; what is under way has `STOP_GRACE` seconds to end.

    Example::

        channels = ServiceChannels(services, intake, describe_commands(answers))
        group = await start_channels(tree, gateway, channels.children())
        channels.follow(group)
    """

    def __init__(self, services: Services, intake: Intake, commands: Mapping[str, str]) -> None:
        """Make the adapters. commands: chat commands with their meaning."""
        self.adapters: dict[str, ServiceAdapter] = {}
        """By channel type. The object stays the same."""
        self._services = services
        self._intake = intake
        self._commands = commands
        self._group: ChannelGroup | None = None
        for type in services.environment.settings.channels:
            self._make(type)
        self._note_owners()

    def children(self) -> dict[str, Child[AdapterMessage]]:
        """Return the adapters as children of the channels."""
        return {type: self._child(type) for type in self.adapters}

    def follow(self, group: ChannelGroup) -> None:
        """Carry out changes of the settings from now on. group: the running channels."""
        self._group = group
        in_force = self._services.environment.in_force
        in_force.when_changed(self._change, "channels.", "http.public_url", "agent.owners")
        in_force.after_replacement(self._take_up_parked)

    def _take_up_parked(self) -> None:
        """Try every parked channel again, with an adapter made from the settings in force."""
        for type in [type for type, adapter in self.adapters.items() if adapter.state.state == "parked"]:
            self._renew(type)

    def _change(self, changed: frozenset[str]) -> None:
        """Replace the adapters whose settings have changed, and add and remove some."""
        for type in SERVICE_SECTIONS:
            if "http.public_url" in changed or any(_is_of_adapter(key, type) for key in changed):
                self._renew(type)
        self._note_owners()

    def _renew(self, type: str) -> None:
        """Put an adapter made from the settings in force in the place of the one that is there, if any."""
        there = self.adapters.pop(type, None)
        self._make(type)
        if self._group is not None and (there is not None or type in self.adapters):
            self._group.change(type, self._child(type) if type in self.adapters else None)

    def _make(self, type: str) -> None:
        section = self._services.environment.settings.channels.get(type)
        context = service_context(self._services, self._intake, self._commands)
        if section is not None and (made := make_adapter(type, section, context)) is not None:
            self.adapters[type] = made

    def _child(self, type: str) -> Child[AdapterMessage]:
        return Child(ADAPTER, self.adapters[type].run, self._services.journal, backoff=CHILD_BACKOFF)

    def _note_owners(self) -> None:
        environment = self._services.environment
        environment.pairing.owner_channels = owner_channels(environment.owners.now, self.adapters)


def owner_channels(owners: Iterable[str], adapters: Mapping[str, ServiceAdapter]) -> list[ChannelInfo]:
    """Return the direct conversations with owners on services that have buttons."""
    places = (entry.partition(":") for entry in owners)
    return [
        ChannelInfo(type, person, person)
        for type, _, person in places
        if person not in ("", "*") and type in adapters and adapters[type].has_buttons
    ]


def service_context(services: Services, intake: Intake, commands: Mapping[str, str]) -> ServiceContext:
    """Return what the adapters of services are given. commands: chat commands with their meaning."""
    environment = services.environment
    settings = environment.settings
    return ServiceContext(
        intake=intake,
        clock=environment.clock,
        random=environment.random,
        owners=environment.owners,
        public_url=settings.http.public_url,
        commands=commands,
        decide=services.approvals.decide,
        pair=_pairing(environment.pairing),
    )


def make_intake(journal: Ref[JournalMessage], in_force: SettingsInForce, pairing: PairingBook) -> Intake:
    """Return the way in, which the gateway and all adapters share."""
    return Intake(
        journal,
        in_force.follow(_access_of, "channels."),
        in_force.follow(lambda settings: settings.agent.owners, "agent.owners"),
        pairing,
        SenderRates(in_force.follow(_guest_limits, "limits.")),
    )


def _access_of(settings: Settings) -> Access:
    sections = settings.channels.items()
    return Access({type: rules_of(type, rules.access, rules.allow_from, rules.groups) for type, rules in sections})


def _guest_limits(settings: Settings) -> GuestLimits:
    return GuestLimits(settings.limits.guest_messages_per_minute, settings.limits.guest_waiting)


def _is_of_adapter(key: str, type: str) -> bool:
    """Return whether the adapter of a channel type depends on a key."""
    return key.startswith(f"channels.{type}.") and key.split(".")[2] not in ACCESS_KEYS


def channels_json(states: Iterable[ChannelState]) -> list[Json]:
    """Return the states of adapters as `status` and `channels.list` have them."""
    return [to_wire(state) for state in states]


def with_parked(node: dict[str, Json], states: Iterable[ChannelState]) -> dict[str, Json]:
    """Return the tree as JSON with the state "parked" and its reason at the adapters that are."""
    parked = {f"channels/{state.type}/{ADAPTER}": state.reason for state in states if state.state == "parked"}
    return _with_parked(node, parked) if parked else node


def _with_parked(node: dict[str, Json], parked: Mapping[str, str]) -> dict[str, Json]:
    children = node.get("children")
    if isinstance(children, list):
        below: list[Json] = [_with_parked(child, parked) for child in children if isinstance(child, dict)]
        node = {**node, "children": below}
    reason = parked.get(str(node.get("path")))
    return node if reason is None else {**node, "state": "parked", "reason": reason}


def _pairing(book: PairingBook) -> Any:
    async def pair(code: str, by: str) -> str:
        try:
            return f"{await book.approve(code, by)} may write to me now."
        except (PairingRefused, StorageError) as error:
            return str(error)

    return pair


__all__ = ["ServiceChannels", "channels_json", "with_parked"]
