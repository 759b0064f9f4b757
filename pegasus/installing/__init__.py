"""Installing skills of others: reading a source, saying what its skills ask for, and what an update changes.

`source_tree` is the content of a source, read from a folder or, by `archives` and `repository`, from an archive or a git repository;
`source` says by its text which of these is meant. `offer` judges the skills in it and describes them for the owner.

All of a source is in memory before anything is shown. So what the owner says yes to are exactly the bytes that are installed
(`pegasus.skills.InstalledSkills`), whatever becomes of the source meanwhile. Nothing of a source is run, and nothing is written
outside of the home but a repository in a folder for temporary files.
"""

from pegasus.installing.offer import SkillOffer, describe_changes, describe_offer, find_offers
from pegasus.installing.source import SkillSource, parse_source, read_source
from pegasus.installing.source_tree import SourceError

__all__ = [
    "SkillOffer",
    "SkillSource",
    "SourceError",
    "describe_changes",
    "describe_offer",
    "find_offers",
    "parse_source",
    "read_source",
]
