"""The number of the form of data: what starts, what is changed first, and what is refused."""

from __future__ import annotations

import pytest

from pegasus.host import FORMAT, Home, HomeError, data_format, prepare_data, read_format


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.prepare()
    (home.data / "main").mkdir()
    return home


@pytest.fixture
def steps(monkeypatch):
    """What a start does, in order; migrations from two and one versions ago are part of it."""
    steps = []

    def step(number):
        def migrate(data):
            steps.append(f"migrate {number}")
            (data / f"of-{number + 1}").write_text("x")

        return migrate

    monkeypatch.setattr(data_format, "MIGRATIONS", {FORMAT - 2: step(FORMAT - 2), FORMAT - 1: step(FORMAT - 1)})
    return steps


def version(home, text=None):
    if text is not None:
        (home.data / "VERSION").write_text(text)
    return (home.data / "VERSION").read_text()


def back_up_to(steps):
    def back_up(path):
        steps.append(f"backup {path.name}")
        path.write_text("a backup")

    return back_up


def test_a_new_home_has_the_form_of_the_program(tmp_path, steps):
    home = Home(tmp_path / "home")
    home.prepare()
    assert prepare_data(home, back_up_to(steps)) is None
    assert version(home) == f"{FORMAT}\n"
    assert steps == []


def test_a_home_from_before_the_file_gets_it(home, steps):
    assert read_format(home) == data_format.UNNAMED
    prepare_data(home, back_up_to(steps))
    assert version(home) == f"{FORMAT}\n"


@pytest.mark.parametrize("ago", [1, 2])
def test_an_older_home_is_backed_up_then_changed(home, steps, ago):
    old = FORMAT - ago
    version(home, f"{old}\n")
    assert prepare_data(home, back_up_to(steps)) == old
    assert steps == [f"backup data-{old}-before-{FORMAT}.tar.zst", *(f"migrate {n}" for n in range(old, FORMAT))]
    assert version(home) == f"{FORMAT}\n"
    assert prepare_data(home, back_up_to(steps)) is None


def test_a_backup_that_fails_changes_nothing(home, steps):
    version(home, f"{FORMAT - 1}\n")

    def fail(path):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        prepare_data(home, fail)
    assert version(home) == f"{FORMAT - 1}\n"
    assert steps == []


def test_a_migration_that_was_cut_off_goes_on_with_the_first_backup(home, steps, monkeypatch):
    def die(data):
        raise KeyboardInterrupt

    monkeypatch.setattr(data_format, "MIGRATIONS", {**data_format.MIGRATIONS, FORMAT - 1: die})
    version(home, f"{FORMAT - 2}\n")
    with pytest.raises(KeyboardInterrupt):
        prepare_data(home, back_up_to(steps))
    assert version(home) == f"{FORMAT} from {FORMAT - 2} data-{FORMAT - 2}-before-{FORMAT}.tar.zst\n"
    with pytest.raises(HomeError, match="being changed"):
        read_format(home)
    monkeypatch.setattr(
        data_format, "MIGRATIONS", {**data_format.MIGRATIONS, FORMAT - 1: lambda data: steps.append("done")}
    )
    steps.clear()
    prepare_data(home, back_up_to(steps))
    assert steps == [f"migrate {FORMAT - 2}", "done"]
    assert version(home) == f"{FORMAT}\n"


def test_an_older_backup_is_not_overwritten(home, steps):
    for _ in range(2):
        version(home, f"{FORMAT - 1}\n")
        prepare_data(home, back_up_to(steps))
    names = sorted(path.name for path in home.backups.iterdir())
    assert names == [f"data-{FORMAT - 1}-before-{FORMAT}-2.tar.zst", f"data-{FORMAT - 1}-before-{FORMAT}.tar.zst"]


@pytest.mark.parametrize(
    "text", [f"{FORMAT + 1}\n", f"{FORMAT + 1} from {FORMAT} x.tar.zst\n", "", "two\n", "-1\n", "restoring\n"]
)
def test_data_of_a_newer_form_or_of_none_is_refused(home, steps, text):
    version(home, text)
    with pytest.raises(HomeError) as refusal:
        prepare_data(home, back_up_to(steps))
    assert refusal.value.exit_code == 78
    assert version(home) == text
    assert steps == []
