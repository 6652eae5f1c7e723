"""The order of an epoch's samples, alike on all ranks, and each rank's part of a step."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hetccl.agreement import digest
from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError

_BUCKETS = 16  # of similar lengths


@dataclasses.dataclass(frozen=True)
class Cut:
    """The place of one step's samples in an epoch's order. `length` is the tokens that a plan
    counts for each of them: no sample has more. It is 1 where samples have no lengths."""

    begin: int
    end: int
    length: int = 1

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The samples of an epoch in their order, and its steps in theirs."""

    order: torch.Tensor
    cuts: Sequence[Cut]

    def samples(self, cut: Cut) -> list[int]:
        """Returns the samples of a step."""
        found: list[int] = self.order[cut.begin : cut.end].tolist()
        return found


class Order:
    """Cuts each epoch of `samples` samples into steps of at most `batch` samples.

    Every sample is in one step of each epoch; the sizes of steps differ by at most one. With
    `drop_last` every step has `batch` samples, and the rest of the epoch is left out.

    With `lengths`, the tokens of each sample, a step has at most `batch` tokens, padding included:
    samples of similar length are in one of a few buckets, and are filled up to its longest. Where
    the samples of a bucket do not fill their last step, shorter ones do. The rest of an epoch is
    divided among its last steps. `most` tells how many samples of a length the ranks can hold.

    Raises BalanceError for lengths that are not positive, or longer than a batch.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        lengths: Sequence[int] | None = None,
        most: Callable[[int], int] | None = None,
    ) -> None:
        self._facts = {
            "samples": samples, "batch": batch, "shuffle": shuffle, "seed": seed,
            "drop_last": drop_last, "lengths": "", "sizes": "",
        }  # fmt: skip
        self._shuffle, self._seed, self._samples = shuffle, seed, samples
        self._tokens: torch.Tensor | None = None  # of each sample
        self._bucket: torch.Tensor | None = None  # of each sample; longer samples, lower numbers
        counts, longest = [samples], [1]
        if lengths is not None and samples:
            self._tokens = _check_lengths(lengths, samples, batch)
            self._bucket, longest = _fill_buckets(self._tokens)
            counts = torch.bincount(self._bucket, minlength=len(longest)).tolist()
        sizes = [min(batch // one, most(one) if most else batch) for one in longest]
        self.cuts = _cut_epoch(counts, longest, sizes, drop_last)
        if self._tokens is not None:
            self._facts["lengths"] = digest(_bytes_of(self._tokens))
            self._facts["sizes"] = digest(repr(sizes).encode())

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        return len(self.cuts)

    @property
    def facts(self) -> dict[str, Any]:
        """The arguments on which the order depends, large ones as digests."""
        return dict(self._facts)

    def arrange(self, epoch: int) -> Epoch:
        """Returns the order of an epoch, which the seed and the epoch determine."""
        generator = torch.Generator().manual_seed((self._seed << 32 ^ epoch) % (1 << 63))
        order, cuts = torch.arange(self._samples), self.cuts
        if self._shuffle:
            order = torch.randperm(self._samples, generator=generator)
        if self._bucket is not None:
            order = order[self._bucket[order].argsort(stable=True)]
            if self._shuffle:
                cuts = [cuts[at] for at in torch.randperm(len(cuts), generator=generator).tolist()]
        return Epoch(order, cuts)

    def size_of(self, micro_batch: list[int]) -> int:
        """Returns the size of a rank's computation for a micro-batch that is filled up to its
        longest sample, in tokens; in samples if they have no lengths.
        """
        if self._tokens is None:
            return len(micro_batch)
        return len(micro_batch) * int(self._tokens[micro_batch].max())


def share_out(samples: list[int], plan: Plan, rank: int) -> list[list[int]]:
    """Returns a rank's micro-batches of one step's samples. Pure."""
    if len(samples) != plan.batch:
        raise BalanceError(f"a step has {len(samples)} samples, but its plan {plan.batch}")
    at = sum(plan.shares[:rank])
    found = []
    for size in plan.micro_batches(rank):
        found.append(samples[at : at + size])
        at += size
    return found


def _check_lengths(lengths: Sequence[int], samples: int, batch: int) -> torch.Tensor:
    try:
        tokens = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:  # whatever torch says of the elements
        raise BalanceError(f"lengths must be integers: {error}") from None
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if tokens.dtype not in kinds or tokens.shape != (samples,):
        raise BalanceError(f"lengths must be {samples} integers, one for each sample")
    tokens = tokens.to("cpu", torch.int64).contiguous()
    worst = int(tokens.argmin() if int(tokens.min()) < 1 else tokens.argmax())
    if not 1 <= int(tokens[worst]) <= batch:
        raise BalanceError(
            f"lengths: sample {worst} has {int(tokens[worst])} tokens, but a sample must have 1 to "
            f"the plan's batch, {batch} tokens"
        )
    return tokens


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """Copies a contiguous tensor of the host. torch itself cannot without NumPy."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


def _fill_buckets(tokens: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Returns the bucket of each sample, and the longest sample of each bucket, the longest bucket
    first.

    Bucket ends grow by a constant factor, which bounds how far a sample is filled up.
    """
    ordered = tokens.sort().values
    low, high = float(ordered[len(tokens) // _BUCKETS]), float(ordered[-1])
    ends = [low * (high / low) ** (number / (_BUCKETS - 1)) for number in range(_BUCKETS - 1)]
    at = torch.searchsorted(ordered, torch.tensor([*ends, high]).double(), right=True) - 1
    lengths = sorted(set(ordered[at.clamp(min=0)].tolist()))
    bucket = len(lengths) - 1 - torch.bucketize(tokens, torch.tensor(lengths))
    return bucket, lengths[::-1]


def _cut_epoch(
    counts: list[int], lengths: list[int], sizes: list[int], drop_last: bool
) -> list[Cut]:
    """Returns the steps. For each bucket, the longest samples first: `counts` samples, the longest
    of `lengths` tokens, and `sizes` samples in a step."""
    samples = sum(counts)
    found: list[Cut] = []
    at, bucket_end = 0, 0
    for count, length, size in zip(counts[:-1], lengths[:-1], sizes[:-1], strict=True):
        bucket_end += count
        while at < bucket_end and (at + size <= samples or not drop_last):
            found.append(Cut(at, min(at + size, samples), length))
            at = found[-1].end
    size, rest = sizes[-1], samples - at
    if drop_last:
        begins = range(at, samples - size + 1, size)
        return found + [Cut(begin, begin + size, lengths[-1]) for begin in begins]
    steps = -(-rest // size)
    ends = [at + step * rest // steps for step in range(steps + 1)] if steps else []
    found += [Cut(begin, end, lengths[-1]) for begin, end in itertools.pairwise(ends)]
    if len(found) > 1 and 2 * found[-1].samples < found[-2].samples:
        last, before = found.pop(), found.pop()
        middle = (before.begin + last.end) // 2
        found.append(Cut(before.begin, middle, before.length))
        found.append(Cut(middle, last.end, before.length))
    return found
