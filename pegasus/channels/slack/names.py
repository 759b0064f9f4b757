"""Names of people and conversations of a Slack workspace: ids to names for what comes in, names to ids for what goes out.

    names = SlackNames(api)
    await names.names_of({"U1", "C1"})  # {"U1": "anna", "C1": "general"}
    await names.resolve("#general")     # "C0123"
    await names.resolve("@anna")        # "D0456", the direct conversation with her

Answers are kept for a while, and only a bounded number of them. A name that is not found is looked up again after a minute: the
channel may have been made, or the app invited.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any, Final

import trio

from pegasus.channels.service_contract import RateLimited, ServiceDown
from pegasus.channels.slack.api import SlackApi, SlackRefused

USER: Final = ("U", "W")
"""Letters that begin the id of a person."""
KEPT: Final = 3600.0
"""Seconds for which a name counts."""
KEPT_UNKNOWN: Final = 60.0
"""Seconds for which "not found" counts."""
MOST_KEPT: Final = 5_000
"""Names that are kept. The oldest is forgotten first."""
MOST_PAGES: Final = 100
"""Pages of a list that are read, each with up to 200 entries."""
MOST_LOOKUPS: Final = 20
"""Names that are looked up for one message. Others are shown as ids."""
LOOKUP_TIME: Final = 1.0
"""Seconds that a message which came in waits for names. Slack wants its acknowledgement within 3."""


class SlackNames:
    """The names that were looked up."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._known: dict[str, tuple[str, float]] = {}
        """Names by id, and ids by address as "#general"; "" for nothing. Each with Trio's clock until which it counts."""

    def _found(self, key: str) -> str | None:
        """Return what was found for an id or address, None if it must be looked up."""
        value, until = self._known.get(key, ("", 0.0))
        return value if trio.current_time() < until else None

    def _keep(self, key: str, value: str) -> None:
        """Keep what was found for its time, in the last place. "" is kept shorter, as what is missing may be made."""
        self._known.pop(key, None)
        self._known[key] = value, trio.current_time() + (KEPT if value else KEPT_UNKNOWN)
        if len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]

    # ---------------------------------------------------------------- ids to names

    async def names_of(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of people and conversations, without those that Slack does not tell in time. Raises nothing."""
        # A message full of ids must not make hundreds of calls. Some of the names are then missing, which is no
        # loss of meaning.
        unknown = [id for id in ids if self._found(id) is None][:MOST_LOOKUPS]
        # All are asked at the same time. What has come by then is used; the rest is asked for again by the next
        # message.
        if unknown:
            with trio.move_on_after(LOOKUP_TIME):
                async with trio.open_nursery() as nursery:
                    for id in unknown:
                        nursery.start_soon(self._look_up, id)
        return {id: name for id in ids if (name := self._found(id))}

    async def _look_up(self, id: str) -> None:
        """Ask for one name and keep the answer.

        A refusal is an answer: there is no name. An outage is none, so nothing is kept.
        """
        try:
            if id.startswith(USER):
                name = _name_of((await self._api.call("users.info", user=id))["user"])
            else:  # a direct conversation has no name
                name = str((await self._api.call("conversations.info", channel=id))["channel"].get("name") or "")
        except SlackRefused:
            name = ""
        except (ServiceDown, RateLimited):
            return
        self._keep(id, name)

    # ---------------------------------------------------------------- names to ids

    async def resolve(self, address: str) -> str:
        """Return the id of the conversation that an address names: "#general", "@anna", "U0123"; others are ids already.

        Raises SlackRefused if there is none that the app can see, and as `SlackApi.call`.
        """
        if not address.startswith(("#", "@", *USER)):
            return address
        key = f"to {address}"
        known = self._found(key)
        if known is None:
            known = await self._find(address)
            self._keep(key, known)
        if not known:
            kind = "channel" if address[0] == "#" else "person"
            raise SlackRefused("the address", f"there is no {kind} {address[:80]} that this app can see")
        return known

    async def _find(self, address: str) -> str:
        """Return the id of the conversation that a name means, "" for none.

        A direct conversation is opened if there was none.
        """
        wanted = address[1:]
        if address[0] == "#":
            # Slack has no call that finds a channel by its name.
            which = {"types": "public_channel,private_channel", "exclude_archived": True}
            async with aclosing(self._list("conversations.list", "channels", **which)) as found:
                async for channel in found:
                    if channel.get("name") == wanted:
                        return str(channel["id"])
            return ""
        user = await self._find_user(wanted) if address[0] == "@" else address
        return str((await self._api.call("conversations.open", users=user))["channel"]["id"]) if user else ""

    async def _find_user(self, name: str) -> str:
        """Return the id of the person with this handle, or else of the only one who is shown by this name."""
        shown: list[str] = []
        async with aclosing(self._list("users.list", "members")) as found:
            async for user in found:
                if user.get("deleted") or user.get("is_bot"):
                    continue
                if user.get("name") == name:
                    return str(user["id"])
                profile = user.get("profile") or {}
                if name in (profile.get("display_name"), profile.get("real_name")):
                    # Shown names are not unique, and anybody may choose theirs: of several people with one name
                    # none is taken.
                    shown.append(str(user["id"]))
        return shown[0] if len(shown) == 1 else ""

    async def _list(self, method: str, key: str, **params: Any) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the entries of a list, page by page. key: of the entries in a page."""
        cursor = None
        for _ in range(MOST_PAGES):
            page = await self._api.call(method, **params, limit=200, cursor=cursor)
            for entry in page[key]:
                yield entry
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return


def _name_of(user: Mapping[str, Any]) -> str:
    """Return the name that people see in Slack."""
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or profile.get("real_name") or user.get("name") or "")
