"""The agent card, whose signature is checked by the official library."""

import jwt
import pytest
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from google.protobuf.json_format import ParseDict

from pegasus.a2a.card import CardKeyError, load_key, make_card


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
def key(tmp_path):
    (tmp_path / "key.pem").write_bytes(pem(ec.generate_private_key(ec.SECP256R1())))
    return load_key(tmp_path / "key.pem")


def test_the_official_library_accepts_the_signature_and_no_other(key):
    skill = {"id": "s", "name": "Größe 😀", "description": 'a "quoted" \\ text\n', "tags": ["skill"]}
    card = make_card("Pégase", "https://agent.example", [skill], key)
    known = jwt.PyJWK(key.public)
    asked = []

    def find(kid, jku):
        asked.append((kid, jku))
        return known

    verify = create_signature_verifier(find, ["ES256"])
    verify(ParseDict(card, AgentCard()))
    assert asked == [(key.id, "https://agent.example/a2a/keys.json")]
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict({**card, "name": "Somebody else"}, AgentCard()))


@pytest.mark.parametrize(
    "content",
    [b"", b"no key", pem(ec.generate_private_key(ec.SECP384R1())), pem(ed25519.Ed25519PrivateKey.generate())],
)
def test_another_key_is_refused_with_a_sentence(tmp_path, content):
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(CardKeyError, match=r"a2a\.signing_key"):
        load_key(tmp_path / "key.pem")
    with pytest.raises(CardKeyError, match="cannot be read"):
        load_key(tmp_path / "none.pem")
