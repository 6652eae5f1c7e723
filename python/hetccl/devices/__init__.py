"""The devices of commands: one for each rank, and its memory."""
