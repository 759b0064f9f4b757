#!/usr/bin/env python3
"""An agent within a program of your own: a room in the terminal in which several people talk with it, each in a chat of their own.

    python examples/embedded_agent.py [HOME]

A line is `NAME: TEXT`; without a name it is yours. Lines of different people are answered side by side, lines of one person in order.
`/new`, `/stop` and `/help` are for the chat that they are written in. Reminders come to the chat that asked for them:

    anna: remind me in 10 seconds to stretch
    ben: hello

HOME is the folder of the agent (`embedded-agent`). Nothing else has to run, and without a key the built-in stand-in answers: put a key
such as ANTHROPIC_API_KEY into the environment, or settings into HOME/pegasus.toml, for a model that thinks. The end of the input
(Ctrl-D) ends the program when all is answered.
"""

from __future__ import annotations

import sys

import trio
import trio.lowlevel

from pegasus.embedding import Agent, InboundMessage, MessageRefused, OutboundMessage

CHANNEL = "cli"
"""Type of our chats. Those of "cli" are the owner's, see `agent.owners`."""
ME = "me"


def show(message: OutboundMessage) -> None:
    """Print what is said in a chat, each text once. A screen that can be redrawn would show progress, too."""
    if message.content:
        print(f"[{message.chat_id}] {message.content}", flush=True)
    for media in message.media:
        print(f"[{message.chat_id}] (a file: {media.name}, {media.mime})", flush=True)


async def answer(agent: Agent, name: str, text: str) -> None:
    """Have a line answered."""
    try:
        async for message in agent.process_message(InboundMessage(CHANNEL, name, name, text)):
            if message.is_final:
                show(message)
    except MessageRefused as refused:
        print(f"[{name}] not taken: {refused}", flush=True)


async def show_the_rest(agent: Agent) -> None:
    """Print what nobody waits for: reminders, results of tasks."""
    async for message in agent.messages():
        show(message)


async def main(home: str) -> None:
    async with Agent.create(home=home) as agent, trio.open_nursery() as everything:
        everything.start_soon(show_the_rest, agent)
        async with trio.open_nursery() as answers:
            async for line in trio.wrap_file(sys.stdin):
                name, colon, text = line.strip().partition(": ")
                if not colon:
                    name, text = ME, line.strip()
                if text:
                    answers.start_soon(answer, agent, name, text)
                    await trio.lowlevel.checkpoint()  # lines of one person are begun in their order
        everything.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "embedded-agent")
