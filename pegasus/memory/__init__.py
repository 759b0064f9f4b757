"""What the agent remembers beyond a conversation: facts and episodes, as Markdown files that people may edit too."""
