"""The agent as a library: a program embeds it without a daemon, and talks with it in messages of a bus.

    import trio
    from pegasus.embedding import Agent, InboundMessage

    async def main():
        async with Agent.create({"models": {"default": "offline/stand-in"}}, home="agent-home") as agent:
            async for message in agent.process_message(InboundMessage("cli", "me", "main", "Hello")):
                if message.is_final:
                    print(message.content)

    trio.run(main)

* `agent`: `Agent`, which starts and stops everything, and its settings.
* `bus`: the messages, and their mapping to those of the rest of the product.
* `turn`: the iterators over what the agent says.
* `desk`: where that waits until it is taken.
* `adapters`: the host's own channels, to which it is brought.
* `cron`: a service for scheduled jobs of the host's own.

docs/chats.md is the page for people who write such a program. The package stands above `pegasus.app`, as the command line
does, and nothing imports it.
"""

from pegasus.channels import ReplyRefused
from pegasus.embedding.adapters import ChannelAdapter
from pegasus.embedding.agent import Agent, AgentFailed, Config
from pegasus.embedding.bus import InboundChatMessage as InboundMessage
from pegasus.embedding.bus import MessageKind, TurnUsage, attachment, content_of, session_key
from pegasus.embedding.bus import OutboundChatMessage as OutboundMessage
from pegasus.embedding.cron import CronService, FireJob
from pegasus.embedding.desk import AgentClosed
from pegasus.embedding.turn import MessageRefused, MessageStream, TurnStream
from pegasus.settings import ReloadResult

__all__ = [
    "Agent",
    "AgentClosed",
    "AgentFailed",
    "ChannelAdapter",
    "Config",
    "CronService",
    "FireJob",
    "InboundMessage",
    "MessageKind",
    "MessageRefused",
    "MessageStream",
    "OutboundMessage",
    "ReloadResult",
    "ReplyRefused",
    "TurnStream",
    "TurnUsage",
    "attachment",
    "content_of",
    "session_key",
]
