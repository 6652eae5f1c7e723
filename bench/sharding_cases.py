"""The cases of bench/sharding.py, and the bytes that hetccl.sharding.plan's formulas predict for
them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hetccl.sharding import PRESETS
from hetccl.sharding.costs import Costs, Training, find_costs
from hetccl.sharding.degrees import Tree, find_degrees
from hetccl.sharding.reach import Reaches

RANKS, HOSTS, SITES = 8, 4, 2
NODE = RANKS // SITES
SHARDINGS: dict[str, dict[str, Any]] = {
    "zero3": {"preset": "zero3"},
    "zero++": {"preset": "zero++", "secondary": NODE},
    "three-level": {"preset": "three-level", "gradients": NODE},
    "three-level update int8": {
        "preset": "three-level", "gradients": NODE, "update_wire": "int8",
    },
}  # fmt: skip
CASES = ("fsdp2 gloo", "fsdp2 hetccl", "fsdp2 hetccl, one sum", *SHARDINGS)


def predict(case: str, parameters: int, micro_batches: int, places: int) -> Costs | None:
    """Returns the costs of a case, for ranks that are split evenly among so many places, whose
    links count; None for FSDP2 alone.
    """
    if case not in SHARDINGS:
        return None
    changes = dict(SHARDINGS[case])
    sharding = dataclasses.replace(PRESETS[changes.pop("preset")], **changes)
    tree = Tree(tuple(range(RANKS)), (RANKS // places,) * places, (RANKS,))
    training = Training(parameters, type_bytes=2, micro_batches=micro_batches)
    return find_costs(training, sharding, find_degrees(sharding, tree), Reaches(tree), {})
