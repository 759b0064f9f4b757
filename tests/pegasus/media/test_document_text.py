"""Documents as text: what they say, and in words what cannot be read, whatever the file does to its reader."""

import struct
import zipfile
from base64 import b64encode
from io import BytesIO

import pytest
import trio

from pegasus.media import BY_TASK, AttachmentReader
from pegasus.media.document_text import is_document, read_document
from pegasus.messages import Media
from pegasus.models import Label
from tests.pegasus.media import documents
from tests.pegasus.media.documents import archive, compound

DATE = b"\0" * 32 + struct.pack("<IIQ", 0x00390040, 6, 134147477400000000)


def wide(text):
    return text.encode("utf-16-le")


READ = {
    "Word (.docx)": (
        documents.letter(),
        "## Annual report\nSales grew by 7\u00a0%.\nFirst\nYear | Sum\n2025 | 9\nEnd.\tIndeed\n[header]\nPegasus Ltd.",
    ),
    "PowerPoint (.pptx)": (
        documents.slides(),
        "[slide 1]\nOne\n[notes]\nsay One\n[slide 2]\nTwo\n[notes]\nsay Two",
    ),
    "Excel (.xlsx)": (
        documents.spreadsheet(),
        "[sheet Costs]\nRent | 900 | 2026-02-06 | True\nKäse | 4.5\n[sheet Empty]",
    ),
    "OpenDocument text (.odt)": (
        documents.open_text(),
        "# Bericht\nEin Satz\tmit  Leerraum.\na | b\nStimmt das?",
    ),
    "OpenDocument slides (.odp)": (
        documents.open_text("presentation", "<draw:page><text:p>Eins</text:p></draw:page><draw:page/>"),
        "[slide 1]\nEins\n[slide 2]",
    ),
    "book (.epub)": (documents.book(), "a\nb"),
    "rich text (.rtf)": (rb"{\rtf1\ansi Hello \b World\b0\par Zeile \'e4}", "Hello World\nZeile ä"),
    "mail (.eml)": (
        documents.MAIL,
        "From: Jörg <joerg@example.com>\nTo: ann@example.com\nDate: Fri, 06 Feb 2026 07:49:00 +0100\nSubject: Привет\n\n"
        "The price is 5 €.\n[attachment: r.pdf, application/pdf, 5 bytes]\n\n"
        "[forwarded mail]\nFrom: bob@example.com\nSubject: earlier\n\nWhat is the price?",
    ),
    "mail of Outlook (.msg)": (
        compound(
            **{
                "__properties_version1.0": DATE,
                "__substg1.0_0037001F": wide("Hi there"),
                "__substg1.0_0C1A001F": wide("Ann"),
                "__substg1.0_1000001F": wide("Text of it"),
            }
        ),
        "From: Ann\nDate: 2026-02-05 06:49 UTC\nSubject: Hi there\n\nText of it",
    ),
    "mail of Outlook before Unicode (.msg)": (
        compound(
            **{
                "__properties_version1.0": b"\0" * 32 + struct.pack("<IIQ", 0x3FFD0003, 6, 1251),
                "__substg1.0_0037001E": "Да".encode("cp1251"),
                "__substg1.0_1000001E": "Привет".encode("cp1251"),
            }
        ),
        "Subject: Да\n\nПривет",
    ),
    "Japanese mail": (
        b"From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=ISO-2022-JP\n\n"
        + "会議は十時".encode("iso2022_jp"),
        "From: a@example.com\nSubject: x\n\n会議は十時",
    ),
    "invitation by mail": (
        b"From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/calendar; method=REQUEST\n\nSUMMARY:Tea\n",
        "From: a@example.com\nSubject: x\n\nSUMMARY:Tea",
    ),
    "mail without the parts that it announces": (
        b"From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=none\n\nHello\n",
        "From: a@example.com\nSubject: x\n\nHello",
    ),
    "mail that is one named text": (
        b'From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/plain; name="n.txt"\n\nHello\n',
        "From: a@example.com\nSubject: x\n\nHello",
    ),
    "archive (.zip)": (archive(a__b="x" * 1200), "a/b, 1,200 bytes"),
}


@pytest.mark.parametrize(
    ("content", "text"),
    [pytest.param(*READ[name], marks=pytest.mark.tried("files", name, "read"), id=name) for name in READ],
)
async def test_what_a_document_says(content, text):
    assert is_document(content)
    found = await read_document(content, 20_000)
    assert (found.text, found.left_out) == (text, BY_TASK if found.note == "archive" else "")


TEXTS = {
    "windows-1252": "Le café est fermé à midi, mais le garçon a déjà préparé l'été.",
    "cp1250": "Dobrý den, schůzka bude zítra v deset hodin ráno. Přijďte prosím včas.",
    "windows-1251": "Привет, как дела? Завтра встреча в десять часов утра.",
    "koi8-r": "Привет, как дела? Завтра встреча в десять часов утра.",
    "cp1253": "Καλημέρα σας, τι κάνετε σήμερα το πρωί;",
    "cp1255": "שלום, מה שלומך היום בבוקר?",
    "cp1256": "مرحبا كيف حالك اليوم في الصباح",
    "shift_jis": "こんにちは、明日の会議は十時からです。よろしくお願いします。",
    "euc_jp": "こんにちは、明日の会議は十時からです。よろしくお願いします。",
    "iso2022_jp": "こんにちは、明日の会議は十時からです。",
    "cp866": "Привет! Это обычное письмо о завтрашней встрече в три часа.",
    "cp850": "Name;Straße;Ort\nMüller;Königsweg 5;Köln",
    "gb18030": "你好,明天上午十点开会,请准时参加。谢谢大家的支持。",
    "big5": "您好,明天上午十點開會,請準時參加。謝謝大家的支持。",
    "euc_kr": "안녕하세요, 내일 오전 열 시에 회의가 있습니다.",
    "utf-16-le": "Hello, this is plain text.\nZweite Zeile: Grüße",
    "utf-16-be": "Hello, this is plain text.\nZweite Zeile: Grüße",
    "utf-32": "Hello, this is plain text.",
}


@pytest.mark.parametrize(
    "charset", [pytest.param(name, marks=pytest.mark.tried("files", f"text in {name}", "read")) for name in TEXTS]
)
async def test_a_text_in_another_character_set(charset):
    content = TEXTS[charset].encode(charset)
    assert is_document(content)
    assert (await read_document(content, 20_000)).text == TEXTS[charset]


@pytest.mark.parametrize(
    "content", [b"plain", "Grüße".encode(), b"", b"\x89PNG\r\n\x1a\n", b"\x00\x01\x02\xff" * 99, b"\x7fELF"]
)
def test_what_needs_no_reader_or_has_none_is_no_document(content):
    assert not is_document(content)


async def test_the_character_set_that_a_sender_names_counts_where_nothing_else_tells():
    reader = AttachmentReader(None)
    file = Media("a.txt", "text/plain; charset=cp866", b64encode("Да".encode("cp866")).decode())
    [reading] = (await reader.read([file], 1_000, Label("transcribe"))).values()
    assert reading.text == "Да"


async def test_what_does_not_fit_is_left_out_and_told():
    found = await read_document(documents.letter(), 20)
    assert found.text == "## Annual report\nSal"
    assert found.left_out == "the first 20 characters are shown; the rest is left out"


def locked():
    content = bytearray(archive(mimetype="application/vnd.oasis.opendocument.text", **{"content.xml": "<a/>"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = -1
        while (start := content.find(mark, start + 1)) >= 0:
            content[start + place] |= 1
    return bytes(content)


def letter_of(body, head=""):
    relations = (
        '<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>'
    )
    return (
        archive(_rels__=relations)
        if body is None
        else archive(**{"_rels__.rels": relations, "word__document.xml": head + body})
    )


LAUGHS = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (locked(), "protected by a password"),
        (compound(EncryptedPackage=b"x"), "protected by a password"),
        (compound(WordDocument=b"x"), "before 2007"),
        (compound(Other=b"x"), "not known"),
        (documents.letter()[:4_000], "damaged"),
        (letter_of("<p><t>cut"), "damaged"),
        (letter_of("<p><t>&b;&f;</t></p>", LAUGHS), "damaged"),
        (documents.spreadsheet()[:2_000], "damaged"),
        (compound(Workbook=b"\x09\x08nonsense"), "damaged"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 nothing", "damaged"),
        (letter_of("<p/>"), "there is no text in it"),
    ],
    ids=["zip", "office", "old", "other", "cut", "open", "entities", "sheet", "xls", "ole", "empty"],
)
async def test_what_has_no_text_says_why(content, words):
    found = await read_document(content, 1_000)
    assert found.text == ""
    assert words in found.note


async def test_an_archive_that_inflates_without_end_and_elements_without_end_are_given_up():
    bomb = letter_of("<p>" + " " * (130 << 20))
    deep = letter_of("<p><t>deep</t>" + "<a>" * 500_000)
    assert len(bomb) + len(deep) < 1 << 20
    with trio.fail_after(60):
        assert "inflates" in (await read_document(bomb, 1_000)).note
        assert not (await read_document(deep, 1_000)).text


async def test_a_sheet_of_all_rows_and_columns_is_given_up():
    sheet = '<worksheet><sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    content = BytesIO()
    with zipfile.ZipFile(BytesIO(documents.spreadsheet())) as old, zipfile.ZipFile(content, "w") as new:
        for name in old.namelist():
            new.writestr(name, f"{sheet}</sheetData></worksheet>" if name.endswith("sheet1.xml") else old.read(name))
    with trio.fail_after(60):
        found = await read_document(content.getvalue(), 1_000)
    assert not found.text or found.left_out


async def test_a_part_of_a_mail_that_is_no_text_does_not_take_the_others_with_it():
    mail = documents.MAIL.replace(b"The price is 5 =80.", b"=00=01=02=03=FF")
    found = await read_document(mail, 20_000)
    assert "(a part that is no text)" in found.text
    assert "What is the price?" in found.text


async def test_a_reader_that_takes_too_long_is_killed():
    with trio.fail_after(20):
        found = await read_document(documents.letter(), 1_000, patience=0.01)
    assert "too long" in found.note


async def test_a_cancel_ends_the_reader():
    with trio.fail_after(20), trio.move_on_after(0.02) as scope:
        await read_document(documents.letter(), 1_000)
    assert scope.cancelled_caught
