"""Messages between people and the agent, and the addresses that they come from and go to.

These values are shared by all packages. `pegasus.wire` converts them to JSON and back; they know nothing of it.

The values stand at the bottom of the imports, so that gateway, journal, agent and adapters can hand the same object on
without knowing of each other. All of them are frozen: several actors hold one at the same time, and none may change it.
A field that is added later needs a default, because files and clients of earlier versions lack it.

A message has an id that its sender chose, by which a repetition is recognised. A reply has a `seq` that the journal gives
it, by which its reader knows what it has missed. Both count within one Address.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeAlias

import attrs

Json: TypeAlias = "bool | int | float | str | list[Json] | Mapping[str, Json] | None"
"""A JSON value, as the `json` module reads and writes it."""

Metadata: TypeAlias = Mapping[str, Json]
"""Free-form data of a message. Channels may put into it what they like; the agent hands it on."""

ACCOUNT: Final = "account"
"""Key of a message's metadata: the account that its guest is counted by. Stored, and removed from what a client sends."""
FOLDER: Final = "folder"
"""Key of the metadata of messages and tasks: the real path of the folder of an owner's own that the work is done in."""
RELAYED: Final = "relayed"
"""Key of a message's metadata: True if its writer has not typed its text, but forwarded it or sent it by a program."""
IN_REPLY_TO: Final = "inReplyTo"
"""Key of a reply's metadata: the id of the message that it answers."""
APART: Final = "apart"
"""Key of the metadata of messages and tasks: true if they belong to a conversation in which guests are heard, and which has nothing of
the owner's other conversations. Stored, and removed from what a client sends."""
GOES_BACK: Final = "goesBack"
"""Key in the metadata of a message that replaces an earlier one of its conversation: an object with its `id`, and with `again`, true
if it is to be answered once more as it is. A message with `whole` takes its place with all that it has, and is said as a new one if
that message is not there any more. Only the program sets it. Stored, so it must not change."""
A2A_CLIENT: Final = "a2a"
"""Key of the metadata of tasks: the client of A2A that has begun it, and follows it itself. Stored, so it must not change."""
INSTRUCTIONS: Final = "instructions"
"""Key in the metadata of a message: what the program of its sender asks of the agent in this conversation, a text. Stored, and removed
from what a client sends."""
INTERNAL_ID_PREFIX: Final = "\x1f"
"""First character of the id of an item that the program itself makes. No id from outside has control characters, so nobody
can make such an item or take its place."""

_PERCENT: Final = str.maketrans({"|": "%7C", "[": "%5B", "]": "%5D"})
"""Characters that have a meaning in the metadata line."""
_REMOVED: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
"""Unicode categories of control characters, line ends, and lone surrogates, which no provider's UTF-8 could carry."""


def escape_field(text: str) -> str:
    """Return an id or name as it stands in the metadata line: `|`, `[`, `]` percent-escaped, no control characters.

    >>> escape_field("a|b")
    'a%7Cb'
    """
    if not text.isprintable():
        text = "".join(character for character in text if unicodedata.category(character) not in _REMOVED)
    return text.translate(_PERCENT)


@attrs.frozen
class ChannelInfo:
    """The channel that a message comes from or goes to.

    >>> ChannelInfo("slack", "#general", "U1").address
    Address(type='slack', channel_id='#general')
    """

    type: str
    """Kind of channel: "cli", "web", "slack" … Unknown kinds are allowed."""
    channel_id: str
    """The conversation within the type."""
    user_id: str | None = None
    """The person who wrote the message."""
    reply_to: str | None = None
    """The thread within the conversation."""

    @cached_property
    def address(self) -> Address:
        """The conversation without user and thread."""
        return Address(self.type, self.channel_id)

    @cached_property
    def sender(self) -> str:
        """Name by which a sender is told from others: the user, or the conversation where no user is named."""
        return f"{self.type}:{self.user_id or self.channel_id}"

    @property
    def written_by(self) -> str:
        """The conversation and, if it is known, the person, for people: "slack:#general (U1)"."""
        return f"{self.address} ({self.user_id})" if self.user_id else str(self.address)


def account_of(channel: ChannelInfo, recorded: Metadata) -> str:
    """Return the account that a guest is counted by. recorded: metadata of a message or a task; without one, the channel's sender."""
    account = recorded.get(ACCOUNT)
    return account if isinstance(account, str) and account else channel.sender


@attrs.frozen(order=True)
class Address:
    """A conversation. Replies are numbered for each address.

    Example: `str(Address("slack", "#general"))` is "slack:#general", as settings and log lines name a conversation.
    """

    type: str
    """Kind of channel."""
    channel_id: str
    """Conversation within the type."""

    def __str__(self) -> str:
        return f"{self.type}:{self.channel_id}"

    @cached_property
    def is_separate(self) -> bool:
        """True for a conversation of its own whatever `agent.scope` says: one of several chats of a program.

        >>> Address("api", "token-webui/3f").is_separate, Address("api", "token-webui").is_separate
        (True, False)
        """
        return self.type == "api" and "/" in self.channel_id

    @cached_property
    def escaped(self) -> Address:
        """The address as a model sees it, in the metadata line. Addresses that a model gives are compared in this form.

        >>> Address("web", "a|b").escaped
        Address(type='web', channel_id='a%7Cb')
        """
        return Address(escape_field(self.type), escape_field(self.channel_id))

    @classmethod
    def parse(cls, text: str) -> Address | None:
        """Return the address of a text as `str` makes it; None if it has no type or no channelId.

        >>> Address.parse("telegram:12345")
        Address(type='telegram', channel_id='12345')
        """
        type, _, channel_id = text.partition(":")
        return cls(type, channel_id) if type and channel_id else None


@attrs.frozen
class Media:
    """A file that travels with a message."""

    name: str
    """File name, to be shown; it is no path."""
    mime: str
    """MIME type that the sender claims."""
    data: str
    """The content, in base64."""
    voice: bool = False
    """A voice message of whoever sent it: what is said in it are their own words."""

    @property
    def size(self) -> int:
        """Bytes of the content. Four characters of base64 are three of them, less one for each "=" at the end."""
        return len(self.data) // 4 * 3 - self.data.count("=", -2)


@attrs.frozen
class StoredFile:
    """A file of a reply as the outbox keeps it: its content is a file of its own, below data/."""

    name: str
    """File name for the reader of the reply."""
    mime: str
    """MIME type."""
    file: str
    """Path below data/, made of the SHA-256 of the content."""
    size: int
    """Bytes."""


@attrs.frozen
class InboundMessage:
    """A message from a person to the agent."""

    text: str
    """Text as it was written."""
    channel: ChannelInfo
    """Conversation, person and thread that it comes from."""
    id: str
    """The sender's own id. The same id from the same address is the same message, however often it is sent."""
    metadata: Metadata = attrs.field(factory=dict)
    """Facts that the channel adds, such as {"group": True}, and those that the program keeps with the item."""
    media: tuple[Media, ...] = ()
    """Files that came with it."""

    @cached_property
    def is_internal(self) -> bool:
        """True if the program itself put it into the queue: a task's notification, or a report about a reply."""
        return self.id.startswith(INTERNAL_ID_PREFIX)

    @property
    def account(self) -> str:
        """Name of the sender for limits: a token or the account of a service, and never a name that a client chooses."""
        return account_of(self.channel, self.metadata)


@attrs.frozen
class OutboundMessage:
    """A reply of the agent."""

    text: str
    """Text for the reader; "" if there are only files."""
    channel: ChannelInfo
    """Conversation and thread that it goes to."""
    seq: int
    """1 for the first reply to an address, growing by 1 and never reused. A client recognises by it what it has missed."""
    metadata: Metadata = attrs.field(factory=dict)
    """Facts for the client, such as {"approval": "a-7f3k"} of a question to an owner."""
    media: tuple[Media, ...] = ()
    """Its files with their content, as a client gets them. Empty until they are loaded for delivery (`load_files`)."""
    files: tuple[StoredFile, ...] = ()
    """The same files as the outbox keeps them. Clients do not see this."""
    key: str = attrs.field(default="", eq=False)
    """Key of its post, which names the queue item that it came of, for readers within the process. Clients do not see it."""

    @property
    def text_with_names(self) -> str:
        """The text, and a line for each file, for readers that show text only."""
        names = [f"[attached: {file.name}, {file.mime}]" for file in self.media]
        return "\n\n".join(filter(None, [self.text, "\n".join(names)]))


@attrs.frozen
class Typing:
    """A signal that the agent works on a message of this channel, or has ended. It is not stored and may be lost.

    Example: `Typing(channel, True)` at the begin of a turn, `Typing(channel, False, after=13)` at its end.
    """

    channel: ChannelInfo
    """Conversation that the message came from."""
    active: bool
    """True while the agent works on it."""
    after: int = 0
    """The seq of the last reply to this address that came of it, 0 if none did. The end is signalled after that reply."""


@attrs.frozen
class ReplyDraft:
    """Draft of what the agent is about to say. It is not stored and may be lost.

    A conversation has one draft. The next one replaces it; a reply to the conversation, and the end of typing there, end it. The
    reply holds the final text, which may differ. If a person ends the answer, the last draft comes once more with `cut`: who shows it
    keeps it, marked as cut off, since no reply will follow.

    Example: `ReplyDraft(channel, "The flight is")`, then `ReplyDraft(channel, "The flight is booked.")`, then the reply.
    """

    channel: ChannelInfo
    """Conversation that the draft belongs to."""
    text: str
    """The whole text so far, not only what is new. "" withdraws the draft."""
    reasoning: str = ""
    """The newest part of the model's reasoning, where the owner wants it shown (`agent.show_reasoning`). Never part of a reply."""
    cut: bool = False
    """True if a person has ended the answer here."""
    activity: str = ""
    """Work in place of thinking, such as "retrying (429), attempt 2"; shown where "thinking" is, never as a reply."""
    item: int = attrs.field(default=0, eq=False)
    """Number of the queue item that is worked on, for readers within the process; 0 = not known. Clients do not see it."""

    @property
    def is_last(self) -> bool:
        """True if it ends the draft: withdrawn or cut off."""
        return self.cut or self.is_withdrawal

    @property
    def is_withdrawal(self) -> bool:
        """True if nothing is shown any more."""
        return not self.text and not self.reasoning and not self.activity


@attrs.frozen
class FileEdit:
    """A file that a task has just changed in the folder of a chat, for the people of the chat. It is not stored and may be lost."""

    channel: ChannelInfo
    """Channel that the work was asked for on."""
    task_id: str
    """The task."""
    path: str
    """The file, an absolute path."""
    diff: str
    """Removed and added lines as a block of Markdown, bounded; a sentence for what is no text."""


@attrs.frozen
class Said:
    """Something that was said in a conversation, for its other clients. It is not stored: the session has it, and a client reads that.

    Example: `Said("user", "hello", ChannelInfo("cli", "main"), id="m-1")` when the page is open while somebody types in the terminal.
    """

    from_: str
    """"user" or "agent"."""
    text: str
    """Text as it was written or sent; "" for files alone."""
    channel: ChannelInfo
    """Channel that it was said on."""
    ts: int = 0
    """Wall clock, ms."""
    id: str = ""
    """Of a message: the id that its sender gave it. Of a reply: that of the message that it answers, if it answers one."""
    seq: int = 0
    """Of a reply: its number."""
    media: tuple[str, ...] = ()
    """Names of the files that came with it."""
    begins: bool = False
    """A new conversation begins with it: the command /new."""
    replaces: str = ""
    """Id of the message that a person went back to: it, and all that was said since, is replaced by this message."""
    chat: str = attrs.field(default="", eq=False)
    """Conversation of one chat that it belongs to, `<type>:<channelId>`; "" for that of all channels. Clients do not see it."""


@attrs.frozen
class FormChoice:
    """A value that a field of a form may have."""

    value: str
    """Value that the asker gets."""
    title: str = ""
    """Words for people; "" = the value itself."""


@attrs.frozen
class FormField:
    """A field of a form: `FormField("guests", "integer", "How many come", is_required=True, least=1)`."""

    name: str
    """Letters, digits, `_`, `.` and `-`."""
    kind: str
    """"text", "number", "integer", "boolean", "choice" (one of `choices`) or "choices" (several of them)."""
    description: str = ""
    """Description of the field, on one line."""
    is_required: bool = False
    """True if an answer without it is refused."""
    default: str | None = None
    """Value of an answer that has none, as a person would type it."""
    choices: tuple[FormChoice, ...] = ()
    """Values to choose from; () for the kinds that are no choice."""
    least: float | None = None
    """Smallest number, fewest characters of a text, fewest choices."""
    most: float | None = None
    """Largest number, most characters of a text, most choices."""


@attrs.frozen
class OwnerQuestion:
    """A question that a tool call has raised while it ran. Its texts are those of `source`, cleaned, each on one line."""

    source: str
    """Source of the question, such as "MCP server hotel"."""
    text: str
    """Words of the question."""
    fields: tuple[FormField, ...] = ()
    """Fields to fill in; () for a question that needs a yes or no only."""
    url: str = ""
    """Page that a person is asked to open in a browser; "" if there is none."""


@attrs.frozen
class NoticeCall:
    """A tool call that an owner is asked about, as part of an `ApprovalNotice`."""

    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Exactly what will be run."""
    why: str
    """Reason for asking, one line."""
    files: Metadata = attrs.field(factory=dict)
    """Hashes of the files that a command names, by their paths: the answer is bound to what is in them."""
    server: str = ""
    """MCP server that has the tool, "" for a tool of this program."""


@attrs.frozen
class ApprovalNotice:
    """A tool call that waits for an owner's yes or no, or has waited. It goes to owners only.

    Example: an owner's client that gets one with the state "open" shows two buttons, and sends `/approve a-7f3k` for the first.
    The next notice with the same id, in another state, removes them.
    """

    id: str
    """Short name by which it is answered, such as "a-7f3k"."""
    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Exactly what will be run."""
    why: str
    """Reason for asking, one line."""
    who: str
    """Rights of the person that the work is done for: "owner" or "guest"."""
    expires: int
    """Wall clock after which it is a no, ms."""
    state: str
    """"open", "allowed", "denied", "expired" or "withdrawn"."""
    task_id: str | None = None
    """The task that waits."""
    channel: ChannelInfo | None = None
    """Channel on which the work was asked for, with the person."""
    by: str = ""
    """Person who has answered."""
    question: OwnerQuestion | None = None
    """Question that the call has asked while it ran. Without one, the call waits to be made."""
    files: Metadata = attrs.field(factory=dict)
    """Hashes of the files that a command names, by their paths: the answer is bound to what is in them."""
    server: str = ""
    """MCP server that has the tool, "" for a tool of this program."""
    calls: tuple[NoticeCall, ...] = ()
    """All calls that one answer is for, in their order, if there are several. The fields above are then those of the first."""
    scopes: tuple[str, ...] = ("once",)
    """Scopes that a yes of this reader may have, the narrowest first: "once", "arguments", "tool", "server", "hour", "forever"."""
    is_plan: bool = False
    """The task asks beforehand: the calls are made later, each of them once."""
    words: str = ""
    """Words of the agent about its plan. They are no facts, and belong below the calls."""
    read: tuple[str, ...] = ()
    """Kinds of sources from outside that the task has read, such as "web"."""
    allowed: tuple[int, ...] | None = None
    """Places of the calls that a yes was for, from 0; None: all."""
    notes: tuple[str, ...] = ()
    """Addresses in the calls whose host is not the one that a reader takes it for, each as a sentence without its full stop."""

    @property
    def all_calls(self) -> tuple[NoticeCall, ...]:
        """Calls that one answer is for, also if it is a single one."""
        return self.calls or (NoticeCall(self.tool, self.arguments, self.why, self.files, self.server),)


@attrs.frozen
class TaskProgress:
    """State of a background task, for the people of the conversation that asked for it. It is not stored and may be lost.

    Each one is the whole present state, so the newest of a task replaces those before it.
    """

    channel: ChannelInfo
    """The channel that the work was asked for on."""
    task_id: str
    """Id of the task, the same for all its states."""
    number: int
    """Number by which people name the task; 0 if it has none."""
    description: str
    """Subject in a few words, on one line."""
    state: str
    """IDLE (it waits for its turn), REASONING, ACTING, SUSPENDED, COMPLETED or FAILED. The last two end it."""
    tool: str
    """The tool that runs, several with commas between them, "" while none does."""
    step: int
    """1 during the first model call and the tools that it asked for, then 2, 3 …; 0 while it waits for its turn."""
    elapsed_ms: int
    """Time since it got its turn; 0 while it waits."""
    commands: tuple[str, ...] = ()
    """Background commands that it runs, such as "c1 npm run dev"."""
    waits_for: str = ""
    """"approval" for a suspended task that waits for an owner's yes or no, "person" for one that a person has paused."""
    pausing: bool = False
    """True if a person has paused it and the step that runs has not ended yet."""
    reason: str = ""
    """"stopped" for a task in state FAILED that a person has ended: people are shown that, and no failure."""
