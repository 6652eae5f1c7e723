"""``hetccl bench``: nccl-tests' measurements, columns and flags, over the C API."""
