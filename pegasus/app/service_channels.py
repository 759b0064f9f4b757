"""Adapters of chat services: made from the settings, as children of the tree, and as `status` and `channels.list` show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actors import Child, Inbox, Ref
from pegasus.app.services import ADAPTER, Services
from pegasus.channels import AdapterMessage, ChannelState, ServiceAdapter, ServiceContext, make_adapter
from pegasus.intake import Access, GuestLimits, Intake, PairingBook, PairingRefused, SenderRates, rules_of
from pegasus.messages import ChannelInfo, Json
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError
from pegasus.wire import to_wire


def build_adapters(services: Services, intake: Intake, commands: Mapping[str, str]) -> dict[str, ServiceAdapter]:
    """Return the adapters that the settings enable, by channel type. commands: chat commands with their meaning.

    An adapter is an object that outlives the restarts of its actor. It is the receiver of its service's webhooks, too.
    """
    context = service_context(services, intake, commands)
    sections = services.environment.settings.channels.items()
    made = {type: make_adapter(type, section, context) for type, section in sections}
    adapters = {type: adapter for type, adapter in made.items() if adapter is not None}
    services.environment.pairing.owner_channels = owner_channels(context.owners, adapters)
    return adapters


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
        owners=settings.agent.owners,
        public_url=settings.http.public_url,
        commands=commands,
        decide=services.approvals.decide,
        pair=_pairing(environment.pairing),
    )


def make_intake(journal: Ref[JournalMessage], settings: Settings, pairing: PairingBook) -> Intake:
    """Return the way in, which the gateway and all adapters share."""
    sections = settings.channels.items()
    access = Access({type: rules_of(type, rules.access, rules.allow_from, rules.groups) for type, rules in sections})
    limits = settings.limits
    rates = SenderRates(GuestLimits(limits.guest_messages_per_minute, limits.guest_waiting))
    return Intake(journal, access, settings.agent.owners, pairing, rates)


def adapter_children(
    adapters: Mapping[str, ServiceAdapter], journal: Ref[JournalMessage], **options: Any
) -> dict[str, Child[AdapterMessage]]:
    """Return the adapters as children for `start_channels`. options: those of `Child`.

    Each start of a child runs the adapter that `adapters` has by then; see `replace_parked`.
    """
    return {type: Child(ADAPTER, _run_adapter, adapters, type, journal, **options) for type in adapters}


async def _run_adapter(
    inbox: Inbox[AdapterMessage], adapters: Mapping[str, ServiceAdapter], type: str, journal: Ref[JournalMessage]
) -> None:
    await adapters[type].run(inbox, journal)


def replace_parked(adapters: dict[str, ServiceAdapter], settings: Settings) -> list[str]:
    """Put an adapter made from these settings in place of each one that is parked, and start it. Return their channel types.

    One that the settings do not enable any more stays parked. Owners and `http.public_url` are those of the start.
    """
    parked = [adapter for adapter in adapters.values() if adapter.state.state == "parked"]
    replaced = []
    for adapter in parked:
        made = make_adapter(adapter.type, settings.channels[adapter.type], adapter.context)
        if made is not None:
            adapters[adapter.type] = made
            adapter.retire()
            replaced.append(adapter.type)
    return replaced


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


__all__ = ["adapter_children", "build_adapters", "channels_json", "replace_parked", "with_parked"]
