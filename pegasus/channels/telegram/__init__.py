"""Telegram: the adapter of `[channels.telegram]`, on the Bot API (https://core.telegram.org/bots/api).

* `api`: calls of the Bot API, with its refusals as exceptions.
* `parts` (of messages that belong together), `updates`: what people wrote, from the JSON of an update to a message for the agent.
* `markup`: Markdown to the HTML that Telegram understands.
* `buttons`: buttons below messages, and what happens when an owner presses one.
* `sending`: texts, files, buttons, and drafts that become replies.
* `adapter`: the actor: polling or webhook, and typing.
"""

from pegasus.channels.telegram.adapter import TelegramAdapter

__all__ = ["TelegramAdapter"]
