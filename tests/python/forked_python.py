"""Runs `python ARGUMENTS` in a process that is forked from the tests' server: torch is imported.

    python forked_python.py [-u] (-m MODULE | -c TEXT | FILE) [ARGUMENT...]

For launchers (torchrun, mpiexec), which start their ranks themselves, and for programs in network
namespaces. Without a server to adopt, this becomes python itself.
"""

import atexit
import contextlib
import ctypes
import fcntl
import os
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path

import server

_NAMESPACE = Path("/proc/self/ns/net")
_PMI = "PMI_FD"  # by which a rank talks to MPICH's launcher


def _run(arguments: list[str], handed: dict[str, server.Descriptor]) -> None:
    """The forked process."""
    numbers = {name: one.take() for name, one in handed.items()}
    if _PMI in numbers:
        os.environ[_PMI] = str(numbers[_PMI])
    if "namespace" in numbers:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(numbers["namespace"], 0):
            raise OSError(ctypes.get_errno(), "setns")
    _end_with(numbers["life"])
    status = 0
    try:
        _call(arguments[arguments[0] == "-u" :])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Runs libraries' functions of atexit, as MPI_Finalize, and with the GIL, which destructors of
    # torch's objects need.
    ctypes.PyDLL(None).exit(status)


def _call(arguments: list[str]) -> None:
    if not arguments[0].startswith("-"):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
        return
    kind, what, *rest = arguments
    if kind == "-m":
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


def _end_with(life: int) -> None:
    """Has the kernel end this process when the other end of the pipe `life` is closed."""
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, 10, signal.SIGTERM)  # F_SETSIG
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        if not os.read(life, 1):  # closed before the kernel knew
            os._exit(1)


def main() -> None:
    """The process that a launcher starts, waits for and kills."""
    if not server.adopt():
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    life, _ = os.pipe()  # the other end is closed when this process ends
    handed = {"life": server.Descriptor(life)}
    if _PMI in os.environ:
        handed[_PMI] = server.Descriptor(int(os.environ[_PMI]))
    if os.environ.get(server.NAMESPACE) != str(_NAMESPACE.readlink()):
        handed["namespace"] = server.Descriptor(os.open(_NAMESPACE, os.O_RDONLY))
    sys.path[0] = str(Path.cwd())  # as python has it; the forked process gets this path
    child = server.start(_run, sys.argv[1:], handed, daemon=False)
    os.close(life)
    child.join()
    status = child.exitcode or 0
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    sys.modules["forked_python"] = sys.modules["__main__"]
    _run.__module__ = "forked_python"
    main()
