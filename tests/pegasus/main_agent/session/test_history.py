"""The conversation as a chat window shows it again."""

from __future__ import annotations

from pegasus.conversation.entry import Entry, encode, user_content
from pegasus.main_agent.session import Place, history_json, note_of, read_history
from pegasus.messages import Address, ChannelInfo
from pegasus.models.base import ToolCall
from pegasus.storage import FolderFiles
from pegasus.wire import encode_json

HERE = ChannelInfo("web", "main")
ELSEWHERE = ChannelInfo("slack", "#general")


def asked(n, text, channel=HERE, **metadata):
    return Entry(n, "user", user_content(text, channel), item=n, metadata={"messageId": f"m-{n}", **metadata})


def replied(n, text, seq, channel=HERE, failed=False):
    """A thought that calls the reply tool, and the result of the call."""
    result = {"queued": True, "channelType": channel.type, "channelId": channel.channel_id, "seq": seq}
    return (
        Entry(
            n, "assistant", "I think.", (ToolCall(f"c{n}", "reply", {"text": text, "channelId": channel.channel_id}),)
        ),
        Entry(n, "tool", encode_json(result), call_id=f"c{n}", failed=failed),
    )


def flat(*parts):
    return [entry for part in parts for entry in (part if isinstance(part, tuple) else (part,))]


def write(folder, *parts, name="current.jsonl"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(encode(entry) for entry in flat(*parts)))


def read(folder, before=None, limit=50, address=HERE.address):
    return read_history(FolderFiles(folder.parent), "global", address, before, limit)


def said(page):
    return [f"{'>' if message.sender == 'user' else '<'} {message.text}" for message in page.messages]


def test_what_was_said_and_nothing_else(tmp_path):
    write(
        tmp_path / "main",
        Entry(0, "system", "A summary.", metadata={"type": "compact"}),
        asked(1, "hello\nyou"),
        replied(1, "Hi!", 1),
        Entry(2, "user", user_content("[Task 1 completed]\ndone", HERE), item=2, metadata={"type": "task_notify"}),
        replied(2, "The task is done.", 2),
    )
    page = read(tmp_path / "main")
    assert said(page) == ["> hello\nyou", "< Hi!", "< The task is done."]
    assert page.before is None
    assert history_json(page)["messages"][:2] == [
        {"from": "user", "text": "hello\nyou", "ts": 1, "id": "m-1"},
        {"from": "agent", "text": "Hi!", "ts": 1, "id": "m-1", "seq": 1},
    ]


def test_other_conversations_stay_private_but_what_they_caused_here_is_shown(tmp_path):
    write(
        tmp_path / "main",
        asked(1, "a secret", ELSEWHERE),
        replied(1, "an answer there", 7, ELSEWHERE),
        replied(2, "news for the page", 1),
        asked(3, "mine"),
    )
    assert said(read(tmp_path / "main")) == ["< news for the page", "> mine"]


def test_direct_speech_and_apologies_go_to_whoever_asked(tmp_path):
    spoken = Entry(1, "assistant", "Plain words.", metadata={"spoken": True})
    sorry = Entry(2, "assistant", note_of("The model did not answer."), metadata={"type": "apology", "ends": True})
    write(tmp_path / "main", asked(1, "one"), spoken, asked(2, "two"), sorry, asked(3, "there", ELSEWHERE), spoken)
    assert said(read(tmp_path / "main")) == ["> one", "< Plain words.", "> two", "< The model did not answer."]


def test_a_note_among_the_messages_does_not_come_between_question_and_answer(tmp_path):
    note = Entry(1, "user", "[Memory: what is known from before]\nfacts/a.md", metadata={"type": "memory_index"})
    spoken = Entry(1, "assistant", "Plain words.", metadata={"spoken": True})
    write(tmp_path / "main", note, asked(1, "one"), note, spoken)
    assert said(read(tmp_path / "main")) == ["> one", "< Plain words."]


def test_a_reply_that_was_refused_was_not_said(tmp_path):
    write(tmp_path / "main", asked(1, "hi"), replied(1, "lost", 1, failed=True), replied(2, "found", 1))
    assert said(read(tmp_path / "main")) == ["> hi", "< found"]


def test_pages_meet_without_a_gap_across_archives(tmp_path):
    folder = tmp_path / "main"
    turns = [(asked(n, f"question {n}"), *replied(n, f"answer {n}", n)) for n in range(1, 41)]
    write(folder, *turns[:15], name="2026-02-25-143000.jsonl")
    write(folder, *turns[15:25], name="2026-02-26-143000.jsonl")
    write(folder, *turns[25:])
    found, before = [], None
    while True:
        page = read(folder, before, limit=7)
        assert len(page.messages) <= 9
        found = said(page) + found
        if page.before is None:
            break
        before = Place.parse(str(page.before))
        assert before == page.before
    assert found == [line for n in range(1, 41) for line in (f"> question {n}", f"< answer {n}")]


def test_a_damaged_line_hides_nothing_else(tmp_path):
    folder = tmp_path / "main"
    write(folder, asked(1, "one"), asked(2, "two"))
    first, second = (folder / "current.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "current.jsonl").write_bytes(first + b'{"ts": torn\n' + second + b'{"half')
    assert said(read(folder)) == ["> one", "> two"]


def test_a_line_longer_than_a_block_is_read_whole(tmp_path):
    text = "long " * 50_000
    write(tmp_path / "main", asked(1, "before"), asked(2, text), asked(3, "behind"))
    assert said(read(tmp_path / "main")) == ["> before", f"> {text.strip()}", "> behind"]


def test_labels_of_files_and_texts_of_skills_are_the_programs(tmp_path):
    labels = (
        "(attached picture: a.png, image/png, 78 bytes)",
        "(attached: b.txt, text/plain, 2 bytes; it reads:)\nhi\n(end of b.txt)",
    )
    content = user_content("look\nhere", HERE, labels)
    own = len(user_content("look\nhere", HERE)) + 1
    message = Entry(1, "user", content, item=1, metadata={"messageId": "m-1", "fencedFrom": own, "outside": ["file"]})
    write(
        tmp_path / "main", message, asked(2, "long instructions", skill="review"), asked(3, "no (attached: files here)")
    )
    page = read(tmp_path / "main")
    assert said(page) == ["> look\nhere", "> /review", "> no (attached: files here)"]
    assert [message.media for message in page.messages] == [("a.png", "b.txt"), (), ()]


def test_an_id_that_needs_escaping_is_found(tmp_path):
    odd = ChannelInfo("web", "a|b]")
    write(tmp_path / "main", asked(1, "hi", odd))
    assert said(read(tmp_path / "main", address=Address("web", "a|b]"))) == ["> hi"]


def test_a_new_home_has_no_history(tmp_path):
    page = read(tmp_path / "main")
    assert (list(page.messages), page.before) == ([], None)


def test_a_place_names_files_of_the_folder_only():
    for text in (
        "../token:0",
        "current.jsonl",
        "current.jsonl:-1",
        "x:1",
        "/etc/passwd:9",
        "current.jsonl:99999999999999999999",
    ):
        assert Place.parse(text) is None
