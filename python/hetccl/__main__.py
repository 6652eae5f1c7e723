"""``python -m hetccl``: the same as the command ``hetccl``."""

from hetccl.cli import main

main()
