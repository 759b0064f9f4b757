"""Running one task: its actor, the stages that it goes through, and the parts that think, act and reflect."""
