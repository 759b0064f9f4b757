"""Chat services: the CPU of a reply through an adapter, beside that of a bare client of the same fake service.

The fake is a process of its own, so that only the senders' CPU counts. Both send the same texts to the same conversations over as many
connections. The adapter reads its replies from a journal on disk, renders them, records each message id on disk, and acknowledges.
The bare client posts the ready texts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import httpx2
import trio

from actors import Child, Ref, open_supervisor
from benchmarks.processes import PYTHON, running
from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace
from pegasus.channels import ServiceContext, make_adapter
from pegasus.intake import Intake
from pegasus.messages import ChannelInfo
from pegasus.settings import ChannelSettings, SlackSettings, SmsSettings, TelegramSettings
from pegasus.storage import Commit, FileDisk, JournalMessage, Post, UnacknowledgedChannels, run_journal
from pegasus.testing.services.slack_workspace import APP_TOKEN, BOT_TOKEN
from pegasus.testing.services.telegram import TOKEN
from pegasus.testing.services.twilio import FakeTwilio

LIMIT = 1.5
CHATS = 16
REPLIES = 25  # to each of them
TWILIO = FakeTwilio()
TEXT = "The build is **green** again: 1,204 tests in 5:40. The slowest one is `test_floods`, see the log of today."


@attrs.frozen
class Service:
    """A fake service: the program that runs it, and how both senders reach it."""

    type: str
    name: str
    fake: str
    """Program that prints its address and the conversations, with spaces between."""
    settings: Callable[[str], ChannelSettings]
    """Returns the settings of the adapter for an address."""
    path: str
    """Path below the address that a message is posted to."""
    body: Callable[[str, str], Mapping[str, Any]]
    """Returns the body of a message for a conversation and a ready text."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    auth: tuple[str, str] | None = None
    is_form: bool = False
    """The body is a form, not JSON."""


TELEGRAM = Service(
    "telegram",
    "Telegram",
    """
import trio
from pegasus.testing.services.server import open_service
from pegasus.testing.services.telegram import TelegramServer
async def main():
    async with open_service(TelegramServer()) as service:
        print(service.base_url, *range(1000, 1016), flush=True)
        await trio.sleep_forever()
trio.run(main)
""",
    lambda url: TelegramSettings(enabled=True, bot_token=TOKEN, base_url=url),
    f"/bot{TOKEN}/sendMessage",
    lambda chat, text: {"chat_id": int(chat), "text": text.replace("**", ""), "parse_mode": "HTML"},
)
SLACK = Service(
    "slack",
    "Slack",
    """
import trio
from pegasus.testing.services.slack_server import open_slack
async def main():
    async with open_slack() as server:
        slack = server.workspace
        print(server.api_url, *(slack.open_dm(slack.add_user(f"u{n}")) for n in range(16)), flush=True)
        await trio.sleep_forever()
trio.run(main)
""",
    lambda url: SlackSettings(enabled=True, bot_token=BOT_TOKEN, app_token=APP_TOKEN, base_url=url),
    "/chat.postMessage",
    lambda chat, text: {"channel": chat, "text": text.replace("**", "*")},
    {"authorization": f"Bearer {BOT_TOKEN}"},
)
SMS = Service(
    "sms",
    "SMS",
    """
import trio
from pegasus.testing.services.server import open_service
from pegasus.testing.services.twilio import FakeTwilio
async def main():
    async with open_service(FakeTwilio()) as service:
        print(service.base_url, *(f"+155502{n:02}" for n in range(16)), flush=True)
        await trio.sleep_forever()
trio.run(main)
""",
    lambda url: SmsSettings(
        enabled=True,
        account_sid=TWILIO.account_sid,
        auth_token=TWILIO.auth_token,
        from_number=TWILIO.number,
        base_url=url,
    ),
    f"/2010-04-01/Accounts/{TWILIO.account_sid}/Messages.json",
    lambda chat, text: {"To": chat, "From": TWILIO.number, "Body": text.replace("**", "")},
    auth=(TWILIO.account_sid, TWILIO.auth_token),
    is_form=True,
)


def measure(place: Workplace) -> Iterator[Result]:
    for service in (TELEGRAM, SLACK, SMS):
        yield _measure(place, service)


def _measure(place: Workplace, service: Service) -> Result:
    ours, bare = [], []
    with running([PYTHON, "-c", service.fake], log=place.log) as fake:
        url, *chats = fake.line.split()
        for number in range(-1, place.rounds(9, 2)):
            through = trio.run(_through_adapter, service, url, chats, place.folder / f"{service.type}-{number}")
            direct = trio.run(_bare, service, url, chats)
            if number < 0:  # the first round imports and compiles
                gc.collect()
                gc.freeze()  # as the daemon does when all is imported
                continue
            ours.append(through / (CHATS * REPLIES))
            bare.append(direct / (CHATS * REPLIES))
    return compared(f"CPU of a reply through {service.name}", ours, bare, "bare client", LIMIT)


def _text(number: int, chat: str) -> str:
    return f"{number} for {chat}. {TEXT}"


async def _through_adapter(service: Service, url: str, chats: list[str], folder: Path) -> float:
    """Return the CPU seconds from the adapter's start until everything is acknowledged."""
    clock = partial(lambda: int(time.time() * 1000))
    async with open_supervisor([Child("journal", partial(run_journal, clock=clock), FileDisk(folder))]) as root:
        journal: Ref[JournalMessage] = root.ref("journal")
        places = [ChannelInfo(service.type, chat) for chat in chats]
        for n in range(REPLIES):
            posts = [Post(f"{n}/{to}", _text(n, to.channel_id), to.channel_id, to, service.type) for to in places]
            await journal.ask(Commit, (), tuple(posts))
        context = ServiceContext(intake=Intake(journal), clock=clock, random=Random(1))
        adapter = make_adapter(service.type, service.settings(url), context)
        assert adapter is not None
        began = time.process_time()
        await root.start_child(Child(service.type, adapter.run, journal))
        while await journal.ask(UnacknowledgedChannels, service.type):  # noqa: ASYNC110  the journal tells nobody
            await trio.sleep(0.05)
        return time.process_time() - began


async def _bare(service: Service, url: str, chats: list[str]) -> float:
    """Return the CPU seconds of a client that does nothing but send."""
    limits = httpx2.Limits(max_connections=CHATS, max_keepalive_connections=CHATS)
    began = time.process_time()
    options: Any = {"base_url": url, "limits": limits, "headers": dict(service.headers), "auth": service.auth}
    async with httpx2.AsyncClient(**options) as client, trio.open_nursery() as nursery:
        for chat in chats:
            nursery.start_soon(_send_all, service, client, chat)
    return time.process_time() - began


async def _send_all(service: Service, client: httpx2.AsyncClient, chat: str) -> None:
    for number in range(REPLIES):
        body = service.body(chat, _text(number, chat))
        options: Any = {"data": body} if service.is_form else {"json": body}
        answer = (await client.post(service.path, **options)).json()
        assert answer.get("ok") or answer["sid"]
