"""`SmsAdapter`: the actor that connects Twilio's SMS with the agent.

In: Twilio calls `POST /channels/sms/twilio` for each message. The answer comes when the message is on disk, within Twilio's patience:
files of an MMS are fetched for FILES_WITHIN seconds at most before it, and go on being fetched behind it. What is still to be fetched
is on disk, too, and is taken up again after a crash. A file that cannot be had is named in the message instead.

Out: a reply as one or more messages of plain text, each of at most 1,600 characters (`pieces`). Files go out as links, pictures also
as MMS.

**Once.** The Messages API cannot recognise a repeated call. So where the outcome of a call is not known (`attempts`), Twilio is asked
first which messages the person was sent. One with this text that is newer than the last one on record counts as ours.

**Files.** `_take_message` writes the message as a fact of the delivery log, and a task fetches its files. That task hands in the
message and then forgets the fact. A crash in between hands it in again at the next start; the inbox knows its id. Files of people
who may not write are not fetched at all, since each costs time and memory.

**Signatures.** A request is judged by its signature before anything is said about its form, so that somebody without the token
learns nothing. Links of files need no signature: the key in the link is one (`file_links`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from typing import Final
from urllib.parse import quote

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.channels.account_ids import MessageIds
from pegasus.channels.adapter import AdapterMessage, ReplyRefused
from pegasus.channels.attempts import SendAttempts
from pegasus.channels.call_pacing import try_for
from pegasus.channels.series import SeriesGatherer
from pegasus.channels.service_adapter import ServiceAdapter
from pegasus.channels.service_contract import NotKept, ServiceContext, ServiceDown, WebhookAnswer, WebhookRequest
from pegasus.channels.sms.api import FileRefused, SentSms, TwilioApi
from pegasus.channels.sms.file_links import LINK_PATH, SHOWN_TYPES, find_file
from pegasus.channels.sms.pieces import SmsPiece, sms_pieces
from pegasus.channels.sms.webhook import (
    QUIET,
    TYPE,
    NoSms,
    RemoteFile,
    Sms,
    is_signed_by_twilio,
    join_parts,
    parse_form,
    part_of,
    read_sms,
    signed_address,
)
from pegasus.messages import Media, OutboundMessage
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.settings import SmsSettings
from pegasus.storage import JournalMessage, StorageError
from pegasus.wire import encode_json, from_wire, to_wire

WEBHOOK_PATH: Final = "/channels/sms/twilio"
"""Path that is entered in Twilio's console. It has no secret, since requests are signed."""
FILES_WITHIN: Final = 2.0
"""Seconds that the answer to a webhook waits for files. Twilio gives up after 15."""
START_WITHIN: Final = 8.0
"""Seconds that a webhook waits for the start of the actor, which knows how messages are numbered."""
FILES_FOR: Final = 120.0
"""Seconds for which a file is tried."""
SENT_LATELY: Final = 3600.0
"""Seconds within which a message of unknown outcome is looked for where no earlier one is on record."""
SENT: Final = "sent"
"""Mark of an attempt: Twilio can be asked for every message."""
NOTHING_TO_SAY: Final = b'<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
"""An answer in TwiML by which Twilio does nothing."""

_log = get_logger("sms")


class SmsAdapter(ServiceAdapter):
    """The adapter of `[channels.sms]`, and the receiver of Twilio's webhooks: `SmsAdapter(settings.channels["sms"], context)`."""

    def __init__(self, settings: SmsSettings, context: ServiceContext) -> None:
        super().__init__(TYPE, context)
        self.settings = settings
        self.api = TwilioApi(
            settings.base_url, settings.account_sid, settings.auth_token, settings.from_number, context.transport
        )
        self._attempts = SendAttempts(self.log)
        self._journal: Ref[JournalMessage] | None = None
        self._ids = MessageIds(self.log, context.clock)
        self._series = SeriesGatherer(self.log, Sms, part_of, join_parts, self._deliver_series, QUIET)

    async def run(self, inbox: Inbox[AdapterMessage], journal: Ref[JournalMessage]) -> None:
        """Deliver and hear until stopped; see `Adapter.run`."""
        self._journal = journal
        await super().run(inbox, journal)

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Return the connections of a run of the actor."""
        return aclosing(self.api.http)

    async def listen(self) -> None:
        """Check the account, take up what is still to be fetched, and wait: messages come by the webhook."""
        await self._ids.use(self._account(self.settings.from_number))
        await self.api.check()
        self.is_up(self.settings.from_number)
        # Only when the account is known to work: files are fetched with its credentials.
        self._take_up_files()
        if self.background is not None:
            self._series.resume(self.background)
        await trio.sleep_forever()

    # ---------------------------------------------------------------- in

    async def receive(self, request: WebhookRequest) -> WebhookAnswer:
        """Answer a request of Twilio, or of somebody who opens the link of a file. See `WebhookReceiver`."""
        if request.method in ("GET", "HEAD") and request.path.startswith(LINK_PATH):
            return await self._serve_file(request.path)
        if request.method != "POST" or request.path != WEBHOOK_PATH:
            return WebhookAnswer(404)
        try:
            # A body that is no form is judged by its signature as well, as an empty form, before it is refused.
            form, problem = parse_form(request.body), ""
        except NoSms as error:
            form, problem = (), str(error)
        address = signed_address(self.context.public_url, request.url, request.path)
        if not is_signed_by_twilio(
            self.settings.auth_token, address, form, request.headers.get("x-twilio-signature", "")
        ):
            _log.warning("a webhook with a wrong signature was refused", address=address)
            return WebhookAnswer(401)
        try:
            if problem:
                raise NoSms(problem)
            sms = read_sms(form)
        except NoSms as error:
            problem = encode_json({"error": {"code": "bad_request", "message": str(error)}})
            return WebhookAnswer(400, problem.encode(), "application/json")
        try:
            # None is a note about a message of ours, or something that Twilio has answered itself.
            if sms is not None:
                await self._take_message(await self._identified(sms))
        except NotKept as error:
            _log.error("a message cannot be kept", reason=str(error))
            return WebhookAnswer(503)
        return WebhookAnswer(200, NOTHING_TO_SAY, "text/xml; charset=utf-8")

    async def _identified(self, sms: Sms) -> Sms:
        """Return a message with the account and the number that it was sent to in its id. Raises NotKept."""
        if self.state.state == "elsewhere":
            raise NotKept("another node serves this channel")
        with trio.move_on_after(START_WITHIN):
            await self._ids.known.wait()
        if not self._ids.known.is_set():
            raise NotKept("the channel has not started yet")
        return attrs.evolve(sms, id=self._ids.of(sms.id, account=self._account(sms.to or self.settings.from_number)))

    def _account(self, number: str) -> str:
        return f"{self.settings.account_sid}.{number}"

    async def _take_message(self, sms: Sms) -> None:
        """Take a message; return when it is on disk, alone or as a part of a series. Raises NotKept."""
        if not await self._series.take(sms, partial(self._is_let_in, sms), self.background):
            await self._hand_in(sms)

    async def _is_let_in(self, sms: Sms) -> bool:
        message = sms.to_message()
        return await self.refusal_of(message.channel, message.metadata) is None

    async def _deliver_series(self, sms: Sms) -> None:
        """Hand in a series as one message. Twilio has forgotten it, so it is tried until it is on disk or will never be taken."""
        await retry(partial(self._hand_in, sms), NotKept)

    async def _hand_in(self, sms: Sms) -> None:
        """Hand a message in; return when it is on disk, or when its files are on their way and that is on disk. Raises NotKept."""
        message = sms.to_message()
        # Nothing is fetched for strangers.
        if not sms.files or await self.refusal_of(message.channel, message.metadata) is not None:
            await self.accept(message)
        # The actor does not run at the moment. Its files could not be fetched now, and Twilio's patience is
        # short, so they are named.
        elif self.background is None:
            await self.accept(sms.to_message(notes=tuple(_note(file, "not fetched") for file in sms.files)))
        else:
            # On disk before anything is fetched: the answer below may be given before the files are there.
            await self.log.set_fact(_pending(sms.id), to_wire(sms))
            await self.start_work(partial(self._fetch_and_accept, sms)).is_kept_within(FILES_WITHIN)

    def _take_up_files(self) -> None:
        """Fetch what was to be fetched when the daemon ended.

        Each message gets a task of its own, and nobody waits for them.
        """
        for key in self.log.fact_keys(_pending("")):
            with suppress(ValueError):  # of another version; it is left alone
                self.start_work(partial(self._fetch_and_accept, from_wire(self.log.fact(key), Sms)))

    async def _fetch_and_accept(self, sms: Sms) -> None:
        """Fetch the files of a message and hand it in until it is kept.

        Cancelled, the fact stays, and `_take_up_files` begins anew with the next run of the actor.
        """
        media, notes = [], []
        for file in sms.files:
            try:
                content = await try_for(FILES_FOR, partial(self.api.fetch, file), self.context.random)
            except (ReplyRefused, ServiceDown) as error:
                _log.warning("a file of an MMS cannot be fetched", file=file.name, reason=str(error))
                notes.append(_note(file, str(error)))
            else:
                media.append(Media(file.name, file.mime, base64.b64encode(content).decode()))
        await retry(partial(self.accept, sms.to_message(tuple(media), tuple(notes))), NotKept)
        # Forgotten only when the message is on disk. A crash in between hands it in again, which the inbox
        # recognises by its id.
        await self.log.set_fact(_pending(sms.id), None)

    async def _serve_file(self, path: str) -> WebhookAnswer:
        """Answer somebody who opens the link of a file."""
        if self._journal is None:
            return WebhookAnswer(503)
        try:
            found = await find_file(path, self.settings.auth_token, self._journal)
        except (StorageError, ActorError):
            return WebhookAnswer(503)
        if found is None:
            return WebhookAnswer(404)
        name, mime, content = found
        # Anything that a browser could run is offered for saving only.
        kind = mime if mime in SHOWN_TYPES else "application/octet-stream"
        place = "inline" if kind == mime else "attachment"
        headers = {
            "content-disposition": f"{place}; filename*=UTF-8''{quote(name)}",
            "x-content-type-options": "nosniff",
        }
        return WebhookAnswer(200, content, kind, headers)

    # ---------------------------------------------------------------- out

    def pieces(self, reply: OutboundMessage) -> Sequence[SmsPiece]:
        """Return the messages of a reply; see `sms_pieces`."""
        return sms_pieces(reply, self.context.public_url, self.settings.auth_token)

    async def send(self, reply: OutboundMessage, piece: SmsPiece, number: int) -> str:
        """Send a message, unless Twilio has it already; see `ServiceAdapter.send`."""
        to = reply.channel.channel_id
        found = await self._attempts.find(reply, number, partial(self._find_sent, to, piece.text))
        if found:
            return found
        return await self._attempts.make(reply, number, partial(self._send_sms, to, piece), SENT)

    async def _send_sms(self, to: str, piece: SmsPiece) -> str:
        """Send a message, without its pictures if Twilio refuses those: their links are in the text."""
        try:
            return await self.api.send(to, piece.text, piece.pictures)
        except FileRefused as error:  # the text has not gone out
            _log.info("Twilio refuses the pictures; their links go out alone", reason=str(error))
            return await self.api.send(to, piece.text)

    async def _find_sent(self, to: str, text: str) -> str | None:
        """Return the id of the message with this text that Twilio has taken and that is not on record yet; see `LookUp`."""
        messages = await self.api.sent_to(to)
        if messages is None:
            return None
        # Messages come newest first. Those behind the last one on record were sent before this piece.
        on_record = self.log.last_id(to)
        found = ""
        for sent in messages:
            if sent.sid == on_record:
                return found
            if sent.body == text and (on_record or self._is_recent(sent)):
                found = sent.sid  # the oldest counts, since those behind it may be of later replies
        return None if on_record else found  # with one on record that is not among them, nothing can be said

    def _is_recent(self, sent: SentSms) -> bool:
        """Return whether Twilio has taken a message within SENT_LATELY.

        One without a time that can be read is not.
        """
        created = sent.created
        return created is not None and self.context.clock() / 1000 - created.timestamp() < SENT_LATELY


def _pending(id: str) -> str:
    """Return the key under which a message is on record whose files are being fetched."""
    return f"files/{id}"


def _note(file: RemoteFile, reason: str) -> str:
    return f"[file {file.name} ({file.mime}) was sent but could not be fetched: {reason}]"
