"""``hetccl selftest``: every collective on this machine's devices, and a report to send."""
