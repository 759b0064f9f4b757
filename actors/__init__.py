"""Actors for Trio: mailboxes, asks and supervision trees with the semantics of Erlang/OTP."""
