"""Questions of servers to the person (elicitation), made harmless.

A server may ask for the values of a flat form, or that a page is opened in a browser. All that is shown are its own words, so they are
cleaned and cut; forms that are too large or of another form than the protocol allows are refused, and so are forms that ask for a
secret, which the protocol forbids ("servers MUST NOT use form mode to request sensitive information",
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation). Nothing is opened here: a person reads the address first.

A question is refused as a whole where one part of it cannot be shown. Half a form would get an answer that means something else than
the server has asked. Only words that explain are cut, and a default that nobody could type is left out.

The answers are typed in chats, so each kind of field has one way of typing: yes or no, a number, a text, a choice, or choices with
commas between them. `pegasus.policy.fill_form` reads them; it is asked here, too, whether it would take a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import attrs

from pegasus.conversation import plain_look
from pegasus.loopback import is_loopback
from pegasus.mcp.listing import clean
from pegasus.messages import FormChoice, FormField, Json, OwnerQuestion
from pegasus.policy import FormError, fill_form

LONGEST_TEXT: Final = 1_000
"""Characters of a question."""
LONGEST_WORDS: Final = 200
"""Characters of the description of a field, or of the title of a choice."""
LONGEST_ADDRESS: Final = 2_000
"""Characters of the address of a page."""
MOST_FIELDS: Final = 20
"""Fields of a form."""
MOST_CHOICES: Final = 50
"""Choices of a field."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of fields, which people type."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""Words of a name: `apiKey`, `APIKey`, `API_KEY` and `api-key` have two, and `shipping` does not have the word `pin`."""
_SECRETS: Final = frozenset(
    {"password", "passwd", "passphrase", "passcode", "secret", "secrets", "token", "credential", "credentials"}
    | {"passwords", "pin", "otp", "cvv", "cvc", "apikey", "passwort", "kennwort", "geheimnis", "contrasena"}
)
"""Words in names and titles of fields that ask for a secret."""
_SECRET_PAIRS: Final = frozenset(
    {("api", "key"), ("private", "key"), ("access", "key"), ("card", "number"), ("de", "passe")}
)
"""The same for two words that follow one another: `key` alone may be a key of a keyboard or a map."""


class BadQuestion(Exception):
    """A question that nobody is shown. The text says why, for the server and for the model.

    Example::

        try:
            question = read_question("hotel", asked)
        except BadQuestion as error:   # "a field of its form has no usable name"
            return ErrorData(code=INVALID_PARAMS, message=str(error))
    """


@attrs.frozen(eq=False, repr=False)
class ServerAnswer:
    """An answer to a server, in the words of the protocol.

    Example::

        ServerAnswer("accept", {"beds": 2})   # the form as the person has filled it in
        ServerAnswer("cancel")                # nobody could be asked
    """

    action: Literal["accept", "decline", "cancel"]
    """"accept", "decline" (the person has said no) or "cancel" (nobody has answered)."""
    values: dict[str, Json] | None = None
    """The form as it was filled in."""


@attrs.frozen(eq=False, repr=False)
class ServerQuestion:
    """A question as a server has sent it, unchecked.

    Example::

        ServerQuestion("Which room?", {"properties": {"beds": {"type": "integer"}}})
        ServerQuestion("Please pay here.", url="https://pay.example.org/7")
    """

    text: str
    """Words of the server, shown to the person after cleaning."""
    schema: object = None
    """JSON Schema of the form; None if it asks to open a page."""
    url: str | None = None
    """Address of that page."""


def read_question(server: str, asked: ServerQuestion) -> OwnerQuestion:
    """Return a question as owners are shown it. Raises BadQuestion.

    Example: `read_question("hotel", ServerQuestion("Which room?", {"properties": {"beds": {"type": "integer"}}}))`.
    """
    source, text = f"MCP server {server}", clean(asked.text, LONGEST_TEXT)
    if asked.url is not None:
        return OwnerQuestion(source, text, url=_read_address(asked.url))
    schema = asked.schema if isinstance(asked.schema, Mapping) else {}
    properties, required = schema.get("properties", {}), schema.get("required") or []
    if not isinstance(properties, Mapping) or not isinstance(required, list) or len(properties) > MOST_FIELDS:
        raise BadQuestion(f"its form is none, or has more than {MOST_FIELDS} fields")
    fields = tuple(_read_field(name, field, is_required=name in required) for name, field in properties.items())
    return OwnerQuestion(source, text, fields)


def _read_address(url: str) -> str:
    """Return the address of a page. Raises BadQuestion for one that a person could not judge, or that is not safe to open."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise BadQuestion("its address is none") from None
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        raise BadQuestion("its address does not begin with https://")
    if "@" in parts.netloc or len(url) > LONGEST_ADDRESS or not url.isascii() or not url.isprintable() or " " in url:
        raise BadQuestion(
            f"its address has a user name, characters that mislead, or more than {LONGEST_ADDRESS:,} characters"
        )
    return url


def _read_field(name: object, schema: object, *, is_required: bool) -> FormField:
    """Return a field of a form. Raises BadQuestion."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(schema, Mapping):
        raise BadQuestion("a field of its form has no usable name")
    title, description = _words(schema, "title"), _words(schema, "description")
    # Descriptions are not looked at: a sentence may well say that no password is needed.
    if _asks_for_secret(name) or _asks_for_secret(title):
        raise BadQuestion(f"its form asks for a secret ({name}), for which the protocol has pages in a browser")
    about = f"{title}. {description}" if title and description else title or description
    kind, choices, bounds = _read_kind(schema)
    field = FormField(
        name, kind, about, is_required, None, choices, _number(schema, bounds[0]), _number(schema, bounds[1])
    )
    return attrs.evolve(field, default=_read_default(field, schema.get("default")))


def _asks_for_secret(text: str) -> bool:
    if not text.isascii():  # letters of other alphabets that look like ours
        text = plain_look(text)
    words = [word.lower() for word in _WORD.findall(text)]
    return not _SECRETS.isdisjoint(words) or any(pair in _SECRET_PAIRS for pair in pairwise(words))


def _read_kind(schema: Mapping[str, Any]) -> tuple[str, tuple[FormChoice, ...], tuple[str, str]]:
    """Return the kind of a field, its choices, and the keywords of its bounds. Raises BadQuestion."""
    match schema.get("type"):
        case "boolean":
            return "boolean", (), ("", "")
        case "integer" | "number" as kind:
            return kind, (), ("minimum", "maximum")
        case "string":
            choices = _read_choices(schema, "oneOf")
            return ("choice" if choices else "text"), choices, ("minLength", "maxLength")
        case "array" if isinstance(items := schema.get("items"), Mapping):
            choices = _read_choices(items, "anyOf")
            if not choices or any("," in choice.value for choice in choices):
                raise BadQuestion("a list of its form has no choices that can be typed")
            return "choices", choices, ("minItems", "maxItems")
    raise BadQuestion("a field of its form is no text, number, yes or no, or choice")


def _read_choices(schema: Mapping[str, Any], titled: str) -> tuple[FormChoice, ...]:
    """Return the choices of a field: `enum` with or without names, or a list of constants with titles. Raises BadQuestion.

    Choices are answered by typing them, so one that cleaning would change cannot be answered.
    """
    values, names = schema.get("enum"), schema.get("enumNames")
    if values is None and isinstance(options := schema.get(titled), list):
        read = [option if isinstance(option, Mapping) else {} for option in options[: MOST_CHOICES + 1]]
        values, names = [option.get("const") for option in read], [option.get("title") for option in read]
    if values is None:
        return ()
    if not isinstance(values, list) or not 0 < len(values) <= MOST_CHOICES:
        raise BadQuestion(f"a field of its form has no choices, or more than {MOST_CHOICES}")
    titles = names if isinstance(names, list) and len(names) == len(values) else [""] * len(values)
    choices = []
    for value, title in zip(values, titles, strict=True):
        if not isinstance(value, str) or not value or clean(value, LONGEST_WORDS) != value:
            raise BadQuestion("a choice of its form is no plain text")
        choices.append(FormChoice(value, clean(title, LONGEST_WORDS) if isinstance(title, str) else ""))
    return tuple(choices)


def _read_default(field: FormField, value: object) -> str | None:
    """Return a default as a person would type it, None if there is none that the field itself would take."""
    match field.kind, value:
        case "boolean", bool():
            text = "yes" if value else "no"
        case (("integer" | "number"), int() | float()):
            text = str(value)
        case (("text" | "choice"), str()):
            text = value
        case "choices", list():
            text = ", ".join(map(str, value[:MOST_CHOICES]))
        case _:
            return None
    try:
        fill_form((field,), {field.name: text})
    except FormError:
        return None
    return text if clean(text, LONGEST_TEXT) == text else None  # nobody would see what it hides


def _words(schema: Mapping[str, Any], key: str) -> str:
    words = schema.get(key)
    return clean(words, LONGEST_WORDS) if isinstance(words, str) else ""


def _number(schema: Mapping[str, Any], key: str) -> float | None:
    """Return a bound of a field; None for one beyond 2**53, which a float does not hold exactly."""
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53 else None
