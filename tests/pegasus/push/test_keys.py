"""Encryption and the key of the home, held against the examples of the RFCs."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from pegasus.es256 import decode_base64url, encode_base64url
from pegasus.host import HomeError
from pegasus.push.keys import LARGEST, encrypt, ensure_key, read_point
from tests.pegasus.push.service import Browser, point

# RFC 8291, section 5 and appendix A.
BROWSER = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
SERVER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
    "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_the_rfc():
    own = ec.derive_private_key(int.from_bytes(decode_base64url(SERVER), "big"), ec.SECP256R1())
    body = encrypt(
        b"When I grow up, I want to be a watermelon",
        read_point(BROWSER),
        decode_base64url("BTBZMqHH6r4Tts7J_aSIgg"),
        own=own,
        salt=decode_base64url("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert encode_base64url(body) == BODY


@pytest.mark.parametrize("size", [0, LARGEST])
def test_a_message_is_read_by_its_browser_and_fits_into_what_services_take(size):
    browser = Browser("b")
    text = os.urandom(size)
    body = encrypt(text, browser.key.public_key(), browser.secret)
    assert len(body) <= 4096
    assert browser.read(body) == text


@pytest.mark.parametrize("wrong", ["", "AAAA", "no base64!", encode_base64url(b"\x04" + bytes(64)), "Bé"])
def test_a_key_that_is_no_point_of_the_curve(wrong):
    with pytest.raises(ValueError, match=r".*"):
        read_point(wrong)


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path):
    path = tmp_path / "push.key"
    first = ensure_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ensure_key(path).public == first.public
    assert len(decode_base64url(first.public)) == 65
    for content in ("", "x", path.read_text().replace("PRIVATE", "PUBLIC")):
        path.write_text(content)
        with pytest.raises(HomeError, match="no private key"):
            ensure_key(path)
    assert point(read_point(first.public)) == decode_base64url(first.public)
