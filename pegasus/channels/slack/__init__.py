"""Slack: the adapter of `[channels.slack]`.

* `adapter`: `SlackAdapter`, the actor. `sending`: texts, files, buttons, and drafts that become replies.
* `socket_mode`, `webhook`: the two ways in which Slack delivers.
* `incoming`: from a delivery to the agent; `reading` understands payloads, `content` blocks and what is shared.
* `markup`: Markdown to mrkdwn and back. `buttons`: buttons below messages, and what happens when an owner presses one.
* `api`: the Web API. `names`: people and conversations by name.
"""

from __future__ import annotations

from pegasus.channels.slack.adapter import SlackAdapter

__all__ = ["SlackAdapter"]
