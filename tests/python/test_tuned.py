"""hetccl tuned: the environment of the command that it runs, and its exit status."""

import ctypes
import os
import subprocess
import sys

import commands

from hetccl import tuned

SHOW = "import os; print(os.environ['NCCL_TUNER_PLUGIN'], os.environ['HETCCL_TUNER_ID'])"


def run(*command):
    return commands.run("tuned", "--", *command)


def test_the_command_finds_the_plug_in_and_an_id_of_its_own():
    seen = set()
    for _ in range(2):
        done = run(sys.executable, "-c", SHOW)
        assert done.returncode == 0, done.stderr
        path, unique_id = done.stdout.split()
        assert path == str(tuned.PLUGIN)
        assert len(bytes.fromhex(unique_id)) == 128
        seen.add(unique_id)
    assert len(seen) == 2


def test_it_ends_as_the_command_does():
    assert run(sys.executable, "-c", "raise SystemExit(3)").returncode == 3
    assert run(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == 137
    missing = run("/no/such/launcher")
    assert missing.returncode == 127
    assert "/no/such/launcher" in missing.stderr


def test_the_package_has_the_plug_in_which_needs_no_other_library_of_ours():
    library = ctypes.CDLL(str(tuned.PLUGIN), mode=os.RTLD_NOW)
    for version in range(2, 6):
        assert ctypes.c_void_p.in_dll(library, f"ncclTunerPlugin_v{version}").value
    needed = subprocess.run(["ldd", tuned.PLUGIN], capture_output=True, text=True, check=True)
    assert "libhetccl" not in needed.stdout
