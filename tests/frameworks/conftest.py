"""The tools of tests/python; ranks are forked from a process that has the frameworks loaded."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import server
from patience import lengthen_timeouts

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
lengthen_timeouts()


def pytest_addoption(parser):
    parser.addoption("--gpus", action="store_true", help="a GPU for each rank; takes four")


def pytest_configure(config):
    if config.getoption("gpus"):
        # Each rank imports its framework itself: a process that has looked at a GPU cannot fork.
        os.environ |= {"HETCCL_TEST_DEVICE": "cuda", "DS_ACCELERATOR": "cuda"}
        return
    os.environ["DS_ACCELERATOR"] = "cpu"  # on a machine with GPUs, too
    server.preload("deepspeed.runtime.zero.muon.muon_optimizer")  # ZeRO 1 and 2 import it: seconds
    server.preload("deepspeed", "accelerate", "lightning.pytorch")
    server.preload("transformers.trainer", "transformers.models.llama.modeling_llama")
