"""Slurm on this machine: munged, slurmctld, and a slurmd for each of two nodes, in a folder.

Nothing of it outlives `Slurm.close`, and nothing of an installed Slurm or munge is used but the
programs (`tools/setup --slurm`).
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from mpi_jobs import Ran, run
from patience import HANG

NODES = 2
_AROUND = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "MUNGE_")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
_CONFIGURATION = """
ClusterName=hetccl
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
ReturnToService=2
MpiDefault=none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing() -> str | None:
    """Why there can be no Slurm here, or None."""
    if os.geteuid() != 0:
        return "only root can start slurmd"
    absent = [name for name in _PROGRAMS if not _find(name)]
    return f"there is no {absent[0]}" if absent else None


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _ports(count: int) -> int:
    """The first of `count` ports in a row that nobody has."""
    for first in range(20_000 + secrets.randbelow(10_000), 60_000, count):
        probes = [socket.socket() for _ in range(count)]
        try:
            for place, probe in enumerate(probes):
                probe.bind(("", first + place))
            return first
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError(f"there are no {count} free ports")


class Slurm:
    """A cluster of two nodes, up when this is made."""

    def __init__(self) -> None:
        # Slurm's and munge's sockets are here, whose paths may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        first = _ports(NODES + 1)
        for name in ("munge", "state"):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                host=socket.gethostname().split(".")[0],
                folder=self.folder,
                nodes=NODES,
                controller=first,
                first=first + 1,
                last=first + NODES,
            )
        )
        munge = self.folder / "munge"
        self._daemon(
            "munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log",
        )  # fmt: skip
        self._wait("munged", (munge / "socket").exists)
        self._daemon("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        for node in range(1, NODES + 1):
            (self.folder / f"n{node}").mkdir()
            self._daemon("slurmd", "-D", "-N", f"n{node}", "-f", str(self.folder / "slurm.conf"))
        self._wait("the nodes", self._are_up)

    def _daemon(self, name: str, *arguments: str) -> None:
        """Starts a daemon, which ends with this process, even one that is killed."""
        tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        log = self.folder / f"{len(self._processes)}-{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*tied, str(_find(name)), *arguments], env=self.environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    def _wait(self, what: str, is_there) -> None:
        deadline = time.monotonic() + HANG
        while not is_there():
            ended = [" ".join(p.args) for p in self._processes if p.poll() is not None]
            assert not ended, f"{ended[0]} has ended:\n{self.logs()}"
            assert time.monotonic() < deadline, f"{what} did not come up:\n{self.logs()}"
            time.sleep(0.05)

    def _are_up(self) -> bool:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%t"],
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.split() == ["idle"] * NODES

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command of this Slurm, with nothing of a Slurm around it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_AROUND)}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def srun(self, *arguments: str, **settings: str) -> Ran:
        """Runs a job to its end."""
        return run(["srun", *arguments], {**self.environment, **settings}, inherit=False)

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def _descendants(self) -> list[int]:
        """The processes that have this Slurm's configuration in their environment: all of it."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        """Ends all daemons, the jobs that still run, and removes the folder."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for number in self._descendants():  # slurmstepd outlives slurmd
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
