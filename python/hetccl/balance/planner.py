"""Shares of a batch that all ranks compute in the same time."""

from __future__ import annotations

import dataclasses
import heapq
import json
import math
from collections.abc import Sequence
from pathlib import Path

from hetccl.balance.profiles import MOST_SAMPLES, BalanceError, Profile
from hetccl.files import read_own, write_text
from hetccl.units import counted

_NOISE = 1.03  # more micro-batches must be faster by more than this
_MULTIPLES = (1, 2, 3, 4, 8)  # of the least number of micro-batches that memory allows
_NUMBERS = ("batch", "accumulation", "shares")  # of a file, beside the profiles
_MOST_FILE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class Plan:
    """The share of each rank in a batch.

    `shares` are samples by rank; they add up to `batch`. Each rank computes its share in
    `accumulation` micro-batches, as many as every other rank has, so collectives stay in step.
    """

    profiles: tuple[Profile, ...]
    batch: int
    accumulation: int
    shares: tuple[int, ...]

    def __post_init__(self) -> None:
        fits = len(self.shares) == len(self.profiles) and sum(self.shares) == self.batch
        if not fits or min(self.shares) < self.accumulation:
            raise BalanceError(
                f"plan: shares {self.shares} of {len(self.profiles)} ranks do not make a batch of "
                f"{self.batch} in {self.accumulation} micro-batches each"
            )

    @property
    def unit(self) -> str:
        """The unit of the batch and the shares: "samples", "tokens", or "" if either is meant."""
        return max(profile.unit for profile in self.profiles)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.profiles)

    def micro_batches(self, rank: int) -> tuple[int, ...]:
        """Returns the samples of each micro-batch of a rank; they differ by at most one."""
        return _micro_batches(self.shares[rank], self.accumulation)

    def seconds(self, rank: int) -> float:
        """Returns how long a rank computes for its share."""
        return self.seconds_of(rank, self.shares[rank])

    def seconds_of(self, rank: int, share: int) -> float:
        """Returns how long a rank would compute for another share."""
        return _time(self.profiles[rank], share, self.accumulation)

    @property
    def slowest(self) -> float:
        """The largest of the ranks' seconds for their shares."""
        return max(self.seconds(rank) for rank in range(self.size))

    @property
    def efficiency(self) -> float:
        """The job's samples per second, over the sum of the samples per second that its ranks reach
        alone, each with its fastest micro-batch (paper 000, section 5.3). Does not count
        communication.
        """
        alone = sum(profile.best_rate for profile in self.profiles)
        return self.batch / self.slowest / alone

    def of(self, batch: int, length: int = 1) -> Plan:
        """Returns the plan of another batch for the same ranks and number of micro-batches. With
        a `length`, `batch` counts samples of so many tokens, and this plan counts tokens."""
        if length == 1:
            return self if batch == self.batch else plan(self.profiles, batch, self.accumulation)
        for rank, profile in enumerate(self.profiles):
            if profile.most is not None and profile.most < length:
                raise BalanceError(
                    f"rank {rank}'s device holds {profile.most} tokens, but samples have {length}"
                )
        least = self.size * self.accumulation
        if batch < least:
            raise BalanceError(
                f"a step has {batch} samples of {length} tokens, but gives each of {self.size} "
                f"ranks a sample in each of {counted(self.accumulation, 'micro-batch', 'es')}: it "
                f"takes a batch of {least * length} tokens"
            )
        profiles = [profile.in_samples(length) for profile in self.profiles]
        return plan(profiles, batch, self.accumulation)

    def most(self, length: int) -> int:
        """Returns how many samples of so many tokens the ranks hold together in a step, at least
        one a rank and micro-batch."""
        return sum(_limit(one, self.accumulation, self.batch, length) for one in self.profiles)

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON. Raises OSError."""
        values = {
            "hetccl_balance": 1,
            "batch": self.batch,
            "accumulation": self.accumulation,
            "shares": self.shares,
            "profiles": [profile.to_values() for profile in self.profiles],
        }
        write_text(Path(path), json.dumps(values, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Reads a plan that this user has saved. Raises OSError, and BalanceError where the file
        is no plan."""
        text = read_own(Path(path), _MOST_FILE_BYTES)
        try:
            values = json.loads(text)
            profiles = tuple(Profile.from_values(one) for one in values["profiles"])
            batch, accumulation, shares = (values[name] for name in _NUMBERS)
            for name, value in (("batch", batch), ("accumulation", accumulation)):
                _check_count(name, value)
            for share in shares:
                _check_count("share", share)
            made = cls(profiles, batch, accumulation, tuple(shares))
            _check_limits(made)
        except BalanceError as error:
            raise BalanceError(f"{path}: {error}") from None
        except KeyError as error:
            raise BalanceError(f"{path} is no plan of hetccl.balance: {error} is missing") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise BalanceError(f"{path} is no plan of hetccl.balance: {error!r}") from None
        return made


def plan(profiles: Sequence[Profile], batch: int, accumulation: int | None = None) -> Plan:
    """Divides `batch` samples among ranks so that the slowest rank takes the least time.

    Pure: the same arguments give the same plan on every rank. `profiles` are by rank. Each rank
    gets at least one sample per micro-batch and no larger micro-batch than its profile allows. No
    other shares make the slowest rank faster; where times are proportional to sizes, shares are in
    proportion to speeds (paper 000, section 4.5). `accumulation` is the number of micro-batches;
    None chooses the number with the least time among those that memory allows.

    Raises BalanceError where the batch is too small to give every rank a sample per micro-batch, or
    too large for the ranks' memory.
    """
    ranks = tuple(profiles)
    _check_count("batch", batch)
    if not ranks:
        raise BalanceError("profiles is empty: a plan needs the profile of every rank")
    if len(units := {profile.unit for profile in ranks} - {""}) > 1:
        raise BalanceError(f"profiles: some count samples, others tokens ({sorted(units)})")
    if accumulation is not None:
        _check_count("accumulation", accumulation)
        return _divide(ranks, batch, accumulation)
    least = _least_accumulation(ranks, batch)
    counts = [times * least for times in _MULTIPLES if times * least <= batch // len(ranks)]
    tried = [_divide(ranks, batch, count) for count in counts or [least]]
    fastest = min(made.slowest for made in tried)
    return next(made for made in tried if made.slowest <= _NOISE * fastest)


def divide_evenly(ranks: int, batch: int, accumulation: int = 1, most: int | None = None) -> Plan:
    """Returns the plan of `ranks` equal ranks, for a job that has not been profiled.

    Online shares move to the ranks' real speeds. `most` is the largest micro-batch that any rank
    may get, also when shares move; None for no limit. Raises BalanceError as `plan` does.
    """
    _check_count("ranks", ranks)
    return divide_by_speeds([1.0] * ranks, batch, accumulation, most)


def divide_by_speeds(
    speeds: Sequence[float],
    batch: int,
    accumulation: int | None = None,
    most: int | None = None,
    devices: Sequence[str] = (),
) -> Plan:
    """Returns the plan of ranks whose `speeds`, in any unit, are known and not yet measured.

    `devices` are the ranks' names for texts. Otherwise as `divide_evenly`.
    """
    if not all(0 < speed < math.inf for speed in speeds):
        raise BalanceError(f"speeds are {list(speeds)[:20]}: they must be positive and finite")
    names = devices or [""] * len(speeds)
    profiles = [
        Profile(((1, max(speeds) / speed),), most, name, is_measured=False)
        for speed, name in zip(speeds, names, strict=True)
    ]
    return plan(profiles, batch, accumulation)


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST_SAMPLES:
        raise BalanceError(f"{name} is {value!r}, but must be an integer from 1 to 2^40")


def _check_limits(made: Plan) -> None:
    for rank, (share, profile) in enumerate(zip(made.shares, made.profiles, strict=True)):
        if share > _limit(profile, made.accumulation, made.batch):
            raise BalanceError(f"rank {rank}: a share of {share} does not fit its profile's memory")


def _least_accumulation(ranks: tuple[Profile, ...], batch: int) -> int:
    """The least number of micro-batches with which the batch fits the ranks' memory."""
    if any(profile.most is None for profile in ranks):
        return 1
    together = sum(profile.most or 0 for profile in ranks)
    return -(-batch // together)


def _limit(profile: Profile, accumulation: int, batch: int, length: int = 1) -> int:
    """The samples of so many tokens that a rank holds in a step, at least one a micro-batch."""
    return batch if profile.most is None else max(1, profile.most // length) * accumulation


def _micro_batches(share: int, accumulation: int) -> tuple[int, ...]:
    small, larger = divmod(share, accumulation)
    return (small + 1,) * larger + (small,) * (accumulation - larger)


def _time(profile: Profile, share: int, accumulation: int) -> float:
    small, larger = divmod(share, accumulation)
    return larger * profile.time(small + 1) + (accumulation - larger) * profile.time(small)


def _divide(ranks: tuple[Profile, ...], batch: int, accumulation: int) -> Plan:
    least = len(ranks) * accumulation
    if batch < least:
        raise BalanceError(
            f"batch is {batch}: too small to give each of {len(ranks)} ranks a sample in each "
            f"micro-batch ({accumulation} a rank); it takes {least}: give a larger batch, or a "
            "smaller accumulation"
        )
    limits = [_limit(profile, accumulation, batch) for profile in ranks]
    if sum(limits) < batch:
        fitting = ", ".join(f"rank {rank}: {profile.most}" for rank, profile in enumerate(ranks))
        raise BalanceError(
            f"batch is {batch}, but all ranks together hold {sum(limits)} with accumulation "
            f"{accumulation} (in a micro-batch {fitting}): raise accumulation"
        )
    shares = _start(ranks, limits, batch, accumulation)
    _fill(ranks, limits, shares, batch, accumulation)
    return Plan(ranks, batch, accumulation, tuple(shares))


def _start(
    ranks: tuple[Profile, ...], limits: list[int], batch: int, accumulation: int
) -> list[int]:
    """Shares that take at most the same time on every rank, not more than the batch together."""

    def within(time: float) -> list[int]:
        return [
            _largest_within(profile, time, limit, accumulation)
            for profile, limit in zip(ranks, limits, strict=True)
        ]

    low, high = 0.0, max(_time(profile, batch, accumulation) for profile in ranks)
    for _ in range(50):
        middle = (low + high) / 2
        if sum(within(middle)) <= batch:
            low = middle
        else:
            high = middle
    return within(low) if sum(within(low)) <= batch else [accumulation] * len(ranks)


def _largest_within(profile: Profile, time: float, limit: int, accumulation: int) -> int:
    """The largest share of a rank that takes at most `time`, at least a sample per micro-batch."""
    low, high = accumulation, limit
    while low < high:
        middle = (low + high + 1) // 2
        if _time(profile, middle, accumulation) <= time:
            low = middle
        else:
            high = middle - 1
    return low


def _fill(
    ranks: tuple[Profile, ...], limits: list[int], shares: list[int], batch: int, accumulation: int
) -> None:
    """Gives the rest of the batch, one sample at a time, to the rank that would finish first."""

    def next_time(rank: int) -> float:
        return _time(ranks[rank], shares[rank] + 1, accumulation)

    left = batch - sum(shares)
    queue = [(next_time(rank), rank) for rank in range(len(ranks)) if shares[rank] < limits[rank]]
    heapq.heapify(queue)
    for _ in range(left):
        _, rank = heapq.heappop(queue)
        shares[rank] += 1
        if shares[rank] < limits[rank]:
            heapq.heappush(queue, (next_time(rank), rank))
