"""An engine small enough to read: vLLM's scheduler and workers as far as connectors see them.

It is strict where vLLM asserts: a report of a request that is not there, or a second one, raises.
Blocks that are freed are filled with a mark, which nothing may change until they are used again.
"""

import dataclasses
import enum
import types

import numpy as np
import torch
import vllm_interface

from hetccl.vllm import HetcclConnector

N_LAYERS, N_HEADS, SIZE = 3, 4, 8
ROLE = vllm_interface.base.KVConnectorRole
MARK = -77.0
PERMUTED = {"HND": (0, 1, 2, 3), "NHD": (0, 2, 1, 3)}


class Status(enum.Enum):
    WAITING = 0
    WAITING_FOR_REMOTE_KVS = 1
    RUNNING = 2
    FINISHED_LENGTH_CAPPED = 3
    FINISHED_ABORTED = 4


class FullAttentionSpec:
    def __init__(self, block_size):
        self.block_size, self.head_size = block_size, SIZE


@dataclasses.dataclass(eq=False)
class Request:
    request_id: str
    prompt: int  # names the values of its cells
    num_prompt_tokens: int
    kv_transfer_params: dict
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    blocks: list = dataclasses.field(default_factory=list)
    n_cached: int = 0  # a local hit, in tokens
    failed: bool = False
    received: bool = False


class Blocks:
    def __init__(self, blocks):
        self._blocks = blocks

    def get_block_ids(self):
        return (self._blocks,)


def values_of(prompt, n_tokens):
    """All cells of a prompt, float32 [layer, token, head, K and V]: small integers."""
    chance = np.random.default_rng(prompt)
    shape = (N_LAYERS, n_tokens, N_HEADS, 2 * SIZE)
    return torch.from_numpy(chance.integers(-99, 99, shape).astype(np.float32))


def config_of(name, rank, tp, extra, backend="FLASH_ATTN"):
    layer = types.SimpleNamespace(
        get_attn_backend=lambda: types.SimpleNamespace(get_name=lambda: backend)
    )
    names = [f"model.layers.{i}.self_attn.attn" for i in range(N_LAYERS)]
    return types.SimpleNamespace(
        kv_transfer_config=types.SimpleNamespace(
            kv_connector_extra_config=extra, engine_id=name, is_kv_producer=True
        ),
        parallel_config=types.SimpleNamespace(
            rank=rank, tensor_parallel_size=tp, pipeline_parallel_size=1
        ),
        model_config=types.SimpleNamespace(
            model="tiny", get_total_num_kv_heads=lambda: N_HEADS,
            hf_text_config=types.SimpleNamespace(num_hidden_layers=N_LAYERS),
        ),
        cache_config=types.SimpleNamespace(cache_dtype="auto"),
        compilation_config=types.SimpleNamespace(
            static_forward_context=dict.fromkeys(names, layer)
        ),
    )  # fmt: skip


class Rank:
    """A worker: its tensors, and its connector."""

    def __init__(self, engine, rank):
        tp, size = engine.tp, engine.kernel_block
        held = max(N_HEADS // tp, 1)
        first = rank * held if tp <= N_HEADS else rank * N_HEADS // tp
        self.heads = slice(first, first + held)
        n_blocks = engine.n_blocks * engine.block_size // size
        order = PERMUTED[engine.layout]
        logical = (n_blocks, held, size, 2 * SIZE)
        self.caches = {}
        for i in range(N_LAYERS):
            physical = torch.full([logical[at] for at in order], MARK, dtype=engine.dtype)
            back = [order.index(at) for at in range(4)]
            self.caches[f"model.layers.{i}.self_attn.attn"] = physical.permute(back)
        config = config_of(engine.name, rank, tp, engine.extra)
        self.connector = HetcclConnector(config, ROLE.WORKER, engine.cache_config)
        self.connector.register_kv_caches(self.caches)
        self.reported = {"sent": [], "received": []}

    def cells(self, blocks, n_tokens, size, engine_size):
        """Views of each token's cells, [layer][token] of [head, K and V]."""
        tokens = np.arange(n_tokens)
        table = np.array(blocks)[tokens // engine_size] * (engine_size // size)
        at = torch.from_numpy(table + tokens % engine_size // size), torch.from_numpy(tokens % size)
        return [(cache, at) for cache in self.caches.values()]


class Engine:
    def __init__(
        self, name, tp=1, layout="HND", block_size=4, kernel_block=None, n_blocks=24,
        dtype=torch.float16, policy="recompute", **extra,
    ):  # fmt: skip
        self.name, self.tp, self.layout, self.dtype = name, tp, layout, dtype
        self.block_size, self.kernel_block = block_size, kernel_block or block_size
        self.n_blocks, self.extra, self.policy = n_blocks, extra, policy
        self.cache_config = types.SimpleNamespace(
            kv_cache_groups=[types.SimpleNamespace(kv_cache_spec=FullAttentionSpec(block_size))]
        )
        self.ranks = [Rank(self, rank) for rank in range(tp)]
        config = config_of(name, 0, tp, extra)
        self.connector = HetcclConnector(config, ROLE.SCHEDULER, self.cache_config)
        self.connector.set_xfer_handshake_metadata_pp_aware({
            (0, at): rank.connector.get_handshake_metadata() for at, rank in enumerate(self.ranks)
        })  # fmt: skip
        self.free = list(range(1, n_blocks))
        self.requests, self.queue, self.ready = {}, [], set()
        self.counts = {"sent": {}, "received": {}}
        self.failed, self.ended, self.params, self.stats = set(), {}, {}, []

    def close(self):
        for rank in self.ranks:
            rank.connector.shutdown()
        self.connector.shutdown()

    # Blocks.

    def write(self, request, first=0):
        values = values_of(request.prompt, request.num_prompt_tokens).to(self.dtype)
        for rank in self.ranks:
            cells = rank.cells(
                request.blocks, request.num_prompt_tokens, self.kernel_block, self.block_size
            )
            for layer, (cache, (block, token)) in enumerate(cells):
                cache[block[first:], :, token[first:]] = values[layer, first:, rank.heads]

    def check(self, request):
        """The values of its cells are those of its prompt, and the rest of the block is finite."""
        wanted = values_of(request.prompt, request.num_prompt_tokens).to(self.dtype)
        for rank in self.ranks:
            cells = rank.cells(
                request.blocks, request.num_prompt_tokens, self.kernel_block, self.block_size
            )
            for layer, (cache, (block, token)) in enumerate(cells):
                found = cache[block, :, token]
                assert torch.equal(found, wanted[layer, :, rank.heads]), request.request_id
                if request.received and request.num_prompt_tokens % self.kernel_block:
                    tail = cache[block[-1], :, token[-1] + 1 :]
                    assert (tail == 0).all(), "the tail of the last block is not zeroed"

    def fill(self, blocks):
        ratio = self.block_size // self.kernel_block
        for rank in self.ranks:
            for cache in rank.caches.values():
                for block in blocks:
                    cache[block * ratio : (block + 1) * ratio] = MARK

    def check_free(self):
        ratio = self.block_size // self.kernel_block
        for rank in self.ranks:
            for cache in rank.caches.values():
                for block in self.free:
                    assert (cache[block * ratio : (block + 1) * ratio] == MARK).all()

    def release(self, request):
        self.fill(request.blocks)
        self.free += request.blocks
        assert len({*self.free}) == len(self.free), "a block is freed twice"
        request.blocks = []

    # Requests.

    def add(self, identity, prompt, n_tokens, params, n_cached=0):
        request = Request(identity, prompt, n_tokens, params, n_cached=n_cached)
        self.requests[identity] = request
        self.queue.append(request)
        self.connector.on_new_request(request)
        return request

    def abort(self, identity):
        request = self.requests.get(identity)
        if request is None or request.status.value >= 3:
            return
        is_loading = request.status is Status.WAITING_FOR_REMOTE_KVS and identity not in self.ready
        self.ready.discard(identity)
        self.queue = [one for one in self.queue if one is not request]
        self.finish(request, Status.FINISHED_ABORTED, is_loading)

    def finish(self, request, status, delay=False):
        request.status = status
        is_kept, params = self.connector.request_finished_all_groups(request, (request.blocks,))
        self.params[request.request_id] = params
        self.ended[request.request_id] = "failed" if request.failed else status.name
        if not (delay or is_kept):
            self.drop(request)

    def drop(self, request):
        assert request.status.value >= 3
        self.release(request)
        del self.requests[request.request_id]

    def schedule(self):
        for request in list(self.queue):
            if request.status is Status.WAITING_FOR_REMOTE_KVS:
                if request.request_id not in self.ready:
                    continue
                self.ready.remove(request.request_id)
                request.status = Status.RUNNING
                self.queue.remove(request)
                continue
            count = -(-request.num_prompt_tokens // self.block_size)
            if len(self.free) < count:
                continue
            n_new, is_async = self.connector.get_num_new_matched_tokens(request, request.n_cached)
            again = self.connector.get_num_new_matched_tokens(request, request.n_cached)
            assert again == (n_new, is_async)
            self.check_free()
            request.blocks, self.free = self.free[:count], self.free[count:]
            if request.n_cached:
                self.write(request)  # a local hit: the cells behind it are overwritten
            self.connector.update_state_after_alloc(request, Blocks(request.blocks), n_new)
            if is_async:
                request.status = Status.WAITING_FOR_REMOTE_KVS
                request.num_computed_tokens = request.n_cached + n_new
            else:
                request.status = Status.RUNNING
                self.queue.remove(request)

    def step(self):
        """Schedules, runs the workers, and takes their reports, as vLLM does."""
        self.schedule()
        metadata = self.connector.build_connector_meta(None)
        running = [one for one in self.requests.values() if one.status is Status.RUNNING]
        for request in running:
            if not request.received or request.num_computed_tokens == 0:
                self.write(request)
            self.check(request)
            request.num_computed_tokens = request.num_prompt_tokens
        outputs = []
        for rank in self.ranks:
            rank.connector.bind_connector_metadata(metadata)
            rank.connector.start_load_kv(None)
            rank.connector.wait_for_save()
            outputs.append(rank.connector.get_transfer_results(set()))
            stats = rank.connector.get_kv_connector_stats()
            if stats is not None:
                self.stats.append(stats)
            rank.connector.clear_connector_metadata()
        for request in running:
            self.finish(request, Status.FINISHED_LENGTH_CAPPED)
        self.update(outputs)

    def aggregate(self, kind, reports):
        """Requests that all ranks have reported."""
        whole, counts = set(), self.counts[kind]
        for identities in reports:
            for identity in identities:
                counts[identity] = counts.get(identity, 0) + 1
                assert counts[identity] <= self.tp, f"{identity} is reported twice"
                if counts[identity] == self.tp:
                    whole.add(identity)
        return whole

    def update(self, outputs):
        sent = self.aggregate("sent", [one.finished_sending for one in outputs])
        received = self.aggregate("received", [one.finished_recving for one in outputs])
        for one in outputs:
            self.failed |= one.failed_recving
        self.connector.update_connector_output(
            types.SimpleNamespace(finished_recving=received, finished_sending=sent)
        )
        for identity in received:
            request = self.requests[identity]
            is_failed = identity in self.failed
            self.failed.discard(identity)
            if request.status is not Status.WAITING_FOR_REMOTE_KVS:
                self.drop(request)
                continue
            self.ready.add(identity)
            request.failed, request.received = is_failed, not is_failed
            if is_failed:
                request.num_computed_tokens = 0
        for identity in sent:
            self.drop(self.requests[identity])
