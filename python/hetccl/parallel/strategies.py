"""A strategy: which rank computes which layers for which rows, as the planner and the job share it.

Written as paper 001 writes it, [tensor, data, pipeline]: [1, 8|16, 2] is a pipeline of two stages
whose layers 8 and 16 replicas compute.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hetccl.files import read_own, write_text
from hetccl.parallel.models import MOST_LAYERS, ParallelError
from hetccl.parallel.schedules import CHUNKS, refuse

_MOST_FILE_BYTES = 16 << 20
_MOST_RANKS = 1 << 16
_MOST_BATCH = 1 << 32


@dataclasses.dataclass(frozen=True)
class Stage:
    """The ranks at one position of a pipeline, and their part of the work.

    `ranks` are those of the first replica, then of the second, and so on; the ranks of a replica
    share each layer by tensor parallelism. `layers` has the first layer and the end of each chunk:
    one, or two where the schedule is interleaved. `rows` are each replica's samples of a
    micro-batch.
    """

    ranks: tuple[int, ...]
    layers: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of replicas: its data-parallel degree."""
        return len(self.rows)

    @property
    def count(self) -> int:
        """The number of its layers."""
        return sum(end - first for first, end in self.layers)

    def replica(self, index: int) -> tuple[int, ...]:
        """The ranks of one replica, which share its layers."""
        tensor = len(self.ranks) // self.width
        return self.ranks[index * tensor : (index + 1) * tensor]

    def sharers(self, index: int) -> tuple[int, ...]:
        """The ranks that have the same part of the layers, one of each replica."""
        return self.ranks[index :: len(self.ranks) // self.width]


@dataclasses.dataclass(frozen=True)
class Route:
    """Rows `begin` to `end` - 1 of a micro-batch, from a replica to one of the next stage."""

    source: int
    target: int
    begin: int
    end: int


def find_routes(source: Sequence[int], target: Sequence[int]) -> list[Route]:
    """Returns the routes of rows from the replicas of a stage to those of the next one, which have
    different shares.

    `source` and `target` are the rows of each replica. Gradients take the same routes back.
    """

    def bounds(rows: Sequence[int]) -> list[tuple[int, int]]:
        return list(itertools.pairwise([0, *itertools.accumulate(rows)]))

    return [
        Route(one, other, max(first, begin), min(last, end))
        for one, (first, last) in enumerate(bounds(source))
        for other, (begin, end) in enumerate(bounds(target))
        if max(first, begin) < min(last, end)
    ]


@dataclasses.dataclass(frozen=True)
class Strategy:
    """A pipeline's stages, by position, and how a batch goes through them.

    `layers` is the model's number of them, `tensor` the tensor-parallel degree of every stage,
    `batch` the samples of a step. Raises ParallelError where parts do not fit together.
    """

    layers: int
    tensor: int
    stages: tuple[Stage, ...]
    schedule: str
    batch: int
    micro_batches: int

    def __post_init__(self) -> None:
        if not self.stages:
            raise ParallelError("a strategy has at least one stage")
        if reason := refuse(self.schedule, len(self.stages), self.micro_batches):
            raise ParallelError(f"schedule: {reason}")
        if self.batch % self.micro_batches:
            raise ParallelError(
                f"batch: {self.batch} samples do not divide into {self.micro_batches} micro-batches"
            )
        self._check_ranks()
        self._check_layers()

    def _check_ranks(self) -> None:
        for position, stage in enumerate(self.stages):
            if len(stage.ranks) != self.tensor * stage.width:
                raise ParallelError(
                    f"stage {position}: tensor={self.tensor} times data={stage.width} is not its "
                    f"{len(stage.ranks)} ranks"
                )
            if sum(stage.rows) != self.micro_batch or min(stage.rows) < 1:
                raise ParallelError(
                    f"stage {position}: rows {stage.rows} do not share a micro-batch of "
                    f"{self.micro_batch} among {stage.width} replicas, at least one each"
                )
        ranks = sorted(rank for stage in self.stages for rank in stage.ranks)
        if ranks != list(range(len(ranks))):
            raise ParallelError("stages: each rank from 0 must be in one stage, and once in it")

    def _check_layers(self) -> None:
        chunks = CHUNKS[self.schedule]
        for position, stage in enumerate(self.stages):
            if len(stage.layers) != chunks:
                raise ParallelError(
                    f"stage {position}: {self.schedule} takes {chunks} runs of layers, not "
                    f"{len(stage.layers)}"
                )
        end = 0
        for first, next_end in self.parts:
            if first != end or next_end <= first:
                raise ParallelError(
                    f"layers {first} to {next_end - 1} do not follow layer {end - 1}: each stage "
                    "has at least a layer, and each layer is in one stage"
                )
            end = next_end
        if end != self.layers:
            raise ParallelError(f"layers: the stages have {end} of {self.layers} layers")

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(len(stage.ranks) for stage in self.stages)

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch, over all replicas of a stage."""
        return self.batch // self.micro_batches

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First layer and end by stage of torch's: all positions' first chunks come first."""
        return [stage.layers[chunk] for chunk in range(CHUNKS[self.schedule])
                for stage in self.stages]  # fmt: skip

    @property
    def degrees(self) -> str:
        """ "[1, 8|16, 2]": tensor, data, pipeline."""
        widths = [stage.width for stage in self.stages]
        told = str(widths[0]) if len(set(widths)) == 1 else "|".join(map(str, widths))
        return f"[{self.tensor}, {told}, {len(self.stages)}]"

    def position_of(self, rank: int) -> int:
        """The position in the pipeline of a rank. Raises ParallelError for one that has none."""
        for position, stage in enumerate(self.stages):
            if rank in stage.ranks:
                return position
        raise ParallelError(f"rank {rank} has no stage: the strategy is for {self.size} ranks")

    def to_values(self) -> dict[str, Any]:
        """The strategy as JSON has it."""
        return {"hetccl_parallel": 1, **dataclasses.asdict(self)}

    def save(self, path: str | Path) -> None:
        """Writes the strategy as JSON. Raises OSError."""
        write_text(Path(path), json.dumps(self.to_values(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Strategy:
        """Reads a strategy that this user has saved. Raises OSError, and ParallelError if the file
        is none.
        """
        text = read_own(Path(path), _MOST_FILE_BYTES)
        try:
            values = json.loads(text)
            if values["hetccl_parallel"] != 1:
                raise ParallelError(f"format {str(values['hetccl_parallel'])[:20]} is not known")
            stages = tuple(
                Stage(
                    tuple(_integers("ranks", one["ranks"], 0, _MOST_RANKS)),
                    tuple((first, end) for first, end in
                          (_integers("layers", pair, 0, MOST_LAYERS) for pair in one["layers"])),
                    tuple(_integers("rows", one["rows"], 1, _MOST_BATCH)),
                )
                for one in values["stages"]
            )  # fmt: skip
            layers, tensor, batch, micro_batches = _integers(
                "layers, tensor, batch, micro_batches",
                [values[name] for name in ("layers", "tensor", "batch", "micro_batches")],
                1, _MOST_BATCH,
            )  # fmt: skip
            return cls(layers, tensor, stages, str(values["schedule"]), batch, micro_batches)
        except ParallelError as error:
            raise ParallelError(f"{path}: {error}") from None
        except KeyError as error:
            raise ParallelError(
                f"{path} is no strategy of hetccl.parallel: {error} is missing"
            ) from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ParallelError(f"{path} is no strategy of hetccl.parallel: {error!r}") from None


def _integers(name: str, values: Any, least: int, most: int) -> Iterator[int]:
    if not isinstance(values, list) or not values:
        raise ParallelError(f"{name} is no list of whole numbers")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ParallelError(f"{name}: {str(value)[:40]} is no whole number up to {most}")
        yield value
