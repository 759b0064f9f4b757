"""`pegasus init`: a few questions, and the few lines of settings that follow from the answers.

It is optional: without settings the agent takes the first model whose key is in the environment, then a local one, then the stand-in.
Asked is what a newcomer wants to decide: which model, its key, who they are, whether to try a call, who searches the web, from which
chat service it is reached (`init_outside`), and whether it is to run as a service. Enter takes a good answer everywhere. What has a
default stays out of the file, so that a later version that improves it reaches everybody.

All answers come before the first write, so that Ctrl-C leaves everything as it was. The settings are checked as the daemon does, and
the test call is made with them, before they are written. The file is changed key by key (`settings.edit`): what a person has written
stays, and the present values are offered as answers when it is run again. With --yes, and where stdin is no terminal, nothing is
asked: the file and the token are made if they are missing.

A key that is typed goes into the settings file, which only its owner can read (0600). A key in the environment stays there.

Between the questions the settings are a text in memory. The answers about the model make a new text (`set_key`), which is checked
before the next question; an answer that does not work is explained and asked for again. A section that is added here carries a mark:
one of the same name that a person pastes below it takes its place. In a key each `${` is written as `$${`, since settings replace
`${NAME}` by a variable.
"""

from __future__ import annotations

import random
import shutil
import sys
import textwrap
from collections.abc import Collection
from typing import Final

import click
import trio

from pegasus.cli.commands import Options, pegasus, program_name
from pegasus.cli.config import check_text, write_settings
from pegasus.cli.control import is_terminal, print_text
from pegasus.cli.init_outside import ask_channel, ask_secret, ask_web_search, first_mistake
from pegasus.cli.service import can_install, run_install
from pegasus.formatting import format_duration, truncate
from pegasus.host import Home, ensure_token, read_daemon, write_private
from pegasus.models import (
    OFFLINE,
    ModelError,
    ModelOffer,
    ModelRequest,
    ModelService,
    ServerWantsKey,
    UserTurn,
    find_offers,
    find_offers_at,
    find_providers,
    is_known_service,
    key_variable,
    role_spec,
)
from pegasus.settings import Settings, SettingsError, SettingsSource, load_settings, set_key, settings_text
from pegasus.terminal import repair_unicode

USER_FILE: Final = "USER.md"
"""File of the workspace that the answer to "Who are you?" goes to."""
_TEST_MESSAGE: Final = "Greet me in one short sentence."
_TEST_PROMPT: Final = "You are a friendly assistant. Answer briefly."
_HINTS: Final = {
    # Other kinds have no hint: the text of the error says all that is known.
    "auth": "The key was refused. Check it with the service, then run this again.",
    "request": "The service does not take this request; usually the name of the model is wrong.",
    "network": "Check the network, or whether the local server is running.",
    "timeout": "A local model may need longer to load: config set models.timeout 600",
    "overloaded": "The service is busy, or the account has no credit left.",
}
"""By kind of ModelError, what to do about a failed test call."""


@pegasus.declare(
    "init",
    click.Option(["--yes"], is_flag=True, help="Ask nothing: add what is missing, overwrite nothing."),
    options_only=True,
)
def run_init(options: Options, *, yes: bool) -> int:
    """Choose a model and write the settings.

    Asks which model, its API key, who you are, whether to try a call, how to search the web, from which chat service you
    write, and whether to run as a service. Keeps what is there; run it again to change your answers.
    """
    home = options.home()
    source = options.source(home)
    assert source.file is not None  # noqa: S101 - `Options.source` always names one
    old = settings_text(source)
    # `text` is changed by each question. `old` stays, to see at the end whether there is something to write.
    text = old or _head()
    about, wants_service = None, False
    if not yes and is_terminal(sys.stdin):
        text = _ask_model(home, source, text, set())
        about = _ask_about_user(home)
        text = _try_out(home, source, text)
        text = ask_web_search(home, source, text)
        text = ask_channel(home, source, text, program_name())
        wants_service = _ask_service(home)
    # From here on things are written. Each write replaces a file as a whole, so a crash leaves each as it was or as it
    # shall be, and another run goes on.
    home.prepare(everything=True)
    if text != old:
        write_settings(source.file, text)
    print_text(f"{'wrote' if text != old else 'kept '}  {source.file}")
    # The first start would make the token as well. It is made here so that a client can be set up before.
    is_new = not home.token.exists()
    ensure_token(home)
    print_text(f"{'wrote' if is_new else 'kept '}  {home.token}")
    if about is not None:
        write_private(home.workspace / USER_FILE, about)
        print_text(f"wrote  {home.workspace / USER_FILE}")
    print_text(_wrapped(_describe_model(load_settings(source))))
    if wants_service and (code := run_install(options, only_print=False, yes=False)):
        return code
    print_text(f"Next: {program_name()}    ({'opens a chat' if wants_service else 'starts it and opens a chat'})")
    return 0


def _head() -> str:
    """Return the beginning of a new settings file. Nothing in it is in force."""
    # Comments only: whoever opens the file for the first time reads how to go on.
    program = program_name()
    return (
        f"# Settings of Pegasus. To change one: {program} config set KEY VALUE\n"
        f"# All keys with their defaults: {program} config keys    To find mistakes: {program} config check\n"
        "# Recipes of the documentation can be pasted at the end.\n"
    )


# ------------------------------------------------------------------ the questions


def _try_out(home: Home, source: SettingsSource, text: str) -> str:
    """Try a call if the person wants that, with another model if it fails; return the text of the settings that are kept.

    The settings are checked again before the call, since the text may have been changed by another choice of the model.
    """
    refused: set[str] = set()
    while click.confirm("4. Run a test call?", default=True):
        settings = check_text(home, source, text)
        problem = trio.run(_test_call, settings)
        if problem is None or not click.confirm("   Choose another model or key?", default=True):
            break
        if problem == "auth":
            refused.add(settings.models.default.partition("/")[0])
        text = _ask_model(home, source, text, refused)
    return text


def _ask_service(home: Home) -> bool:
    """Ask whether the agent is to run as a service, where a service manager answers and no agent runs yet."""
    if read_daemon(home) is not None or not can_install():
        return False
    return click.confirm("7. Run it as a service, now and at each sign-in?", default=False)


def _ask_model(home: Home, source: SettingsSource, text: str, refused: Collection[str]) -> str:
    """Ask for the model and its key; return the text of the settings with the answers.

    A choice that cannot work is explained and asked for again. Only Ctrl-C ends the loop without an answer. refused: providers whose
    server wants another key than it got, or one at all.
    """
    settings = load_settings(source, content=text)
    click.echo("Looking for models …")
    # Looks at keys in the environment and at local servers, all at once. It takes two seconds at most.
    offers = trio.run(find_offers, settings)
    present = settings.models.default
    if present and present not in [offer.spec for offer in offers]:
        # The present model is always among the offers, so that Enter keeps it.
        offers.insert(0, ModelOffer(present, "as it is now"))
    offers.append(ModelOffer(OFFLINE, "no model: fixed rules, to look around"))
    # Enter takes the present model, else the first offer. Offers are sorted: one with a key comes first.
    default = next((number for number, offer in enumerate(offers, 1) if offer.spec == present), 1)
    # Without a key and a local server Enter takes the stand-in, so that a newcomer gets on without an account.
    if not present and all(offer.why == "needs an API key" for offer in offers[:-1]):
        default = len(offers)
    click.echo("1. Which model is to answer?")
    for number, offer in enumerate(offers, 1):
        click.echo(f"   {number}  {offer.spec}   ({offer.why})")
    while True:
        question = "   Number, another as <provider>/<model>, or the address of a server (http://…)"
        answer = click.prompt(question, default=str(default)).strip()
        if answer.startswith(("http://", "https://")):
            found = _find_at(answer, settings)
            if not found:
                click.echo("   No server in OpenAI's format tells its models there.")
                continue
            # Its models are added below those that are there: numbers that a person has just read stay valid.
            default = len(offers) + 1
            for number, offer in enumerate(found, default):
                click.echo(f"   {number}  {offer.spec}   ({offer.why})")
            offers += found
            continue
        by_number = {str(number): offer for number, offer in enumerate(offers, 1)}
        offer = by_number.get(answer) or ModelOffer(answer, "")
        try:
            changed = _with_model(settings, text, offer)
            return _ask_key(home, source, changed, offer.spec, is_refused=offer.spec.partition("/")[0] in refused)
        except SettingsError as error:
            click.echo(_wrapped(f"   That does not work: {first_mistake(error, source)}"))


def _find_at(address: str, settings: Settings) -> list[ModelOffer]:
    """Return the models of the server at an address, with a key that is asked for if the server wants one; [] if it tells none."""
    try:
        return trio.run(find_offers_at, address, settings)
    except ServerWantsKey:
        key = ask_secret("   This server wants a key (not shown while you type)", "providers.server.api_key").strip()
    try:
        return trio.run(find_offers_at, address, settings, key) if key else []
    except ServerWantsKey:
        click.echo("   The key was refused.")
        return []


def _with_model(settings: Settings, text: str, offer: ModelOffer) -> str:
    """Return the text of the settings with this model as the default.

    Keys of a section that the offer brings, such as the address of a local server, are set in the same way as a person
    would do by `config set`.
    """
    # The name of a model may have a "/" in it; the provider is what stands before the first.
    provider = offer.spec.partition("/")[0]
    if offer.spec == OFFLINE and role_spec("default", settings.models, find_providers(settings.providers)) == OFFLINE:
        return text  # so that a key in the environment counts as soon as there is one
    text = set_key(text, ("models", "default"), offer.spec, by_init=True)
    for key, value in offer.section.items():
        text = set_key(text, ("providers", provider, key), value, by_init=True)
    return text


def _ask_key(home: Home, source: SettingsSource, text: str, spec: str, *, is_refused: bool) -> str:
    """Ask for the key of a model's provider if it may need one; return the text of the settings, checked. Raises SettingsError.

    is_refused: the server did not take the present key, or wants one.
    """
    provider = spec.partition("/")[0]
    variable = key_variable(provider)
    settings = load_settings(source, content=text)
    account = settings.providers.get(provider)
    present = account.api_key if account is not None else ""
    origin = settings.origins.get(f"providers.{provider}.api_key", "")
    # A server of one's own may want a key or none: many tell their models without one, and refuse the call.
    may_need = bool(variable) or (account is not None and bool(account.base_url) and not is_known_service(provider))
    # A key from the environment is not asked for: it is found there at each start, and stays out of the file.
    if is_refused or (may_need and (not present or origin == str(source.file))):
        hint = " (Enter keeps the present one)" if present else "" if variable else " (Enter if it wants none)"
        question = _wrapped(f"2. API key of {provider}{hint}, not shown while you type")
        if key := ask_secret(question, f"providers.{provider}.api_key"):
            text = set_key(text, ("providers", provider, "api_key"), key, by_init=True)
    else:
        click.echo(_wrapped(f"2. API key: {f'found in {origin}' if present else 'none needed'}"))
    check_text(home, source, text)
    return text


def _ask_about_user(home: Home) -> str | None:
    """Ask who the person is; return the new content of USER.md, None to leave it as it is.

    One line is replaced by the answer; what a person has written beyond that stays, and the answer is added.
    """
    path = home.workspace / USER_FILE
    try:
        # A missing file and one that cannot be read are the same here: there is nothing to keep.
        present = path.read_text("utf-8", "replace").strip()
    except OSError:
        present = ""
    keeps = f' (Enter keeps "{truncate(present, 60)}")' if present else " (Enter to skip)"
    question = f"3. Who are you? Name, language, time zone, how you like answers{keeps}"
    answer = repair_unicode(click.prompt(_wrapped(question), default="", show_default=False)).strip()
    # None and not the old text: nothing is written then, and the file keeps its bytes and its time.
    if not answer or answer == present:
        return None
    return f"{present}\n\n{answer}\n" if "\n" in present else f"{answer}\n"


# ------------------------------------------------------------------ the test call


async def _test_call(settings: Settings) -> str | None:
    """Make a call with these settings and print the answer, or the error with what to do; return the error's kind, None without one.

    A call costs money, if little, so it is made only after a question. Nothing of the home is touched.
    """
    models = ModelService(settings.models, settings.providers, rng=random.Random())  # noqa: S311 jitter only
    # The role and the lane of a conversation: the call has the options that a chat would have.
    client = models.client("default", "conversation")
    click.echo(_wrapped(f"   Asking {client.name} … (Ctrl-C ends this, and nothing is written)"))
    began = trio.current_time()
    try:
        response = await client.generate(ModelRequest(_TEST_PROMPT, (UserTurn(text=_TEST_MESSAGE),), max_tokens=1000))
    except ModelError as error:
        print_text(_wrapped(f"   It failed: {error}"))
        if hint := _HINTS.get(error.kind):
            print_text(_wrapped(f"   {hint}"))
        return error.kind
    finally:
        await models.aclose()
    seconds = format_duration(trio.current_time() - began)
    print_text(_wrapped(f"   It answered in {seconds}: {truncate(response.text, 300) or '(nothing)'}"))
    return None


# ------------------------------------------------------------------ what will be used


def _describe_model(settings: Settings) -> str:
    """Return a sentence about which model will be used, and why.

    A stand-in answers without any key, so that a first start always works; the sentence says so, since its answers are not
    those of a model.

    It asks the settings and calls nothing, so a local server that will be found at the start can only be announced.
    """
    model = role_spec("default", settings.models, find_providers(settings.providers))
    if settings.models.default:
        return f"Model: {model}, as models.default says."
    if model == OFFLINE:
        return (
            "Model: a local one if a server is running at the start, else a stand-in that answers by fixed rules. "
            "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or another key for a real one, or run init again."
        )
    origin = settings.origins.get(f"providers.{model.partition('/')[0]}.api_key", "the settings")
    return f"Model: {model}, since there is a key for it ({origin}). models.default names another."


def _wrapped(text: str) -> str:
    """Return a text of one line, wrapped between words where stdout is a terminal, and indented as its beginning is.

    Paths and commands are not broken, so that they can be copied.
    """
    if not is_terminal(sys.stdout):
        return text
    indent = " " * (len(text) - len(text.lstrip()))
    width = max(20, shutil.get_terminal_size().columns - 1)
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
