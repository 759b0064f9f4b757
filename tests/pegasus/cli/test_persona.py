"""`pegasus persona …` while no daemon runs: from the files, and with the home held for a decision."""

from __future__ import annotations

import json

import pytest

from pegasus.host import Home, own_home
from pegasus.identity.persona_changes import CHANGES
from pegasus.wire import encode_line


@pytest.fixture
def home(user):
    home = Home(user / ".pegasus")
    at = {"type": "proposed", "at": 1_772_029_800_000}
    proposals = [
        {**at, "n": 1, "field": "style", "value": "warm", "why": "People smile", "on": "web:c1"},
        {**at, "n": 2, "field": "values", "value": ["truth", "patience"], "why": "They wait"},
    ]
    (home.data / "identity/proposals.jsonl").parent.mkdir(parents=True)
    (home.data / "identity/proposals.jsonl").write_bytes(b"".join(map(encode_line, proposals)))
    return home


def test_the_persona_and_what_is_proposed_are_shown(pegasus, home):
    code, out, err = pegasus("persona", "list")
    assert (code, err) == (0, "")
    assert out.startswith("name: Pegasus\n")
    assert "Proposed (pegasus persona accept N, or pegasus persona reject N):\n1. style: “warm”\n" in out


def test_for_programs_it_is_one_json_object(pegasus, home):
    view = json.loads(pegasus("persona", "list", "--json")[1])
    assert [one["state"] for one in view["proposals"]] == ["open", "open"]
    assert view["evolved"] == []


def test_without_a_home_there_is_the_persona_of_the_settings(pegasus, user):
    assert pegasus("persona", "list")[1].startswith("name: Pegasus\n")
    assert not (user / ".pegasus").exists()


def test_the_owner_decides(pegasus, home):
    assert pegasus("persona", "accept", "1") == (
        0,
        "Accepted; it takes effect at the next start or reload of the settings: style: “warm”\n",
        "",
    )
    assert pegasus("persona", "reject", "2") == (0, "Rejected: values: “truth; patience”\n", "")
    assert json.loads((home.data / CHANGES).read_text()) == {"style": "warm"}
    assert json.loads(pegasus("persona", "list", "--json")[1])["evolved"] == ["style"]
    assert pegasus("persona", "reject", "1")[1].startswith("Taken back")


def test_a_number_that_is_not_there_is_told(pegasus, home):
    assert pegasus("persona", "accept", "7") == (
        1,
        "",
        "pegasus: there is no proposal 7; waiting for a decision: 1, 2\n",
    )


@pytest.mark.parametrize("number", ["0", "-1", "one"])
def test_what_is_no_number_is_wrong_usage(pegasus, home, number):
    assert pegasus("persona", "accept", "--", number)[0] == 2


def test_a_mistake_in_the_file_is_named(pegasus, home):
    (home.data / CHANGES).write_text('{"style": 5}')
    for command in (("list",), ("accept", "1")):
        code, out, err = pegasus("persona", *command)
        assert (code, out) == (1, "")
        assert "persona.json: style: found 5; a text is wanted" in err


def test_while_another_process_holds_the_home_nothing_is_decided(pegasus, home):
    before = (home.data / "identity/proposals.jsonl").read_bytes()
    with own_home(home):
        code, _, err = pegasus("persona", "accept", "1")
    assert code == 75
    assert "already runs Pegasus here" in err
    assert (home.data / "identity/proposals.jsonl").read_bytes() == before
