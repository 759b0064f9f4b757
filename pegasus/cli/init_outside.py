"""The questions of `pegasus init` about the outside: the service that searches the web, and the first chat service.

As the others they change the text of the settings, which is checked before the next question, and Enter leaves everything as it is.
A credential that the environment has is named and not asked for. A choice that cannot work is explained and asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import click

from pegasus.cli.config import NO_TEXT, check_text
from pegasus.host import Home
from pegasus.settings import Settings, SettingsError, SettingsSource, load_settings, set_key, unset_key

_SEARCH: Final = ("tools", "web_search")
_SEARCH_SERVICES: Final = ("duckduckgo", "searxng", "tavily", "brave", "none")
_SEARCH_KEYS: Final = {"tavily": "TAVILY_API_KEY", "brave": "BRAVE_API_KEY"}
"""Variables that hold the keys of services."""
_CREDENTIALS: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "telegram": (("bot_token", "TELEGRAM_BOT_TOKEN", "Token of your bot (write /newbot to @BotFather)"),),
    "slack": (
        ("bot_token", "SLACK_BOT_TOKEN", "Bot token of your app (xoxb-…)"),
        ("app_token", "SLACK_APP_TOKEN", "Its token for Socket Mode (xapp-…)"),
    ),
    "sms": (
        ("account_sid", "TWILIO_ACCOUNT_SID", "Account at Twilio (AC…)"),
        ("auth_token", "TWILIO_AUTH_TOKEN", "Its token"),
        ("from_number", "", 'Your number there, as "+15550100"'),
    ),
}
"""Keys of a chat service's section, the variable that stands for each where it is not set, and the question."""
_HINTS: Final = {
    "telegram": "Write to the bot when the agent runs; it answers with a code, and `{program} pair approve CODE` lets you in.",
    "slack": "docs/user/slack.md has the manifest of an app and its rights. `{program} pair approve CODE` lets you in.",
    "sms": "Twilio must reach http.public_url: docs/user/sms.md. `{program} pair approve CODE` lets you in.",
}
"""Next step of the person, for each chat service."""


def ask_web_search(home: Home, source: SettingsSource, text: str) -> str:
    """Ask which service searches the web; return the text of the settings with the answer, checked."""
    while True:
        settings = load_settings(source, content=text)
        present = settings.tools.web_search.provider or _of_environment() or "duckduckgo"
        question = "5. Which service searches the web? duckduckgo (no key), searxng, tavily, brave, none"
        answer = click.prompt(question, default=present).strip()
        if answer == present:
            return text
        address = answer if answer.startswith(("http://", "https://")) else ""
        service = "searxng" if address else answer.lower()
        if service not in _SEARCH_SERVICES:
            click.echo(f"   Found {answer!r}; allowed: {', '.join(_SEARCH_SERVICES)}, or the address of a SearXNG")
            continue
        try:
            changed = _with_search(settings, text, service, address)
            if changed is not None:
                check_text(home, source, changed)
                return changed
        except SettingsError as error:
            click.echo(f"   That does not work: {first_mistake(error, source)}")


def _with_search(settings: Settings, text: str, service: str, address: str) -> str | None:
    """Return the text with this service and what it wants; None if that was not given."""
    # The key and the address of another service would go to this one.
    before = settings.tools.web_search
    for key, value in (("api_key", before.api_key), ("base_url", before.base_url)):
        if value and settings.origins.get(".".join((*_SEARCH, key))) == str(settings.source.file):
            text = unset_key(text, (*_SEARCH, key))
    text = set_key(text, (*_SEARCH, "provider"), service, by_init=True)
    if service == "searxng":
        address = address or click.prompt("   Address of your SearXNG (http://…)", "", show_default=False).strip()
        if not address.startswith(("http://", "https://")):
            click.echo("   Without its address it cannot be asked.")
            return None
        return set_key(text, (*_SEARCH, "base_url"), address, by_init=True)
    variable = _SEARCH_KEYS.get(service, "")
    if variable and not os.environ.get(variable):
        key = ask_secret(f"   API key of {service}, not shown while you type", f"tools.web_search.{variable}")
        if not key:
            click.echo("   Without a key it does not answer.")
            return None
        return set_key(text, (*_SEARCH, "api_key"), key, by_init=True)
    return text


def _of_environment() -> str:
    """Return the service that the environment names, "" for none."""
    found = [name for name, variable in _SEARCH_KEYS.items() if os.environ.get(variable)]
    return next(iter(found), "searxng" if os.environ.get("SEARXNG_BASE_URL") else "")


def ask_channel(home: Home, source: SettingsSource, text: str, program: str) -> str:
    """Ask from which chat service the agent is to be reached; return the text of the settings with the answer, checked.

    program: the command that leads to this home, for the hint about the next step.
    """
    while True:
        settings = load_settings(source, content=text)
        there = [name for name in _CREDENTIALS if name in settings.channels and settings.channels[name].enabled]
        kept = f"Enter: only {', '.join(there)}, as now" if there else "Enter: not now"
        question = f"6. Reach it from a chat service, too? {', '.join(_CREDENTIALS)} ({kept})"
        answer = click.prompt(question, default="", show_default=False).strip().lower()
        if not answer:
            return text
        if answer not in _CREDENTIALS:
            click.echo(
                f"   Found {answer!r}; allowed: {', '.join(_CREDENTIALS)}; others by bridges: docs/user/bridges.md"
            )
            continue
        try:
            changed = _with_channel(settings, text, answer)
            if changed is None:
                continue
            check_text(home, source, changed)
        except SettingsError as error:
            click.echo(f"   That does not work: {first_mistake(error, source)}")
            continue
        click.echo(f"   {_HINTS[answer].format(program=program)}")
        return changed


def _with_channel(settings: Settings, text: str, channel: str) -> str | None:
    """Return the text with the section of a chat service and its credentials; None if one was not given."""
    text = set_key(text, ("channels", channel, "enabled"), True, by_init=True)
    for key, variable, question in _CREDENTIALS[channel]:
        present = getattr(settings.channels.get(channel), key, "")
        if not present and variable and os.environ.get(variable):
            click.echo(f"   {question}: found in {variable}")
            continue
        keeps = " (Enter keeps the present one)" if present else ""
        if key in ("account_sid", "from_number"):
            value = click.prompt(f"   {question}{keeps}", "", show_default=False).strip()
        else:
            value = ask_secret(f"   {question}{keeps}, not shown while you type", f"channels.{channel}.{key}")
        if value:
            text = set_key(text, ("channels", channel, key), value, by_init=True)
        elif not present:
            click.echo(f"   Without it {channel} cannot be used.")
            return None
    return text


def ask_secret(question: str, key: str) -> str:
    """Return what is typed without being shown, as settings take it. Raises SettingsError for bytes that are no text."""
    try:
        # The arguments are the default and `hide_input`.
        typed = click.prompt(question, "", True, show_default=False)
    except UnicodeDecodeError:
        raise SettingsError([f"{key}: {NO_TEXT}"]) from None
    return str(typed).strip().replace("${", "$${")


def first_mistake(error: SettingsError, source: SettingsSource) -> str:
    """Return the first mistake without the name of the file, which is not written yet."""
    return str(error).splitlines()[0].removeprefix(f"{source.file}: ")
