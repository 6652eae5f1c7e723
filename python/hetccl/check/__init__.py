"""``hetccl check``: what is wrong with the hosts of a job, before the job runs."""
