"""examples/serving for minutes, with clients that leave and workers that are stopped, killed and
started again.

    python tests/soak/serving.py --minutes 30

Every episode is a burst of requests over HTTP, of which some clients leave at random. Two of four
workers may be killed in mid-request, and are started again after the episode. Tokens must be those
of one engine, and no request may fail. After each episode no block, hand-off, lease or slot may be
in use; at the end no process may hold more memory, descriptors, threads or shared-memory segments
than in its first episodes.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

SERVING = Path(__file__).resolve().parents[2] / "examples/serving"
sys.path[:0] = [str(Path(__file__).parent), str(SERVING)]

import torch  # noqa: E402
from engine import Engine, Request, complete  # noqa: E402
from front import Front  # noqa: E402
from model import SHAPES, Model  # noqa: E402
from rank import Census  # noqa: E402
from router import Router  # noqa: E402
from soak import PATIENCE_S, Report  # noqa: E402

SETTINGS = {
    "HETCCL_LIVENESS_MS": "20000",  # that of a killed process is noticed at once
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}
WORKERS = "prefill@cpu,prefill@cpu,decode@cpu,decode@cpu"
MORTAL = ("prefill-1", "decode-1")
SHAPE, BLOCKS = "tiny", 72  # requests wait for blocks
N_PROMPTS = 48
Pair = tuple[list[int], int]


class Client(threading.Thread):
    """A client that reads `most` tokens of its answer, or leaves after `seconds` or `enough`."""

    def __init__(self, port: int, pair: Pair, seconds: float | None, enough: int) -> None:
        super().__init__(daemon=True)
        self.tokens: list[int] = []
        self.error = ""
        self._port, self._pair, self._seconds, self._enough = port, pair, seconds, enough
        self.start()

    @property
    def leaves(self) -> bool:
        """Whether it wants less than the whole answer."""
        return self._seconds is not None or self._enough < self._pair[1]

    def run(self) -> None:
        """Asks once."""
        prompt, most = self._pair
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * PATIENCE_S)
        try:
            body = {"prompt": prompt, "max_tokens": most, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body))
            if self._seconds is not None:
                time.sleep(self._seconds)
                return
            with connection.getresponse() as response:
                for line in response:
                    if not line.startswith(b"data: {"):
                        continue
                    told = json.loads(line.removeprefix(b"data: "))
                    if "error" in told:
                        self.error = told["error"]["message"]
                        return
                    self.tokens += told["choices"][0]["token_ids"]
                    if len(self.tokens) >= self._enough:
                        return
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            connection.close()


class Soak:
    """The state of a run."""

    def __init__(self, router: Router, port: int, seed: int) -> None:
        self.report = Report()
        self._router, self._port = router, port
        self._chance = random.Random(seed)
        self._pairs = make_pairs(self._chance)
        self._wanted = reference(self._pairs)
        self._history: dict[int, list[Census]] = {}

    def episode(self) -> None:
        """A burst, and at most one event in it."""
        chance, counts = self._chance, self.report.counts
        event = chance.choices(["none", "stop", "kill"], [30, 6, 2])[0]
        clients = [self._ask() for _ in range(chance.randint(1, 20))]
        began = time.monotonic()
        time.sleep(min(chance.expovariate(1 / 0.1), 1.0))
        victim = self._strike(event)
        for _, client in clients:
            client.join(max(0.0, began + PATIENCE_S - time.monotonic()))
            if client.is_alive():
                self.report.wrong.append(f"after {event}: a client has no answer in time")
                for pid in self._router.workers.values():
                    os.kill(pid, signal.SIGUSR1)  # it prints its stacks
                return
        self.report.slowest = max(self.report.slowest, time.monotonic() - began)
        for index, client in clients:
            self._judge(event, index, client)
        if victim:
            while victim in self._router.workers:
                time.sleep(0.01)
            self._router.restart(victim)
        self._count_rest()
        counts["episodes"] += 1
        counts[f"event {event}"] += 1

    def finish(self) -> None:
        """Compares the first and the last episodes of each process."""
        for pid, history in self._history.items():
            self.report.grow(pid, history)

    def show_sizes(self) -> None:
        """Prints what each process that has lived long held at first, and holds now."""
        names = {pid: name for name, pid in self._router.workers.items()}
        for pid, history in self._history.items():
            if len(history) > 100:
                name = names.get(pid, "router" if pid == os.getpid() else "killed")
                print(f"{name} {pid}: {history[20]} to {history[-1]}, {len(history)} episodes")

    def _ask(self) -> tuple[int, Client]:
        index, chance = self._chance.randrange(N_PROMPTS), self._chance
        most = self._pairs[index][1]
        how = chance.choices(["stays", "leaves early", "leaves late"], [70, 15, 15])[0]
        seconds = chance.random() * 0.2 if how == "leaves early" else None
        enough = chance.randint(1, most) if how == "leaves late" else most
        return index, Client(self._port, self._pairs[index], seconds, enough)

    def _strike(self, event: str) -> str:
        """Stops a worker for a while, or kills one. Returns the name of one that was killed."""
        if event == "kill":
            name = self._chance.choice(MORTAL)
            os.kill(self._router.workers[name], signal.SIGKILL)
            return name
        if event == "stop":
            pid = self._chance.choice([*self._router.workers.values()])
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._chance.random())
            os.kill(pid, signal.SIGCONT)
        return ""

    def _judge(self, event: str, index: int, client: Client) -> None:
        wanted = self._wanted[index]
        self.report.counts["requests"] += 1
        self.report.counts["tokens"] += len(client.tokens)
        self.report.counts["clients that left"] += client.leaves
        if client.error:
            self.report.wrong.append(f"after {event}: {client.error}")
        elif client.tokens != wanted[: len(client.tokens)]:
            self.report.wrong.append(f"after {event}: {client.tokens}, and not {wanted}")
        elif not client.leaves and len(client.tokens) < len(wanted):
            self.report.wrong.append(f"after {event}: {len(client.tokens)} of {len(wanted)} tokens")

    def _count_rest(self) -> None:
        """Waits until nothing goes on, and counts what is held then."""
        for name, one in self._router.await_idle(PATIENCE_S).items():
            if one["free"] != one["blocks"] or any(one["in_use"].values()):
                self.report.wrong.append(f"{name} holds {one} when idle")
        for pid in (os.getpid(), *self._router.workers.values()):
            self._history.setdefault(pid, []).append(Census.of(pid))


def make_pairs(chance: random.Random) -> list[Pair]:
    """Returns prompts, and how many tokens to answer."""
    tokens = SHAPES[SHAPE].vocabulary
    return [
        ([chance.randrange(tokens) for _ in range(chance.randint(1, 300))], chance.randint(1, 24))
        for _ in range(N_PROMPTS)
    ]


def reference(pairs: Sequence[Pair]) -> list[list[int]]:
    """Returns the answers of one engine."""
    torch.set_num_threads(1)
    engine = Engine(Model(SHAPES[SHAPE]), 512)
    return complete(engine, [Request(str(i), *pair) for i, pair in enumerate(pairs)])


def soak(
    seconds: float,
    seed: int,
    transport: str = "hetccl",
    show: bool = False,
    python: str = sys.executable,
) -> Report:
    """Runs episodes for `seconds`, or until something is wrong; leaves no process behind."""
    os.environ.update(SETTINGS)
    shared = Path("/dev/shm")
    files = {*shared.glob("*hetccl*")}
    with (
        Router(WORKERS, transport, ["--blocks", str(BLOCKS)], python=python) as router,
        Front(("127.0.0.1", 0), router) as front,
    ):
        threading.Thread(target=front.serve_forever, daemon=True).start()
        run = Soak(router, front.server_port, seed)
        end = time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while time.monotonic() < end and not run.report.wrong:
                run.episode()
                if show and run.report.counts["episodes"] % 20 == 0:
                    print(f"{run.report.counts['episodes']} episodes", flush=True)
        run.finish()
        if show:
            run.show_sizes()
        front.shutdown()
    run.report.wrong += [f"left behind: {file}" for file in {*shared.glob("*hetccl*")} - files]
    return run.report


def main() -> int:
    """The command line; 1 when anything was wrong or has grown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--transport", choices=["hetccl", "hetccl-whole"], default="hetccl")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"soak of serving: {options.minutes:g} minutes, seed {options.seed}", flush=True)
    return soak(options.minutes * 60, options.seed, options.transport, show=True).show()


if __name__ == "__main__":
    sys.exit(main())
