"""Trains a small GPT with unmodified DDP across two clusters joined by a slow link."""

from hetccl.demo.launch import main

__all__ = ["main"]
