"""The communicator over buffers: every collective, on streams, with bad arguments refused."""

import struct
import time
from array import array

import pytest
from patience import COLLECTIVE, HANG
from ranks import run_ranks

import hetccl
from hetccl import HetcclError
from hetccl._lib import Result


def collectives(comm):
    mine = array("f", [comm.rank + 1.0] * 1000)
    total = array("f", bytes(4000))
    comm.all_reduce(mine, total)
    gathered = array("i", [0] * comm.size)
    comm.all_gather(array("i", [comm.rank * 10]), gathered)
    piece = array("d", [0.0])
    comm.reduce_scatter(array("d", [float(i) for i in range(comm.size)]), piece, op="avg")
    summed = array("i", [-1] * 10)
    comm.reduce(array("i", [comm.rank + 1] * 10), summed, root=1)
    assert list(summed) == [6 if comm.rank == 1 else -1] * 10
    comm.reduce(bytes(8), bytearray(8) if comm.rank == 0 else None, dtype="float8_e5m2")
    word = array("q", [comm.rank, comm.rank])
    comm.broadcast(word, root=comm.size - 1)
    comm.barrier()
    return list(set(total)), list(gathered), piece[0], word[0]


@pytest.mark.smoke
@pytest.mark.parametrize("labels", [(), ("a", "a", "b"), ("a", "b", "a")])
def test_collectives(labels):
    for rank, result in enumerate(run_ranks(3, collectives, labels)):
        assert result == ([6.0], [0, 10, 20], float(rank), 2)


def scaled(comm):
    results = []
    for dtype, kind in (("float32", "f"), ("float64", "d"), ("int32", "i")):
        with comm.pre_mul_sum(comm.rank + 2, dtype) as op:
            values = array(kind, [1, 10] * 500)
            comm.all_reduce(values, op=op)
            results.append(list(values[:2]))
    with comm.pre_mul_sum(0.5, "float8_e4m3") as op:
        halves = bytearray(b"\x38" * 100)  # ones
        comm.all_reduce(halves, op=op, dtype="float8_e4m3")
    stale = comm.pre_mul_sum(1, "float32")
    stale.close()
    stale.close()
    with pytest.raises(HetcclError) as caught:
        comm.all_reduce(array("f", [1]), op=stale)
    assert caught.value.result is Result.INVALID_ARGUMENT
    with comm.pre_mul_sum(1, "float32") as op, pytest.raises(HetcclError):
        comm.all_reduce(array("d", [1]), op=op)
    with pytest.raises(ValueError, match="none of"):
        comm.pre_mul_sum(1, "decimal")
    return results, set(halves)


@pytest.mark.parametrize("labels", [(), ("a", "a", "b")])
def test_pre_multiplied_sums(labels):
    for results, halves in run_ranks(3, scaled, labels):
        assert results == [[9, 90]] * 3
        assert halves == {0x3C}  # 1.5


def streamed(comm):
    stream = hetccl.Stream()
    values = [array("i", [comm.rank + step] * 50_000) for step in range(20)]
    for value in values:
        comm.all_reduce(value, op="max", stream=stream)
    stream.synchronize(timeout=COLLECTIVE)
    comm.check()
    done = stream.done()
    stream.close()
    stream.close()
    stats = comm.stats()
    clusters = len(comm.topology()["clusters"])
    return [set(v) for v in values], done, stats.operations, stats.cross_bytes_sent, clusters


def test_streams_run_in_the_background_and_in_order():
    results = run_ranks(2, streamed, ("a", "b"))
    for values, done, operations, cross, clusters in results:
        assert values == [{1 + step} for step in range(20)]
        assert done
        assert operations >= 20
        assert cross > 0
        assert clusters == 2


def refused(comm):
    readonly, small = bytes(8), bytearray(4)
    with pytest.raises(ValueError, match="read-only"):
        comm.all_reduce(readonly, readonly)
    with pytest.raises(ValueError, match="asks for 2"):
        comm.all_reduce(array("i", [1, 2]), array("i", [1]))
    with pytest.raises(ValueError, match="whole number"):
        comm.all_reduce(bytearray(6), dtype="float32")
    with pytest.raises(ValueError, match="none of sum"):
        comm.all_reduce(small, op="median")
    with pytest.raises(ValueError, match="none of"):
        comm.all_reduce(small, dtype="float8")
    with pytest.raises(TypeError, match="cannot be received as"):
        comm.all_reduce(array("i", [1]), array("f", [1]))
    with pytest.raises(TypeError, match="pass dtype"):
        comm.all_reduce(memoryview(bytearray(8)).cast("P"))
    with pytest.raises(ValueError, match="not contiguous"):
        comm.all_reduce(memoryview(bytearray(8))[::2])
    with pytest.raises(HetcclError) as caught:
        comm.broadcast(small, root=comm.size)
    assert caught.value.result is Result.INVALID_ARGUMENT
    comm.all_reduce(bytearray())  # no element is no error
    comm.barrier()
    return True


def test_bad_arguments_are_refused_and_the_communicator_lives_on():
    assert run_ranks(2, refused) == [True, True]


def messages(comm):
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    mine, got, total = array("i", [comm.rank] * 3), array("i", [-1] * 3), array("f", [1.0])
    with hetccl.group():
        comm.all_reduce(total)
        with hetccl.group():
            comm.send(mine, right)
        comm.recv(got, left)
        assert list(got) == [-1] * 3
        assert total[0] == 1
    assert list(got) == [left] * 3
    assert total[0] == comm.size
    if comm.rank == 0:
        comm.send(b"words", 1, dtype="uint8", tag=7)
        for tag in (-1, 1 << 32):  # which C would take for another one
            with pytest.raises(ValueError, match=f"tag is {tag}: it must be from 0 to 4294967295"):
                comm.send(b"words", 1, dtype="uint8", tag=tag)
    if comm.rank == 1:
        words = bytearray(5)
        comm.recv(words, 0, dtype="uint8", tag=7)
        assert words == b"words"
    with pytest.raises(ZeroDivisionError), hetccl.group():
        comm.send(mine, right)  # dropped
        raise ZeroDivisionError
    with pytest.raises(HetcclError, match="peer is 9"), hetccl.group():
        comm.send(mine, right)
        comm.send(mine, 9)
    out, into = hetccl.Stream(), hetccl.Stream()
    comm.send(mine, right, stream=out)
    comm.recv(got, left, stream=into)
    for stream in (out, into):
        stream.synchronize()
        stream.close()
    return list(got)


@pytest.mark.smoke
@pytest.mark.parametrize("labels", [(), ("a", "b", "a")])
def test_messages_and_groups(labels):
    assert run_ranks(3, messages, labels) == [[2] * 3, [0] * 3, [1] * 3]


def encoded(comm):
    own = array("f", [comm.rank + step / 7 for step in range(50_000)])
    gathered = array("f", bytes(4 * len(own) * comm.size))
    comm.all_gather(own, gathered)
    codes = bytearray(hetccl.encoded_bytes(len(own), "int4:32"))
    decoded = array("f", bytes(4 * len(own)))
    stream = hetccl.Stream()
    comm.encode(own, codes, "int4:32", stream=stream)
    comm.decode(codes, decoded, "int4:32", stream=stream)
    stream.synchronize()
    stream.close()
    again = bytearray(len(codes))
    comm.encode(bytes(own), again, "int4:32", dtype="float32")
    assert again == codes
    assert decoded != own
    assert gathered[comm.rank * len(own) :][: len(own)] == decoded
    comm.decode(bytes(codes), own, "int4:32")
    assert decoded == own
    halves = bytearray(2 * len(own))
    comm.decode(codes, halves, "int4:32", dtype="bfloat16")
    last = struct.unpack("f", bytes(2) + halves[-2:])[0]
    assert abs(last - decoded[-1]) <= abs(decoded[-1]) / 256
    with pytest.raises(ValueError, match="codes has 3 bytes, but 2 elements in int8 take 6"):
        comm.encode(array("f", [1, 2]), bytearray(3), "int8")
    with pytest.raises(HetcclError, match="datatype float64"):
        comm.encode(array("d", [1, 2]), bytearray(6), "int8")
    with pytest.raises(HetcclError, match="is no encoding"):
        comm.encode(own, codes, "int3")
    return True


def test_one_cluster_encodes_as_encoding_by_hand_does():
    options = {"wire_gather": "int4:32", "wire_inside": True}
    assert run_ranks(2, encoded, **options) == [True, True]


def fed_back(comm):
    """Over many calls nothing is lost except the residuals' content."""
    count, calls = 40_000, 6
    for scatters in (False, True):
        part = count // comm.size if scatters else count
        own = array("f", [((comm.rank + 2) * step % 97) / 7 for step in range(count)])
        got, residual = array("f", bytes(4 * part)), array("f", bytes(4 * count))
        total = [0.0] * part
        for _ in range(calls):
            if scatters:
                comm.reduce_scatter(own, got, residual=residual)
            else:
                comm.all_reduce(own, got, residual=residual)
            total = [a + b for a, b in zip(total, got, strict=True)]
        exact, sums = array("d", own), array("d", residual)  # doubles have no encoding
        comm.all_reduce(exact)
        comm.all_reduce(sums)
        first = comm.rank * part if scatters else 0
        for i, value in enumerate(total):
            assert abs(value + sums[first + i] - calls * exact[first + i]) < 1e-2
        assert max(sums) > 0.1
    with pytest.raises(ValueError, match="residual has 3 elements, but 40000 are reduced"):
        comm.all_reduce(own, residual=array("f", [0, 0, 0]))
    with pytest.raises(ValueError, match="residual is read-only"):
        comm.all_reduce(own, residual=bytes(4 * count), dtype="float32")
    with pytest.raises(TypeError, match="residual has int32, but float32 is reduced"):
        comm.all_reduce(own, residual=array("i", bytes(4 * count)))
    with pytest.raises(HetcclError, match="residual and sendbuff overlap"):
        comm.all_reduce(own, residual=own)
    with pytest.raises(ValueError, match="leave out residual"):
        comm.reduce_scatter(own, got, counts=[part] * comm.size, residual=residual)
    return True


@pytest.mark.parametrize("labels", [("a", "b"), ()])
def test_error_feedback(labels):
    options = {"wire": "int4", "wire_inside": True}
    assert run_ranks(2, fed_back, labels, **options) == [True, True]


def alone(comm):
    value = array("f", [2.5])
    comm.all_reduce(bytes(value), value, dtype="float32")  # what is only sent may be read-only
    comm.destroy()
    comm.destroy()
    with pytest.raises(ValueError, match="destroyed"):
        comm.barrier()
    return value[0]


def test_one_rank_and_use_after_destroy():
    assert run_ranks(1, alone) == [2.5]


def parts(comm):
    part = comm.split(comm.rank % 2, key=-comm.rank)
    value = array("i", [comm.rank])
    part.all_reduce(value)
    place = part.rank, part.size, value[0]
    part.destroy()
    none = comm.split(None if comm.rank == 0 else 3)
    comm.finalize()
    with pytest.raises(HetcclError, match="finalized"):
        comm.barrier()
    return place, none is None


def test_a_split_orders_by_key():
    results = run_ranks(3, parts, ("a", "b", "b"))
    assert results == [((1, 2, 2), True), ((0, 1, 1), False), ((0, 2, 2), False)]


def shrunk(comm):
    value = array("i", [comm.rank])
    if comm.rank != 1:
        part = comm.shrink([1])
        part.all_reduce(value)
        assert (part.rank, part.size) == (comm.rank // 2, 2)
        part.destroy()
    comm.barrier()
    assert comm.dump()["name"] == ""
    return value[0]


def test_a_shrink_leaves_ranks_out():
    assert run_ranks(3, shrunk, ("a", "b", "b")) == [2, 1, 2]


def ready(comm):
    deadline = time.monotonic() + HANG
    while not comm.ready() and time.monotonic() < deadline:
        time.sleep(0.01)
    return comm.ready()


@pytest.mark.smoke
def test_ranks_of_one_thread_that_do_not_block():
    uid = hetccl.unique_id()
    first = hetccl.Communicator(uid, 0, 2, blocking=False, name="both")
    assert not first.ready()
    with pytest.raises(HetcclError, match="still being set up"):
        first.barrier()
    second = hetccl.Communicator(uid, 1, 2, blocking=False)
    assert ready(first)
    assert ready(second)
    assert first.dump()["name"] == "both"
    split = [comm.split(0, key=-comm.rank) for comm in (first, second)]
    assert all(ready(part) for part in split)
    assert [part.rank for part in split] == [1, 0]
    for comm in (first, second):
        comm.finalize()
        assert ready(comm)
        comm.destroy()
    lone = hetccl.Communicator(hetccl.unique_id(), 0, 2, blocking=False, init_timeout=0.2)
    with pytest.raises(HetcclError, match="rank 1 of 2 never came"):
        ready(lone)
    lone.abort()


def dumped(comm):
    comm.all_reduce(array("h", [1, 2, 3]), op="max")
    comm.barrier()
    dump = comm.dump()
    reduce, barrier = dump["operations"]
    return (
        dump["rank"],
        dump["ranks"],
        dump["failure"],
        (reduce["collective"], reduce["type"], reduce["op"], reduce["count"], reduce["bytes"]),
        barrier["collective"],
        barrier["state"],
        0 < reduce["launched_us"] <= reduce["completed_us"] <= dump["written_us"],
    )


def test_a_dump_tells_what_became_of_every_call():
    for rank, result in enumerate(run_ranks(2, dumped, ("a", "b"))):
        call = ("all_reduce", "int16", "max", 3, 6)
        assert result == (rank, 2, None, call, "barrier", "completed", True)


def test_a_short_unique_id_is_refused():
    with pytest.raises(ValueError, match="128 bytes"):
        hetccl.Communicator(b"short", 0, 1)


def test_a_foreign_unique_id_is_refused():
    with pytest.raises(HetcclError) as caught:
        hetccl.Communicator(bytes(128), 0, 1)
    assert caught.value.result is Result.INVALID_ARGUMENT
