"""Documents for tests: of Office by other libraries, of other kinds written by hand."""

import io
import struct
import zipfile
from datetime import date

import docx
import openpyxl
import pptx


def archive(**parts: str | bytes) -> bytes:
    """parts: by their paths, with "__" for "/"."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name.replace("__", "/"), text)
    return content.getvalue()


def letter() -> bytes:
    document = docx.Document()
    document.add_heading("Annual report", level=2)
    document.add_paragraph("Sales grew by 7\u00a0%.")
    document.add_paragraph("First", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), ("Year", "Sum", "2025", "9"), strict=True
    ):
        cell.text = text
    document.add_paragraph("End.\tIndeed")
    document.sections[0].header.paragraphs[0].text = "Pegasus Ltd."
    return saved(document)


def slides() -> bytes:
    presentation = pptx.Presentation()
    for title in ("One", "Two"):
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"say {title}"
    return saved(presentation)


def spreadsheet() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Costs"
    sheet.append(["Rent", 900, date(2026, 2, 6), True])
    sheet.append([])
    sheet.append(["Käse", 4.5, "=B1*2"])
    book.create_sheet("Empty")
    return saved(book)


def open_text(kind: str = "text", body: str = "") -> bytes:
    body = body or (
        '<text:h text:outline-level="1">Bericht</text:h>'
        '<text:p>Ein <text:span>Satz</text:span><text:tab/>mit<text:s text:c="2"/>Leerraum.</text:p>'
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>"
        "<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>"
        "<office:annotation><dc:creator>Ann</dc:creator><text:p>Stimmt das?</text:p></office:annotation>"
    )
    spaces = "".join(
        f' xmlns:{name}="urn:{name}"' for name in ("office", "text", "table", "draw", "dc", "presentation")
    )
    content = f'<?xml version="1.0" encoding="UTF-8"?><office:document-content{spaces}>{body}</office:document-content>'
    return archive(mimetype=f"application/vnd.oasis.opendocument.{kind}", **{"content.xml": content})


def book() -> bytes:
    container = '<container xmlns="urn:c"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    package = (
        '<package xmlns="urn:p"><manifest><item id="b" href="b.xhtml"/><item id="a" href="a.xhtml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    )
    pages = {
        f"OPS__{name}.xhtml": f"<html><head><title>x</title></head><body><p>{name}</p></body></html>" for name in "ba"
    }
    files = {"META-INF__container.xml": container, "OPS__book.opf": package, **pages}
    return archive(mimetype="application/epub+zip", **files)


MAIL = """From: =?utf-8?q?J=C3=B6rg?= <joerg@example.com>
To: ann@example.com
Subject: =?koi8-r?B?8NLJ18XU?=
Date: Fri, 6 Feb 2026 07:49:00 +0100
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: multipart/alternative; boundary="c"

--c
Content-Type: text/plain; charset=windows-1252
Content-Transfer-Encoding: quoted-printable

The price is 5 =80.
--c
Content-Type: text/html

<p>another form</p>
--c--
--b
Content-Type: application/pdf; name="r.pdf"
Content-Disposition: attachment; filename="r.pdf"
Content-Transfer-Encoding: base64

JVBERi0=
--b
Content-Type: message/rfc822

From: bob@example.com
Subject: earlier

What is the price?
--b--
""".replace("\n", "\r\n").encode()


def saved(document) -> bytes:
    content = io.BytesIO()
    document.save(content)
    return content.getvalue()


def compound(**streams: bytes) -> bytes:
    """A file of Microsoft's container with one level of streams, each as long as a sector at most is padded to 4,096 bytes.

    streams: by their names, with a leading "_" for each of the names that begin with two.
    """
    sector = 512
    chunks = {name: data.ljust(4096, b"\0") if len(data) < 4096 else data for name, data in streams.items()}
    starts, table, body = {}, [0xFFFFFFFD], b""  # sector 0 holds the table itself
    for name, data in chunks.items():
        count = -(-len(data) // sector)
        starts[name] = len(table)
        table += [len(table) + n + 1 for n in range(count - 1)] + [0xFFFFFFFE]
        body += data.ljust(count * sector, b"\0")
    first_entry = len(table)
    entries = [entry("Root Entry", 5, child=1 if chunks else 0xFFFFFFFF)]
    for number, (name, data) in enumerate(chunks.items(), 1):
        right = number + 1 if number < len(chunks) else 0xFFFFFFFF
        entries.append(entry(name, 2, right=right, start=starts[name], size=len(data)))
    while len(entries) % 4:
        entries.append(b"\0" * 68 + struct.pack("<III", *[0xFFFFFFFF] * 3) + b"\0" * 48)
    directory = b"".join(entries)
    count = len(directory) // sector
    table += [len(table) + n + 1 for n in range(count - 1)] + [0xFFFFFFFE]
    table += [0xFFFFFFFF] * (128 - len(table))
    assert len(table) == 128
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16 + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + b"\0" * 6
    head += struct.pack("<IIIIIIIII", 0, 1, first_entry, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    head += struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)
    return head + struct.pack("<128I", *table) + body + directory


def entry(name: str, kind: int, child=0xFFFFFFFF, right=0xFFFFFFFF, start=0xFFFFFFFE, size=0) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    return (
        encoded.ljust(64, b"\0")
        + struct.pack("<HBBIII", len(encoded), kind, 1, 0xFFFFFFFF, right, child)
        + b"\0" * 36
        + struct.pack("<IQ", start if kind == 2 else 0xFFFFFFFE, size)
    )
