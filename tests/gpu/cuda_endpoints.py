"""Endpoints of GPUs and hosts: blocks of all lengths, of data that a stream has yet to write."""

from __future__ import annotations

import random

import torch
import torch.distributed as dist
from cuda_ranks import Rank

from hetccl._lib import HetcclError
from hetccl.endpoint import Endpoint

SIZE = 24 << 20
PATIENCE = 60.0


def endpoints(where: Rank) -> None:
    """Each rank puts blocks to the next one and gets others from it; all values are right."""
    device = str(where.device) if where.on_gpu else "host"
    stream = torch.cuda.current_stream(where.device).cuda_stream if where.on_gpu else 0
    with Endpoint(f"rank {where.rank}", device) as endpoint:
        ours = where.full(200 + where.rank, SIZE, dtype=torch.uint8)
        got = where.full(0, SIZE, dtype=torch.uint8)
        board = where.full(0, SIZE, dtype=torch.uint8)
        if where.on_gpu and torch.cuda.device_count() > 1:
            refuse_anothers_memory(endpoint, where.device)
        source, target = endpoint.register(ours), endpoint.register(got)
        endpoint.register(board, "board")
        endpoint.register(ours, "ours")
        if where.on_gpu:
            torch.cuda.synchronize()
        texts: list[str | None] = [None] * where.size
        dist.all_gather_object(texts, endpoint.metadata())
        after, before = (where.rank + 1) % where.size, (where.rank - 1) % where.size
        peer = endpoint.connect(str(texts[after]), PATIENCE)
        for longest in (40, 20_000, 300_000, 6_000_000):
            blocks = random_blocks(longest, random.Random(longest))
            where.pass_time()
            ours.fill_(longest % 97 + 1 + where.rank)  # which the stream does late
            puts = [(source.id, at, peer.region("board"), to, size) for at, to, size in blocks]
            put = endpoint.put(peer, puts, b"landed", timeout=PATIENCE, stream=stream)
            put.wait()
            assert [payload for _, payload in endpoint.notifications(PATIENCE)] == [b"landed"]
            expected = torch.zeros(SIZE, dtype=torch.uint8)
            for _, to, size in blocks:
                expected[to : to + size] = longest % 97 + 1 + before
            assert torch.equal(board.cpu(), expected), f"put, blocks of up to {longest}"
            dist.barrier()
            gets = [(target.id, to, peer.region("ours"), at, size) for at, to, size in blocks]
            endpoint.get(peer, gets, timeout=PATIENCE, stream=stream).wait()
            expected[expected != 0] = longest % 97 + 1 + after
            assert torch.equal(got.cpu(), expected), f"get, blocks of up to {longest}"
            got.zero_(), board.zero_()
            if where.on_gpu:
                torch.cuda.synchronize()
            dist.barrier()


def refuse_anothers_memory(endpoint: Endpoint, device: torch.device) -> None:
    """A region is memory of the endpoint's own GPU."""
    other = (device.index + 1) % torch.cuda.device_count()
    try:
        endpoint.register(torch.zeros(64, dtype=torch.uint8, device=f"cuda:{other}"))
    except HetcclError as error:
        assert f"data is memory of the GPU cuda:{other}" in str(error), error
    else:
        raise AssertionError("memory of another GPU was registered")


def random_blocks(longest: int, chance: random.Random) -> list[tuple[int, int, int]]:
    """From, to, bytes; all ranks have the same. At most 4,000."""
    blocks: list[tuple[int, int, int]] = []
    at = to = 0
    while len(blocks) < 4000:
        size = chance.randint(1, longest)
        if chance.random() < 0.5:
            size = max(size // 16 * 16, 16)
        if max(at, to) + size > SIZE:
            break
        blocks.append((at, to, size))
        at += size + chance.choice((0, 0, 1, 16, 100))
        to += size + chance.choice((0, 0, 1, 16, 100))
    chance.shuffle(blocks)
    return blocks
