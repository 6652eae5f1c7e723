"""A stage of torch's pipelines whose neighbours have other numbers of replicas than it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from hetccl.parallel.strategies import Strategy, find_routes


@dataclasses.dataclass(frozen=True)
class Peer:
    """A rank of a neighbouring stage, with the rows of this rank that it sends or gets."""

    rank: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a rank in a strategy. `sources` hand it activations, `targets` get them."""

    rank: int
    position: int
    replica: int
    index: int  # among the ranks of its replica
    rows: int  # of a micro-batch
    first_row: int
    sources: tuple[Peer, ...]
    targets: tuple[Peer, ...]


def find_place(strategy: Strategy, rank: int) -> Place:
    """The place of a rank. Rows travel between ranks of the same index of their replicas. Raises
    ParallelError for a rank that the strategy does not have."""
    position = strategy.position_of(rank)
    stage = strategy.stages[position]
    replica, index = divmod(stage.ranks.index(rank), strategy.tensor)
    first_row = sum(stage.rows[:replica])
    count = len(strategy.stages)
    before, after = strategy.stages[position - 1], strategy.stages[(position + 1) % count]
    sources = tuple(
        Peer(before.replica(route.source)[index], route.begin - first_row, route.end - first_row)
        for route in find_routes(before.rows, stage.rows)
        if route.target == replica
    )
    targets = tuple(
        Peer(after.replica(route.target)[index], route.begin - first_row, route.end - first_row)
        for route in find_routes(stage.rows, after.rows)
        if route.source == replica
    )
    rows = stage.rows[replica]
    return Place(rank, position, replica, index, rows, first_row, sources, targets)


class RoutedStage(PipelineStage):
    """A PipelineStage that exchanges rows of a micro-batch with several ranks of each neighbour.

    Its metadata is given, so torch does not infer it: in stages of different widths no rank has a
    partner of its own to infer it with.
    """

    def __init__(
        self, module: nn.Module, index: int, strategy: Strategy, place: Place,
        device: torch.device, takes: torch.Tensor, gives: torch.Tensor, alone: dist.ProcessGroup,
    ) -> None:  # fmt: skip
        """`takes` and `gives` are tensors of the shapes of a micro-batch, and may be on the meta
        device; `alone` is a group of this rank only, which stands for torch's pipeline group."""
        super().__init__(
            module, index, len(strategy.parts), device, input_args=takes, output_args=gives,
            group=alone,
        )  # fmt: skip
        self.group_rank = place.position
        self.group_size = len(strategy.stages)
        self.stage_index_to_group_rank = {
            stage: stage % self.group_size for stage in range(self.num_stages)
        }
        self._place = place

    def _warmup_forward_vote(self, *_: Any, **__: Any) -> torch.Tensor:
        """torch asks all stages whether metadata are given: here they are, on every rank."""
        return torch.ones(1, dtype=torch.int32)

    def _warmup_backward_result(self, *_: Any, **__: Any) -> torch.Tensor:
        return torch.ones(1, dtype=torch.int32)

    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        return []  # hetccl's connections need no warm-up

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Receives a micro-batch's rows from the replicas of the stage before."""
        if self.is_first:
            return []
        return _messages(dist.irecv, self._buffer(self.args_recv_info, fwd_chunk_id),
                         self._place.sources)  # fmt: skip

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Sends a micro-batch's rows to the replicas of the next stage."""
        if self.is_last:
            return []
        (output,), _ = self.fwd_cache[fwd_chunk_id]
        return _messages(dist.isend, output.detach().contiguous(), self._place.targets)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Receives the gradients of the rows that were sent."""
        if not self.has_backward or self.is_last:
            return []
        return _messages(dist.irecv, self._buffer(self.grad_recv_info, bwd_chunk_id),
                         self._place.targets)  # fmt: skip

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Sends the gradients of the rows that were received."""
        if not self.has_backward or self.is_first:
            return []
        (gradient,) = self.bwd_cache.pop(bwd_chunk_id)
        if gradient is None:  # the layers do not depend on their input
            gradient = torch.zeros_like(self._buffer(self.args_recv_info, bwd_chunk_id))
        return _messages(dist.isend, gradient.contiguous(), self._place.sources)

    @staticmethod
    def _buffer(infos: dict[int, Any], batch: int) -> torch.Tensor:
        (info,) = infos[batch]
        buffer: torch.Tensor = info.buffer
        return buffer.detach()


def _messages(call: Any, rows: torch.Tensor, peers: Sequence[Peer]) -> list[dist.P2POp]:
    return [dist.P2POp(call, rows[peer.begin : peer.end], peer.rank) for peer in peers]
