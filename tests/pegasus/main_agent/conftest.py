"""What tests of the Main Agent have in common."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a skill below tmp_path; gives its folder."""

    def write(name, body="Do $ARGUMENTS.", **front):
        lines = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in {"description": "d", **front}.items())
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "SKILL.md").write_text(f"---\n{lines}---\n{body}", "utf-8")
        return tmp_path / name

    return write
