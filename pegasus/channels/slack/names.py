"""Names of people and conversations of a Slack workspace: ids to names for what comes in, names to ids for what goes out.

    names = SlackNames(api)
    await names.of_users({"U1"})        # {"U1": "anna"}
    await names.resolve("#general")     # "C0123"
    await names.resolve("@anna")        # "D0456", the direct conversation with her

Answers are kept for a while, and only a bounded number of them. A name that is not found is looked up again after a minute: the
channel may have been made, or the app invited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import trio

from pegasus.channels.service_contract import RateLimited, ServiceDown
from pegasus.channels.slack.api import SlackApi, SlackRefused

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


class _Kept:
    """Answers with their time of expiry."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, float]] = {}

    def get(self, key: str) -> str | None:
        """Return an answer that still counts; "" means that there is none."""
        value, until = self._entries.get(key, ("", 0.0))
        return value if trio.current_time() < until else None

    def put(self, key: str, value: str) -> None:
        """Keep an answer for its time, in the last place. "" is kept shorter, as what is missing may be made."""
        self._entries.pop(key, None)
        self._entries[key] = value, trio.current_time() + (KEPT if value else KEPT_UNKNOWN)
        while len(self._entries) > MOST_KEPT:
            del self._entries[next(iter(self._entries))]


class SlackNames:
    """The names that were looked up.

    Example: see the top of this file.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._users = _Kept()
        """Names by id."""
        self._channels = _Kept()
        """Names by id."""
        self._addresses = _Kept()
        """Ids of conversations by name, as "#general", "@anna" or "U0123"."""

    # ---------------------------------------------------------------- ids to names

    async def of_users(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of these people, without those that Slack does not tell now. Raises nothing."""
        return await self._names(ids, self._users, self._user_name)

    async def of_channels(self, ids: Collection[str]) -> dict[str, str]:
        """Return the names of these conversations, without those that Slack does not tell now. Raises nothing."""
        return await self._names(ids, self._channels, self._channel_name)

    async def _names(self, ids: Collection[str], kept: _Kept, look_up: Any) -> dict[str, str]:
        """Return the names that are known in time. kept: answers of this kind. look_up: asks Slack for one."""
        found = {id: kept.get(id) for id in ids}
        # A message full of ids must not make hundreds of calls. Some of the names are then missing, which is no
        # loss of meaning.
        unknown = [id for id, name in found.items() if name is None][:MOST_LOOKUPS]
        # All are asked at the same time. What has come by then is used; the rest is asked for again by the next
        # message.
        with trio.move_on_after(LOOKUP_TIME):
            async with trio.open_nursery() as nursery:
                for id in unknown:
                    nursery.start_soon(self._look_up, id, kept, look_up)
        names = {id: kept.get(id) for id in ids}
        return {id: name for id, name in names.items() if name}

    async def _look_up(self, id: str, kept: _Kept, look_up: Any) -> None:
        """Ask for one name and keep the answer.

        A refusal is an answer: there is no name. An outage is none, so nothing is kept.
        """
        try:
            kept.put(id, await look_up(id))
        except SlackRefused:
            kept.put(id, "")
        except (ServiceDown, RateLimited):
            pass

    async def _user_name(self, id: str) -> str:
        """Return the name of a person. Raises as `SlackApi.call`."""
        return _name_of((await self._api.call("users.info", user=id))["user"])

    async def _channel_name(self, id: str) -> str:
        """Return the name of a conversation; "" for a direct one, which has none."""
        return str((await self._api.call("conversations.info", channel=id))["channel"].get("name") or "")

    # ---------------------------------------------------------------- names to ids

    async def resolve(self, address: str) -> str:
        """Return the id of the conversation that an address names: "#general", "@anna", "U0123"; others are ids already.

        Raises SlackRefused if there is none that the app can see, and as `SlackApi.call`.
        """
        if address[:1] not in ("#", "@", "U", "W"):
            return address
        known = self._addresses.get(address)
        if known is None:
            known = await self._find(address)
            self._addresses.put(address, known)
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
            return await self._find_channel(wanted)
        user = await self._find_user(wanted) if address[0] == "@" else address
        return str((await self._api.call("conversations.open", users=user))["channel"]["id"]) if user else ""

    async def _find_channel(self, name: str) -> str:
        """Return the id of a channel, "" if none that the app can see has this name."""
        # Slack has no call that finds a channel by its name, so the list is read page by page until it is
        # found.
        types = "public_channel,private_channel"
        cursor = ""
        for _ in range(MOST_PAGES):
            page = await self._api.call(
                "conversations.list", types=types, exclude_archived=True, limit=200, cursor=cursor or None
            )
            for channel in page["channels"]:
                if channel.get("name") == name:
                    return str(channel["id"])
            cursor = _next_cursor(page)
            if not cursor:
                break
        return ""

    async def _find_user(self, name: str) -> str:
        """Return the id of the person with this handle, or else of the only one who is shown by this name."""
        shown: list[str] = []
        cursor = ""
        for _ in range(MOST_PAGES):
            page = await self._api.call("users.list", limit=200, cursor=cursor or None)
            for user in page["members"]:
                if user.get("deleted") or user.get("is_bot"):
                    continue
                if user.get("name") == name:
                    return str(user["id"])
                profile = user.get("profile") or {}
                if name in (profile.get("display_name"), profile.get("real_name")):
                    # Shown names are not unique, and anybody may choose theirs: of several people with one name
                    # none is taken.
                    shown.append(str(user["id"]))
            cursor = _next_cursor(page)
            if not cursor:
                break
        return shown[0] if len(shown) == 1 else ""


def _next_cursor(page: Mapping[str, Any]) -> str:
    """Return the place of the next page of a list, "" behind the last one."""
    return str((page.get("response_metadata") or {}).get("next_cursor") or "")


def _name_of(user: Mapping[str, Any]) -> str:
    """Return the name that people see in Slack."""
    profile = user.get("profile") or {}
    return str(profile.get("display_name") or profile.get("real_name") or user.get("name") or "")
