"""Program that reads a document on its standard input and writes its text in pieces, a JSON line each. Run by `document_text`.

A document comes from a stranger, so it is read by a process of its own, with the limits that `document_text` gives it. The program
imports nothing of Pegasus. What the file is decides its content, never its name.

    {"kind": "spreadsheet"}           first, once it is known
    {"text": "[sheet Costs]…"}         for each piece, in order
    {"left_out": true}                 at the end, if there was no room for all
    {"problem": "password"}            in place of the rest; words are in `document_text`

Documents of Word and PowerPoint, OpenDocument and books are archives with XML. Their text stands in a few elements, and is passed on
while the parser goes on: neither depth nor size of the XML takes memory. A declaration of a document type ends the reading, since
nothing but an attack on the parser has one there. Macros and pictures are passed over; of a formula its last result is shown.
"""

from __future__ import annotations

import codecs
import datetime
import json
import re
import struct
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any, Final
from xml.parsers import expat

import chardet
import olefile  # type: ignore[import-untyped, unused-ignore]
from python_calamine import CalamineWorkbook
from selectolax.lexbor import LexborHTMLParser
from striprtf.striprtf import rtf_to_text

INFLATED: Final = 128 << 20
"""Bytes that the parts of an archive may have together."""
MOST_NAMES: Final = 200
"""Files of an archive, or of a mail, that are named."""
DEEPEST_MAIL: Final = 3
"""Forwarded mails within one another that are read."""
PIECE: Final = 8_192
"""Characters of a piece."""
LONGEST_LINE: Final = 100_000
"""Characters of a line that are gathered before they are written."""


class Problem(Exception):
    """The document cannot be read. str() is the word for the reason."""


class Full(Exception):
    """There is no room for more text."""


class Output:
    """The text, written in pieces up to a bound."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Write a text. Raises Full if there is no room for all of it."""
        self._parts.append(text[: max(self._room, 0)])
        self._room -= len(text)
        self._size += len(text)
        if self._size >= PIECE or self._room < 0:
            self.flush()
        if self._room < 0:
            raise Full

    def flush(self) -> None:
        """Write what has been gathered, so that it counts if the program is killed."""
        if self._parts:
            say(text="".join(self._parts))
        self._parts, self._size = [], 0


def say(**facts: object) -> None:
    """Write a line. Half a character is replaced."""
    line = json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def main(hint: str, most_characters: int) -> None:
    """Read at most so many characters, and write them. hint: "mail", the character set that the sender names, or ""."""
    content, output = sys.stdin.buffer.read(), Output(most_characters)
    try:
        read(content, hint, output)
    except Full:
        say(left_out=True)
        return
    except Problem as problem:
        word = str(problem)
    except (MemoryError, RecursionError):
        word = "memory"
    # Libraries raise errors of many kinds for a damaged file. One in Rust raises a panic that is no Exception.
    except BaseException as error:
        word = "password" if "password" in str(error).lower() else "damaged"
    else:
        word = ""
    output.flush()
    if word:
        say(problem=word)


def read(content: bytes, hint: str, output: Output) -> None:
    """Write the text of a document of any kind. Raises Problem, and whatever a library raises for damage."""
    if content.startswith(b"PK"):
        read_archive(content, output)
    elif content.startswith(b"\xd0\xcf\x11\xe0"):
        read_compound(content, output)
    elif content.startswith(b"{\\rtf"):
        say(kind="")
        output.write(str(rtf_to_text(content.decode("latin-1"), errors="replace")))  # type: ignore[no-untyped-call, unused-ignore]
    elif hint == "mail":
        say(kind="mail")
        write_mail(message_from_bytes(content, policy=policy.default), output, 0)
    else:
        text, found = decode(content, hint)
        say(kind=f"text in {found}")
        output.write(text)


# ------------------------------------------------------------------ archives


class PartsArchive:
    """An archive whose parts are read within a bound."""

    def __init__(self, content: bytes) -> None:
        self._zip = zipfile.ZipFile(BytesIO(content))
        self.entries = self._zip.infolist()
        self.names = {entry.filename for entry in self.entries}
        self._room = INFLATED

    def part(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a part. Raises Problem if it is encrypted or larger than allowed, KeyError if there is none."""
        entry = self._zip.getinfo(name)
        if entry.flag_bits & 1:
            raise Problem("password")
        with self._zip.open(entry) as file:
            while piece := file.read(65_536):
                self._room -= len(piece)
                if self._room < 0:
                    raise Problem("memory")
                yield piece

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return what a part of an Office document refers to, by id: the end of its type, and its path."""
        path = PurePosixPath(name)
        found: dict[str, tuple[str, str]] = {}

        def start(tag: str, attributes: Mapping[str, str]) -> None:
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                target = resolve(str(path.parent), attributes.get("Target", ""))
                found[attributes.get("Id", "")] = attributes.get("Type", "").rpartition("/")[2], target

        file = f"{path.parent}/_rels/{path.name}.rels".removeprefix("./")
        if file in self.names:
            parse(self.part(file), start=start)
        return found


def resolve(folder: str, target: str) -> str:
    """Return the path of a part that another one in `folder` refers to."""
    parts: list[str] = []
    for part in (target if target.startswith("/") else f"{folder}/{target}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def parse(
    pieces: Iterator[bytes],
    start: Callable[[str, Mapping[str, str]], None] = lambda tag, attributes: None,
    end: Callable[[str], None] = lambda tag: None,
    text: Callable[[str], None] = lambda text: None,
) -> None:
    """Parse XML and call a function for each beginning and end of an element, and for text. Names are without their namespaces."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        raise Problem("damaged")

    def begin(name: str, attributes: Mapping[str, str]) -> None:
        # Of `id` and `r:id` the latter counts.
        pairs = sorted(attributes.items(), key=lambda pair: " " in pair[0])
        start(name.rpartition(" ")[2], {key.rpartition(" ")[2]: value for key, value in pairs})

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda name: end(name.rpartition(" ")[2])
    parser.CharacterDataHandler = text
    for piece in pieces:
        parser.Parse(piece, False)
    parser.Parse(b"", True)


def read_archive(content: bytes, output: Output) -> None:
    """Write the text of a document that is an archive, or the names of the files in any other one."""
    archive = PartsArchive(content)
    main_part = dict(archive.relations("").values()).get("officeDocument", "")
    if main_part.startswith("xl/"):
        return read_spreadsheet(content, output)
    if main_part.startswith("ppt/"):
        return read_slides(archive, main_part, output)
    if main_part in archive.names:
        return read_letter(archive, main_part, output)
    mimetype = b"".join(archive.part("mimetype")).decode("ascii", "replace") if "mimetype" in archive.names else ""
    if "opendocument.spreadsheet" in mimetype:
        return read_spreadsheet(content, output)
    if "opendocument" in mimetype and "content.xml" in archive.names:
        say(kind="slides" if "presentation" in mimetype else "")
        flow = Flow(output, is_open=True)
        return parse(archive.part("content.xml"), flow.start, flow.end, flow.text)
    if "META-INF/container.xml" in archive.names:
        return read_book(archive, output)
    files = [entry for entry in archive.entries if not entry.is_dir()]
    say(kind="archive")
    for entry in files[:MOST_NAMES]:
        output.write(f"{entry.filename}, {entry.file_size:,} bytes\n")
    if len(files) > MOST_NAMES:
        output.write(f"and {len(files) - MOST_NAMES:,} further files\n")
    return None


def read_letter(archive: PartsArchive, name: str, output: Output) -> None:
    """Write the text of a document of Word, with what stands above and below each page, notes and comments behind it."""
    say(kind="")
    further = archive.relations(name).values()
    for kind in ("", "header", "footer", "footnotes", "endnotes", "comments"):
        for part in (target for type, target in further if type == kind) if kind else (name,):
            if part in archive.names:
                flow = Flow(output, heading=kind)
                parse(archive.part(part), flow.start, flow.end, flow.text)


def read_slides(archive: PartsArchive, name: str, output: Output) -> None:
    """Write the text of the slides in the order in which they are shown, each with its notes."""
    ids: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "sldId":
            ids.append(attributes.get("id", ""))

    parse(archive.part(name), start=start)
    relations = archive.relations(name)
    say(kind=f"{len(ids)} slides" if len(ids) != 1 else "1 slide")
    for number, id in enumerate(ids, 1):
        slide = relations.get(id, ("", ""))[1]
        if slide not in archive.names:
            continue
        output.write(f"[slide {number}]\n")
        notes = [target for type, target in archive.relations(slide).values() if type == "notesSlide"]
        for part in (slide, *notes[:1]):
            flow = Flow(output, heading="notes" if part != slide else "")
            parse(archive.part(part), flow.start, flow.end, flow.text)


def read_book(archive: PartsArchive, output: Output) -> None:
    """Write the text of a book (EPUB) in the order of its spine."""
    roots: list[str] = []
    hrefs: dict[str, str] = {}
    order: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "rootfile":
            roots.append(attributes.get("full-path", ""))
        elif tag == "item":
            hrefs[attributes.get("id", "")] = attributes.get("href", "")
        elif tag == "itemref":
            order.append(attributes.get("idref", ""))

    parse(archive.part("META-INF/container.xml"), start=start)
    if not roots or roots[0] not in archive.names:
        raise Problem("damaged")
    parse(archive.part(roots[0]), start=start)
    say(kind="book")
    for id in order:
        part = resolve(str(PurePosixPath(roots[0]).parent), hrefs.get(id, ""))
        if part in archive.names:
            output.write(html_text(decode(b"".join(archive.part(part)), "")[0]) + "\n")


class Flow:
    """Text that flows through paragraphs and tables, as a parser meets it.

    Word and PowerPoint have their text in elements `t`, OpenDocument has it in all elements of a paragraph.
    """

    SKIPPED: Final = frozenset(
        # Deleted text, fields' own words, a picture's second form for old programs, and who has written a comment when.
        [
            "Fallback",
            "delText",
            "instrText",
            "tabs",
            "tracked-changes",
            "note-citation",
            "binary-data",
            "creator",
            "date",
        ]
    )
    BREAKS: Final[Mapping[str, str]] = {"br": "\n", "cr": "\n", "line-break": "\n", "tab": "\t", "noBreakHyphen": "-"}

    def __init__(self, output: Output, *, is_open: bool = False, heading: str = "") -> None:
        self._output = output
        self._is_open = is_open
        self._heading = heading
        """Word that is written above the first line, if there is any."""
        self._line: list[str] = []
        self._size = 0
        self._inside = 0
        """Elements around the place whose text counts."""
        self._skipped = 0
        """Levels of elements from the one that is skipped to the place."""
        self._cells = 0
        self._slide = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Take the beginning of an element."""
        if self._skipped or tag in self.SKIPPED:
            self._skipped += 1
        elif tag == "t" or (self._is_open and tag in ("p", "h")):
            self._inside += 1
            if tag == "h":
                self._add("#" * min(_number(attributes.get("outline-level")), 6) + " ")
        elif tag in self.BREAKS:
            self._add(self.BREAKS[tag])
        elif tag == "s" and self._is_open:
            self._add(" " * min(_number(attributes.get("c")), 80))
        elif tag == "pStyle" and (
            heading := re.fullmatch(r"(?:Heading|berschrift|Titre|Ttulo)(\d)", attributes.get("val", ""))
        ):
            self._add("#" * int(heading[1]) + " ")
        elif tag in ("numPr", "list-item"):
            self._add("- ")
        elif tag in ("tc", "table-cell"):
            self._cells += 1
        elif tag == "comment" and "author" in attributes:
            self._add(f"{attributes['author']}: ")
        elif tag == "page" and self._is_open:
            self._slide += 1
            self._end_line()
            self._output.write(f"[slide {self._slide}]\n")

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        if self._skipped:
            self._skipped -= 1
            return
        if tag == "t" or (self._is_open and tag in ("p", "h")):
            self._inside -= 1
        if tag in ("p", "h") and self._cells:
            self._add(" ")
        elif tag in ("p", "h"):
            self._end_line()
        elif tag in ("tc", "table-cell"):
            self._cells -= 1
            self._add("| ")
        elif tag in ("tr", "table-row") and not self._cells:
            self._end_line()

    def text(self, text: str) -> None:
        """Take a text."""
        if self._inside and not self._skipped:
            self._add(text.replace("\n", " "))

    def _add(self, text: str) -> None:
        self._line.append(text)
        self._size += len(text)
        if self._size > LONGEST_LINE:
            self._end_line()

    def _end_line(self) -> None:
        line = "".join(self._line).rstrip("| ")
        if line.strip("#- "):
            self._output.write(f"[{self._heading}]\n{line}\n" if self._heading else line + "\n")
            self._heading = ""
        self._line, self._size = [], 0


def _number(text: str | None) -> int:
    """Return a small whole number, 1 for none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 6 else 1


def read_spreadsheet(content: bytes, output: Output) -> None:
    """Write the cells of a spreadsheet, of Excel (also of old versions) or OpenDocument, row by row."""
    book = CalamineWorkbook.from_filelike(BytesIO(content))
    say(kind=f"{len(book.sheet_names)} sheets" if len(book.sheet_names) != 1 else "1 sheet")
    for name in book.sheet_names:
        output.write(f"[sheet {name}]\n")
        for row in book.get_sheet_by_name(name).iter_rows():
            if line := " | ".join(map(cell_text, row)).rstrip("| "):
                output.write(line + "\n")


def cell_text(value: object) -> str:
    """Return a cell as people see it: numbers without needless digits, days without a time."""
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ") if value.time() != datetime.time() else value.date().isoformat()
    return " ".join(str(value).split()) if value is not None else ""


# ------------------------------------------------------------------ compound files: Office before 2007, and Outlook


def read_compound(content: bytes, output: Output) -> None:
    """Write the text of a file of Microsoft's container."""
    with olefile.OleFileIO(BytesIO(content)) as container:
        if container.exists("EncryptedPackage"):
            raise Problem("password")
        if container.exists("Workbook") or container.exists("Book"):
            return read_spreadsheet(content, output)
        if container.exists("__properties_version1.0"):
            say(kind="mail")
            return read_outlook(container, output)
        if container.exists("WordDocument") or container.exists("PowerPoint Document"):
            raise Problem("old")
    raise Problem("unknown")


def read_outlook(container: Any, output: Output) -> None:
    """Write a mail as Outlook stores it (.msg)."""
    fixed = fixed_properties(container)
    charset, page_charset = (f"cp{fixed.get(tag, 0) & 0xFFFF}" for tag in (_CHARSET, _PAGE_CHARSET))

    def value(tag: str, place: str = "") -> str:
        for kind in ("001F", "001E"):
            name = f"{place}__substg1.0_{tag}{kind}"
            if container.exists(name):
                data = container.openstream(name).read()
                text = data.decode("utf-16-le", "replace") if kind == "001F" else ""
                with suppress(Problem):  # what is no text does not take the others with it
                    text = text or decode(data.rstrip(b"\0"), charset)[0]
                return text.rstrip("\0")
        return ""

    address = value("5D01") or value("0C1F")
    heads = {
        "From": f"{value('0C1A')} <{address}>" if address else value("0C1A"),
        "To": value("0E04"),
        "Cc": value("0E03"),
        "Date": outlook_date(fixed.get(_SENT, 0)),
        "Subject": value("0037"),
    }
    output.write("".join(f"{name}: {' '.join(text.split())}\n" for name, text in heads.items() if text) + "\n")
    body = value("1000")
    if not body and container.exists("__substg1.0_10130102"):
        body = html_text(decode(container.openstream("__substg1.0_10130102").read(), page_charset)[0])
    output.write((body or "(its text is in a form that is not read)") + "\n")
    places = sorted({path[0] for path in container.listdir() if path[0].startswith("__attach_version1.0_")})
    for place in places[:MOST_NAMES]:
        name = value("3707", f"{place}/") or value("3704", f"{place}/") or "unnamed"
        data = f"{place}/__substg1.0_37010102"
        size = container.get_size(data) if container.exists(data) else 0
        output.write(f"[attachment: {name}, {size:,} bytes]\n")


_SENT: Final = 0x00390040
_CHARSET: Final = 0x3FFD0003
_PAGE_CHARSET: Final = 0x3FDE0003
"""Tags of the time of sending, and of the character sets of texts and of the page."""


def fixed_properties(container: Any) -> dict[int, int]:
    """Return the properties of a mail that have a fixed size, 16 bytes each behind a head of 32."""
    data = container.openstream("__properties_version1.0").read(65_536)
    found = (struct.unpack_from("<IIQ", data, start) for start in range(32, len(data) - 15, 16))
    return {tag: value for tag, _, value in found}


def outlook_date(ticks: int) -> str:
    """Return a time that is counted in 100 ns since 1601; "" if it is not known."""
    if not 0 < ticks < 1 << 60:
        return ""
    return str(datetime.datetime(1601, 1, 1) + datetime.timedelta(microseconds=ticks // 10))[:16] + " UTC"


# ------------------------------------------------------------------ mails


def write_mail(mail: EmailMessage, output: Output, depth: int) -> None:
    """Write head and text of a mail, the names of what is attached, and mails that it forwards."""
    for name in ("From", "To", "Cc", "Date", "Subject"):
        try:
            value = str(mail.get(name, ""))
        except (ValueError, LookupError, AttributeError, TypeError):  # a head that the parser cannot make sense of
            continue
        if value:
            output.write(f"{name}: {' '.join(value.split())}\n")
    output.write("\n")
    output.flush()
    plain: list[str] = []
    html: list[str] = []
    others: list[str] = []
    """Invitations, and parts without their boundaries."""
    attached: list[str] = []
    forwarded: list[Any] = []
    for part in mail_parts(mail):
        type, name = part.get_content_type(), part.get_filename()
        if type == "message/rfc822":
            inner = part.get_payload()
            forwarded += inner[:1] if isinstance(inner, list) else []
            continue
        payload = part.get_payload(decode=True)
        data = payload if isinstance(payload, bytes) else b""
        is_shown = (
            part.get_content_maintype() in ("text", "multipart") and part.get_content_disposition() != "attachment"
        )
        if is_shown and (not name or part is mail):
            try:
                text = decode(data, part.get_content_charset() or "")[0]
            except Problem:
                text = "(a part that is no text)"
            (html if type == "text/html" else plain if type == "text/plain" else others).append(text)
        else:
            attached.append(f"[attachment: {name or 'unnamed'}, {type}, {len(data):,} bytes]\n")
    body = "\n".join(text for text in plain if text.strip()) or "\n".join(map(html_text, html))
    body = body if body.strip() else "\n".join(others)
    output.write((body.strip() or "(it has no text, or it is encrypted)") + "\n")
    for line in attached[:MOST_NAMES]:
        output.write(line)
    for inner in forwarded if depth < DEEPEST_MAIL else ():
        output.write("\n[forwarded mail]\n")
        write_mail(inner, output, depth + 1)


def mail_parts(mail: EmailMessage) -> Iterator[Any]:
    """Yield the parts of a mail that have a content, without those of a mail that it forwards."""
    waiting: list[Any] = [mail]
    while waiting:
        part = waiting.pop()
        if part.get_content_maintype() == "multipart" and isinstance(part.get_payload(), list):
            waiting += reversed(part.get_payload())
        else:
            yield part


def html_text(html: str) -> str:
    """Return the text of a page, a paragraph a line."""
    html = re.sub(r"(?i)(<br\b[^>]*>|</(?:p|div|tr|li|h[1-6]|table|blockquote)>)", r"\1\n", html)
    page = LexborHTMLParser(html)
    page.strip_tags(["script", "style", "head", "noscript", "template"])
    lines = (" ".join(line.split()) for line in (page.text() or "").split("\n"))
    return "\n".join(line for line in lines if line)


# ------------------------------------------------------------------ texts

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED: Final = re.compile(rb"""(?i)<\?xml[^>]*encoding=["']([\w.-]+)|<meta[^>]*charset=["']?([\w.-]+)""")
_SEVEN_BITS: Final = ("iso-2022-", "iso2022", "csiso2022", "hz", "utf-7")
_ESCAPED: Final = re.compile(rb"\x1b\$[@B]")
"""Begin of Japanese in ISO-2022-JP, which mails there are written in."""
_MODERN: Final = chardet.EncodingEra.MODERN_WEB
_DOS: Final = chardet.EncodingEra.DOS
_SURE: Final = 0.02
"""Confidence of the detector below which a short text is taken for one of Western Europe."""


def decode(content: bytes, charset: str) -> tuple[str, str]:
    """Return a text, and the character set that it was read in. charset: that somebody names; it counts if the text is one in it.

    Raises Problem for what is no text.
    """
    declared = _DECLARED.search(content[:2_048])
    names = [name for mark, name in _MARKS if content.startswith(mark)][:1]
    # Sets of seven bits a byte would pass for UTF-8.
    if charset.lower().startswith(_SEVEN_BITS):
        names.append(charset)
    elif _ESCAPED.search(content):
        names.append("iso-2022-jp")
    names += [
        "utf-8",
        charset,
        *(group.decode("ascii", "replace") for group in (declared.groups() if declared else ()) if group),
    ]
    if b"\0" in content[:8_192]:
        names = [name for name in names if "16" in name or "32" in name]
        names += ["utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"]
    else:
        found, of_dos = (chardet.detect(content, encoding_era=era) for era in (_MODERN, _MODERN | _DOS))
        if (of_dos["confidence"] or 0) > max(0.2, 2 * (found["confidence"] or 0)):
            found = of_dos
        # What Windows has no letter for was written by a program of DOS, as old tables are.
        names += [found["encoding"] or "" if (found["confidence"] or 0) >= _SURE else "", "cp1252", "cp850"]
    for name in filter(None, names):
        try:
            # By browsers' standard, texts that say they are in Latin-1 are in the larger set of Windows.
            codec = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(codecs.lookup(name).name, name)
            text = content.decode(codec)
        except (LookupError, ValueError):
            continue
        if is_text(text):
            return text, name.lower()
    text = content.decode("cp1252", "replace")
    if b"\0" in content or not is_text(text):
        raise Problem("unknown")
    return text, "windows-1252"


def is_text(text: str) -> bool:
    """Return whether characters are such as texts have: bytes read in the wrong set give unassigned and control characters."""
    sample = text[:4_096]
    strange = sum(
        unicodedata.category(c) in ("Cc", "Cn", "Co", "Cs") for c in sample if c not in "\t\n\r\f\x1b\x85\x1a"
    )
    return strange <= len(sample) // 100


if __name__ == "__main__":
    sys.setrecursionlimit(2_000)
    main(sys.argv[1], int(sys.argv[2]))
