"""Kinds of files, told by their content."""

from __future__ import annotations

import io
import zipfile

import pytest

from pegasus.file_types import detect_type, extension_of, recognise


def archive(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, "")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "name", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n....", "a.pdf", "image/png"),
        (b"%PDF-1.7", "a.png", "application/pdf"),
        (b"RIFF....WEBPVP8 ", "a", "image/webp"),
        (b"RIFF....WAVEfmt ", "a", "audio/wav"),
        (b"....wordWAVE", "a.txt", "text/plain"),
        (b"ID3\x04\0", "a", "audio/mpeg"),
        (b"OggS\0", "a", "audio/ogg"),
        (b"\0\0\0\x20ftypisom", "a.mp4", "video/mp4"),
        (b"\0\0\0\x20ftypisom", "a.m4a", "audio/mp4"),
        (b"BMW is a make of cars and of motorcycles", "a.txt", "text/plain"),
        (
            archive("word/document.xml"),
            "a.bin",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        (archive("notes.txt"), "a.docx", "application/zip"),
        (b"a;b", "a.csv", "text/csv"),
        ("é".encode() * 8192, "a", "text/plain"),
        (("x" + "é" * 8192).encode(), "a", "text/plain"),
        ("Grüße".encode("utf-16"), "a.txt", "text/plain"),
        ("Grüße".encode("latin-1"), "a.txt", "application/octet-stream"),
        (b"\0\x01\x02", "a.png", "application/octet-stream"),
        (b"", "a.png", "text/plain"),
    ],
)
def test_the_content_decides_and_the_name_among_kinds_of_text(content, name, mime):
    assert detect_type(content, name) == mime


def test_text_is_not_recognised_and_every_kind_has_an_ending():
    assert recognise(b"plain") is None
    assert (extension_of("image/jpeg"), extension_of("application/x-unheard-of")) == ("jpg", "bin")
