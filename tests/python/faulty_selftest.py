"""Faults in the ranks of `hetccl selftest`."""

import ctypes
import os
import signal
import time

from hetccl._lib import HetcclError, Result
from hetccl.communicator import Communicator
from hetccl.selftest import command, rank


class Faulty(Communicator):
    """All-reduces of float32 go wrong on rank 1."""

    fault = ""

    def __init__(self, *arguments, cluster=None, **options):
        if self.fault == "no-cluster" and cluster is None:
            raise HetcclError(Result.SYSTEM_ERROR, "RCCL: unhandled system error")
        super().__init__(*arguments, cluster=cluster, **options)

    def all_reduce(self, send, recv=None, op="sum", dtype=None, stream=None, residual=None):
        mine = self.rank == 1 and dtype == "float32"
        if mine and self.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and self.fault == "hang":
            time.sleep(1000)
        if dtype == "float32" and self.fault == "absent":
            raise HetcclError(Result.UNSUPPORTED, "rank 1 cannot reduce float32 by sum")
        super().all_reduce(send, recv, op, dtype, stream, residual)
        target = send if recv is None else recv
        if mine and target and self.fault in ("wrong", "bits"):
            words = (ctypes.c_uint32 * (len(target) // 4)).from_buffer(target)
            words[-1] ^= 1 << 30 if self.fault == "wrong" else 1


def sow(fault, found):
    """Makes the ranks of this process's self tests faulty. They need not look for the machine's
    devices.
    """
    Faulty.fault = fault
    rank.Communicator = Faulty
    know(found)


def know(found):
    """Tells this process's self tests which devices there are: looking starts a process."""
    command.look = lambda *_: found
