// hetcclStart: calls as values, with a deadline and a completion each.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "capi/threads.h"

namespace {

using namespace hetccl::capi_test;

constexpr int kRanks = 4;
constexpr size_t kCount = 1000;
using Floats = std::vector<float>;

hetcclCall_t call_of(hetcclFunction_t function, const void* send, void* recv, size_t count,
                     int root = 0) {
  hetcclCall_t call{};
  call.size = sizeof call;
  call.function = function;
  call.datatype = hetcclFloat32;
  call.sendbuff = send;
  call.recvbuff = recv;
  call.count = count;
  call.root = root;
  return call;
}

// Input of rank `rank`: `blocks` blocks of floats that identify the rank and their place.
Floats input_of(int rank, size_t blocks) {
  Floats data(blocks * kCount);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 97) / 128;
  return data;
}

struct Buffers {
  Floats send, recv;
};

void reset(Buffers& buffers, int rank) {
  const Floats input = input_of(rank, kRanks);
  std::copy(input.begin(), input.end(), buffers.send.begin());
  std::fill(buffers.recv.begin(), buffers.recv.end(), -1.0F);
}

// Calls the function that each call stands for, with the same buffers.
hetcclResult_t call_function(const hetcclCall_t& call, hetcclComm_t comm) {
  const auto [type, op, root] = std::tuple(call.datatype, call.op, call.root);
  const void* const from = call.sendbuff;
  void* const to = call.recvbuff;
  switch (call.function) {
    case hetcclCallAllReduce:
      return call.residual != nullptr
                 ? hetcclAllReduceWithResidual(from, to, call.residual, call.count, type, op, comm,
                                               nullptr)
                 : hetcclAllReduce(from, to, call.count, type, op, comm, nullptr);
    case hetcclCallReduceScatter:
      return hetcclReduceScatter(from, to, call.count, type, op, comm, nullptr);
    case hetcclCallAllGather:
      return hetcclAllGather(from, to, call.count, type, comm, nullptr);
    case hetcclCallBroadcast:
      return hetcclBroadcast(from, to, call.count, type, root, comm, nullptr);
    case hetcclCallReduce:
      return hetcclReduce(from, to, call.count, type, op, root, comm, nullptr);
    case hetcclCallGather:
      return hetcclGather(from, to, call.count, type, root, comm, nullptr);
    case hetcclCallScatter:
      return hetcclScatter(from, to, call.count, type, root, comm, nullptr);
    case hetcclCallAllToAll:
      return hetcclAllToAll(from, to, call.count, type, comm, nullptr);
    case hetcclCallBarrier:
      return hetcclBarrier(comm, nullptr);
    case hetcclCallAllGatherV:
      return hetcclAllGatherV(from, to, call.recvcounts, call.rdispls, type, comm, nullptr);
    case hetcclCallReduceScatterV:
      return hetcclReduceScatterV(from, call.sendcounts, call.sdispls, to, type, op, comm, nullptr);
    case hetcclCallGatherV:
      return hetcclGatherV(from, call.count, to, call.recvcounts, call.rdispls, type, root, comm,
                           nullptr);
    case hetcclCallScatterV:
      return hetcclScatterV(from, call.sendcounts, call.sdispls, to, call.count, type, root, comm,
                            nullptr);
    case hetcclCallAllToAllV:
      return hetcclAllToAllV(from, call.sendcounts, call.sdispls, to, call.recvcounts, call.rdispls,
                             type, comm, nullptr);
    default:
      return hetcclInvalidArgument;
  }
}

// Returns a call of every collective, with blocks of unequal lengths if the collective allows them.
std::vector<hetcclCall_t> collectives(int rank, Buffers& buffers, const size_t* counts) {
  std::vector<hetcclCall_t> calls;
  for (int function = hetcclCallAllReduce; function < hetcclCallSend; ++function) {
    auto call = call_of(static_cast<hetcclFunction_t>(function), buffers.send.data(),
                        buffers.recv.data(), kCount, 1);
    const bool to_all =
        function == hetcclCallReduceScatterV || (function == hetcclCallScatterV && rank == 1);
    const bool from_all =
        function == hetcclCallAllGatherV || (function == hetcclCallGatherV && rank == 1);
    const bool own = function == hetcclCallGatherV || function == hetcclCallScatterV;
    if (to_all || function == hetcclCallAllToAllV) call.sendcounts = counts;
    if (from_all || function == hetcclCallAllToAllV) call.recvcounts = counts;
    if (own) call.count = counts[rank];
    calls.push_back(call);
  }
  return calls;
}

hetcclResult_t wait_for(const hetcclWork_t& work) {
  return hetcclWorkWait(&work, kLimitMs);
}

void destroy(const std::vector<hetcclComm_t>& comms) {
  on_all_ranks(static_cast<int>(comms.size()), [&](int rank) {
    CHECK(hetcclCommDestroy(comms[static_cast<size_t>(rank)]) == hetcclSuccess);
  });
}

}  // namespace

TEST_CASE("every collective that is started does what its function does") {
  constexpr size_t kCounts[kRanks] = {300, 300, 300, 300};
  for (const bool two : {false, true}) {
    const auto comms = join(kRanks, two);
    on_all_ranks(kRanks, [&](int rank) {
      auto* const comm = comms[static_cast<size_t>(rank)];
      Buffers own{Floats(kRanks * kCount), Floats(kRanks * kCount)};
      for (const hetcclCall_t& call : collectives(rank, own, kCounts)) {
        CAPTURE(static_cast<int>(call.function));
        reset(own, rank);
        REQUIRE(call_function(call, comm) == hetcclSuccess);
        const Floats expected = own.recv;
        reset(own, rank);
        CHECK(hetcclStart(&call, 1, comm, nullptr, 0, nullptr) == hetcclSuccess);
        CHECK(own.recv == expected);
        reset(own, rank);
        hetcclWork_t work;
        CHECK(hetcclStart(&call, 1, comm, nullptr, 0, &work) == hetcclSuccess);
        CHECK(wait_for(work) == hetcclSuccess);
        CHECK(hetcclWorkQuery(&work) == hetcclSuccess);
        CHECK(own.recv == expected);
      }
    });
    destroy(comms);
  }
}

TEST_CASE("several calls are one work: messages at the same time, then collectives in order") {
  const auto comms = join(kRanks, true);
  on_all_ranks(kRanks, [&](int rank) {
    auto* const comm = comms[static_cast<size_t>(rank)];
    const int next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
    const Floats sent = input_of(rank, 1);
    Floats got(kCount), total(kCount, 1);
    // The second sum is of the first one's results.
    std::vector<hetcclCall_t> calls(
        2, call_of(hetcclCallAllReduce, total.data(), total.data(), kCount));
    calls.push_back(call_of(hetcclCallRecv, nullptr, got.data(), kCount, before));
    calls.push_back(call_of(hetcclCallSend, sent.data(), nullptr, kCount, next));
    hetcclWork_t work;
    REQUIRE(hetcclStart(calls.data(), calls.size(), comm, nullptr, 0, &work) == hetcclSuccess);
    CHECK(wait_for(work) == hetcclSuccess);
    CHECK(got == input_of(before, 1));
    CHECK(all_are(total, kRanks * kRanks));
    CHECK(hetcclCommWait(comm, 0) == hetcclSuccess);
  });
  destroy(comms);
}

TEST_CASE("a factor of the call itself, and a deadline of its own") {
  const auto comms = join(2, true);
  on_all_ranks(2, [&](int rank) {
    auto* const comm = comms[static_cast<size_t>(rank)];
    Floats total(kCount, 1);
    const float factor = rank == 0 ? 3 : 0.5F;
    hetcclCall_t sum = call_of(hetcclCallAllReduce, total.data(), total.data(), kCount);
    sum.factor = &factor;
    CHECK(hetcclStart(&sum, 1, comm, nullptr, 0, nullptr) == hetcclSuccess);
    CHECK(all_are(total, 3.5F));
    if (rank == 1) {
      Floats more(kCount, 1);  // which the failure ends
      CHECK(hetcclRecv(more.data(), kCount, hetcclFloat32, 0, comm, nullptr) == hetcclTimeout);
      return;
    }
    float data = 0;
    hetcclWork_t work;
    const hetcclCall_t receive = call_of(hetcclCallRecv, nullptr, &data, 1, 1);
    REQUIRE(hetcclStart(&receive, 1, comm, nullptr, 60, &work) == hetcclSuccess);
    CHECK(wait_for(work) == hetcclSuccess);  // it has failed
    CHECK(settled(comm) == hetcclTimeout);
    CHECK(std::string(hetcclGetLastError(comm)).find("timed out after 60 ms") != std::string::npos);
  });
  for (auto* comm : comms) CHECK(hetcclCommAbort(comm) == hetcclSuccess);
}

TEST_CASE("work is good for ever, and garbage does no harm") {
  const auto comms = join(2, true);
  std::vector<hetcclWork_t> works(2);
  Floats data(2);
  on_all_ranks(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const hetcclCall_t receive = call_of(hetcclCallRecv, nullptr, &data[r], 1, 1 - rank);
    CHECK(hetcclStart(&receive, 1, comms[r], nullptr, 0, &works[r]) == hetcclSuccess);
    CHECK(hetcclWorkQuery(&works[r]) == hetcclInProgress);
    CHECK(hetcclCommWait(comms[r], 1) == hetcclTimeout);
  });
  for (auto* comm : comms) CHECK(hetcclCommAbort(comm) == hetcclSuccess);
  // New communicators reuse the counters of the old works.
  const auto others = join(2, true);
  on_all_ranks(2, [&](int rank) {
    Floats total(kCount, 1);
    CHECK(sum(total, others[static_cast<size_t>(rank)], nullptr) == hetcclSuccess);
  });
  for (const hetcclWork_t& work : works) CHECK(hetcclWorkQuery(&work) == hetcclSuccess);
  destroy(others);
  hetcclWork_t garbage;
  for (const int byte : {0, 1, 0x5a, 0xff}) {
    std::memset(&garbage, byte, sizeof garbage);
    CHECK(hetcclWorkQuery(&garbage) == hetcclSuccess);
    CHECK(wait_for(garbage) == hetcclSuccess);
  }
}

TEST_CASE("what is wrong with a start is named, and nothing is started") {
  const auto comms = join(1, false);
  auto* const comm = comms[0];
  Floats total(kCount, 1);
  const auto fails = [&](const hetcclCall_t* calls, size_t n, int64_t timeout_ms,
                         hetcclResult_t expected, const std::string& text) {
    hetcclWork_t work;
    CHECK(hetcclStart(calls, n, comm, nullptr, timeout_ms, &work) == expected);
    CAPTURE(hetcclGetLastError(nullptr));
    CHECK(std::string(hetcclGetLastError(nullptr)).find(text) != std::string::npos);
    CHECK(hetcclWorkQuery(&work) == hetcclSuccess);
  };
  hetcclCall_t calls[2] = {call_of(hetcclCallAllReduce, total.data(), total.data(), kCount),
                           call_of(hetcclCallAllReduce, total.data(), total.data(), kCount)};
  fails(nullptr, 1, 0, hetcclInvalidArgument, "calls is null");
  fails(calls, 1, -1, hetcclInvalidArgument, "timeout_ms is negative");
  fails(calls, SIZE_MAX, 0, hetcclInvalidArgument, "n_calls is");
  calls[1].function = static_cast<hetcclFunction_t>(17);
  fails(calls, 2, 0, hetcclInvalidArgument, "no call was made: call 1: function 17");
  calls[1].function = hetcclCallAllReduce;
  calls[1].op = static_cast<hetcclRedOp_t>(99);
  fails(calls, 2, 0, hetcclInvalidArgument, "op 99");
  calls[1].op = hetcclSum;
  calls[1].recvbuff = nullptr;
  fails(calls, 2, 0, hetcclInvalidArgument, "recvbuff is null");
  hetcclCall_t receive = call_of(hetcclCallRecv, nullptr, total.data(), 1, -2);
  fails(&receive, 1, 0, hetcclInvalidArgument, "peer is -2");
  float loss[kCount] = {};
  hetcclCall_t gather = call_of(hetcclCallAllGather, total.data(), total.data(), kCount);
  gather.residual = loss;
  fails(&gather, 1, 0, hetcclInvalidArgument, "residual is given");
  gather.residual = nullptr;
  gather.factor = loss;
  fails(&gather, 1, 0, hetcclInvalidArgument, "factor is given");
  const float factor = 2;
  calls[0].factor = &factor;
  calls[0].datatype = static_cast<hetcclDataType_t>(40);
  fails(calls, 1, 0, hetcclInvalidArgument, "datatype 40");
  calls[0].size = 8;
  fails(calls, 1, 0, hetcclInvalidArgument, "calls->size");
  CHECK(hetcclGroupStart() == hetcclSuccess);
  fails(calls, 0, 0, hetcclInvalidUsage, "hetcclStart cannot be part of a group");
  CHECK(hetcclGroupEnd() == hetcclSuccess);
  CHECK(all_are(total, 1));
  CHECK(hetcclWorkQuery(nullptr) == hetcclInvalidArgument);
  CHECK(hetcclWorkWait(nullptr, 0) == hetcclInvalidArgument);
  CHECK(hetcclStart(nullptr, 0, comm, nullptr, 0, nullptr) == hetcclSuccess);
  destroy(comms);
}
