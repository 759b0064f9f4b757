"""Keys of `[channels.NAME]`: access for every channel type, and what the adapters of Telegram, Slack and SMS need.

One class holds the keys about access, because they are the same for an adapter and for a bridge. A service with an adapter has a class
of its own with these keys and its credentials. Such a section exists only where a person has written it: a type without a section
is open to everybody, as for a bridge of one's own.

`access` and `enabled` are apart: access also counts for a bridge, which is a program of one's own and needs no adapter. In a
file, and in a program::

    [channels.telegram]
    enabled = true
    bot_token = "${TELEGRAM_BOT_TOKEN}"

    Settings(channels={"telegram": TelegramSettings(enabled=True, bot_token="123:abc")}).channels["telegram"].access  # ""
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pegasus.settings.keys import choice, flag, ids, text


@attrs.frozen(eq=False, repr=False)
class ChannelSettings:
    """A way to reach people; NAME is a channel type, also that of your own bridge. A type without a section is open to everybody."""

    enabled: bool = flag(False, "whether the adapter of this type runs; a bridge does not need it")
    access: str = choice(
        "",
        '"pairing": somebody unknown gets a code, which the owner approves; "allow_list": only those in allow_from, nobody else is '
        'answered; "open": everybody; "" = "pairing", but for cli, web and api: "allow_list" with allow_from, else "open"',
        "",
        "pairing",
        "allow_list",
        "open",
    )
    allow_from: tuple[str, ...] = ids("userIds and channelIds that may write; owners need not be among them")
    groups: str = choice(
        "mention",
        'what is heard in groups: "mention": what is meant for the agent; "all": everything; "off": nothing',
        "mention",
        "all",
        "off",
    )


@attrs.frozen(eq=False, repr=False)
class TelegramSettings(ChannelSettings):
    """Telegram: a bot of your own, see docs/user/telegram.md."""

    # The token may be left out where the variable is set (CHANNEL_VARIABLES). "poll" needs no address that the outside can reach.
    bot_token: str = text("", "the token that @BotFather gave you; usually ${TELEGRAM_BOT_TOKEN}", secret=True)
    mode: str = choice(
        "poll", '"poll": asks Telegram for messages; "webhook": Telegram calls http.public_url', "poll", "webhook"
    )
    base_url: str = text("https://api.telegram.org", "the Bot API, also a server of your own", filled=True)


@attrs.frozen(eq=False, repr=False)
class SlackSettings(ChannelSettings):
    """Slack: an app of your own, see docs/user/slack.md."""

    # With `app_token` the adapter connects to Slack, and nothing has to reach this machine; with `signing_secret` Slack calls it.
    bot_token: str = text("", "the bot token of the app (xoxb-…); usually ${SLACK_BOT_TOKEN}", secret=True)
    app_token: str = text(
        "", 'the token for Socket Mode (xapp-…); "" = the Events API, with signing_secret', secret=True
    )
    signing_secret: str = text("", "the secret that Slack signs its requests with", secret=True)
    base_url: str = text("https://slack.com/api", "the Web API", filled=True)


@attrs.frozen(eq=False, repr=False)
class SmsSettings(ChannelSettings):
    """SMS by Twilio, see docs/user/sms.md."""

    # `provider` has one value today. It is a key so that a file keeps its meaning when there are others.
    provider: str = choice("twilio", "the service", "twilio")
    account_sid: str = text("", "the account (AC…); usually ${TWILIO_ACCOUNT_SID}")
    auth_token: str = text("", "its token; usually ${TWILIO_AUTH_TOKEN}", secret=True)
    from_number: str = text("", 'your number, as "+15550100"')
    base_url: str = text("https://api.twilio.com", "the API", filled=True)


SERVICE_SECTIONS: Final[Mapping[str, type[ChannelSettings]]] = {
    "telegram": TelegramSettings,
    "slack": SlackSettings,
    "sms": SmsSettings,
}
"""Classes of the sections of services, by channel type."""
CHANNEL_VARIABLES: Final = {
    "TELEGRAM_BOT_TOKEN": ("telegram", "bot_token"),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "TWILIO_ACCOUNT_SID": ("sms", "account_sid"),
    "TWILIO_AUTH_TOKEN": ("sms", "auth_token"),
}
"""Usual variables of the services, and the key that each stands in for where a section exists and does not set it."""


def standard_channels() -> Mapping[str, ChannelSettings]:
    """Return the sections that exist without being written. The terminal is the only channel that is open then."""
    return {"cli": ChannelSettings(enabled=True)}
