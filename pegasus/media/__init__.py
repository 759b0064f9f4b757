"""Attachments that are neither picture nor text: PDFs are read, recordings are written down.

    pdf_text     the text of a PDF, read by a process that can be killed (`pdf_child` is its program)
    reading      attachments of a message as text: PDFs, and recordings by transcription, once each

Pictures and texts need nothing of this: `pegasus.conversation` shows them and reads them out.
"""

from pegasus.media.reading import AttachmentReader, Reading, recording_type

__all__ = ["AttachmentReader", "Reading", "recording_type"]
