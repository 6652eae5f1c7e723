"""``python -m hetccl.demo``: the same as ``hetccl demo``."""

import sys

from hetccl.demo import main

sys.exit(main(sys.argv[1:]))
