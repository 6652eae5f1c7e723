"""``hetccl tune``: a sweep of the tuning space, its report, and exports of what it found."""
