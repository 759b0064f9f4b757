"""Attachments that are neither picture nor plain text: PDFs and documents are read, recordings are written down.

    pdf_text          the text of a PDF (`pdf_child` is its program)
    document_text     the text of documents, mails, and texts in other character sets (`document_child` is its program)
    reader_process    the process that a program of these runs in, which can be killed; what comes of a reading
    reading           attachments of a message as text; recordings by transcription, once each

Pictures and texts need nothing of this: `pegasus.conversation` shows them and reads them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.media.reader_process import BY_TASK, Reading
from pegasus.media.reading import AttachmentReader, recording_type

if TYPE_CHECKING:
    from pegasus.media.document_text import is_document
else:
    __getattr__ = late_names(__name__)

__all__ = ["BY_TASK", "AttachmentReader", "Reading", "is_document", "recording_type"]
