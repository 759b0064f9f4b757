import pytest

from pegasus.tasks.core.task_types import BUILT_IN_TYPES, LARGEST, load_task_types, parse_task_type


def write(folder, name, text):
    (folder / name).mkdir(parents=True)
    (folder / name / "SUBAGENT.md").write_text(text, encoding="utf-8")


def test_the_built_in_types_are_general_explore_and_plan():
    types, problems = load_task_types(BUILT_IN_TYPES)
    assert (tuple(types), problems) == (("general", "explore", "plan"), ())


def test_general_may_use_every_tool_and_explore_only_looks():
    types, _ = load_task_types(BUILT_IN_TYPES)
    assert types.get("general").allows("shell_exec")
    assert types.get("general").allows("github__create_issue")
    assert types.get("explore").allows("read_file")
    assert not any(
        types.get("explore").allows(tool) for tool in ("write_file", "shell_exec", "memory_write", "http_post")
    )
    assert types.get("plan").allows("memory_append")
    assert not types.get("plan").allows("memory_patch")


def test_the_users_type_wins_over_the_built_in_one_of_its_name(tmp_path):
    write(tmp_path, "explore", "---\ndescription: mine\ntools: read_file\n---\nLook only here.")
    types, _ = load_task_types(BUILT_IN_TYPES, tmp_path)
    assert types.get("explore").description == "mine"
    assert tuple(types) == ("general", "explore", "plan")


def test_a_list_may_name_the_tools_of_an_mcp_server_by_pattern():
    found, _ = parse_task_type("---\ndescription: d\ntools: read_file, github__*\n---\nBody", "x")
    assert found.allows("github__create_issue")
    assert not found.allows("gitlab__create_issue")


@pytest.mark.parametrize("tools", ["'*'", "read_file, *", "['*']"])
def test_a_star_is_all_tools(tools):
    assert parse_task_type(f"---\ndescription: d\ntools: {tools}\n---\nBody", "x")[0].tools is None


def test_the_folder_is_the_default_name_and_a_missing_description_is_a_warning():
    found, warnings = parse_task_type("---\ntols: x\n---\nBody", "my-type")
    assert found.name == "my-type"
    assert warnings == ["unknown key 'tols' (known: name, description, tools, model)", warnings[1]]
    assert "no description" in warnings[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nname: ../evil\n---\nBody", "allowed are"),
        ("---\nname: Big\n---\nBody", "allowed are"),
        ("---\nname: 7\n---\nBody", "name must be a text, found a number"),
        ("---\nname: x\ntools: 7\n---\nBody", "tools must be"),
        ("---\nname: x\n---\n\n", "the body is the prompt"),
        ("---\nname: [x\n---\nBody", "no YAML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_task_type(text, "x")


def test_a_wrong_file_costs_only_its_own_type(tmp_path):
    write(tmp_path, "bad", "---\nname: ../x\n---\nBody")
    write(tmp_path, "huge", "x" * (LARGEST + 1))
    write(tmp_path, "good", "---\ndescription: d\n---\nBody")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "SUBAGENT.md").write_bytes(b"\xff\xfe\x00")
    types, problems = load_task_types(tmp_path)
    assert tuple(types) == ("good",)
    assert len(problems) == 3
    assert all("left out" in problem for problem in problems)
