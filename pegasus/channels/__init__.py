"""Channels: what an adapter is, and the switchboard that routes replies to adapters.

A *channel type* is a kind of place where people talk: `cli`, `web`, `sms`. Its *adapter* is the actor that connects it with
the agent. The gateway is the adapter of every type that has none of its own, so most channels need no code here: a program in
any language connects to it as a bridge. docs/channels.md shows both ways of adding a channel.

* `adapter`: the messages to an adapter, and the base class of an adapter inside the process.
* `switchboard`: routes each reply to the adapter of its channel type.
* `taken_replies`: which replies the readers within the process have taken, where several read one conversation.
* `turn_follower`: what came of one message, for such a reader.

Adapters of chat services:

* `service_adapter`: their base class, which keeps order, and handles outages, limits, refusals and parking.
* `service_contract`: what they are given, what a service may refuse, and requests that it makes.
* `message_intake`: the way in, until messages are on disk. `account_ids`: their ids, with the account that has numbered them.
* `series`: messages that belong together, such as an album or a text that an app has split.
* `call_pacing`: when a call may be made, and again. `attempts`: the calls that must not be repeated.
* `delivery_log`: what a service has taken. `service_http`: HTTP to a service.
* `blocks`: Markdown in the markup of a service.
* `telegram`, `slack`, `sms`: the adapters of Telegram, of Slack, and of SMS by Twilio.

`make_adapter` is the way to one of them by its settings. It imports the service's code when it is needed, since most daemons need
none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.channels.adapter import Adapter, AdapterMessage, CatchUp, DeliverReply, ReplyRefused
from pegasus.channels.switchboard import SwitchboardMessage, run_switchboard
from pegasus.channels.taken_replies import AckTracker
from pegasus.late import late_names
from pegasus.settings import ChannelSettings, SlackSettings, SmsSettings, TelegramSettings

if TYPE_CHECKING:
    from pegasus.channels.service_adapter import ServiceAdapter
    from pegasus.channels.service_contract import (
        ChannelState,
        CredentialsRefused,
        NotKept,
        RateLimited,
        ServiceContext,
        ServiceDown,
        WebhookAnswer,
        WebhookReceiver,
        WebhookRequest,
    )
    from pegasus.channels.turn_follower import MOST_REPLIES, FollowedTurn, GrowingText, OnSaid, TurnFollower
else:
    # The base of the adapters of services, for homes that have some.
    __getattr__ = late_names(__name__)

__all__ = [
    "MOST_REPLIES",
    "AckTracker",
    "Adapter",
    "AdapterMessage",
    "CatchUp",
    "ChannelState",
    "CredentialsRefused",
    "DeliverReply",
    "FollowedTurn",
    "GrowingText",
    "NotKept",
    "OnSaid",
    "RateLimited",
    "ReplyRefused",
    "ServiceAdapter",
    "ServiceContext",
    "ServiceDown",
    "SwitchboardMessage",
    "TurnFollower",
    "WebhookAnswer",
    "WebhookReceiver",
    "WebhookRequest",
    "make_adapter",
    "run_switchboard",
]


def make_adapter(type: str, settings: ChannelSettings, context: ServiceContext) -> ServiceAdapter | None:
    """Return the adapter of a channel type that is enabled, None where none is wanted or exists."""
    if not settings.enabled:
        return None
    if isinstance(settings, TelegramSettings):
        from pegasus.channels.telegram import TelegramAdapter

        return TelegramAdapter(settings, context)
    if isinstance(settings, SlackSettings):
        from pegasus.channels.slack import SlackAdapter

        return SlackAdapter(settings, context)
    if isinstance(settings, SmsSettings):
        from pegasus.channels.sms import SmsAdapter

        return SmsAdapter(settings, context)
    return None
