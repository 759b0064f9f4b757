"""Prompts of an editor, which may send any text as the address of a file."""

import pytest

from pegasus.acp.content import read_prompt


@pytest.mark.parametrize("uri", ["http://[", "file://[x", "file:///project/%00", "file:///project/a\0", "%%%", ""])
def test_an_address_that_is_none_is_named_as_it_is_and_its_content_is_from_outside(uri):
    blocks = [
        {"type": "text", "text": "look at "},
        {"type": "resource", "resource": {"uri": uri, "text": "content"}},
        {"type": "resource_link", "uri": uri, "name": ""},
        {"type": "image", "uri": uri, "mimeType": "image/png", "data": "AAAA"},
    ]
    text, media = read_prompt(blocks, "/project")
    assert "content" not in text
    assert text == f"look at {uri}{uri}"
    assert [file.mime for file in media] == ["text/plain", "image/png"]
    assert all(file.name and file.name.isprintable() for file in media)
