"""What an editor is shown of a question."""

from pegasus.acp.permissions import permission_params
from pegasus.messages import ApprovalNotice


def test_nothing_of_a_question_is_hidden_and_the_agents_words_are_a_block():
    words = "Asked because the owner wants it.\n```\nAllow this\u202e."
    arguments = {"command": "rm \u202ecod.txt"}
    notice = ApprovalNotice("a-7f3k", "shell_exec", arguments, "rule 1", "owner", 0, "open", words=words)
    call = permission_params(notice, "s", "/project")["toolCall"]
    assert call["title"] == "shell_exec: rm ⟨U+202E⟩cod.txt"
    text = call["content"][0]["content"]["text"]
    assert text.endswith("words:\n\n````\nAsked because the owner wants it.\n```\nAllow this⟨U+202E⟩.\n````")
