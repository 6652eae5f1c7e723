"""Groups whose collectives are encoded between clusters."""

import hashlib

import pytest
from torch_ranks import run

import hetccl

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from hetccl.torch_backend import backend_of  # noqa: E402

COUNT = 64_000


def data(of, dtype):
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(of)).to(dtype)


def check_alike(tensor):
    digests = [None] * dist.get_world_size()
    raw = bytes(tensor.contiguous().view(torch.uint8).numpy())
    dist.all_gather_object(digests, hashlib.sha256(raw).hexdigest())
    assert len(set(digests)) == 1


def check_close(got, exact, bound):
    assert (got.double() - exact).abs().max().item() <= bound


def collectives(rank, size):
    group = dist.new_group(pg_options=hetccl.quantized("int8", "int4:64"))
    backend = backend_of(group)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        inputs = [data(r, dtype).double() for r in range(size)]
        exact, own, part = torch.stack(inputs).sum(0), data(rank, dtype), COUNT // size
        largest = sum(one.abs().max().item() for one in inputs)
        rounding = largest * torch.finfo(dtype).eps * size
        bound = 2.01 * largest / 254 + rounding
        reduced = own.clone()
        before = backend.stats()["cross_bytes_sent"]
        dist.all_reduce(reduced, group=group)
        crossed = backend.stats()["cross_bytes_sent"] - before
        assert crossed <= 2.05 * COUNT  # a byte for each element and other cluster, and scales
        check_close(reduced, exact, bound)
        check_alike(reduced)
        scattered = own.new_empty(part)
        dist.reduce_scatter_tensor(scattered, own, group=group)
        check_close(scattered, exact[rank * part :][:part], bound)
        gathered = own.new_empty(COUNT * size)
        dist.all_gather_into_tensor(gathered, own, group=group)
        check_close(gathered, torch.cat(inputs), largest / 14 + rounding)
        check_alike(gathered)
    numbers = torch.full((COUNT,), rank + 1, dtype=torch.int32)
    dist.all_reduce(numbers, group=group)
    assert (numbers == size * (size + 1) // 2).all()
    few = torch.full((100,), 1 / 3)
    dist.all_reduce(few, group=group)
    assert torch.equal(few, torch.full((100,), 1 / 3) * size)  # too few to be encoded


def training(rank, size):
    """A linear model finds its weights through gradients of 4 bits."""
    group = dist.new_group(pg_options=hetccl.quantized("int4"))
    torch.manual_seed(1)
    wanted = torch.randn(256, 256)
    model = nn.parallel.DistributedDataParallel(
        nn.Linear(256, 256, bias=False), process_group=group
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    torch.manual_seed(2 + rank)
    for _ in range(150):
        x = torch.randn(128, 256)
        optimizer.zero_grad()
        (model(x) - x @ wanted.T).square().mean().backward()
        optimizer.step()
    check_alike(model.module.weight.detach())
    assert (model.module.weight - wanted).square().mean() < 0.05 * wanted.square().mean()


def gradients(rank, size):
    """Biases are exact, weights within the bound."""

    def model_of():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.LayerNorm(300))

    exact, encoded = (nn.parallel.DistributedDataParallel(model_of()) for _ in range(2))
    group = hetccl.compress_gradients(encoded, "int4:64")
    assert dist.get_process_group_ranks(group) == list(range(size))
    torch.manual_seed(4 + rank)
    x = torch.randn(32, 300)
    for model in (exact, encoded):
        model(x).square().sum().backward()
    unlike = 0
    for one, other in zip(exact.parameters(), encoded.parameters(), strict=True):
        if one.dim() == 1:
            assert torch.equal(one.grad, other.grad)
        else:
            unlike += not torch.equal(one.grad, other.grad)
            # The largest gradient, added up over all ranks.
            largest = one.grad.abs().max() * size
            assert (one.grad - other.grad).abs().max() <= largest * size / 7
    assert unlike == 2
    check_alike(torch.cat([p.grad.flatten() for p in encoded.parameters()]))


def feedback(rank, size):
    """The rounding errors of one call are added in the next."""
    group = dist.new_group(pg_options=hetccl.quantized("int4"))
    backend = backend_of(group)
    calls, own = 8, data(rank, torch.float32)
    exact = torch.stack([data(r, torch.float32).double() for r in range(size)]).mean(0)
    residual, total = torch.zeros_like(own), torch.zeros(COUNT, dtype=torch.float64)
    for call in range(calls):
        tensor = own.clone()
        work = backend.all_reduce_with_residual(tensor, residual, dist.ReduceOp.AVG)
        work.wait()
        total += tensor.double()
        if call == 0:
            once = (tensor.double() - exact).abs().max()
    check_alike(tensor)
    assert (total / calls - exact).abs().max() < 2.1 * once / calls
    for factor in (0.5, torch.full((1,), 0.5)):
        ones, premul = torch.ones(COUNT), dist._make_nccl_premul_sum(factor)
        backend.all_reduce_with_residual(ones, torch.zeros(COUNT), premul).wait()
        assert (ones - size / 2).abs().max() < 0.1
    for error, text, bad in (
        (ValueError, "residual has 3 elements, but must have 64000", torch.zeros(3)),
        (TypeError, "residual", residual.double()),
        (ValueError, "residual must be contiguous on cpu", torch.zeros(COUNT // 2, 2).T),
        (ValueError, "residual and sendbuff overlap", tensor),
    ):
        with pytest.raises(error, match=text):
            backend.all_reduce_with_residual(tensor, bad).wait()


def fed_gradients(rank, size):
    """The mean over steps of equal batches comes near the exact gradient."""

    def model_of():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.LayerNorm(300))

    torch.manual_seed(4 + rank)
    x, steps, means = torch.randn(32, 300), 9, []
    residuals = hetccl.Residuals()
    assert residuals.n_bytes == 0
    for options in (None, {}, {"residuals": residuals}):
        model = nn.parallel.DistributedDataParallel(model_of(), bucket_cap_mb=0.3)
        if options is not None:
            hetccl.compress_gradients(model, "int4", **options)
        mean = [torch.zeros_like(one) for one in model.parameters()]
        for _ in range(steps):  # DDP makes other buckets after the first
            model.zero_grad()
            model(x).square().sum().backward()
            for sum_, one in zip(mean, model.parameters(), strict=True):
                sum_ += one.grad / steps
        means.append(mean)
    taken = sum(one.nbytes for one in model.parameters())
    assert residuals.n_bytes == taken
    with pytest.raises(ValueError, match="were given to a model before"):
        hetccl.compress_gradients(model, residuals=residuals)
    with pytest.raises(TypeError, match="model is a Sequential"):
        hetccl.compress_gradients(model_of())
    for match, wrong in (
        (r"must be hetccl\.Residuals\(\)", {"residuals": hetccl.Residuals}),
        ("exact is True, but must be a function", {"exact": True}),
        ("wire is 8, but must be a text", {"wire": 8}),
    ):
        with pytest.raises(TypeError, match=match):
            hetccl.compress_gradients(model, **wrong)
    with pytest.raises(ValueError, match=r"exact: rank 1 of .* differ in module\.[02]\.weight"):
        hetccl.compress_gradients(model, exact=lambda one: one is model.module[2 * rank % 4].weight)
    for factor in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be positive and finite"):
            residuals.scale(factor)
    bytes_before = residuals.n_bytes
    residuals.scale(0.5)
    assert residuals.n_bytes == bytes_before
    for exact, plain, fed in zip(*means, strict=True):
        if exact.dim() > 1:
            assert (fed - exact).abs().max() * 4 < (plain - exact).abs().max()


@pytest.mark.parametrize("body", [collectives, training, gradients, feedback, fed_gradients])
@pytest.mark.parametrize("labels", ["aabb", "abca"])
def test_encoded_groups(body, labels, tmp_path):
    run(4, body, folder=tmp_path, labels=labels)


def in_one_cluster(rank, size):
    """Nothing crosses, so sums are exact."""
    group = dist.new_group(pg_options=hetccl.quantized("int4"))
    tensor = data(0, torch.float32)
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, data(0, torch.float32) * size)


def test_sums_in_one_cluster_stay_exact(tmp_path):
    run(2, in_one_cluster, folder=tmp_path)


def inside_one_cluster(rank, size):
    """By the group's options alone; a group that is split off has them, too."""
    outer = dist.new_group(pg_options=hetccl.quantized("int8", "int4:64", wire_inside=True))
    inner = outer.split_group(list(range(size)), group_name="inner")
    own = data(rank, torch.float32)
    exact = torch.stack([data(r, torch.float32).double() for r in range(size)]).sum(0)
    largest = sum(data(r, torch.float32).abs().max().item() for r in range(size))
    reduced = own.clone()
    dist.all_reduce(reduced, group=outer)
    assert not torch.equal(reduced.double(), exact.float().double())
    check_close(reduced, exact, 2.01 * largest / 254)
    check_alike(reduced)
    gathered = own.new_empty(COUNT * size)
    inner._allgather_base(gathered, own).wait()
    check_close(gathered.view(size, COUNT)[rank], own.double(), own.abs().max().item() / 13.9)
    assert not torch.equal(gathered.view(size, COUNT)[rank], own)
    check_alike(gathered)


def by_hand(rank, size):
    """Encoding and decoding gives the bits that an encoded all-gather gives."""
    group = dist.new_group(pg_options=hetccl.quantized(wire_gather="e4m3:128", wire_inside=True))
    backend = backend_of(group)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        own = data(rank, dtype)
        codes = torch.empty(hetccl.encoded_bytes(COUNT, "e4m3:128"), dtype=torch.uint8)
        decoded = torch.empty_like(own)
        backend.encode(own, codes, "e4m3:128")
        backend.decode(codes, decoded, "e4m3:128")
        gathered = own.new_empty(COUNT * size)
        dist.all_gather_into_tensor(gathered, own, group=group)
        assert torch.equal(gathered.view(size, COUNT)[rank], decoded)
        assert not torch.equal(decoded, own)
        # Codes of the other ranks.
        others = codes.new_empty(size, codes.numel())
        dist.all_gather_into_tensor(others, codes, group=group)
        backend.decode(others[(rank + 1) % size].clone(), decoded, "e4m3:128")
        assert torch.equal(gathered.view(size, COUNT)[(rank + 1) % size], decoded)


def refused_by_hand(rank, size):
    backend = backend_of(dist.group.WORLD)
    tensor, codes = torch.ones(256), torch.empty(260, dtype=torch.uint8)
    for error, text, make in (
        (TypeError, "wire is 8, but must be a text", lambda: hetccl.quantized(8)),
        (TypeError, "encoding is None, but must be", lambda: hetccl.encoded_bytes(8, None)),
        (ValueError, "count is -3", lambda: hetccl.encoded_bytes(-3, "int8")),
    ):
        with pytest.raises(error, match=text):
            make()
    for error, text, arguments in (
        (ValueError, 'encode on rank 0: encoding: "int9" is no', (tensor, codes, "int9")),
        (ValueError, "encoding is empty", (tensor, codes, "")),
        (ValueError, "leave out", (tensor, codes, "int8:stochastic")),
        (ValueError, "codes has 260 elements, but must have 132", (tensor, codes, "int4")),
        (ValueError, "not contiguous", (torch.ones(16, 16).T, codes, "int8")),
        (ValueError, "aligned to 4", (tensor, torch.empty(261, dtype=torch.uint8)[1:], "int8")),
        (TypeError, "Double has no encoding", (tensor.double(), codes, "int8")),
        (TypeError, "must have uint8", (tensor, torch.ones(260), "int8")),
    ):
        with pytest.raises(error, match=text):
            backend.encode(*arguments)


@pytest.mark.parametrize("body", [inside_one_cluster, by_hand])
def test_one_cluster_encodes_where_it_is_told_to(body, tmp_path):
    run(2, body, folder=tmp_path)


def test_encoding_by_hand_between_clusters(tmp_path):
    run(3, by_hand, folder=tmp_path, labels="aab")


def test_encoding_by_hand_refuses_what_it_cannot_do(tmp_path):
    run(1, refused_by_hand, folder=tmp_path)


def disagreeing(rank, size):
    with pytest.raises(dist.DistBackendError, match="HETCCL_WIRE=int"):
        dist.new_group(pg_options=hetccl.quantized("int8" if rank == 0 else "int4"))


def disagreeing_inside(rank, size):
    text = "rank 0 has HETCCL_WIRE_INSIDE=1, rank 1 has HETCCL_WIRE_INSIDE=0"
    with pytest.raises(dist.DistBackendError, match=text):
        dist.new_group(pg_options=hetccl.quantized("int8", wire_inside=rank == 0))


def misspelt(rank, size):
    with pytest.raises(dist.DistBackendError, match='wire_gather: "int9" is no encoding'):
        dist.new_group(pg_options=hetccl.quantized("int8", "int9"))


@pytest.mark.parametrize("body", [disagreeing, disagreeing_inside, misspelt])
def test_options_that_are_wrong(body, tmp_path):
    run(2, body, folder=tmp_path, labels="ab")
