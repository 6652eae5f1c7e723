"""Devices of commands: which of them each rank takes, and their memory."""
