"""Two sessions, or more, that are polled in turn in one thread."""

import dataclasses

import numpy as np
import torch
from kv_caches import End, Model
from kv_world import World

from hetccl.kv import Cache, Options, Receiver, Sender

MODEL = Model(3, 4, (8, 8))
OPTIONS = Options(slots=3, slot_bytes=512, lease=3.0, grace=1.0, least_piece=64, least_send=1)
CHECKED = dataclasses.replace(OPTIONS, checksum=True)


MAKE_WORLD = World  # or RealWorld, see test_kv_endpoints


class Pair:
    """Workers that are polled in turn; `outcomes` and `released` by worker and request."""

    def __init__(self, seed=0, options=OPTIONS, **world):
        self.world = MAKE_WORLD(seed, **world)
        self.options = options
        self.sessions, self.ends, self.outcomes, self.released = {}, {}, {}, {}
        self.stalled = set()

    def add(self, kind, name, order="SBNHD", model=MODEL, **options):
        end = End(name, model, order, **options)
        session = kind(
            self.world.endpoint(name), Cache(end.description, end.caches), self.options,
            release=lambda request, blocks: self.released.setdefault((name, request), []).append(1),
            clock=self.world.clock, sleep=lambda _: self.step(),
        )  # fmt: skip
        self.sessions[name], self.ends[name] = session, end
        return session

    def step(self):
        self.world.step()
        for name, session in self.sessions.items():
            if name not in self.stalled:
                for outcome in session.poll():
                    self.outcomes.setdefault((name, outcome.request), []).append(outcome)

    def run(self, *awaited, most=3000):
        """Steps until each (worker, request) has its outcome; returns the only ones."""
        for _ in range(most):
            if all(one in self.outcomes for one in awaited):
                break
            self.step()
        for _ in range(100):  # nothing comes twice
            self.step()
        found = [self.outcomes[one] for one in awaited]
        assert all(len(one) == 1 for one in found), found
        return [one[0] for one in found]

    def cells(self, name, table, tokens):
        """All cells of a request, as float32 [layer, part, token, head, dim]."""
        end = self.ends[name]
        dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
        bits = torch.from_numpy(end.elements)
        elements = bits.view(dtype[end.description.dtype]).float().numpy()
        return np.stack([
            [elements[end.cells(table, tokens, layer, part, end.heads)] for part in (0, 1)]
            for layer in end.layers
        ])  # fmt: skip


def fill(end, seed=0):
    """Small integers, which all types hold exactly."""
    chance = np.random.default_rng(seed)
    for tensors in end.caches.values():
        for tensor in tensors if isinstance(tensors, list) else [tensors]:
            tensor.copy_(torch.from_numpy(chance.integers(-99, 99, tensor.shape)).to(tensor.dtype))


SOURCE, TARGET = [5, 0, 3], [1, 4, 2]


def join(mode="push", seed=0, source=None, target=None, options=OPTIONS, **world):
    pair = Pair(seed, options, **world)
    sender = pair.add(Sender, "p0", **(source or {}))
    receiver = pair.add(Receiver, "d0", **(target or {}))
    fill(pair.ends["p0"])
    number = receiver.connect(sender.metadata())
    assert receiver.peers == {number: "p0"}
    return pair, sender, receiver


LAYOUTS = {
    "direct": ({}, {}),
    "packed": ({"order": "BHNC"}, {"order": ("BHDND", "BHDN"), "block_size": 4}),
    "converted": ({"dtype": "bfloat16"}, {"dtype": "float16", "order": "BSHND"}),
    "widened": ({"dtype": "float16"}, {"dtype": "float32"}),
}
