"""Access tokens by a private key of this program: the statement that it signs, for each kind of key, and files that hold none."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from mcp.client.auth import OAuthFlowError

from pegasus.mcp.oauth import KeyAuth, make_auth
from pegasus.mcp.tokens import TokenFile
from pegasus.settings import McpServerSettings

KEYS = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
SERVICE = "https://auth.example.org"


def auth_with(tmp_path, content):
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    settings = McpServerSettings(
        url="https://tools.example.org/mcp", auth="client_credentials", client_id="pegasus", client_key=str(path)
    )
    return make_auth(settings, TokenFile(tmp_path / "tokens.json"))


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_statement_is_signed_for_one_service_only(tmp_path, algorithm):
    key = KEYS[algorithm]
    auth = auth_with(tmp_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert isinstance(auth, KeyAuth)
    signed = await auth._assertion_provider(SERVICE)
    claims = jwt.decode(signed, key.public_key(), algorithms=[algorithm], audience=SERVICE)
    assert (claims["iss"], claims["sub"]) == ("pegasus", "pegasus")
    assert 0 < claims["exp"] - claims["iat"] <= 600


@pytest.mark.parametrize(
    "content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
async def test_a_file_without_a_key_is_named(tmp_path, content):
    with pytest.raises(OAuthFlowError, match=r"client_key: .*key\.pem holds no private key"):
        await auth_with(tmp_path, content)._assertion_provider(SERVICE)
