"""A fake of HIP's runtime, whose device memory the host cannot touch: no GPU is needed."""

from pathlib import Path

from compiled import ROOT, compile_to

# The parts of hetccl that the fake is made of.
PARTS = ("device/host/stream_tasks", "device/kernels/kernels", "host/task_queue", "host/crew",
         "base/clock", "base/copy", "base/encoding", "base/fd", "base/reduce", "base/status",
         "base/thread", "base/types")  # fmt: skip


def build(folder: Path) -> dict[str, str]:
    """Builds the fake into `folder`: the settings with which ranks use it."""
    library = folder / "libamdhip64.so.6"
    sources = [ROOT / "tests/fake/hip_device_so.cc", ROOT / "tests/fake/device_memory.cc",
               *(ROOT / "src" / f"{part}.cc" for part in PARTS)]  # fmt: skip
    compile_to(
        library, "g++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread",
        f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}", *map(str, sources),
        "-Wl,-z,defs,-soname,libamdhip64.so.6",
    )  # fmt: skip
    return {
        "LD_LIBRARY_PATH": str(folder),
        "HETCCL_HIP_LIBRARY": str(library),
        "HETCCL_HIPRTC_LIBRARY": str(library),
        "HETCCL_RCCL_LIBRARY": "none",
        "HETCCL_KERNEL_CACHE": str(folder / "kernels"),
    }
