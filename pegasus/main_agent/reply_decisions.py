"""Decisions about replies: where each goes, and whether it goes out at once, an owner is asked about it, or it is refused.

A model names the receiver of a reply. The journal knows what that means (`pegasus.storage.directory`), so it is asked first (`route`);
from then on the post carries the channel that was found. Whatever looks at the receiver afterwards, the policy, the files and the
journal itself, looks at the same value.

A reply leaves the conversation at hand if it goes anywhere else than where the message came from, and its receiver is not an owner. An
owner's conversation is one that `agent.owners` names, or any on a door that only tokens open (a terminal, a page, an HTTP client), but
no conversation that a client without the rights of an owner may speak as: "web:*" is no promise about the page of a guest. Files leave
also where others read along. A reply that leaves is decided about if anything from outside stands in the conversation, whoever has
begun the turn: the words may be there that made the model send it.

A scheduled job answers where its maker has told it to. If that is not where the job was made, and its maker had read text from
outside, that text may have chosen the place, so a reply there counts as leaving.

A reply that leaves is put to the policy like a call of a tool named `reply`, which sends
something and cannot be taken back. Where the policy asks, the reply is *held*: it becomes an approval, whose arguments are all that
would be sent. A yes sends exactly that (`pegasus.app`), whatever has become of the conversation by then; files are the copies that
were made when it was written. The turn does not wait for it.

Where only the files of a reply leave, since its text goes back to where the message came from, the text goes out at once and the files
are held. So nobody waits for an answer because of a file.

An owner is asked after the thought is written, so no yes can send what no session shows. A crash in between loses the question: the
call counts as not carried out, and the model decides again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from actors import Ref
from pegasus.access import OWN_TYPES, AskedCall, Decision, Principal, Ruling, is_group, is_owner
from pegasus.main_agent.owner_words import OwnerWords
from pegasus.main_agent.replies import (
    ACCEPTED,
    REPLY,
    WantedReply,
    media_paths,
    post_outcome,
    refused_outcome,
    unroutable_reason,
)
from pegasus.main_agent.sent_files import keep_files
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import Session
from pegasus.main_agent.turns import AgentTurn
from pegasus.messages import Address, ChannelInfo, InboundMessage, Json, Metadata, StoredFile
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.policy import ToolKind, ValueCall
from pegasus.schedule import PLACED
from pegasus.storage import JournalMessage, Post, PostResult, Route, Unroutable, own_channel
from pegasus.tools import ToolContext, ToolError, ToolOutcome, sending
from pegasus.wire import decode_object, encode_json, from_wire, to_wire

_REPLY: Final = attrs.evolve(sending(ToolSpec(REPLY.name, REPLY.description, ACCEPTED), "media"), kind=ToolKind.ACT)
"""A reply as the policy sees it. It sends something, and an owner may have named all that it says."""
MOST_HELD: Final = 5
"""Replies of one answer that an owner is asked about. A model that was talked into it could make questions that hide others."""
FILES: Final = "/files"
"""End of the key of files that are held while their text goes out. Stored, so it must not change."""


@attrs.frozen(eq=False, repr=False)
class ReplyDecisions:
    """Decides about the replies of thoughts in one session.

    Example::

        wanted = await decisions.route(parse_replies(item, calls, room), None)
        replies = {id: await decisions.prepare(reply, turn) for id, reply in wanted.items()}
        ...  # the thought is written, and the posts of `replies` with it
        outcomes = await decisions.settle(replies, posted, turn)
    """

    _session: Session
    """Gives the labels of what was read, and posts what an earlier yes allows."""
    _services: AgentServices
    """Gives the executor that asks the policy, and the owners."""
    _journal: Ref[JournalMessage]
    """Knows all addresses, and keeps files."""

    async def route(self, replies: Mapping[str, WantedReply], only: Address | None) -> dict[str, WantedReply]:
        """Return the replies with the channels that they go to; refused where there is none.

        The journal is asked only about replies that do not go to the conversation which they answer. only: the one channel that a
        refusal may name; None: all that are known.
        """
        posts = {id: reply.post for id, reply in replies.items() if reply.post is not None}
        channels: dict[str, ChannelInfo | Unroutable | None] = {id: own_channel(post) for id, post in posts.items()}
        if asked := [id for id, channel in channels.items() if channel is None]:
            found = await self._journal.ask(partial(Route, posts=tuple(posts[id] for id in asked)))
            channels.update(zip(asked, found, strict=True))
        routed = dict(replies)
        for id, channel in channels.items():
            if isinstance(channel, Unroutable):
                routed[id] = WantedReply(refusal=unroutable_reason(channel, only))
            else:
                routed[id] = WantedReply(attrs.evolve(posts[id], to=channel), replies[id].paths)
        return routed

    async def prepare(
        self,
        wanted: WantedReply,
        turn: AgentTurn,
        before: Sequence[StoredFile] = (),
        made: Sequence[WantedReply] = (),
    ) -> WantedReply:
        """Return a reply as it is to go out: with its files, which are kept by then; a part of it is held or refused if need be.

        wanted: with the channel that was found. before: files that the same reply sends already. made: replies of the same answer
        that stand before it. Asks nobody, since the thought is not written yet.
        """
        post = wanted.post
        if post is None:
            return wanted
        turn.take_owners(self._services.config.now.owners)
        text = await self._rule(post, (), turn, made)
        files = await self._rule(post, wanted.paths, turn, made) if wanted.paths else text
        if text.decision is Decision.DENY or (files.decision is Decision.DENY and not post.text.strip()):
            return WantedReply(refusal=_denied(text if text.decision is Decision.DENY else files))
        # Before anything is read: a refusal must not depend on the file.
        if files.decision is Decision.DENY:
            return WantedReply(post, missing=f"the files were not sent: {_denied(files)}")
        if wanted.paths:
            try:
                outside = self._session.outside
                kept = await keep_files(
                    self._services, self._journal, wanted.paths, turn.item, turn.principal, post, outside, before
                )
            except ToolError as error:
                return WantedReply(refusal=str(error))
            whole = attrs.evolve(post, files=kept)
        else:
            whole = post
        if files.decision is Decision.ALLOW:
            return WantedReply(whole)
        if text.decision is Decision.ALLOW and post.text.strip():
            return WantedReply(post, held=attrs.evolve(whole, key=f"{post.key}{FILES}", text=""))
        return WantedReply(held=whole)

    async def _rule(self, post: Post, paths: Sequence[str], turn: AgentTurn, made: Sequence[WantedReply]) -> Ruling:
        """Return what the policy decides about a reply as the model wants it. paths: of its files. made: before it in the answer."""
        labels = self._labels(post, turn, has_files=bool(paths))
        if not labels:
            return Ruling(Decision.ALLOW)
        executor = self._services.toolset.now.executor
        words = OwnerWords(self._session, turn, executor.get)
        # A type that changes nothing says nothing: models give it with every reply.
        is_typed = bool(post.channel_type) and not await self._is_certain(post)

        def earlier() -> list[ValueCall]:
            """Return the replies before this one, in the session and in this answer."""
            calls = [call for entry in words.entries for call in entry.calls if call.name == REPLY.name]
            said = [_value_call(call.arguments, media_paths(call), is_typed=is_typed) for call in calls]
            return said + [_value_call(_given(each.post), each.paths, is_typed=is_typed) for each in made if each.post]

        call = _value_call(_given(post), paths, is_typed=is_typed)
        context = self._context(post, turn, labels)
        context = attrs.evolve(context, owner_messages=words.of_call(REPLY.name), earlier=earlier)
        return await executor.judge(_REPLY, call.arguments, context)

    def _labels(self, post: Post, turn: AgentTurn, *, has_files: bool) -> tuple[Untrusted, ...]:
        """Return the labels because of which the policy decides about a reply."""
        message = turn.item.message
        target, outside = post.to or message.channel, self._session.outside
        return labels_of_reply(self._services, target, message, turn.principal, outside, has_files=has_files)

    def _context(self, post: Post, turn: AgentTurn, labels: tuple[Untrusted, ...]) -> ToolContext:
        """Return the context in which the policy sees a reply."""
        origin = turn.item.message.channel
        return ToolContext(key=post.key, principal=turn.principal, origin=origin, outside=labels, holds=True)

    async def _is_certain(self, post: Post) -> bool:
        """Return whether a reply would go to the same conversation if no type were given, so that the type says nothing."""
        untyped = attrs.evolve(post, to=None, channel_type=None)
        [found] = await self._journal.ask(partial(Route, posts=(untyped,)))
        return bool(found == post.to)

    # ------------------------------------------------------------------ after the thought is written

    async def settle(
        self, replies: Mapping[str, WantedReply], posted: Mapping[str, PostResult], turn: AgentTurn
    ) -> dict[str, ToolOutcome]:
        """Ask an owner about what is held, and return what the model is told about each reply, by call id.

        posted: results of the journal by the key of the post. Cancelled: some owners may have been asked.
        """
        outcomes: dict[str, ToolOutcome] = {}
        asked = 0
        for id, reply in replies.items():
            asked += reply.held is not None
            if asked > MOST_HELD and reply.held is not None:
                missing = f"an owner is asked about {MOST_HELD} replies of one answer at most"
                reply = attrs.evolve(reply, held=None, missing=missing, refusal=missing)
            outcomes[id] = await self._settle_one(reply, posted, turn)
        return outcomes

    async def _settle_one(self, reply: WantedReply, posted: Mapping[str, PostResult], turn: AgentTurn) -> ToolOutcome:
        """Return the outcome of a reply, of which a part may be held."""
        notes: dict[str, Json] = {"notSent": reply.missing} if reply.missing else {}
        held = await self.hold(reply.held, turn) if reply.held is not None else None
        if reply.post is None:
            return held or refused_outcome(reply.refusal)
        if held is not None:
            notes = {"notSent": held.why} if held.failed else {"files": decode_object(held.content)}
        return post_outcome(posted[reply.post.key], notes)

    async def hold(self, post: Post, turn: AgentTurn) -> ToolOutcome:
        """Ask an owner about a reply. Return that it waits; or what came of it, if the answer is known already."""
        labels = self._labels(post, turn, has_files=bool(post.files))
        executor = self._services.toolset.now.executor
        checked = await executor.check(_REPLY, held_arguments(post), self._context(post, turn, labels))
        if isinstance(checked, ToolContext):  # allowed before for exactly this, or by settings that are new
            [result] = await self._session.commit((), (post,))
            return post_outcome(result, {})
        if checked.approval:
            note = "an owner is asked, and a yes sends exactly this. Do not send it again"
            return ToolOutcome(encode_json({"queued": False, "waitsFor": checked.approval, "note": note}), failed=False)
        return refused_outcome(checked.why)


def held_arguments(post: Post) -> Metadata:
    """Return everything that a yes to a reply sends, as an owner is shown it. Files are named with the hash of their content."""
    channel = post.to or post.source
    arguments: dict[str, Json] = {"channelType": channel.type, "channelId": channel.channel_id, "text": post.text}
    if channel.reply_to:
        arguments["replyTo"] = channel.reply_to
    if post.files:
        arguments["media"] = [to_wire(file) for file in post.files]
    return arguments


def post_of_held(call: AskedCall, asker: ChannelInfo | None) -> Post:
    """Return the post of a reply that an owner has said yes to. asker: channel of whoever the work was for."""
    arguments = call.arguments
    type, id, thread, text = (
        str(arguments.get(name) or "") for name in ("channelType", "channelId", "replyTo", "text")
    )
    channel = ChannelInfo(type, id, None, thread or None)
    if asker is not None and asker.address == channel.address:
        channel = attrs.evolve(asker, reply_to=thread or None)
    media = arguments.get("media")
    files = tuple(from_wire(file, StoredFile) for file in (media if isinstance(media, list) else ()))
    return Post(call.key, text, id, channel, type, thread or None, files=files, to=channel)


def _given(post: Post) -> Metadata:
    """Return the arguments of a reply as the model has given them, without its files."""
    return {
        "channelId": post.channel_id,
        "channelType": post.channel_type,
        "replyTo": post.reply_to,
        "text": post.text,
    }


def _value_call(arguments: Metadata, paths: Sequence[str], *, is_typed: bool) -> ValueCall:
    """Return a reply, as far as its values matter. is_typed: the type of the channel is one of them."""
    names = ("channelId", "replyTo", "text", *(("channelType",) if is_typed else ()))
    values = {name: value.strip() for name in names if isinstance(value := arguments.get(name), str) and value.strip()}
    return _REPLY.value_call({**values, **({"media": list(paths)} if paths else {})})


def _denied(ruling: Ruling) -> str:
    """Return why a reply is refused, for the model."""
    return f"{REPLY.name} is not allowed here: {ruling.why}. Do not try to get around this; say what you need."


# ------------------------------------------------------------------ replies that leave


def _is_own(services: AgentServices, channel: ChannelInfo) -> bool:
    """Return whether nobody but an owner reads this conversation, as far as it is known."""
    is_owners = channel.type in OWN_TYPES or is_owner(channel, services.config.now.owners)
    return is_owners and not services.is_from_guest(channel.address)


def labels_of_reply(
    services: AgentServices,
    target: ChannelInfo,
    message: InboundMessage,
    principal: Principal,
    outside: tuple[Untrusted, ...],
    *,
    has_files: bool = False,
) -> tuple[Untrusted, ...]:
    """Return the labels of text from outside because of which the policy decides about a reply; () if it need not.

    target: the channel that was found. message: the one that is answered, worked on for this principal. outside: labels of the
    conversation.
    """
    is_here = target.address == message.channel.address
    is_placed = is_here and message.metadata.get(PLACED) is True
    if is_here and not has_files and not is_placed:
        return ()
    is_owners = (is_here and not is_placed and principal.is_owner) or _is_own(services, target)
    if is_owners and not (is_here and is_group(message.channel, message.metadata)):
        return ()
    if is_here and not is_placed and not principal.is_owner:
        # A guest who gets an answer in the own conversation has asked for it.
        return tuple(label for label in outside if label is not Untrusted.GUEST)
    return outside
