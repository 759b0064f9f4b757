"""Channels: what an adapter is, and the switchboard that routes replies to adapters.

A *channel type* is a kind of place where people talk: `cli`, `web`, `sms`. Its *adapter* is the actor that connects it with
the agent. The gateway is the adapter of every type that has none of its own, so most channels need no code here: a program in
any language connects to it as a bridge. docs/channels.md shows both ways of adding a channel.

* `adapter`: the messages to an adapter, and the base class of an adapter inside the process.
* `switchboard`: routes each reply to the adapter of its channel type.
* `taken_replies`: which replies the readers within the process have taken, where several read one conversation.
* `service`: the base class of the adapters of chat services: a queue for each conversation, outages, limits, refusals, parking.
  `outgoing_chat` has the queue, `attempts` the calls that must not be repeated, `outages` its pauses, `refusals` what a service may
  say, `delivery_log` what a service has taken, `message_intake` its messages until they are on disk, `in_a_row` the end of what
  would repeat for ever.
* `service_context`: what the adapters of chat services are given. `service_http`: HTTP to a service.
* `webhooks`: the agreement with the HTTP server about requests that a service makes.
* `telegram`, `slack`, `sms`: the adapters of Telegram, of Slack, and of SMS by Twilio.
* `splitting`, `blocks`, `plain_text`: Markdown in pieces that fit into a message, in a service's markup, and as plain text.

`make_adapter` (in `making`) is the way to an adapter by its settings. It imports the service's code when it is needed, since most
daemons need none.
"""

from __future__ import annotations

from pegasus.channels.adapter import Adapter, AdapterMessage, CatchUp, DeliverReply, ReplyRefused
from pegasus.channels.making import make_adapter
from pegasus.channels.refusals import CredentialsRefused, NotKept, RateLimited, ServiceDown
from pegasus.channels.service import ServiceAdapter
from pegasus.channels.service_context import ChannelState, ServiceContext
from pegasus.channels.switchboard import SwitchboardMessage, run_switchboard
from pegasus.channels.taken_replies import TakenReplies
from pegasus.channels.webhooks import WebhookAnswer, WebhookReceiver, WebhookRequest

__all__ = [
    "Adapter",
    "AdapterMessage",
    "CatchUp",
    "ChannelState",
    "CredentialsRefused",
    "DeliverReply",
    "NotKept",
    "RateLimited",
    "ReplyRefused",
    "ServiceAdapter",
    "ServiceContext",
    "ServiceDown",
    "SwitchboardMessage",
    "TakenReplies",
    "WebhookAnswer",
    "WebhookReceiver",
    "WebhookRequest",
    "make_adapter",
    "run_switchboard",
]
