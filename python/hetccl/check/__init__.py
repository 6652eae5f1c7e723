"""``hetccl check``: finds faults of a job's hosts before the job runs."""
