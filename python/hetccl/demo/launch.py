"""The demo: starts its ranks by torchrun, two clusters of two, once over hetccl and once over Gloo.

Under a launcher it is one rank itself (`launched`).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetccl import files, torch_backend
from hetccl.hosts import INTERFACE, EmulatedHosts, free_port
from hetccl.launchers.placement import RendezvousError, find_placement
from hetccl.units import size

CLUSTERS, RANKS = 2, 2
RATE = "1gbit"
STEPS = 80  # some 12 s of training over a link of 1 Gbit/s, for each backend
LOSS_TOLERANCE = 1e-3
REPORT = Path("hetccl-demo.html")  # where it is written unless told
DEADLINE = 600.0  # seconds for one run
WIRES = ("HETCCL_WIRE", "HETCCL_WIRE_GATHER")


class DemoError(RuntimeError):
    """The demo has failed; the text says why."""


class Loopback:
    """Stands in if hosts cannot be emulated: both clusters are on this machine, with different
    labels.
    """

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[Any]] = []

    def address(self, host: int) -> str:
        """The loopback address."""
        return "127.0.0.1"

    def popen(
        self, host: int, argv: Sequence[str], env: dict[str, str], **options: Any
    ) -> subprocess.Popen[Any]:
        """Starts `argv` as a member of cluster `host`."""
        labelled = {**os.environ, **env, "HETCCL_CLUSTER": "ab"[host]}
        process = subprocess.Popen(argv, env=labelled, start_new_session=True, **options)
        self._processes.append(process)
        return process

    def kill(self) -> None:
        """Kills the processes that still run, with their children."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


@contextlib.contextmanager
def hosts(loopback: bool, rate: str) -> Iterator[EmulatedHosts | Loopback]:
    """Yields two emulated hosts, or this machine twice."""
    reason = "asked for" if loopback else EmulatedHosts.unavailable()
    if reason is None:
        print(f"two emulated hosts of {RANKS} ranks, joined by a link of {rate}")
        with EmulatedHosts(CLUSTERS, rate=rate) as emulated:
            yield emulated
        return
    print(f"two clusters of {RANKS} ranks on loopback ({reason})")
    local = Loopback()
    try:
        yield local
    finally:
        local.kill()


def wait_for(processes: list[subprocess.Popen[Any]], backend: str) -> None:
    """Waits for all processes. Raises if one fails or time is up."""
    deadline = time.monotonic() + DEADLINE
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            break
        if time.monotonic() > deadline:
            raise DemoError(f"{backend}: not done after {DEADLINE:.0f} s")
        time.sleep(0.05)
    failed = [host for host, process in enumerate(processes) if process.poll()]
    if failed:
        raise DemoError(f"{backend}: the ranks of cluster {failed[0]} failed; see above")


def train(place: EmulatedHosts | Loopback, backend: str, steps: int) -> dict[str, Any]:
    """Trains once on all ranks. Returns the measurements of rank 0."""
    port = free_port()
    interface = INTERFACE if isinstance(place, EmulatedHosts) else "lo"
    env = {
        "OMP_NUM_THREADS": "1",  # ranks share the cores
        "GLOO_SOCKET_IFNAME": interface,
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # emulated hosts have no names, of which torch would warn
        **dict.fromkeys(WIRES, ""),  # the two trainings must come to the same
        "LOGLEVEL": "CRITICAL",  # at the end torchrun's agents complain of whichever left first
    }
    with tempfile.TemporaryDirectory(prefix="hetccl-demo-") as folder:
        result = Path(folder, "result.json")
        processes = []
        for host in range(CLUSTERS):
            argv = [
                sys.executable, "-m", "torch.distributed.run", "--nnodes", str(CLUSTERS),
                "--node_rank", str(host), "--nproc_per_node", str(RANKS),
                "--master_addr", place.address(0), "--master_port", str(port),
                "-m", "hetccl.demo.train", "--backend", backend, "--steps", str(steps),
                "--clusters", str(CLUSTERS), "--result", str(result),
            ]  # fmt: skip
            processes.append(place.popen(host, argv, env=env))
        try:
            wait_for(processes, backend)
        finally:
            place.kill()
        measured: dict[str, Any] = json.loads(result.read_text())
    return measured


def describe(run: dict[str, Any]) -> str:
    """Returns one line about a run."""
    crossed = run["link_bytes"] or run["payload_bytes"]
    link = ""
    if crossed:
        link = f", link {size(crossed)} = {crossed / run['least_bytes']:.2f} of the least"
    return (
        f"{run['backend']}: {1e3 * run['step_seconds']:.0f} ms a step, "
        f"{run['tokens_per_second']:,.0f} tokens/s, loss {run['loss']:.4f}, "
        f"{run['communication_share']:.0%} in communication{link}; gradients of step 1 within "
        f"{run['gradient_error']:.0e} of one process's, parameters {run['hash'][:8]} on all ranks"
    )


def compare(ours: dict[str, Any], gloo: dict[str, Any]) -> str:
    """Returns the line that compares both trainings. Raises if they have not learnt the same."""
    difference = abs(ours["loss"] - gloo["loss"])
    line = (
        f"hetccl against Gloo: {1e3 * ours['step_seconds']:.0f} against "
        f"{1e3 * gloo['step_seconds']:.0f} ms a step "
        f"({gloo['step_seconds'] / ours['step_seconds']:.2f} times as fast), "
        f"{ours['tokens_per_second']:,.0f} against {gloo['tokens_per_second']:,.0f} tokens/s, "
        f"loss {ours['loss']:.4f} against {gloo['loss']:.4f} (difference {difference:.1e})"
    )
    if not difference <= LOSS_TOLERANCE:
        raise DemoError(f"{line}: a difference of at most {LOSS_TOLERANCE:.0e} is allowed")
    return line


def write_report(
    path: Path, runs: list[dict[str, Any]], verdict: str, rate: str | None,
    arguments: Sequence[str],
) -> None:  # fmt: skip
    """Writes the page, and prints its path."""
    from hetccl.demo import report

    page = report.Page(runs, verdict, shlex.join(["hetccl", "demo", *arguments]), rate)
    try:
        files.write_text(path, report.render(page))
    except OSError as error:
        raise DemoError(f"cannot write the report to {path}: {error.strerror}") from None
    print(f"report: {path.absolute()}")


def no_report() -> str | None:
    """Returns the reason why there can be no report, or None."""
    if importlib.util.find_spec("matplotlib") is not None:
        return None
    return "its charts need matplotlib: pip install 'matplotlib>=3.9'"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; exits with status 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        "hetccl demo",
        description="Train a small GPT with PyTorch over two clusters and a slow link, first over "
        "hetccl, then over Gloo, and write a page that compares them.",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}")
    parser.add_argument("--rate", help=f"of the link, as tc writes it; default: {RATE}")
    parser.add_argument("--loopback", action="store_true", help="emulate no hosts")
    parser.add_argument("--no-gloo", action="store_true", help="hetccl alone")
    parser.add_argument("--report", type=Path, help=f"page to write; default: {REPORT}")
    parser.add_argument("--no-report", action="store_true", help="write no page")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be 1 or more")
    if options.report and not options.report.absolute().parent.is_dir():
        parser.error(f"--report {options.report}: its folder does not exist")
    reason = no_report()
    if options.report and reason:
        parser.error(reason)
    return options


def compile_imports() -> None:
    """Imports the modules that ranks import, unless Python has compiled them already.

    Python compiles a module at its first import. Six processes that start at the same time would
    each compile all of torch.
    """
    spec = importlib.util.find_spec("torch._dynamo")  # DistributedDataParallel imports it
    is_compiled = spec is None or spec.cached is None or Path(spec.cached).exists()
    if is_compiled or sys.dont_write_bytecode:
        return
    for module in ("torch.distributed.run", "torch._dynamo", "hetccl.demo.train"):
        importlib.import_module(module)


def run(options: argparse.Namespace) -> tuple[list[dict[str, Any]], str, str | None]:
    """Runs both trainings. Returns their measurements, the line that compares them, and the rate of
    an emulated link.
    """
    asked = options.rate or RATE
    with hosts(options.loopback, asked) as place:
        rate = asked if isinstance(place, EmulatedHosts) else None
        ours = train(place, "hetccl", options.steps)
        print(describe(ours))
        if options.no_gloo:
            return [ours], describe(ours), rate
        gloo = train(place, "gloo", options.steps)
        print(describe(gloo))
        line = compare(ours, gloo)
        print(line)
        return [ours, gloo], line, rate


def prepare(options: argparse.Namespace, is_first: bool) -> None:
    """Leaves out parts that cannot run here. The first rank, or only process, prints which."""
    if (asked := [name for name in WIRES if os.environ.get(name)]) and is_first:
        print(f"{' and '.join(asked)} left out: the demo's gradients must be exact")
    if not options.no_report and (reason := no_report()):
        if is_first:
            print(f"This run writes no report: {reason}")
        options.no_report = True


def main(arguments: Sequence[str]) -> int:
    """The command. Returns its exit status."""
    options = parse(arguments)
    backend = torch_backend.state()
    if not backend["available"]:
        print(f"hetccl demo: hetccl's PyTorch backend: {backend['reason']}", file=sys.stderr)
        return 1
    try:
        placement = find_placement()
        if placement is not None and placement.size == 1:  # a shell that srun has started, perhaps
            placement = None
        prepare(options, placement is None or placement.rank == 0)
        if placement is not None:
            from hetccl.demo import launched

            launched.run(options, placement, arguments)
            return 0
        compile_imports()
        runs, verdict, rate = run(options)
        if not options.no_report:
            write_report(options.report or REPORT, runs, verdict, rate, arguments)
    except (DemoError, RendezvousError) as error:
        print(f"hetccl demo: {error}", file=sys.stderr)
        return 1
    return 0
