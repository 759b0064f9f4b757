"""Decisions about what may be done, and for whom. They are made by code, never by a model.

`principal` has the person that work is done for.
"""

from pegasus.policy.principal import NOBODY, ROLE, Principal, Role, is_owner, principal_of, sender_of, with_role

__all__ = ["NOBODY", "ROLE", "Principal", "Role", "is_owner", "principal_of", "sender_of", "with_role"]
