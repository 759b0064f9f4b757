"""Files that a message mentions."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from pegasus.terminal.attachments import (
    MOST_FILES,
    AttachmentProblem,
    describe_attachment,
    mention_dropped,
    read_attachments,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
ROOM = 100_000


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes.txt").write_text("grüße")
    (tmp_path / "my photo.bin").write_bytes(PNG)
    (tmp_path / "README").write_text("read me")
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.py").write_text("x = 1")
    return tmp_path


def names(text, room=ROOM):
    return [file.name for file in read_attachments(text, room)[1]]


def refusal(text, room=ROOM):
    with pytest.raises(AttachmentProblem) as caught:
        read_attachments(text, room)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see @notes.txt", ["notes.txt"]),
        ("@notes.txt, and @sub/deep.py.", ["notes.txt", "deep.py"]),
        ('what is on @"my photo.bin"?', ["my photo.bin"]),
        ("what is on @'my photo.bin'", ["my photo.bin"]),
        ("@~/notes.txt", ["notes.txt"]),
        ("@./notes.txt @README", ["notes.txt", "README"]),
        ("@notes.txt @notes.txt", ["notes.txt"]),
        ("one\n@notes.txt\nthree", ["notes.txt"]),
    ],
)
def test_mentioned_files_go_along(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "write to ann@example.org",
        "@alice says hello",
        "@property\ndef f(self): ...",
        '@app.route("/x")',
        "@pytest.fixture",
        "@",
        "@@notes.txt",
        "no file",
    ],
)
def test_other_uses_of_the_sign_are_text(text):
    assert read_attachments(text, ROOM) == (text, ())


def test_a_backslash_makes_text_of_a_mention_and_is_not_sent():
    assert read_attachments("import \\@types/node, \\@notes.txt", ROOM) == ("import @types/node, @notes.txt", ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("@missing.txt", "there is no file missing.txt"),
        ("@sub/missing", "there is no file sub/missing"),
        ('@"no such file"', "there is no file no such file"),
        ("@~nobody-of-this-name/x", "there is no file"),
        ("@sub", "sub is a folder"),
        ('@"my photo', 'the closing " behind my photo is missing'),
        ("@/dev/null", "null is not a file that can be sent"),
    ],
)
def test_what_cannot_be_sent_is_said(text, why):
    assert why in refusal(text)


def test_a_file_of_another_kind_is_refused(folder):
    (folder / "a.bin").write_bytes(b"\x7fELF\x00\xff")
    assert (
        refusal("@a.bin")
        == "a.bin is neither a text, a picture (PNG, JPEG, GIF, WebP), a PDF, a document nor a recording"
    )


@pytest.mark.parametrize(
    ("name", "content", "mime"),
    [
        (
            "report.docx",
            b"PK\x03\x04\x00\xff word/",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        ("a.pdf", b"%PDF-1.7\n\x00\xff", "application/pdf"),
        ("voice.ogg", b"OggS\x00\x02", "audio/ogg"),
        ("voice.m4a", b"\x00\x00\x00\x18ftypM4A \x00", "audio/mp4"),
        ("a.wav", b"RIFF\x10\x00\x00\x00WAVEfmt \x00", "audio/wav"),
        ("a.mp3", b"ID3\x04\x00\xff", "audio/mpeg"),
        ("id3.txt", b"ID3 tags are old", "text/plain"),
    ],
)
def test_pdfs_and_recordings_go_along(folder, name, content, mime):
    (folder / name).write_bytes(content)
    _, [media] = read_attachments(f"see @{name}", 100_000, folder)
    assert media.mime == mime


def test_a_file_that_may_not_be_read_is_refused(folder, monkeypatch):
    def refuse(self, *_args, **_options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert refusal("@notes.txt") == "notes.txt cannot be read: Permission denied"


def test_a_name_that_is_too_long_is_no_file(folder):
    name = "x" * 300 + ".txt"
    assert refusal(f"@{name}").startswith(f"there is no file {name}")
    assert names("@" + "a" * 300) == []


def test_a_file_that_has_grown_is_not_sent_in_part(folder, monkeypatch):
    """As with the files of /proc, whose size is always 0."""
    path, real = folder / "notes.txt", Path.open

    def append_and_open(self, mode):
        with real(path, "a") as file:
            file.write("more and more")
        return real(self, mode)

    monkeypatch.setattr(Path, "open", append_and_open)
    assert refusal("@notes.txt") == "notes.txt changes while it is read"


def test_a_pipe_is_not_waited_for(folder):
    os.mkfifo(folder / "pipe.txt")
    assert "not a file that can be sent" in refusal("@pipe.txt")


def test_the_room_of_a_message_is_that_of_all_its_files(folder):
    (folder / "big.txt").write_text("x" * 6000)
    assert refusal("@big.txt", 5000).startswith("big.txt has 6,000 bytes; this message has room for 3,")
    assert names("@big.txt", 12_000) == ["big.txt"]
    (folder / "big2.txt").write_text("x" * 6000)
    assert refusal("@big.txt @big2.txt", 12_000).startswith("big2.txt has 6,000 bytes")


def test_a_text_that_the_agent_would_not_read_is_refused(folder):
    (folder / "long.txt").write_text("x" * 20_001)
    assert refusal("@long.txt").startswith("long.txt has 20,001 characters; the agent reads 20,000")


def test_too_many_files_are_refused(folder):
    for n in range(MOST_FILES + 1):
        (folder / f"{n}.txt").touch()
    assert "20 files at most" in refusal(" ".join(f"@{n}.txt" for n in range(MOST_FILES + 1)))


def test_name_kind_and_content_are_those_of_the_file():
    text, photo, data = read_attachments('@notes.txt @"my photo.bin" @data.json', ROOM)[1]
    assert (text.mime, base64.b64decode(text.data).decode()) == ("text/plain", "grüße")
    assert (photo.mime, base64.b64decode(photo.data)) == ("image/png", PNG)
    assert data.mime == "application/json"
    assert describe_attachment(text) == "[attached: notes.txt, 7 bytes]"
    assert describe_attachment(photo) == "[attached: my photo.bin, 28 bytes]"


def test_a_name_cannot_command_the_terminal(folder):
    (folder / "a\x1b[2J.txt").touch()
    (media,) = read_attachments('@"a\x1b[2J.txt"', ROOM)[1]
    assert media.name == "a␛[2J.txt"


@pytest.mark.parametrize(
    ("pasted", "attached"),
    [
        ("{}/shot.png", True),
        ("'{}/my shot.png'", True),
        ("{}/my\\ shot.png ", True),
        ("~/shot.png", True),
        ("{}/notes.txt", False),
        ("{}/missing.png", False),
        ("{}/shot.png and more", False),
        ("shot.png", False),
        ("'unclosed.png", False),
        ("/" + "x" * 5000 + ".png", False),
    ],
)
def test_a_picture_that_is_dropped_on_the_terminal_is_mentioned(folder, pasted, attached):
    for name in ("shot.png", "my shot.png"):
        (folder / name).write_bytes(PNG)
    pasted = pasted.format(folder)
    line = mention_dropped(pasted)
    assert (line != pasted) is attached
    assert len(names(line)) == attached
