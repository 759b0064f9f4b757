"""`pegasus init`: a home with everything a person may want to edit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from pegasus.cli.options import Options
from pegasus.host import Home, ensure_token, write_private
from pegasus.settings import Settings, load_settings

WORKSPACE_FILES = ("AGENTS.md", "SOUL.md", "USER.md", "IDENTITY.md", "HEARTBEAT.md")
_TEMPLATES = Path(__file__).parent / "workspace"


def run_init(options: Options, *, ask: bool) -> int:
    """Write what is missing. ask: about each file that is there, whether to overwrite it; else it stays as it is."""
    home = options.home()
    settings_file = options.source(home).file or home.config
    overwrite = _asked if ask else _never
    home.prepare(everything=True)
    from pegasus.settings import commented_file

    _write(settings_file, commented_file(), overwrite)
    for name in WORKSPACE_FILES:
        _write(home.workspace / name, (_TEMPLATES / name).read_text("utf-8"), overwrite)
    _token(home)
    print(_model_line(load_settings(options.source(home))))
    print(f"Next: pegasus{options.spelled()}    (starts it and opens a chat; edit {settings_file} for more)")
    return 0


def _write(path: Path, content: str, overwrite: Callable[[Path], bool]) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content)
        print(f"wrote  {path}")
    elif path.read_bytes() == content.encode() or not overwrite(path):
        print(f"kept   {path}")
    else:
        write_private(path, content)
        print(f"wrote  {path}")


def _token(home: Home) -> None:
    """The token is never overwritten: every client that has it would be locked out."""
    new = not home.token.exists()
    ensure_token(home)
    print(f"{'wrote' if new else 'kept '}  {home.token}")


def _never(_path: Path) -> bool:
    return False


def _asked(path: Path) -> bool:
    return click.confirm(f"{path} is there already. Overwrite it?", default=False)


def _model_line(settings: Settings) -> str:
    from pegasus.models import OFFLINE, find_providers, role_spec

    model = role_spec("default", settings.models, find_providers(settings.providers))
    if settings.models.default:
        return f"Model: {model}, as models.default says."
    if model == OFFLINE:
        return (
            "Model: a stand-in, since neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set. "
            "Set one of them, or models.default, for a real one."
        )
    variable = f"{model.partition('/')[0].upper()}_API_KEY"
    return f"Model: {model}, since there is a key for it ({variable}). models.default names another."
