"""A paged engine: blocks, continuous batching, greedy decoding.

A prompt's last token is not prefilled: it goes through a decode step, which gives the first token
of the answer. The worker that decodes so needs no result of the prefill but the cache, and each
token comes from the same computation whether or not that cache was moved.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence

from model import Model


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt, and at most `most` tokens of its answer. `table` lists its blocks."""

    id: str
    prompt: Sequence[int]
    most: int
    answer: list[int] = dataclasses.field(default_factory=list)
    table: list[int] = dataclasses.field(default_factory=list)
    n_cached: int = 0

    @property
    def n_prefill(self) -> int:
        """The number of tokens that the prefill computes."""
        return len(self.prompt) - 1


class BlockPool:
    """The free blocks of a cache. A block that is freed twice is an error."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = deque(range(count))
        self._used: set[int] = set()

    @property
    def n_free(self) -> int:
        """The number of free blocks."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """Returns `count` blocks, or None if there are not as many."""
        if count > len(self._free):
            return None
        taken = [self._free.popleft() for _ in range(count)]
        self._used.update(taken)
        return taken

    def free(self, blocks: Sequence[int]) -> None:
        """Frees blocks. Raises KeyError if one is free."""
        for block in blocks:
            self._used.remove(block)
            self._free.append(block)


class Engine:
    """Prefills and decodes requests. A worker moves each through the states that its role needs:
    `submit`, `admit`, then `start_prefill`, `start_decode`, or both. `chunk` is the most tokens of
    a prefill step, so a long prompt does not stop the decoding of others for long."""

    def __init__(self, model: Model, blocks: int, block_size: int = 16, chunk: int = 256) -> None:
        self.model, self.pool = model, BlockPool(blocks)
        self.block_size, self.chunk = block_size, chunk
        self.cache = model.new_cache(blocks, block_size)
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._decoding: list[Request] = []

    def submit(self, request: Request, decodes: bool = True) -> None:
        """Queues a request until there are blocks for it: those of its prompt and, if it `decodes`
        here, of its answer. Raises ValueError if there never can be."""
        tokens = len(request.prompt) + request.most
        if not request.prompt or request.most < 1 or tokens > self.model.shape.context:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens and {request.most} more: at least 1 of "
                f"each, and {self.model.shape.context} together"
            )
        if not all(0 <= token < self.model.shape.vocabulary for token in request.prompt):
            raise ValueError(f"tokens must be in [0, {self.model.shape.vocabulary})")
        request.table = [-1] * -(-(tokens if decodes else len(request.prompt)) // self.block_size)
        if len(request.table) > self.pool.count:
            raise ValueError(f"{len(request.table)} blocks of {self.pool.count} are needed")
        self._waiting.append(request)

    def admit(self) -> list[Request]:
        """Gives blocks to the requests that have waited longest, and returns those."""
        admitted = []
        while self._waiting:
            blocks = self.pool.take(len(self._waiting[0].table))
            if blocks is None:
                break
            admitted.append(self._waiting.popleft())
            admitted[-1].table = blocks
        return admitted

    def start_prefill(self, request: Request) -> None:
        """Has the next steps compute the request's prompt."""
        self._prefilling.append(request)

    def start_decode(self, request: Request) -> None:
        """Has the next steps decode a request whose prompt is in the cache."""
        request.n_cached = request.n_prefill
        self._decoding.append(request)

    def prefill(self, computed: Callable[[Request, int, tuple[int, int]], None]) -> Request | None:
        """Computes a chunk of the oldest prompt; returns the request once its prompt is done.

        Calls `computed(request, layer, [first, last) of the tokens)` after each layer.
        """
        if not self._prefilling:
            return None
        request = self._prefilling[0]
        first = request.n_cached
        last = min(first + self.chunk, request.n_prefill)
        if first < last:
            self.model.prefill(
                self.cache, request.table, request.prompt[first:last], first,
                lambda layer: computed(request, layer, (first, last)),
            )  # fmt: skip
        request.n_cached = last
        if last < request.n_prefill:
            return None
        return self._prefilling.popleft()

    def next_decoded(self) -> list[Request]:
        """Returns the requests of the next decode step."""
        return self._decoding[: self.model.rows]

    def decode(self) -> list[Request]:
        """Decodes one token of as many requests as the model has rows, the first ones first.

        Returns them; those that are complete give their blocks back.
        """
        batch = self.next_decoded()
        if not batch:
            return []
        tokens = [(one.answer or one.prompt)[-1] for one in batch]
        tables, places = [one.table for one in batch], [one.n_cached for one in batch]
        found = self.model.decode(self.cache, tables, tokens, places)
        for request, token in zip(batch, found, strict=True):
            request.answer.append(token)
            request.n_cached += 1
            if len(request.answer) == request.most:
                self.drop(request)
                self.pool.free(request.table)
        return batch

    def drop(self, request: Request) -> None:
        """Takes a request out of the queues; the caller owns its blocks then."""
        for queue in (self._waiting, self._prefilling, self._decoding):
            if request in queue:
                queue.remove(request)

    @property
    def is_prefilling(self) -> bool:
        """Whether prompts are being computed."""
        return bool(self._prefilling)

    @property
    def is_idle(self) -> bool:
        """Whether steps have nothing to do."""
        return not (self._waiting or self._prefilling or self._decoding)


def complete(engine: Engine, requests: Sequence[Request]) -> list[list[int]]:
    """Runs requests on one engine to their ends and returns their answers: the reference."""
    for request in requests:
        engine.submit(request)
    while not engine.is_idle:
        for request in engine.admit():
            engine.start_prefill(request)
        if ready := engine.prefill(lambda *_: None):
            engine.start_decode(ready)
        engine.decode()
    return [request.answer for request in requests]
