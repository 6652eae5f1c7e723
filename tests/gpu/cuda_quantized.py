"""Groups whose collectives are encoded between clusters."""

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from cuda_ranks import Rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COUNT = 302_400  # a multiple of every number of ranks


def data(of: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns the data of rank `of`, on the CPU."""
    generator = torch.Generator().manual_seed(of)
    return torch.randn(count, generator=generator).to(dtype)


def check_alike(where: Rank, tensor: torch.Tensor) -> None:
    raw = tensor.cpu().view(torch.uint8).numpy().tobytes()
    digests: list[str | None] = [None] * where.size
    dist.all_gather_object(digests, hashlib.sha256(raw).hexdigest())
    assert len(set(digests)) == 1, digests


def check_close(got: torch.Tensor, exact: torch.Tensor, bound: float) -> None:
    error = (got.cpu().double() - exact).abs().max().item()
    assert error <= bound, (error, bound)


def quantized(where: Rank) -> None:
    import hetccl

    group = dist.new_group(pg_options=hetccl.quantized("int8", "int4:64"))
    assert group is not None
    for dtype in (torch.bfloat16, torch.float32):
        inputs = [data(r, COUNT, dtype).double() for r in range(where.size)]
        exact = torch.stack(inputs).sum(0)
        largest = sum(one.abs().max().item() for one in inputs)
        rounding = largest * torch.finfo(dtype).eps * where.size
        bound = 2.01 * largest / 254 + rounding
        own = data(where.rank, COUNT, dtype).to(where.device)

        reduced = own.clone()
        dist.all_reduce(reduced, group=group)
        check_close(reduced, exact, bound)
        check_alike(where, reduced)

        part = COUNT // where.size
        scattered = own.new_empty(part)
        dist.reduce_scatter_tensor(scattered, own, group=group)
        check_close(scattered, exact[where.rank * part :][:part], bound)

        gathered = own.new_empty(COUNT * where.size)
        dist.all_gather_into_tensor(gathered, own, group=group)
        check_close(gathered, torch.cat(inputs), largest / 14 + rounding)
        check_alike(where, gathered)

    # Whole numbers have no encoding.
    numbers = torch.full((COUNT,), where.rank + 1, dtype=torch.int32, device=where.device)
    dist.all_reduce(numbers, group=group)
    assert (numbers == where.size * (where.size + 1) // 2).all()
    backend: Any = hetccl.torch_backend.backend_of(group)
    stats, clusters = backend.stats(), len(set(where.labels)) or 1
    if clusters > 1 and where.rank == 0:
        assert stats["cross_bytes_sent"] > 0, stats
    dist.destroy_process_group(group)


def by_hand(where: Rank) -> None:
    """Encoding gives the same bits on GPUs and hosts, those of an encoded all-gather."""
    import hetccl

    encoding = "int4:64"
    group = dist.new_group(pg_options=hetccl.quantized(wire_gather=encoding, wire_inside=True))
    assert group is not None
    backend: Any = hetccl.torch_backend.backend_of(group)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        own = data(where.rank, COUNT, dtype)
        there = own.to(where.device)
        gathered = there.new_empty(where.size, COUNT)
        dist.all_gather_into_tensor(gathered, there, group=group)
        codes = torch.empty(hetccl.encoded_bytes(COUNT, encoding), dtype=torch.uint8)
        codes_there = torch.empty_like(codes, device=where.device)
        backend.encode(own, codes, encoding)
        backend.encode(there, codes_there, encoding)
        assert torch.equal(codes_there.cpu(), codes)
        decoded, decoded_there = torch.empty_like(own), torch.empty_like(there)
        backend.decode(codes, decoded, encoding)
        backend.decode(codes_there, decoded_there, encoding)
        assert torch.equal(decoded_there.cpu(), decoded)
        if len(set(where.labels)) > 1:
            assert torch.equal(gathered[where.rank], decoded_there)
    dist.destroy_process_group(group)


def feedback(where: Rank) -> None:
    """Over many calls nothing is lost except the residuals' content, whoever encodes."""
    import hetccl

    group = dist.new_group(pg_options=hetccl.quantized("int4:64"))
    assert group is not None
    backend: Any = hetccl.torch_backend.backend_of(group)
    residual = torch.zeros(COUNT, device=where.device)
    total = torch.zeros(COUNT, dtype=torch.float64)
    exact = torch.zeros(COUNT, dtype=torch.float64)
    for call in range(5):
        for rank in range(where.size):
            exact += data(10 * call + rank, COUNT, torch.float32).double()
        tensor = data(10 * call + where.rank, COUNT, torch.float32).to(where.device)
        backend.all_reduce_with_residual(tensor, residual).wait()
        total += tensor.cpu().double()
        check_alike(where, tensor)
    held = residual.double()
    dist.all_reduce(held)
    assert (total + held.cpu() - exact).abs().max() < 1e-3
    if len(set(where.labels)) > 1:
        assert held.abs().max() > 1e-2
    dist.destroy_process_group(group)


def gradients(where: Rank) -> None:
    """Biases are exact, weights nearly so, on all ranks alike."""
    import hetccl

    def averaged(**options: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        layers = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
        model = DistributedDataParallel(layers.to(where.device))
        if options:
            hetccl.compress_gradients(model, **options)
        x = data(where.rank, 32 * 256, torch.float32).view(32, 256).to(where.device)
        for _ in range(3):  # DDP makes other buckets after the first pass
            model.zero_grad()
            if where.rank == 0:
                where.pass_time(30)  # others must wait for its gradients
            model(x).square().mean().backward()
        return [one.grad.clone() for one in model.parameters() if one.grad is not None]

    plain, residuals = averaged(), hetccl.Residuals()
    for options in ({"wire": "int8"}, {"wire": "int8", "residuals": residuals}):
        for exact, encoded in zip(plain, averaged(**options), strict=True):
            if exact.dim() == 1:
                # The gradient itself may differ from run to run on a GPU.
                assert torch.allclose(exact, encoded, rtol=1e-5, atol=1e-8)
            else:
                assert (exact - encoded).abs().max() <= exact.abs().max() * where.size / 20
            check_alike(where, encoded)
    assert residuals.n_bytes == sum(one.nbytes for one in plain)


ENCODED = [quantized, by_hand, feedback, gradients]
