"""The order of an epoch's samples, and their way to micro-batches: alike on all ranks."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from hetccl.balance.planner import Plan
from hetccl.balance.profiles import BalanceError

_BUCKETS = 8  # of similar lengths


@dataclasses.dataclass(frozen=True)
class Cut:
    """The place of one step's samples in an epoch's order. Each counts as `length` tokens: the
    length that none of them exceeds; 1 where samples have no lengths."""

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

    samples: Sequence[int]
    cuts: Sequence[Cut]


class Order:
    """Cuts each epoch of `samples` samples into steps of at most `batch` samples.

    Every sample is in one step of each epoch; the sizes of steps differ by at most one. With
    `drop_last` every step has `batch` samples, and the rest of the epoch is left out.

    With `lengths`, the tokens of each sample, a step has at most `batch` tokens, padding included:
    samples of similar length are in one of a few buckets, and are filled up to its longest. Where
    the samples of a bucket do not fill their last step, shorter ones do. Thus all steps are full
    but those of the shortest samples, whose sizes differ by at most one.

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
    ) -> None:
        self._facts = {
            "samples": samples, "batch": batch, "shuffle": shuffle, "seed": seed,
            "drop_last": drop_last, "lengths": "",
        }  # fmt: skip
        self._shuffle, self._seed = shuffle, seed
        self._samples = samples
        self._bucket: torch.Tensor | None = None  # of each sample; longer samples, lower numbers
        counts, longest = [samples], [1]
        if lengths is not None:
            tokens = _check_lengths(lengths, samples, batch)
            self._facts["lengths"] = hashlib.sha256(tokens.numpy().tobytes()).hexdigest()[:16]
            self._bucket, longest = _fill_buckets(tokens)
            counts = torch.bincount(self._bucket, minlength=len(longest)).tolist()
        self.cuts = _cut_epoch(counts, longest, batch, drop_last)

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        return len(self.cuts)

    @property
    def facts(self) -> dict[str, Any]:
        """What determines the order: orders of the same facts are the same."""
        return dict(self._facts)

    def arrange(self, epoch: int) -> Epoch:
        """Returns the order of an epoch, which the seed and the epoch determine."""
        if not self._shuffle and self._bucket is None:
            return Epoch(range(self._samples), self.cuts)
        generator = torch.Generator().manual_seed((self._seed << 32 ^ epoch) % (1 << 63))
        order, cuts = torch.arange(self._samples), self.cuts
        if self._shuffle:
            order = torch.randperm(self._samples, generator=generator)
        if self._bucket is not None:
            order = order[self._bucket[order].argsort(stable=True)]
            if self._shuffle:
                cuts = [cuts[at] for at in torch.randperm(len(cuts), generator=generator).tolist()]
        return Epoch(order.tolist(), cuts)


def share_out(samples: Sequence[int], plan: Plan, rank: int) -> list[list[int]]:
    """Returns a rank's micro-batches of one step's samples. Pure."""
    if len(samples) != plan.batch:
        raise BalanceError(f"a step has {len(samples)} samples, but its plan {plan.batch}")
    at = sum(plan.shares[:rank])
    found = []
    for size in plan.micro_batches(rank):
        found.append([*samples[at : at + size]])
        at += size
    return found


def _check_lengths(lengths: Sequence[int], samples: int, batch: int) -> torch.Tensor:
    tokens = torch.as_tensor(lengths)
    if tokens.is_floating_point() or tokens.shape != (samples,):
        raise BalanceError(f"lengths must be {samples} integers, one for each sample")
    tokens = tokens.to("cpu", torch.int64)
    if samples and not 1 <= int(tokens.min()) <= int(tokens.max()) <= batch:
        worst = int(tokens.argmin() if int(tokens.min()) < 1 else tokens.argmax())
        raise BalanceError(
            f"lengths: sample {worst} has {int(tokens[worst])} tokens, but a sample must have 1 to "
            f"the plan's batch, {batch} tokens"
        )
    return tokens


def _fill_buckets(tokens: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """The bucket of each sample, and each bucket's length, which falls. Buckets have about as many
    samples each."""
    ordered = tokens.sort().values
    ends = [max(0, number * len(tokens) // _BUCKETS - 1) for number in range(1, _BUCKETS + 1)]
    lengths = torch.tensor(sorted(set(ordered[ends].tolist())))
    bucket = len(lengths) - 1 - torch.bucketize(tokens, lengths)
    return bucket, lengths.flip(0).tolist()


def _cut_epoch(counts: list[int], lengths: list[int], batch: int, drop_last: bool) -> list[Cut]:
    """The steps of buckets of so many samples, which are as long as that; the longest first."""
    samples = sum(counts)
    found, at, bucket_end = [], 0, 0
    for count, length in zip(counts[:-1], lengths[:-1], strict=True):
        bucket_end += count
        size = batch // length
        while at < bucket_end and (at + size <= samples or not drop_last):
            found.append(Cut(at, min(at + size, samples), length))
            at = found[-1].end
    size, rest = batch // lengths[-1], samples - at
    if drop_last:
        return found + [
            Cut(begin, begin + size, lengths[-1]) for begin in range(at, samples - size + 1, size)
        ]
    steps = -(-rest // size)
    ends = [at + step * rest // steps for step in range(steps + 1)] if steps else []
    return found + [Cut(begin, end, lengths[-1]) for begin, end in itertools.pairwise(ends)]
