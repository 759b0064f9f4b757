"""`make_adapter`: from the settings of a channel type to its adapter. The one place that imports the code of a service."""

from __future__ import annotations

from pegasus.channels.service import ServiceAdapter
from pegasus.channels.service_context import ServiceContext
from pegasus.settings import ChannelSettings, SlackSettings, SmsSettings, TelegramSettings


def make_adapter(type: str, settings: ChannelSettings, context: ServiceContext) -> ServiceAdapter | None:
    """Return the adapter of a channel type that is enabled, None where none is wanted or exists.

    Example: `make_adapter("telegram", settings.channels["telegram"], context)`.
    """
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
