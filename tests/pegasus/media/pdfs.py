"""PDFs for tests, written by hand: a page for each text."""

import io
import zlib

from pypdf import PdfWriter


def pdf(*texts, password="", compressed=None):
    """compressed: the content of each page in place of a text, as a stream that is inflated."""
    count = len(texts)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(texts):
        stream = compressed or (b"BT /F1 12 Tf 72 720 Td (%s) Tj ET" % text.encode() if text else b"")
        filters = b"/Filter /FlateDecode " if compressed else b""
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
        objects.append(page % (5 + 2 * index))
        objects.append(b"<< %s/Length %d >>\nstream\n%s\nendstream" % (filters, len(stream), stream))
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, table)
    if password:
        writer, locked = PdfWriter(clone_from=io.BytesIO(out)), io.BytesIO()
        writer.encrypt(password, algorithm="AES-256")
        writer.write(locked)
        out = locked.getvalue()
    return out


def bomb(size=200 << 20):
    """A page of a few hundred kilobytes that inflates to `size` bytes."""
    packer = zlib.compressobj(9)
    block = b"(" + b"a" * 1022 + b")"
    parts = [packer.compress(block * 1024) for _ in range(size >> 20)]
    return pdf("x", compressed=b"".join(parts) + packer.flush())
