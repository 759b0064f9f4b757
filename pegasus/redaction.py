r"""Removal of secrets from text that leaves the process or reaches a model: logs, results of tools, errors of providers.

Two kinds of secrets are replaced by `***`:

1. *Known* ones: keys of the settings, tokens of the home, environment variables with telling names. They are found in every form
   in which they usually appear: plain, escaped by JSON or repr, in an address, in base64.
2. Those of a *common format*, whoever they belong to (`FORMATS`): a key in a file that a task reads was never told
   to Pegasus.

Text is searched as it is written down, after JSON has escaped it: then no way of putting fields together leaves a secret in one.

Formats with a prefix keep it, so that a reader knows what was there (`ghp_***`).

A format must not match ordinary text. Commit hashes, UUIDs and pictures in base64 are full of random letters, so every format needs
a prefix or a context (`Authorization:`), and a prefix counts only at the beginning of a word. Secrets without either (an AWS secret
key, a password) are found by their context or not at all. Where a name is the context (`password = `), what stands behind it is
looked at as well (`_is_secret_value`): a program's source, a form's label and a page of documentation have these names on every
screen, and a model that reads `***` in place of a variable writes it back into the file.

Time is linear in the text. A format is looked for only if one of its hints, plain texts, is there at all; its pattern begins
with fixed letters; a part without a bound is one class of characters whose end the pattern does not look back from; and a
word can be begun only once, since what may stand before it (a blank, `\n`, `%20`, a colour's `\x1b[1m`) cannot stand within
it. `scripts/bench hands` measures it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs

from pegasus.formatting import MASK
from pegasus.wire import decode_object

# ------------------------------------------------------------------ known secrets

_SECRET_NAME: Final = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_|PG)PASS|SQL_PWD)$", re.IGNORECASE
)
"""Endings of names whose values are treated as secrets."""


def secrets_in_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are named like secrets (`…KEY`, `…TOKEN`, `…PASSWORD` and similar).

    Commands do not receive them, but can still find them (another process of the same user, a file
    that was sourced), so they are masked in results.
    """
    return tuple(value for name, value in environ.items() if value and _SECRET_NAME.search(name))


class Redactor:
    """Replacement of known secrets, and of everything that has the format of one, by `***`.

    Example::

        Redactor(["s3cret-12345"]).apply("key=s3cret-12345")  # "key=***"
    """

    def __init__(self, secrets: Iterable[str] = (), *, shortest: int = 6, mask: str = MASK) -> None:
        """Collect the forms in which each secret may appear.

        secrets: the known ones. shortest: characters from which a known secret counts; shorter ones would take words
        apart. mask: what takes the place of a secret.
        """
        self._mask = mask
        forms = {form for secret in secrets if len(secret) >= shortest for form in _forms_of(secret)}
        # The longest first: a secret that contains another one must not be left with its remainder readable.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def apply(self, text: str) -> str:
        """Return the text without secrets."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, self._mask)
        return redact_formats(text, self._mask)


class KnownSecrets:
    """The secrets of an installation as they are known at the moment. All who remove secrets from texts share one such object.

    Example::

        secrets = KnownSecrets([token], SecretFolder(home.path / "mcp"))
        secrets.add(secrets_of(settings))
        secrets.redact(text)  # the text without any of them
    """

    def __init__(self, secrets: Iterable[str] = (), folder: SecretFolder | None = None) -> None:
        """Know these secrets. folder: has further ones, which may change at any time."""
        self._own = tuple(secrets)
        self._folder = folder
        self._known = self._own
        """The secrets that `_redactor` knows."""
        self._redactor = Redactor(self._known)

    def all(self) -> tuple[str, ...]:
        """Return the secrets that are known now."""
        return self._own if self._folder is None else (*self._own, *self._folder.read())

    def add(self, secrets: Iterable[str]) -> None:
        """Take in further secrets. Those from before stay, since they may still be valid."""
        self._own = tuple(dict.fromkeys((*self._own, *secrets)))

    def redact(self, text: str) -> str:
        """Return the text without the secrets of this moment, and without anything that has the format of one."""
        known = self.all()
        if known != self._known:
            self._known, self._redactor = known, Redactor(known)
        return self._redactor.apply(text)


def _forms_of(secret: str) -> set[str]:
    """Return a secret as it is, and escaped by JSON, by repr, in an address and in base64 (HTTP's Basic)."""
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    try:
        encoded = secret.encode("utf-8", "surrogateescape")  # as the environment has it
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON can have it
        encoded = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        escaped,
        json.dumps(escaped, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(encoded, safe=""),
        base64.b64encode(encoded).decode().rstrip("="),
    }


# ------------------------------------------------------------------ secrets in files

_SECRET_KEY: Final = re.compile("token|secret|verifier", re.IGNORECASE)
"""Part of the keys of a JSON file under which secrets stand."""
_SHORTEST_SECRET: Final = 8
"""Characters of a text in such a file that can be a secret. `token_type` has fewer."""


class SecretFolder:
    """The secrets in the JSON files of a folder, such as the tokens of MCP servers: every text under a key that names a secret.

    Example: `SecretFolder(home.path / "mcp").read()` returns ("eyJ0eXAi…",). A file is read again when it has changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        """Content of each file, and its state at that time, by its name."""

    def read(self) -> tuple[str, ...]:
        """Return the secrets. Looks at the folder each time, which takes some microseconds; files are small.

        A file that is just being replaced is read as it was or as it will be, since the replacement is a rename. What cannot be read
        at the moment, such as for want of descriptors, has the secrets that were known before.
        """
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".json")]
        except FileNotFoundError:
            names = []
        except OSError:
            names = list(self._known)
        found = {name: self._read_file(name) for name in names}
        self._known = {name: known for name, known in found.items() if known is not None}
        return tuple(secret for _, secrets in self._known.values() for secret in secrets)

    def _read_file(self, name: str) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
        """Return the state of a file and its secrets; what was known before if it cannot be read, None if there is no such file."""
        path, known = self._folder / name, self._known.get(name)
        try:
            status = os.stat(path, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                return None
            # The inode differs after each replacement, even where size and time are the same.
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if known is not None and known[0] == state:
                return known
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            return known
        try:
            return state, tuple(sorted(_secrets_in(decode_object(content))))
        except ValueError:
            return state, ()


def _secrets_in(facts: Mapping[str, Any]) -> set[str]:
    """Return every text under a key that names a secret. Addresses, such as that of the token endpoint, are none."""
    found: set[str] = set()
    for key, value in facts.items():
        if isinstance(value, Mapping):
            found |= _secrets_in(value)
        elif (
            isinstance(value, str) and len(value) >= _SHORTEST_SECRET and "://" not in value and _SECRET_KEY.search(key)
        ):
            found.add(value)
    return found


# ------------------------------------------------------------------ formats of secrets

_KEY_LETTER: Final = "[A-Za-z0-9_-]"
"""Characters of base64 for addresses, of which most keys consist."""
_BEFORE: Final = (
    *(r"\\[bfnrt]", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}"),
    *(rf"\[{colour}m" for colour in ("", r"\d", r"\d\d", r"\d;\d", r"\d;\d\d", r"\d\d;\d")),
)
"""Texts that end in a letter or digit, but are no part of the word behind them. Each has a fixed length, as a lookbehind needs it."""
_LETTER: Final = "[A-Za-z0-9]"
"""Letters and digits."""
_GAP: Final = r"""\\{0,3}["']?\s{0,4}[:=]\s{0,4}\\{0,3}["']?"""
"""Between a name and its value in headers, JSON, TOML and Python, the quotation marks perhaps escaped."""
_LOOKS_RANDOM: Final = r"(?=[^\s\"']{0,64}?(?:[0-9]|(?-i:[a-z][A-Z])|=)|[A-Za-z0-9._~+/=-]{20})"
"""Ahead of a value: it has a digit, a change of case, or many letters, and is therefore no word of a sentence."""


@attrs.frozen(eq=False, repr=False)
class SecretFormat:
    """A format by which secrets are recognised.

    Example::

        format = SecretFormat("npm", ("npm_",), _word("npm_", "[A-Za-z0-9]{36}", _LETTER))
        format.apply(text, "***")
    """

    name: str
    """Service or form, for tests and messages."""
    hints: tuple[str, ...]
    """Texts in lower case of which one is in every text that the pattern matches."""
    expression: str
    """Regular expression. Group 1 is kept, the rest of the match is replaced; with a group 2, that is kept behind it."""
    accept: Callable[[re.Match[str]], bool] | None = None
    """Returns whether a match is that of a secret; None: always."""
    fold: bool = False
    """True if upper and lower case are the same."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """The compiled expression. Compiled when the first hint is found, which in most processes never happens."""
        return re.compile(self.expression, re.ASCII | (re.IGNORECASE if self.fold else 0))

    def apply(self, text: str, mask: str) -> str:
        """Return the text without secrets of this format."""
        return self._pattern.sub(lambda match: self._replaced(match, mask), text)

    def _replaced(self, match: re.Match[str], mask: str) -> str:
        """Return what takes the place of a match."""
        if self.accept is not None and not self.accept(match):
            return match[0]
        return f"{match[1]}{mask}{match[2] if match.re.groups > 1 else ''}"


def _word(prefix: str, rest: str, letters: str = _KEY_LETTER) -> str:
    """Return the expression of a word: a prefix (an expression of fixed length), which is kept, and the rest, which is not.

    letters: what does not stand before a word; a prefix that never comes by chance may follow a dash, as in `keys-ghp_….txt`.
    The prefix comes first and what stands before it is looked at afterwards, so that the search can jump from one prefix to the next.
    """
    begins = "|".join((f"(?<!{letters}{prefix})", *(f"(?<={before}{prefix})" for before in _BEFORE)))
    return f"({prefix})(?:{begins}){rest}"


def _has_long_part(match: re.Match[str]) -> bool:
    """Return whether a key of OpenAI's kind is one: it has a run of 16 letters and digits.

    Names in style sheets (`sk-fading-circle12`) have none.
    """
    return any(len(part) >= 16 and not part.isalpha() for part in re.split("[-_]", match[0]))


# ------------------------------------------------------------------ values behind a name

_STAND_IN_WORDS: Final = (
    "none null nil true false undefined string str text bytes number integer bool boolean object array list dict any required "
    "optional nullable default value example hidden input field label prompt env password passwd passphrase passwort secret token "
    "apikey api-key api_key changeme placeholder redacted basic bearer"
)
_STAND_INS: Final = frozenset(_STAND_IN_WORDS.split())
"""Words that stand in the place of a secret in sources and documentation."""
_BEGINNINGS: Final = (
    *("./", "...", "xxxx"),
    *(
        f"{word}{gap}"
        for word in ("your", "my", "the", "some", "a", "an", "change", "replace", "insert")
        for gap in "-_ "
    ),
)
"""Beginnings of what stands there, as in `your-password`."""
_EXPRESSION: Final = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+\Z|[A-Za-z_.-]+\Z")
"""A value without quotation marks that is an expression of a program, or a word."""
_HARMLESS: Final = (
    "page",
    "next",
    "ation",
    "starting",
    "cursor",
    "sync",
    "change",
    "idempotency",
    "csrf",
    "xsrf",
    "ware",
)
"""Ends of words before `token`, for one that marks a place in a list or a form, and opens nothing."""
_SPECIAL: Final = re.compile("[^A-Za-z_.=-]")
"""A digit or a sign that no word has."""
_NO_MASK: Final = r"(?!\*\*\*)"
"""Ahead of a value: it was not replaced already."""


def _any_case(letters: str) -> str:
    """Return the expression of letters in upper or lower case. The search jumps to the first, which IGNORECASE prevents.

    >>> _any_case("key")
    '[kK][eE][yY]'
    """
    return "".join(f"[{letter}{letter.upper()}]" for letter in letters)


def _named(name: str, shortest: int) -> str:
    """Return the expression of a name with a value behind it: `name = 'value'`, `NAME=value`, `"name": "value"`.

    The value is not shortened (`}+`): a part of `get_password(…` would count otherwise.
    """
    gap = r"""\\{0,3}["']?\]?\s{0,4}(?::=|=>|[:=])\s{0,4}(?:[bruf]?\\{0,3}["'])?"""
    quoted = rf"(?<=[\"'])[^\"'\\\r\n]{{{shortest},200}}+(?=\\{{0,3}}[\"'])"
    # Behind a blank a few letters are a word; many such matches would also take long.
    letters = r"[^\s\"'`\\,;&<>(){}\[\]|]"
    bare = rf"(?:(?<=[:=>]){letters}{{{shortest},200}}+|(?<=\s){letters}{{{max(6, shortest)},200}}+)(?![(\[{{])"
    return rf"({name}{gap}){_NO_MASK}(?:{quoted}|{bare})"


def _is_stand_in(value: str) -> bool:
    """Return whether a value stands in the place of a secret."""
    lowered = value.lower()
    return value[0] in "$<%{*([/~-" or lowered.rstrip(".,:;!?*-_/\\") in _STAND_INS or lowered.startswith(_BEGINNINGS)


def _header(name: str) -> str:
    """Return the expression of a header field with a key."""
    scheme = r"(?:(?i:bearer|basic|token|bot|apikey|negotiate)\s{1,4})?"
    return rf"({name}{_GAP}{scheme}){_LOOKS_RANDOM}[A-Za-z0-9._~+/=-]{{8,}}"


def _parts(match: re.Match[str]) -> tuple[str, str]:
    """Return the name and what is between it and the value, and the value."""
    return match[1], match[0][len(match[1]) :]


def _is_variable(name: str) -> bool:
    """Return whether a value is assigned as in a shell or in a file of variables, where it needs no quotation marks."""
    return name.endswith("=") and name[:-1].isupper()


def _is_password(match: re.Match[str]) -> bool:
    """Return whether a password stands behind its name, and not an expression, a label or a sentence about passwords."""
    name, value = _parts(match)
    if name[-1] not in "\"'":
        is_plain = _EXPRESSION.match(value) or not _SPECIAL.search(value)
        return not (is_plain and not _is_variable(name)) and not _is_stand_in(value)
    if _is_stand_in(value):
        return False
    words = value.split()
    if len(words) > 1:
        return "=" in name and len(words) < 4 and not value.replace(" ", "").isalpha()
    is_constant = value.isupper() and "_" in value and value.replace("_", "").isalpha()
    return not is_constant and not (":" in name and value.isalpha() and value[0].isupper())


def _is_key(match: re.Match[str]) -> bool:
    """Return whether a key stands behind its name: letters and digits in a mix that no word has."""
    name, value = _parts(match)
    if _is_stand_in(value):
        return False
    is_mixed = any(
        len(part) >= 6 and not part.isalpha() and not part.isdigit() for part in re.split("[^A-Za-z0-9]", value)
    )
    if name[-1] in "\"'":
        return is_mixed and " " not in value
    # Directly behind a colon stands a part of a name, as in `arn:aws:secretsmanager:…:secret:prod-a1b2c3`.
    return _is_variable(name) or (is_mixed and name[-1] != ":" and not _EXPRESSION.match(value))


def _is_token(match: re.Match[str]) -> bool:
    """Return whether a token is one that opens something. A place in a list (`next_page_token`) or the mark of a form is none."""
    before = match.string[max(0, match.start() - 20) : match.start()].lower().rstrip("_-")
    return not before.endswith(_HARMLESS) and _is_key(match)


def _is_option(match: re.Match[str]) -> bool:
    """Return whether a value behind an option of a command, as in `--password=…`, is given and not described."""
    name, value = _parts(match)
    is_harmless = name.partition("-token")[0].endswith(_HARMLESS)
    if is_harmless or _is_stand_in(value) or not value.strip("ABCDEFGHIJKLMNOPQRSTUVWXYZ_-"):
        return False
    return name[-1] in "=\"'" or not value.rstrip(".,:;!?)").isalpha()


_SECRET_OPTIONS: Final = {
    "-u": ("curl",),
    "--": ("curl",),
    "-p": ("mysql", "mariadb", "sshpass", " login", "mongo"),
    "-a": ("redis-cli",),
}
"""Options with a password, `--` standing for `--user`, and the programs that have them."""


def _is_option_of(match: re.Match[str]) -> bool:
    """Return whether a short option stands behind a program for which it is that of a password, on the same line."""
    text, start = match.string, match.start()
    programs = _SECRET_OPTIONS.get(match[1][1:3], ())
    line = max(start - 200, text.rfind("\n", max(0, start - 200), start) + 1, 0)
    return any(text.find(program, line, start) >= 0 for program in programs) and not _is_stand_in(_parts(match)[1])


_DATABASES: Final = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql|sqlserver|clickhouse|ldaps?|smtps?|imaps?|s?ftp)"
    r"(?:\+\w{1,20})?\Z",
    re.IGNORECASE,
)
"""Schemes of addresses whose passwords people do not escape."""


def _is_of_database(match: re.Match[str]) -> bool:
    return _DATABASES.search(match.string[max(0, match.start() - 30) : match.start()]) is not None


def _is_random_word(match: re.Match[str]) -> bool:
    """Return whether a word behind `name_` has small letters, capitals and digits in a mix. So have the keys of most services."""
    value = _parts(match)[1]
    return sum(letter.isdigit() for letter in value) >= 3 and len(re.findall("[a-z][A-Z]|[A-Z][a-z]", value)) >= 4


def _has_digits_and_letters(match: re.Match[str]) -> bool:
    """Return whether a value has both."""
    value = _parts(match)[1]
    return any(letter.isdigit() for letter in value) and any(letter.isalpha() for letter in value)


def _is_element(match: re.Match[str]) -> bool:
    """Return whether an element of XML has a value, and not a word for one."""
    return not _is_stand_in(_parts(match)[1].removesuffix("</"))


_COOKIE_NAME: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]".replace("'", "")
"""Letters of the name of a cookie. An apostrophe ends a text in shells."""
_COOKIE: Final = rf"{_COOKIE_NAME}{{1,100}}=[^\s\"'\\;,]{{2,4000}}"
"""A cookie with its value."""
_OPTION: Final = r"(?:[a-z0-9]{1,20}-){0,3}(?:password|passwd|passphrase|pass|secret|token|api-?key)"
"""Long options with a secret."""
_TAGS: Final = "password|passphrase|secret|token|apikey|privatekey|clientsecret"
"""Elements of XML with a secret."""
_KINDS_OF_KEYS: Final = ("api", "access", "private", "signing", "encryption", "master", "auth", "account")
"""Keys that open something. A primary key or the key of an object does not."""
_OPENING_KEY: Final = "|".join(
    f"(?<={_any_case(kind)}{gap}{_any_case('key')})" for kind in _KINDS_OF_KEYS for gap in ("", "[_-]")
)
"""Behind the word `key`: the kind of key before it."""


FORMATS: Final = (
    SecretFormat("AWS", ("akia", "asia"), _word("A[KS]IA", "[A-Z2-7]{16}(?![A-Za-z0-9])")),
    SecretFormat(
        "AWS secret",
        ("secret_access_key", "secretaccesskey", "aws_session_token"),
        rf"((?:secret_?access_?key|aws_session_token){_GAP})[A-Za-z0-9/+=]{{40,}}",
        fold=True,
    ),
    SecretFormat("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _word("gh[pousr]_", "[A-Za-z0-9_]{36,}", _LETTER)),
    SecretFormat("GitHub", ("github_pat_",), _word("github_pat_", "[A-Za-z0-9_]{22,}", _LETTER)),
    SecretFormat("GitLab", ("glpat-",), _word("glpat-", f"{_KEY_LETTER}{{20,}}", _LETTER)),
    SecretFormat("Slack", ("xox",), _word("xox[abcdeoprs]-", "[A-Za-z0-9-]{10,}", _LETTER)),
    SecretFormat("Slack", ("xapp-",), _word("xapp-", "[0-9]-[A-Za-z0-9-]{10,}", _LETTER)),
    SecretFormat("Slack", ("hooks.slack.com/",), r"(hooks\.slack\.com/[a-z]{1,20}/)[A-Za-z0-9/_-]{20,}"),
    SecretFormat("Anthropic", ("sk-ant-",), _word("sk-ant-", f"{_KEY_LETTER}{{16,}}", _LETTER)),
    SecretFormat("OpenAI", ("sk-",), _word("sk-", f"(?!ant-){_KEY_LETTER}{{20,}}"), accept=_has_long_part),
    SecretFormat("Google", ("aiza",), _word("AIza", f"(?<![+/]AIza){_KEY_LETTER}{{35}}(?![A-Za-z0-9_+/=-])")),
    SecretFormat("Google", ("ya29.",), _word(r"ya29\.", f"{_KEY_LETTER}{{20,}}")),
    SecretFormat("Google", ("gocspx-",), _word("GOCSPX-", f"{_KEY_LETTER}{{20,}}")),
    SecretFormat("Stripe", ("k_live_", "k_test_"), _word("[sr]k_(?:live|test)_", "[A-Za-z0-9]{16,}", _LETTER)),
    SecretFormat("Stripe", ("whsec_",), _word("whsec_", "[A-Za-z0-9+/=]{24,}")),
    SecretFormat(
        "Telegram",
        (":aa",),
        r"((?:(?<![0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4}))[0-9]{8,10}:)AA"
        + f"{_KEY_LETTER}{{33}}(?!{_KEY_LETTER})",
    ),
    SecretFormat("Hugging Face", ("hf_",), _word("hf_", "[A-Za-z0-9]{30,}")),
    SecretFormat("Groq", ("gsk_",), _word("gsk_", "[A-Za-z0-9]{40,}")),
    SecretFormat("xAI", ("xai-",), _word("xai-", "[A-Za-z0-9]{40,}")),
    SecretFormat("Tavily", ("tvly-",), _word("tvly-", f"{_KEY_LETTER}{{20,}}"), accept=_has_long_part),
    SecretFormat("npm", ("npm_",), _word("npm_", "[A-Za-z0-9]{36}(?![A-Za-z0-9])")),
    SecretFormat("PyPI", ("pypi-ageicHlwaS5vcmc".lower(),), _word("pypi-", f"AgEIcHlwaS5vcmc{_KEY_LETTER}{{20,}}")),
    SecretFormat("SendGrid", ("sg.",), _word(r"SG\.", rf"{_KEY_LETTER}{{22}}\.{_KEY_LETTER}{{43}}(?!{_KEY_LETTER})")),
    SecretFormat("Pegasus", ("pgs_",), _word("pgs_", f"{_KEY_LETTER}{{40,}}", _LETTER)),
    SecretFormat("Twilio", ("sk",), _word("SK", "[0-9a-f]{32}(?![A-Za-z0-9])", _LETTER)),
    SecretFormat("DigitalOcean", ("_v1_",), _word("do[opr]_v1_", "[a-f0-9]{64}", _LETTER)),
    SecretFormat("GitLab", ("glrt-", "glptt-"), r"((?<![A-Za-z0-9])gl(?:rt|ptt)-)[A-Za-z0-9_-]{20,}"),
    SecretFormat("Docker", ("dckr_pat_",), _word("dckr_pat_", f"{_KEY_LETTER}{{20,}}", _LETTER)),
    SecretFormat("Vault", ("hvs.",), _word(r"hvs\.", f"{_KEY_LETTER}{{24,}}")),
    SecretFormat("Shopify", ("shp",), _word("shp(?:at|ca|pa|ss)_", "[a-fA-F0-9]{32}", _LETTER)),
    SecretFormat("Tailscale", ("tskey-",), _word("tskey-", f"{_KEY_LETTER}{{16,}}", _LETTER)),
    SecretFormat("Databricks", ("dapi",), _word("dapi", "[a-f0-9]{32}(?![A-Za-z0-9])", _LETTER)),
    SecretFormat("Atlassian", ("atatt3",), _word("ATATT3", "[A-Za-z0-9_=-]{40,}", _LETTER)),
    SecretFormat("age", ("age-secret-key-1",), _word("AGE-SECRET-KEY-1", "[0-9A-Z]{50,}", _LETTER)),
    SecretFormat("Discord", ("/api/webhooks/",), r"(/api/webhooks/[0-9]{15,22}/)[A-Za-z0-9_-]{40,}"),
    SecretFormat("word", ("_",), "(_(?<=[a-z0-9]_))[A-Za-z0-9]{32,200}(?![A-Za-z0-9])", accept=_is_random_word),
    SecretFormat("JWT", ("eyj",), _word("eyJ", rf"{_KEY_LETTER}{{8,}}\.eyJ{_KEY_LETTER}{{4,}}\.{_KEY_LETTER}{{8,}}")),
    SecretFormat("header", ("authorization",), _header(_any_case("authorization"))),
    SecretFormat("header", ("private-token",), _header(_any_case("private-token"))),
    SecretFormat(
        "header",
        ("-key", "-token"),
        _header("[xX]-(?i:api-key|goog-api-key|subscription-token|auth-token|auth-key|vault-token|access-token)"),
    ),
    SecretFormat("Digest", ("response=",), r'(response=\\{0,3}")[0-9A-Fa-f]{32,128}'),
    SecretFormat(
        "cookie",
        ("cookie",),
        rf"({_any_case('cookie')}(?:{_GAP}|(?<=--cookie) \\{{0,3}}[\"']?)){_NO_MASK}"
        rf"{_COOKIE}(?:;\s?{_COOKIE_NAME}{{1,100}}(?:=[^\s\"'\\;]{{0,4000}})?){{0,100}}",
    ),
    SecretFormat(
        "cookie", ("\tfalse\t", "\ttrue\t"), r"(\t(?:TRUE|FALSE)\t[0-9]{1,12}\t[^\t\n]{1,100}\t)[^\t\n\\\"]{4,4000}"
    ),
    SecretFormat(
        "address", ("://",), rf"""(://[^\s/?#:@"'<>\\]{{0,100}}:){_NO_MASK}(?![{{$])[^\s/?#"'<>\\]{{1,200}}(@)"""
    ),
    SecretFormat(
        "address",
        ("://",),
        rf"""(://[^\s/?#:@"'<>\\]{{0,100}}:){_NO_MASK}[^\s@"'<>\\]{{1,100}}+(@)""",
        accept=_is_of_database,
    ),
    SecretFormat("address", ("://",), r"(://)[A-Za-z0-9_.-]{20,200}(@)", accept=_has_digits_and_letters),
    SecretFormat(
        "parameter",
        ("?", "&"),
        r"([?&](?:[A-Za-z_-]{0,20}(?:token|api[_-]?key|secret|signature)|password|passwd|sig|(?<=login\?)code)=)"
        rf"{_LOOKS_RANDOM}[A-Za-z0-9._~%+/=-]{{8,}}",
        fold=True,
    ),
    SecretFormat(
        "option",
        ("--",),
        rf"(--{_OPTION}[= ]{{1,2}}\\{{0,3}}[\"']?){_NO_MASK}"
        r"(?:(?<=[\"'])[^\"'\\\r\n]{4,200}|(?<![\"'])[^\s\"'\\]{4,200})",
        accept=_is_option,
    ),
    SecretFormat(
        "option",
        ("curl", "sql", "mariadb", "sshpass", " login", "redis-cli", "mongo"),
        r"( -(?:(?:u|-user)[ =]{0,2}\\{0,3}[\"']?[^\s:\"'\\/]{1,100}:|p(?=[^\s-])|[pa] {1,2}(?![\s-]))\\{0,3}[\"']?)"
        rf"{_NO_MASK}(?<=[\s:\"'p])[^\s\"'\\]{{4,200}}",
        accept=_is_option_of,
    ),
    SecretFormat("openssl", ("pass:",), r"(-pass(?:in|out)? \\{0,3}[\"']?pass:)[^\s\"'\\$]{3,200}"),
    SecretFormat("netrc", ("machine ",), r"(login\s{1,4}\S{1,100}\s{1,4}password\s{1,4})(?!\*\*\*)[^\s\"'\\]{3,200}"),
    SecretFormat(
        "pgpass",
        (":5432:", ":5433:", ":6432:", ":*:"),
        r"(:(?:5432|5433|6432|\*):[^\s:\"'\\]{1,64}:[^\s:\"'\\]{1,64}:)(?!\*\*\*)[^\s:\"'\\]{3,200}(?![^\s\"'\\])",
    ),
    SecretFormat("XML", ("</",), rf"(<(?i:{_TAGS})>){_NO_MASK}[^<>\s{{$]{{4,200}}(</)", accept=_is_element),
    SecretFormat(
        "PuTTY", ("private-lines",), r"(Private-Lines: [0-9]{1,3}\s{1,2})(?:[A-Za-z0-9+/=]{4,64}\s{1,2}){1,200}"
    ),
    SecretFormat(
        "password",
        ("pass", "pwd"),
        _named(
            f"{_any_case('p')}(?:{_any_case('ass')}(?:{_any_case('word')}|{_any_case('wd')}|{_any_case('phrase')})|{_any_case('wd')})",
            4,
        ),
        accept=_is_password,
    ),
    SecretFormat(
        "password",
        ("pass",),
        _named(r"""[pP](?:(?<=[\"']p)ass(?=[\"'\\])|(?<=P)ASS(?=[ =]))""", 4),
        accept=_is_password,
    ),
    SecretFormat(
        "secret",
        ("secret",),
        _named(f"{_any_case('secret')}(?:[_-]?{_any_case('key')}(?:[_-]{_any_case('base')})?)?", 8),
        accept=_is_key,
    ),
    SecretFormat(
        "key",
        ("key",),
        _named(f"{_any_case('key')}(?:{_OPENING_KEY})", 8),
        accept=_is_key,
    ),
    SecretFormat("token", ("token",), _named(_any_case("token"), 16), accept=_is_token),
)
"""Formats, in the order in which they are applied. Sources: the services' documentation of their keys."""


def redact_formats(text: str, mask: str = MASK) -> str:
    """Return the text without anything that has the format of a secret; the mask stands in its place.

    redact_formats("token ghp_0123456789abcdefghij0123456789abcdef")  # "token ghp_***"
    """
    lowered = text.lower()
    for format in FORMATS:
        if any(hint in lowered for hint in format.hints):
            text = format.apply(text, mask)
    return _redact_private_keys(text, mask) if _PRIVATE_KEY in text else text


# ------------------------------------------------------------------ private keys

_PRIVATE_KEY: Final = "PRIVATE KEY"
_BEGIN: Final = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
"""First line of a private key in PEM, or of PGP."""
_END: Final = "-----END "
_KEY_BODY: Final = r"(?:(?:\s|\\[nrt])*[A-Za-z0-9+/=]{16,})*"
"""Rest of a private key whose last line is missing."""
_LONGEST_KEY: Final = 20_000
"""Characters of a private key. An end that is further away belongs to something else."""


def _redact_private_keys(text: str, mask: str) -> str:
    """Return the text without the bodies of private keys. A key whose end is missing is removed as far as it looks like one."""
    parts, at, end = [], 0, 0
    for begin in re.finditer(_BEGIN, text):
        if begin.start() < at:
            continue
        if end >= 0 and end < begin.end():
            end = text.find(_END, begin.end())
        stop = end
        if end < 0 or end - begin.end() > _LONGEST_KEY:
            body = re.compile(_KEY_BODY).match(text, begin.end())
            stop = body.end() if body is not None else begin.end()
        parts += [text[at : begin.end()], mask]
        at = stop
    return "".join([*parts, text[at:]])
