"""The table of guarantees in docs/channels.md: each cell has tests that exist, and no cell is without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
COLUMNS: Final = ("in", "out", "order", "size", "after an outage")
WS, CLIENT = "tests/pegasus/gateway/test_replies.py", "tests/pegasus/client/test_client.py"
ACKS, WEB = "tests/blackbox/test_acks.py", "tests/pegasus/web/test_messages.py"
TELEGRAM, SLACK = "tests/pegasus/channels/telegram/test_conversation.py", "tests/pegasus/channels/slack"
SMS_IN, SMS_OUT = "tests/pegasus/channels/sms/test_sms_in.py", "tests/pegasus/channels/sms/test_sms_out.py"
BRIDGE, FRAMES = "tests/pegasus/test_bridge.py", "tests/blackbox/test_frames.py"

TESTS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "terminal": (
        (f"{CLIENT}::test_after_a_lost_connection_everything_goes_on_and_nothing_comes_twice",),
        (f"{CLIENT}::test_a_reply_is_acknowledged_when_the_next_event_is_asked_for",),
        (f"{CLIENT}::test_messages_are_sent_in_the_order_in_which_they_were_handed_over",),
        (f"{CLIENT}::test_a_message_that_is_too_large_is_rejected_with_an_event",),
        ("tests/blackbox/test_terminal.py::test_chat_goes_on_when_the_daemon_comes_back",),
    ),
    "WebSocket": (
        (
            f"{ACKS}::test_same_id_is_accepted_again_and_processed_once",
            f"{ACKS}::test_same_id_after_restarts_is_processed_once",
        ),
        (f"{ACKS}::test_last_seq_after_a_kill", f"{ACKS}::test_an_unacknowledged_reply_is_sent_again"),
        (f"{WS}::test_a_gap_is_filled_from_the_journal", f"{WS}::test_a_reply_that_is_pushed_twice_comes_once"),
        (
            f"{FRAMES}::test_a_frame_that_is_too_large_is_refused_and_the_connection_closed",
            f"{WS}::test_a_client_that_reads_is_not_disconnected_by_a_burst_of_large_replies",
        ),
        (f"{ACKS}::test_replies_wait_for_a_client_that_is_away",),
    ),
    "web page": (("tests/blackbox/test_http.py::test_ws_speaks_the_protocol_of_the_gateway",),) * 5,
    "HTTP": (
        (f"{WEB}::test_a_message_is_accepted_when_it_is_on_disk",),
        (f"{WEB}::test_replies_by_number_and_by_long_poll",),
        (f"{WEB}::test_replies_that_were_not_pushed_are_read_from_the_journal",),
        ("tests/pegasus/web/test_server.py::test_a_body_that_is_too_large_is_413_whether_it_says_so_or_not",),
        (f"{WEB}::test_replies_that_a_response_has_carried_are_still_shown",),
    ),
    "OpenAI-compatible": (
        (f"{WEB}::test_only_the_last_user_message_is_new_input",),
        (f"{WEB}::test_the_official_client_lists_models_and_gets_an_answer",),
        (f"{WEB}::test_the_official_client_streams_drafts_and_replies",),
        ("tests/pegasus/web/test_server.py::test_a_body_that_is_too_large_is_413_whether_it_says_so_or_not",),
        (f"{WEB}::test_a_client_that_leaves_does_not_take_its_message_back",),
    ),
    "Telegram": (
        (f"{TELEGRAM}::test_an_update_is_handled_once_however_often_it_comes",),
        ("tests/blackbox/test_telegram.py::test_a_conversation_and_kill_9_at_each_step_of_a_delivery",),
        (f"{TELEGRAM}::test_if_half_of_all_calls_fail_everything_arrives_once_and_in_order",),
        (f"{TELEGRAM}::test_a_long_reply_is_split_between_paragraphs_and_code_stays_code",),
        (
            f"{TELEGRAM}::test_an_outage_of_an_hour_loses_nothing",
            f"{TELEGRAM}::test_an_update_is_confirmed_only_when_its_message_is_on_disk",
        ),
    ),
    "Slack": (
        (f"{SLACK}/test_socket_mode.py::test_an_envelope_that_is_delivered_again_is_processed_once",),
        (
            f"{SLACK}/test_replies.py::test_a_call_whose_answer_is_lost_does_not_post_twice",
            f"{SLACK}/test_outages.py::test_a_process_that_dies_again_and_again_before_it_could_record_the_delivery_posts_once",
        ),
        (f"{SLACK}/test_replies.py::test_half_of_all_calls_fail_and_everything_arrives_once_and_in_order",),
        (f"{SLACK}/test_replies.py::test_a_long_reply_is_split_and_its_code_stays_code",),
        (f"{SLACK}/test_outages.py::test_after_an_hour_without_slack_everything_arrives_once_and_in_order",),
    ),
    "SMS": (
        (
            f"{SMS_IN}::test_a_message_is_processed_once_however_often_it_comes",
            f"{SMS_IN}::test_an_answer_of_200_means_on_disk",
        ),
        (
            f"{SMS_OUT}::test_a_message_whose_answer_was_lost_is_not_sent_again",
            f"{SMS_OUT}::test_a_crash_between_sending_and_recording_sends_nothing_twice",
            "tests/blackbox/test_sms.py::test_sms_through_the_http_server_and_kill_9_around_a_delivery",
            f"{SMS_OUT}::test_a_service_that_does_not_list_messages_gets_each_at_least_once",
        ),
        (f"{SMS_OUT}::test_half_of_all_calls_failing_changes_neither_order_nor_number",),
        (f"{SMS_OUT}::test_a_long_reply_goes_out_in_order_as_messages_that_twilio_takes",),
        (
            f"{SMS_OUT}::test_an_hour_without_twilio_loses_nothing",
            f"{SMS_IN}::test_a_message_that_cannot_be_kept_is_not_acknowledged",
        ),
    ),
    "bridges": (
        (f"{BRIDGE}::test_the_same_id_is_one_message_in_each_conversation",),
        (f"{BRIDGE}::test_a_reply_whose_handling_failed_comes_again",),
        (f"{BRIDGE}::test_replies_come_in_order_and_are_acknowledged_one_by_one",),
        (
            f"{BRIDGE}::test_more_replies_than_fit_into_memory_come_in_order",
            f"{FRAMES}::test_a_frame_of_the_allowed_size_is_taken",
        ),
        (
            f"{BRIDGE}::test_after_a_lost_connection_nothing_is_missing_and_nothing_comes_twice",
            "tests/blackbox/test_sms.py::test_a_bridge_outlives_a_daemon_that_is_killed",
            f"{BRIDGE}::test_a_message_that_was_on_its_way_when_the_connection_was_lost_is_sent_again",
        ),
    ),
}
"""By channel, the tests of each column."""


def rows() -> list[list[str]]:
    """The rows of the table, its head first."""
    page = (ROOT / "docs" / "channels.md").read_text("utf-8").partition("## What each channel promises")[2]
    lines = [
        line for line in page.partition("\n## ")[0].splitlines() if line.startswith("|") and not line.startswith("|---")
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_the_channels_and_promises_that_are_tested() -> None:
    head, *body = rows()
    assert head == ["channel", *COLUMNS]
    assert [row[0] for row in body] == list(TESTS)
    assert all(len(row) == len(head) and all(row) for row in body)
    assert all(len(cells) == len(COLUMNS) and all(cells) for cells in TESTS.values())


@pytest.mark.parametrize("name", sorted({name for cells in TESTS.values() for names in cells for name in names}))
def test_each_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (ROOT / file).read_text("utf-8")
    assert re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE), f"{file} has no {function}"
