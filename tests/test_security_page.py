"""The page about security: each sentence has tests that exist, and each test that is named has its sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SENTENCES: Final = re.findall(r"^- (.+)$", (ROOT / "docs" / "security.md").read_text("utf-8"), re.MULTILINE)

TESTS: Final[dict[str, tuple[str, ...]]] = {
    # From others on the network and on the machine
    "The gateway listens on loopback only, unless the settings allow another address.": (
        "tests/blackbox/test_access.py::test_a_host_others_can_reach_is_refused",
    ),
    "A client without the token, or with a wrong one, is refused before it can do anything.": (
        "tests/blackbox/test_access.py::test_no_token_at_all",
        "tests/blackbox/test_access.py::test_a_wrong_token_in_hello",
        "tests/blackbox/test_access.py::test_a_frame_before_hello",
    ),
    "The token is in a file that only you can read, and no answer repeats it.": (
        "tests/blackbox/test_access.py::test_the_token_file_is_private_and_stays_the_same",
        "tests/blackbox/test_access.py::test_the_token_is_never_repeated",
    ),
    "A web page in your browser is refused even with the token, unless its origin is allowed.": (
        "tests/blackbox/test_access.py::test_a_bad_origin_is_refused_even_with_the_token",
    ),
    "The folders of the home are made for your user only.": (
        "tests/pegasus/host/test_home.py::test_folders_are_made_for_their_owner_only",
    ),
    "On Linux other processes of your user cannot read the memory and the environment of the daemon.": (
        "tests/blackbox/test_access.py::test_other_processes_of_the_user_read_neither_environment_nor_memory_of_the_daemon",
        "tests/pegasus/host/test_hardening.py::test_a_process_that_forbids_inspection_is_not_dumpable",
    ),
    "Silent connections take no place from others.": (
        "tests/pegasus/gateway/test_newcomers.py::test_silent_connections_take_no_place_and_are_cut_when_others_wait",
        "tests/pegasus/web/test_server.py::test_silent_connections_keep_nobody_out",
    ),
    "The HTTP server listens on loopback only, unless the settings allow another address, and answers under its own names only, "
    "so that no page can point another name at it.": (
        "tests/blackbox/test_http.py::test_a_host_for_others_needs_consent",
        "tests/pegasus/web/test_visitors.py::test_a_page_that_points_its_own_name_at_this_machine_gets_nothing",
    ),
    "A page of others can use neither the cookie nor the WebSocket of a browser that is signed in.": (
        "tests/pegasus/web/test_visitors.py::test_a_page_of_others_cannot_use_the_cookie",
        "tests/pegasus/web/test_visitors.py::test_what_changes_something_with_the_cookie_needs_an_origin",
    ),
    "A browser never holds the token, and its session ends with the token, at a sign-out, or after 30 days.": (
        "tests/pegasus/web/test_visitors.py::test_the_cookie_holds_no_token_and_no_script_can_read_it",
        "tests/pegasus/web/test_visitors.py::test_a_session_ends_with_its_token",
        "tests/pegasus/web/test_visitors.py::test_signing_out_ends_the_session",
        "tests/pegasus/web/test_visitors.py::test_a_session_survives_a_restart_and_ends_after_thirty_days",
    ),
    "A notification can be read by the browser that it is for and by nobody on the way.": (
        "tests/pegasus/push/test_keys.py::test_the_example_of_the_rfc",
    ),
    "A browser is notified of its session's conversation alone, and of nothing once that session has ended.": (
        "tests/blackbox/test_push.py::test_each_browser_is_told_what_its_session_may_hear_for_as_long_as_it_lasts",
    ),
    "Notifications go to public addresses only, unless the settings allow others, and redirects are not followed.": (
        "tests/blackbox/test_push.py::test_an_address_inside_is_refused_and_a_redirect_is_not_followed",
    ),
    "A notification offers to allow only what it shows as a whole.": (
        "tests/pegasus/push/test_sending.py::test_a_call_can_be_allowed_only_where_all_of_it_is_shown",
    ),
    "A browser keeps the files of the page and nothing that was said; signing out removes them.": (
        "tests/browser/test_push.py::test_without_a_connection_the_page_opens_and_says_so_and_signing_out_leaves_nothing",
    ),
    "No path of a request leads out of the files of the page.": (
        "tests/pegasus/web/test_server.py::test_no_path_leads_out_of_the_static_files",
    ),
    "A request that two servers could read in two ways is refused.": (
        "tests/pegasus/web/test_server.py::test_requests_that_two_servers_could_read_in_two_ways_are_refused",
        "tests/pegasus/web/test_server.py::test_a_request_with_two_possible_ends_is_400_and_the_last_of_its_connection",
        "tests/blackbox/test_request_framing.py::test_nothing_behind_a_request_with_two_possible_ends_is_served",
    ),
    "A webhook without a valid signature starts nothing, and one with it works with the rights of a guest.": (
        "tests/pegasus/web/test_events.py::test_a_wrong_signature_is_401",
        "tests/pegasus/web/test_events.py::test_a_delivery_becomes_a_message_with_the_rights_of_a_guest",
    ),
    # From people who are not owners
    (
        "Work for a guest has a guest's rights in every thought, call, task and notification that comes of it"
        ", also after a crash."
    ): (
        "tests/pegasus/main_agent/test_rights.py::test_calls_of_the_main_agent_and_of_its_tasks_are_for_the_person_who_asked",
        "tests/pegasus/main_agent/test_rights.py::test_a_notification_is_worked_on_for_the_person_whose_task_it_is",
        "tests/pegasus/main_agent/test_rights.py::test_a_task_of_a_guest_has_a_guests_rights_after_a_crash",
    ),
    "A guest neither sees nor continues the tasks of an owner.": (
        "tests/pegasus/main_agent/test_rights.py::test_a_guest_neither_sees_nor_continues_a_task_of_an_owner",
    ),
    (
        "The `/stop` of a guest does not end what is done for others, and their `/stop all` discards no messages but"
        " their own."
    ): (
        "tests/blackbox/test_guests.py::test_the_stop_of_a_guest_does_not_end_a_thought_for_the_owner",
        "tests/blackbox/test_guests.py::test_the_stop_of_a_guest_ends_tasks_of_guests_there_and_spares_those_of_the_owner",
        "tests/pegasus/main_agent/test_stop_and_status.py::test_a_guest_discards_their_own_messages_only",
    ),
    "A guest has a conversation of their own, whatever `agent.scope` says: nothing that the owner said elsewhere is in its prompt.": (
        "tests/blackbox/test_people_apart.py::test_what_the_owner_said_elsewhere_is_not_in_a_guests_prompt",
    ),
    "The owner's memory answers no guest, but for what the owner has marked as shared, and a guest's notes are that guest's alone.": (
        "tests/blackbox/test_people_apart.py::test_the_owners_memory_answers_no_guest_but_for_what_is_shared",
        "tests/blackbox/test_people_apart.py::test_a_guests_notes_are_that_guests_and_bounded",
    ),
    "Work for a guest reads and changes files of a folder of their own, which is bounded, and no others.": (
        "tests/blackbox/test_people_apart.py::test_a_guest_has_a_folder_of_their_own_and_no_other_file",
        "tests/blackbox/test_people_apart.py::test_a_guests_folder_is_bounded",
    ),
    "A guest's `/new` begins that conversation anew and no other, and every command that decides about the agent is refused.": (
        "tests/blackbox/test_guests.py::test_the_new_of_a_guest_begins_their_own_conversation_anew_and_no_other",
        "tests/blackbox/test_guests.py::test_what_is_the_owners_to_decide_is_refused_with_a_sentence",
    ),
    "A role that a message claims for itself does not count.": (
        "tests/blackbox/test_guests.py::test_a_role_in_the_metadata_of_a_message_is_a_claim_and_does_not_count",
    ),
    "A channel type cannot be made to look like an owner's.": (
        "tests/pegasus/access/test_principal.py::test_a_channel_type_cannot_be_made_to_look_like_an_owner",
    ),
    "The words of a guest are labelled and fenced, and the words of an owner never are.": (
        "tests/pegasus/main_agent/test_labels.py::test_only_the_words_of_guests_are_fenced",
    ),
    "What a guest says changes no notes of other conversations, and the prompt of a chat in which one has written has none of them.": (
        "tests/pegasus/main_agent/consolidation/test_consolidation.py::test_what_a_guest_says_goes_to_the_history_with_its_mark_and_changes_no_notes",
        "tests/pegasus/main_agent/test_chat_prompt.py::test_nor_has_a_chat_in_which_a_guest_has_written",
    ),
    "Files of work for a guest are never those notes, nor the history of conversations.": (
        "tests/pegasus/tools/test_gate.py::test_the_notes_of_owners_conversations_are_closed_to_work_for_a_guest",
    ),
    # From text that gives orders
    "Text from outside carries a label from the moment it enters a conversation, and one that cannot be read counts too.": (
        "tests/pegasus/main_agent/test_labels.py::test_a_call_says_what_its_task_has_read_so_far",
        "tests/pegasus/conversation/test_fences.py::test_a_label_that_is_misread_is_not_lost",
    ),
    "The label follows the text into the notification of a task and into the tasks that are begun after it.": (
        "tests/pegasus/main_agent/test_labels.py::test_a_notification_has_the_labels_of_its_task_and_the_next_task_inherits_them",
    ),
    "The summary of a conversation, the replay of a task and the pages of an archive have the labels of what they show.": (
        "tests/pegasus/main_agent/test_labels.py::test_a_summary_has_the_labels_of_what_it_sums_up",
        "tests/pegasus/main_agent/test_labels.py::test_a_replay_and_the_state_of_a_task_have_its_labels",
        "tests/pegasus/main_agent/test_labels.py::test_the_labels_of_an_archive_are_those_of_the_lines_that_are_read",
    ),
    "A label survives a power failure, and ends with a fresh conversation.": (
        "tests/pegasus/main_agent/test_labels.py::test_what_a_turn_has_read_survives_a_power_failure_and_ends_with_new",
    ),
    "It still counts when an owner speaks next.": (
        "tests/pegasus/main_agent/test_labels.py::test_what_a_guest_has_said_is_in_the_labels_of_an_owners_turn",
    ),
    "Memory marks what was written by somebody who has read from outside, whatever source they claim.": (
        "tests/pegasus/main_agent/test_labels.py::test_memory_marks_what_was_written_after_a_page_was_read",
    ),
    "Sentences that an owner has typed to be remembered bear no mark.": (
        "tests/pegasus/policy/test_dictation.py::test_everything_else_is_not",
        "tests/pegasus/tools/test_memory_tools.py::test_what_an_owner_dictates_bears_no_mark_though_the_conversation_has_read_something",
    ),
    "Whatever is imported from another agent counts as text from outside, unless its owner vouches for it, and holds no key.": (
        "tests/pegasus/importing/test_import.py::test_memory_sessions_and_jobs_are_imported",
        "tests/pegasus/importing/test_import.py::test_what_its_owner_vouches_for_is_the_owners_words",
        "tests/pegasus/importing/test_import.py::test_no_secret_comes_along",
    ),
    "An import follows no link out of the folder that it reads.": (
        "tests/pegasus/importing/test_import.py::test_a_hostile_file_is_left_out_with_a_reason_and_the_rest_is_imported",
        "tests/pegasus/importing/test_import.py::test_a_folder_that_is_a_link_is_not_followed",
    ),
    "A mark of origin can be neither typed nor taken off by a tool.": (
        "tests/pegasus/memory/test_provenance.py::test_a_mark_cannot_be_typed_nor_taken_off",
    ),
    "The index of memory, which every conversation begins with, shows no words from outside.": (
        "tests/pegasus/memory/test_provenance.py::test_the_index_says_what_comes_from_outside",
    ),
    "A model is shown text from outside between fences whose id nobody can guess, and nothing inside ends them.": (
        "tests/pegasus/conversation/test_fences.py::test_text_from_outside_stands_between_fences",
        "tests/pegasus/conversation/test_fences.py::test_nothing_inside_ends_the_fence",
        "tests/pegasus/conversation/test_fences.py::test_a_conversation_has_one_fence_that_nobody_can_guess",
    ),
    "Each prompt has the rule that such text is information and never an order.": (
        "tests/pegasus/identity/test_outside_rule.py::test_the_rule_is_in_every_prompt",
    ),
    (
        "Metadata lines, headings of notifications and notes of the program cannot be imitated, also not by l"
        "etters that look alike."
    ): (
        "tests/pegasus/conversation/test_sanitize.py::test_a_faked_metadata_line_is_escaped",
        "tests/pegasus/conversation/test_sanitize.py::test_what_only_looks_like_one_is_escaped_too",
        "tests/pegasus/conversation/test_fences.py::test_a_note_of_the_program_has_a_mark_that_nobody_can_type",
    ),
    "A skill in the workspace counts only after an owner has accepted exactly the files that it has.": (
        "tests/pegasus/skills/test_acceptance.py::test_a_skill_of_the_workspace_does_not_count_before_it_is_accepted",
        "tests/pegasus/skills/test_acceptance.py::test_any_change_takes_the_acceptance_back",
        "tests/blackbox/test_injection.py::test_a_skill",
    ),
    "It never replaces another skill.": (
        "tests/pegasus/skills/test_acceptance.py::test_it_never_replaces_another_skill",
    ),
    "No guest can accept one.": (
        "tests/pegasus/main_agent/test_skill_command.py::test_a_guest_accepts_nothing_and_is_not_told_what_waits",
    ),
    "A skill of others is installed with exactly the files that an owner was shown, and no command of the agent's says yes.": (
        "tests/blackbox/test_skills_install.py::test_an_owner_says_yes_and_the_running_agent_has_it",
        "tests/blackbox/test_skills_install.py::test_a_model_that_was_told_to_install_a_skill_does_not",
        "tests/pegasus/cli/test_skills_install.py::test_nobody_but_an_owner_at_a_terminal_says_yes",
        "tests/pegasus/skills/test_installed.py::test_a_file_that_was_not_accepted_so_is_not_used",
    ),
    "Nothing of the repository that it comes from is run: no hook, no filter, no submodule, and no setting of git.": (
        "tests/pegasus/installing/test_repository.py::test_nothing_of_the_repository_and_of_the_person_is_run",
        "tests/pegasus/installing/test_repository.py::test_links_submodules_and_pointers_in_a_skill_are_refused",
    ),
    "No archive writes a file outside of the skill, and none fills the memory or the disk.": (
        "tests/pegasus/installing/test_archives.py::test_a_path_that_leads_elsewhere_refuses_the_archive",
        "tests/pegasus/installing/test_archives.py::test_a_link_or_a_special_file_in_a_skill_is_no_file",
        "tests/pegasus/installing/test_archives.py::test_more_than_the_bound_comes_out_of_no_archive",
        "tests/pegasus/installing/test_archives.py::test_too_many_files_are_refused_before_they_are_read",
    ),
    "Types of tasks are not read from the workspace.": ("tests/blackbox/test_injection.py::test_a_type_of_task",),
    "Escape sequences in text from outside do not reach your terminal.": (
        "tests/pegasus/cli/test_send_and_status.py::test_escape_sequences_in_replies_are_not_obeyed",
        "tests/pegasus/cli/test_tasks.py::test_text_of_strangers_is_neutralised_before_it_is_printed",
    ),
    # From a model that was talked into something
    (
        "A PDF or a document is read by a process of its own, which can write no file, has bounds of memory, time and size,"
        " and is killed when it exceeds them."
    ): (
        "tests/pegasus/media/test_document_text.py::test_a_reader_that_takes_too_long_is_killed",
        "tests/pegasus/media/test_document_text.py::test_an_archive_that_inflates_without_end_and_elements_without_end_are_given_up",
        "tests/pegasus/media/test_pdf_text.py::test_a_page_that_inflates_without_end_is_given_up",
        "tests/pegasus/media/test_pdf_text.py::test_a_reader_that_takes_too_long_is_killed",
    ),
    (
        "A voice message has the rights of whoever sent it, as its text would have."
        " One that was forwarded, and any other recording, is a file: text from outside."
    ): (
        "tests/pegasus/main_agent/test_attachments.py::test_a_voice_message_is_what_its_sender_says",
        "tests/pegasus/main_agent/test_attachments.py::test_the_voice_of_a_guest_is_a_guests",
        "tests/pegasus/main_agent/test_attachments.py::test_any_other_recording_is_a_file_that_may_hold_anybodys_words",
        "tests/pegasus/channels/telegram/test_conversation.py::"
        "test_a_voice_message_is_its_writers_own_unless_it_was_forwarded",
    ),
    (
        "Work that has read text from outside sends nothing out before an owner has agreed, be the text a web"
        " page, a file, the output of a command, a note in memory, the result of a task, of an MCP server, or attached to a message."
    ): (
        "tests/blackbox/test_injection.py::test_an_mcp_server",
        "tests/blackbox/test_injection.py::test_a_web_page",
        "tests/blackbox/test_injection.py::test_a_file",
        "tests/blackbox/test_injection.py::test_the_output_of_a_command",
        "tests/blackbox/test_injection.py::test_memory",
        "tests/blackbox/test_injection.py::test_the_notification_of_a_task",
        "tests/blackbox/test_injection.py::test_what_is_attached_to_a_message",
    ),
    "Such work, and work for a guest, changes no file that prompts repeat by the file tools without a yes of an owner.": (
        "tests/blackbox/test_injection.py::test_a_file_that_is_part_of_every_prompt",
        "tests/pegasus/tools/test_gate.py::test_a_file_that_prompts_repeat_is_more_than_a_file_of_the_workspace",
    ),
    (
        "A yes to a call is for exactly its arguments, and for a command for what is in the files that it names: a script that was "
        "changed since is asked about again, for a yes for ever too."
    ): (
        "tests/pegasus/app/test_approvals.py::test_a_yes_is_no_yes_for_other_arguments_or_another_call",
        "tests/blackbox/test_named_files.py::test_always_does_not_cover_a_script_that_was_changed",
        "tests/blackbox/test_named_files.py::test_a_file_that_changes_while_the_owner_is_asked_is_asked_about_again",
        "tests/pegasus/tools/test_named_files.py::test_each_word_that_leads_to_a_file_counts",
    ),
    (
        "A wider yes is bound to the tools as they were, never stands above a denial, is none for a guest's work or for what cannot "
        "be taken back, and ends with its task, its hour, or when you revoke it."
    ): (
        "tests/pegasus/access/test_grants.py::test_a_scope_covers_what_it_says",
        "tests/pegasus/access/test_grants.py::test_a_scope_that_does_not_fit_is_refused_and_the_question_stays_open",
        "tests/pegasus/access/test_grants.py::test_a_grant_of_a_task_ends_with_it_and_is_not_inherited",
        "tests/pegasus/access/test_grants.py::test_an_hour_ends_whatever_becomes_of_the_clock",
        "tests/pegasus/access/test_grants.py::test_a_revoked_grant_covers_nothing_and_stays_revoked",
        "tests/blackbox/test_grants.py::test_a_yes_for_good_stands_above_no_denial",
        "tests/blackbox/test_grants.py::test_a_yes_for_a_server_is_for_its_tools_as_they_were",
    ),
    (
        'Whoever answers through somebody\'s bridge, or with a token that has not the scope "control", says yes once only.'
    ): (
        "tests/blackbox/test_grants.py::test_work_for_a_guest_and_answers_through_a_bridge_count_once",
        "tests/blackbox/test_approvals.py::test_an_owner_on_a_bridge_is_asked_there",
    ),
    (
        "A plan for which a task asks beforehand allows each of its calls once, exactly as it was shown, and nothing that a rule "
        "denies; a crash neither loses nor doubles it."
    ): (
        "tests/blackbox/test_grants.py::test_a_plan_is_one_question_and_each_of_its_calls_runs_once",
        "tests/blackbox/test_grants.py::test_a_plan_that_cannot_be_asked_about_is_refused_without_a_question",
        "tests/pegasus/access/test_grants.py::test_each_call_of_a_plan_is_allowed_once",
    ),
    (
        "What changes in such a file while a command or a server of yours runs is in no prompt before an owner has accepted "
        "exactly that text."
    ): (
        "tests/blackbox/test_injection.py::test_a_command_that_writes_into_every_prompt",
        "tests/pegasus/identity/test_owner_texts.py::test_what_a_program_writes_does_not_count",
        "tests/pegasus/identity/test_owner_texts.py::test_a_yes_is_for_exactly_one_text",
        "tests/pegasus/identity/test_owner_texts.py::test_after_a_crash_what_a_program_has_written_does_not_count",
    ),
    "A download never becomes one.": (
        "tests/pegasus/tools/test_download.py::test_a_page_does_not_become_a_part_of_every_prompt",
        "tests/pegasus/tools/test_download.py::test_nor_does_a_server_choose_such_a_name",
    ),
    "A task gets an attached file only by its exact name, which is its hash, as a new file of the workspace, and counts as having "
    "read a file from outside then.": (
        "tests/pegasus/tools/test_save_attachment.py::test_an_attached_file_becomes_a_file_of_the_workspace",
        "tests/pegasus/tools/test_save_attachment.py::test_nothing_but_the_exact_name_of_an_attached_file_is_taken",
        "tests/pegasus/tools/test_save_attachment.py::test_a_link_or_a_damaged_file_in_its_place_is_not_copied",
        "tests/pegasus/tools/test_save_attachment.py::test_outside_of_the_workspace_nothing_is_saved",
        "tests/pegasus/tools/test_save_attachment.py::test_an_existing_file_stays",
        "tests/pegasus/tools/test_save_attachment.py::test_it_becomes_no_part_of_every_prompt",
    ),
    (
        "The result of a task that has read text from outside makes the agent say nothing in another conversa"
        "tion, unless it is an owner's."
    ): ("tests/pegasus/main_agent/test_labels.py::test_a_reply_elsewhere_sends_data_out",),
    (
        "Neither does a turn that an owner has begun, once text from outside stands in its conversation, and no file goes there; the "
        "decision is about the address that is used."
    ): (
        "tests/pegasus/main_agent/test_labels.py::test_a_reply_elsewhere_in_the_turn_of_a_person_is_decided_about_too",
        "tests/blackbox/test_injection.py::test_a_reply_with_a_file_to_the_chat_of_a_guest",
    ),
    "A yes to a reply sends exactly what was shown, also after a crash, and a file as it was then.": (
        "tests/blackbox/test_held_replies.py::test_where_guests_have_spoken_a_file_for_an_owner_is_asked_about_and_the_text_goes_out",
        "tests/blackbox/test_held_replies.py::test_a_reply_to_another_conversation_is_sent_after_a_yes_only_and_exactly",
    ),
    "Work for a guest runs no commands and sends nothing, and no owner is asked about it.": (
        "tests/blackbox/test_injection.py::test_the_message_of_a_guest",
    ),
    "A guest's words do no more when an owner speaks after them.": (
        "tests/blackbox/test_injection.py::test_the_message_of_a_guest_that_waits_for_the_owner",
    ),
    "A page that imitates fences, notes and metadata lines stays within its fence.": (
        "tests/blackbox/test_injection.py::test_a_text_that_pretends_to_end_its_fence",
    ),
    "File tools stay in the folders that are allowed, whatever the path and whoever swaps it for a link meanwhile.": (
        "tests/pegasus/tools/test_paths.py::test_no_path_of_any_kind_leaves_the_allowed_folder",
        "tests/pegasus/tools/test_paths.py::test_a_file_exchanged_for_a_link_after_the_check_is_refused",
        "tests/blackbox/test_walls.py::test_links_out_of_the_workspace_lead_nowhere_also_if_they_are_swapped_in_between_check_and_use",
    ),
    "They never open the home of the agent, with its keys and settings.": (
        "tests/pegasus/tools/test_closed_paths.py::test_nothing_in_the_home_can_be_read_written_or_looked_at",
        "tests/blackbox/test_walls.py::test_file_tools_do_not_open_it_either",
    ),
    "Web tools reach public addresses only, also after a redirect.": (
        "tests/pegasus/tools/test_addresses.py::test_other_addresses_are_not",
        "tests/pegasus/tools/test_web_fetch.py::test_a_redirect_inside_is_refused",
    ),
    "Known secrets, and whatever has the form of one, are masked in results and logs.": (
        "tests/pegasus/test_redaction.py::test_a_key_is_found_wherever_it_stands",
        "tests/pegasus/test_redaction.py::test_a_known_secret_is_found_in_each_form",
        "tests/blackbox/test_web.py::test_keys_in_files_pages_and_output_reach_neither_model_nor_disk",
    ),
    # Calls of MCP servers that need no question
    "A tool that only reads your own data passes with any arguments, except with an address.": (
        "tests/blackbox/test_asking_seldom.py::test_readers_and_what_the_owner_has_typed_pass",
        "tests/pegasus/policy/test_value_rules.py::test_one_with_an_address_does_not",
    ),
    "One that others can watch passes with values that you have typed, each call once in a task, and twenty in all.": (
        "tests/pegasus/policy/test_value_rules.py::test_an_open_reader_passes_once_with_owners_values",
        "tests/pegasus/policy/test_value_rules.py::test_open_readers_pass_a_bounded_number_of_times",
    ),
    (
        "One that changes something passes only if you have typed all its values in one message, and once for that message, also "
        "over a crash and with several tasks."
    ): (
        "tests/blackbox/test_asking_seldom.py::test_everything_else_is_asked_about",
        "tests/blackbox/test_asking_seldom.py::test_each_call_passes_once_also_over_a_crash",
        "tests/blackbox/test_asking_seldom.py::test_two_tasks_of_one_message_do_not_both_act_by_it",
        "tests/pegasus/policy/test_value_rules.py::test_an_act_is_not_put_together_of_several_messages",
    ),
    "What cannot be taken back is always asked about.": (
        "tests/blackbox/test_asking_seldom.py::test_everything_else_is_asked_about",
        "tests/pegasus/policy/test_value_rules.py::test_nothing_else_passes",
    ),
    (
        "Only what an owner has typed counts: not what a model has written, what was quoted, forwarded, attached or pasted at length, "
        "nor what a guest or a program has sent."
    ): (
        "tests/blackbox/test_asking_seldom.py::test_the_words_of_a_task_are_no_owners",
        "tests/blackbox/test_asking_seldom.py::test_what_was_not_typed_by_an_owner_is_nobodys",
        "tests/pegasus/main_agent/test_owner_words.py::test_only_what_an_owner_has_typed_is_kept_with_a_task",
        "tests/pegasus/policy/test_owner_values.py::test_parts_that_give_no_values",
    ),
    "A value counts as a whole and letter by letter, and not where it may stand by chance.": (
        "tests/pegasus/policy/test_owner_values.py::test_values_that_do_not",
        "tests/pegasus/policy/test_owner_values.py::test_values_elsewhere_than_behind_it",
    ),
    # From commands, where there are walls
    "A command reads neither the token, nor the settings, nor the environment of the daemon.": (
        "tests/blackbox/test_walls.py::test_a_command_reads_neither_token_nor_settings_nor_the_daemons_environment",
    ),
    "It cannot speak to the gateway, even with the token.": (
        "tests/blackbox/test_walls.py::test_a_command_cannot_speak_to_the_gateway_even_with_the_token",
        "tests/pegasus/sandbox/test_walls.py::test_no_socket_leads_outside",
    ),
    "It can neither end nor stop the daemon.": (
        "tests/blackbox/test_walls.py::test_a_command_can_neither_end_nor_stop_the_daemon",
    ),
    "It can neither limit, slow down nor trace other processes, and reaches no key ring and no memory that programs share.": (
        "tests/blackbox/test_walls_kernel.py::test_a_command_acts_on_no_process_no_key_and_no_file_outside",
        "tests/pegasus/sandbox/test_system_calls.py::test_a_process_may_limit_and_schedule_itself_and_nobody_else",
    ),
    "It changes neither rights, owners, times nor attributes of files outside of its folders, by name or by descriptor.": (
        "tests/blackbox/test_walls_kernel.py::test_a_command_acts_on_no_process_no_key_and_no_file_outside",
    ),
    "A command of work that has read text from outside leaves files that other programs run by themselves as they were, and so does "
    "one in the background.": (
        "tests/blackbox/test_autorun_files.py::test_commands_of_work_that_has_read_from_outside_leave_them_as_they_are",
        "tests/blackbox/test_autorun_files.py::test_a_command_in_the_background_changes_none_since_it_takes_input_later",
    ),
    "What git would obey in a repository of yours, and was not there, is set aside after the command that made it, and you get a "
    "message; you get one about a new repository within yours, too.": (
        "tests/blackbox/test_obeyed_by_git.py::test_what_git_would_obey_is_set_aside_and_the_owner_told",
        "tests/blackbox/test_obeyed_by_git.py::test_it_is_set_aside_when_a_command_in_the_background_has_ended_that_nobody_looked_at",
        "tests/blackbox/test_obeyed_by_git.py::"
        "test_the_owner_is_told_of_a_repository_within_another_that_git_enters_by_itself",
    ),
    "Where your folders hold more than is searched for such files, the walls count as partial.": (
        "tests/blackbox/test_obeyed_by_git.py::test_a_workspace_with_more_names_than_are_searched_has_partial_walls",
    ),
    "Once the work has read text from outside, the file tools write, move and delete such files with your yes only, and a download "
    "never becomes one.": (
        "tests/blackbox/test_autorun_files.py::test_file_tools_ask_once_the_work_has_read_from_outside",
        "tests/pegasus/tools/test_gate.py::test_a_folder_is_judged_by_what_it_holds_under_its_new_name",
        "tests/pegasus/tools/test_download.py::test_a_page_does_not_become_what_programs_run_by_themselves",
    ),
    "Walls that cannot close such files name each that a command has changed.": (
        "tests/blackbox/test_autorun_files.py::test_walls_that_cannot_close_them_name_each_that_a_command_changed",
    ),
    "The programs that people work with change those of their own files all the same.": (
        "tests/pegasus/sandbox/test_programs.py::test_git",
        "tests/pegasus/sandbox/test_programs.py::test_tar_and_other_archives",
        "tests/pegasus/sandbox/test_programs.py::test_rights_owners_and_times_of_its_own_files",
    ),
    "It cannot plant skills, types of tasks or memory.": (
        "tests/blackbox/test_walls.py::test_a_command_cannot_plant_files_that_the_agent_believes",
    ),
    "It is gone when `/stop` is answered, however hostile it is.": (
        "tests/blackbox/test_walls.py::test_a_hostile_command_is_gone_when_stop_is_answered",
        "tests/blackbox/test_walls.py::test_nothing_of_a_misbehaving_command_is_left_when_stop_is_answered",
    ),
    "Its memory and processes are limited.": (
        "tests/pegasus/sandbox/test_walls.py::test_too_many_processes_end_it",
        "tests/pegasus/sandbox/test_walls.py::test_processes_together_get_no_more_memory_than_allowed",
        "tests/blackbox/test_walls.py::test_a_command_that_uses_too_much_is_ended_and_told_why",
    ),
    "Where the kernel offers less, the start and `status` say so, and a setting refuses to start unless the walls are full.": (
        "tests/blackbox/test_walls.py::test_weaker_walls_are_told_at_the_start_and_in_status",
        "tests/blackbox/test_walls.py::test_walls_that_are_required_are_full_or_the_start_fails",
    ),
    "Within walls that are partial, a command of work that has read text from outside is asked for.": (
        "tests/pegasus/access/test_rules.py::test_partial_walls_ask_after_text_from_outside_and_for_others_than_owners",
        "tests/blackbox/test_walls_kernel.py::test_partial_walls_ask_after_text_from_outside_and_the_state_is_shown",
    ),
    # From MCP servers
    "A server that hangs, floods, dies or lies costs nobody but its own tools.": (
        "tests/blackbox/test_mcp_hostile.py::test_a_crowd_of_them_costs_others_nothing",
    ),
    "It gets its own environment alone, without your keys.": (
        "tests/blackbox/test_mcp.py::test_a_program_gets_its_own_environment_alone",
    ),
    "No file of the workspace becomes code of it, unless you have it run there.": (
        "tests/blackbox/test_mcp_folder.py::test_a_module_in_the_workspace_is_not_that_of_a_server",
        "tests/blackbox/test_mcp_folder.py::test_settings_of_npm_in_the_workspace_do_not_count_for_a_server",
        "tests/blackbox/test_mcp_folder.py::test_a_server_within_walls_sees_its_own_folder_and_no_other_one",
    ),
    "No process of it outlives the daemon.": (
        "tests/blackbox/test_mcp_hostile.py::test_a_killed_daemon_leaves_no_server",
        "tests/blackbox/test_mcp.py::test_a_shutdown_leaves_no_process_of_a_server",
    ),
}
"""By sentence, the tests that fail when it is not true any more."""


def test_each_sentence_has_its_tests_and_no_other_is_listed() -> None:
    assert list(TESTS) == SENTENCES


@pytest.mark.parametrize("name", sorted({name for names in TESTS.values() for name in names}))
def test_each_test_exists(name: str) -> None:
    file, _, function = name.partition("::")
    text = (ROOT / file).read_text("utf-8")
    assert re.search(rf"^(?:async )?def {function}\(", text, re.MULTILINE), f"{file} has no {function}"
