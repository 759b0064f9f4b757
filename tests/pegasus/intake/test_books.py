"""The files of people and of tokens: what a read that fails may not do to them."""

import json

import pytest
import trio

from pegasus.access import Access, AccessDenied, ChannelRules, PairingBook, PairingRequired, RequestRefused, TokenBook
from pegasus.gateway import GatewayConfig
from pegasus.intake import Intake
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.settings import LiveValue
from pegasus.storage import Commit, PutRows, ReadRows, StorageError
from tests.pegasus.files_of_journal import answer_from

STRANGER = ChannelInfo("telegram", "7", "7")
ANN = {"type": "telegram", "userId": "42", "since": 1, "by": "cli:main"}


class Journal:
    """Has files; does not read them while `refuses_reads`."""

    def __init__(self, **files):
        self.files = {f"{name}.json": content for name, content in files.items()}
        self.posts = []
        self.accepted = []
        self.refuses_reads = True
        self.refuses_writes = False
        self.delay = 0
        """Seconds between a write and its answer."""

    async def ask(self, kind, *args):
        if kind is Commit:
            self.posts += args[1]
            return None
        if kind is ReadRows and self.refuses_reads:
            raise StorageError("I/O error")
        if kind is PutRows and self.refuses_writes:
            raise StorageError("no space left on device")
        answer = answer_from(self.files, kind, *args)
        if kind is PutRows:
            await trio.sleep(self.delay)
        return answer

    async def request(self, make, *args):
        self.accepted.append(make(None, *args).message)


def people(journal):
    return [person["userId"] for person in json.loads(journal.files["access.json"])["people"]]


async def test_people_stay_in_a_file_that_could_not_be_read():
    journal, book = Journal(access=json.dumps({"people": [ANN], "codes": []}).encode()), PairingBook()
    await book.load(journal, lambda: 1_000_000)
    for act in (book.request(STRANGER), book.approve("ABCD2345", "cli:main"), book.revoke("telegram:42")):
        with pytest.raises(StorageError):
            await act
    assert (people(journal), journal.posts) == (["42"], [])

    journal.refuses_reads = False
    await book.request(STRANGER)
    assert people(journal) == ["42"]
    assert len(journal.posts) == 1
    [code] = book.view()[1]
    await book.approve(code.code, "cli:main")
    assert people(journal) == ["42", "7"]
    assert book.knows(ChannelInfo("telegram", "42", "42"))


async def test_a_damaged_file_of_people_is_set_aside_after_a_read_that_failed():
    journal, book = Journal(access=b"{"), PairingBook()
    await book.load(journal, lambda: 1_000_000)
    journal.refuses_reads = False
    await book.request(STRANGER)
    assert journal.files["access.json.bad-1"] == b"{"
    assert people(journal) == []


async def test_tokens_stay_in_a_file_that_could_not_be_read():
    first = Journal()
    first.refuses_reads = False
    book = TokenBook()
    await book.load(first, lambda: 1_000_000)
    await book.add("phone", scopes=["message"])

    journal, book = Journal(tokens=first.files["tokens.json"]), TokenBook()
    await book.load(journal, lambda: 1_000_000)
    with pytest.raises(StorageError):
        await book.add("tablet", scopes=["message"])
    with pytest.raises(StorageError):
        await book.revoke("phone")
    assert journal.files == first.files

    journal.refuses_reads = False
    await book.add("tablet", scopes=["message"])
    assert [token["name"] for token in json.loads(journal.files["tokens.json"])["tokens"]] == ["phone", "tablet"]


async def test_a_token_counts_as_soon_as_its_file_can_be_read():
    first = Journal()
    first.refuses_reads = False
    book = TokenBook()
    await book.load(first, lambda: 1_000_000)
    token = await book.add("phone", scopes=["message"])

    journal = Journal(tokens=first.files["tokens.json"])
    config = GatewayConfig(token="of the home", tokens=TokenBook())
    await config.tokens.load(journal, lambda: 1_000_000)
    with pytest.raises(StorageError, match=r"the file of tokens cannot be read: I/O error"):
        await config.find_grant(token)
    assert (await config.find_grant("of the home")).is_home

    journal.refuses_reads = False
    assert (await config.find_grant(token)).name == "phone"
    assert await config.find_grant("wrong") is None


async def test_a_token_counts_while_its_damaged_file_cannot_be_set_aside():
    first, book = Journal(), TokenBook()
    first.refuses_reads = False
    await book.load(first, lambda: 1_000_000)
    token = await book.add("phone", scopes=["message"])
    record = json.loads(first.files["tokens.json"])

    journal = Journal(tokens=json.dumps({"tokens": [*record["tokens"], {"name": 3}]}).encode())
    journal.refuses_reads, journal.refuses_writes = False, True
    book = TokenBook()
    await book.load(journal, lambda: 1_000_000)
    assert (await book.find_read(token)).name == "phone"
    assert await book.find_read("wrong") is None


async def test_a_token_stays_revoked_although_the_answer_of_the_disk_was_not_waited_for(autojump_clock):
    journal, book = Journal(), TokenBook()
    journal.refuses_reads = False
    await book.load(journal, lambda: 1_000_000)
    token = await book.add("phone", scopes=["message"])
    grant = await book.find_read(token)
    journal.delay = 1
    with trio.move_on_after(0.5):
        await book.revoke("phone")
    assert json.loads(journal.files["tokens.json"])["tokens"] == []
    assert await book.find_read(token) is None
    assert grant.revoked.is_set()
    await book.add("tablet", scopes=["message"])
    assert [each["name"] for each in json.loads(journal.files["tokens.json"])["tokens"]] == ["tablet"]


async def test_a_token_of_the_same_name_does_not_keep_an_older_one(autojump_clock):
    journal, book = Journal(), TokenBook()
    journal.refuses_reads = False
    await book.load(journal, lambda: 1_000_000)
    grant = await book.find_read(await book.add("phone", scopes=["message"]))
    journal.delay = 1
    with trio.move_on_after(0.5):
        await book.revoke("phone")
    other = TokenBook()
    await other.load(journal, lambda: 1_000_000)
    token = await other.add("phone", scopes=["read"])
    assert (await book.find_read(token)).token.scopes == ("read",)
    assert grant.revoked.is_set()


async def test_a_person_stays_out_although_the_answer_of_the_disk_was_not_waited_for(autojump_clock):
    journal, book = Journal(access=json.dumps({"people": [ANN], "codes": []}).encode()), PairingBook()
    journal.refuses_reads = False
    await book.load(journal, lambda: 1_000_000)
    journal.delay = 1
    with trio.move_on_after(0.5):
        await book.revoke("telegram:42")
    assert people(journal) == []
    assert not await book.is_let_in(ChannelInfo("telegram", "42", "42"))


def unread_people(access="pairing"):
    """Return an intake whose file of people, with Ann in it, cannot be read at first; and its journal."""
    journal = Journal(access=json.dumps({"people": [ANN], "codes": []}).encode())
    rules = Access({"telegram": ChannelRules(access, frozenset({"1"}))})
    return Intake(journal, LiveValue(rules)), journal


@pytest.mark.parametrize("access", ["pairing", "allow_list"])
@pytest.mark.parametrize("chat", ["42", "-100"])
async def test_somebody_who_was_let_in_is_no_stranger_while_the_file_cannot_be_read(access, chat):
    intake, journal = unread_people(access)
    await intake.pairing.load(journal, lambda: 1_000_000)
    ann = InboundMessage("hi", ChannelInfo("telegram", chat, "42"), "m-1")
    with pytest.raises(StorageError, match=r"who was let in cannot be read: I/O error"):
        await intake.send(ann)
    assert (journal.posts, journal.accepted) == ([], [])

    journal.refuses_reads = False
    await intake.send(ann)
    assert [message.text for message in journal.accepted] == ["hi"]


async def test_a_stranger_gets_a_code_when_the_file_can_be_read_again():
    intake, journal = unread_people()
    await intake.pairing.load(journal, lambda: 1_000_000)
    with pytest.raises(StorageError):
        await intake.send(InboundMessage("hi", STRANGER, "m-1"))
    assert journal.posts == []

    journal.refuses_reads = False
    with pytest.raises(PairingRequired):
        await intake.send(InboundMessage("hi", STRANGER, "m-1"))
    assert len(journal.posts) == 1
    assert journal.accepted == []


async def test_somebody_whom_the_settings_let_in_needs_no_file():
    intake, journal = unread_people()
    await intake.pairing.load(journal, lambda: 1_000_000)
    await intake.send(InboundMessage("hi", ChannelInfo("telegram", "1", "1"), "m-1"))
    assert len(journal.accepted) == 1


# ------------------------------------------------------------------ codes of strangers


async def new_book():
    """Return a book with a journal and a clock that can be set, `clock[0]` in ms."""
    journal, book, clock = Journal(), PairingBook(), [10_000_000]
    journal.refuses_reads = False
    await book.load(journal, lambda: clock[0])
    return book, journal, clock


async def test_whoever_was_refused_gets_no_other_code_within_the_hour():
    book, journal, clock = await new_book()
    await book.request(STRANGER)
    [code] = book.view()[1]
    assert await book.refuse(code.code.lower()) == "telegram:7"
    for decide in (lambda: book.approve(code.code, "cli:main"), lambda: book.refuse(code.code)):
        with pytest.raises(RequestRefused, match="there is no open code"):
            await decide()
    again = PairingBook()
    await again.load(journal, lambda: clock[0])
    posts = len(journal.posts)
    clock[0] += 1_800_000
    await again.request(STRANGER)
    assert (again.view()[1], len(journal.posts)) == ([], posts)
    clock[0] += 1_800_000
    await again.request(STRANGER)
    [other] = again.view()[1]
    assert other.code != code.code


async def test_a_refused_code_takes_no_place_of_others():
    book, _, _ = await new_book()
    for user in ("1", "2", "3"):
        await book.request(ChannelInfo("telegram", user, user))
    await book.request(STRANGER)
    assert STRANGER.user_id not in [code.channel.user_id for code in book.view()[1]]
    await book.refuse(book.view()[1][0].code)
    await book.request(STRANGER)
    assert [code.channel.user_id for code in book.view()[1]] == ["2", "3", STRANGER.user_id]


async def test_a_code_is_closed_with_all_of_its_person_by_an_approval():
    book, journal, _ = await new_book()
    await book.request(STRANGER)
    await book.request(ChannelInfo("telegram", "8", "8"))
    [code, other] = book.view()[1]
    assert await book.approve(code.code, "cli:main") == "telegram:7"
    assert [each.code for each in book.view()[1]] == [other.code]
    assert [each["code"] for each in json.loads(journal.files["access.json"])["codes"]] == [other.code]
    await book.revoke("telegram:7")
    with pytest.raises(RequestRefused, match="there is no open code"):
        await book.approve(code.code, "cli:main")
    assert not book.knows(STRANGER)


async def test_a_letter_that_only_becomes_one_of_a_code_is_none():
    """As the long s does in upper case."""
    book, journal, clock = await new_book()
    await book.request(STRANGER)
    [code] = book.view()[1]
    other = "S" * len(code.code)
    journal.files["access.json"] = journal.files["access.json"].replace(code.code.encode(), other.encode())
    await (book := PairingBook()).load(journal, lambda: clock[0])
    with pytest.raises(RequestRefused):
        await book.approve("\u017f" * len(other), "cli:main")
    assert await book.approve(other.lower(), "cli:main") == "telegram:7"


async def test_a_clock_that_was_set_back_keeps_nobody_without_an_answer():
    book, journal, clock = await new_book()
    for passed, answers in ((0, 1), (599_999, 1), (1, 2), (-500_000, 3)):
        clock[0] += passed
        await book.request(STRANGER)
        assert len(journal.posts) == answers


@pytest.mark.parametrize(("passed", "is_valid"), [(0, True), (3_599_999, True), (3_600_000, False), (-1, False)])
async def test_a_code_is_valid_for_an_hour_and_not_before_it_was_made(passed, is_valid):
    """A clock that is set back makes no code valid for longer."""
    book, _, clock = await new_book()
    await book.request(STRANGER)
    [code] = book.view()[1]
    clock[0] += passed
    assert len(book.view()[1]) == is_valid
    if is_valid:
        await book.approve(code.code, "cli:main")
    else:
        with pytest.raises(RequestRefused):
            await book.approve(code.code, "cli:main")
    assert book.knows(STRANGER) is is_valid


@pytest.mark.parametrize(
    ("channel", "metadata"),
    [
        (ChannelInfo("telegram", "-100", "7"), {}),
        (ChannelInfo("slack", "C0123", "U7"), {}),
        (ChannelInfo("telegram", "7", "7"), {"group": True}),
        (ChannelInfo("matrix", "room", "@7"), {"group": True}),
    ],
)
async def test_nobody_is_given_a_code_in_a_group(channel, metadata):
    """All who read along could pass it on as theirs."""
    journal = Journal()
    journal.refuses_reads = False
    intake = Intake(journal, LiveValue(Access({channel.type: ChannelRules("pairing")})))
    await intake.pairing.load(journal, lambda: 1_000_000)
    with pytest.raises(AccessDenied) as refused:
        await intake.send(InboundMessage("hi", channel, "m-1", metadata=metadata))
    assert not isinstance(refused.value, PairingRequired)
    assert (journal.posts, journal.accepted, intake.pairing.view()[1]) == ([], [], [])
