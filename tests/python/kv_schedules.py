"""Random schedules of prefill and decode workers over the double of the endpoint.

Everything follows from a seed: layouts, requests, aborts, deaths, restarts, stalls, the order of
transfers and messages. Each allocation of a block has an id. The checks: a transfer touches only
allocations that live since its start; a free block keeps its mark; a request ends once, its blocks
are released once; a received request has the source's values; a failed one says why.
"""

import dataclasses
import random

import numpy as np
import torch
from kv_caches import ORDERS, TYPES, End, Model, split_evenly
from kv_world import World

from hetccl._lib import HetcclError
from hetccl.kv import Cache, KvError, Options, Receiver, Sender, readers
from hetccl.kv.messages import KINDS

LEASE, GRACE = 1.0, 0.4
STEPS, MOST_STEPS = 220, 3000


class Worker:
    """A session, its cache, and the allocator of its blocks."""

    def __init__(self, schedule, kind, name, group, end):
        self.name, self.group, self.end = name, group, end
        self.mark = np.array([0x5A5A5A5A]).astype(end.storages[0].dtype)[0]
        self.owners = {}  # block -> id of its allocation
        n_blocks = end.description.n_blocks
        self.free = list(range(n_blocks))
        self.block_of = np.zeros(len(end.elements), int)
        for parts in end.places.values():
            for places in parts:
                for block in range(n_blocks):
                    self.block_of[places[block]] = block
        end.write(np.full(len(end.elements), self.mark))
        self.outcomes, self.released, self.stalled_until = {}, {}, 0.0
        self.session = kind(
            schedule.world.endpoint(name), Cache(end.description, end.caches), group.options,
            release=self.release, clock=schedule.world.clock,
        )  # fmt: skip
        item = end.storages[0].itemsize
        starts = np.cumsum([0, *(len(one) for one in end.storages)])
        for start, region in zip(starts[:-1], self.session._regions, strict=True):
            schedule.places[region.id] = (self, int(start), item)
        schedule.stagings[self.session._staging.id] = self.session

    def number_of(self, name):
        """The peer of that name that joined last, or -1."""
        return max((at for at, one in self.session.peers.items() if one == name), default=-1)

    def allocate(self, count, allocation):
        if len(self.free) < count:
            return None
        self.check_free()
        blocks, self.free = self.free[:count], self.free[count:]
        self.owners |= dict.fromkeys(blocks, allocation)
        return blocks

    def release(self, request, blocks):
        assert request in self.group.known, request
        self.released[request] = self.released.get(request, 0) + 1
        assert self.released[request] == 1, f"{self.name}: {request} is released twice"
        self.put_back(blocks)

    def put_back(self, blocks):
        used = [block for block in blocks if block >= 0]
        elements = self.end.elements
        for block in used:
            del self.owners[block]  # raises if it is free already
            elements[self.block_of == block] = self.mark
        self.end.write(elements)
        self.free += used

    def check_free(self):
        free = np.isin(self.block_of, self.free)
        assert (self.end.elements[free] == self.mark).all(), f"{self.name}: a free block is written"

    def bits(self, values):
        dtype = TYPES[self.end.description.dtype]
        whole = torch.from_numpy(values.astype(np.float32)).to(dtype)
        return whole.view(torch.int16 if dtype.itemsize == 2 else torch.int32).numpy()

    def write_cells(self, request, blocks, layers, tokens):
        elements = self.end.elements
        for layer in layers:
            for part in range(2):
                heads = self.end.heads
                wanted = request.values[layer, part, tokens[0] : tokens[1], heads[0] : heads[1]]
                to = self.end.cells(blocks, tokens, layer, part, heads)
                elements[to] = self.bits(np.ascontiguousarray(wanted))
        self.end.write(elements)

    def check_cells(self, request, blocks):
        elements, heads = self.end.elements, self.end.heads
        tokens = (request.first, request.n_tokens)
        for layer in self.end.layers:
            for part in range(2):
                wanted = request.values[layer, part, tokens[0] : tokens[1], heads[0] : heads[1]]
                found = elements[self.end.cells(blocks, tokens, layer, part, heads)]
                assert (found == self.bits(np.ascontiguousarray(wanted))).all(), (
                    f"{self.name}: {request.name} was received with other values"
                )


@dataclasses.dataclass(eq=False)
class Group:
    """The ranks of one prefill or decode worker."""

    kind: type
    name: str
    order: object
    block_size: int
    dtype: str
    layer_at: int
    slices: list
    options: Options
    workers: list = dataclasses.field(default_factory=list)
    known: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass(eq=False)
class Request:
    name: str
    prefill: Group
    decode: Group
    n_tokens: int
    first: int
    mode: str
    values: np.ndarray
    receivers: dict  # by the sender's name
    tables: dict = dataclasses.field(default_factory=dict)  # by worker, while it is alive
    todo: dict = dataclasses.field(default_factory=dict)  # by sender: what to send yet
    forgotten: set = dataclasses.field(default_factory=set)


class Schedule:
    """`run()` plays the schedule of a seed; `counts` tells what has happened."""

    def __init__(self, seed, make_world=World):
        self.chance = chance = random.Random(seed)
        self.world = make_world(seed + 1, pace=chance.choice((0.05, 0.15, 0.4, 0.8)))
        self.rates = {
            self.abort_any: chance.choice((0.005, 0.03, 0.1)),
            self.stall_any: chance.choice((0.0, 0.003, 0.02)),
            self.kill_any: chance.choice((0.0, 0.0015, 0.006)),
        }
        self.world.on_start, self.world.on_move = self.see_start, self.see_move
        self.places, self.stagings, self.counts, self.allocations = {}, {}, {}, 0
        self.model = Model(chance.randint(1, 3), chance.randint(1, 4), (4, 4))
        orders = [one for one in ORDERS if one != "HBNC"]
        self.groups = []
        for kind, letter in ((Sender, "p"), (Receiver, "d")):
            for number in range(chance.randint(1, 2)):
                stages = [(0, self.model.n_layers)]
                if kind is Sender and chance.random() < 0.3:
                    stages = split_evenly(self.model.n_layers, min(2, self.model.n_layers))
                heads = split_evenly(self.model.n_heads, chance.randint(1, 3))
                options = Options(
                    slots=chance.randint(1, 4), slot_bytes=chance.choice((64, 256, 1024)),
                    lease=LEASE, grace=GRACE, most_transfers=chance.choice((1, 3, 64)),
                    checksum=chance.random() < 0.5, least_piece=chance.choice((1, 64, 10**6)),
                    least_send=chance.choice((1, 500, 10**6)),
                )  # fmt: skip
                self.groups.append(Group(
                    kind, f"{letter}{number}", chance.choice(orders), chance.randint(1, 4),
                    chance.choice(("float16", "bfloat16", "float32")), chance.randint(0, 5),
                    [(stage, one) for stage in stages for one in heads], options,
                ))  # fmt: skip
        self.workers = {}
        for group in self.groups:
            for rank in range(len(group.slices)):
                self.start_worker(group, rank)
        self.requests, self.plans, self.joined = {}, [], set()
        self.connect_all()

    def start_worker(self, group, rank):
        stage, heads = group.slices[rank]
        end = End(
            f"{group.name}.{rank}", self.model, group.order, layers=range(*stage), heads=heads,
            block_size=group.block_size, n_blocks=24 // group.block_size, dtype=group.dtype,
            layer_at=group.layer_at, rank=rank, ranks=len(group.slices),
        )  # fmt: skip
        worker = Worker(self, group.kind, f"{group.name}.{rank}", group, end)
        self.workers[worker.name] = worker
        group.workers = [one for one in group.workers if one.name != worker.name] + [worker]
        group.workers.sort(key=lambda one: one.name)

    def connect_all(self):
        """Connects each live pair, from either end."""
        for one in list(self.workers.values()):
            for other in list(self.workers.values()):
                is_pair = one.group.kind is Sender and other.group.kind is Receiver
                is_joined = other.name in one.session.peers.values() and (one, other) in self.joined
                if is_pair and not is_joined:
                    first, second = self.chance.sample((one, other), 2)
                    first.session.connect(second.session.metadata())
                    self.joined.add((one, other))

    # Transfers against allocations.

    def owner(self, region, at):
        if region not in self.places:
            return None  # staging
        worker, start, item = self.places[region]
        block = worker.block_of[start + at // item]
        return worker.name, int(block), worker.owners.get(block)

    def see_start(self, transfer):
        transfer.owners = {}
        for source, at, target, to, size in transfer.rows:
            if source in self.places:
                ends = [self.owner(*one)[2] for one in ((source, at), (target, to))]
                assert None not in ends, "a transfer of blocks that are free"
                assert ends[0][0] == ends[1][0], f"a transfer from one request to another: {ends}"
            for region, first in ((source, at), (target, to)):
                if region in self.places:
                    item = self.places[region][2]
                    for offset in range(first, first + size, item):
                        transfer.owners[region, offset // item] = self.owner(region, offset)

    def see_move(self, transfer, source, at, target, to, size):
        for region, first in ((source, at), (target, to)):
            if region in self.stagings:
                slots = self.stagings[region]._slots
                assert first // slots.slot_bytes in slots._taken, "a transfer touches a free slot"
            if region in self.places:
                worker, _, item = self.places[region]
                for offset in range(first // item, (first + size - 1) // item + 1):
                    found = self.owner(region, offset * item)
                    assert found == transfer.owners[region, offset] and found[2] is not None, (
                        f"{worker.name}: a transfer touches a block that was released: {found}"
                    )

    # The engines.

    def new_request(self, number):
        chance = self.chance
        prefill = chance.choice([one for one in self.groups if one.kind is Sender])
        decode = chance.choice([one for one in self.groups if one.kind is Receiver])
        n_tokens = chance.randint(1, 8)
        heads, layers = self.model.n_heads, self.model.n_layers
        values = np.array(
            [chance.randint(-99, 99) for _ in range(layers * 2 * n_tokens * heads * 4)]
        )
        ends = [[one.end.description for one in group.workers] for group in (prefill, decode)]
        request = Request(
            f"r{number}", prefill, decode, n_tokens, chance.randint(0, n_tokens),
            chance.choice(("push", "pull")), values.reshape(layers, 2, n_tokens, heads, 4),
            dict(zip([one.name for one in prefill.workers], readers(*ends), strict=True)),
        )  # fmt: skip
        self.requests[request.name] = request
        for group in (prefill, decode):
            group.known.add(request.name)
            self.plans += [(request, worker) for worker in group.workers]

    def table(self, worker, request, first):
        size = worker.end.description.block_size
        count = -(-request.n_tokens // size)
        skipped = min(first // size, count)
        self.allocations += 1
        blocks = worker.allocate(count - skipped, (request.name, self.allocations))
        return None if blocks is None else [-1] * skipped + blocks

    def begin(self, request, worker):
        """The engine takes the request, if it has blocks. Returns whether that is settled."""
        if self.workers.get(worker.name) is not worker or request.name in request.forgotten:
            return True
        is_sender = worker.group.kind is Sender
        if is_sender and not request.receivers[worker.name]:
            return True
        blocks = self.table(worker, request, 0 if is_sender else request.first)
        if blocks is None:
            return False
        try:
            if is_sender:
                worker.session.begin(
                    request.name, blocks, request.n_tokens, request.receivers[worker.name]
                )
                request.todo[worker] = self.portions(worker, request)
            else:
                count = len(request.prefill.slices)
                senders = [worker.number_of(f"{request.prefill.name}.{i}") for i in range(count)]
                worker.session.offer(
                    request.name, blocks, (request.first, request.n_tokens), senders,
                    mode=request.mode,
                )  # fmt: skip
            request.tables[worker] = blocks
        except KvError as error:  # a sender is gone, or has not introduced itself yet
            assert "is not connected" in str(error), error
            worker.put_back(blocks)
        return True

    def portions(self, worker, request):
        """Cells in the order in which the prefill computes them."""
        cut = self.chance.randint(0, request.n_tokens)
        ranges = [one for one in ((0, cut), (cut, request.n_tokens)) if one[0] < one[1]]
        layers = worker.end.layers
        if self.chance.random() < 0.5:
            return [([layer], one) for one in ranges for layer in layers]
        return [(layers, one) for one in ranges]

    def compute(self, request, worker):
        """A step of the prefill."""
        todo = request.todo[worker]
        if worker.released.get(request.name):
            assert not worker.session.send_layers(request.name, worker.end.layers[:1], (0, 0))
            del request.todo[worker]
        elif todo:
            layers, tokens = todo.pop(0)
            worker.write_cells(request, request.tables[worker], layers, tokens)
            worker.session.send_layers(request.name, layers, tokens)
        else:
            worker.session.commit(request.name)
            del request.todo[worker]

    def act(self):
        """Faults and engines, at random."""
        chance = self.chance
        for plan in list(self.plans):
            if chance.random() < 0.1 and self.begin(*plan):
                self.plans.remove(plan)
        for request in self.requests.values():
            for worker in list(request.todo):
                if self.workers.get(worker.name) is not worker:
                    del request.todo[worker]
                elif chance.random() < 0.2 and self.world.now >= worker.stalled_until:
                    self.compute(request, worker)
        for fault, rate in self.rates.items():
            if chance.random() < rate:
                fault()

    def stall_any(self):
        worker = self.chance.choice(list(self.workers.values()))
        worker.stalled_until = self.world.now + self.chance.choice((0.5, 1.2, 3.0))

    def abort_any(self):
        live = [
            request for request in self.requests.values()
            if any(request.name not in worker.outcomes for worker in request.tables)
        ]  # fmt: skip
        if not live:
            return
        request = self.chance.choice(live)
        workers = [one for one in request.tables if self.workers.get(one.name) is one]
        side = self.chance.choice((Sender, Receiver))
        chosen = [one for one in workers if one.group.kind is side]
        if chosen and self.chance.random() < 0.5:
            chosen = [self.chance.choice(chosen)]
        for worker in chosen:
            forget = side is Receiver and self.chance.random() < 0.3
            options = {"forget": True} if forget else {}
            if worker.session.abort(request.name, "the user left", **options):
                self.count("abort")
                if forget:
                    request.forgotten.add(worker.name)

    def kill_any(self):
        if len(self.workers) < 3:
            return
        name = self.chance.choice(list(self.workers))
        self.count("death")
        self.world.kill(name)
        worker = self.workers.pop(name)
        group, rank = worker.group, int(name.split(".")[1])
        if self.chance.random() < 0.7:
            self.start_worker(group, rank)
            self.count("restart")
        try:
            self.connect_all()
        except HetcclError as error:
            raise AssertionError(error) from error

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # The loop.

    def poll(self, worker):
        for outcome in worker.session.poll():
            name = outcome.request
            request = self.requests[name]
            assert name not in worker.outcomes, f"{worker.name}: {name} is reported twice"
            assert not (worker.group.kind is Receiver and worker.name in request.forgotten)
            worker.outcomes[name] = outcome
            self.count(("sent " if worker.group.kind is Sender else "received ") + outcome.kind)
            if worker.group.kind is Sender or not outcome.ok:
                assert worker.released.get(name) == 1, f"{worker.name}: {name} is not released"
            if outcome.ok:
                assert not outcome.cause
            else:
                assert outcome.kind in KINDS, outcome
                assert len(outcome.cause) > 8, outcome
            if outcome.ok and worker.group.kind is Receiver:
                assert name not in worker.released
                worker.check_cells(request, outcome.blocks)
                worker.put_back(outcome.blocks)

    def step(self):
        self.world.step()
        for worker in self.chance.sample(list(self.workers.values()), len(self.workers)):
            if self.world.now < worker.stalled_until or self.chance.random() >= 0.8:
                continue
            session = worker.session  # polled no more often than it has to be
            due = session.due
            is_due = due is not None and due <= self.world.now
            if is_due or self.world.has_news(session._endpoint):
                self.poll(worker)

    def run(self):
        for step in range(STEPS):
            if self.chance.random() < 0.05 and step < STEPS - 60:
                self.new_request(len(self.requests))
            self.act()
            self.step()
        for _ in range(MOST_STEPS):
            sessions = [one.session for one in self.workers.values()]
            if all(one._is_idle and not getattr(one, "_parked", None) for one in sessions):
                break
            for request in self.requests.values():
                for worker in list(request.todo):
                    if self.workers.get(worker.name) is worker:
                        self.compute(request, worker)
            self.step()
        for worker in self.workers.values():
            self.check_end(worker)

    def check_end(self, worker):
        session = worker.session
        assert session._is_idle, f"{worker.name} hangs: {vars(session)}"
        assert session._slots.n_free == worker.group.options.slots
        assert session._budget.used == 0
        assert not any(peer.handoffs for peer in session._peers.values())
        assert not worker.owners, f"{worker.name} has lost blocks"
        worker.check_free()
        for request in self.requests.values():
            if worker in request.tables:
                is_silent = worker.name in request.forgotten
                assert (request.name in worker.outcomes) != is_silent, (worker.name, request.name)
