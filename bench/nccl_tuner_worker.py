"""One rank of bench/nccl_tuner.py, which its parent commands by lines of JSON.

Every group of torch.distributed that it opens is a communicator of NCCL of its own, whose tuner
plug-in reads the current HETCCL_TUNE_FILE. Needs torch, nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

PATIENCE = timedelta(seconds=60)
MATRIX = 2048  # rows of the load's matrices
AHEAD = 8  # products of the load in its stream, at most
LONGEST_ERROR = 1500

Answer = dict[str, Any]


class Load:
    """Products of matrices on a stream of its own, beside the collectives."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.left = torch.randn(MATRIX, MATRIX, device=device, dtype=torch.bfloat16)
        self.result = torch.empty_like(self.left)
        self.events = [torch.cuda.Event() for _ in range(AHEAD)]
        self.count = 0

    def feed(self) -> None:
        """Keeps the stream busy. Waits if the stream is far behind."""
        with torch.cuda.stream(self.stream):
            for _ in range(AHEAD):
                event = self.events[self.count % AHEAD]
                if self.count >= AHEAD and not event.query():
                    return
                torch.mm(self.left, self.left, out=self.result)
                event.record()
                self.count += 1


class Rank:
    """A rank of NCCL."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", timeout=PATIENCE, device_id=self.device)
        self.world = dist.get_world_size()
        count = options.bytes // 4
        self.whole = torch.zeros(count, device=self.device)
        self.share = torch.zeros(count // self.world, device=self.device)
        self.load = Load(self.device)
        self.groups: dict[str, Any] = {"world": dist.group.WORLD}
        dist.all_reduce(self.whole[:1])
        torch.cuda.synchronize()

    def ready(self) -> Answer:
        """Returns facts about the machine, which the parent prints."""
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        return {
            "device": torch.cuda.get_device_name(self.device), "nccl": nccl,
            "torch": torch.__version__,
        }  # fmt: skip

    def open(self, name: str, file: str) -> Answer:
        """Opens a communicator of all ranks, whose tuner reads that file."""
        os.environ["HETCCL_TUNE_FILE"] = file
        group = self.groups[name] = dist.new_group(backend="nccl", device_id=self.device)
        dist.all_reduce(self.whole[:1], group=group)
        torch.cuda.synchronize()
        return {}

    def close(self, name: str) -> Answer:
        """Ends that communicator."""
        dist.destroy_process_group(self.groups.pop(name))
        return {}

    def call(self, group: Any, collective: str, size: int) -> Callable[[], object]:
        """Returns a function that calls the collective. `size` is that of the larger buffer."""
        share = size // 4 // self.world
        whole, part = self.whole[: share * self.world], self.share[:share]
        if collective == "all_gather":
            return lambda: dist.all_gather_into_tensor(whole, part, group=group)
        if collective == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(part, whole, group=group)
        return lambda: dist.all_reduce(whole, group=group)

    def measure(self, name: str, collective: str, size: int, times: int, loaded: bool) -> Answer:
        """Returns the microseconds of one call. Makes one call to warm up, then waits for each."""
        call = self.call(self.groups[name], collective, size)
        stream = torch.cuda.current_stream(self.device)
        began = 0.0
        for index in range(times + 1):
            if index == 1:
                began = time.perf_counter()
            if loaded:
                self.load.feed()
            call()
            while loaded and not stream.query():  # a long call outlasts what was fed before it
                self.load.feed()
            stream.synchronize()
        took = time.perf_counter() - began
        self.load.stream.synchronize()
        return {"us": took / times * 1e6}

    def end(self) -> Answer:
        """Leaves in order."""
        dist.destroy_process_group()
        return {}


def main() -> None:
    """Answers once when it is ready, then once for each line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--role")
    parser.add_argument("--device", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    try:
        rank = Rank(parser.parse_args())
        print(json.dumps(rank.ready()), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            do = command.pop("do")
            print(json.dumps(getattr(rank, do)(**command)), flush=True)
            if do == "end":
                return
    except Exception:
        print(json.dumps({"error": traceback.format_exc()[-LONGEST_ERROR:]}), flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
