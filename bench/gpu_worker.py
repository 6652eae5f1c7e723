"""One process of bench/gpu.py, which its parent commands by lines of JSON.

Its role is a backend of torch.distributed, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in
the environment; a C API ("hetccl-c"); or one of two probes. Between two commands it blocks on its
pipe. Needs torch and hetccl.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

PATIENCE = timedelta(seconds=60)
PR_SET_PDEATHSIG = 1  # linux/prctl.h
STREAMS = 4
CHUNK = 1 << 20
LONGEST_ERROR = 1500  # an answer goes through the pipe in one piece

Answer = dict[str, Any]


def wait_until(moment: float) -> None:
    """Returns at `moment` of the monotonic clock, which all processes of the host share."""
    time.sleep(max(0.0, moment - time.monotonic() - 5e-4))
    while time.monotonic() < moment:
        pass


def join_group(options: argparse.Namespace) -> torch.device:
    """Makes the default process group, with the backend that this process's role names."""
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if options.role == "hetccl":
        import hetccl  # noqa: F401
    bound: dict[str, Any] = {"device_id": device} if options.role == "nccl" else {}
    backend = "gloo" if options.role.endswith("-c") else options.role
    dist.init_process_group(backend, timeout=PATIENCE, **bound)
    return device


class Collectives:
    """One rank of a backend. `bytes` is the length of a collective's larger buffer; in "send_recv",
    where every rank sends to the next one, the length of a message.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = join_group(options)
        self.on_gpu = self.device.type == "cuda"
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        # All sizes are views of these, so that no call is the first on its memory.
        self.whole = torch.zeros(options.bytes // 4, device=self.device)
        self.other = torch.zeros(options.bytes // 4, device=self.device)
        self.share = torch.zeros(options.bytes // 4 // self.world, device=self.device)
        self.synchronize()

    def ready(self) -> Answer:
        """Returns facts about the machine, which the parent prints."""
        facts = {"torch": torch.__version__, "device": "cpu"}
        if self.on_gpu:
            facts["device"] = torch.cuda.get_device_name(self.device)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return facts

    def synchronize(self) -> None:
        """Waits for the GPU. On the host, calls have waited already."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def buffers(self, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the whole buffer, another one of its length, and a buffer for a rank's share."""
        share = size // 4 // self.world
        whole = slice(share * self.world)
        return self.whole[whole], self.other[whole], self.share[:share]

    def neighbours(self) -> tuple[int, int]:
        """Returns the ranks after and before this one."""
        return (self.rank + 1) % self.world, (self.rank - 1) % self.world

    def call(self, collective: str, size: int) -> Callable[[], object]:
        """Returns a function that calls the collective."""
        whole, other, share = self.buffers(size)
        if collective == "all_gather_into_tensor":
            return lambda: dist.all_gather_into_tensor(whole, share)
        if collective == "reduce_scatter_tensor":
            return lambda: dist.reduce_scatter_tensor(share, whole)
        if collective == "broadcast":
            return lambda: dist.broadcast(whole, 0)
        if collective == "all_to_all_single":
            return lambda: dist.all_to_all_single(other, whole)
        if collective == "send_recv":
            return lambda: self.exchange(other, whole)
        return lambda: dist.all_reduce(whole)

    def exchange(self, received: Tensor, sent: Tensor) -> None:
        """Sends to the next rank, and receives from the previous one."""
        after, before = self.neighbours()
        pair = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    def check(self, collective: str, bytes: int) -> Answer:
        """Makes one call, with values that float32 holds exactly, as it does their sums in any
        order.
        """
        whole, other, share = self.buffers(bytes)
        parts = [slice(r * len(share), (r + 1) * len(share)) for r in range(self.world)]
        # Counted as integers: float32 cannot count to 2^26.
        pattern = torch.arange(len(whole), dtype=torch.int32, device=self.device)
        pattern = pattern.remainder_(1021).float()
        torch.add(pattern, self.rank, out=whole)
        share.fill_(-1)
        other.fill_(-1)
        if collective == "all_gather_into_tensor":
            share.copy_(whole[parts[self.rank]])
            whole.fill_(-1)
        self.call(collective, bytes)()
        total = pattern * self.world + self.world * (self.world - 1) // 2
        if collective == "all_reduce":
            right = torch.equal(whole, total)
        elif collective == "all_gather_into_tensor":
            right = all(torch.equal(whole[p], pattern[p] + r) for r, p in enumerate(parts))
        elif collective == "reduce_scatter_tensor":
            right = torch.equal(share, total[parts[self.rank]])
        elif collective == "all_to_all_single":
            mine = pattern[parts[self.rank]]
            right = all(torch.equal(other[p], mine + r) for r, p in enumerate(parts))
        elif collective == "send_recv":
            right = torch.equal(other, pattern + self.neighbours()[1])
        else:
            right = torch.equal(whole, pattern)
        whole.zero_()  # sums of sums would end as infinities
        share.zero_()
        self.synchronize()
        return {"right": right}

    def measure(self, collective: str, bytes: int, times: int, at: float, each: bool) -> Answer:
        """Makes `times` calls in a row from the moment `at`; with `each`, also as many one at a
        time.

        Returns seconds per call: until all calls have ended (seconds), until the calls have
        returned (host), of all threads' CPU (cpu), and from one call to its end (alone).
        """
        call = self.call(collective, bytes)
        self.synchronize()
        wait_until(at)
        cpu = time.process_time()
        start = time.perf_counter()
        for _ in range(times):
            call()
        returned = time.perf_counter()
        # torch.cuda.synchronize spins in this thread, which no backend can help.
        spun = time.thread_time()
        self.synchronize()
        spun = time.thread_time() - spun
        end = time.perf_counter()
        cpu = time.process_time() - cpu - spun
        answer = {
            "seconds": (end - start) / times,
            "host": (returned - start) / times,
            "cpu": cpu / times,
        }
        if each:
            spans = []
            for _ in range(times):
                start = time.perf_counter()
                call()
                self.synchronize()
                spans.append(time.perf_counter() - start)
            answer["alone"] = statistics.median(spans)
        return answer

    def end(self) -> Answer:
        """Leaves the process group."""
        dist.destroy_process_group()
        return {}


class CApi(Collectives):
    """A C API on torch's stream. The process group is only for rendezvous."""

    FUNCTIONS: ClassVar[dict[str, str]] = {
        "all_reduce": "AllReduce",
        "all_gather_into_tensor": "AllGather",
        "reduce_scatter_tensor": "ReduceScatter",
        "broadcast": "Broadcast",
        "all_to_all_single": "AllToAll",
    }
    FLOAT32, SUM = 7, 0  # hetccl's numbers are NCCL's

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.handle = self.join(options.device if self.on_gpu else None)

    def shared(self, made: bytes) -> bytes:
        """Returns the bytes that rank 0 has made."""
        box = [made]
        dist.broadcast_object_list(box)
        return box[0]

    def call(self, collective: str, size: int) -> Callable[[], object]:
        """Returns a function that calls the collective by the C API."""
        whole, other, share = self.buffers(size)
        stream = torch.cuda.current_stream().cuda_stream if self.on_gpu else None
        if collective == "send_recv":
            return self.exchange_call(other, whole, stream)
        mine, all_of_it = share.data_ptr(), whole.data_ptr()
        arguments = {
            "all_gather_into_tensor": (mine, all_of_it, len(share), self.FLOAT32),
            "reduce_scatter_tensor": (all_of_it, mine, len(share), self.FLOAT32, self.SUM),
            "broadcast": (all_of_it, all_of_it, len(whole), self.FLOAT32, 0),
            "all_reduce": (all_of_it, all_of_it, len(whole), self.FLOAT32, self.SUM),
            "all_to_all_single": (all_of_it, other.data_ptr(), len(share), self.FLOAT32),
        }[collective]
        function = self.function(self.FUNCTIONS[collective])

        def one() -> None:
            if code := function(*arguments, self.handle, stream):
                raise RuntimeError(f"{collective} returns {code}")

        return one

    def exchange_call(
        self, received: Tensor, sent: Tensor, stream: int | None
    ) -> Callable[[], object]:
        """Returns a function that makes both messages in a group."""
        after, before = self.neighbours()
        begin, end, send, receive = map(self.function, ("GroupStart", "GroupEnd", "Send", "Recv"))
        out = (sent.data_ptr(), len(sent), self.FLOAT32, after, self.handle, stream)
        into = (received.data_ptr(), len(received), self.FLOAT32, before, self.handle, stream)

        def one() -> None:
            if code := begin() or send(*out) or receive(*into) or end():
                raise RuntimeError(f"send_recv returns {code}")

        return one


class HetcclCApi(CApi):
    """The C API of hetccl."""

    def join(self, device: str | None) -> Any:
        """Makes the communicator."""
        import hetccl

        uid = self.shared(hetccl.unique_id() if self.rank == 0 else b"")
        self.communicator = hetccl.Communicator(uid, self.rank, self.world, device=device)
        return self.communicator._comm

    def function(self, name: str) -> Callable[..., int]:
        """Returns a function of the C API, with the types of its arguments."""
        from hetccl import _lib

        return _lib.library().functions[f"hetccl{name}"]

    def end(self) -> Answer:
        """Leaves the communicator and the process group."""
        self.communicator.destroy()
        return super().end()


class NcclCApi(CApi):
    """The C API of the NCCL that torch has loaded."""

    ID_BYTES = 128

    def join(self, device: str | None) -> Any:
        """Makes the communicator."""
        del device  # the current one

        class UniqueId(ctypes.Structure):
            _fields_: ClassVar = [("internal", ctypes.c_char * self.ID_BYTES)]

        self.library = ctypes.CDLL("libnccl.so.2")
        uid, handle = UniqueId(), ctypes.c_void_p()
        if self.rank == 0:
            self.succeed(self.library.ncclGetUniqueId(ctypes.byref(uid)))
        uid = UniqueId.from_buffer_copy(self.shared(bytes(uid)))
        init = self.library.ncclCommInitRank
        self.succeed(init(ctypes.byref(handle), self.world, uid, self.rank))
        return handle

    @staticmethod
    def succeed(code: int) -> None:
        """Raises if NCCL has failed."""
        if code:
            raise RuntimeError(f"NCCL returns {code}")

    def function(self, name: str) -> Callable[..., int]:
        """Returns a function of the C API, with the types of its arguments."""
        own_name = name.replace("AllToAll", "AlltoAll")
        found = getattr(self.library, f"nccl{own_name}")
        pointer, number, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        if name.startswith("Group"):
            found.argtypes = []
        elif name in ("Send", "Recv"):
            found.argtypes = [pointer, count, number, number, pointer, pointer]
        else:
            last = [] if name in ("AllGather", "AllToAll") else [number]
            found.argtypes = [pointer, pointer, count, number, *last, pointer, pointer]
        return cast(Callable[..., int], found)

    def end(self) -> Answer:
        """Leaves the communicator and the process group."""
        self.succeed(self.library.ncclCommDestroy(self.handle))
        return super().end()


class Copies:
    """A GPU that copies to and from pinned memory at the same time."""

    def __init__(self, options: argparse.Namespace) -> None:
        device = torch.device(options.device)
        torch.cuda.set_device(device)
        on_gpu = [torch.zeros(options.bytes, dtype=torch.uint8, device=device) for _ in range(2)]
        on_host = [torch.zeros(options.bytes, dtype=torch.uint8).pin_memory() for _ in range(2)]
        self.pairs = ((on_host[0], on_gpu[0]), (on_gpu[1], on_host[1]))
        self.streams = (torch.cuda.Stream(), torch.cuda.Stream())
        torch.cuda.synchronize()

    def ready(self) -> Answer:
        """Returns no facts."""
        return {}

    def measure(self, times: int, at: float) -> Answer:
        """Returns the seconds of two copies, one each way."""
        wait_until(at)
        start = time.perf_counter()
        for _ in range(times):
            for (target, source), stream in zip(self.pairs, self.streams, strict=True):
                with torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        return {"seconds": (time.perf_counter() - start) / times}

    def end(self) -> Answer:
        """Does nothing."""
        return {}


class Loopback:
    """One of two processes that exchange data over TCP on the loopback interface."""

    def __init__(self, options: argparse.Namespace) -> None:
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.first = os.environ["RANK"] == "0"
        if self.first:
            with socket.create_server(address) as server:
                self.sockets = [server.accept()[0] for _ in range(STREAMS)]
        else:
            self.sockets = [self.connect(address) for _ in range(STREAMS)]
        for each in self.sockets:
            each.setblocking(True)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def connect(address: tuple[str, int]) -> socket.socket:
        """Connects as soon as the other process listens."""
        deadline = time.monotonic() + PATIENCE.total_seconds()
        while True:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def ready(self) -> Answer:
        """Returns no facts."""
        return {}

    def measure(self, streams: int, bytes: int, at: float) -> Answer:
        """Returns the seconds until `bytes` have gone each way over so many sockets."""
        chunks = bytes // streams // CHUNK
        threads = []
        for each in self.sockets[:streams]:
            threads.append(threading.Thread(target=self.send, args=(each, chunks)))
            threads.append(threading.Thread(target=self.receive, args=(each, chunks)))
        wait_until(at)
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"seconds": time.perf_counter() - start}

    @staticmethod
    def send(to: socket.socket, chunks: int) -> None:
        """Sends so many chunks. The interpreter's lock is free meanwhile."""
        data = memoryview(bytearray(CHUNK))
        for _ in range(chunks):
            to.sendall(data)

    @staticmethod
    def receive(source: socket.socket, chunks: int) -> None:
        """Receives so many chunks."""
        data = memoryview(bytearray(CHUNK))
        left = chunks * CHUNK
        while left > 0:
            got = source.recv_into(data, min(left, CHUNK), socket.MSG_WAITALL)
            if got == 0:
                return  # the parent learns of it from the other end
            left -= got

    def round_trip(self, times: int, at: float) -> Answer:
        """Returns the seconds that a byte takes there and back while both ends poll."""
        wait_until(at)
        start = time.perf_counter()
        for _ in range(times):
            if self.first:
                self.sockets[0].send(b"x")
            self.poll_byte()
            if not self.first:
                self.sockets[0].send(b"x")
        return {"seconds": (time.perf_counter() - start) / times}

    def poll_byte(self) -> None:
        """Receives one byte without sleeping."""
        while True:
            try:
                if not self.sockets[0].recv(1, socket.MSG_DONTWAIT):
                    raise ConnectionError("the other end has closed the connection")
                return
            except BlockingIOError:
                continue

    def end(self) -> Answer:
        """Closes the connections."""
        for each in self.sockets:
            each.close()
        return {}


def private_stdout() -> int:
    """Returns a descriptor for answers only; everything that libraries print goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def serve(make: Callable[[argparse.Namespace], Any], options: argparse.Namespace) -> int:
    """Executes the parent's commands by methods of `make(options)`, until "end" or until the parent
    is gone.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a hang ends with the parent
    answers = private_stdout()

    def say(answer: Answer) -> None:
        os.write(answers, json.dumps(answer).encode() + b"\n")

    torch.set_num_threads(1)
    try:
        role = make(options)
        say(role.ready())
        for line in sys.stdin:
            command = json.loads(line)
            do = command.pop("do")
            say(getattr(role, do)(**command))
            if do == "end":
                break
    except Exception:
        say({"error": traceback.format_exc()[-LONGEST_ERROR:]})
        # At once: others may be waiting in a collective that this process will not join.
        os._exit(1)
    return 0


def arguments(*others: str) -> argparse.ArgumentParser:
    """Returns the parser of the command line. Roles are the backends, and `others`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--role", choices=("hetccl", "nccl", "gloo", *others), required=True)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    return parser


def main() -> int:
    """Serves as a backend, a C API, or one of two probes."""
    parser = arguments("hetccl-c", "nccl-c", "copies", "loopback")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="of the largest buffer")
    options = parser.parse_args()
    roles = {
        "hetccl-c": HetcclCApi,
        "nccl-c": NcclCApi,
        "copies": Copies,
        "loopback": Loopback,
    }
    make: Callable[[argparse.Namespace], Any] = roles.get(options.role, Collectives)
    return serve(make, options)


if __name__ == "__main__":
    sys.exit(main())
