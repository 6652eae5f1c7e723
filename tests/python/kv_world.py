"""A world of endpoints in one process: an honest double of hetccl.Endpoint with a seed.

Transfers move in random order, row by row, and rows in two parts; messages overtake each other;
ends die, and others notice later. Time passes only in `World.step`. A seed replays a schedule.
"""

import json
import random

import numpy as np

from hetccl._lib import HetcclError, Result


class World:
    """All endpoints, what is under way between them, and the time in seconds.

    `on_start(transfer)` sees each transfer before it moves, and `on_move(transfer, source region,
    offset, target region, offset, bytes)` each of its copies before it happens.
    """

    def __init__(self, seed, pace=0.5, notice=0.2):
        self.chance = random.Random(seed)
        self.now = 0.0
        self.pace = pace  # the chance of a transfer or message to move in a step
        self.notice = notice  # seconds until a death is noticed
        self.late_by = 0.4  # seconds, at most, of one message in ten
        self.endpoints, self.regions = {}, {}
        self.transfers, self.messages = [], []
        self.on_start = self.on_move = lambda *_: None
        self.last_region = 0

    def clock(self):
        return self.now

    def step(self, seconds=0.02):
        self.now += self.chance.random() * 2 * seconds
        self.chance.shuffle(self.transfers)
        for transfer in list(self.transfers):
            if self.chance.random() < self.pace:
                transfer.move()
        for message in list(self.messages):
            if self.now >= message[0] and self.chance.random() < self.pace:
                self.messages.remove(message)
                _, link, sender, target, payload = message
                if link.is_open and target.alive:
                    target.inbox.append((sender, payload))

    def kill(self, name):
        """Ends a process: nothing of it moves any more, and others notice after a while."""
        endpoint = self.endpoints.pop(name)
        endpoint.alive = False
        for link in endpoint.links.values():
            link.dead, link.dies_at = name, self.now + self.notice

    def deliver(self, link, sender, target, payload):
        late = self.late_by * self.chance.random() if self.chance.random() < 0.1 else 0
        self.messages.append((self.now + late, link, sender.name, target, bytes(payload)))


class Link:
    """A connection of two endpoints."""

    def __init__(self, world, one, other):
        self.world, self.ends = world, (one, other)
        self.is_open, self.dead, self.dies_at = True, "", 0.0
        self.closer = ""

    def other(self, endpoint):
        return self.ends[self.ends[0] is endpoint]

    def check(self, endpoint):
        """Raises the error that `endpoint` sees."""
        other = self.other(endpoint).name
        if not self.is_open:
            raise HetcclError(Result.REMOTE_ERROR, f"the connection to {other} was closed")
        if self.dead and self.world.now >= self.dies_at:
            raise HetcclError(Result.REMOTE_ERROR, f"{other} has died")


class Peer:
    def __init__(self, endpoint, link):
        self.endpoint, self.link = endpoint, link
        self.name = link.other(endpoint).name

    def close(self):
        """Ends the connection for both ends; no byte moves over it any more."""
        self.link.is_open = False


class Region:
    def __init__(self, world, endpoint, memory):
        world.last_region += 1
        self.world, self.id, self.bytes = world, world.last_region, memory.nbytes
        self.endpoint, self.memory = endpoint, memory
        world.regions[self.id] = self

    def close(self):
        del self.world.regions[self.id]


class Transfer:
    """`rows` are region to read, offset, region to write, offset, bytes."""

    def __init__(self, endpoint, peer, rows, notification):
        self.endpoint, self.peer, self.rows = endpoint, peer, rows
        self.world, self.notification = endpoint.world, notification
        self.error, self.is_over, self.stops_in = "", False, None
        self.world.chance.shuffle(self.rows)

    def move(self):
        if not self._may_move():
            return
        for _ in range(self.world.chance.randint(1, 3)):
            if not self.rows:
                break
            source, at, target, to, size = row = self.rows[-1]
            regions = self.world.regions
            gone = next((one for one in (source, target) if one not in regions), None)
            if gone is not None:
                self._end(f"region {gone} is gone")
                return
            half = size if size < 2 else self.world.chance.choice((size, size // 2))
            into = regions[target]
            self.world.on_move(self, source, at, target, to, half)
            into.memory[to : to + half] = regions[source].memory[at : at + half]
            self.rows[-1] = [source, at + half, target, to + half, size - half]
            if half == row[4]:
                self.rows.pop()
        if not self.rows:
            if self.notification:
                other = self.peer.link.other(self.endpoint)
                self.world.deliver(self.peer.link, self.endpoint, other, self.notification)
            self._end("")

    def _may_move(self):
        if self.is_over or not self.endpoint.alive:
            return False
        try:
            self.peer.link.check(self.endpoint)
        except HetcclError as error:
            self._end(str(error))
            return False
        if self.stops_in is not None:
            self.stops_in -= 1
            if self.stops_in < 0:
                self._end(self.world.chance.choice(("the transfer was cancelled", "")))
                return False
        return not self.peer.link.dead

    def _end(self, error):
        self.is_over, self.error = True, error
        if self in self.world.transfers:
            self.world.transfers.remove(self)

    def done(self):
        if not self.peer.link.is_open and not self.is_over:
            self._may_move()
        if self.error:
            raise HetcclError(Result.REMOTE_ERROR, self.error)
        return self.is_over

    def cancel(self):
        if not self.is_over and self.stops_in is None:
            self.stops_in = self.world.chance.randint(0, 3)


class FakeEndpoint:
    def __init__(self, world, name):
        self.world, self.name, self.alive = world, name, True
        self.inbox, self.links = [], {}
        assert name not in world.endpoints
        world.endpoints[name] = self

    def metadata(self):
        return json.dumps({"name": self.name}).encode()

    def register(self, tensor):
        return Region(self.world, self, tensor.view(-1).numpy())

    def connect(self, metadata, timeout=None):
        name = json.loads(metadata)["name"]
        other = self.world.endpoints.get(name)
        if other is None:
            raise HetcclError(Result.TIMEOUT, f"{name} does not answer")
        link = self.links.get(name)
        if link is None or not link.is_open or link.dead or other not in link.ends:
            link = Link(self.world, self, other)
            self.links[name] = other.links[self.name] = link
        return Peer(self, link)

    def put(self, peer, blocks, notification=b""):
        return self._start(peer, blocks, [0, 1, 2, 3, 4], notification)

    def get(self, peer, blocks, notification=b""):
        return self._start(peer, blocks, [2, 3, 0, 1, 4], notification)

    def _start(self, peer, blocks, columns, notification):
        assert blocks.dtype == np.int64
        assert blocks.shape[1:] == (5,)
        assert blocks.flags.c_contiguous
        peer.link.check(self)
        other = peer.link.other(self)
        for local, at, remote, to, size in blocks.tolist():
            for number, owner, first in ((local, self, at), (remote, other, to)):
                region = self.world.regions.get(number)
                if region is None:
                    raise HetcclError(Result.INVALID_ARGUMENT, f"region {number} is gone")
                assert region.endpoint is owner
                assert 0 <= first < first + size <= region.bytes
        transfer = Transfer(self, peer, blocks[:, columns].tolist(), bytes(notification))
        self.world.on_start(transfer)
        self.world.transfers.append(transfer)
        return transfer

    def notify(self, peer, payload):
        peer.link.check(self)
        self.world.deliver(peer.link, self, peer.link.other(self), payload)

    def notifications(self, timeout=0):
        found, self.inbox = self.inbox, []
        return found
