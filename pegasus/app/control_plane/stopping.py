"""The control call `interrupt`: end the answer that is being made for a conversation, and nothing else.

Ctrl-C and Esc in the terminal and Stop on the web page call it. Everybody may end the answer to their own message, as with `/stop`; an
owner any answer. So the scope "message" is enough for a client, and the person decides what ends by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import Principal, Role, is_owner
from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, Method, NotAllowed, Params
from pegasus.intake import Priority, is_name
from pegasus.main_agent import MainAgents, ended_json, interrupt_text
from pegasus.messages import ChannelInfo, Json, TaskProgress
from pegasus.settings import LiveValue
from pegasus.storage import JournalMessage, StorageError, Waiting
from pegasus.tasks import ListTasks, TaskAgentMessage, is_visible
from pegasus.wire import to_wire

LOOK_TIMEOUT: Final = 1.0
"""Seconds that what goes on may take to be listed; without it the receipt says only what was ended."""


@attrs.frozen(eq=False, repr=False)
class InterruptMethod:
    """The answer that is being made: `interrupt`.

    Example::

        method = InterruptMethod(main_agent, tasks, journal, owners, wall_clock)
        receipt = await method.call(caller, {"channel": {"type": "cli", "channelId": "main"}})
        receipt["interrupted"], receipt["text"]
    """

    main_agent: MainAgents
    """Ends the answer."""
    tasks: Ref[TaskAgentMessage]
    """Knows the tasks that go on."""
    journal: Ref[JournalMessage]
    """Knows the messages that wait."""
    owners: LiveValue[Collection[str]]
    """The setting `agent.owners`."""
    clock: Callable[[], int]
    """Wall clock, ms."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"interrupt": self.call}

    async def call(self, caller: Caller, params: Params) -> Json:
        """End the answer that is being made for `channel` (left out: the conversation of the caller), and say what goes on.

        It returns when nothing of the answer runs and the session says that it was ended. `interrupted` is false if there was none,
        or if it is made for somebody else and the caller is no owner. Cancelling the call does not take it back.
        """
        channel = _channel_of(caller, params)
        person = self._person(caller, channel)
        ended = await self.main_agent.interrupt(channel.address, person, f"the user ({caller.type})")
        tasks, waiting = await self._what_goes_on(channel, person) if ended is not None else ((), 0)
        return {
            "interrupted": ended is not None,
            "text": interrupt_text(ended, tasks, waiting),
            **({} if ended is None else {"ended": ended_json(ended)}),
            "tasks": [to_wire(task) for task in tasks],
            "waiting": waiting,
        }

    def _person(self, caller: Caller, channel: ChannelInfo) -> Principal:
        """Return who asks. Raises NotAllowed if that is no owner, and the conversation is none of theirs."""
        speaks_for_owners = caller.is_owner(self.owners.now)
        is_bridge_of_it = caller.channel_id is None and channel.type == caller.type
        if is_bridge_of_it and caller.grant.vouches_for(caller.type):  # whoever writes there
            speaks_for_owners = speaks_for_owners or is_owner(channel, self.owners.now)
        if speaks_for_owners:
            return Principal(Role.OWNER, channel)
        if channel.type != caller.type or caller.channel_id not in (None, channel.channel_id):
            raise NotAllowed("channel: only an owner may interrupt an answer in another conversation")
        user_id = channel.user_id if caller.channel_id is None else caller.user_id
        channel = attrs.evolve(channel, user_id=user_id)
        account = caller.grant.account_of(channel, is_bridge=caller.channel_id is None)
        return Principal(Role.GUEST, channel, account, is_apart=True)

    async def _what_goes_on(self, channel: ChannelInfo, person: Principal) -> tuple[Sequence[TaskProgress], int]:
        """Return the unfinished tasks of the conversation that the person may see, and the number of messages that wait there."""
        tasks: list[TaskProgress] = []
        waiting = 0
        with trio.move_on_after(LOOK_TIMEOUT), suppress(ActorError, StorageError):
            waiting = await self.journal.ask(Waiting, channel.address, "main", Priority.PERSON)
            for task in await self.tasks.ask(ListTasks, None):
                progress = task.progress(self.clock())
                if (
                    not task.is_over
                    and progress.channel.address == channel.address
                    and is_visible(task.channel, person, task.metadata)
                ):
                    tasks.append(progress)
        return sorted(tasks, key=lambda task: task.number), waiting


def _channel_of(caller: Caller, params: Params) -> ChannelInfo:
    """Return the conversation that is meant: `channel` with `type`, `channelId` and, from a bridge, `userId`. Raises BadParams."""
    given = params.get("channel", {})
    if not isinstance(given, dict):
        raise BadParams("channel: allowed: an object with type and channelId")
    names = {"type": caller.type, "channelId": caller.channel_id, **given}
    for key in ("type", "channelId", "userId"):
        name = names.get(key)
        if name is None and key == "channelId":
            raise BadParams("channel.channelId: missing; a bridge must name the conversation")
        if not (name is None and key == "userId") and not (isinstance(name, str) and is_name(name)):
            raise BadParams(f"channel.{key}: found {quote(name, 40)}, allowed: the name of a channel as in a message")
    user_id = names.get("userId")
    return ChannelInfo(str(names["type"]), str(names["channelId"]), user_id if isinstance(user_id, str) else None)
