"""A world of endpoints in one process: an honest double of hetccl.Endpoint with a seed.

Transfers move in random order, row by row, and rows in two parts; messages are late; ends die, and
others notice later. Time passes only in `World.step`. A seed replays a schedule. `RealWorld` has
real endpoints in their place.
"""

import json
import random
import select
import time

import numpy as np

from hetccl._lib import HetcclError, Result
from hetccl.endpoint import MAX_NOTIFICATION, Endpoint


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
        self.endpoints, self.regions = [], {}
        self.transfers, self.messages = [], []
        self.on_start = self.on_move = lambda *_: None
        self.last_region = 0

    def clock(self):
        return self.now

    def endpoint(self, name):
        """An endpoint of this world."""
        return FakeEndpoint(self, name)

    def find(self, name):
        """The endpoint of that name that was made last, and lives."""
        return next(one for one in reversed(self.endpoints) if one.name == name and one.alive)

    def step(self, seconds=0.02):
        self.now += self.chance.random() * 2 * seconds
        self.chance.shuffle(self.transfers)
        for transfer in list(self.transfers):
            if self.chance.random() < self.pace:
                transfer.move()
        waiting = set()  # messages of one sender on one link keep their order
        for message in list(self.messages):
            at, link, sender, payload = message
            if (link, sender) in waiting:
                continue
            if self.now >= at and self.chance.random() < self.pace:
                self.messages.remove(message)
                target = link.other(sender)
                if link.is_open and target.alive:
                    target.inbox.append((target.links[link], payload))
            else:
                waiting.add((link, sender))

    def kill(self, name):
        """Ends a process: nothing of it moves any more, and others notice after a while."""
        endpoint = self.find(name)
        endpoint.alive = False
        for link in endpoint.links:
            link.dead, link.dies_at = name, self.now + self.notice

    def has_news(self, endpoint):
        """Whether the descriptor of hetccl.Endpoint would poll readable."""
        gone = {link for link in endpoint.links if link.gone(endpoint) is not None}
        return bool(endpoint.inbox) or not gone <= endpoint.told

    def deliver(self, link, sender, payload):
        late = self.late_by * self.chance.random() if self.chance.random() < 0.1 else 0
        self.messages.append((self.now + late, link, sender, bytes(payload)))


class Link:
    """A connection of two endpoints."""

    def __init__(self, world, one, other):
        self.world, self.ends = world, (one, other)
        self.is_open, self.dead, self.dies_at = True, "", 0.0

    def other(self, endpoint):
        return self.ends[self.ends[0] is endpoint]

    def gone(self, endpoint):
        """The reason, as `endpoint` sees it, that the other end is gone; None while it is not."""
        other = self.other(endpoint).name
        if not self.is_open:
            return f'"{other}": it has closed the connection'
        if self.dead and self.world.now >= self.dies_at:
            return f'"{other}" has died'
        return None

    def check(self, endpoint):
        """Raises the error that `endpoint` sees."""
        if (gone := self.gone(endpoint)) is not None:
            raise HetcclError(Result.REMOTE_ERROR, gone)


class Peer:
    def __init__(self, endpoint, link):
        self._endpoint, self._link = endpoint, link
        endpoint.last_peer += 1
        self.number, self.name = endpoint.last_peer, link.other(endpoint).name
        endpoint.links[link] = self

    def region(self, label):
        other = self._link.other(self._endpoint)
        (found,) = [
            one.id for one in self._endpoint.world.regions.values()
            if one.endpoint is other and one.label == label
        ]  # fmt: skip
        return found

    def state(self):
        return next(one for one in self._endpoint.peers() if one["number"] == self.number)

    def close(self):
        """Ends the connection for both ends; no byte moves over it any more."""
        self._link.is_open = False


class Region:
    def __init__(self, world, endpoint, memory, label):
        world.last_region += 1
        self.world, self.id, self.bytes = world, world.last_region, memory.nbytes
        self.endpoint, self.memory, self.label = endpoint, memory, label
        world.regions[self.id] = self

    def close(self, timeout=None):
        del self.world.regions[self.id]


class Transfer:
    """`rows` are region to read, offset, region to write, offset, bytes."""

    def __init__(self, endpoint, peer, rows, notification):
        self.endpoint, self.link, self.rows = endpoint, peer._link, rows
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
                self.world.deliver(self.link, self.endpoint, self.notification)
            self._end("")

    def _may_move(self):
        if self.is_over or not self.endpoint.alive:
            return False
        try:
            self.link.check(self.endpoint)
        except HetcclError as error:
            self._end(str(error))
            return False
        if self.stops_in is not None:
            self.stops_in -= 1
            if self.stops_in < 0:
                self._end(self.world.chance.choice(("the transfer was cancelled", "")))
                return False
        return not self.link.dead

    def _end(self, error):
        self.is_over, self.error = True, error
        if self in self.world.transfers:
            self.world.transfers.remove(self)

    def done(self):
        if not self.link.is_open and not self.is_over:
            self._may_move()
        if self.error:
            raise HetcclError(Result.REMOTE_ERROR, self.error)
        return self.is_over

    def wait(self, timeout=None):
        while not self.done():
            self.world.step()

    def cancel(self):
        if not self.is_over and self.stops_in is None:
            self.stops_in = self.world.chance.randint(0, 3)


class FakeEndpoint:
    """The public methods are those of hetccl.Endpoint (test_kv_endpoints compares them)."""

    def __init__(self, world, name):
        self.world, self.name, self.alive = world, name, True
        self.inbox, self.links, self.last_peer = [], {}, 0
        self.told = set()  # links whose loss `peers` has said
        world.endpoints.append(self)

    def close(self):
        self.alive = False
        for link in self.links:
            link.is_open = False

    def metadata(self):
        return json.dumps({"name": self.name, "door": self.world.endpoints.index(self)})

    def register(self, memory, label="", *, get=True, put=True):
        return Region(self.world, self, memory.view(-1).numpy(), label)

    def connect(self, metadata, timeout=None):
        other = self.world.endpoints[json.loads(metadata)["door"]]
        if not other.alive:
            raise HetcclError(Result.TIMEOUT, f"{other.name} does not answer")
        link = Link(self.world, self, other)
        Peer(other, link)
        return Peer(self, link)

    def peers(self):
        self.told = {link for link in self.links if link.gone(self) is not None}
        return [
            {"number": peer.number, "name": peer.name, "gone": link.gone(self)}
            for link, peer in self.links.items()
        ]

    def put(self, peer, blocks, notification=b"", *, timeout=None, stream=0):
        return self._start(peer, blocks, [0, 1, 2, 3, 4], notification)

    def get(self, peer, blocks, notification=b"", *, timeout=None, stream=0):
        return self._start(peer, blocks, [2, 3, 0, 1, 4], notification)

    def _start(self, peer, blocks, columns, notification):
        assert blocks.dtype == np.int64
        assert blocks.shape[1:] == (5,)
        assert blocks.flags.c_contiguous
        assert len(notification) <= MAX_NOTIFICATION
        peer._link.check(self)
        other = peer._link.other(self)
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
        assert len(payload) <= MAX_NOTIFICATION
        peer._link.check(self)
        self.world.deliver(peer._link, self, payload)

    def notifications(self, timeout=0):
        found, self.inbox = self.inbox, []
        return found

    def fileno(self):
        raise AssertionError("the world tells by has_news")


class RealWorld:
    """Real endpoints in this process, in place of World. Time passes in steps here, too, so that no
    deadline depends on the machine; each step gives the endpoints' threads a millisecond."""

    def __init__(self, seed, **_):
        self.chance, self.now = random.Random(seed), 0.0
        self.endpoints = {}
        self.on_start = self.on_move = lambda *_: None

    def clock(self):
        return self.now

    def endpoint(self, name):
        made = Endpoint(name, "host")
        self.endpoints.setdefault(name, []).append(made)
        return made

    def has_news(self, endpoint):
        return bool(select.select([endpoint], [], [], 0)[0])

    def find(self, name):
        return self.endpoints[name][-1]

    def step(self, seconds=0.02):
        self.now += self.chance.random() * 2 * seconds
        time.sleep(0.001)

    def kill(self, name):
        """Ends all that the endpoint does, without a word of its session."""
        self.endpoints[name].pop().close()

    def close(self):
        for made in self.endpoints.values():
            for one in made:
                one.close()
