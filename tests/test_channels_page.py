"""The table of guarantees in docs/channels.md: each cell has tests that exist, and no cell is without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
COLUMNS: Final = ("in", "out", "order", "size", "after an outage")
DOORS, FRAMES = "tests/blackbox/test_guarantees.py", "tests/blackbox/test_frames.py"
ACKS, LOAD = "tests/blackbox/test_acks.py", "tests/blackbox/test_load.py"
TERMINAL, CLIENT = "tests/blackbox/test_terminal.py", "tests/pegasus/client/test_client.py"
SUITE = "tests/pegasus/testing/test_bridges.py"
PAGE, BRIDGE = "tests/browser/test_page.py", "tests/pegasus/bridge/test_connection.py"
TELEGRAM, SLACK = "tests/pegasus/channels/telegram/test_conversation.py", "tests/pegasus/channels/slack"
SMS_IN, SMS_OUT = "tests/pegasus/channels/sms/test_sms_in.py", "tests/pegasus/channels/sms/test_sms_out.py"
REAL_TELEGRAM, REAL_SLACK = "tests/blackbox/test_telegram.py", "tests/blackbox/test_slack.py"
REAL_SMS = "tests/blackbox/test_sms.py"

SOCKET: Final = (
    (f"{DOORS}::test_a_message_that_is_sent_again_after_each_kill_9_is_answered_once",),
    (f"{DOORS}::test_who_keeps_the_last_number_gets_each_reply_once_and_who_does_not_at_least_once",),
    (f"{DOORS}::test_a_slow_reader_gets_its_replies_by_number_without_gaps_over_a_kill_9",),
    (f"{DOORS}::test_a_frame_has_a_mebibyte_and_a_reply_any_size",),
    (f"{DOORS}::test_replies_wait_for_a_client_that_is_away_while_the_daemon_is_killed",),
)
"""Tests that dial the gateway and, with the same protocol, the port of the web page."""

TESTS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "terminal": (
        (
            f"{TERMINAL}::test_chat_goes_on_when_the_daemon_comes_back",
            f"{CLIENT}::test_after_a_lost_connection_everything_goes_on_and_nothing_comes_twice",
        ),
        (
            f"{DOORS}::test_terminal_a_chat_that_is_killed_shows_its_replies_at_the_next_start",
            f"{CLIENT}::test_a_reply_is_acknowledged_when_the_next_event_is_asked_for",
        ),
        (
            f"{DOORS}::test_terminal_lines_are_taken_in_the_order_in_which_they_were_typed_over_kill_9",
            f"{DOORS}::test_terminal_a_chat_that_is_killed_shows_its_replies_at_the_next_start",
        ),
        (
            f"{CLIENT}::test_a_message_that_is_too_large_is_rejected_with_an_event",
            f"{TERMINAL}::test_a_text_that_is_too_large_is_not_sent_and_the_chat_goes_on",
            f"{FRAMES}::test_a_frame_of_the_allowed_size_is_taken",
            f"{FRAMES}::test_a_frame_that_is_too_large_is_refused_and_the_connection_closed",
        ),
        (
            f"{TERMINAL}::test_chat_goes_on_when_the_daemon_comes_back",
            f"{TERMINAL}::test_a_daemon_that_comes_back_is_joined",
        ),
    ),
    "WebSocket": (
        (*SOCKET[0], f"{ACKS}::test_same_id_after_restarts_is_processed_once"),
        (*SOCKET[1], f"{ACKS}::test_last_seq_after_a_kill", f"{ACKS}::test_an_unacknowledged_reply_is_sent_again"),
        (*SOCKET[2], f"{LOAD}::test_a_client_that_never_reads_is_disconnected_and_loses_nothing"),
        (*SOCKET[3], f"{FRAMES}::test_a_frame_that_is_too_large_is_refused_and_the_connection_closed"),
        (*SOCKET[4], f"{ACKS}::test_replies_wait_for_a_client_that_is_away"),
    ),
    "web page": (
        (*SOCKET[0], f"{PAGE}::test_a_lost_connection_loses_nothing"),
        (*SOCKET[1], f"{PAGE}::test_a_lost_connection_loses_nothing"),
        (*SOCKET[2], f"{PAGE}::test_a_first_hour"),
        (*SOCKET[3], f"{PAGE}::test_a_message_that_is_too_large_is_not_sent"),
        (*SOCKET[4], f"{PAGE}::test_a_lost_connection_loses_nothing"),
    ),
    "HTTP": (
        (
            f"{DOORS}::test_http_a_message_that_is_posted_again_after_a_kill_9_is_answered_once",
            "tests/blackbox/test_http.py::test_what_was_accepted_over_http_survives_kill_9",
        ),
        (f"{DOORS}::test_http_replies_have_numbers_without_gaps_over_kill_9",),
        (f"{DOORS}::test_http_replies_have_numbers_without_gaps_over_kill_9",),
        (f"{DOORS}::test_http_a_body_has_32_mebibytes",),
        (f"{DOORS}::test_http_a_message_that_is_posted_again_after_a_kill_9_is_answered_once",),
    ),
    "OpenAI-compatible": (
        (
            f"{DOORS}::test_openai_a_request_that_had_not_arrived_at_a_kill_9_is_lost",
            f"{DOORS}::test_openai_a_request_during_a_kill_9_is_answered_once_among_the_replies",
            f"{DOORS}::test_openai_a_request_with_an_idempotency_key_is_answered_once_over_kill_9",
        ),
        (f"{DOORS}::test_openai_a_request_during_a_kill_9_is_answered_once_among_the_replies",),
        (f"{DOORS}::test_openai_requests_are_answered_one_after_the_other",),
        (f"{DOORS}::test_http_a_body_has_32_mebibytes",),
        (f"{DOORS}::test_openai_a_request_during_a_kill_9_is_answered_once_among_the_replies",),
    ),
    "Telegram": (
        (
            f"{TELEGRAM}::test_an_update_is_handled_once_however_often_it_comes",
            f"{REAL_TELEGRAM}::test_a_conversation_and_kill_9_at_each_step_of_a_delivery",
        ),
        (
            f"{REAL_TELEGRAM}::test_a_conversation_and_kill_9_at_each_step_of_a_delivery",
            f"{REAL_TELEGRAM}::test_kill_9_again_and_again_when_telegram_has_taken_an_answer_never_shows_it_three_times",
            f"{TELEGRAM}::test_an_answer_that_is_lost_each_time_is_sent_twice_and_the_agent_is_told",
        ),
        (f"{TELEGRAM}::test_if_half_of_all_calls_fail_everything_arrives_once_and_in_order",),
        (f"{TELEGRAM}::test_a_long_reply_is_split_between_paragraphs_and_code_stays_code",),
        (
            f"{REAL_TELEGRAM}::test_what_people_write_while_the_process_is_dead_is_answered_once_and_in_order",
            f"{REAL_TELEGRAM}::test_an_answer_that_never_left_is_sent_however_often_the_process_is_killed_meanwhile",
            f"{TELEGRAM}::test_an_outage_of_an_hour_loses_nothing",
            f"{TELEGRAM}::test_an_update_is_confirmed_only_when_its_message_is_on_disk",
        ),
    ),
    "Slack": (
        (
            f"{SLACK}/test_socket_mode.py::test_an_envelope_that_is_delivered_again_is_processed_once",
            f"{REAL_SLACK}::test_a_conversation_and_kill_9_at_each_step",
        ),
        (
            f"{REAL_SLACK}::test_a_conversation_and_kill_9_at_each_step",
            f"{SLACK}/test_replies.py::test_a_call_whose_answer_is_lost_does_not_post_twice",
            f"{SLACK}/test_outages.py::test_a_process_that_dies_again_and_again_before_it_could_record_the_delivery_posts_once",
            f"{SLACK}/test_outages.py::test_a_file_whose_sharing_was_not_recorded_is_shared_once",
            f"{SLACK}/test_outages.py::test_power_failures_one_after_another_never_post_three_times",
        ),
        (f"{SLACK}/test_replies.py::test_half_of_all_calls_fail_and_everything_arrives_once_and_in_order",),
        (f"{SLACK}/test_replies.py::test_a_long_reply_is_split_and_its_code_stays_code",),
        (
            f"{REAL_SLACK}::test_a_conversation_and_kill_9_at_each_step",
            f"{SLACK}/test_outages.py::test_after_an_hour_without_slack_everything_arrives_once_and_in_order",
        ),
    ),
    "SMS": (
        (
            f"{SMS_IN}::test_a_message_is_processed_once_however_often_it_comes",
            f"{REAL_SMS}::test_sms_that_was_taken_is_answered_once_over_kill_9_and_one_that_was_not_only_if_it_comes_again",
        ),
        (
            f"{SMS_OUT}::test_a_message_whose_answer_was_lost_is_not_sent_again",
            f"{SMS_OUT}::test_a_crash_between_sending_and_recording_sends_nothing_twice",
            f"{REAL_SMS}::test_sms_through_the_http_server_and_kill_9_around_a_delivery",
            f"{SMS_OUT}::test_a_service_that_does_not_list_messages_gets_each_at_least_once",
            f"{SMS_OUT}::test_power_failures_one_after_another_never_send_a_message_three_times",
        ),
        (f"{SMS_OUT}::test_half_of_all_calls_failing_changes_neither_order_nor_number",),
        (f"{SMS_OUT}::test_a_long_reply_goes_out_in_order_as_messages_that_twilio_takes",),
        (
            f"{SMS_OUT}::test_an_hour_without_twilio_loses_nothing",
            f"{SMS_IN}::test_a_message_that_cannot_be_kept_is_not_acknowledged",
            f"{REAL_SMS}::test_sms_that_was_taken_is_answered_once_over_kill_9_and_one_that_was_not_only_if_it_comes_again",
        ),
    ),
    "bridges": (
        (
            f"{REAL_SMS}::test_a_bridge_outlives_a_daemon_that_is_killed",
            f"{BRIDGE}::test_the_same_id_is_one_message_in_each_conversation",
        ),
        (
            f"{DOORS}::test_bridge_a_reply_that_was_not_handled_comes_again_over_kill_9_of_the_daemon",
            f"{BRIDGE}::test_a_reply_whose_handling_failed_comes_again",
            f"{SUITE}::test_the_example_is_proved_exactly_once_at_every_step",
        ),
        (
            f"{DOORS}::test_bridge_each_conversation_keeps_its_order_over_kill_9",
            f"{BRIDGE}::test_more_replies_than_fit_into_memory_come_in_order",
        ),
        (
            f"{DOORS}::test_bridge_a_message_that_is_too_large_is_refused_and_the_bridge_goes_on",
            f"{FRAMES}::test_a_frame_of_the_allowed_size_is_taken",
        ),
        (
            f"{BRIDGE}::test_after_a_lost_connection_nothing_is_missing_and_nothing_comes_twice",
            f"{REAL_SMS}::test_a_bridge_outlives_a_daemon_that_is_killed",
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
