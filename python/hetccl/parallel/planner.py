"""Strategies compared: every arrangement of a site's clusters into a pipeline, priced."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hetccl.parallel.models import Model, ParallelError
from hetccl.parallel.pricing import Arrangement, Placed, Price, Pricer
from hetccl.parallel.schedules import CHUNKS, SCHEDULES, refuse
from hetccl.parallel.sites import Site
from hetccl.sharding.costs import OPTIMIZERS
from hetccl.units import binary_size, counted

MOST_BATCH = 1 << 24
_MOST_ORDERED = 4  # clusters of which every order and grouping is tried
_LEAST_PRICED = 16  # arrangements that are priced for the table, however slow they must be


@dataclasses.dataclass(frozen=True)
class Row:
    """The fastest strategy of one arrangement. `across` names the traffic that crosses clusters:
    "pipeline", "data", "both", or "" if there is one cluster.
    """

    price: Price
    across: str

    @property
    def key(self) -> tuple[bool, float, int]:
        """Sorts rows: those that fit first, then by time, then the shorter pipeline."""
        stages = len(self.price.strategy.stages)
        return self.price.fits is False, float(f"{self.price.seconds:.9g}"), stages


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of `plan`. `rows` are the compared strategies, the best first. `best` is the first
    of them if it fits; `reason` says why there is none. `considered` counts arrangements."""

    model: Model
    site: Site
    batch: int
    rows: tuple[Row, ...]
    considered: int
    best: Price | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Wish:
    """The parts of a strategy that the caller has fixed; None leaves one to the planner."""

    tensor: int | None = None
    data: tuple[int, ...] | None = None
    pipeline: int | None = None
    layers: tuple[int, ...] | None = None
    schedule: str | None = None
    micro_batches: int | None = None


def plan(
    model: Model, site: Site, batch: int, *, tensor: int | None = None,
    data: int | Sequence[int] | None = None, pipeline: int | None = None,
    layers: Sequence[int] | None = None, schedule: str | None = None,
    micro_batches: int | None = None, optimizer: str = "adamw",
) -> Plan:  # fmt: skip
    """Compares the strategies by which a site's ranks can train a model, `batch` samples a step.

    Pure and deterministic: it needs neither torch nor the cluster. Tensor parallelism stays inside
    a host of one cluster. A cluster is a run of stages of its own, or it adds replicas to the
    stages of others; both are tried, in every order of up to four clusters. `tensor`, `data` (one
    number, or one for each stage), `pipeline`, `layers` (of each stage), `schedule` and
    `micro_batches` fix a part of the strategy.

    Raises ParallelError for arguments that mean nothing, degrees that do not multiply to the ranks,
    and a model that cannot be cut so. Where nothing fits the memory, `best` is None.
    """
    wish = _check(model, site, batch, Wish(
        tensor, (data,) if isinstance(data, int) else None if data is None else tuple(data),
        pipeline, None if layers is None else tuple(layers), schedule, micro_batches,
    ), optimizer)  # fmt: skip
    arranged = [one for one in arrange(site, wish.tensor) if _is_wished(one, wish)
                and len(one.stages) <= model.layers]  # fmt: skip
    if not arranged:
        raise ParallelError(_why_none(model, site, wish))
    tried = [_Tried(model, site, one, batch, optimizer, wish) for one in arranged]
    reasons = [one.reason for one in tried if one.reason]
    possible = sorted(
        (one for one in tried if not one.reason), key=lambda one: (one.unfit, one.least)
    )
    if not possible:
        raise ParallelError(reasons[0])
    rows: list[Row] = []
    for one in possible:
        across = _find_across(site, one.arrangement)
        fastest = min((row.price.seconds for row in rows if row.price.fits is not False),
                      default=math.inf)  # fmt: skip
        is_slow = len(rows) >= _LEAST_PRICED and (one.unfit or one.least >= fastest)
        if not is_slow or across not in {row.across for row in rows}:
            rows.append(Row(one.price(), across))
    rows.sort(key=lambda row: row.key)
    best = rows[0].price if rows[0].price.fits is not False else None
    reason = "" if best else _why_unfit(site, rows)
    return Plan(model, site, batch, tuple(rows), len(arranged), best, reason)


def _check(model: Model, site: Site, batch: int, wish: Wish, optimizer: str) -> Wish:
    """Checks the arguments. Returns `wish` with one width for each stage. Raises ParallelError."""
    counts: list[tuple[str, object]] = [("batch", batch)]
    counts += [(name, getattr(wish, name)) for name in ("tensor", "pipeline", "micro_batches")]
    for name in ("data", "layers"):
        counts += [(name, one) for one in getattr(wish, name) or ()]
    for name, value in counts:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 1 <= value <= MOST_BATCH):  # type: ignore
            raise ParallelError(f"{name}={value!r}: give a whole number from 1 to {MOST_BATCH}")
    if optimizer not in OPTIMIZERS:
        raise ParallelError(f"optimizer={optimizer!r} is unknown: give {', '.join(OPTIMIZERS)}")
    if wish.schedule is not None and wish.schedule not in SCHEDULES:
        raise ParallelError(f"schedule={wish.schedule!r}: give {', '.join(SCHEDULES)}")
    if wish.micro_batches is not None and batch % wish.micro_batches:
        raise ParallelError(
            f"micro_batches={wish.micro_batches} does not divide the batch of {batch}"
        )
    if wish.layers is not None and sum(wish.layers) != model.layers:
        raise ParallelError(
            f"layers={_text(wish.layers)} are {sum(wish.layers)}, but {model.name} has "
            f"{model.layers}: it cannot be cut there"
        )
    if wish.data is not None and len(wish.data) == 1 and wish.pipeline is not None:
        wish = dataclasses.replace(wish, data=wish.data * wish.pipeline)
    _check_product(site, wish)
    return wish


def _check_product(site: Site, wish: Wish) -> None:
    """Raises ParallelError where tensor times the sum of the stages' widths is not all ranks."""
    tensor, widths = wish.tensor or 1, wish.data or (1,)
    if len(widths) > 1 and wish.pipeline not in (None, len(widths)):
        raise ParallelError(
            f"data={_text(widths)} has {len(widths)} widths for pipeline={wish.pipeline} stages"
        )
    ranks = tensor * sum(widths)
    # Without `pipeline` a single width is that of any number of stages.
    complete = wish.tensor is not None and (len(widths) > 1 or wish.pipeline == 1)
    if site.size % ranks or (complete and wish.data is not None and ranks != site.size):
        degrees = {"tensor": wish.tensor, "data": wish.data and _text(wish.data),
                   "pipeline": wish.pipeline}  # fmt: skip
        told = ", ".join(f"{name}={value}" for name, value in degrees.items() if value is not None)
        raise ParallelError(
            f"{told}: these degrees do not multiply to the {site.size} ranks of the topology"
        )


def _text(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def _groupings(clusters: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yields the ways to put clusters into runs. A run is a part of the pipeline whose clusters add
    replicas to its stages.
    """
    if len(clusters) > _MOST_ORDERED:
        yield tuple((cluster,) for cluster in clusters)
        yield (tuple(clusters),)
        return
    seen = set()
    for ordered in itertools.permutations(clusters):
        for cuts in itertools.product((False, True), repeat=len(ordered) - 1):
            runs = [[ordered[0]]]
            for cluster, cut in zip(ordered[1:], cuts, strict=True):
                if cut:
                    runs.append([cluster])
                else:
                    runs[-1].append(cluster)
            found = tuple(tuple(sorted(run)) for run in runs)
            if found not in seen:
                seen.add(found)
                yield found


def _cut_run(
    site: Site, run: Sequence[int], stages: int, tensor: int
) -> list[tuple[int, ...]] | None:
    """Returns the ranks of each stage of a run; None if a replica does not fit into one host."""
    found: list[tuple[int, ...]] = []
    for stage in range(stages):
        ranks: list[int] = []
        for cluster in run:
            near = sorted(site.clusters[cluster], key=lambda rank: (site.hosts[rank], rank))
            size = len(near) // stages
            ranks += near[stage * size : (stage + 1) * size]
            if size % tensor:
                return None
        replicas = [ranks[first : first + tensor] for first in range(0, len(ranks), tensor)]
        if any(len({site.hosts[rank] for rank in replica}) > 1 for replica in replicas):
            return None
        found.append(tuple(ranks))
    return found


def arrange(site: Site, tensor: int | None = None) -> Iterator[Arrangement]:
    """Every arrangement of a site's ranks, with one tensor-parallel degree or any."""
    most = max(site.hosts.count(host) for host in set(site.hosts))
    degrees = [tensor] if tensor is not None else range(1, most + 1)
    for runs in _groupings(range(len(site.clusters))):
        lengths = []
        for run in runs:
            common = math.gcd(*(len(site.clusters[cluster]) for cluster in run))
            lengths.append([count for count in range(1, common + 1) if common % count == 0])
        for stages in itertools.product(*lengths):
            for degree in degrees:
                cut = [_cut_run(site, run, count, degree)
                       for run, count in zip(runs, stages, strict=True)]  # fmt: skip
                if all(one is not None for one in cut):
                    yield Arrangement(
                        tuple(ranks for one in cut if one is not None for ranks in one), degree
                    )


def _is_wished(one: Arrangement, wish: Wish) -> bool:
    if wish.pipeline is not None and len(one.stages) != wish.pipeline:
        return False
    cuts = None if wish.layers is None or wish.schedule == "interleaved" else len(wish.layers)
    if cuts not in (None, len(one.stages)):
        return False
    if wish.data is None:
        return True
    if len(wish.data) == 1:
        return set(one.widths) == set(wish.data)
    return tuple(one.widths) == wish.data


def _why_none(model: Model, site: Site, wish: Wish) -> str:
    if wish.layers is not None:
        return (
            f"layers={_text(wish.layers)}: no arrangement of the clusters has such a pipeline of "
            f"{len(wish.layers)} stages"
        )
    if wish.pipeline is not None and wish.pipeline > model.layers:
        return (
            f"pipeline={wish.pipeline}: {model.name} has {model.layers} layers, and cannot be cut "
            "into more stages"
        )
    told = [f"{name}={value}" for name, value in dataclasses.asdict(wish).items()
            if value is not None]  # fmt: skip
    sizes = ", ".join(str(len(ranks)) for ranks in site.clusters)
    return (
        f"{', '.join(told)}: no arrangement of clusters of {sizes} ranks has these degrees with "
        "tensor parallelism inside hosts"
    )


class _Choice(NamedTuple):
    """A way to run an arrangement. `beyond` is the part of a device's memory that its fullest stage
    needs, 0 if all fit; `least` is a lower bound of the seconds.
    """

    beyond: float
    least: float
    micro_batches: int
    schedule: str


class _Tried:
    """One arrangement: its possible schedules and numbers of micro-batches. `reason` says why
    there are none."""

    def __init__(
        self, model: Model, site: Site, arrangement: Arrangement, batch: int, optimizer: str,
        wish: Wish,
    ) -> None:  # fmt: skip
        self.arrangement = arrangement
        self.reason = ""
        self._wish = wish
        self._choices: list[_Choice] = []
        self._placed: dict[tuple[int, str], Placed] = {}
        self._pricers: dict[int, Pricer] = {}
        widest = max(arrangement.widths)
        for count in [wish.micro_batches] if wish.micro_batches else _divisors(batch):
            if batch // count < widest:
                self._refuse(
                    f"batch: {count} micro-batches of {batch // count} samples leave some of "
                    f"{widest} replicas without a sample"
                )
                continue
            self._pricers[count] = Pricer(model, site, arrangement, batch, count, optimizer)
            for schedule in [wish.schedule] if wish.schedule else SCHEDULES:
                self._try(count, schedule)
        self._choices.sort()
        if self._choices:
            self.reason = ""

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason

    def _try(self, count: int, schedule: str) -> None:
        pricer, positions = self._pricers[count], len(self.arrangement.stages)
        if positions < 2 and schedule != "1f1b" and not self._wish.schedule:
            return None  # a single stage has no bubble
        if reason := refuse(schedule, positions, count):
            return self._refuse(f"schedule: {reason}")
        if self._wish.layers is not None:
            if len(self._wish.layers) != positions * CHUNKS[schedule]:
                return self._refuse(
                    f"layers={_text(self._wish.layers)}: {schedule} with {positions} stages takes "
                    f"{positions * CHUNKS[schedule]} numbers"
                )
            placed: Placed | None = pricer.place(self._wish.layers, schedule)
        else:
            try:
                placed = pricer.split(schedule) or pricer.split(schedule, within_memory=False)
            except ParallelError as error:
                return self._refuse(str(error))
        assert placed is not None
        fullest = max(memory.part for memory in pricer.memory(schedule, placed))
        self._placed[count, schedule] = placed
        least = pricer.least(schedule, placed)
        self._choices.append(_Choice(max(0.0, fullest - 1), least, count, schedule))
        return None

    @property
    def least(self) -> float:
        """A lower bound of the seconds of any choice that may be the best."""
        return self._choices[0].least

    @property
    def unfit(self) -> bool:
        """Whether no choice fits."""
        return self._choices[0].beyond > 0

    def price(self) -> Price:
        """The fastest choice that fits, else the one that needs least beyond its memory."""
        best: Price | None = None
        for choice in self._choices:
            if best is not None and (choice.beyond or choice.least >= best.seconds):
                break
            placed = self._placed[choice.micro_batches, choice.schedule]
            price = self._pricers[choice.micro_batches].price(choice.schedule, placed)
            if best is None or round(price.seconds, 12) < round(best.seconds, 12):
                best = price
        assert best is not None
        return best


@functools.lru_cache(maxsize=64)
def _divisors(number: int) -> list[int]:
    small = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _find_across(site: Site, arrangement: Arrangement) -> str:
    if len(site.clusters) < 2:
        return ""
    spans = [len({site.cluster_of[rank] for rank in ranks}) > 1 for ranks in arrangement.stages]
    if not any(spans):
        return "pipeline"
    first = {site.cluster_of[rank] for rank in arrangement.stages[0]}
    same = all({site.cluster_of[rank] for rank in ranks} == first for ranks in arrangement.stages)
    return "data" if same else "both"


def _why_unfit(site: Site, rows: Sequence[Row]) -> str:
    nearest = min(rows, key=lambda row: max(one.part for one in row.price.memory)).price
    position = max(range(len(nearest.memory)), key=lambda one: nearest.memory[one].part)
    memory, stage = nearest.memory[position], nearest.strategy.stages[position]
    rank = min(stage.ranks, key=lambda rank: (site.memory[rank] or math.inf, rank))
    return (
        f"no strategy fits: of {nearest.strategy.degrees}, which needs least, stage {position} "
        f"needs {binary_size(round(memory.needs))} for {counted(stage.count, 'layer')}, and "
        f"{site.device(rank)} has {binary_size(memory.has or 0)}"
    )
